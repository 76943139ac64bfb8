"""What a file is, what it holds, what it needs to be loaded, and whether it is sound (cli.md 2.1 --summary)."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

from gecli.artifacts.om_file import OmFile, read_om
from gecli.errors import InputError
from gecli.report.inspect.interface import interface_facts
from gecli.report.inspect.partitions import partition_rows
from gecli.report.inspect.subject import Subject
from gecli.report.inspect.task_list import task_counts
from gecli.report.inspect.tensors import external_weights
from gecli.report.inspect.variables import variable_totals
from gecli.report.inspect.view import Block, Table, View, cell
from gecli.report.sizes import dtype_text, shape_text, size_text

if TYPE_CHECKING:
    from gecli.loading.sniff import Outline
    from gecli.wire.byte_source import FileSource

SHOWN_TYPES = 10
SHOWN_TENSORS = 16
LABEL = 11
MEMORY_ATTRS = (
    "memory_size", "zero_copy_memory_size", "weight_size", "variable_size", "p2p_memory_size",
    "session_scope_memory_size", "host_memory_size", "host_svm_size", "stream_num", "event_num", "label_num",
    "task_gen_base_addr", "task_gen_weight_addr", "task_gen_variable_addr",
)  # fmt: skip
FLOW_OM_DATA, FLOW_NAME, FLOW_TYPE = 3, 1, 2  # fields of SubmodelDef


def summary_view(subject: Subject) -> View:
    facts = summary_facts(subject)
    return View("summary", facts, [*_blocks(facts)])


def summary_facts(subject: Subject) -> dict[str, Any]:
    """The document: header and tables always, the model's part where the file has a readable one."""
    facts: dict[str, Any] = {"file": {"path": subject.path, "size": subject.size_bytes, "kind": subject.kind}}
    if subject.kind == "idx":
        return {**facts, **_index_facts(subject)}
    if subject.kind == "rdcpkt":
        return {**facts, **_record_facts(subject)}
    om = subject.om
    if om is not None:
        facts |= {
            "header": header_json(om),
            "wide": om.wide,
            "model_count": len(om.models),
            "partitions": partition_rows(om),
            "nested": _nested(subject),
        }
    if subject.kind not in ("bundle", "preload"):
        facts |= _model_facts(subject)
    digest = subject.digest_state()
    facts["needs"] = _needs(subject, facts)
    facts["verdict"] = {
        "sound": not subject.warnings,
        "digest": digest,
        "problems": [warning.message for warning in subject.warnings],
    }
    return facts


def header_json(om: OmFile) -> dict[str, Any]:
    """The header fields under GE's names."""
    header = om.header
    return {
        "magic": header.magic.decode("latin-1"),
        "headsize": header.headsize,
        "version": header.version,
        "checksum": header.checksum.hex() if any(header.checksum) else None,
        "length": header.length,
        "is_encrypt": header.is_encrypt,
        "is_checksum": header.is_checksum,
        "modeltype": header.modeltype,
        "genmode": header.genmode,
        "name": header.name,
        "ops": header.ops,
        "om_ir_version": header.om_ir_version,
        "model_num": None if header.is_version_1 else header.model_num,
        "platform_version": header.platform_version,
        "platform_type": header.platform_type,
        "model_length": None if header.is_version_1 else header.model_length,
        "need_check_os_cpu_info": header.need_check_os_cpu_info,
        "is_unknow_model": header.is_unknow_model,
    }


def _model_facts(subject: Subject) -> dict[str, Any]:
    model = subject.model_or_none()
    if model is None:
        return {"model": None}
    attrs = model.attrs
    types = Counter(node.type for graph in model.graphs for node in graph.nodes)
    ranked = sorted(types.items(), key=lambda item: (-item[1], item[0]))
    interface = interface_facts(subject) if model.graphs else None
    count, size = variable_totals(subject)
    return {
        "model": {
            "name": model.name,
            "version": model.version,
            "custom_version": model.custom_version,
            "soc": _text(attrs.get("soc_version")),
            "framework": _text(attrs.get("framework_type")),
            "writer": _text(attrs.get("atc_version")),
            "compressed_names": model.compressed_names,
        },
        "graphs": [{"name": graph.name, "nodes": len(graph.nodes)} for graph in model.graphs],
        "io": interface,
        "node_count": types.total(),
        "node_types": [{"type": name, "count": number} for name, number in ranked],
        "variables": {"count": count, "bytes": size},
        "memory": {name: attrs[name] for name in MEMORY_ATTRS if isinstance(attrs.get(name), int)},
        "tasks": task_counts(subject),
        "external_weights": list(external_weights(subject)),
    }


