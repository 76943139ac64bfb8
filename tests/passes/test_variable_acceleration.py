"""VariableOp: which conversions a variable takes over, and why not the others."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.text import parse, text
from gecli.ir.verify import verify
from gecli.ir.weight import Weight
from gecli.layout.storage_shape import storage_shape
from gecli.passes.base import PassContext
from gecli.passes.facts import Fact, check
from gecli.passes.variable_op import VariableOp
from gecli.variables.trans_road import TransRoad, TransStep

HWCN = "f16[3,3,64,128] HWCN"
FZ = "f16[36,8,16,16] FRACTAL_Z origin [3,3,64,128] HWCN"
TO_FZ = "{dst_format=FRACTAL_Z, src_format=HWCN}"
TO_HWCN = "{dst_format=HWCN, src_format=FRACTAL_Z}"
# formats.md 7.9, after the engine inserted its conversions.
WRITE_BACK = f"""
    graph g(%x : f16[1,4,28,28,16] NC1HWC0 origin [1,64,28,28] NCHW, %delta : {HWCN}) {{
      %W = Variable() : {HWCN}
      %t1 = TransData(%W) {TO_FZ} : {FZ}
      %conv = Conv2D(%x, %t1) {{strides=[1,1,1,1], pads=[1,1,1,1]}} : f16[1,8,28,28,16] NC1HWC0
      %t2 = TransData(%W) {TO_FZ} : {FZ}
      %t3 = TransData(%delta) {TO_FZ} : {FZ}
      %upd = AssignAdd(%t2, %t3) : {FZ}
      %t4 = TransData(%upd) {TO_HWCN} : {HWCN}
      %W_TO_upd_REF_0 = Variable(%t4) {{ref_var_src_var_name="W"}} : {HWCN}
      return %conv after %W_TO_upd_REF_0
    }}
"""


def shown(source: str) -> str:
    return dedent(source).lstrip("\n")


def accelerate(graph: Graph, ctx: PassContext, *names: str) -> dict[str, int]:
    """Run the pass with variables of these names known to the session."""
    for name in names:
        ctx.variables.assign(name, graph.node(name).output_descs[0])
    counts = VariableOp().run(graph, ctx)
    assert not verify(graph)
    assert not check(graph, Fact.VARIABLES_PREPARED)
    return dict(counts)


def steps(ctx: PassContext, name: str) -> list[str]:
    return [step.type for step in ctx.variables.trans_road(name) or ()]


def reason(ctx: PassContext, name: str = "w") -> str:
    return next(str(each["reason"]) for each in ctx.records if each.get("variable") == name)


def test_two_readers_with_one_conversion_change_the_variable(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%x : f16[1,64,8,8] NCHW, %y : f16[1,64,8,8] NCHW) {
          %w = Variable() : f16[64,64,3,3] NCHW
          %a = TransData(%w) {dst_format="FRACTAL_Z", src_format="NCHW"} : f16[36,4,16,16] FRACTAL_Z
          %b = TransData(%w) {dst_format="FRACTAL_Z", src_format="NCHW"} : f16[36,4,16,16] FRACTAL_Z
          %p = Conv2D(%x, %a) {strides=[1,1,1,1], pads=[0,0,0,0]} : f16[1,64,6,6] NCHW
          %q = Conv2D(%y, %b) {strides=[1,1,1,1], pads=[0,0,0,0]} : f16[1,64,6,6] NCHW
          return %p, %q
        }
    """)
    for name in ("a", "b"):
        desc = graph.node(name).output_descs[0]
        graph.node(name).output_descs[0] = desc.with_origin((64, 64, 3, 3), Format.NCHW)
    counts = accelerate(graph, ctx)
    assert text(graph) == shown("""
        graph g(%x : f16[1,64,8,8] NCHW, %y : f16[1,64,8,8] NCHW) {
          %w = Variable() : f16[36,4,16,16] FRACTAL_Z origin [64,64,3,3] NCHW
          %p = Conv2D(%x, %w) {pads=[0, 0, 0, 0], strides=[1, 1, 1, 1]} : f16[1,64,6,6] NCHW
          %q = Conv2D(%y, %w) {pads=[0, 0, 0, 0], strides=[1, 1, 1, 1]} : f16[1,64,6,6] NCHW
          return %p, %q
        }
    """)
    assert counts == {"variables_changed": 1, "conversions_removed": 2}


