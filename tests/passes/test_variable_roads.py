"""RecoverTransRoads and CancelInverseTrans: a later graph meets a variable that is stored in another form."""

from __future__ import annotations

from textwrap import dedent

import pytest

from gecli.errors import CompileError
from gecli.ir.graph import Graph
from gecli.ir.text import parse, parse_desc, text
from gecli.ir.verify import verify
from gecli.passes.base import PassContext
from gecli.passes.cancel_inverse_trans import CancelInverseTrans
from gecli.passes.recover_trans_roads import RecoverTransRoads
from gecli.passes.variable_op import VariableOp
from gecli.passes.variable_prepare import VariablePrepare
from gecli.variables.trans_road import TransRoad, TransStep

ND, HWCN = "f32[2,2,3,2] ND", "f32[2,2,3,2] HWCN"
FZ = "f32[4,1,16,16] FRACTAL_Z"


def shown(source: str) -> str:
    return dedent(source).lstrip("\n")


def road(*steps: tuple[str, str, str]) -> TransRoad:
    return TransRoad(TransStep(kind, parse_desc(src), parse_desc(dst)) for kind, src, dst in steps)


def fractal_road(ctx: PassContext) -> TransRoad:
    """variables.md 9.3: what graph 3 did to var1."""
    found = road(("ReFormat", "f16[2,2,3,2] ND", "f16[2,2,3,2] HWCN"), ("TransData", "f16[2,2,3,2] HWCN", FZ16))
    ctx.variables.set_trans_road("v", found)
    return found


FZ16 = "f16[4,1,16,16] FRACTAL_Z origin [2,2,3,2] HWCN"


def test_a_reader_gets_the_road_backwards(ctx: PassContext) -> None:
    """variables.md 9.3, graph 2 again."""
    fractal_road(ctx)
    graph = parse("""
        graph ckpt() {
          %v = Variable() : f16[2,2,3,2] ND
          return %v
        }
    """)
    counts = RecoverTransRoads().run(graph, ctx)
    assert text(graph) == shown(f"""
        graph ckpt() {{
          %v = Variable() : {FZ16}
          %v_trans_0 = TransData(%v) {{_inserted_by_ge=true, dst_format=HWCN, dst_subformat=0, groups=1, src_format=FRACTAL_Z, src_subformat=0}} : f16[2,2,3,2] HWCN
          %v_trans_1 = ReFormat(%v_trans_0) {{_inserted_by_ge=true}} : f16[2,2,3,2] ND
          return %v_trans_1
        }}
    """)  # noqa: E501  # one node a line
    assert counts == {"conversions_inserted": 2, "variables_recovered": 1}


def test_a_write_back_gets_the_road_forwards(ctx: PassContext) -> None:
    target = fractal_road(ctx).target
    graph = parse("""
        graph g(%x : f16[2,2,3,2] ND) {
          %v = Variable() : f16[2,2,3,2] ND
          %a = AssignAdd(%v, %x) {_stream_label="s"} : f16[2,2,3,2] ND
          return %a
        }
    """)
    VariablePrepare().run(graph, ctx)
    RecoverTransRoads().run(graph, ctx)
    assert not verify(graph)
    ref = graph.node("v_TO_a_REF_0")
    chain = [ref]
    while chain[-1].name != "a":
        assert chain[-1].inputs[0] is not None
        chain.append(chain[-1].inputs[0].node)
    assert [(node.name, node.type) for node in chain[1:-1]] == [
        ("v_TO_a_REF_0_trans_0", "TransData"),
        ("v_TO_a_REF_0_trans_1", "ReFormat"),
    ]
    assert ref.output_descs[0].same_storage(target) and ref.input_descs[0] == ref.output_descs[0]
    assert {node.attrs.get("_stream_label") for node in chain} == {"s"}
    assert str(graph.node("a").inputs[0]) == "v_trans_1:0"


