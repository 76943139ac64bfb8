"""The JIT layer of a cache directory as management sees it: the slices of each graph, and what of them is of use.

Entries in `{cache_dir}/jit` are entries like all others; `slicing_hierarchy/` says which graph they belong to
(cache.md 9.2). Graphs are read only by who asks for a full check.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import field

from gecli.cache.graph_key import is_graph_key
from gecli.cache.index import UnreadableIndex, read_index
from gecli.cache.jit_files import (
    HIERARCHY,
    REST_GRAPH,
    RESULT,
    SLICE_GRAPH,
    SLICING,
    VERSIONS,
    Facts,
    OnDisk,
    StoredSlice,
    believed,
    chained,
    jit_dir,
    listed_ids,
    listed_versions_of,
    slicing_of,
    version_key,
)
from gecli.cache.lock import is_busy
from gecli.cache.quarantine import tree_files
from gecli.cache.sidecar import InvalidSidecar, read_sidecar
from gecli.cache.stat_index import StatIndex
from gecli.records import dataclass
from gecli.version import __version__
from gecli.wire.regular_file import io_fault, open_regular

OF_HIERARCHY = (RESULT, SLICING)
OF_SLICE = (VERSIONS, SLICE_GRAPH, REST_GRAPH)
_VERSION = re.compile(r"(?P<graph>.+)_(?P<slice>\d+)_\d{19,}", re.ASCII)
_TEMPORARY = re.compile(r"\..+\.tmp\.\d+\.[0-9a-f]+")
BROKEN, STALE, ORPHAN = "jit-broken", "jit-stale", "jit-orphan"
UNREADABLE = "io-error"  # they may be whole
NO_ENTRY, NO_GUARD, OTHER_SLICE = "it has no entry", "its entry has no guard", "its entry is of another slice"
OTHER_TOOL = "its entry was made with other options, or by another version of gecli"
NEVER_TAKEN = (NO_ENTRY, NO_GUARD, OTHER_SLICE)


@dataclass(slots=True)
class Slicing:
    """The slices of one graph. `versions` are the keys that each slice lists, in order; `sizes` the bytes of folders.

    `usable` are the keys of the slices that can go on being used once damaged lists are written anew; `unfit` are
    listed versions, each with the reason why no run takes it. `files` are those of a cache, by their names below
    `home`, and `strays` all others.
    """

    key: str
    home: str
    problems: tuple[str, ...] = ()
    fault: str = ""
    versions: list[list[str]] = field(default_factory=list)
    usable: list[list[str]] = field(default_factory=list)
    unfit: dict[str, str] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    other_bytes: int = 0
    created_s: float = 0.0
    changed_s: float = 0.0
    files: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    temporaries: list[tuple[str, float, int]] = field(default_factory=list)  # path, time, bytes
    facts: Facts | None = None
    is_busy: bool = False

    @property
    def size_bytes(self) -> int:
        return self.other_bytes + sum(self.sizes.values())

    @property
    def listed(self) -> set[str]:
        return {version for versions in self.versions for version in versions}

    def bytes_from(self, slice_id: int) -> int:
        """What goes when the slices from this one on go."""
        if slice_id == 0:
            return self.size_bytes
        return sum(size for number, size in self.sizes.items() if number >= slice_id)


def user_keys(directory: str) -> list[str]:
    """The graph keys whose slices are kept."""
    try:
        names = sorted(os.listdir(hierarchies(directory)))
    except OSError:
        return []
    return [name for name in names if is_graph_key(name) and os.path.isdir(os.path.join(hierarchies(directory), name))]


def why_unlisted(directory: str) -> str:
    """The system's reason why nobody knows which slices there are; empty when they can be listed, or there are none."""
    try:
        os.listdir(hierarchies(directory))
    except OSError as error:
        return io_fault(error)
    return ""


def hierarchies(directory: str) -> str:
    return os.path.join(jit_dir(directory), HIERARCHY)


def slicings(directory: str) -> dict[str, Slicing]:
    """The slices of every graph key, at a glance."""
    return {key: slicing(directory, key) for key in user_keys(directory)}


def slicing(directory: str, key: str, *, full: bool = False) -> Slicing:
    """What is there for a graph key; with `full` the graphs are hashed."""
    found = Slicing(key, os.path.join(hierarchies(directory), key))
    _measure(found)
    files = OnDisk(found.home, StatIndex(trusting=False) if full else None)
    state = believed(files, key)
    if state.reason in ("jit_foreign", "no_entry"):
        found.versions = _lists(files, key)
        found.usable = found.versions
        found.problems = ("foreign",) if state.reason == "jit_foreign" else (ORPHAN,)
        found.is_busy = is_busy(jit_dir(directory), key)
        return found
    found.versions = [list(each.versions) for each in state.slices]
    found.fault = state.evidence
    kept, found.facts = repaired_slices(directory, key, files)
    found.usable = [list(each.versions) for each in kept]
    if found.facts is not None:
        _judge_versions(directory, found, state.slices)
    dead = sorted(version for version, why in found.unfit.items() if why in NEVER_TAKEN)
    if not found.fault and dead:
        found.fault = f"version {dead[0]} is listed, but {found.unfit[dead[0]]}"
    if found.fault and (unreadable := _unreadable(found)):
        found.fault, found.problems = unreadable, (UNREADABLE,)
    elif found.fault:
        found.problems = (BROKEN,)
    elif found.unfit and set(found.unfit) == found.listed:
        found.problems = (STALE,)
    found.is_busy = is_busy(jit_dir(directory), key)
    return found


