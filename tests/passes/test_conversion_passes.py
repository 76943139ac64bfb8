"""The passes that remove conversions: before and after."""

from __future__ import annotations

from textwrap import dedent

import pytest

from gecli.ir.text import parse, text
from gecli.ir.verify import verify
from gecli.passes.base import Pass, PassContext
from gecli.passes.cast_remove import CastRemove
from gecli.passes.const_kind import ConstKind
from gecli.passes.normalise_trans_ops import NormaliseTransOps
from gecli.passes.same_transdata_breadth_fusion import SameTransdataBreadthFusion
from gecli.passes.transop_breadth_fusion import TransOpBreadthFusion
from gecli.passes.transop_symmetry_elimination import TransOpSymmetryElimination
from gecli.passes.transop_without_reshape_fusion import TransOpWithoutReshapeFusion
from gecli.passes.transpose_transdata import TransposeTransData

NCHW = "[1,20,2,2] NCHW"
HEAVY = "[1,2,2,2,16] NC1HWC0 origin [1,20,2,2] NCHW"
TO_HEAVY = "{dst_format=NC1HWC0, src_format=NCHW}"
TO_PLAIN = "{dst_format=NCHW, src_format=NC1HWC0}"


def graph_text(body: str, outputs: str, arguments: str) -> str:
    lines = "\n".join(f"  {line.strip()}" for line in body.splitlines() if line.strip())
    return f"graph g({arguments}) {{\n{lines}\n  return {outputs}\n}}\n"


def changed(step: Pass, ctx: PassContext, before: str, after: str, outputs: str = "%y", x: str = f"f16{NCHW}") -> None:
    """`step` turns the body `before` into `after`, and `after` into itself."""
    graph = parse(graph_text(before, outputs, f"%x : {x}"))
    step.run(graph, ctx)
    assert text(graph) == graph_text(after, outputs, f"%x : {x}")
    assert verify(graph) == []
    counts = step.run(graph, ctx)
    assert text(graph) == graph_text(after, outputs, f"%x : {x}")
    assert not +counts


def kept(step: Pass, ctx: PassContext, body: str, outputs: str = "%y", x: str = f"f16{NCHW}") -> None:
    changed(step, ctx, body, body, outputs, x)


# ---------------------------------------------------------------- TransOpSymmetryElimination


@pytest.mark.parametrize(
    ("first", "middle", "second"),
    [
        (f"TransData(%r) {TO_HEAVY}", f"f16{HEAVY}", f"TransData(%a) {TO_PLAIN}"),
        ("Cast(%r) {dst_type=0}", f"f32{NCHW}", "Cast(%a) {dst_type=1}"),
        ("TransposeD(%r) {perm=[0, 2, 3, 1]}", "f16[1,2,2,20] NHWC", "TransposeD(%a) {perm=[0, 3, 1, 2]}"),
        ("ReFormat(%r)", "f16[1,20,2,2] ND", "ReFormat(%a)"),
        ("SqueezeV2(%r) {axis=[0]}", "f16[20,2,2] ND", "UnsqueezeV2(%a) {axis=[0]}"),
    ],
)
def test_a_conversion_and_its_inverse_vanish(ctx: PassContext, first: str, middle: str, second: str) -> None:
    changed(
        TransOpSymmetryElimination(),
        ctx,
        f"""
        %r = Relu(%x) : f16{NCHW}
        %a = {first} : {middle}
        %b = {second} : f16{NCHW}
        %y = Relu(%b) : f16{NCHW}
        """,
        f"""
        %r = Relu(%x) : f16{NCHW}
        %y = Relu(%r) : f16{NCHW}
        """,
    )


def test_four_in_a_row_vanish(ctx: PassContext) -> None:
    changed(
        TransOpSymmetryElimination(),
        ctx,
        f"""
        %r = Relu(%x) : f16{NCHW}
        %a = TransData(%r) {TO_HEAVY} : f16{HEAVY}
        %b = TransData(%a) {TO_PLAIN} : f16{NCHW}
        %c = TransData(%b) {TO_HEAVY} : f16{HEAVY}
        %d = TransData(%c) {TO_PLAIN} : f16{NCHW}
        %y = Relu(%d) : f16{NCHW}
        """,
        f"""
        %r = Relu(%x) : f16{NCHW}
        %y = Relu(%r) : f16{NCHW}
        """,
    )


