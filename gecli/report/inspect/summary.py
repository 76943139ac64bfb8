"""What a file is, what it holds, what it needs to be loaded, and whether it is sound (cli.md 2.1 --summary)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

from gecli.artifacts.om_file import OmFile
from gecli.artifacts.partition_table import PartitionType
from gecli.ir.weight import FileSlice
from gecli.report.inspect.inner_models import inner_rows
from gecli.report.inspect.interface import bytes_in_features, interface_facts
from gecli.report.inspect.load_needs import ANYWHERE, LoadTarget, check_target, lacks, load_needs, loads
from gecli.report.inspect.model_info import compare_info_list
from gecli.report.inspect.nodes import nested_graphs
from gecli.report.inspect.partitions import partition_rows
from gecli.report.inspect.subject import Subject
from gecli.report.inspect.summary_text import load_answer, summary_blocks
from gecli.report.inspect.task_list import stored_code, task_counts
from gecli.report.inspect.tensors import external_weights, held_tensors
from gecli.report.inspect.variables import variable_totals
from gecli.report.inspect.view import PackedRows, View
from gecli.report.sizes import dtype_text, shape_text

MEMORY_ATTRS = (
    "memory_size", "zero_copy_memory_size", "weight_size", "variable_size", "p2p_memory_size",
    "session_scope_memory_size", "host_memory_size", "host_svm_size", "stream_num", "event_num", "label_num",
    "notify_num", "batch_num", "session_id", "task_gen_base_addr", "task_gen_weight_addr", "task_gen_variable_addr",
    "task_gen_host_base_addr", "task_gen_host_svm_base_addr",
)  # fmt: skip


def summary_view(subject: Subject, target: LoadTarget = ANYWHERE, *, recursive: bool = False) -> View:
    """Raises InvalidOption for a target that cannot be. The status is 1 for a model that does not load there."""
    facts = summary_facts(subject, target, recursive=recursive)
    check_target(target, (facts.get("model") or {}).get("soc"))
    refused = target.is_asked and facts.get("verdict", {}).get("loads") is False
    return View("summary", facts, summary_blocks(facts), status=1 if refused else 0)


def summary_facts(subject: Subject, target: LoadTarget = ANYWHERE, *, recursive: bool = False) -> dict[str, Any]:
    """The document: header and tables always, the model's part where the file has a readable one."""
    facts: dict[str, Any] = {"file": {"path": subject.path, "size": subject.size_bytes, "kind": subject.kind}}
    if subject.kind == "idx":
        return {**facts, **_index_facts(subject)}
    if subject.kind == "rdcpkt":
        return {**facts, **_record_facts(subject)}
    if subject.kind == "session":
        return {**facts, **_session_facts(subject)}
    om = subject.om
    if om is not None:
        facts |= {
            "header": header_json(om),
            "wide": om.wide,
            "model_count": len(om.models),
            "partitions": partition_rows(om),
            "nested": inner_rows(subject, om, recursive=recursive),
        }
    if subject.kind not in ("bundle", "preload"):
        facts |= _model_facts(subject)
    digest = subject.digest_state()
    needs = facts["needs"] = load_needs(subject, facts, target)
    facts["verdict"] = {
        "sound": not subject.faults,
        "digest": digest,
        "problems": [*(fault.message for fault in subject.faults), *lacks(needs)],
        "notes": [
            *["preload model: graph not available"] * (subject.kind == "preload"),
            *(each.message for each in subject.warnings if each.severity == "note"),
        ],
        "target": target.soc,
        "for_version": target.version,
        "loads": loads(needs, not subject.faults, target),
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
        "userdefineinfo": header.userdefineinfo.hex() if any(header.userdefineinfo) else None,
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
    compare_info_list(subject)
    types = Counter(node.type for graph in model.graphs for node in graph.nodes)
    ranked = sorted(types.items(), key=lambda item: (-item[1], item[0]))
    interface = interface_facts(subject) if model.graphs else None
    totals = variable_totals(subject)
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
        "variables": {
            "count": totals.variables,
            "constants": totals.constants,
            "external_weights": totals.external,
            "bytes": totals.placed_bytes,
        },
        "memory": _memory_figures(subject, attrs),
        "feature_io": bytes_in_features(model) if model.graphs else {"inputs": None, "outputs": None},
        "held_weights": None if attrs.get("weight_size") or subject.model_count > 1 else _held_weights(subject),
        "laid_out": _laid_out(subject, attrs),
        "nested_graphs": list(nested_graphs(subject)),
        "memory_segments": _segments(attrs.get("sub_memory_info")),
        "tasks": _tasks_of_all(subject),
        "kernels": _kernel_counts(subject),
        "external_weights": PackedRows(external_weights(subject)).as_list(),
    }


