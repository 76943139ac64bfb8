"""The directory that a command below `gecli cache` works on, and what may be wrong with it (cli.md 4)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gecli.cli.invocation import Invocation

if TYPE_CHECKING:
    from gecli.cache.survey import Survey
    from gecli.options.values import Options

MADE_BY = "name the directory that gecli compile --cache-dir was given"


def directory_of(options: Options, *, may_make: bool = False) -> str:
    """The cache directory. Raises InvalidOption when none is named or it does not exist; none is made here.

    With `may_make`, of a command that has --cache-create, that option lets it be missing.
    """
    import os

    from gecli.errors import InvalidOption

    directory = options.text("ge.graph_compiler_cache_dir")
    if not directory:
        raise InvalidOption("E10054", "required option --cache-dir is missing", do="--cache-dir DIR")
    is_there = os.path.lexists(directory)
    if not os.path.isdir(directory) and (is_there or not (may_make and options.flag("cache-create"))):
        raise InvalidOption(
            "E13026", f"the cache directory {directory} does not exist", option="--cache-dir", file=directory,
            why="it is a file" if is_there else "No such file or directory",
            do="--cache-create makes it" if may_make and not is_there else MADE_BY,
        )  # fmt: skip
    return directory


def surveyed(options: Options) -> Survey:
    """What is in the directory. Raises InvalidOption when it cannot be read."""
    from gecli.cache.survey import survey

    directory = directory_of(options)
    with readable(directory):
        return survey(directory, options.text("key"))


def count_unreferenced(found: Survey) -> None:
    """Add to a survey the bytes of the weight files that no entry refers to, however young they are."""
    import time

    from gecli.cache.gc_limit import unreferenced_weights

    files = [each for layer in found.layers for each in unreferenced_weights(layer.directory, time.time())]
    found.unreferenced_bytes = sum(each.size_bytes for each in files)


@contextmanager
def readable(directory: str) -> Iterator[None]:
    """A block that lists the directory. Raises InvalidOption for an OSError in it."""
    from gecli.errors import InvalidOption

    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidOption(
            "E13026", f"the cache directory {directory} cannot be read", why=why, do="check its permissions"
        ) from error


@contextmanager
def writable(directory: str, what: str) -> Iterator[None]:
    """A block that changes the directory. Raises OutputError for an OSError in it; `what` could not be done."""
    from gecli.artifacts.publish import NO_SPACE
    from gecli.errors import OutputError

    try:
        yield
    except OSError as error:
        code, why = "G6002" if error.errno in NO_SPACE else "G6001", error.strerror or str(error)
        do = "free some space" if code == "G6002" else "check the permissions of the directory and its files"
        file = str(error.filename or directory)
        raise OutputError(code, f"cannot {what} {directory}", why=why, file=file, do=do) from error


def require_cache(directory: str) -> None:
    """Refuse a directory that no compile has used as a cache. Raises InvalidOption."""
    import os

    from gecli.cache.index import SUFFIX
    from gecli.cache.jit_files import HIERARCHY, jit_dir
    from gecli.cache.layout import PRIVATE
    from gecli.errors import InvalidOption

    if os.path.isdir(os.path.join(jit_dir(directory), HIERARCHY)):
        return  # slices only, as an import leaves them
    with readable(directory):
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
            do=MADE_BY,
        )


def mode_of_new_files(directory: str) -> int:
    """Permissions of files that a command adds; a broken cache.conf shares nothing."""
    from gecli.cache.store import file_mode

    return file_mode(is_shared(directory))


def is_shared(directory: str) -> bool:
    from gecli.cache.cache_conf import BrokenConf, read_cache_conf

    try:
        return read_cache_conf(directory).shared
    except BrokenConf:
        return False


def operands_of(invocation: Invocation, *names: str, optional: int = 0) -> list[str]:
    """The operands, as many as are named; of the last ones `optional` may be missing. Raises InvalidOption."""
    from gecli.errors import InvalidOption

    given = invocation.operands
    usage = f"gecli {invocation.subcommand} {' '.join(names)}".rstrip()
    if len(given) > len(names):
        word = given[len(names)]
        why = f"the operands are {' '.join(names)}" if names else "the command takes none"
        raise InvalidOption("E10055", f'unexpected operand "{word}"', why=why, do=usage)
    if len(given) < len(names) - optional:
        raise InvalidOption("E10054", f"{names[len(given)]} is missing", do=usage)
    return [*given, *[""] * (len(names) - len(given))]
