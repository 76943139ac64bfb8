"""What TASK_INFO says of operators, streams and sizes, held against the model that it belongs to."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gecli.errors import Diagnostic
from gecli.wire.om_faults import om_problem

if TYPE_CHECKING:
    from gecli.wire.model_record import ModelRecord
    from gecli.wire.task import TaskList

NO_OPERATOR = -2
ANY_STREAM = -1  # also what GE writes for operators that have none
_WITH_ARGS = ("kernel", "kernel_with_handle", "kernel_ex")
_WITH_OPERATOR = ("event_ex", "memcpy_async", "stream_active")
_DO = "compile the model again; the file does not agree with itself"


class OpStreams:
    """The stream of each operator of a model by its id, and how many streams the model has."""

    def __init__(self, model: ModelRecord) -> None:
        self._streams = array("q")
        self._by_id: dict[int, int] | None = None
        for number, stream in _ids_and_streams(model):
            if self._by_id is None and number == len(self._streams):  # ids count the operators in real files
                self._streams.append(stream)
                continue
            if self._by_id is None:
                self._by_id = dict(enumerate(self._streams))
            self._by_id[number] = stream if self._by_id.get(number, stream) == stream else ANY_STREAM
        self.stream_num = _size(model.attrs, "stream_num")
        self.sizes = {name: _size(model.attrs, name) for name in ("memory_size", "weight_size")}

    def stream_of(self, number: int) -> int:
        """NO_OPERATOR for an id that no operator has."""
        if self._by_id is not None:
            return self._by_id.get(number, NO_OPERATOR)
        return self._streams[number] if 0 <= number < len(self._streams) else NO_OPERATOR


class TaskAudit:
    """Sees the tasks of one model in order; of each kind of fault the first is told, and how many there are."""

    def __init__(self, operators: OpStreams, path: str | None, offset: int) -> None:
        self._operators = operators
        self._path = path
        self._offset = offset
        self._seen = 0
        self._faults: dict[str, tuple[str, int]] = {}

    def see(self, message: Any) -> None:
        """The TaskDef of the next task."""
        stream, operator = message.stream_id, None
        for name in _WITH_ARGS:
            if message.HasField(name):
                body = getattr(message, name)
                operator = body.op_index if name == "kernel_ex" else body.context.op_index
                size = len(body.args)
                if body.args_size != size:
                    self._fault("args", f"says args_size {body.args_size}, its args have {size} bytes")
                found = self._operators.stream_of(operator)
                if found >= 0 and found != stream:
                    self._fault("stream", f"is in stream {stream}, its operator in stream {found}")
                break
        else:
            operator = owner_of(message)
        if operator is not None and self._operators.stream_of(operator) == NO_OPERATOR:
            self._fault("operator", f"belongs to operator {operator}, which does not exist")
        count = self._operators.stream_num
        if count and stream >= count:
            self._fault("stream number", f"is in stream {stream}, the model has {count}")
        self._seen += 1

    def _fault(self, kind: str, text: str) -> None:
        first, count = self._faults.get(kind, (f"task {self._seen} {text}", 0))
        self._faults[kind] = (first, count + 1)

    def problems(self) -> list[Diagnostic]:
        """What was found in the tasks."""
        return [
            self._problem(first if count == 1 else f"{first}; {count} tasks have this fault")
            for first, count in self._faults.values()
        ]

    def size_problems(self, tasks: TaskList) -> list[Diagnostic]:
        """Sizes that the list itself repeats from the model."""
        pairs = ((name, size, getattr(tasks, name)) for name, size in self._operators.sizes.items())
        return [
            self._problem(f"{name} is {told} in TASK_INFO, {size} in the model", expected=size, actual=told)
            for name, size, told in pairs
            if told and size is not None and told != size
        ]

    def _problem(self, message: str, **fields: Any) -> Diagnostic:
        return om_problem("bad-graph", self._path, message, self._offset, where="TASK_INFO", do=_DO, **fields)


def owner_of(message: Any) -> int | None:
    """The id of the operator that a task without arguments belongs to."""
    for name in _WITH_OPERATOR:
        if message.HasField(name):
            index: int = getattr(message, name).op_index
            return index
    return None


def _ids_and_streams(model: ModelRecord) -> Iterator[tuple[int, int]]:
    for graph in model.graphs:
        yield from graph.ids_and_streams()


def _size(attrs: Mapping[str, Any], name: str) -> int | None:
    value = attrs.get(name)
    return value if type(value) is int else None
