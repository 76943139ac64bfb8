"""`VarMatchInfo` messages <-> variable records (GE: deployer.VarMatchInfo, the content of a .rdcpkt file)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, TypeVar

from gecli.errors import InputError
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.pb import ge_ir_pb2 as ge_ir
from gecli.pb import var_manager_pb2 as pb
from gecli.records import dataclass
from gecli.variables.trans_road import TransRoad, TransStep
from gecli.variables.var_match import VarDescCache, VarMatch
from gecli.wire.attributes import MEMO_ENTRIES, AttrReader, fill_attr
from gecli.wire.byte_source import ByteSource, MemorySource
from gecli.wire.decode_errors import DECODE_ERRORS, reason
from gecli.wire.field_scan import FieldScanner
from gecli.wire.memory_budget import DESC_COST, ROOM, TEXT_COST, MemoryBudget, is_about_memory
from gecli.wire.tensor_desc import Message, fill_desc, memo_key
from gecli.wire.walker import LENGTH_DELIMITED, WireError

V = TypeVar("V")
INLINE_BYTES = 1 << 16  # larger initial values are in the OM and not repeated: the match ignores attributes
PIECE_BYTES = 1 << 16  # of a table that protobuf parses at once
PIECE_COST = 1000  # rather for the time than for the memory: tables come in few pieces
MEMO_BYTES = 1 << 10  # larger descriptors and roads are rarely equal
ENTRY_COST = 100  # of a dictionary's entry while the dictionary grows
PARSED_FACTOR = 48  # a message of two bytes becomes an object of a hundred


def encode_var_match(record: VarMatch) -> bytes:
    """The bytes of a `.rdcpkt`, the same for the same record."""
    message = pb.VarMatchInfo()
    writer = VarWriter()
    fill_var_descs(message.desc_info_before_compile, record.before, writer)
    fill_var_descs(message.desc_info_after_compile, record.after, writer)
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def decode_var_match(data: bytes, *, path: str | None = None) -> VarMatch:
    """The record in `.rdcpkt` bytes. Raises as `read_var_match`."""
    return read_var_match(MemorySource(data), path=path)


def read_var_match(source: ByteSource, *, path: str | None = None) -> VarMatch:
    """The record in a `.rdcpkt`, read in pieces. Raises InputError (rdcpkt_corrupt)."""
    reader = VarReader(AttrReader(path, budget=MemoryBudget(source.size)))
    sides = {1: _Side(), 2: _Side()}
    scanner = FieldScanner(source)
    try:
        for span in scanner.spans(0, source.size):
            if span.number in sides and span.kind == LENGTH_DELIMITED:
                for piece in parsed_pieces(pb.VarDescInfo, scanner, span.body, span.end, reader):
                    sides[span.number].add(piece, reader)
        return VarMatch(sides[1].cache(), sides[2].cache())
    except (*DECODE_ERRORS, WireError) as error:
        raise InputError(
            "G3007",
            f"the variable record cannot be read: {reason(error)}",
            why=ROOM if is_about_memory(error) else "",
            kind="rdcpkt_corrupt",
            file=path,
            offset=error.offset if isinstance(error, WireError) else None,
            do="compile the model again",
        ) from error


@dataclass(slots=True)
class _Side:
    """One side of a record while it is read."""

    current: dict[str, TensorDesc] = field(default_factory=dict)
    roads: dict[str, TransRoad] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    staged: dict[str, TensorDesc] = field(default_factory=dict)

    def add(self, message: Message, reader: VarReader) -> None:
        """Take in some entries of a VarDescInfo."""
        reader.add(message.cur_var_tensor_desc_map, self.current, reader.desc)
        reader.add(message.var_to_trans_road, self.roads, reader.road)
        self.changed += map(reader.name, message.changed_var_names)
        reader.add(message.staged_var_tensor_desc_map, self.staged, reader.desc)

    def cache(self) -> VarDescCache:
        tables = in_name_order(self.current), in_name_order(self.roads)
        return VarDescCache(*tables, tuple(self.changed), in_name_order(self.staged))


def parsed_pieces(kind: Any, scanner: FieldScanner, begin: int, end: int, reader: VarReader) -> Iterator[Message]:
    """A message that consists of tables, as several messages of some of its entries each; none for an empty one."""
    reader.budget.spend(PIECE_COST)
    if end - begin <= PIECE_BYTES:
        if begin < end:
            yield _parsed(kind, scanner, begin, end, reader)
        return
    start = begin
    for span in scanner.spans(begin, end):
        if span.end - start > PIECE_BYTES and span.begin > start:
            yield _parsed(kind, scanner, start, span.begin, reader)
            start = span.begin
    yield _parsed(kind, scanner, start, end, reader)


def _parsed(kind: Any, scanner: FieldScanner, begin: int, end: int, reader: VarReader) -> Message:
    reader.budget.spend(PIECE_COST)
    if end - begin > PIECE_BYTES:  # one entry; no file has it so large
        reader.budget.require(PARSED_FACTOR * (end - begin))
    return kind.FromString(scanner.take(begin, end))


def in_name_order(table: dict[str, V]) -> dict[str, V]:
    """Files that gecli wrote have this order already."""
    names = sorted(table)
    return table if list(table) == names else {name: table[name] for name in names}


class VarReader:
    """Reads the tables of one file. Equal names, descriptors and roads become one object."""

    def __init__(self, attrs: AttrReader) -> None:
        self.budget = attrs.budget
        self._attrs = attrs
        self._names: dict[str, str] = {}
        self._roads: dict[bytes, TransRoad] = {}

    def name(self, name: str) -> str:
        found = self._names.get(name)
        if found is None:
            self.budget.spend(TEXT_COST + len(name) + ENTRY_COST)
            found = self._names[name] = name
        return found

    def add(self, source: Message, target: dict[str, V], value_of: Callable[[bytes], V]) -> None:
        """Put the entries of a table into `target`."""
        self.budget.spend(ENTRY_COST * len(source))
        for name in sorted(source):
            target[self.name(name)] = value_of(source[name])

    def desc(self, data: bytes) -> TensorDesc:
        """The descriptor in TensorDescriptor bytes."""
        if len(data) <= MEMO_BYTES:
            return self._attrs.desc(data)
        self.budget.require(PARSED_FACTOR * len(data))
        return self._attrs.desc_of(ge_ir.TensorDescriptor.FromString(data))

    def road(self, data: bytes) -> TransRoad:
        """The road in TransNodeMultiInfo bytes."""
        found = self._roads.get(data)
        if found is not None:
            return found
        self.budget.require(PARSED_FACTOR * len(data))
        steps = pb.TransNodeMultiInfo.FromString(data).node_info
        self.budget.spend(DESC_COST * (len(steps) + 1))
        found = TransRoad(
            TransStep(self.name(step.node_type), self.desc(step.input), self.desc(step.output)) for step in steps
        )
        if len(data) <= MEMO_BYTES:
            if len(self._roads) >= MEMO_ENTRIES:
                self._roads.clear()
            self._roads[data] = found
        return found


def fill_var_descs(message: Message, cache: VarDescCache, writer: VarWriter) -> None:
    """Write one side of a record into a VarDescInfo."""
    message.SetInParent()
    writer.fill_descs(message.cur_var_tensor_desc_map, cache.var_desc_map)
    writer.fill_roads(message.var_to_trans_road, cache.var_trans_roads_map)
    message.changed_var_names.extend(sorted(cache.changed_var_names))
    writer.fill_descs(message.staged_var_tensor_desc_map, cache.staged_var_desc_map)


class VarWriter:
    """Writes the tables of one file. What is equal is encoded once."""

    def __init__(self) -> None:
        self._descs: dict[tuple[Any, ...], bytes] = {}
        self._roads: dict[tuple[tuple[str, bytes, bytes], ...], bytes] = {}

    def desc(self, desc: TensorDesc) -> bytes:
        """The bytes of a variable's descriptor with its origin form spelled out, as GE does."""
        key = None if desc.attrs else memo_key(desc)
        found = None if key is None else self._descs.get(key)
        if found is None:
            for name, value in desc.attrs.items():
                if isinstance(value, Weight) and value.nbytes > INLINE_BYTES:
                    desc = desc.without_attr(name)
            message = ge_ir.TensorDescriptor()
            fill_desc(message, desc, fill_attr, full=True)
            found = message.SerializeToString(deterministic=True)
            if key is not None:
                self._descs[key] = found
        return found

    def road(self, road: TransRoad) -> bytes:
        key = tuple([(step.type, self.desc(step.src), self.desc(step.dst)) for step in road])
        found = self._roads.get(key)
        if found is None:
            message = pb.TransNodeMultiInfo()
            for kind, source, target in key:
                message.node_info.add(node_type=kind, input=source, output=target)
            found = self._roads[key] = message.SerializeToString(deterministic=True)
        return found

    def fill_descs(self, target: Message, descs: Mapping[str, TensorDesc]) -> None:
        for name, desc in descs.items():
            target[name] = self.desc(desc)

    def fill_roads(self, target: Message, roads: Mapping[str, TransRoad]) -> None:
        for name, road in roads.items():
            target[name] = self.road(road)
