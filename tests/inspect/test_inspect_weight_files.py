"""An OM whose weights are in files of their own: what is told of them, and that none of them is opened."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import REPOSITORY, Inspect, compiled


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("split")
    model = REPOSITORY / "samples" / "digits" / "digits.onnx"
    compiled(directory, str(model), "-o", "d", "--input-shape", "image:1,1,8,8", "--external-weight", "split")
    return directory


@pytest.fixture
def copy(split: Path, tmp_path: Path) -> Path:
    return shutil.copytree(split, tmp_path / "copy")


def weight_files(directory: Path) -> list[Path]:
    return sorted((directory / "weight").glob("weight_*"))


def test_tensors_of_weight_files_are_shown_with_file_offset_and_recorded_digest(inspect: Inspect, split: Path) -> None:
    document = json.loads(inspect(split / "d.om", "--tensors", "--json").out)
    names = {path.name for path in weight_files(split)}
    assert {row["file"] for row in document["tensors"]} == names
    assert all(row["stored"] == "external" and row["available"] is None for row in document["tensors"])
    assert all(len(row["sha256"]) == 64 and row["file_offset"] == 0 for row in document["tensors"])
    text = inspect(split / "d.om", "--tensors").out
    assert all(name in text for name in names)
    count = len(document["tensors"])
    assert text.splitlines()[-1] == f"{count} tensors, 0 B in the file; {count} in weight files, sha256 as recorded"


def short(path: Path) -> str:
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:10])
    return f"weight file {path.name}: it has 10 of the {size} bytes that are read"


def missing(path: Path) -> str:
    path.unlink()
    return f"weight file {path.name} is missing"


@pytest.mark.parametrize("damage", [short, missing])
def test_a_weight_file_that_is_missing_or_short_is_named_and_the_model_does_not_load(
    damage: Callable[[Path], str], inspect: Inspect, copy: Path
) -> None:
    words = damage(weight_files(copy)[0])
    shown = inspect(copy / "d.om", "--summary")
    assert (shown.status, shown.out.splitlines()[-1].strip()) == (0, f"does not load here: {words}")
    document = json.loads(inspect(copy / "d.om", "--summary", "--json").out)
    assert document["verdict"]["loads"] is False and document["verdict"]["sound"] is True


def test_a_weight_file_that_changed_is_there_and_whether_it_is_the_same_only_a_run_says(
    inspect: Inspect, copy: Path
) -> None:
    path = weight_files(copy)[0]
    path.write_bytes(bytes(path.stat().st_size))
    shown = inspect(copy / "d.om", "--summary", "--strict")
    assert (shown.status, "missing" in shown.out, "does not load" in shown.out) == (0, False, False)


def test_a_weight_file_at_the_absolute_path_in_the_om_is_found_last_and_said_so(
    inspect: Inspect, tmp_path: Path
) -> None:
    from tests.artifacts import spec_om as spec

    place = tmp_path / "elsewhere" / "w.bin"
    place.parent.mkdir()
    place.write_bytes(bytes(8))
    attrs = {"location": spec.attr_s(str(place)), "offset": spec.attr_i(0), "length": spec.attr_i(8)}
    node = spec.operator("w", "FileConstant", 0, (), attrs, (), [spec.descriptor(1, [2])])
    (tmp_path / "a.om").write_bytes(spec.om_wide([(0, spec.model("m", [spec.graph("g", [node])]))]))
    assert "weight file: w.bin (found, only at the absolute path that the OM names)" in inspect("a.om").out
    (tmp_path / "w.bin").write_bytes(bytes(8))
    assert "weight file: w.bin (found)" in inspect("a.om").out


def test_what_is_in_weight_files_is_not_extracted_and_that_is_said(inspect: Inspect, split: Path) -> None:
    count = len(json.loads(inspect(split / "d.om", "--tensors", "--json").out)["tensors"])
    shown = inspect(split / "d.om", "--extract", "all", "--to", "out")
    assert shown.status == 0 and f"not written: {count} tensors in weight files weight_" in shown.out
    assert shown.out.rstrip().endswith(f" and {count - 4} more, not opened; --tensors has the place of each")
    name = json.loads(inspect(split / "d.om", "--tensors", "--json").out)["tensors"][0]["name"]
    one = inspect(split / "d.om", "--extract", name, "--to", "out")
    assert one.status == 2 and f"tensor {name!r} is not in the OM" in one.err and "in the weight file" in one.err


def test_salvage_tells_the_weight_files_of_a_cut_om(inspect: Inspect, split: Path, tmp_path: Path) -> None:
    data = (split / "d.om").read_bytes()
    (tmp_path / "cut.om").write_bytes(data[:-100])
    shown = inspect("cut.om", "--salvage", "--tensors", "--json")
    rows = json.loads(shown.out)["tensors"]
    assert (shown.status, {row["stored"] for row in rows}) == (3, {"external"})


@pytest.mark.parametrize("count", [1, 20, 500])
def test_of_weight_files_without_a_name_the_first_nodes_are_shown(inspect: Inspect, tmp_path: Path, count: int) -> None:
    from tests.artifacts import spec_om as spec

    desc = spec.descriptor(1, [2])
    nodes = [spec.operator(f"w{number}", "FileConstant", 0, (), {}, (), [desc]) for number in range(count)]
    (tmp_path / "a.om").write_bytes(spec.om_wide([(0, spec.model("m", [spec.graph("g", nodes)]))]))
    lines = [line for line in inspect("a.om").out.splitlines() if "the file names none)" in line]
    shown = [f"needs      weight file: of node w{number} (the file names none)" for number in range(min(count, 20))]
    assert lines == shown + [f"needs      weight file: of {count - 20} more nodes (the file names none)"] * (count > 20)
