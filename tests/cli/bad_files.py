"""Bad files and bad surroundings for tests of the command line, and what every refusal has to look like."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY

Process = subprocess.CompletedProcess
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
PR_CAPBSET_READ, PR_CAPBSET_DROP = 23, 24
FOUR_PARTS = (r"error\[[EG]\d+\]: \S", r"  --> \S", r"  why: \S", r"  do:  \S")


def as_ordinary_user() -> None:
    """In a child before exec: file permissions hold for root too, which keeps its user but loses two capabilities."""
    if os.geteuid() != 0:
        return
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        if prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1 and prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "the capability could not be dropped")


def with_largest_file(size_bytes: int) -> Callable[[], None]:
    """For a child before exec: a write beyond this size fails, as on a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))


def with_memory(size_bytes: int) -> Callable[[], None]:
    """For a child before exec: it has no more address space than this."""
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (size_bytes, size_bytes))


def gecli_in(
    directory: Path,
    *words: str,
    prepare: Callable[[], None] | None = None,
    program: tuple[str, ...] = ("-m", "gecli"),
    timeout: float = 30,
    **environ: str,
) -> Process[str]:
    """The real command as a process without a shell; `prepare` runs in the child."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONDONTWRITEBYTECODE") if name in os.environ}
    environment = {**kept, "PYTHONPATH": str(REPOSITORY), "HOME": str(directory), "LANG": "C.UTF-8", **environ}
    return subprocess.run(
        [sys.executable, *program, *words], cwd=directory, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=timeout, preexec_fn=prepare,
    )  # fmt: skip


def contents(directory: Path) -> dict[str, str]:
    """Every name below a directory with what it holds."""
    found = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file() and os.access(path, os.R_OK):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = f"{path.lstat().st_mode:o}"
    return found


def check_message(done: Process[str], status: int, count: int = 1) -> str:
    """`count` messages of four parts each, no traceback, this exit status; the text."""
    assert done.returncode == status, f"{done.returncode}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    for part in FOUR_PARTS:
        assert len(re.findall(f"^{part}", done.stderr, re.MULTILINE)) == count, done.stderr
    return done.stderr


def check_document(done: Process[str], status: int, text: str) -> list[dict[str, Any]]:
    """The same refusal in JSON: one document whose errors have the codes and the four parts of `text`."""
    assert done.returncode == status, done.stderr
    document = json.loads(done.stdout)
    errors: list[dict[str, Any]] = document["errors"]
    assert [each["code"] for each in errors] == re.findall(r"^error\[([EG]\d+)\]", text, re.MULTILINE)
    assert not document.get("ok")
    for error in errors:
        assert error["message"]
        assert error["where"]["text"]
        assert error["why"]
        assert error["fix"]
    return errors


# ---------------------------------------------------------------- files that are not what they are taken for


def _zip(path: Path, name: str, content: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, content)


def _unreadable(path: Path) -> None:
    path.write_bytes(b"secret")
    path.chmod(0)


KINDS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "empty": lambda path: path.write_bytes(b""),
    "directory": lambda path: path.mkdir(),
    "unreadable": _unreadable,
    "loop": lambda path: path.symlink_to(path.name),
    "pipe": lambda path: os.mkfifo(path),
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "below a file": lambda path: None,  # the name is another
    "pytorch zip": lambda path: _zip(path, "archive/data.pkl", b"\x80\x02}q\x00."),
    "pickle": lambda path: path.write_bytes(b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94."),
    "tflite": lambda path: path.write_bytes(b"\x1c\0\0\0TFL3" + bytes(80)),
    "git-lfs pointer": lambda path: path.write_text(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 5\n"
    ),
    "html page": lambda path: path.write_text("<!DOCTYPE html>\n<html><body>404</body></html>\n"),
    "noise": lambda path: path.write_bytes(hashlib.shake_128(b"noise").digest(3000)),
    "zeros": lambda path: path.write_bytes(bytes(5000)),
    "elf": lambda path: path.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(60)),
    "gzip": lambda path: path.write_bytes(b"\x1f\x8b\x08\x00" + bytes(60)),
}


def make(kind: str, path: Path) -> str:
    """Put a file of this kind at `path`; the name to give to the command."""
    KINDS[kind](path)
    if kind == "below a file":
        (path.parent / "file").write_text("x")
        return f"file/{path.name}"
    return path.name
