"""What a compile leaves in the sidecar of its entry, and the report of an entry that has none."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gecli.artifacts.om_file import read_om
from gecli.cache.confirmation import has_user_functions
from gecli.cache.differences import components_of
from gecli.cache.layout import host_name
from gecli.cache.sidecar import CONFIRMED, SCHEMA, USER_FUNCTIONS, VARIABLE_MEMORY
from gecli.cache.sidecar_report import LIMIT
from gecli.compiler.direct_hit import MEMORY_UNKNOWN, REPORT_MEMBERS
from gecli.errors import GecliError
from gecli.version import __version__

if TYPE_CHECKING:
    from gecli.compiler.cached_compile import Work
    from gecli.compiler.result import ModelResult
    from gecli.loading import LoadedModel
    from gecli.variables.var_match import VarMatch
    from gecli.wire.model_record import ModelRecord

TOLD_BY_OM = {
    "feature_bytes": "memory_size", "zero_copy_bytes": "zero_copy_memory_size", "weight_bytes": "weight_size",
    "variable_base": "task_gen_variable_addr", "streams": "stream_num", "events": "event_num",
}  # fmt: skip


def sidecar_content(
    work: Work,
    result: ModelResult,
    record: VarMatch,
    stem: str,
    files: dict[str, Any],
    seconds: float,
    memory: dict[str, Any] | None,
) -> dict[str, Any]:
    """What the sidecar of a new entry says (cache.md 11.2), and gecli's own members: report, memory of variables."""
    from datetime import UTC, datetime

    digest = work.digest
    report = {name: getattr(result, name) for name in REPORT_MEMBERS}
    return {
        "schema": SCHEMA,
        "graph_key": work.key,
        "entry": stem,
        "created_utc": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "compile_seconds": round(seconds, 3),
        "created_by": {"tool": "gecli", "version": __version__, "host": host_name(), "pid": os.getpid()},
        "fingerprint": {
            "combined": digest.combined,
            "requests": [work.request.digest] if work.request else [],
            "graph": digest.graph,
            "weights": digest.weights,
            "options": digest.options,
            "toolchain": digest.toolchain,
        },
        "components": components_of(digest),
        "files": files,
        "weight_dir": "weight",
        "weights": [],
        "vars": {
            "before": sorted(record.before.var_desc_map),
            "after": sorted(record.after.var_desc_map),
            "changed": list(record.after.changed_var_names),
            "staged": sorted(record.after.staged_var_desc_map),
        },
        VARIABLE_MEMORY: memory,
        "guard": None,
        CONFIRMED: False,
        USER_FUNCTIONS: has_user_functions(work.loaded.graph),
        "report": {**report, "warnings": [asdict(each) for each in result.warnings]},
    }


def describe_foreign(result: ModelResult, loaded: LoadedModel, om: str) -> None:
    """The report of an entry that came without one: what the source model and the entry's OM say."""
    result.front_end = loaded.front_end
    result.inputs = [
        {
            "name": node.name,
            "dtype": node.output_descs[0].dtype.serial,
            "shape": list(node.output_descs[0].shape),
            "format": node.output_descs[0].format.name,
        }
        for node in loaded.graph.inputs
    ]
    try:
        model = read_om(om).model()
    except (GecliError, OSError):  # gone since it was looked at, which its delivery tells
        return
    result.outputs = _outputs_of(model)
    told = ((name, model.attrs.get(attr)) for name, attr in TOLD_BY_OM.items())
    result.memory = {name: value for name, value in told if type(value) is int and 0 <= value < LIMIT}
    descs = [desc for node in model.root.nodes for desc in node.output_descs]
    result.is_dynamic = any(dim < 0 for desc in descs for dim in desc.shape)
    result.notes = [f"some {MEMORY_UNKNOWN}"]


def _outputs_of(model: ModelRecord) -> list[dict[str, Any]]:
    """The outputs as the compile told them that made the OM."""
    from gecli.runtime.interface import model_outputs

    return [
        {
            "name": each.name,
            "dtype": each.port.desc.dtype.serial,
            "shape": list(each.port.desc.shape),
            "format": each.port.desc.format.name,
        }
        for each in model_outputs(model.root.nodes, model.attrs)
    ]
