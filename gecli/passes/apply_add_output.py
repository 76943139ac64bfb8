"""Give optimizer operators an output for every variable they write (GE: ApplyAddOutputPass)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from gecli.engine.trans_ops import TRANS_OPS
from gecli.errors import CompileError
from gecli.ir.attributes import REF_PORT_INDEX, VARIABLE_TYPES
from gecli.ir.calls import argument_slot
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import NO_ATTRS
from gecli.ops.operator import AllInputs, OperatorType
from gecli.ops.registry import find
from gecli.passes.base import Pass, PassContext, Stage
from gecli.passes.facts import Fact
from gecli.passes.written_inputs import input_name, output_names, writes_at

# Where a reference may start; a TensorMove is a copy that was made to be written (ScatterND of ONNX).
_WRITABLE = frozenset(("Variable", "VariableV2", "RefData", "VarHandleOp", "TemporaryVariable", "TensorMove"))
# Data nodes of a subgraph stand for an input of the calling node.
_PASSED_IN = frozenset(("Data",))
_COPIES = TRANS_OPS | {"TensorMove"}  # what they give is no longer the memory of their input


class ApplyAddOutput(Pass):
    """Append an output with the name and descriptor of each written input that has none.

    Most optimizer types declare an output for `var` only; without one the update of `accum`, `m`, `v` is invisible
    to every later pass, and lost as soon as a conversion stands before that input. GE does this for a list of types
    and under conditions; here it holds for every type with written inputs. A type whose outputs are no references
    (CountUpTo) gets `ref_port_index` on its input instead.
    """

    name = "ApplyAddOutputPass"
    stage = Stage.ORIGINAL
    requires = (Fact.SHAPES_INFERRED,)
    ensures = (Fact.SHAPES_INFERRED, Fact.ACYCLIC)
    correctness = True

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        writers = list(_writers(graph))
        for node, kind in writers:
            _require_references(node, kind)
        for node, kind in writers:
            added = complete_outputs(node, kind)
            if added:
                counts["outputs_added"] += len(added)
                ctx.record(self.name, "outputs_added", node=node.name, type=node.type, outputs=added)
        return counts


def _writers(graph: Graph) -> Iterator[tuple[OpDesc, OperatorType]]:
    for each in graph.all_graphs():
        for type_name in each.types():
            kind = find(type_name)
            if kind is not None and kind.writes:
                for node in each.nodes_of(type_name):
                    yield node, kind


def complete_outputs(node: OpDesc, kind: OperatorType) -> list[str]:
    """Append what is missing; returns the names of the new outputs."""
    names = output_names(node, kind)
    added = []
    for slot in _written_slots(node, kind):
        name, desc = input_name(node, kind, slot), node.input_descs[slot]
        assert desc is not None
        if name in names:
            continue
        if kind.outputs and not any(port.name in kind.writes for port in kind.outputs):
            node.input_descs[slot] = desc.with_attr(REF_PORT_INDEX, (slot,))
            continue
        node.add_output(replace(desc, attrs=NO_ATTRS, name=""))
        names.append(name)
        added.append(name)
    if added:
        node.output_names = tuple(names)
    return added


def _written_slots(node: OpDesc, kind: OperatorType) -> list[int]:
    return [
        slot
        for slot, port in enumerate(node.inputs)
        if port is not None and input_name(node, kind, slot) in kind.writes
    ]


def _require_references(node: OpDesc, kind: OperatorType) -> None:
    """Every written input is the memory of a variable, each of another one. Raises CompileError.

    GE takes a conversion of a variable too: the operator then updates what the conversion gave, and nobody stores it.
    """
    seen: dict[OpDesc, str] = {}
    for slot in _written_slots(node, kind):
        name = input_name(node, kind, slot)
        source, copy = _origin(node.inputs[slot])
        if isinstance(kind.writes, AllInputs) and (copy is not None or not source.is_variable):
            continue  # a broadcast works on any tensor
        if source.type not in _WRITABLE | _PASSED_IN or (source.type == "Data" and source.graph.parent is None):
            raise _no_variable(node, slot, name, source)
        passed = _passed_conversion(source) if source.type == "Data" else None
        if passed is not None:
            raise _no_variable(node, slot, name, passed)
        if copy is not None and source.type in VARIABLE_TYPES | {"RefData"} and not _is_stored_back(node, kind, slot):
            raise _no_variable(node, slot, name, copy)
        if source in seen:
            raise CompileError(
                "G2018",
                f"node {node.name!r} writes variable {source.name!r} through two inputs",
                kind="PASS_FAILED",
                where=f"node {node.name} ({node.type}), inputs {seen[source]!r} and {name!r}",
                why="the two results would overwrite each other",
                do="use a variable of its own for each input",
                node=node.name,
            )
        seen[source] = name


def _no_variable(node: OpDesc, slot: int, name: str, actual: OpDesc) -> CompileError:
    return CompileError(
        "G2018",
        f"node {node.name!r} writes its input {name!r}, which is not a variable",
        kind="PASS_FAILED",
        where=f"node {node.name} ({node.type}), input {slot}",
        why=f"expected a Variable or RefData; actual {actual.name!r} of type {actual.type}",
        do="feed the input from a Variable node",
        node=node.name,
    )


def _passed_conversion(data: OpDesc) -> OpDesc | None:
    """The conversion of a variable that a call passes in as `data`, if it does."""
    for each in data.graph.root.all_graphs():
        for caller in each.nodes():
            slot = argument_slot(data, caller) if data.graph.name in caller.subgraphs else -1
            if not 0 <= slot < len(caller.inputs) or caller.inputs[slot] is None:
                continue
            source, copy = _origin(caller.inputs[slot])
            if source.type == "Data" and source.graph is not data.graph:
                copy = _passed_conversion(source)
            elif source.type not in VARIABLE_TYPES | {"RefData"}:
                copy = None
            if copy is not None and copy.type in TRANS_OPS:
                return copy
    return None


def _origin(port: Port | None) -> tuple[OpDesc, OpDesc | None]:
    """The node at the start of the references and copies that lead to a written input, and the last of the copies.

    Without a variable at the start it is the first TensorMove on the way, if there is one.
    """
    copy: OpDesc | None = None
    moved: OpDesc | None = None
    while port is not None:
        producer = port.node
        if producer.type in _COPIES:
            copy, back = copy or producer, 0
            moved = moved or (producer if producer.type == "TensorMove" else None)
        else:
            found = 0 if producer.type == "RefIdentity" else _input_behind(producer, port.index)
            if found is None:
                break
            back = found
        if back >= len(producer.inputs) or producer.inputs[back] is None:
            break
        port = producer.inputs[back]
    assert port is not None
    start = port.node
    return (start if moved is None or start.type in VARIABLE_TYPES | {"RefData"} else moved), copy


def _is_stored_back(node: OpDesc, kind: OperatorType, slot: int) -> bool:
    """Whether the written output goes into a variable ref, through conversions that undo those before the input."""
    names = output_names(node, kind)
    name = input_name(node, kind, slot)
    ports = [node.out(names.index(name))] if name in names else []
    while ports:
        for use in node.graph.consumers(ports.pop()):
            if use.node.ref_variable is not None:
                return True
            if use.node.type in TRANS_OPS and use.slot == 0:
                ports.append(use.node.out())
            else:
                ports += [use.node.out(write.output) for write in writes_at(use) if write.output is not None]
    return False


def _input_behind(producer: OpDesc, index: int) -> int | None:
    """The written input of which output `index` is the new value."""
    kind = find(producer.type)
    if kind is None or not kind.writes:
        return None
    names = output_names(producer, kind)
    if index >= len(names) or names[index] not in kind.writes:
        return None
    return next((s for s in range(len(producer.inputs)) if input_name(producer, kind, s) == names[index]), None)
