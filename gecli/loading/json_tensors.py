"""Tensors of the JSON graph: numbers, bytes, files, fills and random values as weights by reference."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import Shape, TensorDesc
from gecli.ir.weight import FileSlice, Fill, Inline, Weight
from gecli.loading.json_values import Json, Source, kind_of, read_bytes, read_dtype, read_plain_desc, read_shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

TENSOR_SOURCES = ("data", "base64", "file", "fill", "random")
MAX_ELEMENTS = 1 << 36  # more than any device holds
_FORMAT_KEYS = ("format", "origin_format", "origin_shape", "origin_dtype", "c0")


def read_tensor(source: Source, value: Json, pointer: str, desc: TensorDesc | None = None) -> Weight:
    """A tensor; dtype and shape that it leaves out are those of `desc`."""
    members = source.object(value, pointer, "a tensor")
    given = [name for name in TENSOR_SOURCES if name in members]
    if len(given) != 1:
        raise source.fault(
            pointer,
            f"a tensor needs exactly one of {', '.join(TENSOR_SOURCES)}",
            f"found {' and '.join(given) or 'none'}",
        )
    dtype = read_dtype(source, members["dtype"], f"{pointer}/dtype") if "dtype" in members else None
    shape = _static_shape(source, members, pointer)
    if desc is not None:
        dtype = desc.dtype if dtype is None else dtype
        if shape is None and desc.is_static:
            shape = desc.shape
    weight: Weight = _SOURCES[given[0]](source, members, pointer, dtype, shape)
    return weight.described_as(_weight_desc(source, members, pointer, weight.desc, desc))


def _weight_desc(
    source: Source, members: dict[str, Json], pointer: str, plain: TensorDesc, desc: TensorDesc | None
) -> TensorDesc:
    """The descriptor of the value: that of the node's output where both agree, else what the tensor says."""
    own: dict[str, Json] = {key: members[key] for key in _FORMAT_KEYS if key in members}
    if own:
        own["dtype"], own["shape"] = plain.dtype.serial, list(plain.shape)
        return read_plain_desc(source, own, pointer)
    if desc is not None and desc.dtype == plain.dtype and desc.shape == plain.shape:
        return TensorDesc(desc.dtype, desc.shape, desc.format, desc.origin_shape, desc.origin_format, desc.origin_dtype)
    return plain


def _static_shape(source: Source, members: dict[str, Json], pointer: str) -> Shape | None:
    if members.get("shape") is None:
        return None
    shape = read_shape(source, members["shape"], f"{pointer}/shape")
    if any(dim < 0 for dim in shape):
        raise source.fault(f"{pointer}/shape", "the shape of a tensor must be known", f"found {members['shape']}")
    return shape


def _need_dtype(source: Source, pointer: str, dtype: DataType | None) -> DataType:
    if dtype is None:
        raise source.fault(pointer, "the tensor has no dtype", do='add "dtype": "DT_FLOAT"')
    if dtype.bits is None or dtype in (DataType.STRING, DataType.STRING_REF):
        raise source.fault(pointer, f"tensors of {dtype.serial} cannot be written in JSON")
    if not dtype.has_numpy:
        why = "neither numpy nor ml_dtypes has this type"
        raise source.fault(pointer, f"no array holds tensors of {dtype.serial}", why, "give it another dtype")
    return dtype


def _need_shape(source: Source, pointer: str, shape: Shape | None) -> Shape:
    if shape is None:
        raise source.fault(pointer, "the tensor has no shape", do='add "shape": [...]')
    if math.prod(shape) > MAX_ELEMENTS:
        why = f"{math.prod(shape)} elements, the limit is {MAX_ELEMENTS}"
        raise source.fault(pointer, "the tensor is too large", why, code="G1004")
    return shape


