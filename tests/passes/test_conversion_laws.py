"""Laws of the conversion passes on random graphs: the numbers stay, and a second run changes nothing."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gecli.engine.trans_insert import conversion_steps, insert_trans_nodes
from gecli.engine.trans_merge import merge_inverse_pairs
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph, feed
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.text import text
from gecli.ir.verify import verify
from gecli.layout.platform import platform_of
from gecli.layout.storage_shape import to_storage
from gecli.ops.evaluate import evaluate_graph
from gecli.passes.base import Pass, PassContext
from gecli.passes.cast_remove import CastRemove
from gecli.passes.facts import Fact, check
from gecli.passes.format_selection import FormatSelection
from gecli.passes.same_transdata_breadth_fusion import SameTransdataBreadthFusion
from gecli.passes.transop_breadth_fusion import TransOpBreadthFusion
from gecli.passes.transop_symmetry_elimination import TransOpSymmetryElimination
from gecli.passes.transop_without_reshape_fusion import TransOpWithoutReshapeFusion
from gecli.passes.transpose_transdata import TransposeTransData
from gecli.variables.rebuild_control import RebuildControl
from gecli.variables.var_manager import VarManager

B1 = platform_of("Ascend910B1")
FORMATS = (Format.NCHW, Format.NHWC, Format.HWCN, Format.NC1HWC0, Format.FRACTAL_Z)
DTYPES = (DataType.FLOAT16, DataType.FLOAT, DataType.INT32)
PASSES = (
    TransOpSymmetryElimination,
    TransOpWithoutReshapeFusion,
    TransOpBreadthFusion,
    SameTransdataBreadthFusion,
    CastRemove,
    TransposeTransData,
)
Move = tuple[int, Format, DataType, bool]  # which earlier tensor, into which form, whether a Relu follows

moves = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(FORMATS), st.sampled_from(DTYPES), st.booleans()),
    min_size=2,
    max_size=12,
)


def random_graph(plan: list[Move]) -> Graph:
    """Conversions and Relus in every storage form of one [2,3,2,5] tensor; all tensors without readers are outputs."""
    graph = Graph("g")
    first = TensorDesc(DataType.FLOAT, (2, 3, 2, 5), Format.NCHW)
    data = graph.create("Data", "x", attrs={"index": 0}, output_descs=[first])
    ports = [Port(data, 0)]
    for number, (back, fmt, dtype, relu) in enumerate(plan):
        source = ports[back % len(ports)]
        target = _stored(fmt, dtype)
        for position, step in enumerate(conversion_steps(source.desc, target, B1)):
            node = OpDesc(f"t{number}_{position}", step.type, attrs=dict(step.attrs), output_descs=[step.desc])
            source = feed(graph, graph.add(node), source).out()
        if relu:
            node = OpDesc(f"r{number}", "Relu", output_descs=[source.desc])
            source = feed(graph, graph.add(node), source).out()
        ports.append(source)
    ends = [port for port in dict.fromkeys(ports) if not port.node.users[0]]
    graph.set_outputs(ends)
    return graph


def _stored(fmt: Format, dtype: DataType) -> TensorDesc:
    # FLOAT beside 16-bit types keeps a C0 of 16, so that conversions of all types meet in one format.
    plain = TensorDesc(dtype, (2, 3, 2, 5), Format.NCHW)
    if fmt.is_origin:
        return to_storage(plain, fmt, B1) if fmt != Format.NCHW else plain
    return to_storage(plain, fmt.with_c0(16), B1)


def outputs_of(graph: Graph) -> list[np.ndarray]:
    x = (np.arange(60, dtype=np.float32).reshape(2, 3, 2, 5) - 20) * 1.0009765625
    return evaluate_graph(graph, {"x": x})[0]


def context() -> PassContext:
    return PassContext(B1, VarManager(), RebuildControl())


@pytest.mark.parametrize("kind", PASSES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=moves)
def test_a_pass_keeps_every_number_and_settles_at_once(kind: type[Pass], plan: list[Move]) -> None:
    graph = random_graph(plan)
    before = outputs_of(graph)
    kind().run(graph, context())
    assert verify(graph) == []
    assert check(graph, Fact.FORMATS_CHOSEN) == []
    for ours, theirs in zip(outputs_of(graph), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    settled = text(graph)
    counts: Counter[str] = kind().run(graph, context())
    assert text(graph) == settled
    assert not +counts


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=moves)
def test_merging_keeps_every_number(plan: list[Move]) -> None:
    graph = random_graph(plan)
    before = outputs_of(graph)
    merge_inverse_pairs(graph)
    assert verify(graph) == []
    for ours, theirs in zip(outputs_of(graph), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert merge_inverse_pairs(graph) == 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(wishes=st.lists(st.tuples(st.integers(0, 30), st.sampled_from(FORMATS), st.booleans()), min_size=1, max_size=8))
def test_insertion_into_agnostic_nodes_keeps_every_number(wishes: list[tuple[int, Format, bool]]) -> None:
    graph, plain = Graph("g"), Graph("g")
    for each in (graph, plain):
        desc = TensorDesc(DataType.FLOAT, (2, 3, 2, 5), Format.NCHW)
        ports = [Port(each.create("Data", "x", attrs={"index": 0}, output_descs=[desc]), 0)]
        for number, (back, _, add) in enumerate(wishes):
            node = each.create("Add" if add else "Neg", f"n{number}", output_descs=[desc])
            sources = [ports[back % len(ports)], ports[-1]][: 2 if add else 1]
            ports.append(feed(each, node, *sources).out())
        each.set_outputs([ports[-1]])
    for number, (_, fmt, _) in enumerate(wishes):
        node = graph.node(f"n{number}")
        wanted = _stored(fmt, DataType.FLOAT)
        node.output_descs[0] = wanted
        node.input_descs[:] = [wanted] * len(node.input_descs)
    insert_trans_nodes(graph, B1)
    assert check(graph, Fact.FORMATS_CHOSEN) == []
    assert verify(graph) == []
    np.testing.assert_array_equal(outputs_of(graph)[0], outputs_of(plain)[0])
    FormatSelection().run(graph, context())
    merged = text(graph)
    FormatSelection().run(graph, context())
    assert text(graph) == merged
    np.testing.assert_array_equal(outputs_of(graph)[0], outputs_of(plain)[0])
