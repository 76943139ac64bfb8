"""The files of the JIT layer: GE's layout and texts, and that damage of each is a miss with a reason."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from gecli.cache.jit_files import version_key
from gecli.cache.lock import KeyLock
from gecli.errors import CacheError
from gecli.jit import compiling
from gecli.jit.loading import jit_model
from gecli.jit.model import JitModel
from tests.conftest import REPOSITORY
from tests.jit.dynamic_models import MODELS, assert_equal, expected

NAME = "chosen_rows"
FEEDS = MODELS[NAME][1]
NOTHING = {"x": np.full((5, 4), -1, np.float32)}  # no row is chosen, so the second slice needs a version of its own


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a model and a cache that knows two slices with two versions each."""
    folder = tmp_path_factory.mktemp("filled")
    (folder / f"{NAME}.onnx").write_bytes(MODELS[NAME][0]())
    model = jit_model(folder / f"{NAME}.onnx", cache_dir=str(folder / "c"), cache_create="true", graph_key="rows")
    for feeds in FEEDS[:2]:
        model.run(feeds)
    return folder


@pytest.fixture
def place(filled: Path, tmp_path: Path) -> Path:
    """A copy of that directory."""
    shutil.copytree(filled, tmp_path / "copy")
    return tmp_path / "copy"


def model_of(place: Path, **options: str) -> JitModel:
    return jit_model(place / f"{NAME}.onnx", cache_dir=str(place / "c"), graph_key="rows", **options)


def assert_right(model: JitModel, place: Path, count: int = 2) -> None:
    for feeds in FEEDS[:count]:
        assert_equal(model.run(feeds)[0], expected(place / f"{NAME}.onnx", feeds))


def home(place: Path) -> Path:
    return place / "c/jit/slicing_hierarchy/rows"


def test_the_directory_has_the_names_of_ge(place: Path) -> None:
    found = sorted(str(path.relative_to(home(place))) for path in home(place).rglob("*") if path.is_file())
    assert found == [
        "0/gep_list.json", "0/rem_graph.pb", "0/slice_graph.pb", "1/gep_list.json", "1/slice_graph.pb",
        "gecli_slicing.json", "slicing_result.json",
    ]  # fmt: skip
    jit = place / "c/jit"
    keys = [path.stem for path in jit.glob("*.idx")]
    assert sorted(key.rpartition("_")[0] for key in keys) == ["rows_0", "rows_0", "rows_1", "rows_1"]
    assert all(len(key.rpartition("_")[2]) == 19 for key in keys)
    for key in keys:
        assert [path.suffix for path in sorted(jit.glob(f"{key}_*"))] == [".json", ".om"]


