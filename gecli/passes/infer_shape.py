"""Infer dtypes and shapes in graph order, folding constants on the way (GE: InferShapePass, ConstantFoldingPass).

Folding happens inside the walk, because the values it finds (a Shape, then a Gather, then a Concat) decide the shapes
of nodes behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gecli.engine.kernel_table import is_agnostic
from gecli.errors import CompileError, Diagnostic, GecliError
from gecli.ir.attributes import CONST_TYPES, VALUE
from gecli.ir.calls import LOOP_TYPES, argument_slot
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import NO_ATTRS, UNKNOWN_RANK, TensorDesc
from gecli.ir.weight import Weight
from gecli.layout.platform import DEFAULT_SOC, Platform, platform_of
from gecli.layout.transfer_error import TransferError
from gecli.ops.control import merged
from gecli.ops.evaluate import unsupported
from gecli.ops.inference import RULE_FAULTS, InferenceError, check_inputs, check_rank
from gecli.ops.inference_memo import InferenceMemo, memo_key
from gecli.ops.operator import OperatorType, instance
from gecli.ops.raw_types import raw_fault
from gecli.ops.registry import find, operator_of
from gecli.ops.stored_outputs import (
    BORDERS,
    TRANS_DATA,
    Contradiction,
    ContradictionError,
    check_given,
    converted,
    knows_origin,
    logical_inputs,
    names_origins,
    stored,
)
from gecli.passes.base import Pass, PassContext, Stage
from gecli.passes.constant_folding import SMALL_BYTES, fold
from gecli.passes.facts import Fact

# Their descriptors are given, not inferred.
_GIVEN = CONST_TYPES | {"Data", "RefData", "Variable", "VariableV2", "FileConstant", "ConstPlaceHolder", "NetOutput"}
# Loops in loops deeper than these have values of unknown rank: each level is walked twice at least.
_TRIED_LOOPS = 4


class InferShape(Pass):
    """Give every node its output descriptors; a node that refuses its inputs stops the compile."""

    name = "InferShapePass"
    stage = Stage.PREPARE
    ensures = (Fact.SHAPES_INFERRED, Fact.ACYCLIC)
    correctness = True

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        refuse_unsupported(graph)
        counts = Counter[str]()
        infer_graph(graph, counts, folding=ctx.settings.constant_folding, platform=ctx.platform)
        for sub in graph.all_graphs():
            if sub is not graph:  # its nodes that refuse their inputs have unknown shapes, not other types
                for node in sub.nodes():
                    _require_computable(node)
        return counts


def refuse_unsupported(graph: Graph) -> None:
    """Raises GecliError with every unsupported operator type of the graph at once."""
    each = unsupported(graph)
    if not each:
        return
    summary = Diagnostic(
        "G1005",
        f"{len(each)} operator type{'s' if len(each) > 1 else ''} of this model {'are' if len(each) > 1 else 'is'}"
        " not supported",
        where=f"graph {graph.name}",
        kind="RT_OP_UNSUPPORTED",
    )
    raise GecliError.of([summary, *each])


def infer_graph(graph: Graph, counts: Counter[str], *, folding: bool, platform: Platform | None = None) -> None:
    """Infer a graph; subgraphs are inferred from the node that calls them, when its inputs are known.

    A node of a subgraph that refuses its inputs gets unknown shapes: a branch that is never taken may not fit them.
    `platform` says the C0 of conversions that declare no outputs.
    """
    _Walk(counts, folding, platform or platform_of(DEFAULT_SOC), names_origins(graph)).graph(graph)


class _Walk:
    """One walk over a graph and its subgraphs; nodes that are alike are inferred once."""

    def __init__(
        self, counts: Counter[str], folding: bool, platform: Platform, with_origins: bool, loops: int = 0
    ) -> None:
        self.counts = counts
        self.folding = folding
        self.platform = platform
        self.with_origins = with_origins  # conversions give their blocked outputs an origin form
        self.loops = loops  # how many loops the walk is in
        self.memo = InferenceMemo()
        self.constants: dict[tuple[OpDesc, int], _ConstantDesc] = {}

    def graph(self, graph: Graph) -> None:
        inner = graph.parent is not None
        folding = self.folding
        nodes = graph.nodes()
        folded = 0
        for node in nodes:
            if node.type in LOOP_TYPES:
                self.enter_loop(graph, node)
            else:
                for name in node.subgraphs:
                    self.enter(graph, node, name, [None if port is None else port.desc for port in node.inputs])
            try:
                self.node(node)
            except CompileError:
                if not inner:
                    raise
                _forget_shapes(node)
            if folding and fold(graph, node):
                folded += 1
        self.counts["nodes_inferred"] += len(nodes)
        if folded:
            self.counts["nodes_folded"] += folded

    def enter(self, graph: Graph, node: OpDesc, name: str, descs: Sequence[TensorDesc | None]) -> None:
        """Give a subgraph's Data nodes the descs that the calling node passes in, then infer it."""
        sub = graph.subgraphs[name]
        for data in sub.inputs:
            slot = argument_slot(data, node)
            desc = descs[slot] if slot < len(descs) else None
            if desc is not None:
                data.output_descs[0] = replace(desc, attrs=NO_ATTRS) if desc.attrs else desc
        self.graph(sub)

    def enter_loop(self, graph: Graph, node: OpDesc) -> None:
        """Infer the graphs of a loop for the values of every iteration: dims that the body changes are unknown.

        They are found on trial, with nothing folded; what was inferred from narrower descs is forgotten.
        """
        body = graph.subgraphs[node.subgraphs[-1]]
        descs = [None if port is None else port.desc for port in node.inputs]
        self.loops += 1
        if self.loops > _TRIED_LOOPS:
            descs = [None if desc is None else TensorDesc(desc.dtype, UNKNOWN_RANK, desc.format) for desc in descs]
        else:
            trial = _Walk(Counter(), False, self.platform, self.with_origins, self.loops)
            before = _descs_of(body)
            while True:
                trial.enter(graph, node, body.name, descs)
                wider = [_widened(desc, port.desc) for desc, port in zip(descs, body.outputs)]
                _restore(before)
                if wider == descs[: len(wider)]:
                    break
                descs[: len(wider)] = wider
        for name in node.subgraphs:
            self.enter(graph, node, name, descs)
        self.loops -= 1

    def node(self, node: OpDesc) -> None:
        """Set the node's input descs from its producers and its output descs by its operator's rule.

        Raises CompileError G2001 that names the node and its inputs.
        """
        for slot, port in enumerate(node.inputs):
            if port is not None:
                desc = port[0].output_descs[port[1]]
                node.input_descs[slot] = replace(desc, attrs=NO_ATTRS) if desc.attrs else desc
        if node.type in _GIVEN:
            _check_given(node)
            return
        kind = find(node.type)
        assert kind is not None, node.type
        descs = [self.known(node, slot, kind) for slot in range(len(node.inputs))]
        while descs and descs[-1] is None:
            descs.pop()
        key = memo_key(kind, node, descs)
        results = self.memo.get(key)
        if results is None:
            found = _inferred(node, kind, descs)
            if node.type in TRANS_DATA and descs[0] is not None:
                found = (self.converted(node, descs[0], found[0]),)
            results = self.memo.keep(key, node, descs, found)
        have = len(node.output_descs)
        node.output_descs[:] = results[:have]
        for desc in results[have:]:
            node.add_output(desc)
        _require_computable(node)

    def converted(self, node: OpDesc, source: TensorDesc, target: TensorDesc) -> TensorDesc:
        """What comes out of a TransData. Raises CompileError."""
        try:
            return converted(source, target, self.platform, complete=self.with_origins)
        except ContradictionError as err:
            raise _contradiction(node, 0, err.found) from err
        except TransferError as err:
            raise _refused(node, err) from err

    def known(self, node: OpDesc, slot: int, kind: OperatorType) -> TensorDesc | None:
        """The desc of an input, with its value when it is a constant that is small or decides shapes."""
        port, desc = node.inputs[slot], node.input_descs[slot]
        if port is None or desc is None:
            return None
        source = port[0]
        if source.type not in CONST_TYPES or VALUE not in source.attrs:
            return desc
        weight = source.attrs[VALUE]
        if weight.nbytes > SMALL_BYTES and slot not in kind.shape_inputs:
            return desc
        key = (source, id(desc))
        found = self.constants.get(key)
        if found is None:
            found = self.constants[key] = _ConstantDesc.made(desc, weight)
        return found


