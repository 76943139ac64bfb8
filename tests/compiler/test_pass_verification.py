"""--verify-passes: a pass that changes a result is named, with the result; a graph beyond evaluation is noted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gecli.compiler.api import compile_model
from gecli.compiler.graph_evaluation import GraphEvaluator, NotEvaluable
from gecli.compiler.pass_verification import ResultCheck
from gecli.compiler.result import CompileReport
from gecli.errors import CompileError
from gecli.ir.attributes import VALUE
from gecli.ir.graph import Graph
from gecli.ir.text import parse
from gecli.ir.weight import Weight
from gecli.layout.platform import platform_of
from gecli.passes.base import CompileSettings, Pass, PassContext, Stage
from gecli.passes.pipeline import run_pipeline
from gecli.passes.registry import pipeline
from gecli.report.compile_report import compile_document, plain_lines, summary_lines
from gecli.variables.rebuild_control import RebuildControl
from gecli.variables.var_manager import VarManager

REPOSITORY = Path(__file__).parent.parent.parent
DIGITS = REPOSITORY / "samples" / "digits" / "digits.onnx"
COUNTER = """
    graph g(%x : f32[4] ND) {
      %w = Variable() : f32[4] ND
      %c = Const() {value=2.0} : f32[] ND
      %m = Mul(%x, %c) : f32[4] ND
      %a = AssignAdd(%w, %m) : f32[4] ND
      %y = Neg(%a) : f32[4] ND
      return %y, %x
    }
