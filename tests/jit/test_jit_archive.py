"""Slices in archives: another directory runs on without compiling, and an import believes nothing."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.cache.archive import MANIFEST, DamagedArchive, add, reading, writing
from gecli.cache.export_archive import plan_export, write_archive
from gecli.cache.import_archive import Imported, import_entries
from gecli.cache.survey import survey
from gecli.cache.verify import verify
from gecli.jit.loading import jit_model
from gecli.jit.model import JitModel
from tests.conftest import REPOSITORY
from tests.jit.dynamic_models import MODELS, assert_equal, expected

NAME = "chosen_rows"
FEEDS = MODELS[NAME][1]
HOME = "jit/slicing_hierarchy/rows"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a model and a cache that knows two slices of it."""
    folder = tmp_path_factory.mktemp("filled")
    (folder / f"{NAME}.onnx").write_bytes(MODELS[NAME][0]())
    assert_right(model_of(folder, "c", cache_create="true"), folder)
    return folder


@pytest.fixture
def place(filled: Path, tmp_path: Path) -> Path:
    shutil.copytree(filled, tmp_path / "copy")
    (tmp_path / "copy/new").mkdir()
    return tmp_path / "copy"


def model_of(place: Path, cache: str, **options: str) -> JitModel:
    return jit_model(place / f"{NAME}.onnx", cache_dir=str(place / cache), graph_key="rows", **options)


def assert_right(model: JitModel, place: Path) -> None:
    for feeds in FEEDS[:2]:
        assert_equal(model.run(feeds)[0], expected(place / f"{NAME}.onnx", feeds))


def exported(place: Path, cache: str = "c") -> bytes:
    stream = io.BytesIO()
    plan = plan_export(str(place / cache), ["rows"])
    assert plan.left_out == ()
    write_archive(stream, plan)
    return stream.getvalue()


def imported(place: Path, data: bytes, cache: str = "new") -> list[Imported]:
    path = place / "a.tar"
    path.write_bytes(data)
    with reading(str(path)) as archive:
        return list(import_entries(str(place / cache), archive, wait_s=0, mode=0o644))


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".lock" and ".gecli" not in path.parts
    }


def test_an_import_makes_the_same_directory_and_the_next_run_compiles_nothing(place: Path) -> None:
    taken = imported(place, exported(place))
    assert {each.state for each in taken} == {"imported"} and taken[0].stem == "slicing_hierarchy/rows"
    assert files(place / "new") == files(place / "c")
    assert verify(str(place / "new")).all_problems == []
    model = model_of(place, "new")
    assert_right(model, place)
    assert (model.counts["compiled"], model.counts["cut"], model.jit_warnings) == (0, 0, [])


def test_the_same_slices_give_the_same_bytes(place: Path) -> None:
    data = exported(place)
    imported(place, data)
    assert exported(place, "new") == data == exported(place)


def test_what_is_there_stays(place: Path) -> None:
    data = exported(place)
    imported(place, data)
    before = files(place / "new")
    assert {each.state for each in imported(place, data)} == {"present"}
    assert files(place / "new") == before


def test_versions_of_two_directories_are_joined(place: Path) -> None:
    data = exported(place)
    other = model_of(place, "new")
    feeds = {"x": np.ones((4, 4), np.float32)}
    other.run(feeds)
    own = {name for name in files(place / "new") if name.endswith(".om")}
    imported(place, data)
    assert own < set(files(place / "new"))
    model = model_of(place, "new")
    assert_right(model, place)
    model.run(feeds)
    assert (model.counts["compiled"], model.jit_warnings) == (0, [])


def test_slices_of_another_graph_under_the_key_are_not_touched(place: Path) -> None:
    data = exported(place)
    (place / "other.onnx").write_bytes(MODELS["two_breaks"][0]())
    jit_model(place / "other.onnx", cache_dir=str(place / "new"), graph_key="rows").run(MODELS["two_breaks"][1][0])
    before = files(place / "new")
    (refused,) = imported(place, data)
    assert refused.state == "refused" and "another graph" in refused.why
    assert files(place / "new") == before


