"""Trans insertion: which nodes stand between two descriptors, their names and their order."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest

from gecli.engine.trans_insert import conversion_steps, insert_trans_nodes
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.text import parse, parse_desc, text
from gecli.ir.verify import verify
from gecli.layout.platform import platform_of
from gecli.layout.transforms import convert
from gecli.ops.evaluate import evaluate_node

B1 = platform_of("Ascend910B1")

# (from, to, what stands between); formats.md 5.5
ROWS = [
    ("f16[2,20,3,4] NCHW", "f16[2,2,3,4,16] NC1HWC0 origin [2,20,3,4] NCHW", "TransData:NC1HWC0"),
    ("f16[2,3,4,20] NHWC", "f16[2,2,3,4,16] NC1HWC0 origin [2,3,4,20] NHWC", "TransData:NC1HWC0"),
    (
        "f16[3,4,20,2] HWCN",
        "f16[2,2,3,4,16] NC1HWC0 origin [3,4,20,2] HWCN",
        "TransposeD:NCHW TransData:NC1HWC0",
    ),
    (
        "f16[20,3,4,2] CHWN",
        "f16[2,2,3,4,16] NC1HWC0 origin [20,3,4,2] CHWN",
        "TransposeD:NCHW TransData:NC1HWC0",
    ),
    ("f16[20,1,1] ND", "f16[1,2,1,1,16] NC1HWC0 origin [1,20,1,1] NCHW", "UnsqueezeV2:NCHW TransData:NC1HWC0"),
    ("f16[17,20,3,3] NCHW", "f16[18,2,16,16] FRACTAL_Z origin [17,20,3,3] NCHW", "TransData:FRACTAL_Z"),
    ("f16[3,3,20,17] HWCN", "f16[18,2,16,16] FRACTAL_Z origin [3,3,20,17] HWCN", "TransData:FRACTAL_Z"),
    (
        "f16[17,3,3,20] NHWC",
        "f16[18,2,16,16] FRACTAL_Z origin [17,3,3,20] NHWC",
        "TransposeD:HWCN TransData:FRACTAL_Z",
    ),
    (
        "f16[20,3,3,17] CHWN",
        "f16[18,2,16,16] FRACTAL_Z origin [20,3,3,17] CHWN",
        "TransposeD:HWCN TransData:FRACTAL_Z",
    ),
    (
        "f16[32,1,3,3] NCHW",
        "f16[18,1,16,16] FRACTAL_Z:32 origin [32,1,3,3] NCHW",
        "TransposeD:HWCN TransData:FRACTAL_Z:32",
    ),
    ("f16[20,30] ND", "f16[2,2,16,16] FRACTAL_NZ origin [20,30] ND", "TransData:FRACTAL_NZ"),
    ("f16[2,3,4,20] NCHW", "f16[2,3,2,1,16,16] FRACTAL_NZ origin [2,3,4,20] NCHW", "ReFormat:ND TransData:FRACTAL_NZ"),
    ("f16[2,2,3,4,16] NC1HWC0 origin [2,20,3,4] NCHW", "f16[2,20,3,4] NCHW", "TransData:NCHW"),
    ("f16[2,2,3,4,16] NC1HWC0 origin [2,3,4,20] NHWC", "f16[2,3,4,20] NHWC", "TransData:NHWC"),
    (
        "f16[2,2,3,4,16] NC1HWC0 origin [3,4,20,2] HWCN",
        "f16[3,4,20,2] HWCN",
        "TransData:NCHW TransposeD:HWCN",
    ),
    ("f16[18,2,16,16] FRACTAL_Z origin [3,3,20,17] HWCN", "f16[3,3,20,17] HWCN", "TransData:HWCN"),
    ("f16[18,2,16,16] FRACTAL_Z origin [17,20,3,3] NCHW", "f16[17,20,3,3] NCHW", "TransData:NCHW"),
    (
        "f16[18,2,16,16] FRACTAL_Z origin [17,3,3,20] NHWC",
        "f16[17,3,3,20] NHWC",
        "TransData:NCHW TransposeD:NHWC",
    ),
    ("f16[2,2,16,16] FRACTAL_NZ origin [20,30] ND", "f16[20,30] ND", "TransData:ND"),
    ("f16[2,3,2,1,16,16] FRACTAL_NZ origin [2,3,4,20] NCHW", "f16[2,3,4,20] NCHW", "TransData:ND ReFormat:NCHW"),
    (
        "f16[2,2,3,4,16] NC1HWC0 origin [2,20,3,4] NCHW",
        "f16[24,1,16,16] FRACTAL_Z origin [2,20,3,4] NCHW",
        "TransData:NCHW TransData:FRACTAL_Z",
    ),
    ("f16[2,3,4,20] NHWC", "f16[2,20,3,4] NCHW", "TransposeD:NCHW"),
    # Casts: before the TransData into a narrower type or another C0, behind it out of a device format.
    (
        "f32[2,20,3,4] NCHW",
        "f16[2,2,3,4,16] NC1HWC0 origin [2,20,3,4] NCHW",
        "Cast:NCHW TransData:NC1HWC0",
    ),
    ("f16[2,2,3,4,16] NC1HWC0 origin [2,20,3,4] NCHW", "f32[2,20,3,4] NCHW", "TransData:NCHW Cast:NCHW"),
    ("f16[2,20,3,4] NCHW", "f32[2,3,3,4,8] NC1HWC0 origin [2,20,3,4] NCHW", "Cast:NCHW TransData:NC1HWC0"),
    ("f16[2,20,3,4] NCHW", "f32[2,2,3,4,16] NC1HWC0 origin [2,20,3,4] NCHW", "TransData:NC1HWC0 Cast:NC1HWC0"),
    ("f32[2,3,3,4,8] NC1HWC0 origin [2,20,3,4] NCHW", "f16[2,20,3,4] NCHW", "Cast:NC1HWC0 TransData:NCHW"),
    ("bf16[2,20,3,4] NCHW", "f16[2,2,3,4,16] NC1HWC0 origin [2,20,3,4] NCHW", "Cast:NCHW TransData:NC1HWC0"),
    (
        "f32[2,3,3,4,8] NC1HWC0 origin [2,20,3,4] NCHW",
        "f16[2,2,3,4,16] NC1HWC0 origin [2,20,3,4] NCHW",
        "Cast:NC1HWC0 TransData:NCHW TransData:NC1HWC0",
    ),
    ("f32[4,4] ND", "f16[4,4] ND", "Cast:ND"),
    ("f16[2,20] ND", "f16[2,20] ND", ""),
]


@pytest.mark.parametrize(("source", "target", "between"), ROWS)
def test_each_pair_of_formats_has_its_chain(source: str, target: str, between: str) -> None:
    steps = conversion_steps(parse_desc(source), parse_desc(target), B1)
    assert " ".join(f"{step.type}:{step.desc.format.name}" for step in steps) == between


def filled(desc: TensorDesc) -> np.ndarray:
    """The desc's tensor in its origin form, stored as the desc says: small whole numbers, padding zero."""
    logical = np.arange(np.prod(desc.logical_shape), dtype=np.float64) % 97 - 40
    plain = desc.logical()
    return convert(logical.reshape(plain.shape).astype(plain.dtype.numpy), plain, desc)