def _widened(initial: TensorDesc | None, returned: TensorDesc) -> TensorDesc | None:
    """What is known of a loop's value that begins as `initial` and that the body returns as `returned`."""
    if initial is None or initial.dtype != returned.dtype or initial.shape == returned.shape:
        return initial
    return merged(initial, returned)


def _descs_of(graph: Graph) -> list[tuple[OpDesc, list[TensorDesc | None], list[TensorDesc]]]:
    """The descs of all nodes of a graph and of what it calls, to be put back."""
    found = [(node, list(node.input_descs), list(node.output_descs)) for node in graph.nodes()]
    for node in graph.nodes():
        for name in node.subgraphs:
            found += _descs_of(graph.subgraphs[name])
    return found


def _restore(before: list[tuple[OpDesc, list[TensorDesc | None], list[TensorDesc]]]) -> None:
    for node, inputs, outputs in before:
        node.input_descs[:] = inputs
        node.output_descs[:] = outputs


class _ConstantDesc(TensorDesc):
    """The descriptor of a constant input; its value is read when a rule asks for it."""

    __slots__ = ("_array", "plain", "weight")
    plain: TensorDesc  # kept alive: it is known by its identity
    weight: Weight
    _array: Any

    @staticmethod
    def made(desc: TensorDesc, weight: Weight) -> _ConstantDesc:
        known = _ConstantDesc(
            desc.dtype, desc.shape, desc.format, desc.origin_shape, desc.origin_format, desc.origin_dtype
        )
        object.__setattr__(known, "plain", desc)
        object.__setattr__(known, "weight", weight)
        object.__setattr__(known, "_array", None)
        return known

    @property
    def value(self) -> Any:
        if self._array is None:
            object.__setattr__(self, "_array", self.weight.numpy())
        return self._array


