"""Variables: storage, road, address and writers (cli.md 2.1 --vars; design decision 32)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from gecli.ir.attributes import INIT_VALUE, REF_VAR_SRC_VAR_NAME, VARIABLE_MEMORY_TYPES, VARIABLE_TYPES
from gecli.report.inspect.attribute_values import desc_json
from gecli.report.inspect.subject import Subject
from gecli.report.inspect.view import Block, PackedRows, Rows, Table, View, cell
from gecli.report.sizes import counted, dtype_text, shape_text, size_text
from gecli.variables.mem_resource import MemoryType
from gecli.variables.sizes import span_bytes
from gecli.variables.var_key import VarKey
from gecli.wire.task import enum_name

if TYPE_CHECKING:
    from gecli.ir.op_desc import OpDesc
    from gecli.ir.tensor_desc import TensorDesc
    from gecli.variables.trans_road import TransRoad
    from gecli.variables.var_match import VarDescCache
    from gecli.variables.var_resource import VarAddress, VarResource

COLUMNS = ("name", "key", "dtype", "format", "shape", "address", "offset", "bytes", "memory")
RIGHT = frozenset(("address", "offset", "bytes", "first graph", "changed graph"))
VARIABLE_MEMORY = VARIABLE_MEMORY_TYPES | {"VariableV2"}
MAP_COLUMNS = ("address", "offset", "bytes", "", "name")


def vars_view(subject: Subject, *, draw_map: bool = False) -> View:
    if subject.kind == "rdcpkt":
        return _record_view(subject)
    facts = session_facts(subject) if subject.kind == "session" else variable_facts(subject)
    rows: PackedRows[dict[str, Any]] = facts["variables"]
    facts["variables"] = rows.as_list()
    blocks: list[Block] = [_table(rows)]
    blocks.append(_totals_line(rows, facts["base"]))
    blocks += _extra_lines(rows)
    if facts["record"] is None and len(rows) and subject.kind != "session":
        there = os.path.exists(subject.record_path)
        lost = "the variable record beside the file is damaged" if there else "no variable record beside the file"
        blocks.append(f"{lost}: roads and staged descriptions are unknown")
    if draw_map:
        blocks_and_gaps = PackedRows(address_map(rows, facts["base"]))
        facts["map"] = blocks_and_gaps.as_list()
        blocks.append(Table(MAP_COLUMNS, Rows(lambda: map(_map_cells, blocks_and_gaps)),
                            frozenset(("address", "offset", "bytes"))))  # fmt: skip
    return View("vars", facts, blocks)


def _totals_line(rows: PackedRows[dict[str, Any]], base: int | None) -> str:
    """`12 variables, 23.7 KiB, which take 41.0 KiB of memory with padding and guards, base 0x2000000000`."""
    kinds = Counter[str]()
    size, places = 0, dict[int, int]()
    for k, row in enumerate(rows):
        kinds[_kind_of(row["type"])] += 1
        size += row["size"]
        place = -1 - k if row["address"] is None else row["address"]
        places[place] = max(places.get(place, 0), row["span"])
    told = _kinds_text(kinds["variable"], kinds["constant"], kinds["external weight"])
    taken = sum(places.values())
    with_guards = f", which take {size_text(taken)} with padding and guards" if taken > size else ""
    return f"{told}, {size_text(size)}{with_guards}" + (f", base {base:#x}" if base is not None else "")


def variable_facts(subject: Subject) -> dict[str, Any]:
    """Every node in variable memory, with what the record beside the OM knows of it."""
    model = subject.model()
    base = model.attrs.get("task_gen_variable_addr")
    base = base if isinstance(base, int) else None
    size = model.attrs.get("variable_size")
    record = subject.variable_record()
    return {
        "base": base,
        "variable_size": size if isinstance(size, int) else None,
        "record": None if record is None else subject.record_path,
        "variables": PackedRows(_variable_rows(subject, base, record.after if record else None)),
    }


def _variable_rows(subject: Subject, base: int | None, after: VarDescCache | None) -> Iterator[dict[str, Any]]:
    writers = _writers(subject)
    changed = frozenset() if after is None else frozenset(after.changed_var_names)
    seen: set[str] = set()
    for _, graph in subject.graphs():
        for node in graph.nodes:
            if not _is_in_variable_memory(node) or node.name in seen:
                continue
            seen.add(node.name)
            offsets = graph.placements[node].output_offsets
            row = _variable_row(node, offsets[0] if offsets else None, base, after, writers.get(node.name, []))
            yield row | {"changed": None if after is None else node.name in changed}


def session_facts(subject: Subject) -> dict[str, Any]:
    """Every storage form that a session snapshot has an address for, in address order."""
    manager = subject.session()
    resource = manager.resource
    rows = PackedRows(
        _session_row(key, entry, resource)
        for key, entry in sorted(resource.addresses.items(), key=lambda item: (item[1].address, item[0]))
    )
    return {
        "base": manager.logic_base,
        "variable_size": manager.hbm.used_bytes,
        "record": None,
        "variables": rows,
    }


def _session_row(key: VarKey, entry: VarAddress, resource: VarResource) -> dict[str, Any]:
    size = entry.desc.size_bytes
    in_hbm = entry.memory_type is MemoryType.HBM  # other addresses are those of a pool, without guards
    return {
        "name": key.name,
        "type": "Variable",
        "key": key.to_ge(),
        "desc": desc_json(entry.desc),
        "recorded_desc": desc_json(resource.current_descs.get(key.name)),
        "staged_desc": None,
        "road": _road_json(resource.roads.get(key.name)),
        "address": entry.address,
        "offset": entry.offset if in_hbm else None,
        "size": size,
        "span": span_bytes(size) if size and in_hbm else size,
        "memory_type": enum_name(MemoryType, entry.memory_type),
        "has_initial_value": INIT_VALUE in entry.desc.attrs,
        "readers": [],
        "writers": [],
        "changed": key.name in resource.changed_graph_ids,
        "first_graph": resource.allocated_graph_ids.get(key.name),
        "changed_graph": resource.changed_graph_ids.get(key.name),
    }


def _is_in_variable_memory(node: OpDesc) -> bool:
    if node.type not in VARIABLE_MEMORY or not node.output_descs:
        return False
    return node.is_variable or node.attrs.get("OUTPUT_IS_VAR") == (True,)


def _variable_row(
    node: OpDesc, address: int | None, base: int | None, after: VarDescCache | None, writers: list[str]
) -> dict[str, Any]:
    desc = node.output_descs[0]
    road = after.var_trans_roads_map.get(node.name) if after else None
    staged = after.staged_var_desc_map.get(node.name) if after else None
    recorded = after.var_desc_map.get(node.name) if after else None
    size, number = _size_of(desc), _memory_number(node)
    inside = address is not None and base is not None and address >= base
    return {
        "name": node.name,
        "type": node.type,
        "key": VarKey.of(node.name, desc).to_ge(),
        "desc": desc_json(desc),
        "recorded_desc": desc_json(recorded),
        "staged_desc": desc_json(staged),
        "road": None if after is None else _road_json(road),
        "address": address,
        "offset": address - base if inside and address is not None and base is not None else None,
        "size": size,
        "span": span_bytes(size) if size and number == MemoryType.HBM else size,
        "memory_type": enum_name(MemoryType, number),
        "has_initial_value": node.init_value is not None if node.is_variable else "value" in node.attrs,
        "readers": sorted({use.node.name for users in node.users for use in users}),
        "writers": writers,
        "first_graph": None,
        "changed_graph": None,
    }


def _writers(subject: Subject) -> dict[str, list[str]]:
    """Outputs that are stored into each variable: `node:output`, marked on the output's descriptor."""
    found: dict[str, list[str]] = {}
    for _, _, node, _ in subject.nodes():
        for k, desc in enumerate(node.output_descs):
            target = desc.attrs.get(REF_VAR_SRC_VAR_NAME)
            if isinstance(target, str):
                text = f"{node.name}:{k}"
                if text not in found.setdefault(target, []):
                    found[target].append(text)
    return found