def _memory_figures(subject: Subject, attrs: Mapping[str, Any]) -> dict[str, int]:
    """The sizes and addresses of the root model, with the weights of all models, as a model query counts them."""
    found = {name: attrs[name] for name in MEMORY_ATTRS if isinstance(attrs.get(name), int)}
    if subject.om is not None and subject.model_count > 1:
        areas = (model.partition(PartitionType.WEIGHTS_DATA) for model in subject.om.models)
        found["weight_size"] = sum(area.size_bytes for area in areas if area is not None)
    return found


def _tasks_of_all(subject: Subject) -> dict[str, Any]:
    """How many tasks of which type the models have together."""
    types = Counter[str]()
    for index in range(subject.model_count):
        types.update(task_counts(subject, index)["types"])
    return {"count": types.total(), "types": dict(sorted(types.items()))}


def _held_weights(subject: Subject) -> dict[str, int]:
    """The tensors in the file; bytes that several of them have count once."""
    places: set[tuple[int, int]] = set()
    count = total = 0
    for each in held_tensors(subject):
        source = each.weight.source
        if source.nbytes:
            count += 1
            if isinstance(source, FileSlice):
                places.add((source.offset_bytes, source.nbytes))
            else:
                total += source.nbytes
    end = 0
    for offset, nbytes in sorted(places):
        total += max(0, offset + nbytes - max(end, offset))
        end = max(end, offset + nbytes)
    return {"count": count, "bytes": total}


def _laid_out(subject: Subject, attrs: Mapping[str, Any]) -> str:
    """When feature memory is planned: by the compiler, or where shapes are not known before (om-format.md, dynamic).

    Without its OM a model says so by a size of 0: inputs and outputs alone would take more. One that was not compiled
    has no size at all.
    """
    om = subject.om
    if om is None:
        return "at run time" if attrs.get("memory_size") == 0 else "in the file"
    if attrs.get("memory_size"):
        return "in the file"
    return "at run time" if om.header.is_unknow_model or om.is_mobile else "in the file"


def _segments(rows: Any) -> list[dict[str, Any]]:
    """The parts of feature memory; the last one is that of inputs and outputs (runtime.md 1.3)."""
    names = ("memory_type", "offset", "size", "fixed_address")
    found = (
        [row for row in rows if isinstance(row, tuple) and len(row) == len(names)] if isinstance(rows, tuple) else []
    )
    return [dict(zip(names, row)) for row in found if all(isinstance(item, int) for item in row)]


def _kernel_counts(subject: Subject) -> dict[str, int]:
    if subject.om is None:
        return {"count": 0, "bytes": 0, "libraries": 0}
    code = stored_code(subject)
    size = sum(row["size"] for row in code["kernels"])
    return {"count": len(code["kernels"]), "bytes": size, "libraries": len(code["libraries"])}


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


def _session_facts(subject: Subject) -> dict[str, Any]:
    manager = subject.session()
    resource = manager.resource
    graphs = {*resource.allocated_graph_ids.values(), *resource.changed_graph_ids.values()}
    return {
        "session": {
            "version": manager.version,
            "session_id": manager.session_id,
            "device_id": manager.device_id,
            "job_id": manager.job_id,
            "base": manager.logic_base,
            "variables": len(resource.current_descs),
            "addresses": len(resource.addresses),
            "used_bytes": manager.hbm.used_bytes,
            "variable_limit_bytes": manager.limits.var_max_bytes,
            "graph_limit_bytes": manager.limits.graph_max_bytes,
            "roads": len(resource.roads),
            "changed": sorted(resource.changed_graph_ids),
            "graphs": sorted(graphs),
        }
    }


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


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def oneline(subject: Subject, target: LoadTarget = ANYWHERE, *, recursive: bool = False) -> dict[str, Any]:
    """Path, state, name, SoC, signature and size of one file; no signature where no model can be read.

    The state is that of the summary's verdict, and so is the answer to whether it loads. Raises InvalidOption for a
    target that cannot be.
    """
    facts = summary_facts(subject, target, recursive=recursive)
    model = facts.get("model") or {}
    check_target(target, model.get("soc"))
    io = facts.get("io") or {"inputs": [], "outputs": []}
    verdict = facts.get("verdict")
    faults = [fault.message for fault in subject.faults]
    problems = verdict["problems"] if verdict else faults

    def signature(rows: list[dict[str, Any]]) -> str:
        return ",".join(f"{row['name']}:{dtype_text(row['dtype'])}{shape_text(row['shape'])}" for row in rows)

    return {
        "path": subject.path,
        "ok": not faults,
        "state": "damaged" if faults else "ok",
        "kind": subject.kind,
        "name": model.get("name") or (facts.get("header") or {}).get("name"),
        "soc": model.get("soc"),
        "signature": f"({signature(io['inputs'])}) -> ({signature(io['outputs'])})" if model else None,
        "size": subject.size_bytes,
        "error": faults[0].replace(subject.place, subject.path) if faults else None,
        "problems": [problem.replace(subject.place, subject.path) for problem in problems],
        "loads": verdict["loads"] if verdict else None,
        "answer": (load_answer(facts["needs"], verdict) if verdict else "") or None,
    }
