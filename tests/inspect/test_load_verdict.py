"""`inspect-om --summary`: what a model needs to be loaded, and whether a chip and a version have it."""

from __future__ import annotations

import json
import os
import platform
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gecli.artifacts.rdcpkt import read_rdcpkt, write_rdcpkt
from gecli.report.inspect.load_needs import Version, cann_version
from gecli.variables.var_match import VarMatch
from tests.artifacts.spec_om import om_narrow

from .conftest import REAL, REPOSITORY, Inspect, model_def, wide_om

VAE = REAL / "ascend310-2022-vae.om"  # Ascend310, atc 1.80.T15 (CANN 5.0.4), header v2
PONG = REAL / "ascend310-2021-a3c_pong.om"  # no chip recorded, atc 1.75.22


def summary(inspect: Inspect, *words: str | Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(inspect(*words, "--summary", "--json").out)
    return document


def need(document: dict[str, Any], what: str) -> dict[str, Any]:
    found: dict[str, Any] = next(row for row in document["needs"] if row["what"] == what)
    return found


@pytest.mark.parametrize(
    ("path", "words", "status", "answer"),
    [
        (VAE, ["--target", "Ascend310"], 0, "loads on Ascend310"),
        (VAE, ["--target", "Ascend310P3"], 1, "does not load on Ascend310P3: it is compiled for Ascend310, not for"),
        (VAE, ["--target", "Ascend310", "--for-version", "5.0.4"], 0, "loads on Ascend310 with version 5.0.4"),
        (VAE, ["--target", "Ascend310", "--for-version", "8.0.RC1"], 0, "loads on Ascend310 with version 8.0.RC1"),
        (
            VAE,
            ["--target", "Ascend310", "--for-version", "5.0.3"],
            1,
            "it was written by atc 1.80.T15.0.B156, and 5.0.3 is older",
        ),
        (VAE, ["--for-version", "5.1.RC1"], 0, "loads with version 5.1.RC1"),
        (PONG, ["--target", "Ascend310"], 0, "may load on Ascend310: the file does not say which chip"),
        (PONG, ["--for-version", "1.75.22.0.220"], 0, "loads with version 1.75.22.0.220"),
        (PONG, ["--for-version", "1.74"], 0, "loads with version 1.74"),
        (VAE, ["--for-version", "1.80.T15.0.B156"], 0, "loads with version 1.80.T15.0.B156"),
        (VAE, ["--for-version", "1.80.T15.1"], 0, "loads with version 1.80.T15.1"),
        (VAE, ["--for-version", "1.80.0.1"], 0, "loads with version 1.80.0.1"),
        (VAE, ["--for-version", "1.80.T15.0.B150"], 1, "by atc 1.80.T15.0.B156, and 1.80.T15.0.B150 is older"),
        (VAE, ["--for-version", "1.80.T14.0.B200"], 1, "by atc 1.80.T15.0.B156, and 1.80.T14.0.B200 is older"),
        (VAE, ["--for-version", "1.80"], 0, "may load with version 1.80: 1.80 does not say whether it is as new as"),
    ],
)
def test_the_verdict_on_a_real_file(path: Path, words: list[str], status: int, answer: str, inspect: Inspect) -> None:
    shown = inspect(path, *words)
    assert (shown.status, shown.err) == (status, "")
    assert answer in shown.out.splitlines()[-1]


def test_what_is_needed_agrees_with_the_verdict_on_a_header_that_every_version_reads(inspect: Inspect) -> None:
    for words in ([], ["--for-version", "1.74"], ["--for-version", "8.0.0"]):
        assert "needs      version: any (header v1 is read by every version)" in inspect(PONG, *words).out
    assert need(summary(inspect, PONG), "version")["found"] is None


def test_the_release_of_cann_stands_beside_the_number_of_the_writer(inspect: Inspect) -> None:
    assert "needs      version: atc 1.80.T15.0.B156 (CANN 5.0.4) or later (its writer)" in inspect(VAE).out


@pytest.mark.parametrize("version", ["20.0", "20.1", "20.1.RC1", "CANN 20.2", "21.0.2", "24.1.rc2"])
def test_a_version_that_is_in_no_order_with_those_of_cann_is_refused(version: str, inspect: Inspect) -> None:
    shown = inspect(VAE, "--for-version", version)
    assert (shown.status, f"value '{version}' for --for-version is invalid" in shown.err) == (2, True)
    assert "CANN 20.x of the year 2020 and drivers" in shown.err and "the number of atc" in shown.err


def test_the_answer_is_also_in_the_document(inspect: Inspect) -> None:
    verdict = summary(inspect, VAE, "--target", "Ascend910")["verdict"]
    assert (verdict["loads"], verdict["target"], verdict["for_version"]) == (False, "Ascend910", None)
    assert summary(inspect, VAE, "--target", "Ascend310")["verdict"]["loads"] is True
    assert summary(inspect, VAE)["verdict"]["loads"] is None


@pytest.mark.parametrize(
    "words", [["--target", "Ascend910"], ["--for-version", "5.0.3"], ["--target", "Ascend910", "--for-version", "5"]]
)
def test_the_reasons_against_loading_are_problems_of_the_document(words: list[str], inspect: Inspect) -> None:
    shown = summary(inspect, VAE, *words)
    reasons = [row["why"] for row in shown["needs"] if row["found"] is False]
    assert reasons and shown["verdict"]["problems"] == reasons
    assert (shown["verdict"]["loads"], shown["verdict"]["sound"]) == (False, True)


def test_a_model_that_loads_has_no_problems(inspect: Inspect) -> None:
    assert summary(inspect, VAE, "--target", "Ascend310")["verdict"]["problems"] == []


def test_the_line_on_the_file_counts_its_faults_only(tmp_path: Path, inspect: Inspect, digits_om: Path) -> None:
    data = bytearray(digits_om.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "changed.om").write_bytes(data)
    verdict = summary(inspect, "changed.om", "--target", "Ascend310")["verdict"]
    assert (verdict["sound"], len(verdict["problems"])) == (False, 2)
    assert "verdict    1 problem, payload digest wrong" in inspect("changed.om", "--target", "Ascend310").out


def test_a_chip_of_the_same_family_is_an_open_question(inspect: Inspect, digits_om: Path) -> None:
    shown = inspect(digits_om, "--target", "Ascend910B3")
    assert shown.status == 0
    assert "may load on Ascend910B3: Ascend910B3 is of the same family" in shown.out
    assert inspect(digits_om, "--target", "Ascend910").status == 1
    assert inspect(digits_om, "--target", "Ascend910_9391").status == 1


def test_an_own_file_says_that_gecli_run_loads_it(inspect: Inspect, digits_om: Path) -> None:
    shown = inspect(digits_om, "--target", "Ascend910B1", "--for-version", "8.0.0")
    assert (shown.status, shown.out.splitlines()[-1].strip()) == (
        0,
        "loads on Ascend910B1 with version 8.0.0, in gecli run",
    )
    assert "needs      loader: gecli run (its tasks are simulated: no device executes them)" in shown.out
    old = inspect(digits_om, "--for-version", "5.1")
    assert (old.status, "its wide partition table needs CANN 7.0.0, and 5.1 is older" in old.out) == (1, True)
    assert inspect(digits_om, "--for-version", "gecli 0.1.0").status == 0


def test_a_file_that_is_not_sound_does_not_load(tmp_path: Path, inspect: Inspect, digits_om: Path) -> None:
    data = bytearray(digits_om.read_bytes())
    data[-1] ^= 1
    (tmp_path / "changed.om").write_bytes(data)
    shown = inspect("changed.om", "--target", "Ascend910B1")
    assert (shown.status, "does not load on Ascend910B1" in shown.out) == (1, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "Ascend310PX"], "no SoC has this name"),
        (["--target", "chip"], "no SoC has this name"),
        (["--for-version", "new"], "value 'new' for --for-version is invalid"),
        (["--nodes", "--target", "Ascend310"], "--target belongs to --summary"),
        (["--json", "--for-version", "8.0"], "--for-version belongs to --summary"),
    ],
)
def test_a_place_that_cannot_be_is_a_usage_error(words: list[str], message: str, inspect: Inspect) -> None:
    shown = inspect(VAE, *words)
    assert (shown.status, message in shown.err) == (2, True)


