"""The training samples: the numpy reference is right, it learns, and the graph files obey the rules of the format."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import networkx as nx
import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "samples" / "train"
BATCHES = FOLDER / "batches.npz"
GRAPHS = ("conv_init", "conv_train", "conv_eval", "mlp_train")
LEARNT = ("w1", "b1", "w2", "b2", "w3", "b3")
OPTIMIZERS = ("ApplyMomentum", "ApplyGradientDescent")


def script(name: str) -> ModuleType:
    """A script of the samples folder as a module."""
    spec = importlib.util.spec_from_file_location(f"sample_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = script("reference")
make_graphs = script("make_graphs")


def load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return document


def nodes(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {node["id"]: node for node in document["nodes"]}


def data_links(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [link for link in document["links"] if not link.get("control")]


@pytest.mark.parametrize("name", LEARNT)
def test_gradients_agree_with_central_differences(name: str) -> None:
    variables, _, _ = reference.starting_point(np.float64)
    with np.load(BATCHES) as batches:
        images, labels = batches["x"][0].astype(float), batches["labels"][0].astype(float)
    _, gradients = reference.loss_and_gradients(variables, images, labels)
    step = 1e-6
    places = np.random.default_rng(0).choice(variables[name].size, size=min(8, variables[name].size), replace=False)
    for place in places:
        index = np.unravel_index(place, variables[name].shape)
        losses = []
        for sign in (1, -1):
            moved = variables[name].copy()
            moved[index] += sign * step
            losses.append(reference.loss_and_gradients({**variables, name: moved}, images, labels)[0])
        assert gradients[name][index] == pytest.approx((losses[0] - losses[1]) / (2 * step), rel=1e-5, abs=1e-8)


def test_loss_falls_to_at_most_one_half_within_60_steps() -> None:
    losses, history = reference.train(BATCHES, 60)
    assert len(losses) == len(history) == 60
    assert losses[0] > 2.0
    assert max(losses[-10:]) <= 0.5


def test_float32_rounding_stays_far_below_the_tolerance_of_the_comparison() -> None:
    losses, history = reference.train(BATCHES, 60)
    single_losses, single_history = reference.train(BATCHES, 60, np.float32)
    np.testing.assert_allclose(single_losses, losses, atol=1e-5, rtol=0)
    for step, single_step in zip(history, single_history, strict=True):
        for name, value in step.items():
            assert single_step[name].dtype == np.float32
            np.testing.assert_allclose(single_step[name], value, atol=1e-5, rtol=0, err_msg=name)


def test_first_step_is_plain_descent_because_momentum_starts_at_zero() -> None:
    start, rate, _ = reference.starting_point(np.float64)
    _, (after,) = reference.train(BATCHES, 1)
    for name in LEARNT:
        np.testing.assert_allclose(after[name], start[name] - rate * after[f"{name}_momentum"], rtol=1e-12)


@pytest.mark.parametrize("name", GRAPHS)
def test_node_names_are_unique_and_links_refer_to_nodes_and_outputs(name: str) -> None:
    document = load(name)
    known = nodes(document)
    assert len(known) == len(document["nodes"])
    assert all(link["source"] in known and link["target"] in known for link in document["links"])
    for link in data_links(document):
        assert link["src_out"] < len(known[link["source"]].get("outputs", [None]))
    for output in document["graph"]["outputs"]:
        node, _, index = output.partition(":")
        assert int(index) < len(known[node]["outputs"])
    assert document["graph"]["inputs"] == [node["id"] for node in document["nodes"] if node["type"] == "Data"]


@pytest.mark.parametrize("name", GRAPHS)
def test_every_input_slot_is_fed_once_and_slots_have_no_gaps(name: str) -> None:
    document = load(name)
    slots: dict[str, list[int]] = {node: [] for node in nodes(document)}
    for link in data_links(document):
        slots[link["target"]].append(link["dst_in"])
    for node, used in slots.items():
        assert sorted(used) == list(range(len(used))), node
        assert bool(used) != (nodes(document)[node]["type"] in ("Data", "Variable", "Const")), node


@pytest.mark.parametrize("name", GRAPHS)
def test_graph_is_acyclic_and_networkx_reads_it(name: str) -> None:
    graph = nx.node_link_graph(load(name), edges="links")
    assert isinstance(graph, nx.MultiDiGraph)
    assert nx.is_directed_acyclic_graph(graph)


@pytest.mark.parametrize("name", ["conv_train", "mlp_train"])
def test_every_reader_of_a_variable_stands_before_its_update(name: str) -> None:
    document = load(name)
    graph = nx.node_link_graph(document, edges="links")
    known = nodes(document)
    variables = [node for node, entry in known.items() if entry["type"] == "Variable"]
    written = set()
    for variable in variables:
        users = set(graph.successors(variable))
        (update,) = [user for user in users if known[user]["type"] in OPTIMIZERS]
        written.add(variable)
        for reader in users - {update}:
            assert nx.has_path(graph, reader, update), (variable, reader, update)
    assert written == set(variables)


@pytest.mark.parametrize("name", [name for name in GRAPHS if name != "conv_init"])
def test_initial_values_have_the_shape_of_their_variable(name: str) -> None:
    for node in load(name)["nodes"]:
        if node["type"] == "Variable":
            shape = node["outputs"][0]["shape"]
            value = reference.tensor(node["attrs"]["_init_value"]["tensor"], shape)
            assert value.dtype == np.float32
            assert list(value.shape) == shape


def test_conv_init_assigns_every_variable_of_conv_train_its_initial_value() -> None:
    training, init = nodes(load("conv_train")), nodes(load("conv_init"))
    variables = {node: entry for node, entry in training.items() if entry["type"] == "Variable"}
    assert set(variables) == {node for node, entry in init.items() if entry["type"] == "Variable"}
    sources = {(link["target"], link["dst_in"]): link["source"] for link in data_links(load("conv_init"))}
    for name, entry in variables.items():
        assert init[name]["outputs"] == entry["outputs"]
        assert (init[f"set_{name}"]["type"], sources[f"set_{name}", 0]) == ("Assign", name)
        value, shape = init[sources[f"set_{name}", 1]]["value"], entry["outputs"][0]["shape"]
        declared = reference.tensor(entry["attrs"]["_init_value"]["tensor"], shape)
        np.testing.assert_array_equal(reference.tensor(value, shape), declared)


def test_conv_eval_declares_its_variables_as_conv_train_does() -> None:
    training, evaluation = nodes(load("conv_train")), nodes(load("conv_eval"))
    variables = [node for node, entry in evaluation.items() if entry["type"] == "Variable"]
    assert tuple(variables) == LEARNT
    assert all(evaluation[node] == training[node] for node in variables)
    assert not any(entry["type"].startswith("Apply") for entry in evaluation.values())


def test_graph_files_are_what_the_script_writes() -> None:
    initial = make_graphs.initial_values(np.random.default_rng(make_graphs.WEIGHT_SEED))
    assert load("conv_init") == make_graphs.conv_init(initial)
    assert load("conv_train") == make_graphs.conv_train(initial)
    assert load("conv_eval") == make_graphs.conv_eval(initial)
    assert load("conv_parallel") == make_graphs.conv_parallel(initial)
    assert load("mlp_train") == make_graphs.mlp_train()
    for name in ("w2", "w3"):
        np.testing.assert_array_equal(np.load(FOLDER / f"{name}.npy"), initial[name])


def test_batches_are_digits_and_the_held_out_batch_is_in_none_of_them() -> None:
    with np.load(BATCHES) as batches, np.load(FOLDER / "held_out.npz") as held_out:
        x, labels = batches["x"], batches["labels"]
        assert (x.shape, x.dtype) == ((60, 32, 1, 8, 8), np.dtype("f4"))
        assert (labels.shape, labels.dtype) == ((60, 32, 10), np.dtype("f4"))
        assert (labels.sum(axis=-1) == 1).all()
        trained = {image.tobytes() for image in x.reshape(-1, 64)}
        assert held_out["x"].shape == (32, 1, 8, 8)
        assert not any(image.tobytes() in trained for image in held_out["x"])


def test_mlp_reaches_the_losses_of_its_worked_example() -> None:
    values = {
        node["id"]: reference.tensor(node["attrs"]["_init_value"]["tensor"], []).astype(float)
        for node in load("mlp_train")["nodes"]
        if node["type"] == "Variable"
    }
    x, labels = np.array([[1, 2, -1, 0.5], [0.5, -1, 2, 1]]), np.array([[0, 1, 0], [0, 0, 1.0]])
    losses = []
    for _ in range(2):
        hidden = np.maximum(x @ values["w1"] + values["b1"], 0)
        exponent = np.exp(hidden @ values["w2"] + values["b2"])
        probabilities = exponent / exponent.sum(axis=1, keepdims=True)
        losses.append(-np.log((probabilities * labels).sum(axis=1)).mean())
        d_logits = (probabilities - labels) / 2
        d_hidden = d_logits @ values["w2"].T * (hidden > 0)
        gradients = {"w1": x.T @ d_hidden, "b1": d_hidden.sum(0), "w2": hidden.T @ d_logits, "b2": d_logits.sum(0)}
        values = {name: value - 0.1 * gradients[name] for name, value in values.items()}
    np.testing.assert_allclose(losses, [0.839195, 0.753806], atol=1e-6)
