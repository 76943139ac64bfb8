"""Sessions that `gecli run` goes on with: their files, and the data of placeholders."""

from __future__ import annotations

import difflib
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from gecli.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gecli.cli.console import Console
    from gecli.options.values import Options
    from gecli.runtime.model import LoadedModel
    from gecli.runtime.session import Session
    from gecli.runtime.session_table import SessionTable


def session_locks(options: Options) -> AbstractContextManager[None]:
    """Keep other commands from the session files meanwhile. Raises CacheError, InputError and OutputError.

    A command that only reads needs no lock: snapshots appear whole.
    """
    target = options.text("session-out")
    if not target:
        return nullcontext()
    from gecli.artifacts.session_file import locked_sessions

    timeout = options.number("lock-timeout")
    return locked_sessions(options.text("session-in"), target, 60.0 if timeout is None else timeout)


def session_table(options: Options, console: Console) -> SessionTable:
    """The table of the session that the command goes on with, or begins. Raises InputError."""
    from gecli.runtime.session_table import SessionTable

    start = options.text("session-in")
    if not start:
        return SessionTable()
    from gecli.artifacts.session_file import read_session

    table = SessionTable(read_session(start), start)
    console.say(f"continues the session {start}: {len(table.found)} variables", level=1)
    return table


def save_session(options: Options, table: SessionTable, console: Console) -> None:
    """Raises OutputError."""
    from gecli.artifacts.publish import after_publication
    from gecli.artifacts.session_file import write_session

    target = options.text("session-out") or ""
    table.manager.device_id = int((options.text("device") or "0").partition(",")[0])
    write_session(table.manager, target)
    count = len(table.manager.resource.current_descs)
    after_publication(partial(console.say, f"saved the session of {count} variables to {target}", level=1))


def session_member(options: Options, session: Session) -> dict[str, Any]:
    """The members of the document about the session's files and its variable area; none without the options."""
    table = session.table
    if table is None:
        return {}
    members: dict[str, Any] = {}
    if options.text("session-in") or options.text("session-out"):
        members["session"] = {
            "in": options.text("session-in"),
            "out": options.text("session-out"),
            "variables": sorted(table.manager.resource.current_descs),
            "added": table.added,
        }
    if session.external_bytes is not None:
        members["external_var"] = {"bytes": session.external_bytes, "used_bytes": table.needed_bytes}
    return members


def placeholder_values(options: Options) -> dict[str, Any]:
    """The arrays of --placeholder by node name. Raises InvalidOption and InputError."""
    from gecli.runtime.array_files import read_npy

    found: dict[str, Any] = {}
    for item in options.texts("placeholder"):
        name, _, path = item.partition("=")
        if name in found:
            raise InvalidOption(
                "E10001", f"--placeholder names {name!r} twice", option="--placeholder",
                why="one value belongs to a placeholder", do=f"leave out --placeholder {item}",
            )  # fmt: skip
        found[name] = read_npy(path)
    return found


def check_placeholder_names(options: Options, models: Iterable[LoadedModel]) -> None:
    """Raises InvalidOption for a --placeholder that no model has."""
    names = sorted({name for model in models for name in model.placeholders})
    for item in options.texts("placeholder"):
        name = item.partition("=")[0]
        if name in names:
            continue
        near = difflib.get_close_matches(name, names, n=1) or names[:1]
        raise InvalidOption(
            "E10016", f"--placeholder names {name!r}, which is no placeholder of the models", option="--placeholder",
            why=f"their placeholders: {', '.join(names) or 'none'}", expected=names, actual=name,
            do=f"--placeholder {near[0]}=FILE.npy" if near else "leave out --placeholder",
        )  # fmt: skip
