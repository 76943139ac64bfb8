"""Entries under other keys that are near: for --explain-cache, when a derived key has none of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gecli.cache.layout import SIDECAR
from gecli.cache.sidecar import InvalidSidecar, Sidecar, difference_of, parse_sidecar
from gecli.wire.regular_file import read_regular

MAX_READ = 64  # the newest
MAX_SHOWN = 3


def near_entries(directory: str, wanted: Mapping[str, str], key: str = "") -> list[Sidecar]:
    """The newest entries that were made from the same graph and weights by the same tools, with other options.

    Without any, for a derived `key`, the newest one whose key was derived for a model of the same name.
    """
    found: list[Sidecar] = []
    namesake: Sidecar | None = None
    name, dash, _ = key.rpartition("-")
    for path in _newest(directory)[:MAX_READ]:
        stem = os.path.basename(path)[: -len(SIDECAR)]
        try:
            sidecar = parse_sidecar(read_regular(path), stem.rsplit("_", 2)[0], stem)
        except (InvalidSidecar, OSError):
            continue  # nothing depends on it here
        if sidecar is None:
            continue
        if difference_of(sidecar.fingerprint, wanted) == ["options"]:
            found.append(sidecar)
        elif namesake is None and dash and str(sidecar.content.get("graph_key")).startswith(f"{name}-"):
            namesake = sidecar
    return found[:MAX_SHOWN] if found or namesake is None else [namesake]


def kind_of(near: Sidecar, wanted: Mapping[str, str]) -> str:
    """In a few words, how near an entry is."""
    differing = difference_of(near.fingerprint, wanted)
    if differing == ["options"]:
        return "the same model with other options"
    return f"the newest entry for this output name; other {', '.join(differing)}"


def _newest(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            sidecars = [(each.stat().st_mtime_ns, each.path) for each in entries if each.name.endswith(SIDECAR)]
    except OSError:
        return []
    return [path for _, path in sorted(sidecars, reverse=True)]
