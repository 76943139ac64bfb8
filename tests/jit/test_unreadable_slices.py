"""Slices of `--jit` that a user may not read are no garbage and no damage: they stay, with their versions."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from gecli.jit.loading import jit_model
from tests.cli.bad_files import as_ordinary_user, gecli_in
from tests.jit.dynamic_models import MODELS

NAME = "chosen_rows"
HOME = "c/jit/slicing_hierarchy"
PLACES = (
    HOME, f"{HOME}/rows", f"{HOME}/rows/0", f"{HOME}/rows/gecli_slicing.json", f"{HOME}/rows/slicing_result.json",
    f"{HOME}/rows/0/gep_list.json", f"{HOME}/rows/0/slice_graph.pb",
)  # fmt: skip
CALLS = (
    ("gc", "--grace", "0"), ("gc", "--broken", "--grace", "0"), ("gc", "--orphans", "--grace", "0"),
    ("verify", "--repair"), ("verify", "--repair", "--fast"),
)  # fmt: skip


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled")
    make, feeds = MODELS[NAME]
    (folder / "m.onnx").write_bytes(make())
    model = jit_model(folder / "m.onnx", cache_dir=str(folder / "c"), graph_key="rows", cache_create="true")
    for each in feeds[:2]:
        model.run(each)
    return folder


def files(place: Path) -> dict[str, bytes]:
    found = (path for path in (place / "c/jit").rglob("*") if ".gecli" not in path.parts)
    return {str(path.relative_to(place)): path.read_bytes() for path in found if path.suffix in (".om", ".json", ".pb")}


@pytest.mark.parametrize("name", PLACES)
def test_what_cannot_be_read_of_slices_stays(name: str, filled: Path, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    shutil.copytree(filled, place)
    for path in place.rglob("*"):
        os.utime(path, (time.time() - 2 * 86400,) * 2)
    before, mode = files(place), (place / name).stat().st_mode
    (place / name).chmod(0)
    try:
        for call in CALLS:
            done = gecli_in(place, "cache", *call, "--cache-dir", "c", prepare=as_ordinary_user)
            assert "Traceback" not in done.stderr
        text = gecli_in(place, "cache", "ls", "--cache-dir", "c", "--json", prepare=as_ordinary_user).stdout
        states = {row["state"] for row in json.loads(text)["entries"]}
    finally:
        (place / name).chmod(mode)
    assert files(place) == before
    if not name.endswith("slice_graph.pb"):  # ls does not look into graphs
        assert states == {"io-error"}
