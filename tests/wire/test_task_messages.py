"""Task lists are written and read field by field."""

from __future__ import annotations

import pytest

from gecli.errors import InputError
from gecli.pb import task_pb2
from gecli.wire.task import KernelType, Task, TaskList, TaskType, encode_tasks, enum_name
from gecli.wire.task_decoder import decode_tasks

KERNEL = Task(
    TaskType.KERNEL,
    1,
    7,
    KernelType.HOST_CPU,
    "conv/add",
    "libgecli_sim.so",
    "Add",
    1,
    (0x80000000, 0x2000000000, 0),
    24,
    "{i_instance0*}{i_instance1*}{o_instance0*}",
)


def test_a_task_list_reads_back_as_it_was() -> None:
    tasks = TaskList((KERNEL, Task(TaskType.END_GRAPH)), "gecli-sim-1", 4096, 512, 2, attrs={"a": "b"})
    data = encode_tasks(tasks)
    assert decode_tasks(data) == tasks
    assert encode_tasks(decode_tasks(data)) == data


def test_addresses_are_little_endian_words() -> None:
    message = task_pb2.ModelTaskDef.FromString(encode_tasks(TaskList((KERNEL,))))
    assert message.task[0].kernel.args[:8] == bytes.fromhex("0000008000000000")
    assert message.task[0].kernel.context.op_index == 7
    assert message.task[0].kernel.context.args_offset == b"\0\0"


def test_tasks_of_other_kinds_name_their_operator() -> None:
    message = task_pb2.ModelTaskDef()
    message.task.add(type=TaskType.EVENT_RECORD, event_id=3).event_ex.op_index = 5
    message.task.add(type=TaskType.KERNEL_EX).kernel_ex.op_index = 6
    message.task.add(type=TaskType.ALL_KERNEL).kernel_with_handle.context.op_index = 8
    message.task.add(type=TaskType.FUSION_START)
    tasks = decode_tasks(message.SerializeToString()).tasks
    assert [task.op_index for task in tasks] == [5, 6, 8, None]
    assert tasks[0].event_id == 3


def test_arguments_that_are_no_whole_words_are_cut() -> None:
    message = task_pb2.ModelTaskDef()
    message.task.add().kernel.args = bytes(11)
    assert decode_tasks(message.SerializeToString()).tasks[0].args == (0,)


def test_a_blob_of_another_format_is_an_input_error() -> None:
    with pytest.raises(InputError) as caught:
        decode_tasks(bytes.fromhex("cdabcdab00000000"), path="m.om", offset=100)
    assert caught.value.kind == "bad-proto" and caught.value.first.offset == 100


def test_unknown_numbers_keep_their_number() -> None:
    assert enum_name(TaskType, 19) == "END_GRAPH"
    assert enum_name(KernelType, 77) == "UNKNOWN_77"
