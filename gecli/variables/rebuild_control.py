"""Which graphs of a session must be compiled again (GE: GraphRebuildStateCtrl)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gecli.ir.graph import Graph

MAX_FORMAT_CHANGES = 1  # GE: kMaxVarChangeTimes_
RESOURCE_TYPES = frozenset(("Variable", "VariableV2", "VarHandleOp"))


class RebuildControl:
    """The variables each graph uses, the graphs that are stale, and how often each variable changed its format.

    A variable may change once a session, so it can make each other graph stale at most once.
    """

    __slots__ = ("_built", "_changes", "_names", "_resources", "_stale")

    def __init__(self) -> None:
        self._names: dict[int, frozenset[str]] = {}
        self._resources: dict[int, set[str]] = {}  # names that came one by one
        self._stale: frozenset[int] = frozenset()
        self._built: frozenset[int] = frozenset()
        self._changes: dict[str, int] = {}

    def add_graph(self, graph_id: int, graph: Graph) -> None:
        """Replace the names of a graph by those of its variable nodes, subgraphs included; a stale mark stays."""
        self.add_graph_names(
            graph_id, (n.name for g in graph.all_graphs() for n in g.nodes_of(*sorted(RESOURCE_TYPES)))
        )

    def add_graph_names(self, graph_id: int, names: Iterable[str]) -> None:
        """As `add_graph`, for a graph that is known by its variables only (a cached one)."""
        self._names[graph_id] = frozenset(names)
        self._resources.pop(graph_id, None)

    def remove_graph(self, graph_id: int) -> None:
        """Forget a graph; the change counts of its variables stay."""
        self._names.pop(graph_id, None)
        self._resources.pop(graph_id, None)
        self._stale -= {graph_id}
        self._built -= {graph_id}

    def add_resource_name(self, graph_id: int, name: str) -> None:
        self._resources.setdefault(graph_id, set()).add(name)

    def state_changed(self, name: str) -> None:
        """Count a format change; every graph with this variable becomes stale, the one being compiled included."""
        self._changes[name] = self.changes(name) + 1
        self._stale = self._stale.union(self.users(name))

    def build_end(self, graph_id: int) -> None:
        """Called when a compile succeeded; GE marks a graph as built even when its compile failed."""
        self._stale -= {graph_id}
        self._built |= {graph_id}

    def needs_build(self, graph_id: int) -> bool:
        """True for a graph that was never built or is stale, and for an unknown one."""
        return graph_id not in self._built or graph_id in self._stale

    def is_stale(self, graph_id: int) -> bool:
        return graph_id in self._stale

    @property
    def stale_graphs(self) -> tuple[int, ...]:
        return tuple(sorted(self._stale))

    def users(self, name: str) -> tuple[int, ...]:
        """The graphs that use a variable."""
        found = {
            graph_id for each in (self._names, self._resources) for graph_id, names in each.items() if name in names
        }
        return tuple(sorted(found))

    def changes(self, name: str) -> int:
        return self._changes.get(name, 0)

    def permits_change(self, name: str) -> bool:
        """True while the variable's one format change is not used up."""
        return self.changes(name) < MAX_FORMAT_CHANGES

    def snapshot(self) -> RebuildControl:
        """A copy for `restore`."""
        other = RebuildControl()
        other.restore(self)
        return other

    def restore(self, snapshot: RebuildControl) -> None:
        """Return to the state of `snapshot`."""
        self._names = dict(snapshot._names)
        self._resources = {graph_id: set(names) for graph_id, names in snapshot._resources.items()}
        self._stale = snapshot._stale
        self._built = snapshot._built
        self._changes = dict(snapshot._changes)
