"""Assigning variables of graphs to memory (variables.md 2.2, 4.3, 4.4, 5, 9.3)."""

from __future__ import annotations

import pytest

from gecli.errors import CompileError
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph, feed
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Inline, Weight
from gecli.variables.assignment import assign_variable_memory, record_broadcasts, variable_ports
from gecli.variables.broadcast import BroadcastInfo
from gecli.variables.limits import MemoryLimits
from gecli.variables.var_key import VarKey
from gecli.variables.var_manager import VarManager

BASE = 128 << 30


def _desc(dtype: str, *shape: int, fmt: Format = Format.ND) -> TensorDesc:
    return TensorDesc(DataType[dtype], shape, fmt)


def _variable(graph: Graph, name: str, desc: TensorDesc, **attrs: object) -> OpDesc:
    return graph.create("Variable", name, output_descs=[desc], attrs=dict(attrs))


def _constant(graph: Graph, name: str, dtype: str, data: bytes, type: str = "Constant") -> OpDesc:
    count = len(data) * 8 // (DataType[dtype].bits or 8)
    desc = _desc(dtype, count)
    return graph.create(type, name, output_descs=[desc], attrs={"value": Weight(desc, Inline(data))})


def _by_name(graph: Graph, manager: VarManager, graph_id: int = 1) -> dict[str, int]:
    return {node.name: address for node, address in assign_variable_memory(graph, manager, graph_id).items()}


def test_variables_take_the_addresses_of_the_worked_run() -> None:
    graph = Graph("g")
    nodes = [
        _variable(graph, "w0", _desc("FLOAT", 2, 2, 3, 2)),
        _variable(graph, "w1", _desc("FLOAT", 128)),
        _variable(graph, "s", _desc("FLOAT")),
        _variable(graph, "q", _desc("INT4", 7)),
        _variable(graph, "k", _desc("FLOAT", 8, 1, 16, 16, 16, fmt=Format.NC1HWC0)),
    ]
    manager = VarManager()
    assert _by_name(graph, manager) == {
        "w0": 0x2000000000,
        "w1": 0x2000000600,
        "s": 0x2000000E00,
        "q": 0x2000001400,
        "k": 0x2000001A00,
    }
    assert manager.hbm.used_bytes == 139264
    assert [node.output_descs[0].size_bytes for node in nodes] == [128, 544, 64, 64, 131104]


def test_variables_of_the_runtime_example_resolve_inside_and_not_behind() -> None:
    graph = Graph("g")
    _variable(graph, "w1", _desc("FLOAT", 64, 3, 7, 7))
    _variable(graph, "step", _desc("INT64"))
    _variable(graph, "scale", _desc("FLOAT", 64))
    _variable(graph, "emb", _desc("FLOAT16", 1000, 768))
    manager = VarManager()
    assert _by_name(graph, manager) == {
        "w1": 0x2000000000,
        "step": 0x2000009800,
        "scale": 0x2000009E00,
        "emb": 0x200000A400,
    }
    assert manager.hbm.used_bytes == 0x181A00
    found = manager.resource.resolve(0x2000009E40)
    assert found is not None
    assert (found[0].name, found[1]) == ("scale", 64)
    assert manager.resource.resolve(0x2000009F20) is None
    assert manager.resource.resolve(0x2000181A00) is None
    assert manager.resource.is_var_address(0x2000009E00)
    assert not manager.resource.is_var_address(0x2000009E40)
    assert int(manager.resource.memory_type_at(0x2000009E00)) == 2
    assert int(manager.resource.memory_type_at(0x2000009E40)) == 0x100


