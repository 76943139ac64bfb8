"""A new process parses a model that it knows only when something has to be cut or compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gecli.cache.stat_index import read_rows
from gecli.errors import InputError
from gecli.jit import building
from gecli.jit.loading import jit_model
from gecli.jit.model import JitModel
from tests.conftest import REPOSITORY
from tests.jit.dynamic_models import MODELS, assert_equal, expected, floats

CHOSEN = MODELS["chosen_rows"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model whose slices for one size are in the cache."""
    path = tmp_path / "m.onnx"
    path.write_bytes(CHOSEN[0]())
    model_of(path).run(CHOSEN[1][0])
    return path


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that were parsed."""
    found: list[str] = []
    load = building.load_model

    def counting(job: Any, options: Any) -> Any:
        found.append(job.source)
        return load(job, options)

    monkeypatch.setattr(building, "load_model", counting)
    return found


def model_of(path: Path, **options: str) -> JitModel:
    return jit_model(path, cache_dir=str(path.parent / "c"), cache_create="true", **options)


def notes(path: Path) -> list[Path]:
    return sorted((path.parent / "c/.gecli/stat").glob("j-*"))


def test_a_model_that_is_known_is_not_parsed_for_what_the_cache_has(path: Path, parsed: list[str]) -> None:
    model = model_of(path)
    assert_equal(model.run(CHOSEN[1][0])[0], expected(path, CHOSEN[1][0]))
    assert (model.counts["restored"], parsed) == (2, [])
    for feeds in CHOSEN[1]:
        assert_equal(model.run(feeds)[0], expected(path, feeds))
    assert (model.counts["compiled"], parsed) == (2, [str(path)])


def test_its_inputs_and_outputs_are_those_of_the_model(path: Path) -> None:
    known, learned = model_of(path), model_of(path, cache_mode="refresh")
    for one, other in ((known.inputs, learned.inputs), (known.outputs, learned.outputs)):
        assert [(each.name, each.desc, str(each.port), each.as_json()) for each in one] == [
            (each.name, each.desc, str(each.port), each.as_json()) for each in other
        ]


PROGRAM = """
import sys
import numpy as np
from gecli.jit.loading import jit_model
model = jit_model(sys.argv[1], cache_dir=sys.argv[2])
model.run(dict(np.load(sys.argv[3])))
heavy = ("networkx", "onnx", "gecli.passes", "gecli.loading", "gecli.planning")
print(*(name for name in heavy if name in sys.modules))
"""


def test_a_process_that_finds_everything_loads_no_compiler(path: Path) -> None:
    np.savez(path.parent / "x.npz", **CHOSEN[1][0])
    line = [sys.executable, "-c", PROGRAM, str(path), str(path.parent / "c"), str(path.parent / "x.npz")]
    done = subprocess.run(
        line, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout.split() == []


def test_another_model_or_option_is_another_request(path: Path, parsed: list[str]) -> None:
    model_of(path, precision_mode_v2="fp16")
    assert len(parsed) == 1
    path.write_bytes(MODELS["plain"][0]())
    feeds = {"x": floats(3, 4)}
    assert_equal(model_of(path).run(feeds)[0], expected(path, feeds))
    assert len(parsed) == 2


def test_external_data_belongs_to_the_request(tmp_path: Path, parsed: list[str]) -> None:
    path, feeds = tmp_path / "m.onnx", {"x": floats(3, 4)}
    model = onnx.load_from_string(MODELS["plain"][0]())
    onnx.save(model, str(path), save_as_external_data=True, location="m.data", size_threshold=0)
    for weights in (None, 0.5, None):
        if weights is not None:
            data = np.fromfile(tmp_path / "m.data", np.float32)
            (data + np.float32(weights)).tofile(tmp_path / "m.data")
        assert_equal(model_of(path).run(feeds)[0], expected(path, feeds))
    assert len(parsed) == 2


@pytest.mark.parametrize("place", [0, 40, 400])
def test_a_note_that_is_damaged_is_none(path: Path, parsed: list[str], place: int) -> None:
    (note,) = notes(path)
    data = note.read_bytes()
    note.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    assert_equal(model_of(path).run(CHOSEN[1][0])[0], expected(path, CHOSEN[1][0]))
    assert len(parsed) == 1
    assert notes(path)[0].read_bytes() == data


def test_what_loading_had_to_say_is_said_again(tmp_path: Path, parsed: list[str]) -> None:
    from gecli.jit.loading import load_jit_model
    from gecli.options.resolution import resolve
    from gecli.runtime.session import Session

    path = tmp_path / "m.onnx"
    model = onnx.load_from_string(MODELS["plain"][0]())
    model.opset_import.add(domain="somebody.else", version=1)
    path.write_bytes(model.SerializeToString())
    typed = {"jit": ("true",), "ge.graph_compiler_cache_dir": (str(tmp_path / "c"),), "cache-create": ("true",)}
    options = resolve("compile", typed)
    said = [load_jit_model(str(path), options, Session()).warnings for _ in range(2)]
    assert said[0] == said[1]
    assert len(parsed) == 1


def test_a_model_that_changes_while_it_runs_is_not_mixed_with_what_it_was(path: Path) -> None:
    model = model_of(path)
    path.write_bytes(MODELS["plain"][0]())
    model.run(CHOSEN[1][0])  # that is in the cache
    with pytest.raises(InputError, match="changed while it was run"):
        model.run(CHOSEN[1][1])


def test_a_cache_that_must_not_be_written_gets_no_note(path: Path, parsed: list[str]) -> None:
    (note,) = notes(path)
    note.unlink()
    assert_equal(model_of(path, cache_mode="ro").run(CHOSEN[1][0])[0], expected(path, CHOSEN[1][0]))
    assert notes(path) == []
    assert len(parsed) == 1


def test_what_is_known_of_one_version_is_kept_beside_that_of_another(path: Path) -> None:
    for feeds in (*CHOSEN[1][:2], CHOSEN[1][0]):
        model_of(path).run(feeds)
    (rows,) = (path.parent / "c/.gecli/stat").glob("g-*")
    oms = {str(om) for om in (path.parent / "c/jit").glob("*.om")}
    model_of(path).run(CHOSEN[1][1])
    assert len(oms) == 4
    assert {row.path for row in read_rows(str(rows)) if row.path.endswith(".om")} == oms
    for om in sorted(oms)[:2]:
        os.unlink(om)
    model_of(path).run(CHOSEN[1][1])
    assert all(os.path.exists(row.path) for row in read_rows(str(rows)))
