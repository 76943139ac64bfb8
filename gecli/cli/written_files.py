"""No file that a command writes is one that it reads, and no two of its outputs are one file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gecli.cli.output_places import DIRECTORIES, FILES, Place, places_of
from gecli.errors import Diagnostic, InvalidOption

if TYPE_CHECKING:
    from gecli.options.values import Options

STDIO = "-"
# Carried on from command to command: what is read first may be written when the command ends.
CONTINUED = {"--save-vars": "--load-vars", "--session-out": "--session-in"}

# Written although no model could be loaded, so the files that a model names must be known before.
WRITTEN_EARLY = ("--log-file", "--report", "--check-report", "--json-file")

CACHE_DIR = "ge.graph_compiler_cache_dir"
OF_CACHE = (".idx", ".lock", ".gecli.json", "cache.conf")  # ends of names of files that are a cache's for certain
MODELS = (".om", ".rdcpkt")  # in its directory, but a compile may have its outputs there as well
FOLDERS = ("weight", "jit", ".gecli")

_File = tuple[int, int] | str


def check_written_files(subcommand: str, options: Options, models: Sequence[str], places: Sequence[Place]) -> None:
    """Raises one InvalidOption (E10047) with each output that would overwrite an input or another output.

    Links are followed. Devices and pipes may be named as often as somebody likes.
    """
    if not places:
        return
    owners = {_identity(path): (option, path) for option, path in _read(subcommand, options, models)}
    if subcommand == "compile" and any(_holds_something(place) for place in places if place.option in WRITTEN_EARLY):
        from gecli.loading.named_files import files_named_in

        for model in models:
            for path in files_named_in(model, options.text("base-dir") or os.path.dirname(model)):
                owners.setdefault(_identity(path), ("", path))
    folders = {os.path.join(os.path.dirname(path), "weight") for path in models if path != STDIO}
    weights = {_identity(folder) for folder in folders if os.path.isdir(folder)} if subcommand != "compile" else set()
    uses_cache = subcommand in ("compile", "run") or subcommand.startswith("cache ")
    cache_dir = (uses_cache and options.text(CACHE_DIR)) or ""
    cache = _CacheFiles(cache_dir, is_asked=subcommand.startswith("cache "))
    written: dict[_File, Place] = {}
    problems = []
    for place in sorted(places, key=lambda place: place.option != "--output"):
        if not _is_plain(place.path):
            if place.is_directory and (golden := owners.get(_identity(place.path))) and golden[0] == "--compare":
                problems.append(_problem(place, f"the input {golden[1]}"))
            continue
        identity = _identity(place.path)
        option, path = owners.get(identity) or owners.get(_folder_of(place.path), ("", ""))
        if not path and _is_weight(place.path, weights):
            path = place.path
        owner = (cache_dir if cache.owns(place) else _cache_around(place)) if not path else ""
        if owner:
            problems.append(_problem(place, place.path, f"it belongs to the cache {owner}"))
            continue
        if path and option != CONTINUED.get(place.option):
            problems.append(_problem(place, f"the input {path}"))
            continue
        other = written.setdefault(identity, place)
        if other is not place:
            problems.append(_problem(place, f"{other.option} {other.path}"))
    if problems:
        raise InvalidOption.of(problems)


class DataFileCheck:
    """Told of the files that a model is loaded from (external data...), before anything is written.

    Raises one InvalidOption (E10047) with each output of the command that would overwrite one of them.
    """

    def __init__(self, options: Options, models: Sequence[str]) -> None:
        self._options = options
        self._models = models
        self._outputs: dict[_File, Place] | None = None

    def __call__(self, model: str, files: Sequence[str]) -> None:
        if self._outputs is None:
            places = places_of("compile", self._options, self._models)
            self._outputs = {_identity(place.path): place for place in places if os.path.isfile(place.path)}
        if not self._outputs:
            return
        from gecli.compiler.depfile import as_typed

        shown = {_identity(path): as_typed(path, model) for path in files}
        problems = [
            _problem(self._outputs[each], f"the input {shown[each]}") for each in shown if each in self._outputs
        ]
        if problems:
            raise InvalidOption.of(problems)


def _holds_something(place: Place) -> bool:
    return os.path.isfile(place.path) and os.path.getsize(place.path) > 0


def _problem(place: Place, owner: str, why: str = "both name one file") -> Diagnostic:
    do = f"{place.option} {'NAME=' if place.option == '--get-var' else ''}ANOTHER_FILE"
    return Diagnostic(
        "E10047", f"{place.option} would overwrite {owner}", why=why, do=do,
        option=place.option, file=place.path,
    )  # fmt: skip


def _read(subcommand: str, options: Options, models: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every existing file and directory that the command reads, with the option that names it."""
    for path in models:
        if path != STDIO:
            yield "", path
            if subcommand != "compile":
                yield "", f"{os.path.splitext(path)[0]}.rdcpkt"
    written = {"output", "log-file", *FILES.get(subcommand, ()), *DIRECTORIES.get(subcommand, ())}
    for option, value, _ in options.items():
        if option.type == "path" and option.name not in written and option.key not in written:
            for path in map(str, value if isinstance(value, tuple) else (value or "",)):
                if path and _exists(path) and (subcommand == "run" or os.path.isfile(path)):
                    yield f"--{option.name}", path
    if subcommand == "run":
        for option_name in ("input", "set-var", "placeholder"):
            for text in options.texts(option_name):
                yield from ((f"--{option_name}", path) for path in _named_in(text))
    yield from (("", path) for path in options.config_files)