def test_an_assign_writes_at_the_address_of_its_variable() -> None:
    graph = Graph("g")
    w0 = _variable(graph, "w0", _desc("FLOAT", 2, 2, 3, 2))
    _variable(graph, "w1", _desc("FLOAT", 128))
    x = graph.create("Data", "x", output_descs=[_desc("FLOAT", 2, 2, 3, 2)], attrs={"index": 0})
    assign = graph.create("Assign", "assign", output_descs=[_desc("FLOAT", 2, 2, 3, 2)])
    feed(graph, assign, w0.out(), x.out())
    manager = VarManager()
    ports = variable_ports(graph, manager, assign_variable_memory(graph, manager, 1))
    assert {str(port): offset for port, offset in ports.offsets.items()} == {
        "w0:0": 137438953472,
        "w1:0": 137438955008,
        "assign:0": 137438953472,
    }


def test_a_smaller_form_shares_the_block_and_a_larger_one_takes_a_new_one() -> None:
    manager = VarManager()
    first = Graph("first")
    _variable(first, "w", _desc("FLOAT", 256))
    assert _by_name(first, manager, 1) == {"w": BASE}
    second = Graph("second")
    _variable(second, "w", _desc("FLOAT16", 256))
    assert _by_name(second, manager, 2) == {"w": BASE}
    assert sorted(key.to_ge() for key in manager.resource.addresses) == ["w2_0", "w2_1"]
    current = manager.current_desc("w")
    assert current is not None and (current.dtype, current.size_bytes) == (DataType.FLOAT16, 544)
    third = Graph("third")
    _variable(third, "w", _desc("FLOAT", 4, 1, 16, 16, fmt=Format.FRACTAL_Z))
    assert _by_name(third, manager, 3) == {"w": BASE + 2560}
    assert sorted(key.to_ge() for key in manager.resource.addresses) == ["w2_0", "w2_1", "w4_0"]
    assert manager.resource.allocated_graph_id("w") == 1


def test_returning_to_an_earlier_form_makes_it_current_again_without_memory() -> None:
    manager = VarManager()
    wide, narrow = _sized("FLOAT", 256), _sized("FLOAT16", 256)
    for desc in (wide, narrow, wide):
        assert manager.assign("w", desc) == BASE
    assert manager.current_desc("w") == wide
    assert manager.hbm.used_bytes == 2560


def _sized(dtype: str, *shape: int) -> TensorDesc:
    from dataclasses import replace

    from gecli.variables.sizes import padded_bytes

    desc = _desc(dtype, *shape)
    return replace(desc, size_bytes=padded_bytes(desc))


def test_block_capacity_and_not_the_current_size_decides_about_reuse() -> None:
    manager = VarManager()
    assert manager.assign("w", _sized("FLOAT", 256)) == BASE
    assert manager.assign("w", _sized("FLOAT16", 256)) == BASE
    assert manager.assign("w", _sized("INT32", 256)) == BASE


def test_a_second_graph_with_a_larger_shape_is_refused_and_names_both_graphs() -> None:
    manager = VarManager()
    small, large = Graph("small"), Graph("large")
    _variable(small, "w", _desc("FLOAT", 128))
    _variable(large, "new", _desc("FLOAT", 128))
    node = _variable(large, "w", _desc("FLOAT", 256))
    assign_variable_memory(small, manager, 1)
    before = (manager.hbm.used_bytes, dict(manager.resource.addresses))
    with pytest.raises(CompileError) as error:
        assign_variable_memory(large, manager, 2)
    assert (error.value.code, error.value.kind) == ("G2011", "VAR_SHAPE_GROWS")
    assert "[128] to [256]" in str(error.value)
    assert "'large'" in error.value.first.where and "'small'" in error.value.first.where
    assert (manager.hbm.used_bytes, manager.resource.addresses) == before
    assert node.output_descs[0].size_bytes == 0
    with pytest.raises(CompileError):
        manager.assign("w", _sized("FLOAT", 256))
    assert manager.hbm.used_bytes == before[0]


