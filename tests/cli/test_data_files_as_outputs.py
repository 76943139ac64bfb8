"""No output of `gecli compile` overwrites a file that a model names: external data, the arrays of a JSON graph."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gecli.loading.named_files import files_named_in
from tests.cli.bad_files import check_document, check_message, contents, gecli_in
from tests.conftest import REPOSITORY

TRAIN = REPOSITORY / "samples/train"


def save_model(path: Path, location: str, operator: str = "Add") -> None:
    """x + w, where w lies in the file `location` beside the model."""
    weight = np.arange(600, dtype=np.float32)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [600])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [600])
    graph = helper.make_graph([helper.make_node(operator, ["x", "w"], ["y"])], "g", [x], [y],
                              [numpy_helper.from_array(weight, "w")])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (path.parent / location).parent.mkdir(parents=True, exist_ok=True)
    onnx.save_model(model, path, save_as_external_data=True, location=location, size_threshold=0)


def refused(work: Path, line: str, *parts: str) -> None:
    before = contents(work)
    text = check_message(gecli_in(work, *line.split()), 2)
    assert contents(work) == before
    for part in parts:
        assert f"error[E10047]: {part}\n" in text


# Where the data lie, the words behind `compile m.onnx`, and what is said.
CASES = {
    "om": ("w.om", "-o w.om", "--output would overwrite the input w.om"),
    "rdcpkt": ("o.rdcpkt", "-o o", "--output would overwrite the input o.rdcpkt"),
    "report": ("w", "-o o --report w", "--report would overwrite the input w"),
    "depfile": ("w", "-o o --depfile ./w", "--depfile would overwrite the input w"),
    "session": ("w", "-o o --session-out w", "--session-out would overwrite the input w"),
    "log": ("w", "-o o --log-file w", "--log-file would overwrite the input w"),
    "emit": ("o.json", "-o o --emit json", "--emit would overwrite the input o.json"),
    "stop": ("o.txt", "-o o --stop-after parse --emit readable", "--emit would overwrite the input o.txt"),
    "check report": ("w", "--check --check-report w", "--check-report would overwrite the input w"),
    "directory": ("d/m.om", "-o d/", "--output would overwrite the input d/m.om"),
    "symbolic link": ("w", "-o o --report soft", "--report would overwrite the input w"),
    "hard link": ("w", "-o o --depfile hard", "--depfile would overwrite the input w"),
    "hard link to a log": ("w", "-o o --log-file hard", "--log-file would overwrite the input w"),
    "cache": ("w.om", "-o w.om --cache-dir c", "--output would overwrite the input w.om"),
}


@pytest.mark.parametrize("case", CASES)
def test_an_output_that_is_external_data_is_refused(case: str, tmp_path: Path) -> None:
    location, words, said = CASES[case]
    save_model(tmp_path / "m.onnx", location)
    (tmp_path / "c").mkdir()
    (tmp_path / "soft").symlink_to(location)
    os.link(tmp_path / location, tmp_path / "hard")
    refused(tmp_path, f"compile m.onnx {words}", said)


@pytest.mark.parametrize("mode", ["", "--no-session", "--no-session -j 2", "--keep-going", "--no-session --keep-going"])
def test_the_output_of_one_model_is_not_the_data_of_another(mode: str, tmp_path: Path) -> None:
    save_model(tmp_path / "m.onnx", "w")
    save_model(tmp_path / "n.onnx", "d/m.om")
    refused(tmp_path, f"compile m.onnx n.onnx -o d/ {mode}", "--output would overwrite the input d/m.om")


def test_all_outputs_that_are_data_are_named_in_a_document_too(tmp_path: Path) -> None:
    save_model(tmp_path / "m.onnx", "w.om")
    os.link(tmp_path / "w.om", tmp_path / "w.json")
    words = ("compile", "m.onnx", "-o", "w.om", "--emit", "json")
    text = check_message(gecli_in(tmp_path, *words), 2)
    check_document(gecli_in(tmp_path, *words, "--json"), 2, text)


@pytest.mark.parametrize("option", ["--report", "--log-file"])
def test_what_is_written_of_a_model_that_cannot_be_loaded_spares_its_data(option: str, tmp_path: Path) -> None:
    save_model(tmp_path / "m.onnx", "w", operator="Nonsense")
    refused(tmp_path, f"compile m.onnx -o o {option} w", f"{option} would overwrite the input w")
    assert gecli_in(tmp_path, "compile", "m.onnx", "-o", "o", option, "r").returncode == 3
    assert (tmp_path / "r").stat().st_size > 0


@pytest.mark.parametrize("option", ["--report", "--log-file", "--depfile"])
def test_the_arrays_of_a_json_graph_are_spared_too(option: str, tmp_path: Path) -> None:
    for name in ("conv_train.json", "w2.npy", "w3.npy"):
        shutil.copy(TRAIN / name, tmp_path)
    line = f"compile conv_train.json --train -o o {option} w2.npy"
    refused(tmp_path, line, f"{option} would overwrite the input w2.npy")


@pytest.mark.parametrize("means", [os.link, shutil.copy])
def test_a_hit_of_the_cache_spares_a_file_that_became_data(means: Callable[..., object], tmp_path: Path) -> None:
    save_model(tmp_path / "m.onnx", "w")
    words = ["compile", "m.onnx", "-o", "d/o.om", "--cache-dir", "c", "--cache-create", "--auto-graph-key"]
    for _ in range(3):  # the last one by the shortest way
        assert gecli_in(tmp_path, *words).returncode == 0
    made = (tmp_path / "d/o.om").read_bytes()
    (tmp_path / "d/o.om").unlink()
    means(tmp_path / "w", tmp_path / "d/o.om")
    if means is os.link:
        before = contents(tmp_path / "d"), (tmp_path / "w").read_bytes()
        assert "the input w" in check_message(gecli_in(tmp_path, *words), 2)
        assert (contents(tmp_path / "d"), (tmp_path / "w").read_bytes()) == before
    else:
        assert gecli_in(tmp_path, *words).returncode == 0
        assert (tmp_path / "d/o.om").read_bytes() == made


def test_an_output_beside_the_data_is_none_of_them(tmp_path: Path) -> None:
    save_model(tmp_path / "m.onnx", "data/w")
    for name in ("r", "l"):
        (tmp_path / name).write_text("old")
    for _ in range(2):
        done = gecli_in(tmp_path, "compile", "m.onnx", "-o", "o", "--report", "r", "--log-file", "l")
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["w", "deep/er/w", "n" * 200, "gewichte ü"])
def test_the_files_that_a_model_names_are_found_without_parsing_it(name: str, tmp_path: Path) -> None:
    save_model(tmp_path / "m.onnx", name)
    assert list(files_named_in(str(tmp_path / "m.onnx"), str(tmp_path))) == [str(tmp_path / name)]
    (tmp_path / name).unlink()
    assert list(files_named_in(str(tmp_path / "m.onnx"), str(tmp_path))) == []


@pytest.mark.parametrize("data", [b"", b"\x0a\x08location\x12", b"\x0a\x08location\x12\xff", b"{", b'{"file": "\\x"}'])
def test_a_model_without_sense_names_no_file(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(data)
    assert list(files_named_in(str(tmp_path / "m"), str(tmp_path))) == []
    assert list(files_named_in(str(tmp_path / "none"), str(tmp_path))) == []
