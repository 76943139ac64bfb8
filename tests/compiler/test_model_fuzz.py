"""Changed models by the hundred: whatever stands in a file, a compile ends with a model or with a clear refusal."""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from gecli.compiler.api import compile_models
from gecli.errors import GecliError
from gecli.ops.registry import find_onnx
from gecli.options.resolution import resolve

REPOSITORY = Path(__file__).resolve().parents[2]
TRAIN = REPOSITORY / "samples/train"
INTEGERS = (0, -1, 1, 2, 3, 5, -2, 100, 2**31, 2**62, -(2**63))
ODD_VALUES = (1, 1.5, b"x", [1, 2], [1.5], [b"a"])
JSON_VALUES = (None, True, 0, -1, 2, 2**40, 1.5, "", "x", "DT_FLOAT", "DT_STRING", "NC1HWC0", [], [0], [1, 2], {}, "If")


def compiled_or_refused(path: Path) -> str:
    """How a compile ends; every refusal has its four parts. Anything but a GecliError is a fault of gecli."""
    output = path.with_suffix(".om")
    output.unlink(missing_ok=True)
    options = resolve("compile", {"output": [str(output)]}, environ={})
    try:
        compile_models([str(path)], options)
    except GecliError as error:
        assert error.exit_status in (3, 4), error.first
        for diagnostic in error.at(where="gecli compile").diagnostics:
            text = "\n".join(diagnostic.lines())
            assert all(part in text for part in ("-->", "why:", "do:")), text
        assert not output.exists()
        return str(error.code)
    except MemoryError:
        return "memory"
    return "compiled"


@cache
def node_models() -> dict[str, list[onnx.ModelProto]]:
    """Small models of the onnx package by their first operator, of operators that gecli imports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        cases = load_model_tests(kind="node")
    found: dict[str, list[onnx.ModelProto]] = {}
    for case in cases:
        opsets = {each.domain: each.version for each in case.model.opset_import}
        nodes = case.model.graph.node
        if len(nodes) < 4 and all(find_onnx(n.op_type, n.domain, opsets.get(n.domain, 21)) for n in nodes):
            found.setdefault(nodes[0].op_type, []).append(case.model)
    return found


def change_model(model: onnx.ModelProto, chance: random.Random) -> None:
    graph = model.graph
    node = chance.choice(list(graph.node))
    kind = chance.choice(("attribute", "attribute", "kind", "dim", "rank", "type", "input", "extra"))
    if kind in ("attribute", "kind") and node.attribute:
        attribute = chance.choice(list(node.attribute))
        if kind == "kind":
            attribute.CopyFrom(helper.make_attribute(attribute.name, chance.choice(ODD_VALUES)))
        elif attribute.type == onnx.AttributeProto.INT:
            attribute.i = chance.choice(INTEGERS)
        elif attribute.type == onnx.AttributeProto.INTS and attribute.ints:
            attribute.ints[chance.randrange(len(attribute.ints))] = chance.choice(INTEGERS)
    elif kind in ("dim", "rank", "type") and graph.input:
        tensor = chance.choice(list(graph.input)).type.tensor_type
        if kind == "type":
            tensor.elem_type = chance.choice((1, 2, 3, 6, 7, 8, 9, 10, 11, 14, 16))
        elif kind == "rank":
            tensor.shape.dim.add().dim_value = chance.choice((1, 2, 0))
        elif tensor.shape.dim:
            dim = tensor.shape.dim[chance.randrange(len(tensor.shape.dim))]
            dim.dim_value = chance.choice((0, 1, 2, 7, 2**31, 2**40))
    elif kind == "input" and node.input:
        node.input[chance.randrange(len(node.input))] = ""
    elif kind == "extra" and graph.input:
        node.input.append(graph.input[0].name)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_changed_onnx_models_compile_or_are_refused(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    ends = Counter[str]()
    for _ in range(150):
        model = onnx.ModelProto()
        model.CopyFrom(chance.choice(node_models()[chance.choice(sorted(node_models()))]))
        for _ in range(chance.choice((1, 1, 2, 3))):
            change_model(model, chance)
        path = tmp_path / "m.onnx"
        path.write_bytes(model.SerializeToString())
        ends[compiled_or_refused(path)] += 1
    assert ends["compiled"] and len(ends) > 2


def places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(each for key, item in inner for each in places(item, (*place, key)))]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp_train", "conv_train", "conv_eval"])
def test_changed_json_graphs_compile_or_are_refused(tmp_path: Path, name: str) -> None:
    chance = random.Random(name)
    original = json.loads((TRAIN / f"{name}.json").read_text())
    where = [place for place in places(original) if place]
    for array in TRAIN.glob("w*.npy"):
        (tmp_path / array.name).write_bytes(array.read_bytes())
    ends = Counter[str]()
    for _ in range(120):
        document = deepcopy(original)
        place = chance.choice(where)
        target: Any = document
        for key in place[:-1]:
            target = target[key]
        if chance.random() < 0.2:
            del target[place[-1]]
        else:
            target[place[-1]] = chance.choice(JSON_VALUES)
        path = tmp_path / "m.json"
        path.write_text(json.dumps(document))
        ends[compiled_or_refused(path)] += 1
    assert ends["compiled"] and len(ends) > 2


@pytest.mark.slow
def test_a_model_with_flipped_bits_compiles_or_is_refused(tmp_path: Path) -> None:
    data = (REPOSITORY / "samples/digits/digits.onnx").read_bytes()
    chance = random.Random(1)
    path = tmp_path / "m.onnx"
    for _ in range(200):
        changed = bytearray(data)
        for _ in range(chance.choice((1, 1, 8))):
            changed[chance.choice((chance.randrange(len(data)), chance.randrange(400)))] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        compiled_or_refused(path)
