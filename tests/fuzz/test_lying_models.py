"""Models that fuzzing found to stop a run with a traceback: each is refused in words."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from om_mutations import MODEL_DEF, Field, Seed, message, rebuilt  # the folder is on the path only now
from om_worker import VIEWS

from gecli.artifacts.inout_info import InOutInfo
from gecli.artifacts.om_file import read_om
from gecli.artifacts.om_writer import om_image
from gecli.cli.app import run
from gecli.ir.attributes import NamedAttrs, RawAttr
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.ir.placement import Placement
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Inline, Weight
from gecli.planning.weight_layout import lay_out_weights
from gecli.wire.model_record import GraphRecord, ModelRecord
from gecli.wire.task import Task, TaskList, TaskType

F32 = TensorDesc(DataType.FLOAT, (3,))
Lie = Callable[[ModelRecord, dict[str, OpDesc]], None]


def model() -> tuple[ModelRecord, dict[str, OpDesc]]:
    """x + w -> NetOutput."""
    x = OpDesc("x", "Data", attrs={"index": 0}, output_descs=[F32])
    w = OpDesc("w", "Const", attrs={"value": Weight(F32, Inline(bytes(12)))}, output_descs=[F32])
    add = OpDesc("add", "Add", input_descs=[F32, F32], output_descs=[F32], input_names=("x1", "x2"))
    out = OpDesc("Node_Output", "NetOutput", input_descs=[F32])
    for node, slot, producer in ((add, 0, x), (add, 1, w), (out, 0, add)):
        node.inputs[slot] = Port(producer, 0)
        producer.users[0][Use(node, slot)] = None
    nodes = [x, w, add, out]
    places = {node: Placement(k, 0, (0,) * len(node.inputs), (512 * k,)) for k, node in enumerate(nodes)}
    graph = GraphRecord("m_0", nodes, {}, places, ("x:0",))
    return ModelRecord("m", [graph], {"memory_size": 4096}), {node.name: node for node in nodes}


def written(path: Path, record: ModelRecord) -> None:
    tasks = TaskList((Task(TaskType.END_GRAPH),), "gecli-sim-1")
    with path.open("wb") as stream:
        om_image(record, tasks, lay_out_weights([]), {}, inout=InOutInfo()).write(stream)


def set_attr(name: str, value: Any) -> Lie:
    return lambda record, nodes: record.attrs.__setitem__(name, value)


def set_node_attr(node: str, name: str, value: Any) -> Lie:
    return lambda record, nodes: nodes[node].attrs.__setitem__(name, value)


def set_output(node: str, desc: TensorDesc) -> Lie:
    return lambda record, nodes: nodes[node].output_descs.__setitem__(0, desc)


def no_graph(record: ModelRecord, nodes: dict[str, OpDesc]) -> None:
    record.graphs.clear()


def no_output(record: ModelRecord, nodes: dict[str, OpDesc]) -> None:
    nodes["w"].output_descs.clear()
    nodes["add"].inputs[1] = None


NOTHING = RawAttr("none", b"")
LIES: dict[str, tuple[Lie, str]] = {
    "no graph": (no_graph, "MODEL_DEF has no graph"),
    "a memory size without a value": (set_attr("memory_size", NOTHING), "memory_size is no size"),
    "a negative memory size": (set_attr("memory_size", -5), "memory_size is no size"),
    "a memory size beyond all memory": (set_attr("memory_size", 2**63 - 1), "memory_size is no size"),
    "a variable base that is a text": (set_attr("task_gen_variable_addr", "x"), "task_gen_variable_addr is no size"),
    "output names that are a number": (set_attr("attr_model_out_nodes_name", 7), "is no list of names"),
    "output names without a value": (set_attr("attr_model_out_nodes_name", NOTHING), "is no list of names"),
    "an index that is a text": (set_node_attr("x", "index", "first"), "attribute index of Data node 'x' is no number"),
    "a constant whose value is a number": (set_node_attr("w", "value", 3), "value that is no tensor"),
    "a constant whose value is a list": (set_node_attr("w", "value", (1, 2)), "value that is no tensor"),
    "a constant that is too short": (
        set_node_attr("w", "value", Weight(F32, Inline(bytes(8)))), "does not fit its description"),
    "a constant of an unknown shape": (
        set_node_attr("w", "value", Weight(TensorDesc(DataType.FLOAT, (-1,)), Inline(bytes(12)))),
        "does not fit its description"),
    "a constant without output": (no_output, "has no output"),
    "an input stored in another shape than its users give": (
        set_output("x", replace(F32, origin_shape=(4,))), "is stored as [3]"),
    "a choice without graphs": (lambda record, nodes: setattr(nodes["add"], "type", "Case"), "names no graph"),
    "an output of no type": (set_output("add", TensorDesc(DataType.UNDEFINED, (3,))), "no type that can be computed"),
    "an output of 2 ** 93 elements": (
        set_output("add", TensorDesc(DataType.FLOAT, (2**31, 2**31, 2**31))), "larger than any memory"),
    "an output of none, and 2 ** 62 times that": (
        set_output("add", TensorDesc(DataType.FLOAT, (0, 2**62))), "larger than any memory"),
}  # fmt: skip


def test_a_constant_that_cannot_be_converted_is_the_file_s_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, nodes = model()
    blocked = TensorDesc(DataType.FLOAT, (1, 16, 16, 8), Format.FRACTAL_Z, origin_shape=(1, 1, 1, 128))
    nodes["w"].attrs["value"] = Weight(blocked, Inline(bytes(8192)))
    nodes["w"].output_descs[0] = blocked
    path = tmp_path / "m.om"
    written(path, record)
    assert run(["run", str(path)]) == 3
    shown = capsys.readouterr().err
    assert "error[G4011]" in shown and "no transfer leads" in shown


def nested_functions(depth: int) -> NamedAttrs:
    value = NamedAttrs("f", {"k": 1})
    for _ in range(depth):
        value = NamedAttrs("f", {"k": value})
    return value


@pytest.mark.parametrize("view", ["--json", "--atc-json", "--nodes"])
def test_functions_in_functions_are_shown_as_deep_as_they_can_be_read(
    view: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.om"
    ends = []
    for depth in range(20, 45):
        record, nodes = model()
        record.attrs["deep"] = nodes["add"].attrs["deep"] = nested_functions(depth)
        written(path, record)
        ends.append(run(["inspect-om", str(path), view]))
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        if ends[-1] == 0 and "json" in view:
            json.loads(shown.out)
    assert set(ends) == {0, 3} and ends == sorted(ends)


@pytest.mark.parametrize("view", ["--json", "--atc-json"])
@pytest.mark.parametrize("level", ["model", "graph", "node"])
def test_of_two_attributes_with_one_name_the_last_counts_or_a_broken_first_is_refused(
    level: str, view: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, nodes = model()
    graph = record.graphs[0]
    {"model": record, "graph": graph, "node": nodes["add"]}[level].attrs["twice"] = "right"
    path = tmp_path / "m.om"
    written(path, record)
    seed = Seed.of("m", path.read_bytes())
    part = next(k for k, (kind, _) in enumerate(seed.parts) if kind == MODEL_DEF)
    way: list[Field] = []
    begin, end = 0, len(seed.parts[part][1])
    for number in {"model": (11,), "graph": (7, 11), "node": (7, 6, 10)}[level]:
        fields = [each for each in seed.level(part, begin, end) or () if each.number == number]
        texts = [seed.parts[part][1][each.body : each.end] for each in fields]
        way.append(next((each for each, text in zip(fields, texts) if b"twice" in text), fields[0]))
        begin, end = way[-1].body, way[-1].end
    right = seed.parts[part][1][way[-1].start : way[-1].end]
    broken = message(way[-1].number, message(1, b"twice") + message(2, b"\x12\x7f"))
    path.write_bytes(rebuilt(seed, part, way, broken + right))
    status = run(["inspect-om", str(path), view])
    assert status in (0, 3)  # 3 as protobuf has it, which reads all values of a message
    shown = capsys.readouterr()
    assert (status == 3 or "right" in shown.out) and "Traceback" not in shown.err
    path.write_bytes(rebuilt(seed, part, way, right + broken))
    assert run(["inspect-om", str(path), view]) == 3


ODD: dict[str, Any] = {
    "nothing": NOTHING,
    "a graph": RawAttr("g", b"\x6a\x00"),
    "true": True,
    "a negative number": -7,
    "a large number": 2**63 - 1,
    "not a number": float("nan"),
    "a text": "x",
    "no text": "\udcff\udcfe",
    "bytes": b"\xff\0",
    "numbers": (1, -1, 2**62),
    "texts": ("a:0", "\udcff"),
    "an empty list": (),
    "rows": ((1, -2), (), (2**62,)),
    "descriptions": (F32,),
    "a description": F32,
    "a tensor": Weight(F32, Inline(bytes(5))),
    "a function": NamedAttrs("f", {"k": 1}),
    "a type": DataType.FLOAT,
}
READ = {
    "model": (
        "memory_size", "weight_size", "zero_copy_memory_size", "stream_num", "event_num", "variable_size",
        "task_gen_base_addr", "task_gen_weight_addr", "task_gen_variable_addr", "sub_memory_info", "target_type",
        "soc_version", "arch_type", "framework_type", "atc_version", "opp_version", "atc_cmdline", "host_env_os",
        "host_env_cpu", "compiler_version", "attr_model_out_nodes_name", "task_index_op_name", "om_info_list",
        "om_compress_version", "attr_name_enum", "attr_value_enum", "attrs_use_string_value", "fm", "tasks",
        "output_reuse_input_mem_indexes", "huge_stream_list", "p2p_memory_size", "host_memory_size",
    ),
    "graph": ("_session_graph_id", "_dynamic_shape_partitioned", "_gecli_fp", "_gecli_guard"),
    "node": (
        "index", "value", "is_input_const", "INPUT_IS_VAR", "OUTPUT_IS_VAR", "ref_var_src_var_name", "file_id",
        "file_path", "location", "offset", "length", "_parent_node_index", "_input_memory_type", "_output_memory_type",
        "_workspace_type", "_kernelname", "_batch_num", "_pred_value_0", "_pred_value_1", "mbatch_dynamic_type",
        "user_designate_shape_order", "_dynamic_output_dims", "_mbatch_origin_input_dims", "input_dims",
        "_dynamic_aipp_input_dims", "_ge_attr_op_kernel_lib_name", "engine_name", "_input_name_key",
        "_input_name_value", "_output_name_key", "_output_name_value", "_datadump_original_op_names",
    ),
    "desc": (
        "origin_format", "origin_format_for_int", "format_for_int", "origin_shape", "origin_shape_initialized",
        "origin_data_type", "shape_range", "merged_offset", "_init_value", "ref_var_src_var_name", "placement",
        "_special_input_size", "size", "__tensor_desc_data_type__", "ref_port_index",
    ),
}  # fmt: skip


@pytest.mark.parametrize("level", READ)
@pytest.mark.parametrize("odd", ODD)
def test_whatever_an_attribute_holds_every_view_shows_the_model(
    odd: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GECLI_DEBUG", "1")
    for kind in ("Const", "Variable", "FileConstant", "Case"):
        record, nodes = model()
        nodes["w"].type = kind
        values = dict.fromkeys(READ[level], ODD[odd])
        if level == "model":
            record.attrs.update(values)
        elif level == "graph":
            record.graphs[0].attrs.update(values)
        for node in nodes.values() if level in ("node", "desc") else ():
            if level == "node":
                node.attrs.update(values)
            for descs in (node.input_descs, node.output_descs) if level == "desc" else ():
                descs[:] = [desc and replace(desc, attrs=values) for desc in descs]
        path = Path("case.om")
        written(path, record)
        for words in (*(("inspect-om", path.name, *view) for view in VIEWS), ("run", path.name, "--plan")):
            status = run(list(words))
            shown = capsys.readouterr()
            assert status in (0, 3, 6) and "Traceback" not in shown.err, (words, shown.err[-1500:])
            if status == 0 and "--json" in words:
                json.loads(shown.out)


READ_BY_RUN = {
    "model": (
        "memory_size", "variable_size", "task_gen_variable_addr", "attr_model_out_nodes_name", "host_memory_size",
        "host_svm_size", "task_gen_host_svm_base_addr", "zero_copy_memory_size", "weight_size", "om_info_list",
    ),
    "node": (
        "index", "_parent_node_index", "value", "ref_var_src_var_name", "file_id", "file_path", "location", "offset",
        "length", "_gecli_sha256", "addr", "size", "placement", "storage_shape", "origin_shape", "dtype",
        "_copy_from_var_node", "_copy_value", "_datadump_original_op_names", "_output_memory_type",
    ),
    "desc": ("_init_value", "ref_var_src_var_name", "shape_range", "size", "placement"),
}  # fmt: skip


@pytest.mark.parametrize("level", READ_BY_RUN)
@pytest.mark.parametrize("odd", ODD)
def test_whatever_one_attribute_holds_a_run_ends_in_words(
    odd: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GECLI_DEBUG", "1")
    path = Path("case.om")
    for kind, base in (
        ("Const", {}),
        ("Variable", {"variable_size": 4096}),
        ("FileConstant", {}),
        ("ConstPlaceHolder", {}),
    ):
        for name in READ_BY_RUN[level]:
            record, nodes = model()
            nodes["w"].type = kind
            record.attrs.update(base)
            if level == "model":
                record.attrs[name] = ODD[odd]
            for node in nodes.values():
                if level == "node":
                    node.attrs[name] = ODD[odd]
                if level == "desc":
                    for descs in (node.input_descs, node.output_descs):
                        descs[:] = [desc and replace(desc, attrs={name: ODD[odd]}) for desc in descs]
            written(path, record)
            status = run(["run", path.name, "--init", "zero", "--mark", "all", "--dump-dir", "d", "-q"])
            shown = capsys.readouterr().err
            assert status in (0, 3, 6) and "Traceback" not in shown, (kind, name, shown[-1500:])


def test_an_absent_input_of_a_graph_with_a_nameless_node_is_no_edge(tmp_path: Path) -> None:
    record, nodes = model()
    nodes["add"].name = ""
    written(tmp_path / "m.om", record)
    again = read_om(tmp_path / "m.om").model()
    assert [port and port.node.name for node in again.root.nodes for port in node.inputs] == ["x", "w", ""]


@pytest.mark.parametrize("lie", LIES)
def test_a_model_that_lies_is_refused(lie: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, nodes = model()
    path = tmp_path / "m.om"
    written(path, record)
    assert run(["run", str(path), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["models"][0]["name"] == "m"
    change, words = LIES[lie]
    change(record, nodes)
    written(path, record)
    assert run(["run", str(path)]) == 3
    shown = capsys.readouterr().err
    assert "error[G3011]" in shown and words in shown and "Traceback" not in shown
    assert run(["inspect-om", str(path), "--nodes"]) == 0
