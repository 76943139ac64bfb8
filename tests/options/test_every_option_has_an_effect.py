"""No option is silently accepted: each implemented one changes what can be seen, or a named test shows its effect."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from gecli.cli.app import run
from gecli.options import jit_table, options_of
from gecli.options.option import Option
from gecli.options.recorded_table import RECORDED_OPTIONS
from gecli.options.run_table import RUN_OPTIONS
from gecli.options.table import flags_of
from tests.options.workshop import write_files, write_models

TESTS = Path(__file__).resolve().parents[1]
SAMPLES = TESTS.parent / "samples"


class Effect(NamedTuple):
    """`gecli BASE` and `gecli BASE WORDS` differ in a part of what they leave behind."""

    base: str
    words: str
    part: str  # status, stdout, stderr, files, or a path into the JSON document


DIGITS = "compile digits.onnx --input-shape image:1,1,8,8 -o d.om"
OPEN = "compile digits.onnx -o d.om"
TRAIN = "compile conv_train.json --train -o t.om"
BOTH = "compile conv_train.json conv_eval.json --train -o s/"
STALE = "compile plain.json conv.json -o s/"
RUN = "run digits.om"
STEP = "run train.om"
DYNAMIC = "run dynamic.om"
MEMORY = "models.0.memory"
STAGES = "models.0.stages"
CHECK = "compile digits.onnx --check"

COMPILE: dict[str, Effect] = {
    "model": Effect("compile -o d.om", "--model digits.onnx", "status"),
    "singleop": Effect("compile -o s/", "--singleop op.json", "status"),
    "from": Effect(DIGITS, "--from json", "status"),
    "ge.frameworkType": Effect(DIGITS, "--framework 3", "status"),
    "input_shape": Effect(OPEN, "--input-shape image:2,1,8,8", "models.0.inputs"),
    "dim": Effect(OPEN, "--dim batch=3", "models.0.inputs"),
    "input_shape_range": Effect(OPEN, "--input-shape-range image:[1~4,1,8,8]", "models.0.inputs"),
    "input_format": Effect("compile relu.onnx -o d.om", "--input-format NCHW", "models.0.inputs"),
    "ge.INPUT_NODES_SET_FP16": Effect(DIGITS, "--input-fp16-nodes image", "models.0.inputs"),
    "allow-external-outside": Effect("compile inner/outside.json -o o.om", "--allow-external-outside", "status"),
    "rename-duplicates": Effect("compile twins.onnx -o t.om", "--rename-duplicates", "status"),
    "output": Effect(DIGITS, "-o elsewhere", "files"),
    "ge.outputNodeName": Effect(DIGITS, "--out-nodes 'relu1:0;probabilities'", "models.0.outputs"),
    "ge.outputDatatype": Effect(DIGITS, "--output-type FP16", "models.0.outputs"),
    "ge.externalWeight": Effect(DIGITS, "--external-weight split", "files"),
    "ge.externalWeightDir": Effect(f"{DIGITS} --external-weight combined", "--external-weight-dir there", "files"),
    "emit": Effect(DIGITS, "--emit json,readable,report,varmap", "files"),
    "depfile": Effect(DIGITS, "--depfile d.d", "files"),
    "print-hash": Effect(DIGITS, "--print-hash", "stdout"),
    "strict-paths": Effect("compile digits.onnx -o a+b.om", "--strict-paths", "status"),
    "ge.socVersion": Effect(DIGITS, "--soc-version Ascend310P3", "soc"),
    "ge.exec.precision_mode_v2": Effect(DIGITS, "--precision-mode-v2 fp16", MEMORY),
    "ge.exec.precision_mode": Effect(DIGITS, "--precision-mode allow_mix_precision", MEMORY),
    "ge.exec.modify_mixlist": Effect(f"{DIGITS} --precision mixed_float16", "--modify-mixlist mix.json", MEMORY),
    "keep_dtype": Effect(f"{DIGITS} --precision fp16", "--keep-dtype keep.txt", MEMORY),
    "format-policy": Effect(TRAIN, "--format-policy origin", "models.0.variables"),
    "ge.enableSmallChannel": Effect(DIGITS, "--enable-small-channel 1", MEMORY),
    "ge.oo.level": Effect(TRAIN, "--oo-level O0", "models.0.variables"),
    "ge.oo.constantFolding": Effect(DIGITS, "--oo-constant-folding false", MEMORY),
    "ge.oo.deadCodeElimination": Effect(DIGITS, "--oo-dead-code-elimination false", MEMORY),
    "ge.optimizationSwitch": Effect(TRAIN, "--optimization-switch VariableOpPass:off", "models.0.variables"),
    "ge.fusionSwitchFile": Effect(TRAIN, "--fusion-switch-file switch.json", "models.0.variables"),
    "ge.exec.disableReuseMemory": Effect(DIGITS, "--disable-reuse-memory 1", MEMORY),
    "allow-unsupported": Effect("compile odd.onnx --stop-after parse", "--allow-unsupported", "status"),
    "ge.graphRunMode": Effect("compile conv_train.json -o t.om", "--train", MEMORY),
    "ge.exec.variable_acc": Effect(TRAIN, "--no-variable-acc", "models.0.variables"),
    "ge.AllowMultiGraphParallelCompile": Effect(TRAIN, "--parallel-compile", "models.0.variables"),
    "ge.constLifecycle": Effect(DIGITS, "--ge-option ge.constLifecycle=session", f"{MEMORY}.variable_bytes"),
    "ge.exec.memoryOptimizationPolicy": Effect(
        TRAIN, "--ge-option ge.exec.memoryOptimizationPolicy=MemoryPriority", f"{MEMORY}.variable_bytes"
    ),
    "ge.evaluateGraphResourceMode": Effect(
        f"{TRAIN} --var-mem-max-size 1K", "--ge-option ge.evaluateGraphResourceMode=1", "status"
    ),
    "session": Effect(TRAIN, "--session other", "models.0.session"),
    "no-session": Effect(f"{STALE}", "--no-session", "models.0.variables"),
    "session-in": Effect("compile conv_eval.json -o e.om", "--session-in s.bin", "models.0.variables"),
    "session-out": Effect(TRAIN, "--session-out s2.bin", "files"),
    "no-rebuild": Effect(STALE, "--no-rebuild", "status"),
    "explain-variable": Effect(TRAIN, "--explain-variable w2", "stdout"),
    "strict-variable-cast": Effect("compile lossy.json -o l.om", "--strict-variable-cast", "models.0.variables"),
    "strict-order": Effect("compile race.json -o r.om", "--strict-order", "status"),
    "compact-variables": Effect(STALE, "--compact-variables", "models.0.variables"),
    "strict-var-init": Effect("compile bare.json asked.json -o s/", "--strict-var-init", "models.1.warnings"),
    "ge.variableMemoryMaxSize": Effect(TRAIN, "--var-mem-max-size 1K", "status"),
    "ge.graphMemoryMaxSize": Effect(TRAIN, "--ge-option ge.graphMemoryMaxSize=300G", "status"),
    "check": Effect("compile digits.onnx -o d.om", "--check", "files"),
    "stop-after": Effect(DIGITS, "--stop-after Prepare", "files"),
    "print-schema": Effect(DIGITS, "--print-schema", "files"),
    "print-pipeline": Effect(DIGITS, "--print-pipeline", "files"),
    "dump-graph": Effect(DIGITS, "--dump-graph dump:Prepare", "files"),
    "ge.debugDir": Effect(f"{DIGITS} --dump-graph :Prepare", "--debug-dir there", "files"),
    "report": Effect(DIGITS, "--report r.json", "files"),
    "show-config": Effect(DIGITS, "--show-config", "files"),
    "check_report": Effect(CHECK, "--check-report c.json", "files"),
    "ge.display_model_info": Effect(DIGITS, "--display-model-info 1", "stdout"),
    "log": Effect(DIGITS, "--log info", "stderr"),
    "mode": Effect(DIGITS, "--mode 3", "files"),
    "om": Effect("compile --mode 6", "--om digits.om", "status"),
    "json-file": Effect("compile --mode 1 --om digits.om", "--json=o.json", "files"),
    "ge-option": Effect(TRAIN, "--ge-option ge.exec.variable_acc=False", "models.0.variables"),
    "raw-ge-options": Effect(TRAIN, "--raw-ge-options raw.json", "models.0.variables"),
    "raw-ge-options-ignore-unsupported": Effect(
        f"{TRAIN} --raw-ge-options odd_raw.json", "--raw-ge-options-ignore-unsupported", "status"
    ),
    "ignore-unsupported": Effect(f"{DIGITS} --cal-conf c", "--ignore-unsupported", "status"),
    "werror": Effect("compile lossy.json -o l.om", "--werror", "status"),
    "profile": Effect(f"{TRAIN} --config profiles.toml", "--profile plain", "models.0.variables"),
}

RUNS: dict[str, Effect] = {
    "model": Effect("run", "--model digits.om", "status"),
    "input": Effect(RUN, "-i ones.npy", "stdout"),
    "fill": Effect(RUN, "--fill ones", "stdout"),
    "seed": Effect(RUN, "--seed 5", "stdout"),
    "val-range": Effect(RUN, "--val-range 3,4", "stdout"),
    "shape": Effect(DYNAMIC, "--shape image:3,1,8,8", "status"),
    "cast": Effect(f"{RUN} -i image=double.npy", "--cast", "status"),
    "transpose": Effect(f"{RUN} -i image=nhwc.npy", "--transpose image:0,3,1,2", "status"),
    "save-inputs": Effect(RUN, "--save-inputs in.npz", "files"),
    "loop": Effect(RUN, "--loop 3", "models.0.stats.runs"),
    "duration": Effect(RUN, "--duration 0.05", "models.0.stats.runs"),
    "device": Effect(RUN, "--device 0,1", "stdout"),
    "order": Effect(f"{STEP} --get-var w1", "--order 'train.om;train.om'", "stdout"),
    "no-session": Effect("run train.om s_eval.om --init zero", "--no-session", "requests.1.outputs"),
    "check-numerics": Effect("run log.om --fill zeros", "--check-numerics", "status"),
    "max-loop": Effect("run loop.om --fill zeros", "--max-loop 2", "status"),
    "set-var": Effect(STEP, "--set-var b3=ten.npy", "stdout"),
    "get-var": Effect(STEP, "--get-var b3", "stdout"),
    "load-vars": Effect(STEP, "--load-vars vars.npz", "stdout"),
    "save-vars": Effect(STEP, "--save-vars v.npz", "files"),
    "var-names": Effect(f"{STEP} --load-vars vars.npz", "--var-names none", "status"),
    "vars-strict": Effect("run bare.om --init zero --load-vars vars.npz", "--vars-strict", "status"),
    "raw-format": Effect(f"{STEP} --get-var w1", "--raw-format", "stdout"),
    "vars": Effect("run alone.om", "--vars train.rdcpkt", "stderr"),
    "session-in": Effect("run alone.om", "--session-in s.bin", "stderr"),
    "session-out": Effect(STEP, "--session-out t.bin", "files"),
    "external-var": Effect(STEP, "--external-var 1K", "status"),
    "init": Effect("run bare.om", "--init zero", "status"),
    "strict-order": Effect("run race.om", "--strict-order", "status"),
    "strict-variable-addresses": Effect("run race.om bare.om --init zero", "--strict-variable-addresses", "status"),
    "weights": Effect(RUN, "--weights lazy", "status"),
    "mem-limit": Effect(RUN, "--mem-limit 1K", "status"),
    "ge.variableUse1gHugePage": Effect(f"{STEP} --plan", "--huge-page 1", "stdout"),
    "print-memory-map": Effect(RUN, "--print-memory-map", "stdout"),
    "plan": Effect(f"{RUN} -o out/", "--plan", "files"),
    "output": Effect(RUN, "-o out.npz", "files"),
    "output-format": Effect(f"{RUN} -o out/", "--output-format txt", "files"),
    "compare": Effect(RUN, "--compare zeros.npz", "status"),
    "rtol": Effect(f"{RUN} --compare near.npz", "--rtol 10", "status"),
    "atol": Effect(f"{RUN} --compare near.npz", "--atol 10", "status"),
    "stat": Effect(f"{RUN} --compare one_off.npz", "--stat median", "status"),
    "nan-differs": Effect("run log.om --fill const:-1 --compare nan.npz", "--nan-differs", "status"),
    "profile": Effect(RUN, "--profile", "models.0.profile"),
    "profile-by": Effect(f"{RUN} --profile", "--profile-by stream", "stdout"),
    "profile-out": Effect(RUN, "--profile-out p.json", "files"),
    "export-times": Effect(RUN, "--export-times t.json", "files"),
    "dump": Effect(f"{RUN} -o out/", "--dump 'conv*'", "files"),
    "mark": Effect(f"{RUN} -o out/", "--mark all", "files"),
    "dump-dir": Effect(f"{RUN} -o out/ --dump conv1", "--dump-dir there", "files"),
    "dump-inputs": Effect(f"{RUN} --dump conv1 -o out/", "--dump-inputs", "files"),
}

# What one pair of commands cannot show, and the test that does.
ELSEWHERE = {
    ("compile", "base-dir"): "cli/test_build_systems.py::test_a_model_from_stdin_finds_its_data_in_the_base_directory",
    ("compile", "ge.inputHintShape"): "jit/test_jit_command.py::test_a_hint_is_enough_for_the_first_slice",
    ("compile", "if-changed"): "cli/test_build_systems.py::test_an_output_that_is_up_to_date_is_left_alone",
    ("compile", "keep-cmdline"): "options/test_effects_of_options.py::test_the_om_keeps_the_line_as_typed",
    ("compile", "var-key-style"): "options/test_variable_options.py::test_the_saved_session_has_keys_of_the_form",
    ("compile", "verify-passes"): "options/test_effects_of_options.py::test_a_pass_that_breaks_the_graph_is_found",
    ("compile", "jobs"): "compiler/test_several_at_once.py::test_several_processes_give_the_files_of_one",
    ("compile", "keep-going"): "options/test_effects_of_options.py::test_every_model_is_tried_and_the_worst_counts",
    ("compile", "threads"): "options/test_effects_of_options.py::test_a_compile_computes_constants_with_one_thread",
    ("run", "weight-dir"): "compiler/test_weight_outputs.py::test_run_looks_into_the_weight_directories_it_is_given",
    ("run", "no-verify-weights"): "compiler/test_weight_outputs.py::test_run_compares_digests_unless_it_is_told_not_to",
    ("run", "value-bins"): "compiler/test_weight_outputs.py::test_run_takes_weights_by_id",
    ("run", "mem-fill"): "options/test_effects_of_options.py::test_poisoned_memory_changes_no_result",
    ("run", "collective-timeout"):
        "runtime/test_device_group.py::test_a_collective_that_does_not_fill_in_time_is_given_up",
    ("run", "placeholder"): "runtime/test_memory_from_outside.py::test_a_placeholder_has_the_data_that_are_given",
    ("run", "warmup"): "runtime/test_run_repeats.py::test_warm_ups_are_not_measured_and_leave_no_trace",
    ("run", "threads"): "options/test_effects_of_options.py::test_threads_are_those_of_the_steps_and_blas_has_one",
}  # fmt: skip


def implemented(subcommand: str) -> list[Option]:
    """The options of class I that this table answers for; those of the cache have their own tests.

    So have those of a compile that `gecli run --jit` takes (jit/test_jit_command.py).
    """
    return [o for o in options_of(subcommand) if o.option_class == "I" and o.group not in ("Cache", jit_table.GROUP)]


@pytest.mark.parametrize(("subcommand", "table"), [("compile", COMPILE), ("run", RUNS)])
def test_every_implemented_option_has_a_row(subcommand: str, table: dict[str, Effect]) -> None:
    shown = {*table, *(key for command, key in ELSEWHERE if command == subcommand)}
    assert sorted(shown) == sorted(option.key for option in implemented(subcommand))


@pytest.mark.parametrize("place", sorted(set(ELSEWHERE.values())))
def test_the_tests_named_here_exist(place: str) -> None:
    path, _, name = place.partition("::")
    assert f"def {name}(" in (TESTS / path).read_text()


@pytest.mark.parametrize("key", COMPILE)
def test_an_option_of_compile_changes_what_can_be_seen(key: str, see: Callable[[str], dict[str, Any]]) -> None:
    shows_its_effect(COMPILE[key], "compile", key, see)


@pytest.mark.parametrize("key", RUNS)
def test_an_option_of_run_changes_what_can_be_seen(key: str, see: Callable[[str], dict[str, Any]]) -> None:
    shows_its_effect(RUNS[key], "run", key, see)


@pytest.mark.parametrize("option", [o for o in RECORDED_OPTIONS if o.flag], ids=lambda option: option.name)
def test_an_option_without_effect_is_recorded_or_refused(option: Option, see: Callable[[str], dict[str, Any]]) -> None:
    value = {"int": "1", "bool": "true"}.get(option.type, "x")
    value = next((choice for choice in option.choices if choice), value)
    if option.code == "E10005":
        value = "true"
    value = "cv" if option.name == "multi-stream-parallel-mode" else value
    extra = "--op-select-implmode high_precision" if option.name == "optypelist-for-implmode" else ""
    extra = "--deterministic 1" if option.name == "deterministic-level" and value != "0" else extra
    seen = see(f"{DIGITS} --{option.name}={value} {extra} -v --show-config")
    if option.option_class == "X":
        assert seen["status"] == 2
        assert f"--{option.name} is not supported" in seen["stderr"]
        assert option.note in seen["stderr"]
    else:
        assert seen["status"] == 0, seen["stderr"]
        assert re.search(rf"recorded, no effect here: .*\b{option.name}\b", seen["stderr"])


@pytest.mark.parametrize("option", [o for o in RUN_OPTIONS if o.option_class == "X"], ids=lambda option: option.name)
def test_a_refused_option_of_run_says_what_to_use_instead(option: Option, see: Callable[[str], dict[str, Any]]) -> None:
    value = {"int": "1", "bool": "true"}.get(option.type, "1,2" if option.name == "dym-hw" else "a=b")
    seen = see(f"{RUN} --{option.name}={value}")
    assert seen["status"] == 2
    assert option.note in seen["stderr"]


def shows_its_effect(effect: Effect, subcommand: str, key: str, see: Callable[[str], dict[str, Any]]) -> None:
    flags = {name for name, flag in flags_of(subcommand).items() if flag.option.key == key}
    typed = {word.lstrip("-").partition("=")[0] for word in shlex.split(effect.words) if word.startswith("-")}
    assert typed & flags or "ge-option" in typed or key == "json-file", "the row must use the option it stands for"
    in_document = effect.part not in ("status", "stdout", "stderr", "files")
    switch = " --json" if in_document else ""
    without = part_of(see(f"{effect.base}{switch}"), effect.part)
    with_it = part_of(see(f"{effect.base} {effect.words}{switch}"), effect.part)
    assert with_it != without


def part_of(seen: dict[str, Any], part: str) -> Any:
    if part in seen:
        return seen[part]
    assert seen["status"] == 0, seen["stderr"]
    found: Any = json.loads(seen["stdout"])
    for step in part.split("."):
        found = found[int(step)] if step.isdigit() else found[step]
    return found


# ---------------------------------------------------------------------- the place where commands run


@pytest.fixture
def see(workshop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Run a command line in this process, in a fresh copy of the workshop; returns what it left behind."""

    def run_it(line: str) -> dict[str, Any]:
        place = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        shutil.copytree(workshop, place)
        monkeypatch.chdir(place)
        monkeypatch.setenv("HOME", str(tmp_path))
        argv = shlex.split(line)
        monkeypatch.setattr("sys.argv", ["gecli", *argv])
        before = set(place.rglob("*"))
        capfd.readouterr()
        status = run(argv)
        shown = capfd.readouterr()
        files = sorted(str(path.relative_to(place)) for path in set(place.rglob("*")) - before)
        return {"status": status, "stdout": shown.out, "stderr": shown.err, "files": files}

    return run_it


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, compiled models and data that the commands above name."""
    place = tmp_path_factory.mktemp("workshop")
    shutil.copy(SAMPLES / "digits/digits.onnx", place)
    for name in ("conv_train.json", "conv_eval.json", "w2.npy", "w3.npy"):
        shutil.copy(SAMPLES / "train" / name, place)
    write_models(place)
    write_files(place)
    current = os.getcwd()
    os.chdir(place)
    try:
        for line in (
            "compile digits.onnx --input-shape image:1,1,8,8 -o digits.om",
            "compile digits.onnx -o dynamic.om",
            "compile conv_train.json --train -o train.om --session-out s.bin",
            "compile conv_eval.json -o s_eval.om",
            "compile log.onnx -o log.om",
            "compile loop.json -o loop.om",
            "compile bare.json -o bare.om",
            "compile race.json -o race.om",
        ):
            assert run([*shlex.split(line), "--quiet"]) == 0
    finally:
        os.chdir(current)
    shutil.copy(place / "train.om", place / "alone.om")
    write_goldens(place)
    return place


def write_goldens(place: Path) -> None:
    """What digits.om and log.om answer, and answers that are wrong in one way or another."""
    current = os.getcwd()
    os.chdir(place)
    try:
        assert run(["run", "digits.om", "-o", "right.npz", "--quiet"]) == 0
    finally:
        os.chdir(current)
    right = np.load(place / "right.npz")["probabilities"]
    one_off = right.copy()
    one_off[0, 0] += 1
    np.savez(place / "zeros.npz", probabilities=np.zeros_like(right))
    np.savez(place / "near.npz", probabilities=right + np.float32(0.05))
    np.savez(place / "one_off.npz", probabilities=one_off)
    np.savez(place / "nan.npz", y=np.full((2, 3), np.nan, np.float32))
