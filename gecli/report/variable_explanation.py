"""--explain-variable: what became of a variable in each model, which pass did it, and why (formats.md 9.1)."""

from __future__ import annotations

from typing import Any

from gecli.compiler.result import ModelResult
from gecli.report.sizes import dtype_text, shape_text

ACCELERATION = "VariableOpPass"
HIDDEN = ("pass", "event", "variable", "road", "lossy")
SHOWN_NAMES = 8  # readers and writers of one graph; the JSON report has all of them
# Those that decide something about a variable, in their order (variables.md 7).
VARIABLE_PASSES = (
    "SplitVariableIntoSubgraphPass",
    "VarIsInitializedOpPass",
    "VariablePrepareOpPass",
    "UpdateVariableFormats",
    ACCELERATION,
    "VariableRefUselessControlOutDeletePass",
    "AssignRemovePass",
    "RefIdentityDeleteOpPass",
    "VariableRefDeleteOpPass",
)


def explanation(result: ModelResult, name: str) -> dict[str, Any] | None:
    """The variable's row of the report, its story in the session, and the records of the passes.

    Without the model having it: None.
    """
    row = next((row for row in result.variables if row["name"] == name), None)
    if row is None:
        return None
    events = [record for record in result.records if record.get("variable") == name]
    ran, spoke = {each.name for each in result.passes}, {each["pass"] for each in events}
    return {
        **row,
        **result.stories.get(name, {}),
        "events": events,
        "passes_without_effect": [each for each in VARIABLE_PASSES if each in ran and each not in spoke],
        "passes_not_run": [each for each in VARIABLE_PASSES if each not in ran],
    }


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
    used = {block["logical_address"] for block in found.get("blocks", ()) if block["in_use"]}
    lines += [f"  block     {_block_text(block, used)}" for block in found.get("blocks", ())]
    lines += _story_lines(found)
    if ACCELERATION in found["passes_not_run"]:
        lines.append(f"  {ACCELERATION}: did not run, so the variable keeps its format")
    count = result.compile_count
    for number, events in enumerate(found.get("earlier_compiles", ()), 1):
        lines.append(f"  compile {number} of {count}, which became stale:")
        lines += [f"  {line}" for event in events for line in _event_lines(event)]
    if found.get("earlier_compiles"):
        lines.append(f"  compile {count} of {count}:")
    lines += [line for event in found["events"] for line in _event_lines(event)]
    others = (("no effect", found["passes_without_effect"]), ("not run", found["passes_not_run"]))
    lines += [f"  {label:9} {', '.join(names)}" for label, names in others if names]
    return lines


def _story_lines(found: dict[str, Any]) -> list[str]:
    """Who made the variable, who changed it, how this compile found it, and who uses it."""
    lines = [
        f"  {label:9} by {found[key]}"
        for label, key in (("created", "created_by"), ("changed", "changed_by"))
        if found.get(key) is not None
    ]
    if found.get("staged") is not None:
        lines.append(f"  staged    {_form_text(found['staged'])}, when {ACCELERATION} began on this graph")
    stored = {key: found[key] for key in ("dtype", "format", "shape")}
    for user in found.get("users", ()):
        parts = [f"as {_form_text(user['form'])}"] if user["form"] not in (None, stored) else []
        parts += [
            f"{what} by {_first(user[key])}" for what, key in (("read", "readers"), ("written", "writers")) if user[key]
        ]
        lines.append(f"  used by   {user['graph']}: {'; '.join(parts) or 'by nobody'}")
    if found.get("has_value") is False:
        lines.append("  value     none: no graph of the session writes it or gives it an initial value")
    return lines


def _form_text(form: dict[str, Any]) -> str:
    return f"{dtype_text(form['dtype'])} {form['format']} {shape_text(form['shape'])}"


def _first(names: list[str]) -> str:
    more = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def _event_lines(event: dict[str, Any]) -> list[str]:
    facts = "  ".join(f"{key} {_text(value)}" for key, value in event.items() if key not in HIDDEN and value)
    head = f"  {event['pass']}: {event['event']}{f'  {facts}' if facts else ''}"
    return [head, *(f"    {step}" for step in event.get("road", ()))]


def _block_text(block: dict[str, Any], used: set[int]) -> str:
    form = _form_text(block)
    state = "" if block["in_use"] else ", no longer used"
    if state and block["logical_address"] in used:
        state = ", an earlier form in the same block"
    return f"{block['bytes']} bytes at offset {block['offset']} for {form}{state}"


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
