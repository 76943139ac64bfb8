"""Models that come from standard input: the same graph, and no file to refer to."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gecli.errors import InputError
from gecli.ir.text import text
from gecli.loading import load_graph

DIGITS = Path(__file__).resolve().parents[2] / "samples" / "digits" / "digits.onnx"


def type_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def test_an_onnx_model_from_standard_input_is_that_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, DIGITS.read_bytes())
    model = load_graph("-")
    assert model.files == ()
    assert text(model.graph) == text(load_graph(DIGITS).graph)


def test_files_named_by_a_graph_from_standard_input_need_a_base_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    np.save(tmp_path / "b.npy", np.ones(2, np.float32))
    document: dict[str, Any] = {"nodes": [{"id": "b", "type": "Const", "value": {"file": "b.npy"}}], "links": []}
    data = json.dumps(document).encode()
    type_in(monkeypatch, data)
    with pytest.raises(InputError) as caught:
        load_graph("-")
    assert (caught.value.code, caught.value.first.do) == ("G1003", "--base-dir DIR")
    type_in(monkeypatch, data)
    assert load_graph("-", base_dir=str(tmp_path)).files == (str(tmp_path / "b.npy"),)
