"""Models whose weights lie beside them give the same bits, and files that do not fit are named (cli.md 3.7)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gecli.artifacts.om_writer import write_om
from gecli.artifacts.weight_writer import append_combined, write_combined, write_split
from gecli.compiler.graph_compiler import CompiledGraph
from gecli.compiler.model_image import ImageFacts, model_image
from gecli.compiler.session import Session as CompileSession
from gecli.errors import GecliError, RuntimeFault
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.text import parse
from gecli.ir.weight import Weight
from gecli.layout.platform import platform_of
from gecli.passes.base import CompileSettings
from gecli.runtime.session import Session
from gecli.runtime.weight_search import WeightSettings

SPLIT, COMBINED = 1, 2
ROWS = 96  # one weight is large enough to be mapped
X = np.linspace(-1, 1, 2 * ROWS, dtype=np.float32).reshape(2, ROWS)
PLAIN = """
    graph g(%x : f32[2,96] ND) {
      %w = Const() {value={"fill": "00000000"}} : f32[96,96] ND
      %b = Const() {value={"fill": "00000000"}} : f32[96] ND
      %same = Const() {value={"fill": "00000000"}} : f32[1,96] ND
      %p = MatMul(%x, %w) : f32[2,96] ND
      %q = Add(%p, %b) : f32[2,96] ND
      %r = Mul(%q, %same) : f32[2,96] ND
      return %r
    }
"""
BRANCHED = """
    graph g(%c : bool[] ND, %x : f32[2,96] ND) {
      %b = Const() {value={"fill": "00000000"}} : f32[96] ND
      %i = If(%c, %x, %b) {subgraphs=["yes", "no"]} : f32[2,96] ND
      return %i
    }
    graph yes(%y : f32[2,96] ND, %v : f32[96] ND) {
      %w = Const() {value={"fill": "00000000"}} : f32[96,96] ND
      %p = MatMul(%y, %w) : f32[2,96] ND
      %q = Add(%p, %v) : f32[2,96] ND
      return %q
    }
    graph no(%n : f32[2,96] ND, %u : f32[96] ND) {
      %r = Add(%n, %u) : f32[2,96] ND
      return %r
    }
