"""What differs between an entry and a compile, with both values: --explain-cache, `gecli cache why` (cache.md 12.6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gecli.cache.fingerprint import Fingerprint
    from gecli.cache.sidecar import Sidecar

MAX_SHOWN = 10  # nodes, weights
MAX_NAMED = 3  # nodes, where an option accounts for them
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
    """Options, tools, inputs and outputs, nodes and weights in which a compile differs from an entry."""
    stored = _object(sidecar.content.get("components"))
    graph, options = _object(stored.get("graph")), _object(stored.get("options"))
    nodes = _changes(_object(graph.get("nodes_fp")), digest.nodes)
    # Most options change nodes, such as all of them with another input shape: then the options are the answer.
    names = (options.keys() | digest.items.keys()) - IN_THE_OM.keys()
    is_told = bool(options) and any(options.get(name) != digest.items.get(name) for name in names)
    return [
        *_values("option", options, digest.items),
        *_values("toolchain", _object(stored.get("toolchain")), digest.tools),
        *_values("graph", _object(graph.get("ports")), digest.ports),
        *(_counted(nodes) if is_told else _listed("node", nodes)),
        *_weights(_object(stored.get("weights_fp")), digest.weights_fp),
    ]


def _values(what: str, old: Mapping[str, Any], new: Mapping[str, str]) -> Iterator[str]:
    """Values that differ. An entry that does not say any is one of another version: nothing can be said."""
    for name in sorted(old.keys() | new.keys()) if old else ():
        before, now = old.get(name), new.get(name)
        if before != now:
            shown = [NOTHING if each is None else repr(each) for each in (before, now)]
            yield f"{what} {name}: {shown[0]} in the entry, {shown[1]} now{IN_THE_OM.get(name, '')}"


def _changes(old: Mapping[str, Any], new: Mapping[str, str]) -> list[tuple[str, str]]:
    """The names that are only on one side or have another digest, and how they differ."""
    if not old or not new:
        return []  # too many to be kept
    changes = [(name, "only now") for name in new if name not in old]
    changes += [(name, "only in the entry") for name in old if name not in new]
    return changes + [(name, "changed") for name, digest in new.items() if name in old and old[name] != digest]


def _weights(old: Mapping[str, Any], new: Mapping[str, str]) -> list[str]:
    values = {name: f"{old[name]} in the entry, {new[name]} now" for name in old.keys() & new.keys()}
    return _listed("weight", [(name, values.get(name, how)) for name, how in _changes(old, new)])


def _listed(what: str, changes: list[tuple[str, str]]) -> list[str]:
    more = len(changes) - MAX_SHOWN
    lines = [f"{what} {name}: {how}" for name, how in changes[:MAX_SHOWN]]
    return [*lines, f"and {more} more {what}s"] if more > 0 else lines


def _counted(changes: list[tuple[str, str]]) -> list[str]:
    if not changes:
        return []
    more = len(changes) - MAX_NAMED
    names = ", ".join(name for name, _ in changes[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
    return [f"{'1 node differs' if len(changes) == 1 else f'{len(changes)} nodes differ'}: {names}"]


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
