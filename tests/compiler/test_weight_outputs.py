"""--external-weight: the files of a compile, where they lie, and that `run` finds them (cli.md 1.12, 3.7)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.cache.weight_files import weights_of_om
from gecli.planning.weight_names import split_name
from tests.conftest import REPOSITORY

DIGITS = REPOSITORY / "samples/digits/digits.onnx"
TRAIN = REPOSITORY / "samples/train/conv_train.json"
EVAL = REPOSITORY / "samples/train/conv_eval.json"
SHAPE = ("--input-shape", "image:1,1,8,8")
MODES = pytest.mark.parametrize("mode", ["split", "combined"])


def compile_digits(gecli: Any, *words: str, output: str = "d.om", **more: Any) -> Any:
    done = gecli("compile", str(DIGITS), "-o", output, *SHAPE, *words, **more)
    assert done.returncode == 0, done.stderr
    return done


def result(gecli: Any, folder: Path, om: str, *words: str) -> bytes:
    """The bytes of all outputs of a run in the directory of the test."""
    done = gecli("run", om, "--seed", "3", "-o", "out.npz", "--quiet", *words)
    assert done.returncode == 0, done.stderr
    with np.load(folder / "out.npz") as outputs:
        return b"".join(outputs[name].tobytes() for name in sorted(outputs))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# ------------------------------------------------------------------ what is written


def test_split_weights_lie_beside_the_om_under_their_digests(gecli, tmp_path: Path) -> None:
    compile_digits(gecli, "--external-weight", "1", output="out/d.om")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["d.om", "d.rdcpkt", "weight"]
    weights = files(tmp_path / "out" / "weight")
    assert weights
    assert all(name == split_name(hashlib.sha256(data).hexdigest()) for name, data in weights.items())


def test_combined_weights_are_one_file_named_after_the_output(gecli, tmp_path: Path) -> None:
    compile_digits(gecli, "--external-weight", "combined")
    assert [path.name for path in (tmp_path / "weight").iterdir()] == ["d_weight_combined"]
    data = (tmp_path / "weight" / "d_weight_combined").read_bytes()
    rows = weights_of_om(str(tmp_path / "d.om"))
    assert len(data) % 512 == 0
    assert all(row.offset % 512 == 0 for row in rows)
    assert all(hashlib.sha256(data[row.offset : row.end]).hexdigest() == row.sha256 for row in rows)


@MODES
def test_the_om_holds_names_without_directories_and_no_weights(gecli, tmp_path: Path, mode: str) -> None:
    compile_digits(gecli, output="inside.om")
    compile_digits(gecli, "--external-weight", mode, "--external-weight-dir", str(tmp_path / "far"), output="out/d.om")
    from gecli.artifacts.om_file import read_om

    om = read_om(str(tmp_path / "out" / "d.om"))
    nodes = [node for graph in om.model().graphs for node in graph.nodes_of("FileConstant")]
    assert nodes and not any("/" in node.attrs["location"] for node in nodes)
    assert not any(graph.nodes_of("Const") for graph in om.model().graphs)
    assert om.model().attrs["weight_size"] == 1024
    assert str(tmp_path).encode() not in (tmp_path / "out" / "d.om").read_bytes()


@MODES
def test_results_are_those_of_weights_inside(gecli, tmp_path: Path, mode: str) -> None:
    compile_digits(gecli, output="inside.om")
    compile_digits(gecli, "--external-weight", mode, output="out/d.om")
    assert result(gecli, tmp_path, "out/d.om") == result(gecli, tmp_path, "inside.om")


@MODES
def test_a_training_step_with_weights_outside_is_the_same(gecli, tmp_path: Path, mode: str) -> None:
    shown = []
    for words in ((), ("--external-weight", mode)):
        folder = "out" if words else "in"
        done = gecli("compile", str(TRAIN), str(EVAL), "--train", "-o", f"{folder}/", *words)
        assert done.returncode == 0, done.stderr
        done = gecli("run", f"{folder}/conv_train.om", f"{folder}/conv_eval.om", "--get-var", "w2", "--json")
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        shown.append([request["outputs"] for request in document["requests"]])
    assert shown[0] == shown[1]


@MODES
def test_two_compiles_give_the_same_bytes_in_any_directory(gecli, tmp_path: Path, mode: str) -> None:
    compile_digits(gecli, "--external-weight", mode, output="a/d.om")
    compile_digits(gecli, "--external-weight", mode, output="b/c/d.om", env={"SOURCE_DATE_EPOCH": "1"})
    compile_digits(gecli, "--external-weight", mode, output="a/d.om")
    assert files(tmp_path / "a") == files(tmp_path / "b" / "c")


def test_models_of_one_command_share_their_weights(gecli, tmp_path: Path) -> None:
    shutil.copy(DIGITS, tmp_path / "one.onnx")
    shutil.copy(DIGITS, tmp_path / "two.onnx")
    done = gecli("compile", "one.onnx", "two.onnx", "-o", "out/", *SHAPE, "--external-weight", "split")
    assert done.returncode == 0, done.stderr
    rows = [weights_of_om(str(tmp_path / "out" / f"{name}.om")) for name in ("one", "two")]
    assert {row.file for row in rows[0]} == {row.file for row in rows[1]} == set(files(tmp_path / "out" / "weight"))
    assert result(gecli, tmp_path, "out/one.om") == result(gecli, tmp_path, "out/two.om")


def test_the_report_names_every_file(gecli, tmp_path: Path) -> None:
    done = compile_digits(gecli, "--external-weight", "split", "--json")
    (model,) = json.loads(done.stdout)["models"]
    weights = files(tmp_path / "weight")
    assert {Path(row["file"]).name: (row["bytes"], row["sha256"]) for row in model["external_weights"]} == {
        name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in weights.items()
    }
    done = compile_digits(gecli, "--external-weight", "combined", "--print-hash")
    digest = hashlib.sha256((tmp_path / "weight" / "d_weight_combined").read_bytes()).hexdigest()
    assert f"sha256={digest} weight/d_weight_combined" in done.stdout.splitlines()
    assert "external_weights=d_weight_combined in weight size=" in done.stdout


def test_an_output_is_up_to_date_with_its_weights_only(gecli, tmp_path: Path) -> None:
    words = ("--external-weight", "split", "--if-changed")
    compile_digits(gecli, *words)
    assert "state=up to date" in compile_digits(gecli, *words).stdout
    next((tmp_path / "weight").iterdir()).unlink()
    assert "state=up to date" not in compile_digits(gecli, *words).stdout
    assert "state=up to date" in compile_digits(gecli, *words).stdout


@pytest.mark.parametrize("output", ["-", "/dev/null"])
def test_weights_need_a_place_beside_the_om(gecli, output: str) -> None:
    done = gecli("compile", str(DIGITS), "-o", output, *SHAPE, "--external-weight", "split")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error[E10001]" in done.stderr and "--external-weight" in done.stderr


def test_a_file_in_the_place_of_the_weight_directory_is_seen_before_the_compile(gecli, tmp_path: Path) -> None:
    (tmp_path / "weight").write_text("mine")
    done = gecli("compile", str(DIGITS), "-o", "d.om", *SHAPE, "--external-weight", "split")
    assert done.returncode == 5
    assert files(tmp_path) == {"weight": b"mine"}


def test_a_model_is_not_overwritten_by_its_weights(gecli, tmp_path: Path) -> None:
    model = tmp_path / "weight" / "d_weight_combined"
    model.parent.mkdir()
    shutil.copy(DIGITS, model)
    done = gecli("compile", "weight/d_weight_combined", "-o", "d.om", *SHAPE, "--external-weight", "combined")
    assert done.returncode == 2
    assert "E10047" in done.stderr
    assert model.read_bytes() == DIGITS.read_bytes()


def test_a_failed_compile_leaves_no_weights(gecli, tmp_path: Path) -> None:
    (tmp_path / "d.om").mkdir()
    done = gecli("compile", str(DIGITS), "-o", "d.om/x/", *SHAPE, "--out-nodes", "nothing", "--external-weight", "1")
    assert done.returncode == 2
    assert files(tmp_path) == {}


# ------------------------------------------------------------------ --external-weight-dir


def test_a_weight_directory_of_several_models_is_appended_to(gecli, tmp_path: Path) -> None:
    words = ("--external-weight", "combined", "--external-weight-dir", "w")
    done = compile_digits(gecli, *words, output="a/d.om")
    assert "weight_dir=w" in done.stdout
    first = (tmp_path / "w" / "d_weight_combined").read_bytes()
    compile_digits(gecli, *words, "--precision", "fp16", output="b/d.om")
    second = (tmp_path / "w" / "d_weight_combined").read_bytes()
    assert second.startswith(first) and len(second) > len(first)
    compile_digits(gecli, *words, output="c/d.om")
    assert (tmp_path / "w" / "d_weight_combined").read_bytes() == second
    assert (tmp_path / "c" / "d.om").read_bytes() == (tmp_path / "a" / "d.om").read_bytes()
    meta = json.loads((tmp_path / "w" / "meta.json").read_text())
    assert set(meta["hash_to_weight_file"].values()) == {"w/d_weight_combined"}
    assert meta["hash_to_weight_offset"].keys() == meta["hash_to_weight_file"].keys()
    compile_digits(gecli, output="inside.om")
    assert result(gecli, tmp_path, "a/d.om", "--weight-dir", "w") == result(gecli, tmp_path, "inside.om")


@pytest.mark.parametrize("text", ["", "{", "[]", None])
def test_a_damaged_meta_json_does_not_double_the_combined_file(gecli, tmp_path: Path, text: str | None) -> None:
    words = ("--external-weight", "combined", "--external-weight-dir", "w")
    compile_digits(gecli, *words)
    before, meta = files(tmp_path / "w"), tmp_path / "w/meta.json"
    om = (tmp_path / "d.om").read_bytes()
    meta.unlink()
    if text is not None:
        meta.write_text(text)
    compile_digits(gecli, *words)
    assert files(tmp_path / "w") == before
    assert (tmp_path / "d.om").read_bytes() == om


def test_split_files_of_a_weight_directory_are_recorded(gecli, tmp_path: Path) -> None:
    compile_digits(gecli, "--external-weight", "split", "--external-weight-dir", "w/")
    meta = json.loads((tmp_path / "w" / "meta.json").read_text())
    weights = {name for name in files(tmp_path / "w") if name != "meta.json"}
    assert meta["hash_to_weight_file"] == {name.removeprefix("weight_"): f"w/{name}" for name in weights}
    assert not (tmp_path / "weight").exists()


def test_a_combined_file_beside_an_output_is_always_new(gecli, tmp_path: Path) -> None:
    compile_digits(gecli, "--external-weight", "combined")
    first = files(tmp_path)
    (tmp_path / "weight" / "d_weight_combined").write_bytes(b"x" * 100_000)
    compile_digits(gecli, "--external-weight", "combined")
    assert files(tmp_path) == first


# ------------------------------------------------------------------ run


def test_run_looks_into_the_weight_directories_it_is_given(gecli, tmp_path: Path) -> None:
    compile_digits(gecli, "--external-weight", "split")
    expected = result(gecli, tmp_path, "d.om")
    (tmp_path / "weight").rename(tmp_path / "away")
    done = gecli("run", "d.om")
    assert done.returncode == 6
    assert "error[G4003]" in done.stderr and "--weight-dir" in done.stderr
    assert result(gecli, tmp_path, "d.om", "--weight-dir", "none", "--weight-dir", "away") == expected
    document = json.loads(gecli("run", "d.om", "--weight-dir", "away", "--json").stdout)
    rows = document["models"][0]["external_weights"]
    assert {(row["rule"], row["verified"]) for row in rows} == {("--weight-dir", True)}


def test_run_compares_digests_unless_it_is_told_not_to(gecli, tmp_path: Path) -> None:
    compile_digits(gecli, "--external-weight", "combined")
    path = tmp_path / "weight" / "d_weight_combined"
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    done = gecli("run", "d.om")
    assert done.returncode == 6
    lines = done.stderr.splitlines()
    assert lines[0] == "error[G4004]: weight file weight/d_weight_combined changed since the compile"
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["--> d.om", "why", "do"]
    assert gecli("run", "d.om", "--no-verify-weights").returncode == 0


def test_run_takes_weights_by_id(gecli, tmp_path: Path) -> None:
    compile_digits(gecli, "--external-weight", "combined")
    bad = gecli("run", "d.om", "--value-bins", "[1]")
    assert (bad.returncode, "E10001" in bad.stderr) == (2, True)
    bins = json.dumps({"value_bins": [{"value_bin_id": "a", "value_bin_file": "a.bin"}]})
    assert gecli("run", "d.om", "--value-bins", bins).returncode == 0


# ------------------------------------------------------------------ stops and memory


@MODES
def test_a_killed_compile_leaves_files_that_the_next_one_completes(gecli, tmp_path: Path, mode: str) -> None:
    """SIGKILL while the weights are written: no OM without what it needs, and no harm to the next compile."""
    code = f"""
