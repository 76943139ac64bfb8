"""Variable records and session snapshots are read in less than twice the file and 64 MiB, whatever they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from . import hostile_graphs
from . import spec_om as spec
from .test_om_memory import ALLOWED_BYTES, MIB, measured

LARGE = 8 * MIB
VARIABLES = 20_000
BASE = 1 << 37


def entry(number: int, k: int, value: bytes) -> bytes:
    return spec.blob(number, spec.blob(1, hostile_graphs.text(k)) + spec.blob(2, value))


def step(source: bytes, target: bytes) -> bytes:
    return spec.blob(1, spec.blob(1, b"TransData") + spec.blob(2, source) + spec.blob(3, target))


def initial(k: int) -> bytes:
    value = spec.attr_t(spec.tensor(spec.descriptor(1, [1]), hostile_graphs.packed(k)))
    return spec.descriptor(1, [1], "ND", {"_init_value": value})


TABLES: dict[str, Callable[[int], bytes]] = {
    "empty descriptors": lambda k: entry(1, k, b""),
    "descriptors": lambda k: entry(1, k, spec.descriptor(1, [k])),
    "descriptors of unknown attributes": lambda k: entry(1, k, spec.descriptor(1, [1], "ND", {f"{k:x}": b""})),
    "initial values": lambda k: entry(1, k, initial(k)),
    "changed names": lambda k: spec.blob(3, hostile_graphs.text(k)),
    "empty roads": lambda k: entry(2, k, b""),
    "roads of empty steps": lambda k: entry(2, k, spec.blob(1, b"") * (3 + k % 300)),
    "roads": lambda k: entry(2, k, step(spec.descriptor(1, [k]), spec.descriptor(1, [k + 1]))),
    "staged descriptors": lambda k: entry(4, k, spec.descriptor(1, [k])),
}
WHOLE: dict[str, Callable[[], bytes]] = {
    "a road of many steps": lambda: entry(2, 0, spec.blob(1, b"") * (LARGE // 2)),
    "sides of no bytes": lambda: b"\x12\0" * (LARGE // 2),
    "a descriptor of many attributes": lambda: entry(
        1, 0, hostile_graphs.repeated(lambda k: spec.blob(5, spec.blob(1, hostile_graphs.text(k))), LARGE)
    ),
    "a descriptor of many dims": lambda: entry(1, 0, spec.blob(3, spec.blob(1, b"\x7f" * LARGE))),
    "a long name": lambda: spec.blob(3, b"n" * LARGE),
    "nesting": lambda: entry(1, 0, spec.descriptor(1, [1], "ND", {"a": hostile_graphs.nested(5000, b"")})),
}  # fmt: skip


def require_bound(path: Path, *words: str, allowed: tuple[int, ...] = (0, 3)) -> tuple[int, str]:
    peak, status, said = measured("-m", "gecli", *words)
    limit = 2 * path.stat().st_size + ALLOWED_BYTES
    assert status in allowed and peak < limit, f"{peak / MIB:.1f} MiB of {limit / MIB:.1f}, status {status}"
    return status, said


@pytest.mark.parametrize("view", ["--summary", "--vars"])
@pytest.mark.parametrize("name", [*TABLES, *WHOLE])
def test_a_hostile_variable_record_stays_within_the_bound(name: str, view: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.rdcpkt"
    content = hostile_graphs.repeated(TABLES[name], LARGE) if name in TABLES else WHOLE[name]()
    first = spec.blob(2, entry(1, 0, spec.descriptor(1, [2])))
    path.write_bytes(first + (content if name == "sides of no bytes" else spec.blob(2, content)))
    require_bound(path, "inspect-om", view, str(path))
