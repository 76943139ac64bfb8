"""Tensor descriptors (`ge::GeTensorDesc`): how a tensor lies in memory and what the model author sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.records import dataclass

UNKNOWN_DIM = -1
UNKNOWN_RANK = (-2,)
NO_ATTRS: Mapping[str, Any] = MappingProxyType({})

Shape = tuple[int, ...]
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TensorDesc:
    """Storage dtype, shape and format of one tensor, with its origin (logical) form.

    `shape` holds dims as stored; -1 is an unknown dim and `(-2,)` an unknown rank. `origin_shape` and
    `origin_format` are None when they equal the stored ones. `size_bytes` is GE's padded size, 0 until memory is
    assigned. Attributes and size do not take part in equality.
    """

    dtype: DataType
    shape: Shape
    format: Format = Format.ND
    origin_shape: Shape | None = None
    origin_format: Format | None = None
    origin_dtype: DataType | None = None
    shape_range: tuple[Range, ...] | None = None
    name: str = field(default="", compare=False)
    size_bytes: int = field(default=0, compare=False)
    attrs: Mapping[str, Any] = field(default_factory=lambda: NO_ATTRS, compare=False)

    @property
    def logical_shape(self) -> Shape:
        return self.shape if self.origin_shape is None else self.origin_shape

    @property
    def logical_format(self) -> Format:
        return self.format if self.origin_format is None else self.origin_format

    @property
    def rank(self) -> int | None:
        """Number of dims; None when unknown."""
        return None if self.shape == UNKNOWN_RANK else len(self.shape)

    @property
    def is_static(self) -> bool:
        return all(dim >= 0 for dim in self.shape)

    @property
    def is_scalar(self) -> bool:
        return not self.shape

    @property
    def elements(self) -> int:
        """Element count. Raises ValueError when a dim is unknown."""
        count = 1
        for dim in self.shape:
            if dim < 0:
                raise ValueError(f"shape {list(self.shape)} has unknown dims")
            count *= dim
        return count

    @property
    def nbytes(self) -> int:
        """Exact packed bytes. Raises ValueError for unknown dims and opaque types."""
        return self.dtype.nbytes(self.elements)

    def same_storage(self, other: TensorDesc) -> bool:
        """Equal full format, dtype and dims: the comparison of the variable passes."""
        return self.format == other.format and self.dtype == other.dtype and self.shape == other.shape

    def same_reading(self, other: TensorDesc) -> bool:
        """Equal storage that means the same to a reader: of a blocked tensor he sees the axes of the origin form."""
        if not self.same_storage(other):
            return False
        if self.format.is_origin:
            return True
        return self.logical_shape == other.logical_shape and self.logical_format == other.logical_format

    def with_dtype(self, dtype: DataType) -> TensorDesc:
        return replace(self, dtype=dtype)

    def with_shape(self, shape: Shape) -> TensorDesc:
        """This desc with another stored shape that is also the origin shape."""
        return replace(self, shape=tuple(shape), origin_shape=None, shape_range=None)

    def with_format(self, fmt: Format, shape: Shape | None = None) -> TensorDesc:
        """This desc stored in `fmt` with dims `shape`; the origin form stays."""
        return replace(
            self,
            format=fmt,
            shape=self.shape if shape is None else tuple(shape),
            origin_shape=self.logical_shape,
            origin_format=self.logical_format,
        )

    def with_origin(self, shape: Shape, fmt: Format) -> TensorDesc:
        return replace(self, origin_shape=tuple(shape), origin_format=fmt)

    def with_attr(self, name: str, value: Any) -> TensorDesc:
        return replace(self, attrs={**self.attrs, name: value})

    def without_attr(self, name: str) -> TensorDesc:
        return replace(self, attrs={key: value for key, value in self.attrs.items() if key != name})

    def logical(self) -> TensorDesc:
        """The same tensor in its origin form."""
        return replace(
            self, shape=self.logical_shape, format=self.logical_format, origin_shape=None, origin_format=None
        )

    def __str__(self) -> str:
        dims = "*" if self.shape == UNKNOWN_RANK else ",".join("-1" if d < 0 else str(d) for d in self.shape)
        return f"{self.dtype.serial} {self.format.name} [{dims}]"


def scalar(dtype: DataType) -> TensorDesc:
    return TensorDesc(dtype, ())
