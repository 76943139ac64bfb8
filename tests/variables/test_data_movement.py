"""Data follow a variable whose stored form changed (variables.md 9.3, 10.1, 10.2)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gecli.errors import CompileError, InputError
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.op_desc import OpDesc
from gecli.ir.packing import pack, unpack
from gecli.ir.tensor_desc import TensorDesc
from gecli.variables.data_movement import convert_changed_variables, copy_to_twins
from gecli.variables.device_arena import DeviceArena
from gecli.variables.sizes import padded_bytes
from gecli.variables.trans_road import TransRoad, TransStep
from gecli.variables.var_manager import VarManager
from gecli.variables.var_memory import VariableMemory

FZ16 = Format.FRACTAL_Z.with_c0(16).with_groups(1)
ND = TensorDesc(DataType.FLOAT, (2, 2, 3, 2))
HWCN = TensorDesc(DataType.FLOAT, (2, 2, 3, 2), Format.HWCN)
FZ = TensorDesc(DataType.FLOAT, (4, 1, 16, 16), FZ16, (2, 2, 3, 2), Format.HWCN)
ROAD = TransRoad([TransStep("ReFormat", ND, HWCN), TransStep("TransData", HWCN, FZ)])


def _sized(desc: TensorDesc) -> TensorDesc:
    return replace(desc, size_bytes=padded_bytes(desc))


def _node(name: str, desc: TensorDesc, **attrs: object) -> OpDesc:
    return OpDesc(name, "Variable", attrs=dict(attrs), output_descs=[_sized(desc)])


def _memory(manager: VarManager, devices: int = 1) -> VariableMemory:
    memory = VariableMemory(manager)
    for device_id in range(devices):
        memory.attach(device_id, DeviceArena(device_id))
    return memory


def changed(old: TensorDesc, road: TransRoad, devices: int = 1) -> VariableMemory:
    """Graph 1 created `w` as `old`, graph 3 stores it at the end of `road`."""
    manager = VarManager()
    manager.assign("w", _sized(old))
    manager.resource.set_allocated_graph_id("w", 1)
    manager.assign("w", _sized(road.target))
    manager.set_trans_road("w", road)
    manager.set_changed_graph_id("w", 3)
    return _memory(manager, devices)


def read(memory: VariableMemory, desc: TensorDesc, device: int = 0, name: str = "w") -> np.ndarray:
    address = memory.manager.resource.address_of(name, desc)
    return unpack(memory.read(address, desc.nbytes, device), desc.dtype, desc.shape)


def write(memory: VariableMemory, desc: TensorDesc, values: np.ndarray, device: int = 0, name: str = "w") -> None:
    memory.write(memory.manager.resource.address_of(name, desc), pack(values, desc.dtype), device)


def test_the_worked_session_moves_the_data_of_var1_to_the_new_block() -> None:
    memory = changed(ND, ROAD)
    assert memory.manager.resource.address_of("w", _sized(FZ)) == 137438953472 + 1536
    values = np.arange(24, dtype=np.float32).reshape(2, 2, 3, 2)
    write(memory, ND, values)
    assert convert_changed_variables([_node("w", FZ)], memory, 3) == ["w"]
    assert np.array_equal(read(memory, FZ), ROAD.replay(values))
    assert np.array_equal(read(memory, ND), values), "the old block keeps what it had"
    assert memory.manager.resource.changed_graph_id("w") is None
    assert convert_changed_variables([_node("w", FZ)], memory, 3) == []


@pytest.mark.parametrize(("graph_id", "created_by"), [(2, 1), (3, 3)])
def test_only_the_graph_that_changed_another_graphs_variable_moves_data(graph_id: int, created_by: int) -> None:
    memory = changed(ND, ROAD)
    memory.manager.resource.allocated_graph_ids["w"] = created_by
    assert convert_changed_variables([_node("w", FZ)], memory, graph_id) == []
    assert memory.manager.resource.changed_graph_id("w") == 3
    assert memory.allocated_bytes == 0


def test_nodes_of_other_types_are_left_alone_and_unknown_variables_are_an_error() -> None:
    memory = changed(ND, ROAD)
    assert convert_changed_variables([], memory, 3) == []
    assert convert_changed_variables([OpDesc("w", "Constant", output_descs=[FZ])], memory, 3) == []
    with pytest.raises(CompileError) as error:
        convert_changed_variables([_node("v", FZ)], memory, 3)
    assert error.value.kind == "VAR_NOT_FOUND"


def test_a_missing_road_keeps_the_mark_and_a_road_of_descriptions_clears_it() -> None:
    memory = changed(ND, ROAD)
    del memory.manager.resource.roads["w"]
    assert convert_changed_variables([_node("w", FZ)], memory, 3) == []
    assert memory.manager.resource.changed_graph_id("w") == 3
    for road in (TransRoad(), TransRoad([TransStep("ReFormat", ND, HWCN)])):
        memory.manager.resource.roads["w"] = road
        memory.manager.set_changed_graph_id("w", 3)
        assert convert_changed_variables([_node("w", HWCN)], memory, 3) == []
        assert memory.manager.resource.changed_graph_id("w") is None
    assert memory.allocated_bytes == 0


def test_a_variable_that_no_graph_had_in_its_declared_form_has_no_data_to_move() -> None:
    manager = VarManager()
    manager.assign("w", _sized(FZ))
    manager.resource.set_allocated_graph_id("w", 1)
    manager.set_trans_road("w", ROAD)
    manager.set_changed_graph_id("w", 3)
    assert convert_changed_variables([_node("w", FZ)], _memory(manager), 3) == []
    assert manager.resource.changed_graph_id("w") is None


def test_a_new_form_without_memory_is_an_error() -> None:
    manager = VarManager()
    manager.assign("w", _sized(ND))
    manager.resource.set_allocated_graph_id("w", 1)
    manager.set_trans_road("w", ROAD)
    manager.set_changed_graph_id("w", 3)
    with pytest.raises(CompileError) as error:
        convert_changed_variables([_node("w", FZ)], _memory(manager), 3)
    assert error.value.kind == "VAR_NOT_FOUND"
    assert manager.resource.changed_graph_id("w") == 3


def test_both_forms_may_share_a_block_whose_rest_is_cleared() -> None:
    old, half = TensorDesc(DataType.FLOAT, (256,)), TensorDesc(DataType.FLOAT16, (256,))
    memory = changed(old, TransRoad([TransStep("Cast", old, half)]))
    assert memory.manager.resource.address_of("w", half) == memory.manager.resource.address_of("w", old)
    write(memory, old, np.arange(256, dtype=np.float32))
    convert_changed_variables([_node("w", half)], memory, 3)
    assert read(memory, half).tolist() == list(range(256))
    assert memory.read(137438953472 + 512, 1056 - 512) == bytes(544)


def test_every_device_is_converted_before_the_mark_goes() -> None:
    memory = changed(ND, ROAD, devices=2)
    for device in (0, 1):
        write(memory, ND, np.full(ND.shape, device + 1, np.float32), device)
    convert_changed_variables([_node("w", FZ)], memory, 3, devices=(0, 1))
    for device in (0, 1):
        assert np.array_equal(read(memory, FZ, device), ROAD.replay(np.full(ND.shape, device + 1, np.float32)))


def sub_byte_data_are_moved_by_their_packed_size() -> None:
    old, new = TensorDesc(DataType.INT4, (7,)), TensorDesc(DataType.INT32, (7,))
    memory = changed(old, TransRoad([TransStep("Cast", old, new)]))
    write(memory, old, np.array([-8, -1, 0, 1, 2, 3, 7], np.int8))
    convert_changed_variables([_node("w", new)], memory, 3)
    assert read(memory, new).tolist() == [-8, -1, 0, 1, 2, 3, 7]


def test_sub_byte_data_are_moved_by_their_packed_size() -> None:
    sub_byte_data_are_moved_by_their_packed_size()


def test_an_empty_variable_moves_nothing() -> None:
    old, new = TensorDesc(DataType.FLOAT, (0, 4)), TensorDesc(DataType.FLOAT16, (0, 4))
    memory = changed(old, TransRoad([TransStep("Cast", old, new)]))
    assert convert_changed_variables([_node("w", new)], memory, 3) == ["w"]
    assert memory.allocated_bytes == 0


def test_a_step_that_is_no_conversion_is_an_error_and_writes_nothing() -> None:
    memory = changed(ND, TransRoad([TransStep("Relu", ND, HWCN.with_dtype(DataType.FLOAT16))]))
    write(memory, ND, np.ones(ND.shape, np.float32))
    with pytest.raises(InputError) as error:
        convert_changed_variables([_node("w", ND)], memory, 3)
    assert error.value.kind == "RT_TRANS_UNSUPPORTED"
    assert memory.manager.resource.changed_graph_id("w") == 3
    assert np.array_equal(read(memory, ND), np.ones(ND.shape, np.float32))


# ------------------------------------------------------------------ twins


def _twins(dtype: DataType) -> tuple[VariableMemory, list[OpDesc]]:
    source = TensorDesc(DataType.FLOAT, (4,))
    nodes = [_node("w", source), _node("twin", source.with_dtype(dtype), _copy_from_var_node="w", _copy_value=False)]
    manager = VarManager()
    for node in nodes:
        manager.assign(node.name, node.output_descs[0])
    memory = _memory(manager)
    write(memory, source, np.array([1, 2, 3, 4], np.float32))
    return memory, nodes


@pytest.mark.parametrize("dtype", [DataType.FLOAT16, DataType.INT32])
def test_a_twin_is_filled_once_with_a_cast(dtype: DataType) -> None:
    memory, nodes = _twins(dtype)
    desc = TensorDesc(dtype, (4,))
    assert copy_to_twins(nodes, memory) == ["twin"]
    assert read(memory, desc, name="twin").tolist() == [1, 2, 3, 4]
    assert nodes[1].attrs["_copy_value"]
    write(memory, desc, np.zeros(4, dtype.numpy), name="twin")
    assert copy_to_twins(nodes, memory) == []
    assert not read(memory, desc, name="twin").any()


def a_twin_of_the_same_type_gets_the_bytes() -> None:
    memory, nodes = _twins(DataType.FLOAT)
    copy_to_twins(nodes, memory)
    assert read(memory, TensorDesc(DataType.FLOAT, (4,)), name="twin").tolist() == [1, 2, 3, 4]


def test_a_twin_of_the_same_type_gets_the_bytes() -> None:
    a_twin_of_the_same_type_gets_the_bytes()


def test_each_twin_has_its_own_mark() -> None:
    memory, nodes = _twins(DataType.FLOAT16)
    other = _node("other", TensorDesc(DataType.FLOAT16, (4,)), _copy_from_var_node="w")
    done = _node("done", TensorDesc(DataType.FLOAT16, (4,)), _copy_from_var_node="w", _copy_value=True)
    for node in (done, other):
        memory.manager.assign(node.name, node.output_descs[0])
    assert copy_to_twins([done, *nodes, other], memory) == ["twin", "other"]


def test_the_source_of_a_twin_must_be_in_the_graph() -> None:
    memory, nodes = _twins(DataType.FLOAT16)
    with pytest.raises(CompileError, match="'w' is not known"):
        copy_to_twins(nodes[1:], memory)
