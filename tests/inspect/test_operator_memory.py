"""One operator of very many small parts is shown in less than twice the file and 64 MiB, with room to spare."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.artifacts import spec_om as spec
from tests.artifacts.test_om_memory import ALLOWED_BYTES, MIB, measured

ROOM = 4 * MIB
PARTS = {
    "inputs": spec.blob(5, b"a:0") * 200_000,
    "descriptors of no bytes": spec.blob(34, b"") * 300_000,
}


@pytest.mark.parametrize("view", [["--summary"], ["--nodes"], ["--atc-json"], ["--json", "--embed-data"]], ids=" ".join)
@pytest.mark.parametrize("part", PARTS)
def test_an_operator_of_many_parts_stays_within_the_bound(part: str, view: list[str], tmp_path: Path) -> None:
    operator = spec.blob(6, spec.blob(1, b"a") + spec.blob(2, b"R") + PARTS[part])
    model = spec.blob(1, b"m") + spec.blob(7, spec.blob(1, b"g") + operator)
    path = tmp_path / "many.om"
    path.write_bytes(spec.om_wide([(0, model)]))
    peak, status, _ = measured("-m", "gecli", "inspect-om", str(path), *view, "-o", str(tmp_path / "shown"))
    limit = 2 * path.stat().st_size + ALLOWED_BYTES - ROOM
    assert status in (0, 3) and peak < limit, f"{peak / MIB:.1f} MiB of {limit / MIB:.1f}"
