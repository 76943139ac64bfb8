"""The command in this process, own OM files, and the real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
REAL = REPOSITORY / "tests" / "data" / "om" / "real"


@dataclass(frozen=True)
class Shown:
    status: int
    out: str
    err: str


Inspect = Callable[..., Shown]


@pytest.fixture
def inspect(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Inspect:
    """`gecli inspect-om ARGUMENTS` without a new process; relative paths count from the test's directory."""
    from gecli.cli import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*arguments: str | Path) -> Shown:
        capsys.readouterr()
        status = app.run(["inspect-om", *map(str, arguments)])
        shown = capsys.readouterr()
        return Shown(status, shown.out, shown.err)

    return run


def compiled(directory: Path, *arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "HOME": str(directory)}
    command = [sys.executable, "-m", "gecli", "compile", *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def digits_om(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits sample in plain formats, so that its layout does not depend on format selection."""
    directory = tmp_path_factory.mktemp("digits")
    model = REPOSITORY / "samples" / "digits" / "digits.onnx"
    compiled(directory, str(model), "-o", "digits", "--input-shape", "image:1,1,8,8", "--format-policy", "origin")
    return directory / "digits.om"


@pytest.fixture(scope="session")
def conv_train_om(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The convolution training sample with device formats."""
    directory = tmp_path_factory.mktemp("conv_train")
    compiled(directory, str(REPOSITORY / "samples" / "train" / "conv_train.json"), "-o", "conv_train")
    return directory / "conv_train.om"