def _unreadable(found: Slicing) -> str:
    """The first file of slices that may be whole but cannot be read, and why; empty without one."""
    folders: list[str] = []
    with suppress(OSError):
        folders = sorted(name for name in os.listdir(found.home) if name.isdecimal())
    for name in [*OF_HIERARCHY, *(f"{folder}/{each}" for folder in folders for each in OF_SLICE)]:
        try:
            os.close(open_regular(os.path.join(found.home, name)))
        except OSError as error:
            if why := io_fault(error):
                return f"{name}: {why}"
    return ""


def _judge_versions(directory: str, found: Slicing, slices: Iterable[StoredSlice]) -> None:
    assert found.facts is not None
    for each in slices:
        for version in each.versions:
            why = why_unfit(directory, version, each, found.facts)
            if why:
                found.unfit[version] = why


def why_unfit(directory: str, version: str, each: StoredSlice, facts: Facts) -> str:
    """Why no run takes a version that a slice lists; empty when one may, or when its entry is damaged anyway."""
    inside = jit_dir(directory)
    try:
        content = read_index(inside, version)
        records = [record for record in content.records if record.graph_key == version] if content else []
        if not records:
            return NO_ENTRY
        sidecar = read_sidecar(inside, version, records[0].stem)
    except (UnreadableIndex, InvalidSidecar, OSError):
        return ""
    if sidecar is None or sidecar.content.get("guard") is None:
        return NO_GUARD
    made = sidecar.fingerprint
    if made.get("weights") != each.digest:
        return OTHER_SLICE
    tool = sidecar.content.get("created_by")
    version_text = str(tool.get("version")) if isinstance(tool, dict) else ""
    if (made.get("options"), made.get("toolchain")) != (facts.options, facts.toolchain) or version_text != __version__:
        return OTHER_TOOL
    return ""


def repaired_slices(directory: str, key: str, files: OnDisk) -> tuple[list[StoredSlice], Facts | None]:
    """The slices that can go on being used, with the versions that have entries, and what they were made from.

    As long as `gecli_slicing.json` is whole it stands in for damaged lists. None without it.
    """
    try:
        facts, slices = slicing_of(files)
    except (OSError, ValueError):
        return [], None
    kept: list[StoredSlice] = []
    for each, fault in chained(files, facts, slices[: _count(files, key, len(slices))]):
        if fault:
            break
        try:
            listed = listed_versions_of(files, each.id)
        except (OSError, ValueError):
            listed = list(each.versions)
        hits = each.versions
        each.versions = {
            version: hits.get(version, 0)
            for version in listed
            if is_graph_key(version) and why_unfit(directory, version, each, facts) not in NEVER_TAKEN
        }
        if not each.versions:
            break
        kept.append(each)
    return kept, facts


def _count(files: OnDisk, key: str, otherwise: int) -> int:
    """How many slices the commit point names; all when it cannot be read."""
    try:
        return len(listed_ids(files, key))
    except (OSError, ValueError):
        return otherwise


def _lists(files: OnDisk, key: str) -> list[list[str]]:
    """The versions that GE's files name, as far as they can be read."""
    found = []
    try:
        for number in listed_ids(files, key):
            found.append(listed_versions_of(files, number))
    except (OSError, ValueError):
        return found
    return found


def _measure(found: Slicing) -> None:
    """Sizes, times and names of everything below the directory."""
    times = []
    for path, status in tree_files(found.home):
        name = os.path.relpath(path, found.home)
        folder, _, base = name.rpartition("/")
        is_folder = folder.isdecimal() and folder.isascii() and len(folder) < 10
        if _TEMPORARY.fullmatch(base) and (is_folder or not folder):
            found.temporaries.append((path, status.st_mtime, status.st_size))
            continue
        if not (base in OF_SLICE if is_folder else not folder and base in OF_HIERARCHY):
            found.strays.append(name)
            continue
        found.files.append(name)
        times.append(status.st_mtime)
        if folder:
            number = int(folder)
            found.sizes[number] = found.sizes.get(number, 0) + status.st_size
        else:
            found.other_bytes += status.st_size
    found.created_s, found.changed_s = min(times, default=0.0), max(times, default=0.0)


def graph_of_version(version: str, known: Iterable[str]) -> str:
    """The graph key that a version's key was made from; `known` are those that may have been shortened in it."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return ""
    for key in known:
        if version_key(key, 0, 0) == f"{found['graph']}_0_0":
            return key
    return found["graph"]


def temporary_trees(directory: str) -> list[tuple[str, float]]:
    """Hierarchies that a killed process was removing or making, with the time of their last change."""
    found = []
    folder = hierarchies(directory)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    for name in names:
        path = os.path.join(folder, name)
        if _TEMPORARY.fullmatch(name):
            try:
                found.append((path, os.lstat(path).st_mtime))
            except OSError:
                continue
    return found