def test_a_cast_and_a_format_change_become_a_road_of_two_steps(ctx: PassContext) -> None:
    """formats.md 7.8."""
    graph = parse(f"""
        graph g(%x : f16[1,4,28,28,16] NC1HWC0 origin [1,64,28,28] NCHW) {{
          %W = Variable() : f32[3,3,64,128] HWCN
          %c = Cast(%W) {{dst_type=DT_FLOAT16}} : {HWCN}
          %t = TransData(%c) {TO_FZ} : {FZ}
          %conv = Conv2D(%x, %t) {{strides=[1,1,1,1], pads=[1,1,1,1]}} : f16[1,8,28,28,16] NC1HWC0
          return %conv
        }}
    """)
    values = np.arange(73728, dtype=np.float32).reshape(3, 3, 64, 128)
    graph.node("W").set_init_value(Weight.of(values, graph.node("W").output_descs[0]))
    accelerate(graph, ctx)
    desc = graph.node("W").output_descs[0]
    assert str(desc) == "DT_FLOAT16 FRACTAL_Z [36,8,16,16]"
    assert (int(desc.format), desc.logical_format, desc.logical_shape) == (83886084, Format.HWCN, (3, 3, 64, 128))
    assert graph.node("conv").inputs[1] == graph.node("W").out()
    road = ctx.variables.trans_road("W")
    assert road is not None and [step.type for step in road] == ["Cast", "TransData"]
    assert [(step.src.nbytes, step.dst.nbytes) for step in road] == [(294912, 147456), (147456, 147456)]
    initial = graph.node("W").init_value
    assert initial is not None and initial.nbytes == 147456
    stored = initial.numpy().ravel()
    assert [float(stored[k]) for k in (0, 1, 16, 256, 2048)] == [0, 128, 1, 16, 8192]
    assert reason(ctx, "W") == "NOT_TRANS_OP"


def test_a_written_variable_changes_when_the_write_side_undoes_the_read_side(ctx: PassContext) -> None:
    """formats.md 7.9."""
    graph = parse(WRITE_BACK)
    counts = accelerate(graph, ctx)
    assert counts == {"variables_changed": 1, "conversions_removed": 3}
    assert text(graph) == shown(f"""
        graph g(%x : f16[1,4,28,28,16] NC1HWC0 origin [1,64,28,28] NCHW, %delta : {HWCN}) {{
          %W = Variable() : {FZ}
          %conv = Conv2D(%x, %W) {{pads=[1, 1, 1, 1], strides=[1, 1, 1, 1]}} : f16[1,8,28,28,16] NC1HWC0
          %t3 = TransData(%delta) {TO_FZ} : {FZ}
          %upd = AssignAdd(%W, %t3) : {FZ}
          %W_TO_upd_REF_0 = Variable(%upd) {{ref_var_src_var_name="W"}} : {FZ}
          return %conv after %W_TO_upd_REF_0
        }}
    """)
    ref = graph.node("W_TO_upd_REF_0")
    assert ref.input_descs[0] == ref.output_descs[0] == graph.node("W").output_descs[0]
    assert steps(ctx, "W") == ["TransData"]


def test_a_conversion_back_that_others_read_stays_for_them(ctx: PassContext) -> None:
    """training.md 17 variant b: the new value is also a model output."""
    graph = parse(WRITE_BACK.replace("return %conv after", "return %conv, %t4 after"))
    accelerate(graph, ctx)
    assert graph.node("W_TO_upd_REF_0").inputs[0] == graph.node("upd").out()
    assert str(graph.outputs[1]) == "t4:0"
    assert graph.node("t4").inputs[0] == graph.node("upd").out()
    assert steps(ctx, "W") == ["TransData"]


def test_a_second_run_changes_nothing(ctx: PassContext) -> None:
    graph = parse(WRITE_BACK)
    accelerate(graph, ctx)
    before = text(graph)
    assert VariableOp().run(graph, ctx)["variables_changed"] == 0
    assert text(graph) == before
    assert [each["reason"] for each in ctx.records] == ["NOT_TRANS_OP", "LOCKED"]


def test_the_change_is_recorded_for_the_session(ctx: PassContext) -> None:
    graph = parse(WRITE_BACK)
    ctx.rebuild.add_graph(1, graph)
    accelerate(graph, ctx, "W")
    resource = ctx.variables.resource
    assert ctx.rebuild.changes("W") == 1 and ctx.rebuild.is_stale(1)
    assert resource.changed_names(1) == ("W",)
    assert str(resource.staged(1)["W"]) == "DT_FLOAT16 HWCN [3,3,64,128]"
    assert str(ctx.variables.current_desc("W")) == "DT_FLOAT16 HWCN [3,3,64,128]"  # its data have not moved yet


