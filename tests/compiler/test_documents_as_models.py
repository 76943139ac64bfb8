"""The document of an OM, compiled: `om -> json -> om` gives the same graph, which runs alike (cli.md 2.2)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gecli.artifacts.om_file import read_om
from gecli.cli import app
from gecli.ir.attributes import NamedAttrs
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph, feed
from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.loading import load_graph, save_graph
from gecli.wire.model_record import GraphRecord, ModelRecord

REPOSITORY = Path(__file__).resolve().parents[2]
REAL = REPOSITORY / "tests" / "data" / "om" / "real"
DIGITS = str(REPOSITORY / "samples/digits/digits.onnx")
TRAIN, EVAL, PERCEPTRON = (
    str(REPOSITORY / f"samples/train/{name}.json") for name in ("conv_train", "conv_eval", "mlp_train")
)
STATIC = ["--input-shape", "image:2,1,8,8"]

Command = Callable[..., str]

info = helper.make_tensor_value_info


def saved(
    path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: Mapping[str, Any] | None = None
) -> str:
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


def branches(folder: Path) -> str:
    """An If with a constant in each branch; which one runs is an input."""

    def branch(name: str, value: float) -> onnx.GraphProto:
        const = numpy_helper.from_array(np.full(2, value, np.float32), f"{name}_c")
        result = info("b", TensorProto.FLOAT, [2])
        return helper.make_graph([helper.make_node("Add", ["x", f"{name}_c"], ["b"])], name, [], [result], [const])

    choice = helper.make_node("If", ["p"], ["z"], then_branch=branch("t", 1.0), else_branch=branch("e", 2.0))
    inputs = [info("x", TensorProto.FLOAT, [2]), info("p", TensorProto.BOOL, [])]
    return saved(folder / "branches.onnx", [choice], inputs, [info("z", TensorProto.FLOAT, [2])])


def loop(folder: Path) -> str:
    """A While with two subgraphs that have constants of their own: a row is doubled as often as an input says."""
    row, scalar = TensorDesc(DataType.FLOAT, (2,)), TensorDesc(DataType.INT32, ())
    root = Graph("loop")

    def inputs(graph: Graph) -> list[Port]:
        nodes = [
            graph.create("Data", f"{graph.name}_{index}", attrs={"index": index}, output_descs=[desc])
            for index, desc in enumerate((scalar, row))
        ]
        return [node.out() for node in nodes]

    def node(graph: Graph, type: str, desc: TensorDesc, *sources: Port) -> Port:
        return feed(graph, graph.create(type, f"{graph.name}_{type}", output_descs=[desc]), *sources).out()

    def constant(graph: Graph, number: int) -> Port:
        weight = Weight.of(np.array(number, np.int32))
        return graph.create("Const", f"{graph.name}_c", attrs={"value": weight}, output_descs=[weight.desc]).out()

    condition, body = root.add_subgraph(Graph("condition", root)), root.add_subgraph(Graph("body", root))
    count, _ = inputs(condition)
    condition.set_outputs([node(condition, "Greater", TensorDesc(DataType.BOOL, ()), count, constant(condition, 0))])
    count, value = inputs(body)
    body.set_outputs([node(body, "Sub", scalar, count, constant(body, 1)), node(body, "Add", row, value, value)])
    made = root.create("While", "repeat", subgraphs=["condition", "body"], output_descs=[scalar, row])
    root.set_outputs([feed(root, made, *inputs(root)).out(1)])
    save_graph(root, folder / "loop.json")
    return str(folder / "loop.json")


def quantised(folder: Path) -> str:
    """An int8 matrix product with weights of more than 256 bytes."""
    weights = np.random.default_rng(3).integers(-90, 90, (32, 16)).astype(np.int8)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "zero"], ["q"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero"], ["m"]),
        helper.make_node("Cast", ["m"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "s"], ["y"]),
    ]
    constants = {"s": np.float32(0.05), "zero": np.int8(3), "w": weights}
    x, y = info("x", TensorProto.FLOAT, [4, 32]), info("y", TensorProto.FLOAT, [4, 16])
    return saved(folder / "quantised.onnx", nodes, [x], [y], constants)


def odd_values(folder: Path) -> str:
    """Attributes and constants that JSON has no words for."""
    nodes = [
        helper.make_node("Clip", ["x", "low", "high"], ["c"]),
        helper.make_node("Elu", ["c"], ["y"], name="inf", alpha=float("inf")),
    ]
    constants = {"low": np.float32("-inf"), "high": np.float32("nan")}
    x, y = info("x", TensorProto.FLOAT, [4]), info("y", TensorProto.FLOAT, [4])
    return saved(folder / "odd.onnx", nodes, [x], [y], constants)


CASES: dict[str, tuple[str | Callable[[Path], str], list[str]]] = {
    "static": (DIGITS, STATIC),
    "dynamic": (DIGITS, []),
    "origin formats": (DIGITS, [*STATIC, "--format-policy", "origin"]),
    "fp16": (DIGITS, [*STATIC, "--precision-mode-v2", "fp16"]),
    "external weights": (DIGITS, [*STATIC, "--external-weight", "1"]),
    "combined weights": (DIGITS, [*STATIC, "--external-weight", "2"]),
    "variables": (TRAIN, ["--train"]),
    "variables that are read": (EVAL, ["--train"]),
    "constants in variable memory": (PERCEPTRON, ["--train"]),
    "if": (branches, []),
    "while": (loop, []),
    "int8": (quantised, []),
    "not finite": (odd_values, []),
}


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """`gecli ARGUMENTS` in this process and the test's directory; its status must be the one given. The output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*arguments: str, status: int = 0) -> str:
        capsys.readouterr()
        found = app.run([*arguments])
        shown = capsys.readouterr()
        assert found == status, shown.err
        return shown.out + shown.err

    return run