@pytest.mark.parametrize(("source", "target", "between"), ROWS)
def test_the_chain_computes_the_target_from_the_source(source: str, target: str, between: str) -> None:
    src, dst = parse_desc(source), parse_desc(target)
    value, desc = filled(src), src
    for step in conversion_steps(src, dst, B1):
        node = OpDesc("t", step.type, attrs=step.attrs, input_descs=[desc], output_descs=[step.desc])
        value, desc = evaluate_node(node, [value])[0], step.desc
        assert value.shape == desc.shape
    assert desc.same_storage(dst)
    if src.logical_shape == dst.logical_shape and src.logical_format == dst.logical_format:
        np.testing.assert_array_equal(value, filled(dst))


def differing() -> Graph:
    """x feeds a node that wants FLOAT16 NC1HWC0 and one that takes it as it is."""
    graph = parse("""
        graph g(%x : f32[1,20,2,2] NCHW) {
          %a = Relu(%x) : f32[1,20,2,2] NCHW
          %b = Relu(%x) : f32[1,20,2,2] NCHW
          return %a, %b
        }
    """)
    blocked = parse_desc("f16[1,2,2,2,16] NC1HWC0 origin [1,20,2,2] NCHW")
    node = graph.node("b")
    node.input_descs[0] = node.output_descs[0] = blocked
    return graph


