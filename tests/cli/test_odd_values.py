"""Numbers and ranges that no option takes, and a screen that takes nothing: one message each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gecli.cli.app import run
from tests.conftest import REPOSITORY

DIGITS = REPOSITORY / "samples/digits/digits.onnx"
MANY = "9" * 5000


@pytest.fixture(scope="module")
def om(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("odd") / "a.om"
    assert run(["compile", str(DIGITS), "-o", str(path), "--input-shape", "image:1,1,8,8", "-q"]) == 0
    return str(path)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--val-range=-1e400,1e400"], "E10001"),
        (["--val-range=-1e308,1e308"], "E10001"),
        (["--val-range=nan,1"], "E10001"),
        (["--val-range=image:[0,inf]"], "E10001"),
        (["--val-range=5,1"], "E10001"),
        (["--val-range=0,1e39"], "E10001"),
        (["--compare", "EXPECTED", "--rtol", "nan"], "E10001"),
        (["--compare", "EXPECTED", "--atol", "probabilities:-1"], "E10001"),
        ([f"--loop={MANY}"], "E10013"),
        ([f"--loop=-{MANY}"], "E10013"),
        ([f"--mem-limit={MANY}"], "E10013"),
        ([f"--verbose={MANY}"], "E10003"),
        (["--verbose=\u00b2"], "E10003"),
        ([f"--shape=image:{MANY},1"], "E10013"),
        ([f"--shape=#{MANY}:1,1,8,8"], "E10016"),
        ([f"-i#{MANY}=x.npy"], "E10016"),
    ],
)
def test_a_number_that_cannot_be_used_is_one_message(
    om: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: str
) -> None:
    expected = str(REPOSITORY / "samples/digits/expected.npz")
    assert run(["run", om, "-q", *(expected if word == "EXPECTED" else word for word in words)]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"error[{code}]: ")
    assert "Warning" not in shown and "Traceback" not in shown


@pytest.mark.parametrize("words", [["--val-range=3,3"], ["--val-range=image:[-1e30,1e30]"], [f"--loop={'0' * 5000}1"]])
def test_the_edges_of_what_is_taken(om: str, words: list[str]) -> None:
    assert run(["run", om, "-q", *words]) == 0


@pytest.mark.parametrize(
    ("words", "environment", "code"),
    [
        (["--dim", f"N={MANY}"], {}, "E10013"),
        (["--input-shape", f"image:{MANY},1,8,8"], {}, "E10013"),
        (["--input-shape", f"#{MANY}:1,1,8,8"], {}, "E10016"),
        (["--out-nodes", f"probabilities:{MANY}"], {}, "E10016"),
        ([], {"SOURCE_DATE_EPOCH": MANY}, "E13024"),
        ([], {"SOURCE_DATE_EPOCH": "\u0663"}, "E13024"),
    ],
)
def test_a_compile_with_such_a_number_is_one_message(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    environment: dict[str, str],
    code: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    shapes = [] if "--input-shape" in words else ["--input-shape", "image:1,1,8,8"]
    assert run(["compile", str(DIGITS), "-o", str(tmp_path / "o"), *shapes, *words]) == 2
    assert f"error[{code}]: " in capsys.readouterr().err


def test_a_directory_of_inputs_may_have_names_with_raised_digits(om: str, tmp_path: Path) -> None:
    import numpy as np

    for name in ("a\u00b2.npy", "a1.npy", "\u00b2.npy"):
        np.save(tmp_path / name, np.zeros((1, 1, 8, 8), np.float32))
    assert run(["run", om, "-q", "-i", f"image={tmp_path}"]) == 0


@pytest.mark.parametrize("words", [["--version"], ["--version", "--json"], ["-q", "--version"], ["--help"]])
def test_a_full_screen_is_exit_5_with_one_message(words: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gecli", *words], stdout=full, stderr=subprocess.PIPE, env=environment, timeout=60
        )
    assert done.returncode == 5
    assert done.stderr.decode().count("error[G6002]") == 1
    assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr


@pytest.mark.parametrize("names", [[], ["k.lock"], [".gecli/inflight/x", "k.lock"]])
def test_a_cache_that_a_compile_is_about_to_make_is_empty_for_gc(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert run(["cache", "gc", "--cache-dir", str(tmp_path), "--all", "-q"]) == 0


def test_a_directory_of_other_files_is_no_cache_and_nobody_is_told_to_remove_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "letter.txt").touch()
    assert run(["cache", "gc", "--cache-dir", str(tmp_path), "--all"]) != 0
    shown = capsys.readouterr().err
    assert "is not a compile cache" in shown and "rm" not in shown.split("do:")[1]
    assert (tmp_path / "letter.txt").exists()
