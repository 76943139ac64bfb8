"""TemporaryVariable: zero when a step begins, written by operators with references, gone behind its destroyer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.compiler import compile_model
from gecli.errors import GecliError
from gecli.ir.verify import verify
from gecli.loading import LoadedModel, load_graph
from gecli.ops.evaluate import evaluate_graph
from gecli.runtime.session import Session

Json = Any
F32 = {"dtype": "DT_FLOAT"}
X = np.array([1, 2], np.float32)


def node(name: str, type: str, **members: Json) -> Json:
    return {"id": name, "type": type, **members}


def temporary(name: str, named: str = "", **attrs: Json) -> Json:
    members = {"dtype": F32, "shape": [2], **({"var_name": named} if named else {}), **attrs}
    return node(name, "TemporaryVariable", attrs=members)


def destroyer(name: str, named: str = "t") -> Json:
    return node(name, "DestroyTemporaryVariable", attrs={"var_name": named})


V = node("v", "Data", outputs=[{"dtype": "DT_FLOAT", "shape": [2]}])
T, D = temporary("t"), destroyer("d")


def document(nodes: list[Json], edges: str, outputs: list[str] | None = None, **members: Json) -> Json:
    """`a b>c` is data from a and b to c in this order, `a!c` control."""
    links = []
    for each in filter(None, edges.split("; ")):
        if "!" in each:
            source, target = each.split("!")
            links.append({"source": source, "target": target, "control": True})
        else:
            sources, target = each.split(">")
            links += [{"source": one, "target": target} for one in sources.split()]
    graph: dict[str, Json] = {"name": "g"} if outputs is None else {"name": "g", "outputs": outputs}
    return {"gecli_graph": 1, "graph": graph, "nodes": nodes, "links": links, **members}


def loaded(of: Json, place: Path) -> LoadedModel:
    (place / "g.json").write_text(json.dumps(of))
    model = load_graph(str(place / "g.json"))
    assert not verify(model.graph)
    return model


def results(of: Json, place: Path, runs: int = 2, **options: str) -> dict[str, list[float]]:
    """Outputs of each run, which are equal, and those of the graph before it is compiled."""
    graph = loaded(of, place).graph
    compile_model(place / "g.json", place / "g.om", **options)
    model = Session().load(place / "g.om")
    assert not any("Temporary" in each.type for each in graph.nodes())
    found = [{name: value.tolist() for name, value in model.run({"v": X})[0].items()} for _ in range(runs)]
    assert all(each == found[0] for each in found)
    if not graph.subgraphs:
        assert [value.tolist() for value in evaluate_graph(graph, {"v": X})[0]] == list(found[0].values())
    return found[0]


ADD, TWICE, NEG = node("a", "AssignAdd"), node("b", "AssignAdd"), node("n", "Neg")


@pytest.mark.parametrize(("nodes", "edges", "expected"), [
    ([V, T, D], "t>d", [0, 0]),
    ([V, T, ADD, D], "t v>a; a>d", [1, 2]),
    ([V, T, ADD, D], "t v>a; a!d; t>d", [1, 2]),  # read from the buffer itself
    ([V, T, ADD, TWICE, D], "t v>a; a v>b; b>d", [2, 4]),
    ([V, T, ADD, TWICE, D], "t v>a; t v>b; a!b; b!d; t>d", [2, 4]),
    ([V, T, ADD, TWICE, D], "t v>a; t v>b; a!b; b!d; a>d", [2, 4]),  # a reference shows the newest value
    ([V, T, node("f", "RefIdentity"), ADD, D], "t>f; f v>a; a!d; t>d", [1, 2]),
    ([V, T, node("a", "Assign"), node("b", "AssignSub"), D], "t v>a; a a>b; b>d", [0, 0]),
])  # fmt: skip
@pytest.mark.parametrize("options", [{}, {"oo_level": "O0"}], ids=str)
def test_the_destroyer_gives_the_final_value(
    tmp_path: Path, nodes: list[Json], edges: str, expected: list[float], options: dict[str, str]
) -> None:
    """A second run begins with zero again."""
    assert results(document(nodes, edges, ["d"]), tmp_path, **options) == {"d:0": expected}


def test_a_reader_gets_the_value_of_its_place(tmp_path: Path) -> None:
    nodes = [V, T, node("before", "Neg"), ADD, node("between", "Neg"), TWICE, D]
    edges = "t>before; before!a; t v>a; t>between; a!between; between!b; t v>b; b>d"
    found = results(document(nodes, edges, ["before", "between", "d"]), tmp_path)
    assert found == {"before:0": [-0.0, -0.0], "between:0": [-1, -2], "d:0": [2, 4]}


def test_a_buffer_without_destroyer_lives_to_the_end_of_the_step(tmp_path: Path) -> None:
    assert results(document([V, T, ADD], "t v>a", ["t"]), tmp_path) == {"t:0": [1, 2]}
    assert results(document([V, T, ADD, node("o", "NetOutput")], "t v>a; t>o; a!o"), tmp_path) == {"a:0": [1, 2]}


def test_an_optimizer_keeps_its_slot_in_one(tmp_path: Path) -> None:
    """The slot has no output of its own in GE's definition."""
    init = {"_init_value": {"tensor": {"data": [4, 8], "dtype": "DT_FLOAT"}}}
    nodes = [
        V, node("w", "Variable", attrs=init, outputs=[{"dtype": "DT_FLOAT", "shape": [2]}]), T,
        node("lr", "Const", value={"data": 0.5, "dtype": "DT_FLOAT"}), node("m", "ApplyMomentum"),
        node("k", "ApplyMomentum"), D,
    ]  # fmt: skip
    edges = "w t lr v lr>m; w t lr v lr>k; m!k; k!d; t>d"
    (tmp_path / "g.json").write_text(json.dumps(document(nodes, edges, ["d"])))
    compile_model(tmp_path / "g.json", tmp_path / "g.om")
    session = Session()
    model = session.load(tmp_path / "g.om")
    assert model.run({"v": X})[0]["d:0"].tolist() == [1.5, 3]
    assert session.store.value("w").tolist() == [4 - 0.5 - 0.75, 8 - 1 - 1.5]


