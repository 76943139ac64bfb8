"""Whether the files and directories that a command will write can be written, asked before its work begins."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gecli.errors import Diagnostic, InvalidOption, OutputError
from gecli.options.values import Options

if TYPE_CHECKING:
    from gecli.compiler.job import Job

FILES = {
    "compile": ("report", "depfile", "session-out", "check_report", "json-file"),
    "run": ("save-vars", "session-out", "save-inputs", "export-times", "profile-out"),
    "inspect-om": ("output", "data-file"),
    "cache export": ("output",),
}
DIRECTORIES = {"run": ("dump-dir",), "inspect-om": ("to",)}
OF_ATC = ("check_report", "json-file")  # there an empty text is none
NO_DIRECTORY = "is a file, not a directory"


class Place(NamedTuple):
    """What one option writes: a new file, files in a directory, or into a file as it is."""

    option: str
    path: str
    is_directory: bool = False
    in_place: bool = False
    is_model: bool = False


def places_of(subcommand: str, options: Options, models: Sequence[str]) -> Iterator[Place]:
    """Everything that the options of a command name for writing.

    Raises InvalidOption as `jobs_of` does, and for an empty name.
    """
    _refuse_empty(subcommand, options)
    for name in FILES.get(subcommand, ()):
        if (path := options.text(name)) and path != "-":
            yield Place(_flag(name), path)
    for name in DIRECTORIES.get(subcommand, ()):
        if path := options.text(name):
            yield Place(_flag(name), path, is_directory=True)
    if path := options.text("log-file"):
        yield Place("--log-file", path, in_place=True)
    if subcommand == "compile":
        yield from _compiled(options, models)
    elif subcommand == "run":
        yield from _computed(options)


def _refuse_empty(subcommand: str, options: Options) -> None:
    names = [*FILES.get(subcommand, ()), *DIRECTORIES.get(subcommand, ()), "log-file"]
    if subcommand in ("compile", "run"):
        names.append("output")
    found = [_flag(name) for name in names if name not in OF_ATC and options.text(name) == ""]
    if found:
        why = "expected the name of a file or directory"
        raise InvalidOption.of(
            Diagnostic(
                "E10001",
                f'value "" for {flag} is invalid',
                why=why,
                do=f"{flag} PATH, or leave out {flag}",
                option=flag,
            )
            for flag in dict.fromkeys(found)
        )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _compiled(options: Options, models: Sequence[str]) -> Iterator[Place]:
    if dump := options.text("dump-graph"):
        folder = dump.partition(":")[0] or options.text("ge.debugDir") or "."
        yield Place("--dump-graph", folder, is_directory=True)
    output = options.text("output")
    if not models or not output or options.flag("check") or options.get("mode") in (1, 3, 6):
        return
    from gecli.compiler.extra_outputs import emitted, extra_path
    from gecli.compiler.job import STDIO, is_one_file, jobs_of

    for job in jobs_of(models, output):
        if is_one_file(job.om_path):
            yield from () if job.om_path == STDIO else (Place("--output", job.om_path, in_place=True),)
            continue
        if os.path.isdir(job.om_path):
            continue  # gecli.compiler.job_checks has a better cure
        yield from (Place("--output", path, is_model=True) for path in (job.om_path, job.rdcpkt_path))
        yield from (Place("--emit", extra_path(job.om_path, kind)) for kind in emitted(options))
    if options.integer("ge.externalWeight"):
        yield from dict.fromkeys(place for job in jobs_of(models, output) for place in _weight_places(options, job))


def _weight_places(options: Options, job: Job) -> Iterator[Place]:
    """The directory of external weights; files of single weights are named by their content."""
    from gecli.artifacts.weight_meta import is_odd
    from gecli.compiler.weight_output import DIRECTORY, MODE, weight_folder
    from gecli.planning.weight_names import COMBINED, combined_name

    option = "--external-weight-dir" if options.text(DIRECTORY) else "--output"
    folder = weight_folder(job, options)
    yield Place(option, folder, is_directory=True)
    if options.integer(MODE) == COMBINED:
        path, is_shared = os.path.join(folder, combined_name(job.stem)), option != "--output"
        if not (is_shared and is_odd(path)):  # which is replaced, as the directory allows
            yield Place(option, path, in_place=is_shared)


def _computed(options: Options) -> Iterator[Place]:
    output = options.text("output")
    if output and output != "-":
        yield Place("--output", output, is_directory=not output.endswith(".npz"))
    for item in options.texts("get-var"):
        # A name may hold a "="; which one ends it is known when the model is.
        places = [Place("--get-var", item[at + 1 :]) for at, letter in enumerate(item[:-1]) if letter == "="]
        yield from [place for place in places if not why_not(place)] if len(places) > 1 else places


def check_places(places: Iterable[Place]) -> None:
    """Raises OutputError (G6001), with one message for all of them, when something cannot be written.

    A full disk shows later only. Directories that are missing are made later, so the nearest one must be writable.
    """
    faults = [(place, why) for place in places if (why := why_not(place))]
    if all(place.is_model and why.endswith(NO_DIRECTORY) for place, why in faults):
        return  # gecli.compiler.job_checks has a better cure
    paths = list(dict.fromkeys(place.path for place, _ in faults))
    if len(paths) == 1:
        place, why = faults[0]
        message, file = f"cannot write {place.path}", place.path
    else:
        message, file = f"{len(paths)} outputs cannot be written", None
        why = "; ".join(dict.fromkeys(f"{place.path}: {why}" for place, why in faults))
    options = dict.fromkeys(place.option for place, _ in faults)
    do = _cure({why for _, why in faults}, paths[0])
    where = ", ".join([*options, *paths] if len(paths) == 1 else [f"{p.option} {p.path}" for p, _ in faults])
    option = next(iter(options))
    raise OutputError.of([Diagnostic("G6001", message, where=where, why=why, do=do, file=file, option=option)])


def why_not(place: Place) -> str:
    """Why a place cannot be written; "" when it seems it can."""
    path = place.path
    if "\0" in path:
        return "the name holds a NUL character"
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return _above(path)
    except OSError as error:
        return "" if error.errno == errno.ELOOP and os.path.islink(path) else error.strerror or str(error)
    if stat.S_ISDIR(mode):
        return _folder(path) if place.is_directory else os.strerror(errno.EISDIR)
    if place.is_directory:
        return os.strerror(errno.ENOTDIR)
    if stat.S_ISREG(mode) and not place.in_place:  # replaced by another file, which its directory must take
        return _above(path)
    if not os.access(path, os.W_OK):
        return _refusal(path)
    return "nobody reads this pipe" if stat.S_ISFIFO(mode) and not _is_read(path) else ""


def _above(path: str) -> str:
    """The nearest directory that exists decides."""
    folder = os.path.dirname(os.path.realpath(path))
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        return f"{folder} {NO_DIRECTORY}"
    return _folder(folder)


def _folder(path: str) -> str:
    return "" if os.access(path, os.W_OK | os.X_OK) else _refusal(path)


def _refusal(path: str) -> str:
    try:
        is_read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except (AttributeError, OSError):
        is_read_only = False
    return os.strerror(errno.EROFS if is_read_only else errno.EACCES)


_kept: list[int] = []  # a reader would see the end if these were closed before the output comes


def _is_read(pipe: str) -> bool:
    try:
        _kept.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return error.errno != errno.ENXIO
    return True


def _cure(reasons: set[str], path: str) -> str:
    if reasons == {"nobody reads this pipe"}:
        return f"start the reader first: cat {path} &"
    if any(why.endswith("not a directory") for why in reasons):
        return "name a path below a directory"
    return "check the path and its permissions"