def test_one_counter_numbers_all_nodes_along_each_edge() -> None:
    graph = differing()
    assert insert_trans_nodes(graph, B1) == {"Cast": 2, "TransData": 2}
    there = "{dst_format=NC1HWC0, dst_subformat=0, groups=1, src_format=NCHW, src_subformat=0}"
    back = "{dst_format=NCHW, dst_subformat=0, groups=1, src_format=NC1HWC0, src_subformat=0}"
    blocked = "f16[1,2,2,2,16] NC1HWC0 origin [1,20,2,2] NCHW"
    assert text(graph) == dedent(f"""\
        graph g(%x : f32[1,20,2,2] NCHW) {{
          %a = Relu(%x) : f32[1,20,2,2] NCHW
          %trans_Cast_0 = Cast(%x) {{dst_type=1}} : f16[1,20,2,2] NCHW
          %trans_TransData_1 = TransData(%trans_Cast_0) {there} : {blocked}
          %b = Relu(%trans_TransData_1) : {blocked}
          %trans_TransData_2 = TransData(%b) {back} : f16[1,20,2,2] NCHW
          %trans_Cast_3 = Cast(%trans_TransData_2) {{dst_type=0}} : f32[1,20,2,2] NCHW
          return %a, %trans_Cast_3
        }}
    """)
    assert verify(graph) == []


def test_a_second_insertion_finds_nothing_to_do() -> None:
    graph = differing()
    insert_trans_nodes(graph, B1)
    before = text(graph)
    assert not insert_trans_nodes(graph, B1)
    assert text(graph) == before


def test_an_edge_that_differs_in_the_name_of_the_layout_only_takes_the_producers() -> None:
    graph = parse("graph g(%x : f32[1,2,3,4] NCHW) { %a = Relu(%x) : f32[1,2,3,4] NCHW\n return %a }")
    graph.node("a").input_descs[0] = parse_desc("f32[1,2,3,4] ND")
    assert not insert_trans_nodes(graph, B1)
    assert graph.node("a").input_descs[0] == graph.node("x").output_descs[0]


def test_a_conversion_of_a_variable_waits_for_the_writes_that_its_consumer_waits_for() -> None:
    graph = parse("""
        graph g(%v : f16[4] ND) {
          %w = Variable() : f32[4] ND
          %assign = Assign(%w, %v) : f32[4] ND
          %y = Relu(%w) : f32[4] ND after %assign
          return %y
        }
    """)
    graph.node("y").input_descs[0] = parse_desc("f16[4] ND")
    graph.node("assign").input_descs[1] = parse_desc("f32[4] ND")
    insert_trans_nodes(graph, B1)
    cast = graph.node("y").data_inputs[0].node
    assert cast.type == "Cast"
    assert [node.name for node in cast.control_in] == ["assign"]


def test_a_cast_names_its_target_type_by_ges_number() -> None:
    steps = conversion_steps(parse_desc("f32[4] ND"), parse_desc("bf16[4] ND"), B1)
    assert steps[0].attrs == {"dst_type": int(DataType.BF16)}
