"""Laws: cut or not, cold or warm, a model gives the same; and no damage of the cache gives another result."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from gecli.jit.loading import jit_model
from tests.jit.dynamic_models import MODELS, Feeds, assert_equal, expected

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
STEPS = ("relu", "neg", "twice", "join", "unique", "positive", "nonzero", "shift", "top", "scale")


class Program:
    """A chain of operators on vectors of unknown length, some of which have lengths that depend on data."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.vectors = ["x"]
        self.count = 0

    def node(self, type: str, inputs: list[str], outputs: int = 1, **attrs: Any) -> list[str]:
        names = [f"t{self.count + index}" for index in range(outputs)]
        self.count += outputs
        self.nodes.append(helper.make_node(type, inputs, names, **attrs))
        return names

    def step(self, word: str, pick: int) -> None:
        a = self.vectors[pick % len(self.vectors)]
        b = self.vectors[(pick // 7) % len(self.vectors)]
        match word:
            case "relu":
                found = self.node("Relu", [a])[0]
            case "neg":
                found = self.node("Neg", [a])[0]
            case "twice":
                found = self.node("Add", [a, a])[0]
            case "join":
                found = self.node("Concat", [a, b], axis=0)[0]
            case "unique":
                found = self.node("Unique", [a])[0]
            case "positive":
                found = self.node("Compress", [a, self.node("Greater", [a, "zero"])[0]], axis=0)[0]
            case "nonzero":
                places = self.node("Transpose", self.node("NonZero", [a]), perm=[1, 0])[0]
                found = self.node("GatherND", [a, places])[0]
            case "shift":
                found = self.node("Add", [a, self.node("ReduceSum", [b, "axis"], keepdims=0)[0]])[0]
            case "top":
                found = self.node("TopK", [a, self.node("Shape", [a])[0]], 2)[0]
            case _:
                found = self.node("Mul", [a, "half"])[0]
        self.vectors.append(found)

    def model(self, outputs: list[str]) -> bytes:
        graph = helper.make_graph(
            [*self.nodes, *(helper.make_node("Identity", [name], [f"out{i}"]) for i, name in enumerate(outputs))],
            "g",
            [helper.make_tensor_value_info("x", F32, ["N"])],
            [helper.make_tensor_value_info(f"out{i}", F32, [f"M{i}"]) for i in range(len(outputs))],
            [
                onnx.numpy_helper.from_array(np.array(0, np.float32), "zero"),
                onnx.numpy_helper.from_array(np.array(0.5, np.float32), "half"),
                onnx.numpy_helper.from_array(np.array([0], np.int64), "axis"),
            ],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        data: bytes = model.SerializeToString()
        return data


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 1000)), min_size=1, max_size=9),
    pick=st.integers(0, 1000),
    inputs=st.lists(st.lists(st.integers(-2, 2), min_size=1, max_size=6), min_size=2, max_size=3),
)
def test_a_model_that_is_cut_gives_what_the_whole_gives(
    steps: list[tuple[str, int]], pick: int, inputs: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("law")
    program = Program()
    for word, choice in steps:
        program.step(word, choice)
    path = folder / "m.onnx"
    path.write_bytes(program.model([program.vectors[-1], program.vectors[pick % len(program.vectors)]]))
    feeds: list[Feeds] = [{"x": np.array(values, np.float32)} for values in inputs]
    for _ in range(2):
        model = jit_model(path, cache_dir=str(folder / "c"), cache_create="true")
        for each in (*feeds, *feeds):
            assert_equal(model.run(each)[0], expected(path, each))
        assert model.jit_warnings == []
    assert model.counts["compiled"] == 0
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled")
    make, classes = MODELS["computed_branch"]
    (folder / "m.onnx").write_bytes(make())
    model = jit_model(folder / "m.onnx", cache_dir=str(folder / "c"), cache_create="true", graph_key="k")
    for feeds in classes:
        model.run(feeds)
    return folder


def damaged(folder: Path, seed: int) -> str:
    """Change, cut or lengthen one file of the cache; says which."""
    choice = random.Random(seed)
    files = sorted(path for path in (folder / "c/jit").rglob("*") if path.is_file() and path.stat().st_size)
    path = choice.choice(files)
    data = bytearray(path.read_bytes())
    place = choice.randrange(len(data))
    match choice.randrange(4):
        case 0:
            data[place] ^= 1 << choice.randrange(8)
        case 1:
            data[place : place + 4] = b"\0\0\0\0"
        case 2:
            del data[place:]
        case _:
            data[place:place] = bytes(choice.randrange(256) for _ in range(3))
    path.write_bytes(data)
    return path.name


def check_damage(filled: Path, folder: Path, seed: int) -> None:
    shutil.copytree(filled, folder)
    name = damaged(folder, seed)
    for _ in range(2):
        model = jit_model(folder / "m.onnx", cache_dir=str(folder / "c"), graph_key="k")
        for feeds in MODELS["computed_branch"][1]:
            assert_equal(model.run(feeds)[0], expected(folder / "m.onnx", feeds))
    assert model.counts["compiled"] == 0, (seed, name)
    assert model.jit_warnings == [], (seed, name)
    shutil.rmtree(folder)


@pytest.mark.parametrize("seed", range(24))
def test_no_damage_gives_another_result(seed: int, filled: Path, tmp_path: Path) -> None:
    check_damage(filled, tmp_path / "copy", seed)


@pytest.mark.slow
def test_no_damage_of_five_hundred_gives_another_result(filled: Path, tmp_path: Path) -> None:
    for seed in range(100, 600):
        check_damage(filled, tmp_path / "copy", seed)
