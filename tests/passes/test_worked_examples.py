"""The worked examples of formats.md 7.8 and 7.9, from the model to the road, with their numbers."""

from __future__ import annotations

import numpy as np
import pytest

from gecli.ir.format import Format
from gecli.ir.graph import Graph
from gecli.ir.text import parse
from gecli.ir.weight import Weight
from gecli.layout.platform import platform_of
from gecli.passes.base import CompileSettings, PassContext
from gecli.passes.pipeline import StructureCheck, run_pipeline
from gecli.passes.registry import pipeline
from gecli.passes.variable_op import VariableOp
from gecli.variables.rebuild_control import RebuildControl
from gecli.variables.var_manager import VarManager

WINDOW = 'strides=[1,1,1,1], pads=[1,1,1,1], dilations=[1,1,1,1], data_format="NCHW"'
FZ = "f16[36,8,16,16] FRACTAL_Z origin [3,3,64,128] HWCN"


def compiled(declared: str, soc: str, precision: str) -> tuple[Graph, PassContext]:
    """x -> Conv2D with filter variable W, which holds its flat index as far as fp16 counts exactly."""
    graph = parse(f"""
        graph a(%x : f32[1,64,28,28] NCHW) {{
          %W = Variable() : {declared}
          %conv = Conv2D(%x, %W) {{{WINDOW}}} : f32[1,128,28,28] NCHW
          return %conv
        }}
    """)
    node = graph.node("W")
    desc = node.output_descs[0]
    assert desc.elements == 73728 and desc.nbytes == 294912
    node.set_init_value(Weight.of(np.arange(desc.elements, dtype=np.float32).reshape(desc.shape) % 2048, desc))
    settings = CompileSettings(precision=precision)
    ctx = PassContext(platform_of(soc), VarManager(), RebuildControl(), settings)
    assert run_pipeline(graph, ctx, pipeline(settings), [StructureCheck()])
    return graph, ctx


@pytest.mark.parametrize(
    ("declared", "types"),
    [
        ("f32[3,3,64,128] HWCN", ["Cast", "TransData"]),
        ("f32[128,64,3,3] NCHW", ["Cast", "TransData"]),
        ("f32[128,3,3,64] NHWC", ["Cast", "TransposeD", "TransData"]),
    ],
)
def test_a_filter_that_is_only_read_takes_cast_and_format(declared: str, types: list[str]) -> None:
    """7.8 on a chip without an fp32 cube, force_fp16."""
    graph, ctx = compiled(declared, "Ascend310P3", "force_fp16")
    stored = graph.node("W").output_descs[0]
    assert (stored.dtype.serial, int(stored.format), stored.shape) == ("DT_FLOAT16", 83886084, (36, 8, 16, 16))
    assert stored.nbytes == 147456
    assert str(graph.node("conv").inputs[1]) == "W:0"
    road = ctx.variables.trans_road("W")
    assert road is not None and [step.type for step in road] == types
    assert (road[0].src.nbytes, road[0].dst.nbytes, road[-1].dst.nbytes) == (294912, 147456, 147456)
    assert road.lossy and len(ctx.warnings) == 1
    initial = graph.node("W").init_value
    assert initial is not None
    user = np.arange(73728, dtype=np.float32).reshape(road.source.shape) % 2048
    np.testing.assert_array_equal(initial.numpy(), road.replay(user))
    # x is no variable: its conversions stay, and so do those of the output.
    assert [node.type for node in graph.nodes() if node.type in ("Cast", "TransData")] == [
        "Cast",
        "TransData",
        "TransData",
        "Cast",
    ]


def test_elements_of_the_filter_lie_where_the_format_puts_them() -> None:
    graph, _ = compiled("f32[3,3,64,128] HWCN", "Ascend310P3", "force_fp16")
    initial = graph.node("W").init_value
    assert initial is not None
    stored = initial.numpy().ravel()
    # W[0,0,0,0], W[0,0,1,0], W[0,0,0,1], W[0,0,0,16], W[0,1,0,0] = 8192, which the test wraps at 2048
    assert [float(stored[k]) for k in (0, 1, 16, 256, 2048)] == [0, 128, 1, 16, 8192 % 2048]


def test_a_chip_with_an_fp32_cube_keeps_the_type() -> None:
    graph, ctx = compiled("f32[3,3,64,128] HWCN", "Ascend910B1", "")
    stored = graph.node("W").output_descs[0]
    assert (str(stored), stored.nbytes) == ("DT_FLOAT FRACTAL_Z [72,8,16,8]", 294912)
    road = ctx.variables.trans_road("W")
    assert road is not None and [step.type for step in road] == ["TransData"]
    assert not road.lossy and not ctx.warnings


def test_an_fp32_master_weight_whose_reading_chains_are_one_becomes_fp16(ctx: PassContext) -> None:
    """7.9, last paragraph: two rounds, each with an exact inverse."""
    graph = parse(f"""
        graph b(%x : f16[1,4,28,28,16] NC1HWC0 origin [1,64,28,28] NCHW, %d : {FZ}) {{
          %W = Variable() : f32[3,3,64,128] HWCN
          %c = Cast(%W) {{dst_type=DT_FLOAT16}} : f16[3,3,64,128] HWCN
          %t = TransData(%c) {{src_format=HWCN, dst_format=FRACTAL_Z}} : {FZ}
          %conv = Conv2D(%x, %t) {{{WINDOW}}} : f16[1,8,28,28,16] NC1HWC0
          %upd = AssignAdd(%t, %d) : {FZ}
          %b = TransData(%upd) {{src_format=FRACTAL_Z, dst_format=HWCN}} : f16[3,3,64,128] HWCN
          %e = Cast(%b) {{dst_type=DT_FLOAT}} : f32[3,3,64,128] HWCN
          %W_TO_upd_REF_0 = Variable(%e) {{ref_var_src_var_name="W"}} : f32[3,3,64,128] HWCN
          return %conv after %W_TO_upd_REF_0
        }}
    """)
    counts = VariableOp().run(graph, ctx)
    assert counts == {"variables_changed": 1, "conversions_removed": 4}
    road = ctx.variables.trans_road("W")
    assert road is not None and [step.type for step in road] == ["Cast", "TransData"]
    assert road.lossy and ctx.records[0]["lossy"]
    assert [str(port) for port in graph.node("upd").inputs] == ["W:0", "d:0"]
    assert str(graph.node("W_TO_upd_REF_0").inputs[0]) == "upd:0"
    assert graph.node("W").output_descs[0].logical_format == Format.HWCN
    # The export in fp32 is a widening of what fp16 could hold.
    back = road.inverse()
    assert back is not None
    value = np.full((3, 3, 64, 128), 0.1, np.float32)
    np.testing.assert_array_equal(back.replay(road.replay(value)), value.astype(np.float16).astype(np.float32))
