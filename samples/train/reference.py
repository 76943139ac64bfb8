"""The training of conv_train.json in plain numpy: what gecli's numbers are compared with, step by step.

Nothing is shared with gecli: convolutions are sums over the nine taps of the filter, gradients are written by hand.
Initial values, learning rate and momentum are read from the graph file, so that there is one place to change them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[np.floating[Any]]
Variables = dict[str, Array]

HERE = Path(__file__).resolve().parent
GRAPH = HERE / "conv_train.json"
LEARNT = ("w1", "b1", "w2", "b2", "w3", "b3")
TAPS = [(row, column) for row in range(3) for column in range(3)]


def train(batches_path: Path | str, steps: int, dtype: DTypeLike = np.float64) -> tuple[list[float], list[Variables]]:
    """Run the first `steps` batches.

    Returns the loss of each step (before its update) and, for each step, all variables after it, by the names and
    in the shapes that conv_train.json gives them: w1 is NCHW, w2 is HWCN, `<name>_momentum` are the slots.
    """
    variables, rate, momentum = starting_point(dtype)
    with np.load(batches_path) as batches:
        images, labels = batches["x"].astype(dtype), batches["labels"].astype(dtype)
    losses: list[float] = []
    history: list[Variables] = []
    for step in range(steps):
        loss, gradients = loss_and_gradients(variables, images[step], labels[step])
        for name in LEARNT:
            slot = variables[f"{name}_momentum"] * momentum + gradients[name]
            variables[f"{name}_momentum"] = slot
            variables[name] = variables[name] - rate * slot
        losses.append(loss)
        history.append(dict(variables))
    return losses, history


def starting_point(dtype: DTypeLike) -> tuple[Variables, Array, Array]:
    """Initial variables, learning rate and momentum of conv_train.json; the rates are float32 values, as there."""
    nodes = {node["id"]: node for node in json.loads(GRAPH.read_text())["nodes"]}
    variables = {}
    for name in LEARNT:
        for variable in (name, f"{name}_momentum"):
            node = nodes[variable]
            value = tensor(node["attrs"]["_init_value"]["tensor"], node["outputs"][0]["shape"])
            variables[variable] = value.astype(dtype)
    rate, momentum = (np.float32(nodes[name]["value"]["data"]).astype(dtype) for name in ("lr", "mu"))
    return variables, rate, momentum


def tensor(value: dict[str, Any], shape: list[int]) -> NDArray[np.float32]:
    """The float32 values of a tensor of the graph file."""
    if "file" in value:
        return np.load(HERE / value["file"])
    if "fill" in value:
        return np.full(shape, value["fill"], np.float32)
    return np.array(value["data"], np.float32)


def loss_and_gradients(variables: Variables, images: Array, labels: Array) -> tuple[float, Variables]:
    """Mean cross entropy of one batch and its gradient by every learnt variable."""
    w1 = variables["w1"]
    w2 = variables["w2"].transpose(3, 2, 0, 1)  # HWCN to NCHW
    h1 = np.maximum(conv(images, w1) + variables["b1"][:, None, None], 0)
    windows1 = windows(h1)
    pool1 = windows1.max(axis=-1)
    h2 = np.maximum(conv(pool1, w2) + variables["b2"][:, None, None], 0)
    flat = windows(h2).mean(axis=-1).reshape(len(images), -1)
    logits = flat @ variables["w3"] + variables["b3"]
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_total = np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    loss = (labels * (log_total - shifted)).sum(axis=1).mean()

    d_logits = (np.exp(shifted - log_total) - labels) / len(images)
    d_flat = d_logits @ variables["w3"].T
    d_pool2 = d_flat.reshape(len(images), 16, 2, 2, 1)
    d_pre2 = from_windows(np.repeat(d_pool2 / 4, 4, axis=-1)) * (h2 > 0)
    d_pool1 = conv_input_gradient(d_pre2, w2)
    winner = windows1.argmax(axis=-1)[..., None] == np.arange(4)  # argmax is the first of equal ones
    d_pre1 = from_windows(d_pool1[..., None] * winner) * (h1 > 0)
    return float(loss), {
        "w1": conv_filter_gradient(images, d_pre1),
        "b1": d_pre1.sum(axis=(0, 2, 3)),
        "w2": conv_filter_gradient(pool1, d_pre2).transpose(2, 3, 1, 0),
        "b2": d_pre2.sum(axis=(0, 2, 3)),
        "w3": flat.T @ d_logits,
        "b3": d_logits.sum(axis=0),
    }


def conv(x: Array, filters: Array) -> Array:
    """3x3 convolution of NCHW with zero padding 1; filters are [out,in,3,3]."""
    return sum(np.einsum("bchw,oc->bohw", shifted(x, tap), filters[:, :, *tap]) for tap in TAPS)


def conv_filter_gradient(x: Array, d_y: Array) -> Array:
    """Gradient of the filters [out,in,3,3]."""
    taps = [np.einsum("bohw,bchw->oc", d_y, shifted(x, tap)) for tap in TAPS]
    return np.stack(taps, axis=-1).reshape(d_y.shape[1], x.shape[1], 3, 3)


def conv_input_gradient(d_y: Array, filters: Array) -> Array:
    """Gradient of the input: a convolution with the filters turned by 180 degrees, in and out exchanged."""
    return conv(d_y, filters[:, :, ::-1, ::-1].transpose(1, 0, 2, 3))


def shifted(x: Array, tap: tuple[int, int]) -> Array:
    """What the tap (row, column) of a 3x3 filter sees at each pixel."""
    row, column = tap
    height, width = x.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return padded[:, :, row : row + height, column : column + width]


def windows(x: Array) -> Array:
    """The 2x2 windows of NCHW: [batch,channel,h/2,w/2,4], row by row inside a window."""
    batch, channels, height, width = x.shape
    split = x.reshape(batch, channels, height // 2, 2, width // 2, 2)
    return split.transpose(0, 1, 2, 4, 3, 5).reshape(batch, channels, height // 2, width // 2, 4)


def from_windows(x: Array) -> Array:
    """The inverse of windows."""
    batch, channels, height, width, _ = x.shape
    split = x.reshape(batch, channels, height, width, 2, 2).transpose(0, 1, 2, 4, 3, 5)
    return split.reshape(batch, channels, 2 * height, 2 * width)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    for number, value in enumerate(train(HERE / "batches.npz", count)[0], start=1):
        print(f"step {number:2d}  loss {value:.6f}")