def test_the_first_of_two_stays_for_other_readers_and_control_moves_to_the_consumer(ctx: PassContext) -> None:
    changed(
        TransOpSymmetryElimination(),
        ctx,
        f"""
        %r = Relu(%x) : f16{NCHW}
        %s = Relu(%x) : f16{NCHW}
        %a = TransData(%r) {TO_HEAVY} : f16{HEAVY} after %s
        %b = TransData(%a) {TO_PLAIN} : f16{NCHW}
        %y = Relu(%b) : f16{NCHW}
        %z = Relu(%a) : f16{HEAVY}
        """,
        f"""
        %r = Relu(%x) : f16{NCHW}
        %s = Relu(%x) : f16{NCHW}
        %a = TransData(%r) {TO_HEAVY} : f16{HEAVY} after %s
        %y = Relu(%r) : f16{NCHW} after %s
        %z = Relu(%a) : f16{HEAVY}
        """,
        outputs="%y, %z",
    )


@pytest.mark.parametrize(
    ("first", "middle", "second", "desc"),
    [
        ("Cast(%r) {dst_type=1}", f"f16{NCHW}", "Cast(%a) {dst_type=0}", f"f32{NCHW}"),
        ("Cast(%r) {dst_type=3}", f"i32{NCHW}", "Cast(%a) {dst_type=1}", f"f16{NCHW}"),
        (
            "TransposeD(%r) {perm=[1, 2, 0, 3]}",
            "f16[2,2,2,2] NCHW",
            "TransposeD(%a) {perm=[1, 2, 0, 3]}",
            "f16[2,2,2,2] NCHW",
        ),
        ("TransposeD(%r)", "f16[2,2,2,2] NCHW", "TransposeD(%a)", "f16[2,2,2,2] NCHW"),
        ("SqueezeV2(%r) {axis=[0]}", "f16[20,2,2] ND", "UnsqueezeV2(%a) {axis=[1]}", "f16[1,20,2,2] ND"),
    ],
)
def test_what_is_no_exact_inverse_stays(ctx: PassContext, first: str, middle: str, second: str, desc: str) -> None:
    kept(
        TransOpSymmetryElimination(),
        ctx,
        f"""
        %r = Relu(%x) : {desc}
        %a = {first} : {middle}
        %b = {second} : {desc}
        %y = Relu(%b) : {desc}
        """,
        x=desc,
    )


def test_ges_notion_of_loss_lets_a_rounding_pair_go(ctx: PassContext) -> None:
    changed(
        TransOpSymmetryElimination(lossy=True),
        ctx,
        """
        %r = Relu(%x) : f32[4] ND
        %a = Cast(%r) {dst_type=1} : f16[4] ND
        %b = Cast(%a) {dst_type=0} : f32[4] ND
        %y = Relu(%b) : f32[4] ND
        """,
        """
        %r = Relu(%x) : f32[4] ND
        %y = Relu(%r) : f32[4] ND
        """,
        x="f32[4] ND",
    )


# ---------------------------------------------------------------- TransOpWithoutReshapeFusion


