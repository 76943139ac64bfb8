"""--explain-variable tells the whole story: forms, road, blocks, who made whom stale, and why nothing more happened."""

from __future__ import annotations

import pytest

from gecli.compiler.result import ModelResult, OutputFile
from gecli.compiler.session import Member, Session
from gecli.compiler.variable_report import variable_rows
from gecli.compiler.variable_story import variable_story
from gecli.errors import CompileError
from gecli.ir.text import parse
from gecli.layout.platform import platform_of
from gecli.passes.base import CompileSettings
from gecli.report.variable_explanation import VARIABLE_PASSES, explanation, explanation_lines
from gecli.wire.var_session import decode_var_manager, encode_var_manager
from tests.passes.random_sessions import called

INIT = """
    graph init(%c : f32[2,2,3,2] HWCN) {
      %w = Variable() {_init_value={"fill": "00000000"}} : f32[2,2,3,2] HWCN
      %a = Assign(%w, %c) : f32[2,2,3,2] HWCN
      return %a
    }
"""
TRAIN = """
    graph train() {
      %w = Variable() {_init_value={"fill": "00000000"}} : f32[2,2,3,2] HWCN
      %t = TransData(%w) {src_format=HWCN, dst_format=FRACTAL_Z} : f32[4,1,16,8] FRACTAL_Z origin [2,2,3,2] HWCN
      %y = Abs(%t) : f32[4,1,16,8] FRACTAL_Z origin [2,2,3,2] HWCN
      return %y
    }
"""


def told(session: Session, member: Member) -> ModelResult:
    assert member.compiled is not None
    result = ModelResult(member.graph.name, "text", OutputFile("m.om", 0))
    result.variables = variable_rows(member.compiled.variables, member.compiled.record, session.manager)
    result.passes = member.compiled.passes
    result.records = [*member.compiled.records, *member.events]
    result.compile_count = member.compile_count
    result.stories = {"w": variable_story("w", member, session)}
    return result


def test_the_story_of_a_variable_that_made_another_graph_stale() -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    init, train = session.add(parse(INIT)), session.add(parse(TRAIN))
    session.compile_all()
    assert (init.compile_count, train.compile_count) == (2, 1)
    lines = explanation_lines(told(session, init), "w")
    assert "  session: stale  by train" in lines
    assert "  compiled  2 times" in lines
    assert "  UpdateVariableFormats: recovered  node w  steps 1" in lines
    lines = explanation_lines(told(session, train), "w")
    assert lines[:6] == [
        "variable w in train",
        "  declared  FLOAT HWCN [2,2,3,2]",
        "  stored    FLOAT FRACTAL_Z [4,1,16,8]  at 0x2000000600, 2080 bytes",
        "  road      TransData HWCN->FRACTAL_Z",
        "  compiled  1 time",
        "  initial   converted along the road",
    ]
    assert lines[6] == "  block     1536 bytes at offset 0 for FLOAT HWCN [2,2,3,2], no longer used"
    assert lines[7] == "  block     3584 bytes at offset 1536 for FLOAT FRACTAL_Z [4,1,16,8]"
    assert "  VariableOpPass: changed  reason NOT_TRANS_OP  node y" in lines
    assert "  session: made stale  graphs init" in lines


def test_the_document_has_the_same_story() -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    init, train = session.add(parse(INIT)), session.add(parse(TRAIN))
    session.compile_all()
    found = explanation(told(session, train), "w")
    assert found is not None
    assert [(block["offset"], block["in_use"]) for block in found["blocks"]] == [(0, False), (1536, True)]
    assert {"pass": "session", "event": "made stale", "variable": "w", "graphs": ["init"]} in found["events"]
    found = explanation(told(session, init), "w")
    assert found is not None and found["events"][-1] == {
        "pass": "session", "event": "stale", "variable": "w", "by": "train"
    }  # fmt: skip


def test_a_graph_that_comes_later_makes_nobody_stale() -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    train, init = session.add(parse(TRAIN)), session.add(parse(INIT))
    session.compile_all()
    assert train.events == init.events == []


def test_a_cast_shows_in_what_was_declared_and_what_is_stored() -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    source = INIT.replace("%a = Assign(%w, %c) : f32", "%a = Cast(%w) {dst_type=DT_FLOAT16} : f16").replace("init", "c")
    member = session.add(parse(source))
    session.compile_all()
    lines = explanation_lines(told(session, member), "w")
    assert lines[1:3] == [
        "  declared  FLOAT HWCN [2,2,3,2]",
        "  stored    FLOAT16 HWCN [2,2,3,2]  at 0x2000000000, 96 bytes",
    ]


def test_an_assign_that_stays_says_why() -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    member = session.add(parse(INIT))
    session.compile_all()
    lines = explanation_lines(told(session, member), "w")
    assert "  AssignRemovePass: assign_kept  node a  reason the value has a place of its own" in lines


def test_without_acceleration_the_story_says_that_it_did_not_run() -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings(variable_acc=False))
    member = session.add(parse(TRAIN))
    session.compile_all()
    lines = explanation_lines(told(session, member), "w")
    assert "  VariableOpPass: did not run, so the variable keeps its format" in lines
    assert "  road      none" in lines


