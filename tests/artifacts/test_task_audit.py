"""TASK_INFO and sizes that do not agree with the model: inspect-om warns, run refuses tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gecli.artifacts.om_file import read_om
from gecli.artifacts.part_faults import part_faults
from gecli.cli import app
from gecli.errors import InputError
from gecli.runtime.session import Session

from . import spec_om as spec

ADDRESSES = (1 << 31, (1 << 31) + 512)


def operator(name: str, kind: str, number: int, source: str, *, stream: int = 0) -> bytes:
    desc = spec.descriptor(1, [2], size=64)
    attrs = {"index": spec.attr_i(0)} if kind == "Data" else {}
    outputs = [] if kind == "NetOutput" else [desc]
    sources = [(source[:-2], 0)] if kind == "NetOutput" else ()
    written = spec.operator(name, kind, number, [source], attrs, [desc], outputs, sources=sources,
                            input_i=[0] if source else [], output_i=[512 * number] if outputs else [])  # fmt: skip
    return written + (spec.number(22, stream) if stream else b"")


def model(attrs: dict[str, bytes], *, stream: int = 0) -> bytes:
    nodes = [operator("x", "Data", 0, ""), operator("y", "Relu", 1, "x:0", stream=stream),
             operator("out", "NetOutput", 2, "y:0")]  # fmt: skip
    return spec.model("m", [spec.graph("m_0", nodes, inputs=["x:0"])], {"memory_size": spec.attr_i(1024), **attrs})


def om(path: Path, *tasks: bytes, attrs: dict[str, bytes] | None = None, memory: int = 1024, stream: int = 0) -> Path:
    """A file with one operator, beside it an END_GRAPH task."""
    listed = spec.task_info([*tasks, spec.number(2, 19)], memory, 1024)
    path.write_bytes(spec.om_wide([(0, model(attrs or {}, stream=stream)), (1, bytes(1024)), (2, listed)]))
    return path


def kernel(op_index: int = 1, args_size: int = 16, stream: int = 0) -> bytes:
    sound = spec.kernel_task(op_index, ADDRESSES, "y")
    assert sound.count(b"\x60\x10") == 1  # field 12, 16
    return sound.replace(b"\x60\x10", spec.number(12, args_size)) + (spec.number(10, stream) if stream else b"")


FAULTS = {
    "args": ([kernel(args_size=24)], "task 0 says args_size 24, its args have 16 bytes"),
    "operator": (
        [kernel(), kernel(7), kernel(8)],
        "task 1 belongs to operator 7, which does not exist; 2 tasks have this fault",
    ),
    "stream": ([kernel(stream=1)], "task 0 is in stream 1, its operator in stream 0"),
    "stream number": ([kernel(), spec.number(2, 1) + spec.number(10, 9)], "task 1 is in stream 9, the model has 2"),
}  # fmt: skip
TWO_STREAMS = {"stream_num": spec.attr_i(2)}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_task_that_contradicts_the_model_is_a_warning_of_inspect_om_and_an_error_of_run(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks, words = FAULTS[kind]
    path = om(tmp_path / "odd.om", *tasks, attrs=TWO_STREAMS)
    for view in ("--summary", "--tasks"):
        assert app.run(["inspect-om", str(path), view]) == 0
        shown = capsys.readouterr()
        assert f"warning[G3011]: {path}: bad-graph: {words} (offset " in shown.err
    assert app.run(["inspect-om", str(path), "--strict", "--io"]) == 3
    assert "error[G3011]" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"task \d") as caught:
        Session().load(path)
    assert (caught.value.code, words in caught.value.first.message) == ("G3011", True)


def test_tasks_that_agree_with_the_model_say_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = om(tmp_path / "sound.om", kernel(), attrs=TWO_STREAMS)
    assert app.run(["inspect-om", str(path), "--strict"]) == 0
    assert capsys.readouterr().err == ""
    path = om(tmp_path / "second.om", kernel(stream=1), attrs=TWO_STREAMS, stream=1)
    assert app.run(["inspect-om", str(path), "--strict"]) == 0
    assert part_faults(read_om(path)) == []


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"memory": 2048}, "G3011", "memory_size is 2048 in TASK_INFO, 1024 in the model"),
        ({"attrs": {"weight_size": spec.attr_i(4096)}}, "G3012", "weight_size is 4096, WEIGHTS_DATA has 1024 bytes"),
        ({"attrs": {"om_info_list": spec.attr_ints(1024, 0, 0, 5, 0)}}, "G3003", "task_info_size is 5 bytes"),
    ],
)
def test_a_size_that_is_not_the_one_of_the_table_is_a_warning(
    options: dict[str, Any], code: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = om(tmp_path / "sizes.om", kernel(), **options)
    assert app.run(["inspect-om", str(path)]) == 0
    shown = capsys.readouterr()
    assert f"warning[{code}]" in shown.err and words in shown.err
    assert "verdict    1 problem" in shown.out or "verdict    2 problems" in shown.out
    assert app.run(["inspect-om", str(path), "--strict", "--nodes"]) == 3
    assert f"error[{code}]" in capsys.readouterr().err
    assert Session().load(path).inputs[0].name == "x"  # the table is the truth


def test_ids_in_any_order_and_ids_used_twice_are_understood(tmp_path: Path) -> None:
    nodes = [operator("y", "Relu", 5, "x:0", stream=1), operator("x", "Data", 2, ""),
             operator("z", "Relu", 5, "x:0")]  # fmt: skip
    graph = spec.model("m", [spec.graph("m_0", nodes)], {})
    tasks = spec.task_info([kernel(5), kernel(5, stream=1), kernel(2), kernel(3)], 0, 0)
    path = tmp_path / "order.om"
    path.write_bytes(spec.om_wide([(0, graph), (2, tasks)]))
    om_file = read_om(path)
    om_file.model()
    assert [each.message.partition("task ")[2] for each in part_faults(om_file)] == [
        f"3 belongs to operator 3, which does not exist (offset {om_file.root.partitions[1].offset_bytes})"
    ]
