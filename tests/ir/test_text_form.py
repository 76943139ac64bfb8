"""The text form: printing and parsing are inverse, faults name the line."""

from __future__ import annotations

from textwrap import dedent

import pytest

from gecli.ir.format import Format
from gecli.ir.text import TextError, parse, parse_desc, text
from gecli.ir.verify import verify

WHOLE = dedent("""
    graph g(%x : f16[1,64,8,8] NCHW, %"in put:0" : f16[1,64,8,8] NCHW) {
      %w = Variable() {_init_value=[1.0, 2.0]} : f16[2] ND
      %c = Const() {value=[1.5]} : f32[1] ND
      %a = TransData(%w) {dst_format=FRACTAL_Z, groups=1, src_format=NCHW} : f16[36,4,16,16] FRACTAL_Z origin [64,64,3,3] NCHW
      %p = Conv2D(%x, %a, _) {d=DT_FLOAT, l=[[1, 2], [3]], q=1.0, s="hi"} : f16[1,64,6,6] NCHW, f32[?,2] ND after %w
      %q = Relu(%p:1) : f32[*] ND
      return %p, %q, %p:1 after %c
    }
""").lstrip()  # noqa: E501


def test_printing_a_parsed_text_gives_the_text() -> None:
    assert text(parse(WHOLE)) == WHOLE


def test_a_parsed_graph_is_sound() -> None:
    assert verify(parse(WHOLE)) == []


def test_c0_follows_from_the_last_dim_of_a_blocked_format() -> None:
    desc = parse_desc("f32[72,8,16,8] FRACTAL_Z origin [3,3,64,128] HWCN")
    assert desc.format == Format.FRACTAL_Z.with_c0(8)
    assert desc.origin_format == Format.HWCN


def test_lines_may_come_in_any_order() -> None:
    graph = parse("graph g(%x : f32[2] ND) { %b = Relu(%a) : f32[2] ND\n %a = Relu(%x) : f32[2] ND\n return %b }")
    assert [node.name for node in graph.nodes()] == ["x", "a", "b", "Node_Output"]


def test_copies_print_alike_and_share_nothing() -> None:
    graph = parse(WHOLE)
    twin = graph.copy()
    twin.remove(twin.node("q"))
    assert text(graph) == WHOLE
    assert verify(twin) == []


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("graph g() {\n %a = Relu(%b) : f32[1] ND\n}", "no node 'b'"),
        ("graph g() {\n %a = Relu( : f32[1]\n}", "line 2"),
        ("graph g() {\n %a = Relu() : f99[1] ND\n}", "'f99' is not a data type"),
        ("", "holds no graph"),
    ],
)
def test_a_fault_says_where_it_is(source: str, part: str) -> None:
    with pytest.raises(TextError, match=part):
        parse(source)
