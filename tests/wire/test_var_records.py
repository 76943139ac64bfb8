"""The variable record of an OM and the session snapshot survive a round trip; contradictions are refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.artifacts.rdcpkt import read_rdcpkt, write_rdcpkt
from gecli.errors import InputError
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.pb import var_manager_pb2 as pb
from gecli.variables.broadcast import BroadcastInfo
from gecli.variables.trans_road import TransRoad, TransStep
from gecli.variables.var_manager import VarManager
from gecli.variables.var_match import VarDescCache, VarMatch
from gecli.wire.var_manager import decode_var_match, encode_var_match
from gecli.wire.var_session import decode_var_manager, encode_var_manager

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
    desc = message.desc_info_after_compile.cur_var_tensor_desc_map["m"]
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
    road = message.var_resource.var_to_trans_road["w"].node_info
    road.add().CopyFrom(road[0])


def break_version(message: Any) -> None:
    message.version = 7


def break_memory_type(message: Any) -> None:
    message.mem_resource_map[77].var_mem_size = 1


def break_size(message: Any) -> None:
    for entry in message.var_resource.var_dev_addr_mgr_map.values():
        entry.desc.size = 1 << 20


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