def test_momentum_keeps_filter_and_slot_in_the_format_of_the_convolution(ctx: PassContext) -> None:
    """training.md 17 step 4, from the graph after insertion and merging."""
    x5 = "f16[1,4,28,28,16] NC1HWC0 origin [1,64,28,28] NCHW"
    graph = parse(f"""
        graph conv_momentum(%x : f16[1,64,28,28] NCHW) {{
          %W = Variable() {{_init_value={{"fill": "0028"}}}} : {HWCN}
          %M = Variable() {{_init_value={{"fill": "0000"}}}} : {HWCN}
          %lr = Const() {{value=0.015625}} : f16[] ND
          %mu = Const() {{value=0.5}} : f16[] ND
          %fsize = Const() {{value=[3,3,64,128]}} : i32[4] ND
          %trans_TransData_0 = TransData(%x) {{src_format=NCHW, dst_format=NC1HWC0}} : {x5}
          %trans_TransData_1 = TransData(%W) {TO_FZ} : {FZ}
          %conv = Conv2D(%trans_TransData_0, %trans_TransData_1) {{strides=[1,1,1,1], pads=[1,1,1,1]}} :
             f16[1,8,28,28,16] NC1HWC0 origin [1,128,28,28] NCHW
          %trans_TransData_2 = TransData(%conv) {{src_format=NC1HWC0, dst_format=NCHW}} : f16[1,128,28,28] NCHW
          %loss = L2Loss(%trans_TransData_2) : f16[] ND
          %dw = Conv2DBackpropFilter(%trans_TransData_0, %fsize, %conv) {{strides=[1,1,1,1], pads=[1,1,1,1]}} :
             f32[36,8,16,16] FRACTAL_Z origin [3,3,64,128] HWCN
          %dw16 = Cast(%dw) {{dst_type=DT_FLOAT16}} : {FZ}
          %trans_TransData_5 = TransData(%M) {TO_FZ} : {FZ}
          %upd = ApplyMomentum(%trans_TransData_1, %trans_TransData_5, %lr, %dw16, %mu)
             {{use_nesterov=false, output_names=["var", "accum"]}} : {FZ}, {FZ}
          %trans_TransData_6 = TransData(%upd:0) {TO_HWCN} : {HWCN}
          %trans_TransData_7 = TransData(%upd:1) {TO_HWCN} : {HWCN}
          %W_TO_upd_REF_0 = Variable(%trans_TransData_6) {{ref_var_src_var_name="W"}} : {HWCN}
          %M_TO_upd_REF_1 = Variable(%trans_TransData_7) {{ref_var_src_var_name="M"}} : {HWCN}
          return %loss after %W_TO_upd_REF_0, %M_TO_upd_REF_1
        }}
    """)
    counts = accelerate(graph, ctx)
    assert counts == {"variables_changed": 2, "conversions_removed": 4}
    assert [node.name for node in graph.nodes_of("TransData")] == ["trans_TransData_0", "trans_TransData_2"]
    assert [str(port) for port in graph.node("upd").inputs[:2]] == ["W:0", "M:0"]
    assert [str(graph.node(name).inputs[0]) for name in ("W_TO_upd_REF_0", "M_TO_upd_REF_1")] == ["upd:0", "upd:1"]
    assert [str(port) for port in graph.node("conv").inputs] == ["trans_TransData_0:0", "W:0"]
    for name in ("W", "M", "W_TO_upd_REF_0", "M_TO_upd_REF_1"):
        desc = graph.node(name).output_descs[0]
        assert (int(desc.format), desc.shape, desc.nbytes) == (83886084, (36, 8, 16, 16), 147456)
        assert (desc.logical_format, desc.logical_shape) == (Format.HWCN, (3, 3, 64, 128))
    initial = graph.node("W").init_value
    assert initial is not None and float(initial.numpy().min()) == float(initial.numpy().max()) == 0.03125
    assert ctx.variables.resource.changed_names(1) == ("M", "W")
    assert [(each["variable"], each["reason"]) for each in ctx.records] == [
        ("M", "NOT_TRANS_OP"),
        ("W", "NOT_TRANS_OP"),
    ]


def read(*lines: str, variable: str = HWCN, returned: str = "%r") -> Graph:
    """A graph that only reads variable %w."""
    body = "\n".join(lines)
    return parse(f"graph g() {{\n%w = Variable() : {variable}\n{body}\nreturn {returned}\n}}")


T_FZ = f"%a = TransData(%w) {TO_FZ} : {FZ}"
C1 = "f16[4,3,3,128,16,16] C1HWNCoC0 origin [3,3,64,128] HWCN"
CAST = f"%c = Cast(%w) {{dst_type=DT_FLOAT16}} : {HWCN}"
F32 = "f32[3,3,64,128] HWCN"

