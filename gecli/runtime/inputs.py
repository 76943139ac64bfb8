"""Where the values of model inputs come from: files, inline text, and reproducible random data (cli.md 3.2)."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.artifacts.file_access import opened, pread
from gecli.errors import InputError, InvalidOption, RuntimeFault
from gecli.ir.dtype import DataType
from gecli.ir.packing import unpack
from gecli.ir.tensor_desc import Shape
from gecli.runtime.array_files import read_npy, read_npz, read_npz_from_stdin
from gecli.runtime.interface import Tensor

Array = NDArray[Any]
Feeds = dict[str, Array]
DEFAULT_SEED = 1
_INLINE = re.compile(r"(?P<dims>(?:\d+x)*)(?P<dtype>[a-z]+\d*\w*)=(?P<values>[^/]*)\Z")


@dataclass(frozen=True, slots=True)
class InputOptions:
    """How inputs that are not given are made, and what may be done to those that are."""

    seed: int = DEFAULT_SEED
    fill: str = "random"
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)  # "" is the range of every other input
    shapes: dict[str, Shape] = field(default_factory=dict)
    cast: bool = False
    transposes: dict[str, tuple[int, ...]] = field(default_factory=dict)


def requests_for(inputs: Sequence[Tensor], specs: Sequence[str], options: InputOptions, stem: str = "") -> list[Feeds]:
    """The values of a model's inputs for each run asked for; one run when no specification holds several.

    A specification is a file, a directory, `NAME=FILE`, `NAME=2x2xf32=1,2,3,4` or `-` (an npz on stdin); `STEM:NAME=`
    addresses one OM of several. An npz whose arrays have one leading axis more than the model's inputs holds that
    many runs. Raises InputError, InvalidOption and RuntimeFault that name input, file and what was expected.
    """
    given: dict[str, list[Array]] = {}
    position = 0
    for spec in specs:
        name, source = _split(spec, inputs, stem)
        if source is None:
            continue
        if name:
            tensor = _named(inputs, name)
            given[tensor.name] = _values(tensor, source)
            continue
        found, position = _positional(inputs, source, position)
        given.update(found)
    prepared = {
        name: [_fitted(_named(inputs, name), each, options) for each in values] for name, values in given.items()
    }
    count = _run_count(prepared)
    feeds: list[Feeds] = []
    for run in range(count):
        feed = {name: values[run if len(values) > 1 else 0] for name, values in prepared.items()}
        for tensor in inputs:
            if tensor.name not in feed:
                feed[tensor.name] = _made(tensor, options)
        feeds.append(feed)
    return feeds


def random_array(
    name: str,
    dtype: DataType,
    shape: Shape,
    seed: int = DEFAULT_SEED,
    low: float | None = None,
    high: float | None = None,
) -> Array:
    """Random values for the input `name`: the same seed, name, type and shape give the same data.

    Every name has its own stream, so adding an input does not change the others. Floats are uniform in [low, high),
    by default [0, 1); integers in [0, 16), bool in {0, 1}.
    """
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
    stream = np.random.SeedSequence([seed, int.from_bytes(digest[:8], "little")])
    generator = np.random.Generator(np.random.PCG64(stream))
    target = dtype.numpy
    if dtype.is_float or target.kind == "c":
        low, high = (0.0 if low is None else low), (1.0 if high is None else high)
        return (generator.random(shape) * (high - low) + low).astype(target)
    if dtype is DataType.BOOL:
        return generator.integers(0, 2, shape).astype(target)
    if target.hasobject:
        return np.full(shape, "", dtype=object)
    low, high = (0 if low is None else low), (16 if high is None else high)
    return generator.integers(int(low), int(high), shape).astype(target)


# ---------------------------------------------------------------- taking specifications apart


def _split(spec: str, inputs: Sequence[Tensor], stem: str) -> tuple[str, str | None]:
    """(input name or "", source); source None when the specification is for another OM."""
    names = {tensor.name for tensor in inputs}
    for name in sorted(names, key=len, reverse=True):
        if spec.startswith(f"{name}="):
            return name, spec[len(name) + 1 :]
    head, equals, source = spec.partition("=")
    if not equals or os.path.exists(spec):
        return "", spec
    if re.fullmatch(r"#\d+", head):
        index = int(head[1:])
        if index >= len(inputs):
            raise _unknown_input(head, inputs)
        return inputs[index].name, source
    owner, colon, name = head.partition(":")
    if colon and stem:
        if owner == stem:
            return (name if name in names else _named(inputs, name).name), source
        if name in names or owner != head:
            return "", None
    if stem:
        return "", None
    raise _unknown_input(head, inputs)


def _named(inputs: Sequence[Tensor], name: str) -> Tensor:
    for tensor in inputs:
        if tensor.name == name:
            return tensor
    raise _unknown_input(name, inputs)


def _unknown_input(name: str, inputs: Sequence[Tensor]) -> InvalidOption:
    import difflib

    names = [tensor.name for tensor in inputs]
    near = difflib.get_close_matches(name, names, n=1)
    return InvalidOption(
        "E10016",
        f"--input names {name!r}, which is no input of the model",
        option="--input",
        why="its inputs: " + (", ".join(f"{t.name} {t.desc}" for t in inputs) or "none"),
        do=f"-i {near[0]}=FILE" if near else (f"-i {names[0]}=FILE" if names else "leave out -i"),
        expected=names,
        actual=name,
    )


def _positional(inputs: Sequence[Tensor], source: str, position: int) -> tuple[dict[str, list[Array]], int]:
    """Values of a source without an input name."""
    if source == "-":
        return _from_npz(inputs, read_npz_from_stdin()), position
    if os.path.isdir(source):
        return _from_directory(inputs, source), position
    if source.endswith(".npz"):
        return _from_npz(inputs, read_npz(source)), position
    files = source.split(",") if "," in source and not os.path.exists(source) else [source]
    found: dict[str, list[Array]] = {}
    for file in files:
        if position >= len(inputs):
            raise InvalidOption(
                "E10001",
                f"-i {file!r} is one input too many",
                option="--input",
                why=f"the model has {len(inputs)} input{'s' if len(inputs) != 1 else ''}",
            )
        found[inputs[position].name] = _values(inputs[position], file)
        position += 1
    return found, position


def _values(tensor: Tensor, source: str) -> list[Array]:
    """The value (or values, one a run) that a named source gives for one input."""
    if source.startswith("@"):
        return [_read_file(tensor, str(path)) for path in _files_in(source[1:])]
    if os.path.isdir(source):
        return [_read_file(tensor, str(path)) for path in _files_in(source)]
    inline = _INLINE.match(source)
    if inline and not os.path.exists(source):
        return [_inline_array(tensor, inline)]
    return _runs_of(tensor, _read_file(tensor, source))


def _inline_array(tensor: Tensor, match: re.Match[str]) -> Array:
    shape = tuple(int(dim) for dim in match["dims"].split("x") if dim)
    try:
        dtype = DataType.parse(match["dtype"]).numpy
        values = np.array([float(v) for v in match["values"].replace(" ", ",").split(",") if v]).astype(dtype)
        return np.broadcast_to(values, shape).copy() if values.size == 1 else values.reshape(shape)
    except ValueError as err:
        raise InvalidOption(
            "E10014", f"the inline value for input {tensor.name!r} cannot be read", option="--input", why=str(err),
            do=f"-i {tensor.name}=2x2xf32=1,2,3,4",
        ) from err  # fmt: skip


# ---------------------------------------------------------------- files


def _from_npz(inputs: Sequence[Tensor], arrays: dict[str, Array]) -> dict[str, list[Array]]:
    found: dict[str, list[Array]] = {}
    for key, array in arrays.items():
        if re.fullmatch(r"arr_\d+", key) and all(tensor.name != key for tensor in inputs):
            index = int(key[4:])
            if index >= len(inputs):
                raise _unknown_input(key, inputs)
            tensor = inputs[index]
        else:
            tensor = _named(inputs, key)
        found[tensor.name] = _runs_of(tensor, array)
    return found


def _runs_of(tensor: Tensor, array: Array) -> list[Array]:
    """An array with one leading axis more than the input holds one value a run."""
    if tensor.shape == (-2,) or array.ndim != len(tensor.shape) + 1 or not len(array):
        return [array]
    inner = array.shape[1:]
    if all(want in (-1, have) for want, have in zip(tensor.shape, inner)):
        return list(array)
    return [array]


def _from_directory(inputs: Sequence[Tensor], directory: str) -> dict[str, list[Array]]:
    files = _files_in(directory)
    by_stem = {path.stem: path for path in files}
    if all(tensor.name in by_stem for tensor in inputs):
        return {tensor.name: [_read_file(tensor, str(by_stem[tensor.name]))] for tensor in inputs}
    if not inputs or len(files) % len(inputs):
        raise InvalidOption(
            "E10001",
            f"the files of {directory} cannot be matched with the model's inputs",
            option="--input",
            why=f"{len(files)} files, {len(inputs)} inputs: {', '.join(tensor.name for tensor in inputs)}",
            do="name the files like the inputs, or give a multiple of their number",
        )
    runs = len(files) // len(inputs)
    return {
        tensor.name: [_read_file(tensor, str(files[run * len(inputs) + i])) for run in range(runs)]
        for i, tensor in enumerate(inputs)
    }


def _files_in(directory: str) -> list[Path]:
    def natural(path: Path) -> list[Any]:
        return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]

    try:
        files = [path for path in Path(directory).iterdir() if path.suffix in (".npy", ".bin") and path.is_file()]
    except OSError as err:
        raise _unopenable(directory, err) from err
    if not files:
        raise InputError(
            "E13000", f"{directory} holds no .npy or .bin file", why="a directory gives one file a run", file=directory,
            do="check the path",
        )  # fmt: skip
    return sorted(files, key=natural)


def _read_file(tensor: Tensor, path: str) -> Array:
    if path.endswith(".npz"):
        arrays = read_npz(path)
        if tensor.name in arrays:
            return arrays[tensor.name]
        if len(arrays) == 1:
            return next(iter(arrays.values()))
        raise InputError(
            "E13005",
            f"{path} holds no array for input {tensor.name!r}",
            why=f"its keys: {', '.join(arrays)}",
            file=path,
            do=f"-i {tensor.name}=FILE.npy, or name the array {tensor.name}",
        )
    if path.endswith(".npy"):
        return read_npy(path)
    return _read_raw(tensor, path)


def _read_raw(tensor: Tensor, path: str) -> Array:
    shape = tensor.shape
    if any(dim < 0 for dim in shape):
        raise InvalidOption(
            "E10001", f"{path} has no shape and input {tensor.name!r} is dynamic", option="--input",
            do=f"give a .npy file or --shape {tensor.name}:...",
        )  # fmt: skip
    want = tensor.desc.nbytes
    with opened(path) as handle:
        size = os.fstat(handle).st_size
        data = pread(handle, 0, want + 1) if size <= want else b""
    size = max(len(data), size)
    if size != want:
        factor = size / want if want else 0
        likely = "; another data type is likely" if factor in (0.5, 2, 4) else ""
        raise RuntimeFault(
            "E13025",
            f"{path} does not fit input {tensor.name!r}",
            why=f"expected {want} bytes for {tensor.desc}, got {size}{likely}",
            kind="RT_INPUT_SIZE",
            file=path,
            expected=want,
            actual=size,
        )
    return unpack(data, tensor.dtype, shape)


def _unopenable(path: str, err: OSError) -> InputError:
    return InputError("E13001", f"cannot open {path}", why=err.strerror or str(err), file=path, do="check the path")


# ---------------------------------------------------------------- fitting and making values


def _fitted(tensor: Tensor, array: Array, options: InputOptions) -> Array:
    perm = options.transposes.get(tensor.name)
    if perm is not None:
        if len(perm) != array.ndim:
            raise InvalidOption(
                "E10001", f"--transpose does not fit the value for input {tensor.name!r}", option="--transpose",
                why=f"{len(perm)} axes are named, the value has {array.ndim}: {list(array.shape)}",
                do=f"--transpose {tensor.name}:{','.join(map(str, reversed(range(array.ndim))))}",
            )  # fmt: skip
        array = np.transpose(array, perm)
    want = tensor.dtype.numpy
    if array.dtype == want or not options.cast:
        return array
    converted = array.astype(want)
    if want.kind in "iu" and array.dtype.kind in "iuf" and not np.array_equal(converted.astype(array.dtype), array):
        raise RuntimeFault(
            "E13025",
            f"--cast would change the values of input {tensor.name!r}",
            why=f"{array.dtype.name} values outside {want.name}",
            kind="RT_INPUT_SIZE",
        )
    return converted


def _run_count(values: dict[str, list[Array]]) -> int:
    counts = {name: len(each) for name, each in values.items() if len(each) != 1}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        raise InvalidOption(
            "E10001", "the inputs hold different numbers of runs", option="--input", why=shown,
            do="give every input the same number of values, or one",
        )  # fmt: skip
    return next(iter(counts.values()), 1)


def _made(tensor: Tensor, options: InputOptions) -> Array:
    shape = options.shapes.get(tensor.name, tensor.shape)
    if any(dim < 0 for dim in shape):
        raise RuntimeFault(
            "G4001",
            f"the shape of input {tensor.name!r} is not known",
            why=f"it is {tensor.desc}",
            do=f"--shape {tensor.name}:{','.join('1' if d < 0 else str(d) for d in shape)}",
            kind="RT_SHAPE_RANGE",
        )
    fits = len(shape) == len(tensor.shape) and all(want in (-1, have) for want, have in zip(tensor.shape, shape))
    if not fits and tensor.shape != (-2,):
        raise RuntimeFault(
            "G4001", f"--shape does not fit input {tensor.name!r}", option="--shape", kind="RT_SHAPE_RANGE",
            why=f"expected {list(tensor.shape)}, got {list(shape)}", node=tensor.name,
            do=f"compile with --input-shape {tensor.name}:{','.join(map(str, shape))}",
        )  # fmt: skip
    target = tensor.dtype.numpy
    how, _, value = options.fill.partition(":")
    if how == "zeros":
        return np.zeros(shape, target)
    if how == "ones":
        return np.ones(shape, target)
    if how == "iota":
        return np.arange(int(np.prod(shape))).astype(target).reshape(shape)
    if how == "const":
        return np.full(shape, float(value)).astype(target)
    low, high = options.ranges.get(tensor.name, options.ranges.get("", (None, None)))
    return random_array(tensor.name, tensor.dtype, shape, options.seed, low, high)