def test_damaged_slices_make_room(place: Path) -> None:
    data = exported(place)
    imported(place, data)
    (place / "new" / HOME / "gecli_slicing.json").write_text("{")
    assert imported(place, data)[0].state == "imported"
    assert len(list((place / "new/.gecli/quarantine").glob("jit-rows.*"))) == 1
    model = model_of(place, "new")
    assert_right(model, place)
    assert model.counts["compiled"] == 0


def test_damaged_slices_are_left_out(place: Path) -> None:
    path = place / "c" / HOME / "0/slice_graph.pb"
    path.write_bytes(path.read_bytes() + b"x")
    plan = plan_export(str(place / "c"), ["rows"])
    assert plan.manifest.is_empty and [each.kind for each in plan.left_out] == ["jit-broken"]


def test_a_damaged_version_is_left_out_of_the_lists_too(place: Path) -> None:
    om = sorted((place / "c/jit").glob("rows_1_*.om"))
    for path in om:
        path.write_bytes(b"IMOD" + bytes(300))
    plan = plan_export(str(place / "c"), ["rows"])
    assert [each.kind for each in plan.left_out] == ["om-corrupt"] * len(om)
    stream = io.BytesIO()
    write_archive(stream, plan)
    imported(place, stream.getvalue())
    result = json.loads((place / "new" / HOME / "slicing_result.json").read_text())
    assert result["slice_graph_list"] == [{"slice_graph_id": 0}]
    model = model_of(place, "new")
    assert_right(model, place)
    assert model.counts["restored"] > 0 and model.jit_warnings == []


def members(data: bytes) -> dict[str, bytes]:
    import tarfile

    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]  # plain files


def packed(content: dict[str, bytes], manifest: Any) -> bytes:
    """An archive with these members and digests that fit them."""
    described = [each for row in manifest["entries"] for each in row["files"]]
    described += [each for row in manifest["slices"] for part in row["versions"] for each in part["files"]]
    prefixes = {id(each): "jit/" for row in manifest["slices"] for part in row["versions"] for each in part["files"]}
    for row in manifest["slices"]:
        described += row["files"]
        prefixes |= {id(each): f"jit/slicing_hierarchy/{row['key']}/" for each in row["files"]}
    for each in described:
        data = content.get(prefixes.get(id(each), "") + each["name"], b"")
        each["size_bytes"], each["sha256"] = len(data), hashlib.sha256(data).hexdigest()
    stream = io.BytesIO()
    with writing(stream) as tar:
        text = json.dumps(manifest).encode()
        for name, data in {**content, MANIFEST: text}.items():
            add(tar, name, len(data), io.BytesIO(data))
    return stream.getvalue()


def _other_key(content: dict[str, bytes], manifest: Any) -> None:
    manifest["slices"][0]["key"] = "others"
    for name in [name for name in content if name.startswith(HOME)]:
        content[name.replace("rows", "others", 1)] = content.pop(name)


def _way_out(content: dict[str, bytes], manifest: Any) -> None:
    manifest["slices"][0]["files"][0]["name"] = "../../../gecli_slicing.json"


def _absolute(content: dict[str, bytes], manifest: Any) -> None:
    manifest["slices"][0]["files"][0]["name"] = "/tmp/gecli_slicing.json"


def _key_with_a_way_out(content: dict[str, bytes], manifest: Any) -> None:
    manifest["slices"][0]["key"] = "../rows"


def _another_graph(content: dict[str, bytes], manifest: Any) -> None:
    content[f"{HOME}/0/slice_graph.pb"] += b"x"


def _another_chain(content: dict[str, bytes], manifest: Any) -> None:
    content[f"{HOME}/gecli_slicing.json"] = content[f"{HOME}/gecli_slicing.json"].replace(b'"id": 1', b'"id": 2')


def _another_guard(content: dict[str, bytes], manifest: Any) -> None:
    name = next(name for name in content if name.startswith("jit/rows_0_") and name.endswith(".gecli.json"))
    document = json.loads(content[name])
    document["guard"] = None
    content[name] = json.dumps(document).encode()


def _version_of_another_slice(content: dict[str, bytes], manifest: Any) -> None:
    name = next(name for name in content if name.startswith("jit/rows_0_") and name.endswith(".gecli.json"))
    document = json.loads(content[name])
    document["fingerprint"]["weights"] = "sha256:" + "0" * 64
    content[name] = json.dumps(document).encode()


