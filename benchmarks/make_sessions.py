#!/usr/bin/env python3
"""Write the graphs of a training session as gecli JSON: init.json, train.json and eval.json over the same variables.

    make_sessions.py FOLDER VARIABLES

10 nodes a variable in all three graphs together. A layer is Conv2D - BiasAdd - Relu - Mul and has three variables:
a filter, which the device wants in FRACTAL_Z; a bias; and a scale, stored as FLOAT16 and read through Cast and Reshape.
`init` assigns all of them (so the forms that `train` chooses make it stale), `train` has gradients and updates, `eval`
reads. In a random half of the layers, by seed, the scale is updated as well and there is no Relu. All updates read one
variable, the learning rate.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

SEED = 11
GRAPHS = ("init", "train", "eval")
CHANNELS = 8
FILTER = ([CHANNELS, CHANNELS, 3, 3], "NCHW", "DT_FLOAT")
VECTOR = ([CHANNELS], "ND", "DT_FLOAT")
SCALE = ([CHANNELS], "ND", "DT_FLOAT16")
WIDE_SCALE = ([1, CHANNELS, 1, 1], "NCHW", "DT_FLOAT")
SCALAR = ([], "ND", "DT_FLOAT")
IMAGE = ([1, CHANNELS, 4, 4], "NCHW", "DT_FLOAT")
CONV = {"strides": [1, 1, 1, 1], "pads": [1, 1, 1, 1], "dilations": [1, 1, 1, 1], "groups": 1, "data_format": "NCHW"}
CAST_TO_FLOAT = 0  # DT_FLOAT in ge.DataType

Desc = tuple[list[int], str, str]


class Builder:
    """A graph under construction; an input is `node` or `node:output`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[dict[str, Any]] = []
        self.links: list[dict[str, Any]] = []

    def op(self, node: str, kind: str, inputs: list[str], *outputs: Desc, after: str = "", **attrs: Any) -> str:
        described = [{"dtype": dtype, "shape": shape, "format": fmt} for shape, fmt, dtype in outputs]
        entry: dict[str, Any] = {"id": node, "type": kind, "outputs": described}
        self.nodes.append({**entry, "attrs": attrs} if attrs else entry)
        for slot, source in enumerate(inputs):
            producer, _, port = source.partition(":")
            self.links.append({"source": producer, "target": node, "src_out": int(port or 0), "dst_in": slot})
        if after:
            self.links.append({"source": after, "target": node, "control": True})
        return node

    def const(self, node: str, dtype: str, shape: list[int], **content: Any) -> str:
        self.nodes.append({"id": node, "type": "Const", "value": {"dtype": dtype, "shape": shape, **content}})
        return node

    def variables(self, layers: int) -> None:
        for k in range(layers):
            self.op(f"layer{k}/w", "Variable", [], FILTER)
            self.op(f"layer{k}/b", "Variable", [], VECTOR)
            self.op(f"layer{k}/s", "Variable", [], SCALE)

    def save(self, folder: Path, inputs: list[str], outputs: list[str]) -> None:
        header = {"name": self.name, "inputs": inputs, "outputs": outputs, "opset": None, "attrs": {}}
        document = {"gecli_graph": 1, "directed": True, "multigraph": True, "graph": header}
        (folder / f"{self.name}.json").write_text(json.dumps({**document, "nodes": self.nodes, "links": self.links}))


def forward(b: Builder, layers: int, has_relu: list[bool]) -> str:
    """x -> the last layer's output."""
    b.op("x", "Data", [], IMAGE, index=0)
    b.const("wide", "DT_INT64", [4], data=WIDE_SCALE[0])
    x = "x"
    for k, relu in enumerate(has_relu[:layers]):
        at = f"layer{k}/"
        x = b.op(f"{at}conv", "Conv2D", [x, f"{at}w"], IMAGE, **CONV)
        x = b.op(f"{at}pre", "BiasAdd", [x, f"{at}b"], IMAGE, data_format="NCHW")
        x = b.op(f"{at}relu", "Relu", [x], IMAGE) if relu else x
        b.op(f"{at}cast", "Cast", [f"{at}s"], (*SCALE[:2], "DT_FLOAT"), dst_type=CAST_TO_FLOAT)
        scale = b.op(f"{at}scale", "Reshape", [f"{at}cast", "wide"], WIDE_SCALE)
        x = b.op(f"{at}y", "Mul", [x, scale], IMAGE)
    return x


