"""Data for ConstPlaceHolder nodes, which stand for memory of the caller (runtime.md 6.6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from gecli.errors import Diagnostic, RuntimeFault
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.runtime.array_files import from_portable

Array = NDArray[Any]


def bind_placeholders(nodes: Iterable[OpDesc], given: Mapping[str, Array], path: str) -> dict[OpDesc, Array]:
    """The stored form of the value of each placeholder; `given` holds values by node name.

    An address of another process means nothing here, so it is never followed. Raises RuntimeFault
    (RT_PLACEHOLDER_UNBOUND, RT_INIT_VALUE_MISMATCH) with all that is wrong.
    """
    found: dict[OpDesc, Array] = {}
    problems: list[Diagnostic] = []
    nodes = list(nodes)
    others = sorted(given.keys() - {node.name for node in nodes})
    for node in nodes:
        if node.name not in given:
            problems.append(_unbound(node, path, others))
            continue
        desc = node.output_descs[0]
        stored = _stored(given[node.name], desc)
        if stored is None:
            problems.append(_misfit(node, given[node.name], path))
        else:
            found[node] = stored
    if problems:
        raise RuntimeFault.of(problems)
    return found


def _stored(value: Array, desc: TensorDesc) -> Array | None:
    """The value as it lies in memory: given so, or in the origin form, from which it is converted. None: no fit."""
    array = from_portable(value, desc.dtype)
    if array.dtype != desc.dtype.numpy:
        return None
    if tuple(array.shape) == desc.shape:
        return array
    if tuple(array.shape) != desc.logical_shape:
        return None
    from gecli.layout.transforms import convert

    return convert(array, desc.logical(), desc)


def _unbound(node: OpDesc, path: str, others: Sequence[str]) -> Diagnostic:
    """`others` are names of --placeholder that the model does not have."""
    desc = node.output_descs[0]
    named = f"; --placeholder names {', '.join(map(repr, others))}, which the model does not have" if others else ""
    return Diagnostic(
        "G4013", f"nothing is given for the placeholder {node.name!r}", kind="RT_PLACEHOLDER_UNBOUND", file=path,
        where=path, node=node.name, why=f"it stands for memory of the caller: {desc}{named}",
        do=f"--placeholder {node.name}=FILE.npy", option="--placeholder",
    )  # fmt: skip


def _misfit(node: OpDesc, value: Array, path: str) -> Diagnostic:
    desc = node.output_descs[0]
    origin = "" if desc.shape == desc.logical_shape else f" or {list(desc.logical_shape)}"
    expected = f"{desc.dtype.numpy.name} {list(desc.shape)}{origin}"
    actual = f"{value.dtype.name} {list(value.shape)}"
    return Diagnostic(
        "G4011", f"the value for placeholder {node.name!r} does not fit", kind="RT_INIT_VALUE_MISMATCH", file=path,
        where=path, node=node.name, why=f"expected {expected}, got {actual}", expected=expected, actual=actual,
        option="--placeholder", do=f"--placeholder {node.name}=FILE.npy with such an array",
    )  # fmt: skip