# formats.md 7.10 and variables.md 8.5: (graph, road, reason that ended the loop)
CASES: dict[str, tuple[Graph, list[str], str]] = {
    "a reader without conversion": (
        read(T_FZ, f"%b = Relu(%w) : {HWCN}", "%r = Relu(%a) : " + FZ, returned="%r, %b"),
        [],
        "NOT_TRANS_OP",
    ),
    "two formats": (read(T_FZ, f"%r = TransData(%w) {TO_FZ} : {C1}", returned="%r, %a"), [], "KEYS_DIFFER"),
    "a common cast, then two formats": (
        read(
            CAST,
            f"%a = TransData(%c) {TO_FZ} : {FZ}",
            f"%r = TransData(%c) {TO_FZ} : {C1}",
            variable=F32,
            returned="%r, %a",
        ),
        ["Cast"],
        "KEYS_DIFFER",
    ),
    "no host cast to bf16": (
        read("%r = Cast(%w) {dst_type=DT_BF16} : bf16[3,3,64,128] HWCN", variable=F32),
        [],
        "CAST_PAIR",
    ),
    "no host transfer": (
        read("%r = TransData(%w) {src_format=HWCN, dst_format=NC1HWC0} : f16[128,4,3,3,16] NC1HWC0"),
        [],
        "FORMAT_PAIR",
    ),
    "the same format": (
        read(f"%r = TransData(%w) {{src_format=HWCN, dst_format=HWCN}} : {HWCN}"),
        [],
        "FORMAT_PAIR",
    ),
    "a cast to integers": (
        read("%r = Cast(%w) {dst_type=DT_INT32} : i32[3,3,64,128] HWCN", variable=F32),
        ["Cast"],
        "NOT_TRANS_OP",
    ),
    "an unknown dim": (
        read("%s = Const() {value=[-1]} : i32[1] ND", "%r = Reshape(%w, %s) : f16[?] ND"),
        [],
        "UNKNOWN_SHAPE",
    ),
    "a transpose with a perm input": (
        read(
            "%s = Const() {value=[3,2,0,1]} : i32[4] ND",
            "%r = Transpose(%w, %s) : f16[128,64,3,3] NCHW",
        ),
        [],
        "TYPE_NOT_FUSIBLE",
    ),
    "only a reshape": (
        read(
            "%s = Const() {value=[6,1]} : i32[2] ND",
            "%r = Reshape(%w, %s) : f16[6,1] ND",
            variable="f16[2,3] ND",
        ),
        ["Reshape"],
        "NOT_TRANS_OP",
    ),
    "the shape input of a reshape": (
        read("%x = Const() {value=[1.0,2.0]} : f32[2] ND", "%r = Reshape(%x, %w) : f32[2] ND", variable="i32[1] ND"),
        [],
        "DATA_INDEX",
    ),
    "nobody reads it": (
        read("%r = Const() {value=1.0} : f32[] ND"),
        [],
        "NO_CONSUMER",
    ),
    "a model output": (read("%b = Const() {value=1.0} : f32[] ND", returned="%w, %b"), [], "NOT_TRANS_OP"),
    "a transpose with another perm than its formats": (
        read("%r = TransposeD(%w) {perm=[1,0,2,3]} : f16[4,4,4,4] NCHW", variable="f16[4,4,4,4] HWCN"),
        [],
        "FORMAT_PAIR",
    ),
    "a transpose with the perm of its formats": (
        read("%r = TransposeD(%w) {perm=[3,2,0,1]} : f16[4,4,4,4] NCHW", variable="f16[4,4,4,4] HWCN"),
        ["TransposeD"],
        "NOT_TRANS_OP",
    ),
    "two transposes of a square tensor": (
        read(
            "%a = TransposeD(%w) {perm=[3,2,0,1]} : f16[4,4,4,4] NCHW",
            "%r = TransposeD(%w) {perm=[2,3,0,1]} : f16[4,4,4,4] NCHW",
            variable="f16[4,4,4,4] HWCN",
            returned="%r, %a",
        ),
        [],
        "KEYS_DIFFER",
    ),
    "a format change that is also a cast": (
        read(f"%r = TransData(%w) {TO_FZ} : {FZ}", variable=F32),
        [],
        "MIXED_STEP",
    ),
    "a cast that is also a format change": (
        read("%r = Cast(%w) {dst_type=DT_FLOAT16} : f16[3,3,64,128] NCHW", variable=F32),
        [],
        "MIXED_STEP",
    ),
    "two layers": (
        read(
            "%a = TransData(%w) {src_format=NCHW, dst_format=NC1HWC0} : i32[1,1,2,2,16] NC1HWC0 origin [1,3,2,2] NCHW",
            "%b = Cast(%a) {dst_type=DT_FLOAT} : f32[1,1,2,2,16] NC1HWC0 origin [1,3,2,2] NCHW",
            "%r = Relu(%b) : f32[1,1,2,2,16] NC1HWC0 origin [1,3,2,2] NCHW",
            variable="i32[1,3,2,2] NCHW",
        ),
        ["TransData", "Cast"],
        "NOT_TRANS_OP",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_reader_decides_what_a_variable_takes_over(ctx: PassContext, case: str) -> None:
    source, road, why = CASES[case]
    graph = source.copy()
    before = text(graph)
    accelerate(graph, ctx)
    assert (steps(ctx, "w"), reason(ctx)) == (road, why)
    if not road:
        assert text(graph) == before
        assert ctx.rebuild.permits_change("w")


# What the transfer itself refuses: (variable, stored form, reason).
UNTRANSFERABLE = {
    "a type that the format does not hold": ("i32[3,3,64,128] HWCN", C1.replace("f16", "i32"), "DTYPE"),
    "dims that are not those of the form": (HWCN, "f16[35,8,16,16] FRACTAL_Z origin [3,3,64,128] HWCN", "SHAPE"),
    "another C0 than the dims say": (HWCN, FZ, "C0_MISMATCH"),
    "groups of a format that GE moves as ungrouped": ("f16[128,64,3,3] NCHW", FZ, "GROUPS"),
}


@pytest.mark.parametrize("case", UNTRANSFERABLE)
def test_a_transfer_that_would_fail_at_load_is_refused_with_its_reason(ctx: PassContext, case: str) -> None:
    declared, stored, why = UNTRANSFERABLE[case]
    graph = read(f"%r = TransData(%w) {TO_FZ} : {stored}", variable=declared)
    desc = graph.node("r").output_descs[0]
    if why == "C0_MISMATCH":
        desc = desc.with_format(desc.format.with_c0(8))
    elif why == "GROUPS":
        grouped = desc.format.with_groups(2)
        desc = desc.with_format(grouped, storage_shape(Format.NCHW, (128, 64, 3, 3), grouped, desc.dtype, 16))
        desc = desc.with_origin((128, 64, 3, 3), Format.NCHW)
    graph.node("r").output_descs[0] = desc
    before = text(graph)
    accelerate(graph, ctx)
    assert (steps(ctx, "w"), reason(ctx)) == ([], why)
    assert text(graph) == before


def test_a_format_that_only_the_reader_names_becomes_a_reformat_step(ctx: PassContext) -> None:
    graph = read(T_FZ, f"%r = Relu(%a) : {FZ}", variable="f16[3,3,64,128] NHWC")
    graph.node("a").input_descs[0] = TensorDesc(DataType.FLOAT16, (3, 3, 64, 128), Format.HWCN)
    accelerate(graph, ctx)
    assert steps(ctx, "w") == ["ReFormat", "TransData"]


def test_a_reader_of_other_dims_than_the_variable_has_is_refused(ctx: PassContext) -> None:
    graph = read(T_FZ, f"%r = Relu(%a) : {FZ}", variable="f16[3,3,128,64] HWCN")
    graph.node("a").input_descs[0] = TensorDesc(DataType.FLOAT16, (3, 3, 64, 128), Format.HWCN)
    accelerate(graph, ctx)
    assert (steps(ctx, "w"), reason(ctx)) == ([], "INPUT_MISMATCH")


def test_the_shape_constant_of_a_reshape_can_be_pruned_afterwards(ctx: PassContext) -> None:
    graph = CASES["only a reshape"][0].copy()
    accelerate(graph, ctx, "w")
    assert not graph.node("s").control_out and not any(graph.node("s").users)


def test_a_road_that_moves_no_data_renews_the_session_at_once(ctx: PassContext) -> None:
    graph = CASES["only a reshape"][0].copy()
    accelerate(graph, ctx, "w")
    assert str(ctx.variables.current_desc("w")) == "DT_FLOAT16 ND [6,1]"


def test_a_lossy_cast_is_fused_with_a_warning_that_names_both_types(ctx: PassContext) -> None:
    accelerate(CASES["a cast to integers"][0].copy(), ctx)
    (warning,) = ctx.warnings
    assert (warning.severity, warning.node, warning.expected, warning.actual) == (
        "warning",
        "w",
        "DT_FLOAT",
        "DT_INT32",
    )
    assert ctx.records[0]["lossy"] is True


def test_a_lossy_cast_is_refused_under_strict_variable_cast(ctx: PassContext) -> None:
    ctx.settings.strict_variable_cast = True
    accelerate(CASES["a cast to integers"][0].copy(), ctx)
    assert (steps(ctx, "w"), reason(ctx), ctx.warnings) == ([], "LOSSY_CAST", [])


def test_a_lossless_cast_is_fused_under_strict_variable_cast(ctx: PassContext) -> None:
    ctx.settings.strict_variable_cast = True
    accelerate(read("%r = Cast(%w) {dst_type=DT_FLOAT} : f32[3,3,64,128] HWCN"), ctx)
    assert steps(ctx, "w") == ["Cast"]


@pytest.mark.parametrize(
    ("declared", "read", "expected"),
    [
        ("f32", "f16", ["Cast"]),
        ("i64", "i32", ["Cast"]),
        ("f16", "f32", []),
        ("i32", "i64", []),
        ("i8", "i32", []),
        ("f32", "i32", []),
        ("i32", "f16", []),
    ],
)
def test_a_written_variable_takes_a_cast_only_if_the_cast_back_changes_nothing(
    ctx: PassContext, declared: str, read: str, expected: list[str]
) -> None:
    # A writer of half stores halves either way; one of float that stores halves would add up floats instead.
    graph = parse(f"""
        graph g(%d : {read}[4] ND) {{
          %w = Variable() : {declared}[4] ND
          %c = Cast(%w) : {read}[4] ND
          %a = AssignAdd(%c, %d) : {read}[4] ND
          %b = Cast(%a) : {declared}[4] ND
          %w_TO_a_REF_0 = Variable(%b) {{ref_var_src_var_name="w"}} : {declared}[4] ND
          return %d after %w_TO_a_REF_0
        }}
    """)
    accelerate(graph, ctx)
    assert steps(ctx, "w") == expected
    assert expected or reason(ctx) == "REF_NOT_INVERSE"


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({}, ["Cast"]),
        ({"w": DataType.INT32}, ["Cast"]),
        ({"w": None}, []),
        ({"w": DataType.FLOAT16}, []),
        ({"v": None}, ["Cast"]),
    ],
)
def test_a_lossy_cast_is_fused_only_if_all_graphs_of_the_session_have_it(
    ctx: PassContext, others: dict[str, DataType | None], expected: list[str]
) -> None:
    ctx.settings.casts_of_others = others
    accelerate(CASES["a cast to integers"][0].copy(), ctx)
    assert (steps(ctx, "w"), bool(ctx.warnings)) == (expected, bool(expected))
    assert expected or reason(ctx) == "LOSSY_CAST"


