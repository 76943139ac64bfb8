"""The files that say how a graph was cut: their texts, and what in them can be believed (cache.md 9.2, 9.3, 9.9).

`gecli_slicing.json` holds a digest of itself, and the digests of the graphs beside it: a damaged file is a miss with a
reason, never another graph.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, Protocol

from gecli.cache.digest import digest_of_json, digest_of_large_json
from gecli.cache.graph_key import is_graph_key
from gecli.cache.stat_index import StatIndex
from gecli.json_text import parse_json
from gecli.records import dataclass
from gecli.wire.regular_file import read_regular

SCHEMA = 1
JIT, HIERARCHY = "jit", "slicing_hierarchy"
SLICING, RESULT, VERSIONS = "gecli_slicing.json", "slicing_result.json", "gep_list.json"
SLICE_GRAPH, REST_GRAPH = "slice_graph.pb", "rem_graph.pb"
MAX_BYTES = 1 << 26
LARGE_BYTES = 1 << 20
MAX_VERSIONS = 10  # compiled versions of one slice (GE: kMaxGuardedExecutionPoints)
MAX_KEY = 128
NAME_LENGTH = 40
USER_GRAPH_ID = 0  # informative in GE, whose ids differ from process to process


class Facts(NamedTuple):
    """What the whole hierarchy was made from: digests of graph, tools and options."""

    graph: str
    toolchain: str
    options: str


@dataclass(slots=True)
class StoredSlice:
    """One slice as the files have it. `versions` are the keys of its compiled versions with their recorded hits."""

    id: int
    parent: str
    digest: str
    rest: str | None
    outputs: list[tuple[str, int]]
    io_map: list[tuple[int, int]]
    reasons: list[tuple[str, str]]
    formats: list[str]
    pb_sha256: str
    rest_pb_sha256: str | None
    versions: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "parent_fp": self.parent,
            "slice_fp": self.digest,
            "remaining_fp": self.rest,
            "outputs": [list(each) for each in self.outputs],
            "io_map": [list(each) for each in self.io_map],
            "cut_reason": [{"node": node, "reason": reason} for node, reason in self.reasons],
            "input_formats": list(self.formats),
            "pb_sha256": self.pb_sha256,
            "rem_pb_sha256": self.rest_pb_sha256,
            "hits": dict(self.versions),
        }

    @staticmethod
    def of(content: Mapping[str, Any]) -> StoredSlice:
        """Raises KeyError, TypeError and ValueError for content of another form."""
        return StoredSlice(
            int(content["id"]),
            str(content["parent_fp"]),
            str(content["slice_fp"]),
            _text_or_none(content["remaining_fp"]),
            [(str(name), int(index)) for name, index in content["outputs"]],
            [(int(source), int(target)) for source, target in content["io_map"]],
            [(str(each["node"]), str(each["reason"])) for each in content["cut_reason"]],
            [str(name) for name in content["input_formats"]],
            str(content["pb_sha256"]),
            _text_or_none(content["rem_pb_sha256"]),
            {str(key): int(hits) for key, hits in content["hits"].items()},
        )


class Restored(NamedTuple):
    """The longest prefix of slices that can be believed, and the reason code and evidence of what cannot."""

    slices: list[StoredSlice]
    reason: str = ""
    evidence: str = ""

    def __str__(self) -> str:
        return f"{self.reason} ({self.evidence})" if self.evidence else self.reason


def jit_dir(directory: str) -> str:
    return os.path.join(directory, JIT)


def hierarchy_dir(directory: str, key: str) -> str:
    """The directory of a user graph."""
    return os.path.join(directory, JIT, HIERARCHY, key)


def version_key(user_key: str, slice_id: int, ns: int) -> str:
    """The cache key of a compiled version; a long user key is shortened, because GE's limit holds for the whole."""
    tail = f"_{slice_id}_{ns}"
    if len(user_key) + len(tail) <= MAX_KEY:
        return user_key + tail
    import hashlib

    short = hashlib.sha256(user_key.encode()).hexdigest()[:16]
    return f"{user_key[:NAME_LENGTH]}-{short}{tail}"