def test_memory_is_the_sum_of_its_parts(inspect: Inspect, conv_train_om: Path) -> None:
    document = summary(inspect, conv_train_om)
    parts = [document["memory"]["memory_size"], document["memory"]["weight_size"], document["variables"]["bytes"]]
    assert need(document, "memory")["bytes"] == sum(parts)
    assert all(parts)


@pytest.mark.parametrize("kind", ["Const", "Constant", "external"])
def test_variable_memory_is_counted_as_the_compile_counts_it(kind: str, tmp_path: Path, inspect: Inspect) -> None:
    train = REPOSITORY / "samples" / "train"
    graph = (train / "conv_train.json").read_text()
    (tmp_path / "m.json").write_text(graph.replace('"Const"', '"Constant"') if kind == "Constant" else graph)
    for name in ("w2.npy", "w3.npy"):
        (tmp_path / name).write_bytes((train / name).read_bytes())
    words = {"external": ["--external-weight=1"], "Constant": ["--train"]}.get(kind, [])
    gecli_in(tmp_path, "compile", "m.json", "-o", "m.om", "--json", "--report", "report.json", *words)
    report = json.loads((tmp_path / "report.json").read_text())["models"][0]
    document = summary(inspect, "m.om")
    area = document["variables"]
    assert (area["bytes"], area["count"]) == (report["memory"]["variable_bytes"], len(report["variables"]))
    others = {"Const": (0, 0), "Constant": (10, 0), "external": (0, 10)}[kind]
    assert (area["constants"], area["external_weights"]) == others
    shown, rows = inspect("m.om").out, inspect("m.om", "--vars").out
    told = {"Const": "", "Constant": ", 10 constants", "external": ", 10 external weights"}[kind]
    assert f"variables  12{told}{' in variable memory' * bool(told)}, " in shown
    assert f"12 variables{told}, " in rows and f"with padding and guards, base {0x2000000000:#x}" in rows
    sizes = [document["memory"]["memory_size"], document["memory"]["weight_size"], area["bytes"]]
    assert need(document, "memory")["bytes"] == sum(sizes)


