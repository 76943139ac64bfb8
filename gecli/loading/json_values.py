"""Values of the JSON graph: descriptors and attributes; every fault names its JSON pointer."""

from __future__ import annotations

import base64
import binascii
from dataclasses import field
from typing import TYPE_CHECKING, Any

from gecli.errors import Diagnostic, InputError
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import UNKNOWN_RANK, Range, Shape, TensorDesc
from gecli.ops.inference import MAX_RANK
from gecli.records import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

Json = Any
DESC_KEYS = frozenset(
    (
        "dtype",
        "shape",
        "format",
        "origin_format",
        "origin_shape",
        "origin_dtype",
        "range",
        "attrs",
        "c0",
        "name",
        "size",
    )
)


def pointer_to(*parts: str | int) -> str:
    """The JSON pointer (RFC 6901) of a path of keys and indices."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


_OF_JSON = frozenset(("E13005", "G1004"))


@dataclass(slots=True)
class Source:
    """The document being read: where it lies, what it may refer to, what was noticed."""

    path: str
    base_dir: str
    allow_outside: bool = False
    files: dict[str, None] = field(default_factory=dict)
    warnings: list[Diagnostic] = field(default_factory=list)

    def fault(
        self, pointer: str, message: str, why: str = "", do: str = "", code: str = "E13005", kind: str = ""
    ) -> InputError:
        where = f"{self.path}{'#' + pointer if pointer else ''}"
        if not do and code in _OF_JSON:
            do = "correct the JSON at that place"  # the catalogue speaks of files that programs write
        return InputError(code, message, where=where, why=why, do=do, file=self.path, pointer=pointer or "", kind=kind)

    def warn(self, pointer: str, message: str, why: str = "", do: str = "", code: str = "E13005") -> None:
        error = self.fault(pointer, message, why, do, code).first
        self.warnings.append(
            Diagnostic(code, message, error.where, why, do, severity="warning", file=self.path, pointer=pointer)
        )

    def object(self, value: Json, pointer: str, what: str) -> dict[str, Json]:
        if not isinstance(value, dict):
            raise self.fault(pointer, f"{what} must be an object", f"found {kind_of(value)}")
        return value

    def list(self, value: Json, pointer: str, what: str) -> list[Json]:
        if not isinstance(value, list):
            raise self.fault(pointer, f"{what} must be a list", f"found {kind_of(value)}")
        return value

    def text(self, value: Json, pointer: str, what: str) -> str:
        if not isinstance(value, str):
            raise self.fault(pointer, f"{what} must be a string", f"found {kind_of(value)}")
        return value

    def integer(self, value: Json, pointer: str, what: str, low: int = 0) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 1 << 63:
            raise self.fault(pointer, f"{what} must be an integer of {low} or more, in 64 bits", f"found {value!r:.80}")
        return value


def kind_of(value: Json) -> str:
    """A JSON value in words, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the string {value[:40]!r}"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    return "a list" if isinstance(value, list) else "an object"


# ---------------------------------------------------------------- descriptors


def read_plain_desc(source: Source, value: Json, pointer: str, symbols: list[str | None] | None = None) -> TensorDesc:
    """A descriptor without its attributes; the names of symbolic dims are appended to `symbols`."""
    members = source.object(value, pointer, "a descriptor")
    unknown = sorted(members.keys() - DESC_KEYS)
    if unknown:
        source.warn(f"{pointer}/{unknown[0]}", f"unknown member {unknown[0]!r} of a descriptor is ignored")
    if "dtype" not in members:
        raise source.fault(pointer, "a descriptor needs a dtype", do='"dtype": "DT_FLOAT"')
    dtype = read_dtype(source, members["dtype"], f"{pointer}/dtype")
    shape = read_shape(source, members.get("shape"), f"{pointer}/shape", symbols)
    fmt = read_format(source, members.get("format", "ND"), f"{pointer}/format")
    if "c0" in members:
        try:
            fmt = fmt.with_c0(source.integer(members["c0"], f"{pointer}/c0", "c0", 1))
        except ValueError as err:
            raise source.fault(f"{pointer}/c0", "the C0 of the format is not valid", str(err)) from err
    origin_shape = origin_format = origin_dtype = None
    if "origin_shape" in members:
        origin_shape = read_shape(source, members["origin_shape"], f"{pointer}/origin_shape")
    if "origin_format" in members:
        origin_format = read_format(source, members["origin_format"], f"{pointer}/origin_format")
    if "origin_dtype" in members:
        origin_dtype = read_dtype(source, members["origin_dtype"], f"{pointer}/origin_dtype")
    return TensorDesc(
        dtype,
        shape,
        fmt,
        origin_shape,
        origin_format,
        origin_dtype,
        read_range(source, members.get("range"), f"{pointer}/range"),
        source.text(members.get("name", ""), f"{pointer}/name", "name"),
        source.integer(members.get("size", 0), f"{pointer}/size", "size"),
    )


def read_dtype(source: Source, value: Json, pointer: str) -> DataType:
    try:
        return DataType.parse(source.text(value, pointer, "a data type"))
    except ValueError as err:
        raise source.fault(pointer, f"{value!r} is not a data type", do='for example "DT_FLOAT" or "float32"') from err


def read_format(source: Source, value: Json, pointer: str) -> Format:
    try:
        return Format.parse(source.text(value, pointer, "a format"))
    except ValueError as err:
        raise source.fault(pointer, f"{value!r} is not a storage format", str(err), 'for example "ND"') from err


def read_shape(source: Source, value: Json, pointer: str, symbols: list[str | None] | None = None) -> Shape:
    """Dims; null is an unknown rank, -1 or a name an unknown dim."""
    if value is None:
        return UNKNOWN_RANK
    dims: list[int] = []
    if isinstance(value, list) and len(value) > MAX_RANK:
        raise source.fault(pointer, "a shape has too many dims", f"{len(value)} dims, the limit is {MAX_RANK}")
    for index, dim in enumerate(source.list(value, pointer, "a shape")):
        name = dim if isinstance(dim, str) and dim else None
        if symbols is not None:
            symbols.append(name)
        dims.append(-1 if name else source.integer(dim, f"{pointer}/{index}", "a dim", -1))
    return tuple(dims)


def read_range(source: Source, value: Json, pointer: str) -> tuple[Range, ...] | None:
    if value is None:
        return None
    pairs: list[Range] = []
    for index, pair in enumerate(source.list(value, pointer, "a shape range")):
        if not (isinstance(pair, list) and len(pair) == 2):
            raise source.fault(f"{pointer}/{index}", "a shape range needs [low, high]", f"found {kind_of(pair)}")
        low = source.integer(pair[0], f"{pointer}/{index}/0", "low")
        pairs.append((low, source.integer(pair[1], f"{pointer}/{index}/1", "high", -1)))
    return tuple(pairs)


def read_bytes(source: Source, value: Json, pointer: str, desc: TensorDesc | None = None) -> bytes:
    try:
        return base64.b64decode(source.text(value, pointer, "base64"), validate=True)
    except (binascii.Error, ValueError) as err:
        raise source.fault(pointer, "this is not base64", str(err)) from err
