"""Tasks, kernels and libraries inside an OM. Kernels are listed, never loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gecli.artifacts.kernel_store import CUSTOM_OP_MAGIC, KERNEL_MAGIC, list_kernels
from gecli.artifacts.partition_table import PartitionType
from gecli.artifacts.so_bins import list_libraries
from gecli.artifacts.tiling import MAGIC as TILING_MAGIC
from gecli.artifacts.tiling import list_tiling
from gecli.errors import InputError
from gecli.report.inspect.nodes import WHOLE_NAME
from gecli.report.inspect.subject import Subject
from gecli.report.inspect.view import Block, Rows, Table, View, cell

if TYPE_CHECKING:
    from gecli.wire.task import Task

STORES = (
    (PartitionType.TBE_KERNELS, KERNEL_MAGIC),
    (PartitionType.CUST_AICPU_KERNELS, KERNEL_MAGIC),
    (PartitionType.CUSTOM_OPS, CUSTOM_OP_MAGIC),
)
SHOWN_ADDRESSES = 6
NO_ADDRESS = (1 << 64) - 1


def task_counts(subject: Subject, model: int = 0) -> dict[str, Any]:
    """How many tasks of which type."""
    found = subject.task_counts(model)
    counts = Counter[str]() if found is None else found[1]
    return {"count": counts.total(), "types": dict(sorted(counts.items()))}


def tasks_view(subject: Subject) -> View:
    models: list[dict[str, Any]] = []
    blocks: list[Block] = []
    if subject.om is None:
        raise subject.lacks("tasks")
    for index in range(subject.model_count):
        found = subject.task_counts(index)
        if found is None:
            blocks.append(f"model {index}: {_no_tasks(subject, index)}")
            continue
        tasks, _ = found
        head = {
            "model": index,
            "version": tasks.version,
            "memory_size": tasks.memory_size,
            "weight_size": tasks.weight_size,
            "stream_num": tasks.stream_num,
        }
        rows = _task_rows(subject, index)
        models.append({**head, "tasks": rows})
        counts = task_counts(subject, index)
        summary = ", ".join(f"{name} {count}" for name, count in counts["types"].items())
        blocks.append(f"model {index}: {counts['count']} tasks: {summary}")
        blocks.append(_task_table(rows))
    return View("tasks", {"models": models}, blocks)


def _no_tasks(subject: Subject, index: int) -> str:
    om = subject.container
    part = om.models[index].partition(PartitionType.TASK_INFO)
    if part is None:
        return subject.cut_parts.get(PartitionType.TASK_INFO, "no TASK_INFO")
    if om.is_mobile:
        return f"TASK_INFO of {part.size_bytes} bytes, of which nothing is known in mobile (HiAI) files"
    return f"TASK_INFO of {part.size_bytes} bytes cannot be read"


def _task_rows(subject: Subject, index: int) -> Rows:
    """The tasks of one model with the names of their nodes, read whenever they are walked."""
    from gecli.wire.task import KernelType, enum_name

    om = subject.container
    model = subject.model_or_none(index)
    areas = memory_areas({} if model is None else model.attrs)
    names: dict[int, str] = {}
    for graph in () if model is None else model.graphs:
        for node in graph.nodes:
            names.setdefault(graph.placements[node].id, node.name)

    def row(k: int, task: Task) -> dict[str, Any]:
        return {
            "index": k,
            "type": task.type_name,
            "stream": task.stream_id,
            "node": names.get(task.op_index) if task.op_index is not None else None,
            "op_index": task.op_index,
            "kernel_type": None if task.kernel_type is None else enum_name(KernelType, task.kernel_type),
            "kernel": task.kernel_name or task.stub_func or None,
            "block_dim": task.block_dim,
            "args": list(task.args),
            "areas": [area_of(address, areas) for address in task.args],
        }

    return Rows(lambda: (row(k, task) for k, task in enumerate(om.each_task(index))))


def _task_table(rows: Rows) -> Table:
    columns = ("#", "type", "stream", "node", "kernel", "args")
    return Table(columns, Rows(lambda: (_task_cells(row) for row in rows)), frozenset(("#", "stream")), "  ")


def memory_areas(attrs: Mapping[str, Any]) -> list[tuple[int, int, str]]:
    """Begin, end and name of the address ranges of a model, in the order in which a loader tries them (runtime.md 1.5).

    Variables come before shared host memory, which begins at the same address.
    """

    def number(name: str) -> int:
        value = attrs.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    base, size = number("task_gen_base_addr"), number("memory_size")
    peer = base + size
    weights, variables = number("task_gen_weight_addr"), number("task_gen_variable_addr")
    host, shared = number("task_gen_host_base_addr"), number("task_gen_host_svm_base_addr")
    areas = [
        (base, base + size, "features"),
        (weights, weights + number("weight_size"), "weights"),
        (variables, variables + number("variable_size"), "variables"),
        (peer, peer + number("p2p_memory_size"), "p2p"),
        (host, host + number("host_memory_size"), "host"),
        (shared, shared + number("host_svm_size"), "shared"),
    ]
    return [area for area in areas if area[1] > area[0]]


def area_of(address: int, areas: list[tuple[int, int, str]]) -> str:
    """The area of a task's address; `unmapped` for what cannot be one, as pointers of the compiling process are."""
    if address in (0, NO_ADDRESS):
        return "none"
    return next((name for begin, end, name in areas if begin <= address < end), "unmapped")


