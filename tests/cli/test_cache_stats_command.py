"""`gecli cache stats` counts what compiles, collections and repairs do."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

Run = Callable[..., "subprocess.CompletedProcess[str]"]
DIGITS = str(REPOSITORY / "samples/digits/digits.onnx")
WORDS = ("compile", DIGITS, "-o", "x", "--cache-dir", "cache", "--graph-key", "k")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def counters(gecli: Run, *words: str) -> dict[str, Any]:
    result = gecli("cache", "stats", "--cache-dir", "cache", "--json", *words)
    assert (result.returncode, result.stderr) == (0, "")
    found: dict[str, Any] = json.loads(result.stdout)["counters"]
    return found


def test_every_way_to_a_hit_is_counted_once(gecli: Run, cache: Path) -> None:
    gecli(*WORDS)  # compiles, stores, and leaves a memo
    for number, extra in enumerate(([], ["--no-config"], ["--explain-cache"], ["--cache-verify", "full"]), 1):
        assert "cache=hit" in gecli(*WORDS, *extra).stdout
        assert counters(gecli)["hits"] == {"total": number, "no-vars": number}
    found = counters(gecli)
    size = (next(cache.glob("*.om"))).stat().st_size
    assert (found["misses"], found["writes"], found["lookups"]) == ({"total": 1, "no_entry": 1}, 1, 5)
    assert (found["bytes_written"], found["bytes_read"]) == (size, 4 * size)
    assert found["seconds_saved"] == pytest.approx(4 * found["seconds_spent"], abs=0.01)


def test_misses_are_counted_by_reason_and_key(gecli: Run, cache: Path) -> None:
    gecli(*WORDS)
    gecli(*WORDS, "--input-shape", "image:1,1,8,8")
    gecli(*WORDS, "--graph-key", "other")
    next(cache.glob("other_*.om")).write_bytes(b"torn")
    gecli(*WORDS, "--graph-key", "other")
    assert counters(gecli)["misses"] == {"total": 4, "no_entry": 2, "fingerprint_mismatch": 1, "om_corrupt": 1}
    assert counters(gecli, "--key", "oth*")["misses"] == {"total": 2, "no_entry": 1, "om_corrupt": 1}
    assert counters(gecli)["quarantined"] == 1


def test_adoption_and_collection_are_counted(gecli: Run, cache: Path) -> None:
    gecli(*WORDS)
    (cache / "k.idx").unlink()
    gecli("cache", "gc", "--cache-dir", "cache")
    gecli("cache", "gc", "--cache-dir", "cache", "--all")
    found = counters(gecli)
    assert (found["adopted"], found["gc_runs"]) == (1, 2)
    assert found["bytes_freed"] > 10_000


def test_a_read_only_use_counts_nothing(gecli: Run, cache: Path) -> None:
    gecli(*WORDS)
    before = counters(gecli)
    gecli(*WORDS, "--cache-mode", "ro")
    gecli("cache", "gc", "--cache-dir", "cache", "--all", "--dry-run")
    assert counters(gecli) == before


def test_zero_begins_anew_after_printing(gecli: Run, cache: Path) -> None:
    gecli(*WORDS)
    assert counters(gecli, "--zero")["lookups"] == 1
    assert counters(gecli)["lookups"] == 0
    gecli(*WORDS)
    assert counters(gecli)["hits"]["total"] == 1


def test_the_lines_say_how_much_and_why(gecli: Run, cache: Path) -> None:
    gecli(*WORDS)
    gecli(*WORDS)
    result = gecli("cache", "stats", "--cache-dir", "cache", "--by-key")
    lines = {line[:24].rstrip(): line[24:] for line in result.stdout.splitlines()}
    stem = next(cache.glob("*.om")).stem
    assert lines["contents"].startswith("1 entry, 1 key, ")
    assert lines["newest"].startswith(f"{stem}  20")
    assert (lines["lookups"], lines["hits"], lines["  no_entry"]) == ("2", "1  (50 %)", "1  no entry for this key")
    assert result.stdout.splitlines()[-1].split()[:-1] == ["k", "2", "1", "1", "1"]


def test_an_operand_is_refused(gecli: Run, cache: Path) -> None:
    for command in ("stats", "ls", "gc"):
        result = gecli("cache", command, "cache", "--cache-dir", "cache")
        assert result.returncode == 2
        assert 'unexpected operand "cache"' in result.stderr
