"""JSON that is hardly more than brackets is refused before it becomes objects; graphs have room."""

from __future__ import annotations

from pathlib import Path

import pytest

from gecli.json_text import GRAPHS, TooManyValues, parse_json, require_room
from tests.artifacts.test_om_memory import ALLOWED_BYTES, MIB, measured
from tests.conftest import REPOSITORY

HEAD = b'{"gecli_graph": 1, "links": [], "nodes": ['
HOSTILE = {"lists": b"[],", "objects": b'{"a":0},', "nesting": b"["}


@pytest.mark.parametrize("command", ["compile", "inspect-om"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_text_of_brackets_takes_no_more_than_twice_its_size_and_64_mib(
    kind: str, command: str, tmp_path: Path
) -> None:
    path, piece = tmp_path / "graph.json", HOSTILE[kind]
    path.write_bytes(HEAD + piece * (4 * MIB // len(piece)) + b"1]}")
    output = ["-o", str(tmp_path / "out.om")] if command == "compile" else []
    peak, status, _ = measured("-m", "gecli", command, str(path), *output)
    limit = 2 * path.stat().st_size + ALLOWED_BYTES
    assert status == 3
    assert peak < limit, f"{peak / MIB:.1f} MiB of {limit / MIB:.1f}"


@pytest.mark.parametrize("kind", HOSTILE)
def test_every_reader_of_json_refuses_it(kind: str) -> None:
    with pytest.raises(TooManyValues, match="characters of a real file do not have"):
        parse_json(HEAD + HOSTILE[kind] * (4 * MIB // len(HOSTILE[kind])))


def test_graphs_have_room_at_any_size() -> None:
    node = b'{"id":"a%06x","type":"Add","outputs":[{"dtype":"DT_FLOAT","shape":[1,64]}]},'
    link = b'{"source":"a%06x","target":"a%06x","src":0,"dst":0},'
    sample = (REPOSITORY / "samples" / "train" / "conv_train.json").read_bytes()
    for text in (node % 7 + link % (6, 7) + link % (5, 7), sample):
        require_room(text * (64 * MIB // len(text)), GRAPHS)
