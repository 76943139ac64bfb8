"""The graph of a slice for the inputs of one run: their shapes, the small values that decide shapes, taken branches.

Its nodes are inferred and folded, so it says which shapes follow from the inputs alone (cache.md 9.6, Symbols).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from gecli.ir.attributes import CONST_TYPES, VALUE
from gecli.ir.calls import CHOICE_TYPES, IF_TYPES
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.weight import Weight
from gecli.jit.branches import inline_branch
from gecli.jit.guard import Guard, InputRule
from gecli.passes.infer_shape import infer_graph, refuse_unsupported
from gecli.records import dataclass

Array = NDArray[Any]
VALUE_TYPES = frozenset((DataType.INT32, DataType.INT64, DataType.UINT32, DataType.UINT64))
MAX_VALUES = 200  # elements of an input whose values may become part of a guard
MAX_ROUNDS = 1000  # of inlining; each takes a node away
PLAIN_BEFORE_CHOICE = frozenset(("Cast", "Size", "StringLength", "SqueezeV2", "Squeeze", "Reshape"))


@dataclass(frozen=True, slots=True)
class Specialised:
    """`graph` is made for the inputs; `known` are the nodes of the slice all of whose shapes follow from them.

    `values` are the inputs whose values were used too.
    """

    graph: Graph
    known: frozenset[str]
    values: tuple[int, ...]


def specialised(graph: Graph, arrays: Sequence[Array], *, with_values: bool = True) -> Specialised:
    """The graph for these inputs, which is left as it was. Raises CompileError for inputs that do not fit it."""
    plain = _attempt(graph, arrays, ())
    names = {node.name for node in graph.nodes()}
    if plain.known >= names and not plain.undecided:
        return plain.result()
    candidates = tuple(_candidates(graph, arrays)) if with_values else ()
    if not candidates:
        return plain.result()
    best = _attempt(graph, arrays, candidates)
    if not best.says_more_than(plain):
        return plain.result()
    for candidate in candidates:
        fewer = tuple(each for each in best.values if each != candidate)
        attempt = _attempt(graph, arrays, fewer)
        if not best.says_more_than(attempt):
            best = attempt
    return best.result()


def exact_guard(graph: Graph, arrays: Sequence[Array], values: Iterable[int]) -> Guard:
    """The guard of a slice compiled for exactly these shapes and the values of these inputs."""
    rules = tuple(
        InputRule(data.output_descs[0].dtype, _format(data), tuple(array.shape))
        for data, array in zip(graph.inputs, arrays)
    )
    symbols: dict[str, Mapping[str, Any]] = {}
    checks: list[Any] = []
    for index in values:
        array = arrays[index]
        if array.dtype.kind == "b":
            name = f"s{len(symbols)}"
            symbols[name] = {"source": "cond", "input": index}
            checks.append(["ne" if bool(array.reshape(-1)[0]) else "eq", name, 0])
            continue
        for elem, value in enumerate(array.reshape(-1).tolist()):
            name = f"s{len(symbols)}"
            symbols[name] = {"source": "value", "input": index, "elem": elem}
            checks.append(["eq", name, int(value)])
    return Guard(rules, symbols, tuple(checks))


def general(graph: Graph, arrays: Sequence[Array]) -> tuple[Graph, Guard]:
    """A copy that leaves every free dim free, and its guard: rank, fixed dims, and which free dims are 0."""
    copy = graph.copy()
    rules = []
    symbols: dict[str, Mapping[str, Any]] = {}
    checks: list[Any] = []
    for index, (data, array) in enumerate(zip(copy.inputs, arrays)):
        desc = data.output_descs[0]
        shape = desc.shape if desc.rank == array.ndim else (-1,) * array.ndim
        data.output_descs[0] = desc.with_shape(shape)
        rules.append(InputRule(desc.dtype, _format(data), tuple(dim if dim >= 0 else None for dim in shape)))
        for axis, dim in enumerate(shape):
            if dim < 0:
                name = f"s{len(symbols)}"
                symbols[name] = {"source": "shape", "input": index, "dim": axis}
                checks.append(["ne" if array.shape[axis] else "eq", name, 0])
    return copy, Guard(tuple(rules), symbols, tuple(checks))


def _format(data: OpDesc) -> str:
    return data.output_descs[0].logical().format.name


@dataclass(slots=True)
class _Attempt:
    """The graph with the values of some inputs put in: what is known, which conditions are and are not decided."""

    graph: Graph
    known: frozenset[str]
    decided: frozenset[str]
    undecided: frozenset[str]
    values: tuple[int, ...]

    def says_more_than(self, other: _Attempt) -> bool:
        return bool(self.known - other.known or self.decided - other.decided)

    def result(self) -> Specialised:
        return Specialised(self.graph, self.known, self.values)


def _attempt(graph: Graph, arrays: Sequence[Array], values: tuple[int, ...]) -> _Attempt:
    copy = graph.copy()
    for index, (data, array) in enumerate(zip(copy.inputs, arrays)):
        data.output_descs[0] = data.output_descs[0].with_shape(tuple(array.shape))
        if index in values:
            _put_in(copy, data, array)
    refuse_unsupported(copy)
    places: dict[str, list[Port]] = {}  # where the outputs of choices are that were decided
    for _ in range(MAX_ROUNDS):
        infer_graph(copy, Counter(), folding=True)
        choice = next((node for node in copy.nodes_of(*sorted(CHOICE_TYPES)) if _branch_of(node) is not None), None)
        if choice is None:
            break
        branch = _branch_of(choice)
        assert branch is not None
        found = inline_branch(copy, choice, branch)
        for ports in places.values():
            ports[:] = [found[port.index] if port.node is choice else port for port in ports]
        places[choice.name] = found
    known = frozenset(node.name for node in graph.nodes() if _is_known(copy, node, places))
    undecided = frozenset(node.name for node in copy.nodes_of(*sorted(CHOICE_TYPES)))
    return _Attempt(copy, known, frozenset(places), undecided, values)


def _put_in(graph: Graph, data: OpDesc, array: Array) -> None:
    """The users of an input read its value as a constant; the input itself stays."""
    desc = data.output_descs[0]
    weight = Weight.of(array, desc)
    const = graph.create("Const", f"{data.name}_value", near=data, output_descs=[desc], attrs={VALUE: weight})
    graph.move_users(data.out(), const.out())


def _branch_of(node: OpDesc) -> int | None:
    """Which branch a choice takes, when its condition is a constant of one element."""
    port = node.inputs[0] if node.inputs else None
    if port is None or port.node.type not in CONST_TYPES or VALUE not in port.node.attrs:
        return None
    weight = port.node.attrs[VALUE]
    if port.desc.elements != 1 or weight.desc.dtype.numpy.hasobject:
        return None
    value = weight.numpy().reshape(-1)[0]
    if node.type in IF_TYPES:
        return 0 if bool(value) else 1
    index, count = int(value), len(node.subgraphs)
    return index if 0 <= index < count else count - 1


def _is_known(copy: Graph, node: OpDesc, places: Mapping[str, Sequence[Port]]) -> bool:
    ports = places.get(node.name)
    if ports is not None:
        return all(port.desc.is_static for port in ports)
    twin = copy.get(node.name)
    # A node that was folded is a constant of its name; one that nothing needs any more is gone.
    return twin is None or twin.type in CONST_TYPES or all(desc.is_static for desc in twin.output_descs)


def _candidates(graph: Graph, arrays: Sequence[Array]) -> Iterable[int]:
    """The inputs whose values may decide a shape or a branch: small integers, and truth values that choose."""
    for index, (data, array) in enumerate(zip(graph.inputs, arrays)):
        dtype = data.output_descs[0].dtype
        chosen_by = dtype is DataType.BOOL and array.size == 1 and chooses(graph, data)
        if chosen_by or (dtype in VALUE_TYPES and array.size <= MAX_VALUES):
            yield index


def chooses(graph: Graph, data: OpDesc) -> bool:
    """Whether an input is the condition of a choice, directly or through one Cast or SqueezeV2."""
    for use in graph.consumers(data.out()):
        if use.node.type in CHOICE_TYPES and use.slot == 0:
            return True
        if use.node.type in PLAIN_BEFORE_CHOICE:
            behind = graph.consumers(use.node.out())
            if any(each.node.type in CHOICE_TYPES and each.slot == 0 for each in behind):
                return True
    return False