def _needs(subject: Subject, facts: dict[str, Any]) -> list[dict[str, Any]]:
    """What has to be there to load the file: `found` is null where this machine cannot say."""
    needs: list[dict[str, Any]] = []
    if subject.kind in ("bundle", "flow", "preload"):
        needs.append({"what": "another loader", "name": f"gecli run does not support {subject.kind} models",
                      "found": False})  # fmt: skip
    variables = facts.get("variables")
    if variables and variables["count"]:
        record = subject.variable_record()
        name = os.path.basename(subject.record_path)
        needs.append({"what": "variable record", "name": name, "found": record is not None})
    directory = os.path.dirname(subject.path)
    for row in facts.get("external_weights", ()):
        name = os.path.basename(row["file"] or "")
        places = (os.path.join(directory, "weight", name), os.path.join(directory, name))
        found = bool(name) and any(os.path.exists(place) for place in places)
        entry = {"what": "weight file", "name": name or f"of node {row['node']}", "found": found}
        if entry not in needs:
            needs.append(entry)
    if subject.om is not None and subject.om.header.need_check_os_cpu_info:
        needs.append({"what": "host", "name": "the host libraries inside fit one OS and CPU only", "found": None})
    return needs


def _nested(subject: Subject) -> list[dict[str, Any]]:
    """The OM files inside a bundle or flow model, one level deep."""
    om = subject.container
    found: list[dict[str, Any]] = []
    places: list[tuple[int, int, str | None, str | None]]
    if om.kind == "bundle":
        places = [(part.offset_bytes, part.size_bytes, None, None) for part in om.root.partitions if part.type == 24]
    elif om.kind == "flow":
        places = _submodels(om)
    else:
        return found
    for offset, size, name, kind in places:
        entry: dict[str, Any] = {"name": name, "type": kind, "offset": offset, "size": size}
        try:
            inner = read_om(om.path, base=offset, size=size)
            entry |= {"kind": inner.kind, "header_name": inner.header.name, "partitions": partition_rows(inner)}
        except InputError as error:
            subject.warn(*error.diagnostics)
            entry |= {"kind": error.kind or "not-om", "header_name": None, "partitions": []}
        found.append(entry)
    return found


def _submodels(om: OmFile) -> list[tuple[int, int, str | None, str | None]]:
    """(offset, size, name, type) of the OM data of each submodel of a flow model."""
    from gecli.loading.sniff import outline
    from gecli.wire.byte_source import FileSource

    found: list[tuple[int, int, str | None, str | None]] = []
    for part in om.root.partitions:
        if part.type != 7:
            continue
        with FileSource(om.path, part.offset_bytes, part.size_bytes) as source:
            fields = outline(source, 0, part.size_bytes)
            if FLOW_OM_DATA in fields:
                _, offset, length = fields[FLOW_OM_DATA]
                name, kind = (_outline_text(source, fields, number) for number in (FLOW_NAME, FLOW_TYPE))
                found.append((part.offset_bytes + offset, length, name, kind))
    return found


def _outline_text(source: FileSource, fields: Outline, number: int) -> str | None:
    if number not in fields:
        return None
    _, offset, length = fields[number]
    return source.read(offset, min(length, 256)).decode("utf-8", "replace")


def _index_facts(subject: Subject) -> dict[str, Any]:
    content = subject.index_file()
    directory = os.path.dirname(subject.path)
    records = [
        {
            "graph_key": record.graph_key,
            "om": record.om_name,
            "rdcpkt": record.rdcpkt_name or None,
            "found": os.path.exists(os.path.join(directory, record.om_name)),
            "problem": record.problem or None,
        }
        for record in content.records
    ]
    return {"records": records, "malformed": len(content.malformed)}


