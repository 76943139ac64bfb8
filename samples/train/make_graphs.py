"""Write the training samples as gecli JSON graphs, with their initial values and batches of digits.

A graph is built as the plain document that the JSON file holds: a list of nodes and a list of links. Gradients are
explicit nodes, as GE gets them from a framework.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

Array = NDArray[np.float32]
Document = dict[str, Any]

HERE = Path(__file__).resolve().parent
DATA_SEED = 7
# With this seed no activation of the 60 steps comes so near to a kink of Relu or a tie of MaxPool that float32 rounding
# decides it, so that other implementations stay within 1e-5 of reference.py. With many others one such flip makes 1e-2.
WEIGHT_SEED = 9
HELD_OUT = 360
BATCH = 32
STEPS = 60
DEVICES = 2  # of conv_parallel
CLASSES = 10
LEARNING_RATE = 0.08  # at 0.1 training is so restless that rounding to FLOAT16 decides the loss of a single batch
MOMENTUM = 0.9
PIXEL_MEAN = 4.9  # of the digits, whose pixels are 0 to 16
PIXEL_DEVIATION = 6.0
CAST_TO_FLOAT = 0  # DT_FLOAT in ge.DataType, the numbers of Cast's dst_type


def main() -> None:
    """Write everything that this folder holds beside the scripts."""
    initial = initial_values(np.random.default_rng(WEIGHT_SEED))
    for name in ("w2", "w3"):
        np.save(HERE / f"{name}.npy", initial[name])
    write(conv_init(initial), HERE / "conv_init.json")
    write(conv_train(initial), HERE / "conv_train.json")
    write(conv_eval(initial), HERE / "conv_eval.json")
    write(conv_parallel(initial), HERE / "conv_parallel.json")
    write(mlp_train(), HERE / "mlp_train.json")
    batches, held_out = digit_batches()
    np.savez_compressed(HERE / "batches.npz", **batches)
    np.savez_compressed(HERE / "held_out.npz", **held_out)


# --- the convolution network ------------------------------------------------------------------------------------------

# name: shape, format. One filter is NCHW and one is HWCN, so that both ways into FRACTAL_Z are used.
VARIABLES: dict[str, tuple[list[int], str]] = {
    "w1": ([8, 1, 3, 3], "NCHW"),
    "b1": ([8], "ND"),
    "w2": ([3, 3, 8, 16], "HWCN"),
    "b2": ([16], "ND"),
    "w3": ([64, CLASSES], "ND"),
    "b3": ([CLASSES], "ND"),
}
CONV = {"strides": [1, 1, 1, 1], "pads": [1, 1, 1, 1], "dilations": [1, 1, 1, 1], "groups": 1, "data_format": "NCHW"}
POOL = {"ksize": [1, 1, 2, 2], "strides": [1, 1, 2, 2], "padding": "VALID", "data_format": "NCHW"}


def conv_init(initial: dict[str, Array]) -> Document:
    """Assigns every variable, momentum too, its initial value: run before the first step, or to begin anew.

    The outputs are the variables after it.
    """
    graph = empty_graph("conv_init", inputs=[], outputs=[])
    for name, (shape, fmt) in VARIABLES.items():
        for variable, value in ((name, initial_tensor(name, initial)), (f"{name}_momentum", {"fill": 0.0})):
            add(graph, variable, "Variable", [], [desc(shape, fmt)])
            add_const(graph, f"{variable}_start", {"dtype": "DT_FLOAT", "shape": shape, "format": fmt, **value})
            add(graph, f"set_{variable}", "Assign", [variable, f"{variable}_start"], [desc(shape, fmt)])
            graph["graph"]["outputs"].append(f"set_{variable}:0")
    return graph


def conv_train(initial: dict[str, Array]) -> Document:
    """One training step: forward, gradients, and ApplyMomentum on every variable."""
    graph = empty_graph("conv_train", inputs=["x", "labels"], outputs=["loss:0", "accuracy:0"])
    add_variables(graph, initial)
    for name, (shape, fmt) in VARIABLES.items():
        add(graph, f"{name}_momentum", "Variable", [], [desc(shape, fmt)], {"_init_value": {"tensor": {"fill": 0.0}}})
    add_forward(graph)
    add_loss(graph)
    add_gradients(graph)
    add_updates(graph)
    return graph


def conv_parallel(initial: dict[str, Array]) -> Document:
    """The step of conv_train on DEVICES devices, each with its part of the batch.

    Every gradient is added over the devices and divided by their number, so all of them keep the same variables, which
    are those that conv_train has with the whole batch.
    """
    graph = empty_graph("conv_parallel", inputs=["x", "labels"], outputs=["loss:0", "accuracy:0"])
    add_variables(graph, initial, BATCH // DEVICES)
    for name, (shape, fmt) in VARIABLES.items():
        add(graph, f"{name}_momentum", "Variable", [], [desc(shape, fmt)], {"_init_value": {"tensor": {"fill": 0.0}}})
    add_forward(graph, BATCH // DEVICES)
    add_loss(graph, BATCH // DEVICES)
    add_gradients(graph, BATCH // DEVICES)
    for name, (shape, fmt) in VARIABLES.items():
        group = {"reduction": "sum", "group": "hccl_world_group"}
        add(graph, f"sum_d{name}", "HcomAllReduce", [f"d{name}"], [desc(shape, fmt)], group)
        add(graph, f"mean_d{name}", "Muls", [f"sum_d{name}"], [desc(shape, fmt)], {"value": 1.0 / DEVICES})
    add_updates(graph, "mean_d")
    return graph


def conv_eval(initial: dict[str, Array]) -> Document:
    """The forward pass over the same variables: in one session it sees what conv_train has learnt."""
    graph = empty_graph("conv_eval", inputs=["x", "labels"], outputs=["probabilities:0", "loss:0", "accuracy:0"])
    add_variables(graph, initial)
    add_forward(graph)
    add_loss(graph)
    add(graph, "probabilities", "SoftmaxV2", ["logits"], [desc([BATCH, CLASSES])], {"axes": [-1]})
    return graph


def initial_values(rng: np.random.Generator) -> dict[str, Array]:
    """Filters scaled for Relu, a last layer that starts near equal probabilities, small biases."""
    deviation = {"w1": np.sqrt(2 / 9), "w2": np.sqrt(2 / (9 * 8)), "w3": np.sqrt(0.5 / 64)}
    return {
        name: (rng.standard_normal(shape) * deviation.get(name, 0.01)).astype(np.float32)
        for name, (shape, _) in VARIABLES.items()
    }


def add_variables(graph: Document, initial: dict[str, Array], batch: int = BATCH) -> None:
    """The inputs and the learnt variables; the larger initial values stand in files beside the graph."""
    add(graph, "x", "Data", [], [desc([batch, 1, 8, 8], "NCHW")], {"index": 0})
    add(graph, "labels", "Data", [], [desc([batch, CLASSES])], {"index": 1})
    for name, (shape, fmt) in VARIABLES.items():
        value = {"_init_value": {"tensor": initial_tensor(name, initial)}}
        add(graph, name, "Variable", [], [desc(shape, fmt)], value)


def initial_tensor(name: str, initial: dict[str, Array]) -> Document:
    """Where the initial value of a learnt variable stands."""
    return {"file": f"{name}.npy"} if name in ("w2", "w3") else {"data": shortest(initial[name])}


def add_forward(graph: Document, batch: int = BATCH) -> None:
    """x -> logits: Conv2D, MaxPool, Conv2D, AvgPool and a dense layer."""
    first, second = desc([batch, 8, 8, 8], "NCHW"), desc([batch, 16, 4, 4], "NCHW")
    add(graph, "conv1", "Conv2D", ["x", "w1"], [first], CONV)
    add(graph, "pre1", "BiasAdd", ["conv1", "b1"], [first], {"data_format": "NCHW"})
    add(graph, "h1", "Relu", ["pre1"], [first])
    add(graph, "pool1", "MaxPool", ["h1"], [desc([batch, 8, 4, 4], "NCHW")], POOL)
    add(graph, "conv2", "Conv2D", ["pool1", "w2"], [second], CONV)
    add(graph, "pre2", "BiasAdd", ["conv2", "b2"], [second], {"data_format": "NCHW"})
    add(graph, "h2", "Relu", ["pre2"], [second])
    add(graph, "pool2", "AvgPool", ["h2"], [desc([batch, 16, 2, 2], "NCHW")], POOL)
    add_ints(graph, "flat_shape", [batch, 64])
    add(graph, "flat", "Reshape", ["pool2", "flat_shape"], [desc([batch, 64])])
    add_matmul(graph, "dense", "flat", "w3", [batch, CLASSES])
    add(graph, "logits", "BiasAdd", ["dense", "b3"], [desc([batch, CLASSES])], {"data_format": "NHWC"})


def add_loss(graph: Document, batch: int = BATCH) -> None:
    """logits, labels -> the mean cross entropy `loss` and the share of right answers `accuracy`."""
    losses = [desc([batch]), desc([batch, CLASSES])]
    add(graph, "xent", "SoftmaxCrossEntropyWithLogits", ["logits", "labels"], losses)
    add_ints(graph, "axis0", [0])
    add(graph, "loss", "ReduceMean", ["xent", "axis0"], [desc([])], {"keep_dims": False})
    add_int(graph, "class_axis", 1)
    index = {"dtype": {"dtype": "DT_INT64"}}
    add(graph, "predicted", "ArgMaxV2", ["logits", "class_axis"], [desc([batch], dtype="DT_INT64")], index)
    add(graph, "wanted", "ArgMaxV2", ["labels", "class_axis"], [desc([batch], dtype="DT_INT64")], index)
    add(graph, "right", "Equal", ["predicted", "wanted"], [desc([batch], dtype="DT_BOOL")])
    add(graph, "right_float", "Cast", ["right"], [desc([batch])], {"dst_type": CAST_TO_FLOAT})
    add(graph, "accuracy", "ReduceMean", ["right_float", "axis0"], [desc([])], {"keep_dims": False})


def add_gradients(graph: Document, batch: int = BATCH) -> None:
    """The gradient of `loss` by every variable, from the last layer to the first: d<variable>."""
    first, second, pooled = (desc([batch, *rest], "NCHW") for rest in ([8, 8, 8], [16, 4, 4], [8, 4, 4]))
    add(graph, "dlogits", "Muls", ["xent:1"], [desc([batch, CLASSES])], {"value": 1.0 / batch})
    add_matmul(graph, "dw3", "flat", "dlogits", [64, CLASSES], transpose_x1=True)
    add(graph, "db3", "BiasAddGrad", ["dlogits"], [desc([CLASSES])], {"data_format": "NHWC"})
    add_matmul(graph, "dflat", "dlogits", "w3", [batch, 64], transpose_x2=True)

    add_ints(graph, "pool2_shape", [batch, 16, 2, 2])
    add(graph, "dpool2", "Reshape", ["dflat", "pool2_shape"], [desc([batch, 16, 2, 2], "NCHW")])
    add_ints(graph, "h2_shape", [batch, 16, 4, 4])
    add(graph, "dh2", "AvgPoolGrad", ["h2_shape", "dpool2"], [second], POOL)
    add(graph, "dpre2", "ReluGrad", ["dh2", "h2"], [second])
    add(graph, "db2", "BiasAddGrad", ["dpre2"], [desc([16])], {"data_format": "NCHW"})
    add_ints(graph, "w2_shape", VARIABLES["w2"][0])
    add(graph, "dw2", "Conv2DBackpropFilter", ["pool1", "w2_shape", "dpre2"], [desc(*VARIABLES["w2"])], CONV)
    add_ints(graph, "pool1_shape", [batch, 8, 4, 4])
    add(graph, "dpool1", "Conv2DBackpropInput", ["pool1_shape", "w2", "dpre2"], [pooled], CONV)

    add(graph, "dh1", "MaxPoolGrad", ["h1", "pool1", "dpool1"], [first], POOL)
    add(graph, "dpre1", "ReluGrad", ["dh1", "h1"], [first])
    add(graph, "db1", "BiasAddGrad", ["dpre1"], [desc([8])], {"data_format": "NCHW"})
    add_ints(graph, "w1_shape", VARIABLES["w1"][0])
    add(graph, "dw1", "Conv2DBackpropFilter", ["x", "w1_shape", "dpre1"], [desc(*VARIABLES["w1"])], CONV)


def add_updates(graph: Document, gradient: str = "d") -> None:
    """One ApplyMomentum for each variable, after everything that reads the variable."""
    add_float(graph, "lr", LEARNING_RATE)
    add_float(graph, "mu", MOMENTUM)
    settings = {"use_nesterov": False, "use_locking": False}
    for name, (shape, fmt) in VARIABLES.items():
        inputs = [name, f"{name}_momentum", "lr", f"{gradient}{name}", "mu"]
        add(graph, f"up_{name}", "ApplyMomentum", inputs, [desc(shape, fmt)], settings)
    # These two read a weight and have no data path to its update; every other reader has one.
    add_control(graph, "dpool1", "up_w2")
    add_control(graph, "dflat", "up_w3")


# --- the small network with numbers that can be checked by hand -------------------------------------------------------


def mlp_train() -> Document:
    """A 4-5-3 network with batch 2 and ApplyGradientDescent; every value is short enough to check by hand."""
    updates = ["up_w1", "up_b1", "up_w2", "up_b2"]
    graph = empty_graph("mlp_train", ["x", "labels"], ["loss:0", *(f"{name}:0" for name in updates)])
    add(graph, "x", "Data", [], [desc([2, 4])], {"index": 0})
    add(graph, "labels", "Data", [], [desc([2, 3])], {"index": 1})
    add_mlp_variables(graph)
    add_float(graph, "lr", 0.1)
    add_ints(graph, "axis0", [0])

    add_matmul(graph, "mm1", "x", "w1", [2, 5])
    add(graph, "pre", "BiasAdd", ["mm1", "b1"], [desc([2, 5])], {"data_format": "NHWC"})
    add(graph, "h", "Relu", ["pre"], [desc([2, 5])])
    add_matmul(graph, "mm2", "h", "w2", [2, 3])
    add(graph, "logits", "BiasAdd", ["mm2", "b2"], [desc([2, 3])], {"data_format": "NHWC"})
    add(graph, "xent", "SoftmaxCrossEntropyWithLogits", ["logits", "labels"], [desc([2]), desc([2, 3])])
    add(graph, "loss", "ReduceMean", ["xent", "axis0"], [desc([])], {"keep_dims": False})

    add(graph, "dlogits", "Muls", ["xent:1"], [desc([2, 3])], {"value": 0.5})
    add_matmul(graph, "dw2", "h", "dlogits", [5, 3], transpose_x1=True)
    add(graph, "db2", "BiasAddGrad", ["dlogits"], [desc([3])], {"data_format": "NHWC"})
    add_matmul(graph, "dh", "dlogits", "w2", [2, 5], transpose_x2=True)
    add(graph, "dpre", "ReluGrad", ["dh", "h"], [desc([2, 5])])
    add_matmul(graph, "dw1", "x", "dpre", [4, 5], transpose_x1=True)
    add(graph, "db1", "BiasAddGrad", ["dpre"], [desc([5])], {"data_format": "NHWC"})

    for name, shape in (("w1", [4, 5]), ("b1", [5]), ("w2", [5, 3]), ("b2", [3])):
        inputs = [name, "lr", f"d{name}"]
        add(graph, f"up_{name}", "ApplyGradientDescent", inputs, [desc(shape)], {"use_locking": False})
    add_control(graph, "dh", "up_w2")
    return graph


def add_mlp_variables(graph: Document) -> None:
    """The weights and biases of the small network."""
    w1 = [
        [-0.5, 0.2, -0.2, 0.5, 0.1],
        [-0.3, 0.4, 0.0, -0.4, 0.3],
        [-0.1, -0.5, 0.2, -0.2, 0.5],
        [0.1, -0.3, 0.4, 0.0, -0.4],
    ]
    w2 = [[-0.3, 0.2, 0.0], [-0.2, 0.3, 0.1], [-0.1, -0.3, 0.2], [0.0, -0.2, 0.3], [0.1, -0.1, -0.3]]
    values: dict[str, tuple[list[int], list[Any]]] = {
        "w1": ([4, 5], w1),
        "b1": ([5], [0.1, -0.1, 0.3, 0.0, -0.2]),
        "w2": ([5, 3], w2),
        "b2": ([3], [0.0, 0.1, -0.1]),
    }
    for name, (shape, data) in values.items():
        add(graph, name, "Variable", [], [desc(shape)], {"_init_value": {"tensor": {"data": data}}})


# --- batches ----------------------------------------------------------------------------------------------------------


def digit_batches() -> tuple[dict[str, Array], dict[str, Array]]:
    """60 training batches (leading axis = step) and one batch of images that no training batch holds."""
    digits = load_digits()
    rng = np.random.default_rng(DATA_SEED)
    order = rng.permutation(len(digits.target))
    images = ((digits.images - PIXEL_MEAN) / PIXEL_DEVIATION).astype(np.float32)[:, None]
    labels = np.eye(CLASSES, dtype=np.float32)[digits.target]
    training = order[HELD_OUT:]
    epochs = -(-STEPS * BATCH // len(training))
    chosen = np.concatenate([rng.permutation(training) for _ in range(epochs)])[: STEPS * BATCH].reshape(STEPS, BATCH)
    held_out = order[:BATCH]
    return (
        {"x": images[chosen], "labels": labels[chosen]},
        {"x": images[held_out], "labels": labels[held_out]},
    )


# --- the document -----------------------------------------------------------------------------------------------------


def empty_graph(name: str, inputs: list[str], outputs: list[str]) -> Document:
    """A document without nodes."""
    header = {"name": name, "inputs": inputs, "outputs": outputs, "opset": None, "attrs": {}}
    return {"gecli_graph": 1, "directed": True, "multigraph": True, "graph": header, "nodes": [], "links": []}


def desc(shape: list[int], fmt: str = "ND", dtype: str = "DT_FLOAT") -> Document:
    """A tensor descriptor."""
    return {"dtype": dtype, "shape": shape, "format": fmt}


def add(
    graph: Document,
    node: str,
    op_type: str,
    inputs: Iterable[str],
    outputs: list[Document],
    attrs: Document | None = None,
) -> None:
    """Add a node and the links of its inputs; an input is `node` or `node:output`."""
    entry: Document = {"id": node, "type": op_type}
    if attrs:
        entry["attrs"] = attrs
    graph["nodes"].append({**entry, "outputs": outputs})
    for slot, source in enumerate(inputs):
        producer, _, output = source.partition(":")
        graph["links"].append({"source": producer, "target": node, "src_out": int(output or 0), "dst_in": slot})


def add_control(graph: Document, before: str, after: str) -> None:
    """Order two nodes without data between them."""
    graph["links"].append({"source": before, "target": after, "control": True})


def add_matmul(
    graph: Document,
    node: str,
    x1: str,
    x2: str,
    shape: list[int],
    transpose_x1: bool = False,
    transpose_x2: bool = False,
) -> None:
    """A MatMulV2 node."""
    flags = {"transpose_x1": transpose_x1, "transpose_x2": transpose_x2}
    add(graph, node, "MatMulV2", [x1, x2], [desc(shape)], flags)


def add_ints(graph: Document, node: str, values: list[int]) -> None:
    """A constant vector of INT32."""
    add_const(graph, node, {"dtype": "DT_INT32", "shape": [len(values)], "data": values})


def add_int(graph: Document, node: str, value: int) -> None:
    """A constant INT32 scalar."""
    add_const(graph, node, {"dtype": "DT_INT32", "shape": [], "data": value})


def add_float(graph: Document, node: str, value: float) -> None:
    """A constant FLOAT scalar."""
    add_const(graph, node, {"dtype": "DT_FLOAT", "shape": [], "data": value})


def add_const(graph: Document, node: str, value: Document) -> None:
    """A Const node; its descriptor comes from the value."""
    graph["nodes"].append({"id": node, "type": "Const", "value": value})


def shortest(values: Array) -> Any:
    """Nested lists with the fewest digits that still give back every float32."""
    if values.ndim:
        return [shortest(part) for part in values]
    return float(str(values))


def write(graph: Document, path: Path) -> None:
    """Write the document with one node or link on a line."""
    lines = {part: ",\n".join(f"  {json.dumps(entry)}" for entry in graph[part]) for part in ("nodes", "links")}
    head = json.dumps({key: value for key, value in graph.items() if key not in lines})[:-1]
    path.write_text(f'{head},\n "nodes": [\n{lines["nodes"]}\n ],\n "links": [\n{lines["links"]}\n ]\n}}\n')


if __name__ == "__main__":
    main()
