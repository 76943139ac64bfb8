"""The text of an index and what a reader makes of it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from gecli.cache.gc import select
from gecli.cache.gc_actions import GcPolicy
from gecli.cache.index import IndexContent, UnreadableIndex, index_text, new_record, parse_index
from gecli.cache.survey import survey
from gecli.cache.verify import verify

GOLDEN = """{
    "cache_file_list": [
        {
            "cache_file_name": "my_model_v1_20260415_102030.om",
            "graph_key": "my_model_v1",
            "var_desc_file_name": "my_model_v1_20260415_102030.rdcpkt"
        }
    ]
}"""


def parsed(element: Any, directory: Path) -> IndexContent:
    return parse_index(json.dumps({"cache_file_list": [element]}).encode(), str(directory))


def test_an_index_has_exactly_the_text_that_ge_writes() -> None:
    record = new_record("my_model_v1", "my_model_v1_20260415_102030", has_rdcpkt=True)
    assert index_text(IndexContent([record], [], {})) == GOLDEN


def test_an_entry_without_variables_has_no_rdcpkt_name() -> None:
    text = index_text(IndexContent([new_record("k", "k_20260415_102030", has_rdcpkt=False)], [], {}))
    assert "var_desc_file_name" not in text


def test_unknown_members_survive_a_rewrite(tmp_path: Path) -> None:
    element = {"graph_key": "k", "cache_file_name": "k_1.om", "later": {"x": [1]}}
    content = parse_index(json.dumps({"cache_file_list": [element], "version": 7}).encode(), str(tmp_path))
    written = json.loads(index_text(content))
    assert written["version"] == 7
    assert written["cache_file_list"][0]["later"] == {"x": [1]}


def test_a_rewritten_index_holds_base_names_only(tmp_path: Path) -> None:
    (tmp_path / "k_20260415102030.om").write_bytes(b"")
    content = parsed({"graph_key": "k", "cache_file_name": "./old/place/k_20260415102030.om"}, tmp_path)
    assert content.records[0].om_name == "k_20260415102030.om"
    assert "old/place" not in index_text(content)


def test_a_path_relative_to_the_parent_of_the_cache_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.chdir("/")
    content = parsed({"graph_key": "k", "cache_file_name": "./cache/k_20260415102030.om"}, cache)
    assert (content.records[0].problem, content.records[0].om_name) == ("", "k_20260415102030.om")  # it is missing
    (cache / "k_20260415102030.om").write_bytes(b"")
    content = parsed({"graph_key": "k", "cache_file_name": "./cache/k_20260415102030.om"}, cache)
    assert (content.records[0].problem, content.records[0].stem) == ("", "k_20260415102030")


@pytest.mark.parametrize("name", ["/etc/passwd", "../../secret.om", "a/..", "x\0.om", "", ".", "k.bin"])
def test_a_file_outside_the_cache_is_a_bad_path(name: str, tmp_path: Path) -> None:
    content = parsed({"graph_key": "k", "cache_file_name": name}, tmp_path)
    assert [record.problem for record in content.records] == ["bad_path"]


@pytest.mark.parametrize(
    "element", [1, "x", {}, {"graph_key": "k"}, {"graph_key": 1, "cache_file_name": "a.om"}, None, []]
)
def test_a_bad_element_is_set_apart_and_the_others_count(element: Any, tmp_path: Path) -> None:
    good = {"graph_key": "k", "cache_file_name": "a.om"}
    content = parse_index(json.dumps({"cache_file_list": [element, good]}).encode(), str(tmp_path))
    assert ([record.om_name for record in content.records], content.malformed) == (["a.om"], [element])


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"{}", b'{"cache_file_list": {}}', b'{"cache_file_list": [NaN]}', b"\xff\xfe{"],
)
def test_an_index_without_a_list_is_unreadable(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(UnreadableIndex):
        parse_index(data, str(tmp_path))


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    assert parse_index(b"\xef\xbb\xbf" + GOLDEN.encode(), str(tmp_path)).records[0].graph_key == "my_model_v1"


@pytest.mark.parametrize(
    "name", ["a\0.om", "\0", "..", "", "a/", "/etc/passwd", "x" * 5000, "k.idx", "weight", "\udcff.om"]
)
def test_a_record_that_names_anything_is_shown_and_breaks_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / "weight").mkdir()
    record = {"cache_file_name": name, "graph_key": "k", "var_desc_file_name": name}
    (tmp_path / "k.idx").write_text(json.dumps({"cache_file_list": [record]}))
    [row] = survey(str(tmp_path)).rows
    assert row.state in ("bad-path", "om-missing", "om-corrupt")
    assert {each.kind for each in verify(str(tmp_path)).problems} == {row.state}
    outcome = select(survey(str(tmp_path)), GcPolicy(), time.time())
    assert [each.why for each in outcome] == [row.state]