def backward(b: Builder, layers: int, has_relu: list[bool], gradient: str) -> None:
    """The gradients from the last layer to the first, and every update behind the readers of its variable."""
    b.const("image_shape", "DT_INT32", [4], data=IMAGE[0])
    b.const("filter_shape", "DT_INT32", [4], data=FILTER[0])
    b.const("scale_step", "DT_FLOAT16", [CHANNELS], fill=0.5)
    b.op("rate", "Variable", [], SCALAR)
    d = gradient
    for k in reversed(range(layers)):
        at = f"layer{k}/"
        x = f"layer{k - 1}/y" if k else "x"
        d = b.op(f"{at}dmul", "Mul", [d, f"{at}scale"], IMAGE)
        d = b.op(f"{at}drelu", "ReluGrad", [d, f"{at}relu"], IMAGE) if has_relu[k] else d
        b.op(f"{at}db", "BiasAddGrad", [d], VECTOR, data_format="NCHW")
        b.op(f"{at}dw", "Conv2DBackpropFilter", [x, "filter_shape", d], FILTER, **CONV)
        dx = b.op(f"{at}dx", "Conv2DBackpropInput", ["image_shape", f"{at}w", d], IMAGE, **CONV)
        b.op(f"{at}up_w", "ApplyGradientDescent", [f"{at}w", "rate", f"{at}dw"], FILTER, after=dx)
        b.op(f"{at}up_b", "ApplyGradientDescent", [f"{at}b", "rate", f"{at}db"], VECTOR)
        if not has_relu[k]:
            b.op(f"{at}up_s", "AssignAdd", [f"{at}s", "scale_step"], SCALE, after=f"{at}cast")
        d = dx


def init_graph(layers: int) -> Builder:
    b = Builder("init")
    b.variables(layers)
    b.op("rate", "Variable", [], SCALAR)
    b.op("steps", "Variable", [], SCALAR)
    values = {
        "w": (FILTER, 0.01),
        "b": (VECTOR, 0.125),
        "s": (SCALE, 0.5),
        "rate": (SCALAR, 0.25),
        "steps": (SCALAR, 0),
    }
    for name, ((shape, _, dtype), value) in values.items():
        b.const(f"{name}_start", dtype, shape, fill=value)
    for k in range(layers):
        for name in ("w", "b", "s"):
            b.op(f"layer{k}/set_{name}", "Assign", [f"layer{k}/{name}", f"{name}_start"], values[name][0])
    for name in ("rate", "steps"):
        b.op(f"set_{name}", "Assign", [name, f"{name}_start"], SCALAR)
    return b


def main(folder: Path, variables: int) -> None:
    """Write the three graphs of a session with about this many variables."""
    layers = (variables - 2) // 3
    has_relu = [k % 2 == 0 for k in range(layers)]
    random.Random(SEED).shuffle(has_relu)
    folder.mkdir(parents=True, exist_ok=True)
    init = init_graph(layers)
    init.save(folder, [], ["set_steps:0"])

    train = Builder("train")
    train.variables(layers)
    y = forward(train, layers, has_relu)
    train.op("loss", "L2Loss", [y], SCALAR)  # the gradient of y is y
    backward(train, layers, has_relu, y)
    train.op("steps", "Variable", [], SCALAR)
    train.const("one", "DT_FLOAT", [], fill=1.0)
    train.op("count", "AssignAdd", ["steps", "one"], SCALAR)
    train.save(folder, ["x"], ["loss:0", "count:0"])

    evaluate = Builder("eval")
    evaluate.variables(layers)
    y = forward(evaluate, layers, has_relu)
    evaluate.op("loss", "L2Loss", [y], SCALAR)
    evaluate.save(folder, ["x"], [f"{y}:0", "loss:0"])
    nodes = sum(len(graph.nodes) for graph in (init, train, evaluate))
    print(f"{3 * layers + 2} variables, {nodes} nodes")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), int(sys.argv[2]))
