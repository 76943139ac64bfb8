"""Where the values of model inputs come from: files, inline text, and reproducible random data (cli.md 3.2)."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gecli.artifacts.file_access import opened, pread
from gecli.errors import InputError, InvalidOption, RuntimeFault
from gecli.ir.dtype import DataType
from gecli.ir.packing import unpack
from gecli.ir.tensor_desc import UNKNOWN_RANK, Shape
from gecli.records import dataclass
from gecli.runtime.array_files import from_portable, read_npy, read_npz
from gecli.runtime.input_names import Command, InputNames
from gecli.runtime.interface import Tensor
from gecli.runtime.model import check_input

if TYPE_CHECKING:
    from pathlib import Path

Array = NDArray[Any]
Feeds = dict[str, Array]
DEFAULT_SEED = 1
_INLINE = r"(?P<dims>(?:\d{1,19}x)*)(?P<dtype>[a-z]+\d*\w*)=(?P<values>[^/]*)\Z"
_NUMBER = r"(?:[-+]?(?:0x[0-9a-f]+|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|inf|nan)|true|false)"
_NUMBERS = rf"(?i){_NUMBER}(?:[, ]+{_NUMBER})*"


@dataclass(frozen=True, slots=True)
class InputOptions:
    """How inputs that are not given are made, and what may be done to those that are."""

    seed: int = DEFAULT_SEED
    fill: str = "random"
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)  # "" is the range of every other input
    shapes: dict[str, Shape] = field(default_factory=dict)
    cast: bool = False
    transposes: dict[str, tuple[int, ...]] = field(default_factory=dict)


def requests_for(
    inputs: Sequence[Tensor],
    specs: Sequence[str],
    options: InputOptions,
    model: str = "",
    command: Command | None = None,
) -> list[Feeds]:
    """The values of a model's inputs for each run asked for; one run when no specification holds several.

    A specification is a file, a directory, `NAME=FILE`, `NAME=16000`, `NAME=2x2xf32=1,2,3,4` or `-` (an npz on stdin);
    `MODEL:NAME=` addresses one of several. What names one input wins over an npz or a directory that holds it too.
    What is an input of another model of the `command` is left to it. An npz whose arrays have one leading axis more
    than the model's inputs holds that many runs. Raises InputError, InvalidOption and RuntimeFault that name input,
    file and what was expected.
    """
    inputs = [_shaped(tensor, options) for tensor in inputs]
    names = InputNames(inputs, model, command or Command(()))
    by_name = {tensor.name: tensor for tensor in inputs}
    given: dict[str, list[Array]] = {}
    givers: dict[str, tuple[str, bool]] = {}  # the specification that gave an input its value, and whether of many
    position = 0
    for spec in specs:
        name, source = names.split(spec)
        if source is None:
            continue
        if name:
            found = {name: _values(by_name[name], source)}
        else:
            found, position = _positional(names, source, position)
        of_many = not name and _holds_many(source)
        for each, values in found.items():
            earlier, was_of_many = givers.get(each, (None, True))
            if earlier is not None and was_of_many == of_many:
                raise _given_twice(each, earlier, spec)
            if earlier is None or was_of_many:
                givers[each], given[each] = (spec, of_many), values
    prepared = {name: _checked(by_name[name], values, options, givers[name][0]) for name, values in given.items()}
    _require_shapes([tensor for tensor in inputs if tensor.name not in prepared], options)
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
    import hashlib

    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
    stream = np.random.SeedSequence([seed, int.from_bytes(digest[:8], "little")])
    generator = np.random.Generator(np.random.PCG64(stream))
    target = dtype.numpy
    if dtype.is_float or target.kind == "c":
        low, high = (0.0 if low is None else low), (1.0 if high is None else high)
        return _elements(generator.random(shape) * (high - low) + low, dtype)
    if dtype is DataType.BOOL:
        return generator.integers(0, 2, shape).astype(target)
    if target.hasobject:
        return np.full(shape, "", dtype=object)
    low, high = (0 if low is None else low), (16 if high is None else high)
    return generator.integers(int(low), max(int(high), int(low) + 1), shape).astype(target)


def _elements(values: Array, dtype: DataType) -> Array:
    """Numbers as elements of `dtype`."""
    if dtype is not DataType.HIFLOAT8:
        return values.astype(dtype.numpy)
    from gecli.layout.hif8 import of_numbers

    return of_numbers(values, dtype)


def _check_range(tensor: Tensor, low: float | None, high: float | None) -> None:
    """Raises InvalidOption for a range that values of the input's type cannot have."""
    if low is None or high is None or tensor.dtype is DataType.BOOL or tensor.dtype.numpy.hasobject:
        return
    target = tensor.dtype.numpy
    is_real = tensor.dtype.is_float or target.kind == "c"
    limits = np.array([low, high if is_real else max(low, high - 1)])  # integers stay below HI
    with np.errstate(over="ignore", invalid="ignore"):
        kept = limits.astype(np.float32) if tensor.dtype is DataType.HIFLOAT8 else limits.astype(target)
        kept = kept.astype(np.complex128 if target.kind == "c" else np.float64)
    fits = np.isfinite(kept).all() if is_real else _are_near(kept, limits)
    if not fits:
        raise InvalidOption(
            "E10001", f"--val-range {low:g},{high:g} does not suit input {tensor.name!r}", option="--val-range",
            why=f"its type is {tensor.dtype.serial}", do=f'--val-range "{tensor.name}:[LO,HI]"',
        )  # fmt: skip


