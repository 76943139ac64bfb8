"""The graph of a slice for the inputs of one run: their shapes, the small values that decide shapes, taken branches.

Its nodes are inferred and folded, so it says which shapes follow from the inputs alone (cache.md 9.6, Symbols).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from gecli.ir.attributes import CONST_TYPES, VALUE
from gecli.ir.calls import CHOICE_TYPES, IF_TYPES
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import UNKNOWN_DIM
from gecli.ir.weight import Weight
from gecli.jit.branches import inline_branch
from gecli.jit.expressions import VALUE_TYPES, Expression, Expressions, Symbols
from gecli.jit.guard import MAX_VALUES, Guard, InputRule
from gecli.passes.infer_shape import infer_graph, refuse_unsupported
from gecli.records import dataclass

Array = NDArray[Any]
MAX_ROUNDS = 1000  # of inlining; each takes a node away
PLAIN_BEFORE_CHOICE = frozenset(("Cast", "Size", "StringLength", "SqueezeV2", "Squeeze", "Reshape"))


@dataclass(frozen=True, slots=True)
class Specialised:
    """`graph` is made for the inputs; `known` are the outputs of the slice's nodes whose shapes follow from them.

    `values` are the inputs whose values were put in, `guard` says for which inputs the graph is right.
    """

    graph: Graph
    known: frozenset[tuple[str, int]]
    values: tuple[int, ...]
    guard: Guard


def specialised(
    graph: Graph,
    arrays: Sequence[Array],
    *,
    with_values: bool = True,
    free: Sequence[Collection[int]] = (),
    varied: Collection[int] = (),
) -> Specialised:
    """The graph for these inputs, which is left as it was. Raises CompileError for inputs that do not fit it.

    `free` are the axes of each input that get a symbol in place of their size, `varied` the inputs whose values are not
    put in unless they choose a branch.
    """
    given = _Given(arrays, tuple(free) or ((),) * len(arrays), with_values)
    plain = _attempt(graph, given, ())
    every = {(node.name, index) for node in graph.nodes() for index in range(len(node.output_descs))}
    if plain.known >= every and not plain.undecided:
        return plain.result(graph)
    candidates = tuple(_candidates(graph, given))
    best = _with_values(graph, given, plain, tuple(each for each in candidates if each not in varied))
    if varied and best.undecided:
        full = _with_values(graph, given, plain, candidates)
        best = full if full.decided - best.decided else best
    return best.result(graph)


def _with_values(graph: Graph, given: _Given, plain: _Attempt, candidates: tuple[int, ...]) -> _Attempt:
    """The attempt with the fewest of these inputs' values that says as much as the one with all."""
    if not candidates:
        return plain
    best = _attempt(graph, given, candidates)
    if not best.says_more_than(plain):
        return plain
    for candidate in candidates:
        fewer = tuple(each for each in best.values if each != candidate)
        attempt = _attempt(graph, given, fewer)
        if not best.says_more_than(attempt):
            best = attempt
    return best


def general(graph: Graph, arrays: Sequence[Array]) -> tuple[Graph, Guard]:
    """A copy that leaves every free dim free, and its guard: ranks, fixed dims, and which free dims are 0."""
    copy = graph.copy()
    rules = []
    symbols = Symbols()
    checks: list[Any] = []
    for index, (data, array) in enumerate(zip(copy.inputs, arrays)):
        desc = data.output_descs[0]
        if desc.rank is None:
            checks.append(("eq", symbols.of("rank", index), array.ndim))
        shape = desc.shape if desc.rank == array.ndim else (-1,) * array.ndim
        data.output_descs[0] = desc.with_shape(shape)
        rules.append(InputRule(desc.dtype, _format(data), tuple(dim if dim >= 0 else None for dim in shape)))
        for axis, dim in enumerate(shape):
            if dim < 0:
                word = "ne" if array.shape[axis] else "eq"
                checks.append((word, symbols.of("shape", index, dim=axis), 0))
    return copy, Guard(tuple(rules), symbols.sources, tuple(checks))


def _format(data: OpDesc) -> str:
    return data.output_descs[0].logical().format.name


@dataclass(frozen=True, slots=True)
class _Given:
    """The inputs of a run, and what of them may become part of a version."""

    arrays: Sequence[Array]
    free: tuple[Collection[int], ...]
    with_values: bool


