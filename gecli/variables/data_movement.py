"""The data of variables whose stored form changed (GE: TransVarDataUtils): replay of roads, copies to fp16 twins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gecli.errors import InputError
from gecli.ir.attributes import COPIED_VALUE, COPY_FROM_VAR
from gecli.ir.op_desc import OpDesc
from gecli.ir.packing import pack, unpack
from gecli.ir.tensor_desc import TensorDesc
from gecli.variables import var_faults
from gecli.variables.sizes import raw_bytes
from gecli.variables.trans_road import TransRoad, TransStep
from gecli.variables.var_memory import VariableMemory


def convert_changed_variables(
    nodes: Iterable[OpDesc], memory: VariableMemory, graph_id: int, devices: Sequence[int] = (0,)
) -> list[str]:
    """Convert what graph `graph_id` stores in another form than earlier graphs left (GE: TransAllVarData).

    Returns the names of the variables whose data moved. A variable that the graph itself created has no earlier data,
    and neither has one of which no graph registered the declared form. The mark of the change goes when every device
    is converted; GE drops it behind the first. Raises CompileError (VAR_NOT_FOUND) for a variable that no graph
    created or whose new form has no memory, and InputError (RT_TRANS_UNSUPPORTED, RT_TRANS_TOO_LARGE).
    """
    resource = memory.manager.resource
    moved = []
    for name in sorted({node.name for node in nodes if node.type == "Variable"}):
        created_by = resource.allocated_graph_id(name)
        if created_by is None:
            raise var_faults.not_found(name, "no graph of the session created it")
        road = resource.trans_road(name)
        if resource.changed_graph_id(name) != graph_id or created_by == graph_id or road is None:
            continue
        if not road.is_data_unchanged and resource.find(name, road.source) is not None:
            for device_id in devices:
                _convert(name, road, memory, device_id)
            moved.append(name)
        resource.remove_changed_graph_id(name)
    return moved


def copy_to_twins(nodes: Iterable[OpDesc], memory: VariableMemory, device_id: int = 0) -> list[str]:
    """Fill each variable that says so from another one of the graph, cast to its type (GE: CopyVarData).

    Returns the names that were filled. Raises CompileError (VAR_NOT_FOUND) for a source that is no node of the graph.
    """
    variables = {node.name: node for node in nodes if node.type == "Variable"}
    filled = []
    for name, node in variables.items():
        # Each node has its own mark: GE keeps it from one node to the next.
        source_name = node.attrs.get(COPY_FROM_VAR)
        if not source_name or node.attrs.get(COPIED_VALUE, False):
            continue
        source = variables.get(source_name)
        if source is None:
            raise var_faults.not_found(
                source_name, f"{name!r} names it in {COPY_FROM_VAR}, the graph has no such variable"
            )
        src, dst = source.output_descs[0], node.output_descs[0]
        # A road of one Cast; equal types copy the bytes, where GE copies nothing.
        road = TransRoad() if src.dtype is dst.dtype else TransRoad([TransStep("Cast", src, src.with_dtype(dst.dtype))])
        resource = memory.manager.resource
        data = _replayed(road, memory.read(resource.address_of(source_name, src), raw_bytes(src), device_id), src)
        memory.write(resource.address_of(name, dst), _filling(data, name, dst, memory), device_id)
        node.attrs[COPIED_VALUE] = True
        filled.append(name)
    return filled


def _convert(name: str, road: TransRoad, memory: VariableMemory, device_id: int) -> None:
    resource = memory.manager.resource
    old, new = resource.address_of(name, road.source), resource.address_of(name, road.target)
    size = raw_bytes(road.source)
    if not size:
        return
    data = _replayed(road, memory.read(old, size, device_id), road.source)
    expected = raw_bytes(road.target)
    if len(data) != expected:
        raise _too_large(name, road.target, len(data), expected)
    memory.write(new, _filling(data, name, road.target, memory), device_id)


def _replayed(road: TransRoad, data: bytes, desc: TensorDesc) -> bytes:
    """All of the result, before anything is written: old and new form may share a block."""
    if not road:
        return data
    result: bytes = pack(road.replay(unpack(data, desc.dtype, desc.shape)), road.target.dtype)
    return result


def _filling(data: bytes, name: str, desc: TensorDesc, memory: VariableMemory) -> bytes:
    """`data` with zeros to the end of the variable's block."""
    found = memory.manager.resource.resolve(memory.manager.resource.address_of(name, desc))
    capacity = len(data) if found is None else found[0].capacity_bytes
    if len(data) > capacity:
        raise _too_large(name, desc, len(data), capacity)
    return data + bytes(capacity - len(data))


def _too_large(name: str, desc: TensorDesc, actual: int, expected: int) -> InputError:
    return InputError(
        "G4011",
        f"the converted data of variable {name!r} do not fit",
        kind="RT_TRANS_TOO_LARGE",
        why=f"{desc} has room for {expected} bytes, the conversion gave {actual}",
        expected=expected,
        actual=actual,
    )
