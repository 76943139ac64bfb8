"""Graphs of one session that declare a variable differently: what is compiled, and what the report says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.artifacts.om_writer import write_om
from gecli.compiler.api import compile_models
from gecli.compiler.model_image import ImageFacts, model_image
from gecli.compiler.result import CompileReport
from gecli.compiler.session import Session
from gecli.errors import CompileError, Diagnostic
from gecli.ir.text import parse
from gecli.layout.platform import platform_of
from gecli.options.resolution import resolve
from gecli.passes.base import CompileSettings
from gecli.runtime.session import Session as Runtime

DIMS = [1, 2, 3, 4]


def written(place: Path, name: str, fmt: str, type: str) -> str:
    """A graph that reads (Abs) or adds one to (AssignAdd) the variable `w`, which holds 0, 1, 2, ..."""
    desc = {"dtype": "DT_FLOAT", "shape": DIMS, "format": fmt}
    nodes: list[dict[str, Any]] = [
        {
            "id": "w",
            "type": "Variable",
            "outputs": [desc],
            "attrs": {"_init_value": {"tensor": {"data": list(range(24))}}},
        },
        {"id": "one", "type": "Const", "value": {**desc, "fill": 1}},
        {"id": "y", "type": type},
    ]
    links = [{"source": "w", "target": "y"}]
    if type == "AssignAdd":
        links.append({"source": "one", "target": "y"})
    document = {"gecli_graph": 1, "graph": {"name": name, "outputs": ["y"]}, "nodes": nodes, "links": links}
    path = place / f"{name}.json"
    path.write_text(json.dumps(document))
    return str(path)


def compiled(place: Path, *models: str, **options: str) -> CompileReport:
    typed = {key: (text,) for key, text in options.items()}
    return compile_models(list(models), resolve("compile", {"output": (f"{place}/out/",), **typed}))


@pytest.mark.parametrize(
    "options", [{}, {"compact-variables": "true"}, {"ge.graph_compiler_cache_dir": "true"}], ids=str
)
@pytest.mark.parametrize("formats", [("NCHW", "NHWC"), ("HWCN", "ND")])
def test_a_later_graph_gives_a_variable_another_format_at_the_same_address(
    tmp_path: Path, formats: tuple[str, str], options: dict[str, str]
) -> None:
    models = [written(tmp_path, f"g{n}", fmt, "AssignAdd") for n, fmt in enumerate(formats)]
    with_cache = "ge.graph_compiler_cache_dir" in options
    if with_cache:
        options = {"ge.graph_compiler_cache_dir": str(tmp_path / "cache"), "cache-create": "true"}
    for state in ("miss", "hit"):
        report = compiled(tmp_path, *models, **options)
        assert not with_cache or [result.cache.state for result in report.models] == [state, state]
        rows = [result.variables[0] for result in report.models]
        assert [row["format"] for row in rows] == list(formats)
        assert [row["logical_address"] for row in rows] == [1 << 37, 1 << 37]
        assert all([block["offset"] for block in row["blocks"] if block["in_use"]] == [0] for row in rows)
    device = Runtime()
    loaded = [device.load(str(tmp_path / "out" / f"g{n}.om")) for n in range(2)]
    for model in (loaded[0], loaded[1], loaded[0]):
        model.run({})
    np.testing.assert_array_equal(device.store.value("w").reshape(-1), np.arange(24) + 3)


def texts_session(*sources: str) -> Session:
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    for source in sources:
        session.add(parse(source))
    session.compile_all()
    return session


def warnings_of(session: Session, number: int) -> list[Diagnostic]:
    compiled = session.members[number].compiled
    assert compiled is not None
    return compiled.warnings


def reading(name: str, form: str) -> str:
    return f"graph {name}() {{ %w = Variable() : {form}\n %y = Abs(%w) : {form}\n return %y }}"


@pytest.mark.parametrize(
    ("forms", "is_told"),
    [
        (("f32[4]", "i32[4]"), True),
        (("f32[4]", "f16[4]"), True),
        (("f32[4]", "f32[2]"), True),
        (("f32[4]", "f32[2,2]"), True),
        (("f32[1,2,2,1] NCHW", "f32[1,2,2,1] NHWC"), False),
        (("f32[4]", "f32[4]"), False),
    ],
)
def test_a_variable_whose_bytes_two_graphs_take_for_different_things_is_told(
    forms: tuple[str, str], is_told: bool
) -> None:
    session = texts_session(*(reading(f"g{n}", form) for n, form in enumerate(forms)))
    assert warnings_of(session, 0) == []
    found = warnings_of(session, 1)
    assert [each.kind for each in found] == (["VAR_FORM_DIFFERS"] if is_told else [])
    for each in found:
        assert "'w'" in each.message and "'g1'" in each.where and str(each.expected) in each.why and each.do


@pytest.mark.parametrize("acceleration", ["True", "False"])
@pytest.mark.parametrize("type", ["Abs", "AssignAdd"])
def test_a_variable_whose_axes_two_graphs_name_differently_is_told_and_stays_the_same_bytes(
    tmp_path: Path, type: str, acceleration: str
) -> None:
    later = written(tmp_path, "later", "HWCN", type)
    first = tmp_path / "first.json"
    desc = {"dtype": "DT_FLOAT", "format": "NCHW"}
    nodes: list[dict[str, Any]] = [
        {
            "id": "w",
            "type": "Variable",
            "outputs": [{**desc, "shape": DIMS}],
            "attrs": {"_init_value": {"tensor": {"data": list(range(24))}}},
        },
        {"id": "x", "type": "Const", "value": {**desc, "shape": [1, 2, 3, 4], "fill": 1}},
        {"id": "c", "type": "Conv2D", "attrs": {"strides": [1] * 4, "pads": [0] * 4}},
    ]
    links = [{"source": "x", "target": "c"}, {"source": "w", "target": "c", "dst_in": 1}]
    graph = {"name": "first", "outputs": ["c"]}
    first.write_text(json.dumps({"gecli_graph": 1, "graph": graph, "nodes": nodes, "links": links}))
    report = compiled(tmp_path, str(first), later, **{"ge.exec.variable_acc": acceleration})
    assert report.models[0].variables[0]["format"] == ("FRACTAL_Z" if acceleration == "True" else "NCHW")
    assert report.models[0].warnings == []
    (warning,) = report.models[1].warnings
    assert (warning.code, warning.kind, warning.node) == ("G2016", "VAR_FORM_DIFFERS", "w")
    assert (warning.expected, warning.actual) == ("DT_FLOAT NCHW [1,2,3,4]", "DT_FLOAT HWCN [1,2,3,4]")
    device = Runtime()
    device.load(str(tmp_path / "out" / "first.om")).run({})
    (found,) = device.load(str(tmp_path / "out" / "later.om")).run({})[0].values()
    np.testing.assert_array_equal(found.reshape(-1), np.arange(24) + (type == "AssignAdd"))
    np.testing.assert_array_equal(device.store.value("w").reshape(-1), np.arange(24) + (type == "AssignAdd"))


@pytest.mark.parametrize(
    ("formats", "is_told"), [(("NCHW", "NHWC"), True), (("NCHW", "ND"), False), (("ND", "HWCN"), False)]
)
def test_only_formats_that_name_the_axes_can_name_them_differently(
    tmp_path: Path, formats: tuple[str, str], is_told: bool
) -> None:
    models = [written(tmp_path, f"g{n}", fmt, "Abs") for n, fmt in enumerate(formats)]
    report = compiled(tmp_path, *models)
    assert [[each.kind for each in result.warnings] for result in report.models] == [
        [],
        ["VAR_FORM_DIFFERS"] if is_told else [],
    ]


@pytest.mark.parametrize("dims", ["[1,2,3,4]", "[-1,2,3,4]"])
def test_a_reformat_moves_nothing_whatever_the_letters_say(tmp_path: Path, dims: str) -> None:
    source = f"""
        graph g(%x : f32{dims} NCHW) {{
          %a = Abs(%x) : f32{dims} NCHW
          %r = ReFormat(%a) : f32{dims} HWCN
          %y = Neg(%r) : f32{dims} HWCN
          return %y
        }}
    """
    session = texts_session(source)
    member = session.members[0]
    assert member.compiled is not None
    facts = ImageFacts("g", "Ascend910B1", session.platform.profile, "json", "", "0" * 64)
    write_om(tmp_path / "g.om", model_image(member.compiled, session.manager, facts))
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    (found,) = Runtime().load(str(tmp_path / "g.om")).run({"x": x})[0].values()
    np.testing.assert_array_equal(found, -x)


STEP = """
    graph step(%x : f16[256]) {
      %w = Variable() : f16[256]
      %u = Variable() {_init_value={"fill": "00000000"}} : f32[2,2,3,2] HWCN
      %v = Abs(%x) : f16[256]
      %a = Assign(%w, %v) : f16[256]
      %y = Abs(%u) : f32[2,2,3,2] HWCN
      return %y after %a
    }