"""
FZ = "f16[1,1,16,16] FRACTAL_Z origin [1,1,2,3] HWCN"


class Spoiler(Pass):
    """Does to the graph what the test says."""

    name = "SpoilerPass"
    stage = Stage.OPTIMIZE_1

    def __init__(self, spoil) -> None:
        self.spoil = spoil

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        self.spoil(graph)
        return Counter()


def context(**settings) -> PassContext:
    return PassContext(platform_of("Ascend910B1"), VarManager(), RebuildControl(), CompileSettings(**settings))


def checked(source: str, spoil, ctx: PassContext | None = None) -> ResultCheck:
    check = ResultCheck()
    run_pipeline(parse(source), ctx or context(), [Spoiler(lambda graph: None), Spoiler(spoil)], [check])
    return check


def doubled_constant(graph: Graph) -> None:
    graph.node("c").attrs[VALUE] = Weight.of(np.array(4.0, np.float32))


def other_output(graph: Graph) -> None:
    graph.set_outputs([graph.node("m").out(), graph.node("x").out()])


def fewer_outputs(graph: Graph) -> None:
    graph.set_outputs([graph.node("y").out()])


def lost_write(graph: Graph) -> None:
    node = graph.node("a")
    graph.retype(node, "Add")


def lost_variable(graph: Graph) -> None:
    graph.set_outputs([graph.node("x").out(), graph.node("x").out()])
    for name in ("y", "a", "w"):
        graph.remove(graph.node(name))


def broken_node(graph: Graph) -> None:
    graph.disconnect(graph.node("m"), 1)


@pytest.mark.parametrize(
    ("spoil", "what", "node"),
    [
        (doubled_constant, "output 0 (y:0)", "y"),
        (other_output, "output 0 (m:0)", "m"),
        (fewer_outputs, "it has 1 outputs", None),
        (lost_write, "variable 'w'", None),
        (lost_variable, "output 0 (x:0)", "x"),
        (broken_node, "it can no longer be evaluated", None),
    ],
)
def test_the_pass_that_changes_a_result_is_named_with_it(spoil, what: str, node: str | None) -> None:
    with pytest.raises(CompileError) as caught:
        checked(COUNTER, spoil)
    found = caught.value.first
    assert found.code == "G2003" and caught.value.exit_status == 4
    assert found.message == f"pass SpoilerPass changes what graph 'g' computes: {what}"
    assert found.node == node and found.why


@pytest.mark.parametrize(
    ("name", "correctness", "cure"),
    [
        ("VariableOpPass", False, "--optimization-switch VariableOpPass:off avoids the pass; please report this"),
        ("RefineRunningFormat", True, "--format-policy origin"),
        ("InferShapePass", True, "is needed for correct results and cannot be switched off"),
    ],
)
def test_the_cure_is_one_that_is_accepted(name: str, correctness: bool, cure: str) -> None:
    spoiler = Spoiler(doubled_constant)
    spoiler.name, spoiler.correctness = name, correctness
    with pytest.raises(CompileError) as caught:
        run_pipeline(parse(COUNTER), context(), [spoiler], [ResultCheck()])
    advice = caught.value.first.do
    assert cure in advice and "please report this" in advice
    assert ("--optimization-switch" in advice) is not correctness


def test_the_values_before_and_after_are_told() -> None:
    with pytest.raises(CompileError) as caught:
        checked(COUNTER, doubled_constant)
    assert "element [0] was " in caught.value.first.why and "; 4 of 4 differ" in caught.value.first.why


def test_the_first_of_several_passes_is_named() -> None:
    check = ResultCheck()
    first, second = Spoiler(lambda graph: None), Spoiler(doubled_constant)
    second.name = "SecondPass"
    with pytest.raises(CompileError, match="pass SecondPass changes"):
        run_pipeline(parse(COUNTER), context(), [first, second, Spoiler(other_output)], [check])


def test_a_pass_that_rounds_otherwise_is_allowed_to() -> None:
    def folded_in_double(graph: Graph) -> None:
        graph.node("c").attrs[VALUE] = Weight.of(np.nextafter(np.float32(2), np.float32(3), dtype=np.float32))

    with pytest.raises(CompileError, match="output 0"):
        checked(COUNTER, folded_in_double)
    rounding = Spoiler(folded_in_double)
    rounding.name = "ConstantFoldingPass"
    assert run_pipeline(parse(COUNTER), context(), [rounding], [ResultCheck()])
    rounding = Spoiler(doubled_constant)
    rounding.name = "ConstantFoldingPass"
    with pytest.raises(CompileError, match="output 0"):
        run_pipeline(parse(COUNTER), context(), [rounding], [ResultCheck()])


def test_a_graph_that_cannot_be_evaluated_is_noted_and_not_checked() -> None:
    source = """
        graph odd(%x : f32[4] ND) {
          %y = UnheardOf(%x) : f32[4] ND
          return %y
        }
    """
    check = checked(source, lambda graph: None)
    assert check.notes == {
        "odd": "--verify-passes did not evaluate graph 'odd': operator type 'UnheardOf' has no kernel"
    }


def test_a_large_graph_is_noted_and_not_checked() -> None:
    check = ResultCheck(max_elements=10)
    run_pipeline(parse(COUNTER), context(), [Spoiler(doubled_constant)], [check])
    assert check.notes == {"g": "--verify-passes did not evaluate graph 'g': its tensors have more than 10 elements"}


def test_inputs_of_unknown_size_get_one() -> None:
    source = "graph g(%x : f32[-1,3] ND) {\n %y = Relu(%x) : f32[-1,3] ND\n return %y\n }"

    def other(graph: Graph) -> None:
        graph.retype(graph.node("y"), "Abs")

    with pytest.raises(CompileError, match="output 0"):
        checked(source, other)


def test_a_variable_that_changed_its_form_is_compared_along_its_road() -> None:
    source = f"""
        graph g(%d : {FZ}) {{
          %w = Variable() {{_init_value={{"fill": "003c"}}}} : f16[1,1,2,3] HWCN
          %t = TransData(%w) {{src_format=HWCN, dst_format=FRACTAL_Z}} : {FZ}
          %a = AssignAdd(%t, %d) : {FZ}
          %b = TransData(%a) {{src_format=FRACTAL_Z, dst_format=HWCN}} : f16[1,1,2,3] HWCN
          %r = Variable(%b) {{ref_var_src_var_name="w"}} : f16[1,1,2,3] HWCN
          return %t after %r
        }}
    """
    steps = [step for step in pipeline(CompileSettings()) if step.name == "VariableOpPass"]
    ctx = context()
    assert run_pipeline(parse(source), ctx, steps, [ResultCheck()])
    assert ctx.variables.trans_road("w")

    class Forgetful(type(steps[0])):  # type: ignore[misc]  # a class that is known when the test runs
        def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
            counts = super().run(graph, ctx)
            desc = graph.node("w").init_value.desc
            graph.node("w").set_init_value(Weight.of(np.zeros(desc.shape, desc.dtype.numpy), desc))
            return counts

    with pytest.raises(CompileError, match="output 0"):
        run_pipeline(parse(source), context(), [Forgetful()], [ResultCheck()])


def test_a_question_about_a_variable_has_the_answer_of_the_session() -> None:
    source = """
        graph g(%x : f32[4] ND) {
          %w = Variable() : f32[4] ND
          %q = VarIsInitializedOp(%w) : bool[] ND
          %y = Neg(%x) : f32[4] ND
          return %y, %q
        }
    """
    steps = pipeline(CompileSettings())
    assert run_pipeline(parse(source), context(), steps, [check := ResultCheck()]) and not check.notes
    asking = [Spoiler(lambda graph: graph.retype(graph.node("y"), "Abs"))]
    asking[0].name = "VarIsInitializedOpPass"
    position = [step.name for step in steps].index("VarIsInitializedOpPass")
    with pytest.raises(CompileError, match="output 0"):
        run_pipeline(parse(source), context(), [*steps[: position + 1], *asking], [ResultCheck()])


@pytest.mark.parametrize("precision", ["", "force_fp16", "mixed_bfloat16"])
@pytest.mark.parametrize("policy", ["device", "origin"])
def test_every_pass_of_a_real_compile_keeps_the_results(precision: str, policy: str, tmp_path: Path) -> None:
    options = {"precision_mode_v2": precision} if precision == "mixed_bfloat16" else {}
    options |= {"precision_mode": precision} if precision == "force_fp16" else {}
    result = compile_model(
        DIGITS, tmp_path / "d.om", input_shape="image:4,1,8,8", verify_passes="true", format_policy=policy, **options
    )
    assert result.notes == []


def test_the_report_says_when_a_graph_was_not_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResultCheck, "_begin", lambda self, graph, ctx: self._skip(graph, "it is a test"))
    result = compile_model(DIGITS, tmp_path / "d.om", input_shape="image:4,1,8,8", verify_passes="true")
    assert result.notes == ["--verify-passes did not evaluate graph 'digits': it is a test"]


def test_a_reader_sees_what_the_variable_holds_when_it_runs() -> None:
    graph = parse("""
        graph g(%x : f32[1] ND) {
          %w = Variable() {_init_value={"fill": "0000803f"}} : f32[1] ND
          %old = Neg(%w) : f32[1] ND
          %a = Assign(%w, %x) : f32[1] ND
          %new = Neg(%w) : f32[1] ND
          return %old, %new
        }
    """)
    graph.add_control(graph.node("old"), graph.node("a"))
    graph.add_control(graph.node("a"), graph.node("new"))
    outputs, variables = GraphEvaluator().run(graph, {0: np.array([5], np.float32)}, {})
    assert [float(value[0]) for value in outputs] == [-1, -5]
    assert variables["w"][0] == 5


def test_an_endless_loop_is_not_evaluated() -> None:
    graph = parse("""
        graph g(%x : f32[1] ND) {
          %y = While(%x) {subgraphs=["cond", "body"]} : f32[1] ND
          return %y
        }
        graph cond(%c : f32[1] ND) {
          %t = Abs(%c) : f32[1] ND
          return %t
        }
        graph body(%b : f32[1] ND) {
          %u = Neg(%b) : f32[1] ND
          return %u
        }
    """)
    with pytest.raises(NotEvaluable, match="did not end"):
        GraphEvaluator().run(graph, {0: np.array([5], np.float32)}, {})


def test_the_report_says_what_was_compared_and_how(tmp_path: Path) -> None:
    result = compile_model(DIGITS, tmp_path / "d.om", input_shape="image:4,1,8,8", verify_passes="true")
    found = result.verification
    assert found is not None
    assert found["passes"] == [record.name for record in result.passes]
    assert (found["result"], found["reason"], found["unchecked"]) == ("unchanged", None, [])
    assert (found["outputs"], found["variables"]) == (len(result.outputs), [])
    assert (found["seed"], found["unknown_dims"], found["integers_below"]) == (1, None, 16)
    document = compile_document(CompileReport([result], "Ascend910B1"))
    assert document["models"][0]["verification"] == found
    text = f"{len(result.passes)} passes on random inputs (seed 1): 1 output and 0 variables stay as they are"
    assert f"verified  {text}" in summary_lines(result)
    assert f"verified={text}" in plain_lines(result)


def test_the_report_of_a_compile_without_verification_says_nothing_of_it(tmp_path: Path) -> None:
    result = compile_model(DIGITS, tmp_path / "d.om", input_shape="image:4,1,8,8")
    assert result.verification is None
    assert not any("verified" in line for line in [*summary_lines(result), *plain_lines(result)])


def test_a_graph_that_was_not_evaluated_has_the_reason_in_its_report() -> None:
    check = ResultCheck(max_elements=10)
    ctx = context()
    run_pipeline(parse(COUNTER), ctx, [Spoiler(doubled_constant)], [check])
    found = check.found[ctx.graph_id]
    assert (found["result"], found["reason"]) == ("not evaluated", "its tensors have more than 10 elements")
    assert found["passes"] == []


def test_a_hit_tells_what_the_compile_of_its_entry_verified(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    options = {"input_shape": "image:4,1,8,8", "cache_dir": str(tmp_path / "cache"), "verify_passes": "true"}
    first, again = (compile_model(DIGITS, tmp_path / "d.om", **options) for _ in range(2))
    assert (first.cache.state, again.cache.state) == ("miss", "hit")
    assert first.verification is not None and again.verification == first.verification


def test_an_output_is_named_as_the_model_names_it() -> None:
    graph = parse(COUNTER)
    graph.output_names = ["answer", ""]
    with pytest.raises(CompileError, match=r"output 0 \(answer\)"):
        run_pipeline(graph, context(), [Spoiler(lambda graph: None), Spoiler(doubled_constant)], [ResultCheck()])


def test_the_evaluation_of_a_loop_carries_values_that_begin_as_a_variable() -> None:
    graph = parse("""
        graph g(%n : i32[] ND) {
          %w = Variable() : f32[2] ND
          %l = While(%n, %w) {subgraphs=["cond", "body"]} : i32[] ND, f32[2] ND
          return %l:1
        }
        graph cond(%i : i32[] ND, %a : f32[2] ND) {
          %z = Const() {value=0} : i32[] ND
          %g = Greater(%i, %z) : bool[] ND
          return %g
        }
        graph body(%j : i32[] ND, %b : f32[2] ND) {
          %o = Const() {value=1} : i32[] ND
          %s = Sub(%j, %o) : i32[] ND
          %t = Add(%b, %b) : f32[2] ND
          return %s, %t
        }
    """)
    before = {"w": np.array([1, 3], np.float32)}
    outputs, after = GraphEvaluator().run(graph, {0: np.array(3, np.int32)}, before)
    np.testing.assert_array_equal(outputs[0], [8, 24])
    np.testing.assert_array_equal(after["w"], [1, 3])
