"""No option of a command overwrites its model or what another option writes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import Gecli

DIGITS = Path(__file__).resolve().parents[2] / "samples/digits/digits.onnx"


@pytest.mark.parametrize("option", ["--log-file", "--report", "--depfile", "--session-out"])
@pytest.mark.parametrize("target", ["m.onnx", "./sub/../m.onnx", "link.onnx", "hard.onnx", "o.om", "o.rdcpkt"])
def test_a_file_that_the_command_needs_is_not_overwritten(
    gecli: Gecli, tmp_path: Path, option: str, target: str
) -> None:
    shutil.copy(DIGITS, tmp_path / "m.onnx")
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.onnx").symlink_to("m.onnx")
    os.link(tmp_path / "m.onnx", tmp_path / "hard.onnx")
    done = gecli("compile", "m.onnx", "-o", "o.om", option, target)
    assert done.returncode == 2
    assert f"{option} would overwrite" in done.stderr
    assert all(part in done.stderr for part in ("-->", "why:", "do:"))
    assert (tmp_path / "m.onnx").read_bytes() == DIGITS.read_bytes()
    assert not (tmp_path / "o.om").exists()


def test_two_options_do_not_write_one_file(gecli: Gecli) -> None:
    done = gecli("compile", str(DIGITS), "-o", "o.om", "--report", "r", "--depfile", "r")
    assert done.returncode == 2
    assert "--depfile would overwrite --report r" in done.stderr


def test_a_run_does_not_log_into_its_model(gecli: Gecli, tmp_path: Path) -> None:
    assert gecli("compile", str(DIGITS), "-o", "o.om", "--input-shape", "image:1,1,8,8").returncode == 0
    before = (tmp_path / "o.om").read_bytes()
    done = gecli("run", "o.om", "--log-file", "o.om")
    assert done.returncode == 2, done.stderr
    assert (tmp_path / "o.om").read_bytes() == before


def test_a_device_may_be_named_by_several_options(gecli: Gecli) -> None:
    done = gecli("compile", str(DIGITS), "-o", "o.om", "--report", "/dev/null", "--log-file", "/dev/null")
    assert done.returncode == 0, done.stderr


def test_an_output_path_longer_than_the_system_allows_is_e10021(gecli: Gecli) -> None:
    done = gecli("compile", str(DIGITS), "-o", "x/" * 3000 + "o")
    assert done.returncode == 2
    assert "error[E10021]" in done.stderr


def test_a_variable_of_unknown_size_is_named(gecli: Gecli, tmp_path: Path) -> None:
    (tmp_path / "g.json").write_text(
        '{"nodes": [{"id": "w", "type": "Variable", "outputs": [{"dtype": "DT_FLOAT", "shape": [-1, 3]}]},'
        ' {"id": "r", "type": "Relu"}], "links": [{"source": "w", "target": "r"}]}'
    )
    done = gecli("compile", "g.json", "-o", "o.om")
    assert done.returncode == 4
    assert "error[G2014]" in done.stderr
    assert "--> node w (Variable)" in done.stderr
