"""The command in surroundings that work against it: closed streams, full disks, names made to deceive."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = REPOSITORY / "samples/digits/digits.onnx"


@pytest.fixture(scope="module")
def om(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("om") / "digits.om"
    done = shell(f'gecli compile "{MODEL}" -o "{path}" --input-shape image:4,1,8,8', path.parent)
    assert done.returncode == 0, done.stderr
    return path


def shell(line: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """A shell line in which `gecli` is the command of this checkout."""
    script = f'gecli() {{ "{sys.executable}" -m gecli "$@"; }}\n{line}'
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "HOME": str(directory)}
    return subprocess.run(
        ["bash", "-c", script], cwd=directory, env=environment, capture_output=True, text=True, timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL),
    )  # fmt: skip


def one_error(done: subprocess.CompletedProcess[str], status: int) -> str:
    """Exactly one message of four parts, no traceback, this exit status."""
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    for part in (r"error\[", "  --> ", "  why: ", "  do:  "):
        assert len(re.findall(f"^{part}", done.stderr, re.MULTILINE)) == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_never_gets_into_an_output(closed: str, om: Path, tmp_path: Path) -> None:
    done = shell(f'gecli run "{om}" -o out --fill ones {closed}', tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert np.load(tmp_path / "out/probabilities.npy").shape == (4, 10)


def test_a_closed_standard_input_is_no_npz(om: Path, tmp_path: Path) -> None:
    assert "standard input is not an npz" in one_error(shell(f'gecli run "{om}" -i - <&-', tmp_path), 3)
    one_error(shell("gecli inspect-om - <&-", tmp_path), 3)


@pytest.mark.parametrize("kind", ["missing", "empty", "pipe", "directory", "/dev/zero", "/dev/null", "loop", "x" * 300])
@pytest.mark.parametrize("command", ["run {}", "inspect-om {}", "inspect-om {} --salvage", "run OM -i image={}"])
def test_a_file_that_is_none_has_one_message(command: str, kind: str, om: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "directory").mkdir()
    words = command.format(kind).replace("OM", f'"{om}"')
    one_error(shell(f"gecli {words}", tmp_path), 6 if kind == "empty" and "-i" in words else 3)


def test_a_name_with_a_newline_cannot_forge_a_message(tmp_path: Path) -> None:
    text = one_error(shell("gecli run $'a\\nerror[E1]: all is lost\\x1b[31m'", tmp_path), 3)
    assert "\x1b" not in text


def test_a_log_file_on_a_full_disk_is_one_error(om: Path, tmp_path: Path) -> None:
    one_error(shell(f'gecli run "{om}" --log-file /dev/full', tmp_path), 5)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("--duration inf", 2),
        ("--fill const:abc", 2),
        ("--shape image:1000000000000,1,8,8", 6),
        ("-i x.npy --transpose image:1,0", 2),
        ("-i image=empty/", 3),
        ("--loop 0", 2),
        ("--get-var nope", 2),
    ],
)
def test_values_that_cannot_be_are_refused(words: str, status: int, om: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 1, 8, 8), np.float32))
    (tmp_path / "empty").mkdir()
    one_error(shell(f'gecli run "{om}" {words}', tmp_path), status)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("gecli run missing.om 2> /dev/full", 3),
        ("gecli run missing.om > /dev/full 2> /dev/full", 3),
        ('gecli run "$OM" > /dev/full', 5),
        ('gecli run "$OM" --json > /dev/full', 5),
        ('gecli inspect-om "$OM" > /dev/full', 5),
        ('gecli run "$OM" -o - > /dev/full', 5),
    ],
)
def test_a_full_screen_keeps_the_status(line: str, status: int, om: Path, tmp_path: Path) -> None:
    done = shell(f'OM="{om}"; {line}', tmp_path)
    assert (done.returncode, "Traceback" in done.stderr, "Exception ignored" in done.stderr) == (status, False, False)


def test_an_empty_standard_input_is_blamed_on_what_should_have_filled_it() -> None:
    words = [sys.executable, "-m", "gecli", "compile", "-", "-o", "x.om"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3 and "error[G1002]: standard input is empty" in done.stderr
    assert "download" not in done.stderr


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("inspect-om OM", 0),
        ("run OM --fill ones", 0),
        ("compile MODEL -o DIR/new --input-shape image:1,1,8,8 --cache-dir DIR/cache --cache-create", 0),
        ("cache ls --cache-dir DIR", 0),
        ("inspect-om OM --extract all --to DIR/tensors", 0),
        ("inspect-om OM --extract all --to tensors", 3),
        ("inspect-om x.om", 3),
    ],
)
def test_a_working_directory_that_is_gone_matters_for_relative_names_only(
    words: str, status: int, om: Path, tmp_path: Path
) -> None:
    line = words.replace("OM", f'"{om}"', 1).replace("MODEL", f'"{MODEL}"').replace("DIR", f'"{tmp_path}"')
    done = shell(f"mkdir gone && cd gone && rmdir ../gone && gecli {line}", tmp_path)
    assert (done.returncode, "G9999" in done.stderr) == (status, False), done.stderr


def test_a_killed_reader_of_standard_input_leaves_nothing(om: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "gecli", "inspect-om", "-"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    assert process.stdin is not None
    process.stdin.write(bytes(8 << 20))  # more than a pipe holds: the copy has begun when this returns
    process.kill()
    process.wait()
    process.stdin.detach()
    assert not list(tmp_path.iterdir())