def test_a_branch_reads_the_value(tmp_path: Path) -> None:
    def branch(type: str) -> Json:
        inner = [node("p", "Data", outputs=[{"dtype": "DT_FLOAT", "shape": [2]}]), node("q", type)]
        return {"graph": {"name": type, "outputs": ["q"]}, "nodes": inner, "links": [{"source": "p", "target": "q"}]}

    nodes = [V, T, ADD, node("c", "Const", value={"data": True, "dtype": "DT_BOOL", "shape": []}), D]
    nodes.append(node("i", "If", subgraphs=["yes", "no"]))
    of = document(
        nodes, "t v>a; a!i; c t>i; i!d; t>d", ["i", "d"], subgraphs={"yes": branch("Neg"), "no": branch("Abs")}
    )
    assert results(of, tmp_path) == {"i:0": [-1, -2], "d:0": [1, 2]}


def test_one_name_is_free_again_behind_the_destroyer(tmp_path: Path) -> None:
    nodes = [V, temporary("t", "s"), ADD, destroyer("d", "s"), temporary("u", "s"), TWICE, destroyer("e", "s")]
    of = document(nodes, "t v>a; a>d; d!u; u d>b; b>e", ["e"])
    assert results(of, tmp_path) == {"e:0": [1, 2]}


def test_the_graph_holds_a_copy_of_a_constant(tmp_path: Path) -> None:
    graph = loaded(document([V, T, ADD, D], "t v>a; a!d; t>d", ["d"]), tmp_path).graph
    assert graph.node("t").type == "TensorMove"
    assert graph.node("t").inputs[0] == graph.node("t/zero").out()
    assert graph.node("d").type == "Identity"
    assert graph.node("d").inputs[0] == graph.node("a").out()


@pytest.mark.parametrize(("nodes", "edges"), [
    ([V, T, ADD, TWICE, D], "t v>a; t v>b; a!d; b!d; t>d"),
    ([V, T, ADD, NEG, D], "t v>a; t>n; n!d; a!d; t>d"),
])  # fmt: skip
def test_an_order_that_only_the_file_has_is_told(tmp_path: Path, nodes: list[Json], edges: str) -> None:
    (warning,) = loaded(document(nodes, edges, ["d"]), tmp_path).warnings
    assert (warning.code, warning.kind) == ("G4012", "RT_RW_RACE")
    assert all((warning.where, warning.why, warning.do))


