"""Sessions of the simulated runtime: several OMs that share variables by name (GE: RtSession)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gecli.artifacts.file_access import unchanged
from gecli.artifacts.om_file import OmFile, OmModel, read_om
from gecli.artifacts.part_faults import part_faults
from gecli.artifacts.partition_table import PartitionType
from gecli.errors import CompileError, Diagnostic, InputError, RuntimeFault
from gecli.ir.attributes import (
    CONST_TYPES,
    COPIED_VALUE,
    COPY_FROM_VAR,
    INIT_VALUE,
    REF_VAR_SRC_VAR_NAME,
    SRC_VAR_NAME,
    VALUE,
)
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.weight import FileSlice, Weight
from gecli.layout.transfer_error import TransferError
from gecli.runtime.beside_variables import beside
from gecli.runtime.dynamic import MAX_LOOP, DynamicExecutor
from gecli.runtime.interface import model_inputs, model_outputs
from gecli.runtime.memory import POISON, Arena, MappedWeights
from gecli.runtime.model import BoundVariable, LoadedModel, no_transfer, require_supported, unsupported
from gecli.runtime.operands import Operand, to_logical, unblocked
from gecli.runtime.program import bind_program
from gecli.runtime.record_checks import MEMORY_SIZE, VARIABLE_BASE, require_loadable, require_room
from gecli.runtime.reference_checks import require_references
from gecli.runtime.variable_store import VariableStore
from gecli.runtime.variable_use import LiveVariables, reads_of
from gecli.variables.trans_road import TransRoad
from gecli.wire.model_record import GraphRecord
from gecli.wire.om_faults import in_order

if TYPE_CHECKING:
    from gecli.runtime.file_constants import FileUse, WeightFiles
    from gecli.runtime.session_table import SessionTable
    from gecli.runtime.shared_files import SharedFiles
    from gecli.runtime.variable_addresses import AddressBook, Row
    from gecli.runtime.variable_store import Memory
    from gecli.runtime.weight_search import WeightSettings
    from gecli.variables.var_match import VarDescCache
    from gecli.wire.model_record import ModelRecord

    _Content = tuple[OmFile, ModelRecord, VarDescCache | None, "_Weights"]

Array = NDArray[Any]
DEFAULT_VARIABLE_BASE = 137438953472  # 128 GiB: GE's kVarMemoryLogicBase
NO_ROAD = TransRoad()
CONST_PLACEHOLDER = "ConstPlaceHolder"


class Session:
    """Models that share variables. `warnings` collects what loading had to say.

    With a `table` the session goes on from a snapshot, or is to be saved as one; with `external_bytes` its variables
    lie in one area of that size. `placeholders` has the values of ConstPlaceHolder nodes by name.
    """

    def __init__(
        self,
        *,
        init: str = "error",
        seed: int = 1,
        copy_weights: bool = False,
        poison: bool = False,
        max_loop: int = MAX_LOOP,
        weights: WeightSettings | None = None,
        strict_order: bool = False,
        strict_addresses: bool = False,
        table: SessionTable | None = None,
        external_bytes: int | None = None,
        placeholders: Mapping[str, Array] | None = None,
    ) -> None:
        self.table = table
        self.external_bytes = external_bytes
        self.placeholders = dict(placeholders or {})
        area = self._external_area(POISON if poison else 0) if external_bytes is not None else None
        self.store = VariableStore(seed, POISON if poison else 0, memory=area, table=self.table)
        self.models: list[LoadedModel] = []
        self.warnings: list[Diagnostic] = []
        self._init = init
        self._copy_weights = copy_weights
        self._weight_settings = weights
        self._weight_files: WeightFiles | None = None  # made for the first model with external weights
        self._shared: SharedFiles | None = None
        self._fill = POISON if poison else 0
        self._max_loop = max_loop
        self._strict_order = strict_order
        self._strict_addresses = strict_addresses
        self._addresses: AddressBook | None = None  # made for the first model with variables

    def load(self, path: str | os.PathLike[str], *, rdcpkt: str | os.PathLike[str] | None = None) -> LoadedModel:
        """Load an OM. `rdcpkt` is its variable packet, by default the file with its stem beside it.

        Raises InputError for a file that is no runnable OM, holds unsupported operators or contradicts its packet, and
        RuntimeFault for external weights that are missing or changed.
        """
        start = perf_counter_ns()
        name = os.fspath(path)
        shared = self._shared
        found = None if shared is None else shared.models.get(name)
        om, record, packet, weights = found = found or self._read(name, rdcpkt)
        if shared is not None:
            shared.models[name] = found
        loader = _Loader(om, record.root, {graph.name: graph for graph in record.graphs}, packet, self.store, name)
        loader.weights = weights
        loader.weight_files = self._files_of_weights
        loader.fill, loader.max_loop = self._fill, self._max_loop
        loader.check_addresses = self._check_addresses
        loader.strict_addresses = self._strict_addresses
        loader.table, loader.external_bytes, loader.placeholders = self.table, self.external_bytes, self.placeholders
        with nullcontext() if self.table is None else self.table.unchanged_by_failure():
            model = loader.load(record.attrs, self._init)
            self._check_order(loader, name)
        self.warnings += self.store.take_warnings()
        if self._weight_files is not None:
            self.warnings += self._weight_files.take_warnings()
        model.load_ns = perf_counter_ns() - start
        self.models.append(model)
        return model

    def _read(self, name: str, rdcpkt: str | os.PathLike[str] | None) -> _Content:
        """An OM that can be run, its packet and its weights. Raises InputError."""
        with unchanged(name):
            return self._read_parts(name, rdcpkt)

    def _read_parts(self, name: str, rdcpkt: str | os.PathLike[str] | None) -> _Content:
        om = read_om(name)
        om.require_runnable()
        record = om.model()
        record.require_sound()
        if not record.graphs:
            raise InputError(
                "G3011", f"{name}: MODEL_DEF has no graph", kind="bad-graph", file=name, do="compile the model again"
            )
        require_room(record.graphs, om.size_bytes, name)
        damage = part_faults(om)
        if not damage and _is_small(om) and (problem := om.verify_checksum()) is not None:
            damage = [problem]
        if damage:
            raise InputError.of(in_order(damage))
        self.warnings += [*om.warnings, *(p for p in record.problems if p.severity == "warning")]
        packet = self._packet(name, rdcpkt, record.graphs)
        return om, record, packet, _mapped_weights(om, om.root, copy=self._copy_weights)

    def _external_area(self, fill: int) -> Memory:
        from gecli.runtime.external_area import ExternalArea
        from gecli.runtime.session_table import SessionTable

        self.table = self.table or SessionTable()
        return ExternalArea(self.external_bytes or 0, self.table, fill)

    def share(self, files: SharedFiles) -> None:
        """Take from `files` what the session of another device has read, and leave there what this one reads."""
        self._shared = files

    def _files_of_weights(self) -> WeightFiles:
        if self._shared is not None:
            self._weight_files = self._weight_files or self._shared.weights
        if self._weight_files is None:
            from gecli.runtime.file_constants import WeightFiles
            from gecli.runtime.weight_search import WeightSettings

            self._weight_files = WeightFiles(self._weight_settings or WeightSettings(), copy=self._copy_weights)
        if self._shared is not None:
            self._shared.weights = self._weight_files
        return self._weight_files

    def _packet(
        self, name: str, rdcpkt: str | os.PathLike[str] | None, graphs: list[GraphRecord]
    ) -> VarDescCache | None:
        beside = os.path.splitext(name)[0] + ".rdcpkt"
        if rdcpkt is not None or os.path.exists(beside):
            from gecli.artifacts.rdcpkt import read_rdcpkt

            return read_rdcpkt(beside if rdcpkt is None else rdcpkt).after
        known = self.table or ()
        variables = (node for graph in graphs for node in graph.nodes if node.is_variable and node.ref_variable is None)
        if any(node.name not in known for node in variables):
            self.warnings.append(
                Diagnostic(
                    "G3007",
                    f"{name} has variables but no {os.path.basename(beside)} beside it",
                    why="data in the user's format cannot be converted to the stored one",
                    do="keep the .rdcpkt beside the .om, or name it with --vars",
                    severity="warning",
                )
            )
        return None

    def _check_addresses(self, rows: Sequence[Row], attrs: Mapping[str, Any], name: str) -> None:
        if not rows:
            return
        if self._addresses is None:
            from gecli.runtime.variable_addresses import AddressBook

            session = None if self.table is None else self.table.manager
            self._addresses = AddressBook(strict=self._strict_addresses, session=session)
        self._addresses.enter(rows, attrs, name)

    def _check_order(self, loader: _Loader, name: str) -> None:
        """Readers and writers of a variable in no order; the compile has warned of them, unless it was another one."""
        if not any(variable.writer for variable in loader.variables.values()):
            return
        from gecli.planning.variable_races import find_races, race_warnings
        from gecli.runtime.variable_use import accesses_of

        reads, writes = accesses_of(loader.graphs, loader.variable_of)
        races = [race for graph in loader.graphs.values() for race in find_races(graph.nodes, reads, writes)]
        found = race_warnings(races, name)
        if self._strict_order and found:
            raise RuntimeFault.of(replace(each, severity="error") for each in found)
        self.warnings += found


CHECKSUM_LIMIT_BYTES = 8 << 20  # larger files are not read whole at load: their weights are mapped


def _is_small(om: OmFile) -> bool:
    return om.size_bytes <= CHECKSUM_LIMIT_BYTES


class _Loader:
    """One load: turns the record of an OM into a LoadedModel."""

    def __init__(
        self,
        om: OmFile,
        graph: GraphRecord,
        graphs: dict[str, GraphRecord],
        packet: VarDescCache | None,
        store: VariableStore,
        path: str,
    ) -> None:
        self.om = om
        self.graph = graph
        self.graphs = graphs
        self.packet = packet
        self.store = store
        self.path = path
        self.every_node = [node for each in graphs.values() for node in each.nodes]
        self.weights = _Weights(om.path, 0, 0)
        self.weight_files: Callable[[], WeightFiles] | None = None
        self.check_addresses: Callable[[Sequence[Row], Mapping[str, Any], str], None] | None = None
        self.table: SessionTable | None = None
        self.external_bytes: int | None = None
        self.strict_addresses = False
        self.placeholders: Mapping[str, Array] = {}
        self.fill = 0
        self.max_loop = MAX_LOOP
        self.addresses: dict[str, int] = {}  # of the variables, as the model has them
        self.initial: dict[str, Weight] = {}  # what the session that goes on says that variables begin with
        self.variables: dict[str, BoundVariable] = {}
        self.names: dict[Port, str] = {}  # of the variables in whose memory ports of other nodes lie
        self.operands: dict[Port, Operand] = {}
        self.external: dict[OpDesc, Array] = {}

    def load(self, attrs: dict[str, Any], init: str) -> LoadedModel:
        require_supported(self.every_node, self.path)
        require_loadable(self.graphs.values(), attrs, self.path, is_static=not self._is_dynamic())
        self._check_variables(attrs)
        try:
            return self._load(attrs, init)
        except CompileError as error:
            if error.code not in ("E14002", "E13014"):
                raise
            # Attributes of an operator of another compiler: named together with all that cannot be executed.
            raise unsupported(self.every_node, self.path) from error
        except TransferError as error:
            raise no_transfer(error, self.path) from error

    def _check_variables(self, attrs: dict[str, Any]) -> None:
        """Their addresses, and in a session that goes on their forms too; it knows the model then."""
        if self.check_addresses is None:
            return
        rows = self._variable_rows()
        if self.table is not None:
            self.table.require_fits(rows, self.packet, self.path)
        self.check_addresses(rows, attrs, self.path)
        if self.table is not None:
            from gecli.runtime.session_table import Entered

            self.initial = self.table.initial_values(name for name, _, _ in rows)
            model = Entered(rows, self.graphs.values(), self.packet, attrs, self.path)
            self.table.enter(model, strict=self.strict_addresses)
            if self.external_bytes is not None:
                self.table.require_external(self.external_bytes)

    def _load(self, attrs: dict[str, Any], init: str) -> LoadedModel:
        self._register_variables()
        external = self._load_weight_files()
        placeholders = self._bind_placeholders()
        model = LoadedModel(
            name=os.path.splitext(os.path.basename(self.path))[0],
            path=self.path,
            inputs=model_inputs(self.graph.nodes),
            outputs=model_outputs(self.graph.nodes, attrs),
            attrs=attrs,
            store=self.store,
            variables=list(self.variables.values()),
            init=init,
            memory_bytes=int(attrs.get(MEMORY_SIZE, 0)),
            weight_bytes=self.weights.size_bytes + sum(use.size_bytes for use in external),
            weight_files=external,
            placeholders=placeholders,
        )
        base = int(attrs.get(VARIABLE_BASE, DEFAULT_VARIABLE_BASE))
        model.constants = tuple(each for each in beside(self.graphs.values(), base) if each.is_constant)
        self.names = self._names_of_ports(base)
        require_references(self.graphs.values(), self.variable_of, self.path)
        if self._is_dynamic():
            constants = {port: to_logical(op.array, op.desc) for port, op in self._constants(self.every_node).items()}
            variables = self._live_variables(init) if self.variables else None
            model.executor = DynamicExecutor(self.graphs, constants, self.max_loop, variables)
            model.graph = self.graph
        else:
            self._place(int(attrs.get(MEMORY_SIZE, 0)), base)
            model.program = bind_program(self.graph.nodes, self.operands)
            self._find_first_readers()
        self._find_writers()
        if self.table is not None:
            starts = [name for name in self.variables if self.store[name].is_initialised]
            self.table.assign([*model.written, *starts])
        return model

    def _is_dynamic(self) -> bool:
        if self.om.header.is_unknow_model or len(self.graphs) > 1:
            return True
        return any(not desc.is_static for node in self.graph.nodes for desc in node.output_descs)

    # ------------------------------------------------------------------ constants

    def _constants(self, nodes: list[OpDesc]) -> dict[Port, Operand]:
        found = {}
        for node in nodes:
            if node.type in CONST_TYPES and VALUE in node.attrs:
                weight: Weight = node.attrs[VALUE]
                array = self._constant_array(weight, node)
                found[Port(node, 0)] = Operand(node.output_descs[0], array, False, is_constant=True)
            elif node in self.external:
                found[Port(node, 0)] = Operand(node.output_descs[0], self.external[node], False, is_constant=True)
        return found

    def _load_weight_files(self) -> list[FileUse]:
        nodes = [node for node in self.every_node if node.type == "FileConstant"]
        if not nodes or self.weight_files is None:
            return []
        self.external, uses = self.weight_files().load(nodes, self.path)
        return uses

    def _bind_placeholders(self) -> tuple[str, ...]:
        nodes = [node for node in self.every_node if node.type == CONST_PLACEHOLDER]
        if nodes:
            from gecli.runtime.placeholders import bind_placeholders

            self.external |= bind_placeholders(nodes, self.placeholders, self.path)
        return tuple(dict.fromkeys(node.name for node in nodes))

    def _constant_array(self, weight: Weight, node: OpDesc) -> Array:
        source = weight.source
        if isinstance(source, FileSlice) and not weight.transforms and self.weights.holds(source):
            return self.weights.view(
                source.offset_bytes - self.weights.start, weight.dtype, weight.shape, f"constant {node.name}"
            )
        return weight.numpy()

    # ------------------------------------------------------------------ variables

    def _register_variables(self) -> None:
        for graph in self.graphs.values():  # a subgraph that uses a variable has a node of its name
            self._register_variables_of(graph)
        self._fill_twins()

    def _register_variables_of(self, graph: GraphRecord) -> None:
        for node in graph.nodes:
            if not node.is_variable or node.ref_variable is not None or node.name in self.variables:
                continue
            desc = node.output_descs[0]
            road = self._road_of(node)
            if self.packet is None and (self.table is None or node.name not in self.table):
                self.store.without_record.setdefault(node.name, f"{os.path.splitext(self.path)[0]}.rdcpkt")
            init = desc.attrs.get(INIT_VALUE) or self.initial.get(node.name)
            own = self.addresses[node.name] = _address(graph, Port(node, 0))
            address = own if self.table is None or not own else self.table.address(node.name, desc)
            form = self.store.register(node.name, desc, address, road, init, self.path)
            self.variables[node.name] = BoundVariable(node.name, form)

    def _fill_twins(self) -> None:
        """Variables that say so begin with the value of another one, cast to their type (GE: CopyVarData)."""
        for node in self.graph.nodes:
            source = node.attrs.get(COPY_FROM_VAR) if node.name in self.variables and node.is_variable else None
            if not source or not isinstance(source, str) or node.attrs.get(COPIED_VALUE, False):
                continue
            if source not in self.variables:
                raise InputError(
                    "G4010",
                    f"variable {node.name!r} begins as a copy of {source!r}, which the model does not have",
                    kind="RT_VAR_NOT_FOUND",
                    file=self.path,
                    node=node.name,
                    do="compile the model again",
                )
            self.store.copy_value(source, node.name)

    def _road_of(self, node: OpDesc) -> TransRoad:
        name, desc = node.name, node.output_descs[0]
        if self.packet is None:
            return NO_ROAD if self.table is None else self.table.road(name)
        known = self.packet.var_desc_map.get(name)
        # The packet has an fp16 twin in the form of its source, whose memory it names too (GE: AssignData2Fp32Var).
        source = self.packet.var_desc_map.get(str(node.attrs.get(SRC_VAR_NAME) or ""))
        is_twin = known is not None and source is not None and known.same_storage(source)
        if known is None or not (is_twin or known.same_storage(desc)):
            raise InputError(
                "G4011",
                f"{self.path} and its variable packet disagree on {name!r}",
                why=f"the OM stores it as {desc}, the packet says {known or 'nothing'}",
                do="compile the model again; both files belong together",
                kind="RT_VAR_DESC_MISMATCH",
                file=self.path,
                node=name,
                expected=str(known),
                actual=str(desc),
            )
        return self.packet.var_trans_roads_map.get(name, NO_ROAD)

    def _variable_of(self, port: Port) -> str:
        """The variable in whose memory a port lies; empty for every other port."""
        node = port.node
        if node.is_variable and node.ref_variable is None:
            return node.name
        marked = node.output_descs[port.index].attrs.get(REF_VAR_SRC_VAR_NAME) or node.ref_variable
        return str(marked) if marked else ""

    def _variable_rows(self) -> list[Row]:
        """Name, form and address of each variable of the model."""
        found: dict[str, Row] = {}
        for graph in self.graphs.values():
            for node in graph.nodes:
                if node.is_variable and node.ref_variable is None and node.output_descs:
                    found.setdefault(node.name, (node.name, node.output_descs[0], _address(graph, Port(node, 0))))
        return list(found.values())

    def variable_of(self, port: Port) -> str:
        """The variable in whose memory a port lies, as marks and addresses say; empty for every other port."""
        node = port.node
        return node.name if node.is_variable and node.ref_variable is None else self.names.get(port, "")

    def _names_of_ports(self, variable_base: int) -> dict[Port, str]:
        at: dict[int, str] = {}
        names: dict[Port, str] = {}
        for graph in self.graphs.values():
            for node in graph.nodes:
                if node.is_variable and node.ref_variable is None:
                    continue
                for index in range(len(node.output_descs)):
                    port = Port(node, index)
                    name = self._variable_of(port)
                    address = 0 if name else _address(graph, port)
                    if address >= variable_base and node.type not in CONST_TYPES:
                        at = at or {place: each for each, place in self.addresses.items()}
                        name = at.get(address, "")
                    if name and name not in self.variables:
                        raise self._unassigned(port, _address(graph, port))
                    if name:
                        names[port] = name
        return names

    def _live_variables(self, init: str) -> LiveVariables:
        names = dict(self.names)
        for node in self.every_node:
            if node.is_variable and node.ref_variable is None:
                names |= {Port(node, index): node.name for index in range(len(node.output_descs))}
        views = {port: self.variables[name].form.view for port, name in names.items()}
        return LiveVariables(self.store, init, names, views, reads_of(self.graphs, self.variable_of))

    # ------------------------------------------------------------------ placing operands

    def _place(self, memory_bytes: int, variable_base: int) -> None:
        arena = Arena(memory_bytes, self.path, self.fill)
        self.operands = self._constants(self.graph.nodes)
        for node in self.graph.nodes:
            if node.is_variable and not any(node.users):
                continue  # of many variables most are read by nobody
            placement = self.graph.placements.get(node)
            offsets = placement.output_offsets if placement else ()
            for index, desc in enumerate(node.output_descs):
                port = Port(node, index)
                if port in self.operands:
                    continue
                offset = offsets[index] if index < len(offsets) else 0
                self.operands[port] = self._operand(port, desc, offset, arena, variable_base)

    def _operand(self, port: Port, desc: Any, offset: int, arena: Arena, variable_base: int) -> Operand:
        name = self.variable_of(port)
        if not name and offset >= variable_base:
            raise self._unassigned(port, offset)
        if name:
            return Operand(desc, self.variables[name].form.view, False, in_variable=name)
        where = f"{self.path}, output {port.index} of node {port.node.name}"
        logical = unblocked(desc)
        kept = desc.logical() if logical else desc
        bits = desc.dtype.bits or 8
        if bits % 8 or desc.dtype.numpy.hasobject:
            return Operand(desc, np.zeros(kept.shape, desc.dtype.numpy), logical)
        return Operand(desc, arena.view(offset, desc.dtype, kept.shape, where), logical)

    def _unassigned(self, port: Port, address: int) -> InputError:
        below = [(place, name) for name, place in self.addresses.items() if place <= address]
        place, nearest = max(below, default=(0, ""))
        shown = f"the nearest below is {nearest} at {place:#x}" if nearest else "it has none"
        return InputError(
            "G4010",
            f"no variable of the model lies at {address:#x}",
            where=f"{self.path}, output {port.index} of node {port.node.name}",
            why=shown,
            kind="RT_ADDR_UNASSIGNED",
        )

    # ------------------------------------------------------------------ order of reads and writes

    def _find_first_readers(self) -> None:
        """For each variable of a static model the node that reads it before anything in the model wrote it."""
        reads = reads_of(self.graphs, self.variable_of)
        written: set[str] = set()
        for node in self.graph.nodes:
            for name in reads.get(node, ()):
                if name not in written:
                    variable = self.variables[name]
                    variable.first_reader = variable.first_reader or node.name
            written.update(self._written_by(node))

    def _find_writers(self) -> None:
        for node in self.every_node:
            for name in self._written_by(node):
                self.variables[name].writer = node.name

    def _written_by(self, node: OpDesc) -> list[str]:
        if node.is_variable and node.ref_variable is None and not node.inputs:
            return []
        return [name for index in range(len(node.output_descs)) if (name := self.variable_of(Port(node, index)))]


def _address(graph: GraphRecord, port: Port) -> int:
    placement = graph.placements.get(port.node)
    offsets = placement.output_offsets if placement else ()
    return offsets[port.index] if port.index < len(offsets) else 0


class _Weights(MappedWeights):
    """The weights of a file with their place in it."""

    def __init__(self, path: str, start: int, size_bytes: int, *, copy: bool = False) -> None:
        super().__init__(path, start, size_bytes, copy=copy)
        self.path = path
        self.start = start

    def holds(self, source: FileSlice) -> bool:
        end = source.offset_bytes + source.length_bytes
        return source.path == self.path and self.start <= source.offset_bytes and end <= self.start + self.size_bytes


def _mapped_weights(om: OmFile, model: OmModel, *, copy: bool = False) -> _Weights:
    part = model.partition(PartitionType.WEIGHTS_DATA)
    return _Weights(om.path, 0, 0) if part is None else _Weights(om.path, part.offset_bytes, part.size_bytes, copy=copy)
