"""`gecli compile --check` (atc's mode 3): is every model one that can be compiled? Writes no OM."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gecli.cli.console import Console
    from gecli.compiler.partial_compile import CheckedModel
    from gecli.errors import Diagnostic
    from gecli.options.values import Options

DEFAULT_REPORT = "check_result.json"  # of mode 3, below $ASCEND_WORK_PATH
SCHEMA = "gecli.check/1"


def check(options: Options, models: list[str], console: Console) -> int:
    """Check every model; the exit status is that of the first fault, or 0."""
    from gecli.compiler.failures import refuse
    from gecli.compiler.partial_compile import check_models

    checked = check_models(models, options)
    document = {"schema": SCHEMA, "ok": all(not each.errors for each in checked), "models": list(map(_report, checked))}
    _write(options, document)
    for each in checked:
        console.report(each.warnings)
        console.report(each.errors)
        console.result(_line(each))
    if console.json:
        console.document(document)
    if options.flag("werror"):
        refuse(warning for each in checked for warning in each.warnings)
    return next((each.errors[0].exit_status for each in checked if each.errors), 0)


def _line(checked: CheckedModel) -> str:
    if checked.errors:
        return f"failed  {checked.source}  {len(checked.errors)} problem{'s' if len(checked.errors) != 1 else ''}"
    types = len({type_name for _, type_name in checked.nodes})
    shapes = "  ".join(f"{row['name']} {row['shape']}" for row in checked.outputs)
    return f"ok      {checked.source}  {len(checked.nodes)} nodes of {types} types  outputs {shapes}"


def _report(checked: CheckedModel) -> dict[str, Any]:
    """atc's pre-check report of one model, with inputs, outputs and the places of faults."""
    by_node: dict[str, list[Diagnostic]] = {}
    for fault in checked.errors:
        by_node.setdefault(fault.node or "", []).append(fault)
    rows = [_row(name, type_name, by_node.get(name, [])) for name, type_name in checked.nodes]
    known = {name for name, _ in checked.nodes}
    rows += [_row(name or checked.source, "", faults) for name, faults in by_node.items() if name not in known]
    failed = sum(row["result"] == "failed" for row in rows)
    return {
        "name": checked.source,
        "result": "failed" if failed else "success",
        "total": len(rows),
        "pass": len(rows) - failed,
        "fail": failed,
        "op": rows,
        "inputs": checked.inputs,
        "outputs": checked.outputs,
        "warnings": [warning.as_json() for warning in checked.warnings],
    }


def _row(name: str, type_name: str, faults: list[Diagnostic]) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "type": type_name, "result": "failed" if faults else "success"}
    if faults:
        row["cause"] = [
            {"code": fault.code, "message": fault.message, "where": fault.where, "why": fault.why, "fix": fault.do}
            for fault in faults
        ]
    return row


def _write(options: Options, document: dict[str, Any]) -> None:
    """Into --check-report, and for mode 3 always; a single model's report has atc's form."""
    path = options.text("check_report")
    if not path and options.get("mode") == 3:
        path = os.path.join(os.environ.get("ASCEND_WORK_PATH", ""), DEFAULT_REPORT)
    if not path:
        return
    from gecli.artifacts.publish import publish_bytes
    from gecli.json_text import escape_halves

    models = document["models"]
    text = json.dumps(models[0] if len(models) == 1 else document, indent=2, sort_keys=True, ensure_ascii=False)
    publish_bytes(path, escape_halves(f"{text}\n").encode("utf-8"))
