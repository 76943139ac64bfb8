"""External weights are part of a cache entry, and a hit gives the bytes of a compile (cache.md 4.4, 8)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.cache import weight_files
from gecli.cache.candidate import damaged_weights
from gecli.cache.model_cache import CacheDir, load_entry_rows, save_entry_rows
from gecli.cache.sidecar import read_sidecar
from gecli.cache.stat_index import StatIndex
from gecli.cache.statistics import counts_by_key, total
from gecli.cache.weight_files import weights_of_om
from gecli.compiler.api import compile_models
from gecli.errors import CacheError
from gecli.options.resolution import resolve
from tests.cache.test_cache_archive import rebuilt
from tests.conftest import REPOSITORY

DIGITS = REPOSITORY / "samples/digits/digits.onnx"
SHAPE = ("--input-shape", "image:1,1,8,8")
MODES = pytest.mark.parametrize("mode", ["split", "combined"])


@pytest.fixture
def build(gecli: Any, tmp_path: Path) -> Any:
    """Compile digits with the cache; the member `cache` of the report."""
    (tmp_path / "cache").mkdir()

    def run(output: str, mode: str, *words: str, warnings: int = 0) -> dict[str, Any]:
        line = ["compile", str(DIGITS), "-o", output, *SHAPE, "--external-weight", mode, "--json"]
        done = gecli(*line, *(words or ("--cache-dir", "cache")))
        assert done.returncode == 0, done.stderr
        (model,) = json.loads(done.stdout)["models"]
        assert len(model["warnings"]) == warnings, model["warnings"]
        folder = tmp_path / os.path.dirname(output)
        for row in model["external_weights"]:
            assert (folder.parent / row["file"]).stat().st_size == row["bytes"]
        return dict(model["cache"])

    return run


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@MODES
def test_a_hit_gives_the_files_of_a_compile(build: Any, tmp_path: Path, mode: str) -> None:
    assert build("plain/d.om", mode, "--no-auto-graph-key")["state"] == "off"
    states = [build(f"{name}/d.om", mode)["state"] for name in ("miss", "hit", "hit", "again")]
    assert states == ["miss", "hit", "hit", "hit"]
    expected = files(tmp_path / "plain")
    assert len(expected) > 2
    for name in ("miss", "hit", "again"):
        assert files(tmp_path / name) == expected


@MODES
def test_a_model_with_variables_gets_both(gecli: Any, tmp_path: Path, mode: str) -> None:
    model = str(REPOSITORY / "samples/train/conv_train.json")
    (tmp_path / "cache").mkdir()
    for folder, words in (("a", ()), ("b", ("--cache-dir", "cache")), ("c", ("--cache-dir", "cache"))):
        done = gecli("compile", model, "--train", "-o", f"{folder}/t.om", "--external-weight", mode, *words)
        assert done.returncode == 0, done.stderr
    assert "cache=hit" in done.stdout
    assert files(tmp_path / "a") == files(tmp_path / "b") == files(tmp_path / "c")


def test_an_entry_names_its_weights_and_ge_can_load_it(build: Any, tmp_path: Path) -> None:
    entry = build("a/d.om", "split")["entry"]
    sidecar = json.loads((tmp_path / "cache" / f"{entry}.gecli.json").read_text())
    rows = weights_of_om(str(tmp_path / "cache" / f"{entry}.om"))
    assert sorted(sidecar["weights"], key=str) == sorted((row.as_json() for row in rows), key=str)
    weights = {name for name in files(tmp_path / "cache" / "weight") if name != "meta.json"}
    assert weights == {row.file for row in rows}
    meta = json.loads((tmp_path / "cache" / "weight" / "meta.json").read_text())
    assert set(meta["hash_to_weight_file"].values()) == {f"cache/weight/{name}" for name in weights}


def test_combined_weights_of_the_cache_are_appended_and_outputs_do_not_show_it(build: Any, tmp_path: Path) -> None:
    build("a/d.om", "combined")
    build("b/d.om", "combined", "--cache-dir", "cache", "--precision", "fp16")
    build("plain/d.om", "combined", "--precision", "fp16")
    assert build("c/d.om", "combined", "--cache-dir", "cache", "--precision", "fp16")["state"] == "hit"
    assert files(tmp_path / "b") == files(tmp_path / "c") == files(tmp_path / "plain")
    combined = tmp_path / "cache" / "weight" / "d_weight_combined"
    assert combined.stat().st_size > (tmp_path / "b" / "weight" / "d_weight_combined").stat().st_size


def test_entries_share_the_files_of_equal_weights(build: Any, gecli: Any, tmp_path: Path) -> None:
    build("a/d.om", "split")
    before = {path.name: path.stat().st_ino for path in (tmp_path / "cache" / "weight").iterdir()}
    build("a/other.om", "split")
    assert {path.name: path.stat().st_ino for path in (tmp_path / "cache" / "weight").iterdir()} == before


@MODES
def test_a_hit_may_have_another_weight_directory(build: Any, gecli: Any, tmp_path: Path, mode: str) -> None:
    build("a/d.om", mode)
    words = ("--cache-dir", "cache", "--external-weight-dir", str(tmp_path / "w"))
    line = ["compile", str(DIGITS), "-o", "b/d.om", *SHAPE, "--external-weight", mode, *words]
    done = gecli(*line)
    assert done.returncode == 0, done.stderr
    assert "cache=hit" in done.stdout and f"weight_dir={tmp_path / 'w'}" in done.stdout
    weights = files(tmp_path / "w")
    assert weights.pop("meta.json")
    assert weights == files(tmp_path / "a" / "weight")
    assert not (tmp_path / "b" / "weight").exists()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("gone", "weights_missing"),
        ("short", "weights_corrupt"),
        ("changed", "weights_corrupt"),
        ("link", "weights_unsafe"),
    ],
)
def test_an_entry_with_damaged_weights_is_no_hit_and_is_repaired(
    build: Any, tmp_path: Path, damage: str, reason: str
) -> None:
    build("a/d.om", "split")
    expected = files(tmp_path / "a")
    path = max((tmp_path / "cache" / "weight").glob("weight_*"), key=lambda each: each.stat().st_size)
    data = path.read_bytes()
    path.unlink()
    if damage == "link":
        (tmp_path / "elsewhere").write_bytes(data)
        path.symlink_to(tmp_path / "elsewhere")
    elif damage != "gone":
        path.write_bytes(data[:-1] if damage == "short" else bytes(len(data)))
    cache = build("b/d.om", "split", warnings=1)
    assert (cache["state"], cache["reason"]) == ("miss", reason)
    assert build("c/d.om", "split")["state"] == "hit"
    assert files(tmp_path / "b") == files(tmp_path / "c") == expected


@pytest.mark.parametrize("damage", ["two bytes", "cut", "grown", "zeros"])
def test_damaged_combined_weights_are_a_miss_once_and_the_next_compile_hits(
    build: Any, gecli: Any, tmp_path: Path, damage: str
) -> None:
    lost = build("a/d.om", "combined")["entry"]
    path = tmp_path / "cache" / "weight" / "d_weight_combined"
    data = path.read_bytes()
    changed = {
        "two bytes": bytes(byte ^ 255 for byte in data[:2]) + data[2:],
        "cut": data[: len(data) // 2],
        "grown": bytes(len(data)) + data,
        "zeros": bytes(len(data)),
    }
    path.write_bytes(changed[damage])
    line = ("compile", str(DIGITS), "-o", "d.om", *SHAPE, "--external-weight", "combined", "--cache-dir", "cache")
    assert "weights_corrupt" in gecli("cache", "why", *line[1:]).stdout
    words = ("--cache-dir", "cache", "--require-cache")
    cache = build("b/d.om", "combined", *words, warnings=1)
    assert (cache["state"], cache["reason"], cache["stored"]) == ("miss", "weights_corrupt", True)
    again = build("c/d.om", "combined", *words)
    assert (again["state"], again["entry"]) == ("hit", cache["entry"])
    assert files(tmp_path / "a") == files(tmp_path / "b") == files(tmp_path / "c")
    assert not (tmp_path / "cache" / f"{lost}.om").exists()
    assert list((tmp_path / "cache" / ".gecli" / "quarantine").glob(f"{lost}.om.*"))


def test_a_good_entry_behind_one_with_damaged_combined_weights_is_taken(build: Any, tmp_path: Path) -> None:
    words = ("--cache-dir", "cache", "--graph-key", "k")
    cache, folder = tmp_path / "cache", tmp_path / "cache" / "weight"
    first = build("a/d.om", "combined", *words)["entry"]
    kept = {path: path.read_bytes() for path in cache.glob(f"{first}*")}
    record = json.loads((cache / "k.idx").read_text())
    size = (folder / "d_weight_combined").stat().st_size
    with (folder / "d_weight_combined").open("r+b") as stream:
        stream.write(b"zz")
    second = build("b/d.om", "combined", *words, warnings=1)["entry"]
    assert (folder / "d_weight_combined").stat().st_size > size
    for path, data in kept.items():
        path.write_bytes(data)
    index = json.loads((cache / "k.idx").read_text())
    index["cache_file_list"] = record["cache_file_list"] + index["cache_file_list"]
    (cache / "k.idx").write_text(json.dumps(index))
    found = build("c/d.om", "combined", *words)
    assert (found["state"], found["entry"]) == ("hit", second)
    assert files(tmp_path / "a") == files(tmp_path / "c")


def test_weights_damaged_between_look_up_and_delivery_are_told_counted_and_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").mkdir()

    def compiled(folder: str, **more: str) -> Any:
        words = {"output": f"{tmp_path}/{folder}/d.om", "ge.externalWeight": "combined", **more}
        words |= {"input_shape": SHAPE[1], "ge.graph_compiler_cache_dir": str(tmp_path / "cache")}
        options = resolve("compile", {name: (text,) for name, text in words.items()})
        return compile_models([str(DIGITS)], options).models[0]

    compiled("a")
    path = tmp_path / "cache" / "weight" / "d_weight_combined"
    path.write_bytes(bytes(path.stat().st_size))
    for module in ("cache.candidate", "cache.model_cache"):
        monkeypatch.setattr(f"gecli.{module}.damaged_weights", lambda *words: None)
    result = compiled("b")
    assert (result.cache.state, result.cache.reason) == ("bypassed", "io_error")
    assert "is damaged" in result.warnings[-1].why
    assert total(counts_by_key(str(tmp_path / "cache")))["misses.io_error"] == 1
    with pytest.raises(CacheError) as caught:
        compiled("c", **{"require-cache": "1"})
    assert caught.value.first.code == "G5002"
    assert files(tmp_path / "a") == files(tmp_path / "b") == files(tmp_path / "c")


def test_combined_weights_that_are_known_to_be_whole_are_not_read_at_each_hit(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = build("a/d.om", "combined", "--cache-dir", "cache", "--graph-key", "k")["entry"]
    cache, path = str(tmp_path / "cache"), tmp_path / "cache" / "weight" / "d_weight_combined"
    os.utime(path, ns=(1, 1))
    reads: list[int] = []
    digest_of = weight_files.sha256_of_range
    monkeypatch.setattr(weight_files, "sha256_of_range", lambda *words: reads.append(1) or digest_of(*words))
    monkeypatch.setattr("gecli.cache.stat_index.RACY_NS", 0)
    sidecar = read_sidecar(cache, "k", entry)

    def look() -> tuple[str, str] | None:
        stats = StatIndex()
        load_entry_rows(cache, entry, stats)
        damage = damaged_weights(cache, entry, sidecar, stats)
        save_entry_rows(CacheDir(cache), "k", entry, stats, sidecar)
        return damage

    assert look() is None and reads
    reads.clear()
    assert look() is None and not reads
    data = path.read_bytes()
    path.write_bytes(bytes(len(data)))
    assert look() is not None and reads


@MODES
def test_outputs_that_were_changed_are_made_again(build: Any, tmp_path: Path, mode: str) -> None:
    build("a/d.om", mode)
    expected = files(tmp_path / "a")
    for path in (tmp_path / "a" / "weight").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    assert build("a/d.om", mode)["state"] == "hit"
    assert files(tmp_path / "a") == expected
    shutil.rmtree(tmp_path / "a" / "weight")
    assert build("a/d.om", mode)["state"] == "hit"
    assert files(tmp_path / "a") == expected


@MODES
@pytest.mark.parametrize("whole", [True, False])
def test_an_entry_without_its_sidecar_tells_its_weights_by_its_om(
    build: Any, tmp_path: Path, mode: str, whole: bool
) -> None:
    entry = build("a/d.om", mode)["entry"]
    (tmp_path / "cache" / f"{entry}.gecli.json").unlink()
    if not whole:
        shutil.rmtree(tmp_path / "cache" / "weight")
    cache = build("b/d.om", mode, warnings=0 if whole else 1)
    assert (cache["state"], cache["reason"]) == (("hit", None) if whole else ("miss", "weights_missing"))
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_a_read_only_cache_serves_weights(build: Any, tmp_path: Path) -> None:
    build("a/d.om", "split")
    before = files(tmp_path / "cache" / "weight")
    assert build("b/d.om", "split", "--cache-dir", "cache", "--cache-mode", "ro")["state"] == "hit"
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert files(tmp_path / "cache" / "weight") == before


def test_a_weight_directory_that_cannot_be_made_is_a_warning(build: Any, tmp_path: Path) -> None:
    (tmp_path / "cache" / "weight").write_text("in the way")
    cache = build("a/d.om", "split", warnings=1)
    assert (cache["state"], cache["stored"]) == ("miss", False)
    assert (tmp_path / "a" / "d.om").is_file()


def test_several_models_with_external_weights_share_a_session_with_the_cache_too(gecli: Any, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    for name in ("one", "two"):
        shutil.copy(DIGITS, tmp_path / f"{name}.onnx")
    line = ["compile", "one.onnx", "two.onnx", *SHAPE, "--external-weight", "split"]
    for folder, words in (("a", ()), ("b", ("--cache-dir", "cache")), ("c", ("--cache-dir", "cache"))):
        assert gecli(*line, "-o", f"{folder}/", *words).returncode == 0
    assert files(tmp_path / "a") == files(tmp_path / "b") == files(tmp_path / "c")


KILLED = """
import os, signal, sys
from gecli.cache import weight_store
from gecli.artifacts import weight_writer
module = weight_store if sys.argv[1] == "split" else weight_writer
real = module.write_checked
left = [3]
def once(*arguments):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
module.write_checked = once
from gecli.__main__ import main
sys.argv[1:] = sys.argv[2:]
main()
"""


@MODES
def test_a_compile_killed_while_it_stores_weights_leaves_a_cache_that_works(
    build: Any, tmp_path: Path, mode: str
) -> None:
    line = ["compile", str(DIGITS), "-o", "a/d.om", *SHAPE, "--external-weight", mode, "--cache-dir", "cache"]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, mode, *line], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        timeout=60,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    assert not list((tmp_path / "cache").glob("*.om")) and not (tmp_path / "a" / "d.om").exists()
    states = [build(f"{name}/d.om", mode)["state"] for name in ("a", "b")]
    assert states == ["miss", "hit"]
    build("plain/d.om", mode, "--no-auto-graph-key")
    assert files(tmp_path / "a") == files(tmp_path / "b") == files(tmp_path / "plain")


@MODES
def test_compiles_at_the_same_time_share_a_weight_directory(gecli: Any, tmp_path: Path, mode: str) -> None:
    names = ("a", "b", "c")
    common = [sys.executable, "-m", "gecli", "compile", str(DIGITS), *SHAPE, "--external-weight", mode]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    running = [
        subprocess.Popen(
            [*common, "--external-weight-dir", "w", "-o", f"{name}.om", "--quiet", "--precision", precision],
            cwd=tmp_path,
            env=env,
        )
        for name, precision in zip(names, ("fp16", "origin", "fp16"))
    ]
    assert [process.wait(timeout=60) for process in running] == [0, 0, 0]
    for name in names:
        done = gecli("run", f"{name}.om", "--weight-dir", "w", "--seed", "1", "-o", f"{name}.npz", "--quiet")
        assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "a.npz") as first, np.load(tmp_path / "c.npz") as second:
        assert all((first[name] == second[name]).all() for name in first)


def swapped_nodes(rows: list[dict[str, Any]]) -> None:
    rows[0]["node"], rows[1]["node"] = rows[1]["node"], rows[0]["node"]


def swapped_places(rows: list[dict[str, Any]]) -> None:
    for member in ("file", "offset", "length", "sha256"):
        rows[0][member], rows[1][member] = rows[1][member], rows[0][member]


@MODES
@pytest.mark.parametrize(
    "change",
    [
        swapped_nodes,
        swapped_places,
        lambda rows: rows[0].update(node="nope"),
        lambda rows: rows.pop(),
        lambda rows: rows.clear(),
    ],
    ids=["nodes", "places", "unknown", "missing", "none"],
)
def test_rows_of_a_sidecar_must_be_those_of_the_om(
    gecli: Any, build: Any, tmp_path: Path, mode: str, change: Any
) -> None:
    entry = build("a/d.om", mode)["entry"]
    path = tmp_path / "cache" / f"{entry}.gecli.json"
    content = json.loads(path.read_text())
    change(content["weights"])
    path.write_text(json.dumps(content))
    told = gecli("cache", "verify", "--cache-dir", "cache")
    assert told.returncode != 0
    assert "sidecar-invalid" in told.stdout
    use = build("b/d.om", mode, warnings=1)  # set aside
    assert (use["state"], use["reason"]) == ("miss", "sidecar_invalid")
    assert files(tmp_path / "b") == files(tmp_path / "a")
    assert build("c/d.om", mode)["state"] == "hit"


def test_the_rows_of_a_sidecar_are_compared_when_it_changed_and_not_at_every_hit(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gecli.cache.weight_files as module
    from gecli.cache import stat_index
    from gecli.cli.app import run

    entry = build("a/d.om", "split")["entry"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stat_index, "RACY_NS", 0)
    calls: list[str] = []
    original = module.row_fault
    monkeypatch.setattr(module, "row_fault", lambda *words: calls.append(words[1]) or original(*words))
    words = ["compile", str(DIGITS), *SHAPE, "--external-weight", "split", "--cache-dir", "cache", "-q", "-o"]
    sidecar = tmp_path / "cache" / f"{entry}.gecli.json"
    for name in ("b", "b", "c"):
        assert run([*words, f"{name}/d.om"]) == 0
    assert calls == []
    sidecar.write_text(sidecar.read_text())
    hours_ago = time.time() - 7200
    os.utime(sidecar, (hours_ago, hours_ago))
    for name in ("b", "b", "c"):  # the first one renews the time of use
        assert run([*words, f"{name}/d.om"]) == 0
        assert calls == [entry]
    assert sidecar.stat().st_mtime > hours_ago + 3600
    assert files(tmp_path / "c") == files(tmp_path / "a")


@MODES
def test_weight_files_of_the_source_are_not_the_cache_s(gecli: Any, tmp_path: Path, mode: str) -> None:
    desc: dict[str, Any] = {"outputs": [{"dtype": "DT_FLOAT", "shape": [4]}]}
    place = {"location": "w.bin", "offset": 0, "length": 16, "dtype": {"dtype": "DT_FLOAT"}, "shape": [4]}
    nodes = [
        {"id": "x", "type": "Data", "attrs": {"index": 0}, **desc},
        {"id": "f", "type": "FileConstant", "attrs": place, **desc},
        {"id": "c", "type": "Const", "attrs": {"value": {"tensor": {"data": [1.0, 2.0, 3.0, 4.0]}}}, **desc},
        {"id": "a", "type": "Add"},
        {"id": "b", "type": "Add"},
    ]
    links = [{"source": "x", "target": "a"}, {"source": "f", "target": "a", "dst": 1}]
    links += [{"source": "a", "target": "b"}, {"source": "c", "target": "b", "dst": 1}]
    (tmp_path / "m.json").write_text(json.dumps({"nodes": nodes, "links": links}))
    (tmp_path / "cache").mkdir()
    words = ("compile", "m.json", "--cache-dir", "cache", "--external-weight", mode, "-o")
    outputs = [gecli(*words, f"{name}/m.om") for name in ("a", "b", "c")]
    assert [done.returncode for done in outputs] == [0, 0, 0], outputs
    assert ["cache=hit" in done.stdout for done in outputs] == [False, True, True]
    assert files(tmp_path / "a") == files(tmp_path / "b") == files(tmp_path / "c")
    told = gecli("cache", "verify", "--cache-dir", "cache")
    assert (told.returncode, "all well" in told.stdout) == (0, True)
    sidecar = next((tmp_path / "cache").glob("*.gecli.json"))
    assert json.loads(sidecar.read_text())["files_of_source"] == ["f"]
    sidecar.unlink()  # the OM proves what it was made from
    assert "cache=hit" in gecli(*words, "d/m.om").stdout
    assert files(tmp_path / "a") == files(tmp_path / "d")


@MODES
@pytest.mark.parametrize("odd", ["link", "pipe"])
def test_links_and_pipes_in_a_weight_directory_are_replaced(build: Any, tmp_path: Path, mode: str, odd: str) -> None:
    words = ("--external-weight-dir", "w", "--no-auto-graph-key")
    build("a/d.om", mode, *words)
    expected = files(tmp_path / "w")
    (tmp_path / "victim").write_bytes(b"V")
    for name in expected:
        path = tmp_path / "w" / name
        path.unlink()
        if odd == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("../victim")
    build("a/d.om", mode, *words)
    assert files(tmp_path / "w") == expected
    assert not any((tmp_path / "w" / name).is_symlink() for name in expected)
    assert (tmp_path / "victim").read_bytes() == b"V"


@MODES
@pytest.mark.parametrize("change", [swapped_nodes, swapped_places, lambda rows: rows.clear()])
def test_an_archive_whose_sidecar_tells_of_other_weights_is_refused(
    gecli: Any, build: Any, tmp_path: Path, mode: str, change: Any
) -> None:
    side = build("a/d.om", mode)["entry"] + ".gecli.json"
    assert gecli("cache", "export", "--key", "*", "--cache-dir", "cache", "-o", "all.tar").returncode == 0
    (tmp_path / "new").mkdir()
    assert gecli("cache", "import", "all.tar", "--cache-dir", "new").returncode == 0
    assert gecli("cache", "verify", "--cache-dir", "new").returncode == 0

    def lie(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
        content = json.loads(members[side])
        change(content["weights"])
        members[side] = json.dumps(content).encode()
        (entry,) = manifest["entries"]
        row = next(row for row in entry["files"] if row["name"] == side)
        row.update(size_bytes=len(members[side]), sha256=hashlib.sha256(members[side]).hexdigest())
        entry["weights"] = sorted({row["file"] for row in content["weights"]})

    (tmp_path / "bad.tar").write_bytes(rebuilt((tmp_path / "all.tar").read_bytes(), lie))
    (tmp_path / "other").mkdir()
    done = gecli("cache", "import", "bad.tar", "--cache-dir", "other")
    assert done.returncode == 3
    assert "sidecar and .om tell of different places for weight" in done.stderr
    assert not list((tmp_path / "other").glob("*.om"))
