"""Weights as references: where the bytes lie, what they mean, and which conversions still have to be applied.

A weight is materialised one tensor at a time, while an artifact is written or a kernel is bound, so that a compile
never holds all weights. Unchanged weights are copied from file to file by the kernel.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc
from gecli.records import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK_BYTES = 1 << 20  # streaming unit: large enough for full disk speed, small enough not to show in peak memory


class Transform(Protocol):
    """A pending conversion of a weight's elements."""

    @property
    def token(self) -> str:
        """A text that identifies the conversion in digests."""

    def apply(self, array: NDArray[Any]) -> NDArray[Any]: ...


@dataclass(frozen=True, slots=True)
class Inline:
    """Bytes held in memory, packed and little-endian."""

    data: bytes

    @property
    def nbytes(self) -> int:
        return len(self.data)

    def read(self) -> bytes:
        return self.data

    def chunks(self) -> Iterator[bytes]:
        yield self.data


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Bytes of a file. Reading raises EOFError when the file became shorter than offset + length."""

    path: str
    offset_bytes: int
    length_bytes: int

    @property
    def nbytes(self) -> int:
        return self.length_bytes

    def read(self) -> bytes:
        return b"".join(self.chunks())

    def chunks(self) -> Iterator[bytes]:
        # A pipe that took the place of the file must not be waited for.
        handle = os.open(self.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
        try:
            position, left = self.offset_bytes, self.length_bytes
            while left:
                block = os.pread(handle, min(left, CHUNK_BYTES), position)
                if not block:
                    raise EOFError(f"{self.path}: {left} bytes are missing at offset {position}")
                yield block
                position += len(block)
                left -= len(block)
        finally:
            os.close(handle)


@dataclass(frozen=True, slots=True)
class Fill:
    """One element's bytes repeated: large constant tensors that no one wrote out."""

    element: bytes
    count: int

    @property
    def nbytes(self) -> int:
        return len(self.element) * self.count

    def read(self) -> bytes:
        return self.element * self.count

    def chunks(self) -> Iterator[bytes]:
        per_chunk = max(CHUNK_BYTES // max(len(self.element), 1), 1)
        left = self.count
        while left:
            step = min(left, per_chunk)
            yield self.element * step
            left -= step


@dataclass(frozen=True, slots=True)
class Absent:
    """Bytes that a file speaks of and does not hold, or only in part: a cut file, a model without its container.

    `area_offset_bytes` counts from the start of WEIGHTS_DATA, None where nothing tells it. Of the `length_bytes`,
    `held_bytes` are there.
    """

    length_bytes: int
    area_offset_bytes: int | None = None
    held_bytes: int = 0

    @property
    def nbytes(self) -> int:
        return self.length_bytes

    def read(self) -> bytes:
        raise EOFError(f"{self.length_bytes} bytes are not in the file")

    def chunks(self) -> Iterator[bytes]:
        raise EOFError(f"{self.length_bytes} bytes are not in the file")


Source = Inline | FileSlice | Fill | Absent


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor value by reference.

    `desc` describes the value after all `transforms`; `stored` the bytes of `source` (None when there is no
    transform, because then they are the same).
    """

    desc: TensorDesc
    source: Source
    stored: TensorDesc | None = None
    transforms: tuple[Transform, ...] = ()

    @staticmethod
    def of(array: NDArray[Any], desc: TensorDesc | None = None) -> Weight:
        """A weight that holds a copy of `array`; `desc` gives format and origin when they are not plain ND."""
        from gecli.ir.packing import pack

        if desc is None:
            desc = TensorDesc(DataType.from_numpy(array.dtype), tuple(array.shape))
        return Weight(desc, Inline(pack(array, desc.dtype)))

    @property
    def dtype(self) -> DataType:
        return self.desc.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.desc.shape

    @property
    def nbytes(self) -> int:
        """Bytes after the transforms."""
        return self.source.nbytes if not self.transforms else self.desc.nbytes

    def numpy(self) -> NDArray[Any]:
        """The value as an array of the desc's shape. Raises ValueError when bytes and shape differ."""
        from gecli.ir.packing import unpack

        stored = self.stored or self.desc
        array = unpack(self.source.read(), stored.dtype, stored.shape)
        for transform in self.transforms:
            array = transform.apply(array)
        return array

    def chunks(self) -> Iterator[bytes]:
        """The packed bytes of the value, in pieces."""
        if not self.transforms:
            yield from self.source.chunks()
            return
        from gecli.ir.packing import pack

        yield pack(self.numpy(), self.desc.dtype)

    def sha256(self) -> str:
        """Hex digest of the packed bytes of the value."""
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk)
        return digest.hexdigest()

    def then(self, transform: Transform, desc: TensorDesc) -> Weight:
        """This weight with one more pending conversion, whose result is described by `desc`."""
        return Weight(desc, self.source, self.stored or self.desc, (*self.transforms, transform))

    def described_as(self, desc: TensorDesc) -> Weight:
        """The same bytes under another description of equal size (reshape, format tag)."""
        if not self.transforms:
            return replace(self, desc=desc)
        return Weight(desc, self.source, self.stored, self.transforms)
