"""Tables and documents of `gecli cache ls` and `gecli cache gc` (cache.md 12.1, 12.3)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from gecli.cache.cache_conf import NAME
from gecli.cache.gc_actions import Action, Outcome
from gecli.cache.survey import JIT, EntryRow, LooseFile, Survey
from gecli.cache.weight_sweep import combined_shares
from gecli.report.sizes import counted, size_text
from gecli.report.times import local_text, utc_text

COLUMNS = ("KEY", "ENTRY", "LAYER", "CREATED", "LAST USED", "SIZE", "WEIGHTS", "VARS", "FP", "BY", "STATE")
RIGHT = ("SIZE", "WEIGHTS")
# What a narrow terminal does without, the first first. ENTRY begins with the key and is never left out.
DISPENSABLE = ("LAYER", "BY", "WEIGHTS", "VARS", "FP", "CREATED", "KEY", "LAST USED", "SIZE")
GAP = 2  # between columns
QUIET_STATES = ("ok", "foreign", "legacy", "busy")
FP_DIGITS = 12
OP_LAYER = "op layer: in-process only"


def ls_lines(rows: Sequence[EntryRow], found: Survey) -> list[str]:
    """Plain columns for pipes: raw bytes, ISO times, two blanks between columns."""
    cells = [COLUMNS, *(_cells(row, human=False) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(COLUMNS))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in cells]
    return [*lines, footer(rows, found, human=False)]


def ls_table(rows: Sequence[EntryRow], found: Survey, width: int, *, color: bool) -> str:
    """The same as a table for a terminal, without the columns that it has no room for; no cell is ever folded."""
    import io

    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table

    cells = [dict(zip(COLUMNS, _cells(row, human=True))) for row in rows]
    widths = {name: max(cell_len(row[name]) for row in [{name: name}, *cells]) for name in COLUMNS}
    hidden = _hidden(widths, width)
    shown = [name for name in COLUMNS if name not in hidden]
    width = max(width, _total([widths[name] for name in shown]))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in shown:
        table.add_column(name, justify="right" if name in RIGHT else "left", no_wrap=True)
    for row, texts in zip(rows, cells):
        table.add_row(*(texts[name] for name in shown), style="" if row.state in QUIET_STATES else "yellow")
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=color, no_color=not color, highlight=False)
    console.print(table)
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    lines += [f"no room for {', '.join(name for name in COLUMNS if name in hidden)}"] if hidden else []
    return "\n".join([*lines, footer(rows, found, human=True)])


def _hidden(widths: dict[str, int], width: int) -> list[str]:
    """The columns to leave out so that the others have room; those that are never left out may need more."""
    hidden: list[str] = []
    for name in DISPENSABLE:
        if _total([each for column, each in widths.items() if column not in hidden]) <= width:
            break
        hidden.append(name)
    return hidden


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def footer(rows: Sequence[EntryRow], found: Survey, *, human: bool) -> str:
    totals = totals_of(rows, found)
    shown = size_text if human else str
    weights = f"{shown(totals['weights_bytes'])} bytes of weights, " if totals["weights_bytes"] else ""
    if totals["unreferenced_weights_bytes"]:
        weights += f"{shown(totals['unreferenced_weights_bytes'])} bytes of weights that no entry refers to, "
    aside = f"{shown(totals['quarantine_bytes'])} bytes set aside, " if found.quarantined else ""
    return (
        (
            f"{counted(totals['entries'], 'entry', 'entries')}, {counted(totals['keys'], 'key')}, "
            f"{shown(totals['bytes'])} bytes, {weights}{aside}"
            f"{shown(totals['reclaimable_bytes'])} reclaimable; {OP_LAYER}"
        )
        .replace("B bytes", "B")
        .replace("iB bytes", "iB")
    )


def files_lines(rows: Sequence[EntryRow], found: Survey) -> list[str]:
    """Every file with its owner, an entry or in brackets what it is (--files)."""
    return [f"{name}  {owner}" for name, owner in owners_of_files(rows, found)]


def owners_of_files(rows: Sequence[EntryRow], found: Survey) -> list[tuple[str, str]]:
    """(name below the directory, owner) of the files of the entries shown, of their keys, and of those without one."""
    owned = _owners_in(found, [row for row in rows if row.layer != JIT])
    if found.jit is not None:
        inner = _owners_in(found.jit, [row for row in rows if row.layer == JIT])
        owned += [(f"{JIT}/{name}", owner) for name, owner in inner]
    return owned


def _owners_in(found: Survey, rows: Sequence[EntryRow]) -> list[tuple[str, str]]:
    import os

    from gecli.cache.index import SUFFIX
    from gecli.cache.recovery import files_of
    from gecli.cache.weight_files import FOLDER, weight_files_of

    owned = [(os.path.basename(path), row.stem) for row in rows for path in files_of(found.directory, row.stem)]
    owned += [
        (os.path.join(row.stem, name), row.stem)
        for row in rows
        if row.is_slicing
        for name in sorted(found.slicings[row.key].files)
    ]
    weights: dict[str, list[str]] = {}
    for row in rows:
        for name in weight_files_of(row.weights):
            weights.setdefault(name, []).append(row.stem)
    owned += [(os.path.join(FOLDER, name), ", ".join(stems)) for name, stems in sorted(weights.items())]
    indexes = [f"{key}{SUFFIX}" for key in dict.fromkeys([*(row.key for row in rows), *found.broken_indexes])]
    owned += [(name, "(index)") for name in sorted(indexes) if os.path.lexists(os.path.join(found.directory, name))]
    if os.path.isfile(os.path.join(found.directory, NAME)):
        owned.append((NAME, "(settings)"))
    owned += _other_weights(found.directory, weights.keys())
    return [*owned, *((os.path.relpath(each.path, found.directory), f"({each.kind})") for each in found.loose)]


def _other_weights(directory: str, known: Collection[str]) -> list[tuple[str, str]]:
    """Files of the weight directory that no entry shown refers to."""
    import os

    from gecli.cache.weight_files import FOLDER, weight_dir
    from gecli.planning.weight_names import META_NAME

    try:
        names = sorted(set(os.listdir(weight_dir(directory))) - set(known))
    except OSError:
        return []
    return [(os.path.join(FOLDER, name), "(index)" if name == META_NAME else "(no entry shown)") for name in names]


def totals_of(rows: Sequence[EntryRow], found: Survey) -> dict[str, int]:
    """Sums over the rows shown; reclaimable is what a plain gc removes, whatever is shown."""
    entries = [row for row in rows if not row.is_slicing]
    return {
        "entries": len(entries),
        "keys": len({row.key for row in entries}),
        "bytes": sum(row.size_bytes for row in rows),
        "slices_bytes": sum(row.size_bytes for row in rows if row.is_slicing),
        "quarantine_bytes": sum(each.size_bytes for each in found.quarantined),
        "weights_bytes": found.weights_bytes(rows),
        "unreferenced_weights_bytes": found.unreferenced_bytes,
        "reclaimable_bytes": found.reclaimable_bytes,
    }


def ls_document(rows: Sequence[EntryRow], found: Survey, *, with_files: bool = False) -> dict[str, Any]:
    files = {"files": [{"path": name, "owner": owner} for name, owner in owners_of_files(rows, found)]}
    layers = found.layers
    return {
        **(files if with_files else {}),
        "schema": "gecli.cache-ls/1",
        "cache_dir": found.directory,
        "entries": [_entry_json(row) for row in rows if not row.is_slicing],
        "slices": [_slices_json(row, found) for row in rows if row.is_slicing],
        "loose_files": [_loose_json(each) for layer in layers for each in layer.loose],
        "broken_indexes": [key for layer in layers for key in layer.broken_indexes],
        "totals": totals_of(rows, found),
    }


def action_line(action: Action) -> str:
    """One line of the list that dry run and run print alike."""
    size = f"  {action.size_bytes} bytes" if action.verb == "remove" else ""
    return f"{action.verb}  {action.what}  ({action.why}){size}"


def gc_summary(outcome: Outcome, *, dry_run: bool) -> str:
    removed = [each for each in outcome.done if each.verb == "remove"]
    verb = "would remove" if dry_run else "removed"
    return f"{verb} {len(removed)}, {'frees' if dry_run else 'freed'} {outcome.freed_bytes} bytes"


def unknown_files(found: Survey) -> list[str]:
    """Files that are none of a cache; nobody removes them."""
    import os

    layers = found.layers
    names = [each.path for layer in layers for each in layer.loose if each.kind == "unknown"]
    return [os.path.relpath(path, found.directory) for path in names]


def gc_document(found: Survey, outcome: Outcome, *, dry_run: bool) -> dict[str, Any]:
    return {
        "schema": "gecli.cache-gc/1",
        "cache_dir": found.directory,
        "dry_run": dry_run,
        "actions": [_action_json(each) for each in outcome.done],
        "spared": [_action_json(each) for each in outcome.spared],
        "busy": outcome.busy,
        "notes": outcome.notes,
        "unknown_files": unknown_files(found),
        "combined_weights": [
            {"file": name, "bytes": size, "unreferenced_bytes": max(size - used, 0)}
            for name, (used, size) in combined_shares(
                found.directory, (each for row in found.rows for each in row.weights)
            ).items()
        ],
        "freed_bytes": outcome.freed_bytes,
    }


def _cells(row: EntryRow, *, human: bool) -> tuple[str, ...]:
    return (
        row.key,
        row.stem,
        row.layer,
        *(local_text(each) if human else utc_text(each) for each in (row.created_s, row.used_s)),
        size_text(row.size_bytes) if human else str(row.size_bytes),
        (size_text(row.weights_bytes) if human and row.weights else str(row.weights_bytes))
        + ("*" if row.shares_weights else ""),
        f"{row.before_count}/{row.after_count}",
        row.fingerprint[:FP_DIGITS] or "-",
        row.made_by,
        row.state,
    )


def _entry_json(row: EntryRow) -> dict[str, Any]:
    return {
        "key": row.key,
        "entry": row.stem,
        "layer": row.layer,
        "created": utc_text(row.created_s),
        "last_used": utc_text(row.used_s),
        "size": row.size_bytes,
        "weights": row.weights_bytes,
        "shares_weights": row.shares_weights,
        "vars": {"before": row.before_count, "after": row.after_count},
        "fp": row.fingerprint or None,
        "by": row.made_by,
        "state": row.state,
        "problems": list(row.problems),
    }


def _slices_json(row: EntryRow, found: Survey) -> dict[str, Any]:
    """The slices of one graph: how many there are, with how many versions."""
    assert found.jit is not None
    slicing = found.jit.slicings[row.key]
    return {
        "key": row.key,
        "path": f"{JIT}/{row.stem}",
        "slices": len(slicing.versions),
        "versions": len(slicing.listed),
        "created": utc_text(row.created_s),
        "last_used": utc_text(row.used_s),
        "size": row.size_bytes,
        "fp": row.fingerprint or None,
        "by": row.made_by,
        "state": row.state,
        "problems": list(row.problems),
        "why": slicing.fault or None,
    }


def _loose_json(each: LooseFile) -> dict[str, Any]:
    return {"path": each.path, "kind": each.kind, "size": each.size_bytes, "key": each.key or None}


def _action_json(action: Action) -> dict[str, Any]:
    return {
        "verb": action.verb,
        "what": action.what,
        "key": action.key or None,
        "why": action.why,
        "bytes": action.size_bytes,
    }
