"""Every failure of variables at compile time: name, code, exit status, and what the message says (variables.md 13)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gecli.errors import GecliError
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph, feed
from gecli.ir.tensor_desc import TensorDesc
from gecli.options.resolution import resolve
from gecli.variables.assignment import assign_variable_memory, variable_ports
from gecli.variables.interval_map import IntervalMap
from gecli.variables.limits import MemoryLimits
from gecli.variables.sizes import padded_bytes
from gecli.variables.trans_road import TransRoad, TransStep
from gecli.variables.var_manager import VarManager
from gecli.wire.var_session import decode_var_manager, encode_var_manager

ND = TensorDesc(DataType.FLOAT, (4,))
HALF = TensorDesc(DataType.FLOAT16, (4,))


def _sized(desc: TensorDesc) -> TensorDesc:
    return replace(desc, size_bytes=padded_bytes(desc))


def _graph(desc: TensorDesc = ND, name: str = "train", **attrs: object) -> Graph:
    graph = Graph(name)
    graph.create("Variable", "w", output_descs=[desc], attrs=dict(attrs))
    return graph


def option() -> None:
    resolve(
        "compile",
        {"output": ("o.om",)},
        ge_options=("ge.exec.variable_acc=True", "ge.AllowMultiGraphParallelCompile=1"),
    )


def limits() -> None:
    MemoryLimits.of(200 << 30, 100 << 30)


def snapshot() -> None:
    data = encode_var_manager(VarManager())
    decode_var_manager(data[: len(data) // 2])


def two_keys() -> None:
    manager = VarManager()
    manager.assign("w1", _sized(ND))
    manager.assign("w", _sized(ND.with_format(Format.NC1HWC0_C04, (1, 1, 1, 1, 4))))
    encode_var_manager(manager)


def file_constants() -> None:
    graph = Graph("train")
    for name, count in (("a", 4), ("w", 64)):
        desc = TensorDesc(DataType.FLOAT, (count,))
        graph.create("FileConstant", name, output_descs=[desc], attrs={"location": "w.bin"})
    assign_variable_memory(graph, VarManager(), 1)


def growing() -> None:
    manager = VarManager()
    assign_variable_memory(_graph(name="small"), manager, 1)
    assign_variable_memory(_graph(TensorDesc(DataType.FLOAT, (400,))), manager, 2)


def overlap() -> None:
    manager = VarManager()
    manager.restore_variable("other", _sized(ND), manager.logic_base + 32)
    manager.set_memory_bytes(next(iter(manager.resource.blocks)).memory_type, 0)
    assign_variable_memory(_graph(), manager, 1)


def exhausted() -> None:
    assign_variable_memory(_graph(), VarManager(limits=MemoryLimits(var_max_bytes=1000)), 1)


def unknown_size() -> None:
    assign_variable_memory(_graph(TensorDesc(DataType.FLOAT, (2, -1))), VarManager(), 1)


def not_found() -> None:
    graph = Graph("train")
    graph.create("Relu", "op", output_descs=[ND.with_attr("ref_var_src_var_name", "w")])
    variable_ports(graph, VarManager(), {})


def no_source() -> None:
    assign_variable_memory(_graph(_src_var_name="gone"), VarManager(), 1)


def second_road() -> None:
    manager = VarManager()
    manager.set_trans_road("w", TransRoad([TransStep("Cast", ND, HALF)]))
    manager.set_trans_road("w", TransRoad([TransStep("ReFormat", ND, replace(ND, format=Format.NCHW))]))


def no_pool() -> None:
    assign_variable_memory(_graph(_output_memory_type=1), VarManager(), 1)


def no_output() -> None:
    graph = Graph("train")
    graph.create("Variable", "w")
    assign_variable_memory(graph, VarManager(), 1)


def deep_chain() -> None:
    graph = _graph()
    port = graph.node("w").out()
    for k in range(16):
        port = feed(graph, graph.create("AssignAdd", f"w{k}", output_descs=[ND]), port, port).out()
    manager = VarManager()
    variable_ports(graph, manager, assign_variable_memory(graph, manager, 1))


IN_TRAIN = "graph 'train'"


@pytest.mark.parametrize(
    ("fail", "kind", "code", "exit_status", "words"),
    [
        (option, "", "E10001", 2, ["--variable-acc", "--parallel-compile"]),
        (limits, "OPTION_INVALID", "E10001", 2, [str(200 << 30), str(100 << 30), str(300 << 30)]),
        (snapshot, "DATA_CORRUPT", "G3007", 3, ["--session-out"]),
        (two_keys, "VAR_KEY_CONFLICT", "G2010", 4, ["'w1'", "'w'", "w12_0"]),
        (file_constants, "VAR_KEY_CONFLICT", "G2010", 4, ["'w'", IN_TRAIN, "w.bin:0", "64", "288"]),
        (growing, "VAR_SHAPE_GROWS", "G2011", 4, ["'w'", IN_TRAIN, "graph 'small'", "[4]", "[400]"]),
        (overlap, "VAR_OVERLAP", "G2012", 4, ["'w'", "'other'", IN_TRAIN, "0x2000000000", "0x2000000020"]),
        (exhausted, "VAR_MEM_EXHAUSTED", "G2013", 4, [IN_TRAIN, "1536", "1000", "--var-mem-max-size"]),
        (unknown_size, "VAR_SIZE_UNKNOWN", "G2014", 4, ["w", IN_TRAIN, "-1"]),
        (not_found, "VAR_NOT_FOUND", "G2015", 4, ["'w'", IN_TRAIN, "op:0"]),
        (no_source, "VAR_NOT_FOUND", "G2015", 4, ["'gone'", "'w'", IN_TRAIN]),
        (second_road, "VAR_ROAD_CONFLICT", "G2016", 4, ["'w'", "Cast", "ReFormat"]),
        (no_pool, "VAR_POOL_MISSING", "G2017", 4, ["'w'", IN_TRAIN, "_output_memory_type"]),
        (no_output, "PASS_FAILED", "G2018", 4, ["'w'", IN_TRAIN, "no output"]),
        (deep_chain, "PASS_FAILED", "G2018", 4, ["'w0'", IN_TRAIN, "15", "16"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_a_failure_has_its_name_code_and_exit_and_says_what_disagrees(
    fail: Callable[[], None], kind: str, code: str, exit_status: int, words: list[str]
) -> None:
    with pytest.raises(GecliError) as error:
        fail()
    assert (error.value.kind, error.value.code, error.value.exit_status) == (kind, code, exit_status)
    first = error.value.first
    said = " ".join((first.message, first.where, first.why, first.do))
    assert not [word for word in words if word not in said]


def test_ranges_that_are_empty_are_no_ranges() -> None:
    with pytest.raises(ValueError, match="empty"):
        IntervalMap[int]().add(4, 4, 0)