def _road_json(road: TransRoad | None) -> list[dict[str, Any]]:
    return [{"type": step.type, "from": desc_json(step.src), "to": desc_json(step.dst)} for step in road or ()]


def _table(rows: PackedRows[dict[str, Any]]) -> Table:
    """Columns of facts that no row knows are left out."""
    graphs = any(row["first_graph"] is not None or row["changed_graph"] is not None for row in rows)
    writers = any(row["writers"] for row in rows)
    columns = COLUMNS + (("first graph", "changed graph") if graphs else ()) + (("writers",) if writers else ())
    return Table((*columns, "road"), Rows(lambda: (_cells(row, graphs, writers) for row in rows)), RIGHT)


def _cells(row: dict[str, Any], graphs: bool, writers: bool) -> tuple[str, ...]:
    desc = row["desc"]
    found: tuple[str, ...] = (
        cell(row["name"]), cell(row["key"]), dtype_text(desc["dtype"]), desc["format"], shape_text(desc["shape"]),
        "-" if row["address"] is None else f"{row['address']:#x}",
        "-" if row["offset"] is None else str(row["offset"]), str(row["size"]), row["memory_type"],
    )  # fmt: skip
    if graphs:
        found += tuple("-" if row[name] is None else str(row[name]) for name in ("first_graph", "changed_graph"))
    if writers:
        found += (cell(" ".join(row["writers"]) or "-", 80),)
    return (*found, "?" if row["road"] is None else road_text(row["road"]) or "-")


