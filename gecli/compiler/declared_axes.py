"""The axes of one variable as the models of a session name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gecli.errors import Diagnostic
from gecli.ir.attributes import VARIABLE_TYPES
from gecli.ir.tensor_desc import TensorDesc
from gecli.layout.axes import AXES
from gecli.loading import LoadedModel
from gecli.variables import var_faults
from gecli.variables.var_manager import VarManager


def declared_forms(manager: VarManager) -> dict[str, TensorDesc]:
    """The variables of a session as the models declared them that made it."""
    found = {}
    for name, desc in manager.resource.current_descs.items():
        road = manager.trans_road(name)
        found[name] = road.source if road else desc
    return found


def axes_warnings(loaded: Sequence[LoadedModel], known: Mapping[str, TensorDesc]) -> list[list[Diagnostic]]:
    """For each model the variables whose axes it names otherwise than the session, or the first model, does.

    Such a variable is the same bytes to all of them, as with other dims.
    """
    first = {name: desc for name, desc in known.items() if _letters(desc)}
    found: list[list[Diagnostic]] = []
    for model in loaded:
        told: dict[str, Diagnostic] = {}
        for graph in model.graph.all_graphs():
            for node in graph.nodes_of(*sorted(VARIABLE_TYPES)):
                desc = node.output_descs[0] if node.output_descs else None
                if desc is None or node.ref_variable is not None or not _letters(desc):
                    continue
                earlier = first.setdefault(node.name, desc)
                if _letters(earlier) != _letters(desc) and earlier.logical_shape == desc.logical_shape:
                    told.setdefault(node.name, var_faults.other_form(node.name, model.graph.name, earlier, desc))
        found.append(list(told.values()))
    return found


def _letters(desc: TensorDesc) -> str:
    """The names of the axes; empty where a format names none, or others than the tensor has."""
    letters = AXES.get(desc.logical_format.primary, "")
    return letters if len(letters) == len(desc.logical_shape) else ""
