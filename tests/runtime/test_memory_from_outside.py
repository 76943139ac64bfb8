"""Variables in an area of the user (SetExternalVar) and data of ConstPlaceHolder nodes (runtime.md 1.6, 6.6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gecli.compiler import compile_model
from gecli.errors import InputError, RuntimeFault
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.text import parse
from gecli.loading.json_writer import write_json
from gecli.runtime.memory_map import Region
from gecli.runtime.session import Session
from gecli.runtime.session_table import SessionTable
from gecli.runtime.variable_pages import with_pages
from gecli.variables.device_arena import MIB, HugePages
from gecli.variables.limits import GIB, VAR_LOGIC_BASE
from tests.options.workshop import write_models

REPOSITORY = Path(__file__).resolve().parents[2]
TRAIN = REPOSITORY / "samples/train/conv_train.json"
EVALUATE = REPOSITORY / "samples/train/conv_eval.json"
STORED = (1, 1, 4, 4, 16)
ORIGIN = (1, 8, 4, 4)


# ------------------------------------------------------------------ the variable area


def test_results_do_not_depend_on_where_variables_lie(gecli, tmp_path: Path) -> None:
    assert gecli("compile", str(TRAIN), str(EVALUATE), "-o", "s/", "--train").returncode == 0
    order = ("--order", "conv_train;conv_eval;conv_train")
    words = ("run", "s/conv_train.om", "s/conv_eval.om", "--init", "random", *order)
    plain = gecli(*words, "-o", "a.npz", "--save-vars", "a_vars.npz", "--json")
    area = gecli(*words, "-o", "b.npz", "--save-vars", "b_vars.npz", "--json", "--external-var", "64K")
    poisoned = gecli(*words, "-o", "c.npz", "--save-vars", "c_vars.npz", "--external-var", "1M", "--mem-fill", "poison")
    for done in (plain, area, poisoned):
        assert done.returncode == 0, done.stderr
    for kind in ("", "_vars"):
        contents = [(tmp_path / f"{name}{kind}.npz").read_bytes() for name in "abc"]
        assert contents[0] == contents[1] == contents[2]
    assert json.loads(area.stdout)["external_var"] == {"bytes": 65536, "used_bytes": 57344}
    assert "external_var" not in json.loads(plain.stdout)


def test_each_variable_lies_at_its_address_less_the_base(tmp_path: Path) -> None:
    write_models(tmp_path)
    session = Session(external_bytes=8192)
    for name in ("conv", "lossy"):  # compiled apart: both have their variable at the base
        compile_model(tmp_path / f"{name}.json", tmp_path / f"{name}.om")
        session.load(tmp_path / f"{name}.om")
    views = {name: session.store[name].current.view for name in "wv"}  # type: ignore[union-attr]  # both are there
    places = {name: form.logical_address - VAR_LOGIC_BASE for name in "wv" if (form := session.store[name].current)}
    assert places == {"w": 0, "v": 6144}, "4640 bytes of w, aligned, and two guards are before v"
    assert views["v"].ctypes.data - views["w"].ctypes.data == places["v"]
    np.testing.assert_allclose(session.store.value("v"), [0.1, 0.2], 1e-3, err_msg="_init_value is applied there")


@pytest.mark.parametrize(("size", "holds"), [(7680, True), (7679, False), (6144 + 64, False), (0, False)])
def test_the_area_must_hold_every_variable_with_its_guards(tmp_path: Path, size: int, holds: bool) -> None:
    write_models(tmp_path)
    session = Session(external_bytes=size)
    for name in ("conv", "lossy"):
        compile_model(tmp_path / f"{name}.json", tmp_path / f"{name}.om")
    if size > 6144:
        session.load(tmp_path / "conv.om")
    if holds:
        session.load(tmp_path / "lossy.om")
        return
    with pytest.raises(RuntimeFault, match=f"area of {size} bytes") as refused:
        session.load(tmp_path / ("lossy.om" if size > 6144 else "conv.om"))
    found = refused.value.first
    assert (found.kind, found.actual, refused.value.exit_status) == ("RT_EXTERNAL_TOO_SMALL", size, 6)
    assert found.do == f"--external-var {7680 if size > 6144 else 6144}"


def test_models_that_store_a_variable_differently_share_its_value_in_the_area(tmp_path: Path) -> None:
    write_models(tmp_path)
    for name in ("plain", "conv"):
        compile_model(tmp_path / f"{name}.json", tmp_path / f"{name}.om")
    session = Session(external_bytes=1 << 16)
    plain, conv = (session.load(tmp_path / f"{name}.om") for name in ("plain", "conv"))
    value = np.arange(72, dtype=np.float32).reshape(8, 1, 3, 3) - 30
    session.store.set_value("w", value)
    conv.run({"x": np.ones((1, 1, 8, 8), np.float32)})
    outputs = plain.run({})[0]
    assert np.array_equal(outputs["y:0"], np.maximum(value, 0))
    assert np.array_equal(session.store.value("w"), value)


@pytest.mark.parametrize("length", ["?", "3"], ids=["dynamic", "static"])
def test_variables_are_written_in_the_area(tmp_path: Path, length: str) -> None:
    from tests.runtime.test_variables_in_subgraphs import X, loaded

    text = """
        graph g(%x : f32[4] ND, %d : f32[LENGTH] ND) {
          %w = Variable() {VALUE} : f32[4] ND
          %a = AssignAdd(%w, %x) : f32[4] ND
          %e = Relu(%d) : f32[LENGTH] ND
          return %a, %e
        }
    """
    session = Session(external_bytes=4096)
    model = loaded(text.replace("LENGTH", length), tmp_path, session)
    start = session.store.value("w")
    model.run({"x": X, "d": np.ones(3, np.float32)})
    assert np.array_equal(session.store.value("w"), start + X)
    form = session.store["w"].current
    assert form is not None and np.shares_memory(form.view, form.memory._arena.bytes)  # type: ignore[attr-defined]  # the area


def test_the_memory_map_has_the_area(gecli, tmp_path: Path) -> None:
    write_models(tmp_path)
    assert gecli("compile", "conv.json", "-o", "conv.om").returncode == 0
    regions = json.loads(gecli("run", "conv.om", "--plan", "--json", "--external-var", "1M").stdout)
    assert regions["ok"] is True
    assert [row for row in regions["regions"] if row["kind"] in ("external", "variable")] == [
        {"kind": "external", "name": "area of --external-var", "address": VAR_LOGIC_BASE, "size_bytes": 1 << 20}
    ]
    done = gecli("run", "conv.om", "--external-var", "1M", "--mem-limit", "512K")
    assert done.returncode == 6 and "RT_OOM" in gecli("run", "conv.om", "--mem-limit", "1K", "--json").stdout


TRAIN_STEP = """
    graph step() {
      %w = Variable() {_init_value={"fill": "0000803f"}} : f32[4] ND
      %c = Const() {value={"fill": "00000040"}} : f32[4] ND
      %a = AssignAdd(%w, %c) : f32[4] ND
      return %a
    }
