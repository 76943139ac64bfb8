"""From ONNX nodes to GE nodes: what importers build with, and the names that GE gives (parser/onnx)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gecli.errors import GecliError
from gecli.ir.attributes import DATA_INDEX, ORIGINAL_OP_NAMES, VALUE
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph, feed
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ir.weight import Weight
from gecli.loading.inference import Inference
from gecli.loading.onnx_nodes import (
    Message,
    OnnxModel,
    captured_names,
    check_names,
    domain_of,
    node_names,
    opsets_of,
    ordered,
)
from gecli.ops.inference import RULE_FAULTS
from gecli.ops.onnx_import import Importer, LoopSteps, OnnxNode
from gecli.ops.operator import From, OperatorType, convert_attribute
from gecli.ops.registry import operator_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

Scope = MutableMapping[str, Port]


class GraphBuilder:
    """Builds one graph of a model; it is the `Builder` that importers see.

    The nodes of an expansion are held back until the importer returns, because their names depend on how many there
    are: one node keeps the name of the ONNX node, several become `PartitionedCall_<part>_<n>`.
    """

    def __init__(self, model: OnnxModel, graph: Graph, inference: Inference, scope: Scope | None = None) -> None:
        self.model = model
        self.graph = graph
        self.inference = inference
        self.scope: Scope = {} if scope is None else scope
        self._pending: list[tuple[OpDesc, str]] = []  # nodes of the current expansion with their part names
        self._results: dict[int, Port] = {}
        self._current: OnnxNode | None = None
        self._captured: dict[str, tuple[str, tuple[Port, ...]]] = {}
        self._origin: str | None = None  # the node whose function is being inlined

    # ------------------------------------------------------------------ graphs

    def add_constants(self, tensors: Any) -> None:
        """Initializers as Const nodes `<tensor>_Initializer_<rank>`, in byte-wise order of their names."""
        for rank, tensor in enumerate(sorted(tensors, key=lambda tensor: tensor.name.encode())):
            weight = self.model.weight(tensor, f"initializer {tensor.name!r}")
            self._refuse_second(tensor.name, "initializer")
            name = self.graph.unique_name(f"{tensor.name}_Initializer_{rank}")
            self.scope[tensor.name] = self._add_const(name, weight)

    def add_input(self, name: str, desc: TensorDesc, index: int) -> Port:
        self._refuse_second(name, "input")
        node = self.graph.add(OpDesc(name, "Data", attrs={DATA_INDEX: index}, output_descs=[desc]))
        self.scope[name] = node.out()
        return node.out()

    def _refuse_second(self, name: str, what: str) -> None:
        if name in self.scope:
            raise self.model.fault(
                "E13005",
                f"tensor {name!r} is made twice",
                f"graph {self.graph.name!r} has two inputs or initializers of this name; the second is an {what}",
                "export the model again; tensor names must be unique",
            )

    def add_nodes(self, graph: Message, opsets: dict[str, int]) -> None:
        """All nodes of an ONNX graph. Raises InputError."""
        names = node_names(self.model, graph, [node.name for node in self.graph.nodes()])
        for position in ordered(self.model, graph, set(self.scope)):
            self.add_node(graph.node[position], names[position], opsets)

    def set_outputs(self, graph: Message) -> None:
        """The NetOutput node; the outputs keep the names of the tensors. Raises InputError."""
        self.graph.set_outputs(self.made(graph), [value.name for value in graph.output])

    def made(self, graph: Message) -> list[Port]:
        """The ports of a graph's outputs. Raises InputError."""
        names = [value.name for value in graph.output]
        missing = [name for name in names if name not in self.scope]
        if missing:
            raise self.model.fault(
                "E13005",
                f"graph output {missing[0]!r} is never made",
                f"graph {graph.name!r}",
                "export the model again",
            )
        return [self.scope[name] for name in names]

    def add_node(self, node: Message, name: str, opsets: dict[str, int]) -> None:
        """One ONNX node under the name given. Raises InputError."""
        domain = domain_of(node)
        scope = self.scope
        inputs = tuple([scope[each] if each else None for each in node.input])
        outputs = tuple(node.output)
        where = f"node {name!r}"
        found = self.model.find(domain, node.op_type, opsets)
        if found is None:
            function = self.model.functions.get((domain, node.op_type))
            if function is not None:
                self._inline(function, node, name, inputs, outputs, opsets)
                return
            self._add_opaque(node, name, inputs, outputs)
            return
        attrs = self.model.attributes(node, where) if node.attribute else {}
        if isinstance(found, Importer):
            results = self._expand(
                found, OnnxNode(name, node.op_type, domain, opsets.get(domain, 1), inputs, outputs, attrs)
            )
        else:
            results = self._add_mapped(found, name, inputs, outputs, attrs)
        for index, tensor in enumerate(outputs):
            if tensor:
                port = results.get(index)
                if port is None:
                    raise self.model.fault(
                        "E13014",
                        f"{node.op_type} {where} has no output {index}",
                        f"the model reads {tensor!r}",
                        "",
                        name,
                    )
                scope[tensor] = port

    def _add_mapped(
        self,
        found: tuple[OperatorType, From],
        name: str,
        inputs: tuple[Port | None, ...],
        outputs: tuple[str, ...],
        attrs: dict[str, Any],
    ) -> dict[int, Port]:
        kind, mapping = found
        values = dict(mapping.defaults) if mapping.defaults else {}
        for key, value in attrs.items():
            renamed = mapping.attrs.get(key, key)
            declared = kind.attributes.get(renamed)
            if declared is not None:
                values[renamed] = self._converted(declared[0], value, key, name)
        node = self.graph.add(OpDesc(name, kind.name, attrs=values))
        if self._origin is not None:
            values[ORIGINAL_OP_NAMES] = (self._origin,)
        feed(self.graph, node, *_without_absent_tail(inputs))
        self.inference.infer(node, _wanted(outputs))
        if len(node.output_descs) == 1:
            return {0: Port(node, 0)}
        return {index: Port(node, index) for index in range(len(node.output_descs))}

    def _converted(self, annotation: str, value: Any, key: str, name: str) -> Any:
        try:
            return convert_attribute(annotation, value)
        except (TypeError, ValueError) as err:
            raise self.model.fault(
                "E13014", f"attribute {key!r} of node {name!r} is not valid", f"{err}; expected {annotation}", "", name
            ) from err

    def _expand(self, found: Importer, node: OnnxNode) -> dict[int, Port]:
        tensor = node.attrs.get("value") if node.op == "Constant" and not node.domain else None
        if isinstance(tensor, Weight):
            return {0: self._add_const(node.name, tensor)}  # by reference; its importer would read it
        try:
            with self.expanding(node):
                found.function(node, self)
                results = self._results
        except (*RULE_FAULTS, AttributeError) as err:
            raise self.model.fault(
                "E13014",
                f"{node.op} node {node.name!r} cannot be imported",
                f"an attribute or input does not have the form that the operator asks for ({err})",
                "correct the attributes of the node",
                node.name,
            ) from err
        return results

    @contextmanager
    def expanding(self, node: OnnxNode, *, keep_name: bool = True) -> Iterator[None]:
        """Nodes made meanwhile stand for `node`; a single one of them has its name if `keep_name`."""
        outer = (self._pending, self._results, self._current, self._captured)
        self._pending, self._results, self._current, self._captured = [], {}, node, {}
        try:
            yield
            self._commit(node, keep_name)
        finally:
            self._pending, self._results, self._current, self._captured = outer

    def _commit(self, source: OnnxNode, keep_name: bool) -> None:
        """Add the held nodes to the graph under their final names."""
        single = keep_name and len(self._pending) == 1
        for node, part in self._pending:
            if single:
                node.name = source.name
            else:
                node.name = self._expansion_name(part)
                node.attrs[ORIGINAL_OP_NAMES] = (self._origin or source.name,)
            if self._origin is not None:
                node.attrs[ORIGINAL_OP_NAMES] = (self._origin,)
            sources, node.inputs, node.input_descs = node.inputs, [], []
            self.graph.add(node)
            feed(self.graph, node, *sources)

    def _expansion_name(self, part: str) -> str:
        while True:
            name = f"PartitionedCall_{part}_{self.model.expanded}"
            self.model.expanded += 1
            if name not in self.graph:
                return name

    def _add_const(self, name: str, weight: Weight) -> Port:
        node = self.graph.create("Const", name, attrs={VALUE: weight}, output_descs=[weight.desc])
        if self._origin is not None:
            node.attrs[ORIGINAL_OP_NAMES] = (self._origin,)
        self.inference.add_constant(node)
        return Port(node, 0)

    def _add_opaque(self, node: Message, name: str, inputs: tuple[Port | None, ...], outputs: tuple[str, ...]) -> None:
        """A node that gecli does not know, kept as it is (--allow-unsupported)."""
        attrs = {attr.name: self.model.attribute(attr, name) for attr in node.attribute if attr.type not in (5, 10, 13)}
        desc = TensorDesc(DataType.UNDEFINED, UNKNOWN_RANK)
        added = self.graph.add(OpDesc(name, node.op_type, attrs=attrs, output_descs=[desc] * len(outputs)))
        feed(self.graph, added, *inputs)
        self.scope.update({tensor: added.out(index) for index, tensor in enumerate(outputs) if tensor})

    # ------------------------------------------------------------------ functions and subgraphs

    def _inline(
        self,
        function: Message,
        node: Message,
        name: str,
        inputs: tuple[Port | None, ...],
        outputs: tuple[str, ...],
        opsets: dict[str, int],
    ) -> None:
        """The nodes of a model-local function in place of its call, named `<call>_<node>`."""
        outer_scope, outer_origin = self.scope, self._origin
        self._origin = outer_origin or name
        local: Scope = {}
        for tensor, port in zip(function.input, inputs):
            if port is not None:
                local[tensor] = port
        self.scope = local
        try:
            body_opsets = opsets_of(function.opset_import) or opsets
            for position, inner in enumerate(function.node):
                bound = _bound_attributes(inner, node, function)
                # An input that the call leaves out is left out in the body as well.
                absent = [each for each in bound.input if each and each not in local]
                for index, each in enumerate(bound.input):
                    if each in absent:
                        bound.input[index] = ""
                inner_name = self.graph.unique_name(f"{name}_{inner.name or f'{inner.op_type}_{position}'}")
                self.add_node(bound, inner_name, body_opsets)
        finally:
            self.scope, self._origin = outer_scope, outer_origin
        for tensor, result in zip(outputs, function.output):
            if tensor and result in local:
                self.scope[tensor] = local[result]

    def subgraph(self, node: OnnxNode, attribute: str) -> tuple[str, tuple[Port, ...]]:
        """Import the graph in `attribute`; returns its name and the outer ports that it captures.

        The branches of a node capture the same ports (by name, sorted), which are returned with the first of them.
        Outer constants are copied into the graph, so that shapes in it can be computed.
        """
        graph = self.graph_attribute(node, attribute)
        every = [value for value in node.attrs.values() if hasattr(value, "node")]
        constants, outer = self.captures(every, node, attribute)
        inner = self.inner(f"{node.name}_{len(self._captured)}_{attribute}")
        for position, (name, port) in enumerate(outer.items()):
            inner.add_input(name, port.desc, position)
        inner.copy_constants(self, constants)
        inner.add_body(graph, node)
        inner.set_outputs(graph)
        ports = () if self._captured else tuple(outer.values())
        self.add_called(attribute, inner.graph, ports)
        return inner.graph.name, ports

    def graph_attribute(self, node: OnnxNode, attribute: str) -> Message:
        """The graph in an attribute. Raises InputError when there is none."""
        graph = node.attrs.get(attribute)
        if graph is None or not hasattr(graph, "node"):
            raise node.fault(f"attribute {attribute!r} is not a graph")
        return graph

    def captures(self, graphs: list[Message], node: OnnxNode, attribute: str) -> tuple[list[str], dict[str, Port]]:
        """The outer tensors that graphs read, by name, sorted: constants, and the ports of all others."""
        names = sorted({name for each in graphs for name in captured_names(each)})
        missing = [name for name in names if name not in self.scope]
        if missing:
            raise node.fault(f"the graph {attribute!r} reads {missing[0]!r}, which nothing makes")
        constants = [name for name in names if self.scope[name].node.type == "Const"]
        return constants, {name: self.scope[name] for name in names if name not in constants}

    def inner(self, name: str) -> GraphBuilder:
        """A builder for a graph that a node of this one calls."""
        return GraphBuilder(self.model, Graph(f"{self.graph.name}/{name}", self.graph), self.inference)

    def copy_constants(self, outer: GraphBuilder, names: Iterable[str]) -> None:
        for name in names:
            value = outer.scope[name].node
            self.scope[name] = self._add_const(value.name, value.attrs[VALUE])

    def add_argument(self, name: str, desc: TensorDesc, index: int) -> Port:
        """A Data node that no tensor of the model names."""
        node = OpDesc(self.graph.unique_name(name), "Data", attrs={DATA_INDEX: index}, output_descs=[desc])
        return self.graph.add(node).out()

    def add_body(self, graph: Message, node: OnnxNode) -> None:
        """Initializers and nodes of a graph that `node` calls. Raises InputError."""
        check_names(self.model, graph)
        self.add_constants(graph.initializer)
        self.add_nodes(graph, {**self.model.opsets, node.domain: node.opset})

    def add_called(self, attribute: str, graph: Graph, captured: tuple[Port, ...] = ()) -> None:
        """Make a graph one of those that the node being imported calls."""
        self.graph.add_subgraph(graph)
        self._captured[attribute] = (graph.name, captured)

    def loop(
        self, node: OnnxNode, attribute: str, initial: Sequence[Port], steps: LoopSteps
    ) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
        from gecli.loading.onnx_loops import build_loop

        return build_loop(self, node, attribute, initial, steps)

    # ------------------------------------------------------------------ what importers use

    def op(self, type: str, /, *inputs: Port | None, **attrs: Any) -> Port:
        return self.ops(type, 1, *inputs, **attrs)[0]

    def ops(self, type: str, outputs: int, /, *inputs: Port | None, **attrs: Any) -> tuple[Port, ...]:
        assert self._current is not None, "importers build only while a node is being imported"
        node = OpDesc("", type, attrs=attrs)
        node.inputs = _without_absent_tail(inputs)
        node.input_descs = [None if port is None else port.desc for port in node.inputs]
        if self._captured:
            called = {name for name, _ in self._captured.values()}
            node.subgraphs = [value for value in attrs.values() if isinstance(value, str) and value in called]
        self._pending.append((node, f"{self._current.name}_{type}"))
        if not (node.subgraphs and self._infer_from_subgraphs(node)):
            self.inference.infer(node, outputs)
        return tuple([Port(node, index) for index in range(len(node.output_descs))])

    def _infer_from_subgraphs(self, node: OpDesc) -> bool:
        op = operator_of(node)
        if op is None or not hasattr(op, "infer_from"):
            return False
        names = node.subgraphs
        if node.type == "If" and (cond := self.inference.value(node.inputs[0])) is not None:
            names = names[:1] if bool(cond) else names[1:2]  # the other branch is never taken
        results = [[port.desc for port in self.graph.subgraphs[name].outputs] for name in names]
        try:
            for desc in op.infer_from(results):
                node.add_output(desc)
        except (GecliError, ValueError):
            return False
        return True

    def const(self, value: Array, role: str) -> Port:
        assert self._current is not None
        weight = Weight.of(value)
        node = OpDesc("", "Const", attrs={VALUE: weight}, output_descs=[weight.desc])
        self._pending.append((node, f"{self._current.name}_{role}"))
        self.inference.add_constant(node)
        return Port(node, 0)

    def output(self, index: int, port: Port) -> None:
        self._results[index] = port

    def constant(self, port: Port | None) -> Array | None:
        return self.inference.value(port)

    def desc(self, port: Port) -> TensorDesc | None:
        desc = port.desc
        return None if desc.dtype is DataType.UNDEFINED and desc.shape == UNKNOWN_RANK else desc

    def rank(self, port: Port) -> int | None:
        return port.desc.rank


