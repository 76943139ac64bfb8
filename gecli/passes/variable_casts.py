"""Which type the graphs of a session want of a variable: a narrower one is stored only where nobody needs more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from gecli.engine.trans_ops import TRANS_OPS
from gecli.ir.attributes import VARIABLE_TYPES
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Use
from gecli.layout.cast import exact_embedding

Casts = Mapping[str, DataType | None]
NO_CASTS: Casts = MappingProxyType({})


def casts_of(graph: Graph) -> dict[str, DataType | None]:
    """For each variable that a graph uses, the type to which every use casts it; None where one takes it as it is.

    A write is such a use, and a value that is stored back, unless it comes from that type and the cast back is exact.
    """
    found: dict[str, set[DataType | None]] = {}
    for each in graph.all_graphs():
        for node in each.nodes_of(*sorted(VARIABLE_TYPES)):
            if node.ref_variable is not None:
                found.setdefault(node.ref_variable, set()).add(_cast_from(node))
                continue
            types = {_cast_to(use) for use in each.consumers(node.out())}
            found.setdefault(node.name, set()).update(types | ({None} if node.inputs else set()))
    return {name: next(iter(types)) if len(types) == 1 else None for name, types in found.items() if types}


def casts_of_others(graphs: Sequence[Graph]) -> list[Casts]:
    """For each graph of a session the variables that others use too, with the type to which all of these cast it."""
    if len(graphs) == 1:
        return [NO_CASTS]
    own = [casts_of(graph) for graph in graphs]
    users: dict[str, list[int]] = {}
    for number, casts in enumerate(own):
        for name in casts:
            users.setdefault(name, []).append(number)
    result: list[Casts] = []
    for number in range(len(graphs)):
        shared: dict[str, DataType | None] = {}
        for name, numbers in sorted(users.items()):
            types = {own[other][name] for other in numbers if other != number}
            if types:
                shared[name] = types.pop() if len(types) == 1 else None
        result.append(shared)
    return result


def cast_variables(graph: Graph) -> set[str]:
    """The variables behind which, after other conversions, a Cast of the graph stands."""
    found: set[str] = set()
    for each in graph.all_graphs():
        if not each.count_of("Cast"):
            continue
        for variable in each.nodes_of(*sorted(VARIABLE_TYPES)):
            waiting = [variable]
            while waiting:
                behind = [use.node for use in each.consumers(waiting.pop().out()) if use.node.type in TRANS_OPS]
                waiting += behind
                if any(node.type == "Cast" for node in behind):
                    found.add(variable.name)
                    break
    return found


def _cast_from(ref: OpDesc) -> DataType | None:
    port = ref.inputs[0] if ref.inputs else None
    source = port.node.inputs[0] if port is not None and port.node.type == "Cast" else None
    if source is None or not exact_embedding(source.desc.dtype, ref.output_descs[0].dtype):
        return None
    return source.desc.dtype


def _cast_to(use: Use) -> DataType | None:
    node = use.node
    if node.type != "Cast" or use.slot != 0:
        return None
    target = node.attrs.get("dst_type")  # a graph that was only loaded may not say what comes out
    return node.output_descs[0].dtype if target is None else DataType(target)
