"""`gecli cache verify`: is every file of a cache directory what it should be (cache.md 12.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gecli.cli.cache_directory import directory_of, is_shared, operands_of, readable, require_cache, writable
from gecli.cli.cache_schema import print_schema
from gecli.cli.invocation import Invocation

if TYPE_CHECKING:
    from gecli.cache.repair import Repairs
    from gecli.cache.verify import Verification
    from gecli.cli.console import Console
    from gecli.options.values import Options

DIFFERS, BUSY = 1, 7


def cache_verify(invocation: Invocation) -> int:
    """Check the cache; with --repair set aside what is damaged and bring indexes in order."""
    options, console = invocation.resolve(), invocation.console
    if options.flag("print-schema"):
        return print_schema(invocation.subcommand, console)
    operands_of(invocation)
    from gecli.cache.verify import verify
    from gecli.report.cache_verify_report import problem_lines, verify_document, verify_summary

    directory = directory_of(options)
    fast, glob = options.flag("fast"), options.text("key")
    with readable(directory):
        found = verify(directory, glob, fast=fast)
    repairs = None
    if options.flag("repair") and found.all_problems:
        require_cache(directory)
        repairs = _repaired(found, options, console)
        with readable(directory):
            found = verify(directory, glob, fast=fast)
    model = options.text("recompile")
    if model:
        _recompile(found, model, glob)
    if console.json:
        console.document(verify_document(found, repairs))
    else:
        console.result("\n".join([*problem_lines(found, repairs), verify_summary(found)]))
    if repairs is not None and repairs.busy:
        _refuse_busy(console, repairs, found.directory)
        return BUSY
    return DIFFERS if found.all_problems else 0


def _repaired(found: Verification, options: Options, console: Console) -> Repairs:
    from gecli.cache.repair import repair

    def waiting(seconds: float, holder: str) -> None:
        console.say(f"waiting {seconds:.0f} s for a key, held by {holder}")

    wait_s = options.number("wait")
    with writable(found.directory, "repair"):
        return repair(
            found, wait_s=60.0 if wait_s is None else wait_s, shared=is_shared(found.directory), on_wait=waiting
        )


def _recompile(found: Verification, model: str, glob: str | None) -> None:
    """Compile the model of every whole entry that came from a file of this name, and compare the files."""
    import os

    from gecli.cache.sidecar import InvalidSidecar, read_sidecar
    from gecli.cache.survey import keys_in, selected
    from gecli.cache.verify import Problem, records_of
    from gecli.compiler.recompile import recompile, source_of
    from gecli.errors import InvalidOption

    damaged = {each.entry for each in found.problems}
    compared = 0
    for key in (each for each in keys_in(os.listdir(found.directory)) if selected(each, glob)):
        for record in records_of(found.directory, key):
            try:
                sidecar = read_sidecar(found.directory, key, record.stem)
            except (InvalidSidecar, OSError):
                continue  # told as a problem
            if sidecar is None or record.stem in damaged or source_of(sidecar) != os.path.basename(model):
                continue
            compared += 1
            outcome = recompile(key, sidecar, model)
            if outcome.state == "differs":
                found.problems.append(Problem("not-reproduced", outcome.message, key, record.stem))
            elif outcome.state != "same":
                found.notes.append(f"entry {record.stem} was not compared: {outcome.message}")
    if not compared:
        raise InvalidOption(
            "E10001",
            f"no whole entry was compiled from a file of the name {os.path.basename(model)}",
            option="--recompile",
            file=model,
            why=f"{found.directory} holds none" + (f" under {glob}" if glob else ""),
            do=f"gecli cache ls --cache-dir {found.directory}",
        )


def _refuse_busy(console: Console, repairs: Repairs, directory: str) -> None:
    from gecli.errors import CacheError

    for key, holder in sorted(repairs.busy.items()):
        message = f"key {key} was not repaired: its lock was not obtained"
        is_closed = key in repairs.closed
        why, do = (
            (holder, "check the permissions of the .lock files") if is_closed else (f"held by {holder}", "raise --wait")
        )
        error = CacheError("G5001", message, why=why, do=do, file=directory)
        console.report(error.diagnostics)
