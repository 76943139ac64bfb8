#!/usr/bin/env python3
"""Write synthetic ONNX models, random weights by seed, each with its X.feeds.json.

    make_models.py FOLDER [NAME ...]

elt-10, elt-1k, elt-10k, elt-100k   N elementwise nodes on [1, 64] with skip connections: work for the compiler only
mlp-deep                            100 layers of 1024 x 1024 (MatMul + Add + Relu), 420 MB of weights
bert-base-shape                     12 layers, width 768, 12 heads, 434 MB of weights, sequence 128, attention
                                    spelled out as the PyTorch exporter does, GELU by Erf
gib                                 11 matrix products with 1 GiB of weights, all zero, in a file with holes: for
                                    looking at, not for running
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from feeds import feeds_path
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
SEED = 7


class Builder:
    """An ONNX graph under construction; tensors are named by who makes them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rng = np.random.default_rng(SEED)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def const(self, value: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def random(self, *shape: int, scale: float) -> str:
        return self.const(self.rng.standard_normal(shape, dtype=np.float32) * np.float32(scale))

    def op(self, kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        number = len(self.nodes) + 1
        out = out or f"{kind}_{number}_out"
        self.nodes.append(helper.make_node(kind, inputs, [out], name=f"/{self.name}/{kind}_{number}", **attributes))
        return out

    def save(self, path: Path, output: tuple[str, list[int]], feeds: dict[str, dict[str, Any]]) -> None:
        types = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}
        inputs = [
            helper.make_tensor_value_info(name, types[entry["dtype"]], entry["shape"]) for name, entry in feeds.items()
        ]
        outputs = [helper.make_tensor_value_info(output[0], TensorProto.FLOAT, output[1])]
        graph = helper.make_graph(self.nodes, self.name, inputs, outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        onnx.save(model, path)
        feeds_path(path).write_text(json.dumps(feeds, indent=1))


def elementwise(path: Path, count: int) -> None:
    """No two nodes are alike (nothing to eliminate), all are live, values stay in (-1, 1)."""
    b = Builder("elt")
    constants = [b.random(1, 64, scale=0.5) for _ in range(16)]
    values = ["x"]

    def a_constant() -> str:
        return constants[int(b.rng.integers(16))]

    def a_recent_value() -> str:
        return values[int(b.rng.integers(max(0, len(values) - 50), len(values)))]

    steps: list[Callable[[str], str]] = [
        lambda x: b.op("Add", x, a_constant()),
        lambda x: b.op("Tanh", x),
        lambda x: b.op("Mul", x, a_constant()),
        lambda x: b.op("Sub", x, a_recent_value()),
        lambda x: b.op("Sigmoid", x),
        lambda x: b.op("Max", x, a_recent_value()),
    ]
    while len(b.nodes) < count - 1:
        values.append(steps[len(b.nodes) % len(steps)](values[-1]))
    b.op("Add", values[-1], values[0], out="y")
    b.save(path, ("y", [1, 64]), {"x": {"shape": [1, 64], "dtype": "float32"}})


def mlp(path: Path, width: int = 1024, layers: int = 100) -> None:
    b = Builder("mlp")
    x = "x"
    for _ in range(layers):
        product = b.op("MatMul", x, b.random(width, width, scale=(2 / width) ** 0.5))
        x = b.op("Relu", b.op("Add", product, b.random(width, scale=0.01)))
    b.op("Identity", x, out="y")
    b.save(path, ("y", [1, width]), {"x": {"shape": [1, width], "dtype": "float32"}})


def bert(path: Path, width: int = 768, heads: int = 12, layers: int = 12, words: int = 30522, seq: int = 128) -> None:
    b = Builder("bert")
    one, half, root_two, root_head = (b.const(np.float32(x)) for x in (1, 0.5, 2**0.5, (width // heads) ** 0.5))
    split = b.const(np.array([1, seq, heads, width // heads]))
    flat = b.const(np.array([1, seq, width]))

    def norm(x: str) -> str:
        scale, bias = b.const(np.ones(width, np.float32)), b.const(np.zeros(width, np.float32))
        return b.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-12)

    def linear(x: str, inner: int, outer: int) -> str:
        return b.op("Add", b.op("MatMul", x, b.random(inner, outer, scale=0.02)), b.random(outer, scale=0.01))

    def head(x: str, perm: list[int]) -> str:
        return b.op("Transpose", b.op("Reshape", linear(x, width, width), split), perm=perm)

    def layer(x: str, mask: str) -> str:
        query, key, value = head(x, [0, 2, 1, 3]), head(x, [0, 2, 3, 1]), head(x, [0, 2, 1, 3])
        scores = b.op("Add", b.op("Div", b.op("MatMul", query, key), root_head), mask)
        context = b.op("MatMul", b.op("Softmax", scores, axis=-1), value)
        context = b.op("Reshape", b.op("Transpose", context, perm=[0, 2, 1, 3]), flat)
        x = norm(b.op("Add", linear(context, width, width), x))
        hidden = linear(x, width, 4 * width)
        erf = b.op("Erf", b.op("Div", hidden, root_two))
        gelu = b.op("Mul", b.op("Mul", hidden, b.op("Add", erf, one)), half)
        return norm(b.op("Add", linear(gelu, 4 * width, width), x))

    x = b.op("Gather", b.random(words, width, scale=0.02), "input_ids", axis=0)
    x = norm(b.op("Add", x, b.random(1, seq, width, scale=0.02)))
    absent = b.op("Sub", one, b.op("Cast", "attention_mask", to=TensorProto.FLOAT))
    mask = b.op("Unsqueeze", b.op("Mul", absent, b.const(np.float32(-10000))), b.const(np.array([1, 2])))
    for _ in range(layers):
        x = layer(x, mask)
    b.op("Identity", x, out="last_hidden_state")
    feeds = {
        "input_ids": {"shape": [1, seq], "dtype": "int64", "kind": "int", "hi": words},
        "attention_mask": {"shape": [1, seq], "dtype": "int64", "kind": "const", "value": 1},
    }
    b.save(path, ("last_hidden_state", [1, seq, width]), feeds)


def gib(path: Path, first: int = 5000, layers: int = 11) -> None:
    """Every weight has a size of its own, so that none is stored for another."""
    widths = [first + 16 * k for k in range(layers + 1)]
    data = path.with_suffix(".weights")
    nodes, weights, position = [], [], 0
    for k, (rows, columns) in enumerate(pairwise(widths)):
        size = 4 * rows * columns
        weight = TensorProto(name=f"w{k}", data_type=TensorProto.FLOAT, dims=[rows, columns])
        weight.data_location = TensorProto.EXTERNAL
        for key, value in (("location", data.name), ("offset", str(position)), ("length", str(size))):
            weight.external_data.add(key=key, value=value)
        weights.append(weight)
        nodes.append(helper.make_node("MatMul", [f"x{k}", f"w{k}"], [f"x{k + 1}"], name=f"m{k}"))
        position += size
    with data.open("wb") as stream:
        stream.truncate(position)
    inputs = [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [1, widths[0]])]
    outputs = [helper.make_tensor_value_info(f"x{layers}", TensorProto.FLOAT, [1, widths[-1]])]
    graph = helper.make_graph(nodes, "gib", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    feeds_path(path).write_text(json.dumps({"x0": {"shape": [1, widths[0]], "dtype": "float32"}}, indent=1))


MAKERS: dict[str, Callable[[Path], None]] = {
    "elt-10": lambda path: elementwise(path, 10),
    "elt-1k": lambda path: elementwise(path, 1_000),
    "elt-10k": lambda path: elementwise(path, 10_000),
    "elt-100k": lambda path: elementwise(path, 100_000),
    "mlp-deep": mlp,
    "bert-base-shape": bert,
    "gib": gib,
}


def main(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or MAKERS:
        path = folder / f"{name}.onnx"
        MAKERS[name](path)
        print(f"{path.stat().st_size / 1e6:9.1f} MB  {name}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), *sys.argv[2:])
