"""gecli in builds: depfiles, real make and ninja, --if-changed, stdin and stdout, reproducible reports."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gecli.compiler.depfile import rule

Run = Callable[..., "subprocess.CompletedProcess[str]"]
REPOSITORY = Path(__file__).resolve().parents[2]
DIGITS = REPOSITORY / "samples/digits/digits.onnx"
TRAIN = REPOSITORY / "samples/train"
SHAPE = ("--input-shape", "image:1,1,8,8")
NINJA = Path(sys.executable).parent / "ninja"


def block(language: str) -> str:
    """The fenced block of a language in the manual."""
    text = (REPOSITORY / "docs/build-systems.md").read_text()
    found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


def write_model(path: Path, value: float, data: str | None = None) -> None:
    """x @ w, with w in the model or in a file beside it."""
    weight = numpy_helper.from_array(np.full((64, 64), value, np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="mul")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 64])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    if data is None:
        onnx.save(model, path)
    else:
        (path.parent / data).unlink(missing_ok=True)
        onnx.save(model, path, save_as_external_data=True, location=data, size_threshold=0)


def identity(path: Path) -> tuple[int, int]:
    """What changes when a file is written or replaced."""
    return path.stat().st_ino, path.stat().st_mtime_ns


@pytest.fixture(autouse=True)
def no_outer_make(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make test` runs these tests too; the makes in here must not be its children."""
    for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES"):
        monkeypatch.delenv(name, raising=False)