def test_constants_with_equal_bytes_share_a_block_and_others_do_not() -> None:
    graph = Graph("g")
    _constant(graph, "a", "UINT8", b"\x01\x02\x03")
    _constant(graph, "b", "UINT8", b"\x01\x02\x03")
    _constant(graph, "c", "UINT8", b"\x01\x02\x03\x04\x05")
    _constant(graph, "d", "UINT8", b"\x01\x02\x04")
    _constant(graph, "e", "INT8", b"\x01\x02\x03")
    _constant(graph, "f", "UINT16", b"\x01\x02")
    _constant(graph, "g", "UINT8", b"\x01\x02")
    found = _by_name(graph, VarManager())
    assert found["a"] == found["b"] == found["e"] == BASE
    assert len(set(found.values())) == 5


def test_sub_byte_constants_match_only_the_same_width() -> None:
    graph = Graph("g")
    for name, dtype in [("a", "INT4"), ("b", "FLOAT4_E2M1"), ("c", "INT2"), ("d", "INT8")]:
        _constant(graph, name, dtype, b"\x12\x34")
    found = _by_name(graph, VarManager())
    assert found["a"] == found["b"]
    assert len(set(found.values())) == 3


def test_equal_bytes_are_not_shared_when_the_block_is_too_small() -> None:
    graph = Graph("g")
    _constant(graph, "small", "UINT8", b"\x01\x02")
    large = _constant(graph, "large", "UINT8", b"\x01\x02")
    large.output_descs[0] = _desc("UINT8", 1000)
    found = _by_name(graph, VarManager())
    assert found["large"] == found["small"] + 1536


def test_const_nodes_are_not_in_variable_memory() -> None:
    graph = Graph("g")
    _constant(graph, "c", "UINT8", b"\x01", type="Const")
    assert _by_name(graph, VarManager()) == {}


def test_file_constants_at_one_place_share_a_block_and_must_agree_on_the_size() -> None:
    graph = Graph("g")
    for name, offset in [("a", 0), ("b", 0), ("c", 64)]:
        graph.create(
            "FileConstant", name, output_descs=[_desc("FLOAT", 16)], attrs={"location": "w.bin", "offset": offset}
        )
    manager = VarManager()
    found = _by_name(graph, manager)
    assert found["a"] == found["b"] != found["c"]
    longer = Graph("longer")
    longer.create("FileConstant", "d", output_descs=[_desc("FLOAT", 64)], attrs={"location": "w.bin", "offset": 0})
    with pytest.raises(CompileError) as error:
        assign_variable_memory(longer, manager, 2)
    assert error.value.kind == "VAR_KEY_CONFLICT"


def test_a_placeholder_is_checked_before_anything_is_entered() -> None:
    good = {"storage_shape": (4,), "dtype": int(DataType.FLOAT), "size": 16, "placement": 1, "addr": 0x1000}
    for name, value in [("size", 15), ("placement", 0), ("addr", 0)]:
        graph = Graph("g")
        graph.create("ConstPlaceHolder", "p", output_descs=[_desc("FLOAT", 4)], attrs={**good, name: value})
        manager = VarManager()
        with pytest.raises(CompileError) as refused:
            assign_variable_memory(graph, manager, 1)
        assert name in refused.value.first.why and refused.value.first.do
        assert not manager.resource.addresses and not len(manager.resource.blocks)
    graph = Graph("g")
    graph.create("ConstPlaceHolder", "p", output_descs=[_desc("FLOAT", 4)], attrs=dict(good))
    manager = VarManager()
    assert _by_name(graph, manager) == {"p": BASE}
    assert next(iter(manager.resource.blocks)).device_address == 0x1000
    assert manager.model_variable_bytes == 0


def test_a_bad_placeholder_leaves_nothing_behind_in_the_manager() -> None:
    desc = _sized("FLOAT", 4)
    node = OpDesc("p", "ConstPlaceHolder", output_descs=[desc], attrs={"placement": 1, "addr": 0x1000})
    manager = VarManager()
    with pytest.raises(CompileError):
        manager.assign("p", desc, node)
    assert not manager.resource.addresses and not len(manager.resource.blocks)
    assert manager.hbm.used_bytes == 0 and not manager.exists("p")


