"""What messages on variables advise is true and can be followed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest

Gecli = Callable[..., "CompletedProcess[str]"]


def desc(shape: list[int]) -> dict[str, Any]:
    return {"dtype": "DT_FLOAT", "shape": shape, "format": "ND"}


def graph(directory: Path, name: str, shape: list[int], *, cast: bool = False, variable: str = "V") -> str:
    node = {"id": "o", "type": "Cast", "attrs": {"dst_type": 1}} if cast else {"id": "o", "type": "Relu"}
    start = {"_init_value": {"tensor": {"fill": 1}}}
    document = {
        "gecli_graph": 1, "directed": True, "multigraph": True,
        "graph": {"name": name, "inputs": [], "outputs": ["o:0"]},
        "nodes": [{"id": variable, "type": "Variable", "outputs": [desc(shape)], "attrs": start}, node],
        "links": [{"source": variable, "target": "o", "src_out": 0, "dst_in": 0}],
    }  # fmt: skip
    (directory / f"{name}.json").write_text(json.dumps(document))
    return f"{name}.json"


@pytest.mark.parametrize("shape", [[5, 3, 3, 3], [2, 3, 2, 2]], ids=str)
def test_a_variable_of_two_shapes_is_not_cured_by_no_variable_acc(
    shape: list[int], gecli: Gecli, tmp_path: Path
) -> None:
    models = [graph(tmp_path, "a", shape, cast=True), graph(tmp_path, "b", [2, 2], cast=True)]
    found = gecli("compile", *models, "-o", "out/")
    assert "error[G2016]" in found.stderr and "--no-variable-acc" not in found.stderr
    page = gecli("explain", "G2016").stdout
    assert "G2016" in page and "--no-variable-acc" not in page


def test_parallel_compile_says_what_happens_without_either(gecli: Gecli, tmp_path: Path) -> None:
    found = gecli("compile", graph(tmp_path, "a", [2]), "--parallel-compile", "--variable-acc", "-o", "a.om")
    assert found.returncode == 2 and "without --parallel-compile, variables may change it" in found.stderr


def test_a_variable_whose_name_holds_an_equals_sign_is_set_and_shown(gecli: Gecli, tmp_path: Path) -> None:
    assert gecli("compile", graph(tmp_path, "a", [2], variable="a=b"), "-o", "a.om").returncode == 0
    np.save(tmp_path / "v=1.npy", np.array([3, 4], np.float32))
    (tmp_path / "d").mkdir()
    found = gecli("run", "a.om", "--set-var", "a=b=v=1.npy", "--get-var", "a=b", "--get-var", "a=b=d/out.npy")
    assert found.returncode == 0, found.stderr
    assert "a=b " in found.stdout and "[3 4]" in found.stdout
    assert np.load(tmp_path / "d" / "out.npy").tolist() == [3, 4]


@pytest.mark.parametrize(
    ("option", "value", "cure"),
    [("--get-var", "a", "--get-var a=b"), ("--set-var", "a=b", "--set-var a=b=FILE.npy")],
)
def test_a_name_without_its_equals_sign_is_told(
    option: str, value: str, cure: str, gecli: Gecli, tmp_path: Path
) -> None:
    assert gecli("compile", graph(tmp_path, "a", [2], variable="a=b"), "-o", "a.om").returncode == 0
    found = gecli("run", "a.om", option, value)
    assert found.returncode == 2 and cure in found.stderr


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"links": [{"source": "o", "target": "o", "control": True}]}, "#/links/0"),
        ({"links": [{"source": "o", "target": "V", "control": True}, {"source": "V", "target": "o"}]}, "#/links"),
        ({"links": 3}, "#/links"),
        ({"graph": {"name": "a", "outputs": ["none:0"]}}, "#/graph/outputs/0"),
    ],
    ids=["self", "cycle", "kind", "name"],
)
def test_faults_of_a_json_graph_are_cured_in_the_json(
    change: dict[str, Any], place: str, gecli: Gecli, tmp_path: Path
) -> None:
    path = tmp_path / graph(tmp_path, "a", [2])
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    found = gecli("compile", path.name, "-o", "a.om")
    assert found.returncode == 3 and f"a.json{place}" in found.stderr
    assert "salvage" not in found.stderr and "Copy or compile" not in found.stderr


def test_quotes_of_a_name_are_advised_so_that_they_arrive(gecli: Gecli, tmp_path: Path) -> None:
    assert gecli("compile", graph(tmp_path, "a", [2], variable='"q"'), "-o", "a.om").returncode == 0
    found = gecli("run", "a.om", "--get-var", '"q"')
    cure = next(line for line in found.stderr.splitlines() if "do:" in line and "--get-var" in line)
    assert gecli("run", "a.om", *shlex.split(cure.partition("do:")[2])).returncode == 0


def test_jobs_of_one_model_are_told_to_have_no_effect(gecli: Gecli, tmp_path: Path) -> None:
    found = gecli("compile", graph(tmp_path, "a", [2]), "-j", "3", "-o", "a.om")
    assert "--jobs had no effect: there is one model" in found.stdout + found.stderr
