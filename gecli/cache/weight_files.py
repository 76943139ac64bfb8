"""The external weights of cache entries: which ranges of which files an entry needs, and whether they are there.

cache.md 4.2, 8. The files lie in `{cache_dir}/weight/` and belong to every entry that names them. Loads no library
for an entry with a sidecar.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from gecli.artifacts.weight_file import UnsafeWeight, base_name, open_weight, sha256_of_range
from gecli.cache.layout import OM, entry_path
from gecli.cache.stat_index import numbers_of

if TYPE_CHECKING:
    from gecli.cache.sidecar import Sidecar
    from gecli.cache.stat_index import StatIndex
    from gecli.wire.model_record import ModelRecord

FOLDER = "weight"
SOURCE_FILES = "files_of_source"  # member of a sidecar: FileConstants whose files no cache holds
MEMBERS = ("file", "offset", "length", "sha256", "node")


class WeightRange(NamedTuple):
    """One external weight of an entry: `length` bytes at `offset` of a file of the weight directory.

    `sha256` has 64 hex digits, or is empty where the OM of another tool does not tell it; see `told_by_names`.
    """

    file: str
    offset: int
    length: int
    sha256: str
    node: str

    @property
    def end(self) -> int:
        return self.offset + self.length

    def as_json(self) -> dict[str, Any]:
        """The row of a sidecar."""
        return self._asdict()


class BadWeightRow(ValueError):
    """A sidecar or an OM says something about weights that cannot be."""


def weight_dir(directory: str) -> str:
    """The weight directory of a cache directory."""
    return os.path.join(directory, FOLDER)


def weights_of(directory: str, stem: str, sidecar: Sidecar | None) -> list[WeightRange]:
    """The external weights of an entry, from its sidecar, else from its OM.

    Raises BadWeightRow, and for an entry without a sidecar also InputError and OSError.
    """
    return weights_of_om(entry_path(directory, stem, OM)) if sidecar is None else weights_of_sidecar(sidecar)


def weights_of_sidecar(sidecar: Sidecar) -> list[WeightRange]:
    """The rows of the member `weights`. Raises BadWeightRow."""
    rows = sidecar.content.get("weights") or []
    if not isinstance(rows, list):
        raise BadWeightRow("weights is no list")
    return [_row(row) for row in rows]


def weights_of_om(path: str) -> list[WeightRange]:
    """The ranges that the FileConstants of an OM name, by their base names; parses the graph.

    Raises BadWeightRow, InputError and OSError.
    """
    from gecli.artifacts.om_file import read_om

    return weights_of_model(read_om(path).model())


def weights_of_model(model: ModelRecord) -> list[WeightRange]:
    """The same of an OM's graphs. Raises BadWeightRow."""
    from gecli.ir.attributes import SHA256_ATTR

    found = []
    for graph in model.graphs:
        for node in graph.nodes:
            location = node.attrs.get("location") if node.type == "FileConstant" else None
            if location:
                length = node.attrs.get("length") or (node.output_descs[0].nbytes if node.output_descs else 0)
                row = {"file": location, "offset": node.attrs.get("offset", 0), "length": length, "node": node.name}
                found.append(_row({**row, "sha256": node.attrs.get(SHA256_ATTR, "")}))
    return found


def told_by_names(ranges: Iterable[WeightRange]) -> list[WeightRange]:
    """The ranges with the digests that GE puts at the end of the names of FileConstants, where none are told."""
    from gecli.planning.weight_names import named_digest

    return [each if each.sha256 else each._replace(sha256=named_digest(each.node)) for each in ranges]


def row_fault(directory: str, stem: str, sidecar: Sidecar) -> str:
    """Where the rows of a sidecar and the FileConstants of its OM differ, as a sentence; empty when they agree.

    Parses the graph, if the entry has external weights or should have. Raises BadWeightRow, OSError.
    """
    from gecli.artifacts.om_file import read_om

    return fault_of_rows(sidecar, lambda: read_om(entry_path(directory, stem, OM)).model())


def fault_of_rows(sidecar: Sidecar, read_model: Callable[[], ModelRecord]) -> str:
    """The same for an OM that `read_model` reads."""
    rows = weights_of_sidecar(sidecar)
    if not rows and not sidecar.asks_for_weight_files:
        return ""
    from gecli.errors import InputError

    try:
        return difference_of_rows(rows, told_weights(read_model(), sidecar))
    except InputError:  # its bytes are those that the sidecar vouches for: not a matter of the rows
        return ""


def told_weights(model: ModelRecord, sidecar: Sidecar) -> list[WeightRange]:
    """The weights of a model that its sidecar must tell of: none of the source's own files. Raises BadWeightRow."""
    own = sidecar.content.get(SOURCE_FILES)
    names = set(own) if isinstance(own, list) and all(isinstance(name, str) for name in own) else set()
    return [each for each in weights_of_model(model) if each.sha256 and each.node not in names]