def _inferred(node: OpDesc, kind: OperatorType, descs: list[TensorDesc | None]) -> tuple[TensorDesc, ...]:
    """What the output descs of a node become. Raises CompileError."""
    op = instance(kind, node)
    try:
        if not node.subgraphs:
            check_inputs(kind.inputs, descs)
            _check_axis_order(node, descs)
        inferred = _from_subgraphs(node, op) if node.subgraphs else op.infer(*logical_inputs(node, descs))
        results = inferred if isinstance(inferred, (tuple, list)) else (inferred,)
        check_rank(results)
    except RULE_FAULTS as err:
        raise _refused(node, err) from err
    merged = list(node.output_descs)
    for index, desc in enumerate(results):
        if index < len(node.output_descs):
            merged[index] = _merged(node, index, merged[index], desc, descs)
        elif index < len(kind.outputs) or not merged or kind.outputs[-1].variadic:
            merged.append(stored(TensorDesc(desc.dtype, UNKNOWN_RANK), desc, descs))
    return tuple(merged)


def _check_axis_order(node: OpDesc, descs: Sequence[TensorDesc | None]) -> None:
    """Blocked inputs of an elementwise operator lie alike whatever their origin: only that says whether axes agree."""
    orders = {desc.logical_format.primary for desc in descs if desc is not None and knows_origin(desc)} - {Format.ND}
    if len(orders) > 1 and is_agnostic(node.type):
        names = " and ".join(sorted(each.name for each in orders))
        raise InferenceError(f"the inputs have the axes of {names}", "convert one of them with TransData")


