"""Judging operators: import ONNX nodes through the registry, run the kernels, compare with onnxruntime.

    judge("Clip", [x, low, high], constant=(1, 2), opset=13)

runs the node as it is, with inputs as constants, with unknown dims and with unknown rank; every `bind` met on the way
must give what its `kernel` gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from gecli.errors import InputError
from gecli.ir.attributes import CONST_TYPES, DATA_TYPES, VALUE
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph, feed
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ir.weight import Weight
from gecli.ops.evaluate import evaluate_node
from gecli.ops.onnx_import import Importer, OnnxNode
from gecli.ops.operator import KnownDesc, instance
from gecli.ops.registry import find, find_onnx, operator_of

Array = NDArray[Any]
DEFAULT_OPSET = 17
FOLD_LIMIT = 4096  # elements; what the compiler folds too, so that shapes made of shapes are known
IR_VERSION = 10


class UnknownOperator(Exception):
    """find_onnx knows no such operator."""


class TestBuilder:
    """A `gecli.ops.onnx_import.Builder` that infers each node as soon as it is added."""

    __test__ = False

    def __init__(self, graph: Graph, prefix: str = "node") -> None:
        self.graph = graph
        self.prefix = prefix
        self.results: dict[int, Port] = {}
        self.known: dict[Port, Array] = {}

    def op(self, type: str, /, *inputs: Port | None, **attrs: Any) -> Port:
        return self.ops(type, 1, *inputs, **attrs)[0]

    def ops(self, type: str, outputs: int, /, *inputs: Port | None, **attrs: Any) -> tuple[Port, ...]:
        kind = find(type)
        assert kind is not None, f"the importer made a {type} node, which is not registered"
        undeclared = attrs.keys() - kind.attributes.keys()
        assert not undeclared, f"{type} has no attribute {sorted(undeclared)}"
        node = feed(self.graph, self.graph.create(type, f"{self.prefix}_{type}", attrs=attrs), *inputs)
        for desc in self._inferred(node):
            node.add_output(desc)
        assert len(node.output_descs) >= outputs, f"{type} has {len(node.output_descs)} outputs, {outputs} wanted"
        self._fold(node, kind.foldable)
        return tuple(node.out(index) for index in range(len(node.output_descs)))

    def const(self, value: Array, role: str) -> Port:
        value = np.asarray(value)
        weight = Weight.of(value)
        node = self.graph.create("Const", f"{self.prefix}_{role}", attrs={VALUE: weight}, output_descs=[weight.desc])
        self.known[node.out()] = value
        return node.out()

    def output(self, index: int, port: Port) -> None:
        self.results[index] = port

    def constant(self, port: Port | None) -> Array | None:
        return None if port is None else self.known.get(port)

    def desc(self, port: Port) -> TensorDesc | None:
        return port.desc

    def rank(self, port: Port) -> int | None:
        return port.desc.rank

    def subgraph(self, node: OnnxNode, attribute: str) -> tuple[str, tuple[Port, ...]]:
        raise UnknownOperator(f"{node.op}: subgraphs are the loader's")

    def _inferred(self, node: OpDesc) -> tuple[TensorDesc, ...]:
        kind = find(node.type)
        assert kind is not None
        descs = [
            None if port is None else KnownDesc.of(port.desc, self.known[port]) if port in self.known else port.desc
            for port in node.inputs
        ]
        while descs and descs[-1] is None:
            descs.pop()
        found = instance(kind, node).infer(*descs)
        return found if isinstance(found, tuple) else (found,)

    def _fold(self, node: OpDesc, foldable: bool) -> None:
        if node.type == "Shape" and node.inputs[0] is not None and node.inputs[0].desc.is_static:
            like = np.broadcast_to(np.zeros((), np.int8), node.inputs[0].desc.shape)
            self.known[node.out()] = evaluate_node(node, [like])[0]
            return
        if not foldable or not node.inputs or any(port is not None and port not in self.known for port in node.inputs):
            return
        if any(desc.is_static and desc.elements > FOLD_LIMIT for desc in node.output_descs):
            return
        values = evaluate_node(node, [None if port is None else self.known[port] for port in node.inputs])
        self.known.update({node.out(index): value for index, value in enumerate(values)})


def import_node(builder: TestBuilder, node: OnnxNode) -> dict[int, Port]:
    """The ports that stand for the node's outputs. Raises UnknownOperator."""
    found = find_onnx(node.op, node.domain, node.opset)
    if found is None:
        raise UnknownOperator(f"{node.op} of opset {node.opset}")
    builder.results = {}
    if isinstance(found, Importer):
        found.function(node, builder)
        return builder.results
    kind, mapping = found
    attrs = dict(mapping.defaults)
    for name, value in node.attrs.items():
        renamed = mapping.attrs.get(name, name)
        if renamed in kind.attributes:
            attrs[renamed] = value
    return dict(enumerate(builder.ops(kind.name, 1, *node.inputs, **attrs)))