WRITING = {
    "graph": {"name": "s", "outputs": ["q"]},
    "nodes": [
        node("p", "Data", outputs=[{"dtype": "DT_FLOAT", "shape": [2]}]),
        node("f", "RefIdentity"),
        node("q", "AssignAdd"),
    ],
    "links": [{"source": "p", "target": "f"}, {"source": "f", "target": "q"}, {"source": "p", "target": "q"}],
}  # fmt: skip
CALL = node("call", "PartitionedCall", subgraphs=["s"])


@pytest.mark.parametrize(("nodes", "edges", "outputs", "code", "message"), [
    ([V, T, temporary("u", "t"), ADD], "t u>a", ["a"], "E13005", "two temporary variables are named 't'"),
    ([V, T, D, temporary("u", "t"), ADD], "t>d; u v>a", ["d", "a"], "E13005", "two temporary variables"),
    ([V, T, ADD, D], "t v>a; t>d", ["d"], "G4012", "nothing orders DestroyTemporaryVariable 'd' behind 'a'"),
    ([V, T, D, NEG], "t>d; t>n", ["d", "n"], "G4012", "nothing orders DestroyTemporaryVariable 'd' behind 'n'"),
    ([V, T, D, NEG], "t>d; t>n; d!n", ["n"], "E13005", "Neg 'n' uses temporary variable 't' after its end"),
    ([V, T, D], "t>d", ["d", "t"], "E13005", "the graph's output uses temporary variable 't' after its end"),
    ([V, T, D, node("o", "NetOutput")], "t>d; t>o", None, "E13005", "NetOutput 'o' uses temporary variable"),
    ([V, T, D, destroyer("e")], "t>d; t>e; d!e", ["e"], "E13005", "temporary variable 't' is destroyed twice"),
    ([V, D], "v>d", ["d"], "E13005", "'d' has no temporary variable"),
    ([V, D], "v!d", ["d"], "E13005", "'d' has no temporary variable"),
    ([V, T, destroyer("d", "u")], "t>d", ["d"], "E13014", "'d' names another temporary variable than it reads"),
    ([V, T, node("d", "DestroyTemporaryVariable")], "t>d", ["d"], "E14002", "'d' names another temporary variable"),
    ([V, temporary("t", shape=[-1]), D], "t>d", ["d"], "E13014", "TemporaryVariable 't' has no size"),
    ([V, node("t", "TemporaryVariable", attrs={"shape": [2]}), D], "t>d", ["d"], "E14002", "no attribute 'dtype'"),
    ([V, node("t", "TemporaryVariable", attrs={"dtype": F32}), D], "t>d", ["d"], "E14002", "no attribute 'shape'"),
    ([V, {**T, "outputs": [{"dtype": "DT_FLOAT", "shape": [3]}]}, D], "t>d", ["d"], "E13005", "in two ways"),
    ([V, temporary("t", dtype={"dtype": "DT_INT32"}, shape=[1]), node("a", "CountUpTo", attrs={"limit": 3}), D],
     "t>a; a!d; t>d", ["d"], "E13005", "CountUpTo 'a' cannot write temporary variable 't'"),
    ([V, T, CALL, D], "t>call; call!d; t>d", ["d"], "E13005", "graph 's' writes temporary variable 't'"),
])  # fmt: skip
def test_what_is_no_life_of_a_buffer_is_refused(
    tmp_path: Path, nodes: list[Json], edges: str, outputs: list[str] | None, code: str, message: str
) -> None:
    members = {"subgraphs": {"s": WRITING}} if CALL in nodes else {}
    with pytest.raises(GecliError) as caught:
        loaded(document(nodes, edges, outputs, **members), tmp_path)
    first = caught.value.first
    assert (first.code, first.kind) == (code, "RT_RW_RACE" if code == "G4012" else "")
    assert message in first.message
    assert all((first.where, first.why, first.do))


def buffer_in(name: str, *, ends: bool = True, called: str = "") -> Json:
    """A graph with a temporary variable `t` of its own, perhaps below a further call."""
    inner = [node("p", "Data", outputs=[{"dtype": "DT_FLOAT", "shape": [2]}])]
    if called:
        inner.append(node("q", "PartitionedCall", subgraphs=[called]))
        edges = [{"source": "p", "target": "q"}]
    else:
        inner += [temporary("u", "t"), node("q", "AssignAdd")]
        edges = [{"source": "u", "target": "q"}, {"source": "p", "target": "q"}]
        edges.append({"source": "p", "target": "u", "control": True})
        if ends:
            inner.append(destroyer("e"))
            edges.append({"source": "q", "target": "e"})
    outputs = ["e"] if ends and not called else ["q"]
    return {"graph": {"name": name, "outputs": outputs}, "nodes": inner, "links": edges}