"""
OTHER = """
    graph other() {
      %w = Variable() : f32[256]
      %u = Variable() {_init_value={"fill": "00000000"}} : f32[2,2,3,2] HWCN
      %t = TransData(%u) {src_format=HWCN, dst_format=FRACTAL_Z} : f32[4,1,16,8] FRACTAL_Z origin [2,2,3,2] HWCN
      %y = Abs(%t) : f32[4,1,16,8] FRACTAL_Z origin [2,2,3,2] HWCN
      %z = Abs(%w) : f32[256]
      return %y, %z
    }
"""


def test_a_value_is_computed_into_the_form_that_its_own_graph_declares() -> None:
    session = texts_session(STEP, OTHER)
    step = session.members[0].compiled
    assert step is not None and session.members[0].compile_count == 2
    variable = step.graph.node("w")
    writer = step.graph.node("v")
    assert writer.output_descs[0].attrs["_assign_var_name"] == "w"
    assert step.plan.placements[writer].output_offsets[0] == step.assigned[variable]


@pytest.mark.parametrize("writer", ["AssignAdd", "Assign"])
def test_a_variable_without_memory_cannot_be_written(writer: str) -> None:
    source = f"""
        graph g(%x : f32[4]) {{
          %w = VariableV2() {{_init_value={{"fill": "00000000"}}}} : f32[4]
          %a = {writer}(%w, %x) : f32[4]
          return %a
        }}
    """
    with pytest.raises(CompileError, match="VariableV2 'w' cannot be written") as caught:
        texts_session(source)
    first = caught.value.first
    assert (first.code, first.kind) == ("G2015", "VAR_NOT_FOUND")
    assert "'a'" in first.why and "Variable" in first.do


def test_a_limit_that_no_device_has_is_not_advised() -> None:
    with pytest.raises(CompileError, match="exhausted") as caught:
        texts_session(reading("g", "f32[1099511627776]"))
    assert "--var-mem-max-size" not in caught.value.first.do


@pytest.mark.parametrize(
    "forms", [("f32[4]", "f32[2,2]"), ("f32[40]", "f32[4]"), ("f16[8]", "f32[8]"), ("f32[8]", "f16[8]")]
)
def test_the_record_of_every_graph_has_the_form_that_the_graph_stores(forms: tuple[str, str]) -> None:
    # each record is what `run` holds the model against; a graph may come again after the other one
    sources = [reading(f"g{n}", form) for n, form in enumerate(forms)]
    session = texts_session(*sources, sources[0].replace("g0", "g2"))
    for member in session.members:
        assert member.compiled is not None
        (variable,) = member.compiled.variables
        assert member.compiled.record.after.var_desc_map["w"].same_storage(variable.output_descs[0])