def _from_data(
    source: Source, members: dict[str, Json], pointer: str, dtype: DataType | None, shape: Shape | None
) -> Weight:
    import numpy as np

    from gecli.layout.hif8 import of_numbers

    dtype = _need_dtype(source, pointer, dtype)
    place = f"{pointer}/data"
    try:
        array = np.array(members["data"])
    except ValueError as err:
        raise source.fault(place, "the lists of the data have different lengths", str(err)) from err
    if array.size == 0:  # no element says a type
        array = np.zeros(array.shape, np.int64)
    elif array.dtype.kind == "U":  # numbers that JSON does not have
        array = _named_floats(source, members["data"], place)
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and dtype.is_integer):
        bad = f"found {array.dtype.name} values" if array.dtype.kind != "O" else "found mixed or too large values"
        raise source.fault(place, f"the data do not fit {dtype.serial}", bad)
    values = of_numbers(array, dtype)
    if dtype.is_integer and not np.array_equal(values.astype(array.dtype), array):
        raise source.fault(place, f"the data do not fit {dtype.serial}", "a value is out of range")
    shape = tuple(array.shape) if shape is None else shape
    if values.size != math.prod(shape):
        raise source.fault(
            place, "shape and data count differ", f"shape {list(shape)}, {values.size} values", code="G1004"
        )
    return Weight.of(values.reshape(shape), TensorDesc(dtype, shape))


def _named_floats(source: Source, data: Json, pointer: str) -> Array:
    import numpy as np

    try:
        return np.array(data, dtype=np.float64)
    except ValueError as err:
        raise source.fault(pointer, "the data hold something that is no number", str(err)) from err


def _from_base64(
    source: Source, members: dict[str, Json], pointer: str, dtype: DataType | None, shape: Shape | None
) -> Weight:
    data = read_bytes(source, members["base64"], f"{pointer}/base64")
    return _of_bytes(source, pointer, dtype, shape, Inline(data))


def _of_bytes(
    source: Source, pointer: str, dtype: DataType | None, shape: Shape | None, data: Inline | FileSlice
) -> Weight:
    dtype, shape = _need_dtype(source, pointer, dtype), _need_shape(source, pointer, shape)
    desc = TensorDesc(dtype, shape)
    if data.nbytes != desc.nbytes:
        why = f"{dtype.serial} {list(shape)} needs {desc.nbytes} bytes, found {data.nbytes}"
        raise source.fault(pointer, "shape and data count differ", why, code="G1004")
    return Weight(desc, data)


def _from_fill(
    source: Source, members: dict[str, Json], pointer: str, dtype: DataType | None, shape: Shape | None
) -> Weight:
    import numpy as np

    shape = _need_shape(source, pointer, shape)
    place = f"{pointer}/fill"
    fill = members["fill"]
    if isinstance(fill, list):
        raise source.fault(place, "fill must be one value", "found a list")
    one = _from_data(source, {"data": fill}, pointer, dtype, ())
    desc = TensorDesc(one.dtype, shape)
    if (one.dtype.bits or 8) < 8:
        return Weight.of(np.full(shape, one.numpy()), desc)
    return Weight(desc, Fill(one.source.read(), desc.elements))


def _from_random(
    source: Source, members: dict[str, Json], pointer: str, dtype: DataType | None, shape: Shape | None
) -> Weight:
    import numpy as np

    from gecli.layout.hif8 import of_numbers

    place = f"{pointer}/random"
    dtype, shape = _need_dtype(source, pointer, dtype), _need_shape(source, pointer, shape)
    spec = source.object(members["random"], place, "random")
    seed = source.integer(spec.get("seed", 0), f"{place}/seed", "seed")
    limits = spec.get("range", [0, 1])
    if not (isinstance(limits, list) and len(limits) == 2 and all(type(end) in (int, float) for end in limits)):
        raise source.fault(f"{place}/range", "range needs [low, high]", f"found {kind_of(limits)}")
    generator = np.random.default_rng(seed)
    if dtype.is_float:
        values: Array = generator.uniform(limits[0], limits[1], shape)
    else:
        values = generator.integers(int(limits[0]), int(limits[1]), shape, endpoint=True)
    return Weight.of(of_numbers(np.asarray(values), dtype), TensorDesc(dtype, shape))