"""


def test_constants_that_are_stored_as_variables_are_in_the_memory_map(gecli, tmp_path: Path) -> None:
    write_json(parse(TRAIN_STEP), str(tmp_path / "step.json"))
    assert gecli("compile", "step.json", "-o", "step.om", "--train").returncode == 0
    for extra, kinds in (((), ["variable", "constant"]), (("--huge-page", "1"), ["variable", "constant", "pages"])):
        plan = json.loads(gecli("run", "step.om", "step.om", "--plan", "--json", *extra).stdout)
        rows = [row for row in plan["regions"] if row["kind"] in ("variable", "constant", "pages")]
        assert [row["kind"] for row in rows] == kinds
        assert rows[1]["address"] == rows[0]["address"] + rows[0]["size_bytes"]
        assert not extra or sum(row["size_bytes"] for row in rows) == GIB


# ------------------------------------------------------------------ placeholders


def placeholder(place: Path, *, blocked: bool = False, free: bool = False) -> Path:
    """An OM that adds the placeholder k to its input, or reads it blocked."""
    attrs: dict[str, Any] = {"expand_dim_rules": "", "dtype": 0, "addr": 4096, "placement": 1}
    if blocked:
        attrs |= {"origin_shape": list(ORIGIN), "origin_format": 0, "storage_shape": list(STORED), "storage_format": 3}
        output: dict[str, Any] = {"dtype": "DT_FLOAT", "shape": list(STORED), "format": "NC1HWC0"}
        output |= {"origin_shape": list(ORIGIN), "origin_format": "NCHW"}
    else:
        attrs |= {"origin_shape": [4], "origin_format": 2, "storage_shape": [4], "storage_format": 2}
        output = {"dtype": "DT_FLOAT", "shape": [4], "format": "ND"}
    attrs["size"] = 4 * int(np.prod(attrs["storage_shape"]))
    nodes = [{"id": "k", "type": "ConstPlaceHolder", "attrs": attrs, "outputs": [output]}]
    links = []
    if blocked:
        origin = {"dtype": "DT_FLOAT", "shape": list(ORIGIN), "format": "NCHW"}
        change = {"src_format": "NC1HWC0", "dst_format": "NCHW"}
        nodes.append({"id": "r", "type": "TransData", "attrs": change, "outputs": [origin]})
        links.append({"source": "k", "target": "r", "src_out": 0, "dst_in": 0})
    else:
        given = {"dtype": "DT_FLOAT", "shape": [-1, 4] if free else [4], "format": "ND"}
        nodes.append({"id": "x", "type": "Data", "attrs": {"index": 0}, "outputs": [given]})
        nodes.append({"id": "r", "type": "Add", "attrs": {}, "outputs": [given]})
        links += [{"source": name, "target": "r", "src_out": 0, "dst_in": slot} for slot, name in enumerate("xk")]
    document = {
        "gecli_graph": 1, "directed": True, "multigraph": True, "graph": {"name": "p", "outputs": ["r:0"]},
        "nodes": nodes, "links": links,
    }  # fmt: skip
    (place / "p.json").write_text(json.dumps(document))
    compile_model(place / "p.json", place / "p.om")
    return place / "p.om"


K = np.float32([1, 2, 3, 4])


@pytest.mark.parametrize("free", [False, True], ids=["static", "dynamic"])
def test_a_placeholder_has_the_data_that_are_given(tmp_path: Path, free: bool) -> None:
    om = placeholder(tmp_path, free=free)
    x = np.ones((2, 4) if free else 4, np.float32)
    model = Session(placeholders={"k": K}).load(om)
    assert model.placeholders == ("k",)
    for _ in range(2):
        assert np.array_equal(model.run({"x": x})[0]["r:0"], x + K)


def test_a_value_for_a_placeholder_of_another_name_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeFault, match="placeholder 'k'") as refused:
        Session(placeholders={"q": K}).load(placeholder(tmp_path))
    assert refused.value.first.why.endswith("; --placeholder names 'q', which the model does not have")


@pytest.mark.parametrize("free", [False, True], ids=["static", "dynamic"])
def test_a_placeholder_without_data_does_not_load(tmp_path: Path, free: bool) -> None:
    with pytest.raises(RuntimeFault, match="placeholder 'k'") as refused:
        Session().load(placeholder(tmp_path, free=free))
    found = refused.value.first
    assert (found.code, found.kind, found.node, found.do) == (
        "G4013", "RT_PLACEHOLDER_UNBOUND", "k", "--placeholder k=FILE.npy",
    )  # fmt: skip
    assert refused.value.exit_status == 6


@pytest.mark.parametrize("form", ["stored", "origin"])
def test_data_are_given_stored_or_in_the_origin_form(tmp_path: Path, form: str) -> None:
    om = placeholder(tmp_path, blocked=True)
    origin = np.arange(128, dtype=np.float32).reshape(ORIGIN)
    stored = np.zeros(STORED, np.float32)
    stored[0, 0, :, :, :8] = origin[0].transpose(1, 2, 0)
    model = Session(placeholders={"k": stored if form == "stored" else origin}).load(om)
    assert np.array_equal(model.run({})[0]["r:0"], origin)


@pytest.mark.parametrize("value", [np.zeros(5, np.float32), np.zeros(4, np.float64), np.zeros((4, 1), np.float32)])
def test_data_that_do_not_fit_are_refused(tmp_path: Path, value: NDArray[Any]) -> None:
    with pytest.raises(RuntimeFault, match=r"expected float32 \[4\]|does not fit") as refused:
        Session(placeholders={"k": value}).load(placeholder(tmp_path))
    assert refused.value.first.kind == "RT_INIT_VALUE_MISMATCH"


def test_the_runtime_takes_an_area_and_placeholders(tmp_path: Path) -> None:
    import gecli

    session = gecli.Runtime().session(1, external_bytes=64, placeholders={"k": K})
    model = session.load(placeholder(tmp_path))
    assert np.array_equal(model.run({"x": K})[0]["r:0"], K + K)
    assert session.external_bytes == 64


def test_a_placeholder_is_no_variable_of_the_area_and_its_address_goes_through_a_session(tmp_path: Path) -> None:
    om = placeholder(tmp_path)
    session = Session(external_bytes=0, placeholders={"k": K})
    session.load(om)
    assert session.table is not None
    manager = session.table.manager
    (block,) = manager.resource.blocks
    assert (block.name, block.device_address, block.is_external) == ("k", 4096, True)
    assert (manager.hbm.used_bytes, manager.hbm.variable_bytes) == (1536, 0)
    going_on = Session(table=SessionTable(manager))
    with pytest.raises(RuntimeFault, match="placeholder 'k'"):
        going_on.load(om)  # the address that the session knows is not followed


def test_the_command_names_placeholders_and_their_faults(gecli, tmp_path: Path) -> None:
    placeholder(tmp_path)
    np.save(tmp_path / "k.npy", K)
    done = gecli("run", "p.om", "--placeholder", "k=k.npy", "--fill", "zeros", "-o", "out.npz")
    assert done.returncode == 0 and np.array_equal(np.load(tmp_path / "out.npz")["r:0"], K)
    assert gecli("run", "p.om").returncode == 6
    stranger = gecli("run", "p.om", "--placeholder", "k=k.npy", "--placeholder", "kk=k.npy")
    assert stranger.returncode == 2 and "--placeholder k=FILE.npy" in stranger.stderr
    twice = gecli("run", "p.om", "--placeholder", "k=k.npy", "--placeholder", "k=k.npy")
    assert twice.returncode == 2 and "twice" in twice.stderr
    over = gecli("run", "p.om", "--placeholder", "k=k.npy", "--save-inputs", "k.npy")
    assert over.returncode == 2 and "E10047" in over.stderr
    golden = gecli("run", "p.om", "--placeholder", "k=k.npy", "--compare", "p.json")
    assert golden.returncode == 2 and "placeholder 'k'" in golden.stderr
    same = gecli("run", "p.om", "--placeholder", "k=k.npy", "--compare", "p.om")
    assert same.returncode == 0, same.stderr


@pytest.mark.parametrize("change", [{"placement": 0}, {"addr": 0}, {"size": 15}])
def test_a_placeholder_that_says_nothing_usable_does_not_compile(tmp_path: Path, change: dict[str, int]) -> None:
    placeholder(tmp_path)
    document = json.loads((tmp_path / "p.json").read_text())
    document["nodes"][0]["attrs"] |= change
    (tmp_path / "p.json").write_text(json.dumps(document))
    with pytest.raises(Exception, match="ConstPlaceHolder 'k' cannot be placed") as refused:
        compile_model(tmp_path / "p.json", tmp_path / "q.om")
    assert not isinstance(refused.value, InputError | AssertionError)


def test_numbers_of_the_attributes_are_those_of_ge() -> None:
    assert (DataType.FLOAT, Format.NCHW, Format.ND, Format.NC1HWC0) == (0, 0, 2, 3)


# ------------------------------------------------------------------ pages, and when variables have memory


@pytest.mark.parametrize(
    ("mode", "limit", "unused"),
    [
        (1, None, 2 * GIB - 1280 * MIB),
        (1, 2 * GIB, 2 * GIB - 1280 * MIB),
        (1, 2 * GIB - 1, None),  # the second variable crosses into a page that is not there
        (2, 2 * GIB, 2 * GIB - 1280 * MIB),
        (2, 1500 * MIB, 256 * MIB),  # neither a page nor a chunk of 1 GiB is left: exactly what the second takes
    ],
)
def test_variables_take_whole_pages_of_a_gibibyte(mode: int, limit: int | None, unused: int | None) -> None:
    regions = [Region("variable", name, None, size) for name, size in (("a", 768 * MIB), ("b", 512 * MIB))]
    if unused is None:
        with pytest.raises(RuntimeFault, match="no page of 1 GiB is left for variable 'b'") as refused:
            with_pages(regions, HugePages(mode), limit)
        assert (refused.value.first.kind, refused.value.exit_status) == ("RT_PAGE_1G_FAILED", 6)
        return
    *kept, pages = with_pages(regions, HugePages(mode), limit)
    assert kept == regions
    assert (pages.kind, pages.size_bytes) == ("pages", unused)


def test_pages_of_a_gibibyte_are_charged_to_the_device(gecli, tmp_path: Path) -> None:
    write_models(tmp_path)
    assert gecli("compile", "conv.json", "-o", "conv.om").returncode == 0
    assert gecli("run", "conv.om", "--mem-limit", "512M").returncode == 0
    failed = gecli("run", "conv.om", "--mem-limit", "512M", "--huge-page", "1", "--json")
    assert failed.returncode == 6
    assert json.loads(failed.stdout)["errors"][0]["kind"] == "RT_PAGE_1G_FAILED"
    assert gecli("run", "conv.om", "--mem-limit", "512M", "--huge-page", "2").returncode == 0
    plan = json.loads(gecli("run", "conv.om", "--plan", "--huge-page", "1", "--json").stdout)
    sizes = {row["kind"]: row["size_bytes"] for row in plan["regions"]}
    assert sizes["variable"] + sizes["pages"] == GIB
    assert plan["total_bytes"] == sum(sizes.values())


def test_the_document_says_how_far_each_variable_is(gecli, tmp_path: Path) -> None:
    write_models(tmp_path)
    assert gecli("compile", "bare.json", "conv.json", "-o", "bare/", "--session-out", "bare.bin").returncode == 0
    words = ("run", "bare/bare.om", "bare/conv.om", "--order", "bare/conv.om", "--json")
    states = {name: row["state"] for name, row in json.loads(gecli(*words).stdout)["variables"].items()}
    assert states == {"v": "allocated", "w": "initialised"}, "bare.om reads v, but nothing ran it"
    words = ("run", "bare/conv.om", "--session-in", "bare.bin", "--get-var", "v=v.npy", "--raw-format", "--json")
    states = {name: row["state"] for name, row in json.loads(gecli(*words).stdout)["variables"].items()}
    assert states["w"] == "initialised" and states["v"] == "allocated"


@pytest.mark.parametrize("words", [("--eager-vars",), ("--isolate-io",), ("--deterministic", "strict")])
def test_what_the_simulator_always_does_is_recorded(gecli, tmp_path: Path, words: tuple[str, ...]) -> None:
    write_models(tmp_path)
    assert gecli("compile", "conv.json", "-o", "conv.om").returncode == 0
    done = gecli("run", "conv.om", *words, "-v")
    assert done.returncode == 0
    assert f"recorded, no effect here: {words[0].removeprefix('--')}" in done.stderr
