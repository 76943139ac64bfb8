"""`gecli cache ls` and `gecli cache gc`: options in, exit status out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gecli.cli.invocation import Invocation

if TYPE_CHECKING:
    from gecli.cache.gc import Action, GcPolicy, Outcome
    from gecli.cache.survey import EntryRow, Survey
    from gecli.cli.console import Console
    from gecli.options.values import Options

BUSY = 7


def cache_ls(invocation: Invocation) -> int:
    """List the entries of a cache directory."""
    options, console = invocation.resolve(), invocation.console
    from gecli.report.cache_report import files_lines, ls_document, ls_lines, ls_table

    found = _survey(options)
    rows = _shown_rows(options, found)
    if console.json:
        console.document(ls_document(rows, found))
    elif options.flag("files"):
        console.result("\n".join(files_lines(rows, found)))
    elif console.stdout.isatty():
        import shutil

        width = shutil.get_terminal_size().columns
        console.result(ls_table(rows, found, width, color=console.colored(console.stdout)))
    else:
        console.result("\n".join(ls_lines(rows, found)))
    return 0


def cache_gc(invocation: Invocation) -> int:
    """Remove garbage, and what the policy flags name, from a cache directory."""
    options, console = invocation.resolve(), invocation.console
    from gecli.cache.gc import Outcome, select
    from gecli.report.cache_report import action_line, gc_document, gc_summary

    found = _survey(options)
    _require_cache(found.directory)
    policy = _policy(options)
    wait_s = options.number("wait") or 0.0
    actions = select(found, policy, time.time(), skip_busy=wait_s == 0)
    dry_run = options.flag("dry-run")
    if not dry_run and not _confirmed(options, console, len(actions)):
        console.say("nothing was removed")
        return 0
    if dry_run:
        outcome = Outcome(done=actions, busy=sorted(found.busy_keys))
    else:
        outcome = _collected(found, actions, wait_s)
    if console.json:
        console.document(gc_document(found, outcome, dry_run=dry_run))
    else:
        console.result("\n".join([*map(action_line, outcome.done), gc_summary(outcome, dry_run=dry_run)]))
    for key in outcome.busy:
        console.say(f"key {key} is in use and was left alone")
    return BUSY if outcome.busy and wait_s > 0 else 0


def _collected(found: Survey, actions: list[Action], wait_s: float) -> Outcome:
    from gecli.cache.cache_conf import BrokenConf, read_cache_conf
    from gecli.cache.gc import collect
    from gecli.errors import OutputError

    try:
        shared = read_cache_conf(found.directory).shared
    except BrokenConf:
        shared = False  # collecting garbage needs nothing else from it
    try:
        return collect(found, actions, wait_s=wait_s, shared=shared)
    except OSError as error:
        why = error.strerror or str(error)
        raise OutputError("G6001", f"cannot remove from {found.directory}", why=why, file=error.filename) from error


def _survey(options: Options) -> Survey:
    """What is in the directory. Raises InvalidOption when there is none."""
    import os

    from gecli.cache.survey import survey
    from gecli.errors import InvalidOption

    directory = options.text("ge.graph_compiler_cache_dir")
    if not directory:
        raise InvalidOption("E10054", "required option --cache-dir is missing", do="--cache-dir DIR")
    if not os.path.isdir(directory):
        raise InvalidOption(
            "E13026", f"the cache directory {directory} does not exist", option="--cache-dir", file=directory,
            why="it is a file" if os.path.lexists(directory) else "No such file or directory",
            do="name the directory that gecli compile --cache-dir was given",
        )  # fmt: skip
    try:
        return survey(directory, options.text("key"))
    except OSError as error:
        why = error.strerror or str(error)
        do = "check its permissions"
        raise InvalidOption("E13026", f"the cache directory {directory} cannot be read", why=why, do=do) from error


def _require_cache(directory: str) -> None:
    """Refuse to remove files from a directory that no compile has used as a cache."""
    import os

    from gecli.cache.index import SUFFIX
    from gecli.cache.layout import PRIVATE
    from gecli.errors import InvalidOption

    names = os.listdir(directory)
    if all(name.endswith(".lock") for name in names):
        return  # a compile is about to make the cache, or there was one
    if not any(name in (PRIVATE, "cache.conf") or name.endswith(SUFFIX) for name in names):
        raise InvalidOption(
            "E13026",
            f"{directory} is not a compile cache",
            why=f"it has no index (*{SUFFIX}), no cache.conf and no {PRIVATE}",
            option="--cache-dir",
            file=directory,
            do="name the directory that gecli compile --cache-dir was given",
        )


def _shown_rows(options: Options, found: Survey) -> list[EntryRow]:
    """The rows that pass the filters, in the order asked for."""
    from gecli.cache.survey import STATES
    from gecli.errors import InvalidOption

    wanted = [name.strip() for name in (options.text("state") or "").split(",") if name.strip()]
    unknown = [name for name in wanted if name not in STATES]
    if unknown:
        raise InvalidOption(
            "E10001", f'unknown state "{unknown[0]}"', option="--state", why=f"states: {', '.join(STATES)}"
        )
    older, larger, layer = options.get("older-than"), options.get("larger-than"), options.text("layer")
    now = time.time()
    rows = [
        row
        for row in found.rows
        if (not wanted or row.state in wanted)
        and (older is None or now - row.used_s > older)
        and (larger is None or row.size_bytes > larger)
        and (layer is None or row.layer == layer)
    ]
    orders = {
        "key": lambda row: (row.key, row.created_s, row.stem),
        "created": lambda row: (row.created_s, row.stem),
        "used": lambda row: (row.used_s, row.stem),
        "size": lambda row: (row.size_bytes, row.stem),
        "state": lambda row: (STATES.index(row.state), row.key, row.stem),
    }
    return sorted(rows, key=orders[options.text("sort") or "key"], reverse=options.flag("reverse"))


def _policy(options: Options) -> GcPolicy:
    from gecli.cache.gc import GcPolicy

    states = [name for name in ("superseded", "foreign", "shadowed", "stale-toolchain") if options.flag(name)]
    states += ["legacy"] if options.flag("foreign") else []
    classes = [name for name in ("unreferenced-weights", "orphans", "tmp", "broken") if options.flag(name)]
    grace = options.get("grace")
    return GcPolicy(
        max_age_s=options.get("max-age"),
        max_size_bytes=options.get("max-size"),
        keep_last=options.integer("keep-last"),
        states=frozenset(states),
        everything=options.flag("all"),
        only=frozenset(name.replace("-", "_") for name in classes),
        locks=options.flag("locks"),
        grace_s=3600.0 if grace is None else float(grace),
        free_bytes=options.get("free"),
        protect_last=options.flag("protect-last"),
    )


def _confirmed(options: Options, console: Console, count: int) -> bool:
    """Ask before --all and --max-size, but only a person: never in a pipe."""
    import sys

    asks = options.flag("all") or options.get("max-size") is not None
    if not asks or options.flag("yes") or not count or not sys.stdin.isatty() or not console.stdout.isatty():
        return True
    console.say(f"remove {count} entries and files? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
