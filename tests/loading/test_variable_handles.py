"""VarHandleOp and the operators on its handle: the graph gives what the same graph gives with Variable and Assign."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gecli.compiler import compile_model
from gecli.errors import GecliError
from gecli.ir.text import text
from gecli.ir.verify import verify
from gecli.loading import LoadedModel, load_graph
from gecli.runtime.session import Session

Json = Any
Array = NDArray[Any]
F32 = {"dtype": "DT_FLOAT"}
DTYPE = {"dtype": F32}
PLAIN = {
    "ReadVariableOp": "Identity",
    "AssignVariableOp": "Assign",
    "AssignAddVariableOp": "AssignAdd",
    "AssignSubVariableOp": "AssignSub",
}
X = np.arange(6, dtype=np.float32).reshape(2, 3) / 4


def node(name: str, type: str, **members: Json) -> Json:
    return {"id": name, "type": type, **members}


def data(name: str, shape: list[int], dtype: str = "DT_FLOAT", form: str = "ND") -> Json:
    return node(name, "Data", outputs=[{"dtype": dtype, "shape": shape, "format": form}])


def handle(name: str, shape: list[int] | None = None, shared: str = "", **attrs: Json) -> Json:
    members: dict[str, Json] = {**DTYPE, **attrs}
    if shape is not None:
        members["shape"] = shape
    if shared:
        members["shared_name"] = shared
    return node(name, "VarHandleOp", attrs=members)


def links(text: str) -> list[Json]:
    """`a b>c` is data from a and b to c in this order, `a!c` control."""
    found = []
    for each in text.split(";"):
        if "!" in each:
            source, target = each.strip().split("!")
            found.append({"source": source, "target": target, "control": True})
            continue
        sources, target = each.strip().split(">")
        found += [{"source": one, "target": target} for one in sources.split()]
    return found


def document(nodes: list[Json], edges: str, outputs: list[str] | None = None, **members: Json) -> Json:
    graph: dict[str, Json] = {"name": "g"}
    if outputs is not None:
        graph["outputs"] = outputs
    return {"gecli_graph": 1, "graph": graph, "nodes": nodes, "links": links(edges), **members}


def plain(of: Json) -> Json:
    """The same document with Variable, Identity and Assign."""
    result = json.loads(json.dumps(of))
    for graph in (result, *result.get("subgraphs", {}).values()):
        names: dict[str, str] = {}
        nodes = {}
        for each in graph["nodes"]:
            attrs = each.get("attrs", {})
            if each["type"] == "VarHandleOp":
                names[each["id"]] = attrs.get("shared_name", each["id"])
                kept = {key: attrs[key] for key in ("_init_value",) if key in attrs}
                form = each["outputs"][0]["format"] if "outputs" in each else "ND"
                desc = {**attrs["dtype"], "shape": attrs["shape"], "format": form}
                each = node(names[each["id"]], "Variable", attrs=kept, outputs=[desc])
            elif each["type"] in PLAIN:
                each = node(each["id"], PLAIN[each["type"]])
            nodes.setdefault(each["id"], each)
        graph["nodes"] = list(nodes.values())
        for link in graph["links"]:
            for end in ("source", "target"):
                link[end] = names.get(link[end], link[end])
    return result


def loaded(of: Json, place: Path) -> LoadedModel:
    (place / "g.json").write_text(json.dumps(of))
    model = load_graph(str(place / "g.json"))
    assert not verify(model.graph)
    return model


def refusal(of: Json, place: Path) -> Any:
    """The error, whose four parts are there."""
    with pytest.raises(GecliError) as caught:
        loaded(of, place)
    first = caught.value.first
    assert all((first.message, first.where, first.why, first.do)), first
    return first


class Device:
    """A session of models compiled from documents."""

    def __init__(self, place: Path, **options: str) -> None:
        place.mkdir(exist_ok=True)
        self.place, self.options, self.session = place, options, Session()

    def load(self, of: Json, name: str) -> Any:
        (self.place / f"{name}.json").write_text(json.dumps(of))
        compile_model(self.place / f"{name}.json", self.place / f"{name}.om", **self.options)
        return self.session.load(self.place / f"{name}.om")


def both_run(documents: dict[str, Json], steps: list[tuple[str, dict[str, Array]]], place: Path, **options: str) -> Any:
    """Run the steps with handles and without; both give the same. Returns the device with handles."""
    first, second = Device(place / "handles", **options), Device(place / "plain", **options)
    models = {name: (first.load(each, name), second.load(plain(each), name)) for name, each in documents.items()}
    for position, (name, feeds) in enumerate(steps):
        results = [list(model.run(feeds)[0].values()) for model in models[name]]
        assert len(results[0]) == len(results[1])
        for actual, expected in zip(*results):
            np.testing.assert_array_equal(actual, expected, err_msg=f"step {position}, {name}")
        values = [{each: one.session.store.value(each).tolist() for each in ("w",)} for one in (first, second)]
        assert values[0] == values[1], f"step {position}, {name}"
    return first


def trained() -> Json:
    """One step of linear regression: loss before the update, the weights behind it."""
    start = {"_init_value": {"tensor": {"data": [0.5, -1, 0.25], "dtype": "DT_FLOAT", "shape": [3, 1]}}}
    return document(
        [
            data("x", [2, 3]), data("y", [2, 1]),
            handle("h", [3, 1], "w", **start), handle("again", [3, 1], "w"),
            node("old", "ReadVariableOp", attrs=DTYPE), node("p", "MatMul"), node("e", "Sub"),
            node("lr", "Const", value={"data": 0.1, "dtype": "DT_FLOAT"}),
            node("g", "MatMul", attrs={"transpose_x1": True}), node("d", "Mul"),
            node("up", "AssignSubVariableOp", attrs=DTYPE), node("new", "ReadVariableOp", attrs=DTYPE),
            node("shown", "Neg"),
        ],
        "h>old; x old>p; p y>e; x e>g; g lr>d; again d>up; old!up; p!up; up!new; again>new; new>shown",
        ["e", "shown"],
    )  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"ge.exec.variable_acc": "false"}, {"oo_level": "O0"}], ids=str)
def test_training_over_several_steps_is_that_of_variables(tmp_path: Path, options: dict[str, str]) -> None:
    y = np.ones((2, 1), np.float32)
    steps = [("g", {"x": X + step, "y": y}) for step in range(4)]
    device = both_run({"g": trained()}, steps, tmp_path, **options)
    w = np.array([[0.5], [-1], [0.25]], np.float32)
    for _, feeds in steps:
        w = w - np.float32(0.1) * (feeds["x"].T @ (feeds["x"] @ w - y))
    np.testing.assert_allclose(device.session.store.value("w"), w, rtol=1e-5)


def test_graphs_of_a_session_share_the_variable_of_a_name(tmp_path: Path) -> None:
    first = document([data("v", [2, 3]), handle("w", [2, 3]), node("a", "AssignVariableOp", attrs=DTYPE)], "w v>a", [])
    more = document(
        [
            data("v", [2, 3]), handle("h", [2, 3], "w"), node("a", "AssignAddVariableOp", attrs=DTYPE),
            node("r", "ReadVariableOp"), node("n", "Neg"),
        ],
        "h v>a; h>r; a!r; r>n", ["n"],
    )  # fmt: skip
    read = document([data("v", [2, 3]), handle("k", [2, 3], "w"), node("r", "ReadVariableOp"), node("s", "Add")],
                    "k>r; r v>s", ["s"])  # fmt: skip
    feeds = {"v": X}
    steps = [("first", feeds), ("more", feeds), ("read", feeds), ("more", feeds), ("first", feeds), ("read", feeds)]
    device = both_run({"first": first, "more": more, "read": read}, steps, tmp_path)
    assert device.session.store.value("w").tolist() == X.tolist()


def test_a_convolution_reads_what_was_assigned(tmp_path: Path) -> None:
    read = document(
        [
            data("x", [1, 16, 5, 5], form="NCHW"), data("k", [16, 16, 3, 3], form="NCHW"),
            {**handle("h", [16, 16, 3, 3], "w"), "outputs": [{"dtype": "DT_RESOURCE", "shape": [], "format": "NCHW"}]},
            node("a", "AssignVariableOp", attrs=DTYPE), node("r", "ReadVariableOp"),
            node("c", "Conv2D", attrs={"strides": [1, 1, 1, 1], "pads": [1, 1, 1, 1], "data_format": "NCHW"}),
        ],
        "h k>a; a!r; h>r; x r>c", ["c"],
    )  # fmt: skip
    rng = np.random.default_rng(1)
    x, k = rng.normal(size=(1, 16, 5, 5)).astype("f4"), rng.normal(size=(16, 16, 3, 3)).astype("f4")
    both_run({"g": read}, [("g", {"x": x, "k": k}), ("g", {"x": x, "k": k * 2})], tmp_path)


@pytest.mark.parametrize("taken", [True, False])
def test_handles_in_subgraphs_are_the_variable(tmp_path: Path, taken: bool) -> None:
    def branch(type: str) -> Json:
        return {
            "graph": {"name": type, "outputs": ["r"]},
            "nodes": [
                data("v", [2, 3]), handle("in", [2, 3], "w"), node("a", type, attrs=DTYPE), node("r", "ReadVariableOp"),
            ],
            "links": links("in v>a; in>r; a!r"),
        }  # fmt: skip

    start = {"_init_value": {"tensor": {"fill": 2, "dtype": "DT_FLOAT", "shape": [2, 3]}}}
    choice = document(
        [
            data("c", [], "DT_BOOL"), data("x", [2, 3]), handle("h", [2, 3], "w", **start), node("r", "ReadVariableOp"),
            node("i", "If", subgraphs=["yes", "no"]), node("s", "Sub"),
        ],
        "c x>i; h>r; r!i; i r>s", ["s"],
        subgraphs={"yes": branch("AssignAddVariableOp"), "no": branch("AssignVariableOp")},
    )  # fmt: skip
    steps = [("g", {"c": np.array(one), "x": X}) for one in (taken, taken, not taken)]
    device = both_run({"g": choice}, steps, tmp_path)
    np.testing.assert_array_equal(device.session.store.value("w"), X if taken else X + X)


def test_two_handles_of_one_name_are_one_variable(tmp_path: Path) -> None:
    graph = loaded(trained(), tmp_path).graph
    assert [each.name for each in graph.nodes_of("Variable")] == ["w"]
    assert not graph.nodes_of("VarHandleOp")
    assert graph.node("w").init_value is not None


def test_control_links_of_an_assignment_stay(tmp_path: Path) -> None:
    graph = loaded(trained(), tmp_path).graph
    assert [each.name for each in graph.node("up").control_in] == ["old", "p"]
    assert graph.node("up").type == "AssignSub"
    assert "%shown = Neg(%w) : f32[3,1] ND after %up" in text(graph)  # no writer follows `new`
    assert graph.node("old").type == "ReadVariableOp"  # one follows: a copy


@pytest.mark.parametrize(("edges", "left"), [
    ("h>r; r>n", 0),  # nothing writes
    ("h>r; r>n; h v>a; a!r", 0),  # the writer comes before
    ("h>r; r>n; h v>a; n!a", 1),
    ("h>r; r>n; h v>a", 1),  # in no order
    ("h>r; r v>a; r>n", 1),  # what would write the value read
    ("h>f; f>r; r>n", 1),  # of a reference
])  # fmt: skip
def test_a_read_is_a_copy_unless_no_writer_follows(tmp_path: Path, edges: str, left: int) -> None:
    writer = "AssignVariableOp" if "h v>a" in edges else "AssignAdd" if "r v>a" in edges else "Neg"
    nodes = [data("v", [2]), handle("h", [2]), node("r", "ReadVariableOp"), node("n", "Neg"), node("f", "RefIdentity")]
    if "a" in edges:
        nodes.append(node("a", writer))
    if "f" not in edges:
        nodes.pop(4)
    graph = loaded(document(nodes, edges, ["n"]), tmp_path).graph
    assert graph.count_of("ReadVariableOp") == left


def test_an_output_that_is_a_read_keeps_its_name(tmp_path: Path) -> None:
    device = Device(tmp_path)
    start = {"_init_value": {"tensor": {"fill": 2, "dtype": "DT_FLOAT", "shape": [2]}}}
    model = device.load(document([handle("h", [2], **start), node("r", "ReadVariableOp")], "h>r", ["r"]), "g")
    outputs, _ = model.run({})
    assert {name: value.tolist() for name, value in outputs.items()} == {"r:0": [2, 2]}


@pytest.mark.parametrize("order", ["a!q", ""])
@pytest.mark.parametrize("question", ["VarIsInitializedOp", "IsVariableInitialized"])
def test_the_question_on_a_handle_is_answered(tmp_path: Path, order: str, question: str) -> None:
    nodes = [data("v", [2]), handle("h", [2], "w"), node("a", "AssignVariableOp"), node("q", question)]
    edges = "h v>a; h>q" + (f"; {order}" if order else "")
    outputs, _ = Device(tmp_path).load(document(nodes, edges, ["q"]), "g").run({"v": X[0, :2]})
    assert bool(outputs["q:0"]) is bool(order)


def test_destroying_a_resource_is_a_point_in_the_order(tmp_path: Path) -> None:
    nodes = [data("v", [2]), handle("h", [2], "w"), node("a", "AssignVariableOp"), node("d", "DestroyResourceOp")]
    nodes.append(node("n", "Neg"))
    graph = loaded(document(nodes, "h v>a; h>d; a!d; d!n; v>n", ["n"]), tmp_path).graph
    assert graph.node("d").type == "NoOp"
    assert not graph.node("d").inputs
    assert [each.name for each in graph.node("n").control_in] == ["d"]
    outputs, _ = Device(tmp_path).load(json.loads((tmp_path / "g.json").read_text()), "m").run({"v": X[0, :2]})
    assert outputs["n:0"].tolist() == (-X[0, :2]).tolist()


def test_handles_may_have_the_names_of_each_other(tmp_path: Path) -> None:
    nodes = [handle("a", [2], "b"), handle("b", [3], "a"), node("r", "ReadVariableOp"), node("s", "ReadVariableOp")]
    graph = loaded(document(nodes, "a>r; b>s", ["r", "s"]), tmp_path).graph
    assert [list(graph.node(name).output_descs[0].shape) for name in ("a", "b")] == [[3], [2]]
    assert [port.node.inputs[0].node.name for port in graph.outputs] == ["b", "a"]  # type: ignore[union-attr]  # connected


def test_a_handle_joins_the_variable_of_its_name(tmp_path: Path) -> None:
    variable = node("w", "Variable", outputs=[{"dtype": "DT_FLOAT", "shape": [2]}])
    nodes = [variable, handle("h", shared="w"), data("v", [2]), node("a", "AssignVariableOp"), node("n", "Neg")]
    graph = loaded(document(nodes, "h v>a; a!n; w>n", ["n"]), tmp_path).graph
    assert [each.name for each in graph.nodes_of("Variable")] == ["w"]
    assert graph.node("a").inputs[0] == graph.node("w").out()


@pytest.mark.parametrize("outputs", [{}, {"outputs": [{"dtype": "DT_RESOURCE", "shape": []}]}], ids=str)
@pytest.mark.parametrize("first", ["_init_value", "dtype"])
def test_an_initial_value_takes_dtype_and_shape_of_its_handle(tmp_path: Path, outputs: Json, first: str) -> None:
    attrs = {"dtype": F32, "shape": [2], "_init_value": {"tensor": {"fill": 5}}}
    h = {**handle("h"), "attrs": {first: attrs[first], **attrs}, **outputs}
    graph = loaded(document([h, READ], "h>r", ["r"]), tmp_path).graph
    value = graph.node("h").init_value
    assert value is not None and value.numpy().tolist() == [5, 5]


def test_a_handle_without_shape_takes_that_of_another(tmp_path: Path) -> None:
    nodes = [handle("h", shared="w"), handle("k", [2], "w"), data("v", [2]), node("a", "AssignVariableOp")]
    graph = loaded(document(nodes, "h v>a", []), tmp_path).graph
    assert graph.node("w").output_descs[0].shape == (2,)
    assert [port.node.name for port in graph.node("a").data_inputs] == ["w", "v"]


def test_an_attribute_value_of_a_variable_is_its_initial_value(tmp_path: Path) -> None:
    value = {"value": {"tensor": {"data": [1, 2], "dtype": "DT_FLOAT"}}}
    variable = node("w", "Variable", attrs=value, outputs=[{"dtype": "DT_FLOAT", "shape": [2]}])
    model = Device(tmp_path).load(document([variable, node("n", "Neg")], "w>n", ["n"]), "g")
    assert model.run({})[0]["n:0"].tolist() == [-1, -2]


V, H, READ = data("v", [2]), handle("h", [2]), node("r", "ReadVariableOp")
WRITE = node("a", "AssignVariableOp", attrs=DTYPE)
INTEGER = {"dtype": "DT_INT32"}
WITHOUT_DTYPE = node("h", "VarHandleOp", attrs={"shape": [2]})


@pytest.mark.parametrize(("nodes", "edges", "outputs", "code", "message"), [
    ([V, H, node("n", "Neg")], "h>n", ["n"], "E13005", "handle 'h' reaches Neg 'n'"),
    ([V, H, node("i", "Identity"), READ], "h>i; i>r", ["r"], "E13005", "handle 'h' reaches Identity 'i'"),
    ([V, H, node("m", "ApplyGradientDescent")], "h v v>m", ["m"], "E13005", "handle 'h' reaches ApplyGradientDescent"),
    ([V, H, node("w", "Variable", outputs=[{"dtype": "DT_FLOAT", "shape": [2]}]), WRITE], "w h>a", [], "E13005",
     "handle 'h' reaches AssignVariableOp 'a'"),
    ([H, READ], "h>r", ["r", "h"], "E13005", "handle 'h' is an output of the graph"),
    ([H, node("out", "NetOutput")], "h>out", None, "E13005", "handle 'h' reaches NetOutput 'out'"),
    ([V, H, WRITE, node("n", "Neg")], "h v>a; a>n", ["n"], "E13005", "AssignVariableOp 'a' has no output"),
    ([V, H, WRITE], "h v>a", ["a"], "E13005", "AssignVariableOp 'a' has no output"),
    ([V, H, node("d", "DestroyResourceOp")], "h>d", ["d"], "E13005", "DestroyResourceOp 'd' has no output"),
    ([V, WRITE], "v v>a", [], "E13005", "AssignVariableOp 'a' has no handle at input 0"),
    ([V, H, WRITE], "h>a", [], "E13005", "AssignVariableOp 'a' does not have its inputs"),
    ([READ], "", ["r"], "E13005", "ReadVariableOp 'r' does not have its inputs"),
    ([H, node("r", "ReadVariableOp", attrs={"dtype": INTEGER})], "h>r", ["r"], "E13014", "another dtype than its"),
    ([H, node("r", "ReadVariableOp", attrs={"dtype": {"dtype": "DT_RESOURCE"}})], "h>r", ["r"], "E13014",
     "attribute 'dtype' is not valid"),
    ([WITHOUT_DTYPE, READ], "h>r", ["r"], "E14002", "VarHandleOp 'h' has no attribute 'dtype'"),
    ([handle("h"), READ], "h>r", ["r"], "E14002", "VarHandleOp 'h' has no attribute 'shape'"),
    ([handle("h", ["n"]), READ], "h>r", ["r"], "E13014", "attribute 'shape' is not valid"),
    ([handle("h", [2], "w"), handle("k", [3], "w"), READ], "h>r", ["r"], "E13005", "'w' is described in two ways"),
    ([handle("h", [2], "w"), handle("k", [2], "w", dtype=INTEGER), READ], "h>r", ["r"], "E13005", "in two ways"),
    ([handle("h", [2], "w", container="a"), handle("k", [2], "w"), READ], "h>r", ["r"], "E13005", "in two containers"),
    ([handle("h", [2], "v"), V, READ], "h>r", ["r"], "E13009", "variable 'v' cannot have its name"),
])  # fmt: skip
def test_what_is_no_resource_variable_is_refused(
    tmp_path: Path, nodes: list[Json], edges: str, outputs: list[str] | None, code: str, message: str
) -> None:
    of = document(nodes, edges or "r!r", outputs)
    if not edges:
        of["links"] = []
    first = refusal(of, tmp_path)
    assert first.code == code
    assert message in first.message
    assert first.pointer