def call(name: str, *graphs: str, type: str = "PartitionedCall") -> Json:
    return node(name, type, subgraphs=list(graphs))


TRUE = node("c", "Const", value={"data": True, "dtype": "DT_BOOL", "shape": []})


@pytest.mark.parametrize(("nodes", "edges", "outputs", "expected"), [
    ([V, T, ADD, D, call("i", "s")], "t v>a; a>d; d>i", ["i"], {"i:0": [1, 2]}),
    ([V, call("i", "s"), T, ADD, D], "v>i; i!t; t i>a; a>d", ["d"], {"d:0": [1, 2]}),
    ([V, call("i", "s"), call("j", "r")], "v>i; i>j", ["j"], {"j:0": [1, 2]}),
    ([V, TRUE, call("i", "s", "r", type="If")], "c v>i", ["i"], {"i:0": [1, 2]}),  # one branch runs
], ids=["behind the end", "before the start", "calls in order", "branches"])  # fmt: skip
def test_a_called_graph_may_use_the_name_when_nobody_else_does(
    tmp_path: Path, nodes: list[Json], edges: str, outputs: list[str], expected: Json
) -> None:
    of = document(nodes, edges, outputs, subgraphs={name: buffer_in(name) for name in ("s", "r")})
    assert results(of, tmp_path) == expected


@pytest.mark.parametrize(("nodes", "edges", "graphs", "who"), [
    ([V, T, ADD, call("i", "s"), D], "t v>a; a!i; v>i; i!d; t>d", {"s": buffer_in("s")},
     "'t' and 'u' of graph 's', which 'i' calls, live at one time"),
    ([V, T, ADD, call("i", "s"), D], "t v>a; v>i; a>d", {"s": buffer_in("s")}, "no path of data or control links"),
    ([V, T, ADD, call("i", "r"), D], "t v>a; a!i; v>i; i!d; t>d",
     {"r": buffer_in("r", called="s"), "s": buffer_in("s")}, "'u' of graph 's', which 'i' calls"),
    ([V, T, ADD, TRUE, call("i", "r", "s", type="If"), D], "t v>a; a!i; c v>i; i!d; t>d",
     {"r": WRITING | {"graph": {"name": "r", "outputs": ["f"]}}, "s": buffer_in("s")}, "'u' of graph 's'"),
    ([V, call("i", "s"), call("j", "r"), node("b", "Add")], "v>i; v>j; i j>b",
     {"s": buffer_in("s"), "r": buffer_in("r")}, "'u' of graph 's', which 'i' calls, and 'u' of graph 'r'"),
    ([V, call("i", "s"), call("j", "r")], "v>i; i>j", {"s": buffer_in("s", ends=False), "r": buffer_in("r")},
     "live at one time: nothing destroys the first"),
], ids=["inside", "unordered", "two calls deep", "one branch", "two calls", "to the end of the step"])  # fmt: skip
def test_a_name_lives_once_in_a_graph_and_those_that_it_calls(
    tmp_path: Path, nodes: list[Json], edges: str, graphs: Json, who: str
) -> None:
    with pytest.raises(GecliError) as caught:
        loaded(document(nodes, edges, [nodes[-1]["id"]], subgraphs=graphs), tmp_path)
    first = caught.value.first
    assert (first.code, first.message) == ("E13005", "two temporary variables are named 't'")
    assert who in first.why
    assert "#/nodes/" in first.where and first.do


def test_a_loop_destroys_what_each_iteration_makes(tmp_path: Path) -> None:
    condition = {
        "graph": {"name": "c", "outputs": ["k"]},
        "nodes": [
            node("p", "Data", outputs=[{"dtype": "DT_FLOAT", "shape": [2]}]),
            node("k", "Const", value={"data": False, "dtype": "DT_BOOL", "shape": []}),
        ],
        "links": [],
    }
    nodes = [V, call("w", "c", "s", type="While")]
    loaded(document(nodes, "v>w", ["w"], subgraphs={"c": condition, "s": buffer_in("s")}), tmp_path)
    with pytest.raises(GecliError, match="two temporary variables") as caught:
        loaded(document(nodes, "v>w", ["w"], subgraphs={"c": condition, "s": buffer_in("s", ends=False)}), tmp_path)
    assert "each iteration" in caught.value.first.why
