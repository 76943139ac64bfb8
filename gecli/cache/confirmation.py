"""Manual check: entries with user functions are used only after a person confirmed them (cache.md 4.8).

In force with `cache_manual_check` in cache.conf. The confirmation stands in the sidecar; an entry of another tool gets
one that holds nothing else but the facts of its files.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gecli.cache.candidate import damaged_file, missing_file, om_fault
from gecli.cache.index import IndexContent, IndexRecord, UnreadableIndex, read_index
from gecli.cache.layout import OM, SIDECAR, entry_path
from gecli.cache.sidecar import CONFIRMED, SCHEMA, USER_FUNCTIONS, InvalidSidecar, Sidecar, read_sidecar
from gecli.cache.stat_index import StatIndex
from gecli.errors import InvalidOption

if TYPE_CHECKING:
    from gecli.ir.graph import Graph

ENGINE_ATTR, USER_FUNCTION = "_process_node_engine_id", "UDF"


def has_user_functions(graph: Graph) -> bool:
    """Whether the graph or one of its subgraphs is marked as run by a user's function."""
    return any(each.attrs.get(ENGINE_ATTR) == USER_FUNCTION for each in graph.all_graphs())


def confirm_entry(directory: str, key: str, stem: str, mode: int) -> bool:
    """Mark an entry as confirmed; False when it was already. Call it with the key's lock held.

    `mode` is that of new files (`store.file_mode`). Raises InvalidOption for an entry that does not exist or is
    damaged, OSError.
    """
    record = _record(directory, key, stem)
    missing = (record.problem, record.om_name) if record.problem else missing_file(directory, record)
    if missing:
        raise _refused(stem, *missing)
    try:
        sidecar = read_sidecar(directory, key, stem)
    except InvalidSidecar as error:
        raise _refused(stem, "sidecar_invalid", str(error)) from error
    if sidecar is None:
        sidecar = _sidecar_of_foreign(directory, record)
    damage = damaged_file(directory, record, sidecar, StatIndex(trusting=False))
    if damage:
        raise _refused(stem, *damage)
    if sidecar.is_confirmed:
        return False
    from gecli.cache.store import replace_file

    sidecar.content[CONFIRMED] = True
    replace_file(entry_path(directory, stem, SIDECAR), sidecar.text().encode("utf-8", "surrogateescape"), mode)
    return True


def needs_confirmation(directory: str, key: str, stem: str) -> bool:
    """Whether `cache_manual_check` asks for one: not where the sidecar says that the graph has no user functions."""
    try:
        sidecar = read_sidecar(directory, key, stem)
    except (InvalidSidecar, OSError):
        return True
    return sidecar is None or sidecar.content.get(USER_FUNCTIONS) is not False


def _record(directory: str, key: str, stem: str) -> IndexRecord:
    """The index record of an entry; a bare `{key}.om` counts without an index, as in a look-up."""
    try:
        content = read_index(directory, key)
    except UnreadableIndex as error:
        raise _refused(stem, "index_corrupt", str(error)) from error
    if content is None and stem == key and os.path.isfile(entry_path(directory, stem, OM)):
        return IndexRecord(key, f"{key}{OM}", "", {})
    records = [each for each in (content or IndexContent([], [], {})).records if each.graph_key == key]
    for record in records:
        if record.stem == stem:
            return record
    names = ", ".join(record.stem for record in records[-3:])
    raise InvalidOption(
        "E10001",
        f"key {key} has no cache entry {stem!r}",
        why=f"its newest entries: {names}" if names else "the key has no entry",
        file=directory,
        do=f"gecli cache ls --cache-dir {directory} --key {key}",
    )


def _sidecar_of_foreign(directory: str, record: IndexRecord) -> Sidecar:
    """What a confirmation of another tool's entry says: which files were confirmed."""
    if os.path.lexists(entry_path(directory, record.stem, SIDECAR)):
        raise _refused(record.stem, "sidecar_invalid", "its .gecli.json was written by another version of gecli")
    fault = om_fault(entry_path(directory, record.stem, OM))
    if fault:
        raise _refused(record.stem, *fault)
    files: dict[str, Any] = {}
    for kind, name in (("om", record.om_name), ("rdcpkt", record.rdcpkt_name)):
        if name:
            path = os.path.join(directory, name)
            files[kind] = {"size": os.path.getsize(path), "sha256": StatIndex(trusting=False).sha256(path)}
    return Sidecar({"schema": SCHEMA, "graph_key": record.graph_key, "entry": record.stem, "files": files})


def _refused(stem: str, reason: str, evidence: str) -> InvalidOption:
    return InvalidOption("E10001", f"cache entry {stem} cannot be confirmed", why=f"{reason}: {evidence}", kind=reason)
