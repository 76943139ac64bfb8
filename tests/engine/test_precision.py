"""Precision modes: the data types of operators (formats.md 5.3)."""

from __future__ import annotations

import pytest

from gecli.engine.precision import MODES, MixLists, select_precision
from gecli.errors import InvalidOption
from gecli.ir.graph import Graph
from gecli.ir.text import parse
from gecli.layout.platform import platform_of

B1 = platform_of("Ascend910B1")
ATTRS = 'strides=[1, 1, 1, 1], pads=[0, 0, 0, 0], data_format="NCHW"'


def network(dtype: str = "f32") -> Graph:
    return parse(f"""
        graph g(%x : {dtype}[1,4,8,8] NCHW) {{
          %w = Variable() : {dtype}[4,4,1,1] NCHW
          %conv = Conv2D(%x, %w) {{{ATTRS}}} : {dtype}[1,4,8,8] NCHW
          %relu = Relu(%conv) : {dtype}[1,4,8,8] NCHW
          %soft = SoftmaxV2(%relu) {{axes=[1]}} : {dtype}[1,4,8,8] NCHW
          %k = Const() {{value=[0]}} : i32[1] ND
          %y = GatherV2(%soft, %k, %k) : {dtype}[1,4,8,8] NCHW
          return %y
        }}
    """)


def types(graph: Graph) -> dict[str, str]:
    return {
        name: f"{graph.node(name).input_descs[0].dtype.short}>{graph.node(name).output_descs[0].dtype.short}"  # type: ignore[union-attr]  # connected
        for name in ("conv", "relu", "soft", "y")
    }


@pytest.mark.parametrize(
    ("mode", "dtype", "conv", "relu", "soft", "gather"),
    [
        ("", "f32", "f32>f32", "f32>f32", "f32>f32", "f32>f32"),
        ("must_keep_origin_dtype", "f16", "f16>f16", "f16>f16", "f16>f16", "f16>f16"),
        ("force_fp16", "f32", "f16>f16", "f16>f16", "f16>f16", "f16>f16"),
        ("force_fp16", "bf16", "f16>f16", "f16>f16", "f16>f16", "f16>f16"),
        ("force_fp32", "f16", "f32>f32", "f32>f32", "f32>f32", "f32>f32"),
        ("allow_fp32_to_fp16", "f32", "f16>f16", "f32>f32", "f32>f32", "f32>f32"),
        ("allow_fp32_to_bf16", "f32", "bf16>bf16", "f32>f32", "f32>f32", "f32>f32"),
        ("allow_mix_precision", "f32", "f16>f16", "f16>f16", "f32>f32", "f32>f32"),
        ("mixed_bfloat16", "f32", "bf16>bf16", "bf16>bf16", "f32>f32", "f32>f32"),
    ],
)
def test_a_mode_decides_each_operators_types(
    mode: str, dtype: str, conv: str, relu: str, soft: str, gather: str
) -> None:
    graph = network(dtype)
    select_precision(graph, B1, mode)
    assert types(graph) == {"conv": conv, "relu": relu, "soft": soft, "y": gather}
    assert graph.node("x").output_descs[0].dtype.short == dtype
    assert graph.node("w").output_descs[0].dtype.short == dtype
    assert graph.node("Node_Output").input_descs[0].dtype.short == dtype  # type: ignore[union-attr]  # connected


@pytest.mark.parametrize(("mode", "expected"), [("force_fp16", "f32>f32"), ("force_fp32", "f32>f32")])
def test_keep_dtype_freezes_a_node_in_every_mode_but_force_fp32(mode: str, expected: str) -> None:
    graph = network("f16" if mode == "force_fp32" else "f32")
    graph.node("conv").attrs["_keep_dtype"] = 1
    select_precision(graph, B1, mode, keep={"relu"})
    assert types(graph)["conv"] == types(graph)["relu"] == expected


def test_integers_are_never_changed() -> None:
    graph = network()
    select_precision(graph, B1, "force_fp16")
    assert [desc.dtype.short for desc in graph.node("y").input_descs if desc is not None] == ["f16", "i32", "i32"]


def test_an_optimizer_computes_in_the_type_of_its_variable() -> None:
    graph = parse("""
        graph g(%g : f32[4] ND) {
          %w = Variable() : f32[4] ND
          %lr = Const() {value=0.5} : f32[] ND
          %up = ApplyGradientDescent(%w, %lr, %g) : f32[4] ND
          return %up
        }
    """)
    select_precision(graph, B1, "force_fp16")
    assert {desc.dtype.short for desc in graph.node("up").input_descs if desc is not None} == {"f32"}


def test_a_cast_takes_what_its_producer_gives_and_keeps_its_target() -> None:
    graph = parse("""
        graph g(%x : f32[4] ND) {
          %r = Relu(%x) : f32[4] ND
          %c = Cast(%r) {dst_type=0} : f32[4] ND
          %i = Cast(%r) {dst_type=3} : i32[4] ND
          return %c, %i
        }
    """)
    select_precision(graph, B1, "force_fp16")
    for name, expected in (("c", ("f16", "f32")), ("i", ("f16", "i32"))):
        node = graph.node(name)
        assert (node.input_descs[0].dtype.short, node.output_descs[0].dtype.short) == expected  # type: ignore[union-attr]  # connected


def test_lists_of_the_user_overrule_the_built_in_ones() -> None:
    graph = network()
    lists = MixLists(white=frozenset(["SoftmaxV2"]), black=frozenset(["Conv2D"]))
    select_precision(graph, B1, "mixed_float16", lists=lists)
    assert types(graph)["conv"] == "f32>f32"
    assert types(graph)["soft"] == "f16>f16"


def test_the_filter_gradient_stays_float() -> None:
    graph = parse(f"""
        graph g(%x : f32[1,4,8,8] NCHW, %d : f32[1,4,8,8] NCHW) {{
          %n = Const() {{value=[4, 4, 1, 1]}} : i32[4] ND
          %y = Conv2DBackpropFilter(%x, %n, %d) {{{ATTRS}}} : f32[4,4,1,1] NCHW
          return %y
        }}
    """)
    select_precision(graph, B1, "force_fp16")
    node = graph.node("y")
    assert [desc.dtype.short for desc in (*node.input_descs, *node.output_descs) if desc is not None] == [
        "f16", "i32", "f16", "f32",
    ]  # fmt: skip


def test_a_type_without_a_kernel_on_the_chip_is_kept_with_a_note() -> None:
    graph = network()
    assert select_precision(graph, platform_of("Ascend310P3"), "") == [
        "node conv (Conv2D) keeps DT_FLOAT, for which Ascend310P3 has no kernel"
    ]
    assert types(graph)["conv"] == "f32>f32"


@pytest.mark.parametrize(("mode", "soc"), [("fp17", "Ascend910B1"), ("mixed_bfloat16", "Ascend310P3")])
def test_a_mode_that_cannot_be_is_refused(mode: str, soc: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        select_precision(network(), platform_of(soc), mode)
    assert caught.value.first.code == "E10001"


@pytest.mark.parametrize("mode", sorted(MODES))
def test_selecting_twice_changes_nothing(mode: str) -> None:
    graph = network()
    select_precision(graph, B1, mode)
    before = types(graph)
    select_precision(graph, B1, mode)
    assert types(graph) == before
