"""Compiles that go on from one command to the next: --session-in and --session-out (variables.md 6, 15.3)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

from gecli.artifacts.session_file import locked_sessions, read_session, write_session
from gecli.compiler.session import Session
from gecli.options.values import Options
from gecli.variables.limits import MemoryLimits


def locked_session_files(options: Options) -> AbstractContextManager[None]:
    """Hold the locks of the session files that the options name. Raises as `locked_sessions`."""
    timeout = options.number("lock-timeout")
    return locked_sessions(
        options.text("session-in"), options.text("session-out"), 60.0 if timeout is None else timeout
    )


def continue_session(session: Session, path: str) -> None:
    """Start an empty session with the variables of a snapshot; limits that options give replace those of the file.

    Its variables keep their format: the models compiled with them cannot be compiled again here. Raises InputError.
    """
    manager = read_session(path)
    resource = manager.resource
    if session.limits != MemoryLimits():
        manager.configure(replace(session.limits, var_logic_base=manager.logic_base))
    manager.padding_bytes = session.platform.padding_bytes
    session.manager = manager
    for name in sorted(resource.current_descs):
        session.rebuild.state_changed(name)
    used = [*resource.changed_graph_ids.values(), *resource.allocated_graph_ids.values()]
    session.first_graph_id = max(used, default=0) + 1


def save_session(session: Session, path: str, *, seed_keys: bool = False) -> None:
    """Write the snapshot that a later command continues from. Raises OutputError."""
    write_session(session.manager, path, seed_keys=seed_keys)