@pytest.mark.parametrize(
    ("chain", "end", "after"),
    [
        (
            f"""
            %a = Cast(%r) {{dst_type=0}} : f32{NCHW}
            %b = TransData(%a) {TO_HEAVY} : f32{HEAVY}
            %c = TransData(%b) {TO_PLAIN} : f32{NCHW}
            %d = Cast(%c) {{dst_type=1}} : f16{NCHW}
            """,
            f"f16{NCHW}",
            "",
        ),
        (
            f"""
            %a = Cast(%r) {{dst_type=0}} : f32{NCHW}
            %b = TransData(%a) {TO_HEAVY} : f32{HEAVY}
            %d = Cast(%b) {{dst_type=1}} : f16{HEAVY}
            """,
            f"f16{HEAVY}",
            "%fusion_format_transfer_0 = TransData(%r) {dst_format=NC1HWC0, dst_subformat=0, groups=1, src_format=NCHW,"
            f" src_subformat=0}} : f16{HEAVY}",
        ),
        (
            f"""
            %a = TransData(%r) {TO_HEAVY} : f16{HEAVY}
            %b = Cast(%a) {{dst_type=0}} : f32{HEAVY}
            %d = TransData(%b) {TO_PLAIN} : f32{NCHW}
            """,
            f"f32{NCHW}",
            f"%fusion_cast_op_0 = Cast(%r) {{dst_type=0}} : f32{NCHW}",
        ),
    ],
)
def test_a_chain_becomes_the_shortest_one(ctx: PassContext, chain: str, end: str, after: str) -> None:
    start = f"%r = Relu(%x) : f16{NCHW}\n"
    source = after.split(" ")[0] if after else "%r"
    changed(
        TransOpWithoutReshapeFusion(),
        ctx,
        start + dedent(chain) + f"%y = Relu(%d) : {end}",
        start + (after + "\n" if after else "") + f"%y = Relu({source}) : {end}",
    )


@pytest.mark.parametrize(
    "chain",
    [
        # a reshape among them
        """
        %a = Cast(%r) {dst_type=0} : f32[1,20,2,2] NCHW
        %b = UnsqueezeV2(%a) {axis=[0]} : f32[1,1,20,2,2] ND
        %c = SqueezeV2(%b) {axis=[0]} : f32[1,20,2,2] NCHW
        %d = Cast(%c) {dst_type=1} : f16[1,20,2,2] NCHW
        """,
        # a loss of values on the way
        f"""
        %a = Cast(%r) {{dst_type=3}} : i32{NCHW}
        %b = TransData(%a) {TO_HEAVY} : i32{HEAVY}
        %c = TransData(%b) {TO_PLAIN} : i32{NCHW}
        %d = Cast(%c) {{dst_type=1}} : f16{NCHW}
        """,
        # already the shortest
        f"""
        %a = Cast(%r) {{dst_type=0}} : f32{NCHW}
        %d = TransData(%a) {TO_HEAVY} : f32{HEAVY}
        """,
    ],
)
def test_chains_that_cannot_be_shorter_stay(ctx: PassContext, chain: str) -> None:
    body = f"%r = Relu(%x) : f16{NCHW}\n" + dedent(chain)
    end = chain.strip().splitlines()[-1].split(" : ")[1]
    kept(TransOpWithoutReshapeFusion(), ctx, body + f"%y = Relu(%d) : {end}")


def test_a_chain_with_a_node_ordered_between_its_conversions_stays(ctx: PassContext) -> None:
    """One node in its place would have to run before and behind `n`."""
    graph = parse("""
        graph g(%x : f32[2,4,5,3] NHWC) {
          %t1 = TransposeD(%x) {perm=[0,3,1,2]} : f32[2,3,4,5] NCHW
          %n = Neg(%x) : f32[2,4,5,3] NHWC after %t1
          %t2 = TransData(%t1) {src_format="NCHW", dst_format="NC1HWC0"} : f32[2,1,4,5,8] NC1HWC0 after %n
          %o = Abs(%t2) : f32[2,1,4,5,8] NC1HWC0
          return %o, %n
        }
    """)
    before = text(graph)
    assert not TransOpWithoutReshapeFusion().run(graph, ctx)
    assert text(graph) == before