def import_model(
    model: onnx.ModelProto,
    feeds: Mapping[str, Array],
    *,
    constant: Iterable[str] = (),
    shapes: str = "static",
) -> Graph:
    """The graph of a model whose inputs are described by `feeds`; the names in `constant` become Const.

    `shapes`: "static", "dims" (every dim -1) or "rank" (every rank unknown).
    """
    graph = Graph("g")
    builder = TestBuilder(graph)
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    ports: dict[str, Port] = {}
    for tensor in model.graph.initializer:
        ports[tensor.name] = builder.const(numpy_helper.to_array(tensor), tensor.name)
    for position, value in enumerate(model.graph.input):
        if value.name in ports or value.name not in feeds:
            continue
        array = np.asarray(feeds[value.name])
        if value.name in constant and array.dtype != object:  # strings are no weights
            ports[value.name] = builder.const(array, value.name)
        else:
            desc = _input_desc(array, shapes)
            data = graph.create("Data", value.name, attrs={"index": position}, output_descs=[desc])
            ports[value.name] = data.out()
    for position, proto in enumerate(model.graph.node):
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        builder.prefix = proto.name or f"{proto.op_type}_{position}"
        node = OnnxNode(
            builder.prefix,
            proto.op_type,
            domain,
            opsets.get(domain, DEFAULT_OPSET),
            tuple(ports[name] if name else None for name in proto.input),
            tuple(proto.output),
            {attr.name: _attribute(attr) for attr in proto.attribute},
        )
        for index, port in import_node(builder, node).items():
            if index < len(proto.output) and proto.output[index]:
                ports[proto.output[index]] = port
    graph.set_outputs([ports[value.name] for value in model.graph.output], [v.name for v in model.graph.output])
    return graph


def run(graph: Graph, feeds: Mapping[str, Array]) -> list[Array]:
    """The graph's outputs; every descriptor and every `bind` on the way is checked against the kernel's values."""
    values: dict[Port, Array] = {}
    for node in graph.nodes():
        if node.type == "NetOutput":
            continue
        if node.type in DATA_TYPES:
            values[node.out()] = np.asarray(feeds[node.name])
            continue
        if node.type in CONST_TYPES:
            values[node.out()] = node.attrs[VALUE].numpy()
            continue
        inputs = [None if port is None else values[port] for port in node.inputs]
        outputs = [np.asarray(value) for value in evaluate_node(node, list(inputs))]
        for index, value in enumerate(outputs):
            if index < len(node.output_descs):
                check_desc(node, node.output_descs[index], value)
            values[node.out(index)] = value
        check_bind(node, inputs, outputs)
    return [values[port] for port in graph.outputs]


def check_desc(node: OpDesc, desc: TensorDesc, value: Array) -> None:
    """The value has the dtype and the known dims of its descriptor."""
    assert desc.dtype.numpy == value.dtype or value.dtype == object, f"{node}: {desc} but the value is {value.dtype}"
    if desc.shape != UNKNOWN_RANK:
        fits = len(desc.shape) == value.ndim and all(d in (-1, n) for d, n in zip(desc.shape, value.shape))
        assert fits, f"{node}: {desc} but the value has shape {list(value.shape)}"


def check_bind(node: OpDesc, inputs: Sequence[Array | None], expected: Sequence[Array]) -> bool:
    """`bind` of the node, called twice, fills its outputs with what the kernel gave; False without a bind."""
    op = operator_of(node)
    if op is None or not hasattr(op, "bind"):
        return False
    op.constant_inputs = frozenset(
        slot for slot, port in enumerate(node.inputs) if port is not None and port.node.type in CONST_TYPES
    )
    fixed = [None if x is None else np.array(x, order="C") for x in inputs]
    while fixed and fixed[-1] is None:
        fixed.pop()
    before = [None if x is None else x.copy() for x in fixed]
    for slot in op.constant_inputs:
        fixed[slot].flags.writeable = False  # type: ignore[union-attr]  # connected slots hold arrays
    outputs = [np.empty(y.shape, y.dtype) for y in expected]
    for y in outputs:
        y.view(np.uint8).fill(0x5A) if y.ndim else None
    with np.errstate(all="ignore"):
        step = op.bind(fixed, outputs)
        if step is None:
            return False
        for _ in range(2):
            step()
            for index, (got, want) in enumerate(zip(outputs, expected)):
                assert_close(got, want, f"bind of {node} output {index}", bar=5e-6)
    for slot, (now, was) in enumerate(zip(fixed, before)):
        if was is not None and now is not None and not op.type.writes:
            assert now.tobytes() == was.tobytes(), f"bind of {node} changed its input {slot}"
    return True


