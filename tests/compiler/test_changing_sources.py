"""A source that changes while it is compiled gives an error: no OM, and no entry of a cache, is made of two files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

from gecli.cli.app import run
from gecli.compiler import api

WORDS = ("--quiet",)


def write_model(path: Path, value: float, *, data_file: bool = False) -> None:
    weight = onnx.numpy_helper.from_array(np.full((64, 64), value, np.float32), "w")
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    ports = [onnx.helper.make_tensor_value_info(name, 1, [1, 64]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", ports[:1], ports[1:], [weight])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path, save_as_external_data=data_file, location="data.bin", size_threshold=0)


def between(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """`change` happens once, between the loading of the model and the writing of its weights."""
    original, done = api.image_of, []

    def changed(*arguments: Any, **options: Any) -> Any:
        if not done:
            done.append(change())
        return original(*arguments, **options)

    monkeypatch.setattr(api, "image_of", changed)


@pytest.mark.parametrize("cache", [(), ("--cache-dir", "cache", "--cache-create")])
@pytest.mark.parametrize("data_file", [False, True])
def test_a_source_that_is_replaced_is_an_error(
    data_file: bool, cache: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for folder, value in (("old", 1.0), ("new", 2.0)):
        os.mkdir(folder)
        write_model(Path(folder, "m.onnx"), value, data_file=data_file)
    file = "data.bin" if data_file else "m.onnx"
    between(monkeypatch, lambda: os.replace(f"new/{file}", f"old/{file}"))
    assert run(["compile", "old/m.onnx", "-o", "out/m", *cache, *WORDS]) == 3
    assert f"{file} changed while it was read" in capsys.readouterr().err
    assert not os.path.exists("out/m.om") and not [*tmp_path.glob("cache/*.om"), *tmp_path.glob("cache/*.idx")]
    assert run(["compile", "old/m.onnx", "-o", "out/m", *cache, *WORDS]) == 0
    write_model(Path("old/m.onnx"), 2.0, data_file=data_file)
    assert run(["compile", "old/m.onnx", "-o", "again/m", "--no-cache", *WORDS]) == 0
    assert Path("out/m.om").read_bytes() == Path("again/m.om").read_bytes()
