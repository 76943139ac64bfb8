"""ONNX loops as GE's While: what is carried from iteration to iteration, and what every iteration gives.

The While node carries, in this order: the number of the iteration (INT64), the importer's own values, the outer
tensors that the body reads, and for each collected tensor what the iterations gave so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.loading.onnx_nodes import Message
from gecli.ops.control import merged
from gecli.ops.onnx_import import Builder, LoopSteps, OnnxNode

if TYPE_CHECKING:
    from gecli.loading.onnx_builder import GraphBuilder

# Loops in loops deeper than these carry tensors of unknown rank: each level is built twice at least.
TRIED_LOOPS = 4
_ROWS = 0  # the axis along which what the iterations give is stacked


class _Body(NamedTuple):
    """The body for given descs of the carried values."""

    graph: Graph
    returned: list[TensorDesc]  # what is known of the carried values in every iteration
    collected: list[TensorDesc]  # of the tensors that every iteration gives


def build_loop(
    builder: GraphBuilder, node: OnnxNode, attribute: str, initial: Sequence[Port], steps: LoopSteps
) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """A While whose body is the graph in `attribute`. Returns the last values and the collected tensors, stacked.

    Raises InputError for a body that does not fit.
    """
    body_graph = builder.graph_attribute(node, attribute)
    constants, outer = builder.captures([body_graph], node, attribute)
    loop = _Loop(builder, node, body_graph, steps, constants, tuple(outer), len(initial))
    carried = [builder.const(np.zeros((), np.int64), "count"), *initial, *outer.values()]
    descs = [port.desc for port in carried]
    body = loop.settled(descs)
    starts = [port for desc in body.collected for port in _starts(builder, node, desc)]
    condition = loop.condition([*body.returned, *(port.desc for port in starts)])
    builder.add_called("cond", condition)
    builder.add_called("body", body.graph)
    ends = builder.ops(
        "While", len(carried) + len(starts), *carried, *starts, cond=condition.name, body=body.graph.name
    )
    rest = list(ends[len(carried) :])
    stacked = []
    for desc in body.collected:
        count = len(_state_descs(desc))
        stacked.append(_stacked(builder, ends[0], rest[:count]))
        del rest[:count]
    return tuple(ends[1 : 1 + len(initial)]), tuple(stacked)


class _Loop:
    """The two graphs of a While, for descs of what it carries."""

    def __init__(
        self,
        builder: GraphBuilder,
        node: OnnxNode,
        graph: Message,
        steps: LoopSteps,
        constants: Sequence[str],
        outer: Sequence[str],
        own: int,
    ) -> None:
        self.builder = builder
        self.node = node
        self.graph = graph
        self.steps = steps
        self.constants = constants
        self.outer = outer
        self.own = own  # how many values are the importer's

    def settled(self, descs: Sequence[TensorDesc]) -> _Body:
        """The body for values of every iteration: dims that it changes are unknown in it."""
        model = self.builder.model
        model.loops += 1
        try:
            if model.loops > TRIED_LOOPS:
                descs = [descs[0], *(TensorDesc(desc.dtype, UNKNOWN_RANK) for desc in descs[1:])]
            while True:
                called, warnings, expanded = set(self.builder.graph.root.subgraphs), len(model.warnings), model.expanded
                body = self.body(descs)
                if body.returned == list(descs):
                    return body
                descs = body.returned
                del model.warnings[warnings:]
                model.expanded = expanded
                for name in self.builder.graph.root.subgraphs.keys() - called:  # those of loops in the body
                    del self.builder.graph.root.subgraphs[name]
        finally:
            model.loops -= 1

    def body(self, descs: Sequence[TensorDesc]) -> _Body:
        inner, ports = self._begun("body", descs)
        own = ports[1 : 1 + self.own]
        with inner.expanding(self.node, keep_name=False):
            arguments = self.steps.begin(inner, ports[0], own)
        for value, port in zip(self.graph.input, arguments, strict=True):
            inner.scope[value.name] = port
        inner.add_body(self.graph, self.node)
        results = inner.made(self.graph)
        with inner.expanding(self.node, keep_name=False):
            following, collected = self.steps.end(inner, own, results)
            one = inner.const(np.ones((), np.int64), "one")
            after = [inner.op("Add", ports[0], one), *following, *ports[1 + self.own :]]
            known = [port.desc for port in collected]
            for port in collected:
                after += _appended(inner, port, len(after))
        inner.graph.set_outputs(after)
        returned = [_in_every_iteration(desc, port.desc) for desc, port in zip(descs, after)]
        return _Body(inner.graph, returned, known)

    def condition(self, descs: Sequence[TensorDesc]) -> Graph:
        inner, ports = self._begun("cond", descs)
        with inner.expanding(self.node, keep_name=False):
            going = self.steps.goes_on(inner, ports[0], ports[1 : 1 + self.own])
        inner.graph.set_outputs([going])
        return inner.graph

    def _begun(self, role: str, descs: Sequence[TensorDesc]) -> tuple[GraphBuilder, list[Port]]:
        """A graph with a Data node for each carried value; the outer tensors are known in it by their names."""
        inner = self.builder.inner(f"{self.node.name}_{role}")
        ports = [inner.add_argument(f"carried_{index}", desc, index) for index, desc in enumerate(descs)]
        inner.scope.update(zip(self.outer, ports[1 + self.own :]))
        if role == "body":
            inner.copy_constants(self.builder, self.constants)
        return inner, ports


def _in_every_iteration(before: TensorDesc, after: TensorDesc) -> TensorDesc:
    """What is known of a value that begins as `before` and that the body gives back as `after`."""
    if before.shape == after.shape or after.dtype != before.dtype:
        return before
    return merged(before, after)


# ---------------------------------------------------------------- what every iteration gives


def _state_descs(desc: TensorDesc) -> list[TensorDesc]:
    """How tensors like this are kept: as rows of one tensor, or, of unknown dims, as elements and the last dims."""
    if desc.is_static:
        return [TensorDesc(desc.dtype, (UNKNOWN_DIM, *desc.shape))]
    rank = UNKNOWN_DIM if desc.rank is None else desc.rank
    return [TensorDesc(desc.dtype, (UNKNOWN_DIM,)), TensorDesc(DataType.INT64, (rank,))]


def _starts(build: Builder, node: OnnxNode, desc: TensorDesc) -> list[Port]:
    """What is kept before the first iteration."""
    if desc.dtype is DataType.UNDEFINED:
        raise node.fault("the data type of an output that every iteration gives is not known")
    if desc.is_static:
        return [build.const(np.zeros((0, *desc.shape), desc.dtype.numpy), "rows")]
    dims = () if desc.rank is None else tuple(max(dim, 0) for dim in desc.shape)
    elements = build.const(np.zeros(0, desc.dtype.numpy), "elements")
    return [elements, build.const(np.array(dims, np.int64), "dims")]


def _appended(inner: GraphBuilder, port: Port, position: int) -> list[Port]:
    """What is kept after an iteration that gives `port`."""
    kept = [
        inner.add_argument(f"carried_{position + index}", desc, position + index)
        for index, desc in enumerate(_state_descs(port.desc))
    ]
    first = inner.const(np.array(_ROWS, np.int32), "axis")
    if port.desc.is_static:
        return [inner.op("ConcatV2", kept[0], inner.op("UnsqueezeV2", port, axis=(_ROWS,)), first, N=2)]
    flat = inner.op("Reshape", port, inner.const(np.array([-1], np.int64), "shape"))
    return [inner.op("ConcatV2", kept[0], flat, first, N=2), inner.op("Shape", port, dtype=DataType.INT64.value)]


def _stacked(build: Builder, count: Port, kept: Sequence[Port]) -> Port:
    """What all iterations gave, along a new first axis."""
    if len(kept) == 1:
        return kept[0]
    elements, dims = kept
    rows = build.op("UnsqueezeV2", count, axis=(0,))
    shape = build.op("ConcatV2", rows, dims, build.const(np.array(0, np.int32), "axis"), N=2)
    return build.op("Reshape", elements, shape, allowzero=1)
