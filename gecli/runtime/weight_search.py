"""Where the file of a FileConstant is looked for (cli.md 3.7, cache.md 8.6, 8.8; runtime.md 6.2)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gecli.artifacts.weight_file import UnsafeWeight, base_name, open_weight
from gecli.errors import Diagnostic, InvalidOption
from gecli.ir.op_desc import OpDesc

MAX_TEXT = 200


class WeightSettings(NamedTuple):
    """How a session finds weights: further directories, files by id, and whether their digests are checked."""

    directories: tuple[str, ...] = ()
    bins: Mapping[str, str] = {}
    verify: bool = True


class WeightRange(NamedTuple):
    """What one FileConstant reads: a part of the file that `named` leads to. `rule` is the attribute that names it."""

    node: OpDesc
    named: str
    rule: str
    offset: int
    length: int


class FoundFile(NamedTuple):
    """An open weight file; `rule` says which directory it was found in."""

    path: str
    rule: str
    handle: int
    status: os.stat_result


class WeightFault(NamedTuple):
    """Why a node has no file."""

    node: str
    message: str
    why: str
    kind: str = "bad-weights"
    code: str = "G3012"


def bins_of(text: str) -> dict[str, str]:
    """The files by id of a `value_bins` text; the first one wins for a repeated id. Raises InvalidOption."""
    from gecli.json_text import parse_json

    try:
        content = parse_json(text, raw_bytes=True) if text else {}
    except (ValueError, RecursionError) as error:
        raise _bad_bins(f"it is no JSON: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(each, list) for each in content.values()):
        raise _bad_bins("expected an object whose values are lists")
    found: dict[str, str] = {}
    for row in (row for each in content.values() for row in each):
        if not isinstance(row, dict):
            raise _bad_bins("expected lists of objects")
        name, path = row.get("value_bin_id", ""), row.get("value_bin_file", "")
        if not isinstance(name, str) or not isinstance(path, str):
            raise _bad_bins("value_bin_id and value_bin_file are texts")
        found.setdefault(name, path)
    return found


def _bad_bins(why: str) -> InvalidOption:
    return InvalidOption(
        "E10001",
        "the value of --value-bins is invalid",
        why=why,
        do='--value-bins \'{"value_bins":[{"value_bin_id":"ID","value_bin_file":"PATH"}]}\'',
        option="--value-bins",
    )


def range_of(node: OpDesc, bins: Mapping[str, str]) -> WeightRange | WeightFault:
    """The file position that a node's attributes give: `location`, else `file_path`, else `file_id`."""
    attrs = node.attrs
    if node.output_descs[0].dtype.numpy.hasobject:
        return WeightFault(node.name, "holds texts", "texts in files cannot be read")
    length = node.output_descs[0].nbytes
    location = _text(attrs.get("location"))
    if location:
        return _located(node, location, length)
    path = _text(attrs.get("file_path"))
    if path:
        return WeightRange(node, path, "file_path", 0, length)
    name = _text(attrs.get("file_id"))
    if not name:
        return WeightFault(node.name, "names no weight file", "it has neither location, file_path nor file_id")
    if not bins.get(name):
        known = f"the ids are {', '.join(sorted(bins))[:MAX_TEXT]}" if bins else "no --value-bins is given"
        return WeightFault(node.name, f"asks for weights of the id {name!r}", known, "RT_FILE_ID_UNKNOWN", "G4013")
    return WeightRange(node, bins[name], "value-bins", 0, length)


def _located(node: OpDesc, location: str, needed: int) -> WeightRange | WeightFault:
    offset, length = node.attrs.get("offset", 0), node.attrs.get("length", 0)
    if type(offset) is not int or type(length) is not int or offset < 0 or length not in (0, needed):
        desc = node.output_descs[0]
        why = f"offset {_shown(offset)}, length {_shown(length)}; {desc} has {needed} bytes"
        return WeightFault(node.name, "reads a range that does not fit its description", why)
    return WeightRange(node, location, "location", offset, needed)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _shown(value: Any) -> str:
    return str(value)[:40] if isinstance(value, int | float) else f"a {type(value).__name__}"


def find_file(named: str, rule: str, om_path: str, directories: tuple[str, ...]) -> FoundFile | list[tuple[str, str]]:
    """The first usable file, open; else what was tried: (place, why not), "" for a file that is not there.

    A location that is not absolute, and every look into a directory, uses the base name only: no `..` leads out.
    """
    tried: list[tuple[str, str]] = []
    for found_by, folder, name in _candidates(named, rule, om_path, directories):
        path = os.path.join(folder, name)
        try:
            handle = open_weight(folder, base_name(name))
        except (FileNotFoundError, NotADirectoryError):
            tried.append((folder or ".", ""))
        except UnsafeWeight as error:
            tried.append((folder or ".", str(error)))
        except (OSError, ValueError) as error:
            tried.append((folder or ".", f"{path}: {getattr(error, 'strerror', None) or error}"))
        else:
            return FoundFile(path, found_by, handle, os.fstat(handle))
    return tried


def _candidates(named: str, rule: str, om_path: str, directories: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    beside = os.path.dirname(om_path)
    folder, _, name = named.rpartition("/")
    if rule != "value-bins":  # those are the user's own paths
        yield from (("--weight-dir", each, name) for each in directories)
        yield "weight/ beside the OM", os.path.join(beside, "weight"), name
        yield "beside the OM", beside, name
    if rule == "value-bins" or os.path.isabs(named):
        yield rule if rule == "value-bins" else "stored path", folder or ("/" if os.path.isabs(named) else ""), name


def stored_path_warning(found: FoundFile, om_path: str) -> Diagnostic:
    """Said about a file that only the path inside the OM led to: whoever made the OM chose it."""
    return Diagnostic(
        "G4003",
        f"{found.path} was found by the path stored in {om_path}",
        why="no directory of weights has the file, so the OM chose what is read",
        do=f"--weight-dir {os.path.dirname(found.path) or '/'} says so",
        severity="warning",
        file=found.path,
    )


def missing_files(om_path: str, faults: Mapping[str, list[tuple[str, str]]]) -> Diagnostic:
    """One message for all files that were not found: names, the directories tried, and what was refused."""
    names = sorted(faults)
    shown = ", ".join(names)
    count = "a weight file is" if len(names) == 1 else f"{len(names)} weight files are"
    folders = list(dict.fromkeys(folder for tried in faults.values() for folder, why in tried))
    refused = list(dict.fromkeys(why for tried in faults.values() for _, why in tried if why))
    looked = f"looked in {', '.join(folders)}" if folders else "the names lead to no directory"
    return Diagnostic(
        "G4003",
        f"{count} missing: {shown if len(shown) <= MAX_TEXT else shown[: MAX_TEXT - 3] + '...'}",
        where=om_path,
        why="; ".join([looked, *refused[:3]]),
        do=f"gecli run {om_path} --weight-dir DIR names {'its' if len(names) == 1 else 'their'} directory",
        kind="weights_unsafe" if refused else "RT_WEIGHT_MISSING",
        file=om_path,
        expected=names,
    )
