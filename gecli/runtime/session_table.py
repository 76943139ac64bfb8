"""The variable table of a session that goes on: one form, one road and one address a name (GE: the VarManager).

Only with `--session-in`, `--session-out` and `--external-var`. What models bring is entered as GE restores variables
(RestoreVarMem) and converts their data (TransAllVarData); contents of variables are no part of the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from gecli.errors import CompileError, Diagnostic, InputError, RuntimeFault
from gecli.ir.attributes import INIT_VALUE
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.runtime.beside_variables import Beside, beside
from gecli.runtime.variable_addresses import Row, configure, sized
from gecli.variables.interval_map import OverlapError
from gecli.variables.mem_resource import MemoryType
from gecli.variables.trans_road import TransRoad
from gecli.variables.var_faults import ONE_SESSION, restore_fault
from gecli.variables.var_manager import VarManager
from gecli.variables.var_match import VarDescCache
from gecli.wire.model_record import GraphRecord

CLOUD_VERSION = 0  # what GE's loader begins a session with
EMPTY = VarDescCache()
RUNTIME_NAMES = {
    "VAR_SHAPE_GROWS": ("G4011", "RT_VAR_GREW"),
    "VAR_ROAD_CONFLICT": ("G4011", "RT_VAR_DESC_MISMATCH"),
    "VAR_KEY_CONFLICT": ("G4010", "RT_VAR_OVERLAP"),
    "VAR_OVERLAP": ("G4010", "RT_VAR_OVERLAP"),
    "VAR_MEM_EXHAUSTED": ("G4010", "RT_ADDR_OUT_OF_RANGE"),
}
NO_ROAD = TransRoad()


class Known(NamedTuple):
    """What the table says about a variable."""

    desc: TensorDesc
    address: int
    road: TransRoad
    init_value: Weight | None


class Entered(NamedTuple):
    """A model as the table takes it over."""

    rows: Sequence[Row]
    graphs: Collection[GraphRecord]
    packet: VarDescCache | None
    attrs: Mapping[str, Any]
    path: str


class SessionTable:
    """The table of a snapshot, or a new one. `path` names the snapshot in messages."""

    def __init__(self, manager: VarManager | None = None, path: str = "") -> None:
        self.manager = VarManager(version=CLOUD_VERSION) if manager is None else manager
        resource = self.manager.resource
        self.found = frozenset(resource.current_descs)  # in the snapshot
        self._path = path
        self._variables: set[str] = set()  # of models
        # Every loaded model has the next graph id of the session.
        used = [*resource.changed_graph_ids.values(), *resource.allocated_graph_ids.values()]
        self._next_id = max(used, default=0) + 1

    @property
    def added(self) -> list[str]:
        """The names that models brought."""
        return sorted(self.manager.resource.current_descs.keys() - self.found)

    def __contains__(self, name: str) -> bool:
        return self.manager.exists(name)

    def get(self, name: str) -> Known | None:
        """The variable of this name; None when the session has none."""
        desc = self.manager.current_desc(name)
        if desc is None:
            return None
        resource = self.manager.resource
        return Known(desc, resource.address_of(name, desc), self.road(name), desc.attrs.get(INIT_VALUE))

    def initial_values(self, names: Iterable[str]) -> dict[str, Weight]:
        """What variables of the snapshot begin with."""
        found = ((name, self.manager.current_desc(name)) for name in names if name in self.found)
        return {name: desc.attrs[INIT_VALUE] for name, desc in found if desc and INIT_VALUE in desc.attrs}

    def road(self, name: str) -> TransRoad:
        return self.manager.trans_road(name) or NO_ROAD

    def address(self, name: str, desc: TensorDesc) -> int:
        """Where a variable that was entered lies in the session."""
        return self.manager.resource.address_of(name, desc)

    # ------------------------------------------------------------------ before a model is entered

    def require_fits(self, rows: Iterable[Row], packet: VarDescCache | None, path: str) -> None:
        """Raises InputError (RT_VAR_DESC_MISMATCH) with each variable that the model and the session know differently.

        A model may change a variable that it found in the form which the session has: its packet says so.
        """
        problems = []
        for name, desc, _ in rows:
            known = self.manager.current_desc(name)
            if known is not None and (found := self._difference(name, desc, known, packet)):
                problems.append(self._mismatch(name, *found, path))
        if problems:
            raise InputError.of(problems)

    def _difference(
        self, name: str, desc: TensorDesc, known: TensorDesc, packet: VarDescCache | None
    ) -> tuple[str, str, str] | None:
        """The field that differs, as the session and as the model have it."""
        own, road = self.road(name), NO_ROAD if packet is None else packet.var_trans_roads_map.get(name, NO_ROAD)
        if (
            packet is not None
            and name in packet.changed_var_names
            and known.same_storage(road.source if road else desc)
        ):
            return None if not own or own.same_as(road) else ("trans road", _shown(own), _shown(road))
        if desc.shape != known.shape:
            return "shape", str(list(known.shape)), str(list(desc.shape))
        if desc.dtype is not known.dtype:
            return "dtype", known.dtype.serial, desc.dtype.serial
        if desc.format != known.format:
            return "format", known.format.name, desc.format.name
        if packet is not None and not own.same_as(road):
            return "trans road", _shown(own), _shown(road)
        return None

    def _mismatch(self, name: str, field: str, here: str, there: str, path: str) -> Diagnostic:
        of = f"session {self._path}" if name in self.found else "an earlier model of the session"
        return Diagnostic(
            "G4011", f"the {field} of variable {name!r} is not that of {of}", kind="RT_VAR_DESC_MISMATCH",
            why=f"{path} has {there}, the session {here}", expected=here, actual=there, file=path, node=name,
            do="--session-in with the file that the compile of this model wrote; or declare the variable alike in all"
            " models and compile this one with --session-in",
        )  # fmt: skip

    # ------------------------------------------------------------------ taking over a model

    @contextmanager
    def unchanged_by_failure(self) -> Iterator[None]:
        """A model that cannot be loaded leaves no trace in the table."""
        state, variables, graph_id = self.manager.snapshot(), set(self._variables), self._next_id
        try:
            yield
        except BaseException:
            self.manager.restore(state)
            self._variables, self._next_id = variables, graph_id
            raise

    def enter(self, model: Entered, *, strict: bool = False) -> None:
        """Take over what a model brings: places, roads, graph ids.

        A name that is new has the place that the model says, or behind all others where that is taken: a model finds
        its variables through its own table. With `strict` addresses that has been refused, and constants are too.
        Raises InputError (RT_VAR_BASE_CONFLICT, RT_VAR_GREW, RT_ADDR_OUT_OF_RANGE, RT_VAR_OVERLAP).
        """
        graph_id, self._next_id = self._next_id, self._next_id + 1
        try:
            configure(self.manager, model.attrs, model.path)
            moved: dict[int, int] = {}
            for name, desc, address in model.rows:
                if address:
                    self._place(name, sized(desc), address, moved)
            self._require_room()
            self._record_changes(model, graph_id)
            self._enter_others(model, graph_id, strict)
        except (InputError, CompileError) as error:
            raise InputError.of(_at_load(each, model.path) for each in error.diagnostics) from error

    def _place(self, name: str, desc: TensorDesc, address: int, moved: dict[int, int]) -> None:
        """`moved` has the places of this model, by the addresses that it says."""
        if self.manager.exists(name):
            self.manager.assign(name, desc)  # another form may need another block
            return
        if address not in moved:
            moved[address] = address if self._is_free(address, desc) else self._behind_all()
        self.manager.restore_variable(name, desc, moved[address])

    def _require_room(self) -> None:
        used, limit = self.manager.hbm.used_bytes, self.manager.limits.var_max_bytes
        if used > limit:
            raise restore_fault(
                "RT_ADDR_OUT_OF_RANGE", "", "the variables of the session exceed its variable memory",
                f"they take {used} bytes of {limit}", ONE_SESSION,
            )  # fmt: skip

    def _is_free(self, address: int, desc: TensorDesc) -> bool:
        try:
            self.manager.resource.blocks.place_of(address, address + max(desc.size_bytes, 1))
        except OverlapError:
            return False
        return True

    def _behind_all(self) -> int:
        return self.manager.hbm.next_address(self.manager.logic_base)

    def _record_changes(self, model: Entered, graph_id: int) -> None:
        resource, after = self.manager.resource, model.packet or EMPTY
        names = {name for name, _, address in model.rows if address}
        self._variables |= names
        for name in names:
            resource.set_allocated_graph_id(name, graph_id)
            road = after.var_trans_roads_map.get(name)
            if road is not None:
                resource.set_trans_road(name, road)
        for name in names.intersection(after.changed_var_names):
            resource.set_changed_graph_id(name, graph_id)
            # The store converts what earlier models left, so the mark goes; who made a variable found no data.
            if resource.allocated_graph_id(name) != graph_id and name in resource.roads:
                resource.remove_changed_graph_id(name)

    def assign(self, names: Iterable[str]) -> None:
        """Record variables that a model gives a value."""
        self.manager.resource.set_assigned(names)

    @property
    def needed_bytes(self) -> int:
        """What an area must have that holds the variables: all with their guards, and each to its end."""
        return max(self.manager.memory_bytes(MemoryType.HBM), self._last[1])

    @property
    def _last(self) -> tuple[str, int]:
        """Name and end of the last variable; behind a placeholder that is more than they take together."""
        blocks = self.manager.resource.blocks
        ends = [
            (block.address - self.manager.logic_base + block.capacity_bytes, block.name)
            for block in blocks
            if block.memory_type is MemoryType.HBM and not block.is_external
        ]
        end, name = max(ends, default=(0, ""))
        return name, end

    def require_external(self, size_bytes: int) -> None:
        """Raises RuntimeFault (RT_EXTERNAL_TOO_SMALL) unless an area of this size holds every variable to its end."""
        needed = self.needed_bytes
        if size_bytes >= needed:
            return
        name, end = self._last
        raise RuntimeFault(
            "G4013", f"the area of {size_bytes} bytes does not hold the variables", kind="RT_EXTERNAL_TOO_SMALL",
            why=f"they take {needed} bytes with their guards; the last, {name!r}, ends at {end}",
            do=f"--external-var {needed}", option="--external-var", expected=needed, actual=size_bytes,
        )  # fmt: skip

    def _enter_others(self, model: Entered, graph_id: int, strict: bool) -> None:
        """Constants and placeholders. One whose place is taken is its model's alone, which has its data."""
        others = list(beside(model.graphs, self.manager.logic_base))
        resource = self.manager.resource
        held: dict[int, list[TensorDesc]] = {}
        for entry in resource.addresses.values() if others else ():
            held.setdefault(entry.address, []).append(entry.desc)
        for other in others:
            desc, forms = sized(other.desc), held.setdefault(other.address, [])
            block = resource.blocks.get(other.address)
            # Equal constants share a block: they have as many bytes, but maybe other dims.
            if block is not None and block.name not in self._variables and block.capacity_bytes == desc.size_bytes:
                if any(each.same_storage(desc) for each in forms):
                    continue
            elif not self._is_free(other.address, desc):
                if strict:
                    raise _overlap(other, desc)
                continue
            self._restore_other(other, desc, graph_id)
            forms.append(desc)

    def _restore_other(self, other: Beside, desc: TensorDesc, graph_id: int) -> None:
        name, k = other.name, 0
        while self.manager.exists(name):  # the same name in another graph, for other data
            k += 1
            name = f"{other.name}_{k}"
        self.manager.restore_variable(name, desc, other.address, device_address=other.device_address)
        self.manager.resource.set_allocated_graph_id(name, graph_id)


def _at_load(fault: Diagnostic, path: str) -> Diagnostic:
    """The fault under its name at load."""
    code, kind = RUNTIME_NAMES.get(fault.kind or "", (fault.code, fault.kind))
    do = fault.do if kind == fault.kind else "compile the model again with --session-in"
    return replace(fault, code=code, kind=kind, where=path, file=path, do=do)


def _overlap(other: Beside, desc: TensorDesc) -> InputError:
    return restore_fault(
        "RT_VAR_OVERLAP", other.name, f"constant {other.name!r} overlaps what the session has at its place",
        f"{desc.size_bytes} bytes at {other.address:#x}", ONE_SESSION,
    )  # fmt: skip


def _shown(road: TransRoad) -> str:
    return " ".join(f"{step.type}({step.src} -> {step.dst})" for step in road) or "none"
