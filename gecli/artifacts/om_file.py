"""Reading an OM file: which variant it is, its header, and where its partitions lie (GE: OmFileLoadHelper).

Nothing but the header and the tables is read until a partition is asked for, and weights are never copied.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import field
from typing import TYPE_CHECKING

from gecli.artifacts.container import ContainerReader, OmModel
from gecli.artifacts.file_access import opened, pread
from gecli.artifacts.header import HEADER_BYTES, OmHeader
from gecli.artifacts.inout_info import MAX_INOUT_BYTES, is_inout_info
from gecli.artifacts.partition_table import Partition, PartitionType
from gecli.errors import Diagnostic
from gecli.records import dataclass
from gecli.wire.om_faults import om_error, om_problem

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from gecli.wire.attribute_names import AttrNames
    from gecli.wire.byte_source import FileSource
    from gecli.wire.memory_budget import MemoryBudget
    from gecli.wire.model_record import ModelRecord
    from gecli.wire.task import Task, TaskList
    from gecli.wire.task_audit import OpStreams, TaskAudit

__all__ = ["OmFile", "OmModel", "read_om"]


@dataclass(slots=True)
class OmFile:
    """An OM file whose container is sound. `kind` is om, flow, bundle or preload."""

    path: str
    base: int
    size_bytes: int
    kind: str
    header: OmHeader
    wide: bool
    models: tuple[OmModel, ...]
    warnings: list[Diagnostic] = field(default_factory=list)
    _root_names: list[AttrNames | None] = field(default_factory=list, repr=False, compare=False)
    _op_streams: dict[int, OpStreams] = field(default_factory=dict, repr=False, compare=False)
    _costs: dict[tuple[str, int], int] = field(default_factory=dict, repr=False, compare=False)  # of graphs and tasks

    @property
    def root(self) -> OmModel:
        return self.models[0]

    @property
    def is_mobile(self) -> bool:
        """True for files of the HiAI (mobile) tools, whose partition types above 2 mean other things."""
        return self.header.is_version_1 and (
            self.header.modeltype in (3, 4) or self.header.platform_version.startswith("3.")
        )

    def read(self, partition: Partition) -> bytes:
        """The bytes of a partition."""
        return self.slice(partition.offset_bytes, partition.size_bytes)

    def source(self, partition: Partition) -> FileSource:
        """The bytes of a partition for reading at random: what is not asked for never becomes resident."""
        from gecli.wire.byte_source import FileSource

        return FileSource(self.path, partition.offset_bytes, partition.size_bytes)

    def slice(self, offset: int, length: int) -> bytes:
        """Bytes by file offset. Raises InputError (truncated) when the file became shorter."""
        with opened(self.path) as handle:
            data = pread(handle, offset, length)
        if len(data) != length:
            message = f"the file became shorter while it was read: {length} bytes were asked for, {len(data)} came"
            raise om_error("truncated", self.path, message, offset, expected=length, actual=len(data))
        return data

    def inout_partition(self, model: int = 0) -> Partition | None:
        """MODEL_INOUT_INFO, also where CANN 5.20 numbered it 6; mobile files have other things under both numbers."""
        if self.is_mobile:
            return None
        found = self.models[model].partition(PartitionType.MODEL_INOUT_INFO)
        if found is not None or self.kind != "om":
            return found
        old = self.models[model].partition(PartitionType.FLOW_MODEL)
        if old is None or old.size_bytes > MAX_INOUT_BYTES:
            return None
        return old if is_inout_info(self.read(old)) else None

    def model(self, index: int = 0, root_names: AttrNames | None = None) -> ModelRecord:
        """The graphs of one model. Raises InputError (no-model-def, bad-proto).

        Smaller faults are in `problems` of the record. `root_names` is the root's dictionary of compressed attribute
        names, for the further models of a file; it is looked up when not given.
        """
        from gecli.wire.attributes import WeightArea
        from gecli.wire.model_decoder import decode_model
        from gecli.wire.task_audit import OpStreams

        part = self._model_def(index)
        if index and root_names is None:
            root_names = self.root_names()
        weights = self.models[index].partition(PartitionType.WEIGHTS_DATA)
        end = self.base + self.size_bytes  # a damaged file may hold only a part of the weights
        area = None
        if weights is not None:
            held = max(min(weights.size_bytes, end - weights.offset_bytes), 0)
            area = WeightArea(self.path, weights.offset_bytes, held)
        budget = self._budget(index, beside="tasks")
        room = budget.left
        with self.source(part) as source:
            model = decode_model(
                source,
                path=self.path,
                file_size=end,
                weights=area,
                root_names=root_names,
                budget=budget,
            )
        self._costs["graph", index] = room - budget.left
        if not self.is_mobile:
            self._compare_sizes(model, 0 if weights is None else weights.size_bytes, part.offset_bytes)
            self._op_streams[index] = OpStreams(model)
        return model

    def _budget(self, index: int, *, beside: str) -> MemoryBudget:
        """What may be spent on one part of a model, graph or tasks, `beside` what the other one took.

        Both parts of all models of a file may be in memory at once.
        """
        from gecli.wire.memory_budget import MemoryBudget

        size = sum(item.size_bytes for item in self.models[index].partitions)
        budget = MemoryBudget(size, len(self.models))
        budget.left -= self._costs.get((beside, index), 0)
        return budget

    def _compare_sizes(self, model: ModelRecord, held: int, offset: int) -> None:
        """A size of the weights that is not that of the table is a warning: the table is used."""
        told = model.attrs.get("weight_size")
        if type(told) is int and told != held:
            message = f"the model attribute weight_size is {told}, WEIGHTS_DATA has {held} bytes"
            fields = {"expected": held, "actual": told, "severity": "warning", "where": "MODEL_DEF"}
            model.problems.append(om_problem("bad-weights", self.path, message, offset, **fields))

    def task_audit(self, index: int) -> TaskAudit | None:
        """To hold the tasks of a model against the model; None while that was not read, and for mobile files."""
        from gecli.wire.task_audit import TaskAudit

        part = self.models[index].partition(PartitionType.TASK_INFO)
        operators = self._op_streams.get(index)
        if part is None or operators is None:
            return None
        return TaskAudit(operators, self.path, part.offset_bytes)

    def root_names(self) -> AttrNames | None:
        """The root model's dictionary of compressed attribute names; None when its names are plain."""
        if not self._root_names:
            from gecli.wire.model_decoder import decode_attr_names

            with self.source(self._model_def(0)) as source:
                self._root_names.append(decode_attr_names(source, path=self.path))
        return self._root_names[0]

    def _model_def(self, index: int) -> Partition:
        model = self.models[index]
        part = model.partition(PartitionType.MODEL_DEF)
        if part is None or part.size_bytes == 0:
            held = "has no MODEL_DEF" if part is None else "has a MODEL_DEF of 0 bytes"
            message = f"model {index} {held} among its {len(model.partitions)} partitions"
            raise om_error("no-model-def", self.path, message, model.table_offset_bytes)
        return part

    def tasks(self, index: int = 0) -> TaskList | None:
        """TASK_INFO of one model; None without one. Raises InputError (bad-proto)."""
        from gecli.wire.task_decoder import decode_tasks

        part = self.models[index].partition(PartitionType.TASK_INFO)
        if part is None:
            return None
        budget = self._budget(index, beside="graph")
        room = budget.left
        with self.source(part) as source:
            tasks = decode_tasks(source, path=self.path, budget=budget)
        self._costs["tasks", index] = room - budget.left
        return tasks

    def task_counts(self, index: int = 0, audit: TaskAudit | None = None) -> tuple[TaskList, Counter[str]] | None:
        """TASK_INFO without its tasks, and how many there are of which type; None without one.

        `audit` sees the tasks. Raises InputError (bad-proto).
        """
        from gecli.wire.task_decoder import count_tasks

        part = self.models[index].partition(PartitionType.TASK_INFO)
        if part is None:
            return None
        with self.source(part) as source:
            return count_tasks(source, path=self.path, audit=audit, budget=self._budget(index, beside="graph"))

    def each_task(self, index: int = 0) -> Iterator[Task]:
        """The tasks of one model, none of them kept. Raises InputError (bad-proto)."""
        from gecli.wire.task_decoder import each_task

        part = self.models[index].partition(PartitionType.TASK_INFO)
        if part is None:
            return
        with self.source(part) as source:
            yield from each_task(source, path=self.path)

    def verify_checksum(self) -> Diagnostic | None:
        """What is wrong with the payload digest, if gecli put one there; reads the whole file."""
        expected = self.header.payload_sha256
        if expected is None:
            return None
        digest = hashlib.sha256()
        with opened(self.path) as handle:
            position, end = self.base + HEADER_BYTES, self.base + self.size_bytes
            while position < end:
                block = os.pread(handle, min(1 << 20, end - position), position)
                if not block:
                    break
                digest.update(block)
                position += len(block)
        if digest.digest() == expected:
            return None
        return om_problem(
            "bad-checksum",
            self.path,
            f"the payload of {self.size_bytes - HEADER_BYTES} bytes is not the one that was written",
            offset=self.base + 12,
            expected=expected.hex(),
            actual=digest.hexdigest(),
            do="compile the model again or copy the file again",
        )

    def require_runnable(self) -> None:
        """Raises InputError for the variants whose graph cannot be executed from this file."""
        if self.kind != "om":
            message = f"not supported: {self.kind} (modeltype {self.header.modeltype})"
            raise om_error(self.kind, self.path, message, self.base + 82, do="use an ordinary OM file")


def read_om(path: str | os.PathLike[str], *, base: int = 0, size: int | None = None) -> OmFile:
    """The container of an OM file, or of one nested in a file at `base`.

    Raises InputError with the kind, the offset and the numbers when the file is not a readable OM.
    """
    name = os.fspath(path)
    with opened(name) as handle:
        whole = os.fstat(handle).st_size
        if size is None:
            size = whole - base
        if base < 0 or size < 0 or base + size > whole:
            message = f"a nested model at {base} of {size} bytes lies outside the file, which has {whole}"
            raise om_error("truncated", name, message, base, expected=base + size, actual=whole)
        found = ContainerReader(name, handle, base, size).read()
    return OmFile(name, base, size, found.kind, found.header, found.wide, found.models, found.warnings)