def difference_of_rows(rows: Iterable[WeightRange], named: Iterable[WeightRange]) -> str:
    """The first weight in which the rows of a sidecar and of its OM differ, in a sentence; empty when none does."""
    differing = sorted(set(map(_comparable, rows)) ^ set(map(_comparable, named)))
    return f"sidecar and .om tell of different places for weight {differing[0][0]}" if differing else ""


def _comparable(row: WeightRange) -> tuple[str, str, str, int, int]:
    return row.node, row.sha256, row.file, row.offset, row.length


def _row(row: object) -> WeightRange:
    if not isinstance(row, Mapping):
        raise BadWeightRow("a row of weights is no object")
    file, offset, length, sha256, node = [row.get(name) for name in MEMBERS]
    if not (isinstance(file, str) and isinstance(sha256, str) and isinstance(node, str)):
        raise BadWeightRow(f"a row of weights is {str(dict(row))[:200]}")
    if not (_is_size(offset) and _is_size(length)):
        raise BadWeightRow(f"the range of {node} is {str((offset, length))[:100]}")
    try:
        return WeightRange(base_name(file), offset, length, sha256, node)
    except UnsafeWeight as error:
        raise BadWeightRow(str(error)) from error


def _is_size(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_single(each: WeightRange) -> bool:
    """Whether the weight has a file of its own."""
    from gecli.planning.weight_names import is_split_name

    return each.offset == 0 and is_split_name(each.file)


def weight_files_of(ranges: Iterable[WeightRange]) -> dict[str, int]:
    """The files that the ranges lie in, each with the size that it must have at least; sorted by name."""
    sizes: dict[str, int] = {}
    for each in ranges:
        sizes[each.file] = max(sizes.get(each.file, 0), each.end)
    return dict(sorted(sizes.items()))


def damaged_weight(
    folder: str, ranges: Iterable[WeightRange], stats: StatIndex | None = None, *, hashed: bool = False
) -> tuple[str, str] | None:
    """(reason, evidence) of the first weight in `folder` that is missing, short, unsafe or, with `hashed`, changed.

    Without `hashed` the files are only opened. `stats` knows the digests of files, not of parts of them.
    """
    for name, rows in _by_file(ranges):
        damage = _damage_in(folder, name, rows, stats, hashed)
        if damage is not None:
            return damage
    return None


def damaged_part(folder: str, ranges: Iterable[WeightRange], stats: StatIndex) -> tuple[str, str] | None:
    """The same for parts of files, whose bytes are read unless `stats` knows that they were whole."""
    for name, rows in _by_file(ranges):
        path, places = os.path.join(folder, name), _places(rows)
        is_known = stats.knows_parts(path, places)
        before, made_ns = numbers_of(path), time.time_ns()
        damage = _damage_in(folder, name, rows, None, hashed=not is_known)
        if damage is not None:
            return damage
        if not is_known:
            stats.add_parts(path, places, before, made_ns)
    return None


def _by_file(ranges: Iterable[WeightRange]) -> list[tuple[str, list[WeightRange]]]:
    found: dict[str, list[WeightRange]] = {}
    for each in ranges:
        found.setdefault(each.file, []).append(each)
    return sorted(found.items())


def _places(ranges: Iterable[WeightRange]) -> str:
    """A digest of where which contents lie."""
    import hashlib

    rows = sorted({(each.offset, each.length, each.sha256) for each in ranges})
    return hashlib.sha256(repr(rows).encode("utf-8", "surrogateescape")).hexdigest()


def _damage_in(
    folder: str, name: str, ranges: list[WeightRange], stats: StatIndex | None, hashed: bool
) -> tuple[str, str] | None:
    try:
        handle = open_weight(folder, name)
    except UnsafeWeight as error:
        return "weights_unsafe", str(error)
    except (FileNotFoundError, NotADirectoryError):
        return "weights_missing", name
    except OSError as error:
        return "io_error", f"{name}: {error.strerror or error}"
    try:
        size = os.fstat(handle).st_size
        end = max(each.end for each in ranges)
        if size < end:
            return "weights_corrupt", f"{name} has {size} bytes, {end} are needed"
        for each in ranges if hashed else ():
            if each.sha256 and not _is_told(each.sha256, _digest(folder, each, size, handle, stats)):
                return "weights_corrupt", f"{name}: the sha256 of {each.node} is not that of the entry"
    except (OSError, EOFError) as error:
        return "io_error", f"{name}: {error}"
    finally:
        os.close(handle)
    return None


def _is_told(told: str, sha256: str) -> bool:
    from gecli.planning.weight_names import is_spelling_of

    return told == sha256 or is_spelling_of(told, sha256)


def _digest(folder: str, each: WeightRange, size: int, handle: int, stats: StatIndex | None) -> str:
    if stats is not None and each.offset == 0 and each.length == size:
        return stats.sha256(os.path.join(folder, each.file))
    return sha256_of_range(handle, each.offset, each.length)
