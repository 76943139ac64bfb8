"""Weight files and meta.json as GE writes them, and safe where GE's are not (cache.md 8.4, 8.5)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gecli.artifacts.weight_file import UnsafeWeight, base_name
from gecli.artifacts.weight_meta import MetaLocked, WeightMeta, locked_meta, parse_meta, rebuilt_meta
from gecli.artifacts.weight_writer import append_combined, record_split, write_combined, write_split
from gecli.errors import InputError
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import FileSlice, Weight
from gecli.planning.external_weights import ExternalWeight, externalise
from gecli.planning.weight_names import spelled

SPLIT, COMBINED = 1, 2


def weights_of(mode: int, *contents: bytes, stem: str = "net") -> tuple[ExternalWeight, ...]:
    """Constants w0, w1, ... of these bytes as FileConstants."""
    graph = Graph("g")
    for k, content in enumerate(contents):
        weight = Weight.of(np.frombuffer(content, np.uint8))
        graph.create("Const", f"w{k}", attrs={"value": weight}, output_descs=[weight.desc])
    return externalise(graph, mode, stem, lambda weights: [each.sha256() for each in weights])


def blocks(*sizes: int) -> list[bytes]:
    return [bytes([k + 1]) * size for k, size in enumerate(sizes)]


def read(folder: Path, each: ExternalWeight) -> bytes:
    data = (folder / each.file).read_bytes()
    return data[each.offset_bytes : each.offset_bytes + each.length_bytes]


# ------------------------------------------------------------------ constants become FileConstants


def test_a_file_constant_says_where_its_bytes_are() -> None:
    (each,) = weights_of(SPLIT, b"abc")
    digest = "ba7816bf8f1cfea414140de5dae2223b0361a396177a9cb410ff61f2015ad"
    assert (each.node.type, each.node.name) == ("FileConstant", f"w0_{digest}")
    assert each.node.attrs == {
        "location": f"weight_{digest}",
        "offset": 0,
        "length": 3,
        "dtype": DataType.UINT8,
        "shape": (3,),
        "original_shape": (3,),
        "_gecli_sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    }


def test_empty_tensors_and_texts_stay_where_they_are() -> None:
    graph = Graph("g")
    empty = Weight.of(np.zeros((0, 4), np.float32))
    graph.create("Const", "empty", attrs={"value": empty}, output_descs=[empty.desc])
    text = TensorDesc(DataType.STRING, (1,))
    graph.create("Const", "text", attrs={"value": Weight(text, empty.source)}, output_descs=[text])
    assert externalise(graph, SPLIT, "net", lambda weights: [""] * len(weights)) == ()
    assert [node.type for node in graph.nodes()] == ["Const", "Const"]


def test_weights_of_all_graphs_are_in_the_order_of_their_names() -> None:
    graph = Graph("z")
    inner = Graph("a", graph)
    graph.subgraphs["a"] = inner
    graph.create("If", "call", subgraphs=["a"])
    for part, name in ((graph, "w"), (inner, "w"), (inner, "b"), (graph, "c")):
        weight = Weight.of(np.frombuffer(f"{part.name}{name}".encode(), np.uint8))
        part.create("Const", name, attrs={"value": weight}, output_descs=[weight.desc])
    found = externalise(graph, COMBINED, "net", lambda weights: [each.sha256() for each in weights])
    assert [b"".join(each.weight.chunks()) for each in found] == [b"ab", b"zc", b"aw", b"zw"]
    assert [each.offset_bytes for each in found] == [0, 512, 1024, 1536]


# ------------------------------------------------------------------ files


def test_a_combined_file_is_padded_behind_every_weight(tmp_path: Path) -> None:
    weights = weights_of(COMBINED, *blocks(100, 512, 513))
    file = write_combined(str(tmp_path), weights)
    data = (tmp_path / "net_weight_combined").read_bytes()
    assert [each.offset_bytes for each in weights] == [0, 512, 1024]
    assert len(data) == file.size_bytes == 2048
    assert [read(tmp_path, each) for each in weights] == blocks(100, 512, 513)
    assert not any(data[100:512]) and not any(data[1537:])


def test_split_files_hold_the_raw_bytes_and_nothing_else(tmp_path: Path) -> None:
    weights = weights_of(SPLIT, b"abc", b"de", b"abc")
    files = write_split(str(tmp_path / "new"), weights)
    assert sorted(path.read_bytes() for path in (tmp_path / "new").iterdir()) == [b"abc", b"de"]
    assert [file.size_bytes for file in files] == [3, 2]


@pytest.mark.parametrize("damage", [b"abd", b"abcd", b""])
def test_a_file_with_other_content_is_replaced(tmp_path: Path, damage: bytes) -> None:
    weights = weights_of(SPLIT, b"abc")
    path = tmp_path / weights[0].file
    path.write_bytes(damage)
    write_split(str(tmp_path), weights)
    assert path.read_bytes() == b"abc"


def test_a_link_in_the_place_of_a_file_is_not_written_through(tmp_path: Path) -> None:
    weights = weights_of(SPLIT, b"abc")
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "weight").mkdir()
    (tmp_path / "weight" / weights[0].file).symlink_to(victim)
    write_split(str(tmp_path / "weight"), weights)
    assert victim.read_bytes() == b"precious"
    assert (tmp_path / "weight" / weights[0].file).read_bytes() == b"abc"


def test_a_source_that_changes_meanwhile_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"abc")
    graph = Graph("g")
    weight = Weight(TensorDesc(DataType.UINT8, (3,)), FileSlice(str(source), 0, 3))
    graph.create("Const", "w", attrs={"value": weight}, output_descs=[weight.desc])
    weights = externalise(graph, SPLIT, "net", lambda each: [one.sha256() for one in each])
    source.write_bytes(b"xyz")
    with pytest.raises(InputError, match="E13001"):
        write_split(str(tmp_path / "weight"), weights)
    source.unlink()
    with pytest.raises(InputError, match="E13001"):
        write_split(str(tmp_path / "weight"), weights)
    assert not os.path.exists(tmp_path / "weight") or not os.listdir(tmp_path / "weight")


# ------------------------------------------------------------------ meta.json


def test_meta_json_is_the_text_of_ge() -> None:
    meta = WeightMeta()
    meta.record("b", "/data/weight/weight_b")
    meta.record("a", "dir/net_weight_combined", 512)
    assert meta.text() == (
        '{\n    "hash_to_weight_file": {\n        "a": "dir/net_weight_combined",\n'
        '        "b": "/data/weight/weight_b"\n    },\n    "hash_to_weight_offset": {\n        "a": 512\n    }\n}'
    )
    assert parse_meta(meta.text().encode()) == meta


def test_a_file_of_its_own_drops_a_stale_offset() -> None:
    meta = WeightMeta({"a": "x"}, {"a": 512})
    meta.record("a", "weight_a")
    assert meta.offsets == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)
MEMBERS = st.dictionaries(
    st.sampled_from(["hash_to_weight_file", "hash_to_weight_offset", "other"]),
    JSON | st.dictionaries(st.text(max_size=4), JSON, max_size=3),
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.binary(max_size=60) | MEMBERS.map(lambda value: json.dumps(value).encode()))
def test_any_meta_json_is_read_or_made_anew(data: bytes) -> None:
    meta = parse_meta(data)
    if meta is not None:
        assert all(isinstance(value, str) for value in meta.files.values())
        assert all(type(value) is int and value >= 0 for value in meta.offsets.values())
        assert parse_meta(meta.text().encode("utf-8", "surrogateescape")) == meta


def test_an_empty_or_torn_meta_json_is_rebuilt_from_the_names(tmp_path: Path) -> None:
    weights = weights_of(SPLIT, b"abc")
    write_split(str(tmp_path), weights)
    (tmp_path / "meta.json").write_text('{"hash_to_wei')
    with locked_meta(str(tmp_path)) as (meta, save):
        assert meta.files == {spelled(weights[0].sha256): str(tmp_path / weights[0].file)}
        save()
    assert parse_meta((tmp_path / "meta.json").read_bytes()) == rebuilt_meta(str(tmp_path))


def test_meta_json_keeps_its_inode_and_the_members_of_others(tmp_path: Path) -> None:
    path = tmp_path / "meta.json"
    path.write_text('{"future": 1, "hash_to_weight_file": {"x": "y"}}')
    inode = path.stat().st_ino
    weights = weights_of(SPLIT, b"abc")
    record_split(str(tmp_path), [weights[0].file])
    assert path.stat().st_ino == inode
    content = json.loads(path.read_text())
    assert content["future"] == 1
    assert content["hash_to_weight_file"]["x"] == "y"
    assert content["hash_to_weight_file"][spelled(weights[0].sha256)] == str(tmp_path / weights[0].file)


def test_a_locked_meta_json_is_waited_for_and_then_given_up(tmp_path: Path) -> None:
    with locked_meta(str(tmp_path)), pytest.raises(MetaLocked), locked_meta(str(tmp_path), timeout_s=0.1):
        raise AssertionError("two processes may not hold it")


# ------------------------------------------------------------------ appending


def test_a_directory_with_all_weights_is_left_alone(tmp_path: Path) -> None:
    append_combined(str(tmp_path), "net", weights_of(COMBINED, *blocks(100, 513)))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = weights_of(COMBINED, *blocks(100, 513))
    append_combined(str(tmp_path), "net", again)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert [read(tmp_path, each) for each in again] == blocks(100, 513)


def test_new_weights_go_behind_those_that_are_there(tmp_path: Path) -> None:
    append_combined(str(tmp_path), "net", weights_of(COMBINED, *blocks(100, 513)))
    more = weights_of(COMBINED, b"new", *blocks(100), b"new")
    append_combined(str(tmp_path), "net", more)
    assert [each.offset_bytes for each in more] == [1536, 0, 1536]
    assert [read(tmp_path, each) for each in more] == [b"new", *blocks(100), b"new"]


def test_weights_in_the_file_of_another_model_are_used(tmp_path: Path) -> None:
    append_combined(str(tmp_path), "a", weights_of(COMBINED, b"one", stem="a"))
    weights = weights_of(COMBINED, b"one", b"two", stem="b")
    files = append_combined(str(tmp_path), "b", weights)
    assert [each.file for each in weights] == ["a_weight_combined", "b_weight_combined"]
    assert [os.path.basename(file.path) for file in files] == ["a_weight_combined", "b_weight_combined"]
    assert [read(tmp_path, each) for each in weights] == [b"one", b"two"]


def test_bytes_of_a_crashed_append_are_skipped(tmp_path: Path) -> None:
    append_combined(str(tmp_path), "net", weights_of(COMBINED, b"one"))
    with open(tmp_path / "net_weight_combined", "ab") as stream:
        stream.write(b"torn")
    weights = weights_of(COMBINED, b"two")
    append_combined(str(tmp_path), "net", weights)
    assert weights[0].offset_bytes == 1024
    assert read(tmp_path, weights[0]) == b"two"


def test_mode_1_before_mode_2_and_between_is_no_trap(tmp_path: Path) -> None:
    """GE throws for a hash without an offset, and reads at a stale one."""
    split = weights_of(SPLIT, b"one")
    write_split(str(tmp_path), split)
    record_split(str(tmp_path), [split[0].file])
    for _ in range(2):
        combined = weights_of(COMBINED, b"one")
        append_combined(str(tmp_path), "net", combined)
        assert read(tmp_path, combined[0]) == b"one"
        record_split(str(tmp_path), [split[0].file])


@pytest.mark.parametrize("damage", ["gone", "short", "changed", "moved"])
def test_recorded_bytes_that_are_not_there_are_written_again(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "a"
    append_combined(str(folder), "net", weights_of(COMBINED, b"one", b"two"))
    path = folder / "net_weight_combined"
    if damage == "gone":
        path.unlink()
    elif damage == "short":
        os.truncate(path, 513)
    elif damage == "changed":
        path.write_bytes(bytes(1024))
    else:
        folder = folder.rename(tmp_path / "b")
    weights = weights_of(COMBINED, b"one", b"two")
    append_combined(str(folder), "net", weights)
    assert [read(folder, each) for each in weights] == [b"one", b"two"]


RECORDS: list[dict[str, Any]] = [
    {"hash_to_weight_file": {"H": ".."}, "hash_to_weight_offset": {"H": 0}},
    {"hash_to_weight_file": {"H": "/etc/passwd"}, "hash_to_weight_offset": {"H": 0}},
    {"hash_to_weight_file": {"H": "net_weight_combined"}, "hash_to_weight_offset": {"H": 1 << 70}},
    {"hash_to_weight_file": {"H": "a\u0000b"}, "hash_to_weight_offset": {"H": 0}},
]


@pytest.mark.parametrize("content", RECORDS)
def test_records_that_lie_are_not_believed(tmp_path: Path, content: dict[str, Any]) -> None:
    weights = weights_of(COMBINED, b"one")
    text = json.dumps(content).replace('"H"', f'"{spelled(weights[0].sha256)}"')
    (tmp_path / "meta.json").write_text(text)
    append_combined(str(tmp_path), "net", weights)
    assert read(tmp_path, weights[0]) == b"one"


@given(st.text(max_size=12))
def test_a_base_name_never_leads_out_of_its_directory(location: str) -> None:
    try:
        name = base_name(location)
    except UnsafeWeight:
        return
    assert "/" not in name and "\0" not in name and name not in ("", ".", "..")