def test_a_weight_file_is_looked_for_beside_the_model_and_measured(tmp_path: Path, inspect: Inspect) -> None:
    node = """op { name: "NAME" type: "FileConstant"
                  attr { key: "location" value { s: "/build/w.bin" } }
                  attr { key: "offset" value { i: OFFSET } } attr { key: "length" value { i: 100 } }
                  output_desc { dtype: DT_FLOAT layout: "ND" shape { dim: 25 } } }"""
    nodes = node.replace("NAME", "a").replace("OFFSET", "0") + node.replace("NAME", "b").replace("OFFSET", "512")
    data = wide_om((0, model_def(f'name: "m" graph {{ name: "g" {nodes} }}')), (1, bytes(1024)))
    (tmp_path / "m.om").write_bytes(data)
    shown = inspect("m.om", "--for-version", "8.0.0")
    assert (shown.status, "needs      weight file: w.bin (missing)" in shown.out) == (1, True)
    assert "weight file w.bin is missing" in shown.out.splitlines()[-1]
    (tmp_path / "weight").mkdir()
    (tmp_path / "weight" / "w.bin").write_bytes(bytes(611))
    assert "weight file: w.bin (it has 611 of the 612 bytes that are read)" in inspect("m.om").out
    (tmp_path / "weight" / "w.bin").write_bytes(bytes(612))
    row = need(summary(inspect, "m.om"), "weight file")
    assert (row["name"], row["found"], row["bytes"]) == ("w.bin", True, 612)
    assert inspect("m.om", "--for-version", "8.0.0").status == 0
    rows = json.loads(inspect("m.om", "--tensors", "--json").out)["tensors"]
    assert [(row["stored"], row["file"], row["file_offset"]) for row in rows] == [
        ("external", "/build/w.bin", 0), ("external", "/build/w.bin", 512)
    ]  # fmt: skip


def test_libraries_inside_need_their_host(tmp_path: Path, inspect: Inspect) -> None:
    data = bytearray(VAE.read_bytes())
    data[192] = 1  # need_check_os_cpu_info
    machine = platform.machine()
    names = {"model.om": "not recorded", f"model_linux_{machine}.om": f"linux {machine}", "m_linux_arm64.om": "linux"}
    for name in names:
        (tmp_path / name).write_bytes(data)
    for name, shown in names.items():
        assert need(summary(inspect, name), "host")["name"].startswith(shown)
    assert need(summary(inspect, f"model_linux_{machine}.om"), "host")["found"] is (platform.system() == "Linux")