def _from_subgraphs(node: OpDesc, op: Any) -> Any:
    """The outputs of If, Case and While follow from those of their subgraphs."""
    if not hasattr(op, "infer_from"):
        return tuple(node.output_descs)
    subgraphs = [node.graph.subgraphs[name] for name in node.subgraphs]
    inferred = op.infer_from([[port.desc for port in sub.outputs] for sub in subgraphs])
    # A branch that is never taken may end in unknown shapes; what the front end knew still holds.
    return tuple(
        have if have.shape != UNKNOWN_RANK and new.shape == UNKNOWN_RANK else new
        for have, new in zip(node.output_descs or inferred, inferred)
    )


def _forget_shapes(node: OpDesc) -> None:
    op = operator_of(node)
    assert op is not None
    dtype = next((desc.dtype for desc in node.input_descs if desc is not None), DataType.FLOAT)
    for index, desc in enumerate(node.output_descs):
        node.output_descs[index] = replace(desc, shape=UNKNOWN_RANK)
    while len(node.output_descs) < len(op.type.outputs):
        node.add_output(TensorDesc(dtype, UNKNOWN_RANK))


def _merged(
    node: OpDesc, index: int, declared: TensorDesc, inferred: TensorDesc, inputs: Sequence[TensorDesc | None]
) -> TensorDesc:
    """What was declared (by a JSON graph) and what was inferred, as one desc; they must not contradict."""
    if inferred is declared:
        return declared
    if node.type not in BORDERS and not node.subgraphs:
        try:
            inferred = stored(declared, inferred, inputs)
        except ContradictionError as err:
            raise _contradiction(node, index, err.found) from err
    shape = inferred.shape
    if shape == UNKNOWN_RANK:
        shape = declared.shape
    elif declared.shape not in ((), UNKNOWN_RANK) and len(declared.shape) == len(shape):
        both = list(zip(declared.shape, shape))
        if any(a >= 0 and b >= 0 and a != b for a, b in both):
            found = Contradiction(f"declared {declared}, inferred {inferred}", inferred.shape, declared.shape)
            raise _contradiction(node, index, found)
        shape = tuple(a if b < 0 else b for a, b in both)
    fmt = declared.format if int(inferred.format) == 2 and len(declared.shape) == len(shape) else inferred.format
    merged = TensorDesc(
        inferred.dtype,
        shape,
        fmt,
        inferred.origin_shape,
        inferred.origin_format,
        inferred.origin_dtype,
        inferred.shape_range,
        declared.name,
        inferred.size_bytes,
        declared.attrs,
    )
    return declared if merged == declared and merged.size_bytes == declared.size_bytes else merged


def _contradiction(node: OpDesc, index: int, found: Contradiction) -> CompileError:
    return CompileError(
        "G2001",
        f"output {index} of node {node.name!r} is declared with another shape than its inputs give",
        where=f"node {node.name} ({node.type})",
        why=found.what,
        node=node.name,
        expected=list(found.expected),
        actual=list(found.actual),
    )


def _require_computable(node: OpDesc) -> None:
    """Raises CompileError G2001 for a node that would compute with elements which only their bits stand for."""
    if reason := raw_fault(node):
        inputs = ", ".join("-" if desc is None else str(desc) for desc in node.input_descs)
        raise CompileError(
            "G2001",
            f"{node.type} node {node.name!r} cannot compute with its types",
            where=f"node {node.name} ({node.type})",
            why=f"{reason}; inputs: {inputs or 'none'}",
            do="put a Cast to DT_FLOAT before it, and a Cast back behind it",
            node=node.name,
        )


def _check_given(node: OpDesc) -> None:
    """A declared blocked tensor must be the storage of its origin form. Raises CompileError."""
    for index, desc in enumerate(node.output_descs):
        try:
            check_given(desc)
        except ContradictionError as err:
            raise _contradiction(node, index, err.found) from err
        except InferenceError as err:
            raise _refused(node, err) from err


def _refused(node: OpDesc, err: Exception) -> CompileError:
    inputs = ", ".join("-" if desc is None else str(desc) for desc in node.input_descs)
    return CompileError(
        "G2001",
        f"the shape of node {node.name!r} cannot be inferred",
        where=f"node {node.name} ({node.type})",
        why=f"{err}; inputs: {inputs or 'none'}",
        do=getattr(err, "do", "") or "check the model's inputs with --input-shape",
        node=node.name,
    )
