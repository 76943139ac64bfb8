"""The documents and lines of `gecli cache export` and `gecli cache import` (cache.md 12.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gecli.cache.archive import ArchivedEntry
from gecli.cache.export_archive import ExportPlan
from gecli.cache.import_archive import Imported
from gecli.report.sizes import counted


def export_lines(plan: ExportPlan, output: str) -> list[str]:
    lines = [f"left out  {each.what}  {each.kind}  {each.message}" for each in plan.left_out]
    entries = counted(len(plan.manifest.entries), "entry", "entries")
    weights = f" and {counted(len(plan.manifest.weights), 'weight file')}" if plan.manifest.weights else ""
    versions = sum(len(each.entries) for each in plan.manifest.slices)
    slices = _of_slices(versions)
    return [*lines, f"exported {entries}{weights}{slices} to {output}, {_bytes(plan)} bytes"]


def export_document(directory: str, plan: ExportPlan, output: str) -> dict[str, Any]:
    return {
        "schema": "gecli.cache-export/1",
        "cache_dir": directory,
        "archive": output,
        "bytes": _bytes(plan),
        "entries": [_entry_json(entry) for entry in plan.manifest.entries],
        "weights": [weight._asdict() for weight in plan.manifest.weights],
        "slices": [
            {
                "key": each.key,
                "files": [file._asdict() for file in each.files.values()],
                "versions": [_entry_json(entry) for entry in each.entries],
            }
            for each in plan.manifest.slices
        ],
        "left_out": [
            {"key": each.key, "entry": each.entry, "kind": each.kind, "message": each.message} for each in plan.left_out
        ],
    }


def import_lines(taken: Sequence[Imported]) -> list[str]:
    lines = []
    for each in taken:
        renamed = f" as {each.stem}" if each.stem and each.stem != each.entry.stem else ""
        lines.append(f"{each.state}  {each.entry.stem}{renamed}{f'  {each.why}' if each.why else ''}")
    imported = [each.kind for each in taken if each.state == "imported"]
    present = sum(each.state == "present" and each.kind != "slices" for each in taken)
    count = sum(each.state == "refused" for each in taken)
    refused = f", {count} refused" if count else ""
    entries, versions = counted(imported.count("entry"), "entry", "entries"), _of_slices(imported.count("version"))
    return [*lines, f"imported {entries}{versions}, {present} present already{refused}"]


def _of_slices(versions: int) -> str:
    return f", {counted(versions, 'version')} of slices" if versions else ""


def import_document(directory: str, path: str, taken: Sequence[Imported]) -> dict[str, Any]:
    return {
        "schema": "gecli.cache-import/1",
        "cache_dir": directory,
        "archive": path,
        "entries": [
            {
                "key": each.entry.key,
                "entry": each.stem or None,
                "archived_as": each.entry.stem,
                "kind": each.kind,
                "state": each.state,
                "why": each.why or None,
                "bytes": each.entry.size_bytes,
            }
            for each in taken
        ],
    }


def _entry_json(entry: ArchivedEntry) -> dict[str, Any]:
    return {
        "key": entry.key,
        "entry": entry.stem,
        "files": [file._asdict() for file in entry.files.values()],
        "weights": list(entry.weights),
    }


def _bytes(plan: ExportPlan) -> int:
    return sum(member.size_bytes for member in plan.manifest.members())