def test_control_edges_of_a_chain_move_to_its_replacement(ctx: PassContext) -> None:
    changed(
        TransOpWithoutReshapeFusion(),
        ctx,
        f"""
        %r = Relu(%x) : f16{NCHW}
        %s = Relu(%x) : f16{NCHW}
        %a = TransData(%r) {TO_HEAVY} : f16{HEAVY} after %s
        %b = Cast(%a) {{dst_type=0}} : f32{HEAVY}
        %c = TransData(%b) {TO_PLAIN} : f32{NCHW}
        %y = Relu(%c) : f32{NCHW}
        %z = Relu(%x) : f16{NCHW} after %b
        """,
        f"""
        %r = Relu(%x) : f16{NCHW}
        %s = Relu(%x) : f16{NCHW}
        %fusion_cast_op_0 = Cast(%r) {{dst_type=0}} : f32{NCHW} after %s
        %y = Relu(%fusion_cast_op_0) : f32{NCHW}
        %z = Relu(%x) : f16{NCHW} after %fusion_cast_op_0
        """,
        outputs="%y, %z, %s",
    )


# ---------------------------------------------------------------- TransOpBreadthFusion


def test_equal_siblings_become_one(ctx: PassContext) -> None:
    changed(
        TransOpBreadthFusion(),
        ctx,
        f"""
        %a = TransData(%x) {TO_HEAVY} : f16{HEAVY}
        %b = TransData(%x) {TO_HEAVY} : f16{HEAVY}
        %p = TransposeD(%x) {{perm=[0, 1, 3, 2]}} : f16{NCHW}
        %q = TransposeD(%x) {{perm=[0, 1, 2, 3]}} : f16{NCHW}
        %c = Relu(%a) : f16{HEAVY}
        %y = Relu(%b) : f16{HEAVY}
        """,
        f"""
        %a = TransData(%x) {TO_HEAVY} : f16{HEAVY}
        %p = TransposeD(%x) {{perm=[0, 1, 3, 2]}} : f16{NCHW}
        %q = TransposeD(%x) {{perm=[0, 1, 2, 3]}} : f16{NCHW}
        %c = Relu(%a) : f16{HEAVY}
        %y = Relu(%a) : f16{HEAVY}
        """,
        outputs="%c, %y, %p, %q",
    )


def test_siblings_ordered_behind_different_nodes_stay_apart(ctx: PassContext) -> None:
    kept(
        TransOpBreadthFusion(),
        ctx,
        f"""
        %s = Relu(%x) : f16{NCHW}
        %a = TransData(%x) {TO_HEAVY} : f16{HEAVY}
        %b = TransData(%x) {TO_HEAVY} : f16{HEAVY} after %s
        """,
        outputs="%a, %b, %s",
    )


# ---------------------------------------------------------------- SameTransdataBreadthFusion

HEAVY16 = "[1,2,2,2,16] NC1HWC0 origin [1,20,2,2] NCHW"
HEAVY8 = "[1,3,2,2,8] NC1HWC0 origin [1,20,2,2] NCHW"


def test_a_transdata_behind_casts_moves_to_the_head(ctx: PassContext) -> None:
    changed(
        SameTransdataBreadthFusion(),
        ctx,
        f"""
        %w = Variable() : f32{NCHW}
        %a = Cast(%w) {{dst_type=1}} : f16{NCHW}
        %b = TransData(%a) {TO_HEAVY} : f16{HEAVY16}
        %c = TransData(%w) {TO_HEAVY} : f32{HEAVY16}
        %y = Relu(%b) : f16{HEAVY16}
        %z = Relu(%c) : f32{HEAVY16}
        """,
        f"""
        %w = Variable() : f32{NCHW}
        %c = TransData(%w) {TO_HEAVY} : f32{HEAVY16}
        %a = Cast(%c) {{dst_type=1}} : f16{HEAVY16}
        %y = Relu(%a) : f16{HEAVY16}
        %z = Relu(%c) : f32{HEAVY16}
        """,
        outputs="%y, %z",
    )


def test_a_hoist_that_would_give_a_type_a_foreign_c0_is_refused(ctx: PassContext) -> None:
    kept(
        SameTransdataBreadthFusion(),
        ctx,
        f"""
        %a = Cast(%x) {{dst_type=0}} : f32{NCHW}
        %b = TransData(%a) {TO_HEAVY} : f32{HEAVY8}
        %c = Cast(%x) {{dst_type=0}} : f32{NCHW}
        %d = TransData(%c) {TO_HEAVY} : f32{HEAVY8}
        """,
        outputs="%b, %d",
    )


