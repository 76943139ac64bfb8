"""`gecli inspect-om` as a process: imports, pipes, other kinds of files, standard input."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
REAL = REPOSITORY / "tests" / "data" / "om" / "real"
VAE = REAL / "ascend310-2022-vae.om"
Gecli = Callable[..., "subprocess.CompletedProcess[str]"]
PROBE = """
import sys
from gecli.__main__ import main
status = main()
print(*sorted(sys.modules), file=sys.stderr)
sys.exit(status)
"""
HEAVY = ("numpy", "networkx", "rich", "ml_dtypes", "filelock")
OWN_PACKAGES = {
    "__main__", "artifacts", "cli", "error_catalog", "errors", "ir", "json_text", "loading", "options", "pb", "records",
    "report", "variables", "version", "wire",
}  # fmt: skip


@pytest.mark.parametrize(
    "view", [["--summary"], ["--info"], ["--io"], ["--partitions"], ["--hex", "header"], ["--nodes"], ["--vars"]],
    ids=lambda view: view[0],
)  # fmt: skip
def test_a_view_without_numbers_loads_no_number_library(view: list[str]) -> None:
    command = [sys.executable, "-c", PROBE, "inspect-om", str(VAE), *view]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    loaded = set(done.stderr.split())
    assert done.returncode == 0
    assert [name for name in HEAVY if name in loaded] == []
    loaded -= {"gecli.runtime", "gecli.runtime.interface"}  # how a run names the outputs of a model
    packages = {name.split(".")[1] for name in loaded if name.startswith("gecli.")}
    assert packages <= OWN_PACKAGES


def test_a_closed_pipe_ends_the_command_without_a_word() -> None:
    command = [sys.executable, "-m", "gecli", "inspect-om", str(VAE), "--hex", "file"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        complaint = process.stderr.read()
        status = process.wait(timeout=60)
    assert (complaint, status in (0, 141)) == (b"", True)


def test_standard_input_is_a_file_named_by_its_dash() -> None:
    command = [sys.executable, "-m", "gecli", "inspect-om", "-", "--summary"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, input=VAE.read_bytes(), capture_output=True, env=environment, timeout=60)
    assert done.returncode == 0
    assert done.stdout.startswith(b"file       -  604.5 KiB (618993 bytes)  om\n")
    bad = subprocess.run(command, input=b"IMOD", capture_output=True, env=environment, timeout=60)
    assert (bad.returncode, b"-: truncated" in bad.stderr, b"gecli-stdin" in bad.stderr) == (3, True, False)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS"),
        (b"PICO" + bytes(60), "SVP"),
        (b"PK\x03\x04" + bytes(60), "ZIP"),
        (gzip.compress(b"x"), "gzip"),
        (b"\x7fELF" + bytes(60), "ELF"),
        (b"\x89HDF\r\n\x1a\n" + bytes(60), "HDF5"),
        (b"\x1c\0\0\0TFL3" + bytes(60), "TensorFlow Lite"),
        (b"\x80\x04\x95" + bytes(60), "pickle"),
        (b"<!DOCTYPE html><html></html>", "HTML"),
        (b'{"a": 1}', "JSON"),
        (b"just some words", "not an OM file"),
    ],
    ids=["empty", "lfs", "svp", "zip", "gzip", "elf", "hdf5", "tflite", "pickle", "html", "json", "text"],
)
def test_a_foreign_file_is_called_by_its_name(data: bytes, words: str, tmp_path: Path, gecli: Gecli) -> None:
    (tmp_path / "model.om").write_bytes(data)
    done = gecli("inspect-om", "model.om")
    assert (done.returncode, done.stdout) == (3, "")
    assert words.lower() in done.stderr.lower()
    assert "Traceback" not in done.stderr


def test_a_directory_and_a_missing_file_are_called_by_their_names(tmp_path: Path, gecli: Gecli) -> None:
    assert "directory" in gecli("inspect-om", str(tmp_path)).stderr
    missing = gecli("inspect-om", "missing.om")
    assert (missing.returncode, "E13001" in missing.stderr) == (3, True)


def test_an_onnx_model_is_sent_to_compile(gecli: Gecli) -> None:
    done = gecli("inspect-om", str(REPOSITORY / "samples" / "digits" / "digits.onnx"))
    assert done.returncode == 3
    assert "ONNX model" in done.stderr and "gecli compile" in done.stderr


def test_a_failure_with_json_is_a_document_too(tmp_path: Path, gecli: Gecli) -> None:
    (tmp_path / "model.om").write_bytes(b"IMOD")
    done = gecli("inspect-om", "model.om", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["errors"][0]["kind"]) == (3, "truncated")


def test_a_large_file_is_summarised_without_reading_its_weights(tmp_path: Path) -> None:
    import struct

    size = 400 << 20
    model = b"\x0a\x01m"
    table = struct.pack("<II", 2, 0) + struct.pack("<IIQQIIQQ", 0, 0, 0, len(model), 1, 0, len(model), size)
    header = bytearray(256)
    struct.pack_into("<4sII", header, 0, b"IMOD", 256, 0x20000000)
    struct.pack_into("<II", header, 152, 2, 1)
    struct.pack_into("<Q", header, 184, len(table) + len(model) + size)
    path = tmp_path / "large.om"
    with path.open("wb") as stream:
        stream.write(bytes(header) + table + model)
        stream.truncate(256 + len(table) + len(model) + size)
    probe = (
        "import re, sys; from gecli.__main__ import main; status = main();"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1], file=sys.stderr); sys.exit(status)"
    )
    for view in ("--summary", "--partitions"):
        command = [sys.executable, "-c", probe, "inspect-om", str(path), view]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert int(done.stderr.split()[-1]) < 64 << 10  # KiB
