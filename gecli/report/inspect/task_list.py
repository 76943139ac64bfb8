"""Tasks, kernels and libraries inside an OM. Kernels are listed, never loaded."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gecli.artifacts.kernel_store import CUSTOM_OP_MAGIC, KERNEL_MAGIC, list_kernels
from gecli.artifacts.partition_table import PartitionType
from gecli.artifacts.so_bins import list_libraries
from gecli.artifacts.tiling import list_tiling
from gecli.errors import InputError
from gecli.report.inspect.subject import Subject
from gecli.report.inspect.view import Block, Table, View, cell

STORES = (
    (PartitionType.TBE_KERNELS, KERNEL_MAGIC),
    (PartitionType.CUST_AICPU_KERNELS, KERNEL_MAGIC),
    (PartitionType.CUSTOM_OPS, CUSTOM_OP_MAGIC),
)
SHOWN_ADDRESSES = 6


def task_counts(subject: Subject, model: int = 0) -> dict[str, Any]:
    """How many tasks of which type."""
    tasks = subject.tasks(model)
    counts = Counter(task.type_name for task in tasks.tasks) if tasks is not None else Counter[str]()
    return {"count": counts.total(), "types": dict(sorted(counts.items()))}


def tasks_view(subject: Subject) -> View:
    from gecli.wire.task import KernelType, enum_name

    models: list[dict[str, Any]] = []
    blocks: list[Block] = []
    for index in range(subject.model_count):
        tasks = subject.tasks(index)
        if tasks is None:
            blocks.append(f"model {index}: no readable TASK_INFO")
            continue
        model = subject.model_or_none(index)
        names: dict[int, str] = {}
        if model is not None:
            for graph in model.graphs:
                for node in graph.nodes:
                    names.setdefault(graph.placements[node].id, node.name)
        rows = [
            {
                "index": k,
                "type": task.type_name,
                "stream": task.stream_id,
                "node": names.get(task.op_index) if task.op_index is not None else None,
                "op_index": task.op_index,
                "kernel_type": None if task.kernel_type is None else enum_name(KernelType, task.kernel_type),
                "kernel": task.kernel_name or task.stub_func or None,
                "block_dim": task.block_dim,
                "args": list(task.args),
            }
            for k, task in enumerate(tasks.tasks)
        ]
        head = {
            "model": index,
            "version": tasks.version,
            "memory_size": tasks.memory_size,
            "weight_size": tasks.weight_size,
            "stream_num": tasks.stream_num,
        }
        models.append({**head, "tasks": rows})
        summary = ", ".join(f"{name} {count}" for name, count in task_counts(subject, index)["types"].items())
        blocks.append(f"model {index}: {len(rows)} tasks: {summary}")
        blocks.append(Table(("#", "type", "stream", "node", "kernel", "args"), [_task_cells(row) for row in rows],
                            frozenset(("#", "stream")), "  "))  # fmt: skip
    return View("tasks", {"models": models}, blocks)


def _task_cells(row: dict[str, Any]) -> tuple[str, ...]:
    args = [f"{address:#x}" for address in row["args"][:SHOWN_ADDRESSES]]
    if len(row["args"]) > SHOWN_ADDRESSES:
        args.append(f"... {len(row['args'])}")
    kernel = f"{row['kernel_type'] or ''} {cell(row['kernel'] or '', 60)}".strip()
    return (str(row["index"]), row["type"], str(row["stream"]), cell(row["node"] or "-"), kernel or "-", " ".join(args))


def kernels_view(subject: Subject) -> View:
    om = subject.container
    kernels: list[dict[str, Any]] = []
    libraries: list[dict[str, Any]] = []
    tilings: list[dict[str, Any]] = []
    for model in om.models:
        for kind, magic in STORES:
            part = model.partition(kind)
            if part is None or om.is_mobile:
                continue
            try:
                records = list_kernels(om.read(part), magic=magic, path=subject.path, offset=part.offset_bytes)
            except InputError as error:
                subject.warn(*error.diagnostics)
                continue
            kernels += [
                {"model": model.index, "store": part.name, "name": each.name, "size": each.size_bytes,
                 "offset": part.offset_bytes + each.offset_bytes, "elf": each.is_elf}
                for each in sorted(records, key=lambda each: each.name)
            ]  # fmt: skip
        libraries += _libraries(subject, model.index)
        tilings += _tilings(subject, model.index)
    blocks: list[Block] = []
    rows = [(row["store"], cell(row["name"]), str(row["offset"]), str(row["size"]), "ELF" if row["elf"] else "")
            for row in kernels]  # fmt: skip
    blocks.append(Table(("store", "name", "offset", "size", "kind"), rows, frozenset(("offset", "size"))))
    blocks += [f"library {cell(row['name'])} of {cell(row['vendor'])}: {row['kind']}, {row['size']} bytes, not loaded"
               for row in libraries]  # fmt: skip
    blocks += [f"tiling data: version {row['version']}, {row['size']} bytes, {row['records']} records"
               for row in tilings]  # fmt: skip
    document = {"kernels": kernels, "libraries": libraries, "tiling": tilings}
    return View("kernels", document, blocks)


def _libraries(subject: Subject, index: int) -> list[dict[str, Any]]:
    om = subject.container
    part = om.models[index].partition(PartitionType.SO_BINS)
    if part is None or om.is_mobile:
        return []
    try:
        found = list_libraries(om.read(part), path=subject.path, offset=part.offset_bytes)
    except InputError as error:
        subject.warn(*error.diagnostics)
        return []
    return [{"model": index, "name": each.name, "vendor": each.vendor, "kind": each.kind_name,
             "size": each.size_bytes} for each in found]  # fmt: skip


def _tilings(subject: Subject, index: int) -> list[dict[str, Any]]:
    om = subject.container
    part = om.models[index].partition(PartitionType.TILING_DATA)
    if part is None or om.is_mobile:
        return []
    try:
        found = list_tiling(om.read(part), path=subject.path, offset=part.offset_bytes)
    except InputError as error:
        subject.warn(*error.diagnostics)
        return []
    return [{"model": index, "version": found.version, "size": found.size_bytes, "records": len(found.tags)}]