def test_one_path_alone_and_paths_into_different_formats_stay(ctx: PassContext) -> None:
    kept(
        SameTransdataBreadthFusion(),
        ctx,
        f"""
        %a = Cast(%x) {{dst_type=1}} : f16{NCHW}
        %b = TransData(%a) {TO_HEAVY} : f16{HEAVY16}
        %c = TransData(%x) {{dst_format=NHWC, src_format=NCHW}} : f32[1,2,2,20] NHWC
        """,
        outputs="%b, %c",
        x=f"f32{NCHW}",
    )


def test_equal_paths_of_a_written_variable_are_merged_where_they_are(ctx: PassContext) -> None:
    graph = parse(
        graph_text(
            f"""
            %w = Variable() : f32{NCHW}
            %a = Cast(%w) {{dst_type=1}} : f16{NCHW}
            %b = TransData(%a) {TO_HEAVY} : f16{HEAVY16}
            %c = Cast(%w) {{dst_type=1}} : f16{NCHW}
            %d = TransData(%c) {TO_HEAVY} : f16{HEAVY16}
            %s = Assign(%w, %x) : f32{NCHW}
            %ref = Variable(%s) {{ref_var_src_var_name="w"}} : f32{NCHW}
            """,
            "%b, %d, %ref",
            f"%x : f32{NCHW}",
        )
    )
    counts = SameTransdataBreadthFusion().run(graph, ctx)
    assert counts["paths_merged"] == 2
    assert [node.name for node in graph.nodes()][:4] == ["x", "w", "a", "b"]
    assert [str(port) for port in graph.outputs] == ["b:0", "b:0", "ref:0"]


# ---------------------------------------------------------------- CastRemove


def test_a_cast_to_the_same_type_goes(ctx: PassContext) -> None:
    changed(
        CastRemove(),
        ctx,
        "%r = Relu(%x) : f16[4] ND\n%a = Cast(%r) {dst_type=1} : f16[4] ND\n%y = Relu(%a) : f16[4] ND",
        "%r = Relu(%x) : f16[4] ND\n%y = Relu(%r) : f16[4] ND",
        x="f16[4] ND",
    )


def test_casts_around_other_conversions_go_and_those_keep_their_names(ctx: PassContext) -> None:
    changed(
        CastRemove(),
        ctx,
        f"""
        %r = Relu(%x) : f16{NCHW}
        %a = Cast(%r) {{dst_type=0}} : f32{NCHW}
        %t = TransposeD(%a) {{perm=[0, 2, 3, 1]}} : f32[1,2,2,20] NHWC
        %b = Cast(%t) {{dst_type=1}} : f16[1,2,2,20] NHWC
        %y = Relu(%b) : f16[1,2,2,20] NHWC
        """,
        f"""
        %r = Relu(%x) : f16{NCHW}
        %t = TransposeD(%r) {{perm=[0, 2, 3, 1]}} : f16[1,2,2,20] NHWC
        %y = Relu(%t) : f16[1,2,2,20] NHWC
        """,
    )
    assert [record["event"] for record in ctx.records] == ["cast_removed", "retyped", "cast_removed"]


def test_a_chain_that_rounds_or_has_another_reader_keeps_its_casts(ctx: PassContext) -> None:
    rounding = (
        "%r = Relu(%x) : f32[4] ND\n%a = Cast(%r) {dst_type=1} : f16[4] ND\n%y = Cast(%a) {dst_type=0} : f32[4] ND"
    )
    kept(CastRemove(), ctx, rounding, x="f32[4] ND")
    shared = "%r = Relu(%x) : f16[4] ND\n%a = Cast(%r) {dst_type=0} : f32[4] ND\n%y = Cast(%a) {dst_type=1} : f16[4] ND"
    kept(CastRemove(), ctx, shared, outputs="%y, %a", x="f16[4] ND")


# ---------------------------------------------------------------- TransposeTransData