# ---------------------------------------------------------------------- depfiles


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("a b.om", "a\\ b.om"),
        ("c#.om", "c\\#.om"),
        ("$d.om", "$$d.om"),
        ("e\\ f.om", "e\\\\\\ f.om"),
        ("g\\h.om", "g\\h.om"),
    ],
)
def test_names_are_escaped_as_make_reads_them(path: str, written: str, tmp_path: Path) -> None:
    assert rule(path, ["x"]) == f"{written}: x\n"
    assert rule("x", [path]) == f"x: {written}\n"
    (tmp_path / path).write_text("")
    (tmp_path / "Makefile").write_text(f"all:\n\t@echo '$?'\n{rule('all', [path])}")
    done = subprocess.run(["make", "-f", "Makefile"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == f"{path}\n", done.stderr


def test_a_depfile_names_everything_that_was_read_as_it_was_typed(gecli: Run, tmp_path: Path) -> None:
    write_model(tmp_path / "in/my net.onnx", 1.0, data="w.bin")
    (tmp_path / "keep.txt").write_text("mul\n")
    (tmp_path / "c.toml").write_text("")
    done = gecli("compile", "in/my net.onnx", "-o", "out/n.om", "--keep-dtype", "keep.txt", "--config", "c.toml",
                 "--depfile", "out/n.d")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/n.d").read_text() == (
        "out/n.om: in/my\\ net.onnx in/w.bin keep.txt c.toml\nin/w.bin:\nkeep.txt:\nc.toml:\n"
    )


def test_a_depfile_has_a_rule_for_the_packet_behind_that_of_the_om(gecli: Run, tmp_path: Path) -> None:
    shutil.copytree(TRAIN, tmp_path / "in", ignore=shutil.ignore_patterns("*.npz", "*.py"))
    assert gecli("compile", "in/conv_train.json", "-o", "t.om", "--train", "--depfile", "t.d").returncode == 0
    lines = (tmp_path / "t.d").read_text().splitlines()
    wanted = "in/conv_train.json in/w2.npy in/w3.npy"
    assert lines == [f"t.om: {wanted}", f"t.rdcpkt: {wanted}", "in/w2.npy:", "in/w3.npy:"]


def test_a_failed_compile_leaves_the_depfile_alone(gecli: Run, tmp_path: Path) -> None:
    (tmp_path / "d.d").write_text("old")
    assert gecli("compile", str(DIGITS), "-o", "d.om", "--input-shape", "nope:1", "--depfile", "d.d").returncode == 2
    assert (tmp_path / "d.d").read_text() == "old"


def test_a_cached_result_has_the_same_depfile(gecli: Run, tmp_path: Path) -> None:
    words = ["compile", str(DIGITS), "-o", "d.om", *SHAPE, "--cache-dir", "c", "--cache-create"]
    assert gecli(*words, "--depfile", "one.d").returncode == 0
    second = gecli(*words, "--depfile", "two.d")
    assert "cache=hit" in second.stdout
    assert (tmp_path / "one.d").read_text() == (tmp_path / "two.d").read_text() == f"d.om: {DIGITS}\n"


# ---------------------------------------------------------------------- make and ninja


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, str]:
    """An environment in which `gecli` is a command that also writes down its calls."""
    place = tmp_path / "bin"
    place.mkdir()
    script = place / "gecli"
    script.write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/calls"\nexec "{sys.executable}" -m gecli "$@"\n')
    script.chmod(0o755)
    return {**os.environ, "PATH": f"{place}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path)}


def calls(folder: Path) -> list[str]:
    """What gecli was asked to make since the last look: subcommand and output."""
    path = folder / "calls"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return sorted(f"{line.split()[0]} {line.split('-o ')[1].split()[0]}" for line in lines)


def test_make_rebuilds_exactly_what_changed(tools: dict[str, str], tmp_path: Path) -> None:
    write_model(tmp_path / "models/a.onnx", 1.0)
    write_model(tmp_path / "models/b.onnx", 2.0, data="b.bin")
    (tmp_path / "Makefile").write_text(block("make"))

    def make() -> list[str]:
        done = subprocess.run(["make"], cwd=tmp_path, env=tools, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return calls(tmp_path)

    assert make() == ["compile build/a.om", "compile build/b.om"]
    assert make() == []
    (tmp_path / "models/a.onnx").touch()
    assert make() == ["compile build/a.om"]
    write_model(tmp_path / "models/b.onnx", 3.0, data="b.bin")
    os.utime(tmp_path / "models/b.onnx", (1, 1))
    assert make() == ["compile build/b.om"]


def test_make_compiles_again_when_a_file_of_the_depfile_is_gone(tools: dict[str, str], tmp_path: Path) -> None:
    write_model(tmp_path / "models/a.onnx", 1.0, data="a.bin")
    (tmp_path / "gecli.toml").write_text("")
    (tmp_path / "Makefile").write_text(block("make"))

    def make() -> subprocess.CompletedProcess[str]:
        return subprocess.run(["make"], cwd=tmp_path, env=tools, capture_output=True, text=True)

    assert make().returncode == 0
    assert "gecli.toml:\n" in (tmp_path / "build/a.d").read_text()
    (tmp_path / "gecli.toml").unlink()
    assert make().returncode == 0
    assert calls(tmp_path) == ["compile build/a.om"] * 2
    assert make().stderr == "" and calls(tmp_path) == []
    (tmp_path / "models/a.bin").unlink()
    told = make().stderr
    assert "the file a.bin with its external data is missing" in told and "No rule to make target" not in told


def test_ninja_rebuilds_exactly_what_changed_and_stops_at_equal_outputs(tools: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    shutil.copy(DIGITS, tmp_path / "models")
    (tmp_path / "build.ninja").write_text(block("ninja"))

    def ninja() -> list[str]:
        done = subprocess.run([str(NINJA)], cwd=tmp_path, env=tools, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
        return calls(tmp_path)

    assert ninja() == ["compile build/digits.om", "run build/digits.npz"]
    assert ninja() == []
    before = identity(tmp_path / "build/digits.om")
    (tmp_path / "models/digits.onnx").touch()
    assert ninja() == ["compile build/digits.om"], "a touched input is looked at, nothing behind it is rebuilt"
    assert identity(tmp_path / "build/digits.om") == before
    assert ninja() == []
    text = (tmp_path / "build.ninja").read_text()
    (tmp_path / "build.ninja").write_text(text.replace("image:1,", "image:2,"))
    assert ninja() == ["compile build/digits.om", "run build/digits.npz"]
    assert ninja() == []


def test_ninja_follows_external_data_and_packets(tools: dict[str, str], tmp_path: Path) -> None:
    shutil.copytree(TRAIN, tmp_path / "models", ignore=shutil.ignore_patterns("*.npz", "*.py"))
    rules = block("ninja").split("rule run")[0].replace("-o $out", "-o $om").replace("$out.d", "$om.d")
    (tmp_path / "build.ninja").write_text(
        f"{rules}\nbuild b/t.om | b/t.rdcpkt: gecli models/conv_train.json\n  om = b/t.om\n  options = --train\n"
    )

    def ninja() -> list[str]:
        done = subprocess.run([str(NINJA)], cwd=tmp_path, env=tools, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
        return calls(tmp_path)

    assert ninja() == ["compile b/t.om"]
    assert ninja() == []
    np.save(tmp_path / "models/w2.npy", np.load(tmp_path / "models/w2.npy") * 2)
    before = (tmp_path / "b/t.om").read_bytes()
    assert ninja() == ["compile b/t.om"]
    assert (tmp_path / "b/t.om").read_bytes() != before


# ---------------------------------------------------------------------- --if-changed


def states(done: subprocess.CompletedProcess[str]) -> list[bool]:
    assert done.returncode == 0, done.stderr
    models = json.loads(done.stdout)["models"]
    assert all(bool(model["stages"]) != model["up_to_date"] for model in models), "no pass runs when it is up to date"
    return [model["up_to_date"] for model in models]


def test_an_output_that_is_up_to_date_is_left_alone(gecli: Run, tmp_path: Path) -> None:
    words = ["compile", str(DIGITS), "-o", "d.om", *SHAPE, "--if-changed"]
    assert states(gecli(*words, "--json")) == [False]
    os.utime(tmp_path / "d.om", ns=(10**18, 10**18))
    before = identity(tmp_path / "d.om")
    done = gecli(*words)
    assert "state=up to date" in done.stdout
    assert states(gecli(*words, "--json")) == [True]
    assert identity(tmp_path / "d.om") == before


@pytest.mark.parametrize("change", ["option", "input", "damage", "gone"])
def test_any_difference_compiles_again(change: str, gecli: Run, tmp_path: Path) -> None:
    write_model(tmp_path / "a.onnx", 1.0)
    words = ["compile", "a.onnx", "-o", "a.om", "--if-changed", "--json"]
    assert states(gecli(*words)) == [False]
    whole = (tmp_path / "a.om").read_bytes()
    if change == "option":
        words += ["--precision", "fp16"]
    elif change == "input":
        write_model(tmp_path / "a.onnx", 2.0)
    elif change == "damage":
        (tmp_path / "a.om").write_bytes(whole[:-100] + bytes(100))
    else:
        (tmp_path / "a.om").unlink()
    assert states(gecli(*words)) == [False]
    assert states(gecli(*words)) == [True]


def test_a_missing_packet_makes_a_model_with_variables_stale(gecli: Run, tmp_path: Path) -> None:
    words = ["compile", str(TRAIN / "mlp_train.json"), "-o", "m.om", "--if-changed", "--json"]
    assert states(gecli(*words)) == [False]
    assert states(gecli(*words)) == [True]
    (tmp_path / "m.rdcpkt").unlink()
    assert states(gecli(*words)) == [False]
    assert (tmp_path / "m.rdcpkt").is_file()


def test_models_of_one_session_are_all_up_to_date_or_all_compiled(gecli: Run, tmp_path: Path) -> None:
    words = ["compile", str(TRAIN / "conv_train.json"), str(TRAIN / "conv_eval.json"), "-o", "s/", "--train"]
    words += ["--if-changed", "--json"]
    assert states(gecli(*words)) == [False, False]
    assert states(gecli(*words)) == [True, True]
    (tmp_path / "s/conv_eval.om").unlink()
    assert states(gecli(*words)) == [False, False]


# ---------------------------------------------------------------------- stdin, stdout, digests, times


def test_a_model_from_stdin_gives_the_bytes_of_the_file(gecli: Run, tmp_path: Path) -> None:
    shutil.copy(DIGITS, tmp_path / "model.onnx")
    assert gecli("compile", "model.onnx", "-o", "one/m.om", *SHAPE).returncode == 0
    with (tmp_path / "model.onnx").open("rb") as stream:
        done = subprocess.run(
            [sys.executable, "-m", "gecli", "compile", "-", "-o", "two/m.om", *SHAPE, "--depfile", "m.d"],
            cwd=tmp_path, stdin=stream, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, capture_output=True,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = [gecli("run", f"{place}/m.om", "--json") for place in ("one", "two")]
    first, second = (json.loads(each.stdout)["requests"][0]["outputs"][0]["sha256"] for each in run)
    assert first == second
    assert (tmp_path / "m.d").read_text() == "two/m.om: \n"


def test_a_model_from_stdin_finds_its_data_in_the_base_directory(gecli: Run, tmp_path: Path) -> None:
    write_model(tmp_path / "in/a.onnx", 1.0, data="w.bin")
    command = [sys.executable, "-m", "gecli", "compile", "-", "-o", "a.om"]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    model = (tmp_path / "in/a.onnx").read_bytes()
    lost = subprocess.run(command, cwd=tmp_path, input=model, env=env, capture_output=True)
    assert lost.returncode == 3
    found = subprocess.run([*command, "--base-dir", "in"], cwd=tmp_path, input=model, env=env, capture_output=True)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([str(DIGITS), str(TRAIN / "conv_eval.json")], "2 models were given"),
        ([str(TRAIN / "mlp_train.json")], "needs its .rdcpkt beside it"),
        ([str(DIGITS), *SHAPE, "--json"], "--json prints its document there"),
        ([str(DIGITS), *SHAPE, "--emit", "json"], "--emit writes its files beside the OM"),
    ],
)
def test_stdout_is_refused_where_the_result_is_more_than_one_file(words: list[str], why: str, gecli: Run) -> None:
    done = gecli("compile", *words, "-o", "-")
    assert done.returncode == 2
    assert why in done.stderr
    assert not done.stdout.startswith("IMOD")


def test_a_cached_model_with_variables_is_not_written_to_stdout_either(gecli: Run, tmp_path: Path) -> None:
    words = ["compile", str(TRAIN / "mlp_train.json"), "--cache-dir", "c", "--cache-create", "--graph-key", "k"]
    assert gecli(*words, "-o", "mlp_train.om").returncode == 0
    done = gecli(*words, "-o", "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert sorted(path.name for path in tmp_path.glob("*.rdcpkt")) == ["mlp_train.rdcpkt"]


def test_an_om_is_not_written_to_a_terminal() -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "gecli", "compile", str(DIGITS), "-o", "-", *SHAPE],
        stdout=theirs, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 2
    assert "standard output is a terminal" in done.stderr


@pytest.mark.parametrize("switches", [[], ["--quiet"], ["--cache-dir", "c", "--cache-create"]])
def test_print_hash_prints_the_digest_of_every_output(switches: list[str], gecli: Run, tmp_path: Path) -> None:
    words = ["compile", str(TRAIN / "mlp_train.json"), "-o", "m.om", "--print-hash", *switches]
    for _ in range(2):
        done = gecli(*words)
        digests = {name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("m.om", "m.rdcpkt")}
        shown = [line for line in done.stdout.splitlines() if line.startswith("sha256=")]
        assert shown == [f"sha256={digest} {name}" for name, digest in digests.items()]
    (model,) = json.loads(gecli(*words, "--json").stdout)["models"]
    assert (model["sha256"], model["rdcpkt"]["sha256"]) == tuple(digests.values())


def test_the_digest_of_an_om_on_stdout_goes_to_stderr() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gecli", "compile", str(DIGITS), "-o", "-", *SHAPE, "--print-hash"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, capture_output=True, check=True,
    )  # fmt: skip
    assert f"sha256={hashlib.sha256(done.stdout).hexdigest()} -" in done.stderr.decode()


@pytest.mark.parametrize("text", ["soon", "-1", "1.5", " 1"])
def test_a_source_date_that_is_no_number_is_refused(text: str, gecli: Run) -> None:
    done = gecli("compile", str(DIGITS), "-o", "d.om", *SHAPE, env={"SOURCE_DATE_EPOCH": text})
    assert done.returncode == 2
    assert "SOURCE_DATE_EPOCH" in done.stderr


def test_under_a_source_date_two_reports_are_equal(gecli: Run, tmp_path: Path) -> None:
    env = {"SOURCE_DATE_EPOCH": "1700000000"}
    for name in ("one", "two"):
        done = gecli("compile", str(DIGITS), "-o", "d.om", *SHAPE, "--report", "r.json", env=env)
        assert done.returncode == 0, done.stderr
        (tmp_path / "r.json").rename(tmp_path / name)
    assert (tmp_path / "one").read_text() == (tmp_path / "two").read_text()
    assert '"ms"' not in (tmp_path / "one").read_text()
    gecli("compile", str(DIGITS), "-o", "d.om", *SHAPE, "--report", "r.json")
    assert '"ms"' in (tmp_path / "r.json").read_text()


def test_the_options_file_of_the_manual_is_one(gecli: Run, tmp_path: Path) -> None:
    (tmp_path / "options.json").write_text(block("json"))
    words = ("compile", str(DIGITS), "-o", "m.om", "--raw-ge-options", "options.json")
    done = gecli(*words)
    assert done.returncode == 0, done.stderr
    assert "input.0=image DT_FLOAT NCHW [1,1,8,8]" in done.stdout
    shown = gecli(*words, "--show-config").stdout
    for source in ("raw global", "raw session", "raw graph"):
        assert source in shown


@pytest.mark.parametrize(
    "text", ["{}", "[1]", '{"compile options": {"all": {}}}', '{"compile options": {"graph": {"a": 1}}}']
)
def test_an_options_file_of_another_form_is_answered_with_an_example(gecli: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "options.json").write_text(text)
    done = gecli("compile", str(DIGITS), "-o", "m.om", "--raw-ge-options", "options.json")
    assert done.returncode == 2
    example = done.stderr.partition("do:  ")[2].splitlines()[0]
    (tmp_path / "options.json").write_text(example.replace("x:1,3", "image:1,1,8,8"))
    assert gecli("compile", str(DIGITS), "-o", "m.om", "--raw-ge-options", "options.json").returncode == 0