def round_trip(command: Command, source: str, options: list[str], name: str = "model") -> tuple[Path, Path]:
    """An OM, and the OM of its document, in directories of their own."""
    command("compile", source, "-o", f"first/{name}.om", "--quiet", *options)
    document_of(command, Path(f"first/{name}.om"), name)
    command("compile", f"{name}.json", "-o", f"second/{name}.om", "--quiet")
    return Path(f"first/{name}.om"), Path(f"second/{name}.om")


def document_of(command: Command, om: Path, name: str = "model", *options: str) -> Path:
    command("inspect-om", str(om), "--json", *(options or ("--embed-data",)), "-o", f"{name}.json")
    return Path(f"{name}.json")


def shown_models(command: Command, om: Path) -> Any:
    """The models of a document, without what tells of the source: file names and digests."""
    models = json.loads(document_of(command, om, "shown").read_text())["models"]
    for model in models:
        for key in ("atc_cmdline", "_gecli_pad"):
            model["attrs"].pop(key, None)
        model["graphs"][0]["attrs"].pop("_gecli_fp", None)
    return models


def facts(model: ModelRecord) -> dict[str, Any]:
    """Every graph with every node: what must survive, values as bytes."""
    return {graph.name: _graph(graph, is_root=graph is model.root) for graph in model.graphs}


def _graph(graph: GraphRecord, *, is_root: bool) -> Any:
    attrs = {key: _value(value) for key, value in graph.attrs.items() if key != "_gecli_fp"}
    if is_root:
        attrs = {key: value for key, value in attrs.items() if key not in ("_session_graph_id",)}
    return attrs, {node.name: _node(node) for node in graph.nodes}


def _node(node: Any) -> Any:
    return {
        "type": node.type,
        "attrs": {key: _value(value) for key, value in node.attrs.items()},
        "inputs": [None if port is None else str(port) for port in node.inputs],
        "wants": [None if desc is None else _desc(desc, without="data_offset") for desc in node.input_descs],
        "makes": [_desc(desc) for desc in node.output_descs],
        "behind": sorted(before.name for before in node.control_in),
        "subgraphs": list(node.subgraphs),
        "names": (node.input_names, node.output_names),
    }


def _desc(desc: TensorDesc, without: str = "") -> Any:
    attrs = {key: _value(value) for key, value in desc.attrs.items() if key != without}
    plain = (desc.dtype, desc.shape, int(desc.format), desc.origin_shape, desc.origin_format, desc.origin_dtype)
    return plain, desc.shape_range, desc.name, desc.size_bytes, attrs


def _value(value: Any) -> Any:
    """With its kind: 1, 1.0 and True are three values, and so are nan and "nan"."""
    if isinstance(value, Weight):
        return "weight", _desc(value.desc), b"".join(value.chunks())
    if isinstance(value, TensorDesc):
        return "desc", _desc(value)
    if isinstance(value, NamedAttrs):
        return "func", value.name, {key: _value(item) for key, item in value.attrs.items()}
    if isinstance(value, tuple):
        return tuple(map(_value, value))
    return type(value).__name__, repr(value)