def road_text(road: list[dict[str, Any]]) -> str:
    """`HWCN [3,3,8,16] -TransData-> FRACTAL_Z [9,1,16,16]`."""
    if not road:
        return ""
    text = f"{road[0]['from']['format']} {shape_text(road[0]['from']['shape'])}"
    for step in road:
        before, after = step["from"], step["to"]
        dtype = f"{dtype_text(after['dtype'])} " if before["dtype"] != after["dtype"] else ""
        text += f" -{cell(step['type'], 40)}-> {dtype}{after['format']} {shape_text(after['shape'])}"
    return text


def _extra_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """What the table has no column for, where it says something."""
    staged = [(row["name"], row["staged_desc"]) for row in rows if _is_staged_otherwise(row)]
    for name, desc in staged:
        yield f"{cell(name)}: staged {dtype_text(desc['dtype'])} {desc['format']} {shape_text(desc['shape'])}"
    if staged:
        yield "  staged: the form in which the variable passes of this compile found a variable that was there before"
    changed = [cell(row["name"]) for row in rows if row["changed"] and row["changed_graph"] is None]
    if changed:
        yield f"changed by this compile: {', '.join(changed)}"
        yield "  changed: stored in a new form; graphs of the session compiled with the old one are compiled again"


def _is_staged_otherwise(row: dict[str, Any]) -> bool:
    """Whether the passes found the variable in another form than the table shows (variables.md 4.11)."""
    staged = row["staged_desc"]
    return staged is not None and any(staged[key] != row["desc"][key] for key in ("dtype", "format", "shape"))


def address_map(rows: Iterable[dict[str, Any]], base: int | None) -> Iterator[dict[str, Any]]:
    """Blocks and gaps in address order; a block is padded to 512 bytes and followed by a guard of 1024.

    What begins where a larger one does shares its block: another form of a variable, or equal constants.
    """
    found = ((row["offset"], row["size"], row["name"], row["span"]) for row in rows if row["offset"] is not None)
    placed = sorted(found, key=lambda each: (each[0], -each[1], each[2]))

    def entry(kind: str, name: str | None, offset: int, size: int) -> dict[str, Any]:
        return {"kind": kind, "name": name, "offset": offset, "size": size, "address": (base or 0) + offset}

    position, block = 0, -1
    for start, size, name, span in placed:
        if start == block:
            yield entry("shared", name, start, size)
            continue
        block = start
        if start > position:
            yield entry("gap", None, position, start - position)
        yield entry("overlap" if start < position else "variable", name, start, size)
        if span > size:
            yield entry("padding", None, start + size, span - size)
        position = max(position, start + span)