def test_a_variable_of_a_session_with_batch_memory_stays(ctx: PassContext) -> None:
    ctx.variables.resource.share_batch_name("w_ascend_mbatch_batch_1", "w")
    graph = parse(WRITE_BACK)
    before = text(graph)
    assert not VariableOp().run(graph, ctx)
    assert text(graph) == before
    assert ctx.records[0]["reason"] == "SHARED_BATCH"


def test_a_subgraph_is_left_to_the_run_on_its_root(ctx: PassContext) -> None:
    graph = parse(WRITE_BACK)
    root = Graph("root")
    graph.parent = root
    VariableOp().run(graph, ctx)
    assert ctx.records[0]["reason"] == "SUBGRAPH"


def test_a_variable_may_change_once(ctx: PassContext) -> None:
    ctx.rebuild.state_changed("W")
    graph = parse(WRITE_BACK)
    accelerate(graph, ctx)
    assert (steps(ctx, "W"), reason(ctx, "W")) == ([], "LOCKED")


def test_a_variable_with_a_road_is_locked_before_the_graph_is_touched(ctx: PassContext) -> None:
    graph = parse(WRITE_BACK)
    desc = graph.node("W").output_descs[0]
    ctx.variables.set_trans_road("W", TransRoad((TransStep("ReFormat", desc, desc),)))
    before = text(graph)
    accelerate(graph, ctx)
    assert reason(ctx, "W") == "LOCKED" and text(graph) == before