def test_control_edges_move_to_the_ends_of_the_conversions(ctx: PassContext) -> None:
    fractal_road(ctx)
    graph = parse("""
        graph g(%x : f16[2,2,3,2] ND) {
          %v = Variable() : f16[2,2,3,2] ND
          %q = Relu(%x) : f16[2,2,3,2] ND after %v
          %r = Variable(%x) {ref_var_src_var_name="v"} : f16[2,2,3,2] ND after %q
          return %v, %q after %r
        }
    """)
    RecoverTransRoads().run(graph, ctx)
    assert [node.name for node in graph.node("q").control_in] == ["v_trans_1"]
    assert [node.name for node in graph.node("q").control_out] == ["r_trans_1"]


def test_a_reader_behind_a_write_and_an_output_have_conversions_of_their_own(ctx: PassContext) -> None:
    """With one conversion for all, which GE inserts, `r` and the output would get the value before `a`."""
    fractal_road(ctx)
    graph = parse("""
        graph g(%x : f16[2,2,3,2] ND) {
          %v = Variable() : f16[2,2,3,2] ND
          %q = Relu(%v) : f16[2,2,3,2] ND
          %a = AssignAdd(%v, %x) : f16[2,2,3,2] ND after %q
          %s = Relu(%a) : f16[2,2,3,2] ND
          %r = Add(%v, %s) : f16[2,2,3,2] ND
          return %q, %r, %v
        }
    """)
    VariablePrepare().run(graph, ctx)
    assert RecoverTransRoads().run(graph, ctx)["conversions_inserted"] == 2 + 2 + 2 + 2
    assert not verify(graph)
    reads = {"q": graph.node("q").inputs[0], "a": graph.node("a").inputs[0], "r": graph.node("r").inputs[0]}
    assert {name: str(port) for name, port in reads.items()} == {
        "q": "v_trans_1:0",
        "a": "v_trans_1:0",
        "r": "v_trans_1_1:0",
    }
    assert [node.name for node in graph.node("v_trans_0_1").control_in] == ["s", "v_TO_a_REF_0"]
    assert str(graph.outputs[2]) == "v_trans_1_2:0"
    assert [node.name for node in graph.node("v_trans_0_2").control_in] == ["v_TO_a_REF_0"]
    before = text(graph)
    assert not RecoverTransRoads().run(graph, ctx)
    assert text(graph) == before


def test_recovering_twice_changes_nothing(ctx: PassContext) -> None:
    fractal_road(ctx)
    graph = parse("""
        graph g(%x : f16[2,2,3,2] ND) {
          %v = Variable() : f16[2,2,3,2] ND
          %a = AssignAdd(%v, %x) : f16[2,2,3,2] ND
          return %a
        }
    """)
    VariablePrepare().run(graph, ctx)
    RecoverTransRoads().run(graph, ctx)
    before = text(graph)
    assert not RecoverTransRoads().run(graph, ctx)
    assert text(graph) == before


def test_variables_without_a_road_and_of_the_second_kind_stay(ctx: PassContext) -> None:
    ctx.variables.set_trans_road("u", fractal_road(ctx))
    ctx.variables.set_trans_road("e", TransRoad())
    graph = parse("""
        graph g() {
          %w = Variable() : f16[2,2,3,2] ND
          %e = Variable() : f16[2,2,3,2] ND
          %u = VariableV2() : f16[2,2,3,2] ND
          return %w, %e, %u
        }
    """)
    before = text(graph)
    assert not RecoverTransRoads().run(graph, ctx)
    assert text(graph) == before


