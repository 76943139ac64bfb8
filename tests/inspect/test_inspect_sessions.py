"""Session snapshots: the variables of a session with the graphs that placed and changed them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc
from gecli.pb.var_manager_pb2 import VarManagerInfo
from gecli.variables.mem_resource import MemoryType, PoolResource
from gecli.variables.memory_pool import HostPool, RdmaPool
from gecli.variables.var_manager import VarManager
from gecli.wire.var_session import encode_var_manager

from .conftest import Files, Inspect


def test_a_snapshot_has_the_addresses_of_the_model_that_it_was_saved_with(
    inspect: Inspect, files: Files, conv_train_om: Path
) -> None:
    session = json.loads(inspect(files["session"], "--vars", "--json").out)
    model = json.loads(inspect(conv_train_om, "--vars", "--json").out)
    assert session["base"] == model["base"]
    facts = ("name", "key", "desc", "road", "address", "offset", "size", "span", "memory_type", "changed")
    in_model = {row["name"]: [row[fact] for fact in facts] for row in model["variables"]}
    assert {row["name"]: [row[fact] for fact in facts] for row in session["variables"]} == in_model


def test_the_graphs_that_placed_and_changed_a_variable_are_told(inspect: Inspect, files: Files) -> None:
    rows = {row["name"]: row for row in json.loads(inspect(files["session"], "--vars", "--json").out)["variables"]}
    assert (rows["w2"]["first_graph"], rows["w2"]["changed_graph"]) == (1, 1)
    assert (rows["b2"]["first_graph"], rows["b2"]["changed_graph"]) == (1, None)
    header = inspect(files["session"], "--vars").out.splitlines()[0]
    assert "first graph  changed graph" in header


def test_the_map_of_a_snapshot_covers_every_byte(inspect: Inspect, files: Files) -> None:
    blocks = json.loads(inspect(files["session"], "--vars", "--map", "--json").out)["map"]
    position = 0
    for block in blocks:
        assert (block["kind"] in ("variable", "padding", "gap"), block["offset"]) == (True, position)
        position += block["size"]


def test_the_summary_of_a_snapshot_counts(inspect: Inspect, files: Files) -> None:
    out = inspect(files["session"]).out
    assert "session    0, device 0, job 0, version 2" in out
    assert "variables  12 in 12 forms, 41.0 KiB of 5.0 GiB, base 0x2000000000" in out
    assert "changed    w1 w1_momentum w2 w2_momentum" in out


def test_a_snapshot_whose_fields_contradict_is_refused(tmp_path: Path, inspect: Inspect, files: Files) -> None:
    message = VarManagerInfo.FromString(files["session"].read_bytes())
    message.var_resource.var_addr_mgr_map["b12_0"].offset += 512
    (tmp_path / "damaged").write_bytes(message.SerializeToString())
    shown = inspect("damaged", "--vars")
    assert (shown.status, "error[G3007]" in shown.err, "is not base + offset" in shown.err) == (3, True, True)


def test_a_snapshot_that_is_cut_is_never_shown_as_whole(tmp_path: Path, inspect: Inspect, files: Files) -> None:
    data = files["session"].read_bytes()
    for k in range(1, 20):
        (tmp_path / "cut").write_bytes(data[: len(data) * k // 20])
        shown = inspect("cut", "--vars")
        assert (shown.status, "error[G" in shown.err, "G9999" in shown.err) == (3, True, False), k


def test_run_names_a_snapshot_that_is_given_in_place_of_an_om(files: Files, inspect: Inspect) -> None:
    from gecli.report.inspect.foreign import instead_of_om

    error = instead_of_om(str(files["session"]))
    assert error is not None
    assert (error.first.message, error.kind) == (
        f"{files['session']}: this is a session snapshot, not an OM file",
        "session",
    )


def test_memory_outside_hbm_has_an_address_but_no_place_in_the_map(tmp_path: Path, inspect: Inspect) -> None:
    desc = TensorDesc(DataType.FLOAT, (4,), size_bytes=64)
    pools = {
        MemoryType.RDMA_HBM: PoolResource(MemoryType.RDMA_HBM, RdmaPool(4096)),
        MemoryType.HOST: PoolResource(MemoryType.HOST, HostPool()),
    }
    manager = VarManager(pools=pools)
    for name, kind in (("near", MemoryType.HBM), ("far", MemoryType.RDMA_HBM), ("host", MemoryType.HOST)):
        manager.assign(name, desc, memory_type=kind)
    for seed_keys in (False, True):
        (tmp_path / "s").write_bytes(encode_var_manager(manager, seed_keys=seed_keys))
        shown = json.loads(inspect("s", "--vars", "--map", "--json").out)
        rows = {row["name"]: [row[fact] for fact in ("address", "offset", "span")] for row in shown["variables"]}
        assert rows == {
            "near": [1 << 37, 0, 1536],
            "far": [0x12A000000000, None, 64],
            "host": [0x100000000000, None, 64],
        }
        assert {row["memory_type"] for row in shown["variables"]} == {"HBM", "RDMA_HBM", "HOST"}
        assert [(row["kind"], row["size"]) for row in shown["map"]] == [("variable", 64), ("padding", 1472)]


def test_forms_that_share_a_block_are_no_overlap(tmp_path: Path, inspect: Inspect) -> None:
    manager = VarManager()
    wide, narrow = (TensorDesc(dtype, (256,)) for dtype in (DataType.FLOAT, DataType.FLOAT16))
    manager.assign("w", replace(wide, size_bytes=1056))
    manager.assign("w", replace(narrow, size_bytes=544))
    (tmp_path / "s").write_bytes(encode_var_manager(manager))
    shown = json.loads(inspect("s", "--vars", "--map", "--json").out)["map"]
    assert [(row["kind"], row["offset"], row["size"]) for row in shown] == [
        ("variable", 0, 1056),
        ("padding", 1056, 1504),
        ("shared", 0, 544),
    ]
    assert "=  w" in inspect("s", "--vars", "--map").out