@dataclass(slots=True)
class _Attempt:
    """The graph with the values of some inputs put in: what is known, which choices are and are not decided, and why.

    `checks` are those under which the sizes are not empty and the branches are those that were taken.
    """

    graph: Graph
    given: _Given
    known: frozenset[tuple[str, int]]
    decided: frozenset[str]
    undecided: frozenset[str]
    values: tuple[int, ...]
    symbols: Symbols
    checks: list[Expression]

    def says_more_than(self, other: _Attempt) -> bool:
        return bool(self.known - other.known or self.decided - other.decided)

    def result(self, original: Graph) -> Specialised:
        return Specialised(self.graph, self.known, self.values, self._guard(original))

    def _guard(self, original: Graph) -> Guard:
        given, symbols, checks = self.given, self.symbols, list(self.checks)
        rules = tuple(
            InputRule(
                data.output_descs[0].dtype,
                _format(data),
                tuple(None if axis in free else size for axis, size in enumerate(array.shape)),
            )
            for data, array, free in zip(original.inputs, given.arrays, given.free)
        )
        for index, data in enumerate(original.inputs):
            if data.output_descs[0].rank is None:
                checks.append(("eq", symbols.of("rank", index), given.arrays[index].ndim))
        for index in self.values:
            array = given.arrays[index]
            if array.dtype.kind == "b":
                word = "ne" if bool(array.reshape(-1)[0]) else "eq"
                checks.append((word, symbols.of("cond", index), 0))
                continue
            for elem, value in enumerate(array.reshape(-1).tolist()):
                checks.append(("eq", symbols.of("value", index, elem=elem), int(value)))
        return Guard(rules, symbols.sources, tuple(dict.fromkeys(checks)))


def _attempt(graph: Graph, given: _Given, values: tuple[int, ...]) -> _Attempt:
    copy = graph.copy()
    symbols = Symbols()
    checks: list[Expression] = []
    for index, (data, array) in enumerate(zip(copy.inputs, given.arrays)):
        free = given.free[index]
        shape = tuple(UNKNOWN_DIM if axis in free else size for axis, size in enumerate(array.shape))
        data.output_descs[0] = data.output_descs[0].with_shape(shape)
        checks += [("ne", symbols.of("shape", index, dim=axis), 0) for axis in sorted(free)]
        if index in values:
            _put_in(copy, data, array)
    refuse_unsupported(copy)
    expressions = Expressions(copy.inputs, given.arrays, symbols, with_values=given.with_values)
    places: dict[str, list[Port]] = {}  # where the outputs of choices are that were decided
    for _ in range(MAX_ROUNDS):
        infer_graph(copy, Counter(), folding=True)
        found = _decided(copy, expressions)
        if found is None:
            break
        choice, branch, why = found
        checks += why
        outputs = inline_branch(copy, choice, branch)
        for ports in places.values():
            ports[:] = [outputs[port.index] if port.node is choice else port for port in ports]
        places[choice.name] = outputs
    known = frozenset(port for node in graph.nodes() for port in _known(copy, node, places))
    undecided = frozenset(node.name for node in copy.nodes_of(*sorted(CHOICE_TYPES)))
    return _Attempt(copy, given, known, frozenset(places), undecided, values, symbols, checks)


def _decided(graph: Graph, expressions: Expressions) -> tuple[OpDesc, int, list[Expression]] | None:
    """A choice whose branch can be told, the branch, and the checks on which that rests."""
    choices = graph.nodes_of(*sorted(CHOICE_TYPES))
    for choice in choices:
        branch = _branch_of(choice)
        if branch is not None:
            return choice, branch, []
    for choice in choices:
        found = expressions.branch(choice)
        if found is not None:
            return choice, *found
    return None


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


def _known(copy: Graph, node: OpDesc, places: Mapping[str, Sequence[Port]]) -> Iterator[tuple[str, int]]:
    """The outputs of a node whose shapes are known."""
    ports, twin = places.get(node.name), copy.get(node.name)
    for index in range(len(node.output_descs)):
        # A node that was folded is a constant of its name; one that nothing needs any more is gone.
        if ports is not None:
            is_known = index >= len(ports) or ports[index].desc.is_static
        else:
            is_known = twin is None or twin.type in CONST_TYPES or twin.output_descs[index].is_static
        if is_known:
            yield node.name, index


def _candidates(graph: Graph, given: _Given) -> Iterable[int]:
    """The inputs whose values may decide a shape or a branch: small integers, and truth values that choose."""
    for index, (data, array) in enumerate(zip(graph.inputs, given.arrays)):
        if given.free[index] or not given.with_values:
            continue
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