def test_two_variables_that_ge_cannot_tell_apart_have_two_addresses() -> None:
    manager = VarManager()
    first, second = Graph("first"), Graph("second")
    _variable(first, "w1", _desc("FLOAT", 4, fmt=Format.ND))
    _variable(second, "w", _desc("FLOAT", 1, 1, 1, 1, 4, fmt=Format.NC1HWC0_C04))
    assert [key.to_ge() for key in (VarKey("w1", Format.ND, DataType.FLOAT),)] == ["w12_0"]
    assert _by_name(first, manager, 1) == {"w1": BASE}
    assert _by_name(second, manager, 2) == {"w": BASE + 1536}


def test_more_variables_than_the_limit_are_refused_at_compile_time() -> None:
    graph = Graph("g")
    _variable(graph, "w", _desc("FLOAT", 1024, 1024))
    manager = VarManager(limits=MemoryLimits().with_var_max(4 << 20))
    with pytest.raises(CompileError) as error:
        assign_variable_memory(graph, manager, 1)
    assert error.value.kind == "VAR_MEM_EXHAUSTED"
    assert "used 4195840, limit 4194304" in str(error.value)
    assert manager.hbm.used_bytes == 0
    assert not manager.exists("w")


def test_the_variable_size_of_a_model_is_the_configured_maximum() -> None:
    graph = Graph("g")
    manager = VarManager()
    assert manager.model_variable_bytes == 0
    _variable(graph, "w", _desc("FLOAT", 4))
    assign_variable_memory(graph, manager, 1)
    assert manager.model_variable_bytes == 5368709120


def test_a_variable_in_rdma_memory_is_refused() -> None:
    graph = Graph("g")
    _variable(graph, "w", _desc("FLOAT", 4), _output_memory_type=1)
    with pytest.raises(CompileError) as error:
        assign_variable_memory(graph, VarManager(), 1)
    assert error.value.kind == "VAR_POOL_MISSING"


def test_variable_refs_and_variable_v2_get_no_memory_but_nodes_of_subgraphs_do() -> None:
    graph = Graph("g")
    _variable(graph, "w", _desc("FLOAT", 4))
    _variable(graph, "w_ref", _desc("FLOAT", 4), ref_var_src_var_name="w")
    graph.create("VariableV2", "v2", output_descs=[_desc("FLOAT", 4)])
    graph.create("If", "branch", subgraphs=["then"])
    then = Graph("then", parent=graph)
    graph.subgraphs["then"] = then
    _variable(then, "inner", _desc("FLOAT", 4))
    _variable(graph, "last", _desc("FLOAT", 4))
    assert list(_by_name(graph, VarManager())) == ["w", "inner", "last"]


def test_a_node_may_have_another_name_in_the_manager() -> None:
    graph = Graph("g")
    node = _constant(graph, "copy", "UINT8", b"\x01")
    node.attrs["_src_const_name"] = "original"
    manager = VarManager()
    assert _by_name(graph, manager) == {"copy": BASE}
    assert manager.exists("original") and not manager.exists("copy")


def test_an_fp16_twin_is_also_known_at_the_address_of_its_source() -> None:
    graph = Graph("g")
    _variable(graph, "w", _desc("FLOAT", 256))
    _variable(graph, "w_fp16", _desc("FLOAT16", 256), _src_var_name="w")
    manager = VarManager()
    assert _by_name(graph, manager) == {"w": BASE, "w_fp16": BASE + 2560}
    assert manager.resource.address_of("w_fp16", _desc("FLOAT", 256)) == BASE


def test_outputs_stored_into_a_variable_take_its_address() -> None:
    graph = Graph("g")
    _variable(graph, "w", _desc("FLOAT", 4))
    stored = _desc("FLOAT", 4).with_attr("ref_var_src_var_name", "w")
    named = _desc("FLOAT", 4).with_attr("_assign_var_name", "w")
    graph.create("ApplyMomentum", "update", output_descs=[_desc("FLOAT", 4), stored])
    graph.create("Add", "sum", output_descs=[named])
    graph.create("Add", "other", output_descs=[_desc("FLOAT", 4).with_attr("_assign_var_name", "unknown")])
    manager = VarManager()
    ports = variable_ports(graph, manager, assign_variable_memory(graph, manager, 1))
    assert {str(port): offset for port, offset in ports.offsets.items()} == {
        "w:0": BASE,
        "update:1": BASE,
        "sum:0": BASE,
    }
    assert Port(graph.node("update"), 1) in ports.ports