def test_a_session_with_batch_memory_says_so_for_every_variable() -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    session.manager.resource.share_batch_name("w_ascend_mbatch_batch_0", "other")
    member = session.add(parse(TRAIN))
    session.compile_all()
    assert "  VariableOpPass: unchanged  reason SHARED_BATCH" in explanation_lines(told(session, member), "w")


def test_the_story_names_maker_changer_users_and_how_the_compile_found_the_variable() -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    init, train = session.add(parse(INIT)), session.add(parse(TRAIN))
    session.compile_all()
    lines = explanation_lines(told(session, train), "w")
    assert lines[8:13] == [
        "  created   by init",
        "  changed   by train",
        "  staged    FLOAT HWCN [2,2,3,2], when VariableOpPass began on this graph",
        "  used by   init: read by w_trans_0 (TransData); written by w_TO_a_REF_0_trans_0 (TransData)",
        "  used by   train: read by y (Abs)",
    ]
    found = explanation(told(session, init), "w")
    assert found is not None
    assert (found["created_by"], found["changed_by"], found["has_value"]) == ("init", "train", True)
    assert found["staged"] == {"dtype": "DT_FLOAT", "format": "FRACTAL_Z", "shape": [4, 1, 16, 8]}
    assert [user["graph"] for user in found["users"]] == ["init", "train"]
    form = {"dtype": "DT_FLOAT", "format": "FRACTAL_Z", "shape": [4, 1, 16, 8]}
    assert found["users"][1] == {"graph": "train", "form": form, "readers": ["y (Abs)"], "writers": []}


def test_the_compile_that_became_stale_is_told_before_the_last_one() -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    init, _ = session.add(parse(INIT)), session.add(parse(TRAIN))
    session.compile_all()
    lines = explanation_lines(told(session, init), "w")
    first, second = lines.index("  compile 1 of 2, which became stale:"), lines.index("  compile 2 of 2:")
    assert "    VariableOpPass: unchanged  reason NOT_TRANS_OP  node a" in lines[first:second]
    assert "  VariableOpPass: unchanged  reason LOCKED  by train" in lines[second:]


def test_every_variable_pass_is_named_once_whatever_it_did() -> None:
    for settings in (CompileSettings(), CompileSettings(oo_level="O1"), CompileSettings(variable_acc=False)):
        session = Session(platform_of("Ascend910B1"), settings)
        member = session.add(parse(TRAIN))
        session.compile_all()
        found = explanation(told(session, member), "w")
        assert found is not None
        spoke = list(dict.fromkeys(event["pass"] for event in found["events"]))
        named = [*spoke, *found["passes_without_effect"], *found["passes_not_run"]]
        assert sorted(named) == sorted(VARIABLE_PASSES)


def test_a_variable_that_an_earlier_command_changed_says_so() -> None:
    first = Session(platform_of("Ascend910B1"), CompileSettings())
    first.add(parse(TRAIN))
    first.compile_all()
    second = Session(platform_of("Ascend910B1"), CompileSettings())
    second.manager = decode_var_manager(encode_var_manager(first.manager))
    second.rebuild.state_changed("w")
    second.first_graph_id = 2
    member = second.add(parse(INIT))
    second.compile_all()
    lines = explanation_lines(told(second, member), "w")
    assert "  created   by graph 1 of an earlier command" in lines
    assert "  VariableOpPass: unchanged  reason LOCKED  by graph 1 of an earlier command" in lines


def test_a_variable_that_nothing_gives_a_value_says_so() -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    member = session.add(parse("graph g() { %w = Variable() : f32[2]\n %y = Abs(%w) : f32[2]\n return %y }"))
    session.compile_all()
    lines = explanation_lines(told(session, member), "w")
    assert "  value     none: no graph of the session writes it or gives it an initial value" in lines


def test_what_passes_did_with_a_variable_of_a_called_graph_is_told() -> None:
    source = """
        graph g() {
          %w = Variable() : f32[4]
          %v = Variable() : f32[4]
          %a = AssignAdd(%w, %v) : f32[4]
          return %a
        }
    """
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    member = session.add(called(parse(source), "PartitionedCall"))
    session.compile_all()
    lines = explanation_lines(told(session, member), "w")
    assert "  SplitVariableIntoSubgraphPass: copied  node call  subgraphs g_body" in lines
    assert any("written by g_body/a (AssignAdd)" in line for line in lines if line.startswith("  used by   g: "))


def test_a_stale_graph_names_the_variable_that_made_it_so() -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings(), allow_rebuild=False)
    session.add(parse(INIT))
    session.add(parse(TRAIN))
    with pytest.raises(CompileError, match="graph 'init' is stale: 'train' changed the format of variable 'w'"):
        session.compile_all()


def test_the_form_of_a_graph_that_names_the_format_otherwise_is_told() -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    form = "f32[1,2,3,4]"
    for name, fmt in (("a", "NCHW"), ("b", "NHWC")):
        session.add(
            parse(f"graph {name}() {{ %w = Variable() : {form} {fmt}\n %y = Abs(%w) : {form} {fmt}\n return %y }}")
        )
    session.compile_all()
    lines = explanation_lines(told(session, session.members[1]), "w")
    assert "  used by   a: as FLOAT NCHW [1,2,3,4]; read by y (Abs)" in lines
    assert "  used by   b: read by y (Abs)" in lines
