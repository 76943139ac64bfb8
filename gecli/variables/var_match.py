"""The record a cache entry keeps of variables (GE: VarDescCache, VarMatchInfo), and its match with a session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from gecli.errors import CacheError
from gecli.ir.tensor_desc import TensorDesc
from gecli.records import dataclass
from gecli.variables.desc_match import same_desc
from gecli.variables.rebuild_control import RebuildControl
from gecli.variables.trans_road import TransRoad
from gecli.variables.var_manager import VarManager
from gecli.variables.var_resource import VarResource


@dataclass(frozen=True, slots=True)
class VarDescCache:
    """What the variable manager knew at one moment: current descs, roads, names changed and descs staged by a graph.

    The last two are filled only in the record taken after a compile.
    """

    var_desc_map: Mapping[str, TensorDesc] = field(default_factory=dict)
    var_trans_roads_map: Mapping[str, TransRoad] = field(default_factory=dict)
    changed_var_names: tuple[str, ...] = ()
    staged_var_desc_map: Mapping[str, TensorDesc] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VarMatch:
    """The content of an `.rdcpkt`: the manager before and after the compile."""

    before: VarDescCache
    after: VarDescCache

    @property
    def is_empty(self) -> bool:
        """True when no file is written for it."""
        return not self.before.var_desc_map and not self.after.var_desc_map


@dataclass(frozen=True, slots=True)
class Difference:
    """Why a record does not describe the session: `field` of variable `name` differs; empty when it is missing."""

    name: str
    field: str = ""
    expected: TensorDesc | None = None
    actual: TensorDesc | None = None

    def __str__(self) -> str:
        if not self.field:
            return f"variable {self.name!r} is not known to the session"
        return f"{self.name}.{self.field}: the record has {self.expected}, the session has {self.actual}"


@dataclass(frozen=True, slots=True)
class MatchResult:
    """Which side of a record the session equals. `reason` is a stable code of the cache, empty on a match.

    `after` and `before` hold what kept each side from matching, `conflict` what kept a matching *before* from use.
    """

    side: Literal["after", "before"] | None
    reason: str = ""
    after: Difference | None = None
    before: Difference | None = None
    conflict: Difference | None = None

    @property
    def matched(self) -> bool:
        return self.side is not None

    @property
    def needs_refresh(self) -> bool:
        """True when the manager has to be brought to the state after the cached compile."""
        return self.side == "before"


def record_of(manager: VarManager, graph_id: int | None = None) -> VarDescCache:
    """The manager's side of a record; with a graph id also what that graph changed and staged."""
    resource = manager.resource
    descs = dict(sorted(resource.current_descs.items()))
    roads = dict(sorted(resource.roads.items()))
    if graph_id is None:
        return VarDescCache(descs, roads)
    staged = dict(sorted(resource.staged(graph_id).items()))
    return VarDescCache(descs, roads, resource.changed_names(graph_id), staged)


def match(record: VarMatch | None, manager: VarManager) -> MatchResult:
    """Compare a cache entry's record with the session; None is an entry without a record, which always matches.

    A match of *before* counts only if the variables that the cached compile created are unknown or already as it
    left them. GE does not look, and the loaded model would read the wrong layout.
    """
    if record is None:
        return MatchResult("after")
    resource = manager.resource
    after = _first_difference(record.after.var_desc_map, resource)
    if after is None:
        return MatchResult("after")
    before = _first_difference(record.before.var_desc_map, resource)
    if before is not None:
        reason = "var_desc_mismatch" if before.field else "var_missing"
        return MatchResult(None, reason, after, before)
    created = {
        name: desc
        for name, desc in record.after.var_desc_map.items()
        if name not in record.before.var_desc_map and resource.exists(name)
    }
    conflict = _first_difference(created, resource)
    if conflict is not None:
        return MatchResult(None, "var_conflict", after, None, conflict)
    return MatchResult("before", after=after)


def changed_without_road(record: VarMatch) -> str | None:
    """A variable that the compile changed without saying how: a session cannot be brought to the state after it."""
    after = record.after
    for name in after.changed_var_names:
        if name not in after.var_desc_map or name not in after.var_trans_roads_map:
            return name
    return None


def why_contradictory(record: VarMatch, *, is_vouched: bool = False) -> str:
    """What is wrong with a record that could be decoded (`rdcpkt_corrupt`); empty when nothing is.

    A record that ends early can be decoded too: a changed variable without a road tells it, unless a digest vouches for
    the file.
    """
    name = None if is_vouched else changed_without_road(record)
    if name is not None:
        return f"changed variable {name!r} has no descriptor or no trans road"
    for side in (record.before, record.after):
        for name, road in sorted(side.var_trans_roads_map.items()):
            step = road.broken_at()
            if step is not None:
                return f"trans road of {name!r}: step {step} does not begin where step {step - 1} ends"
    return ""


@dataclass(frozen=True, slots=True)
class Refresh:
    """A computed change of the session to the state after a cached compile; nothing happens before `commit`."""

    resource: VarResource
    rebuild: RebuildControl

    def commit(self, manager: VarManager, rebuild: RebuildControl) -> None:
        """Make the change, after the cached model has been loaded."""
        manager.resource.become(self.resource)
        rebuild.restore(self.rebuild)


def refresh(record: VarMatch, manager: VarManager, rebuild: RebuildControl, graph_id: int) -> Refresh:
    """What a match of *before* changes: staged descs, roads, changed ids, rebuild marks.

    Validated on copies. Raises CacheError (trans_road_missing) when a changed variable has no road or descriptor, and
    as `VarResource.renew` and `set_trans_road`.
    """
    planned, marks, after = manager.resource.copy(), rebuild.snapshot(), record.after
    for name, desc in sorted(after.staged_var_desc_map.items()):
        planned.renew(name, desc)
        planned.record_staged(graph_id, name, desc)
    for name in after.changed_var_names:
        road = after.var_trans_roads_map.get(name)
        if road is None or name not in after.var_desc_map:
            raise CacheError(
                "G3007",
                f"the cache entry has no trans road or no descriptor for variable {name!r}, which it says has changed",
                kind="trans_road_missing",
                node=name,
            )
        planned.set_trans_road(name, road)
        planned.set_changed_graph_id(name, graph_id)
        marks.state_changed(name)
        if road and road.is_data_unchanged:
            planned.renew(name, road.target, with_shape=True)
    return Refresh(planned, marks)


def _first_difference(descs: Mapping[str, TensorDesc], resource: VarResource) -> Difference | None:
    for name, desc in sorted(descs.items()):
        current = resource.current_desc(name)
        if current is None:
            return Difference(name)
        field_name = same_desc(desc, current)
        if field_name is not None:
            return Difference(name, field_name, desc, current)
    return None
