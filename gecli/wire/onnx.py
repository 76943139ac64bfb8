"""ONNX files: the model without its large tensors, and tensors as weight references (GE: parser/onnx)."""

from __future__ import annotations

import os
from typing import Any

from gecli.errors import Diagnostic, InputError
from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import Shape as Dims
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import FileSlice, Fill, Inline, Source, Weight
from gecli.pb import onnx_pb2 as onnx
from gecli.wire.byte_source import FileSource
from gecli.wire.decode_errors import DECODE_ERRORS, reason
from gecli.wire.walker import Shape, TooDeep, WireError, strip_large_fields

Message = Any

EXTERNAL = 1  # TensorProto.DataLocation
MAX_ELEMENTS = 1 << 48
FLATTEN = "flatten the nested graphs"

# Large fields: raw_data, and the typed fields whose packed form is the plain little-endian array.
TENSOR = Shape(large={9: (15001, 15002), 4: (15003, 15004), 10: (15005, 15006)})
SPARSE_TENSOR = Shape(children={1: TENSOR, 2: TENSOR})
ATTRIBUTE = Shape(children={5: TENSOR, 10: TENSOR, 22: SPARSE_TENSOR, 23: SPARSE_TENSOR})
NODE = Shape(children={5: ATTRIBUTE})
GRAPH = Shape(children={1: NODE, 5: TENSOR, 15: SPARSE_TENSOR})
ATTRIBUTE.children.update({6: GRAPH, 11: GRAPH})
FUNCTION = Shape(children={7: NODE})
MODEL = Shape(children={7: GRAPH, 25: FUNCTION})

_D = DataType
_FLOAT_FIELD = frozenset((_D.FLOAT, _D.COMPLEX64))
_DOUBLE_FIELD = frozenset((_D.DOUBLE, _D.COMPLEX128))
_UINT64_FIELD = frozenset((_D.UINT32, _D.UINT64))


def parse_onnx_file(path: str | os.PathLike[str]) -> Message:
    """The ModelProto of a file, with large tensor data as (offset, length) in the file.

    Raises InputError: E13001 when the file cannot be opened, G1002 when it ends early, E13005 when it is no model.
    """
    name = os.fspath(path)
    try:
        with FileSource(name) as source:
            return onnx.ModelProto.FromString(strip_large_fields(source, MODEL))
    except WireError as error:
        if isinstance(error, TooDeep):
            raise _unreadable(name, str(error), offset=error.offset, do=FLATTEN) from error
        ends_early = "ends" in str(error) or "shorter" in str(error)
        raise _unreadable(name, str(error), "G1002" if ends_early else "E13005", error.offset) from error
    except DECODE_ERRORS as error:
        raise _undecodable(name, error) from error
    except OSError as error:
        raise InputError(
            "E13001",
            f"cannot open {name}",
            why=error.strerror or "",
            file=name,
            do="check the path and its permissions",
        ) from error


def parse_onnx(data: bytes, *, name: str = "<stdin>") -> Message:
    """The ModelProto in bytes that come from no file. Raises InputError (E13005)."""
    try:
        return onnx.ModelProto.FromString(data)
    except DECODE_ERRORS as error:
        raise _undecodable(name, error) from error


def tensor_weight(
    tensor: Message,
    model_dir: str | os.PathLike[str] | None,
    *,
    path: str | os.PathLike[str] | None = None,
    allow_outside: bool = False,
    problems: list[Diagnostic] | None = None,
    where: str = "",
) -> Weight:
    """The value of a TensorProto by reference.

    `path` is the model file that large data lie in, `model_dir` the directory that external data must stay inside
    (unless `allow_outside`). A single value for a larger tensor is repeated, with a warning in `problems`. Raises
    InputError: G1003 for external data that are missing, G1004 when data and dims do not fit, E13014 for a type that
    GE does not have and for strings (see `tensor_strings`).
    """
    label = where or f"tensor {tensor.name!r}"
    dtype = DataType.from_onnx(tensor.data_type)
    if dtype is None or dtype is DataType.STRING:
        raise InputError(
            "E13014",
            f"{label} has ONNX data type {tensor.data_type}, which is not supported as a weight",
            where=label,
            actual=tensor.data_type,
        )
    desc = TensorDesc(dtype, tensor_dims(tensor, label))
    source = _source(tensor, desc, model_dir, path, allow_outside, label)
    expected = desc.nbytes
    if source.nbytes == expected:
        return Weight(desc, source)
    if _is_typed(tensor) and dtype.bits is not None and source.nbytes * 8 == max(dtype.bits, 8) and desc.elements > 1:
        _warn(problems, label, f"one value for {desc.elements} elements; it is repeated")
        return Weight(desc, _repeated(source.read(), dtype, desc.elements))
    raise InputError(
        "G1004",
        f"{label}: data and dims do not fit",
        where=label,
        file=None if path is None else os.fspath(path),
        why=f"dims {list(desc.shape)} of {dtype.serial} need {expected} bytes, {source.nbytes} are there",
        expected=expected,
        actual=source.nbytes,
    )


