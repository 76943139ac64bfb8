"""The summary for people: one fact a line (cli.md 2.1 --summary)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from gecli.report.inspect.load_needs import lack, lacks
from gecli.report.inspect.nodes import nested_graph_text
from gecli.report.inspect.subject import DIGEST_BYTES
from gecli.report.inspect.view import Block, Table, cell
from gecli.report.sizes import counted, dtype_text, shape_text, size_text

SHOWN_TYPES = 10
SHOWN_TENSORS = 16
SHOWN_WEIGHT_FILES = 4  # that are there
LABEL = 11
# Submodels of a flow model that hold no OM, by kind: their file, size and offset.
WITHOUT_OM = {
    "file": "is in the file {0}, which is not opened", "graph": "is a graph of {1} bytes at {2}, not compiled",
    "empty": "holds no model",
}  # fmt: skip


def summary_blocks(facts: dict[str, Any]) -> list[Block]:
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
    if "session" in facts:
        return [*blocks, *_session_blocks(facts["session"])]
    if "header" in facts:
        blocks += _container_blocks(facts)
    if facts.get("model"):
        blocks += _model_blocks(facts)
    blocks += [_line("needs", text) for text in _need_texts(facts["needs"])]
    blocks += [_line("note", cell(note, 400)) for note in facts["verdict"]["notes"]]
    blocks.append(_line("verdict", _verdict(facts["verdict"], len(lacks(facts["needs"])))))
    answer = load_answer(facts["needs"], facts["verdict"])
    return [*blocks, _line("", answer)] if answer else blocks


def _need_texts(needs: list[dict[str, Any]]) -> Iterator[str]:
    """One line a need; of many weight files the first, and how many more of them are there as they should be."""
    there = [need for need in needs if need["what"] == "weight file" and need["found"] and not need["why"]]
    hidden = {id(need) for need in there[1:]} if len(there) > SHOWN_WEIGHT_FILES else set()
    for need in needs:
        if id(need) not in hidden:
            yield _need_text(need) + (f" and {len(hidden)} more that are there" if hidden and need is there[0] else "")


def _need_text(need: dict[str, Any]) -> str:
    is_file = need["what"] in ("weight file", "variable record")
    lost = "missing" if is_file and not need["why"] else ""
    state = {True: "found" if is_file else "", False: lost, None: ""}[need["found"]]
    told = ", ".join(part for part in (state, cell(need["why"] or "")) if part)
    return f"{need['what']}: {cell(need['name'])}" + (f" ({told})" if told else "")


def load_answer(needs: list[dict[str, Any]], verdict: dict[str, Any]) -> str:
    """Whether the model loads where --target and --for-version say; without them, what is missing here."""
    places = [verdict["target"]] * (verdict["target"] is not None)
    places += [f"version {verdict['for_version']}"] * (verdict["for_version"] is not None)
    if not places:
        files = [lack(need) for need in needs if need["what"] == "weight file" and need["found"] is False]
        more = f" and {len(files) - SHOWN_WEIGHT_FILES} more" if len(files) > SHOWN_WEIGHT_FILES else ""
        return f"does not load here: {'; '.join(map(cell, files[:SHOWN_WEIGHT_FILES]))}{more}" if files else ""
    place = " with ".join(places)
    on = "on" if verdict["target"] else "with"
    if verdict["loads"]:
        loaders = [f", in {need['name']}" for need in needs if need["what"] == "loader"]
        partly = ", as far as the file was read" if verdict["digest"] == "not checked" else ""
        return f"loads {on} {place}{''.join(loaders)}{partly}"
    if verdict["loads"] is None:
        asked = ("SoC",) * (verdict["target"] is not None) + ("version",) * (verdict["for_version"] is not None)
        open_points = [need["why"] or need["name"] for need in needs if need["what"] in asked and need["found"] is None]
        return f"may load {on} {place}: {'; '.join(map(cell, open_points)) or 'nothing speaks against it'}"
    return f"does not load {on} {place}: {'; '.join(map(cell, lacks(needs))) or 'the file is not sound'}"


def _container_blocks(facts: dict[str, Any]) -> list[Block]:
    header = facts["header"]
    version = "v2" if header["version"] >= 0x20000000 else "v1" if header["version"] else "no version"
    magic = cell(header["magic"]) if header["magic"].strip("\0") else "no magic,"  # bundles have neither
    width = "wide" if facts["wide"] else "narrow"
    blocks: list[Block] = [
        _line(
            "header",
            f"{magic} {version} ({header['version']:#x}), {width} table, model type "
            f"{header['modeltype']}, platform {cell(header['platform_version']) or '-'}"
            + (", dynamic shapes" if header["is_unknow_model"] else ""),
        )
    ]
    if facts["model_count"] > 1:
        blocks.append(_line("models", str(facts["model_count"])))
    rows = [(str(row["index"]), row["name"], str(row["offset"]), str(row["size"])) for row in facts["partitions"]]
    blocks.append(Table(("#", "partition", "offset", "bytes"), rows, frozenset(("#", "offset", "bytes")), " " * LABEL))
    blocks += _nested_lines(facts["nested"], "")
    return blocks


def _nested_lines(entries: list[dict[str, Any]], pad: str) -> Iterator[str]:
    for entry in entries:
        if entry["kind"] in WITHOUT_OM:
            told = WITHOUT_OM[entry["kind"]].format(cell(entry["file"] or ""), entry["size"], entry["offset"])
            yield _line("nested", f"{pad}{cell(entry['name'] or '-')} {told}")
            continue
        parts = ", ".join(f"{row['name']} {row['size']}" for row in entry["partitions"])
        yield _line("nested", f"{pad}{cell(entry['name'] or entry['header_name'] or '-')} {entry['kind']} at "
                              f"{entry['offset']}, {entry['size']} bytes: {parts}")  # fmt: skip
        yield from _nested_lines(entry["nested"], f"{pad}  ")


def _model_blocks(facts: dict[str, Any]) -> list[Block]:
    model = facts["model"]
    told = [cell(model["name"]) or "(no name)"]
    told += [f"{label} {cell(model[key])}" for key, label in
             (("soc", "for"), ("framework", "from"), ("writer", "by")) if model[key]]  # fmt: skip
    blocks: list[Block] = [_line("model", "  ".join(told))]
    blocks += [_line("nested", nested_graph_text(row)) for row in facts["nested_graphs"]]
    io = facts["io"]
    for kind in ("inputs", "outputs"):
        blocks += _tensor_lines(kind, io[kind] if io else [])
    blocks += [_line("gears", text) for text in _gears(io["gears"] if io else {})]
    types = facts["node_types"]
    shown = ", ".join(f"{cell(row['type'], 40)} {row['count']}" for row in types[:SHOWN_TYPES])
    more = f", and {counted(len(types) - SHOWN_TYPES, 'more type')}" if len(types) > SHOWN_TYPES else ""
    graphs = f" in {len(facts['graphs'])} graphs" if len(facts["graphs"]) > 1 else ""
    blocks.append(_line("nodes", f"{facts['node_count']}{graphs}: {shown}{more}"))
    variables = facts["variables"]
    if variables["count"] or variables["constants"] or variables["external_weights"]:
        base = facts["memory"].get("task_gen_variable_addr")
        at = f" at {base:#x}" if base is not None else ""
        named = (("constants", "constant"), ("external_weights", "external weight"))
        others = [counted(variables[key], what) for key, what in named if variables[key]]
        held = ", ".join([str(variables["count"]), *others]) + (" in variable memory" if others else "")
        blocks.append(_line("variables", f"{held}, {size_text(variables['bytes'])}{at}"))
    blocks.append(_line("memory", _memory(facts)))
    if facts["tasks"]["count"]:
        tasks = ", ".join(f"{name} {count}" for name, count in facts["tasks"]["types"].items())
        blocks.append(_line("tasks", f"{facts['tasks']['count']}: {tasks}"))
    kernels = facts["kernels"]
    if kernels["count"] or kernels["libraries"]:
        count = kernels["libraries"]
        libraries = f", {count} {'libraries' if count > 1 else 'library'}" if count else ""
        blocks.append(_line("kernels", f"{kernels['count']}, {size_text(kernels['bytes'])}{libraries}"))
    return blocks


def _gears(gears: dict[str, Any]) -> Iterator[str]:
    """How many there are, and the largest, which memory is planned for."""
    for name, rows in gears.items():
        if rows and name.startswith("dynamic_") and not name.startswith("dynamic_output"):
            largest = max(rows, key=lambda row: math.prod(row) if isinstance(row, list) else row)
            label = name.removeprefix("dynamic_").replace("_", " ")
            yield f"{len(rows)} of {label}, the largest {shape_text(largest) if isinstance(largest, list) else largest}"


def _session_blocks(session: dict[str, Any]) -> list[Block]:
    used, limit = session["used_bytes"], session["variable_limit_bytes"]
    blocks: list[Block] = [
        _line("session", f"{session['session_id']}, device {session['device_id']}, job {session['job_id']}, "
                         f"version {session['version']}"),
        _line("variables", f"{session['variables']} in {session['addresses']} forms, {size_text(used)} of "
                           f"{size_text(limit)}, base {session['base']:#x}"),
        _line("roads", str(session["roads"])),
    ]  # fmt: skip
    if session["changed"]:
        blocks.append(_line("changed", cell(" ".join(session["changed"]))))
    if session["graphs"]:
        blocks.append(_line("graphs", " ".join(map(str, session["graphs"]))))
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


def _memory(facts: dict[str, Any]) -> str:
    memory, held = facts["memory"], facts["held_weights"]
    parts: list[str] = []
    if facts["laid_out"] == "at run time":
        parts.append("features laid out at run time")
    elif "memory_size" in memory:
        ends = " and ".join(f"{name} {size_text(size)}" for name, size in facts["feature_io"].items() if size)
        parts.append(f"features {size_text(memory['memory_size'])}" + (f" (of it {ends})" if ends else ""))
    if held is not None and held["bytes"]:  # mobile files do not record the size
        parts.append(f"weights {size_text(held['bytes'])} in {counted(held['count'], 'constant')}")
    elif "weight_size" in memory:
        parts.append(f"weights {size_text(memory['weight_size'])}")
    parts += [f"{memory[name]} {label}{'s' if memory[name] != 1 else ''}"
              for name, label in (("stream_num", "stream"), ("event_num", "event")) if memory.get(name)]  # fmt: skip
    return ", ".join(parts) or "not stated"


def _verdict(verdict: dict[str, Any], lacking: int) -> str:
    """The line on the file itself; what is lacking to load it, the last of its problems, is in the line below."""
    digest = {
        "verified": "payload digest verified",
        "absent": "no payload digest",
        "not checked": f"payload digest not checked, as the file is larger than {size_text(DIGEST_BYTES)}: "
                       "--strict does",
        "bad": "payload digest wrong",
    }[verdict["digest"]]  # fmt: skip
    if verdict["sound"]:
        return f"sound as far as it was read ({digest})" if verdict["digest"] == "not checked" else f"sound, {digest}"
    return f"{counted(len(verdict['problems']) - lacking, 'problem')}, {digest}"


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


def oneline_text(row: dict[str, Any]) -> str:
    """Path, state and what the file holds; of a bad one what is left of it, if that was asked for, and its fault."""
    parts = [cell(row["path"]), row["state"]]
    if row["size"] is not None:
        parts += [cell(row[key] or "-", 400) for key in ("name", "soc", "signature")]
        parts.append(size_text(row["size"]))
    if row["error"] is not None:
        more = len(row["problems"]) - 1 if row["state"] == "damaged" else 0
        told = cell(row["error"].removeprefix(f"{row['path']}: "), 400)
        parts.append(told + (f" and {counted(more, 'more problem')}" if more > 0 else ""))
    if row["answer"] is not None:
        parts.append(row["answer"])
    return "  ".join(parts)
