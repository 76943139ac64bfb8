"""References of a model, looked at when it is loaded: what a node writes in place is there, and is what it was given.

GE gives an output with the name of an input the address of that input. Where there is no such input, or the two
addresses differ, its update of the variable is lost without a word (runtime.md 4.4, 5.6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from gecli.errors import Diagnostic, InputError
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.ops.operator import OperatorType
from gecli.ops.registry import find
from gecli.variables.trans_road import ROAD_TYPES
from gecli.wire.model_record import GraphRecord

VariableOf = Callable[[Port], str]  # the variable in whose memory a port lies; empty for every other port


def require_references(graphs: Iterable[GraphRecord], variable_of: VariableOf, path: str) -> None:
    """Raises InputError (RT_REF_UNBOUND, RT_REF_MISMATCH) with every node whose update would be lost."""
    problems = [
        found
        for graph in graphs
        for node in graph.nodes
        if (kind := find(node.type)) is not None and kind.writes
        for found in _faults(node, kind, variable_of, path)
    ]
    if problems:
        raise InputError.of(problems)


def _faults(node: OpDesc, kind: OperatorType, variable_of: VariableOf, path: str) -> Iterator[Diagnostic]:
    from gecli.passes.written_inputs import input_name, output_names, writes_at  # of models that write variables only

    shown = output_names(node, kind)
    for slot in range(max(len(node.inputs), len(kind.inputs))):
        name = input_name(node, kind, slot)
        if name not in kind.writes:
            continue
        port = node.inputs[slot] if slot < len(node.inputs) else None
        if port is None:
            if name in shown and not (slot < len(kind.inputs) and kind.inputs[slot].optional):
                yield _unbound(node, slot, name, path)
            continue
        variable = variable_of(port)
        for write in writes_at(Use(node, slot)) if variable else ():
            if write.output is None or write.output >= len(node.output_descs):
                continue  # nothing shows the write
            if not _arrives(node.out(write.output), variable, variable_of):
                yield _mismatch(node, write.output, variable, variable_of(node.out(write.output)), path)


def _arrives(port: Port, variable: str, variable_of: VariableOf) -> bool:
    """What a node writes is stored into the variable: in place, or by a variable ref behind conversions."""
    waiting, seen = [port], {port}
    while waiting:
        port = waiting.pop()
        if variable_of(port) == variable:
            return True
        for use in port.node.users[port.index]:
            if use.node.ref_variable == variable:
                return True
            if use.node.type in ROAD_TYPES or use.node.type == "RefIdentity" or _writes(use):
                outputs = {use.node.out(index) for index in range(len(use.node.output_descs))}
                waiting += outputs - seen
                seen |= outputs
    return False


def _writes(use: Use) -> bool:
    from gecli.passes.written_inputs import writes_at

    return bool(writes_at(use))


def _unbound(node: OpDesc, slot: int, name: str, path: str) -> Diagnostic:
    return Diagnostic(
        "G4012",
        f"{node.type} node {node.name!r} writes nothing",
        kind="RT_REF_UNBOUND",
        where=f"{path}, node {node.name}",
        why=f"its output {name!r} is its input {slot}, which is not connected: the update would be lost",
        do="connect the input to a variable and compile the model again",
        file=path,
        node=node.name,
    )


def _mismatch(node: OpDesc, output: int, variable: str, other: str, path: str) -> Diagnostic:
    place = f"variable {other!r}" if other else "the feature map"
    return Diagnostic(
        "G4012",
        f"{node.type} node {node.name!r} writes variable {variable!r} in another place",
        kind="RT_REF_MISMATCH",
        where=f"{path}, output {output} of node {node.name}",
        why=f"the output lies in {place}, and no variable ref stores it: the update would be lost",
        do="compile the model again; the file does not agree with itself",
        file=path,
        node=node.name,
        expected=variable,
        actual=other or None,
    )
