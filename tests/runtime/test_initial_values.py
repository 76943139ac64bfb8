"""Initial values of a variable that several models share: any of them counts, the first before others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

DIFFER = "give variable 'V' different initial values"


def write_model(path: Path, value: float | None) -> str:
    """A graph that returns the variable V, with its sign changed."""
    desc = {"dtype": "DT_FLOAT", "shape": [3], "format": "ND"}
    attrs = {} if value is None else {"_init_value": {"tensor": {"fill": value}}}
    document = {
        "gecli_graph": 1,
        "directed": True,
        "multigraph": True,
        "graph": {"name": path.stem, "inputs": [], "outputs": ["o:0"]},
        "nodes": [
            {"id": "V", "type": "Variable", "attrs": attrs, "outputs": [desc]},
            {"id": "o", "type": "Neg", "outputs": [desc]},
        ],
        "links": [{"source": "V", "target": "o", "src_out": 0, "dst_in": 0}],
    }
    path.write_text(json.dumps(document))
    return str(path)


def built(gecli: Any, folder: Path, values: tuple[float | None, ...]) -> list[str]:
    """OMs that were compiled apart."""
    models = []
    for index, value in enumerate(values):
        source = write_model(folder / f"m{index}.json", value)
        models.append(str(folder / f"m{index}.om"))
        assert gecli("compile", source, "-o", models[-1], "-q").returncode == 0
    return models


@pytest.mark.parametrize("values", [(None, 2.0), (2.0, None)])
def test_a_run_starts_from_the_initial_value_of_any_of_its_models(
    gecli: Any, tmp_path: Path, values: tuple[float | None, ...]
) -> None:
    for extra in ((), ("--init", "zero")):
        done = gecli("run", *built(gecli, tmp_path, values), *extra)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("[-2 -2 -2]") == 2


def test_a_run_starts_from_the_initial_value_that_only_its_session_has(gecli: Any, tmp_path: Path) -> None:
    session = str(tmp_path / "s.bin")
    for value, option in ((2.0, "--session-out"), (None, "--session-in")):
        source = write_model(tmp_path / "m.json", value)
        assert gecli("compile", source, "-o", str(tmp_path / "m.om"), option, session, "-q").returncode == 0
    done = gecli("run", str(tmp_path / "m.om"), "--session-in", session)
    assert done.returncode == 0, done.stderr
    assert "[-2 -2 -2]" in done.stdout


def test_a_run_of_models_with_different_initial_values_says_which_counts(gecli: Any, tmp_path: Path) -> None:
    first, second = built(gecli, tmp_path, (1.0, 2.0))
    done = gecli("run", first, second)
    assert done.returncode == 0, done.stderr
    assert f"{first} and {second} {DIFFER}" in done.stderr
    assert "[-1 -1 -1]" in done.stdout


def test_equal_initial_values_are_no_news(gecli: Any, tmp_path: Path) -> None:
    done = gecli("run", *built(gecli, tmp_path, (1.0, 1.0)))
    assert (done.returncode, DIFFER in done.stderr) == (0, False)


@pytest.mark.parametrize("cache", [(), ("--cache-create", "--cache-dir")])
def test_a_session_of_models_with_different_initial_values_is_told_each_time(
    gecli: Any, tmp_path: Path, cache: tuple[str, ...]
) -> None:
    models = [write_model(tmp_path / f"m{value}.json", float(value)) for value in (1, 2)]
    words = [*cache, str(tmp_path / "cache")] if cache else []
    for _ in range(2):
        done = gecli("compile", *models, *words, "-o", str(tmp_path / "out"))
        assert done.returncode == 0, done.stderr
        assert f"{models[0]} and {models[1]} {DIFFER}" in done.stderr
    apart = gecli("compile", *models, *words, "--no-session", "-o", str(tmp_path / "out"))
    assert DIFFER not in apart.stderr