def tensor_strings(tensor: Message) -> tuple[bytes, ...]:
    """The elements of a string tensor. Raises InputError (G1004) when their number does not fit the dims."""
    dims = tensor_dims(tensor, f"tensor {tensor.name!r}")
    count = _product(dims)
    if len(tensor.string_data) != count:
        raise InputError(
            "G1004",
            f"tensor {tensor.name!r}: dims {list(dims)} need {count} strings, {len(tensor.string_data)} are there",
            expected=count,
            actual=len(tensor.string_data),
        )
    return tuple(tensor.string_data)


def tensor_dims(tensor: Message, where: str = "") -> Dims:
    """The dims of a tensor. Raises InputError (G1004) for negative dims and impossible products."""
    dims = tuple(tensor.dims)
    if any(dim < 0 for dim in dims) or _product(dims) > MAX_ELEMENTS:
        raise InputError(
            "G1004", f"{where or tensor.name}: dims {list(dims)} are impossible for a weight", where=where, actual=dims
        )
    return dims


def external_location(tensor: Message) -> dict[str, str]:
    """The key-value pairs of external data (location, offset, length...); empty for data in the model file."""
    if tensor.data_location != EXTERNAL:
        return {}
    return {entry.key: entry.value for entry in tensor.external_data}


def _source(
    tensor: Message,
    desc: TensorDesc,
    model_dir: str | os.PathLike[str] | None,
    path: str | os.PathLike[str] | None,
    allow_outside: bool,
    label: str,
) -> Source:
    if tensor.data_location == EXTERNAL:
        return _external(tensor, desc, model_dir, allow_outside, label)
    typed = _typed(tensor, desc.dtype, path, label)
    if typed is not None:
        return typed
    if tensor.raw_file_offset:
        return _slice(tensor.raw_file_offset, tensor.raw_file_length, path, label)
    return Inline(tensor.raw_data)


def _is_typed(tensor: Message) -> bool:
    return bool(tensor.float_data or tensor.int32_data or tensor.int64_data or tensor.double_data or tensor.uint64_data)


def _typed(tensor: Message, dtype: DataType, path: str | os.PathLike[str] | None, label: str) -> Source | None:
    """The data of the typed field that belongs to `dtype`; None when it is empty."""
    if dtype in _FLOAT_FIELD:
        if tensor.float_file_offset:
            return _slice(tensor.float_file_offset, tensor.float_file_length, path, label, len(tensor.float_data))
        return _packed(tensor.float_data, "<f4")
    if dtype in _DOUBLE_FIELD:
        if tensor.double_file_offset:
            return _slice(tensor.double_file_offset, tensor.double_file_length, path, label, len(tensor.double_data))
        return _packed(tensor.double_data, "<f8")
    if dtype is DataType.INT64:
        return _packed(tensor.int64_data, "<i8")
    if dtype in _UINT64_FIELD:
        return _packed(tensor.uint64_data, "<u8", 4 if dtype is DataType.UINT32 else 8)
    # Half floats, bf16 and fp8 are stored as bit patterns, two 4-bit elements share one entry.
    width = 1 if (dtype.bits or 0) < 8 else dtype.itemsize
    return _packed(tensor.int32_data, "<i4", width)


def _packed(values: Any, code: str, width: int | None = None) -> Source | None:
    if not values:
        return None
    import numpy as np

    array = np.fromiter(values, dtype=code, count=len(values))
    if width is not None and width != array.dtype.itemsize:
        array = array.astype(f"<u{width}")
    return Inline(array.tobytes())


