"""Taking versions and slices out of what `slicing_hierarchy/` says of a graph. Under the lock of the graph.

The lists are shortened before the entries go that they name, the commit point first: what a killed process leaves is
right, or orphans.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from gecli.artifacts.shared_files import make_folder
from gecli.cache.jit_files import (
    RESULT,
    SLICING,
    VERSIONS,
    OnDisk,
    StoredSlice,
    ge_text,
    read_object,
    result_text,
    slicing_text,
)
from gecli.cache.jit_survey import Slicing, repaired_slices, slicing
from gecli.cache.quarantine import remove_tree
from gecli.cache.recovery import set_aside
from gecli.cache.store import replace_file, sync_directory
from gecli.wire.regular_file import read_regular


def what_stays(
    directory: str, key: str, gone: Collection[str] = frozenset(), from_slice: int | None = None
) -> tuple[Slicing, list[list[str]]]:
    """The slices of a graph as they are now, and the versions of those that stay without these versions and slices."""
    found = slicing(directory, key)
    return found, shortened(found.usable, gone, from_slice)


def shortened(lists: Sequence[Sequence[str]], gone: Collection[str], from_slice: int | None = None) -> list[list[str]]:
    """The lists without some versions, up to the first slice that has none left: GE's restore would trip over it."""
    kept = []
    for versions in lists[:from_slice]:
        left = [version for version in versions if version not in gone]
        if not left:
            break
        kept.append(left)
    return kept


def write_lists(directory: str, found: Slicing, lists: Sequence[Sequence[str]], mode: int) -> None:
    """Make the files of a graph say that it has these slices with these versions; the others go. Raises OSError."""
    if not lists:
        remove_slicing(found)
        return
    stored: list[StoredSlice] = []
    if found.facts is not None:
        stored, _ = repaired_slices(directory, found.key, OnDisk(found.home, None))
        stored = stored[: len(lists)]
        for each, versions in zip(stored, lists):
            each.versions = {version: each.versions.get(version, 0) for version in versions}
    _replace(directory, os.path.join(found.home, RESULT), _result(found, len(lists), stored), mode)
    if found.facts is not None:
        _replace(directory, os.path.join(found.home, SLICING), slicing_text(stored, found.facts), mode)
    for number, versions in enumerate(lists):
        _replace(directory, os.path.join(found.home, str(number), VERSIONS), _versions(found, number, versions), mode)
    for name in sorted(os.listdir(found.home)):
        if name.isdecimal() and int(name) >= len(lists):
            _remove_folder(found, name)


def remove_slicing(found: Slicing) -> None:
    """Remove all that is known of a graph's slices, at once; files that are none of a cache stay. Raises OSError."""
    if os.path.islink(found.home):
        os.unlink(found.home)
        return
    if not found.strays:
        folder, name = os.path.split(found.home)
        moved = os.path.join(folder, f".{name}.tmp.{os.getpid()}.{os.urandom(4).hex()}")
        with suppress(FileNotFoundError):
            os.rename(found.home, moved)
            sync_directory(folder)
            remove_tree(moved)
        return
    for name in (RESULT, SLICING, *found.files):
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(found.home, name))
    _remove_empty(found.home)


def _remove_folder(found: Slicing, number: str) -> None:
    path = os.path.join(found.home, number)
    if any(name.startswith(f"{number}/") for name in found.strays):
        for name in found.files:
            if name.startswith(f"{number}/"):
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(found.home, name))
        return
    remove_tree(path)


def _remove_empty(home: str) -> None:
    for name in sorted(os.listdir(home)):
        with suppress(OSError):
            os.rmdir(os.path.join(home, name))


def _result(found: Slicing, count: int, stored: Sequence[StoredSlice]) -> str:
    if found.facts is not None:
        return result_text(list(stored), found.key)
    content = read_object(os.path.join(found.home, RESULT))
    return ge_text({**content, "slice_graph_list": content["slice_graph_list"][:count]})


def _versions(found: Slicing, number: int, versions: Sequence[str]) -> str:
    """The list of a slice; the rows of another tool keep what else they hold."""
    path = os.path.join(found.home, str(number), VERSIONS)
    content: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        content = read_object(path) if found.facts is None else {}
    rows = content.get("gep_list")
    known = (
        {str(row.get("gep_graph_key")): row for row in rows if isinstance(row, dict)} if isinstance(rows, list) else {}
    )
    return ge_text({**content, "gep_list": [known.get(each, {"gep_graph_key": each}) for each in versions]})


def _replace(directory: str, path: str, text: str, mode: int) -> None:
    data = text.encode("utf-8", "surrogateescape")
    with suppress(OSError, ValueError):
        if read_regular(path, len(data) + 1) == data:
            return
    if os.path.isdir(path) and not os.path.islink(path):
        set_aside(directory, [path], mode)  # what stands in the place of a list is somebody's
    make_folder(os.path.dirname(path), mode)
    replace_file(path, data, mode)
