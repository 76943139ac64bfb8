"""Neighbouring conversions that undo each other go right after insertion."""

from __future__ import annotations

import pytest

from gecli.engine.trans_merge import merge_inverse_pairs
from gecli.ir.graph import Graph
from gecli.ir.text import parse, text
from gecli.ir.verify import verify

BLOCKED = "f16[1,2,2,2,16] NC1HWC0 origin [1,20,2,2] NCHW"


def pair(first: str, between: str, second: str, desc: str = "f16[1,20,2,2] NCHW") -> Graph:
    return parse(f"""
        graph g(%x : {desc}) {{
          %s = Relu(%x) : {desc}
          %a = {first.format("%s")} : {between}
          %b = {second.format("%a")} : {desc}
          %y = Relu(%b) : {desc}
          return %y
        }}
    """)


@pytest.mark.parametrize(
    ("first", "between", "second"),
    [
        (
            "TransData({}) {{src_format=NCHW, dst_format=NC1HWC0}}",
            BLOCKED,
            "TransData({}) {{src_format=NC1HWC0, dst_format=NCHW}}",
        ),
        ("Cast({}) {{dst_type=0}}", "f32[1,20,2,2] NCHW", "Cast({}) {{dst_type=1}}"),
        ("TransposeD({}) {{perm=[0, 2, 3, 1]}}", "f16[1,2,2,20] NHWC", "TransposeD({}) {{perm=[0, 3, 1, 2]}}"),
        ("ReFormat({})", "f16[1,20,2,2] ND", "ReFormat({})"),
    ],
)
def test_a_pair_that_cancels_is_bypassed(first: str, between: str, second: str) -> None:
    graph = pair(first, between, second)
    assert merge_inverse_pairs(graph) == 1
    assert [node.name for node in graph.nodes()] == ["x", "s", "y", "Node_Output"]
    assert verify(graph) == []
    assert merge_inverse_pairs(graph) == 0


def test_a_pair_of_casts_that_rounds_stays() -> None:
    graph = pair("Cast({}) {{dst_type=1}}", "f16[4] ND", "Cast({}) {{dst_type=0}}", desc="f32[4] ND")
    assert merge_inverse_pairs(graph) == 0


def test_the_engines_own_rounding_casts_go_in_the_aggressive_mode() -> None:
    graph = parse("""
        graph g(%x : f32[4] ND) {
          %s = Relu(%x) : f32[4] ND
          %trans_Cast_0 = Cast(%s) {dst_type=1} : f16[4] ND
          %trans_Cast_1 = Cast(%trans_Cast_0) {dst_type=0} : f32[4] ND
          %y = Relu(%trans_Cast_1) : f32[4] ND
          return %y
        }
    """)
    assert merge_inverse_pairs(graph) == 0
    assert merge_inverse_pairs(graph, aggressive=True) == 1


def test_the_first_of_a_pair_stays_for_its_other_readers() -> None:
    graph = pair("Cast({}) {{dst_type=0}}", "f32[1,20,2,2] NCHW", "Cast({}) {{dst_type=1}}")
    graph.set_outputs([graph.node("y").out(), graph.node("a").out()])
    assert merge_inverse_pairs(graph) == 1
    assert [node.name for node in graph.nodes()] == ["x", "s", "a", "y", "Node_Output"]


def test_transposes_that_are_not_inverse_stay() -> None:
    graph = pair("TransposeD({}) {{perm=[0, 1, 3, 2]}}", "f16[1,20,2,2] NCHW", "TransposeD({}) {{perm=[0, 1, 2, 3]}}")
    assert merge_inverse_pairs(graph) == 0


def test_nested_pairs_go_from_the_inside() -> None:
    graph = parse("""
        graph g(%x : f16[1,20,2,2] NCHW) {
          %s = Relu(%x) : f16[1,20,2,2] NCHW
          %a = Cast(%s) {dst_type=0} : f32[1,20,2,2] NCHW
          %b = TransposeD(%a) {perm=[0, 2, 3, 1]} : f32[1,2,2,20] NHWC
          %c = TransposeD(%b) {perm=[0, 3, 1, 2]} : f32[1,20,2,2] NCHW
          %d = Cast(%c) {dst_type=1} : f16[1,20,2,2] NCHW
          %y = Relu(%d) : f16[1,20,2,2] NCHW
          return %y
        }
    """)
    assert merge_inverse_pairs(graph) == 2
    assert "Cast" not in text(graph) and "TransposeD" not in text(graph)