"""


def graph_of(text: str, seed: int = 0) -> Graph:
    """The graph with random weights; `b` and `same` hold equal ones."""
    graph = parse(text)
    for part in graph.all_graphs():
        for node in part.nodes_of("Const"):
            shape = node.output_descs[0].shape
            values = np.random.default_rng((seed, int(np.prod(shape)))).standard_normal(shape, np.float32)
            node.attrs["value"] = Weight.of(values)
    return graph


def compiled(text: str, mode: int, stem: str = "net", seed: int = 0) -> tuple[CompiledGraph, CompileSession]:
    session = CompileSession(platform_of("Ascend910B1"), CompileSettings(), external_weight=mode)
    member = session.add(graph_of(text, seed), stem=stem)
    session.compile_all()
    assert member.compiled is not None
    return member.compiled, session


def build(
    folder: Path, mode: int, text: str = PLAIN, *, append: bool = False, seed: int = 0, stem: str = "net"
) -> Path:
    """The OM of the graph in `folder` with its weights in `folder/weight`."""
    graph, session = compiled(text, mode, stem, seed)
    weights = str(folder / "weight")
    if append:
        append_combined(weights, stem, graph.external)
    image = model_image(graph, session.manager, ImageFacts(stem, "Ascend910B1", "x", "onnx", "gecli", "sha256:0"))
    if mode == SPLIT:
        write_split(weights, graph.external)
    elif mode == COMBINED and not append:
        write_combined(weights, graph.external)
    write_om(folder / f"{stem}.om", image)
    return folder / f"{stem}.om"


def outputs(om: Path, *, settings: WeightSettings | None = None, copy: bool = False, **more: Any) -> list[bytes]:
    session = Session(weights=settings, copy_weights=copy)
    model = session.load(om)
    assert not [each for each in session.warnings if each.code != "G3007"]
    found, _ = model.run({"x": X, **more})
    return [array.tobytes() for array in found.values()]


def fault(om: Path, settings: WeightSettings | None = None) -> RuntimeFault:
    with pytest.raises(RuntimeFault) as caught:
        Session(weights=settings).load(om)
    first = caught.value.first
    assert first.message and first.where and first.reason() and first.remedy(), "a message has four parts"
    assert first.exit_status == 6 or first.code == "G3012"
    return caught.value


def weight_file(om: Path) -> Path:
    """The largest file of weights."""
    return max((om.parent / "weight").iterdir(), key=lambda path: path.stat().st_size)


# ------------------------------------------------------------------ the same results


@pytest.mark.parametrize("mode", [SPLIT, COMBINED])
@pytest.mark.parametrize("copy", [False, True])
def test_results_are_those_of_weights_in_the_om(tmp_path: Path, mode: int, copy: bool) -> None:
    (tmp_path / "inside").mkdir()
    inside = build(tmp_path / "inside", 0)
    outside = build(tmp_path, mode)
    assert outputs(outside, copy=copy) == outputs(inside)
    assert outside.stat().st_size < inside.stat().st_size - 4 * ROWS * ROWS + 4096


@pytest.mark.parametrize("mode", [SPLIT, COMBINED])
@pytest.mark.parametrize("condition", [False, True])
def test_constants_of_branches_go_to_files_too(tmp_path: Path, mode: int, condition: bool) -> None:
    (tmp_path / "inside").mkdir()
    value = np.array(condition)
    expected = outputs(build(tmp_path / "inside", 0, BRANCHED), c=value)
    assert outputs(build(tmp_path, mode, BRANCHED), c=value) == expected
    assert len(list((tmp_path / "weight").iterdir())) == (2 if mode == SPLIT else 1)


def test_equal_weights_share_a_file_and_an_address(tmp_path: Path) -> None:
    graph, _ = compiled(PLAIN, SPLIT)
    found = write_split(str(tmp_path), graph.external)
    assert len(graph.external) == 3
    assert len(found) == len(list(tmp_path.iterdir())) == 2
    by_digest: dict[str, set[int]] = {}
    for each in graph.external:
        by_digest.setdefault(each.sha256, set()).add(graph.plan.placements[each.node].output_offsets[0])
    assert sorted(map(len, by_digest.values())) == [1, 1]


def test_two_models_share_the_files_of_equal_weights(tmp_path: Path) -> None:
    build(tmp_path, SPLIT, stem="a")
    before = {path.name: path.stat().st_ino for path in (tmp_path / "weight").iterdir()}
    build(tmp_path, SPLIT, BRANCHED, stem="b")
    assert {path.name: path.stat().st_ino for path in (tmp_path / "weight").iterdir()} == before


@pytest.mark.parametrize("mode", [SPLIT, COMBINED])
def test_two_compiles_give_the_same_bytes(tmp_path: Path, mode: int) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
        build(folder, mode, BRANCHED)
    first, second = ({str(p.relative_to(f)): p.read_bytes() for p in f.rglob("*") if p.is_file()} for f in folders)
    assert first == second


def test_models_of_a_session_map_a_file_once(tmp_path: Path) -> None:
    a, b = build(tmp_path, SPLIT, stem="a"), build(tmp_path, SPLIT, stem="b")
    session = Session()
    models = [session.load(path) for path in (a, b)]
    views = [constants_of(model) for model in models]
    assert np.shares_memory(views[0], views[1])


def constants_of(model: Any) -> Any:
    """The large weight of a loaded model."""
    found = [operand.array for operand in model.program.operands.values() if operand.is_constant]
    return next(array for array in found if array.shape == (ROWS, ROWS))


def test_running_does_not_copy_large_weights(tmp_path: Path) -> None:
    session = Session()
    weight = constants_of(session.load(build(tmp_path, COMBINED)))
    base = weight
    while isinstance(base, np.ndarray):
        base = base.base
    assert type(base.obj).__name__ == "mmap"
    assert not weight.flags.writeable


# ------------------------------------------------------------------ where files are looked for


def test_weights_are_found_beside_the_om_and_in_directories(tmp_path: Path) -> None:
    om = build(tmp_path, SPLIT)
    expected = outputs(om)
    names = [path.name for path in (tmp_path / "weight").iterdir()]
    other = tmp_path / "other"
    (tmp_path / "weight").rename(other)
    found = WeightSettings((str(tmp_path / "none"), str(other)))
    assert outputs(om, settings=found) == expected
    assert {use.rule for use in loaded(om, found).weight_files} == {"--weight-dir"}
    for name in names:
        shutil.copy(other / name, tmp_path / name)
    assert outputs(om) == expected
    assert {use.rule for use in loaded(om).weight_files} == {"beside the OM"}


def loaded(om: Path, settings: WeightSettings | None = None) -> Any:
    return Session(weights=settings).load(om)


def test_a_weight_directory_wins_over_the_files_beside_the_om(tmp_path: Path) -> None:
    om = build(tmp_path, COMBINED)
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "weight", copy)
    assert loaded(om, WeightSettings((str(copy),))).weight_files[0].path == str(copy / "net_weight_combined")


def test_missing_files_are_named_in_one_message(tmp_path: Path) -> None:
    om = build(tmp_path, SPLIT)
    shutil.rmtree(tmp_path / "weight")
    error = fault(om, WeightSettings(("/nowhere",)))
    assert (error.code, error.kind, len(error.diagnostics)) == ("G4003", "RT_WEIGHT_MISSING", 1)
    assert error.first.message.startswith("2 weight files are missing: weight_")
    assert "/nowhere" in error.first.why and str(tmp_path / "weight") in error.first.why
    assert "--weight-dir" in error.first.do


@pytest.mark.parametrize("mode", [SPLIT, COMBINED])
def test_a_short_file_is_refused(tmp_path: Path, mode: int) -> None:
    om = build(tmp_path, mode)
    os.truncate(weight_file(om), 1000)
    error = fault(om)
    assert (error.code, error.kind) == ("G4004", "RT_WEIGHT_SHORT")
    assert "1000" in error.first.why


@pytest.mark.parametrize("mode", [SPLIT, COMBINED])
def test_one_changed_bit_is_seen(tmp_path: Path, mode: int) -> None:
    om = build(tmp_path, mode)
    path = weight_file(om)
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)
    error = fault(om)
    assert (error.code, error.kind) == ("G4004", "RT_WEIGHT_HASH")
    assert str(path) in error.first.message
    assert loaded(om, WeightSettings(verify=False)).weight_files[0].verified is None


def test_a_compile_repairs_a_changed_file(tmp_path: Path) -> None:
    om = build(tmp_path, SPLIT)
    expected = outputs(om)
    path = weight_file(om)
    path.write_bytes(bytes(path.stat().st_size))
    build(tmp_path, SPLIT)
    assert outputs(om) == expected


# ------------------------------------------------------------------ paths that lead elsewhere


def rewrite(om: Path, change: Callable[[OpDesc], object]) -> None:
    """The OM with other attributes on its FileConstants."""
    from gecli.artifacts.om_file import read_om
    from gecli.artifacts.om_image_of import image_of

    file = read_om(om)
    model = file.model()
    for node in model.root.nodes:
        if node.type == "FileConstant":
            change(node)
    write_om(om, image_of(file, model))


def test_an_om_is_written_again_byte_for_byte(tmp_path: Path) -> None:
    om = build(tmp_path, COMBINED)
    before = om.read_bytes()
    rewrite(om, lambda node: None)
    assert om.read_bytes() == before


@pytest.mark.parametrize("location", ["..", "a/..", "weight/", ".", "\0", "x\0y"])
def test_a_location_without_a_file_name_is_refused(tmp_path: Path, location: str) -> None:
    om = build(tmp_path, COMBINED)
    rewrite(om, lambda node: node.attrs.update(location=location))
    assert fault(om).kind == "weights_unsafe"


def test_parts_of_a_location_before_its_name_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    om = build(tmp_path / "models", COMBINED)
    expected = outputs(om)
    rewrite(om, lambda node: node.attrs.update(location="../../x/net_weight_combined"))
    assert outputs(om) == expected
    os.rename(weight_file(om), tmp_path / "net_weight_combined")
    assert fault(om).code == "G4003"


def test_a_stored_absolute_path_is_the_last_resort_and_a_warning(tmp_path: Path) -> None:
    om = build(tmp_path, COMBINED)
    expected = outputs(om)
    away = tmp_path / "away" / "net_weight_combined"
    away.parent.mkdir()
    rewrite(om, lambda node: node.attrs.update(location=str(away)))
    assert outputs(om) == expected
    weight_file(om).rename(away)
    session = Session()
    model = session.load(om)
    assert [use.rule for use in model.weight_files] == ["stored path"]
    assert [each.code for each in session.warnings if "stored" in each.message] == ["G4003"]


def test_a_link_out_of_the_weight_directory_is_refused(tmp_path: Path) -> None:
    om = build(tmp_path, COMBINED)
    path = weight_file(om)
    path.rename(tmp_path / "outside")
    path.symlink_to(tmp_path / "outside")
    error = fault(om)
    assert error.kind == "weights_unsafe"
    assert "symbolic link" in error.first.why


def test_a_pipe_in_the_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    om = build(tmp_path, COMBINED)
    path = weight_file(om)
    path.unlink()
    os.mkfifo(path)
    assert fault(om).kind == "weights_unsafe"


@pytest.mark.parametrize("changes", [{"offset": -1}, {"length": 7}, {"offset": "x"}, {"length": -4}])
def test_a_range_that_does_not_fit_its_tensor_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    om = build(tmp_path, COMBINED)
    rewrite(om, lambda node: node.attrs.update(changes))
    assert fault(om).code == "G3012"


def test_an_offset_beyond_the_file_is_refused(tmp_path: Path) -> None:
    om = build(tmp_path, COMBINED)
    rewrite(om, lambda node: node.attrs.update(offset=2**62))
    assert fault(om).kind == "RT_WEIGHT_SHORT"


ATTRIBUTE = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20) | st.binary(max_size=8)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["location", "offset", "length", "file_path", "file_id", "_gecli_sha256", "dtype", "shape"]),
        ATTRIBUTE,
        max_size=4,
    )
)
def test_whatever_an_om_says_about_its_weights_is_read_or_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    om = build(tmp_path, COMBINED)

    def change(node: OpDesc) -> None:
        for name, value in changes.items():
            node.attrs.pop(name, None)
            if value is not None:
                node.attrs[name] = value

    rewrite(om, change)
    try:
        loaded(om)
    except GecliError as error:
        assert error.code in ("G3012", "G4003", "G4004", "G4013", "G1005"), error


# ------------------------------------------------------------------ other ways to name a file


def as_foreign(node: OpDesc, **attrs: Any) -> None:
    """A FileConstant as other tools write it: no digest, another place."""
    for name in ("location", "offset", "length", "_gecli_sha256"):
        node.attrs.pop(name, None)
    node.attrs.update(attrs)


def test_a_file_by_its_id_is_that_of_the_bins(tmp_path: Path) -> None:
    graph, _ = compiled(PLAIN, SPLIT)
    om = build(tmp_path, SPLIT)
    expected = outputs(om)
    names = {each.node.name: each.file for each in graph.external}
    rewrite(om, lambda node: as_foreign(node, file_id=node.name))
    bins = {name: str(tmp_path / "weight" / file) for name, file in names.items()}
    assert outputs(om, settings=WeightSettings(bins=bins)) == expected
    error = fault(om, WeightSettings(bins={"other": "x"}))
    assert (error.code, error.kind) == ("G4013", "RT_FILE_ID_UNKNOWN")
    assert "other" in error.first.why


def test_a_location_wins_over_a_path_and_a_path_over_an_id(tmp_path: Path) -> None:
    om = build(tmp_path, COMBINED)
    expected = outputs(om)
    rewrite(om, lambda node: node.attrs.update(file_path="/nowhere", file_id="none"))
    assert outputs(om) == expected


def test_a_file_path_is_read_from_its_beginning(tmp_path: Path) -> None:
    graph, _ = compiled(PLAIN, SPLIT)
    om = build(tmp_path, SPLIT)
    expected = outputs(om)
    names = {each.node.name: each.file for each in graph.external}
    rewrite(om, lambda node: as_foreign(node, file_path=names[node.name], offset=512))
    assert outputs(om) == expected


def test_a_file_without_any_digest_is_used_with_a_warning(tmp_path: Path) -> None:
    om = build(tmp_path, SPLIT)
    path = weight_file(om)
    path.rename(path.with_name("w.bin"))

    def change(node: OpDesc) -> None:
        if node.attrs["location"] == path.name:
            as_foreign(node, location="w.bin")
            node.name = "plain"

    rewrite(om, change)
    session = Session()
    uses = {use.file: use.verified for use in session.load(om).weight_files}
    assert uses.pop("w.bin") is None
    assert all(uses.values())
    assert [each.code for each in session.warnings if "w.bin" in each.message] == ["G4004"]
