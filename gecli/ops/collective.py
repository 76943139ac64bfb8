"""Broadcasts, reductions and gathering: what the devices of a group compute together (training.md 13, runtime.md 7.3).

A kernel gives its tensors to the communicator of its device and says how the results follow from those of all ranks.
On one device every collective is the identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.ops.communication import (
    WORLD_GROUP,
    Arrays,
    Call,
    Combine,
    Traffic,
    current,
    operands_of,
    require_rank,
    require_size,
)
from gecli.ops.inference import InferenceError, plain
from gecli.ops.numeric import Array, is_half
from gecli.ops.operator import AllInputs, operator

MAX_GROUP_NAME = 128
REDUCTIONS: dict[str, np.ufunc] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
AVERAGE, SUM = 0, 1  # reduce_op of Horovod's operators
REDUCIBLE = (
    DataType.FLOAT,
    DataType.FLOAT16,
    DataType.BF16,
    DataType.INT8,
    DataType.INT16,
    DataType.INT32,
    DataType.INT64,
)


class Collective:
    """What all have in common: a node name to be known by, the attributes that ranks compare, checks of both."""

    foldable: ClassVar[bool] = False
    stateless: ClassVar[bool] = False
    of_node: ClassVar[str] = ""
    of_one_rank: ClassVar[tuple[str, ...]] = ()  # attributes in which ranks may differ

    def call(self, operands: tuple[tuple[str, int], ...]) -> Call:
        kind: Any = type(self)
        shown = tuple((name, getattr(self, name)) for name in kind.type.attributes if name not in self.of_one_rank)
        return Call(kind.__name__, self.of_node, getattr(self, "group", WORLD_GROUP), shown, operands)

    def exchanged(self, arrays: Arrays, combine: Combine, traffic: Traffic, *, sizes_differ: bool = False) -> Arrays:
        """What this rank gets. Raises RuntimeFault for attributes that do not fit the group."""
        operands = operands_of(arrays)
        call = self.call(tuple((name, -1) for name, _ in operands) if sizes_differ else operands)
        communicator = current()
        self.require_fits(call, communicator.size)
        return communicator.exchange(call, arrays, combine, traffic)

    def require_fits(self, call: Call, size: int) -> None:
        for name in ("root_rank", "dest_rank", "src_rank"):
            if hasattr(self, name):
                require_rank(call, name, getattr(self, name), size)
        if hasattr(self, "rank_size"):
            require_size(call, self.rank_size, size)

    def check(self, *descs: TensorDesc) -> None:
        """Raises InferenceError for attributes that no group has and for tensors that cannot be sent."""
        group = getattr(self, "group", WORLD_GROUP)
        if not group or len(group) > MAX_GROUP_NAME:
            raise InferenceError(f"group has {len(group)} characters; it has 1 to {MAX_GROUP_NAME}")
        for name in ("root_rank", "dest_rank", "src_rank"):
            if getattr(self, name, 0) < 0:
                raise InferenceError(f"{name} is {getattr(self, name)}; ranks count from 0")
        if getattr(self, "rank_size", 1) < 1:
            raise InferenceError(f"rank_size is {getattr(self, 'rank_size')}; a group has 1 device or more")  # noqa: B009
        if getattr(self, "fusion", 0) not in (0, 1, 2):
            raise InferenceError(f"fusion is {getattr(self, 'fusion')}, not 0, 1 or 2")  # noqa: B009
        if getattr(self, "reduction", "sum") not in REDUCTIONS:
            raise InferenceError(f"reduction is {getattr(self, 'reduction')!r}, not one of {', '.join(REDUCTIONS)}")  # noqa: B009
        for desc in descs:
            if not desc.dtype.bits or desc.dtype.bits % 8 or desc.dtype.numpy.hasobject:
                raise InferenceError(f"tensors of type {desc.dtype.serial} have no fixed width and cannot be sent")


def _reducible(desc: TensorDesc) -> None:
    if desc.dtype not in REDUCIBLE:
        known = ", ".join(dtype.serial for dtype in REDUCIBLE)
        raise InferenceError(f"a tensor of type {desc.dtype.serial} cannot be reduced; {known} can")


def reduced(reduction: str, arrays: Sequence[Array], divisor: int = 1) -> Array:
    """The arrays combined in rank order; 16-bit floats in float32, rounded once. One array alone is the result.

    Raises ValueError for a reduction that no compile lets through.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction is {reduction!r}, not one of {', '.join(REDUCTIONS)}")
    if len(arrays) == 1:
        return arrays[0]
    kind = arrays[0].dtype
    wide = np.dtype(np.float32) if is_half(kind) else kind
    total = arrays[0].astype(wide)
    for array in arrays[1:]:
        REDUCTIONS[reduction](total, array.astype(wide, copy=False), out=total)
    if divisor > 1:
        np.divide(total, wide.type(divisor), out=total)
    return total.astype(kind, copy=False)


