"""Entries of the same model under other keys: for --explain-cache, when a derived key has none of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gecli.cache.layout import SIDECAR
from gecli.cache.sidecar import InvalidSidecar, Sidecar, difference_of, parse_sidecar
from gecli.wire.regular_file import read_regular

MAX_READ = 64  # the newest
MAX_SHOWN = 3


def near_entries(directory: str, wanted: Mapping[str, str]) -> list[Sidecar]:
    """The newest entries that were made from the same graph and weights by the same tools, with other options."""
    found: list[Sidecar] = []
    for path in _newest(directory)[:MAX_READ]:
        stem = os.path.basename(path)[: -len(SIDECAR)]
        try:
            sidecar = parse_sidecar(read_regular(path), stem.rsplit("_", 2)[0], stem)
        except (InvalidSidecar, OSError):
            continue  # nothing depends on it here
        if sidecar is not None and difference_of(sidecar.fingerprint, wanted) == ["options"]:
            found.append(sidecar)
    return found[:MAX_SHOWN]


def _newest(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            sidecars = [(each.stat().st_mtime_ns, each.path) for each in entries if each.name.endswith(SIDECAR)]
    except OSError:
        return []
    return [path for _, path in sorted(sidecars, reverse=True)]
