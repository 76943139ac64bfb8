"""Values and origins: domains, precedence, combinations, what is recorded and what counts in the fingerprint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gecli.errors import InvalidOption
from gecli.options import ConfigValues, Options, resolve, scan
from gecli.options.spelling import closest, edit_distance


def options(line: str, **kwargs: object) -> Options:
    found = scan(f"compile m {line}".split())
    return resolve("compile", found.typed, problems=found.problems, **kwargs)  # type: ignore[arg-type]  # keywords


def codes(line: str, **kwargs: object) -> list[str]:
    with pytest.raises(InvalidOption) as caught:
        options(line, **kwargs)
    return [diagnostic.code for diagnostic in caught.value.diagnostics]


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("", "ge.socVersion", "Ascend910B1"),
        ("--external-weight none", "ge.externalWeight", 0),
        ("--external_weight=0", "external-weight", 0),
        ("--train", "ge.graphRunMode", True),
        ("--ge-option ge.graphRunMode=1", "train", True),
        ("--no-variable-acc", "ge.exec.variable_acc", False),
        ("--ge-option ge.exec.variable_acc=False", "variable-acc", False),
        ("--ge-option ge.AllowMultiGraphParallelCompile=1", "parallel-compile", True),
        ("--ge-option ge.exec.precision_mode=", "precision-mode", None),
        ("--lock-timeout inf", "lock-timeout", float("inf")),
        ("--lock-timeout 0", "lock-timeout", 0.0),
        ("--var-mem-max-size 1.5G", "ge.variableMemoryMaxSize", 3 * 2**29),
        ("--input-shape a:1 --input-shape b:2", "input_shape", ("a:1", "b:2")),
        ("--ge-option ge.inputShape=a:1;b:2", "input_shape", ("a:1;b:2",)),
        ("--graph-key=", "ge.graph_key", ""),
        ("--graph-key r_{stem}-1", "ge.graph_key", "r_{stem}-1"),
        ("--emit json,report", "emit", ("json,report",)),
        ("--output_type=n:0:FP16;m:1:FP32", "ge.outputDatatype", "n:0:FP16;m:1:FP32"),
        ("--optimization-switch A:on;B:off", "ge.optimizationSwitch", ("A:on;B:off",)),
    ],
)
def test_a_text_becomes_a_value(line: str, name: str, value: object) -> None:
    assert options(f"-o x {line}").get(name) == value


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("--mode=2", "E10001"),
        ("--framework=2", "E10007"),
        ("--framework=0", "E10008"),
        ("--log=loud", "E10010"),
        ("--external_weight=3", "E10006"),
        ("--disable_reuse_memory=2", "E10006"),
        ("--disable_reuse_memory=", "E10006"),
        ("--enable_single_stream=maybe", "E10005"),
        ("--static_model_ops_lower_limit=x", "E10003"),
        ("--static_model_ops_lower_limit=-2", "E10001"),
        ("--static_model_ops_lower_limit=99999999999999999999", "E10013"),
        ("--graph-key a/b", "E10001"),
        ("--graph-key {other}", "E10001"),
        ("--deterministic_level=1", "E10001"),
        ("--precision_mode=force_fp16 --precision_mode_v2=fp16", "E10056"),
        ("--modify_mixlist=f", "E10001"),
        ("--dynamic_dims=1;2 --dynamic_batch_size=1,2 --input_shape=x:-1 --ignore-unsupported", "E10009"),
        ("--dynamic_dims=1;2 --input_shape=x:1~2 --ignore-unsupported", "E10040"),
        ("--framework=5 --input_format=NHWC", "E10001"),
        ("--framework=1 --input_format=FOO", "E10001"),
        ("--enable_compress_weight=true --compress_weight_conf=f", "E10047"),
        ("--mode=5", "E10055"),
        ("--mode=7", "E10055"),
        ("--mode=30", "E10055"),
        ("--auto_tune_mode=RL", "E10055"),
        ("--insert_op_conf=f", "E10055"),
        ("--singleop=f --framework=5 --ignore-unsupported", "E10001"),
        ("--json=f", "E10055"),
        ("--no-session --session-in f", "E10047"),
        ("--multi_stream_parallel_mode=LoadBalance:65", "E10001"),
    ],
)
def test_a_value_outside_its_domain_has_the_code_of_the_specification(line: str, code: str) -> None:
    assert codes(f"-o x {line}") == [code]


def test_a_refused_value_is_an_error_and_can_be_left_out() -> None:
    assert codes("-o x --emit json,dot") == ["E10055"]
    assert codes("-o x --output-type HIF8") == ["E10055"]
    lenient = options("-o x --emit json,dot --output-type HIF8 --ignore-unsupported")
    assert (lenient.get("emit"), lenient.get("output-type")) == (("json",), None)
    assert [warning.code for warning in lenient.warnings] == ["E10055", "E10055"]


def test_precedence_is_flag_ge_option_raw_graph_session_global_environment_config(tmp_path: Path) -> None:
    key, flag = "ge.oo.level", "--oo-level O0"
    raw = tmp_path / "raw.json"
    environ = {"GECLI_CACHE_MODE": "ro"}
    project = ConfigValues("project config", "gecli.toml", {key: ("O1",), "cache-mode": ("debug",)}, {})
    user = ConfigValues("user config", "u.toml", {key: ("O0",)}, {})

    def origin(line: str, **levels: dict[str, str]) -> tuple[str, str]:
        raw.write_text(json.dumps({"compile options": levels, "execute options": {"any": 1}}))
        found = options(f"-o x --raw_ge_options={raw} {line}", environ=environ, configs=[user, project])
        return found.get(key), found.origin(key)

    every = {"global": {key: "O1"}, "session": {key: "O0"}, "graph": {key: "O3"}}
    assert origin(f"{flag} --ge-option {key}=O1", **every) == ("O0", "flag")
    assert origin(f"--ge-option {key}=O1", **every) == ("O1", "ge-option")
    assert origin("", **every) == ("O3", "raw graph")
    assert origin("", **{"global": {key: "O1"}, "session": {key: "O0"}}) == ("O0", "raw session")
    assert origin("", **{"global": {key: "O3"}}) == ("O3", "raw global")
    assert origin("") == ("O1", "project config")
    found = options("-o x", environ=environ, configs=[user, project])
    assert (found.get("cache-mode"), found.origin("cache-mode")) == ("ro", "environment")
    assert found.overrides == [
        "ge.oo.level: O1 (project config) over O0 (user config)",
        "cache-mode: ro (environment) over debug (project config)",
    ]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("{", "E10032"),
        ("[]", "E10032"),
        ("{}", "E10032"),
        ('{"compile options": []}', "E10032"),
        ('{"compile options": {"nation": {}}}', "E10032"),
        ('{"compile options": {"graph": {"ge.oo.level": 1}}}', "E10032"),
        ('{"compile options": {"graph": {"": "1"}}}', "E10032"),
        ('{"compile options": {"graph": {"ge.nope": "1"}}}', "E10055"),
        ('{"compile options": {"graph": {"ge.oo.level": "O5"}}}', "E10001"),
        ('{"compile options": {"graph": {"ge.socVersion": "Ascend310"}}}', "E10001"),
    ],
)
def test_a_bad_options_file_is_named(content: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "raw.json").write_text(content)
    assert codes(f"-o x --raw_ge_options={tmp_path}/raw.json") == [code]


def test_a_missing_options_file_is_an_input_error(tmp_path: Path) -> None:
    assert codes(f"-o x --raw_ge_options={tmp_path}/none.json") == ["E13001"]


def test_unknown_keys_can_be_recorded() -> None:
    found = options("-o x --ge-option ge.nope=1 --ignore-unsupported")
    assert found.unknown_ge_options == {"ge.nope": "1"}
    assert {"key": "ge.nope", "value": "1", "source": "ge-option", "class": "R"} in found.records()
    assert ("ge.nope", "1") in found.fingerprint_items()


def test_records_hold_what_was_set_sorted_by_key() -> None:
    assert options("-o x --sparsity=1 --no-variable-acc").records() == [
        {"key": "ge.enableSparseMatrixWeight", "value": "1", "source": "flag", "class": "R"},
        {"key": "ge.exec.variable_acc", "value": "false", "source": "flag", "class": "I"},
        {"key": "output", "value": "x", "source": "flag", "class": "I"},
    ]


def test_the_fingerprint_ignores_where_things_go_and_sees_what_is_made() -> None:
    plain = options("-o x").fingerprint_items()
    aside = "--cache-dir d --graph-key k --lock-timeout 1 --report r --emit json -v --print-hash --session-out s"
    assert options(f"-o other {aside}").fingerprint_items() == plain
    assert options("-o x --no-variable-acc").fingerprint_items() != plain
    assert options("-o x --soc-version Ascend310").fingerprint_items() != plain


def test_the_same_value_by_another_way_has_the_same_fingerprint() -> None:
    assert options("-o x --precision fp16").fingerprint_items() == (
        options("-o x --ge-option ge.exec.precision_mode_v2=fp16").fingerprint_items()
    )


def test_typed_access_refuses_the_wrong_type() -> None:
    found = options("-o x")
    assert found.text("output") == "x"
    assert found.flag("train") is False
    assert found.integer("external-weight") == 0
    with pytest.raises(TypeError):
        found.integer("output")
    with pytest.raises(KeyError):
        found.get("nothing")


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [("", "", 0), ("ab", "ba", 1), ("kitten", "sitting", 3), ("abc", "abc", 0), ("abcdef", "x", 4)],
)
def test_edit_distance_counts_swaps_once_and_stops_at_the_limit(a: str, b: str, distance: int) -> None:
    assert edit_distance(a, b, 3) == distance


def test_closest_names_come_first_and_short_words_match_less() -> None:
    assert closest("levle", ["lever", "level", "other"]) == ["level", "lever"]
    assert closest("ab", ["xyz", "ax"]) == ["ax"]
