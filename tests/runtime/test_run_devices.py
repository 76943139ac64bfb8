"""`gecli run --device LIST`: what devices share, what each has for itself, what is written where, how a run ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.cli.run_devices import device_numbers
from gecli.errors import InvalidOption
from gecli.options.resolution import resolve
from gecli.runtime.session import Session
from gecli.runtime.shared_files import SharedFiles
from tests.conftest import REPOSITORY, Gecli
from tests.runtime.test_variables_in_subgraphs import TWO, X, loaded

GROUP = 'group="hccl_world_group"'
SUM = f"""
    graph g(%x : f32[4] ND) {{
      %w = Variable() {{_init_value={{"fill": "00000040"}}}} : f32[4] ND
      %s = HcomAllReduce(%x) {{reduction="sum", {GROUP}}} : f32[4] ND
      %d = Sub(%s, %x) : f32[4] ND
      %a = AssignAdd(%w, %d) : f32[4] ND
      return %s, %a
    }}
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    """g.om: the sum of x over the devices, and a variable to which each adds what the others gave."""
    loaded(SUM, tmp_path, Session(), "")
    for device in range(3):
        np.save(tmp_path / f"x{device}.npy", 10**device * X)
    return "g.om"


def run(gecli: Gecli, *words: str, status: int = 0) -> Any:
    done = gecli("run", *words)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_every_device_has_its_inputs_its_variables_and_its_files(gecli: Gecli, tmp_path: Path, model: str) -> None:
    done = run(gecli, model, "--device", "0,1,2", "-i", "x=x{device}.npy", "-o", "out", "--save-vars", "v{device}.npz",
               "--get-var", "w", "--loop", "2")  # fmt: skip
    total = 111 * X
    for device in range(3):
        np.testing.assert_array_equal(np.load(tmp_path / f"out/device{device}/s_0.npy"), total)
        expected = TWO + total - 10**device * X  # two measured runs begin with the same variables
        np.testing.assert_array_equal(np.load(tmp_path / f"out/device{device}/a_0.npy"), expected)
        np.testing.assert_array_equal(np.load(tmp_path / f"v{device}.npz")["w"], expected)
        assert f"device {device}: s:0  float32 [4]" in done.stdout
        assert f"device {device}: w  float32 [4]" in done.stdout
        assert f"device {device}: 5 collectives, 105 bytes sent, " in done.stderr  # 21 of a ring of three, 3 warm-ups
    words = ("--load-vars", "v{device}.npz", "--set-var", "w=x{device}.npy", "-o", "o{device}.npz")
    run(gecli, model, "--device", "1,0", "-i", "x=x0.npy", *words)
    for device in range(2):
        np.testing.assert_array_equal(np.load(tmp_path / f"o{device}.npz")["a:0"], 10**device * X + X)


def test_the_document_has_a_member_for_each_device(gecli: Gecli, model: str) -> None:
    done = run(gecli, model, "--device", "2,0", "-i", "x=x{device}.npy", "--json", "-q")
    document = json.loads(done.stdout)
    assert (document["schema"], document["ok"], document["simulated"]) == ("gecli.run-devices/1", True, True)
    first, second = document["devices"]
    assert (first["device"], first["rank"], second["device"], second["rank"]) == (2, 0, 0, 1)
    assert first["collectives"]["calls"] == 1
    assert first["collectives"]["bytes_sent"] == 16
    assert first["requests"][0]["outputs"][0]["sha256"] == second["requests"][0]["outputs"][0]["sha256"]
    assert first["requests"][0]["inputs"][0]["sha256"] != second["requests"][0]["inputs"][0]["sha256"]
    assert first["schema"] == "gecli.run/1"


def test_one_device_of_any_number_runs_as_before(gecli: Gecli, tmp_path: Path, model: str) -> None:
    plain = run(gecli, model, "-i", "x=x1.npy")
    other = run(gecli, model, "-i", "x=x{device}.npy", "--device", "1", "-o", "out", "--get-var", "w=w{device}.npy")
    assert other.stdout == plain.stdout
    assert (tmp_path / "out/s_0.npy").exists()
    assert (tmp_path / "w1.npy").exists()
    run(gecli, model, "-i", "x=x0.npy", "--device", "0", "--save-vars", "v{device}.npz", "--collective-timeout", "inf")
    assert (tmp_path / "v0.npz").exists()