def _are_near(kept: Array, limits: Array) -> bool:
    """Whether integers are what the limits were but for their fractions."""
    return bool((np.abs(kept - limits) <= 1 + 1e-9 * np.abs(limits)).all())


def _shaped(tensor: Tensor, options: InputOptions) -> Tensor:
    """The input as `--shape` fixes it: raw bytes, inline values and made data take that shape."""
    shape = options.shapes.get(tensor.name)
    if shape is None:
        return tensor
    if not tensor.admits(shape):
        raise RuntimeFault(
            "G4001", f"--shape does not fit input {tensor.name!r}", option="--shape", kind="RT_SHAPE_RANGE",
            why=f"expected {tensor.sizes}, got {list(shape)}", node=tensor.name,
            do=_shape_cure(tensor, shape), expected=list(tensor.shape), actual=list(shape),
        )  # fmt: skip
    return replace(tensor, desc=tensor.desc.with_shape(shape))


def _shape_cure(tensor: Tensor, near: Shape = ()) -> str:
    """A --shape that the input accepts: its own sizes, else those of `near` or 1, within ranges."""
    if -1 not in tensor.shape:
        return f"leave out --shape: the model has input {tensor.name!r} only as {list(tensor.shape)}"
    fits = len(near) == len(tensor.shape)
    dims = [str(tensor.nearest(axis, near[axis] if fits else 1)) for axis in range(len(tensor.shape))]
    return f"--shape {tensor.name}:{','.join(dims)}"


# ---------------------------------------------------------------- taking specifications apart


def _checked(tensor: Tensor, values: list[Array], options: InputOptions, spec: str) -> list[Array]:
    """The values in the input's form. Raises RuntimeFault that names the specification they came from."""
    try:
        fitted = [_fitted(tensor, each, options) for each in values]
        for each in fitted:
            check_input(tensor, {tensor.name: each})
    except RuntimeFault as fault:
        raise fault.at(where=f"-i {spec}") from None
    return fitted


def _holds_many(source: str) -> bool:
    """Whether an unnamed source has values for several inputs."""
    return source == "-" or source.endswith(".npz") or os.path.isdir(source)


def _given_twice(name: str, first: str, second: str) -> InvalidOption:
    return InvalidOption(
        "E10001", f"input {name!r} is given twice", option="--input", why=f"by -i {first} and by -i {second}",
        do="leave one out; several runs are one array with a leading axis for the runs",
    )  # fmt: skip


def _positional(names: InputNames, source: str, position: int) -> tuple[dict[str, list[Array]], int]:
    """Values of a source without an input name."""
    if source == "-":
        return _from_npz(names, names.command.stdin_arrays(), "standard input"), position
    if os.path.isdir(source):
        return _from_directory(names.inputs, source), position
    if source.endswith(".npz"):
        return _from_npz(names, read_npz(source), source), position
    files = source.split(",") if "," in source and not os.path.exists(source) else [source]
    found: dict[str, list[Array]] = {}
    for file in files:
        tensor = names.positional(position, file)
        position += 1
        if tensor is not None:
            read = _values if os.path.isdir(file) else _of_file
            found[tensor.name] = read(tensor, file)
    return found, position


def _of_file(tensor: Tensor, file: str) -> list[Array]:
    return _runs_of(tensor, _read_file(tensor, file))


def _values(tensor: Tensor, source: str) -> list[Array]:
    """The value (or values, one a run) that a named source gives for one input."""
    if source.startswith("@"):
        return [_read_file(tensor, str(path)) for path in _files_in(source[1:])]
    if os.path.isdir(source):
        return [_read_file(tensor, str(path)) for path in _files_in(source)]
    if not os.path.exists(source):
        if inline := re.match(_INLINE, source):
            return [_inline_array(tensor, inline)]
        if re.fullmatch(_NUMBERS, source):
            return [_plain_values(tensor, source)]
        if not os.path.lexists(source) and not os.path.splitext(source)[1]:
            why = "no such file or directory, and no value either"
            raise InputError("E13001", f"cannot open {source}", why=why, file=source, do=_accepted_forms(tensor))
    return _of_file(tensor, source)


