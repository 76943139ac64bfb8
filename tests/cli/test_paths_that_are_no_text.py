"""A path may hold bytes that are no UTF-8: documents stay valid UTF-8 and JSON, and lines spell it one way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

DIGITS = REPOSITORY / "samples/digits/digits.onnx"
FOLDER = os.fsdecode(b"n\xff\nw")
SPELLED = "n\\udcff\\nw"
COMPILE = ("compile", str(DIGITS), "-o", f"{FOLDER}/m.om", "--input-shape", "image:1,1,8,8", "--cache-dir")


def gecli(folder: Path, *words: str, locale: str = "C.UTF-8") -> subprocess.CompletedProcess[bytes]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "HOME": str(folder), "LC_ALL": locale}
    return subprocess.run(
        [sys.executable, "-m", "gecli", *words], cwd=folder, env=environment, capture_output=True, timeout=60
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    try:
        (tmp_path / FOLDER / "c").mkdir(parents=True)
    except OSError:  # a file system of texts only has no such paths
        shutil.rmtree(tmp_path / FOLDER, ignore_errors=True)
        pytest.fail("the tests need a file system that takes any byte in a name")
    return tmp_path


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_every_document_is_utf8_and_names_the_path(folder: Path, locale: str) -> None:
    cache = f"{FOLDER}/c"
    lines = [
        (*COMPILE, cache, "--json", "--report", "r.json"),
        (*COMPILE, cache, "--json"),
        (*COMPILE, cache, "--json"),
        ("cache", "verify", "--cache-dir", cache, "--json"),
        ("cache", "ls", "--cache-dir", cache, "--json"),
        ("cache", "stats", "--cache-dir", cache, "--json"),
        ("cache", "gc", "--cache-dir", cache, "--json"),
        ("inspect-om", f"{FOLDER}/m.om", "--json"),
    ]
    for words in lines:
        done = gecli(folder, *words, locale=locale)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout.decode("utf-8", "strict"))
        assert FOLDER in json.dumps(document, ensure_ascii=False).replace("\\n", "\n"), words
    assert json.loads((folder / "r.json").read_bytes().decode("utf-8", "strict"))["models"][0]["output"] == COMPILE[3]


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_lines_spell_the_path_one_way_and_whole(folder: Path, locale: str) -> None:
    done = gecli(folder, *COMPILE, f"{FOLDER}/c", locale=locale)
    assert done.returncode == 0, done.stderr
    assert f"output={SPELLED}/m.om\n".encode() in done.stdout
    failed = gecli(folder, "inspect-om", f"{FOLDER}/none.om", locale=locale)
    assert failed.returncode != 0
    assert b"\\udcff" in failed.stderr
    failed.stderr.decode("utf-8", "strict")