def judge(
    op: str,
    inputs: Sequence[Any],
    *,
    attrs: Mapping[str, Any] | None = None,
    opset: int = DEFAULT_OPSET,
    domain: str = "",
    outputs: int = 1,
    constant: Iterable[int] = (),
    expected: Sequence[Any] | None = None,
    judge_with: str = "onnxruntime",
    bar: float = 1e-5,
    dynamic: bool = True,
) -> list[Array]:
    """Compare one ONNX operator with onnxruntime, the reference evaluator (`judge_with="reference"`) or `expected`.

    `inputs`: arrays, None for a left-out optional input. `constant`: slots that must be constant in gecli. Returns
    gecli's outputs.
    """
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    model, feeds = one_node_model(op, arrays, dict(attrs or {}), opset, domain, outputs)
    if expected is None:
        expected = run_onnxruntime(model, feeds) if judge_with == "onnxruntime" else run_reference(model, feeds)
    fixed = {f"x{slot}" for slot in constant}
    got = _compare(import_model(model, feeds, constant=fixed), feeds, expected, bar)
    _compare(import_model(model, feeds, constant=set(feeds)), feeds, expected, bar)
    if dynamic:
        _compare(import_model(model, feeds, constant=fixed, shapes="dims"), feeds, expected, bar)
        try:
            blind = import_model(model, feeds, constant=fixed, shapes="rank")
        except InputError:
            return got  # an importer may refuse what it cannot know
        _compare(blind, feeds, expected, bar)
    return got


def apply(type: str, *inputs: Any, constant: Iterable[int] = (), **attrs: Any) -> list[Array]:
    """The outputs of one GE operator, with its descriptors checked (static and unknown) and its `bind` run."""
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    feeds = {f"x{slot}": x for slot, x in enumerate(arrays) if x is not None}
    results = []
    for shapes in ("static", "dims", "rank"):
        graph = Graph("g")
        builder = TestBuilder(graph)
        ports: list[Port | None] = []
        for slot, x in enumerate(arrays):
            if x is None:
                ports.append(None)
            elif slot in set(constant):
                ports.append(builder.const(x, f"x{slot}"))
            else:
                ports.append(graph.create("Data", f"x{slot}", output_descs=[_input_desc(x, shapes)]).out())
        graph.set_outputs(builder.ops(type, 1, *ports, **attrs))
        results.append(run(graph, feeds))
    return results[0]


def one_node_model(
    op: str, arrays: Sequence[Array | None], attrs: dict[str, Any], opset: int, domain: str, outputs: int
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one node with inputs x0, x1... and outputs y0, y1..., and its feeds."""
    names = ["" if x is None else f"x{slot}" for slot, x in enumerate(arrays)]
    feeds = {f"x{slot}": x for slot, x in enumerate(arrays) if x is not None}
    results = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(op, names, results, name="node", domain=domain, **attrs)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(name, onnx_type(x), x.shape) for name, x in feeds.items()],
        [helper.make_empty_tensor_value_info(name) for name in results],
    )
    opsets = [helper.make_opsetid("", opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION), feeds


def onnx_type(array: Array) -> int:
    if array.dtype == object or array.dtype.kind in "US":
        return TensorProto.STRING
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def run_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def run_reference(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(model).run(None, dict(feeds)))


def assert_close(got: Array, want: Array, what: str, bar: float = 1e-5) -> None:
    """Equal dtype and shape, equal NaN and inf positions, and max|a-b| <= bar * max|b| + bar / 100."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype, f"{what}: dtype {got.dtype}, expected {want.dtype}"
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    if want.dtype.kind not in "fcV":
        np.testing.assert_array_equal(got, want, what)
        return
    kind = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b = got.astype(kind), want.astype(kind)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b), f"{what}: NaN")
    finite = np.isfinite(b)
    np.testing.assert_array_equal(a[~finite & ~np.isnan(b)], b[~finite & ~np.isnan(b)], f"{what}: inf")
    if not finite.any():
        return
    half_ulp = {"float16": 1e-3, "bfloat16": 8e-3}.get(want.dtype.name, 0.0)
    limit = max(bar, half_ulp) * float(np.abs(b[finite]).max()) + bar / 100
    error = float(np.abs(a[finite] - b[finite]).max())
    assert error <= limit, f"{what}: max error {error:.3g} > {limit:.3g}"


def _compare(graph: Graph, feeds: Mapping[str, Array], expected: Sequence[Any], bar: float) -> list[Array]:
    got = run(graph, feeds)
    for index, (value, want) in enumerate(zip(got, expected, strict=True)):
        assert_close(value, np.asarray(want), f"output {index}", bar)
    return got


def _input_desc(array: Array, shapes: str) -> TensorDesc:
    dtype = DataType.from_numpy(array.dtype)
    if shapes == "rank":
        return TensorDesc(dtype, UNKNOWN_RANK)
    return TensorDesc(dtype, tuple(array.shape) if shapes == "static" else (-1,) * array.ndim)


def _attribute(attr: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attr)
    if attr.type == onnx.AttributeProto.TENSOR:
        return Weight.of(numpy_helper.to_array(value))
    if attr.type == onnx.AttributeProto.STRING:
        return value.decode()
    if attr.type == onnx.AttributeProto.STRINGS:
        return tuple(text.decode() for text in value)
    return tuple(value) if isinstance(value, list) else value
