"""Effects that a pair of commands cannot show."""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gecli.artifacts.om_file import read_om
from gecli.cli.app import run
from gecli.cli.thread_limit import usable_cores, use_threads
from gecli.compiler import compile_model
from gecli.ir.graph import Graph
from gecli.ops.thread_count import intra_op_threads, set_intra_op_threads
from gecli.passes.base import PassContext
from gecli.passes.prune import Prune
from gecli.runtime.session import Session
from tests.options.workshop import write_models

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
DIGITS = SAMPLES / "digits/digits.onnx"
SHAPE = ("--input-shape", "image:1,1,8,8")


def test_the_om_keeps_the_line_as_typed(gecli, tmp_path: Path) -> None:
    words = ["compile", str(DIGITS), "-o", "d.om", *SHAPE, "--quiet"]
    assert gecli(*words, "--keep-cmdline").returncode == 0
    line = shlex.join(["gecli", *words, "--keep-cmdline"])
    assert read_om(tmp_path / "d.om").model().attrs["atc_cmdline"] == line
    assert gecli(*words).returncode == 0
    assert read_om(tmp_path / "d.om").model().attrs["atc_cmdline"] == (
        "gecli compile digits.onnx --input-shape=image:1,1,8,8"
    )


def test_a_pass_that_breaks_the_graph_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_it(self: Prune, graph: Graph, ctx: PassContext) -> Counter[str]:
        node = graph.nodes_of("Relu")[0]
        node.inputs.append(node.inputs[0])  # a link that the producer knows nothing of
        return Counter()

    monkeypatch.setattr(Prune, "run", break_it)
    with pytest.raises(AssertionError, match="after pass PrunePass"):
        compile_model(DIGITS, tmp_path / "d.om", input_shape="image:1,1,8,8", verify_passes="true")


@pytest.mark.parametrize(
    ("switches", "status", "codes", "written"),
    [
        ((), 3, ["E13001"], []),
        (("--keep-going",), 4, ["E13001", "G2001"], []),
        (("--no-session",), 3, ["E13001"], []),
        (("--no-session", "--keep-going"), 4, ["E13001", "G2001"], ["plain.om", "plain.rdcpkt"]),
    ],
)
def test_every_model_is_tried_and_the_worst_counts(
    switches: tuple[str, ...], status: int, codes: list[str], written: list[str], gecli, tmp_path: Path
) -> None:
    write_models(tmp_path)
    bad = json.loads((tmp_path / "conv.json").read_text())
    bad["nodes"][0]["outputs"][0]["shape"] = [1, 2, 8, 8]  # two channels, the filter has one
    (tmp_path / "bad.json").write_text(json.dumps(bad))
    done = gecli("compile", "none.onnx", "bad.json", "plain.json", "-o", "out/", "--json", *switches)
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"]) == (status, False)
    assert [error["code"] for error in document["errors"]] == codes
    assert sorted(path.name for path in tmp_path.glob("out/*")) == written
    assert [Path(model["output"]).name for model in document["models"]] == [n for n in written if n.endswith(".om")]


