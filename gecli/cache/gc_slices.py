"""Garbage collection of slices: what of `slicing_hierarchy/` goes with which versions (cache.md 9.2, 12.3).

A graph's slices and versions are taken under the lock of the graph, which `run --jit` holds while it compiles; first
the lists, then the entries that they named.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator

from gecli.cache.gc_actions import Action, GcPolicy, Outcome
from gecli.cache.gc_entries import Chosen, choose
from gecli.cache.jit_edit import shortened, what_stays, write_lists
from gecli.cache.jit_files import HIERARCHY
from gecli.cache.jit_survey import BROKEN, ORPHAN, STALE, UNREADABLE, Slicing
from gecli.cache.lock import KeyLock, LockTimeout, LockUnavailable, is_busy, lock_path, unusable_lock
from gecli.cache.sidecar import last_used_ns
from gecli.cache.store import file_mode
from gecli.cache.survey import Survey

OfEntries = Callable[[str, list[Action]], None]  # key, its actions


def of_slices(found: Survey, chosen: Chosen, policy: GcPolicy, now: float, busy: Collection[str]) -> list[Action]:
    """What goes in the JIT layer: the slices of each graph, in front of its versions, which are in `chosen`.

    Versions that no list names afterwards are chosen too.
    """
    shown = {row.key for row in found.rows if row.is_slicing}
    slices = {
        key: list(_of_graph(found, each, chosen, policy, now, busy, is_shown=key in shown))
        for key, each in found.slicings.items()
        if key not in busy and (UNREADABLE not in each.problems or policy.everything)
    }
    versions: dict[str, list[Action]] = {}
    for action in chosen.values():
        versions.setdefault(action.graph, []).append(action)
    return [
        action
        for graph in sorted({*slices, *versions})
        for action in (*slices.get(graph, ()), *versions.get(graph, ()))
    ]


def _of_graph(
    found: Survey, each: Slicing, chosen: Chosen, policy: GcPolicy, now: float, busy: Collection[str], *, is_shown: bool
) -> Iterator[Action]:
    gone = {action.key: action.why for action in chosen.values() if action.graph == each.key}
    whole = _why_whole(each, policy, now) if is_shown else ""
    is_mended = is_shown and BROKEN in each.problems and policy.removes("broken")
    kept = shortened(each.usable, gone, 0 if whole else None)
    staying = {version for versions in kept for version in versions}
    if len(kept) < len(each.usable) or whole or is_mended:
        _choose_unlisted(found, each, chosen, staying, busy, is_mended=is_mended)
    why = whole or next((gone[key] for versions in each.usable for key in versions if key in gone), "") or BROKEN
    home = os.path.join(HIERARCHY, each.key)
    if not kept:
        if whole or is_mended or each.usable:
            yield Action("remove", why, each.key, home, size_bytes=each.size_bytes, graph=each.key, slice_id=0)
        return
    if is_mended:
        yield Action("rebuild", BROKEN, each.key, home, graph=each.key)
    is_old = policy.removes("orphans") and now - each.changed_s > policy.grace_s
    if len(kept) == len(each.usable) and not is_mended:
        why = ORPHAN
    if len(kept) < len(each.usable) or is_mended or is_old:
        for number in sorted((number for number in each.sizes if number >= len(kept)), reverse=True):
            stem = os.path.join(home, str(number))
            size = each.sizes[number]
            yield Action("remove", why, each.key, stem, size_bytes=size, graph=each.key, slice_id=number)


def _why_whole(each: Slicing, policy: GcPolicy, now: float) -> str:
    """Why all slices of a graph go, whatever becomes of their versions; empty when they may stay."""
    if ORPHAN in each.problems and policy.removes("orphans") and now - each.changed_s > policy.grace_s:
        return ORPHAN
    if STALE in each.problems and "stale-toolchain" in policy.states:
        return STALE
    if "foreign" in each.problems and "foreign" in policy.states:
        return "foreign"
    return "all" if policy.everything else ""


def _choose_unlisted(
    found: Survey, each: Slicing, chosen: Chosen, staying: set[str], busy: Collection[str], *, is_mended: bool
) -> None:
    """Versions that lose their place: nobody would find them."""
    for row in found.rows:
        if row.graph != each.key or row.is_slicing or row.key in staying or row.key in busy:
            continue
        if row.key in each.listed or (is_mended and BROKEN in row.problems):
            choose(chosen, row, BROKEN if is_mended else ORPHAN)


def collect_graph(
    found: Survey, graph: str, actions: list[Action], outcome: Outcome, wait_s: float, shared: bool, collect: OfEntries
) -> None:
    """Do what was selected of one graph of the JIT layer, its entries by `collect`. Raises OSError."""
    cache = os.path.dirname(found.directory)
    versions = [each for each in actions if each.slice_id is None and each.verb == "remove"]
    others = [each for each in actions if each.slice_id is not None or each.verb != "remove"]
    if not os.path.lexists(lock_path(found.directory, graph)) and graph not in found.slicings:
        _collect_versions(versions, collect)  # nothing but its versions is there
        return
    try:
        with KeyLock(found.directory, graph, timeout_s=wait_s, shared=shared):
            spared = {each.key for each in versions if _is_used(found.directory, each) or _is_busy(found, each, wait_s)}
            gone = {each.key for each in versions} - spared
            _shorten(cache, found, graph, gone, bool(spared), others, outcome, file_mode(shared))
            _collect_versions(versions, collect)
    except LockTimeout:
        outcome.busy.append(graph)
    except LockUnavailable as error:
        raise unusable_lock(found.directory, graph, error) from error


def _shorten(
    cache: str, found: Survey, graph: str, gone: set[str], any_spared: bool, actions: list[Action],
    outcome: Outcome, mode: int,
) -> None:  # fmt: skip
    """Take versions and slices out of the lists, as far as no run has come since the survey."""
    planned = found.slicings.get(graph)
    if planned is None:
        return
    cuts = [each.slice_id for each in actions if each.slice_id is not None and each.why != BROKEN]
    now, kept = what_stays(cache, graph, gone)
    if UNREADABLE in now.problems and 0 not in cuts:
        raise OSError(errno.EACCES, f"its slices cannot be read: {now.fault}", now.home)
    if cuts and not any_spared and now.listed <= planned.listed:
        kept = kept[: min(cuts)]
    is_mended = any(each.why == BROKEN for each in actions)
    if kept != now.versions or is_mended or any(number >= len(kept) for number in now.sizes if cuts):
        write_lists(cache, now, kept, mode)
    for each in actions:
        is_done = each.slice_id is None or each.slice_id >= len(kept) if kept else True
        (outcome.done if is_done else outcome.spared).append(each)


def _collect_versions(versions: list[Action], collect: OfEntries) -> None:
    for key in sorted({each.key for each in versions}):
        collect(key, [each for each in versions if each.key == key])


def _is_used(directory: str, action: Action) -> bool:
    return (last_used_ns(directory, action.stem) or 0) / 1e9 > action.used_s


def _is_busy(found: Survey, action: Action, wait_s: float) -> bool:
    return wait_s <= 0 and is_busy(found.directory, action.key)
