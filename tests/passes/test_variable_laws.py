"""Laws of the variable passes: they never change what a graph computes, and a second run changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph, feed
from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.text import text
from gecli.ir.verify import verify
from gecli.ir.weight import Weight
from gecli.layout.platform import platform_of
from gecli.layout.storage_shape import storage_shape
from gecli.ops.evaluate import evaluate_graph
from gecli.passes.base import Pass, PassContext
from gecli.passes.cancel_inverse_trans import CancelInverseTrans
from gecli.passes.facts import check
from gecli.passes.recover_trans_roads import RecoverTransRoads
from gecli.passes.ref_identity_delete import RefIdentityDelete
from gecli.passes.trans_ops import add_shape_input, node_of
from gecli.passes.variable_op import VariableOp
from gecli.passes.variable_prepare import VariablePrepare
from gecli.passes.variable_ref_delete import VariableRefDelete
from gecli.passes.variable_ref_useless_control_out_delete import VariableRefUselessControlOutDelete
from gecli.variables.rebuild_control import RebuildControl
from gecli.variables.trans_road import TransStep
from gecli.variables.var_manager import VarManager

Array = NDArray[np.generic]
PASSES: tuple[Pass, ...] = (
    RecoverTransRoads(),
    VariableOp(),
    CancelInverseTrans(),
    VariableRefUselessControlOutDelete(),
    RefIdentityDelete(),
    VariableRefDelete(),
)


@dataclass(frozen=True)
class Plan:
    """A variable, the conversions each reader puts before its work, and who writes the variable how."""

    declared: TensorDesc
    chain: tuple[TransStep, ...]
    reader_depths: tuple[int, ...]  # how many steps of the chain each reader takes
    odd_reader: TransStep | None  # one more reader with a conversion of its own
    writer_depth: int | None  # an AssignAdd in the form after so many steps
    stored_back: tuple[TransStep, ...] | None  # a value is stored, which comes out of these steps backwards


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    dims = draw(st.sampled_from(((2, 2, 2, 2), (1, 3, 2, 2), (4, 17, 1, 3))))
    dtype = draw(st.sampled_from((DataType.FLOAT16, DataType.FLOAT, DataType.INT32)))
    fmt = draw(st.sampled_from((Format.NCHW, Format.NHWC, Format.HWCN)))
    declared = TensorDesc(dtype, dims, fmt)
    chain = draw(chains(declared))
    depth = st.integers(0, len(chain))
    depths = draw(st.one_of(st.just([len(chain)] * 2), st.lists(depth, min_size=1, max_size=3)))
    odd = draw(st.sampled_from((None, None, None, *_possible_steps(declared))))
    if chain and chain[0].type == "TransposeD" and draw(st.booleans()):
        odd = TransStep("TransposeD", declared, chain[0].dst, {"perm": draw(st.permutations(range(4)))})
        odd = odd if tuple(dims[axis] for axis in odd.attrs["perm"]) == chain[0].dst.shape else None
    writer = draw(st.sampled_from((None, "add", "add whole", "store", "store other")))
    return Plan(
        declared,
        chain,
        tuple(depths),
        odd,
        {"add": draw(depth), "add whole": len(chain)}.get(writer or ""),
        {"store": chain, "store other": draw(chains(declared))}.get(writer or ""),
    )


@st.composite
def chains(draw: st.DrawFn, declared: TensorDesc) -> tuple[TransStep, ...]:
    chain: list[TransStep] = []
    for _ in range(draw(st.integers(0, 3))):
        chain.append(draw(st.sampled_from(_possible_steps(chain[-1].dst if chain else declared))))
    return tuple(chain)


def _possible_steps(src: TensorDesc) -> list[TransStep]:
    steps = []
    if src.dtype is DataType.FLOAT16:
        steps.append(TransStep("Cast", src, src.with_dtype(DataType.FLOAT)))
    if src.dtype is DataType.INT32:
        steps.append(TransStep("Cast", src, src.with_dtype(DataType.INT64)))
    flat = TensorDesc(src.dtype, (src.elements,), Format.ND)
    steps.append(TransStep("Reshape", src, flat))
    if src.format in (Format.NCHW, Format.NHWC, Format.HWCN) and len(src.shape) == 4:
        steps += [_transposed(src, fmt) for fmt in (Format.NCHW, Format.NHWC, Format.HWCN) if fmt != src.format]
        if src.dtype is not DataType.INT64:
            target = Format.FRACTAL_Z if src.format == Format.HWCN else Format.NC1HWC0
            steps.append(TransStep("TransData", src, _blocked(src, target)))
    return steps


def _transposed(src: TensorDesc, fmt: Format) -> TransStep:
    perm = tuple(src.format.name.index(letter) for letter in fmt.name)
    return TransStep("TransposeD", src, TensorDesc(src.dtype, tuple(src.shape[a] for a in perm), fmt), {"perm": perm})


def _blocked(src: TensorDesc, target: Format) -> TensorDesc:
    fmt = target.with_c0(8 if src.dtype is DataType.FLOAT else 16)
    return src.with_format(fmt, storage_shape(src.format, src.shape, fmt, src.dtype, platform_of("Ascend910B1")))


def build(plan: Plan) -> Graph:
    graph = Graph("g")
    variable = graph.create("Variable", "w", output_descs=[plan.declared])
    variable.set_init_value(_numbers(plan.declared))
    readers = [plan.chain[:depth] for depth in plan.reader_depths]
    if plan.odd_reader is not None:
        readers.append((plan.odd_reader,))
    outputs = []
    for number, steps in enumerate(readers):
        port = _convert(graph, variable.out(), steps, f"r{number}")
        outputs.append(_apply(graph, "Abs", f"read{number}", port))
    stored = _written(graph, plan)
    if stored is not None:
        attrs = {"ref_var_src_var_name": "w"}
        feed(graph, graph.create("Variable", "w_REF", attrs=attrs, output_descs=[plan.declared]), stored)
        graph.set_outputs([*outputs, _apply(graph, "Neg", "value", stored)])
        graph.add_control(graph.node("w_REF"), graph.node("Node_Output"))
        return graph
    graph.set_outputs(outputs)
    return graph


def _written(graph: Graph, plan: Plan) -> Port | None:
    """The port that the variable takes its new value from."""
    if plan.writer_depth is not None:
        steps = plan.chain[: plan.writer_depth]
        port = _convert(graph, graph.node("w").out(), steps, "into")
        result = feed(graph, graph.create("AssignAdd", "upd", output_descs=[port.desc]), port, port).out()
    elif plan.stored_back is not None:
        steps = plan.stored_back
        desc = steps[-1].dst if steps else plan.declared
        # Padding of a blocked form is zero, so the value is made in the declared form first.
        weight = _numbers(plan.declared)
        source = graph.create("Const", "new", attrs={"value": weight}, output_descs=[plan.declared]).out()
        result = _apply(graph, "Abs", "made", _convert(graph, source, steps, "make"))
        assert result.desc.same_storage(desc)
    else:
        return None
    return _convert(graph, result, tuple(step.swapped() for step in reversed(steps)), "back")


def _numbers(desc: TensorDesc) -> Weight:
    return Weight.of((np.arange(desc.elements) % 19 - 9).astype(desc.dtype.numpy).reshape(desc.shape), desc)


def _apply(graph: Graph, type: str, name: str, port: Port) -> Port:
    return feed(graph, graph.create(type, name, output_descs=[port.desc]), port).out()


def _convert(graph: Graph, port: Port, steps: Sequence[TransStep], name: str) -> Port:
    for number, step in enumerate(steps):
        node = graph.add(node_of(step, f"{name}_{number}", port.node))
        graph.connect(port, node, 0)
        add_shape_input(graph, node)
        port = node.out()
    return port


def context() -> PassContext:
    return PassContext(platform_of("Ascend910B1"), VarManager(), RebuildControl())


def run_all(graph: Graph, ctx: PassContext) -> None:
    for step in PASSES:
        step.run(graph, ctx)
        assert not verify(graph)
        assert not [problem for fact in step.ensures for problem in check(graph, fact)]


def in_user_form(value: Array, ctx: PassContext, declared: TensorDesc) -> Array:
    road = ctx.variables.trans_road("w")
    if not road:
        return value
    back = road.inverse()
    assert back is not None
    return back.replay(value)


@settings(max_examples=150, deadline=None)
@given(plans())
def test_acceleration_changes_no_output_and_no_variable(plan: Plan) -> None:
    graph, ctx = build(plan), context()
    assert not verify(graph)
    expected, before = evaluate_graph(graph, {})
    # Writes through refs are evaluated at the ref; afterwards the marked outputs are what is stored.
    for step in PASSES[:4]:
        step.run(graph, ctx)
        assert not verify(graph)
    outputs, after = evaluate_graph(graph, {})
    for a, b in zip(expected, outputs, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(before["w"], in_user_form(after["w"], ctx, plan.declared))


@settings(max_examples=60, deadline=None)
@given(plans())
def test_every_pass_changes_nothing_the_second_time(plan: Plan) -> None:
    graph, ctx = build(plan), context()
    for step in (VariablePrepare(), *PASSES):
        step.run(graph, ctx)
        once = text(graph)
        assert not +step.run(graph, ctx)
        assert text(graph) == once


@settings(max_examples=80, deadline=None)
@given(plans(), plans())
def test_a_second_graph_sees_the_variable_of_the_first(first: Plan, second: Plan) -> None:
    second = _on_chain_of(first, second)
    ctx = context()
    one, two = build(first), build(second)
    run_all(one, ctx)
    expected, before = evaluate_graph(build(second), {})
    ctx.graph_id = 2
    for step in PASSES[:4]:
        step.run(two, ctx)
        assert not verify(two)
    outputs, after = evaluate_graph(two, {})
    for a, b in zip(expected, outputs, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(before["w"], in_user_form(after["w"], ctx, first.declared))


def _on_chain_of(other: Plan, plan: Plan) -> Plan:
    """The readers and writers of `plan`, on the conversions of `other`."""
    longest = len(other.chain)
    writer = None if plan.writer_depth is None else min(plan.writer_depth, longest)
    stored = None if plan.stored_back is None else other.chain
    depths = tuple(min(depth, longest) for depth in plan.reader_depths)
    return Plan(other.declared, other.chain, depths, other.odd_reader, writer, stored)