BLAS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@pytest.mark.parametrize(
    "option, asked, count",
    [(3, {}, 3), (None, {}, usable_cores()), (0, {}, usable_cores()), (None, {BLAS[0]: "1"}, 1)]
    + [(4, {BLAS[1]: "1"}, 4), (0, {BLAS[1]: "1"}, 1), (None, {BLAS[0]: "x", BLAS[1]: "1,2", BLAS[2]: "0"}, 1)],
)
def test_threads_are_those_of_the_steps_and_blas_has_one(
    option: int | None, asked: dict[str, str], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in BLAS:
        monkeypatch.setenv(name, asked.get(name, ""))
    before = intra_op_threads()
    try:
        use_threads(option)
        assert intra_op_threads() == count
    finally:
        set_intra_op_threads(before)
    assert [os.environ[name] for name in BLAS] == ["1"] * 3


def test_a_compile_computes_constants_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in BLAS:
        monkeypatch.setenv(name, "9")
    set_intra_op_threads(1)
    assert run(["compile", "--print-pipeline", "--threads", "4"]) == 0
    assert [os.environ[name] for name in BLAS] == ["1"] * 3
    assert intra_op_threads() == 1


@pytest.mark.parametrize("model", ["digits", "conv_train"])
def test_poisoned_memory_changes_no_result(model: str, tmp_path: Path) -> None:
    om = tmp_path / "m.om"
    if model == "digits":
        compile_model(DIGITS, om, input_shape="image:1,1,8,8")
    else:
        compile_model(SAMPLES / "train/conv_train.json", om, train="true")
    answers = []
    for poison in (False, True):
        loaded = Session(poison=poison).load(om)
        assert loaded.program is not None
        fresh = loaded.program.operands[loaded.outputs[0].port].array
        assert np.isnan(fresh).all() == poison
        feeds = {each.name: np.full(each.shape, 0.1, each.dtype.numpy) for each in loaded.inputs}
        answers.append(loaded.run(feeds)[0])
    for name, value in answers[0].items():
        np.testing.assert_array_equal(answers[1][name], value)


def test_a_variable_without_a_value_is_poisoned_too_unless_zero_is_asked_for(gecli, tmp_path: Path) -> None:
    write_models(tmp_path)
    assert gecli("compile", "bare.json", "-o", "bare.om").returncode == 0
    done = gecli("run", "bare.om", "--init", "zero", "--mem-fill", "poison", "--get-var", "v")
    assert "min 0 max 0" in done.stdout
    store = Session(poison=True)
    store.load(tmp_path / "bare.om")
    assert np.isnan(store.store.value("v")).all()


def test_profiling_a_training_step_does_not_train(gecli, tmp_path: Path) -> None:
    compile_model(SAMPLES / "train/conv_train.json", tmp_path / "t.om", train="true")
    plain = gecli("run", "t.om", "--get-var", "w1", "--get-var", "b3")
    profiled = gecli("run", "t.om", "--get-var", "w1", "--get-var", "b3", "--profile-out", "p.csv")
    assert profiled.stdout == plain.stdout


def test_a_session_goes_on_in_the_next_command(gecli, tmp_path: Path) -> None:
    train, evaluate = (str(SAMPLES / f"train/{name}.json") for name in ("conv_train", "conv_eval"))
    assert gecli("compile", train, "-o", "t.om", "--train", "--session-out", "s.bin").returncode == 0
    words = ["--session-in", "s.bin", "--session-out", "s.bin", "--json"]
    apart = json.loads(gecli("compile", evaluate, "-o", "e.om", *words).stdout)["models"][0]
    together = json.loads(gecli("compile", train, evaluate, "-o", "s/", "--train", "--json").stdout)["models"][1]
    assert apart["variables"] == [{**row, "changed_here": False} for row in together["variables"]]


def test_two_commands_do_not_continue_one_session_at_once(gecli, tmp_path: Path) -> None:
    import fcntl

    train = str(SAMPLES / "train/mlp_train.json")
    with open(tmp_path / "s.bin.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = gecli("compile", train, "-o", "m.om", "--session-out", "s.bin", "--lock-timeout", "0")
    assert done.returncode == 7
    assert "s.bin is in use" in done.stderr
    assert not (tmp_path / "m.om").exists()


def test_a_check_reports_every_fault_and_writes_no_om(gecli, tmp_path: Path) -> None:
    write_models(tmp_path)
    done = gecli("compile", "odd.onnx", "relu.onnx", "--check", "--check-report", "c.json", "--json")
    assert done.returncode == 3
    document = json.loads(done.stdout)
    assert [model["result"] for model in document["models"]] == ["failed", "success"]
    assert any("Oddity" in cause["message"] for row in document["models"][0]["op"] for cause in row.get("cause", []))
    assert json.loads((tmp_path / "c.json").read_text()) == document
    assert not list(tmp_path.glob("*.om"))


@pytest.mark.parametrize(
    ("words", "code", "advice"),
    [
        (["--out-nodes", "sofmax:0"], "E10016", "softmax"),
        (["--out-nodes", "softmax:3"], "E10003", "--out-nodes softmax:0"),
        (["--output-type", "nope:0:FP16"], "E10001", "the outputs are: softmax:0"),
        (["--input-fp16-nodes", "imag"], "E10016", "--input-fp16-nodes image"),
        (["--input-fp16-nodes", "relu1"], "E10017", "it is a Relu"),
        (["--explain-variable", "w"], "E10016", "the variables are: none"),
        (["--stop-after", "Prepar"], "E10001", "--stop-after Prepare"),
        (["--dump-graph", "d:Nope"], "E10001", "stages: NormalizeGraph"),
        (["--input-format", "NHWC"], "E10001", "onnx models are NCHW, ND, NCDHW"),
        (["--from", "json", "--framework", "5"], "E10047", "leave out --framework"),
    ],
)
def test_a_name_that_does_not_exist_gets_candidates(words: list[str], code: str, advice: str, gecli) -> None:
    done = gecli("compile", str(DIGITS), "-o", "d.om", *SHAPE, *words)
    assert done.returncode == 2
    assert f"error[{code}]" in done.stderr
    assert advice in done.stderr
