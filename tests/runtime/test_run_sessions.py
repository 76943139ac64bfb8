"""`gecli run --session-in` and `--session-out`: what a run takes from a snapshot, and what it changes in one."""

from __future__ import annotations

import fcntl
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.artifacts.session_file import read_session, write_session
from gecli.errors import InputError
from gecli.runtime.session import Session
from gecli.runtime.session_table import SessionTable
from gecli.variables.limits import VAR_LOGIC_BASE
from gecli.variables.var_manager import VarManager
from gecli.wire.var_session import encode_var_manager
from tests.options.workshop import write_models

REPOSITORY = Path(__file__).resolve().parents[2]
TRAIN = str(REPOSITORY / "samples/train/conv_train.json")
EVALUATE = str(REPOSITORY / "samples/train/conv_eval.json")


def run(gecli: Any, *words: str, status: int = 0) -> Any:
    """The document of a run, which ends with `status`."""
    done = gecli("run", *words, "--json")
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def compiled(gecli: Any, *words: str) -> None:
    done = gecli("compile", *words)
    assert done.returncode == 0, done.stderr


def tables(path: Path) -> dict[str, Any]:
    """What a snapshot says about places and forms."""
    manager = read_session(str(path))
    resource = manager.resource
    return {
        "addresses": {key.to_ge(): (each.address, each.offset, each.desc) for key, each in resource.addresses.items()},
        "blocks": [(block.address, block.capacity_bytes) for block in resource.blocks],
        "descs": resource.current_descs,
        "roads": resource.roads,
        "allocated": resource.allocated_graph_ids,
        "assigned": resource.assigned_names,
        "used": manager.hbm.used_bytes,
        "limits": manager.limits,
    }


# ------------------------------------------------------------------ what a run leaves in a snapshot


def test_a_run_saves_the_session_that_the_compile_of_its_models_had(gecli, tmp_path: Path) -> None:
    compiled(gecli, TRAIN, EVALUATE, "-o", "s/", "--train", "--session-out", "compiled")
    document = run(gecli, "s/conv_train.om", "s/conv_eval.om", "--init", "zero", "--session-out", "saved")
    expected, found = tables(tmp_path / "compiled"), tables(tmp_path / "saved")
    assert found == expected and len(found["roads"]) == 4
    assert document["ok"] is True
    assert document["session"]["added"] == sorted(expected["descs"]) == document["session"]["variables"]


def test_a_run_that_continues_keeps_everything_but_the_marks_of_changes(gecli, tmp_path: Path) -> None:
    compiled(gecli, TRAIN, EVALUATE, "-o", "s/", "--train", "--session-out", "s.bin")
    before, changed = tables(tmp_path / "s.bin"), read_session(str(tmp_path / "s.bin")).resource.changed_graph_ids
    words = ("--session-in", "s.bin", "--session-out", "s.bin", "--init", "zero")
    document = run(gecli, "s/conv_eval.om", "s/conv_train.om", *words)
    assert document["session"] == {"in": "s.bin", "out": "s.bin", "variables": sorted(before["descs"]), "added": []}
    assert tables(tmp_path / "s.bin") == before
    after = read_session(str(tmp_path / "s.bin")).resource.changed_graph_ids
    assert sorted(changed) == ["w1", "w1_momentum", "w2", "w2_momentum"] and not after, "the data are converted now"
    first = (tmp_path / "s.bin").read_bytes()
    run(gecli, "s/conv_eval.om", "s/conv_train.om", *words)
    assert (tmp_path / "s.bin").read_bytes() == first


def test_a_compile_goes_on_from_the_session_that_a_run_saved(gecli, tmp_path: Path) -> None:
    write_models(tmp_path)
    compiled(gecli, "conv.json", "-o", "conv.om", "--session-out", "compiled")
    run(gecli, "conv.om", "--session-out", "saved")
    for session in ("compiled", "saved"):
        compiled(gecli, "plain.json", "-o", f"of_{session}/plain.om", "--session-in", session)
    assert (tmp_path / "of_saved/plain.om").read_bytes() == (tmp_path / "of_compiled/plain.om").read_bytes()


