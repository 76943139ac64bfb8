"""Entries that need no compiler: an OM header with a body, stored as a compile stores them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gecli.cache.candidate import Verdict, Wanted
from gecli.cache.recovery import append_record
from gecli.cache.sidecar import SCHEMA, Sidecar
from gecli.cache.stat_index import StatIndex
from gecli.cache.store import Written, store_entry
from gecli.version import __version__

Store = Callable[..., Written]


def om_bytes(text: str) -> bytes:
    return b"IMOD" + bytes(252) + text.encode()


def fingerprint(name: str) -> dict[str, str]:
    parts = {part: f"sha256:{name}-{part}" for part in ("graph", "weights", "options", "toolchain")}
    return {"combined": f"sha256:{name}", **parts}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Store a small entry; entries of one key get time stamps of a fixed day."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1776219630")  # 2026-04-15 02:20:30 UTC

    def run(
        key: str = "k",
        name: str = "a",
        *,
        body: str = "model",
        rdcpkt: bytes | None = None,
        requests: tuple[str, ...] = (),
        created: str = "2026-04-15T02:20:30.000000Z",
        used_s: float | None = None,
        directory: Path = tmp_path,
    ) -> Written:
        def describe(stem: str, files: dict[str, Any]) -> Sidecar:
            return Sidecar(
                {
                    "schema": SCHEMA,
                    "graph_key": key,
                    "entry": stem,
                    "created_utc": created,
                    "created_by": {"tool": "gecli", "version": __version__},
                    "fingerprint": {**fingerprint(name), "requests": list(requests)},
                    "files": files,
                    "weights": [],
                }
            )

        written = store_entry(
            str(directory),
            key,
            lambda stream: stream.write(om_bytes(body)) and None,
            rdcpkt,
            describe,
            style="seed",
            mode=0o644,
            stats=StatIndex(),
            append=lambda record: append_record(str(directory), record, 0o644),
        )
        if used_s is not None:
            os.utime(directory / f"{written.stem}.gecli.json", (used_s, used_s))
        return written

    return run


@pytest.fixture
def wanted() -> Callable[..., Wanted]:
    """What a compile of the thing called `name` asks for; variables and foreign entries match unless told otherwise."""

    def make(name: str = "a", variables: Verdict | None = None, foreign: Verdict | None = None) -> Wanted:
        return Wanted(
            fingerprint(name),
            f"sha256:{name}-source",
            lambda rdcpkt, is_vouched: variables or Verdict("before" if rdcpkt else "no-vars"),
            lambda om, source: foreign or Verdict("signature"),
        )

    return make