def build_body(builder: GraphBuilder, graph: Message, opsets: dict[str, int]) -> None:
    """Initializers, nodes and outputs of an ONNX graph whose inputs are there. Raises InputError."""
    check_names(builder.model, graph)
    builder.add_constants(graph.initializer)
    builder.add_nodes(graph, opsets)
    builder.set_outputs(graph)


def _without_absent_tail(inputs: tuple[Port | None, ...]) -> list[Port | None]:
    """The inputs up to the last one that is there."""
    ports = list(inputs)
    while ports and ports[-1] is None:
        ports.pop()
    return ports


def _wanted(outputs: tuple[str, ...]) -> int:
    """How many outputs the model names; empty names at the end do not count."""
    count = len(outputs)
    while count and not outputs[count - 1]:
        count -= 1
    return count


def _bound_attributes(inner: Message, call: Message, function: Message) -> Message:
    """A copy of a function's node whose references to the call's attributes are replaced by their values."""
    bound = type(inner)()
    bound.CopyFrom(inner)
    if not any(attr.ref_attr_name for attr in inner.attribute):
        return bound
    given = {attr.name: attr for attr in function.attribute_proto}
    given.update({attr.name: attr for attr in call.attribute})
    del bound.attribute[:]
    for attr in inner.attribute:
        if not attr.ref_attr_name:
            bound.attribute.append(attr)
        elif attr.ref_attr_name in given:
            value = bound.attribute.add()
            value.CopyFrom(given[attr.ref_attr_name])
            value.name = attr.name
    return bound