def test_a_dynamic_model_needs_the_very_operator_package(tmp_path: Path, inspect: Inspect) -> None:
    data = bytearray(VAE.read_bytes())
    data[193] = 1  # is_unknow_model
    assert struct.unpack("<I", data[156:160]) == (1,)
    (tmp_path / "dynamic.om").write_bytes(data)
    same = inspect("dynamic.om", "--for-version", "5.0.4")
    other = inspect("dynamic.om", "--for-version", "8.0.0")
    assert (same.status, other.status) == (0, 1)
    assert "a model of dynamic shapes needs exactly this one" in other.out


def test_gears_are_counted_and_the_largest_is_named(tmp_path: Path, inspect: Inspect) -> None:
    batches = struct.pack("<II", 2, 4 + 3 * 8) + struct.pack("<I3Q", 3, 1, 8, 4)
    (tmp_path / "batch.om").write_bytes(wide_om((8, batches), (0, model_def('name: "m" graph { name: "g" }'))))
    assert "gears      3 of batch, the largest 8" in inspect("batch.om").out
    rows = struct.pack("<I2I4Q", 2, 2, 2, 224, 224, 96, 640)
    sizes = struct.pack("<II", 3, len(rows)) + rows
    (tmp_path / "size.om").write_bytes(wide_om((8, sizes), (0, model_def('name: "m" graph { name: "g" }'))))
    assert "gears      2 of hw, the largest [96,640]" in inspect("size.om").out


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("8.0.0", Version(8)),
        ("8", Version(8)),
        ("CANN 8.0.RC1", Version(8, 0, 0, -1, 1)),
        ("8.0.alpha003", Version(8, 0, 0, -3, 3)),
        ("v7.0.1", Version(7, 0, 1)),
        ("7.6.0.1.220", Version(8)),
        ("7.6.T11.0.B088", Version(8, 0, 0, -3, 3)),
        ("1.80.T15.0.B156", Version(5, 0, 4)),
        ("5.0.4.alpha002", Version(5, 0, 4, -3, 2)),
        ("8.0.RC1.alpha003", Version(8, 0, 0, -1, 1, -3, 3)),
        ("5.0.4.1", Version(5, 0, 4)),
        ("1.81.T11", Version(5, 1, 0, -1, 1)),
        ("5.20.T6.2", None),
        ("20.1", None),
        ("2.0", None),
        ("", None),
        ("latest", None),
    ],
)
def test_both_ways_of_numbering_are_understood(text: str, version: Version | None) -> None:
    assert cann_version(text) == version


def test_versions_are_in_the_order_of_their_release() -> None:
    texts = [
        "1.75.22",
        "5.0.4.alpha001",
        "5.0.4.alpha002",
        "5.0.4.RC1.alpha001",
        "5.0.4.RC1",
        "5.0.4",
        "1.81.T11",
        "5.1.0",
        "7.0.0",
        "8.0.alpha003",
        "8.0.RC1",
        "8.0.RC2",
        "7.6.0.1",
        "8.1",
    ]
    versions = [cann_version(text) for text in texts]
    assert versions == sorted(version for version in versions if version is not None)
    assert len({*versions}) == len(versions)


@pytest.mark.parametrize("text", ["8.0.RC1", "8.0.alpha003", "5.0.4.alpha002", "8.0.RC1.alpha003", "8.0.0", "5.1.0"])
def test_a_version_is_shown_as_it_is_written(text: str) -> None:
    assert str(cann_version(text)) == text


@pytest.mark.parametrize(
    ("version", "status", "answer"),
    [
        ("5.0.4.alpha001", 1, "does not load with version 5.0.4.alpha001: it was written by atc 5.0.4.alpha002"),
        ("5.0.3", 1, "does not load"),
        ("5.0.4.alpha002", 0, "loads with version 5.0.4.alpha002"),
        ("5.0.4.RC1", 0, "loads"),
        ("5.0.4", 0, "loads"),
    ],
)
def test_a_version_before_a_release_is_older_than_the_release(
    version: str, status: int, answer: str, tmp_path: Path, inspect: Inspect
) -> None:
    writer = 'attr { key: "atc_version" value { s: "5.0.4.alpha002" } }'
    data = bytearray(om_narrow([(0, model_def(f'name: "m" graph {{ name: "g" }} {writer}'))]))
    (tmp_path / "m.om").write_bytes(data)
    shown = inspect("m.om", "--for-version", version)
    assert (shown.status, answer in shown.out.splitlines()[-1]) == (status, True)