def _record_facts(subject: Subject) -> dict[str, Any]:
    record = subject.variable_record()
    assert record is not None  # opened as one
    return {
        "record": {
            "before": len(record.before.var_desc_map),
            "after": len(record.after.var_desc_map),
            "roads": len(record.after.var_trans_roads_map),
            "staged": len(record.after.staged_var_desc_map),
            "changed": sorted(record.after.changed_var_names),
        }
    }


# ---------------------------------------------------------------- text


def _blocks(facts: dict[str, Any]) -> list[Block]:
    file = facts["file"]
    blocks: list[Block] = [
        _line("file", f"{cell(file['path'])}  {size_text(file['size'])} ({file['size']} bytes)  {file['kind']}")
    ]
    if "records" in facts:
        return [*blocks, *_index_blocks(facts)]
    if "record" in facts:
        record = facts["record"]
        blocks.append(_line("variables", f"{record['after']} ({record['before']} before the compile)"))
        blocks.append(_line("roads", f"{record['roads']}, staged {record['staged']}"))
        if record["changed"]:
            blocks.append(_line("changed", cell(" ".join(record["changed"]))))
        return blocks
    if "header" in facts:
        blocks += _container_blocks(facts)
    if facts.get("model"):
        blocks += _model_blocks(facts)
    for need in facts["needs"]:
        state = {True: " (found)", False: " (missing)", None: ""}[need["found"]]
        blocks.append(_line("needs", f"{need['what']}: {cell(need['name'])}{state}"))
    blocks.append(_line("verdict", _verdict(facts["verdict"])))
    return blocks


def _container_blocks(facts: dict[str, Any]) -> list[Block]:
    header = facts["header"]
    version = "v1" if header["version"] < 0x20000000 else "v2"
    width = "wide" if facts["wide"] else "narrow"
    blocks: list[Block] = [
        _line(
            "header",
            f"{cell(header['magic'])} {version} ({header['version']:#x}), {width} table, model type "
            f"{header['modeltype']}, platform {cell(header['platform_version']) or '-'}"
            + (", dynamic shapes" if header["is_unknow_model"] else ""),
        )
    ]
    if facts["model_count"] > 1:
        blocks.append(_line("models", str(facts["model_count"])))
    rows = [(str(row["index"]), row["name"], str(row["offset"]), str(row["size"])) for row in facts["partitions"]]
    blocks.append(Table(("#", "partition", "offset", "bytes"), rows, frozenset(("#", "offset", "bytes")), " " * LABEL))
    for entry in facts["nested"]:
        parts = ", ".join(f"{row['name']} {row['size']}" for row in entry["partitions"])
        blocks.append(_line("nested", f"{cell(entry['name'] or entry['header_name'] or '-')} {entry['kind']} at "
                                      f"{entry['offset']}, {entry['size']} bytes: {parts}"))  # fmt: skip
    return blocks


def _model_blocks(facts: dict[str, Any]) -> list[Block]:
    model = facts["model"]
    told = [cell(model["name"]) or "(no name)"]
    told += [f"{label} {cell(model[key])}" for key, label in
             (("soc", "for"), ("framework", "from"), ("writer", "by")) if model[key]]  # fmt: skip
    blocks: list[Block] = [_line("model", "  ".join(told))]
    io = facts["io"]
    for kind in ("inputs", "outputs"):
        blocks += _tensor_lines(kind, io[kind] if io else [])
    types = facts["node_types"]
    shown = ", ".join(f"{cell(row['type'], 40)} {row['count']}" for row in types[:SHOWN_TYPES])
    more = f", and {len(types) - SHOWN_TYPES} more types" if len(types) > SHOWN_TYPES else ""
    graphs = f" in {len(facts['graphs'])} graphs" if len(facts["graphs"]) > 1 else ""
    blocks.append(_line("nodes", f"{facts['node_count']}{graphs}: {shown}{more}"))
    variables = facts["variables"]
    if variables["count"]:
        base = facts["memory"].get("task_gen_variable_addr")
        at = f" at {base:#x}" if base is not None else ""
        blocks.append(_line("variables", f"{variables['count']}, {size_text(variables['bytes'])}{at}"))
    blocks.append(_line("memory", _memory(facts["memory"])))
    if facts["tasks"]["count"]:
        tasks = ", ".join(f"{name} {count}" for name, count in facts["tasks"]["types"].items())
        blocks.append(_line("tasks", f"{facts['tasks']['count']}: {tasks}"))
    return blocks


