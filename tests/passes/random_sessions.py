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
NARROWER = {
    DataType.FLOAT: (DataType.FLOAT16, DataType.INT32),
    DataType.INT32: (DataType.FLOAT16, DataType.INT8),
    DataType.INT64: (DataType.INT32,),
}
WRITERS = ("none", "none", "add", "add behind", "store back", "assign")
SOURCES = ("variable", "first", "second", "reference")
# Before the second write; converted before it, read at any time; behind it by a control or a data edge; an output.
TIMES = ("between", "kept", "control", "data", "end")


@dataclass(frozen=True)
class LateRead:
    """Who reads behind the first write: the variable, a RefIdentity of it, or what the first or second writer gave.

    Through conversions, which may lead back to the form of the variable, and when.
    """

    source: str
    steps: Steps
    when: str
    returns: bool = False


@dataclass(frozen=True)
class Behind:
    """A second write to a variable, through it, a RefIdentity, or what the first writer gave, and readers around it.

    Maybe a third one, through what the first writer gave.
    """

    through: str
    reads: tuple[LateRead, ...]
    third: bool = False


@dataclass(frozen=True)
class Use:
    """How one graph uses one variable: the conversions of each reader, who writes it, and what comes behind."""

    readers: tuple[Steps, ...]
    writer: str
    writer_steps: Steps
    behind: Behind | None = None


@dataclass(frozen=True)
class Plan:
    """A session: the declared form of each variable, and what each graph does with those it has."""

    variables: dict[str, TensorDesc]
    graphs: tuple[dict[str, Use], ...]
    order: tuple[int, ...]  # in which the graphs run
    rough: bool = False  # whether the variables begin with numbers that not every type holds


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
def narrowing_plans(draw: st.DrawFn) -> Plan:
    """One variable that graphs cast to a narrower type, all of them or not, and write as it is or behind the cast."""
    wide = draw(st.sampled_from(sorted(NARROWER)))
    declared = TensorDesc(wide, (1, 3, 2, 2), Format.NCHW)
    narrow = draw(st.sampled_from(NARROWER[wide]))
    cast = TransStep("Cast", declared, declared.with_dtype(narrow))
    main: Steps = (cast, transposed(cast.dst, Format.NHWC)) if draw(st.booleans()) else (cast,)
    turned = transposed(declared, Format.NHWC)
    later = (turned, TransStep("Cast", turned.dst, turned.dst.with_dtype(narrow)))
    chain = st.sampled_from((main, main, main, main[:1], later, ()))
    graphs = []
    for _ in range(draw(st.integers(1, 3))):
        readers = tuple(draw(st.lists(chain, max_size=2)))
        writer = draw(st.sampled_from(WRITERS))
        behind = Behind("variable", ()) if writer != "none" and draw(st.booleans()) else None
        graphs.append({"w": Use(readers, writer, draw(chain), behind)})
    order = draw(st.lists(st.integers(0, len(graphs) - 1), min_size=1, max_size=4))
    return Plan({"w": declared}, tuple(graphs), tuple(order), rough=True)


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
    behind = draw(seconds(declared, main)) if writer != "none" and draw(st.booleans()) else None
    return Use(tuple(readers), writer, steps, behind)


@st.composite
def seconds(draw: st.DrawFn, declared: TensorDesc, main: Steps) -> Behind:
    reads = []
    for _ in range(draw(st.integers(0, 3))):
        chain = main if draw(st.integers(0, 3)) else draw(chains(declared))
        reads.append(LateRead(draw(st.sampled_from(SOURCES)), chain, draw(st.sampled_from(TIMES)), draw(st.booleans())))
    return Behind(draw(st.sampled_from(("variable", "first", "reference"))), tuple(reads), draw(st.booleans()))


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
        variable.set_init_value(rough_numbers(declared) if plan.rough else numbers(declared))
        reads = []
        for index, steps in enumerate(use.readers):
            port = _convert(graph, variable.out(), steps, f"{name}_r{index}")
            reads.append(_apply(graph, "Abs", f"{name}_read{index}", port))
        outputs += reads
        first, stored = _written(graph, name, variable, use, reads)
        refs += [stored] if stored is not None else []
        if use.behind is not None and first is not None and stored is not None:
            late, last = _read_behind(graph, variable, use, first, stored)
            outputs += late
            refs.append(last)
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