@pytest.mark.parametrize(
    ("steps", "types", "attrs"),
    [
        ((("SqueezeV2", "f32[1,4,1] ND", "f32[4] ND"),), ["UnsqueezeV2"], {"axis": (0, 2)}),
        ((("UnsqueezeV2", "f32[4,1] ND", "f32[1,4,1] ND"),), ["SqueezeV2"], {"axis": (0,)}),
        ((("SqueezeV2", "f32[1,1,4] ND", "f32[1,4] ND"),), ["UnsqueezeV2"], {"axis": (0,)}),
        ((("TransposeD", "f32[2,3,4,5] HWCN", "f32[5,4,2,3] NCHW"),), ["TransposeD"], {"perm": (2, 3, 1, 0)}),
        ((("Cast", "f16[4] ND", "f32[4] ND"),), ["Cast"], {"dst_type": 1}),
        ((("Reshape", "f32[4] ND", "f32[2,2] ND"),), ["Reshape"], {}),
        ((("ReFormat", "f32[4] ND", "f32[4] NCHW"),), ["ReFormat"], {}),
    ],
)
def test_the_attributes_of_inserted_conversions_follow_from_the_descriptors(
    ctx: PassContext, steps: tuple[tuple[str, str, str], ...], types: list[str], attrs: dict[str, object]
) -> None:
    ctx.variables.set_trans_road("v", road(*steps))
    graph = parse(f"graph g() {{\n %v = Variable() : {steps[0][1]}\n return %v\n }}")
    RecoverTransRoads().run(graph, ctx)
    inserted = graph.node("v_trans_0")
    assert [inserted.type] == types
    assert {name: value for name, value in inserted.attrs.items() if name != "_inserted_by_ge"} == attrs


def test_an_inserted_reshape_gets_its_shape_input(ctx: PassContext) -> None:
    ctx.variables.set_trans_road("v", road(("Reshape", "f32[4] ND", "f32[2,2] ND")))
    graph = parse("graph g() {\n %v = Variable() : f32[4] ND\n return %v\n }")
    RecoverTransRoads().run(graph, ctx)
    shape = graph.node("v_trans_0").inputs[1]
    assert shape is not None and shape.node.attrs["value"].numpy().tolist() == [4]
    assert not verify(graph)


def test_the_initial_value_takes_the_road_too(ctx: PassContext) -> None:
    ctx.variables.set_trans_road("v", road(("Cast", "f32[2] ND", "i32[2] ND")))
    graph = parse("""
        graph g() {
          %v = Variable() {_init_value=[1.5, -2.5]} : f32[2] ND
          %c = Cast(%v) {dst_type=DT_INT32} : i32[2] ND
          return %c
        }
    """)
    RecoverTransRoads().run(graph, ctx)
    initial = graph.node("v").init_value
    assert initial is not None and initial.numpy().tolist() == [1, -2]


def test_a_declared_format_that_differs_from_the_road_gets_a_reformat(ctx: PassContext) -> None:
    fractal_road(ctx)
    graph = parse("graph g() {\n %v = Variable() : f16[2,2,3,2] HWCN\n return %v\n }")
    RecoverTransRoads().run(graph, ctx)
    (port,) = graph.outputs
    assert port.node.type == "ReFormat" and str(port.desc) == "DT_FLOAT16 HWCN [2,2,3,2]"


def test_another_declared_form_stops_the_compile(ctx: PassContext) -> None:
    fractal_road(ctx)
    graph = parse("graph g() {\n %v = Variable() : f16[4,6] ND\n return %v\n }")
    before = text(graph)
    with pytest.raises(CompileError, match="another form") as caught:
        RecoverTransRoads().run(graph, ctx)
    assert caught.value.code == "G2016" and text(graph) == before


def test_a_second_graph_meets_the_changed_variable_without_a_conversion_left(ctx: PassContext) -> None:
    source = """
        graph g(%x : f16[4] ND) {
          %v = Variable() : f32[4] ND
          %a = Cast(%v) {dst_type=DT_FLOAT16} : f16[4] ND
          %u = AssignAdd(%a, %x) : f16[4] ND
          %b = Cast(%u) {dst_type=DT_FLOAT} : f32[4] ND
          %r = Variable(%b) {ref_var_src_var_name="v"} : f32[4] ND
          return %u after %r
        }
    """
    first = parse(source)
    VariableOp().run(first, ctx)
    second = parse(source)
    ctx.graph_id = 2
    assert RecoverTransRoads().run(second, ctx)["conversions_inserted"] == 2
    VariableOp().run(second, ctx)
    assert CancelInverseTrans().run(second, ctx)["nodes_removed"] > 0
    assert text(second) == text(first)
    assert not CancelInverseTrans().run(second, ctx)


def cancelled(source: str, ctx: PassContext) -> tuple[Graph, int]:
    graph = parse(source)
    counts = CancelInverseTrans().run(graph, ctx)
    assert not verify(graph)
    return graph, counts["nodes_removed"]


