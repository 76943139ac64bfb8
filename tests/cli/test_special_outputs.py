"""Outputs that are no ordinary file: pipes, devices, standard output, empty names and names that are not UTF-8."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gecli.artifacts.om_file import read_om
from gecli.cli import output_places
from gecli.cli.app import run
from gecli.compiler.job import jobs_of
from tests.conftest import REPOSITORY, Gecli

DIGITS = REPOSITORY / "samples/digits/digits.onnx"
STATIC = ("--input-shape", "image:1,1,8,8", "-q")
VARIABLE = (
    '{"nodes": [{"id": "v", "type": "Variable", "outputs": [{"dtype": "DT_FLOAT", "shape": [2]}]},'
    ' {"id": "r", "type": "Relu"}], "links": [{"source": "v", "target": "r"}]}'
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(DIGITS, "digits.onnx")
    Path("v.json").write_text(VARIABLE)
    return tmp_path


def received(pipe: str, *words: str) -> tuple[int, bytes]:
    """The exit status of a command and what it wrote into a new pipe."""
    os.mkfifo(pipe)
    source = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writers = [os.open(pipe, os.O_WRONLY)]  # no end before the command had its turn
    os.set_blocking(source, True)

    def content() -> bytes:
        with open(source, "rb") as stream:
            return stream.read()

    with ThreadPoolExecutor(1) as pool:
        got = pool.submit(content)
        try:
            status = run(list(words))
        finally:
            for handle in [*writers, *output_places._kept]:
                os.close(handle)
            output_places._kept.clear()
        found = got.result(timeout=30)
    os.unlink(pipe)
    return status, found


@pytest.mark.parametrize("pipe", ["digits.om", "p"])
@pytest.mark.parametrize("cache", [(), ("--cache-dir", "c", "--cache-create")])
def test_a_pipe_receives_the_bytes_of_the_file(place: Path, pipe: str, cache: tuple[str, ...]) -> None:
    for _ in range(2):  # with a cache, the second one is a hit
        status, got = received(pipe, "compile", "digits.onnx", "-o", pipe, *STATIC, *cache)
        assert status == 0
        Path("got.om").write_bytes(got)
        assert read_om("got.om").header.name == "digits"
        assert run(["run", "got.om", "-q"]) == 0
    assert not list(place.glob("*.rdcpkt")) and not Path("p.om").exists()
    assert run(["compile", "digits.onnx", "-o", "digits.om", *STATIC]) == 0
    assert Path("digits.om").stat().st_size == len(got)


def test_the_null_device_takes_om_and_packet_and_stays(place: Path, gecli: Gecli) -> None:
    before = os.stat("/dev/null")
    for model in ("digits.onnx", "v.json"):
        for _ in range(2):
            words = ["compile", model, "-o", "/dev/null", *STATIC[2:], "--cache-dir", "c", "--cache-create"]
            done = gecli(*words, *(STATIC[:2] if model == "digits.onnx" else ()))
            assert done.returncode == 0, done.stderr
    after = os.stat("/dev/null")
    assert (before.st_mode, before.st_rdev, before.st_ino) == (after.st_mode, after.st_rdev, after.st_ino)
    assert not os.path.exists("/dev/null.om") and not os.path.exists("/dev/null.rdcpkt")


@pytest.mark.parametrize("output", ["-", "/dev/stdout", "/dev/fd/1"])
def test_every_name_of_standard_output_is_standard_output(place: Path, output: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "gecli", "compile", "digits.onnx", "-o", output, *STATIC]
    with open("got.om", "wb") as target:
        done = subprocess.run(command, stdout=target, stderr=subprocess.PIPE, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    assert read_om("got.om").header.name == "digits"
    assert not os.path.exists("/dev/stdout.om")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("compile v.json -o p", "error[E10001]: -o p cannot be used for a model with variables"),
        ("compile digits.onnx -o p --emit json --input-shape image:1,1,8,8", "error[E10047]: -o p excludes --emit"),
    ],
)
def test_what_needs_files_beside_the_om_is_refused_for_a_pipe(
    place: Path, capsys: pytest.CaptureFixture[str], words: str, code: str
) -> None:
    status, got = received("p", *words.split())
    assert (status, got) == (2, b"")
    assert code in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "compile digits.onnx -o x --report=",
        "compile digits.onnx -o x --log-file=",
        "run a.om --output=",
        "run a.om --save-inputs=",
        "run a.om --dump-dir=",
        "inspect-om a.om --output=",
        "inspect-om a.om --data-file=",
        "cache ls --cache-dir . --log-file=",
    ],
)
def test_an_empty_name_is_no_output(place: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    assert run(words.split()) == 2
    option = words.split()[-1].removesuffix("=")
    assert f'error[E10001]: value "" for {option} is invalid' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("raw", "name"),
    [(b"z\xe9.om", "z\\xe9"), ("é.om".encode(), "é"), (b"plain.om", "plain"), (b"\xff\xe9", "\\xff\\xe9")],
)
def test_a_name_that_is_not_utf_8_becomes_a_model_name_with_escapes(place: Path, raw: bytes, name: str) -> None:
    [job] = jobs_of(["digits.onnx"], os.fsdecode(raw))
    assert job.stem == name
    words = ["compile", "digits.onnx", "-o", os.fsdecode(raw), *STATIC, "--cache-dir", "c", "--cache-create"]
    path = os.fsdecode(raw.removesuffix(b".om") + b".om")
    for _ in range(3):
        assert run([*words, "--report", "r.json"]) == 0
        assert run(words) == 0
        assert read_om(path).header.name == name
        os.unlink(path)


def test_the_name_is_kept_where_the_system_knows_ascii_only(place: Path) -> None:
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(REPOSITORY)}
    command: list[str | bytes] = [
        sys.executable,
        "-m",
        "gecli",
        "compile",
        "digits.onnx",
        "-o",
        "é.om".encode(),
        *STATIC,
    ]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert read_om("é.om").header.name == "é"