def _named_in(text: str) -> Iterator[str]:
    """The files of `a.npy`, `a.npy,b.npy`, `NAME=a.npy` and `NAME=@directory`."""
    for each in (text, *(text[at + 1 :] for at, letter in enumerate(text) if letter == "=")):
        for path in (each, each.removeprefix("@"), *each.split(",")):
            if path and _exists(path):
                yield path


def _exists(path: str) -> bool:
    return "\0" not in path and os.path.exists(path)


def _folder_of(path: str) -> _File:
    """The directory of a file that is there: one whose files are inputs loses none of them."""
    return _identity(os.path.dirname(os.path.realpath(path))) if os.path.isfile(path) else ""


def _is_weight(path: str, folders: set[_File]) -> bool:
    """Whether a weight file beside one of the models has the name: an OM is nothing without it."""
    if not folders or _folder_of(path) not in folders:
        return False
    from gecli.planning.weight_names import combined_name, is_split_name

    name = os.path.basename(os.path.realpath(path))
    return is_split_name(name) or name.endswith(combined_name(""))


class _CacheFiles:
    """The files of the cache that a command uses: of its entries, its settings and its directories.

    `is_asked`: the command is about the cache, so that every model there counts as one of its entries.
    """

    def __init__(self, folder: str, *, is_asked: bool) -> None:
        self._folder = folder
        self._is_asked = is_asked

    def owns(self, place: Place) -> bool:
        """Whether a file belongs to the cache, by whatever name; in its own directories, also one that is not there.

        A weight directory of the user's choice may be the cache's: GE's is, and both append under one lock.
        """
        if not self._folder or place.option == "--external-weight-dir" or "\0" in self._folder + place.path:
            return False
        if self._has(place.path):
            return True
        # A file that is written as it is changes under its other names too; one that is replaced does not.
        return place.in_place and os.path.isfile(place.path) and self._has_name_of(place.path)

    def _has(self, path: str) -> bool:
        below, name = os.path.split(os.path.relpath(os.path.realpath(path), os.path.realpath(self._folder)))
        if below:
            return below.partition(os.sep)[0] in FOLDERS
        is_of_cache = name.endswith(OF_CACHE) or (name.endswith(MODELS) and (self._is_asked or _is_of_entry(name)))
        return is_of_cache and os.path.isfile(path)

    def _has_name_of(self, path: str) -> bool:
        if os.stat(path).st_nlink < 2:
            return False
        identity = _identity(path)
        roots = [self._folder, *(os.path.join(self._folder, name) for name in FOLDERS)]
        return any(
            identity == each and self._has(name)
            for root in roots
            for name, each in _files_in(root, root != self._folder)
        )


def _files_in(folder: str, is_whole: bool) -> Iterator[tuple[str, _File]]:
    """The files of a directory, `is_whole` with those below it."""
    for parent, folders, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            yield path, _identity(path)
        if not is_whole:
            folders.clear()


def _cache_around(place: Place) -> str:
    """The directory of an entry that a model would replace, though the command names no cache; "" for another file."""
    real = os.path.realpath(place.path) if place.is_model else ""
    stem, suffix = os.path.splitext(real)
    is_entry = suffix in MODELS and _is_of_entry(os.path.basename(real)) and os.path.isfile(f"{stem}.gecli.json")
    return os.path.dirname(real) if is_entry and os.path.isfile(real) else ""


def _is_of_entry(name: str) -> bool:
    import re

    from gecli.cache.layout import FILE_PATTERN

    return re.match(FILE_PATTERN, name, re.ASCII) is not None


def _is_plain(path: str) -> bool:
    """A regular file, or one that is not there yet; many may write to a device."""
    return os.path.isfile(path) or not os.path.lexists(path)


def _identity(path: str) -> _File:
    """What two names of one file share."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return os.path.realpath(path) if "\0" not in path else path
    return found.st_dev, found.st_ino
