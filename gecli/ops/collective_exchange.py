"""Tensors from every rank to every other, and from one rank to one (training.md 13, runtime.md 7.3)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from gecli.errors import RuntimeFault
from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import UNKNOWN_DIM, TensorDesc
from gecli.ops.collective import Collective, ring
from gecli.ops.communication import Arrays, Communicator, current, require_size
from gecli.ops.inference import InferenceError, plain
from gecli.ops.numeric import Array
from gecli.ops.operator import operator, value_of


@operator()
class HcomAllToAll(Collective):
    """Every rank divides its elements into equal parts, one for each rank, and gets one from each."""

    group: str

    def infer(self, x: TensorDesc) -> TensorDesc:
        self.check(x)
        return plain(x)

    def kernel(self, x: Array) -> Array:
        size = current().size
        if x.size % size:
            raise ValueError(f"{x.size} elements cannot be divided into {size} equal parts")
        return self.exchanged((x,), self._exchanged, partial(ring, 1))[0]

    def _exchanged(self, given: Sequence[Arrays]) -> list[Arrays]:
        parts = [np.split(x.reshape(-1), len(given)) for (x,) in given]
        shape = given[0][0].shape
        return [(np.concatenate([each[rank] for each in parts]).reshape(shape),) for rank in range(len(given))]


@operator()
class HcomAllToAllV(Collective):
    """Rank i sends rank j `send_counts[j]` elements from `send_displacements[j]`; counts are in elements."""

    group: str
    outputs = ("recv_data",)
    shape_inputs = (3,)

    def infer(
        self,
        send_data: TensorDesc,
        send_counts: TensorDesc,
        send_displacements: TensorDesc,
        recv_counts: TensorDesc,
        recv_displacements: TensorDesc,
    ) -> TensorDesc:
        self.check(send_data)
        counts = value_of(recv_counts)
        return TensorDesc(send_data.dtype, (UNKNOWN_DIM if counts is None else int(np.sum(counts)),))

    def kernel(
        self,
        send_data: Array,
        send_counts: Array,
        send_displacements: Array,
        recv_counts: Array,
        recv_displacements: Array,
    ) -> Array:
        numbers = [x.reshape(-1).astype(np.int64) for x in
                   (send_counts, send_displacements, recv_counts, recv_displacements)]  # fmt: skip
        arrays = (send_data.reshape(-1), *numbers)
        for name, each in zip(("send_counts", "send_displacements", "recv_counts", "recv_displacements"), numbers):
            _require_counts(name, each, current().size)
        _require_inside("send_displacements", numbers[0], numbers[1], send_data.size)
        _require_inside("recv_displacements", numbers[2], numbers[3], int(numbers[2].sum()))
        return self.exchanged(arrays, self._exchanged, _sent_to_others, sizes_differ=True)[0]

    def _exchanged(self, given: Sequence[Arrays]) -> list[Arrays]:
        results: list[Arrays] = []
        for me, (data, _, _, counts, displacements) in enumerate(given):
            received = np.zeros(int(counts.sum()), data.dtype)
            for other, (sent, sizes, starts, *_) in enumerate(given):
                if sizes[me] != counts[other]:
                    raise _wrong_count(self, other, me, int(sizes[me]), int(counts[other]))
                part = sent[starts[me] : starts[me] + sizes[me]]
                received[displacements[other] : displacements[other] + counts[other]] = part
            results.append((received,))
        return results


def _sent_to_others(given: Sequence[Arrays]) -> list[int]:
    return [
        int(sizes.sum() - sizes[rank]) * data.itemsize for rank, (data, sizes, *_) in enumerate(given)
    ]  # fmt: skip


@operator()
class HcomAllToAllVC(Collective):
    """Rank i sends rank j `send_count_matrix[i][j]` elements, one part behind the other.

    `rank` decides the shape that a compile gives the result. A run takes the rank of the device: one model runs on
    all of them.
    """

    rank: int
    group: str
    outputs = ("recv_data",)
    shape_inputs = (1,)
    of_one_rank = ("rank",)

    def infer(self, send_data: TensorDesc, send_count_matrix: TensorDesc) -> TensorDesc:
        self.check(send_data)
        matrix = value_of(send_count_matrix)
        if matrix is None:
            return TensorDesc(send_data.dtype, (UNKNOWN_DIM,))
        square = _square(np.asarray(matrix))
        if not 0 <= self.rank < len(square):
            raise InferenceError(f"rank is {self.rank}; send_count_matrix is for {len(square)} ranks")
        return TensorDesc(send_data.dtype, (int(square[:, self.rank].sum()),))

    def kernel(self, send_data: Array, send_count_matrix: Array) -> Array:
        communicator, matrix = current(), _square(send_count_matrix)
        require_size(self.call(()), len(matrix), communicator.size)
        if int(matrix[communicator.rank].sum()) > send_data.size:
            raise ValueError(f"send_count_matrix wants {int(matrix[communicator.rank].sum())} elements to be sent, "
                             f"send_data has {send_data.size}")  # fmt: skip
        arrays = (send_data.reshape(-1), matrix)
        return self.exchanged(arrays, self._exchanged, _rows_to_others, sizes_differ=True)[0]

    def _exchanged(self, given: Sequence[Arrays]) -> list[Arrays]:
        matrix = given[0][1]
        for rank, (_, other) in enumerate(given):
            if not np.array_equal(other, matrix):
                raise _mismatch(self, 0, rank, "send_count_matrix", matrix.tolist(), other.tolist())
        starts = np.cumsum(matrix, axis=1) - matrix
        ranks = range(len(given))
        return [
            (np.concatenate([given[i][0][starts[i][j] : starts[i][j] + matrix[i][j]] for i in ranks]),) for j in ranks
        ]


def _rows_to_others(given: Sequence[Arrays]) -> list[int]:
    return [int(matrix[rank].sum() - matrix[rank][rank]) * data.itemsize for rank, (data, matrix) in enumerate(given)]


def _square(matrix: Array) -> Array:
    """The matrix of counts, which may be given as one row. Raises ValueError."""
    size = round(matrix.size**0.5)
    if size * size != matrix.size or (matrix.size and int(matrix.min()) < 0):
        raise ValueError(f"send_count_matrix {list(matrix.shape)} has no count for each pair of ranks")
    return matrix.reshape(size, size).astype(np.int64)


def _require_counts(name: str, counts: Array, size: int) -> None:
    if counts.size != size or (counts.size and int(counts.min()) < 0):
        raise ValueError(f"{name} is {counts.tolist()}; the group has {size} rank{'s' if size > 1 else ''}")


def _require_inside(name: str, counts: Array, starts: Array, size: int) -> None:
    if any(count and start + count > size for count, start in zip(counts, starts)):
        raise ValueError(f"{name} {starts.tolist()} with counts {counts.tolist()} goes beyond the {size} elements")


def _wrong_count(op: Collective, sender: int, receiver: int, sent: int, expected: int) -> RuntimeFault:
    return RuntimeFault(
        "G4015",
        f"rank {sender} sends {sent} elements to rank {receiver}, which expects {expected}",
        kind="RT_COLLECTIVE_MISMATCH",
        why=f"send_counts of rank {sender} and recv_counts of rank {receiver} differ at {type(op).__name__}",
        node=op.of_node,
        expected=expected,
        actual=sent,
    )


def _mismatch(op: Collective, one: int, other: int, what: str, mine: Any, theirs: Any) -> RuntimeFault:
    return RuntimeFault(
        "G4015",
        f"ranks {one} and {other} do not agree on {what} of {type(op).__name__} {op.of_node!r}",
        kind="RT_COLLECTIVE_MISMATCH",
        why=f"rank {one} has {mine}, rank {other} has {theirs}",
        node=op.of_node,
        expected=mine,
        actual=theirs,
    )


# ---------------------------------------------------------------- one to one


@operator()
class HcomSend(Collective):
    """Sends a tensor to `dest_rank`; it does not wait until somebody takes it."""

    group: str
    sr_tag: int
    dest_rank: int
    outputs = ()

    def infer(self, x: TensorDesc) -> tuple[TensorDesc, ...]:
        self.check(x)
        return ()

    def kernel(self, x: Array) -> Arrays:
        call, communicator = self.call(()), current()
        self.require_fits(call, communicator.size)
        communicator.send(call, self.dest_rank, self.sr_tag, x)
        return ()


@operator()
class HcomReceive(Collective):
    """The next tensor with this tag that `src_rank` has sent."""

    group: str
    sr_tag: int
    src_rank: int
    shape: tuple[int, ...]
    dtype: DataType

    def infer(self) -> TensorDesc:
        desc = TensorDesc(self.dtype, self.shape)
        self.check(desc)
        return desc

    def kernel(self) -> Array:
        call, communicator = self.call(()), current()
        self.require_fits(call, communicator.size)
        message = communicator.receive(call, self.src_rank, self.sr_tag)
        return self._fitted(message.array, message.node, communicator)

    def _fitted(self, array: Array, sender: str, communicator: Communicator) -> Array:
        free = UNKNOWN_DIM in self.shape
        count = int(np.prod(self.shape))
        if array.dtype == self.dtype.numpy and (free or array.size == count):
            return array.reshape(self.shape)
        raise RuntimeFault(
            "G4015",
            f"HcomReceive {self.of_node!r} of rank {communicator.rank} gets another tensor than it expects",
            kind="RT_COLLECTIVE_MISMATCH",
            why=f"HcomSend {sender!r} of rank {self.src_rank} sent {array.dtype.name} {list(array.shape)}, "
            f"expected {self.dtype.numpy.name} {list(self.shape)}",
            node=self.of_node,
            expected=f"{self.dtype.numpy.name} {list(self.shape)}",
            actual=f"{array.dtype.name} {list(array.shape)}",
        )