def _from_file(
    source: Source, members: dict[str, Json], pointer: str, dtype: DataType | None, shape: Shape | None
) -> Weight:
    place = f"{pointer}/file"
    path = resolve_path(source, source.text(members["file"], place, "file"), place)
    size = os.path.getsize(path)
    if path.endswith(".npy") and "offset" not in members:
        return _from_npy(source, place, path, dtype, shape)
    offset = source.integer(members.get("offset", 0), f"{pointer}/offset", "offset")
    length = source.integer(members.get("length", size - offset), f"{pointer}/length", "length")
    if offset + length > size:
        why = f"{offset} + {length} bytes wanted, the file has {size}"
        raise source.fault(place, f"{members['file']} is too short", why, code="G1003")
    return _of_bytes(source, pointer, dtype, shape, FileSlice(path, offset, length))


def resolve_path(source: Source, name: str, pointer: str) -> str:
    """The file that a document names: relative to it, inside its directory, and there."""
    if not name:
        raise source.fault(pointer, "the file name is empty", code="E13000")
    if not source.base_dir:
        why = "the graph comes from no file, so there is no directory to look in"
        raise source.fault(pointer, f"the file {name!r} cannot be found", why, "--base-dir DIR", "G1003")
    if "\0" in name:
        raise source.fault(pointer, f"the file name {name!r} is not valid", "it holds a NUL character", code="G1003")
    path = os.path.normpath(os.path.join(source.base_dir, name))
    inside = os.path.realpath(path).startswith(os.path.join(os.path.realpath(source.base_dir), ""))
    if not source.allow_outside and (os.path.isabs(name) or not inside):
        raise source.fault(
            pointer,
            f"{name!r} lies outside the directory of the model",
            f"only files below {source.base_dir or '.'} are read",
            "--allow-external-outside",
            "G1003",
        )
    if not os.path.isfile(path):
        raise source.fault(pointer, f"the file {name!r} does not exist", f"looked for {path}", code="G1003")
    source.files[path] = None
    return path


def _from_npy(source: Source, pointer: str, path: str, dtype: DataType | None, shape: Shape | None) -> Weight:
    """A reference into the array file; its header is read, not its data."""
    import numpy as np

    try:
        with open(path, "rb") as stream:
            version = np.lib.format.read_magic(stream)
            reader = np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
            found_shape, fortran, found = reader(stream)
            offset = stream.tell()
    except ValueError as err:
        raise source.fault(pointer, f"{path} is not a numpy array file", str(err)) from err
    if found.hasobject:
        raise source.fault(pointer, f"{path} holds Python objects, which gecli never opens")
    wanted = DataType.from_numpy(found) if dtype is None else dtype
    _check_npy(source, pointer, path, (found, found_shape), wanted, shape)
    desc = TensorDesc(wanted, tuple(found_shape))
    if fortran or found.byteorder == ">":
        array = np.load(path, allow_pickle=False)
        return Weight.of(np.ascontiguousarray(array.astype(found.newbyteorder("<"))).view(wanted.numpy), desc)
    if os.path.getsize(path) < offset + desc.nbytes:
        raise source.fault(pointer, f"{path} is too short", f"its header promises {desc.nbytes} bytes", code="G1003")
    return Weight(desc, FileSlice(path, offset, desc.nbytes))


def _check_npy(
    source: Source, pointer: str, path: str, found: tuple[Any, Shape], dtype: DataType, shape: Shape | None
) -> None:
    kind, dims = found
    # Types that numpy lacks are stored as the unsigned integer of their width.
    raw = kind.kind in "uV" and (dtype.bits or 0) == kind.itemsize * 8
    if kind.newbyteorder("=") != dtype.numpy and not raw:
        why = f"the file holds {kind.name}, {dtype.serial} is wanted"
        raise source.fault(pointer, f"{path} has another data type", why, code="G1004")
    if shape is not None and tuple(dims) != shape:
        why = f"the file holds {list(dims)}, {list(shape)} is wanted"
        raise source.fault(pointer, f"{path} has another shape", why, code="G1004")


_SOURCES: dict[str, Any] = {
    "data": _from_data,
    "base64": _from_base64,
    "file": _from_file,
    "fill": _from_fill,
    "random": _from_random,
}