@pytest.mark.parametrize("name", CASES)
def test_the_document_of_an_om_gives_the_same_graph(name: str, command: Command, tmp_path: Path) -> None:
    source, options = CASES[name]
    first, second = round_trip(command, source if isinstance(source, str) else source(tmp_path), options)
    assert facts(read_om(second).model()) == facts(read_om(first).model())
    assert shown_models(command, second) == shown_models(command, first)
    assert second.with_suffix(".rdcpkt").exists() == first.with_suffix(".rdcpkt").exists()


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("dynamic")])
def test_the_om_of_a_document_runs_bit_for_bit_as_the_first(name: str, command: Command, tmp_path: Path) -> None:
    source, options = CASES[name]
    oms = round_trip(command, source if isinstance(source, str) else source(tmp_path), options)
    results = []
    for om in oms:
        more = ["--save-vars", "vars.npz", "--loop", "2"] if source == TRAIN else []
        weights = ["--weight-dir", "first/weight"] if "weight" in name else []
        command("run", str(om), "-o", "results", "--quiet", *more, *weights)
        files = sorted(Path("results").iterdir()) + ([Path("vars.npz")] if more else [])
        results.append({path.name: path.read_bytes() for path in files})
    assert results[0] == results[1]
    assert results[0]


@pytest.mark.parametrize("name", ["ascend310-2020-conv_pad", "ascend310-2021-a3c_pong", "ascend310-2022-vae"])
def test_the_document_of_an_om_of_atc_gives_the_same_graph(name: str, command: Command) -> None:
    original = REAL / f"{name}.om"
    document_of(command, original, name)
    command("compile", f"{name}.json", "-o", f"{name}.om", "--quiet")
    before, after = read_om(original).model(), read_om(f"{name}.om").model()
    found, wanted = facts(after), facts(before)
    (root_attrs, nodes), (old_attrs, old_nodes) = found.popitem()[1], wanted.popitem()[1]
    assert nodes == old_nodes
    assert old_attrs.items() <= root_attrs.items()
    assert (found, wanted) == ({}, {})


def test_the_results_of_a_model_of_atc_are_those_of_its_document(command: Command) -> None:
    original = REAL / "ascend310-2020-conv_pad.om"
    document_of(command, original)
    command("compile", "model.json", "-o", "again.om", "--quiet")
    for om, results in ((str(original), "one.npz"), ("again.om", "two.npz")):
        command("run", om, "-o", results, "--quiet")
    one, two = np.load("one.npz"), np.load("two.npz")
    assert list(one) == list(two) == ["output"]
    assert one["output"].tobytes() == two["output"].tobytes()


def test_a_document_compiles_to_the_same_bytes_each_time_and_from_a_data_file(command: Command) -> None:
    first, second = round_trip(command, DIGITS, STATIC)
    data = second.read_bytes()
    command("compile", "model.json", "-o", "second/model.om", "--quiet")
    assert second.read_bytes() == data
    document_of(command, first, "model", "--data-file", "data.bin")
    command("compile", "model.json", "-o", "second/model.om", "--quiet", "--depfile", "deps")
    assert second.read_bytes() == data
    assert Path("deps").read_text() == "second/model.om: model.json data.bin\ndata.bin:\n"


def test_the_document_of_a_document_s_om_compiles_to_that_om(command: Command) -> None:
    _, second = round_trip(command, TRAIN, ["--train"])
    data, record = second.read_bytes(), second.with_suffix(".rdcpkt").read_bytes()
    document_of(command, second)
    command("compile", "model.json", "-o", "third/model.om", "--quiet")
    again = Path("third/model.om")
    assert len(again.read_bytes()) == len(data)
    assert facts(read_om(again).model()) == facts(read_om(second).model())
    assert again.with_suffix(".rdcpkt").read_bytes() == record


def test_variables_get_the_road_that_their_declaration_implies(command: Command) -> None:
    _, second = round_trip(command, TRAIN, ["--train"])
    shown = command("inspect-om", str(second), "--vars", "--json")
    rows = {row["name"]: row for row in json.loads(shown)["variables"]}
    assert [step["type"] for step in rows["w2"]["road"]] == ["TransData"]
    assert not rows["w3"]["road"]


@pytest.mark.parametrize("source", [TRAIN, EVAL, PERCEPTRON], ids=["train", "eval", "perceptron"])
def test_the_variable_record_comes_back_byte_for_byte(source: str, command: Command) -> None:
    first, second = round_trip(command, source, ["--train"])
    assert second.with_suffix(".rdcpkt").read_bytes() == first.with_suffix(".rdcpkt").read_bytes()


def test_a_session_takes_a_document_from_the_cache_as_it_compiles_it(command: Command) -> None:
    round_trip(command, TRAIN, ["--train"])
    cached = ["--cache-dir", "cache", "--graph-key", "k", "--cache-create", "--session-out", "after.session"]
    assert "cache=miss" in command("compile", "model.json", "-o", "one.om", *cached)
    compiled = {path: Path(path).read_bytes() for path in ("one.om", "one.rdcpkt", "after.session")}
    assert "cache=hit" in command("compile", "model.json", "-o", "one.om", *cached)
    assert compiled == {path: Path(path).read_bytes() for path in compiled}
    command("compile", EVAL, "-o", "eval.om", "--session-in", "after.session", "--train", "--quiet")
    assert read_om("eval.om").model().root.node("w2").output_descs[0].format.name.startswith("FRACTAL_Z")