def _inline_array(tensor: Tensor, match: re.Match[str]) -> Array:
    """`2x2xf32=1,2,3,4`; without dims a scalar. One value fills the whole shape."""
    shape = tuple(int(dim) for dim in match["dims"].split("x") if dim)
    try:
        dtype = DataType.parse(match["dtype"])
    except ValueError as err:
        raise _bad_inline(tensor, match[0], f"{match['dtype']!r} is no data type") from err
    return _filled(tensor, match[0], match["values"], dtype, shape)


def _plain_values(tensor: Tensor, text: str) -> Array:
    """`16000` or `1,2,3`: values of the input's own type and shape."""
    if any(dim < 0 for dim in tensor.shape):
        raise _bad_inline(tensor, text, f"its shape is not known: {list(tensor.shape)}", _shape_cure(tensor))
    return _filled(tensor, text, text, tensor.dtype, tensor.shape)


def _filled(tensor: Tensor, spec: str, text: str, dtype: DataType, shape: Shape) -> Array:
    values = [_number(tensor, spec, word, dtype) for word in text.replace(" ", ",").split(",") if word]
    count = math.prod(shape)
    if len(values) not in (1, count):
        wanted = "1 value" if count == 1 else f"{count} values, or 1 for all"
        raise _bad_inline(tensor, spec, f"shape {list(shape)} takes {wanted}; there are {len(values)}")
    try:
        array = _elements(np.array(values), dtype)
    except (ValueError, TypeError, OverflowError) as err:
        raise _bad_inline(tensor, spec, str(err)) from err
    if dtype.is_integer and [int(value) for value in array] != values:
        raise _bad_inline(tensor, spec, f"a value does not fit {dtype.numpy.name}")
    return np.full(shape, array[0]) if len(values) == 1 else array.reshape(shape)


def _number(tensor: Tensor, spec: str, word: str, dtype: DataType) -> int | float | complex:
    try:
        if dtype is DataType.BOOL:
            return {"true": 1, "false": 0, "1": 1, "0": 0}[word.lower()]
        if dtype.is_integer:
            return int(word, 16) if "x" in word.lower() else int(word)
        return complex(word) if dtype.numpy.kind == "c" else float(word)
    except (ValueError, KeyError) as err:
        raise _bad_inline(tensor, spec, f"{word!r} is no {dtype.numpy.name}") from err


def _bad_inline(tensor: Tensor, spec: str, why: str, also: str = "") -> InvalidOption:
    """One message for everything that can be wrong with values on the command line: it lists the forms."""
    return InvalidOption(
        "E10014", f"the inline value {spec!r} for input {tensor.name!r} cannot be used", option="--input",
        why=f"{why}; the input is {tensor.desc}", do=_accepted_forms(tensor) + (f", with {also}" if also else ""),
    )  # fmt: skip


def _accepted_forms(tensor: Tensor) -> str:
    name, count = tensor.name, math.prod(dim for dim in tensor.shape if dim > 0)
    dims = "".join(f"{max(dim, 1)}x" for dim in tensor.shape)
    values = "1" if count == 1 else "1,2,..."
    return f"-i {name}=FILE.npy or -i {name}={values} or -i {name}={dims}{tensor.dtype.short}={values}"


# ---------------------------------------------------------------- files


def _from_npz(names: InputNames, arrays: Mapping[str, Array], file: str) -> dict[str, list[Array]]:
    found: dict[str, list[Array]] = {}
    for key, array in arrays.items():
        by_number = re.fullmatch(r"arr_\d{1,9}", key) and all(tensor.name != key for tensor in names.inputs)
        tensor = names.at(int(key[4:]), key, file) if by_number else names.find(key, file)
        if tensor is not None:
            found[tensor.name] = _runs_of(tensor, array)
    return found


def _runs_of(tensor: Tensor, array: Array) -> list[Array]:
    """An array with one leading axis more than the input holds one value a run."""
    if tensor.shape == UNKNOWN_RANK or array.ndim != len(tensor.shape) + 1 or not len(array):
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
    from pathlib import Path

    def natural(path: Path) -> list[Any]:
        return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path.name)]

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
            why=f"it is {tensor.desc}",
            do="give a .npy file" if shape == UNKNOWN_RANK else f"give a .npy file, or {_shape_cure(tensor)}",
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
    return InputError(
        "E13001",
        f"cannot open {path}",
        why=err.strerror or str(err),
        file=path,
        do="check the path and its permissions",
    )