def test_a_pair_that_undoes_itself_disappears(ctx: PassContext) -> None:
    graph, removed = cancelled(
        f"""
        graph g(%x : {FZ16}) {{
          %a = TransData(%x) {{src_format=FRACTAL_Z, dst_format=HWCN}} : f16[2,2,3,2] HWCN
          %b = TransData(%a) {{src_format=HWCN, dst_format=FRACTAL_Z}} : {FZ16}
          %r = Relu(%b) : {FZ16}
          return %r
        }}
        """,
        ctx,
    )
    assert removed == 2
    assert text(graph) == shown(f"""
        graph g(%x : {FZ16}) {{
          %r = Relu(%x) : {FZ16}
          return %r
        }}
    """)


def test_the_first_of_a_pair_stays_for_its_other_readers(ctx: PassContext) -> None:
    graph, removed = cancelled(
        """
        graph g(%x : f32[2,2] ND) {
          %a = ReFormat(%x) : f32[2,2] NCHW
          %b = ReFormat(%a) : f32[2,2] ND
          return %a, %b
        }
        """,
        ctx,
    )
    assert removed == 1 and [str(port) for port in graph.outputs] == ["a:0", "x:0"]


def test_nested_pairs_disappear_in_one_run(ctx: PassContext) -> None:
    graph, removed = cancelled(
        """
        graph g(%x : f16[4] ND) {
          %a = Cast(%x) {dst_type=DT_FLOAT} : f32[4] ND
          %s = Const() {value=[2,2]} : i32[2] ND
          %b = Reshape(%a, %s) : f32[2,2] ND
          %t = Const() {value=[4]} : i32[1] ND
          %c = Reshape(%b, %t) : f32[4] ND
          %d = Cast(%c) {dst_type=DT_FLOAT16} : f16[4] ND
          %r = Relu(%d) : f16[4] ND
          return %r
        }
        """,
        ctx,
    )
    assert removed == 4 and str(graph.node("r").inputs[0]) == "x:0"
    assert not graph.node("r").control_in and not graph.node("s").control_out


SQUARE = "f32[2,2] ND"


@pytest.mark.parametrize(
    ("why", "first", "second"),
    [
        ("the first cast rounds", "Cast(%x) {dst_type=1} : f16[2,2] ND", f"Cast(%a) {{dst_type=0}} : {SQUARE}"),
        ("wrong perms", f"TransposeD(%x) {{perm=[1,0]}} : {SQUARE}", f"TransposeD(%a) {{perm=[0,1]}} : {SQUARE}"),
        ("no perm at all", f"TransposeD(%x) : {SQUARE}", f"TransposeD(%a) : {SQUARE}"),
        ("other dims", "ReFormat(%x) : f32[2,2] NCHW", "ReFormat(%a) : f32[4] ND"),
        ("other types", "ReFormat(%x) : f32[2,2] NCHW", f"TransData(%a) : {SQUARE}"),
    ],
)
def test_conversions_that_do_not_undo_each_other_stay(ctx: PassContext, why: str, first: str, second: str) -> None:
    lines = (f"%a = {first}", f"%b = {second}", f"%r = Relu(%b) : {SQUARE}", "return %r")
    graph, removed = cancelled(f"graph g(%x : {SQUARE}) {{" + "\n".join(lines) + "}", ctx)
    assert removed == 0 and len(graph) == 5


def test_control_edges_of_a_removed_pair_stay_as_an_order(ctx: PassContext) -> None:
    graph, _ = cancelled(
        """
        graph g(%x : f32[2] ND, %y : f32[2] ND) {
          %p = Relu(%y) : f32[2] ND
          %a = ReFormat(%x) : f32[2] NCHW after %p
          %b = ReFormat(%a) : f32[2] ND
          %q = Relu(%y) : f32[2] ND after %b
          %r = Relu(%b) : f32[2] ND
          return %q, %r
        }
        """,
        ctx,
    )
    assert {node.name for node in graph.node("p").control_out} == {"q", "r"}
