"""Compiling the graphs of a session: shared variables, recompilation of stale graphs (variables.md 9, 15.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from gecli.compiler.graph_compiler import CompiledGraph, compile_graph
from gecli.errors import CompileError, Diagnostic, GecliError, InvalidOption
from gecli.ir.graph import Graph
from gecli.layout.platform import Platform
from gecli.passes.base import CompileSettings
from gecli.passes.pipeline import Instrument, enabled
from gecli.passes.variable_casts import NO_CASTS, Casts, casts_of, casts_of_others
from gecli.passes.variable_op import VariableOp
from gecli.records import dataclass
from gecli.variables import var_faults
from gecli.variables.limits import MemoryLimits
from gecli.variables.rebuild_control import RESOURCE_TYPES, RebuildControl
from gecli.variables.var_manager import VarManager

if TYPE_CHECKING:
    from gecli.compiler.readdressing import Readdressed
    from gecli.planning.external_weights import ExternalWeight

SHAPE_FAULT = "G2001"
SHOWN_NAMES = 3


@dataclass(slots=True)
class Member:
    """A graph of the session: as it was loaded, and its last compile."""

    graph: Graph
    graph_id: int
    compiled: CompiledGraph | None = None
    taken: Readdressed | None = None  # from the cache, instead of a compile
    compile_count: int = 0
    overrides: tuple[Diagnostic, ...] = ()  # fixed dimensions of inputs that options replaced
    events: list[dict[str, Any]] = field(default_factory=list)  # who made whom stale, as records of a pass
    earlier: list[list[dict[str, Any]]] = field(default_factory=list)  # what passes said of variables when it got stale
    stem: str = ""  # names its file of external weights

    @property
    def is_built(self) -> bool:
        return self.compiled is not None or self.taken is not None


class EntrySource(Protocol):
    """A cache behind a session."""

    def take(self, session: Session, member: Member) -> Readdressed | None:
        """An entry for the session's present state, which is then as after a compile; None for a miss."""

    def keep(self, session: Session, member: Member) -> None:
        """Store what was just compiled."""


