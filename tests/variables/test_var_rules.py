"""Rules of variables.md 4 and 5 that no worked example shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gecli.errors import CompileError, InputError
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph, feed
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Inline, Weight
from gecli.variables.assignment import assign_variable_memory, record_broadcasts, variable_ports
from gecli.variables.sizes import padded_bytes
from gecli.variables.trans_road import TransRoad, TransStep
from gecli.variables.var_manager import VarManager
from gecli.wire.var_session import decode_var_manager, encode_var_manager

BASE = 128 << 30
ND = TensorDesc(DataType.FLOAT, (4,))


def _sized(desc: TensorDesc = ND) -> TensorDesc:
    return replace(desc, size_bytes=padded_bytes(desc))


def _constant(name: str, count: int, data: bytes = b"\x01\x02") -> OpDesc:
    """The bytes are those of `data` however many elements the descriptor has."""
    held = TensorDesc(DataType.UINT8, (len(data),))
    desc = _sized(TensorDesc(DataType.UINT8, (count,)))
    return OpDesc(name, "Constant", attrs={"value": Weight(held, Inline(data))}, output_descs=[desc])


# ------------------------------------------------------------------ reuse (4.3, 4.4)


def test_of_equal_constants_the_lowest_that_is_large_enough_is_shared() -> None:
    manager = VarManager()
    small, large = _constant("small", 2), _constant("large", 600)
    assert manager.assign("small", small.output_descs[0], small) == BASE
    assert manager.assign("large", large.output_descs[0], large) == BASE + 1536
    for name, count, address in (("again", 2, BASE), ("larger", 300, BASE + 1536)):
        node = _constant(name, count)
        assert manager.assign(name, node.output_descs[0], node) == address


def test_only_constants_ask_for_equal_bytes() -> None:
    manager = VarManager()
    first, other = _constant("first", 2), _constant("other", 2)
    other = OpDesc("other", "Variable", attrs=dict(other.attrs), output_descs=list(other.output_descs))
    manager.assign("first", first.output_descs[0], first)
    assert manager.assign("other", other.output_descs[0], other) == BASE + 1536


def test_a_known_variable_does_not_look_for_equal_bytes() -> None:
    manager = VarManager()
    first, later = _constant("first", 2), _constant("known", 600)
    manager.assign("first", first.output_descs[0], first)
    manager.assign("known", _sized(TensorDesc(DataType.UINT8, (3,), Format.NCHW)))
    assert manager.assign("known", later.output_descs[0], later) == BASE + 2 * 1536


def test_constants_of_a_read_session_are_not_shared_because_their_bytes_are_not_in_it() -> None:
    manager = VarManager()
    node = _constant("c", 2)
    manager.assign("c", node.output_descs[0], node)
    again = decode_var_manager(encode_var_manager(manager))
    other = _constant("other", 2)
    assert again.assign("other", other.output_descs[0], other) == BASE + 1536


def test_file_constants_without_a_place_share_nothing() -> None:
    manager = VarManager()
    for k, attrs in enumerate(({}, {"location": ""}, {"file_path": "w.bin"})):
        node = OpDesc(f"f{k}", "FileConstant", attrs=dict(attrs), output_descs=[_sized()])
        assert manager.assign(node.name, node.output_descs[0], node) == BASE + k * 1536
    assert not manager.resource.file_constants


# ------------------------------------------------------------------ addresses and descriptors (4.5, 4.11, 4.22)


def test_a_form_that_has_an_address_keeps_it_and_becomes_the_current_one() -> None:
    manager = VarManager()
    manager.assign("w", _sized())
    manager.assign("v", _sized())
    half = _sized(ND.with_dtype(DataType.FLOAT16))
    manager.resource.set_address("w", half, BASE)
    manager.resource.set_address("w", half, BASE + 1536)
    assert manager.resource.address_of("w", half) == BASE
    assert manager.current_desc("w") == half
    assert len(manager.resource.blocks) == 2


def test_the_last_staged_descriptor_of_a_graph_counts() -> None:
    manager = VarManager()
    manager.record_staged(1, "w", ND)
    manager.record_staged(1, "w", ND.with_dtype(DataType.FLOAT16))
    manager.record_staged(2, "w", ND)
    assert dict(manager.resource.staged(1)) == {"w": ND.with_dtype(DataType.FLOAT16)}
    assert dict(manager.resource.staged(3)) == {}


def test_a_model_with_another_address_of_a_known_variable_is_refused_only_when_asked() -> None:
    manager = VarManager()
    manager.restore_variable("w", _sized(), BASE)
    assert manager.restore_variable("w", _sized(), BASE + 1536) == BASE
    assert manager.restore_variable("w", _sized(), BASE, strict_addresses=True) == BASE
    with pytest.raises(InputError) as error:
        manager.restore_variable("w", _sized(), BASE + 1536, strict_addresses=True)
    assert (error.value.kind, error.value.exit_status) == ("RT_VAR_OVERLAP", 3)
    assert "0x2000000000" in error.value.first.why and "0x2000000600" in error.value.first.why


@pytest.mark.parametrize("size", [-1, 1 << 40])
def test_a_restored_variable_of_no_possible_size_is_refused(size: int) -> None:
    manager = VarManager()
    with pytest.raises(InputError) as error:
        manager.restore_variable("w", replace(ND, size_bytes=size), BASE)
    assert error.value.kind == "RT_ADDR_OUT_OF_RANGE"
    assert not manager.exists("w")


def test_a_batch_copy_finds_the_change_of_its_variable() -> None:
    manager = VarManager()
    manager.resource.share_batch_name("w_ascend_mbatch_batch_0", "w")
    manager.set_changed_graph_id("w_ascend_mbatch_batch_0", 4)
    manager.set_trans_road("w_ascend_mbatch_batch_0", TransRoad())
    assert manager.resource.changed_graph_id("w") == 4
    assert manager.trans_road("w") == TransRoad()
    manager.resource.remove_changed_graph_id("w_ascend_mbatch_batch_0")
    assert manager.resource.changed_names(4) == ()


# ------------------------------------------------------------------ ports (5.2, 5.3)


def test_the_node_of_the_root_graph_says_where_an_output_is_stored_then_the_first_subgraph() -> None:
    """Variables of one name in several subgraphs: each has one address, whichever node is looked at."""
    graph = Graph("g")
    graph.create("If", "branch", subgraphs=["a", "b"])
    forms = {"a": ND, "b": ND.with_dtype(DataType.FLOAT16)}
    for name, desc in forms.items():
        graph.subgraphs[name] = Graph(name, parent=graph)
        graph.subgraphs[name].create("Variable", "w", output_descs=[desc])
    update = graph.create("ApplyMomentum", "update", output_descs=[ND.with_attr("ref_var_src_var_name", "w")])
    manager = VarManager()
    first = manager.assign("w", _sized(TensorDesc(DataType.FLOAT16, (4,))))
    manager.assign("pad", _sized())
    second = manager.assign("w", _sized(TensorDesc(DataType.FLOAT, (400,))))
    assert first != second
    with pytest.raises(CompileError):  # 4 and 400 elements under one key are another matter; here keys decide
        manager.assign("w", _sized(TensorDesc(DataType.FLOAT, (4000,))))
    assert variable_ports(graph, manager, {}).offsets[update.out()] == second
    graph.create("Variable", "w", output_descs=[forms["b"]])
    assert variable_ports(graph, manager, {}).offsets[update.out()] == first


@pytest.mark.parametrize("type", ["HcomBroadcast", "HorovodBroadcast", "hvdCallbackBroadcast", "HvdCallbackBroadcast"])
def test_every_spelling_of_a_broadcast_is_recorded(type: str) -> None:
    graph = Graph("g")
    w = graph.create("Variable", "w", output_descs=[_sized()])
    op = feed(graph, graph.create(type, "bc", output_descs=[_sized()]), w.out())
    manager = VarManager()
    ports = variable_ports(graph, manager, assign_variable_memory(graph, manager, 1))
    record_broadcasts(1, ports, manager, {op.out(): 512})
    (info,) = manager.resource.broadcasts[1]
    assert (info.input_offset, info.output_offset, info.input_size, info.output_size) == (512, 512, 64, 64)


def _behind_conversions(count: int) -> tuple[Graph, OpDesc]:
    graph = Graph("g")
    port = graph.create("Variable", "v", output_descs=[ND]).out()
    for k in range(count):
        port = feed(graph, graph.create("Cast", f"c{k}", output_descs=[ND]), port).out()
    return graph, feed(graph, graph.create("Assign", "assign", output_descs=[ND]), port, port)


@pytest.mark.parametrize(("count", "found"), [(1, True), (16, True), (17, False)])
def test_conversions_are_followed_16_deep(count: int, found: bool) -> None:
    graph, assign = _behind_conversions(count)
    manager = VarManager()
    ports = variable_ports(graph, manager, assign_variable_memory(graph, manager, 1))
    assert (assign.out() in ports.aliases) == found
    if found:
        assert ports.aliases[assign.out()].node.name == f"c{count - 1}"


def test_a_road_may_be_given_again_in_the_seeds_spelling() -> None:
    manager = VarManager()
    nz = TensorDesc(DataType.FLOAT, (1, 1, 16, 16), Format.FRACTAL_NZ, (4,), Format.ND)
    manager.set_trans_road("w", TransRoad([TransStep("TransData", ND, nz)]))
    manager.set_trans_road("w", TransRoad([TransStep("TransDataD", ND, nz)]))
