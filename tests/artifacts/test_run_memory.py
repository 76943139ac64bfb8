"""A run of a model with many variables or external weights takes less than twice the file and 64 MiB."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import hostile_graphs
from . import spec_om as spec
from .test_om_memory import MIB
from .test_record_memory import require_bound

READ, MISSING, REFUSED = 0, 6, 3


@pytest.mark.parametrize(
    ("kind", "size", "status"),
    [
        ("variable", 1.7, REFUSED),
        ("variable", 0.5, READ),
        ("external", 1.7, REFUSED),
        ("external", 0.5, MISSING),
    ],
)
def test_many_of_a_few_bytes(kind: str, size: float, status: int, tmp_path: Path) -> None:
    path = tmp_path / "many.om"
    path.write_bytes(spec.om_wide([(0, hostile_graphs.operators(getattr(hostile_graphs, kind), int(size * MIB)))]))
    require_bound(path, "run", str(path), allowed=(status,))
