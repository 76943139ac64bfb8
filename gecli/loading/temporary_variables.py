"""TemporaryVariable: a buffer of one step, written by operators with references (training.md 11).

GE has no kernel for it in offline models. Here the buffer becomes the values that it has one after the other: a copy
of a zero constant first, then what each writer makes of it, and every reader gets the one of its place in the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from itertools import pairwise
from typing import NamedTuple

from gecli.errors import Diagnostic
from gecli.ir.attributes import DATA_TYPES, VALUE
from gecli.ir.calls import LOOP_TYPES, argument_slot
from gecli.ir.dtype import DataType
from gecli.ir.graph import NET_OUTPUT
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ir.weight import Fill, Weight
from gecli.loading.json_graph import GraphReader
from gecli.ops.operator import AllInputs, OperatorType, convert_attribute
from gecli.ops.registry import find
from gecli.records import dataclass

TEMPORARY = "TemporaryVariable"
DESTROY = "DestroyTemporaryVariable"


@dataclass(eq=False, slots=True)
class _Temporary:
    """A temporary variable, the value that it has now, and who used it so far."""

    node: OpDesc
    name: str
    value: Port
    users: list[OpDesc] = field(default_factory=list)
    writers: list[OpDesc] = field(default_factory=list)
    destroyed: OpDesc | None = None


class _Life(NamedTuple):
    """When a name is in use in a graph: from one node to another, or to the end of the step; and by whom."""

    start: OpDesc
    end: OpDesc | None
    who: str


def rewrite_temporaries(readers: Iterable[GraphReader]) -> None:
    """Rewrite all temporary variables of a document whose graphs are connected. Raises InputError."""
    readers = list(readers)
    work: dict[str, _Rewriter] = {}
    for reader in readers:
        if reader.graph.count_of(TEMPORARY) or reader.graph.count_of(DESTROY):
            work[reader.graph.name] = _Rewriter(reader)
            work[reader.graph.name].rewrite()
    if not work:
        return
    inner = _InnerLives({reader.graph.name: reader for reader in readers}, work)
    for reader in readers:
        _require_separate_lives(reader, inner, work.get(reader.graph.name))


class _InnerLives:
    """The temporary variables of graphs that nodes call, and of those called there."""

    def __init__(self, readers: Mapping[str, GraphReader], work: Mapping[str, _Rewriter]) -> None:
        self._readers = readers
        self._work = work
        self._known: dict[str, dict[str, _Temporary]] = {}

    def of(self, call: OpDesc) -> dict[str, _Temporary]:
        """One temporary variable for each name below a node; one that nothing destroys, if there is any."""
        found: dict[str, _Temporary] = {}
        for graph in call.subgraphs:
            _enter(found, self._below(graph).values())
        return found

    def _below(self, graph: str) -> dict[str, _Temporary]:
        known = self._known.get(graph)
        if known is not None:
            return known
        found = self._known[graph] = {}  # before the walk: a graph may call itself
        reader, own = self._readers.get(graph), self._work.get(graph)
        if own is not None:
            _enter(found, own.all)
        for node in [] if reader is None else reader.graph.nodes():
            if node.subgraphs:
                _enter(found, self.of(node).values())
        return found


def _enter(found: dict[str, _Temporary], others: Iterable[_Temporary]) -> None:
    for each in others:
        known = found.setdefault(each.name, each)
        if known.destroyed is not None:
            found[each.name] = each


def _require_separate_lives(reader: GraphReader, inner: _InnerLives, own: _Rewriter | None) -> None:
    """Raises InputError for a name that a called graph uses while it lives in the calling graph or in another call."""
    nodes = reader.graph.nodes()
    lives: dict[str, list[_Life]] = {}
    for node in (node for node in nodes if node.subgraphs):
        for name, held in inner.of(node).items():
            who = f"{held.node.name!r} of graph {held.node.graph.name!r}, which {node.name!r} calls,"
            if held.destroyed is None and node.type in LOOP_TYPES | {"For"}:
                raise _two_of_one_name(
                    reader, node, name, f"{who} is made again by each iteration; nothing destroys it"
                )
            lives.setdefault(name, []).append(_Life(node, None if held.destroyed is None else node, who))
    if not lives:
        return
    for temporary in [] if own is None else own.all:
        if temporary.name in lives:
            lives[temporary.name].append(_Life(temporary.node, temporary.destroyed, repr(temporary.node.name)))
    position = {node: place for place, node in enumerate(nodes)}
    before = _Order(nodes) if own is None else own.before
    for name, found in lives.items():
        for one, other in pairwise(sorted(found, key=lambda life: position[life.start])):
            if one.end is None or not before.path(one.end, other.start):
                why = f"{one.who} and {other.who} live at one time: " + (
                    "nothing destroys the first" if one.end is None else "no path of data or control links joins them"
                )
                raise _two_of_one_name(reader, other.start, name, why)


def _two_of_one_name(reader: GraphReader, node: OpDesc, name: str, why: str) -> Exception:
    pointer = next((pointer for pointer, each in reader.read if each is node), "")
    do = f"give one another var_name, or order one behind a {DESTROY} of the other"
    return reader.source.fault(pointer, f"two temporary variables are named {name!r}", why, do)


class _Rewriter:
    """One graph of the document, walked in its order."""

    def __init__(self, reader: GraphReader) -> None:
        self.reader = reader
        self.graph = reader.graph
        self.pointers = {node: pointer for pointer, node in reader.read}
        self.before = _Order(self.graph.nodes())
        self.all: list[_Temporary] = []
        self.holder: dict[Port, _Temporary] = {}  # ports that are the buffer, or a reference to it

    def rewrite(self) -> None:
        nodes = self.graph.nodes()
        before = self.before
        for node in nodes:
            if node.type == TEMPORARY:
                self._create(node, before)
            elif node.type == DESTROY:
                self._destroy(node, before)
            else:
                self._use(node, before)
        for place, name, index in self.reader.named_outputs():
            returned = self.graph.get(name)
            held = None if returned is None else self.holder.get(Port(returned, index))
            if held is not None and held.destroyed is not None:
                raise self._after_its_end(held, "the graph's output", place)
        self.reader.replaced.update({port: held.value for port, held in self.holder.items() if port != held.value})

    # ------------------------------------------------------------------ the nodes

    def _create(self, node: OpDesc, before: _Order) -> None:
        desc = self._desc_of(node)
        name = str(node.attrs.get("var_name") or node.name)
        for other in self.all:
            ended = other.destroyed is not None and before.path(other.destroyed, node)
            if other.name == name and not ended:
                end = f"nothing destroys {other.node.name!r} before it"
                raise self._fault(
                    node,
                    f"two temporary variables are named {name!r}",
                    f"{other.node.name!r} and {node.name!r} live at one time: {end}",
                    f"give one another var_name, or order {node.name!r} behind a {DESTROY} of {other.node.name!r}",
                )
        zero = self.graph.create(
            "Const",
            f"{node.name}/zero",
            near=node,
            output_descs=[desc],
            attrs={VALUE: Weight(desc, Fill(bytes(desc.dtype.itemsize), desc.elements))},
        )
        self.reader.declared.add(zero)
        self.graph.retype(node, "TensorMove")
        node.attrs = {}
        if not node.output_descs:
            node.add_output(desc)
        node.output_descs[0] = desc
        self.reader.declared.add(node)
        self.reader.silent.add(node)
        self.graph.connect(zero.out(), node, 0)
        held = _Temporary(node, name, node.out())
        self.all.append(held)
        self.holder[node.out()] = held

    def _destroy(self, node: OpDesc, before: _Order) -> None:
        port = node.inputs[0] if node.inputs else None
        held = None if port is None else self.holder.get(port)
        if held is None:
            why = "input 0 is not connected" if port is None else f"input 0 is {port.node.type} {port.node.name!r}"
            what = f"{DESTROY} {node.name!r} has no temporary variable"
            raise self._fault(node, what, why, f"feed it from a {TEMPORARY}, or from what writes one")
        named = node.attrs.get("var_name")
        if named != held.name:
            raise self._fault(
                node,
                f"{DESTROY} {node.name!r} names another temporary variable than it reads",
                f"var_name is {named!r}, input 0 is {held.name!r}" if named else "it has no var_name",
                f"var_name: {held.name!r}",
                place="/attrs/var_name" if named else "",
                code="E13014" if named else "E14002",
            )
        if held.destroyed is not None:
            what = f"temporary variable {held.name!r} is destroyed twice"
            raise self._fault(node, what, f"by {held.destroyed.name!r} too", f"remove one {DESTROY}")
        unordered = [user for user in held.users if not before.path(user, node)]
        if unordered:
            raise self._unordered_end(held, node, unordered[0])
        self.graph.replace_input(node, 0, held.value)
        self.graph.retype(node, "Identity")
        node.attrs = {}
        held.destroyed = node

    def _use(self, node: OpDesc, before: _Order) -> None:
        """Let a node read the present value; what it writes is the next one."""
        kind = find(node.type)
        slots = [(slot, self.holder[port]) for slot, port in enumerate(node.inputs) if port and port in self.holder]
        writes = [
            (slot, held) for slot, held in slots if kind is not None and _input_name(kind, node, slot) in kind.writes
        ]
        for slot, held in slots:
            if held.destroyed is not None:
                if node.type == NET_OUTPUT or before.path(held.destroyed, node):
                    raise self._after_its_end(held, f"{node.type} {node.name!r}", self.pointers.get(node, ""))
                raise self._unordered_end(held, held.destroyed, node)
            if node.subgraphs:
                self._check_call(node, slot, held)
            if held.value != node.inputs[slot]:
                self.graph.replace_input(node, slot, held.value)
            if node.type == "RefIdentity":
                self.holder[node.out()] = held
        for held in dict.fromkeys(held for _, held in slots):
            written = [slot for slot, each in writes if each is held]
            self._note_use(held, node, bool(written), before)
            for slot in written[:1]:
                held.value = self._new_value(node, kind, slot, held)
                self.holder[held.value] = held

    def _new_value(self, node: OpDesc, kind: OperatorType | None, slot: int, held: _Temporary) -> Port:
        """The output of a writer that is the new content."""
        assert kind is not None
        name = _input_name(kind, node, slot)
        index = kind.output_index(name)
        if node.output_names is not None and name in node.output_names:
            index = node.output_names.index(name)
        shown = any(port.name in kind.writes for port in kind.outputs)
        if isinstance(kind.writes, AllInputs):
            index = slot
        if index is None or not shown:
            what = f"{node.type} {node.name!r} cannot write temporary variable {held.name!r}"
            raise self._fault(node, what, "the new value is no output of it", "write it with Assign or AssignAdd")
        while len(node.output_descs) <= index:
            node.add_output(TensorDesc(DataType.UNDEFINED, UNKNOWN_RANK))
        return node.out(index)

    def _note_use(self, held: _Temporary, node: OpDesc, is_write: bool, before: _Order) -> None:
        """Warn of a reader and a writer, or of two writers, that only their place in the file orders."""
        rivals = held.users if is_write else held.writers
        for other in rivals:
            if before.path(other, node):
                continue
            source, pointer = self.reader.source, self.pointers.get(node, "")
            source.warnings.append(
                Diagnostic(
                    "G4012",
                    f"nothing orders {node.name!r} and {other.name!r}, which use temporary variable {held.name!r}",
                    kind="RT_RW_RACE",
                    where=f"{source.path}#{pointer}",
                    why=f"no path of data or control links joins them; {other.name!r} runs first here",
                    do=f"add a control link between {other.name!r} and {node.name!r}",
                    severity="warning",
                    file=source.path,
                    node=node.name,
                    pointer=pointer,
                )
            )
            break
        held.users.append(node)
        if is_write:
            held.writers.append(node)

    def _check_call(self, node: OpDesc, slot: int, held: _Temporary) -> None:
        """A called graph gets the value; the buffer stays here."""
        for graph in (self.graph.subgraphs[name] for name in node.subgraphs):
            for data in graph.nodes_of(*sorted(DATA_TYPES)):
                writer = _writer_of(data.out()) if argument_slot(data, node) == slot and data.output_descs else None
                if writer is not None:
                    raise self._fault(
                        node,
                        f"graph {graph.name!r} writes temporary variable {held.name!r} of the graph that calls it",
                        f"by {writer.type} {writer.name!r}, through input {slot} of {node.name!r}",
                        "return the new value, and assign it here",
                    )

    # ------------------------------------------------------------------ faults and attributes

    def _desc_of(self, node: OpDesc) -> TensorDesc:
        values = {}
        for key, kind, example in (
            ("dtype", "DataType", '{"dtype": "DT_FLOAT"}'),
            ("shape", "tuple[int, ...]", "[2, 3]"),
        ):
            if key not in node.attrs:
                what = f"{TEMPORARY} {node.name!r} has no attribute {key!r}"
                raise self._fault(
                    node, what, "its buffer has no other description", f'"{key}": {example}', code="E14002"
                )
            values[key] = convert_attribute(kind, node.attrs[key])  # the reader has tried it
        desc = TensorDesc(values["dtype"], tuple(values["shape"]))
        if not desc.is_static or not desc.dtype.itemsize:
            why = (
                f"{desc.dtype.serial} {list(desc.shape)}: a buffer of zeros needs known dims and a dtype of whole bytes"
            )
            raise self._fault(
                node, f"{TEMPORARY} {node.name!r} has no size", why, '"shape": [2, 3]', "/attrs", "E13014"
            )
        declared = node.output_descs[0] if node in self.reader.declared else desc
        if (declared.dtype, declared.shape) != (desc.dtype, desc.shape):
            why = f"its attributes say {_shown(desc)}, its output {_shown(declared)}"
            raise self._fault(node, f"{TEMPORARY} {node.name!r} is described in two ways", why, "leave its outputs out")
        return declared

    def _unordered_end(self, held: _Temporary, end: OpDesc, user: OpDesc) -> Exception:
        return self._fault(
            end,
            f"nothing orders {DESTROY} {end.name!r} behind {user.name!r}, which uses temporary variable {held.name!r}",
            "no path of data or control links leads there",
            f"add a control link from {user.name!r} to {end.name!r}",
            code="G4012",
            kind="RT_RW_RACE",
        )

    def _after_its_end(self, held: _Temporary, user: str, pointer: str) -> Exception:
        assert held.destroyed is not None
        what = f"{user} uses temporary variable {held.name!r} after its end"
        why = f"{held.destroyed.name!r} destroys it; its output is the last value"
        return self.reader.source.fault(pointer, what, why, f"read {held.destroyed.name!r}")

    def _fault(
        self, node: OpDesc, what: str, why: str, do: str, place: str = "", code: str = "E13005", kind: str = ""
    ) -> Exception:
        pointer = self.pointers[node] + place
        return self.reader.source.fault(pointer, what, why, do, code, kind)


class _Order:
    """Whether a path leads from one node of a graph to another."""

    def __init__(self, nodes: Iterable[OpDesc]) -> None:
        self._before: dict[OpDesc, int] = {}
        self._bits: dict[OpDesc, int] = {}
        for position, node in enumerate(nodes):
            mask = 0
            for other in (*(port.node for port in node.inputs if port is not None), *node.control_in):
                mask |= self._before[other] | self._bits[other]
            self._before[node], self._bits[node] = mask, 1 << position

    def path(self, first: OpDesc, second: OpDesc) -> bool:
        return bool(self._before[second] & self._bits[first])


def _shown(desc: TensorDesc) -> str:
    return f"{desc.dtype.serial} {list(desc.shape)}"


def _input_name(kind: OperatorType, node: OpDesc, slot: int) -> str:
    names = node.input_names
    return names[slot] if names is not None and slot < len(names) else kind.input_name(slot)


def _writer_of(port: Port) -> OpDesc | None:
    """A node that writes what it reads at `port`, directly or through a reference."""
    for node, slot in port.node.users[port.index]:
        kind = find(node.type)
        if kind is not None and _input_name(kind, node, slot) in kind.writes:
            return node
        found = _writer_of(node.out()) if node.type == "RefIdentity" else None
        if found is not None:
            return found
    return None
