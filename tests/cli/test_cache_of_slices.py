"""The cache commands know the JIT layer: versions of slices are entries, and their chain is checked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.test_cache_schemas import check
from tests.conftest import REPOSITORY
from tests.jit.dynamic_models import MODELS

Run = Callable[..., "subprocess.CompletedProcess[str]"]
NAME = "chosen_rows"
RUN = ("run", "--jit", f"{NAME}.onnx", "-i", "0.npz", "-o", "o.npz", "--cache-dir", "c", "--graph-key", "rows")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a model of two slices, and a cache with a version of each and a whole model."""
    import sys

    folder = tmp_path_factory.mktemp("filled")
    make, classes = MODELS[NAME]
    (folder / f"{NAME}.onnx").write_bytes(make())
    np.savez(folder / "0.npz", **classes[0])
    (folder / "c").mkdir()
    digits = ("compile", str(REPOSITORY / "samples/digits/digits.onnx"), "-o", "d", "--cache-dir", "c")
    for words in (RUN, (*digits, "--graph-key", "d")):
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        subprocess.run(
            [sys.executable, "-m", "gecli", *words], cwd=folder, env=environment, check=True, capture_output=True
        )
    return folder


@pytest.fixture
def jit(filled: Path, tmp_path: Path) -> Path:
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    return tmp_path / "c/jit"


def document(gecli: Run, command: str, *words: str, status: int = 0) -> dict[str, Any]:
    result = gecli("cache", command, "--cache-dir", "c", "--json", *words)
    assert result.returncode == status, result.stderr
    return check(result.stdout, f"cache-{command}")


def age(jit: Path) -> None:
    """Make every entry of the layer look unused for a day."""
    old = time.time() - 86400
    for path in jit.glob("*.gecli.json"):
        os.utime(path, (old, old))


def test_ls_lists_versions_beside_whole_models(gecli: Run, jit: Path) -> None:
    rows = document(gecli, "ls", "--files")
    assert [(row["layer"], row["state"]) for row in rows["entries"]] == [("graph", "ok"), ("jit", "ok"), ("jit", "ok")]
    assert {f"jit/{path.name}" for path in jit.glob("*.om")} <= {each["path"] for each in rows["files"]}
    assert {f"jit/{path.relative_to(jit)}" for path in jit.rglob("*.pb")} <= {each["path"] for each in rows["files"]}
    (found,) = rows["slices"]
    assert (found["key"], found["slices"], found["versions"], found["state"]) == ("rows", 2, 2, "ok")
    sizes = [path.stat().st_size for path in (jit / "slicing_hierarchy").rglob("*") if path.is_file()]
    assert found["size"] == rows["totals"]["slices_bytes"] == sum(sizes) > 0
    assert rows["totals"]["bytes"] == sum(row["size"] for row in (*rows["entries"], *rows["slices"]))
    assert [row["layer"] for row in document(gecli, "ls", "--layer", "jit")["entries"]] == ["jit", "jit"]
    assert len(document(gecli, "ls", "--key", "rows")["entries"]) == 2
    stats = document(gecli, "stats")
    assert (stats["entries"], stats["slices"]) == (3, {"graphs": 1, "bytes": sum(sizes)})
    lines = gecli("cache", "ls", "--cache-dir", "c").stdout.splitlines()
    assert [line.split()[:3] for line in lines if "slicing" in line] == [["rows", "slicing_hierarchy/rows", "jit"]]


def test_a_version_that_no_slice_lists_is_garbage_once_it_is_old(gecli: Run, jit: Path) -> None:
    home = jit / "slicing_hierarchy/rows"
    shutil.rmtree(home)
    assert [row["state"] for row in document(gecli, "ls", "--layer", "jit")["entries"]] == ["jit-orphan"] * 2
    assert document(gecli, "gc")["actions"] == []  # its run may just be about to list it
    age(jit)
    checked = document(gecli, "verify")
    assert checked["well"] and checked["garbage"] == sorted(f"jit/{path.name}" for path in jit.glob("*.om"))
    planned = document(gecli, "gc", "--dry-run")["actions"]
    assert [(each["verb"], each["why"]) for each in planned] == [("remove", "jit-orphan")] * 2
    assert document(gecli, "gc")["actions"] == planned
    assert list(jit.glob("*.om")) == []
    assert list((jit.parent).glob("d_*.om")) != []


def test_a_list_that_cannot_be_read_makes_no_orphans_and_is_written_anew(gecli: Run, jit: Path) -> None:
    next(jit.rglob("gep_list.json")).write_text("{")
    age(jit)
    planned = document(gecli, "gc")["actions"]
    assert [(each["verb"], each["what"]) for each in planned] == [("rebuild", "jit/slicing_hierarchy/rows")]
    assert {row["state"] for row in document(gecli, "ls")["entries"]} == {"ok"}
    assert "2 from the cache" in gecli(*RUN).stderr


def test_policies_reach_the_layer(gecli: Run, jit: Path) -> None:
    age(jit)
    removed = document(gecli, "gc", "--max-age", "12h")["actions"]
    assert [each["what"].rstrip("0123456789_") for each in removed] == ["jit/slicing_hierarchy/rows", *["jit/rows"] * 2]
    assert gecli(*RUN).returncode == 0  # compiled again
    assert len(list(jit.glob("*.om"))) == 2


def test_a_damaged_version_is_found_set_aside_and_compiled_again(gecli: Run, jit: Path) -> None:
    om = sorted(jit.glob("*.om"))[0]
    data = bytearray(om.read_bytes())
    data[-1] ^= 1
    om.write_bytes(data)
    found = document(gecli, "verify", status=1)
    assert [(each["kind"], each["entry"]) for each in found["problems"]] == [("om-corrupt", om.stem)]
    assert found["entries"] == 3
    assert document(gecli, "verify", "--repair")["well"]
    assert gecli(*RUN).returncode == 0
    assert document(gecli, "verify")["well"]
    # The first slice had no other version, so the one of the second had nothing to follow.
    states = [row["state"] for row in document(gecli, "ls", "--layer", "jit")["entries"]]
    assert sorted(states) == ["jit-orphan", "ok", "ok"]


@pytest.mark.parametrize("name", ["slice_graph.pb", "gecli_slicing.json", "slicing_result.json"])
def test_a_broken_chain_is_found_and_repaired(name: str, gecli: Run, jit: Path) -> None:
    path = next(jit.rglob(name))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    found = document(gecli, "verify", status=1)
    assert [(each["kind"], each["key"]) for each in found["problems"]] == [("jit-broken", "rows")]
    assert document(gecli, "verify", "--repair")["well"]
    is_list = name == "slicing_result.json"  # which the other files tell
    assert (jit / "slicing_hierarchy/rows").exists() == is_list
    assert len(list((jit.parent / ".gecli/quarantine").glob("jit-rows.*"))) == (not is_list)
    assert gecli(*RUN).returncode == 0
    assert json.loads((jit / "slicing_hierarchy/rows/slicing_result.json").read_text())["user_graph_key"] == "rows"


def test_versions_taken_and_compiled_are_counted(gecli: Run, jit: Path) -> None:
    document(gecli, "stats", "--zero")
    assert gecli(*RUN).returncode == 0
    for path in jit.glob("*_1_*"):
        path.unlink()  # the second slice
    assert gecli(*RUN).returncode == 0
    found = document(gecli, "stats", "--key", "rows")["counters"]
    assert (found["hits"], found["misses"], found["writes"]) == ({"total": 3, "jit": 3}, {"total": 1, "no_entry": 1}, 1)