# ---------------------------------------------------------------- fitting and making values


def _fitted(tensor: Tensor, array: Array, options: InputOptions) -> Array:
    array = _typed(tensor, array)
    perm = options.transposes.get(tensor.name)
    if perm is not None:
        if len(perm) != array.ndim:
            raise InvalidOption(
                "E10001", f"--transpose does not fit the value for input {tensor.name!r}", option="--transpose",
                why=f"{len(perm)} axes are named, the value has {array.ndim}: {list(array.shape)}",
                do=f"--transpose {tensor.name}:{','.join(map(str, reversed(range(array.ndim))))}",
            )  # fmt: skip
        array = np.transpose(array, perm)
    array = _same_rank(tensor, array)
    if tensor.name in options.shapes and array.shape != tensor.shape:
        raise RuntimeFault(
            "G4001", f"the value for input {tensor.name!r} has another shape than --shape says", kind="RT_SHAPE_RANGE",
            why=f"--shape gives {list(tensor.shape)}, the value has {list(array.shape)}", option="--shape",
            do="leave out --shape: a .npy file has a shape of its own", node=tensor.name,
            expected=list(tensor.shape), actual=list(array.shape),
        )  # fmt: skip
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


def _typed(tensor: Tensor, array: Array) -> Array:
    """Elements of a type that numpy lacks come without it from a file that numpy saved; the input says what it is."""
    if array.dtype.type is not np.void:
        return array
    typed = from_portable(array, tensor.dtype)
    if typed.dtype.type is not np.void:
        return typed
    raise RuntimeFault(
        "E13025", f"the value for input {tensor.name!r} has no data type", kind="RT_INPUT_SIZE", node=tensor.name,
        why=f"its elements are {array.dtype.itemsize} bytes without a type, as numpy saves bfloat16, float8 and int4; "
            f"the input is {tensor.dtype.numpy.name}",
        do=f"numpy.save(FILE, array.astype({tensor.dtype.numpy.name!r}))",
        expected=tensor.dtype.numpy.name, actual=array.dtype.str,
    )  # fmt: skip


def _same_rank(tensor: Tensor, array: Array) -> Array:
    """One element in the rank of the input: a scalar, [1] and [1,1] hold the same value."""
    if array.size == 1 and array.ndim != len(tensor.shape) and all(dim == 1 for dim in tensor.shape):
        return array.reshape(tensor.shape)
    return array


def _run_count(values: dict[str, list[Array]]) -> int:
    counts = {name: len(each) for name, each in values.items() if len(each) != 1}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        raise InvalidOption(
            "E10001", "the inputs hold different numbers of runs", option="--input", why=shown,
            do="give every input the same number of values, or one",
        )  # fmt: skip
    return next(iter(counts.values()), 1)


def _require_shapes(inputs: Sequence[Tensor], options: InputOptions) -> None:
    """Raises InvalidOption for inputs that are to be made and whose shapes are not known, all at once."""
    unknown = [tensor for tensor in inputs if any(dim < 0 for dim in tensor.shape)]
    if not unknown:
        return
    names = ", ".join(repr(tensor.name) for tensor in unknown)
    told = [tensor for tensor in unknown if tensor.shape != UNKNOWN_RANK]
    given = [f"{name}:{','.join(map(str, shape))}" for name, shape in options.shapes.items()]
    cures = [_shape_cure(tensor).removeprefix("--shape ") for tensor in told]
    rest = " ".join(f"-i {tensor.name}=FILE.npy" for tensor in unknown if tensor not in told)
    raise InvalidOption(
        "E10054",
        f"the shape of input {names} is not known"
        if len(unknown) == 1
        else f"the shapes of inputs {names} are not known",
        why="; ".join(f"{tensor.name} is {tensor.desc}" for tensor in unknown),
        do=" ".join([f'--shape "{";".join([*given, *cures])}"' if cures else "", rest]).strip(),
    )


def _made(tensor: Tensor, options: InputOptions) -> Array:
    shape = tensor.shape
    target = tensor.dtype.numpy
    how, _, value = options.fill.partition(":")
    if how == "zeros":
        return np.zeros(shape, target)
    if how == "ones":
        return _elements(np.ones(shape), tensor.dtype)
    if how == "iota":
        return _elements(np.arange(int(np.prod(shape))), tensor.dtype).reshape(shape)
    if how == "const":
        return _elements(np.full(shape, float(value)), tensor.dtype)
    low, high = options.ranges.get(tensor.name, options.ranges.get("", (None, None)))
    _check_range(tensor, low, high)
    return random_array(tensor.name, tensor.dtype, shape, options.seed, low, high)
