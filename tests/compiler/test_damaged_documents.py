"""Documents of an OM that somebody cut, edited or made up: one message in four parts each, never a traceback."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecli.compiler.api import compile_model
from gecli.errors import GecliError, InputError
from gecli.loading import load_graph
from gecli.report.inspect.json_text import json_chunks
from gecli.report.inspect.model_document import model_view
from gecli.report.inspect.stored_data import base64_data
from gecli.report.inspect.subject import open_subject

REPOSITORY = Path(__file__).resolve().parents[2]
REAL = REPOSITORY / "tests" / "data" / "om" / "real"
Json = Any
Damage = Callable[[Json], object]


@cache
def _text() -> str:
    """The document of a training graph: variables, constants, optimizers."""
    with TemporaryDirectory() as folder:
        om = Path(folder, "mlp.om")
        compile_model(REPOSITORY / "samples/train/mlp_train.json", om, train="true")
        shown = model_view(open_subject(str(om)), base64_data)
        return "".join(json_chunks({**shown.document, "schema": "gecli.inspect/1"}))


def document() -> Json:
    return json.loads(_text())


def written(folder: Path, content: Json) -> Path:
    path = folder / "model.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def refused(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        load_graph(path)
    for diagnostic in caught.value.at(where=str(path)).diagnostics:
        text = "\n".join(diagnostic.lines())
        assert all(part in text for part in ("-->", "why:", "do:")), text
        assert str(path) in text
    return caught.value


def root(content: Json) -> Json:
    return content["models"][0]["graphs"][0]


def op(content: Json, type_name: str) -> Json:
    return next(each for each in root(content)["ops"] if each["type"] == type_name)


def tensor(content: Json) -> Json:
    """The value of a variable: its data are in the document."""
    return op(content, "Variable")["output_desc"][0]["attr"]["_init_value"]["value"]


def variables(content: Json) -> list[Json]:
    return [each for each in root(content)["ops"] if each["type"] == "Variable"]


def _set(path: str, value: Json) -> Damage:
    """Put a value at a place like `models/0/name`."""

    def change(content: Json) -> None:
        *way, last = [int(word) if word.isdecimal() else word for word in path.split("/")]
        for step in way:
            content = content[step]
        content[last] = value

    return change


def _cycle(content: Json) -> None:
    variables(content)[0].setdefault("input", []).append("Node_Output:-1")


DAMAGES: dict[str, tuple[Damage, str]] = {
    "no models": (lambda d: d.pop("models"), "models must be a list"),
    "two models": (lambda d: d["models"].append(d["models"][0]), "must have one model"),
    "models of no kind": (_set("models/0", 3), "a model must be an object"),
    "no graphs": (lambda d: d["models"][0].pop("graphs"), "graphs must be a list"),
    "an empty list of graphs": (_set("models/0/graphs", []), "the model has no graph"),
    "a graph that is a number": (_set("models/0/graphs/0", 1), "must be an object"),
    "ops that are an object": (_set("models/0/graphs/0/ops", {}), "must be a list"),
    "an op that is null": (_set("models/0/graphs/0/ops/0", None), "must be an object"),
    "an unknown member": (_set("models/0/graphs/0/ops/0/colour", "red"), "'colour' is unknown"),
    "the place of the walker": (lambda d: tensor(d).update(data_file_offset=0), "'data_file_offset' is unknown"),
    "a name of a wrong type": (_set("models/0/graphs/0/ops/0/name", 5), "must be a string"),
    "a graph name of a wrong type": (_set("models/0/graphs/0/name", ["a"]), "must be a string"),
    "an id beyond 64 bits": (_set("models/0/graphs/0/ops/0/id", 1 << 70), "more than 64 bits"),
    "an id that is a float": (_set("models/0/graphs/0/ops/0/id", 1.0), "must be an integer"),
    "a dim that is a boolean": (lambda d: tensor(d)["desc"].update(shape={"dim": [True]}), "must be an integer"),
    "too many dims": (lambda d: tensor(d)["desc"].update(shape={"dim": [1] * 2000}), "not that of a model"),
    "an unknown data type": (lambda d: tensor(d)["desc"].update(dtype="DT_ODD"), "'DT_ODD' is unknown"),
    "a float beyond 32 bits": (_set("models/0/graphs/0/ops/0/attr", {"f": 1e300}), "too large"),
    "an unknown type": (_set("models/0/graphs/0/ops/0/attr", {"a": {"type": "x", "value": 1}}), "has the type 'x'"),
    "a type without value": (_set("models/0/graphs/0/ops/0/attr", {"a": {"type": "tensor"}}), "members"),
    "a list of several kinds": (_set("models/0/graphs/0/ops/0/attr", {"a": [1, "x"]}), "several kinds"),
    "data without digits": (lambda d: tensor(d).update(data={"base64": "***"}), "not base64"),
    "data that are a number": (lambda d: tensor(d).update(data={"base64": 7}), "not base64"),
    "data that are cut": (lambda d: tensor(d)["data"].update(base64="AAAA"), "not as long"),
    "data that were changed": (lambda d: tensor(d)["data"].update(sha256="0" * 64), "not those"),
    "only a digest": (lambda d: tensor(d)["data"].pop("base64"), "does not have the data"),
    "no data": (lambda d: (tensor(d).pop("data"), tensor(d)["desc"].update(weight_size=80)), "does not have the data"),
    "a place of no form": (lambda d: tensor(d).update(data={"$ref": 1, "offset": 0, "length": 1}), "another form"),
    "a missing file": (lambda d: tensor(d).update(data={"$ref": "no", "offset": 0, "length": 1}), "does not exist"),
    "a file elsewhere": (lambda d: tensor(d).update(data={"$ref": "/etc/passwd", "offset": 0, "length": 1}), "outside"),
    "a file above": (lambda d: tensor(d).update(data={"$ref": "../x", "offset": 0, "length": 1}), "outside"),
    "two of one name": (lambda d: root(d)["ops"].append(variables(d)[0]), "already has a node"),
    "an input from nowhere": (lambda d: op(d, "NetOutput").update(input=["nobody:0"]), "no node of that name"),
    "an output that is not there": (lambda d: op(d, "NetOutput").update(input=["x:77"]), "output 77"),
    "a cycle": (_cycle, "cycle"),
    "two graphs of one name": (lambda d: d["models"][0]["graphs"].extend([deepcopy(root(d))] * 2), "graph"),
    "a missing subgraph": (lambda d: op(d, "NetOutput").update(subgraph_name=["gone"]), "missing subgraph 'gone'"),
    "a graph in itself": (lambda d: op(d, "NetOutput").update(subgraph_name=[root(d)["name"]]), "contain each other"),
    "no outputs": (lambda d: root(d)["ops"].remove(op(d, "NetOutput")), "NetOutput"),
    "two inputs of one index": (
        lambda d: [each["attr"].update(index=0) for each in root(d)["ops"] if each["type"] == "Data"],
        "one index",
    ),
    "an index that is text": (lambda d: op(d, "Data")["attr"].update(index="a"), "no integer"),
    "a value that is a number": (
        lambda d: variables(d)[0]["output_desc"][0]["attr"].update(_init_value=7), "is no tensor"
    ),
    "a file of another kind": (_set("file/kind", "flow"), "kind 'flow'"),
    "a model of HiAI": (_set("header/modeltype", 3), "HiAI"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_document_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    damage, message = DAMAGES[name]
    content = document()
    damage(content)
    error = refused(written(tmp_path, content))
    assert message in " ".join(each.message for each in error.diagnostics), error


def test_the_pointer_leads_to_the_fault(tmp_path: Path) -> None:
    content = document()
    ops = root(content)["ops"]
    position = next(number for number, each in enumerate(ops) if each["type"] == "Variable")
    tensor(content)["data"]["base64"] = "?"
    error = refused(written(tmp_path, content))
    place = f"/models/0/graphs/0/ops/{position}/output_desc/0/attr/_init_value/value/data"
    assert error.first.pointer == place


def test_ranges_of_the_data_file_are_checked(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(bytes(100))
    size = tensor(document())["data"]["bytes"]
    for offset, length in ((100 - size + 1, size), (-1, size), (0, -1), (1 << 80, 1), (0, 1 << 80)):
        content = document()
        tensor(content)["data"] = {"$ref": "data.bin", "offset": offset, "length": length}
        assert "outside 'data.bin'" in refused(written(tmp_path, content)).first.message
    content = document()
    tensor(content)["data"] = {"$ref": "data.bin", "offset": 100 - size, "length": size}
    load_graph(written(tmp_path, content))


def test_the_data_of_a_document_lie_in_one_file(tmp_path: Path) -> None:
    content = document()
    for name, node in zip("ab", variables(content)):
        value = node["output_desc"][0]["attr"]["_init_value"]["value"]
        (tmp_path / name).write_bytes(base64.b64decode(value["data"]["base64"]))
        value["data"] = {"$ref": name, "offset": 0, "length": value["data"]["bytes"]}
    assert "lie in one file" in refused(written(tmp_path, content)).first.message


def test_changed_data_are_taken_without_the_members_that_describe_the_old(tmp_path: Path) -> None:
    content = document()
    size = tensor(content)["data"]["bytes"]
    tensor(content)["data"] = {"base64": base64.b64encode(b"\1" * size).decode()}
    graph = load_graph(written(tmp_path, content)).graph
    name = op(content, "Variable")["name"]
    value = graph.node(name).init_value
    assert value is not None
    assert value.source.read() == b"\1" * size


@pytest.mark.parametrize("text", ["[" * 5000, '{"a":' * 5000], ids=["lists", "objects"])
def test_deep_nesting_is_refused(text: str, tmp_path: Path) -> None:
    head = '{"schema": "gecli.inspect/1", "models": '
    error = refused(written(tmp_path, head + text))
    assert error.code == "E13005"


def test_deep_attributes_are_refused(tmp_path: Path) -> None:
    content = document()
    value: Json = 1
    for _ in range(90):
        value = {"type": "func", "value": {"name": "f", "attr": {"a": value}}}
    op(content, "Data")["attr"]["deep"] = value
    assert "not that of a model" in refused(written(tmp_path, content)).first.message


@pytest.mark.parametrize("view", ["gecli.inspect.nodes/1", "gecli.inspect.salvage/1", "gecli.inspect.error/1"])
def test_documents_of_views_are_no_models(view: str, tmp_path: Path) -> None:
    content = {"schema": view, "ok": False, "errors": [], "models": [], "nodes": []}
    assert refused(written(tmp_path, content)).code == "G1001"


def test_a_document_of_a_mobile_model_is_refused(tmp_path: Path) -> None:
    shown = model_view(open_subject(str(REAL / "hiai-relu.om")), base64_data)
    text = "".join(json_chunks({**shown.document, "schema": "gecli.inspect/1"}))
    assert "HiAI" in refused(written(tmp_path, text)).first.message


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just([]), st.just({}),
    st.sampled_from([1 << 63, -(1 << 63), 1e40, "nan", "x:0", "DT_FLOAT", [1, None], [[1]], {"type": "tensor"}]),
    st.dictionaries(st.sampled_from(["type", "value", "base64", "$ref", "dim", "list_i"]), st.integers(), max_size=3),
)  # fmt: skip


def _places(content: Json) -> list[tuple[Json, Any]]:
    found = []
    if isinstance(content, dict | list):
        for key, value in content.items() if isinstance(content, dict) else enumerate(content):
            found.append((content, key))
            found += _places(value)
    return found


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_whatever_is_changed_in_a_document_it_compiles_or_is_refused(data: st.DataObject) -> None:
    content = document()
    model = content["models"][0]
    for _ in range(data.draw(st.integers(1, 3))):
        places = _places({"model": model})
        holder, key = places[data.draw(st.integers(0, len(places) - 1))]
        if data.draw(st.booleans()):
            holder[key] = data.draw(VALUES)
        else:
            del holder[key]
        model = content["models"][0]
    with TemporaryDirectory() as folder:
        path = written(Path(folder), content)
        try:
            compile_model(path, Path(folder, "out.om"))
        except GecliError as error:
            for diagnostic in error.at(where=str(path)).diagnostics:
                text = "\n".join(diagnostic.lines())
                assert all(part in text for part in ("-->", "why:", "do:")), text