def test_outputs_are_compared_for_each_device(gecli: Gecli, tmp_path: Path, model: str) -> None:
    words = (model, "--device", "0,1", "-i", "x=x{device}.npy")
    run(gecli, *words, "-o", "golden{device}.npz")
    same = run(gecli, *words, "--compare", "golden{device}.npz", "--atol", "0")
    assert "device 1: equal    a:0" in same.stdout
    one = run(gecli, *words, "--compare", "golden0.npz", "--atol", "0", status=1)
    assert "device 0: equal    a:0" in one.stdout
    assert "device 1: differs  a:0" in one.stdout
    model_too = run(gecli, *words, "--compare", model)  # its collectives meet those of the other device
    assert "device 1: equal    s:0" in model_too.stdout


def test_profile_dump_and_plan_are_of_each_device(gecli: Gecli, tmp_path: Path, model: str) -> None:
    words = (model, "--device", "0,1", "-i", "x=x{device}.npy")
    done = run(gecli, *words, "--profile", "--mark", "all", "--dump-dir", "d", "--export-times", "t{device}.json",
               "--profile-out", "p{device}.csv", "--save-inputs", "i{device}.npz")  # fmt: skip
    assert "device 1: HcomAllReduce" in done.stdout
    for device in range(2):
        index = (tmp_path / f"d/device{device}/0000/index.csv").read_text()
        assert ",s,HcomAllReduce,0,DT_FLOAT," in index
        assert (tmp_path / f"p{device}.csv").exists() and (tmp_path / f"t{device}.json").exists()
        np.testing.assert_array_equal(np.load(tmp_path / f"i{device}.npz")["x"], 10**device * X)
    plan = json.loads(run(gecli, model, "--device", "0,1", "--plan", "--json", "-q").stdout)
    alone = json.loads(run(gecli, model, "--plan", "--json", "-q").stdout)
    assert plan["devices"] == [0, 1]
    assert plan["total_bytes"] == alone["total_bytes"]  # of one device
    run(gecli, *words, "--mem-limit", "1", status=6)


def test_a_session_is_saved_once_for_all_devices(gecli: Gecli, tmp_path: Path, model: str) -> None:
    run(gecli, model, "-i", "x=x0.npy", "--session-out", "one.pb")
    run(gecli, model, "--device", "0,1", "-i", "x=x0.npy", "--session-in", "one.pb", "--session-out", "two.pb")
    assert (tmp_path / "two.pb").read_bytes() == (tmp_path / "one.pb").read_bytes()


def test_a_device_that_fails_stops_the_others_and_nothing_is_written(gecli: Gecli, tmp_path: Path, model: str) -> None:
    np.save(tmp_path / "x1.npy", np.full(4, np.inf, np.float32))
    done = run(gecli, model, "--device", "0,1", "-i", "x=x{device}.npy", "--check-numerics", "-o", "out", status=6)
    assert "error[G4007]" in done.stderr
    assert "--> devices 0, 1: first at index [0]" in done.stderr
    assert not (tmp_path / "out").exists()


def test_devices_that_call_other_collectives_are_told(gecli: Gecli, tmp_path: Path) -> None:
    text = f"""
        graph g(%c : bool[] ND, %x : f32[4] ND) {{
          %i = If(%c, %x) {{subgraphs=["yes", "no"]}} : f32[4] ND
          return %i
        }}
        graph yes(%y : f32[4] ND) {{
          %s = HcomAllReduce(%y) {{reduction="sum", {GROUP}}} : f32[4] ND
          return %s
        }}
        graph no(%n : f32[4] ND) {{
          %t = HcomAllReduce(%n) {{reduction="max", {GROUP}}} : f32[4] ND
          return %t
        }}
    """
    loaded(text, tmp_path, Session(), "")
    for device in range(2):
        np.save(tmp_path / f"c{device}.npy", np.array(device == 0))
    done = run(gecli, "g.om", "--device", "0,1", "-i", "c=c{device}.npy", "--json", status=6)
    assert "error[G4015]: rank 0 (device 0) and rank 1 (device 1) do not call the same collective" in done.stderr
    assert "why: rank 0 (device 0) has HcomAllReduce 's', rank 1 (device 1) has HcomAllReduce 't'" in done.stderr
    assert json.loads(done.stdout)["errors"][0]["kind"] == "RT_COLLECTIVE_MISMATCH"


