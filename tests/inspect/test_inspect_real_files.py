"""Every view on every real file, whole and cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import REAL, Inspect, model_def, wide_om

ALL_REAL = sorted(path.name for path in REAL.glob("*.om"))
READABLE = [name for name in ALL_REAL if not name.startswith("encrypted")]
VIEWS = {
    "summary": ["--summary"], "info": ["--info"], "atc-json": ["--atc-json"], "tensors": ["--tensors", "--stats"],
    "nodes": ["--nodes", "--show", "attrs,weights,io,edges"], "vars": ["--vars", "--map"], "io": ["--io"],
    "partitions": ["--partitions"], "tasks": ["--tasks"], "kernels": ["--kernels"], "options": ["--options"],
    "hex": ["--hex", "MODEL_DEF:0:64"], "model": ["--json"],
}  # fmt: skip
# name: (nodes, inputs, outputs, tensors); om-format.md 12
FACTS = {
    "ascend310-2020-conv_pad.om": (10, 1, 1, 2),
    "ascend310-2021-a3c_pong.om": (25, 1, 1, 11),
    "ascend310-2022-vae.om": (46, 1, 1, 17),
}


def test_there_are_thirteen_real_files() -> None:
    assert len(ALL_REAL) == 13


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", READABLE)
def test_every_view_of_a_real_file_ends_well_without_a_word_on_stderr(name: str, view: str, inspect: Inspect) -> None:
    shown = inspect(REAL / name, *VIEWS[view])
    assert (shown.status, shown.err) == (0, "")
    assert shown.out


@pytest.mark.parametrize("name", FACTS)
def test_the_counts_of_a_real_file_are_those_of_the_specification(name: str, inspect: Inspect) -> None:
    summary = json.loads(inspect(REAL / name, "--summary", "--json").out)
    tensors = json.loads(inspect(REAL / name, "--tensors", "--json").out)
    counts = (summary["node_count"], len(summary["io"]["inputs"]), len(summary["io"]["outputs"]), tensors["count"])
    assert counts == FACTS[name]


def test_the_weights_of_a3c_pong_have_the_bytes_that_its_descriptors_state(inspect: Inspect) -> None:
    shown = json.loads(inspect(REAL / "ascend310-2021-a3c_pong.om", "--tensors", "--json").out)
    assert {row["stored"] for row in shown["tensors"]} == {"WEIGHTS_DATA"}
    assert all(row["partition_offset"] % 512 == 0 and row["partition_offset"] for row in shown["tensors"])


def test_the_info_of_a_four_entry_list_leaves_out_the_library_store(inspect: Inspect) -> None:
    shown = inspect(REAL / "ascend310-2022-vae.om", "--info").out
    assert "weight_data_size[386560 B], tbe_kernels_size[64667 B], cust_aicpu_kernel_store_size[0 B]" in shown
    assert "so_store_size" not in shown


def test_a_file_without_the_size_list_shows_the_table_and_says_so(inspect: Inspect) -> None:
    shown = inspect(REAL / "hiai-relu.om", "--info")
    assert (shown.status, shown.out.count("om_info_list missing, sizes from the partition table")) == (0, 1)
    assert "stream_num[0]" in shown.out


@pytest.mark.parametrize(
    ("stated", "note"),
    [
        ("", "om_info_list missing"), ("list { i: [512, 0, 0, 0] val_type: VT_LIST_INT }", None),
        ("list { i: [1, 2, 3] val_type: VT_LIST_INT }", "om_info_list is not a list of 4 or 5 sizes"),
        ('s: "512"', "om_info_list is not a list of 4 or 5 sizes"),
        ('list { s: "a" s: "b" s: "c" s: "d" val_type: VT_LIST_STRING }', "om_info_list is not a list of 4 or 5 sizes"),
    ],
)  # fmt: skip
def test_a_size_list_of_another_form_is_not_called_missing(
    stated: str, note: str | None, tmp_path: Path, inspect: Inspect
) -> None:
    attr = f'attr {{ key: "om_info_list" value {{ {stated} }} }}' if stated else ""
    (tmp_path / "m.om").write_bytes(wide_om((0, model_def(f'name: "m" graph {{ name: "g" }} {attr}')), (1, bytes(512))))
    shown = inspect("m.om", "--info")
    assert (shown.status, shown.err) == (0, "")
    notes = [line for line in shown.out.splitlines() if line.startswith("note: ")]
    assert notes == ([] if note is None else [f"note: {note}, sizes from the partition table"])


def test_sizes_that_differ_are_a_warning_each_with_file_and_offset(tmp_path: Path, inspect: Inspect) -> None:
    attr = 'attr { key: "om_info_list" value { list { i: [512, 7, 0, 0, 9] val_type: VT_LIST_INT } } }'
    (tmp_path / "m.om").write_bytes(wide_om((0, model_def(f'name: "m" graph {{ name: "g" }} {attr}')), (1, bytes(512))))
    said = [line for line in inspect("m.om", "--info").err.splitlines() if line.startswith("warning")]
    assert said == [
        f"warning[G3003]: m.om: bad-partition: om_info_list says {name} is {size} bytes, "
        "the partition table 0 (offset 312)"
        for name, size in (("tbe_kernels_size", 7), ("so_store_size", 9))
    ]


def test_a_missing_number_is_minus_one_in_text_and_null_in_json(inspect: Inspect) -> None:
    text = inspect(REAL / "hiai-batchnorm.om", "--info").out
    resource = json.loads(inspect(REAL / "hiai-batchnorm.om", "--info", "--json").out)["resource"]
    missing = [name for name, value in resource.items() if value is None]
    for name in missing:
        assert f"{name}[-1" in text


@pytest.mark.parametrize("view", ["--summary", "--info", "--nodes", "--json", "--salvage"])
def test_a_file_encrypted_by_a_third_party_is_named_as_no_om(view: str, inspect: Inspect) -> None:
    shown = inspect(REAL / "encrypted-2020-conv_pad.om", view)
    assert shown.status == 3
    assert "encrypted-2020-conv_pad.om: not-om" in shown.err
    assert "Traceback" not in shown.err


def test_the_encrypted_flag_of_a_header_is_reported_by_its_kind(tmp_path: Path, inspect: Inspect) -> None:
    data = bytearray((REAL / "hiai-relu.om").read_bytes())
    data[80] = 1
    (tmp_path / "secret.om").write_bytes(data)
    shown = inspect("secret.om")
    assert (shown.status, "encrypted" in shown.err) == (3, True)


@pytest.mark.parametrize("name", ["ascend310-2020-conv_pad.om", "ascend310-2022-vae.om", "hiai-conv_merged_offset.om"])
@pytest.mark.parametrize("options", [[], ["--salvage"], ["--json"]], ids=["plain", "salvage", "json"])
def test_a_cut_file_is_refused_in_words_at_every_length(
    name: str, options: list[str], tmp_path: Path, inspect: Inspect
) -> None:
    whole = (REAL / name).read_bytes()
    for k in range(50):
        (tmp_path / "cut.om").write_bytes(whole[: len(whole) * k // 50])
        shown = inspect("cut.om", *options)
        assert shown.status == 3, k
        assert "error[G" in shown.err and "G9999" not in shown.err, k


def test_damaged_bytes_never_end_in_a_crash(tmp_path: Path, inspect: Inspect) -> None:
    whole = bytearray((REAL / "hiai-conv_merged_offset.om").read_bytes())
    for k in range(256, 2400, 37):
        damaged = bytearray(whole)
        damaged[k] ^= 0xFF
        (tmp_path / "damaged.om").write_bytes(damaged)
        for view in (["--json"], ["--nodes", "--show", "attrs,io"], ["--tensors", "--stats"], ["--summary"]):
            shown = inspect("damaged.om", *view)
            assert shown.status in (0, 3), (k, view, shown.err)


def test_salvage_lists_the_partitions_of_a_cut_file_and_the_model_that_is_whole(
    tmp_path: Path, inspect: Inspect
) -> None:
    whole = (REAL / "ascend310-2022-vae.om").read_bytes()
    (tmp_path / "cut.om").write_bytes(whole[:200_000])
    shown = inspect("cut.om", "--salvage")
    assert shown.status == 3
    assert "model hh_om: 46 nodes, MODEL_DEF is whole" in shown.out
    assert "truncated" in shown.err
    row = next(line.split() for line in shown.out.splitlines() if "WEIGHTS_DATA" in line)
    assert row == ["1", "WEIGHTS_DATA", "154938", "386560", str(200_000 - 154_938)]


@pytest.mark.parametrize("name", ["ascend310-2020-conv_pad", "ascend310-2021-a3c_pong", "ascend310-2022-vae"])
def test_outputs_are_named_as_a_run_names_them(name: str, inspect: Inspect) -> None:
    from gecli.artifacts.om_file import read_om
    from gecli.runtime.interface import model_outputs

    path = REAL / f"{name}.om"
    model = read_om(str(path)).model(0)
    run = [output.name for output in model_outputs(list(model.root.nodes), model.attrs)]
    rows = json.loads(inspect(path, "--io", "--json").out)["outputs"]
    assert [row["name"] for row in rows] == run


def test_a_name_that_a_query_makes_longer_is_shown_too(inspect: Inspect) -> None:
    shown = inspect(REAL / "ascend310-2020-conv_pad.om", "--io")
    assert shown.out.splitlines()[2:4] == [
        "output 0  output  FLOAT  NCHW    [1,256,1,2048]  NCHW           [1,256,1,2048]  2097152",
        "output 0 is output:0 in a query of the model on a device",
    ]
