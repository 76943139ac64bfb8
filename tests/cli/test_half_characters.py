r"""One half of a surrogate pair (`"\ud800"`) in JSON is a fault of the file, wherever gecli reads JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gecli.artifacts.weight_meta import parse_meta
from gecli.cache.archive import DamagedArchive, parse_manifest
from gecli.cache.index import UnreadableIndex, parse_index
from gecli.cache.sidecar import InvalidSidecar, parse_sidecar
from gecli.json_text import escape_halves, parse_json
from tests.conftest import REPOSITORY

HALF = "\\ud800"
DIGITS = REPOSITORY / "samples/digits/digits.onnx"
COMPILE = ("compile", str(DIGITS), "-o", "m.om", "--input-shape", "image:1,1,8,8")
TENSOR = '{"name": "\\ud800", "type": "float", "format": "ND", "shape": [2]}'
SINGLE_OP = f'[{{"op": "Relu", "input_desc": [{TENSOR}], "output_desc": [{TENSOR}]}}]'
BINS = '{"value_bins":[{"value_bin_id":"\\ud800","value_bin_file":"f"}]}'


@pytest.mark.parametrize("text", ['"\\ud800"', '{"\\uDFFF": 1}', '[["a\\uD83Db"]]', '"\\ude00\\ud83d"'])
def test_a_half_in_a_text_is_refused_and_a_pair_is_not(text: str) -> None:
    for raw_bytes in (False, True):
        with pytest.raises(ValueError, match="one half of a surrogate pair"):
            parse_json(text, raw_bytes=raw_bytes)
    assert parse_json('"\\ud83d\\ude00"') == "\N{GRINNING FACE}"
    assert parse_json('"\\\\ud800"') == "\\ud800"


def test_bytes_that_are_no_utf8_stand_only_where_paths_do() -> None:
    assert parse_json(b'"\xff\\udcfe"', raw_bytes=True) == "\udcff\udcfe"
    for text in (b'"\xff"', '"\\udcff"'):
        with pytest.raises(ValueError, match=r"utf-8|half"):
            parse_json(text)


def test_an_escaped_document_is_read_back_as_it_was() -> None:
    value = {"path": "n\udcff\nw", "half": "\ud800", "more": "\N{GRINNING FACE}é"}
    text = escape_halves(json.dumps(value, ensure_ascii=False))
    assert text.encode()
    assert "é" in text
    assert json.loads(text) == value


def test_readers_of_a_cache_take_such_a_file_for_damaged() -> None:
    files = {"om": {"size": 1, "sha256": "0"}}
    content = {"schema": 1, "graph_key": "k", "entry": "k_1", "files": files, "fingerprint": {"requests": ["\ud800"]}}
    with pytest.raises(InvalidSidecar, match="half"):
        parse_sidecar(json.dumps(content).encode(), "k", "k_1")
    with pytest.raises(UnreadableIndex, match="half"):
        parse_index(json.dumps({"cache_file_list": [], "more": "\ud800"}).encode(), "cache")
    with pytest.raises(DamagedArchive, match="half"):
        parse_manifest(json.dumps({"schema": "\ud800"}).encode())
    assert parse_meta(json.dumps({"hash_to_weight_file": {"a": "\ud800"}}).encode()) is None


@pytest.mark.parametrize(
    ("text", "words", "status"),
    [
        (SINGLE_OP, ("compile", "--singleop", "f.json", "-o", "out"), 2),
        (f'{{"compile options": {{"a": "{HALF}"}}}}', (*COMPILE, "--raw-ge-options", "f.json"), 2),
        (f'{{"gecli_graph": 1, "name": "{HALF}"}}', ("compile", "f.json", "-o", "m.om"), 3),
        (
            f'{{"white-list": {{"to-add": ["{HALF}"]}}}}',
            (*COMPILE, "--precision", "mixed_float16", "--modify-mixlist", "f.json"),
            2,
        ),
        (f'{{"Switch": {{"GraphFusion": {{"{HALF}": "on"}}}}}}', (*COMPILE, "--fusion-switch-file", "f.json"), 2),
        ("", (*COMPILE, "--ge-option", f"ge.exec.value_bins={BINS}"), 2),
    ],
    ids=["singleop", "options", "graph", "mixlist", "switches", "bins"],
)
def test_a_command_refuses_such_a_file_with_a_message(
    gecli: Any, tmp_path: Path, text: str, words: tuple[str, ...], status: int
) -> None:
    (tmp_path / "f.json").write_text(text)
    done = gecli(*words)
    assert done.returncode == status, done.stderr
    assert HALF in done.stderr


@pytest.mark.parametrize("mode", ["split", "combined"])
def test_a_meta_json_with_a_half_is_a_hint_that_is_made_anew(gecli: Any, tmp_path: Path, mode: str) -> None:
    (tmp_path / "w").mkdir()
    meta = tmp_path / "w/meta.json"
    meta.write_text(f'{{"hash_to_weight_file": {{"a": "{HALF}"}}, "hash_to_weight_offset": {{}}}}')
    done = gecli(*COMPILE, "--external-weight", mode, "--external-weight-dir", "w")
    assert done.returncode == 0, done.stderr
    assert "ud800" not in meta.read_text()
    assert json.loads(meta.read_text())["hash_to_weight_file"]
