"""Random sessions for laws: graphs that share variables, read and write them through conversions, and store back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from gecli.compiler.session import Session
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph, feed
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.layout.platform import platform_of
from gecli.layout.storage_shape import storage_shape
from gecli.passes.base import CompileSettings
from gecli.passes.trans_ops import add_shape_input, node_of
from gecli.variables.trans_road import TransStep

Array = NDArray[np.generic]
Steps = tuple[TransStep, ...]
PLATFORM = platform_of("Ascend910B1")
ORIGINS = (Format.NCHW, Format.NHWC, Format.HWCN)
WRITERS = ("none", "none", "add", "add behind", "store back", "assign")


@dataclass(frozen=True)
class Use:
    """How one graph uses one variable: the conversions of each reader, and who writes it."""

    readers: tuple[Steps, ...]
    writer: str
    writer_steps: Steps


@dataclass(frozen=True)
class Plan:
    """A session: the declared form of each variable, and what each graph does with those it has."""

    variables: dict[str, TensorDesc]
    graphs: tuple[dict[str, Use], ...]
    order: tuple[int, ...]  # in which the graphs run


@st.composite
def session_plans(draw: st.DrawFn, max_graphs: int = 3) -> Plan:
    names = draw(st.lists(st.sampled_from(("a", "b", "w")), min_size=1, max_size=3, unique=True))
    variables = {name: draw(declared_forms()) for name in names}
    main = {name: draw(chains(desc)) for name, desc in variables.items()}  # graphs of a session mostly agree
    graphs = []
    for _ in range(draw(st.integers(1, max_graphs))):
        used = draw(st.lists(st.sampled_from(names), min_size=1, max_size=len(names), unique=True))
        graphs.append({name: draw(uses(variables[name], main[name])) for name in sorted(used)})
    order = draw(st.lists(st.integers(0, len(graphs) - 1), min_size=1, max_size=4))
    return Plan(variables, tuple(graphs), tuple(order))


@st.composite
def declared_forms(draw: st.DrawFn) -> TensorDesc:
    dims = draw(st.sampled_from(((2, 2, 2, 2), (1, 3, 2, 2), (4, 17, 1, 3), (1, 1, 1, 1))))
    dtype = draw(st.sampled_from((DataType.FLOAT16, DataType.FLOAT, DataType.INT32)))
    return TensorDesc(dtype, dims, draw(st.sampled_from(ORIGINS)))


@st.composite
def uses(draw: st.DrawFn, declared: TensorDesc, main: Steps) -> Use:
    readers = []
    for _ in range(draw(st.integers(0, 3))):
        chain = main if draw(st.integers(0, 3)) else draw(chains(declared))
        readers.append(chain if draw(st.booleans()) else chain[: draw(st.integers(0, len(chain)))])
    writer = draw(st.sampled_from(WRITERS))
    steps = main if draw(st.integers(0, 3)) else draw(chains(declared))
    return Use(tuple(readers), writer, steps)


@st.composite
def chains(draw: st.DrawFn, declared: TensorDesc) -> Steps:
    chain: list[TransStep] = []
    for _ in range(draw(st.integers(0, 3))):
        possible = possible_steps(chain[-1].dst if chain else declared)
        if not possible:
            break
        chain.append(draw(st.sampled_from(possible)))
    return tuple(chain)


def possible_steps(src: TensorDesc) -> list[TransStep]:
    """Conversions without loss: what they give can be converted back exactly."""
    steps = []
    if src.format.is_origin:  # the engine puts no Reshape behind a blocked form
        steps.append(TransStep("Reshape", src, TensorDesc(src.dtype, (src.elements,), Format.ND)))
    if src.dtype is DataType.FLOAT16:
        steps.append(TransStep("Cast", src, src.with_dtype(DataType.FLOAT)))
    if src.dtype is DataType.INT32:
        steps.append(TransStep("Cast", src, src.with_dtype(DataType.INT64)))
    if src.format in ORIGINS and len(src.shape) == 4:
        steps += [transposed(src, fmt) for fmt in ORIGINS if fmt != src.format]
        if src.dtype is not DataType.INT64:
            steps.append(blocked(src, Format.FRACTAL_Z if src.format == Format.HWCN else Format.NC1HWC0))
    return steps


def transposed(src: TensorDesc, fmt: Format) -> TransStep:
    perm = tuple(src.format.name.index(letter) for letter in fmt.name)
    return TransStep("TransposeD", src, TensorDesc(src.dtype, tuple(src.shape[a] for a in perm), fmt), {"perm": perm})


def blocked(src: TensorDesc, target: Format) -> TransStep:
    fmt = target.with_c0(8 if src.dtype is DataType.FLOAT else 16)
    shape = storage_shape(src.format, src.shape, fmt, src.dtype, PLATFORM)
    return TransStep("TransData", src, src.with_format(fmt, shape))


# ---------------------------------------------------------------------- graphs


def built(plan: Plan, *, dynamic: bool = False) -> list[Graph]:
    """The graphs; those that are `dynamic` have one more input and output, `free`, of any length."""
    return [_graph(plan, number, used, dynamic) for number, used in enumerate(plan.graphs)]


def _graph(plan: Plan, number: int, used: dict[str, Use], dynamic: bool) -> Graph:
    graph = Graph(f"g{number}")
    outputs: list[Port] = []
    refs: list[OpDesc] = []
    for name, use in used.items():
        declared = plan.variables[name]
        variable = graph.create("Variable", name, output_descs=[declared])
        variable.set_init_value(numbers(declared))
        reads = []
        for index, steps in enumerate(use.readers):
            port = _convert(graph, variable.out(), steps, f"{name}_r{index}")
            reads.append(_apply(graph, "Abs", f"{name}_read{index}", port))
        outputs += reads
        refs += _written(graph, name, variable, use, reads)
    if dynamic:
        free = graph.create("Data", "free", output_descs=[TensorDesc(DataType.FLOAT, (-1,), Format.ND)])
        outputs.append(_apply(graph, "Abs", "free_abs", free.out()))
    if not outputs:
        constant = numbers(TensorDesc(DataType.FLOAT, (2,), Format.ND))
        outputs.append(graph.create("Const", "one", attrs={"value": constant}, output_descs=[constant.desc]).out())
    result = graph.set_outputs(outputs)
    for ref in refs:
        graph.add_control(ref, result)
    return graph


def called(graph: Graph, type: str) -> Graph:
    """A graph whose one node calls `graph` with its variables: a PartitionedCall, or a Case of one branch."""
    root = Graph(graph.name)
    graph.name = f"{graph.name}_body"
    root.add_subgraph(graph)
    arguments: list[Port] = []
    if type == "Case":
        number = Weight.of(np.array(0, np.int32))
        arguments.append(root.create("Const", "branch", attrs={"value": number}, output_descs=[number.desc]).out())
    for index, node in enumerate([node for node in graph.nodes_of("Variable") if node.ref_variable is None]):
        arguments.append(root.create("Variable", node.name, output_descs=list(node.output_descs)).out())
        graph.retype(node, "Data")
        node.attrs["index"] = index
        node.output_descs[0] = replace(node.output_descs[0], attrs={})
    descs = [port.desc for port in graph.outputs]
    call = feed(root, root.create(type, "call", output_descs=descs, subgraphs=[graph.name]), *arguments)
    root.set_outputs([call.out(index) for index in range(len(descs))])
    return root


def _written(graph: Graph, name: str, variable: OpDesc, use: Use, reads: list[Port]) -> list[OpDesc]:
    """Nodes that must run; the readers come before the write, so that no order is left open."""
    declared = variable.output_descs[0]
    steps = use.writer_steps
    back = tuple(step.swapped() for step in reversed(steps))
    if use.writer == "none":
        return []
    if use.writer in ("add", "assign"):
        delta = _constant(graph, f"{name}_delta", declared)
        type = "AssignAdd" if use.writer == "add" else "Assign"
        writer = graph.create(type, f"{name}_upd", output_descs=[declared])
        feed(graph, writer, variable.out(), _apply(graph, "Abs", f"{name}_value", delta))
        return _after(graph, reads, writer)
    if use.writer == "add behind":
        port = _convert(graph, variable.out(), steps, f"{name}_into")
        delta = _convert(graph, _constant(graph, f"{name}_delta", declared), steps, f"{name}_with")
        writer = feed(graph, graph.create("AssignAdd", f"{name}_upd", output_descs=[port.desc]), port, delta)
        stored = writer.out()
    else:
        made = _convert(graph, _constant(graph, f"{name}_new", declared), steps, f"{name}_make")
        stored = _apply(graph, "Neg", f"{name}_made", made)
        writer = stored.node
    ref = graph.create("Variable", f"{name}_back", attrs={"ref_var_src_var_name": name}, output_descs=[declared])
    feed(graph, ref, _convert(graph, stored, back, f"{name}_back"))
    _after(graph, reads, writer)
    return [ref]


def _after(graph: Graph, reads: list[Port], writer: OpDesc) -> list[OpDesc]:
    for port in reads:
        graph.add_control(port.node, writer)
    return [writer]


def numbers(desc: TensorDesc) -> Weight:
    """Small whole numbers: every float type holds them, and their sums, exactly."""
    return Weight.of((np.arange(desc.elements) % 19 - 9).astype(desc.dtype.numpy).reshape(desc.shape), desc)


def _constant(graph: Graph, name: str, desc: TensorDesc) -> Port:
    return graph.create("Const", name, attrs={"value": numbers(desc)}, output_descs=[desc]).out()


def _apply(graph: Graph, type: str, name: str, port: Port) -> Port:
    return feed(graph, graph.create(type, name, output_descs=[port.desc]), port).out()


def _convert(graph: Graph, port: Port, steps: Sequence[TransStep], name: str) -> Port:
    for number, step in enumerate(steps):
        node = graph.add(node_of(step, f"{name}_{number}", port.node))
        graph.connect(port, node, 0)
        add_shape_input(graph, node)
        port = node.out()
    return port


def session_of(graphs: Sequence[Graph], **settings: object) -> Session:
    session = Session(PLATFORM, replace(CompileSettings(), **settings))
    for graph in graphs:
        session.add(graph)
    return session