def test_what_is_not_recorded_is_among_the_needs_without_a_question_too(inspect: Inspect) -> None:
    shown = inspect(REAL / "ascend310-2020-conv_pad.om").out
    assert "needs      SoC: not recorded" in shown and "needs      version: any" in shown
    assert "needs      SoC" not in inspect(REAL / "hiai-relu.om").out


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of another compiler, written again from its document: sound, with operators that gecli cannot execute."""
    directory = tmp_path_factory.mktemp("again")
    gecli_in(directory, "inspect-om", str(VAE), "--json", "--data-file", "vae.bin", "-o", "vae.json")
    gecli_in(directory, "compile", "vae.json", "-o", "again.om")
    return directory / "again.om"


def gecli_in(directory: Path, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "gecli", *words], cwd=directory, check=True, capture_output=True,
                   env={**os.environ, "PYTHONPATH": str(REPOSITORY)})  # fmt: skip


def test_an_own_file_that_gecli_run_refuses_does_not_load(again: Path, inspect: Inspect) -> None:
    shown = inspect(again, "--target", "Ascend310")
    why = "gecli run cannot execute AtomicAddrClean, Conv2DBackpropInputD, FrameworkOp"
    assert (shown.status, shown.out.splitlines()[-1].strip()) == (1, f"does not load on Ascend310: {why}")
    assert summary(inspect, again, "--target", "Ascend310")["verdict"]["problems"] == [why]
    # Without a target the list of types is asked, which needs no kernel.
    assert "loader: gecli run (gecli run cannot execute AtomicAddrClean, FrameworkOp)" in inspect(again).out


def test_a_file_of_atc_does_not_load_in_gecli_when_it_has_unknown_operators(inspect: Inspect) -> None:
    shown = inspect(VAE, "--for-version", "gecli 0.1.0")
    assert (shown.status, "does not load with version gecli 0.1.0: gecli run cannot execute" in shown.out) == (1, True)


def test_a_record_that_is_not_there_is_no_reason_against_a_run(
    tmp_path: Path, inspect: Inspect, conv_train_om: Path
) -> None:
    (tmp_path / "m.om").write_bytes(conv_train_om.read_bytes())
    shown = inspect("m.om", "--target", "Ascend910B1")
    assert (shown.status, shown.out.splitlines()[-1].strip()) == (0, "loads on Ascend910B1, in gecli run")
    assert "variable record: m.rdcpkt (not there: it runs without, but values in declared formats" in shown.out


def test_a_record_that_cannot_be_read_is_damaged_and_not_missing(
    tmp_path: Path, inspect: Inspect, conv_train_om: Path
) -> None:
    (tmp_path / "m.om").write_bytes(conv_train_om.read_bytes())
    (tmp_path / "m.rdcpkt").write_bytes(bytes(range(200, 256)))
    shown = inspect("m.om", "--target", "Ascend910B1")
    assert (shown.status, "needs      variable record: m.rdcpkt (damaged)" in shown.out) == (1, True)


def test_a_record_of_another_model_is_named_as_such_and_keeps_the_model_from_loading(
    tmp_path: Path, inspect: Inspect, conv_train_om: Path
) -> None:
    record = read_rdcpkt(conv_train_om.with_suffix(".rdcpkt"))
    forms = dict(record.after.var_desc_map)
    name = next(name for name in forms if forms[name].shape)
    forms[name] = forms[name].with_shape((1, *forms[name].shape))
    (tmp_path / "m.om").write_bytes(conv_train_om.read_bytes())
    write_rdcpkt(tmp_path / "m.rdcpkt", VarMatch(record.before, replace(record.after, var_desc_map=forms)))
    why = "its variable record is that of another model: it has no"
    shown = inspect("m.om", "--target", "Ascend910B1")
    assert (shown.status, f"does not load on Ascend910B1: {why} {name!r}" in shown.out) == (1, True)
    assert f"variable record: m.rdcpkt ({why}" in shown.out
