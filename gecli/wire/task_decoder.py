"""TASK_INFO bytes -> `TaskList`, task by task (GE: domi.ModelTaskDef)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gecli.pb import task_pb2
from gecli.wire.byte_source import ByteSource, MemorySource
from gecli.wire.collector import collector_paused
from gecli.wire.decode_errors import DECODE_ERRORS, reason
from gecli.wire.field_scan import FieldScanner
from gecli.wire.memory_budget import MemoryBudget
from gecli.wire.om_faults import om_error
from gecli.wire.task import Task, TaskList, TaskType, enum_name
from gecli.wire.task_audit import TaskAudit, owner_of
from gecli.wire.walker import LENGTH_DELIMITED, WireError

TASKS = 10  # of ModelTaskDef
MEMBERS = (1, 9, 11, 12, 13, 14, 16, 17, 18)
# The shortest tasks, of events, have a dozen bytes and are some among many: more than this is no list of a compiler,
# and to look at each takes microseconds.
FREE_TASKS, BYTES_OF_A_TASK = 1 << 16, 24
MAX_FIELD_BYTES = 4 << 20  # the arguments of a kernel have some hundred bytes
_TASK_COST, _ARGUMENT_COST = 300, 40  # bytes of memory, roughly

Message = Any


def decode_tasks(
    data: bytes | ByteSource, *, path: str | None = None, offset: int = 0, budget: MemoryBudget | None = None
) -> TaskList:
    """The task list in ModelTaskDef bytes. Raises InputError (bad-proto). `offset` is the place of bytes in memory.

    `budget` bounds the memory of the list, by the size of `data` when it is not given.
    """
    source: ByteSource = MemorySource(data, None, offset) if isinstance(data, bytes) else data
    plain: list[bytes] = []
    with _reported(source, path), collector_paused():
        budget = budget or MemoryBudget(source.size)
        tasks = tuple(_tasks(source, plain, budget, are_kept=True))
        return _task_list(plain, tasks)


def each_task(source: ByteSource, *, path: str | None = None) -> Iterator[Task]:
    """The tasks one by one, none of them kept. Raises InputError (bad-proto)."""
    with _reported(source, path):
        yield from _tasks(source, [], MemoryBudget(source.size))


def count_tasks(
    source: ByteSource,
    *,
    path: str | None = None,
    audit: TaskAudit | None = None,
    budget: MemoryBudget | None = None,
) -> tuple[TaskList, Counter[str]]:
    """The task list without its tasks, and how many there are of which type. Raises InputError (bad-proto)."""
    plain: list[bytes] = []
    with _reported(source, path):
        budget = budget or MemoryBudget(source.size)
        counts = Counter(task.type for task in _tasks(source, plain, budget, audit))
        named = Counter[str]()
        for kind, count in counts.items():
            named[enum_name(TaskType, kind)] += count
        return _task_list(plain), named


@contextmanager
def _reported(source: ByteSource, path: str | None) -> Iterator[None]:
    """Faults of the bytes as InputError, with their place in the file."""
    try:
        yield
    except WireError as error:
        message = f"TASK_INFO of {source.size} bytes: {error}"
        raise om_error("bad-proto", path, message, source.base + error.offset, where="TASK_INFO") from error


def _most_tasks(source: ByteSource) -> int:
    return FREE_TASKS + source.size // BYTES_OF_A_TASK


def _too_many(source: ByteSource, offset: int) -> WireError:
    return WireError(f"there are more than {_most_tasks(source)} tasks, most of them without content", offset)


def check_tasks(
    source: ByteSource, *, path: str | None = None, offset: int = 0, audit: TaskAudit | None = None
) -> None:
    """Raises InputError (bad-proto) when the bytes are no task list, without making one."""
    scanner = FieldScanner(source)
    position, left = 0, _most_tasks(source)
    try:
        for span in scanner.spans(0, source.size):
            position = span.begin
            if span.number == TASKS and span.kind == LENGTH_DELIMITED and span.end - span.body <= MAX_FIELD_BYTES:
                message = task_pb2.TaskDef.FromString(scanner.take(span.body, span.end))
                if audit is not None:
                    audit.see(message)
                left -= 1
                if left < 0:
                    raise _too_many(source, span.begin)
    except (*DECODE_ERRORS, WireError) as error:
        at = error.offset if isinstance(error, WireError) else position
        message = f"TASK_INFO of {source.size} bytes: {reason(error)}"
        raise om_error("bad-proto", path, message, offset + at, where="TASK_INFO") from error


def _tasks(
    source: ByteSource,
    plain: list[bytes],
    budget: MemoryBudget,
    audit: TaskAudit | None = None,
    *,
    are_kept: bool = False,
) -> Iterator[Task]:
    """The tasks; the fields of the list itself are added to `plain`.

    `budget` bounds what these take, and the tasks where they are kept. Raises WireError.
    """
    scanner = FieldScanner(source)
    count, most = 0, _most_tasks(source)
    for span in scanner.spans(0, source.size):
        is_task = span.number == TASKS and span.kind == LENGTH_DELIMITED
        if not is_task and span.number not in MEMBERS:
            continue
        if span.end - span.begin > MAX_FIELD_BYTES:
            size = span.end - span.begin
            raise WireError(f"field {span.number} has {size} bytes, at most {MAX_FIELD_BYTES} are read", span.begin)
        try:
            if is_task:
                message = task_pb2.TaskDef.FromString(scanner.take(span.body, span.end))
                task = _task(message)
                if audit is not None:
                    audit.see(message)
                if are_kept:
                    budget.spend(_TASK_COST + _ARGUMENT_COST * len(task.args))
                yield task
                count += 1
                if count > most:
                    raise _too_many(source, span.begin)
            else:
                budget.spend(_TASK_COST)
                plain.append(scanner.take(span.begin, span.end))
        except DECODE_ERRORS as error:
            raise WireError(f"task {count}: {reason(error)}", span.begin) from error


def _task_list(plain: list[bytes], tasks: tuple[Task, ...] = ()) -> TaskList:
    """Raises WireError when the fields of the list are broken."""
    try:
        message = task_pb2.ModelTaskDef.FromString(b"".join(plain))
    except DECODE_ERRORS as error:
        raise WireError(reason(error), 0) from error
    return TaskList(
        tasks,
        message.version,
        message.memory_size,
        message.weight_size,
        message.stream_num,
        message.event_num,
        message.base_addr,
        message.weight_addr,
        message.batch_num,
        dict(message.attr),
    )


def _task(message: Message) -> Task:
    kind, stream, event = message.type, message.stream_id, message.event_id
    if message.HasField("kernel"):
        kernel = message.kernel
        context = kernel.context
        return Task(
            kind,
            stream,
            context.op_index,
            context.kernel_type,
            kernel.stub_func,
            kernel.so_name,
            kernel.kernel_name,
            kernel.block_dim,
            _addresses(kernel.args),
            kernel.args_size,
            context.args_format,
            event,
        )
    if message.HasField("kernel_with_handle"):
        kernel = message.kernel_with_handle
        return Task(
            kind,
            stream,
            kernel.context.op_index,
            kernel.context.kernel_type,
            kernel_name=kernel.original_kernel_key,
            block_dim=kernel.block_dim,
            args=_addresses(kernel.args),
            args_size=kernel.args_size,
            args_format=kernel.context.args_format,
            event_id=event,
        )
    if message.HasField("kernel_ex"):
        kernel = message.kernel_ex
        return Task(
            kind, stream, kernel.op_index, args=_addresses(kernel.args), args_size=kernel.args_size, event_id=event
        )
    return Task(kind, stream, owner_of(message), event_id=event)


def _addresses(data: bytes) -> tuple[int, ...]:
    """Whole 64-bit words; what is left over is no address."""
    return tuple(memoryview(data[: len(data) // 8 * 8]).cast("Q"))
