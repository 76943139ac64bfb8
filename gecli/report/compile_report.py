"""The summary and the JSON document of `gecli compile` (cli.md 1.10)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from gecli.cache.sidecar_report import MEMORY_NUMBERS
from gecli.compiler.result import CacheUse, CompileReport, ModelResult
from gecli.errors import Diagnostic, printable
from gecli.report.sizes import dtype_text, shape_text, size_text, time_text
from gecli.version import __version__

SHOWN_VARIABLES = 3  # format changes named on the summary line; the JSON report has all of them
# Figures of the feature-map plan, which a dynamic model has at run time only.
PLANNED = ("feature_bytes", "lower_bound_bytes", "no_reuse_bytes", "reusable_bytes", "zero_copy_bytes")
SCHEMA = "gecli.compile/1"


def summary_lines(result: ModelResult) -> list[str]:
    """The block a person reads after one model."""
    return [one_line(line) for line in _summary(result)]


def one_line(text: str) -> str:
    """Names out of models cannot begin lines of their own or steer a terminal."""
    return printable(text, 10 * len(text)).replace("\n", "\\n")


def _summary(result: ModelResult) -> list[str]:
    if result.up_to_date:
        return [f"up to date  {result.source} -> {result.output.path}"]
    lines = [
        f"compiled  {result.source} -> {result.output.path}  "
        f"({size_text(result.output.size_bytes)}, {time_text(result.elapsed_ms)})"
    ]
    lines += _tensor_lines("inputs", [(r["name"], r["dtype"], r["format"], r["shape"]) for r in result.inputs])
    lines += _tensor_lines("outputs", [(r["name"], r["dtype"], r["format"], r["shape"]) for r in result.outputs])
    if result.variables:
        lines.append(_variables_line(result))
    if result.is_dynamic:
        lines.append("memory    laid out at run time: shapes are dynamic")
        lines += [f"dynamic   {line}" for line in (_cause_text(result), _sizes_hint(result)) if line]
    else:
        lines.append(_memory_line(result))
    if result.external_weights:
        lines.append(_external_line(result))
    if result.cache.state != "off":
        lines.append(_cache_line(result.cache))
    if result.verification is not None:
        lines.append(f"verified  {_verification_text(result.verification)}")
    lines += [f"note      {note}" for note in result.notes]
    return lines


def _verification_text(found: dict[str, Any]) -> str:
    """What --verify-passes compared."""
    if found["reason"] is not None:
        return f"nothing: {found['reason']}"
    outputs, variables = found["outputs"], len(found["variables"])
    what = f"{outputs} output{'s' if outputs != 1 else ''} and {variables} variable{'s' if variables != 1 else ''}"
    less = f"; {len(found['unchecked'])} could not be compared" if found["unchecked"] else ""
    return f"{len(found['passes'])} passes on random inputs (seed {found['seed']}): {what} stay as they are{less}"


def _tensor_lines(label: str, rows: list[tuple[str, str, str, list[int]]]) -> list[str]:
    width = max((len(row[0]) for row in rows), default=0)
    return [
        f"{label if not i else '':9} {name:{width}}  {dtype_text(dtype):8} {fmt:7} {shape_text(shape)}".rstrip()
        for i, (name, dtype, fmt, shape) in enumerate(rows)
    ]


def _variables_line(result: ModelResult) -> str:
    changed = [row for row in result.variables if row["road"]]
    shown = ", ".join(f"{row['name']} {row['declared_format']}->{row['format']}" for row in changed[:SHOWN_VARIABLES])
    more = f" and {len(changed) - SHOWN_VARIABLES} more" if len(changed) > SHOWN_VARIABLES else ""
    changes = f" ({len(changed)} format change{'s' if len(changed) != 1 else ''}: {shown}{more})" if changed else ""
    memory = result.memory
    base = f"base {memory['variable_base']:#x}" if "variable_base" in memory else "base not known"
    size = f", {size_text(memory['variable_bytes'])}" if "variable_bytes" in memory else ""
    return f"variables {len(result.variables)}{changes}   {base}{size}"


def _memory_line(result: ModelResult) -> str:
    memory = result.memory
    shown = {
        label: f"{label} {size_text(memory[name]) if name in memory else 'not known'}"
        for label, name in (("features", "feature_bytes"), ("weights", "weight_bytes"), ("variables", "variable_bytes"))
    }
    counts = "  ".join(f"{name} {memory[name]}" for name in ("streams", "events") if name in memory)
    places = f"{shown['features']}{_bound_text(memory)}   {shown['weights']}   {shown['variables']}"
    return f"memory    {places}   {counts}".rstrip()


def _bound_text(memory: dict[str, Any]) -> str:
    if not {"reusable_bytes", "lower_bound_bytes"} <= memory.keys():
        return ""
    gap = memory["reusable_bytes"] - memory["lower_bound_bytes"]
    over = f"{100 * gap / max(memory['lower_bound_bytes'], 1):.1f}% over its bound"
    return f" ({over if gap else 'at its lower bound'})"


def _external_line(result: ModelResult) -> str:
    what, folder, size_bytes = _external(result)
    hint = f"   gecli run needs --weight-dir {result.weight_dir}" if result.weight_dir else ""
    return f"external  {what} in {folder}, {size_text(size_bytes)}{hint}"


def _external(result: ModelResult) -> tuple[str, str, int]:
    """The weight file or their number, their directory, and their bytes."""
    files = result.external_weights
    what = os.path.basename(files[0].path) if len(files) == 1 else f"{len(files)} files"
    return what, os.path.dirname(files[0].path) or ".", sum(file.size_bytes for file in files)


def _cause_text(result: ModelResult) -> str:
    """Which node keeps the model dynamic; empty when its inputs alone do."""
    cause = result.dynamic_cause
    return "" if cause is None else f"node {cause['node']} ({cause['type']}) keeps the model dynamic: {cause['why']}"


def _sizes_hint(result: ModelResult) -> str:
    """The option that gives every input a size; empty when all have one."""
    open_inputs = [row for row in result.inputs if any(dim < 0 for dim in row["shape"])]
    if not open_inputs:
        return ""
    shown = ";".join(
        f"{row['name']}:{','.join('N' if dim < 0 else str(dim) for dim in row['shape'])}" for row in open_inputs
    )
    gain = "a static plan" if result.dynamic_cause is None else "faster steps"
    if any(row["key"] == "singleop" for row in result.options):  # which excludes --input-shape
        return f"give sizes for {gain}: the shapes in input_desc of {result.source}"
    return f'give sizes for {gain}: --input-shape "{shown}"'


def _cache_line(cache: CacheUse) -> str:
    key = f"  key {cache.key}{f' ({cache.key_origin})' if cache.key_origin else ''}"
    foreign = " (foreign)" if cache.foreign else ""
    if cache.state == "hit":
        saved = f", saved {cache.seconds_saved:.2f} s" if cache.seconds_saved else ""
        return f"cache     hit {cache.entry} via {cache.via}{foreign}{saved}{key}"
    if cache.state == "debug":
        found = f"hit {cache.entry} via {cache.via}{foreign}" if cache.would_hit else f"miss: {cache.reason}"
        return f"cache     debug: would {found}{key}"
    stored = f" -> stored {cache.entry}" if cache.stored else " -> not stored"
    return f"cache     {cache.state} ({cache.reason or 'no reason'}){stored}{key}"


def plain_lines(result: ModelResult) -> list[str]:
    """The same facts as `key=value` records, one a line, sizes in bytes."""
    return [one_line(line) for line in _records(result)]


def _records(result: ModelResult) -> list[str]:
    if result.up_to_date:
        return [f"source={result.source}", f"output={result.output.path}", "state=up to date"]
    memory = result.memory
    lines = [
        f"source={result.source}",
        f"output={result.output.path}",
        f"size={result.output.size_bytes}",
        f"front_end={result.front_end}",
    ]
    for label, rows in (("input", result.inputs), ("output", result.outputs)):
        lines += [
            f"{label}.{i}={row['name']} {row['dtype']} {row['format']} {shape_text(row['shape'])}"
            for i, row in enumerate(rows)
        ]
    lines += [
        f"variable={row['name']} {row['dtype']} {row['declared_format']}->{row['format']} "
        f"{shape_text(row['shape'])} address={row['logical_address']:#x} size={row['size_bytes']}"
        for row in result.variables
    ]
    left_out = ("order", *(PLANNED if result.is_dynamic else ()))
    lines += [f"{key}={memory[key]}" for key in sorted(memory) if key not in left_out]
    if result.external_weights:
        what, folder, size_bytes = _external(result)
        lines.append(f"external_weights={what} in {folder} size={size_bytes}")
        lines += [f"weight_dir={result.weight_dir}"] if result.weight_dir else []
    lines.append(f"dynamic={'yes' if result.is_dynamic else 'no'}")
    if result.is_dynamic:
        told = (("dynamic_cause", _cause_text(result)), ("hint", _sizes_hint(result)))
        lines += [f"{key}={text}" for key, text in told if text]
    cache = result.cache
    if cache.state != "off":
        via = (f" via={cache.via}" if cache.via else "") + (" foreign=yes" if cache.foreign else "")
        lines.append(
            f"cache={cache.state} reason={cache.reason or '-'} key={cache.key or '-'} entry={cache.entry or '-'}{via}"
        )
    if result.verification is not None:
        lines.append(f"verified={_verification_text(result.verification)}")
    lines += [f"note={note}" for note in result.notes]
    return lines


def compile_document(
    report: CompileReport | None,
    errors: Iterable[Diagnostic] = (),
    *,
    with_times: bool = True,
    explained: Sequence[str] = (),
) -> dict[str, Any]:
    """The `gecli.compile/1` document; written also when the compile failed."""
    errors = list(errors)
    return {
        "schema": SCHEMA,
        "gecli_version": __version__,
        "ok": not errors,
        "soc": report.soc if report else None,
        "models": [_model_json(result, with_times, explained) for result in report.models] if report else [],
        "errors": [diagnostic.as_json() for diagnostic in errors],
    }


def _model_json(result: ModelResult, with_times: bool, explained: Sequence[str] = ()) -> dict[str, Any]:
    cache = result.cache
    document: dict[str, Any] = {
        "source": result.source,
        "front_end": result.front_end,
        "output": result.output.path,
        "size": result.output.size_bytes,
        "sha256": result.output.sha256 or None,
        "inputs": result.inputs,
        "outputs": result.outputs,
        "options": result.options,
        "session": result.session,
        "rdcpkt": None
        if result.rdcpkt is None
        else {"path": result.rdcpkt.path, "size": result.rdcpkt.size_bytes, "sha256": result.rdcpkt.sha256 or None},
        "variables": result.variables,
        "memory": _memory_json(result),
        "dynamic": result.is_dynamic,
        "dynamic_cause": result.dynamic_cause,
        "nodes": result.node_count,
        "compile_count": result.compile_count,
        "up_to_date": result.up_to_date,
        "stages": _stages_json(result, with_times),
        "cache": {
            "state": cache.state,
            "key": cache.key or None,
            "entry": cache.entry or None,
            "via": cache.via,
            "reason": cache.reason,
            "stored": cache.stored,
            **({"explanation": cache.explanation} if cache.explanation else {}),
            **({"foreign": True} if cache.foreign else {}),
            **({"would_hit": cache.would_hit} if cache.would_hit is not None else {}),
        },
        "external_weights": [
            {"file": file.path, "bytes": file.size_bytes, "sha256": file.sha256} for file in result.external_weights
        ],
        "warnings": [diagnostic.as_json() for diagnostic in result.warnings],
        "errors": [],
        "notes": result.notes,
        "verification": result.verification,
    }
    if explained:
        from gecli.report.variable_explanation import explanation

        document["explained"] = {name: found for name in explained if (found := explanation(result, name))}
    if with_times:
        document["ms"] = round(result.elapsed_ms, 3)
    return document


def _memory_json(result: ModelResult) -> dict[str, Any]:
    unknown = dict.fromkeys(PLANNED if result.is_dynamic and result.memory else ())
    lost = dict.fromkeys(MEMORY_NUMBERS) if result.cache.state == "hit" else {}
    return {**lost, **result.memory, **unknown}


def _stages_json(result: ModelResult, with_times: bool) -> list[dict[str, Any]]:
    stages: list[dict[str, Any]] = []
    for record in result.passes:
        if not stages or stages[-1]["name"] != record.stage.value:
            stages.append({"name": record.stage.value, "nodes_before": record.nodes_before, "passes": [], "ms": 0.0})
        stage = stages[-1]
        milliseconds = record.elapsed_ns / 1e6
        entry: dict[str, Any] = {
            "name": record.name,
            "changed": bool(record.counts) and any(record.counts.values()),
            "edits": record.counts,
        }
        if with_times:
            entry["ms"] = round(milliseconds, 3)
        stage["passes"].append(entry)
        stage["nodes_after"] = record.nodes_after
        stage["ms"] = round(stage["ms"] + milliseconds, 3)
    if not with_times:
        for stage in stages:
            del stage["ms"]
    return stages


def times_wanted(environ: dict[str, str] | os._Environ[str] = os.environ) -> bool:
    """Reports under SOURCE_DATE_EPOCH hold no times."""
    return not environ.get("SOURCE_DATE_EPOCH")