def _a_version_more(content: dict[str, bytes], manifest: Any) -> None:
    name = f"{HOME}/0/gep_list.json"
    document = json.loads(content[name])
    document["gep_list"].append({"gep_graph_key": "rows_0_1"})
    content[name] = json.dumps(document).encode()


def _a_list_less(content: dict[str, bytes], manifest: Any) -> None:
    del content[f"{HOME}/slicing_result.json"]
    own = manifest["slices"][0]["files"]
    own[:] = [each for each in own if each["name"] != "slicing_result.json"]


def _a_file_more(content: dict[str, bytes], manifest: Any) -> None:
    manifest["slices"][0]["files"].append({"name": "7/slice_graph.pb"})
    content[f"{HOME}/7/slice_graph.pb"] = b"x"


LIES: list[Callable[[dict[str, bytes], Any], None]] = [
    _other_key, _way_out, _absolute, _key_with_a_way_out, _another_graph, _another_chain, _another_guard,
    _version_of_another_slice, _a_version_more, _a_list_less, _a_file_more,
]  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_before_anything_is_written(lie: Callable[[dict[str, bytes], Any], None], place: Path) -> None:
    content = members(exported(place))
    manifest = json.loads(content[MANIFEST])
    order = list(content)
    lie(content, manifest)
    # In the order of the list, as a liar who knows the form would have them.
    names = [MANIFEST]
    for row in manifest["slices"]:
        names += [f"jit/slicing_hierarchy/{row['key']}/{each['name']}" for each in row["files"]]
        names += [f"jit/{each['name']}" for part in row["versions"] for each in part["files"]]
    content = {name: content.get(name, b"") for name in names}
    assert order[0] == MANIFEST
    with pytest.raises(DamagedArchive):
        imported(place, packed(content, manifest))
    assert files(place / "new") == {} and not (place / "new/jit").exists()


def test_an_archive_that_is_packed_anew_without_a_lie_is_taken(place: Path) -> None:
    content = members(exported(place))
    assert {each.state for each in imported(place, packed(content, json.loads(content[MANIFEST])))} == {"imported"}


class Killed(BaseException):
    """The process ends here."""


def test_a_killed_import_leaves_orphans(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr("gecli.cache.jit_store.JitStore.save", killed)
    with pytest.raises(Killed):
        imported(place, exported(place))
    monkeypatch.undo()
    jit = survey(str(place / "new")).jit
    assert jit is not None and {row.state for row in jit.rows} == {"jit-orphan"}
    assert {each.state for each in imported(place, exported(place))} == {"imported", "present"}
    model = model_of(place, "new")
    assert_right(model, place)
    assert model.counts["compiled"] == 0


def test_the_commands_take_slices_to_another_directory(place: Path) -> None:
    np.savez(place / "0.npz", **FEEDS[0])
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}

    def gecli(*words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "gecli", *words]
        return subprocess.run(line, cwd=place, env=environment, text=True, capture_output=True, check=True)

    count = len(list((place / "c/jit").glob("*.om")))
    out = gecli("cache", "export", "rows", "--cache-dir", "c", "-o", "s.tar").stdout
    assert f"exported 0 entries, {count} versions of slices to s.tar, " in out
    assert gecli("cache", "export", "--key", "r*", "--cache-dir", "c", "-o", "t.tar").returncode == 0
    assert (place / "s.tar").read_bytes() == (place / "t.tar").read_bytes()
    lines = gecli("cache", "import", "s.tar", "--cache-dir", "fresh", "--cache-create").stdout.splitlines()
    assert lines[0] == "imported  slicing_hierarchy/rows"
    assert lines[-1] == f"imported 0 entries, {count} versions of slices, 0 present already"
    again = gecli("cache", "import", "s.tar", "--cache-dir", "fresh").stdout.splitlines()
    assert again[-1] == f"imported 0 entries, {count} present already"
    ran = gecli(
        "run", "--jit", f"{NAME}.onnx", "-i", "0.npz", "-o", "o.npz", "--cache-dir", "fresh", "--graph-key", "rows"
    )
    assert "2 slices: 0 versions compiled, 2 from the cache" in ran.stderr
    assert_equal(dict(np.load(place / "o.npz")), expected(place / f"{NAME}.onnx", FEEDS[0]))
