"""What is wrong in the partitions that a run does not need: it refuses a file that is damaged anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gecli.artifacts.partition_table import Partition, PartitionType
from gecli.errors import Diagnostic, InputError

if TYPE_CHECKING:
    from gecli.artifacts.om_file import OmFile

Check = Callable[..., Any]


def part_faults(om: OmFile) -> list[Diagnostic]:
    """The faults of stores, MODEL_INOUT_INFO and TASK_INFO of every model; nothing of mobile files is known here.

    The graphs of the models behind the root are read for it; tasks are held against the graphs that were read.
    """
    found: list[Diagnostic] = []
    if om.is_mobile:
        return found
    for model in om.models:
        if model.index:
            found += _graph_faults(om, model.index)
        inout = om.inout_partition(model.index)
        for part in model.partitions:
            check = _check_of(part, inout)
            audit = om.task_audit(model.index) if part.type == PartitionType.TASK_INFO else None
            if check is None or part.size_bytes == 0:
                continue
            try:
                with om.source(part) as source:
                    if audit is None:
                        check(source, path=om.path, offset=part.offset_bytes)
                    else:
                        check(source, path=om.path, offset=part.offset_bytes, audit=audit)
            except InputError as error:
                found += error.diagnostics
            found += () if audit is None else audit.problems()
    return found


def _graph_faults(om: OmFile, index: int) -> list[Diagnostic]:
    """What makes a model behind the root unusable; nobody keeps it."""
    try:
        return [each for each in om.model(index).problems if each.severity == "error"]
    except InputError as error:
        return list(error.diagnostics)


def _check_of(part: Partition, inout: Partition | None) -> Check | None:
    """The reader of a partition, imported when a file has one."""
    if part == inout:
        from gecli.artifacts.inout_info import parse_inout_info

        return parse_inout_info
    if part.type == PartitionType.TASK_INFO:
        from gecli.wire.task_decoder import check_tasks

        return check_tasks
    if part.type in (PartitionType.TBE_KERNELS, PartitionType.CUST_AICPU_KERNELS, PartitionType.CUSTOM_OPS):
        from gecli.artifacts.kernel_store import CUSTOM_OP_MAGIC, KERNEL_MAGIC, list_kernels

        magic = CUSTOM_OP_MAGIC if part.type == PartitionType.CUSTOM_OPS else KERNEL_MAGIC
        return lambda source, **place: list_kernels(source, magic=magic, **place)
    if part.type == PartitionType.SO_BINS:
        from gecli.artifacts.so_bins import list_libraries

        return list_libraries
    if part.type == PartitionType.TILING_DATA:
        from gecli.artifacts.tiling import list_tiling

        return list_tiling
    return None
