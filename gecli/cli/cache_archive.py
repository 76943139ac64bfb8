"""`gecli cache export` and `gecli cache import`: entries as one file (cache.md 12.5)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gecli.cli.cache_directory import (
    directory_of,
    is_shared,
    operands_of,
    readable,
    require_cache,
    writable,
)
from gecli.cli.cache_entry import require_key
from gecli.cli.cache_schema import print_schema
from gecli.cli.invocation import Invocation

if TYPE_CHECKING:
    from gecli.cache.export_archive import ExportPlan
    from gecli.cache.import_archive import Imported
    from gecli.cli.console import Console
    from gecli.options.values import Options

DIFFERS = 1
STDOUT = "/dev/stdout"
TAR = ".tar"


def cache_export(invocation: Invocation) -> int:
    """Write entries with their weights into an archive; 1 when damaged ones had to be left out."""
    options, console = invocation.resolve(), invocation.console
    if options.flag("print-schema"):
        return print_schema(invocation.subcommand, console)
    key, stem = operands_of(invocation, "KEY", "ENTRY", optional=1 if not options.text("key") else 2)
    directory = directory_of(options)
    from gecli.cache.export_archive import plan_export
    from gecli.report.cache_archive_report import export_document, export_lines

    if key:
        require_key(key)
    keys = _keys(directory, key, options.text("key"))
    with readable(directory):
        os.listdir(directory)  # one that is closed has no entries that could be judged
        plan = plan_export(directory, keys, stem)
    output = _output(options)
    if plan.manifest.is_empty:
        _refuse_nothing(plan, directory, key or options.text("key") or "", stem)
    _write(plan, output)
    show = console.say if output == STDOUT else console.result
    show("\n".join(export_lines(plan, output)))
    if console.json:
        console.document(export_document(directory, plan, output))
    return DIFFERS if plan.left_out else 0


def cache_import(invocation: Invocation) -> int:
    """Take the entries of an archive into the cache; 1 when one could not be taken."""
    options, console = invocation.resolve(), invocation.console
    if options.flag("print-schema"):
        return print_schema(invocation.subcommand, console)
    (path,) = operands_of(invocation, "ARCHIVE")
    directory = directory_of(options, may_make=True)
    if os.path.isdir(directory):
        require_cache(directory)
    from gecli.report.cache_archive_report import import_document, import_lines

    taken = _imported(directory, path, options, console)
    console.result("\n".join(import_lines(taken)))
    if console.json:
        console.document(import_document(directory, path, taken))
    return DIFFERS if any(each.state == "refused" for each in taken) else 0


def _keys(directory: str, key: str, glob: str | None) -> list[str]:
    """The keys to export: the one that is named, or those that fit the pattern."""
    import fnmatch

    from gecli.cache.jit_survey import user_keys
    from gecli.cache.survey import keys_in

    if key:
        return [key]
    with readable(directory):
        keys = sorted({*keys_in(os.listdir(directory)), *user_keys(directory)})
    return [each for each in keys if fnmatch.fnmatchcase(each, glob or "")]


def _output(options: Options) -> str:
    from gecli.errors import InvalidOption

    output = options.text("output")
    if not output:
        raise InvalidOption("E10054", "required option --output is missing", do="-o FILE.tar")
    return STDOUT if output == "-" else output


def _refuse_nothing(plan: ExportPlan, directory: str, key: str, stem: str) -> None:
    """Raises InputError for entries that are all damaged, InvalidOption for a name without an entry."""
    from gecli.errors import Diagnostic, InputError, InvalidOption

    if plan.left_out:
        do = f"gecli cache verify --cache-dir {directory} --repair"
        raise InputError.of(
            Diagnostic("G3001", f"entry {each.what} is damaged", why=f"{each.kind}: {each.message}", do=do)
            for each in plan.left_out
        )
    raise InvalidOption(
        "E10001",
        f"key {key!r} has no entry {stem}".rstrip() if stem else f"no entry has the key {key!r}",
        why=f"there is none in {directory}",
        do=f"gecli cache ls --cache-dir {directory}",
    )


def _write(plan: ExportPlan, output: str) -> None:
    import os

    from gecli.artifacts.publish import publishing, remove_left_behind
    from gecli.cache.export_archive import write_archive
    from gecli.errors import InputError

    if output.endswith(TAR):
        remove_left_behind(os.path.dirname(os.path.realpath(output)), TAR)
    try:
        with publishing(output) as stream:
            write_archive(stream, plan)
    except OSError as error:
        why = error.strerror or str(error)
        file = str(error.filename or "")
        raise InputError("E13001", f"cannot read {file}", why=why, file=file, do="export again") from error


def _imported(directory: str, path: str, options: Options, console: Console) -> list[Imported]:
    from gecli.cache.archive import DamagedArchive, reading
    from gecli.cache.cache_conf import BrokenConf, read_cache_conf
    from gecli.cache.import_archive import import_entries
    from gecli.cache.lock import LockTimeout, LockUnavailable
    from gecli.cache.store import file_mode
    from gecli.errors import CacheError, InputError

    def waiting(seconds: float, holder: str) -> None:
        console.say(f"waiting {seconds:.0f} s for a key, held by {holder}")

    try:
        style = read_cache_conf(directory).timestamp
    except BrokenConf:
        style = "seed"
    wait_s = options.number("wait")
    taken: list[Imported] = []
    try:
        with reading(path) as archive:
            if not os.path.isdir(directory):  # made for an archive that can be read, with --cache-create
                with writable(directory, "make the cache directory"):
                    os.makedirs(directory, mode=0o700, exist_ok=True)
            with writable(directory, "import into"):
                taken.extend(
                    import_entries(
                        directory,
                        archive,
                        key_glob=options.text("key"),
                        wait_s=60.0 if wait_s is None else wait_s,
                        mode=file_mode(is_shared(directory)),
                        style=style,
                        on_wait=waiting,
                    )
                )
        return taken
    except DamagedArchive as error:
        do = f"export it again{_what_stays(taken)}"
        raise InputError("G5004", f"archive {path} cannot be imported", why=str(error), file=path, do=do) from error
    except LockTimeout as error:
        message = f"the lock of a key was not obtained{_what_stays(taken)}"
        raise CacheError("G5001", message, why=f"held by {error}", do="raise --wait") from error
    except LockUnavailable as error:
        why, do = str(error), "check the permissions of the .lock files"
        raise CacheError("G5001", "the lock of a key cannot be used", why=why, do=do, file=directory) from error
    except OSError as error:
        why, do = error.strerror or str(error), "name a file that gecli cache export -o wrote"
        raise InputError("E13001", f"archive {path} cannot be read", why=why, file=path, do=do) from error


def _what_stays(taken: list[Imported]) -> str:
    """What a command that stops leaves behind, as the end of a sentence."""
    count = sum(each.state == "imported" for each in taken)
    return f"; {count} imported {'entry stays' if count == 1 else 'entries stay'}" if count else ""
