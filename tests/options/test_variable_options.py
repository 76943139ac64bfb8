"""The options of variables: GE's rules, what gecli does better, and what is only recorded (variables.md 7, 12)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gecli.artifacts.om_file import read_om
from gecli.errors import GecliError
from gecli.options.memory_policy import effective_policy, policy_of
from gecli.options.resolution import resolve

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
TRAIN = str(SAMPLES / "train/conv_train.json")


def _resolved(*ge_options: str, environ: dict[str, str] | None = None, **typed: str) -> Any:
    words = {"output": ("o.om",), **{key.replace("_", "-"): (value,) for key, value in typed.items()}}
    return resolve("compile", words, ge_options=ge_options, environ=environ)


@pytest.mark.parametrize(
    ("option", "environment", "effective"),
    [
        (None, None, 0),
        (0, None, 0),
        (1, None, 2),
        (2, None, 2),
        (3, None, 3),
        (4, None, 4),
        (None, "1", 2),
        (2, "3", 4),
        (3, "1", 4),
        (4, "0", 4),
        (None, "7", 0),
        (2, "text", 2),
    ],
)
def test_the_memory_policy_is_what_option_and_environment_ask_for_together(
    option: int | None, environment: str | None, effective: int
) -> None:
    assert effective_policy(option, policy_of(environment)) == effective
    if environment is None:
        return
    given = () if option is None else (f"ge.exec.staticMemoryPolicy={option}",)
    options = _resolved(*given, environ={"GE_USE_STATIC_MEMORY": environment})
    assert options.integer("ge.exec.staticMemoryPolicy") == effective
    records = {record["key"]: record for record in options.records()}
    assert records["ge.exec.staticMemoryPolicy"]["class"] == "R"


@pytest.mark.parametrize(
    ("option", "environment", "codes"),
    [("2", "2", []), ("2", "3", ["E10001"]), (None, "9", ["E13024"]), ("2", "x", ["E13024", "E10001"])],
)
def test_a_policy_said_twice_and_differently_is_a_warning(
    option: str | None, environment: str, codes: list[str]
) -> None:
    given = () if option is None else (f"ge.exec.staticMemoryPolicy={option}",)
    options = _resolved(*given, environ={"GE_USE_STATIC_MEMORY": environment})
    assert [warning.code for warning in options.warnings] == codes


@pytest.mark.parametrize(
    "setting",
    [
        "ge.exec.staticMemoryPolicy=5",
        "ge.variableUse1gHugePage=3",
        "ge.exec.memoryOptimizationPolicy=other",
        "ge.evaluateGraphResourceMode=2",
        "ge.constLifecycle=forever",
        "ge.exec.variable_acc=0x",
        "ge.exec.variable_acc=0",
        "ge.exec.variable_acc=1",
        "ge.exec.variable_acc=no",
        "ge.oo.level=O2",
        "ge.exec.value_bins=no json",
        'ge.exec.value_bins={"value_bins": 1}',
        'ge.exec.value_bins={"value_bins": [1]}',
    ],
)
def test_a_value_outside_the_domain_is_refused(setting: str) -> None:
    with pytest.raises(GecliError) as error:
        _resolved(setting)
    assert error.value.exit_status == 2


@pytest.mark.parametrize(("text", "on"), [("True", True), ("FALSE", False), ("true", True), ("", True)])
def test_acceleration_is_true_or_false_in_any_case(text: str, on: bool) -> None:
    assert _resolved(f"ge.exec.variable_acc={text}").flag("ge.exec.variable_acc") is on


def test_weight_files_by_id_are_recorded() -> None:
    text = '{"value_bins":[{"value_bin_id":"a","value_bin_file":"a.bin"}]}'
    options = _resolved(f"ge.exec.value_bins={text}")
    record = next(record for record in options.records() if record["key"] == "ge.exec.value_bins")
    assert (record["class"], record["value"]) == ("R", text)


@pytest.mark.parametrize(
    ("acceleration", "refused"),
    [("ge.exec.variable_acc=True", True), ("ge.exec.variable_acc=False", False), ("", False)],
)
def test_parallel_compiles_exclude_acceleration_only_when_it_is_asked_for(acceleration: str, refused: bool) -> None:
    given = [each for each in ("ge.AllowMultiGraphParallelCompile=1", acceleration) if each]
    if not refused:
        _resolved(*given)
        return
    with pytest.raises(GecliError) as error:
        _resolved(*given)
    assert error.value.code == "E10001"


@pytest.mark.parametrize(
    ("words", "in_session"),
    [
        ((), False),
        (("--train",), True),
        (("--ge-option", "ge.constLifecycle=session"), True),
        (("--train", "--ge-option", "ge.constLifecycle=graph"), False),
        (("--train", "--ge-option", "ge.exec.memoryOptimizationPolicy=MemoryPriority"), False),
        (
            (
                "--train",
                "--ge-option",
                "ge.exec.memoryOptimizationPolicy=MemoryPriority",
                "--ge-option",
                "ge.constLifecycle=session",
            ),
            True,
        ),
    ],
)
def test_where_constants_live(gecli, tmp_path: Path, words: tuple[str, ...], in_session: bool) -> None:
    assert gecli("compile", TRAIN, "-o", "t.om", "--quiet", *words).returncode == 0
    types = {node.type for node in read_om(tmp_path / "t.om").model().root.nodes}
    assert ("Constant" in types, "Const" in types) == (in_session, not in_session)


def test_an_evaluation_of_needs_ignores_the_limits(gecli) -> None:
    words = ("compile", TRAIN, "-o", "t.om", "--train", "--quiet", "--var-mem-max-size", "1K")
    assert gecli(*words).returncode == 4
    assert gecli(*words, "--ge-option", "ge.evaluateGraphResourceMode=1").returncode == 0


@pytest.mark.parametrize(("size", "warned"), [("5G", False), ("6G", True), ("230G", True)])
def test_more_memory_than_a_device_has_is_a_warning(gecli, size: str, warned: bool) -> None:
    done = gecli("compile", TRAIN, "-o", "t.om", "--train", "--quiet", "--json", "--var-mem-max-size", size)
    assert done.returncode == 0
    warnings = [warning["message"] for warning in json.loads(done.stdout)["models"][0]["warnings"]]
    assert any("more than a device has" in message for message in warnings) == warned


@pytest.mark.parametrize(
    ("words", "warned"),
    [
        ((), False),
        (("--ge-option", "ge.graphMemoryMaxSize=1K"), True),
        (("--ge-option", "ge.graphMemoryMaxSize=1K", "--ge-option", "ge.evaluateGraphResourceMode=1"), False),
        (("--ge-option", "ge.graphMemoryMaxSize=1M"), False),
    ],
)
def test_a_feature_map_beyond_its_limit_is_a_warning(gecli, words: tuple[str, ...], warned: bool) -> None:
    done = gecli("compile", TRAIN, "-o", "t.om", "--train", "--json", *words)
    assert done.returncode == 0
    model = json.loads(done.stdout)["models"][0]
    messages = [warning["message"] for warning in model["warnings"]]
    expected = f"the feature map takes {model['memory']['feature_bytes']} bytes, ge.graphMemoryMaxSize is 1024"
    assert (expected in messages) == warned


@pytest.mark.parametrize("policy", ["0", "1", "2", "3", "4"])
def test_addresses_of_variables_do_not_depend_on_the_memory_policy(gecli, policy: str) -> None:
    words = ("compile", TRAIN, "-o", "t.om", "--train", "--json")
    plain = json.loads(gecli(*words).stdout)["models"][0]["variables"]
    asked = json.loads(gecli(*words, "--ge-option", f"ge.exec.staticMemoryPolicy={policy}").stdout)
    assert asked["models"][0]["variables"] == plain


@pytest.mark.parametrize(("mode", "trains"), [("0", False), ("1", True), ("2", True), ("17", True), ("False", False)])
def test_a_run_mode_from_1_on_is_training(mode: str, trains: bool) -> None:
    assert _resolved(f"ge.graphRunMode={mode}").flag("ge.graphRunMode") is trains


@pytest.mark.parametrize("mode", ["-1", "00", "1.5", "train"])
def test_other_run_modes_are_refused(mode: str) -> None:
    with pytest.raises(GecliError, match=f'value "{mode}" for --train'):
        _resolved(f"ge.graphRunMode={mode}")


@pytest.mark.parametrize(("words", "key"), [((), "b12_0"), (("--var-key-style", "seed"), "b1_2_0")])
def test_the_saved_session_has_keys_of_the_form(gecli, tmp_path: Path, words: tuple[str, ...], key: str) -> None:
    from gecli.pb.var_manager_pb2 import VarManagerInfo

    evaluate = str(SAMPLES / "train/conv_eval.json")
    assert gecli("compile", TRAIN, "-o", "t.om", "--train", "--session-out", "s", *words).returncode == 0
    assert key in VarManagerInfo.FromString((tmp_path / "s").read_bytes()).var_resource.var_addr_mgr_map
    assert gecli("compile", evaluate, "-o", "e.om", "--session-in", "s").returncode == 0
    shown = json.loads(gecli("inspect-om", "s", "--vars", "--json").stdout)
    assert "b1" in {row["name"] for row in shown["variables"]}


def test_limits_of_the_command_replace_those_of_the_session_file(gecli, tmp_path: Path) -> None:
    evaluate = str(SAMPLES / "train/conv_eval.json")
    assert gecli("compile", TRAIN, "-o", "t.om", "--train", "--session-out", "s").returncode == 0
    words = ("compile", evaluate, "-o", "e.om", "--session-in", "s", "--session-out", "s")
    refused = gecli(*words, "--var-mem-max-size", "1K")
    assert refused.returncode == 4 and "limit 1024" in refused.stderr
    assert gecli(*words, "--var-mem-max-size", "1M").returncode == 0
    assert read_om(tmp_path / "e.om").model().attrs["variable_size"] == 1 << 20
    assert gecli(*words).returncode == 0
    assert read_om(tmp_path / "e.om").model().attrs["variable_size"] == 1 << 20, "the file keeps the limit"


@pytest.mark.parametrize("written", [False, True])
def test_a_later_command_knows_which_variables_got_a_value(gecli, tmp_path: Path, written: bool) -> None:
    from tests.options.workshop import write_models

    write_models(tmp_path)
    first = "lossy.json" if written else "bare.json"  # both have a variable v; the first gives it a value
    assert gecli("compile", first, "-o", "f.om", "--no-variable-acc", "--session-out", "s").returncode == 0
    done = gecli("compile", "asked.json", "-o", "a.om", "--session-in", "s", "--json")
    messages = [warning["message"] for warning in json.loads(done.stdout)["models"][0]["warnings"]]
    assert any("no graph of the session gives it a value" in message for message in messages) != written


def test_variables_are_placed_again_and_the_models_agree(gecli, tmp_path: Path) -> None:
    from tests.options.workshop import write_models

    write_models(tmp_path)
    words = ("compile", "plain.json", "conv.json", "-o", "s/", "--compact-variables")
    done = gecli(*words, "-v", "--session-out", "s.bin")
    assert done.returncode == 0, done.stderr
    assert re.search(r"--compact-variables saved [1-9]\d* of \d+ bytes of variable memory", done.stdout + done.stderr)
    run = gecli("run", "s/plain.om", "s/conv.om", "--strict-variable-addresses")
    assert run.returncode == 0, run.stderr
    refused = gecli(*words, "--session-in", "s.bin")
    assert refused.returncode == 2 and "--compact-variables excludes --session-in" in refused.stderr
