"""Origin format inference spreads layouts from the operators that state them."""

from __future__ import annotations

import pytest

from gecli.engine.origin_format import infer_origin_formats
from gecli.ir.text import parse, text

ATTRS = 'strides=[1, 1, 1, 1], pads=[0, 0, 0, 0], data_format="NCHW"'


def layouts(body: str) -> dict[str, str]:
    graph = parse(f"graph g(%x : f32[1,3,8,8] ND) {{\n{body}\n}}")
    infer_origin_formats(graph)
    return {node.name: node.output_descs[0].format.name for node in graph.nodes() if node.output_descs}


def test_a_convolution_names_the_layout_of_its_input_filter_and_output() -> None:
    found = layouts(f"""
        %w = Variable() : f32[4,3,1,1] ND
        %b = Variable() : f32[4] ND
        %y = Conv2D(%x, %w, %b) {{{ATTRS}}} : f32[1,4,8,8] ND
        return %y
    """)
    assert found == {"x": "NCHW", "w": "NCHW", "b": "ND", "y": "NCHW"}


def test_nhwc_goes_with_hwcn_filters() -> None:
    attrs = ATTRS.replace("NCHW", "NHWC")
    found = layouts(
        f"%w = Variable() : f32[1,1,8,4] ND\n %y = Conv2D(%x, %w) {{{attrs}}} : f32[1,3,8,4] ND\n return %y"
    )
    assert (found["x"], found["w"]) == ("NHWC", "HWCN")


@pytest.mark.parametrize(
    ("body", "node", "expected"),
    [
        ("%a = Relu(%x) : f32[1,3,8,8] ND\n %y = Conv2D(%a, %w) {ATTRS} : f32[1,4,8,8] ND", "x", "NCHW"),
        ("%c = Conv2D(%x, %w) {ATTRS} : f32[1,4,8,8] ND\n %y = Relu(%c) : f32[1,4,8,8] ND", "y", "NCHW"),
        ("%c = Conv2D(%x, %w) {ATTRS} : f32[1,4,8,8] ND\n %y = PadV3(%c) : f32[1,4,9,9] ND", "y", "NCHW"),
        ("%c = Conv2D(%x, %w) {ATTRS} : f32[1,4,8,8] ND\n %y = Reshape(%c) : f32[4,4,4,4] ND", "y", "ND"),
        ("%c = Conv2D(%x, %w) {ATTRS} : f32[1,4,8,8] ND\n %y = TransposeD(%c) {perm=[0, 2, 3, 1]} : f32[1,8,8,4] ND",
         "y", "ND"),
        ("%c = Conv2D(%x, %w) {ATTRS} : f32[1,4,8,8] ND\n %y = ReduceMeanD(%c) {axes=[2, 3]} : f32[1,4] ND", "y", "ND"),
        ("%z = Variable() : f32[1,4,8,8] NHWC\n %c = Conv2D(%x, %w) {ATTRS} : f32[1,4,8,8] ND\n"
         " %y = Add(%c, %z) : f32[1,4,8,8] ND", "z", "NHWC"),
    ],
)  # fmt: skip
def test_layouts_spread_where_axes_keep_their_meaning(body: str, node: str, expected: str) -> None:
    source = "%w = Variable() : f32[4,3,1,1] ND\n" + body.replace("ATTRS", ATTRS) + "\nreturn %y"
    assert layouts(source)[node] == expected


def test_inputs_have_the_format_of_what_feeds_them_and_a_second_run_changes_nothing() -> None:
    graph = parse(f"""
        graph g(%x : f32[1,3,8,8] ND) {{
          %w = Variable() : f32[4,3,1,1] ND
          %y = Conv2D(%x, %w) {{{ATTRS}}} : f32[1,4,8,8] ND
          return %y
        }}
    """)
    assert infer_origin_formats(graph) == 3
    for node in graph.nodes():
        for port, desc in zip(node.inputs, node.input_descs):
            assert port is not None and desc is not None and desc.format == port.desc.format
    before = text(graph)
    assert infer_origin_formats(graph) == 0
    assert text(graph) == before