def test_a_model_may_change_what_the_session_has(gecli, tmp_path: Path) -> None:
    write_models(tmp_path)
    compiled(gecli, "plain.json", "-o", "alone.om", "--session-out", "s.bin")
    compiled(gecli, "plain.json", "conv.json", "-o", "both/")
    assert tables(tmp_path / "s.bin")["descs"]["w"].format.name == "NCHW"
    run(gecli, "both/conv.om", "--session-in", "s.bin", "--session-out", "s.bin", "--save-vars", "v.npz")
    changed = tables(tmp_path / "s.bin")
    assert changed["descs"]["w"].format.name == "FRACTAL_Z" and changed["roads"]["w"].source.format.name == "NCHW"
    assert len(changed["addresses"]) == 2 and changed["allocated"] == {"w": 1}
    assert read_session(str(tmp_path / "s.bin")).resource.changed_graph_ids == {}
    assert np.load(tmp_path / "v.npz")["w"].shape == (8, 1, 3, 3), "the file has the declared form"
    run(gecli, "both/plain.om", "--session-in", "s.bin")
    (fault,) = run(gecli, "alone.om", "--session-in", "s.bin", status=3)["errors"]
    assert (fault["code"], fault["kind"], fault["where"]["node"]) == ("G4011", "RT_VAR_DESC_MISMATCH", "w")
    assert (fault["expected"], fault["actual"]) == ("[9, 1, 16, 8]", "[8, 1, 3, 3]")
    assert fault["message"] == "the shape of variable 'w' is not that of session s.bin"
    assert "alone.om" in fault["why"] and "--session-in" in fault["fix"]


def test_a_failing_run_leaves_the_session_as_it_was(gecli, tmp_path: Path) -> None:
    write_models(tmp_path)
    compiled(gecli, "bare.json", "-o", "bare.om", "--session-out", "s.bin")
    before = (tmp_path / "s.bin").read_bytes()
    fault = run(gecli, "bare.om", "--session-in", "s.bin", "--session-out", "s.bin", status=6)["errors"][0]
    assert fault["kind"] == "RT_VAR_UNINITIALISED"
    assert (tmp_path / "s.bin").read_bytes() == before
    assert not list(tmp_path.glob("*.lock"))


# ------------------------------------------------------------------ contents


def test_the_session_has_no_contents_and_the_variables_file_has(gecli, tmp_path: Path) -> None:
    write_models(tmp_path)
    compiled(gecli, "bare.json", "-o", "bare.om", "--session-out", "s.bin")
    np.save(tmp_path / "v.npy", np.float32([3, -4]))
    words = ("--session-in", "s.bin", "--session-out", "s.bin")
    run(gecli, "bare.om", "--set-var", "v=v.npy", *words, "--save-vars", "v.npz")
    run(gecli, "bare.om", "--session-in", "s.bin", status=6)
    run(gecli, "bare.om", "--session-in", "s.bin", "--load-vars", "v.npz", "-o", "out.npz")
    assert np.load(tmp_path / "out.npz")["y:0"].tolist() == [3, 0]


def test_variables_that_only_the_session_has_go_through_a_run(gecli, tmp_path: Path) -> None:
    write_models(tmp_path)
    compiled(gecli, "bare.json", "conv.json", "-o", "s/", "--session-out", "s.bin")
    start = np.arange(72, dtype=np.float32).reshape(8, 1, 3, 3)
    np.savez(tmp_path / "start.npz", v=np.float32([1, 2]), w=start)
    words = ("--load-vars", "start.npz", "--save-vars", "end.npz")
    run(gecli, "s/bare.om", *words)
    assert np.load(tmp_path / "end.npz").files == ["v", "__meta__"]
    document = run(gecli, "s/bare.om", *words, "--session-in", "s.bin")
    assert np.array_equal(np.load(tmp_path / "end.npz")["w"], start)
    assert document["variables"]["w"]["format"] == "FRACTAL_Z", "stored as the session has it"
    shown = gecli("run", "s/bare.om", "--load-vars", "start.npz", "--session-in", "s.bin", "--get-var", "w=w.npy")
    assert shown.returncode == 0 and np.array_equal(np.load(tmp_path / "w.npy"), start)


