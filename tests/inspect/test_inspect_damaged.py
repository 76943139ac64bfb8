"""Damaged files, models without their OM, and files that were read in part: what is said of what is not there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from .conftest import REAL, Files, Inspect, model_def, wide_om

VAE = REAL / "ascend310-2022-vae.om"
MODEL_DEF = slice(308, 308 + 154630)
WEIGHTS_OFFSET = 154938
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """The file ends 145062 bytes into its weights."""
    path = tmp_path / "cut.om"
    path.write_bytes(VAE.read_bytes()[:300_000])
    return path


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """The MODEL_DEF of a file whose weights are elsewhere."""
    path = tmp_path / "bare.air"
    path.write_bytes(VAE.read_bytes()[MODEL_DEF])
    return path


def test_the_tensors_in_front_of_a_cut_are_whole_and_the_others_keep_place_and_size(
    inspect: Inspect, cut: Path
) -> None:
    whole = json.loads(inspect(VAE, "--tensors", "--json").out)["tensors"]
    shown = inspect(cut.name, "--salvage", "--tensors", "--json")
    document = json.loads(shown.out)
    assert (shown.status, len(document["tensors"])) == (3, len(whole))
    for before, after in zip(whole, document["tensors"], strict=True):
        end = before["file_offset"] + before["bytes"]
        assert after["bytes"] == before["bytes"] and after["partition_offset"] == before["partition_offset"]
        assert after["available"] == max(min(300_000 - before["file_offset"], before["bytes"]), 0)
        assert after["sha256"] == (before["sha256"] if end <= 300_000 else None)
    assert document["bytes"] == sum(row["available"] for row in document["tensors"])
    text = inspect(cut.name, "--salvage", "--tensors").out
    assert text.count("WEIGHTS_DATA, absent") == 13 and "WEIGHTS_DATA, cut after 5798 bytes" in text
    assert EMPTY_SHA256[:12] not in text and "inline" not in text
    assert text.splitlines()[-1] == "17 tensors, 141.2 KiB in the file; 14 not there or only in part"


def test_salvage_says_once_that_constants_are_cut_and_how_much_of_the_weights_is_there(
    inspect: Inspect, cut: Path
) -> None:
    shown = inspect(cut.name, "--salvage").out
    assert shown.count("bad-weights") == 1 and "which has 145062 bytes" in shown and "13 more of this kind" in shown
    assert "WEIGHTS_DATA  154938  386560  145062" in shown
    partitions = inspect(cut.name, "--salvage", "--partitions").out.splitlines()
    assert partitions[-1].split("  ")[-1] == "cut after 145062 bytes"


def test_salvage_extracts_what_is_whole_and_says_what_is_not(inspect: Inspect, cut: Path) -> None:
    shown = inspect(cut.name, "--salvage", "--extract", "all", "--to", "out", "--json")
    document = json.loads(shown.out)
    assert (shown.status, len(document["tensors"]), len(document["missing"])) == (3, 3, 14)
    assert inspect(VAE, "--extract", "all", "--to", "whole").status == 0
    for row in document["tensors"]:
        assert (Path("out") / row["file"]).read_bytes() == (Path("whole") / row["file"]).read_bytes()
    assert "14 tensors are not written" in shown.err
    one = inspect(cut.name, "--salvage", "--extract", document["missing"][0]["name"], "--to", "none")
    assert (one.status, "5798 of its 100352 bytes" in one.out, "G3012" in one.err) == (3, True, True)
    assert not Path("none").exists()
    good = inspect(cut.name, "--salvage", "--extract", document["tensors"][0]["name"], "--to", "one")
    assert (good.status, "G3012" in good.err) == (3, False)
    assert np.load(Path("one") / document["tensors"][0]["file"]).nbytes == 12800


def test_a_model_without_its_om_has_one_note_in_place_of_a_warning_for_each_constant(
    inspect: Inspect, bare: Path
) -> None:
    shown = inspect(bare.name)
    assert (shown.status, shown.err) == (0, "")
    assert shown.out.count("381184 bytes of 17 constants are not here") == 1
    assert "verdict    sound" in shown.out
    document = json.loads(inspect(bare.name, "--tensors", "--json").out)
    assert [note["severity"] for note in document["warnings"]] == ["note"]
    assert {(row["stored"], row["sha256"], row["available"]) for row in document["tensors"]} == {
        ("WEIGHTS_DATA", None, 0)
    }
    assert inspect(bare.name, "--tensors", "--strict").status == 0
    assert "not in the file" in inspect(bare.name, "--nodes", "--show", "weights", "--type", "Const").out
    extracted = inspect(bare.name, "--extract", "all", "--to", "out")
    assert (extracted.status, "17 tensors are not written" in extracted.err) == (3, True)


def test_statistics_of_tensors_that_are_not_there_are_left_out(inspect: Inspect, cut: Path) -> None:
    rows = json.loads(inspect(cut.name, "--salvage", "--tensors", "--stats", "--json").out)["tensors"]
    assert [row.get("stats") is not None for row in rows] == [True] * 3 + [False] * 14


@pytest.mark.parametrize("size", [100, 290, 60_000])
def test_salvage_does_not_advise_itself(size: int, tmp_path: Path, inspect: Inspect) -> None:
    (tmp_path / "short.om").write_bytes(VAE.read_bytes()[:size])
    shown = inspect("short.om", "--salvage")
    assert (shown.status, "`gecli inspect-om --salvage`" in shown.err) == (3, False)
    assert "--salvage" in inspect("short.om").err


@pytest.mark.parametrize("words", [["--oneline"], [], ["--json"], ["--nodes"]], ids=" ".join)
@pytest.mark.parametrize("size", [290, 60_000])
def test_salvage_is_not_advised_where_it_was_given_for_several_files(
    words: list[str], size: int, tmp_path: Path, inspect: Inspect
) -> None:
    (tmp_path / "short.om").write_bytes(VAE.read_bytes()[:size])
    given = inspect("short.om", VAE, "--salvage", *words)
    assert (given.status, "--salvage" in given.out + given.err) == (3, False)


@pytest.mark.parametrize("words", [[], ["--io"], ["--tensors"], ["--nodes"]], ids=" ".join)
@pytest.mark.parametrize("size", [100, 290, 60_000, 200_000])
def test_salvage_shows_of_each_of_several_files_what_it_shows_of_one(
    words: list[str], size: int, tmp_path: Path, inspect: Inspect
) -> None:
    (tmp_path / "cut.om").write_bytes(VAE.read_bytes()[:size])
    alone, several = inspect("cut.om", *words, "--salvage"), inspect("cut.om", VAE, *words, "--salvage")
    assert (several.status, several.err) == (3, alone.err)
    shown = f"== cut.om\n{alone.out}" if alone.out else ""
    assert several.out == f"{shown}== {VAE}\n{inspect(VAE, *words).out}"
    document = json.loads(inspect("cut.om", *words, "--salvage", "--json").out)
    entry, sound = json.loads(inspect("cut.om", VAE, *words, "--salvage", "--json").out)["files"]
    assert ("errors" in sound, entry["errors"] == document.get("errors", document["warnings"])) == (False, True)
    assert entry.get("document", document) == document and ("document" in entry) is (size > 256)


def test_salvage_shows_on_one_line_what_is_left_of_a_file(tmp_path: Path, inspect: Inspect) -> None:
    for size in (100, 60_000, 200_000):
        (tmp_path / f"{size}.om").write_bytes(VAE.read_bytes()[:size])
    paths = ("100.om", "60000.om", "200000.om", "missing.om", VAE)
    shown = inspect(*paths, "--oneline", "--salvage")
    sound = inspect(VAE, "--oneline").out.strip().split("  ")
    lines = [line.split("  ") for line in shown.out.splitlines()]
    assert [line[:-1] for line in lines] == [
        ["100.om", "bad"], ["60000.om", "bad", "hh_om", "-", "-", "58.6 KiB"],
        ["200000.om", "bad", *sound[2:5], "195.3 KiB"], ["missing.om", "bad"], sound[:-1],
    ]  # fmt: skip
    assert [line[-1].split(":")[0] for line in lines[:3]] == ["truncated"] * 3
    rows = json.loads(inspect(*paths, "--oneline", "--salvage", "--json").out)["files"]
    assert [row["name"] for row in rows] == [None, "hh_om", "hh_om", None, "hh_om"]
    assert [row["kind"] for row in rows] == ["truncated"] * 3 + [None, "om"]


def test_a_record_that_calls_a_variable_changed_without_a_road_is_a_warning(tmp_path: Path, inspect: Inspect) -> None:
    def entry(number: int, key: bytes, value: bytes) -> bytes:
        pair = b"\x0a" + bytes((len(key),)) + key + b"\x12" + bytes((len(value),)) + value
        return bytes((number << 3 | 2, len(pair))) + pair

    form, road = b"\x10\x01\x22\x02ND", b"\x0a\x08\x0a\x06Permut"
    for name, roads, said in (("good", entry(2, b"w", road), 0), ("bad", b"", 1)):
        after = entry(1, b"w", form) + roads + b"\x1a\x01w"
        (tmp_path / f"{name}.rdcpkt").write_bytes(b"\x12" + bytes((len(after),)) + after)
        for words in ([], ["--vars"]):
            shown = inspect(f"{name}.rdcpkt", *words)
            assert (shown.status, shown.err.count("without a road or a form: 'w'")) == (0, said)
    assert inspect("bad.rdcpkt", "--strict").status == 3


@pytest.mark.parametrize("content", [b'{"a": 1}', b"[1]", b'{"cache_file_list": 5}'])
def test_json_that_is_no_index_is_said_to_be_none(content: bytes, tmp_path: Path, inspect: Inspect) -> None:
    (tmp_path / "k.idx").write_bytes(content)
    shown = inspect("k.idx")
    assert (shown.status, "k.idx: not-om: this JSON file is neither a cache index nor a model" in shown.err) == (
        3,
        True,
    )


def test_a_line_names_its_file_once(tmp_path: Path, inspect: Inspect) -> None:
    (tmp_path / "short.om").write_bytes(VAE.read_bytes()[:290])
    damaged = bytearray(VAE.read_bytes())
    damaged[541_498] ^= 1  # the mark of the first kernel
    (tmp_path / "kernels.om").write_bytes(damaged)
    for line in inspect("short.om", "kernels.om", "--oneline", "--strict").out.splitlines():
        name, state, rest = line.split("  ", 2)
        assert (state, name in rest) == ("bad", False)


@pytest.mark.parametrize("words", [["--strict"], ["--strict", "--oneline"]], ids=" ".join)
def test_salvage_is_not_advised_for_a_part_that_cannot_be_read(
    words: list[str], tmp_path: Path, inspect: Inspect
) -> None:
    model = model_def('name: "m" graph { name: "g" }')
    (tmp_path / "tasks.om").write_bytes(wide_om((0, model), (2, b"\x52\xff")))
    assert "`gecli inspect-om --salvage`" in inspect("tasks.om", "--strict").err
    given = inspect("tasks.om", "--salvage", *words)
    assert "--salvage" not in given.out + given.err


@pytest.mark.parametrize("view", ["--io", "--nodes", "--vars"])
def test_a_view_that_salvage_cannot_show_does_not_advise_salvage(view: str, tmp_path: Path, inspect: Inspect) -> None:
    (tmp_path / "t60k.om").write_bytes(VAE.read_bytes()[:60_000])
    shown = inspect("t60k.om", "--salvage", view)
    assert (shown.status, "--salvage" in shown.err, "leave the view out" in shown.err) == (3, False, True)


def test_a_view_of_a_cut_model_says_how_much_of_it_is_left(tmp_path: Path, inspect: Inspect) -> None:
    (tmp_path / "t60k.om").write_bytes(VAE.read_bytes()[:60_000])
    shown = inspect("t60k.om", "--salvage", "--io")
    assert "59692 of the 154630 bytes of MODEL_DEF are in the file" in shown.err
    assert "among its 0 partitions" not in shown.err
    assert "(offset 60000)" in shown.err  # where the file ends, not where its length is written


def test_a_file_too_large_to_be_read_whole_is_sound_only_as_far_as_it_was_read(
    tmp_path: Path, inspect: Inspect, digits_om: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gecli.report.inspect import subject

    monkeypatch.setattr(subject, "DIGEST_BYTES", 1000)
    data = bytearray(digits_om.read_bytes())
    table = json.loads(inspect(digits_om, "--partitions", "--json").out)["partitions"]
    data[next(row["offset"] for row in table if row["name"] == "WEIGHTS_DATA") + 600] ^= 1
    (tmp_path / "flipped.om").write_bytes(data)
    mild, strict = inspect("flipped.om"), inspect("flipped.om", "--strict")
    assert "sound as far as it was read (payload digest not checked" in mild.out and "--strict does" in mild.out
    answer = inspect("flipped.om", "--target", "Ascend910B1").out.splitlines()[-1].strip()
    assert answer == "loads on Ascend910B1, in gecli run, as far as the file was read"
    assert (mild.status, strict.status) == (0, 3)
    assert "sound" not in strict.out and "1 problem, payload digest wrong" in strict.out
    assert "error[G3006]" in strict.err


def test_salvage_of_a_model_without_its_om_names_the_nodes_before_the_cut(tmp_path: Path, inspect: Inspect) -> None:
    whole = VAE.read_bytes()
    (tmp_path / "cut.def").write_bytes(whole[308:60_308])
    (tmp_path / "cut.om").write_bytes(whole[:60_308])
    shown = inspect("cut.def", "--salvage")
    assert (shown.status, shown.err.count("error[G3004]")) == (3, 1)
    counts, names = shown.out.splitlines()[-2:]
    assert counts.startswith("27 nodes in the first 60000 of at least 140017 bytes of MODEL_DEF: ")
    assert names.startswith("they are input, atomic_addr_clean-1_0, ") and names.endswith(
        " and 7 more, which --json names"
    )
    bare, held = (json.loads(inspect(name, "--salvage", "--json").out) for name in ("cut.def", "cut.om"))
    assert bare["cut_model"]["nodes"] == held["cut_model"]["nodes"]
    assert (bare["header"], bare["partitions"], bare["cut_model"]["bytes"]) == (None, [], 60_000)
    again = inspect("cut.def", "--salvage", "--nodes")
    assert (again.status, again.out, again.err) == (3, shown.out, shown.err)
    assert inspect("cut.def", "--salvage", "--hex", "file:0:16").out.startswith("00000000  0a 05 68 68")
    (tmp_path / "whole.def").write_bytes(whole[308:154_938])
    sound = inspect("whole.def", "--salvage")
    assert (sound.status, sound.out) == (0, inspect("whole.def").out)


def test_a_model_without_its_om_says_that_its_features_are_laid_out_at_run_time(
    tmp_path: Path, inspect: Inspect
) -> None:
    om = REAL / "hiai-resnet20_quant8.om"
    (tmp_path / "m.def").write_bytes(om.read_bytes()[272:])
    memory = [next(line for line in inspect(path).out.splitlines() if line.startswith("memory")) for path in
              (om, "m.def")]  # fmt: skip
    assert "features laid out at run time" in memory[0] and memory[0] == memory[1]


@pytest.mark.parametrize("view", ["kernels", "tasks", "partitions"])
def test_a_view_of_a_container_names_what_a_model_without_it_lacks(view: str, tmp_path: Path, inspect: Inspect) -> None:
    (tmp_path / "m.def").write_bytes((REAL / "hiai-relu.om").read_bytes()[272:])
    shown = inspect("m.def", f"--{view}")
    assert (shown.status, f"a ModelDef file has no {view}" in shown.err) == (3, True)


def test_a_damaged_variable_record_is_called_one_by_its_name_or_its_first_bytes(
    tmp_path: Path, inspect: Inspect, files: Files
) -> None:
    whole = files["rdcpkt"].read_bytes()
    for name, data in (("cut.rdcpkt", whole[:300]), ("cut", whole[:300]), ("text.rdcpkt", b"no record\n")):
        (tmp_path / name).write_bytes(data)
        shown = inspect(name)
        assert (shown.status, "give the .om" in shown.err) == (3, False)
        assert f"error[G3007]: {name}: damaged variable record: " in shown.err
    (tmp_path / "text").write_bytes(b"no record\n")
    assert "not an OM file" in inspect("text").err


def test_a_warning_says_why_and_what_to_do(tmp_path: Path, inspect: Inspect) -> None:
    node = 'op { name: "a" type: "Relu" input: "lost:0" output_desc { dtype: DT_FLOAT } }'
    (tmp_path / "m.om").write_bytes(wide_om((0, model_def(f'name: "m" graph {{ name: "g" {node} }}'))))
    lines = inspect("m.om").err.splitlines()
    assert lines[0].startswith("warning[G3011]: m.om: bad-graph")
    assert [line[:6] for line in lines[2:]] == ["  why:", "  do: "]
    warning = json.loads(inspect("m.om", "--nodes", "--json").out)["warnings"][0]
    assert warning["why"] and warning["fix"] == "copy or compile the file again"


@pytest.mark.parametrize("kind", ["rdcpkt", "session"])
def test_a_cut_record_or_session_says_where_it_is_cut(
    kind: str, tmp_path: Path, inspect: Inspect, files: Files
) -> None:
    data = files[kind].read_bytes()
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    shown = inspect("cut", "--vars", "--json")
    error = json.loads(shown.out)["errors"][0]
    assert (shown.status, error["code"]) == (3, "G3007")
    assert 0 < error["where"]["offset"] < len(data) // 2 and f"offset {error['where']['offset']}" in shown.err


@pytest.mark.parametrize("count", [4, 40, 60, 100])
def test_a_cut_index_is_one_that_is_cut(count: int, tmp_path: Path, inspect: Inspect, files: Files) -> None:
    data = files["idx"].read_bytes()
    (tmp_path / "cut.idx").write_bytes(data[:count])
    error = json.loads(inspect("cut.idx", "--json").out)["errors"][0]
    what = "this cache index is cut" if count > 20 else "this JSON file is cut"
    assert f"{what}: it has {count} bytes" in error["message"] and 0 < error["where"]["offset"] <= count
    assert "line 1, column" in error["why"]
    assert "cache verify --repair" in error["fix"] or count == 4


def test_an_index_that_is_damaged_inside_is_not_called_cut(tmp_path: Path, inspect: Inspect, files: Files) -> None:
    (tmp_path / "bad.idx").write_bytes(files["idx"].read_bytes().replace(b": [", b" [", 1))
    assert "this cache index is damaged in line 1, column " in inspect("bad.idx").err


def test_a_file_of_the_system_that_has_no_size_is_not_called_a_bad_download(inspect: Inspect) -> None:
    shown = inspect("/proc/self/status")
    assert (shown.status, "download" in shown.err) == (3, False)
    assert "cat /proc/self/status | gecli inspect-om -" in shown.err