def _slice(
    offsets: Any, lengths: Any, path: str | os.PathLike[str] | None, label: str, values_beside: int = 0
) -> Source:
    """Data in the model file. The file itself may hold the private fields, so they are checked."""
    if len(offsets) != 1 or len(lengths) != 1 or values_beside:
        raise InputError("G1004", f"{label}: its data come in several pieces", where=label)
    name = "" if path is None else os.fspath(path)
    size = os.stat(name).st_size if name else 0
    if offsets[0] + lengths[0] > size:
        raise InputError(
            "G1004",
            f"{label}: its data lie outside the file",
            where=label,
            file=name or None,
            offset=offsets[0],
            expected=size,
            actual=offsets[0] + lengths[0],
        )
    return FileSlice(name, offsets[0], lengths[0])


def _external(
    tensor: Message, desc: TensorDesc, model_dir: str | os.PathLike[str] | None, allow_outside: bool, label: str
) -> Source:
    entries = external_location(tensor)
    location = entries.get("location", "")
    if not location or "\0" in location:
        raise InputError("G1003", f"{label}: external data without a location", where=label)
    if model_dir is None:
        raise InputError(
            "G1003",
            f"{label}: external data {location!r} of a model that comes from no file",
            where=label,
            do="give --base-dir DIR",
        )
    base = os.path.realpath(os.fspath(model_dir))
    name = os.path.realpath(os.path.join(base, location))
    if not allow_outside and os.path.commonpath((base, name)) != base:
        raise InputError(
            "G1003",
            f"{label}: external data {location!r} lie outside the model's directory",
            where=label,
            file=name,
            why=f"{name} is not below {base}",
            do="--allow-external-outside",
        )
    offset = _number(entries.get("offset"), 0, label, "offset")
    length = _number(entries.get("length"), desc.nbytes, label, "length")
    try:
        size = os.stat(name).st_size
    except OSError as error:
        raise InputError(
            "G1003", f"{label}: the file {location} with its external data is missing", where=label, file=name,
            why=f"{name}: {error.strerror}", do=f"put {os.path.basename(name)} there; the model names it",
        ) from error  # fmt: skip
    if not os.path.isfile(name):
        raise InputError(
            "G1003", f"{label}: {location}, where its external data lie, is no file", where=label, file=name,
            why=f"{name} is a directory or a device", do=f"put the file {os.path.basename(name)} there",
        )  # fmt: skip
    if offset + length > size:
        raise InputError(
            "G1003",
            f"{label}: external data end outside their file {location}",
            where=label,
            file=name,
            offset=offset,
            do=f"copy {os.path.basename(name)} again; it is shorter than the model says",
            why=f"offset {offset} + length {length} = {offset + length}, the file has {size} bytes",
            expected=size,
            actual=offset + length,
        )
    return FileSlice(name, offset, length)


def _number(text: str | None, default: int, label: str, what: str) -> int:
    if text is None or text == "":
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise InputError("G1003", f"{label}: {what} {text!r} of its external data is no number", where=label)
    return int(text)


def _repeated(element: bytes, dtype: DataType, count: int) -> Source:
    bits = dtype.bits or 8
    if bits >= 8:
        return Fill(element, count)
    code = element[0] & ((1 << bits) - 1)
    byte = 0
    for shift in range(0, 8, bits):
        byte |= code << shift
    return Fill(bytes((byte & 0xFF,)), dtype.nbytes(count))


def _product(dims: Dims) -> int:
    count = 1
    for dim in dims:
        count *= dim
    return count


def _warn(problems: list[Diagnostic] | None, where: str, message: str) -> None:
    if problems is not None:
        problems.append(Diagnostic("G1004", f"{where}: {message}", where=where, severity="warning"))


def _undecodable(name: str, error: Exception) -> InputError:
    """For what protobuf raises, whose limit of depth has no class of its own."""
    if isinstance(error, RecursionError) or "MaxDepth" in str(error):
        return _unreadable(name, "messages lie in each other deeper than protobuf reads", do=FLATTEN)
    return _unreadable(name, reason(error))


def _unreadable(
    name: str, why: str, code: str = "E13005", offset: int | None = None, do: str = "check that the file is complete"
) -> InputError:
    what = "ends too early" if code == "G1002" else "is not a readable ONNX model"
    return InputError(code, f"{name} {what}", why=why, file=name, offset=offset, do=do)
