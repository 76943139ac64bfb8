"""Infer dtypes and shapes in graph order, folding constants on the way (GE: InferShapePass, ConstantFoldingPass).

Folding happens inside the walk, because the values it finds (a Shape, then a Gather, then a Concat) decide the shapes
of nodes behind it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from gecli.errors import CompileError, Diagnostic, GecliError
from gecli.ir.attributes import CONST_TYPES, VALUE
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import NO_ATTRS, UNKNOWN_RANK, TensorDesc
from gecli.ops.evaluate import unsupported
from gecli.ops.inference import RULE_FAULTS, check_inputs, check_rank
from gecli.ops.operator import KnownDesc, OperatorType
from gecli.ops.registry import operator_of
from gecli.passes.base import Pass, PassContext, Stage
from gecli.passes.constant_folding import SMALL_BYTES, fold
from gecli.passes.facts import Fact

# Their descriptors are given, not inferred.
_GIVEN = CONST_TYPES | {"Data", "RefData", "Variable", "VariableV2", "FileConstant", "ConstPlaceHolder", "NetOutput"}


class InferShape(Pass):
    """Give every node its output descriptors; a node that refuses its inputs stops the compile."""

    name = "InferShapePass"
    stage = Stage.PREPARE
    ensures = (Fact.SHAPES_INFERRED, Fact.ACYCLIC)
    correctness = True

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        refuse_unsupported(graph)
        counts = Counter[str]()
        infer_graph(graph, counts, folding=ctx.settings.constant_folding)
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


def infer_graph(graph: Graph, counts: Counter[str], *, folding: bool) -> None:
    """Infer a graph; subgraphs are inferred from the node that calls them, when its inputs are known.

    A node of a subgraph that refuses its inputs gets unknown shapes: a branch that is never taken may not fit them.
    """
    inner = graph.parent is not None
    for node in graph.nodes():
        for name in node.subgraphs:
            _enter_subgraph(graph, node, name, counts, folding)
        try:
            infer_node(node)
        except CompileError:
            if not inner:
                raise
            _forget_shapes(node)
        counts["nodes_inferred"] += 1
        if folding and fold(graph, node):
            counts["nodes_folded"] += 1


def infer_node(node: OpDesc) -> None:
    """Set the node's input descs from its producers and its output descs by its operator's rule.

    Raises CompileError G2001 that names the node and its inputs.
    """
    for slot, port in enumerate(node.inputs):
        if port is not None:
            desc = port.desc
            node.input_descs[slot] = replace(desc, attrs=NO_ATTRS) if desc.attrs else desc
    if node.type in _GIVEN:
        return
    op = operator_of(node)
    assert op is not None, node.type
    kind: OperatorType = op.type
    descs = [_known(node, slot, kind) for slot in range(len(node.inputs))]
    while descs and descs[-1] is None:
        descs.pop()
    try:
        if not node.subgraphs:
            check_inputs(kind.inputs, descs)
        inferred = _from_subgraphs(node, op) if node.subgraphs else op.infer(*descs)
        results = inferred if isinstance(inferred, (tuple, list)) else (inferred,)
        check_rank(results)
    except RULE_FAULTS as err:
        raise _refused(node, err) from err
    for index, desc in enumerate(results):
        if index < len(node.output_descs):
            node.output_descs[index] = _merged(node, index, node.output_descs[index], desc)
        elif index < len(kind.outputs) or not node.output_descs or kind.outputs[-1].variadic:
            node.add_output(desc)


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


def _known(node: OpDesc, slot: int, kind: OperatorType) -> TensorDesc | None:
    """The desc of an input, with its value when it is a constant that is small or decides shapes."""
    port, desc = node.inputs[slot], node.input_descs[slot]
    if port is None or desc is None:
        return None
    if port.node.type not in CONST_TYPES or VALUE not in port.node.attrs:
        return desc
    weight = port.node.attrs[VALUE]
    if weight.nbytes > SMALL_BYTES and slot not in kind.shape_inputs:
        return desc
    return KnownDesc.of(desc, weight.numpy())


def _merged(node: OpDesc, index: int, declared: TensorDesc, inferred: TensorDesc) -> TensorDesc:
    """What was declared (by a JSON graph) and what was inferred, as one desc; they must not contradict."""
    shape = inferred.shape
    if shape == UNKNOWN_RANK:
        shape = declared.shape
    elif declared.shape not in ((), UNKNOWN_RANK) and len(declared.shape) == len(shape):
        both = list(zip(declared.shape, shape))
        if any(a >= 0 and b >= 0 and a != b for a, b in both):
            raise _contradiction(node, index, declared, inferred)
        shape = tuple(a if b < 0 else b for a, b in both)
    fmt = declared.format if int(inferred.format) == 2 and len(declared.shape) == len(shape) else inferred.format
    return replace(inferred, shape=shape, format=fmt, name=declared.name, attrs=declared.attrs)


def _contradiction(node: OpDesc, index: int, declared: TensorDesc, inferred: TensorDesc) -> CompileError:
    return CompileError(
        "G2001",
        f"output {index} of node {node.name!r} is declared with another shape than its inputs give",
        where=f"node {node.name} ({node.type})",
        why=f"declared {declared}, inferred {inferred}",
        node=node.name,
        expected=list(inferred.shape),
        actual=list(declared.shape),
    )


def _refused(node: OpDesc, err: Exception) -> CompileError:
    inputs = ", ".join("-" if desc is None else str(desc) for desc in node.input_descs)
    return CompileError(
        "G2001",
        f"the shape of node {node.name!r} cannot be inferred",
        where=f"node {node.name} ({node.type})",
        why=f"{err}; inputs: {inputs or 'none'}",
        do="check the model's inputs with --input-shape",
        node=node.name,
    )


def _enter_subgraph(graph: Graph, node: OpDesc, name: str, counts: Counter[str], folding: bool) -> None:
    """Give a subgraph's Data nodes the descs of the calling node's inputs, then infer it."""
    sub = graph.subgraphs[name]
    shift = 1 if node.type in ("If", "StatelessIf", "_If", "Case", "StatelessCase") else 0
    for data in sub.inputs:
        slot = data.attrs.get("_parent_node_index", data.attrs.get("index", 0) + shift)
        port = node.inputs[slot] if slot < len(node.inputs) else None
        if port is not None:
            desc = port.desc
            data.output_descs[0] = replace(desc, attrs=NO_ATTRS) if desc.attrs else desc
    infer_graph(sub, counts, folding=folding)
