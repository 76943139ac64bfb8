"""Writing the outputs of runs: an npz, or a file a tensor in a directory (cli.md 3.4)."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.artifacts.publish import publish_bytes
from gecli.errors import InvalidOption
from gecli.runtime.checkpoint import npz_bytes, portable
from gecli.runtime.runner import Outcome

Array = NDArray[Any]
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def write_outputs(
    outcomes: Sequence[Outcome], target: str, output_format: str, check: Callable[[list[str]], None] | None = None
) -> dict[str, str]:
    """Write every output; returns the file of each as `<model>/<request>/<output>` -> path.

    `X.npz` and `-` are one npz keyed by output name, with a leading axis for the request when there are several; all
    else is a directory with one file a tensor. Several models prefix keys and directories with their stem; of a model
    that ran several times the last outputs are written. `check` is called with the paths in a directory before any of
    them is written, and may raise. Raises OutputError, and InvalidOption when requests differ in shape and cannot be
    stacked.
    """
    many = len(outcomes) > 1
    outcomes = list({id(outcome.model): outcome for outcome in outcomes}.values())
    if target == "-" or target.endswith(".npz"):
        arrays: dict[str, Array] = {}
        for outcome in outcomes:
            for name, array in _stacked(outcome).items():
                arrays[f"{outcome.model.name}/{name}" if many else name] = portable(array)
        data = npz_bytes(arrays)
        if target == "-":
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            return {}
        publish_bytes(target, data)
        return {
            f"{outcome.model.name}/{request}/{name}": target
            for outcome in outcomes
            for request in range(len(outcome.outputs))
            for name in outcome.outputs[request]
        }
    rows = list(_placed(outcomes, target, output_format, many))
    if check is not None:
        check([path for _, path, _, _ in rows])
    for _, path, name, array in rows:
        publish_bytes(path, _encoded(array, name, output_format))
    return {key: path for key, path, _, _ in rows}


def _placed(
    outcomes: Sequence[Outcome], target: str, output_format: str, many: bool
) -> Iterator[tuple[str, str, str, Array]]:
    """Key, path, name and value of every output in a directory."""
    for outcome in outcomes:
        folder = os.path.join(target, outcome.model.name) if many else target
        for request, outputs in enumerate(outcome.outputs):
            place = folder if len(outcome.outputs) == 1 else os.path.join(folder, f"{request:04d}")
            names = _file_names(outputs)
            for name, array in outputs.items():
                path = os.path.join(place, f"{names[name]}.{output_format}")
                yield f"{outcome.model.name}/{request}/{name}", path, name, array


def _stacked(outcome: Outcome) -> dict[str, Array]:
    if len(outcome.outputs) == 1:
        return outcome.outputs[0]
    stacked = {}
    for name in outcome.outputs[0]:
        arrays = [outputs[name] for outputs in outcome.outputs]
        if len({array.shape for array in arrays}) > 1:
            raise InvalidOption(
                "E10001",
                f"output {name!r} has another shape in every run and cannot be stacked in one npz",
                option="--output",
                do="-o DIR/",
            )
        stacked[name] = np.stack(arrays)
    return stacked


def _file_names(outputs: dict[str, Array]) -> dict[str, str]:
    """A file name for each output: unsafe characters become `_`, clashes get `~2`, `~3`."""
    taken: dict[str, int] = {}
    names = {}
    for name in outputs:
        base = _UNSAFE.sub("_", name) or "_"
        taken[base] = taken.get(base, 0) + 1
        names[name] = base if taken[base] == 1 else f"{base}~{taken[base]}"
    return names


def _encoded(array: Array, name: str, output_format: str) -> bytes:
    if output_format == "bin":
        return np.ascontiguousarray(array).tobytes()
    if output_format == "txt":
        head = f"# {name} {array.dtype.name} {'x'.join(map(str, array.shape))}\n"
        return (head + "".join(f"{value!r}\n" for value in array.reshape(-1).tolist())).encode()
    if output_format == "json":
        document = {"name": name, "dtype": array.dtype.name, "shape": list(array.shape), "data": array.tolist()}
        return json.dumps(document).encode()
    if output_format == "npz":
        return npz_bytes({name: portable(array)})
    from io import BytesIO

    buffer = BytesIO()
    np.lib.format.write_array(buffer, np.asanyarray(portable(array)), allow_pickle=False)
    return buffer.getvalue()