def test_no_pass_runs_on_a_document(command: Command) -> None:
    round_trip(command, DIGITS, STATIC)
    command("compile", "model.json", "-o", "again.om", "--report", "report.json", "--quiet")
    assert json.loads(Path("report.json").read_text())["models"][0]["stages"] == []
    assert load_graph("model.json").graph.is_optimised
    assert not load_graph(DIGITS).graph.is_optimised


def test_the_cache_knows_documents(command: Command) -> None:
    round_trip(command, DIGITS, STATIC)
    cached = ["--cache-dir", "cache", "--graph-key", "k", "--cache-create"]
    assert "cache=miss" in command("compile", "model.json", "-o", "one.om", *cached)
    data = Path("one.om").read_bytes()
    assert "cache=hit" in command("compile", "model.json", "-o", "one.om", *cached)
    assert Path("one.om").read_bytes() == data
    document = json.loads(Path("model.json").read_text())
    document["models"][0]["attrs"]["framework_type"] = "Caffe"
    Path("model.json").write_text(json.dumps(document))
    assert "cache=miss" in command("compile", "model.json", "-o", "one.om", *cached)


def test_an_output_of_a_document_is_up_to_date_until_the_document_changes(command: Command) -> None:
    round_trip(command, DIGITS, STATIC)
    again = ["compile", "model.json", "-o", "second/model.om", "--if-changed"]
    assert "up to date" in command(*again)
    document = json.loads(Path("model.json").read_text())
    document["models"][0]["attrs"]["soc_version"] = "Ascend310P3"
    Path("model.json").write_text(json.dumps(document))
    assert "up to date" not in command(*again)
    assert read_om("second/model.om").model().attrs["soc_version"] == "Ascend310P3"


def test_check_says_yes_and_writes_nothing(command: Command) -> None:
    round_trip(command, DIGITS, STATIC)
    assert command("compile", "model.json", "--check").startswith("ok ")


def test_documents_without_shared_variables_compile_in_one_command(command: Command) -> None:
    round_trip(command, DIGITS, STATIC, "one")
    round_trip(command, DIGITS, [], "two")
    command("compile", "one.json", "two.json", "-o", "both/", "--quiet")
    assert Path("both/one.om").read_bytes() == Path("second/one.om").read_bytes()
    assert Path("both/two.om").read_bytes() == Path("second/two.om").read_bytes()


REFUSED = {
    "input shape": (["--input-shape", "image:1,1,8,8"], "--input-shape"),
    "precision": (["--precision-mode-v2", "fp16"], "--precision-mode-v2"),
    "outputs": (["--out-nodes", "x:0"], "--out-nodes"),
    "formats": (["--format-policy", "origin"], "--format-policy"),
    "passes": (["--oo-level", "O1"], "--oo-level"),
    "training": (["--train"], "--train"),
    "chip": (["--soc-version", "Ascend310P3"], "--soc-version"),
    "stage": (["--stop-after", "Optimize1"], "--stop-after"),
    "dump": (["--dump-graph", "dumps"], "--dump-graph"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_options_that_the_first_compile_decided_are_refused(case: str, command: Command) -> None:
    round_trip(command, DIGITS, STATIC)
    options, named = REFUSED[case]
    shown = command("compile", "model.json", "-o", "out.om", *options, status=2)
    assert named in shown.splitlines()[0]
    assert all(part in shown for part in ("-->", "why:", "do:"))
    assert not Path("out.om").exists()


def test_variables_of_a_document_are_not_shared_with_other_models(command: Command) -> None:
    round_trip(command, TRAIN, ["--train"])
    shown = command("compile", "model.json", EVAL, "-o", "out/", status=2)
    assert "model.json cannot share its variables" in shown
    command("compile", "model.json", EVAL, "-o", "out/", "--no-session", "--quiet")


def test_a_source_model_is_asked_for_where_the_graph_as_declared_is_needed(command: Command) -> None:
    first, _ = round_trip(command, DIGITS, STATIC)
    assert "the document of a compiled model" in command("run", "--jit", "model.json", "--quiet", status=2)
    assert "has device formats" in command("run", str(first), "--compare", "model.json", status=2)


def test_unknown_operators_are_kept_and_told(command: Command) -> None:
    document_of(command, REAL / "ascend310-2022-vae.om")
    shown = command("compile", "model.json", "-o", "vae.om")
    assert "gecli run cannot run the OM" in shown
    assert "AtomicAddrClean" in shown
