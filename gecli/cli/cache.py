"""`gecli cache ls` and `gecli cache gc`: options in, exit status out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gecli.cli.cache_directory import count_unreferenced, is_shared, operands_of, require_cache, surveyed, writable
from gecli.cli.cache_schema import print_schema
from gecli.cli.invocation import Invocation

if TYPE_CHECKING:
    from gecli.cache.gc_actions import Action, GcPolicy, Outcome
    from gecli.cache.survey import EntryRow, Survey
    from gecli.cli.console import Console
    from gecli.options.values import Options

BUSY = 7


def cache_ls(invocation: Invocation) -> int:
    """List the entries of a cache directory."""
    options, console = invocation.resolve(), invocation.console
    if options.flag("print-schema"):
        return print_schema(invocation.subcommand, console)
    from gecli.report.cache_report import files_lines, ls_document, ls_lines, ls_table

    operands_of(invocation)
    found = surveyed(options)
    found.reclaimable_bytes = _reclaimable(found)
    count_unreferenced(found)
    rows = _shown_rows(options, found)
    if states := _states(options):
        for layer in found.layers:
            layer.loose = [each for each in layer.loose if each.kind in states]
            layer.broken_indexes = layer.broken_indexes if "index-corrupt" in states else []
    _tell_broken_indexes(found, console)
    if console.json:
        console.document(ls_document(rows, found, with_files=options.flag("files")))
    elif options.flag("files"):
        console.result("\n".join(files_lines(rows, found)))
    elif console.stdout.isatty():
        import shutil

        width = shutil.get_terminal_size().columns
        console.result(ls_table(rows, found, width, color=console.colored(console.stdout)))
    else:
        console.result("\n".join(ls_lines(rows, found)))
    return 0


def _reclaimable(found: Survey) -> int:
    """What a plain gc would free now."""
    from gecli.cache.gc import select
    from gecli.cache.gc_actions import GcPolicy

    return sum(each.size_bytes for each in select(found, GcPolicy(), time.time()) if each.verb == "remove")


def _broken_indexes(found: Survey) -> list[tuple[str, str]]:
    return [(layer.directory, key) for layer in found.layers for key in layer.broken_indexes]


def _tell_broken_indexes(found: Survey, console: Console) -> None:
    from gecli.errors import Diagnostic

    console.report(
        Diagnostic(
            "G5002", f"the index of key {key} cannot be read", severity="warning", kind="index_corrupt",
            why="it is damaged, or this user may not read it", file=f"{directory}/{key}.idx",
            do=f"gecli cache verify --cache-dir {found.directory} --key {key} --repair",
        )
        for directory, key in _broken_indexes(found)
    )  # fmt: skip


def cache_gc(invocation: Invocation) -> int:
    """Remove garbage, and what the policy flags name, from a cache directory."""
    options, console = invocation.resolve(), invocation.console
    if options.flag("print-schema"):
        return print_schema(invocation.subcommand, console)
    from gecli.cache.gc import select
    from gecli.cache.gc_actions import Outcome
    from gecli.cache.gc_limit import above_limit
    from gecli.report.cache_report import action_line, gc_document, gc_summary, unknown_files

    operands_of(invocation)
    found = surveyed(options)
    require_cache(found.directory)
    policy = _policy(options)
    wait_s = options.number("wait") or 0.0
    notes: list[str] = []
    now = time.time()
    actions = select(found, policy, now, skip_busy=wait_s == 0, notes=notes)
    above = above_limit(found, policy, now, actions)
    dry_run = options.flag("dry-run")
    if not dry_run and not _confirmed(options, console, len(actions)):
        console.say("nothing was removed")
        return 0
    if dry_run:
        busy = {key for layer in found.layers for key in layer.busy_keys}
        outcome = Outcome(done=actions, busy=sorted(busy))
    else:
        outcome = _collected(found, actions, wait_s, policy)
    outcome.notes = [*notes, *outcome.notes]
    if above is not None:
        outcome.notes.append(above.note)
        outcome.spared += above.spared
    if console.json:
        if outcome.done or not outcome.failures:
            console.document(gc_document(found, outcome, dry_run=dry_run))
    else:
        console.result("\n".join([*map(action_line, outcome.done), gc_summary(outcome, dry_run=dry_run)]))
    for note in outcome.notes:
        console.say(note)
    for name in unknown_files(found):
        console.say(f"{name} is no file of a cache and was left alone", level=1)
    for key in outcome.busy:
        console.say(f"key {key} is in use and was left alone")
    if outcome.failures:
        with writable(found.directory, "remove from"):
            raise outcome.failures[0]
    return BUSY if outcome.busy and wait_s > 0 else 0


def _collected(found: Survey, actions: list[Action], wait_s: float, policy: GcPolicy) -> Outcome:
    from gecli.cache.gc import collect

    lock_age_s = policy.lock_age_s if policy.locks and found.key_glob is None else None
    with writable(found.directory, "remove from"):
        return collect(
            found,
            actions,
            wait_s=wait_s,
            shared=is_shared(found.directory),
            grace_s=policy.grace_s,
            lock_age_s=lock_age_s,
        )


def _shown_rows(options: Options, found: Survey) -> list[EntryRow]:
    """The rows that pass the filters, in the order asked for."""
    from gecli.cache.survey import STATES

    wanted = _states(options)
    older, larger, layer = options.get("older-than"), options.get("larger-than"), options.text("layer")
    now = time.time()
    rows = [
        row
        for row in found.all_rows
        if (not wanted or row.state in wanted or any(each in wanted for each in row.problems))
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


def _states(options: Options) -> list[str]:
    """The states of --state. Raises InvalidOption for one that there is not."""
    from gecli.cache.survey import OF_FILES, STATES
    from gecli.errors import InvalidOption

    wanted = [name.strip() for name in (options.text("state") or "").split(",") if name.strip()]
    legal = tuple(dict.fromkeys((*STATES, *OF_FILES)))
    unknown = [name for name in wanted if name not in legal]
    if unknown:
        raise InvalidOption(
            "E10001", f'unknown state "{unknown[0]}"', option="--state", why=f"states: {', '.join(legal)}"
        )
    return wanted


def _policy(options: Options) -> GcPolicy:
    from gecli.cache.gc_actions import LOCK_AGE_S, GcPolicy

    states = [name for name in ("superseded", "foreign", "shadowed", "stale-toolchain") if options.flag(name)]
    states += ["legacy"] if options.flag("foreign") else []
    classes = [
        name for name in ("unreferenced-weights", "orphans", "tmp", "broken", "quarantine") if options.flag(name)
    ]
    grace = options.get("grace")
    return GcPolicy(
        max_age_s=options.get("max-age"),
        max_size_bytes=options.get("max-size"),
        keep_last=options.integer("keep-last"),
        states=frozenset(states),
        everything=options.flag("all"),
        only=frozenset(name.replace("-", "_") for name in classes),
        locks=options.flag("locks"),
        lock_age_s=float(grace) if grace is not None and options.is_set("grace") else LOCK_AGE_S,
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