@dataclass(slots=True)
class Session:
    """Graphs that share variables. Every graph is compiled from a copy, never from a half-optimised one.

    A graph that changes how a variable is stored makes the graphs compiled before it stale; `compile_all` compiles
    those again. A variable changes at most once, so this ends.
    """

    platform: Platform
    settings: CompileSettings
    limits: MemoryLimits = field(default_factory=MemoryLimits)
    reuse: bool = True
    allow_rebuild: bool = True
    instruments: Sequence[Instrument] = ()
    stop_after: str | None = None
    external_weight: int = 0  # ge.externalWeight
    manager: VarManager = None  # type: ignore[assignment]  # made in __post_init__ from the fields above
    rebuild: RebuildControl = field(default_factory=RebuildControl)
    members: list[Member] = field(default_factory=list)
    first_graph_id: int = 1
    source: EntrySource | None = None
    _casts: list[Casts] = field(default_factory=list)  # that the members other than each make; empty: not known yet

    def __post_init__(self) -> None:
        if self.manager is None:
            self.manager = VarManager(0, self.limits, padding_bytes=self.platform.padding_bytes)

    def add(self, graph: Graph, overrides: tuple[Diagnostic, ...] = (), *, stem: str = "") -> Member:
        """Add a loaded graph; ids count in the order of adding. A compile that fails is blamed on `overrides`."""
        member = Member(graph, self.first_graph_id + len(self.members), overrides=overrides, stem=stem)
        self.rebuild.add_graph(member.graph_id, graph)
        self.members.append(member)
        self._casts = []
        return member

    def compile_all(
        self, on_stage: Callable[[str, str], None] | None = None, *, keep_going: bool = False
    ) -> list[GecliError]:
        """Compile every member, and again those that became stale. Raises CompileError and InputError.

        With `allow_rebuild` off, a stale graph is an error (G2005). With `keep_going` the errors of graphs are
        returned; these graphs and the session are of no use then.
        """
        failed: list[GecliError] = []
        queue = list(self.members)
        limit, runs = self._most_compiles(), 0
        while queue:
            member = queue.pop(0)
            runs += 1
            assert runs <= limit, "a session must need a bounded number of compiles"
            counts = {name: self.rebuild.changes(name) for name in _variables_of(member)}
            try:
                self._build(member, on_stage)
            except GecliError as error:
                if not keep_going:
                    raise
                failed.append(error)
                continue
            changed = [name for name, count in counts.items() if self.rebuild.changes(name) > count]
            self._record_changes(member, changed)
            for other in self.members:
                stale = other.is_built and self.rebuild.is_stale(other.graph_id)
                if not stale or other in queue:
                    continue
                if not self.allow_rebuild:
                    raise _stale(other, member, changed)
                queue.append(other)
        return failed

    def accelerates(self, member: Member) -> bool:
        """Whether the compile of a member runs variable acceleration."""
        return not member.graph.is_optimised and self.settings.variable_acc and enabled(VariableOp, self.settings)

    def _most_compiles(self) -> int:
        """variables.md 9.2: every graph once, and again for each variable of it that another one may change."""
        users = Counter(name for member in self.members for name in _variables_of(member))
        return len(self.members) + sum(count - 1 for count in users.values())

    def _record_changes(self, member: Member, names: Sequence[str]) -> None:
        """Say who made whom stale, for --explain-variable."""
        for name in names:
            users = self.rebuild.users(name)
            stale = [each for each in self.members if each is not member and each.is_built and each.graph_id in users]
            if stale:
                graphs = [each.graph.name for each in stale]
                member.events.append(_event("made stale", name, graphs=graphs))
            for each in stale:
                each.events.append(_event("stale", name, by=member.graph.name))

    def _build(self, member: Member, on_stage: Callable[[str, str], None] | None) -> None:
        """Take a member from the cache, or compile and keep it."""
        if self.source is None:
            self.compile(member, on_stage)
            return
        member.taken = self.source.take(self, member)
        if member.taken is not None:
            member.compiled = None
            self.rebuild.build_end(member.graph_id)
            return
        self.compile(member, on_stage)
        self.source.keep(self, member)

    def compile(self, member: Member, on_stage: Callable[[str, str], None] | None = None) -> CompiledGraph:
        """Compile one member against the session's present state. Raises GecliError."""
        try:
            return self._compile(member, on_stage)
        except CompileError as error:
            if error.code != SHAPE_FAULT or not member.overrides:
                raise
            raise _blamed(member.overrides, error) from error

    def _compile(self, member: Member, on_stage: Callable[[str, str], None] | None) -> CompiledGraph:
        self._require_precision(member)
        name, mode = member.graph.name, self.external_weight
        single = len(self.members) == 1
        if member.compiled is not None:
            member.earlier.append([each for each in member.compiled.records if "variable" in each])
        member.compiled = compile_graph(
            member.graph if single else member.graph.copy(),
            manager=self.manager,
            rebuild=self.rebuild,
            platform=self.platform,
            settings=replace(self.settings, casts_of_others=self._casts_beside(member)),
            graph_id=member.graph_id,
            reuse=self.reuse,
            instruments=self.instruments,
            stop_after=self.stop_after,
            on_stage=(lambda stage: on_stage(name, stage)) if on_stage else None,
            externalise=partial(_externalise, mode=mode, stem=member.stem) if mode else None,
        )
        member.compile_count += 1
        self.rebuild.build_end(member.graph_id)
        return member.compiled

    def _require_precision(self, member: Member) -> None:
        """Raises CompileError for a variable that an earlier command stored in a narrower type than a graph needs.

        With a precision mode nobody knows before its compile what a graph casts.
        """
        roads, graph = self.manager.resource.roads, member.graph
        lossy = {name: road for name, road in roads.items() if road.lossy} if roads else {}
        if not lossy or graph.is_optimised or self.settings.precision:
            return
        for name, dtype in sorted(casts_of(graph).items()):
            road = lossy.get(name)
            own = self.manager.resource.changed_graph_id(name) == member.graph_id
            if road is not None and not own and dtype is not road.target.dtype:
                raise var_faults.is_narrower(name, road, graph.name)

    def _casts_beside(self, member: Member) -> Casts:
        """What the other members cast the variables of a member to."""
        if len(self.members) == 1:
            return NO_CASTS  # the graph itself is compiled, not a copy
        self._casts = self._casts or casts_of_others([each.graph for each in self.members])
        return self._casts[self.members.index(member)]


def _externalise(graph: Graph, mode: int, stem: str) -> tuple[ExternalWeight, ...]:
    from gecli.cache.fingerprint import weight_digests
    from gecli.planning.external_weights import externalise

    return externalise(graph, mode, stem, weight_digests)


def _variables_of(member: Member) -> list[str]:
    types = sorted(RESOURCE_TYPES)
    return sorted({node.name for graph in member.graph.all_graphs() for node in graph.nodes_of(*types)})


def _event(event: str, variable: str, **facts: Any) -> dict[str, Any]:
    return {"pass": "session", "event": event, "variable": variable, **facts}


def _blamed(overrides: tuple[Diagnostic, ...], error: CompileError) -> GecliError:
    """The sizes that the user gave instead of the model's are the likely cause, not the node that met them."""
    fault = error.first
    why = f"node {fault.node!r} cannot work with the size given: {fault.reason()}"
    return InvalidOption.of(replace(each, severity="error", why=why, node=fault.node) for each in overrides)


def _stale(member: Member, changer: Member, names: Sequence[str]) -> CompileError:
    used = set(_variables_of(member))
    shown = [repr(name) for name in names if name in used]
    more = f" and {len(shown) - SHOWN_NAMES} more" if len(shown) > SHOWN_NAMES else ""
    return CompileError(
        "G2005",
        f"graph {member.graph.name!r} is stale: {changer.graph.name!r} changed the format of variable"
        f" {', '.join(shown[:SHOWN_NAMES])}{more}, which both use",
        where=f"graph {member.graph.name!r}",
        why="--no-rebuild forbids compiling it again",
        do="leave out --no-rebuild, or give the graphs in another order",
    )
