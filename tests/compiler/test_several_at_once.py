"""-j N: models with a session each are compiled by several processes, with the results of one (cli.md 1.8)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gecli.compiler.api import compile_models
from gecli.errors import GecliError
from gecli.options.resolution import resolve

TRAIN = Path(__file__).parent.parent.parent / "samples" / "train"


@pytest.fixture
def models(tmp_path: Path) -> list[str]:
    for each in TRAIN.glob("*.npy"):
        shutil.copy(each, tmp_path)
    for number in range(4):
        shutil.copy(TRAIN / ("conv_eval.json" if number % 2 else "mlp_train.json"), tmp_path / f"m{number}.json")
    return [str(tmp_path / f"m{number}.json") for number in range(4)]


def options(directory: Path, jobs: str, *more: str):
    typed = {"output": (f"{directory}/",), "no-session": ("true",), "jobs": (jobs,), "cache-mode": ("off",)}
    return resolve("compile", typed | dict.fromkeys(more, ("true",)))


def files(directory: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in sorted(directory.iterdir())}


def test_several_processes_give_the_files_of_one(models: list[str], tmp_path: Path) -> None:
    one = compile_models(models, options(tmp_path / "one", "1"))
    three = compile_models(models, options(tmp_path / "three", "3"))
    assert files(tmp_path / "one") == files(tmp_path / "three")
    assert [each.source for each in three.models] == models == [each.source for each in one.models]
    assert [each.variables for each in three.models] == [each.variables for each in one.models]


def test_a_model_that_fails_is_reported_and_with_keep_going_the_others_are_made(
    models: list[str], tmp_path: Path
) -> None:
    Path(models[1]).write_text("{}", encoding="utf-8")
    with pytest.raises(GecliError) as caught:
        compile_models(models, options(tmp_path / "a", "2"))
    assert caught.value.first.code == "E13005" and caught.value.exit_status == 3
    report = compile_models(models, options(tmp_path / "b", "2", "keep-going"))
    assert [each.source for each in report.models] == [models[0], *models[2:]]
    assert [each.first.code for each in report.failures] == ["E13005"]
    assert sorted(each.name for each in (tmp_path / "b").glob("*.om")) == ["m0.om", "m2.om", "m3.om"]


def test_models_of_one_session_are_compiled_in_their_order(models: list[str], tmp_path: Path) -> None:
    typed = {"output": (f"{tmp_path}/s/",), "jobs": ("2",), "cache-mode": ("off",)}
    report = compile_models(models[1::2], resolve("compile", typed))
    assert report.models[0].notes == ["--jobs had no effect: models of one session depend on each other"]