def test_what_is_sent_and_not_received_on_one_device_is_an_error(gecli: Gecli, tmp_path: Path) -> None:
    text = f"""
        graph g(%x : f32[4] ND) {{
          %s = HcomSend(%x) {{sr_tag=9, dest_rank=0, {GROUP}}}
          %n = Neg(%x) : f32[4] ND
          return %n
        }}
    """
    loaded(text, tmp_path, Session(), "")
    done = run(gecli, "g.om", "-o", "out", status=6)
    assert "error[G4015]: what HcomSend 's' sent was never received" in done.stderr
    assert not (tmp_path / "out").exists()


def test_files_that_all_devices_would_write_are_refused_at_once(gecli: Gecli, tmp_path: Path, model: str) -> None:
    words = ("--save-vars", "v.npz", "-o", "-", "--get-var", "w=w.npy", "--duration", "3", "--save-inputs", "i.npz")
    done = run(gecli, model, "--device", "0,1", *words, status=2)
    assert done.stderr.count("error[E10047]") == 5
    for cure in ("--save-vars 'v{device}.npz'", "-o DIR", "--get-var 'w=w{device}.npy'", "--loop N"):
        assert f"do:  {cure}\n" in done.stderr
    run(gecli, model, "--device", "0,1", "--jit", "--cache-dir", "c", status=2)
    done = run(gecli, model, "--device", "0,1", "-i", "x=x{device}.npy", "--save-inputs", "x{device}.npy", status=2)
    assert "would overwrite the input x0.npy" in done.stderr
    assert not any(tmp_path.glob("*.npz"))


@pytest.mark.parametrize("text", ["8", "0,", ",1", "0 1", "0-1", "-1", "0,1,0"])
def test_a_list_of_devices_has_numbers_from_0_to_7_once_each(text: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        device_numbers(resolve("run", {"device": [text]}))
    assert caught.value.first.option == "--device"


def test_devices_share_what_they_read_and_nothing_that_they_write(tmp_path: Path) -> None:
    text = """
        graph g(%x : f32[4] ND) {
          %k = Const() {value={"fill": "00004040"}} : f32[4] ND
          %w = Variable() {_init_value={"fill": "00000040"}} : f32[4] ND
          %m = Mul(%x, %k) : f32[4] ND
          %a = AssignAdd(%w, %m) : f32[4] ND
          return %a
        }
    """
    loaded(text, tmp_path, Session(), "")
    files, sessions = SharedFiles(), [Session(), Session()]
    for session in sessions:
        session.share(files)
    one, other = (session.load(tmp_path / "g.om") for session in sessions)
    assert one.program is not None and other.program is not None
    (constant,) = (port for port, operand in one.program.operands.items() if operand.is_constant)
    arrays = [model.program.operands[constant].array for model in (one, other) if model.program is not None]
    assert np.shares_memory(*arrays)
    first, second = one.run({"x": X})[0]["a:0"], other.run({"x": 10 * X})[0]["a:0"]
    np.testing.assert_array_equal(first, TWO + 3 * X)
    np.testing.assert_array_equal(second, TWO + 30 * X)
    np.testing.assert_array_equal(sessions[0].store.value("w"), TWO + 3 * X)


def test_an_interrupt_ends_all_devices_and_leaves_nothing(tmp_path: Path, model: str) -> None:
    np.savez(tmp_path / "v.npz", w=TWO)
    words = ["run", model, "--device", "0,1", "--load-vars", "v.npz", "--loop", "100000000", "-o", "out", "-v"]
    command = [sys.executable, "-m", "gecli", *words]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        while running.stderr.readline() != "device 1: loaded 1 of 1 variables from v.npz\n":
            assert running.poll() is None
        time.sleep(0.2)  # for the threads of the devices
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=60)
    assert (running.returncode, told.splitlines()[-1]) == (130, "gecli: interrupted")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["g.om", "g.rdcpkt", "v.npz", "x0.npy", "x1.npy", "x2.npy"]