def test_the_road_of_the_session_stands_in_for_a_missing_packet(gecli, tmp_path: Path) -> None:
    write_models(tmp_path)
    compiled(gecli, "conv.json", "-o", "conv.om", "--session-out", "s.bin")
    (tmp_path / "conv.rdcpkt").unlink()
    without = gecli("run", "conv.om", "--get-var", "w=w.npy")
    assert "G3007" in without.stderr and np.load(tmp_path / "w.npy").shape == (9, 1, 16, 8)
    with_session = gecli("run", "conv.om", "--get-var", "w=w.npy", "--session-in", "s.bin")
    assert "G3007" not in with_session.stderr and np.load(tmp_path / "w.npy").shape == (8, 1, 3, 3)


# ------------------------------------------------------------------ what does not fit


@pytest.mark.parametrize(
    ("field", "old", "new"),
    [("shape", "[2]", "[3]"), ("dtype", "DT_FLOAT", "DT_FLOAT16"), ("format", "ND", "NCHW")],
)
def test_a_model_that_contradicts_the_session_is_refused(tmp_path: Path, field: str, old: str, new: str) -> None:
    write_models(tmp_path)
    document = json.loads((tmp_path / "bare.json").read_text())
    change = {"shape": {"shape": [3]}, "dtype": {"dtype": "DT_FLOAT16"}, "format": {"format": "NCHW"}}[field]
    if field == "format":
        for node in document["nodes"]:
            node["outputs"][0]["shape"] = [2, 1, 1, 1]
        (tmp_path / "bare.json").write_text(json.dumps(document))
    for node in document["nodes"]:
        node["outputs"][0] |= change
    (tmp_path / "other.json").write_text(json.dumps(document))
    from gecli.compiler import compile_model

    for name in ("bare", "other"):
        compile_model(tmp_path / f"{name}.json", tmp_path / f"{name}.om")
    session = Session(table=SessionTable())
    session.load(tmp_path / "bare.om")
    assert session.table is not None
    write_session(session.table.manager, str(tmp_path / "s.bin"))
    going_on = Session(table=SessionTable(read_session(str(tmp_path / "s.bin")), "s.bin"))
    with pytest.raises(InputError, match=f"the {field} of variable 'v' is not that of session s.bin") as refused:
        going_on.load(tmp_path / "other.om")
    found = refused.value.first
    assert (found.kind, found.expected, found.actual) == ("RT_VAR_DESC_MISMATCH", old, new)
    assert refused.value.exit_status == 3
    Session().load(tmp_path / "other.om")