def slicing_text(slices: list[StoredSlice], facts: Facts) -> str:
    """`gecli_slicing.json`."""
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "graph_fp": facts.graph,
        "toolchain_fp": facts.toolchain,
        "options_fp": facts.options,
        "slices": [each.as_json() for each in slices],
    }
    return ge_text({**content, "self_fp": digest_of_json(content)})


def result_text(slices: list[StoredSlice], key: str) -> str:
    """`slicing_result.json`, as GE writes it."""
    rows = [{"slice_graph_id": each.id} for each in slices]
    return ge_text({"slice_graph_list": rows, "user_graph_id": USER_GRAPH_ID, "user_graph_key": key})


def versions_text(each: StoredSlice) -> str:
    """`gep_list.json`, as GE writes it."""
    return ge_text({"gep_list": [{"gep_graph_key": key} for key in each.versions]})


def ge_text(content: Any) -> str:
    """JSON as GE's library prints it: indent 4, sorted keys, no newline at the end."""
    return json.dumps(content, indent=4, sort_keys=True, ensure_ascii=False)


class HierarchyFiles(Protocol):
    """Where the files of a user graph are read from, by their names below its directory."""

    def data(self, name: str) -> bytes:
        """Raises OSError, ValueError."""

    def fault(self, name: str, sha256: str) -> str:
        """Why a graph is not the one with this digest; empty when it is."""

    def names_result(self) -> bool:
        """Whether there is a `slicing_result.json`."""


class OnDisk:
    """The files in a cache directory; without `stats` graphs only have to be there."""

    def __init__(self, home: str, stats: StatIndex | None) -> None:
        self.home = home
        self.stats = stats

    def data(self, name: str) -> bytes:
        return read_regular(os.path.join(self.home, name), MAX_BYTES)

    def fault(self, name: str, sha256: str) -> str:
        path = os.path.join(self.home, name)
        try:
            if self.stats is None:
                status = os.stat(path)
                return "" if stat.S_ISREG(status.st_mode) and status.st_size else f"{name}: it is no file with content"
            is_right = self.stats.sha256(path) == sha256
        except OSError as error:
            return f"{name}: {error.strerror or error}"
        return "" if is_right else f"{name}: the sha256 is not that of {SLICING}"

    def names_result(self) -> bool:
        return os.path.exists(os.path.join(self.home, RESULT))


def restore(directory: str, key: str, facts: Facts, stats: StatIndex) -> Restored:
    """What the files of a user graph say, as far as they belong to `facts` and are whole. Reads only."""
    home = hierarchy_dir(directory, key)
    found = believed(OnDisk(home, stats), key, facts)
    if found.reason != "no_entry":
        return found
    try:
        is_flat = not os.path.isdir(home) and read_object(os.path.join(jit_dir(directory), RESULT))
    except (OSError, ValueError):
        is_flat = False
    if is_flat and is_flat.get("user_graph_key") == key:
        return Restored([], "jit_foreign", f"{JIT}/{RESULT}")
    return found


def believed(files: HierarchyFiles, key: str, facts: Facts | None = None) -> Restored:
    """The longest prefix of slices that can be believed, whoever asks, or as far as they belong to `facts`."""
    try:
        found, slices = slicing_of(files)
    except FileNotFoundError:
        return Restored([], "jit_foreign", RESULT) if files.names_result() else Restored([], "no_entry")
    except OSError as error:
        return Restored([], "io_error", f"{SLICING}: {error.strerror or error}")
    except ValueError as error:
        return Restored([], "jit_corrupt", f"{SLICING}: {error}")
    if facts is not None and found != facts:
        names = [name for name, old, new in zip(Facts._fields, found, facts) if old != new]
        return Restored([], "jit_stale", f"different: {', '.join(names)}")
    try:
        count = len(listed_ids(files, key))
    except (OSError, ValueError) as error:
        return Restored([], "jit_corrupt", f"{RESULT}: {getattr(error, 'strerror', None) or error}")
    kept: list[StoredSlice] = []
    for each, fault in chained(files, found, slices[:count]):
        if fault:
            return Restored(kept, "jit_corrupt", fault)
        try:
            keys = listed_versions_of(files, each.id)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            return Restored(kept, "jit_corrupt", f"{each.id}/{VERSIONS}: {why}")
        each.versions = {version: each.versions.get(version, 0) for version in keys}
        kept.append(each)
    return Restored(kept)