def test_an_output_stored_into_a_missing_variable_is_an_error_and_into_ref_data_is_left_alone() -> None:
    graph = Graph("g")
    graph.create("RefData", "r", output_descs=[_desc("FLOAT", 4)])
    node = graph.create("Op", "op", output_descs=[_desc("FLOAT", 4).with_attr("ref_var_src_var_name", "r")])
    manager = VarManager()
    assert variable_ports(graph, manager, {}).offsets == {}
    node.output_descs[0] = node.output_descs[0].with_attr("ref_var_src_var_name", "gone")
    with pytest.raises(CompileError) as error:
        variable_ports(graph, manager, {})
    assert error.value.kind == "VAR_NOT_FOUND"


def _chain(length: int) -> Graph:
    graph = Graph("g")
    port = _variable(graph, "w", _desc("FLOAT", 4)).out()
    x = graph.create("Data", "x", output_descs=[_desc("FLOAT", 4)])
    for k in range(length):
        port = feed(graph, graph.create("AssignAdd", f"a{k}", output_descs=[_desc("FLOAT", 4)]), port, x.out()).out()
    return graph


def test_a_chain_of_15_assigns_writes_the_variable_and_one_of_16_is_refused() -> None:
    graph, manager = _chain(15), VarManager()
    ports = variable_ports(graph, manager, assign_variable_memory(graph, manager, 1))
    assert len(ports.offsets) == 16 and set(ports.offsets.values()) == {BASE}
    graph, manager = _chain(16), VarManager()
    with pytest.raises(CompileError, match="cannot be placed"):
        variable_ports(graph, manager, assign_variable_memory(graph, manager, 1))


def test_an_assign_behind_a_conversion_writes_the_conversion_and_only_through_input_0() -> None:
    graph = Graph("g")
    desc = _desc("FLOAT", 4)
    v, w = _variable(graph, "v", desc), _variable(graph, "w", desc)
    cast = feed(graph, graph.create("Cast", "cast", output_descs=[desc]), v.out())
    again = feed(graph, graph.create("TransData", "again", output_descs=[desc]), cast.out())
    behind = feed(graph, graph.create("Assign", "behind", output_descs=[desc]), again.out(), w.out())
    value = feed(graph, graph.create("Assign", "value", output_descs=[desc]), w.out(), cast.out())
    manager = VarManager()
    assigned = assign_variable_memory(graph, manager, 1)
    ports = variable_ports(graph, manager, assigned)
    assert ports.aliases == {behind.out(): again.out()}
    assert ports.offsets[value.out()] == assigned[w]
    assert behind.out() not in ports.offsets


def test_a_broadcast_of_a_variable_is_recorded_in_place() -> None:
    graph = Graph("g")
    desc = _sized("FLOAT", 4)
    w = _variable(graph, "w", desc)
    x = graph.create("Data", "x", output_descs=[desc])
    op = feed(graph, graph.create("HcomBroadcast", "bc", output_descs=[desc, desc]), x.out(), w.out())
    manager = VarManager()
    ports = variable_ports(graph, manager, assign_variable_memory(graph, manager, 3))
    record_broadcasts(3, ports, manager, {op.out(0): 0, op.out(1): 4096})
    assert manager.resource.broadcasts == {3: (BroadcastInfo("w", "bc", 1, 4096, 64, 4096, 64),)}
    op.output_descs[1] = _sized("FLOAT", 400)
    with pytest.raises(CompileError):
        record_broadcasts(3, ports, manager, {op.out(1): 4096})