def _task_cells(row: dict[str, Any]) -> tuple[str, ...]:
    pairs = zip(row["args"][:SHOWN_ADDRESSES], row["areas"])
    args = [f"{address:#x}" if area != "unmapped" else f"unmapped:{address:#x}" for address, area in pairs]
    if len(row["args"]) > SHOWN_ADDRESSES:
        args.append(f"and {len(row['args']) - SHOWN_ADDRESSES} more")
    kernel = f"{row['kernel_type'] or ''} {cell(row['kernel'] or '', WHOLE_NAME)}".strip()
    node = cell(row["node"] or "-", WHOLE_NAME)
    return (str(row["index"]), row["type"], str(row["stream"]), node, kernel or "-", " ".join(args))


def stored_code(subject: Subject) -> dict[str, list[dict[str, Any]]]:
    """Kernels, libraries and tiling data of every model; broken stores are warnings."""
    om = subject.container
    found: dict[str, list[dict[str, Any]]] = {"kernels": [], "libraries": [], "tiling": []}
    for model in om.models:
        for kind, magic in STORES:
            part = model.partition(kind)
            if part is None or om.is_mobile:
                continue
            try:
                with om.source(part) as source:
                    records = list_kernels(source, magic=magic, path=subject.path, offset=part.offset_bytes)
            except InputError as error:
                subject.warn(*error.diagnostics)
                continue
            found["kernels"] += [
                {"model": model.index, "store": part.name, "name": each.name, "size": each.size_bytes,
                 "offset": part.offset_bytes + each.offset_bytes, "elf": each.is_elf}
                for each in sorted(records, key=lambda each: each.name)
            ]  # fmt: skip
        found["libraries"] += _libraries(subject, model.index)
        found["tiling"] += _tilings(subject, model.index)
    return found


def kernels_view(subject: Subject) -> View:
    """Raises InputError for a file without a container."""
    if subject.om is None:
        raise subject.lacks("kernels")
    document = stored_code(subject)
    kernels, libraries, tilings = document.values()
    blocks: list[Block] = []
    rows = [(row["store"], cell(row["name"]), str(row["offset"]), str(row["size"]), "ELF" if row["elf"] else "")
            for row in kernels]  # fmt: skip
    if rows:
        blocks.append(Table(("store", "name", "offset", "size", "kind"), rows, frozenset(("offset", "size"))))
    elif not libraries and not tilings:
        blocks.append(_no_code(subject))
    blocks += [f"library {cell(row['name'])} of {cell(row['vendor'])}: {row['kind']}, {row['size']} bytes, not loaded"
               for row in libraries]  # fmt: skip
    blocks += [f"tiling data: magic {row['magic']:#x}, version {row['version']}, {row['size']} bytes, "
               f"{row['records']} records" for row in tilings]  # fmt: skip
    return View("kernels", document, blocks)


def _no_code(subject: Subject) -> str:
    om = subject.container
    if om.is_mobile:
        return "mobile (HiAI) files have no stores that are known"
    cut = [subject.cut_parts[kind] for kind, _ in STORES if kind in subject.cut_parts]
    if cut:
        return "; ".join(cut)
    parts = [part for model in om.models for kind, _ in STORES if (part := model.partition(kind)) is not None]
    if not parts:
        return "no kernels: the file has no store of them"
    return "no kernels that can be read in " + ", ".join(f"{part.name} of {part.size_bytes} bytes" for part in parts)


def _libraries(subject: Subject, index: int) -> list[dict[str, Any]]:
    om = subject.container
    part = om.models[index].partition(PartitionType.SO_BINS)
    if part is None or om.is_mobile:
        return []
    try:
        with om.source(part) as source:
            found = list_libraries(source, path=subject.path, offset=part.offset_bytes)
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
        with om.source(part) as source:
            found = list_tiling(source, path=subject.path, offset=part.offset_bytes)
    except InputError as error:
        subject.warn(*error.diagnostics)
        return []
    return [
        {
            "model": index,
            "magic": TILING_MAGIC,
            "version": found.version,
            "size": found.size_bytes,
            "records": len(found.tags),
        }
    ]
