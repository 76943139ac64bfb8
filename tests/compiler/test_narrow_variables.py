"""Variables that some graph of a session casts to a narrower type: who decides, what is told, what is computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.compiler.api import compile_models
from gecli.compiler.result import CompileReport, ModelResult
from gecli.errors import CompileError
from gecli.options.resolution import resolve
from gecli.runtime.session import Session as Runtime

DATA = {
    "DT_FLOAT": [1.5, 2.5, 70000.0, 0.1],
    "DT_DOUBLE": [1.5, 2.5, 70000.0, 0.1],
    "DT_INT32": [1, 40000, 70000, 3],
    "DT_INT64": [1, 2, 1 << 40, -4],
}
NUMBERS = {"DT_FLOAT16": 1, "DT_INT8": 2, "DT_INT32": 3, "DT_FLOAT": 0}


def model(place: Path, name: str, dtype: str, *uses: str) -> str:
    """Uses of variable V: `add` to add a bit to it, `read` for it as it is, else a type to cast it to."""
    desc = {"dtype": dtype, "shape": [4], "format": "ND"}
    bit = 0.25 if dtype in ("DT_FLOAT", "DT_DOUBLE") else 1
    nodes: list[dict[str, Any]] = [
        {"id": "V", "type": "Variable", "outputs": [desc], "attrs": {"_init_value": {"tensor": {"data": DATA[dtype]}}}},
        {"id": "bit", "type": "Const", "value": {**desc, "data": [bit] * 4}},
    ]
    links: list[dict[str, Any]] = []
    outputs = []
    for number, use in enumerate(uses):
        id = f"{use}{number}"
        if use == "add":
            nodes.append({"id": id, "type": "AssignAdd"})
            links.append({"source": "bit", "target": id, "dst_in": 1})
        elif use == "read":
            nodes.append({"id": id, "type": "Abs"})
        else:
            nodes.append({"id": id, "type": "Cast", "attrs": {"dst_type": NUMBERS[use]}})
        links.append({"source": "V", "target": id})
        outputs.append(id)
    path = place / f"{name}.json"
    graph = {"name": name, "outputs": outputs}
    path.write_text(json.dumps({"gecli_graph": 1, "graph": graph, "nodes": nodes, "links": links}))
    return str(path)


def compiled(place: Path, out: str, *models: str, **options: str) -> list[ModelResult]:
    typed = {key: (text,) for key, text in options.items()}
    output = f"{place}/{out}/" if len(models) > 1 else f"{place}/{out}/{Path(models[0]).stem}"
    report: CompileReport = compile_models(list(models), resolve("compile", {"output": (output,), **typed}))
    return report.models


def run(place: Path, out: str, *names: str) -> tuple[list[np.ndarray], np.ndarray]:
    """The outputs of models of one directory that run one after the other, and what V holds then."""
    device = Runtime()
    found = []
    for each in [device.load(str(place / out / f"{name}.om")) for name in names]:
        found += list(each.run({})[0].values())
    return found, device.store.value("V")


PAIRS = [
    ("DT_FLOAT", "DT_INT32"),
    ("DT_FLOAT", "DT_FLOAT16"),
    ("DT_INT64", "DT_INT32"),
    ("DT_INT32", "DT_INT8"),
    ("DT_DOUBLE", "DT_INT32"),
    ("DT_INT32", "DT_FLOAT16"),
]


@pytest.mark.parametrize(("wide", "narrow"), PAIRS)
@pytest.mark.parametrize("other", ["add", "read"])
@pytest.mark.parametrize("order", [("cast", "other"), ("other", "cast")])
def test_a_graph_that_needs_the_variable_as_it_is_keeps_it(
    tmp_path: Path, wide: str, narrow: str, other: str, order: tuple[str, str]
) -> None:
    sources = {"cast": model(tmp_path, "cast", wide, narrow), "other": model(tmp_path, "other", wide, other)}
    results = compiled(tmp_path, "on", *(sources[name] for name in order))
    assert {result.variables[0]["dtype"] for result in results} == {wide}
    assert not any(result.warnings for result in results)
    compiled(tmp_path, "off", *(sources[name] for name in order), **{"ge.exec.variable_acc": "False"})
    turns = ("other", "cast", "other", "other", "cast")
    on, off = run(tmp_path, "on", *turns), run(tmp_path, "off", *turns)
    for a, b in zip([*on[0], on[1]], [*off[0], off[1]], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("wide", "narrow"), PAIRS[:2])
def test_a_variable_that_every_graph_casts_alike_is_narrowed_and_told(tmp_path: Path, wide: str, narrow: str) -> None:
    sources = [model(tmp_path, name, wide, narrow) for name in ("first", "second")]
    results = compiled(tmp_path, "on", *sources)
    assert {result.variables[0]["dtype"] for result in results} == {narrow}
    (warning,) = [each for result in results for each in result.warnings]
    assert (warning.code, warning.expected, warning.actual) == ("G2019", wide, narrow)
    assert "in every graph of the session" in warning.why
    compiled(tmp_path, "off", *sources, **{"ge.exec.variable_acc": "False"})
    for a, b in zip(run(tmp_path, "on", "first", "second")[0], run(tmp_path, "off", "first", "second")[0], strict=True):
        np.testing.assert_array_equal(a, b)


def test_graphs_that_cast_to_different_types_keep_the_variable(tmp_path: Path) -> None:
    sources = [model(tmp_path, "a", "DT_FLOAT", "DT_INT32"), model(tmp_path, "b", "DT_FLOAT", "DT_FLOAT16")]
    results = compiled(tmp_path, "on", *sources, model(tmp_path, "c", "DT_FLOAT", "DT_INT32", "DT_FLOAT16"))
    assert {result.variables[0]["dtype"] for result in results} == {"DT_FLOAT"}


def test_a_cache_tells_a_model_alone_from_one_beside_a_writer(tmp_path: Path) -> None:
    cast, add = model(tmp_path, "cast", "DT_FLOAT", "DT_INT32"), model(tmp_path, "add", "DT_FLOAT", "add")
    options = {"ge.graph_compiler_cache_dir": str(tmp_path / "cache"), "cache-create": "true"}

    def types(*models: str) -> list[str]:
        return [result.variables[0]["dtype"] for result in compiled(tmp_path, "out", *models, **options)]

    for _ in range(2):
        assert types(cast) == ["DT_INT32"]
        assert types(cast, add) == ["DT_FLOAT", "DT_FLOAT"]
        assert types(add, cast) == ["DT_FLOAT", "DT_FLOAT"]
    (result,) = compiled(tmp_path, "out", cast, **options)
    assert result.cache.state == "hit"
    assert {each.cache.state for each in compiled(tmp_path, "out", cast, add, **options)} == {"hit"}


def test_an_output_of_the_model_alone_is_not_up_to_date_beside_a_writer(tmp_path: Path) -> None:
    cast, add = model(tmp_path, "cast", "DT_FLOAT", "DT_INT32"), model(tmp_path, "add", "DT_FLOAT", "add")
    compiled(tmp_path, "out", cast)
    compiled(tmp_path, "out", add)
    results = compiled(tmp_path, "out", cast, add, **{"if-changed": "true"})
    assert [row["dtype"] for result in results for row in result.variables] == ["DT_FLOAT", "DT_FLOAT"]


def test_a_model_that_was_compiled_alone_and_only_reads_leaves_the_variable_whole(tmp_path: Path) -> None:
    compiled(tmp_path, "apart", model(tmp_path, "add", "DT_FLOAT", "add"))
    compiled(tmp_path, "apart", model(tmp_path, "cast", "DT_FLOAT", "DT_INT32"))
    device = Runtime()
    add, cast = (device.load(str(tmp_path / "apart" / f"{name}.om")) for name in ("add", "cast"))
    start = np.array(DATA["DT_FLOAT"], np.float32)
    for number in range(1, 6):
        add.run({})
        (found,) = cast.run({})[0].values()
        np.testing.assert_array_equal(found, device.store.value("V").astype(np.int32))
        np.testing.assert_allclose(device.store.value("V"), start + np.float32(number / 4))


@pytest.mark.parametrize("use", ["add", "read", "DT_FLOAT16"])
def test_a_variable_that_an_earlier_command_narrowed_serves_no_model_that_needs_it_wider(
    tmp_path: Path, use: str
) -> None:
    state = str(tmp_path / "s.bin")
    cast = model(tmp_path, "cast", "DT_FLOAT", "DT_INT32")
    compiled(tmp_path, "first", cast, **{"session-out": state})
    (result,) = compiled(tmp_path, "same", cast, **{"session-in": state})
    assert result.variables[0]["dtype"] == "DT_INT32" and not result.warnings
    other = model(tmp_path, "other", "DT_FLOAT", use)
    with pytest.raises(
        CompileError, match="'V' is stored as DT_INT32, and graph 'other' needs it as DT_FLOAT"
    ) as caught:
        compiled(tmp_path, "later", other, **{"session-in": state})
    assert (caught.value.code, caught.value.kind) == ("G2016", "VAR_ROAD_CONFLICT")
    compiled(tmp_path, "first", cast, **{"session-out": state, "strict-variable-cast": "true"})
    (result,) = compiled(tmp_path, "later", other, **{"session-in": state})
    assert result.variables[0]["dtype"] == "DT_FLOAT"