# ---------------------------------------------------------------- bytes that each rank sends


def _from_root(root: int, given: Sequence[Arrays]) -> list[int]:
    """The root sends all it has to every other rank."""
    size = sum(array.nbytes for array in given[root])
    return [size * (len(given) - 1) if rank == root else 0 for rank in range(len(given))]


def _to_root(root: int, given: Sequence[Arrays]) -> list[int]:
    return [0 if rank == root else arrays[0].nbytes for rank, arrays in enumerate(given)]


def ring(rounds: int, given: Sequence[Arrays]) -> list[int]:
    """A ring of N ranks hands on N-1 parts of n/N bytes in each round: two rounds to reduce and spread, one for one."""
    count = len(given)
    return [rounds * arrays[0].nbytes * (count - 1) // count for arrays in given]


def _gathered(given: Sequence[Arrays]) -> list[int]:
    return [arrays[0].nbytes * (len(given) - 1) for arrays in given]


# ---------------------------------------------------------------- broadcast


class _Broadcast(Collective):
    root_rank: int

    def spread(self, arrays: Arrays) -> Arrays:
        return self.exchanged(arrays, self._of_root, partial(_from_root, self.root_rank))

    def _of_root(self, given: Sequence[Arrays]) -> list[Arrays]:
        root = given[self.root_rank]
        if len(given) == 1:
            return [root]
        copies = tuple(array.copy() for array in root)  # the root goes on and may change what it gave
        return [root if rank == self.root_rank else copies for rank in range(len(given))]


@operator()
class HcomBroadcast(_Broadcast):
    """Every rank's tensors become those of `root_rank`, in place."""

    group: str
    fusion: int = 0
    fusion_id: int = -1
    inputs = ("x*",)
    outputs = ("y*",)
    writes = AllInputs(("x*",))
    zero_preserving = True

    def infer(self, *x: TensorDesc) -> tuple[TensorDesc, ...]:
        self.check(*x)
        return tuple(map(plain, x))

    def kernel(self, *x: Array) -> Arrays:
        return self.spread(x)


@operator(aliases=("hvdCallbackBroadcast", "HvdCallbackBroadcast"))
class HorovodBroadcast(_Broadcast):
    """Every rank's tensor becomes that of `root_rank`, in place."""

    inputs = ("x",)
    writes = AllInputs(("x",))
    zero_preserving = True

    def infer(self, x: TensorDesc) -> TensorDesc:
        self.check(x)
        return plain(x)

    def kernel(self, x: Array) -> Array:
        return self.spread((x,))[0]


# ---------------------------------------------------------------- reductions


class _Reducing(Collective):
    reduction: str
    group: str
    zero_preserving: ClassVar[bool] = True

    def check_reduced(self, x: TensorDesc) -> None:
        self.check(x)
        _reducible(x)

    def infer(self, x: TensorDesc) -> TensorDesc:
        self.check_reduced(x)
        return plain(x)


@operator()
class HcomAllReduce(_Reducing):
    """The tensors of all ranks reduced to one, which every rank gets."""

    fusion: int = 1
    fusion_id: int = -1

    def kernel(self, x: Array) -> Array:
        return self.exchanged((x,), self._everywhere, partial(ring, 2))[0]

    def _everywhere(self, given: Sequence[Arrays]) -> list[Arrays]:
        return [(reduced(self.reduction, [x for (x,) in given]),)] * len(given)


@operator()
class HorovodAllreduce(Collective):
    """The sum (reduce_op 1) or the average (0) of the tensors of all ranks."""

    reduce_op: int
    zero_preserving = True

    def infer(self, x: TensorDesc) -> TensorDesc:
        self.check(x)
        _reducible(x)
        if self.reduce_op not in (AVERAGE, SUM):
            raise InferenceError(f"reduce_op is {self.reduce_op}; {AVERAGE} (average) and {SUM} (sum) are known")
        if self.reduce_op == AVERAGE and not x.dtype.is_float:
            raise InferenceError(f"the average of {x.dtype.serial} is not defined; reduce_op {SUM} adds")
        return plain(x)

    def kernel(self, x: Array) -> Array:
        if self.reduce_op not in (AVERAGE, SUM):
            raise ValueError(f"reduce_op is {self.reduce_op}")
        return self.exchanged((x,), self._everywhere, partial(ring, 2))[0]

    def _everywhere(self, given: Sequence[Arrays]) -> list[Arrays]:
        divisor = len(given) if self.reduce_op == AVERAGE else 1
        return [(reduced("sum", [x for (x,) in given], divisor),)] * len(given)


@operator()
class HcomReduce(_Reducing):
    """The tensors of all ranks reduced to one, which `root_rank` gets; zeros elsewhere."""

    root_rank: int
    fusion: int = 0
    fusion_id: int = -1

    def kernel(self, x: Array) -> Array:
        return self.exchanged((x,), self._at_root, partial(_to_root, self.root_rank))[0]

    def _at_root(self, given: Sequence[Arrays]) -> list[Arrays]:
        total = reduced(self.reduction, [x for (x,) in given])
        return [(total if rank == self.root_rank else np.zeros_like(total),) for rank in range(len(given))]


@operator()
class HcomReduceScatter(Collective):
    """The tensors of all ranks reduced to one and divided along axis 0; every rank gets its part."""

    reduction: str
    group: str
    rank_size: int
    fusion: int = 0
    fusion_id: int = -1

    def infer(self, x: TensorDesc) -> TensorDesc:
        self.check(x)
        _reducible(x)
        first, rest = _first_axis(x, "divided")
        if first == UNKNOWN_DIM:
            return _with_first(x, UNKNOWN_DIM, rest)
        if first % self.rank_size:
            raise InferenceError(f"axis 0 of {list(x.shape)} cannot be divided into {self.rank_size} equal parts")
        return _with_first(x, first // self.rank_size, rest)

    def kernel(self, x: Array) -> Array:
        if not x.ndim or len(x) % self.rank_size:
            raise ValueError(f"axis 0 of {list(x.shape)} cannot be divided into {self.rank_size} equal parts")
        return self.exchanged((x,), self._parts, partial(ring, 1))[0]

    def _parts(self, given: Sequence[Arrays]) -> list[Arrays]:
        total = reduced(self.reduction, [x for (x,) in given])
        return [(part,) for part in np.split(total, len(given))]


# ---------------------------------------------------------------- gathering


class _Gathering(Collective):
    rank_size: int

    def infer(self, x: TensorDesc) -> TensorDesc:
        self.check(x)
        first, rest = _first_axis(x, "gathered")
        return _with_first(x, first if first == UNKNOWN_DIM else first * self.rank_size, rest)

    def kernel(self, x: Array) -> Array:
        if not x.ndim:
            raise ValueError("a scalar has no axis 0 to be gathered along")
        return self.exchanged((x,), self._joined, _gathered)[0]

    def _joined(self, given: Sequence[Arrays]) -> list[Arrays]:
        return [given[0] if len(given) == 1 else (np.concatenate([x for (x,) in given]),)] * len(given)


@operator()
class HcomAllGather(_Gathering):
    """The tensors of all ranks, one behind the other along axis 0."""

    group: str
    fusion: int = 0
    fusion_id: int = -1


@operator()
class HorovodAllgather(_Gathering):
    """The tensors of all ranks, one behind the other along axis 0."""


def _first_axis(x: TensorDesc, what: str) -> tuple[int, tuple[int, ...]]:
    """Axis 0 and the others. Raises InferenceError for a scalar."""
    if x.shape == UNKNOWN_RANK:
        return UNKNOWN_DIM, ()
    if not x.shape:
        raise InferenceError(f"a scalar has no axis 0 to be {what} along")
    return x.shape[0], x.shape[1:]


def _with_first(x: TensorDesc, first: int, rest: tuple[int, ...]) -> TensorDesc:
    return TensorDesc(x.dtype, UNKNOWN_RANK if x.shape == UNKNOWN_RANK else (first, *rest), x.format)
