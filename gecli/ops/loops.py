"""ONNX Loop and Scan, which become While (training.md 12)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.op_desc import Port
from gecli.ops.onnx_import import Array, Builder, OnnxNode, importer

Ports = Sequence[Port]


def scalar(build: Builder, port: Port) -> Port:
    """One element of any rank as a scalar."""
    return port if build.rank(port) == 0 else build.op("SqueezeV2", port, axis=())


class _LoopSteps:
    """Iterations up to a number, as long as the body says so; the body's own values follow these two.

    A trip count that is no constant is carried; the condition of an iteration always is.
    """

    def __init__(self, node: OnnxNode, build: Builder) -> None:
        graph = node.attrs["body"]
        carried = len(node.inputs) - 2
        if len(graph.input) != carried + 2 or len(graph.output) <= carried:
            raise node.fault(
                f"its body has {len(graph.input)} inputs and {len(graph.output)} outputs"
                f" for {carried} values that it carries"
            )
        trips, condition = node.optional(0), node.optional(1)
        self.limit: Array | None = build.constant(trips)
        self.is_endless = trips is None
        self.ranks = [len(value.type.tensor_type.shape.dim) for value in graph.input[:2]]
        self.values: list[Port] = []
        first = build.const(np.array(True), "cond") if condition is None else scalar(build, condition)
        self.values.append(first)
        if trips is not None and self.limit is None:
            self.values.append(scalar(build, trips))
        self.heads = len(self.values)
        self.values += [node.input(2 + index) for index in range(carried)]

    def begin(self, build: Builder, count: Port, values: Ports) -> Ports:
        heads = [
            build.op("UnsqueezeV2", port, axis=(0,)) if rank == 1 else port
            for port, rank in zip((count, values[0]), self.ranks)
        ]
        return [*heads, *values[self.heads :]]

    def end(self, build: Builder, values: Ports, results: Ports) -> tuple[Ports, Ports]:
        carried = len(values) - self.heads
        following = [scalar(build, results[0]), *values[1 : self.heads], *results[1 : 1 + carried]]
        return following, results[1 + carried :]

    def goes_on(self, build: Builder, count: Port, values: Ports) -> Port:
        if self.is_endless:
            return values[0]
        limit = values[1] if self.limit is None else build.const(self.limit.reshape(()), "limit")
        return build.op("LogicalAnd", build.op("Less", count, limit), values[0])


@importer("Loop")
def loop(node: OnnxNode, build: Builder) -> None:
    steps = _LoopSteps(node, build)
    values, stacked = build.loop(node, "body", steps.values, steps)
    for index, port in enumerate((*values[steps.heads :], *stacked)):
        build.output(index, port)


class _ScanSteps:
    """An iteration for each slice of the scanned inputs; these are carried, behind the body's own values."""

    def __init__(self, node: OnnxNode, build: Builder) -> None:
        graph, scanned = node.attrs["body"], int(node.attr("num_scan_inputs"))
        self.states = len(node.inputs) - scanned
        if not 0 < scanned <= len(node.inputs) or len(graph.input) != len(node.inputs):
            raise node.fault(
                f"num_scan_inputs is {scanned}, of {len(node.inputs)} inputs and {len(graph.input)} of its body"
            )
        if not self.states <= len(graph.output):
            raise node.fault(f"its body has {len(graph.output)} outputs for {self.states} values that it carries")
        self.node = node
        self.axes = _per_tensor(node, "scan_input_axes", scanned)
        self.backward = _per_tensor(node, "scan_input_directions", scanned)
        self.values = [node.input(index) for index in range(len(node.inputs))]
        self.axes = [self._axis(build, port, axis) for port, axis in zip(self.values[self.states :], self.axes)]
        first = self.values[self.states]
        dims = () if build.rank(first) is None else first.desc.shape
        self.length: int | None = dims[self.axes[0]] if dims and dims[self.axes[0]] >= 0 else None
        if self.length is None:
            sizes = build.op("Shape", first, dtype=DataType.INT64.value)
            place = build.const(np.array(self.axes[0], np.int64), "place")
            self.values.append(build.op("GatherV2", sizes, place, build.const(np.array(0, np.int64), "axis")))

    def _axis(self, build: Builder, port: Port, axis: int) -> int:
        rank = build.rank(port)
        if rank is None and axis < 0:
            raise self.node.fault(f"axis {axis} of an input counts from its last, and its rank is not known")
        if rank is not None and not -rank <= axis < rank:
            raise self.node.fault(f"an input of {rank} dims has no axis {axis}")
        return axis if rank is None else axis % rank

    def begin(self, build: Builder, count: Port, values: Ports) -> Ports:
        slices = []
        for position, (axis, is_backward) in enumerate(zip(self.axes, self.backward)):
            place = count
            if is_backward:
                last = build.op("Sub", self._length(build, values), build.const(np.ones((), np.int64), "one"))
                place = build.op("Sub", last, count)
            whole = values[self.states + position]
            slices.append(build.op("GatherV2", whole, place, build.const(np.array(axis, np.int64), "axis")))
        return [*values[: self.states], *slices]

    def end(self, build: Builder, values: Ports, results: Ports) -> tuple[Ports, Ports]:
        return [*results[: self.states], *values[self.states :]], results[self.states :]

    def goes_on(self, build: Builder, count: Port, values: Ports) -> Port:
        return build.op("Less", count, self._length(build, values))

    def _length(self, build: Builder, values: Ports) -> Port:
        return values[-1] if self.length is None else build.const(np.array(self.length, np.int64), "length")


def _per_tensor(node: OnnxNode, name: str, count: int) -> list[int]:
    """An attribute with a number for each tensor; zeros where it is not given."""
    given = [int(each) for each in node.attr(name, ())] or [0] * count
    if len(given) != count:
        raise node.fault(f"attribute {name!r} has {len(given)} numbers for {count} tensors")
    return given


@importer("Scan", since=9)
def scan(node: OnnxNode, build: Builder) -> None:
    steps = _ScanSteps(node, build)
    values, stacked = build.loop(node, "body", steps.values, steps)
    for index, port in enumerate(values[: steps.states]):
        build.output(index, port)
    axes = _per_tensor(node, "scan_output_axes", len(stacked))
    backward = _per_tensor(node, "scan_output_directions", len(stacked))
    for index, (port, axis, is_backward) in enumerate(zip(stacked, axes, backward)):
        if is_backward:
            port = build.op("ReverseV2D", port, axis=(0,))
        build.output(steps.states + index, _moved(node, build, port, axis))


def _moved(node: OnnxNode, build: Builder, port: Port, axis: int) -> Port:
    """The first axis at the place of `axis`."""
    if axis == 0:
        return port
    rank = build.rank(port)
    if rank is None or not -rank <= axis < rank:
        raise node.fault(f"an output cannot be stacked along axis {axis}: its rank is {rank or 'not known'}")
    order = list(range(1, rank))
    order.insert(axis % rank, 0)
    return build.op("Transpose", port, build.const(np.array(order, np.int64), "perm"))