class TestWriteSide:
    """The refs must store back what the readers see."""

    def test_an_assign_right_before_the_ref_does_not_undo_a_conversion(self, ctx: PassContext) -> None:
        graph = parse(WRITE_BACK.replace("Variable(%t4)", "Variable(%upd)"))
        accelerate(graph, ctx)
        assert (steps(ctx, "W"), reason(ctx, "W")) == ([], "REF_NOT_INVERSE")

    def test_a_ref_without_producer_is_refused(self, ctx: PassContext) -> None:
        graph = parse(WRITE_BACK)
        graph.disconnect(graph.node("W_TO_upd_REF_0"), 0)
        VariableOp().run(graph, ctx)
        assert reason(ctx, "W") == "REF_NO_PRODUCER"

    def test_a_write_without_readers_is_refused(self, ctx: PassContext) -> None:
        graph = parse(f"""
            graph g(%d : {HWCN}) {{
              %W = Variable() : {HWCN}
              %W_TO_d_REF_0 = Variable(%d) {{ref_var_src_var_name="W"}} : {HWCN}
              return %d after %W_TO_d_REF_0
            }}
        """)
        accelerate(graph, ctx)
        assert reason(ctx, "W") == "NO_CONSUMER"

    def test_an_operator_with_equal_descriptors_does_not_undo_a_reformat_to_the_same(self, ctx: PassContext) -> None:
        # GE compares descriptors only and deletes the Assign, and with it the write.
        graph = parse("""
            graph g(%d : f32[2] ND) {
              %w = Variable() : f32[2] ND
              %r = ReFormat(%w) : f32[2] ND
              %a = Assign(%r, %d) : f32[2] ND
              %w_TO_a_REF_0 = Variable(%a) {ref_var_src_var_name="w"} : f32[2] ND
              return %a after %w_TO_a_REF_0
            }
        """)
        accelerate(graph, ctx)
        assert (steps(ctx, "w"), reason(ctx)) == ([], "REF_NOT_INVERSE")
        assert "a" in graph

    def test_a_reader_that_is_itself_the_write_back_is_refused(self, ctx: PassContext) -> None:
        graph = parse("""
            graph g() {
              %w = Variable() : f32[2] ND
              %r = ReFormat(%w) : f32[2] ND
              %w_TO_r_REF_0 = Variable(%r) {ref_var_src_var_name="w"} : f32[2] ND
              return %r after %w_TO_r_REF_0
            }
        """)
        accelerate(graph, ctx)
        assert reason(ctx) == "REF_NOT_INVERSE"

    def test_a_second_layer_that_the_refs_do_not_undo_keeps_the_first(self, ctx: PassContext) -> None:
        # GE forgets the whole road here, after it took the first layer out of the graph.
        graph = parse("""
            graph g(%d : f32[2,2] ND) {
              %w = Variable() : f32[4] ND
              %c = Cast(%w) {dst_type=DT_FLOAT16} : f16[4] ND
              %s = Const() {value=[2,2]} : i32[2] ND
              %r = Reshape(%c, %s) : f16[2,2] ND
              %q = Relu(%r) : f16[2,2] ND
              %e = Const() {value=[1.0,2.0,3.0,4.0]} : f16[4] ND
              %b = Cast(%e) {dst_type=DT_FLOAT} : f32[4] ND
              %w_TO_b_REF_0 = Variable(%b) {ref_var_src_var_name="w"} : f32[4] ND
              return %q after %w_TO_b_REF_0
            }
        """)
        counts = accelerate(graph, ctx)
        assert (steps(ctx, "w"), reason(ctx)) == (["Cast"], "REF_NOT_INVERSE")
        assert counts["conversions_removed"] == 2
        assert str(graph.node("r").inputs[0]) == "w:0"
        assert str(graph.node("w").output_descs[0]) == "DT_FLOAT16 ND [4]"
        assert str(graph.node("w_TO_b_REF_0").inputs[0]) == "e:0"

    def test_squeeze_and_reshape_undo_each_other(self, ctx: PassContext) -> None:
        graph = parse("""
            graph g(%d : f32[2,3] ND) {
              %w = Variable() : f32[1,2,3] ND
              %r = SqueezeV2(%w) {axis=[0]} : f32[2,3] ND
              %a = AssignAdd(%r, %d) : f32[2,3] ND
              %s = Const() {value=[1,2,3]} : i32[3] ND
              %b = Reshape(%a, %s) : f32[1,2,3] ND
              %w_TO_a_REF_0 = Variable(%b) {ref_var_src_var_name="w"} : f32[1,2,3] ND
              return %a after %w_TO_a_REF_0
            }
        """)
        accelerate(graph, ctx)
        assert steps(ctx, "w") == ["SqueezeV2"]
        assert str(graph.node("w_TO_a_REF_0").inputs[0]) == "a:0"

    def test_a_way_back_that_the_host_cannot_go_is_refused(self, ctx: PassContext) -> None:
        c04 = "f16[1,1,16,16] FRACTAL_Z_C04 origin [16,4,2,2] NCHW"
        graph = parse(f"""
            graph g(%d : {c04}) {{
              %w = Variable() : f16[16,4,2,2] NCHW
              %t = TransData(%w) {{src_format=NCHW, dst_format=FRACTAL_Z_C04}} : {c04}
              %a = AssignAdd(%t, %d) : {c04}
              %b = TransData(%a) {{src_format=FRACTAL_Z_C04, dst_format=NCHW}} : f16[16,4,2,2] NCHW
              %w_TO_a_REF_0 = Variable(%b) {{ref_var_src_var_name="w"}} : f16[16,4,2,2] NCHW
              return %a after %w_TO_a_REF_0
            }}
        """)
        accelerate(graph, ctx)
        assert (steps(ctx, "w"), reason(ctx)) == ([], "REF_NOT_INVERSE")

    def test_a_writer_behind_a_conversion_that_is_not_stored_back_is_refused(self, ctx: PassContext) -> None:
        # The write goes to the conversion's result; folded, it would go to the variable.
        graph = parse(WRITE_BACK.replace("%W_TO_upd_REF_0 = Variable(%t4)", "%W_TO_upd_REF_0 = Relu(%t4)"))
        del graph.node("W_TO_upd_REF_0").attrs["ref_var_src_var_name"]
        accelerate(graph, ctx)
        assert (steps(ctx, "W"), reason(ctx, "W")) == ([], "REF_NO_PRODUCER")