def slicing_of(files: HierarchyFiles) -> tuple[Facts, list[StoredSlice]]:
    """What `gecli_slicing.json` holds, its own digest checked. Raises OSError, ValueError."""
    data = files.data(SLICING)
    digest_of = digest_of_json if len(data) <= LARGE_BYTES else digest_of_large_json
    content = _object(data)
    del data
    digest = content.pop("self_fp", None)
    if content.get("schema") != SCHEMA or digest != digest_of(content):
        raise ValueError("its digest is not that of its content")
    facts = Facts(*(str(content.get(name)) for name in ("graph_fp", "toolchain_fp", "options_fp")))
    try:
        return facts, [StoredSlice.of(each) for each in content["slices"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error


def chained(files: HierarchyFiles, facts: Facts, slices: Sequence[StoredSlice]) -> Iterator[tuple[StoredSlice, str]]:
    """Each slice with what is wrong with its place or its graphs, to the first fault; empty for one that is right."""
    parent: str | None = facts.graph
    for position, each in enumerate(slices):
        if each.id != position or parent is None or each.parent != parent:
            fault = f"slice {position} does not follow the one before"
        else:
            fault = _fault_of_graphs(files, each)
        yield each, fault
        if fault:
            return
        parent = each.rest


def listed_ids(files: HierarchyFiles, key: str) -> list[int]:
    """The slices that the commit point names. Raises ValueError, OSError."""
    content = _object(files.data(RESULT))
    rows = content.get("slice_graph_list")
    if content.get("user_graph_key") != key or not isinstance(rows, list) or not rows:
        raise ValueError("it is not that of this graph key")
    ids = [row.get("slice_graph_id") if isinstance(row, dict) else None for row in rows]
    if ids != list(range(len(ids))):
        raise ValueError("the slices are not numbered from 0")
    return [int(each) for each in ids if each is not None]


def listed_versions_of(files: HierarchyFiles, slice_id: int) -> list[str]:
    """The keys that the list of a slice names. Raises OSError, ValueError."""
    content = _object(files.data(f"{slice_id}/{VERSIONS}"))
    rows = content.get("gep_list")
    rows = rows if isinstance(rows, list) else []
    keys = [row.get("gep_graph_key") if isinstance(row, dict) else None for row in rows]
    if not keys or not all(isinstance(key, str) and is_graph_key(key) for key in keys):
        raise ValueError("it lists no compiled versions")
    return [str(key) for key in keys]


def _fault_of_graphs(files: HierarchyFiles, each: StoredSlice) -> str:
    """What is wrong with the graphs of a slice; empty when they are those that were written."""
    if (each.rest is None) != (each.rest_pb_sha256 is None):
        return f"slice {each.id}: the rest has no graph"
    wanted = {SLICE_GRAPH: each.pb_sha256, REST_GRAPH: each.rest_pb_sha256}
    faults = (files.fault(f"{each.id}/{name}", digest) for name, digest in wanted.items() if digest is not None)
    return next((fault for fault in faults if fault), "")


def read_object(path: str) -> dict[str, Any]:
    """Raises OSError, ValueError."""
    return _object(read_regular(path, MAX_BYTES))


def _object(data: bytes) -> dict[str, Any]:
    try:
        content = parse_json(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
    return content


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)
