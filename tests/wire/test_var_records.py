"""The variable record of an OM and the session snapshot survive a round trip; contradictions are refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecli.artifacts.rdcpkt import read_rdcpkt, write_rdcpkt
from gecli.errors import InputError
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.pb import var_manager_pb2 as pb
from gecli.pb.ge_ir_pb2 import TensorDescriptor
from gecli.variables.broadcast import BroadcastInfo
from gecli.variables.mem_resource import MemoryType, PoolResource
from gecli.variables.memory_pool import HostPool, RdmaPool
from gecli.variables.trans_road import TransRoad, TransStep
from gecli.variables.var_key import VarKey
from gecli.variables.var_manager import VarManager
from gecli.variables.var_match import VarDescCache, VarMatch
from gecli.wire.var_manager import decode_var_match, encode_var_match
from gecli.wire.var_session import (
    decode_var_manager,
    decode_var_managers,
    encode_var_manager,
    encode_var_managers,
)

ND = TensorDesc(DataType.FLOAT, (64, 64), size_bytes=16416)
NZ = TensorDesc(DataType.FLOAT, (4, 4, 16, 16), Format.FRACTAL_NZ, (64, 64), Format.ND, size_bytes=16416)
ROAD = TransRoad([TransStep("TransData", ND, NZ)])


def record() -> VarMatch:
    before = VarDescCache({"w": ND}, {"w": TransRoad()})
    after = VarDescCache({"w": NZ, "m": ND}, {"w": ROAD}, ("w",), {"w": ND})
    return VarMatch(before, after)


def test_a_record_reads_back_as_it_was() -> None:
    assert decode_var_match(encode_var_match(record())) == record()


def test_the_same_record_gives_the_same_bytes_in_any_order() -> None:
    turned = VarMatch(VarDescCache({"a": ND, "b": NZ}), VarDescCache({"b": NZ, "a": ND}))
    other = VarMatch(VarDescCache({"b": NZ, "a": ND}), VarDescCache({"a": ND, "b": NZ}))
    assert encode_var_match(turned) == encode_var_match(other)


def test_a_variables_descriptor_spells_out_its_origin_form() -> None:
    message = pb.VarMatchInfo.FromString(encode_var_match(record()))
    desc = TensorDescriptor.FromString(message.desc_info_after_compile.cur_var_tensor_desc_map["m"])
    assert desc.attr["origin_format"].s == b"ND" and list(desc.attr["origin_shape"].list.i) == [64, 64]
    assert desc.attr["format_for_int"].i == 2 and desc.attr["origin_shape_initialized"].b
    assert (desc.size, desc.dtype, desc.device_type) == (16416, 1, "NPU")


def test_a_large_initial_value_is_not_repeated() -> None:
    large = ND.with_attr("_init_value", Weight.of(np.zeros(1 << 16, np.float32)))
    small = ND.with_attr("_init_value", Weight.of(np.zeros(4, np.float32)))
    data = encode_var_match(VarMatch(VarDescCache(), VarDescCache({"l": large, "s": small})))
    assert len(data) < 2000
    found = decode_var_match(data).after.var_desc_map
    assert "_init_value" not in found["l"].attrs and "_init_value" in found["s"].attrs


def test_the_file_is_the_bare_message(tmp_path: Path) -> None:
    path = tmp_path / "m.rdcpkt"
    assert write_rdcpkt(path, record()) == path.stat().st_size
    assert path.read_bytes() == encode_var_match(record())
    assert read_rdcpkt(path) == record()


def test_a_broken_or_missing_file_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "m.rdcpkt"
    path.write_bytes(b"\x0a\xff\xff")
    with pytest.raises(InputError) as caught:
        read_rdcpkt(path)
    assert (caught.value.code, caught.value.kind) == ("G3007", "rdcpkt_corrupt")
    with pytest.raises(InputError):
        read_rdcpkt(tmp_path / "none.rdcpkt")


def manager() -> VarManager:
    found = VarManager(5, device_id=1, job_id=9)
    found.assign("w", ND)
    found.assign("m", ND)
    found.set_trans_road("w", ROAD)
    found.set_changed_graph_id("w", 2)
    found.resource.set_allocated_graph_id("m", 1)
    found.resource.save_broadcast(2, BroadcastInfo("w", "hcom", 0, -1, 24, 5, 24))
    return found


def test_a_session_reads_back_as_it_was() -> None:
    data = encode_var_manager(manager())
    again = decode_var_manager(data)
    assert encode_var_manager(again) == data
    assert again.resource.addresses == manager().resource.addresses
    assert again.resource.changed_names(2) == ("w",)
    assert list(again.resource.blocks) == list(manager().resource.blocks)
    assert again.hbm.used_bytes == manager().hbm.used_bytes
    assert (again.session_id, again.device_id, again.job_id) == (5, 1, 9)


def test_a_new_variable_of_a_restored_session_lies_behind_the_others() -> None:
    again = decode_var_manager(encode_var_manager(manager()))
    assert again.assign("n", ND) == manager().assign("n", ND)


def break_address(message: Any) -> None:
    message.var_resource.var_addr_mgr_map["w2_0"].address += 512


def break_offset_map(message: Any) -> None:
    del message.var_resource.var_offset_map[min(message.var_resource.var_offset_map)]


def break_device_map(message: Any) -> None:
    message.var_resource.var_dev_addr_mgr_map[12].dev_addr = 1


def break_key(message: Any) -> None:
    message.var_resource.var_addr_mgr_map["w3_1"].CopyFrom(message.var_resource.var_addr_mgr_map["w2_0"])


def break_counter(message: Any) -> None:
    message.mem_resource_map[2].var_mem_size = 512


def break_road(message: Any) -> None:
    message.var_resource.var_to_trans_road["w"] *= 2


def break_version(message: Any) -> None:
    message.version = 7


def break_memory_type(message: Any) -> None:
    message.mem_resource_map[77].var_mem_size = 1


def break_size(message: Any) -> None:
    for entry in message.var_resource.var_dev_addr_mgr_map.values():
        entry.desc += TensorDescriptor(size=1 << 20).SerializeToString()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (break_address, "not base"),
        (break_offset_map, "var_offset_map"),
        (break_device_map, "var_dev_addr_mgr_map"),
        (break_key, "does not end with"),
        (break_counter, "var_mem_size"),
        (break_road, "var_to_trans_road"),
        (break_version, "version 7"),
        (break_memory_type, "memory type 77"),
        (break_size, "overlaps|var_mem_size"),
    ],
)
def test_a_snapshot_that_contradicts_itself_is_refused(fault: Any, reason: str) -> None:
    message = pb.VarManagerInfo.FromString(encode_var_manager(manager()))
    fault(message)
    with pytest.raises(InputError) as caught:
        decode_var_manager(message.SerializeToString())
    assert re.search(reason, caught.value.first.why)
    assert (caught.value.code, caught.value.kind) == ("G3007", "DATA_CORRUPT")


def break_memory_of_an_address(message: Any) -> None:
    message.var_resource.var_offset_map[min(message.var_resource.var_offset_map)] = 3


def break_current_desc(message: Any) -> None:
    message.var_resource.cur_var_tensor_desc_map["new"] = message.var_resource.cur_var_tensor_desc_map["m"]


def break_device_entry(message: Any) -> None:
    entries = message.var_resource.var_dev_addr_mgr_map
    entries[min(entries)].address += 512


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (break_memory_of_an_address, "memory type 3"),
        (break_current_desc, "no address in var_addr_mgr_map"),
        (break_device_entry, "its entry is of address"),
    ],
)
def test_tables_of_a_snapshot_must_agree(fault: Any, reason: str) -> None:
    test_a_snapshot_that_contradicts_itself_is_refused(fault, reason)


def test_the_keys_of_a_snapshot_are_read_in_either_form_also_with_names_that_end_alike() -> None:
    session = VarManager()
    for name in ("w", "w_", "w__"):
        session.assign(name, ND)
    for seed_keys, keys in ((False, ["w2_0", "w_2_0", "w__2_0"]), (True, ["w_2_0", "w__2_0", "w___2_0"])):
        data = encode_var_manager(session, seed_keys=seed_keys)
        assert sorted(pb.VarManagerInfo.FromString(data).var_resource.var_addr_mgr_map) == sorted(keys)
        assert decode_var_manager(data).resource.addresses == session.resource.addresses


def test_every_broadcast_of_a_variable_survives_and_the_last_has_its_plain_name() -> None:
    session = manager()
    session.resource.save_broadcast(2, BroadcastInfo("w", "horovod", 1, 7, 24, 7, 24))
    data = encode_var_manager(session)
    table = pb.VarManagerInfo.FromString(data).var_resource.var_broad_cast_info[2].broadcast_info
    assert table["w"].broadcast_name == "horovod"
    again = decode_var_manager(data).resource.broadcasts[2]
    assert sorted(again) == sorted(session.resource.broadcasts[2])


def test_rdma_and_host_memory_survive_and_host_addresses_are_in_no_device_table() -> None:
    pools = {
        MemoryType.RDMA_HBM: PoolResource(MemoryType.RDMA_HBM, RdmaPool(4096)),
        MemoryType.HOST: PoolResource(MemoryType.HOST, HostPool()),
    }
    session = VarManager(pools=pools)
    far = session.assign("far", ND, memory_type=MemoryType.HBM)
    near = session.assign("w", NZ.with_shape((1, 1, 16, 16)), memory_type=MemoryType.HOST)
    small = TensorDesc(DataType.FLOAT, (4,), size_bytes=64)
    remote = session.assign("remote", small, memory_type=MemoryType.RDMA_HBM)
    data = encode_var_manager(session)
    message = pb.VarManagerInfo.FromString(data)
    assert sorted(message.var_resource.var_offset_map) == sorted(message.var_resource.var_dev_addr_mgr_map)
    assert sorted(message.var_resource.var_offset_map) == sorted((far, remote))
    assert {kind: info.var_mem_size for kind, info in message.mem_resource_map.items()} == {
        2: 17920,
        3: 64,
        0x81: 16416,
    }
    again = decode_var_manager(data)
    assert encode_var_manager(again) == data
    assert again.resource.memory_type_at(near) is MemoryType.HOST
    assert again.resource.memory_type_at(remote) is MemoryType.RDMA_HBM


def test_a_placeholder_survives_with_what_it_does_not_count() -> None:
    desc = TensorDesc(DataType.FLOAT, (4,), size_bytes=64)
    attrs = {"storage_shape": (4,), "dtype": 0, "size": 16, "placement": 1, "addr": 0x5000}
    session = VarManager()
    session.assign("p", desc, OpDesc("p", "ConstPlaceHolder", attrs=attrs, output_descs=[desc]))
    again = decode_var_manager(encode_var_manager(session))
    assert again.memory_bytes(MemoryType.HBM) == session.memory_bytes(MemoryType.HBM) == 0
    assert next(iter(again.resource.blocks)).device_address == 0x5000


def test_the_device_is_that_of_the_reader() -> None:
    assert decode_var_manager(encode_var_manager(manager()), device_id=6).device_id == 6


def test_several_sessions_in_one_message_come_back_by_their_ids() -> None:
    second = VarManager(9)
    second.assign("v", ND)
    pool = decode_var_managers(encode_var_managers([second, manager()]))
    assert [each.session_id for each in pool] == [5, 9]
    assert pool.get(5).exists("w") and not pool.get(9).exists("w")
    with pytest.raises(InputError, match="cannot be used"):
        decode_var_managers(encode_var_managers([second, second]))


def test_the_worked_round_trip_of_one_variable_of_24_bytes() -> None:
    session = VarManager()
    session.assign("v", TensorDesc(DataType.FLOAT, (6,), size_bytes=24))
    message = pb.VarManagerInfo.FromString(encode_var_manager(session))
    again = pb.VarManagerInfo.FromString(encode_var_manager(decode_var_manager(message.SerializeToString())))
    for each in (message, again):
        assert each.mem_resource_map[2].var_mem_size == 1536
        tables = each.var_resource
        assert [len(table) for table in (tables.var_offset_map, tables.var_addr_mgr_map)] == [1, 1]
        assert len(tables.cur_var_tensor_desc_map) == 1


def damaged_snapshots_are_refused_or_agree_with_themselves(data: bytes) -> None:
    """One byte changed, or the end missing: never a crash, never tables that contradict each other."""
    try:
        found = decode_var_manager(data)
    except InputError as error:
        assert error.kind == "DATA_CORRUPT"
        return
    again = decode_var_manager(encode_var_manager(found))
    assert again.resource.addresses == found.resource.addresses
    for key, entry in found.resource.addresses.items():
        block = found.resource.blocks.get(entry.address)
        assert block is not None and key == VarKey.of(key.name, entry.desc)
        if entry.memory_type is MemoryType.HBM:
            assert entry.address == found.logic_base + entry.offset
            assert entry.offset + block.span_bytes <= found.hbm.used_bytes
    for name, desc in found.resource.current_descs.items():
        assert found.resource.find(name, desc) is not None


@given(st.data())
@settings(max_examples=250, deadline=None)
def test_a_damaged_snapshot_is_refused_or_agrees_with_itself(choice: st.DataObject) -> None:
    data = bytearray(encode_var_manager(manager()))
    if choice.draw(st.booleans()):
        del data[choice.draw(st.integers(0, len(data) - 1)) :]
    else:
        data[choice.draw(st.integers(0, len(data) - 1))] ^= choice.draw(st.integers(1, 255))
    damaged_snapshots_are_refused_or_agree_with_themselves(bytes(data))


def test_groups_of_attributes_are_carried_through() -> None:
    message = pb.VarManagerInfo.FromString(encode_var_manager(manager()))
    groups = TensorDescriptor(attr_groups=b"\x0a\x00").SerializeToString()
    desc = TensorDescriptor.FromString(message.var_resource.cur_var_tensor_desc_map["m"] + groups)
    message.var_resource.cur_var_tensor_desc_map["m"] = desc.SerializeToString(deterministic=True)
    data = message.SerializeToString(deterministic=True)
    assert encode_var_manager(decode_var_manager(data)) == data


def test_what_gives_variables_a_value_is_not_forgotten() -> None:
    session = manager()
    session.resource.set_assigned(["w"])
    again = decode_var_manager(encode_var_manager(session))
    assert again.resource.is_assigned("w") and not again.resource.is_assigned("m")
    assert again.current_desc("w") == session.current_desc("w")
