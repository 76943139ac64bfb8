"""`ModelTaskDef` messages <-> task lists (GE: domi.ModelTaskDef, the TASK_INFO partition)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from struct import Struct
from typing import Any

from gecli.records import dataclass
from gecli.wire.writer import bytes_field, header, number_field, text_field

Message = Any


class TaskType(IntEnum):
    """GE: RT_MODEL_TASK_*."""

    KERNEL = 0
    EVENT_RECORD = 1
    EVENT_WAIT = 2
    FUSION_START = 3
    FUSION_END = 4
    KERNEL_EX = 5
    HCCL = 6
    STREAM_SWITCH = 7
    STREAM_ACTIVE = 8
    LABEL_SET = 9
    LABEL_SWITCH = 10
    LABEL_GOTO = 11
    PROFILER_TRACE = 12
    MEMCPY_ASYNC = 13
    NOTIFY_RECORD = 14
    NOTIFY_WAIT = 15
    REDUCE_ASYNC = 16
    RDMA_SEND = 17
    EVENT_RESET = 18
    END_GRAPH = 19
    STREAM_SWITCH_N = 20
    RDMA_DB_SEND = 21
    MEMCPY_ADDR_ASYNC = 22
    STREAM_LABEL_SWITCH_BY_INDEX = 23
    STREAM_LABEL_GOTO = 24
    MODEL_EXIT = 25
    ALL_KERNEL = 26
    PROFILER_TRACE_EX = 27
    FFTS = 28
    FFTS_PLUS = 29
    DSA = 30
    CMO = 31
    BARRIER = 32
    NPU_GET_FLOAT_STATUS = 33
    NPU_CLEAR_FLOAT_STATUS = 34
    DVPP = 35
    NPU_GET_DEBUG_FLOAT_STATUS = 36
    NPU_CLEAR_DEBUG_FLOAT_STATUS = 37
    CMO_ADDR = 38
    VECTOR_KERNEL = 39
    VECTOR_ALL_KERNEL = 40
    UPDATE = 41
    NOP = 42
    PREPROCESS_KERNEL = 43
    SUPER_KERNEL = 44
    MEM_EVENT_RECORD = 45
    MEM_EVENT_WAIT = 46
    FUSION_KERNEL = 47
    KERNEL_LAUNCH_V2 = 48
    CCU_KERNEL = 49
    CUSTOM_KERNEL = 50


class KernelType(IntEnum):
    """GE: ccKernelType."""

    CCE_AI_CORE = 0
    CCE_AI_CPU = 1
    TE = 2
    CUSTOMIZED = 3
    TE_AI_CORE = 4
    TE_AI_CPU = 5
    AI_CPU = 6
    CUST_AI_CPU = 7
    HOST_CPU = 8
    DVPP = 9
    AI_CPU_KFC = 10
    MIX_AICORE = 11
    MIX_VECTOR_CORE = 12
    INVALID = 10000


@dataclass(frozen=True, slots=True)
class Task:
    """One task. `op_index` is the id of its operator, None for tasks that belong to none.

    `args` holds the logical addresses of inputs, outputs and workspaces. `args_size` is the number the file states.
    """

    type: int
    stream_id: int = 0
    op_index: int | None = None
    kernel_type: int | None = None
    stub_func: str = ""
    so_name: str = ""
    kernel_name: str = ""
    block_dim: int = 0
    args: tuple[int, ...] = ()
    args_size: int = 0
    args_format: str = ""
    event_id: int = 0

    @property
    def type_name(self) -> str:
        return enum_name(TaskType, self.type)


@dataclass(frozen=True, slots=True)
class TaskList:
    """TASK_INFO."""

    tasks: tuple[Task, ...]
    version: str = ""
    memory_size: int = 0
    weight_size: int = 0
    stream_num: int = 0
    event_num: int = 0
    base_addr: int = 0
    weight_addr: int = 0
    batch_num: int = 0
    attrs: Mapping[str, str] = field(default_factory=dict)


def enum_name(kind: type[IntEnum], number: int) -> str:
    """The member's name; unknown numbers keep their number."""
    try:
        return kind(number).name
    except ValueError:
        return f"UNKNOWN_{number}"


def encode_tasks(tasks: TaskList) -> bytes:
    """The ModelTaskDef bytes of a task list: kernel tasks and tasks without a body.

    Written by hand, because a hundred thousand messages take four times as long.
    """
    parts = [text_field(1, tasks.version)]
    for name in sorted(tasks.attrs):
        parts.append(bytes_field(9, bytes_field(1, name.encode()) + bytes_field(2, tasks.attrs[name].encode())))
    kernels = _Kernels()
    heads: dict[tuple[int, int, int], bytes] = {}
    for task in tasks.tasks:
        key = (task.type, task.stream_id, task.event_id)
        head = heads.get(key)
        if head is None:
            head = number_field(2, task.type) + number_field(10, task.stream_id) + number_field(11, task.event_id)
            heads[key] = head
        parts.append(bytes_field(10, head if task.kernel_type is None else head + kernels.field(task)))
    parts += [
        number_field(11, tasks.memory_size),
        number_field(12, tasks.stream_num),
        number_field(13, tasks.event_num),
        number_field(14, tasks.weight_size),
        number_field(16, tasks.base_addr),
        number_field(17, tasks.weight_addr),
        number_field(18, tasks.batch_num),
    ]
    return b"".join(parts)


class _Kernels:
    """KernelDef fields; what kernels have in common is encoded once."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], tuple[bytes, bytes, bytes, Struct]] = {}

    def field(self, task: Task) -> bytes:
        args = task.args
        key = (
            task.kernel_type,
            len(args),
            task.args_format,
            task.block_dim,
            task.args_size,
            task.so_name,
            task.kernel_name,
        )
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._common(task)
        context_end, sizes, names, words = found
        context = number_field(1, task.kernel_type or 0) + number_field(4, task.op_index or 0) + context_end
        kernel = bytes_field(1, context) + text_field(10, task.stub_func) + sizes + words.pack(*args) + names
        return bytes_field(20, kernel)

    @staticmethod
    def _common(task: Task) -> tuple[bytes, bytes, bytes, Struct]:
        count = len(task.args)
        context_end = bytes_field(6, b"\0\0") + number_field(7, count) + text_field(10, task.args_format)
        sizes = number_field(11, task.block_dim) + number_field(12, task.args_size)
        if count:
            sizes += header(13, 8 * count)
        names = text_field(16, task.so_name) + text_field(17, task.kernel_name)
        return context_end, sizes, names, Struct(f"<{count}Q")
