"""`gecli cache verify`: what it prints, its document and its exit status."""

from __future__ import annotations

import fcntl
import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.bad_files import as_ordinary_user, check_message, gecli_in
from tests.conftest import REPOSITORY

Run = Callable[..., "subprocess.CompletedProcess[str]"]
TRAIN = str(REPOSITORY / "samples/train/conv_train.json")
VERIFY = ("cache", "verify", "--cache-dir", "cache")


@pytest.fixture
def om(gecli: Run, tmp_path: Path) -> Path:
    """The .om of the only entry of a cache; it has a .rdcpkt."""
    (tmp_path / "cache").mkdir()
    result = gecli("compile", TRAIN, "-o", "t", "--train", "--cache-dir", "cache", "--graph-key", "k")
    assert result.returncode == 0, result.stderr
    return next((tmp_path / "cache").glob("k_*.om"))


def damage(om: Path) -> None:
    data = bytearray(om.read_bytes())
    data[1000] ^= 1
    om.write_bytes(data)


def test_a_cache_in_order_is_exit_0_and_unchanged(gecli: Run, om: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in om.parent.rglob("*")}
    result = gecli(*VERIFY)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("checked 1 entry, 3 files, ") and result.stdout.endswith(": all well\n")
    assert {path: path.stat().st_mtime_ns for path in om.parent.rglob("*")} == before


def test_damage_is_exit_1_until_it_is_repaired(gecli: Run, om: Path) -> None:
    damage(om)
    assert gecli(*VERIFY, "--fast").returncode == 0
    found = gecli(*VERIFY)
    assert (found.returncode, found.stderr) == (1, "")
    assert found.stdout.splitlines()[0] == f"om-corrupt  {om.stem}  the sha256 is not that of the sidecar"
    repaired = gecli(*VERIFY, "--repair")
    assert repaired.returncode == 0
    assert repaired.stdout.splitlines()[0] == f"repaired  entry {om.stem} was set aside (om-corrupt)"
    compiled = gecli("compile", TRAIN, "-o", "t", "--train", "--cache-dir", "cache", "--graph-key", "k")
    assert "cache=miss reason=no_entry" in compiled.stdout
    assert gecli(*VERIFY).returncode == 0


def test_the_document_holds_problems_and_repairs(gecli: Run, om: Path) -> None:
    damage(om)
    found = json.loads(gecli(*VERIFY, "--json").stdout)
    assert [(each["kind"], each["key"], each["entry"]) for each in found["problems"]] == [("om-corrupt", "k", om.stem)]
    assert (found["well"], found["entries"], found["repaired"]) == (False, 1, [])
    repaired = json.loads(gecli(*VERIFY, "--json", "--repair").stdout)
    assert (repaired["well"], repaired["entries"], len(repaired["repaired"])) == (True, 0, 1)


def test_a_repair_of_a_key_in_use_is_exit_7(gecli: Run, om: Path) -> None:
    damage(om)
    with open(om.parent / "k.lock") as peer:
        fcntl.flock(peer, fcntl.LOCK_EX)
        assert gecli(*VERIFY).returncode == 1
        result = gecli(*VERIFY, "--repair", "--wait", "0.2")
    assert result.returncode == 7
    assert "error[G5001]: key k was not repaired: its lock was not obtained" in result.stderr
    assert om.exists()


def test_a_repair_whose_lock_cannot_be_used_says_why_and_what_helps(gecli: Run, om: Path) -> None:
    damage(om)
    lock = om.parent / "k.lock"
    lock.unlink()
    lock.mkdir()
    result = gecli(*VERIFY, "--repair")
    assert result.returncode == 7
    parts = "was not repaired", "--> cache", "Is a directory", "permissions of the .lock files"
    assert all(part in result.stderr for part in parts), result.stderr
    assert "--wait" not in result.stderr


def test_a_directory_that_is_no_cache_is_not_repaired(gecli: Run, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/mine.om").write_bytes(b"IMOD")
    result = gecli("cache", "verify", "--cache-dir", "models", "--repair")
    assert result.returncode == 2
    assert "models is not a compile cache" in result.stderr
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["mine.om"]


def test_a_directory_that_cannot_be_written_is_exit_5(om: Path, tmp_path: Path) -> None:
    damage(om)
    om.parent.chmod(0o555)
    try:
        check_message(gecli_in(tmp_path, *VERIFY, "--repair", prepare=as_ordinary_user), 5)
    finally:
        om.parent.chmod(0o755)
    assert om.exists()


def test_a_recompile_gives_the_bytes_of_the_entry(gecli: Run, om: Path) -> None:
    shape = ("--input-shape", "image:2,1,8,8", "--precision", "fp16")
    digits = str(REPOSITORY / "samples/digits/digits.onnx")
    gecli("compile", digits, "-o", "out/d", *shape, "--cache-dir", "cache", "--graph-key", "d")
    for model in (TRAIN, digits):
        result = gecli(*VERIFY, "--recompile", model)
        assert (result.returncode, result.stderr) == (0, "")
        assert "not compared" not in result.stdout
    result = gecli(*VERIFY, "--recompile", "other.onnx")
    assert result.returncode == 2
    assert "no whole entry was compiled from a file of the name other.onnx" in result.stderr


def test_a_recompile_compares_the_first_model_of_a_session_and_notes_those_that_found_variables(
    gecli: Run, tmp_path: Path
) -> None:
    (tmp_path / "cache").mkdir()
    init, train, evaluate = (TRAIN.replace("train.json", f"{name}.json") for name in ("init", "train", "eval"))
    words = ("--train", "--cache-dir", "cache", "--graph-key", "{stem}")
    for session in ((init, train, evaluate), (train, "--session-out", "s"), (evaluate, "--session-in", "s")):
        made = gecli("compile", *session, "-o", "t/", *words)
        assert made.returncode == 0, made.stderr
    for model, compared in ((init, 1), (train, 1), (evaluate, 0)):
        entries = len(list((tmp_path / "cache").glob(f"{Path(model).stem}_*.om")))
        result = gecli(*VERIFY, "--recompile", model, "--json")
        document = json.loads(result.stdout)
        assert (result.returncode, document["problems"]) == (0, []), model
        assert len(document["notes"]) == entries - compared, document["notes"]
        for note in document["notes"]:
            assert note.startswith("entry conv_") and "was not compared: the session of its compile already had" in note


def test_an_entry_that_is_not_reproduced_is_a_problem(gecli: Run, om: Path) -> None:
    data = bytearray(om.read_bytes())
    data[1000] ^= 1
    om.write_bytes(data)
    side = om.with_suffix(".gecli.json")
    content = json.loads(side.read_text())
    content["files"]["om"]["sha256"] = hashlib.sha256(data).hexdigest()  # as another machine might have made it
    side.write_text(json.dumps(content))
    assert gecli(*VERIFY).returncode == 0
    result = gecli(*VERIFY, "--recompile", TRAIN, "--json")
    assert (result.returncode, [each["kind"] for each in json.loads(result.stdout)["problems"]]) == (
        1, ["not-reproduced"],
    )  # fmt: skip


def test_another_model_of_the_same_name_is_not_compared(gecli: Run, om: Path, tmp_path: Path) -> None:
    document = json.loads(Path(TRAIN).read_text())
    (tmp_path / "conv_train.json").write_text(json.dumps({**document, "nodes": document["nodes"][:-1]}))
    result = gecli(*VERIFY, "--recompile", "conv_train.json")
    assert result.returncode == 0
    assert f"entry {om.stem} was not compared: " in result.stdout