def _map_cells(row: dict[str, Any]) -> tuple[str, ...]:
    mark = {"gap": ".", "padding": "+", "variable": "#", "shared": "=", "overlap": "!"}[row["kind"]]
    name = cell(row["name"]) if row["name"] is not None else row["kind"]
    aligned = "" if row["kind"] != "variable" or row["offset"] % 512 == 0 else " (not aligned to 512)"
    return (f"{row['address']:#x}", str(row["offset"]), str(row["size"]), mark, name + aligned)


def _record_view(subject: Subject) -> View:
    """The variables of an rdcpkt itself: there is no address in it."""
    record = subject.variable_record()
    assert record is not None  # opened as one
    before, after = record.before, record.after
    changed = frozenset(after.changed_var_names)
    names = sorted({*before.var_desc_map, *after.var_desc_map, *after.staged_var_desc_map})
    rows = PackedRows(
        {
            "name": name,
            "before": desc_json(before.var_desc_map.get(name)),
            "after": desc_json(after.var_desc_map.get(name)),
            "staged": desc_json(after.staged_var_desc_map.get(name)),
            "road": _road_json(after.var_trans_roads_map.get(name)),
            "changed": name in changed,
        }
        for name in names
    )
    cells = Rows(lambda: map(_record_cells, rows))
    table = Table(("name", "before", "after", "staged", "changed", "road"), cells)
    document = {"record": subject.path, "variables": rows.as_list()}
    return View("vars", document, [table, f"{counted(len(rows), 'variable')} in the record"])


def _record_cells(row: dict[str, Any]) -> tuple[str, ...]:
    def shown(desc: dict[str, Any] | None) -> str:
        return "-" if desc is None else f"{dtype_text(desc['dtype'])} {desc['format']} {shape_text(desc['shape'])}"

    descs = (shown(row["before"]), shown(row["after"]), shown(row["staged"]))
    return (cell(row["name"]), *descs, "yes" if row["changed"] else "-", road_text(row["road"]) or "-")


class VariableTotals(NamedTuple):
    """What lies in variable memory: variables, constants, external weights; the bytes that all of it takes there."""

    variables: int
    constants: int
    external: int
    placed_bytes: int


def variable_totals(subject: Subject) -> VariableTotals:
    """Counts of nodes; bytes with padding and guards, each place once, as the compile counts them."""
    found: dict[str, tuple[OpDesc, Any]] = {}
    for _, _, node, placement in subject.nodes():
        if _is_in_variable_memory(node):
            found[node.name] = (node, placement.output_offsets[0] if placement.output_offsets else node.name)
    places: dict[Any, int] = {}
    for node, place in found.values():
        size = _size_of(node.output_descs[0])
        span = span_bytes(size) if size and _memory_number(node) == MemoryType.HBM else size
        places[place] = max(places.get(place, 0), span)
    kinds = Counter(_kind_of(node.type) for node, _ in found.values())
    return VariableTotals(kinds["variable"], kinds["constant"], kinds["external weight"], sum(places.values()))


def _kind_of(type: str) -> str:
    return "variable" if type in VARIABLE_TYPES else "external weight" if type == "FileConstant" else "constant"


def _kinds_text(variables: int, constants: int, external: int) -> str:
    named = ((variables, "variable"), (constants, "constant"), (external, "external weight"))
    return ", ".join(counted(count, what) for count, what in named if count) or "0 variables"


def _size_of(desc: TensorDesc) -> int:
    return desc.size_bytes or (desc.nbytes if desc.is_static and desc.dtype.bits is not None else 0)


def _memory_number(node: OpDesc) -> int:
    memory = node.attrs.get("_output_memory_type")
    return memory[0] if isinstance(memory, tuple) and memory and isinstance(memory[0], int) else MemoryType.HBM