def test_the_texts_are_those_that_ge_writes(place: Path) -> None:
    result = '{\n    "slice_graph_list": [\n        {\n            "slice_graph_id": 0\n        },\n'
    result += '        {\n            "slice_graph_id": 1\n        }\n    ],\n'
    result += '    "user_graph_id": 0,\n    "user_graph_key": "rows"\n}'
    assert (home(place) / "slicing_result.json").read_text() == result
    listed = json.loads((home(place) / "0/gep_list.json").read_text())
    assert [list(row) for row in listed["gep_list"]] == [["gep_graph_key"], ["gep_graph_key"]]


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def removed(path: Path) -> None:
    path.unlink()


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: list[Callable[[Path], None]] = [flipped, cut_off, emptied, removed, a_directory]
FILES = [
    "0/gep_list.json", "0/rem_graph.pb", "0/slice_graph.pb", "1/gep_list.json", "1/slice_graph.pb",
    "gecli_slicing.json", "slicing_result.json",
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_of_the_hierarchy_is_a_miss_with_a_reason(
    name: str, damage: Callable[[Path], None], place: Path
) -> None:
    damage(home(place) / name)
    model = model_of(place)
    assert_right(model, place)
    if model.counts["compiled"]:
        assert any(name in line or "no_entry" in line or "jit_" in line for line in model.explanation)
        kinds = {warning.kind for warning in model.jit_warnings}
        missing = damage is removed and name == "gecli_slicing.json"
        assert kinds <= {"jit_corrupt", "jit_foreign", "io_error"} and (kinds or missing or name.endswith("list.json"))
    again = model_of(place)
    assert_right(again, place)
    if damage is not a_directory:
        assert again.counts["compiled"] == 0
        assert again.jit_warnings == []


ENTRY_REASONS = {
    ".om": {"om_corrupt", "om_missing"},
    ".gecli.json": {"sidecar_invalid", "om_corrupt", "guard_unreadable", "fingerprint_mismatch", "io_error"},
    ".idx": {"index_corrupt", "index_entry_invalid", "io_error", "guard_unreadable"},
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("suffix", list(ENTRY_REASONS))
def test_a_damaged_version_is_a_miss_with_a_reason(suffix: str, damage: Callable[[Path], None], place: Path) -> None:
    for path in sorted((place / "c/jit").glob(f"rows_*{suffix}")):
        damage(path)
    model = model_of(place)
    assert_right(model, place)
    found = {warning.kind for warning in model.jit_warnings}
    assert found <= ENTRY_REASONS[suffix]
    if suffix == ".om" or damage in (cut_off, emptied):
        assert found and model.counts["compiled"] == 4
    again = model_of(place)
    assert_right(again, place)
    assert again.counts["compiled"] == 0
    assert again.jit_warnings == []


def test_a_guard_that_was_changed_does_not_open_another_version(place: Path) -> None:
    for path in (place / "c/jit").glob("rows_0_*.gecli.json"):
        content = json.loads(path.read_text())
        content["guard"]["inputs"][0]["dims"] = [None, 4]
        path.write_text(json.dumps(content))
    model = model_of(place)
    assert_right(model, place, 3)
    assert "fingerprint_mismatch" in {warning.kind for warning in model.jit_warnings}


def test_another_model_under_the_key_sets_the_slices_aside(place: Path) -> None:
    other = MODELS["two_breaks"]
    (place / f"{NAME}.onnx").write_bytes(other[0]())
    model = model_of(place)
    assert_equal(model.run(other[1][0])[0], expected(place / f"{NAME}.onnx", other[1][0]))
    assert [warning.kind for warning in model.jit_warnings] == ["jit_stale"]
    assert any("jit-rows" in path.name for path in (place / "c/.gecli/quarantine").iterdir())
    assert model_of(place).run(other[1][0]) and model_of(place).jit_warnings == []


def test_other_options_under_the_key_are_another_graph(place: Path) -> None:
    model = model_of(place, format_policy="origin")
    assert_right(model, place)
    assert "options" in model.explanation[0]
    assert model.counts["cut"] == 2


def test_slices_that_another_tool_cut_are_not_used(place: Path) -> None:
    (home(place) / "gecli_slicing.json").unlink()
    model = model_of(place)
    assert_right(model, place)
    assert [warning.kind for warning in model.jit_warnings] == ["jit_foreign"]


@pytest.mark.parametrize(("key", "reasons"), [("rows", ["jit_foreign"]), ("others", [])])
def test_the_flat_layout_of_the_documents_is_looked_at_for_its_own_key(
    key: str, reasons: list[str], place: Path
) -> None:
    shutil.rmtree(place / "c/jit/slicing_hierarchy")
    content = {"slice_graph_list": [{"slice_graph_id": 0}], "user_graph_id": 7, "user_graph_key": key}
    (place / "c/jit/slicing_result.json").write_text(json.dumps(content))
    model = model_of(place)
    assert_right(model, place)
    assert [warning.kind for warning in model.jit_warnings] == reasons
    assert json.loads((place / "c/jit/slicing_result.json").read_text()) == content


@pytest.mark.parametrize("mode", ["ro", "refresh", "debug", "off"])
def test_the_cache_modes_keep_their_meaning(mode: str, place: Path) -> None:
    before = {path: path.read_bytes() for path in (place / "c").rglob("*") if path.is_file()}
    model = model_of(place, cache_mode=mode)
    assert_right(model, place, 3)
    after = {path: path.read_bytes() for path in (place / "c").rglob("*") if path.is_file()}
    assert (before == after) == (mode != "refresh")
    assert model.counts["restored"] == (4 if mode == "ro" else 0)


def test_a_slice_without_a_compiled_version_is_not_listed(tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.onnx"
    path.write_bytes(MODELS[NAME][0]())
    model = jit_model(path, cache_dir=str(tmp_path / "c"), cache_create="true", graph_key="rows")
    model.prepare([FEEDS[0]["x"]])
    result = json.loads((home(tmp_path) / "slicing_result.json").read_text())
    assert result["slice_graph_list"] == [{"slice_graph_id": 0}]
    assert not (home(tmp_path) / "1").exists()


def test_versions_of_two_processes_are_joined(place: Path) -> None:
    first, second = model_of(place), model_of(place)
    assert_right(first, place)
    assert_right(second, place)
    assert_equal(first.run(NOTHING)[0], expected(place / f"{NAME}.onnx", NOTHING))
    assert_equal(second.run(NOTHING)[0], expected(place / f"{NAME}.onnx", NOTHING))
    assert (first.counts["compiled"], second.counts["compiled"]) == (1, 0)
    listed = json.loads((home(place) / "1/gep_list.json").read_text())["gep_list"]
    assert len(listed) == 3


def test_native_code_is_no_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"{NAME}.onnx"
    path.write_bytes(MODELS[NAME][0]())
    monkeypatch.setattr(compiling, "GUARD", "_guard_check_so_data")  # where GE has the library that it would load
    model_of(tmp_path, cache_create="true").run(FEEDS[0])
    for sidecar in (tmp_path / "c/jit").glob("*.gecli.json"):
        sidecar.unlink()
    monkeypatch.undo()
    model = model_of(tmp_path)
    assert_right(model, tmp_path, 1)
    assert model.counts["restored"] == 0
    assert {warning.kind for warning in model.jit_warnings} == {"guard_unreadable"}
    again = model_of(tmp_path)
    assert_right(again, tmp_path, 1)
    assert (again.counts["compiled"], again.jit_warnings) == (0, [])


@pytest.fixture
def somebody_else(place: Path) -> Iterator[None]:
    """Another thread that holds the lock of the graph."""
    release, held = threading.Event(), threading.Event()

    def hold() -> None:
        with KeyLock(str(place / "c/jit"), "rows", timeout_s=5):
            held.set()
            release.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    yield
    release.set()
    thread.join()


def test_a_hit_needs_no_lock(place: Path, somebody_else: None) -> None:
    model = model_of(place, lock_timeout="0")
    assert_right(model, place)
    assert model.jit_warnings == []


def test_who_cannot_wait_for_the_lock_compiles_without_the_cache(place: Path, somebody_else: None) -> None:
    model = model_of(place, lock_timeout="0")
    assert_right(model, place, 3)
    assert model.jit_warnings == []
    assert_equal(model.run(NOTHING)[0], expected(place / f"{NAME}.onnx", NOTHING))
    assert [warning.kind for warning in model.jit_warnings] == ["lock_timeout"]
    assert len(json.loads((home(place) / "1/gep_list.json").read_text())["gep_list"]) == 2


def test_a_cache_that_is_required_must_be_had(place: Path, somebody_else: None) -> None:
    model = model_of(place, lock_timeout="0", require_cache="true")
    assert_right(model, place)
    with pytest.raises(CacheError):
        model.run(NOTHING)


def test_a_directory_that_cannot_be_used_costs_the_cache_only(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.onnx").write_bytes(MODELS[NAME][0]())
    (tmp_path / "c").mkdir()
    (tmp_path / "c/jit").write_text("no directory")
    model = model_of(tmp_path)
    assert_right(model, tmp_path, 3)
    assert {warning.kind for warning in model.jit_warnings} <= {"io_error", "lock_unavailable"}
    assert (tmp_path / "c/jit").read_text() == "no directory"


def test_a_full_disk_costs_the_cache_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("gecli.cache.jit_store.store_entry", full)
    (tmp_path / f"{NAME}.onnx").write_bytes(MODELS[NAME][0]())
    model = model_of(tmp_path, cache_create="true")
    assert_right(model, tmp_path, 3)
    assert [warning.kind for warning in model.jit_warnings] == ["io_error"]
    assert not home(tmp_path).exists()


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("lm", "lm_0_1760000000123456789"),
        ("k" * 106, "k" * 106 + "_0_1760000000123456789"),
    ],
)
def test_the_key_of_a_version_is_that_of_ge(key: str, found: str) -> None:
    assert version_key(key, 0, 1760000000123456789) == found


def test_a_long_key_is_shortened_to_what_ge_accepts(tmp_path: Path) -> None:
    found = version_key("k" * 128, 12, 1760000000123456789)
    assert found.startswith("k" * 40 + "-") and len(found) <= 128
    path = tmp_path / "plain.onnx"
    path.write_bytes(MODELS["plain"][0]())
    for _ in range(2):
        model = jit_model(path, cache_dir=str(tmp_path / "c"), cache_create="true", graph_key="k" * 128)
        model.run(MODELS["plain"][1][0])
    assert model.counts["restored"] == 1


@pytest.mark.slow
def test_killed_anywhere_a_run_leaves_a_cache_that_gives_the_right_results(tmp_path: Path) -> None:
    from tests.cli.test_crash_points import points

    def prepare(place: Path) -> None:
        (place / f"{NAME}.onnx").write_bytes(MODELS[NAME][0]())
        np.savez(place / "0.npz", **FEEDS[0])

    words = ("compile", "--jit", f"{NAME}.onnx", "--sample", "0.npz", "--cache-dir", "c", "--cache-create")
    for place in points(tmp_path, prepare, *words, "--graph-key", "rows"):
        for _ in range(2):
            model = model_of(place, cache_create="true")
            assert_right(model, place)
        assert model.counts["compiled"] == 0, place.name
        assert model.jit_warnings == [], place.name
        assert [path.name for path in (place / "c/jit").rglob("*.tmp.*")] == [], place.name


@pytest.mark.parametrize("k", [2, 9, 14, 19, 24, 30, 41, 55])
def test_killed_somewhere_a_run_leaves_a_cache_that_gives_the_right_results(k: int, tmp_path: Path) -> None:
    from tests.cli.test_crash_points import killed

    (tmp_path / f"{NAME}.onnx").write_bytes(MODELS[NAME][0]())
    np.savez(tmp_path / "0.npz", **FEEDS[0])
    words = ("compile", "--jit", f"{NAME}.onnx", "--sample", "0.npz", "--cache-dir", "c", "--cache-create")
    assert killed(tmp_path, k, "after", *words, "--graph-key", "rows")
    model = model_of(tmp_path, cache_create="true")
    assert_right(model, tmp_path)
    assert model.jit_warnings == []
    again = model_of(tmp_path)
    assert_right(again, tmp_path)
    assert again.counts["compiled"] == 0


RUN = """
import sys
import numpy as np
from gecli.jit.loading import jit_model
model = jit_model(sys.argv[1], cache_dir="c", cache_create="true", graph_key="rows")
for name in sys.argv[2:]:
    feeds = dict(np.load(name))
    outputs, _ = model.run(feeds)
    np.savez(f"out{len(sys.argv)}_{name}", **outputs)
print(model.counts["compiled"])
"""


def test_two_processes_compile_each_slice_once(tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.onnx"
    path.write_bytes(MODELS[NAME][0]())
    for number, feeds in enumerate(FEEDS):
        np.savez(tmp_path / f"{number}.npz", **feeds)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    line = [sys.executable, "-c", RUN, path.name]
    running = [
        subprocess.Popen([*line, *names], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
        for names in (("0.npz", "1.npz", "2.npz"), ("1.npz", "0.npz"))
    ]
    compiled = [int(process.communicate(timeout=100)[0]) for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert sum(compiled) == 4  # for one size, and for all others
    for output in tmp_path.glob("out*.npz"):
        number = int(output.stem.partition("_")[2])
        assert_equal(dict(np.load(output)), expected(path, FEEDS[number]))
    fresh = jit_model(path, cache_dir=str(tmp_path / "c"), graph_key="rows")
    assert_right(fresh, tmp_path, 3)
    assert fresh.counts["compiled"] == 0