def _written(
    graph: Graph, name: str, variable: OpDesc, use: Use, reads: list[Port]
) -> tuple[Port | None, OpDesc | None]:
    """What a writer gives, and the node that must run; readers come before it, so that no order is left open."""
    declared = variable.output_descs[0]
    steps = use.writer_steps
    back = tuple(step.swapped() for step in reversed(steps))
    if use.writer == "none":
        return None, None
    if use.writer in ("add", "assign"):
        delta = _constant(graph, f"{name}_delta", declared)
        type = "AssignAdd" if use.writer == "add" else "Assign"
        writer = graph.create(type, f"{name}_upd", output_descs=[declared])
        feed(graph, writer, variable.out(), _apply(graph, "Abs", f"{name}_value", delta))
        _after(graph, reads, writer)
        return writer.out(), writer
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
    return stored, ref


def _read_behind(graph: Graph, variable: OpDesc, use: Use, first: Port, stored: OpDesc) -> tuple[list[Port], OpDesc]:
    """The outputs around a second write, and its writer. Each reader and each writer is ordered with the second one."""
    assert use.behind is not None
    name, declared = variable.name, variable.output_descs[0]
    by_reference = use.behind.through == "first"
    steps = use.writer_steps if by_reference and stored.is_variable else ()
    more = _convert(graph, _constant(graph, f"{name}_more", declared), steps, f"{name}_with_more")
    reference = _apply(graph, "RefIdentity", f"{name}_reference", variable.out())
    port = first if by_reference and not stored.is_variable else variable.out()
    port = reference if use.behind.through == "reference" else port
    port = _convert(graph, port, steps, f"{name}_again")
    writer = feed(graph, graph.create("AssignAdd", f"{name}_second", output_descs=[more.desc]), port, more)
    graph.add_control(stored, graph.node(f"{name}_again_0") if steps else writer)
    last = writer
    if steps:
        last = graph.create("Variable", f"{name}_last", attrs={"ref_var_src_var_name": name}, output_descs=[declared])
        back = tuple(step.swapped() for step in reversed(steps))
        feed(graph, last, _convert(graph, writer.out(), back, f"{name}_last"))
    sources = {"variable": variable.out(), "first": first, "second": writer.out(), "reference": reference}
    outputs = []
    for number, read in enumerate(use.behind.reads):
        port, label = sources[read.source], f"{name}_late{number}"
        steps = read.steps if port.desc.same_storage(declared) else ()
        steps += tuple(step.swapped() for step in reversed(steps)) if read.returns else ()
        early = read.when in ("between", "kept") and read.source != "second"
        if read.when == "end":
            outputs.append(port)
        elif read.when == "data" and port.desc.same_storage(declared) and last is writer:
            behind = _apply(graph, "Neg", f"{label}_behind", writer.out())
            outputs.append(feed(graph, graph.create("Add", label, output_descs=[declared]), port, behind).out())
        else:
            end = _convert(graph, port, steps, label)
            out = _apply(graph, "Abs", label, end)
            begin = graph.node(f"{label}_0") if steps else out.node
            graph.add_control(stored if early else last, begin)
            if early:
                graph.add_control(end.node if steps and read.when == "kept" else out.node, writer)
            outputs.append(out)
    if use.behind.third and first.desc.same_storage(declared) and not stored.is_variable:
        third = graph.create("AssignAdd", f"{name}_third", output_descs=[declared])
        feed(graph, third, first, _constant(graph, f"{name}_third_delta", declared))
        for before in dict.fromkeys((last, *(port.node for port in outputs))):
            if before is not variable and before.type != "RefIdentity":
                graph.add_control(before, third)
        last = third
    return outputs, last


def _after(graph: Graph, reads: list[Port], writer: OpDesc) -> None:
    for port in reads:
        graph.add_control(port.node, writer)


def numbers(desc: TensorDesc) -> Weight:
    """Small whole numbers: every float type holds them, and their sums, exactly."""
    return Weight.of((np.arange(desc.elements) % 19 - 9).astype(desc.dtype.numpy).reshape(desc.shape), desc)


def rough_numbers(desc: TensorDesc) -> Weight:
    """Numbers that a cast to a narrower type changes."""
    values = (np.arange(desc.elements) - 4) * (7919 if desc.dtype.is_integer else 0.3)
    return Weight.of(values.astype(desc.dtype.numpy).reshape(desc.shape), desc)


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