def test_another_variable_base_is_refused(tmp_path: Path) -> None:
    from gecli.compiler import compile_model

    write_models(tmp_path)
    compile_model(tmp_path / "bare.json", tmp_path / "bare.om")
    manager = VarManager()
    manager.configure_from_model(VAR_LOGIC_BASE // 4, 1 << 20)
    desc = read_variable(tmp_path / "bare.om")
    manager.restore_variable("u", desc, VAR_LOGIC_BASE // 4)
    with pytest.raises(InputError, match="0x800000000") as refused:
        Session(table=SessionTable(manager)).load(tmp_path / "bare.om")
    assert refused.value.first.kind == "RT_VAR_BASE_CONFLICT"


@pytest.mark.parametrize(
    ("size", "used", "kind"),
    [(16, 1536, "RT_VAR_GREW"), (64, 2**63, "RT_ADDR_OUT_OF_RANGE"), (64, 2**64 - 1, "RT_ADDR_OUT_OF_RANGE")],
)
def test_what_does_not_fit_has_the_name_of_loading_and_leaves_no_trace(
    tmp_path: Path, size: int, used: int, kind: str
) -> None:
    from gecli.compiler import compile_model

    write_models(tmp_path)
    for name in ("bare", "plain"):
        compile_model(tmp_path / f"{name}.json", tmp_path / f"{name}.om")
    manager = VarManager()
    manager.restore_variable("v", replace(read_variable(tmp_path / "bare.om"), size_bytes=size), VAR_LOGIC_BASE)
    manager.hbm.used_bytes = used
    session = Session(table=SessionTable(manager))
    before = encode_var_manager(manager)
    with pytest.raises(InputError) as refused:
        session.load(tmp_path / ("bare.om" if kind == "RT_VAR_GREW" else "plain.om"))
    assert (refused.value.first.kind, refused.value.exit_status) == (kind, 3)
    assert encode_var_manager(manager) == before


def test_a_model_that_fails_late_leaves_no_trace_in_the_session(tmp_path: Path) -> None:
    from gecli.compiler import compile_model
    from gecli.errors import RuntimeFault

    write_models(tmp_path)
    for name in ("race", "bare"):
        compile_model(tmp_path / f"{name}.json", tmp_path / f"{name}.om")
    session = Session(table=SessionTable(), strict_order=True)
    assert session.table is not None
    with pytest.raises(RuntimeFault):
        session.load(tmp_path / "race.om")
    assert session.table.added == []
    session.load(tmp_path / "bare.om")
    assert session.table.manager.resource.allocated_graph_ids == {"v": 1}


def read_variable(om: Path) -> Any:
    session = Session(table=SessionTable())
    session.load(om)
    assert session.table is not None
    return session.table.manager.current_desc("v")


@pytest.mark.parametrize("damage", ["", "cut", "text"])
def test_a_snapshot_that_cannot_be_read_ends_the_run(gecli, tmp_path: Path, damage: str) -> None:
    write_models(tmp_path)
    compiled(gecli, "conv.json", "-o", "conv.om", "--session-out", "s.bin")
    data = (tmp_path / "s.bin").read_bytes()
    (tmp_path / "s.bin").unlink()
    if damage:
        (tmp_path / "s.bin").write_bytes(data[:-40] if damage == "cut" else b"no session")
    fault = run(gecli, "conv.om", "--session-in", "s.bin", "-o", "out.npz", status=3)["errors"][0]
    assert (fault["code"], fault["kind"]) == (("G3007", "DATA_CORRUPT") if damage else ("E13001", None))
    assert not (tmp_path / "out.npz").exists()


# ------------------------------------------------------------------ addresses


def test_what_was_compiled_apart_gets_room_behind_the_others(gecli, tmp_path: Path) -> None:
    write_models(tmp_path)
    for name in ("plain", "lossy"):
        compiled(gecli, f"{name}.json", "-o", f"{name}.om", "--no-variable-acc", "--session-out", f"{name}.bin")
    apart = {name: tables(tmp_path / f"{name}.bin")["addresses"] for name in ("plain", "lossy")}
    assert {row[1] for rows in apart.values() for row in rows.values()} == {0}, "both have their variable at the base"
    for _ in range(2):
        run(gecli, "lossy.om", "--session-in", "plain.bin", "--session-out", "plain.bin")
        rows = tables(tmp_path / "plain.bin")["addresses"]
        assert {key: row[1] for key, row in rows.items()} == {"w0_0": 0, "v2_0": 1536}
    strict = run(gecli, "lossy.om", "--session-in", "lossy.bin", "--strict-variable-addresses")
    assert strict["variables"]["v"]["logical"] == hex(VAR_LOGIC_BASE)
    fault = run(gecli, "plain.om", "--session-in", "lossy.bin", "--strict-variable-addresses", status=3)["errors"][0]
    assert fault["kind"] == "RT_VAR_OVERLAP"


def test_constants_of_a_model_compiled_apart_stay_with_it(gecli, tmp_path: Path) -> None:
    compiled(gecli, TRAIN, "-o", "train.om", "--train", "--session-out", "s.bin")
    compiled(gecli, EVALUATE, "-o", "eval.om", "--train")
    before = tables(tmp_path / "s.bin")
    words = ("--init", "zero", "--session-in", "s.bin", "--session-out", "s.bin")
    run(gecli, "eval.om", *words)
    assert tables(tmp_path / "s.bin") == before
    fault = run(gecli, "eval.om", *words, "--strict-variable-addresses", status=3)["errors"][0]
    assert fault["kind"] == "RT_VAR_OVERLAP" and "constant" in fault["message"]


# ------------------------------------------------------------------ the command line


def test_a_session_file_in_use_is_waited_for_only_where_it_is_written(gecli, tmp_path: Path) -> None:
    write_models(tmp_path)
    compiled(gecli, "conv.json", "-o", "conv.om", "--session-out", "s.bin")
    with open(tmp_path / "s.bin.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        words = ("--session-in", "s.bin", "--session-out", "s.bin", "--lock-timeout", "0.1")
        fault = run(gecli, "conv.om", *words, status=7)["errors"][0]
        assert (fault["code"], fault["kind"]) == ("G5001", "lock_timeout")
        run(gecli, "conv.om", "--session-in", "s.bin")


@pytest.mark.parametrize("other", ["--no-session", "--jit"])
def test_a_session_file_needs_the_session_of_whole_models(gecli, tmp_path: Path, other: str) -> None:
    (tmp_path / "s.bin").write_bytes(b"")
    done = gecli("run", "a.om", other, "--session-in", "s.bin")
    assert done.returncode == 2 and f"{other} excludes --session-in" in done.stderr


def test_no_output_of_a_run_is_its_session(gecli, tmp_path: Path) -> None:
    write_models(tmp_path)
    compiled(gecli, "conv.json", "-o", "conv.om", "--session-out", "s.bin")
    done = gecli("run", "conv.om", "--session-in", "s.bin", "--save-vars", "s.bin")
    assert done.returncode == 2 and "E10047" in done.stderr
    done = gecli("run", "conv.om", "--session-out", "conv.rdcpkt")
    assert done.returncode == 2 and "E10047" in done.stderr


def test_the_run_says_what_it_continued_and_saved(gecli, tmp_path: Path) -> None:
    write_models(tmp_path)
    compiled(gecli, "conv.json", "-o", "conv.om", "--session-out", "s.bin")
    done = gecli("run", "conv.om", "--session-in", "s.bin", "--session-out", "t.bin", "-v")
    assert "continues the session s.bin: 1 variables" in done.stderr
    assert "saved the session of 1 variables to t.bin" in done.stderr
    help_text = " ".join(gecli("run", "--help", "--full").stdout.split())
    assert "not what they hold (--save-vars)" in help_text


def test_values_for_a_model_without_its_record_are_told_what_is_not_there(gecli: Any, tmp_path: Path) -> None:
    compiled(gecli, TRAIN, "-o", "train.om")
    assert gecli("run", "train.om", "--init", "random", "--save-vars", "start.npz").returncode == 0
    (tmp_path / "train.rdcpkt").rename(tmp_path / "kept.rdcpkt")
    refused = gecli("run", "train.om", "--load-vars", "start.npz")
    assert "error[G4011]" in refused.stderr and "Use files of one compile" not in refused.stderr
    assert "train.rdcpkt is not there, and only it says in which form the variable was declared" in refused.stderr
    assert "do:  keep train.rdcpkt beside the OM, or name it with --vars, or give --session-in" in refused.stderr
    named = gecli("run", "train.om", "--load-vars", "start.npz", "--vars", "kept.rdcpkt")
    assert named.returncode == 0, named.stderr


def test_a_value_of_a_wrong_shape_says_nothing_of_a_record_that_is_there(gecli: Any, tmp_path: Path) -> None:
    compiled(gecli, TRAIN, "-o", "train.om")
    np.savez(tmp_path / "wrong.npz", w1=np.zeros((2, 2), np.float32))
    refused = gecli("run", "train.om", "--load-vars", "wrong.npz")
    assert "error[G4011]" in refused.stderr and "rdcpkt" not in refused.stderr