def test_all_nodes_of_one_variable_decide_and_change_together(ctx: PassContext) -> None:
    graph = parse("""
        graph main(%x : f32[] ND, %y : f16[2] ND) {
          %w = Variable() : f16[2] ND
          %a = Cast(%w) {dst_type=DT_FLOAT} : f32[2] ND
          %r = Relu(%a) : f32[2] ND
          %p = PartitionedCall(%y) {subgraphs=["inner"]} : f32[2] ND
          return %r, %p
        }
        graph inner(%z : f16[2] ND) {
          %w = Variable() : f16[2] ND
          %b = Cast(%w) {dst_type=DT_FLOAT} : f32[2] ND
          %s = Relu(%b) : f32[2] ND
          return %s
        }
    """)
    counts = accelerate(graph, ctx)
    assert counts == {"variables_changed": 1, "conversions_removed": 2}
    inner = graph.subgraphs["inner"]
    assert graph.node("w").output_descs[0] == inner.node("w").output_descs[0]
    assert str(inner.node("s").inputs[0]) == "w:0"
    assert inner.node("w").output_descs[0].dtype is DataType.FLOAT


def test_groups_are_processed_by_name(ctx: PassContext) -> None:
    graph = parse("""
        graph g() {
          %b = Variable() : f16[2] ND
          %a = Variable() : f16[2] ND
          return %a, %b
        }
    """)
    accelerate(graph, ctx)
    assert [each["variable"] for each in ctx.records] == ["a", "b"]


