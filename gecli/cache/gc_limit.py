"""What stays above the size limit of a garbage collection, and why (cache.md 12.3)."""

from __future__ import annotations

import math
import os
from typing import NamedTuple

from gecli.cache.gc_actions import UNREFERENCED, Action, GcPolicy
from gecli.cache.gc_entries import bare_bytes, listed
from gecli.cache.survey import Survey
from gecli.cache.weight_files import weight_dir, weight_files_of
from gecli.cache.weight_sweep import UnknownReferences, Unreferenced, unreferenced

ANY_AGE = -math.inf


class AboveLimit(NamedTuple):
    """A sentence for the user, and what would go if it were not so young."""

    note: str
    spared: list[Action]


def above_limit(found: Survey, policy: GcPolicy, now: float, actions: list[Action]) -> AboveLimit | None:
    """What keeps the directory above --max-size once the actions are done; None when nothing does.

    With --free the run ends early because it was told to.
    """
    limit = policy.max_size_bytes
    if limit is None or policy.free_bytes is not None:
        return None
    removed = {each.path for each in actions if each.path}
    aside = [each for each in found.quarantined if each.path not in removed]
    entries, bare, weights = 0, 0, []
    for layer in found.layers:
        own = [each for each in actions if each.in_jit == (layer is found.jit) and each.verb == "remove" and each.stem]
        entries += _kept_bytes(layer, own)
        gone = {(each.key, each.stem) for each in own}
        bare += bare_bytes(layer, gone)
        weights += [each for each in unreferenced_weights(layer.directory, now, gone) if each.path not in removed]
    aside_bytes, weight_bytes = sum(each.size_bytes for each in aside), sum(each.size_bytes for each in weights)
    above = entries + bare + aside_bytes + weight_bytes - limit
    if above <= 0:
        return None
    reasons = []
    young = [f"{aside_bytes} bytes set aside in .gecli/quarantine"] * bool(aside)
    young += [f"{weight_bytes} bytes of weights that no entry refers to"] * bool(weights)
    if young:
        reasons.append(f"{' and '.join(young)} are younger than --grace, {policy.grace_s:g} s (--grace 0 removes them)")
    if bare:
        reasons.append(f"{bare} bytes are models that no index names (--foreign and --shadowed remove them)")
    if entries and entries + bare > limit:
        kept = "keys in use (--wait SEC waits for them)" if _is_busy(found) else "entries that --protect-last keeps"
        reasons.append(f"{entries} bytes belong to {kept}")
    spared = [Action("remove", "quarantine", each.key, path=each.path, size_bytes=each.size_bytes) for each in aside]
    spared += [Action("remove", UNREFERENCED, "", path=each.path, size_bytes=each.size_bytes) for each in weights]
    return AboveLimit(f"{above} bytes stay above --max-size: {'; '.join(reasons)}", spared)


def unreferenced_weights(
    directory: str, now: float, without: set[tuple[str, str]] | frozenset[tuple[str, str]] = frozenset()
) -> list[Unreferenced]:
    """Weight files that nothing refers to, however young; none where what is referred to is not known."""
    try:
        return unreferenced(directory, now, ANY_AGE, without)
    except UnknownReferences:
        return []


def _kept_bytes(layer: Survey, removals: list[Action]) -> int:
    """The bytes of entries and slices that stay, and of the weights that they use."""
    gone = {(each.key, each.stem) for each in removals}
    rows = [row for row in listed(layer) if (row.key, row.stem) not in gone]
    slices = sum(row.size_bytes for row in layer.rows if row.is_slicing)
    slices -= sum(each.size_bytes for each in removals if each.slice_id is not None)
    names = {name for row in rows for name in weight_files_of(row.weights)}
    return sum(row.size_bytes for row in rows) + max(slices, 0) + sum(_size(layer.directory, name) for name in names)


def _is_busy(found: Survey) -> bool:
    return any(layer.busy_keys for layer in found.layers)


def _size(directory: str, name: str) -> int:
    try:
        return os.stat(os.path.join(weight_dir(directory), name)).st_size
    except OSError:
        return 0