def test_a_transpose_in_front_of_a_transdata_is_folded_into_it(ctx: PassContext) -> None:
    attrs = "{dst_format=FRACTAL_Z, dst_subformat=0, groups=1, src_format=NHWC, src_subformat=0}"
    changed(
        TransposeTransData(),
        ctx,
        """
        %r = Relu(%x) : f16[4,3,3,20] NHWC
        %t = TransposeD(%r) {perm=[1, 2, 3, 0]} : f16[3,3,20,4] HWCN
        %y = TransData(%t) {dst_format=FRACTAL_Z, src_format=HWCN} : f16[18,1,16,16] FRACTAL_Z origin [4,3,3,20] NHWC
        """,
        f"""
        %r = Relu(%x) : f16[4,3,3,20] NHWC
        %y = TransData(%r) {attrs} : f16[18,1,16,16] FRACTAL_Z origin [4,3,3,20] NHWC
        """,
        x="f16[4,3,3,20] NHWC",
    )


def test_a_perm_that_is_not_the_one_of_its_formats_is_not_folded(ctx: PassContext) -> None:
    kept(
        TransposeTransData(),
        ctx,
        """
        %t = TransposeD(%x) {perm=[2, 1, 3, 0]} : f16[3,3,20,4] HWCN
        %y = TransData(%t) {dst_format=FRACTAL_Z, src_format=HWCN} : f16[18,1,16,16] FRACTAL_Z origin [4,3,3,20] NHWC
        """,
        x="f16[4,3,3,20] NHWC",
    )


# ---------------------------------------------------------------- NormaliseTransOps, ConstKind


@pytest.mark.parametrize(
    ("before", "after", "result"),
    [
        ("Transpose(%x, %k)", "TransposeD(%x) {perm=[1, 0, 2]}", "f32[1,2,3] ND"),
        ("Permute(%x) {order=[1, 0]}", "TransposeD(%x) {perm=[1, 0, 2]}", "f32[1,2,3] ND"),
        ("SqueezeV3(%x, %k)", "SqueezeV2(%x) {axis=[1]}", "f32[2,3] ND"),
        ("Squeeze(%x) {axis=[-2]}", "SqueezeV2(%x) {axis=[1]}", "f32[2,3] ND"),
        ("Squeeze(%x)", "SqueezeV2(%x) {axis=[1]}", "f32[2,3] ND"),
        ("UnsqueezeV3(%x, %k)", "UnsqueezeV2(%x) {axis=[3]}", "f32[2,1,3,1] ND"),
        ("ExpandDims(%x, %k)", "UnsqueezeV2(%x) {axis=[0]}", "f32[1,2,1,3] ND"),
        ("Unsqueeze(%x) {axes=[0, 4]}", "UnsqueezeV2(%x) {axis=[0, 4]}", "f32[1,2,1,3,1] ND"),
    ],
)
def test_constant_parameters_become_attributes(ctx: PassContext, before: str, after: str, result: str) -> None:
    values = {"Transpose": "[1, 0, 2]", "SqueezeV3": "[1]", "UnsqueezeV3": "[-1]", "ExpandDims": "[0]"}
    constant = values.get(before.split("(")[0])
    line = f"%k = Const() {{value={constant}}} : i64[{constant.count(',') + 1}] ND\n" if constant else ""
    changed(NormaliseTransOps(), ctx, f"{line}%y = {before} : {result}", f"%y = {after} : {result}", x="f32[2,1,3] ND")


def test_a_transpose_with_a_computed_perm_stays(ctx: PassContext) -> None:
    kept(NormaliseTransOps(), ctx, "%k = Relu(%x) : i64[2] ND\n%y = Transpose(%x, %k) : i64[2] ND", x="i64[2] ND")


@pytest.mark.parametrize(("train", "kind", "other"), [(True, "Constant", "Const"), (False, "Const", "Constant")])
def test_constants_live_in_variable_memory_only_when_training(
    ctx: PassContext, train: bool, kind: str, other: str
) -> None:
    ctx.settings.train = train
    body = "%k = {}() {{value=[1.0]}} : f32[1] ND\n%y = Add(%x, %k) : f32[1] ND"
    changed(ConstKind(), ctx, body.format(other), body.format(kind), x="f32[1] ND")