def test_a_control_successor_of_a_variable_is_kept(ctx: PassContext) -> None:
    graph = read("%a = Cast(%w) {dst_type=DT_FLOAT} : f32[2] ND", "%r = Relu(%a) : f32[2] ND after %w",
                 variable="f16[2] ND")  # fmt: skip
    accelerate(graph, ctx)
    assert [node.name for node in graph.node("r").control_in] == ["w"]


def test_a_variable_behind_a_transpose_says_how_its_bytes_are_read(ctx: PassContext) -> None:
    graph = parse("""
        graph g() {
          %w = Variable() : f16[2,3,4,5] NCHW
          %t = TransposeD(%w) {perm=[0,2,3,1]} : f16[2,4,5,3] NHWC
          %b = TransData(%t) {dst_format=NC1HWC0, src_format=NHWC} : f16[2,1,4,5,16] NC1HWC0 origin [2,4,5,3] NHWC
          %y = Abs(%b) : f16[2,1,4,5,16] NC1HWC0 origin [2,4,5,3] NHWC
          return %y
        }
    """)
    assert accelerate(graph, ctx) == {"variables_changed": 1, "conversions_removed": 2}
    stored = graph.node("w").output_descs[0]
    assert (stored.logical_shape, stored.logical_format) == ((2, 4, 5, 3), Format.NHWC)


def test_readers_that_take_the_axes_for_others_do_not_agree(ctx: PassContext) -> None:
    graph = parse("""
        graph g() {
          %w = Variable() : f16[2,2,2,2] NCHW
          %a = TransData(%w) {dst_format=NC1HWC0, src_format=NCHW} : f16[2,1,2,2,16] NC1HWC0 origin [2,2,2,2] NCHW
          %b = TransData(%w) {dst_format=NC1HWC0, src_format=NCHW} : f16[2,1,2,2,16] NC1HWC0 origin [2,2,2,2] NHWC
          return %a, %b
        }
    """)
    assert accelerate(graph, ctx) == {}
    assert reason(ctx) == "KEYS_DIFFER"
