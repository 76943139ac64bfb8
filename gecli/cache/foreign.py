"""Entries that other tools made: nothing proves their content, so the models themselves are compared (cache.md 4.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gecli.cache.candidate import Verdict
from gecli.cache.foreign_weights import UnusableWeights
from gecli.errors import GecliError
from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK
from gecli.wire.regular_file import io_fault

if TYPE_CHECKING:
    from gecli.ir.graph import Graph
    from gecli.ir.op_desc import OpDesc
    from gecli.wire.model_record import ModelRecord

VARIABLE_TYPES = ("Variable", "VariableV2", "VarHandleOp")
UNKNOWN = (UNKNOWN_DIM, DataType.UNDEFINED.serial)
Signature = dict[str, list[tuple[object, ...]]]


def match_foreign(
    om: str,
    source: str,
    graph: Graph,
    *,
    lenient: bool = False,
    find_weights: Callable[[ModelRecord], object] = lambda model: None,
) -> Verdict:
    """Compare the graph in an OM with the one to compile; `lenient` lets pass what one side does not say.

    `find_weights` looks for the files of external weights, and raises UnusableWeights.
    `via` is `source` when the OM is gecli's, undamaged, and from exactly this graph with these options.
    """
    from gecli.artifacts.om_file import read_om

    try:
        file = read_om(om)
        file.require_runnable()
        model = file.model()
        model.require_sound()
        damage = file.verify_checksum()
    except (GecliError, OSError) as error:
        return Verdict(reason="io_error" if io_fault(error) else "om_corrupt", evidence=str(error))
    if damage is not None:
        return Verdict(reason="om_corrupt", evidence=damage.message)
    made_from = model.root.attrs.get("_gecli_fp")
    if made_from == source:
        return Verdict(via="source")
    if made_from:
        return Verdict(reason="fingerprint_mismatch", evidence="the OM was compiled from something else")
    found, wanted = signature(model.root.nodes), signature(graph.nodes())
    for name, rows in wanted.items():
        if found[name] != rows and not (lenient and name != "variables" and _is_open(found[name], rows)):
            return Verdict(reason="signature_mismatch", evidence=f"{name}: {found[name]} in the entry, {rows} wanted")
    try:
        find_weights(model)
    except UnusableWeights as error:
        return Verdict(reason=error.reason, evidence=str(error))
    return Verdict(via="signature")


def _is_open(found: list[tuple[object, ...]], wanted: list[tuple[object, ...]]) -> bool:
    """Whether two lists differ only where one side says nothing: no rows, a type or a size that is not known."""
    if not found or not wanted:
        return True
    if len(found) != len(wanted):
        return False
    return all(_is_open_row(*rows) for rows in zip(found, wanted))


def _is_open_row(found: tuple[object, ...], wanted: tuple[object, ...]) -> bool:
    if UNKNOWN_RANK[0] in found or UNKNOWN_RANK[0] in wanted:
        found, wanted = found[:2], wanted[:2]
    return len(found) == len(wanted) and all(
        one == other or one in UNKNOWN or other in UNKNOWN for one, other in zip(found, wanted)
    )


def signature(nodes: Iterable[OpDesc]) -> Signature:
    """Inputs by index with type and origin shape, types of the outputs, names of the variables."""
    inputs: list[tuple[object, ...]] = []
    outputs: list[tuple[object, ...]] = []
    variables: list[tuple[object, ...]] = []
    for node in nodes:
        if node.type == "Data":
            desc = node.output_descs[0]
            inputs.append((node.attrs.get("index", 0), desc.dtype.serial, *desc.logical_shape))
        elif node.type == "NetOutput":
            outputs = [(port.desc.dtype.serial,) if port is not None else ("absent",) for port in node.inputs]
        elif node.type in VARIABLE_TYPES and not node.attrs.get("ref_var_src_var_name"):
            variables.append((node.name,))
    return {"inputs": sorted(inputs, key=repr), "outputs": outputs, "variables": sorted(variables, key=repr)}