def _tensor_lines(kind: str, rows: list[dict[str, Any]]) -> list[Block]:
    if not rows:
        return [_line(kind, "none")]
    width = max(len(cell(row["name"], 60)) for row in rows[:SHOWN_TENSORS])
    lines: list[Block] = [
        _line(kind if k == 0 else "", f"{cell(row['name'], 60):{width}}  {dtype_text(row['dtype']):8} "
              f"{row['format']:7} {shape_text(row['shape'])}")
        for k, row in enumerate(rows[:SHOWN_TENSORS])
    ]  # fmt: skip
    if len(rows) > SHOWN_TENSORS:
        lines.append(_line("", f"and {len(rows) - SHOWN_TENSORS} more"))
    return lines


def _memory(memory: dict[str, int]) -> str:
    parts = [
        f"{label} {size_text(memory[name])}"
        for name, label in (("memory_size", "features"), ("zero_copy_memory_size", "of it inputs and outputs"),
                            ("weight_size", "weights"))
        if name in memory
    ]  # fmt: skip
    parts += [f"{memory[name]} {label}{'s' if memory[name] != 1 else ''}"
              for name, label in (("stream_num", "stream"), ("event_num", "event")) if memory.get(name)]  # fmt: skip
    return ", ".join(parts) or "not stated"


def _verdict(verdict: dict[str, Any]) -> str:
    digest = {
        "verified": "payload digest verified",
        "absent": "no payload digest",
        "not checked": "payload digest not checked (--partitions checks it)",
        "bad": "payload digest wrong",
    }[verdict["digest"]]
    if verdict["sound"]:
        return f"sound, {digest}"
    count = len(verdict["problems"])
    return f"{count} problem{'s' if count != 1 else ''}, {digest}"


def _index_blocks(facts: dict[str, Any]) -> list[Block]:
    rows = [
        (cell(row["graph_key"]), cell(row["om"]), cell(row["rdcpkt"] or "-"),
         row["problem"] or ("found" if row["found"] else "missing"))
        for row in facts["records"]
    ]  # fmt: skip
    blocks: list[Block] = [Table(("graph key", "om", "rdcpkt", "state"), rows)]
    if facts["malformed"]:
        blocks.append(f"{facts['malformed']} elements are no records")
    return blocks


def _line(label: str, text: str) -> str:
    return f"{label:{LABEL}}{text}".rstrip()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def oneline(subject: Subject) -> dict[str, Any]:
    """Path, state, name, SoC, signature and size of one file."""
    facts = summary_facts(subject)
    model = facts.get("model") or {}
    io = facts.get("io") or {"inputs": [], "outputs": []}

    def signature(rows: list[dict[str, Any]]) -> str:
        return ",".join(f"{row['name']}:{dtype_text(row['dtype'])}{shape_text(row['shape'])}" for row in rows)

    return {
        "path": subject.path,
        "ok": True,
        "kind": subject.kind,
        "name": model.get("name") or (facts.get("header") or {}).get("name"),
        "soc": model.get("soc"),
        "signature": f"({signature(io['inputs'])}) -> ({signature(io['outputs'])})",
        "size": subject.size_bytes,
        "error": None,
    }


def oneline_text(row: dict[str, Any]) -> str:
    state = "ok" if row["ok"] else "bad"
    if row["error"] is not None:
        return f"{cell(row['path'])}  {state}  {cell(row['error'], 400)}"
    parts = (cell(row["path"]), state, cell(row["name"] or "-"), cell(row["soc"] or "-"), cell(row["signature"], 400))
    return "  ".join((*parts, size_text(row["size"])))
