"""What differs between an entry and a compile, with both values: --explain-cache, `gecli cache why` (cache.md 12.6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gecli.cache.fingerprint import Fingerprint
    from gecli.cache.sidecar import Sidecar

MAX_SHOWN = 10  # nodes, weights
NOTHING = "-"
# What an OM holds besides the result of its options: another output name is another OM.
IN_THE_OM = {
    "model_name": " (the OM holds the name of its output file)",
    "source_name": " (the OM holds the name of its source file)",
}


def components_of(digest: Fingerprint) -> dict[str, Any]:
    """What a sidecar keeps, so that a later miss can be explained."""
    graph: dict[str, Any] = {"nodes": digest.node_count, "edges": digest.edge_count, "ports": dict(digest.ports)}
    if digest.nodes:
        graph["nodes_fp"] = dict(digest.nodes)
    found: dict[str, Any] = {"options": dict(digest.items), "toolchain": dict(digest.tools), "graph": graph}
    if digest.weights_fp:
        found["weights_fp"] = dict(digest.weights_fp)
    return found


def differences(sidecar: Sidecar, digest: Fingerprint) -> list[str]:
    """Tools, options, inputs and outputs, nodes and weights in which a compile differs from an entry."""
    stored = _object(sidecar.content.get("components"))
    graph = _object(stored.get("graph"))
    lines = [
        *_values("toolchain", _object(stored.get("toolchain")), digest.tools),
        *_values("option", _object(stored.get("options")), digest.items),
        *_values("graph", _object(graph.get("ports")), digest.ports),
    ]
    lines += _names("node", _object(graph.get("nodes_fp")), digest.nodes)
    lines += _names("weight", _object(stored.get("weights_fp")), digest.weights_fp)
    return lines


def _values(what: str, old: Mapping[str, Any], new: Mapping[str, str]) -> Iterator[str]:
    """Values that differ. An entry that does not say any is one of another version: nothing can be said."""
    for name in sorted(old.keys() | new.keys()) if old else ():
        before, now = old.get(name), new.get(name)
        if before != now:
            shown = [NOTHING if each is None else repr(each) for each in (before, now)]
            yield f"{what} {name}: {shown[0]} in the entry, {shown[1]} now{IN_THE_OM.get(name, '')}"


def _names(what: str, old: Mapping[str, Any], new: Mapping[str, str]) -> list[str]:
    """The first names that are only on one side or have another digest."""
    if not old or not new:
        return []  # too many to be kept
    changes = [f"{what} {name}: only now" for name in new if name not in old]
    changes += [f"{what} {name}: only in the entry" for name in old if name not in new]
    changes += [
        f"{what} {name}: {old[name]} in the entry, {digest} now" for name, digest in new.items()
        if name in old and old[name] != digest
    ]  # fmt: skip
    more = len(changes) - MAX_SHOWN
    return [*changes[:MAX_SHOWN], f"and {more} more {what}s"] if more > 0 else changes


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
