"""Variable records and session snapshots are read in less than twice the file and 64 MiB, whatever they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc
from gecli.variables.var_manager import VarManager
from gecli.wire.var_manager import decode_var_match
from gecli.wire.var_session import encode_var_manager

from . import hostile_graphs
from . import spec_om as spec
from .test_om_memory import ALLOWED_BYTES, MIB, measured

LARGE = 4 * MIB
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
    "many sides": lambda: spec.blob(2, entry(1, 0, b"")) * (LARGE // 10),
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


@pytest.mark.parametrize("name", [*TABLES, *WHOLE])
def test_a_hostile_variable_record_stays_within_the_bound(name: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.rdcpkt"
    content = hostile_graphs.repeated(TABLES[name], LARGE) if name in TABLES else WHOLE[name]()
    first = spec.blob(2, entry(1, 0, spec.descriptor(1, [2])))
    path.write_bytes(first + (content if "sides" in name else spec.blob(2, content)))
    require_bound(path, "inspect-om", "--vars", str(path))


def keyed(number: int, k: int, value: bytes) -> bytes:
    """An entry of a table with numbers as keys."""
    return spec.blob(number, hostile_graphs.integer(1, k) + value)


def address_of(k: int) -> bytes:
    desc = spec.blob(1, spec.descriptor(1, [k], size=512))
    place = BASE + 512 * k
    own = hostile_graphs.integer(2, place) + hostile_graphs.integer(3, 512 * k) + hostile_graphs.integer(4, 2)
    key = spec.blob(1, hostile_graphs.text(k) + b"2_0")
    block = keyed(8, place, spec.blob(2, desc + hostile_graphs.integer(2, place)))
    return spec.blob(2, key + spec.blob(2, desc + own)) + keyed(1, place, hostile_graphs.integer(2, 2)) + block


RESOURCES: dict[str, Callable[[int], bytes]] = {
    "addresses": lambda k: entry(2, k, b""),
    "current descriptors": lambda k: entry(3, k, b""),
    "different descriptors": lambda k: entry(3, k, spec.descriptor(1, [k])),
    "roads": lambda k: entry(4, k, step(spec.descriptor(1, [k]), b"")),
    "changed graph ids": lambda k: spec.blob(5, spec.blob(1, hostile_graphs.text(k)) + hostile_graphs.integer(2, k)),
    "allocated graph ids": lambda k: spec.blob(6, spec.blob(1, hostile_graphs.text(k)) + hostile_graphs.integer(2, 1)),
    "broadcasts": lambda k: keyed(7, k, spec.blob(2, b"")),
    "infos of a broadcast": lambda k: keyed(7, k // 500, spec.blob(2, entry(1, k, b""))),
    "blocks": lambda k: keyed(8, k, spec.blob(2, b"")),
    "memory types": lambda k: keyed(1, k, hostile_graphs.integer(2, 2)),
    "whole variables": lambda k: address_of(k),
}  # fmt: skip
SNAPSHOTS: dict[str, Callable[[], bytes]] = {
    **{
        name: lambda piece=piece: spec.blob(9, hostile_graphs.repeated(piece, LARGE))  # type: ignore[misc]
        for name, piece in RESOURCES.items()
    },
    "types of memory": lambda: spec.blob(9, b"") + hostile_graphs.repeated(lambda k: keyed(10, k, b""), LARGE),
    "tables of no bytes": lambda: b"\x4a\0" * (LARGE // 2),
    "many tables": lambda: spec.blob(9, entry(2, 0, b"")) * (LARGE // 10),
    "a broadcast of many infos": lambda: spec.blob(
        9, keyed(7, 1, spec.blob(2, hostile_graphs.repeated(lambda k: entry(1, k, b""), LARGE)))
    ),
    "an address of a large descriptor": lambda: spec.blob(9, entry(2, 0, spec.blob(1, b"\x2a\0" * (LARGE // 2)))),
}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_hostile_snapshot_stays_within_the_bound(name: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile"
    head = hostile_graphs.integer(6, 1 << 40) + hostile_graphs.integer(7, BASE) + spec.blob(9, b"")
    path.write_bytes(head + keyed(10, 2, spec.blob(2, hostile_graphs.integer(2, 1 << 39))) + SNAPSHOTS[name]())
    require_bound(path, "inspect-om", "--vars", str(path))


def named(k: int) -> bytes:
    """A variable as gecli writes it: descriptors are spelled out, half of them have a road."""
    plain = spec.descriptor(1, [64, k % 97 + 1], "ND", {"origin_format": spec.attr_s("ND")}, size=16416)
    stored = spec.descriptor(1, [4, 4, 16, 16], "FRACTAL_Z", {"origin_format": spec.attr_s("NCHW")}, size=16416)
    road = entry(2, k, step(plain, stored)) + spec.blob(3, hostile_graphs.text(k)) if k % 2 else b""
    return entry(1, k, stored if k % 2 else plain) + road


@pytest.mark.parametrize("words", [("--vars",), ("--vars", "--json"), ("--summary",)])
def test_a_record_of_20000_variables_is_read_within_the_bound(words: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "large.rdcpkt"
    content = b"".join(map(named, range(VARIABLES)))
    path.write_bytes(spec.blob(1, content) + spec.blob(2, content))
    _, said = require_bound(path, "inspect-om", *words, str(path), allowed=(0,))
    assert "20000" in said or said.count('"before"') == VARIABLES


def test_a_snapshot_of_20000_variables_is_read_within_the_bound(tmp_path: Path) -> None:
    manager = VarManager()
    for k in range(VARIABLES):
        manager.assign(f"layer{k // 3}/w{k}", TensorDesc(DataType.FLOAT, (k % 97 + 1, 64), size_bytes=16416))
        manager.set_changed_graph_id(f"layer{k // 3}/w{k}", 1)
    path = tmp_path / "session"
    path.write_bytes(encode_var_manager(manager))
    _, said = require_bound(path, "inspect-om", "--vars", str(path), allowed=(0,))
    assert "20000 variables" in said


def test_pieces_of_a_record_are_one_record() -> None:
    """Sides may come in parts, as protobuf merges messages; the last entry of a name counts."""
    small, large = spec.descriptor(1, [1]), spec.descriptor(1, [2])
    parts = [spec.blob(2, entry(1, k, small)) for k in (7, 3, 7)] + [spec.blob(2, entry(1, 3, large))]
    filler = spec.blob(2, b"".join(entry(4, k, small) for k in range(5000)))
    found = decode_var_match(b"".join([*parts, filler])).after
    assert {name: desc.shape for name, desc in found.var_desc_map.items()} == {"3": (2,), "7": (1,)}
    assert list(found.staged_var_desc_map) == sorted(f"{k:x}" for k in range(5000))
    assert found.staged_var_desc_map["a"] is found.staged_var_desc_map["b"]
