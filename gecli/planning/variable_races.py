"""Readers and writers of one variable that nothing orders (runtime.md 5.6, RT_RW_RACE)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from gecli.errors import Diagnostic
from gecli.ir.attributes import INSERTED_BY_GE
from gecli.ir.op_desc import OpDesc

# What the compile inserts: the operators of roads, named by the engine or marked by the passes.
_CONVERSIONS = frozenset(
    ("TransData", "Transpose", "TransposeD", "Reshape", "ReFormat", "Cast", "SqueezeV2", "UnsqueezeV2")
)
_NAME = re.compile(r"trans_[A-Za-z0-9]+_\d+")

Accesses = Mapping[OpDesc, Collection[str]]  # the variables that a node reads, or those that it writes


class Race(NamedTuple):
    """Two nodes, in the order in which they run, of which one or both write a variable. No path joins them."""

    variable: str
    first: OpDesc
    second: OpDesc
    first_writes: bool
    second_writes: bool


def find_races(nodes: Sequence[OpDesc], reads: Accesses, writes: Accesses) -> list[Race]:
    """The races among `nodes`, which are given in the order in which they run, by variable and position.

    Costs one pass over the nodes, and nothing when no variable is written.
    """
    written = {name for names in writes.values() for name in names}
    if not written:
        return []
    users: dict[str, list[OpDesc]] = {}
    for node in nodes:
        for name in sorted({*reads.get(node, ()), *writes.get(node, ())} & written):
            users.setdefault(name, []).append(node)
    contested = {name: each for name, each in users.items() if len(each) > 1}
    if not contested:
        return []
    found = _found(nodes, contested, writes)
    return sorted(found, key=lambda race: race.variable)  # of one variable as they run


def _found(nodes: Sequence[OpDesc], contested: Mapping[str, list[OpDesc]], writes: Accesses) -> list[Race]:
    """For each node a set, as bits, of the marked nodes that surely run before it.

    A set goes with the last node that needs it, so that few are held at a time.
    """
    of_node: dict[OpDesc, list[str]] = {}
    for name, each in contested.items():
        for node in each:
            of_node.setdefault(node, []).append(name)
    needed = Counter(before for node in nodes for before in _predecessors(node))
    bits: dict[OpDesc, int] = {}
    masks: dict[OpDesc, int] = {}
    seen = _Seen()
    races: list[Race] = []
    for node in nodes:
        mask = 0
        for before in _predecessors(node):
            mask |= masks.get(before, 0)
            needed[before] -= 1
            if not needed[before]:
                masks.pop(before, None)
        for name in of_node.get(node, ()):
            is_write = name in writes.get(node, ())
            for other in seen.rivals(name, is_write):
                if not mask & bits[other]:
                    races.append(Race(name, other, node, name in writes.get(other, ()), is_write))
            seen.add(name, node, is_write)
        if node in of_node:
            bits[node] = 1 << len(bits)
            mask |= bits[node]
        if needed[node]:
            masks[node] = mask
    return races


class _Seen:
    """The readers and writers of each variable so far."""

    def __init__(self) -> None:
        self._all: dict[str, list[OpDesc]] = {}
        self._writers: dict[str, list[OpDesc]] = {}

    def rivals(self, name: str, is_write: bool) -> Sequence[OpDesc]:
        """Who must be ordered before the next one: two readers need no order."""
        return (self._all if is_write else self._writers).get(name, ())

    def add(self, name: str, node: OpDesc, is_write: bool) -> None:
        self._all.setdefault(name, []).append(node)
        if is_write:
            self._writers.setdefault(name, []).append(node)


def _predecessors(node: OpDesc) -> Iterable[OpDesc]:
    yield from (port.node for port in node.inputs if port is not None)
    yield from node.control_in


def race_warnings(races: Iterable[Race], where: str) -> list[Diagnostic]:
    """One warning for each node that writes a variable in no order with others; `where` names graph or file."""
    pairs: dict[tuple[str, OpDesc], list[Race]] = {}
    for race in races:
        writer = race.second if race.second_writes else race.first
        pairs.setdefault((race.variable, writer), []).append(race)
    return [_warning(where, name, writer, each) for (name, writer), each in pairs.items()]


def _is_inserted(node: OpDesc) -> bool:
    return node.type in _CONVERSIONS and (
        bool(node.attrs.get(INSERTED_BY_GE)) or _NAME.fullmatch(node.name) is not None
    )


def _shown(race: Race, node: OpDesc) -> OpDesc:
    """The node of the user's graph that stands for one side of a race."""
    is_write = race.first_writes if node is race.first else race.second_writes
    return _before(node) if is_write else _behind(node)


def _behind(node: OpDesc) -> OpDesc:
    """The first node behind inserted conversions; what they convert when they are for an output of the graph."""
    while _is_inserted(node):
        after = [use.node for users in node.users for use in users]
        further = next((each for each in after if each.type != "NetOutput"), None)
        if further is None:
            return _before(node)
        node = further
    return node


def _before(node: OpDesc) -> OpDesc:
    """The node whose result inserted conversions bring into the variable."""
    while _is_inserted(node) and node.inputs and node.inputs[0] is not None:
        node = node.inputs[0].node
    return node


def _warning(where: str, variable: str, writer: OpDesc, races: Sequence[Race]) -> Diagnostic:
    """In the words of the user: for a conversion that gecli put in stands the node that it is for."""
    others = list(dict.fromkeys(_shown(race, race.first if race.second is writer else race.second) for race in races))
    writer = _before(writer)
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    before, behind = (_shown(races[0], each) for each in (races[0].first, races[0].second))
    return Diagnostic(
        "G4012",
        f"nothing orders {writer.name!r}, which writes variable {variable!r}, and {others[0].name!r}{more}",
        kind="RT_RW_RACE",
        where=f"{where}, node {writer.name} ({writer.type})",
        why=f"no path of data or control edges joins them; {before.name!r} runs before {behind.name!r} here",
        do=f"add a control edge between {others[0].name!r} and {writer.name!r}",
        severity="warning",
        node=writer.name,
        actual=[each.name for each in others],
    )
