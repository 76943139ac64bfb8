"""--explain-variable: what became of a variable in each model, which pass did it, and why (formats.md 9.1)."""

from __future__ import annotations

from typing import Any

from gecli.compiler.result import ModelResult
from gecli.report.sizes import dtype_text, shape_text

ACCELERATION = "VariableOpPass"
HIDDEN = ("pass", "event", "variable", "road", "lossy")


def explanation(result: ModelResult, name: str) -> dict[str, Any] | None:
    """The variable's row of the report and the records of the passes; None if the model does not have it."""
    row = next((row for row in result.variables if row["name"] == name), None)
    if row is None:
        return None
    return {**row, "events": [record for record in result.records if record.get("variable") == name]}


def explanation_lines(result: ModelResult, name: str) -> list[str]:
    """The same for a person; empty if the model does not have the variable."""
    found = explanation(result, name)
    if found is None:
        return []
    dtype = dtype_text(found["dtype"])
    lines = [
        f"variable {name} in {result.source}",
        f"  declared  {dtype_text(found['declared_dtype'])} {found['declared_format']} "
        f"{shape_text(found['declared_shape'])}",
        f"  stored    {dtype} {found['format']} {shape_text(found['shape'])}  "
        f"at {found['logical_address']:#x}, {found['size_bytes']} bytes",
        f"  road      {'; '.join(found['road']) or 'none'}{' (loses precision)' if found['lossy'] else ''}",
        f"  compiled  {result.compile_count} time{'s' if result.compile_count != 1 else ''}",
    ]
    if found.get("init_converted"):
        lines.append("  initial   converted along the road")
    lines += [f"  block     {_block_text(block)}" for block in found.get("blocks", ())]
    if ACCELERATION not in [each.name for each in result.passes]:
        lines.append(f"  {ACCELERATION}: did not run, so the variable keeps its format")
    for event in found["events"]:
        facts = "  ".join(f"{key} {_text(value)}" for key, value in event.items() if key not in HIDDEN and value)
        lines.append(f"  {event['pass']}: {event['event']}{f'  {facts}' if facts else ''}")
        lines += [f"    {step}" for step in event.get("road", ())]
    return lines


def _block_text(block: dict[str, Any]) -> str:
    form = f"{dtype_text(block['dtype'])} {block['format']} {shape_text(block['shape'])}"
    state = "" if block["in_use"] else ", no longer used"
    return f"{block['bytes']} bytes at offset {block['offset']} for {form}{state}"


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
