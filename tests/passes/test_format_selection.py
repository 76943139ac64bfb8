"""Format selection: the worked training example (training.md 17) and how far heavy formats spread."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gecli.ir.graph import Graph
from gecli.ir.text import parse, text
from gecli.ir.verify import verify
from gecli.layout.platform import Platform, platform_of
from gecli.passes.base import CompileSettings, PassContext
from gecli.passes.common_subexpression import CommonSubexpression
from gecli.passes.facts import Fact, check
from gecli.passes.format_selection import FormatSelection
from gecli.passes.origin_format import InferFormat
from gecli.passes.precision_selection import PrecisionSelection
from gecli.passes.variable_op import VariableOp
from gecli.variables.rebuild_control import RebuildControl
from gecli.variables.var_manager import VarManager

WINDOW = 'strides=[1, 1, 1, 1], pads=[1, 1, 1, 1], data_format="NCHW"'
FZ = "f16[36,8,16,16] FRACTAL_Z origin [3,3,64,128] HWCN"


def training_step(x: str = "f16[1,64,28,28]", w: str = "f16[3,3,64,128]", optimizer: str = "ApplyMomentum") -> str:
    """Section 17 behind VariablePrepareOp; for a FLOAT filter the gradient needs no Cast."""
    c, n = w[:-1].split(",")[2:]
    dtype = w[:3]
    hyper = "%lr, %dw16, %mu" if optimizer == "ApplyMomentum" else "%lr, %dw16"
    grad = f"%dw16 = Cast(%dw) {{dst_type=1}} : {w} HWCN" if dtype == "f16" else f"%dw16 = Identity(%dw) : {w} HWCN"
    return f"""
        graph g(%x : {x} NCHW) {{
          %W = Variable() : {w} HWCN
          %M = Variable() : {w} HWCN
          %lr = Const() {{value=0.015625}} : {dtype}[] ND
          %mu = Const() {{value=0.5}} : {dtype}[] ND
          %fsize = Const() {{value=[3, 3, {c}, {n}]}} : i32[4] ND
          %conv = Conv2D(%x, %W) {{{WINDOW}}} : {dtype}[1,{n},28,28] NCHW
          %loss = L2Loss(%conv) : {dtype}[] ND
          %dw = Conv2DBackpropFilter(%x, %fsize, %conv) {{{WINDOW}}} : f32[3,3,{c},{n}] HWCN
          {grad}
          %upd = {optimizer}(%W, %M, {hyper}) {{output_names=["var", "accum"]}} : {w} HWCN, {w} HWCN
          %W_TO_upd_REF_0 = Variable(%upd) {{ref_var_src_var_name="W"}} : {w} HWCN
          %M_TO_upd_REF_1 = Variable(%upd:1) {{ref_var_src_var_name="M"}} : {w} HWCN
          return %loss after %upd
        }}
    """


def context(platform: Platform | str = "Ascend910B1", **settings: object) -> PassContext:
    target = platform_of(platform) if isinstance(platform, str) else platform
    return PassContext(target, VarManager(), RebuildControl(), CompileSettings(**settings))  # type: ignore[arg-type]  # tests give matching types


def selected(source: str, ctx: PassContext) -> Graph:
    graph = parse(source)
    InferFormat().run(graph, ctx)
    PrecisionSelection().run(graph, ctx)
    FormatSelection().run(graph, ctx)
    assert verify(graph) == []
    assert check(graph, Fact.FORMATS_CHOSEN) == []
    return graph


def conversions(graph: Graph) -> list[str]:
    """`name: producer -> consumers, from -> to` of each inserted node."""
    found = []
    for node in graph.nodes():
        if node.name.startswith("trans_"):
            source, target = node.input_descs[0], node.output_descs[0]
            assert source is not None
            users = ", ".join(f"{use.node.name}.{use.slot}" for use in graph.consumers(node.out()))
            found.append(f"{node.name}: {node.inputs[0]} -> {users}, {source.format} -> {target.format}")
    return sorted(found)


def test_the_training_example_gets_eight_conversions() -> None:
    graph = selected(training_step(), context())
    assert conversions(graph) == [
        "trans_TransData_0: x:0 -> conv.0, NCHW -> NC1HWC0",
        "trans_TransData_1: W:0 -> conv.1, HWCN -> FRACTAL_Z",
        "trans_TransData_2: conv:0 -> loss.0, NC1HWC0 -> NCHW",
        "trans_TransData_3: x:0 -> dw.0, NCHW -> NC1HWC0",
        "trans_TransData_4: W:0 -> upd.0, HWCN -> FRACTAL_Z",
        "trans_TransData_5: M:0 -> upd.1, HWCN -> FRACTAL_Z",
        "trans_TransData_6: upd:0 -> W_TO_upd_REF_0.0, FRACTAL_Z -> HWCN",
        "trans_TransData_7: upd:1 -> M_TO_upd_REF_1.0, FRACTAL_Z -> HWCN",
    ]


def test_the_training_example_chooses_the_descs_of_the_specification() -> None:
    shown = text(selected(training_step(), context()))
    for line in (
        f"{FZ}, {FZ}\n",
        "f32[36,8,16,16] FRACTAL_Z origin [3,3,64,128] HWCN\n",
        "f16[1,8,28,28,16] NC1HWC0 origin [1,128,28,28] NCHW\n",
        "f16[1,4,28,28,16] NC1HWC0 origin [1,64,28,28] NCHW\n",
        "%W = Variable() : f16[3,3,64,128] HWCN\n",
    ):
        assert line in shown


def test_merging_leaves_six_and_acceleration_two() -> None:
    ctx = context()
    graph = selected(training_step(), ctx)
    CommonSubexpression().run(graph, ctx)
    assert len(conversions(graph)) == 6
    VariableOp().run(graph, ctx)
    assert conversions(graph) == [
        "trans_TransData_0: x:0 -> conv.0, dw.0, NCHW -> NC1HWC0",
        "trans_TransData_2: conv:0 -> loss.0, NC1HWC0 -> NCHW",
    ]
    stored = graph.node("W").output_descs[0]
    assert (int(stored.format), stored.shape) == (83886084, (36, 8, 16, 16))


def test_a_padded_filter_with_a_zero_preserving_optimizer_is_accelerated() -> None:  # variant (c)
    graph = selected(training_step("f16[1,20,28,28]", "f16[3,3,20,20]"), context())
    assert graph.node("upd").output_descs[0].shape == (18, 2, 16, 16)


def test_a_padded_filter_keeps_an_optimizer_that_makes_padding_dirty_in_origin_format() -> None:  # variant (c)
    graph = selected(training_step("f16[1,20,28,28]", "f16[3,3,20,20]", "ApplyAdagrad"), context())
    assert graph.node("upd").output_descs[0].format.name == "HWCN"
    assert [line for line in conversions(graph) if "W:0" in line or "upd" in line] == [
        "trans_TransData_1: W:0 -> conv.1, HWCN -> FRACTAL_Z",
        "trans_TransData_4: dw16:0 -> upd.3, FRACTAL_Z -> HWCN",
    ]


def test_float_runs_in_blocks_of_eight_on_an_fp32_cube() -> None:  # variant (d)
    graph = selected(training_step("f32[1,64,28,28]", "f32[3,3,64,128]"), context())
    assert graph.node("upd").output_descs[0].shape == (72, 8, 16, 8)
    x = graph.node("conv").input_descs[0]
    assert x is not None and x.shape == (1, 8, 28, 28, 8)


def test_without_fp32_cube_seeds_a_written_float_filter_stays_as_declared() -> None:  # variant (d)
    platform = replace(platform_of("Ascend910B1"), fp32_cube_seeds=False)
    graph = selected(training_step("f32[1,64,28,28]", "f32[3,3,64,128]"), context(platform))
    assert graph.node("upd").output_descs[0].format.name == "HWCN"
    assert "trans_TransData_1: W:0 -> conv.1, HWCN -> FRACTAL_Z" in conversions(graph)


def test_a_second_selection_changes_nothing() -> None:
    ctx = context()
    graph = selected(training_step(), ctx)
    before = text(graph)
    counts = FormatSelection().run(graph, ctx)
    assert text(graph) == before
    assert not +counts


def test_the_origin_policy_inserts_casts_only() -> None:
    graph = selected(
        training_step("f32[1,64,28,28]", "f32[3,3,64,128]"), context(format_policy="origin", precision="force_fp16")
    )
    assert {node.type for node in graph.nodes() if node.name.startswith("trans_")} == {"Cast"}


def region(body: str, x: str = "f16[1,32,8,8]", w: str = "f16[32,32,1,1]") -> str:
    """A convolution followed by `body`, whose last value is %y."""
    window = WINDOW.replace("pads=[1, 1, 1, 1]", "pads=[0, 0, 0, 0]")
    out = x.replace("1," + x.split(",")[1], "1," + w[w.index("[") + 1 :].split(",")[0], 1)
    return f"""
        graph g(%x : {x} NCHW) {{
          %w = Const() {{value=digest}} : {w} NCHW
          %conv = Conv2D(%x, %w) {{{window}}} : {out} NCHW
          {body}
          return %y
        }}
    """.replace("Const() {value=digest}", "Variable()")


def formats(source: str, ctx: PassContext | None = None) -> dict[str, str]:
    graph = selected(source, ctx or context())
    return {node.name: node.output_descs[0].format.name for node in graph.nodes() if node.output_descs}


MAP = "f16[1,32,8,8] NCHW"
ODD = "f16[1,20,8,8] NCHW"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"%y = Relu(%conv) : {MAP}", "NC1HWC0"),
        (f"%y = Sigmoid(%conv) : {MAP}", "NC1HWC0"),
        (f"%y = SoftmaxV2(%conv) {{axes=[1]}} : {MAP}", "NCHW"),
        (f"%s = Const() {{value=2.0}} : f16[] ND\n %y = Mul(%conv, %s) : {MAP}", "NC1HWC0"),
        (f"%s = Variable() : f16[1,32,1,1] NCHW\n %y = Mul(%conv, %s) : {MAP}", "NC1HWC0"),
        (f"%s = Variable() : f16[32,1,1] ND\n %y = Mul(%conv, %s) : {MAP}", "NC1HWC0"),
        (f"%s = Variable() : f16[1,1,8,8] NCHW\n %y = Mul(%conv, %s) : {MAP}", "NCHW"),
        (f"%s = Variable() : f16[8] ND\n %y = Mul(%conv, %s) : {MAP}", "NCHW"),
        (f"%s = Variable() : f16[32] ND\n %y = BiasAdd(%conv, %s) {{data_format=\"NCHW\"}} : {MAP}", "NC1HWC0"),
        ("%y = ConcatD(%conv, %conv) {concat_dim=1} : f16[1,64,8,8] NCHW", "NC1HWC0"),
        ("%y = ConcatD(%conv, %conv) {concat_dim=-2} : f16[1,32,16,8] NCHW", "NC1HWC0"),
        ("%y = SplitD(%conv) {split_dim=1, num_split=2} : f16[1,16,8,8] NCHW, f16[1,16,8,8] NCHW", "NC1HWC0"),
        ("%y = SplitD(%conv) {split_dim=1, num_split=4} : " + ", ".join(["f16[1,8,8,8] NCHW"] * 4), "NCHW"),
        ("%y = Reshape(%conv) : f16[32,64] ND", "ND"),
        ("%y = MaxPool(%conv) {ksize=[1, 1, 2, 2], strides=[1, 1, 2, 2], padding=\"VALID\", data_format=\"NCHW\"}"
         " : f16[1,32,4,4] NCHW", "NC1HWC0"),
        ("%y = SomeForeignOp(%conv) : f16[1,32,8,8] NCHW", "NCHW"),
    ],
)  # fmt: skip
def test_what_follows_a_convolution_takes_its_format_or_not(body: str, expected: str) -> None:
    assert formats(region(body))["y"] == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"%y = Relu(%conv) : {ODD}", "NC1HWC0"),
        (f"%y = Sigmoid(%conv) : {ODD}", "NCHW"),
        (f"%y = Add(%conv, %conv) : {ODD}", "NC1HWC0"),
        (f"%s = Const() {{value=2.0}} : f16[] ND\n %y = Add(%conv, %s) : {ODD}", "NCHW"),
        (f"%s = Const() {{value=2.0}} : f16[] ND\n %y = Mul(%conv, %s) : {ODD}", "NC1HWC0"),
        (f"%s = Const() {{value=0.0}} : f16[] ND\n %t = Const() {{value=6.0}} : f16[] ND\n"
         f" %y = ClipByValue(%conv, %s, %t) : {ODD}", "NC1HWC0"),
        (f"%s = Const() {{value=1.0}} : f16[] ND\n %t = Const() {{value=6.0}} : f16[] ND\n"
         f" %y = ClipByValue(%conv, %s, %t) : {ODD}", "NCHW"),
        ("%y = ConcatD(%conv, %conv) {concat_dim=1} : f16[1,40,8,8] NCHW", "NCHW"),
        (f"%s = Variable() : f16[20] ND\n %y = BiasAdd(%conv, %s) {{data_format=\"NCHW\"}} : {ODD}", "NCHW"),
    ],
)  # fmt: skip
def test_padding_lanes_must_stay_zero(body: str, expected: str) -> None:
    assert formats(region(body, w="f16[20,32,1,1]"))["y"] == expected


def test_unknown_dims_stay_in_origin_format() -> None:
    assert formats(region("%y = Relu(%conv) : f16[1,32,?,8] NCHW", x="f16[1,32,?,8]"))["conv"] == "NCHW"


def test_a_low_rank_operand_is_expanded_before_it_is_blocked() -> None:
    graph = selected(region(f"%s = Variable() : f16[32,1,1] ND\n %y = Mul(%conv, %s) : {MAP}"), context())
    types = [node.type for node in graph.nodes() if node.name.startswith("trans_")]
    assert types.count("UnsqueezeV2") == 1
    assert graph.node("y").input_descs[1].shape == (1, 2, 1, 1, 16)  # type: ignore[union-attr]  # it is connected


def test_a_weight_that_one_reader_wants_plain_stays_plain_for_all_others() -> None:
    source = region(
        "%r = Relu(%w) : f16[32,32,1,1] NCHW\n %q = ReduceSumD(%w) {axes=[0]} : f16[32,1,1] ND\n %y = Relu(%conv) : "
        + MAP
    )
    assert formats(source.replace("return %y", "return %y, %r, %q"))["r"] == "NCHW"


def test_a_weight_whose_readers_all_accept_pulls_them_into_its_format() -> None:
    source = region("%r = Relu(%w) : f16[32,32,1,1] NCHW\n %y = Relu(%conv) : " + MAP)
    assert formats(source.replace("return %y", "return %y, %r"))["r"] == "FRACTAL_Z"


def test_groups_are_the_sub_format_of_the_filter() -> None:
    source = region(f"%y = Relu(%conv) : {MAP}", w="f16[32,1,1,1]").replace("data_format", "groups=32, data_format")
    graph = selected(source, context())
    assert graph.node("conv").input_descs[1].format.name == "FRACTAL_Z:32"  # type: ignore[union-attr]  # it is connected
    assert [node.type for node in graph.nodes() if "w" in {p.node.name for p in node.data_inputs}] == ["TransposeD"]


def test_a_small_channel_count_uses_c04_when_enabled() -> None:
    source = region(f"%y = Relu(%conv) : {MAP}", x="f16[1,3,8,8]", w="f16[32,3,1,1]")
    graph = selected(source, context(enable_small_channel=True))
    descs = [desc for desc in graph.node("conv").input_descs if desc is not None]
    assert [(desc.format.name, desc.shape) for desc in descs] == [
        ("NC1HWC0_C04", (1, 1, 8, 8, 4)),
        ("FRACTAL_Z_C04", (1, 2, 16, 16)),
    ]


@pytest.mark.parametrize(("soc", "expected"), [("Ascend310P3", "FRACTAL_NZ"), ("Ascend910B1", "ND")])
def test_matrix_products_are_blocked_where_the_chip_has_no_plain_kernel(soc: str, expected: str) -> None:
    source = """
        graph g(%x : f16[20,30] ND) {
          %w = Variable() : f16[30,40] ND
          %m = MatMulV2(%x, %w) : f16[20,40] ND
          %y = Relu(%m) : f16[20,40] ND
          return %y
        }
    """
    assert formats(source, context(soc))["y"] == expected


def test_integer_convolutions_block_by_the_width_of_each_operand() -> None:
    source = region("%y = Relu(%conv) : i32[1,32,8,8] NCHW", x="i8[1,32,8,8]", w="i8[32,32,1,1]")
    graph = selected(source.replace("i8[1,32,8,8] NCHW\n", "i32[1,32,8,8] NCHW\n"), context())
    assert [desc.format.c0 for desc in graph.node("conv").input_descs if desc is not None] == [32, 32]
    assert graph.node("conv").output_descs[0].format.c0 == 16


def test_a_type_outside_the_table_is_reported_once() -> None:
    ctx = context()
    selected(
        region("%z = SomeForeignOp(%conv) : f16[1,32,8,8] NCHW\n %y = SomeForeignOp(%z) : f16[1,32,8,8] NCHW"), ctx
    )
    assert [record["text"] for record in ctx.records if record["event"] == "note"] == [
        "SomeForeignOp is not in the kernel table: it runs in origin formats"
    ]