import os, signal
from gecli.artifacts import weight_writer
real = weight_writer.write_checked
count = 0
def once(*arguments):
    global count
    count += 1
    if count == 3:
        os.kill(os.getpid(), {int(signal.SIGKILL)})
    return real(*arguments)
weight_writer.write_checked = once
import sys
from gecli.__main__ import main
sys.argv[1:] = ["compile", {str(DIGITS)!r}, "-o", "d.om", *{SHAPE!r}, "--external-weight", {mode!r}]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, timeout=60
    )
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "d.om").exists()
    compile_digits(gecli, "--external-weight", mode)
    compile_digits(gecli, "--external-weight", mode, output="clean/d.om")
    left = {name: data for name, data in files(tmp_path).items() if name.startswith("weight/.")}
    assert left == {}
    assert files(tmp_path / "weight") == files(tmp_path / "clean" / "weight")


ANONYMOUS = """
import re, sys
import numpy as np
from pathlib import Path
from gecli.runtime.session import Session
def held():
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) >> 10
before = held()
model = Session().load(sys.argv[1])
model.run({"x": np.ones((1, 2048), np.float32)})
print(held() - before)
"""


@MODES
def test_large_weights_are_mapped_and_never_copied(gecli, tmp_path: Path, mode: str) -> None:
    rng = np.random.default_rng(0)
    nodes: list[dict[str, Any]] = []
    x = {"dtype": "DT_FLOAT", "shape": [1, 2048], "format": "ND"}
    w = {"dtype": "DT_FLOAT", "shape": [2048, 2048], "format": "ND"}
    nodes.append({"id": "x", "type": "Data", "outputs": [x]})
    links = []
    for layer in range(4):  # 64 MiB
        np.save(tmp_path / f"w{layer}.npy", rng.standard_normal((2048, 2048), np.float32))
        nodes.append({"id": f"w{layer}", "type": "Const", "value": {"file": f"w{layer}.npy"}, "outputs": [w]})
        nodes.append({"id": f"y{layer}", "type": "MatMulV2", "attrs": {}, "outputs": [x]})
        links.append({"source": f"y{layer - 1}" if layer else "x", "target": f"y{layer}", "src": 0, "dst": 0})
        links.append({"source": f"w{layer}", "target": f"y{layer}", "src": 0, "dst": 1})
    graph = {"gecli_graph": 1, "directed": True, "multigraph": True, "nodes": nodes, "links": links}
    (tmp_path / "chain.json").write_text(json.dumps({**graph, "graph": {"name": "chain", "outputs": ["y3:0"]}}))
    assert gecli("compile", "chain.json", "-o", "chain.om", "--external-weight", mode).returncode == 0
    done = subprocess.run(
        [sys.executable, "-c", ANONYMOUS, "chain.om"], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 48, "MiB beside the mapped weights"
