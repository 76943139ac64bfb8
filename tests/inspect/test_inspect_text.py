"""What the text of the views says, in words that are true of the file at hand."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from gecli.artifacts.om_file import read_om
from gecli.artifacts.partition_table import PartitionType
from tests.artifacts.spec_om import om_v1

from .conftest import REAL, REPOSITORY, Files, Inspect, compiled, model_def, wide_om

MOBILE = {"conv_merged_offset": "18.4 KiB in 1 constant", "resnet20_quant8": "267.6 KiB in 44 constants"}
LONG = "generation/decoder/" * 5 + "kernel"


@pytest.mark.parametrize("name", MOBILE)
def test_the_weights_of_a_mobile_file_are_counted_where_it_does_not_record_them(name: str, inspect: Inspect) -> None:
    path = REAL / f"hiai-{name}.om"
    shown = inspect(path).out
    assert f"memory     features laid out at run time, weights {MOBILE[name]}" in shown
    facts = json.loads(inspect(path, "--summary", "--json").out)
    rows = json.loads(inspect(path, "--tensors", "--json").out)["tensors"]
    assert facts["held_weights"]["count"] == len(rows)
    assert facts["held_weights"]["bytes"] == sum(row["bytes"] for row in rows)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("batchnorm", "16 B and more (weights 16 B; features are laid out at run time)"),
        ("resnet20_quant8", "267.6 KiB and more (weights 267.6 KiB; features are laid out at run time)"),
    ],
)
@pytest.mark.parametrize("bare", [False, True])
def test_the_weights_of_a_mobile_model_are_needed_with_and_without_its_om(
    name: str, told: str, bare: bool, tmp_path: Path, inspect: Inspect
) -> None:
    path = REAL / f"hiai-{name}.om"
    if bare:
        om = read_om(path)
        part = om.root.partition(PartitionType.MODEL_DEF)
        assert part is not None
        path = tmp_path / "model.pb"
        path.write_bytes(om.read(part))
    assert f"\nneeds      memory: {told}\n" in inspect(path).out


@pytest.mark.parametrize(
    ("name", "told", "sizes"),
    [
        ("2020-conv_pad", "features 4.0 MiB (of it inputs 8.0 KiB and outputs 2.0 MiB), weights", (8192, 2097152)),
        ("2021-a3c_pong", "features 88.5 KiB (of it inputs 6.9 KiB and outputs 4 B), weights", (7056, 4)),
        ("2022-vae", "features 5.7 MiB (of it inputs 306.2 KiB and outputs 306.2 KiB), weights", (313600, 313600)),
    ],
)
def test_inputs_and_outputs_in_feature_memory_are_counted_each(
    name: str, told: str, sizes: tuple[int, int], inspect: Inspect
) -> None:
    path = REAL / f"ascend310-{name}.om"
    assert f"memory     {told}" in inspect(path).out
    ends = json.loads(inspect(path, "--summary", "--json").out)["feature_io"]
    assert (ends["inputs"], ends["outputs"]) == sizes


def ends_model(size: int, output: str) -> bytes:
    """A graph of an input at 0, a variable behind feature memory and an output of `output` there."""
    desc = 'dtype: DT_FLOAT layout: "ND" shape { dim: 256 }'
    return model_def(
        f"""name: "m" attr {{ key: "memory_size" value {{ i: {size} }} }}
        graph {{ name: "g"
          op {{ name: "x" type: "Data" output_desc {{ {desc} }} output_i: 0 }}
          op {{ name: "v" type: "Variable" id: 1 output_desc {{ {desc} }} output_i: 137438953472 }}
          op {{ name: "r" type: "Relu" id: 2 input: "x:0" input_i: 0 output_desc {{ {desc} }} output_i: 1024 }}
          op {{ name: "out" type: "NetOutput" id: 3 {output} }} }}"""
    )


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [(["r"], 1024), (["r", "r"], 1024), (["v"], 0), (["r", "v"], 1024)],
)
def test_an_output_counts_once_and_a_variable_does_not(
    nodes: list[str], expected: int, tmp_path: Path, inspect: Inspect
) -> None:
    place = {"r": 1024, "v": 137438953472}
    desc = 'input_desc { dtype: DT_FLOAT layout: "ND" shape { dim: 256 } }'
    output = " ".join(f'input: "{node}:0" input_i: {place[node]} {desc}' for node in nodes)
    (tmp_path / "m.om").write_bytes(wide_om((0, ends_model(4096, output))))
    ends = json.loads(inspect("m.om", "--summary", "--json").out)["feature_io"]
    assert ends == {"inputs": 1024, "outputs": expected}


def test_the_features_of_a_model_of_dynamic_shapes_are_laid_out_at_run_time(tmp_path: Path, inspect: Inspect) -> None:
    model = REPOSITORY / "samples" / "digits" / "digits.onnx"
    compiled(tmp_path, str(model), "-o", "dynamic", "--input-shape", "image:-1,1,8,8")
    lines = inspect("dynamic.om").out.splitlines()
    memory = next(line for line in lines if line.startswith("memory"))
    needs = next(line for line in lines if line.startswith("needs      memory"))
    assert "laid out at run time" in memory and "0 B" not in memory
    assert "and more" in needs and "features are laid out at run time" in needs


def test_both_sides_of_a_conversion_at_an_end_of_the_model_are_shown(inspect: Inspect) -> None:
    shown = inspect(REAL / "hiai-softmax_v100.om", "--io").out
    assert "output 0 is given to the caller as FLOAT NCHW [3,10]" in shown
    assert "input 0 is FLOAT16 NCHW [3,10] inside the model" in shown
    facts = json.loads(inspect(REAL / "hiai-softmax_v100.om", "--io", "--json").out)
    other = facts["outputs"][0]["other_side"]
    assert (facts["outputs"][0]["dtype"], other["dtype"], other["format"]) == ("DT_FLOAT16", "DT_FLOAT", "NCHW")
    plain = json.loads(inspect(REAL / "ascend310-2020-conv_pad.om", "--io", "--json").out)
    assert [row["other_side"] for row in plain["inputs"] + plain["outputs"]] == [None] * 2


def named_model(name: str) -> bytes:
    return model_def(
        f"""name: "m"
        graph {{ name: "g"
          op {{ name: "x" type: "Data" output_desc {{ dtype: DT_FLOAT layout: "ND" shape {{ dim: 2 }} }} }}
          op {{ name: "{name}" type: "Relu" id: 1 input: "x:0"
                output_desc {{ dtype: DT_FLOAT layout: "ND" shape {{ dim: 2 }} }} }}
          op {{ name: "out" type: "NetOutput" id: 2 input: "{name}:0"
                input_desc {{ dtype: DT_FLOAT layout: "ND" shape {{ dim: 2 }} }} }} }}"""
    )


def test_a_long_name_is_whole_and_widens_its_own_row_only(tmp_path: Path, inspect: Inspect) -> None:
    (tmp_path / "long.om").write_bytes(wide_om((0, named_model(LONG))))
    lines = inspect("long.om", "--nodes").out.splitlines()
    row = next(line for line in lines if " Relu " in line)
    assert LONG in row.split() and f"{LONG}:0" in lines[-1] and f"{LONG}:0" in lines[1]
    assert all(line == line.rstrip() for line in lines)
    assert len(lines[0]) < 100 and len(row) < 300
    assert inspect("long.om", "--nodes", "--name", LONG).out.count(LONG) == 1


def test_lines_of_a_real_file_stay_short_but_for_long_names(inspect: Inspect) -> None:
    path = REAL / "ascend310-2022-vae.om"
    lines = inspect(path, "--tasks").out.splitlines()
    nodes = [row["name"] for row in json.loads(inspect(path, "--nodes", "--json").out)["nodes"]]
    text = inspect(path, "--nodes").out
    assert all(name in text for name in nodes)
    assert all(len(line) < 360 for line in lines)


def test_values_that_attributes_hide_are_said_to_be_in_the_document(inspect: Inspect) -> None:
    path = REAL / "hiai-softmax_lite_npucl.om"
    detail = inspect(path, "--nodes", "--show", "attrs").out
    assert "attr subgraph = <graph, 1497 bytes: --json has it>" in detail
    aipp = inspect(REAL / "hiai-aipp.om", "--nodes", "--show", "attrs").out
    assert "attr aipp = (... --json has " in aipp and "(...)" not in aipp
    note = "has a graph of 1497 bytes in its attribute subgraph; --json shows what is in it"
    assert all(note in inspect(path, *words).out for words in ([], ["--nodes"]))
    nested = json.loads(inspect(path, "--summary", "--json").out)["nested_graphs"]
    assert [(row["attr"], row["bytes"]) for row in nested] == [("subgraph", 1497)]
    whole = inspect(path, "--json").out
    assert '"subgraph"' in whole and whole.count('"op') > inspect(REAL / "hiai-relu.om", "--json").out.count('"op')


def test_what_is_missing_is_said_in_whole_sentences(inspect: Inspect) -> None:
    shown = inspect(REAL / "hiai-relu.om", "--target", "Ascend310")
    assert "does not load on Ascend310: only the mobile (HiAI) tools load it" in shown.out
    assert "and 1 more type\n" in inspect(REAL / "hiai-resnet20_quant8.om").out


def test_kernels_and_tasks_that_are_not_there_are_told_from_those_that_cannot_be_read(
    tmp_path: Path, inspect: Inspect
) -> None:
    model = named_model("a")
    (tmp_path / "none.om").write_bytes(wide_om((0, model)))
    (tmp_path / "bad.om").write_bytes(wide_om((0, model), (2, b"\xff" * 7), (3, b"\xff" * 9)))
    assert inspect("none.om", "--tasks").out == "model 0: no TASK_INFO\n"
    assert inspect("none.om", "--kernels").out == "no kernels: the file has no store of them\n"
    for view, text in (("--tasks", "TASK_INFO of 7 bytes cannot be read"), ("--kernels", "that can be read in")):
        shown = inspect("bad.om", view)
        assert text in shown.out and "warning[" in shown.err
    assert inspect(REAL / "hiai-relu.om", "--tasks").out == "model 0: no TASK_INFO\n"
    assert "mobile (HiAI)" in inspect(REAL / "hiai-relu.om", "--kernels").out
    data = bytearray(om_v1([(0, model), (2, bytes(7))], modeltype=3))
    (tmp_path / "mobile.om").write_bytes(data)
    assert (
        "TASK_INFO of 7 bytes, of which nothing is known in mobile (HiAI) files" in inspect("mobile.om", "--tasks").out
    )


def test_arguments_of_a_task_that_are_left_out_are_counted(inspect: Inspect) -> None:
    document = json.loads(inspect(REAL / "ascend310-2022-vae.om", "--tasks", "--json").out)
    counts = [len(task["args"]) - 6 for task in document["models"][0]["tasks"] if len(task["args"]) > 6]
    shown = inspect(REAL / "ascend310-2022-vae.om", "--tasks").out
    assert counts and [int(count) for count in re.findall(r"and (\d+) more$", shown, re.MULTILINE)] == counts


def test_what_gecli_itself_wrote_is_recognised(tmp_path: Path, inspect: Inspect) -> None:
    model = REPOSITORY / "samples" / "digits" / "digits.onnx"
    compiled(tmp_path, str(model), "-o", "d", "--input-shape", "image:1,1,8,8", "--emit", "readable,report",
             "--dump-graph", "dumps")  # fmt: skip
    report = inspect("d.report.json")
    assert (report.status, "a document of gecli (gecli.compile/1)" in report.err) == (3, True)
    texts = [tmp_path / "d.txt", *sorted((tmp_path / "dumps").rglob("ge_readable_*.txt"))]
    assert len(texts) > 1
    for path in texts:
        shown = inspect(path)
        assert (shown.status, "the text of a graph that gecli wrote" in shown.err) == (3, True), path
        assert "encrypt" not in shown.err


@pytest.mark.parametrize("kind", ["text", "zeros", "noise", "cipher"])
def test_only_what_looks_encrypted_is_said_to_look_so(kind: str, tmp_path: Path, inspect: Inspect) -> None:
    source = random.Random(7)
    contents = {"text": b"dear diary\n" * 2000, "zeros": bytes(32768), "noise": source.randbytes(10_001),
                "cipher": source.randbytes(16_000)}  # fmt: skip
    (tmp_path / "file.om").write_bytes(contents[kind])
    shown = inspect("file.om")
    assert (shown.status, "encryption" in shown.err) == (3, kind == "cipher")
    assert ("this is text" in shown.err) is (kind == "text")


def test_the_encrypted_file_is_said_to_look_so(inspect: Inspect) -> None:
    assert "as after an encryption by a third party" in inspect(REAL / "encrypted-2020-conv_pad.om").err


def test_why_one_file_is_extracted_from(inspect: Inspect, digits_om: Path, files: Files) -> None:
    shown = inspect(digits_om, files["ge-text"], "--extract", "all", "--to", "out")
    assert (shown.status, "why: 2 files are given" in shown.err) == (2, True)


def test_extraction_says_what_it_writes_beside_the_arrays(inspect: Inspect, digits_om: Path) -> None:
    shown = inspect(digits_om, "--extract", "all", "--to", "out").out
    assert shown.splitlines()[-1] == (
        "12 tensors written, each with its description in a .json beside it, all of them in manifest.json"
    )
    written = {path.name for path in Path("out").iterdir()}
    assert len(written) == 25 and "manifest.json" in written
