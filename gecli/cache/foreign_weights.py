"""The files that the weights of another tool's entry lie in (cache.md 4.1, 8.6 to 8.8).

GE's loader takes the name behind the last `/` of a location and looks for it in the weight directory. A path or an id
that the model itself gives is the user's own file: it stays where it is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gecli.artifacts.weight_file import UnsafeWeight, base_name
from gecli.cache.weight_files import WeightRange, damaged_part, damaged_weight, told_by_names
from gecli.ir.dtype import DataType
from gecli.planning.weight_names import is_spelling_of, is_split_name, named_digest

if TYPE_CHECKING:
    from gecli.cache.stat_index import StatIndex
    from gecli.ir.op_desc import OpDesc
    from gecli.wire.model_record import ModelRecord

_TEXTS = (DataType.STRING, DataType.STRING_REF)


class HeldFile(NamedTuple):
    """A weight file: its name, the directory that has it, and how many bytes of it are used at least."""

    name: str
    folder: str
    size_bytes: int


class UnusableWeights(Exception):
    """A weight cannot be had; `reason` is the code of the miss."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def foreign_files(
    model: ModelRecord, folders: Sequence[str], bins: Mapping[str, str], stats: StatIndex
) -> list[HeldFile]:
    """The weight files of a model in these directories, sorted by name, checked. Raises UnusableWeights.

    The first directory that has a name counts. `bins` are files by id (ge.exec.value_bins).
    """
    ranges: dict[str, list[WeightRange]] = {}
    for graph in model.graphs:
        for node in graph.nodes_of("FileConstant"):
            found = _range_of(node, folders, bins)
            if found is not None:
                ranges.setdefault(found.file, []).append(found)
    return [_held(name, ranges[name], folders, stats) for name in sorted(ranges)]


def _range_of(node: OpDesc, folders: Sequence[str], bins: Mapping[str, str]) -> WeightRange | None:
    """What a node reads of a file of the weight directory; None for a file of the user's own that is there."""
    if not node.output_descs or not node.output_descs[0].is_static or node.output_descs[0].dtype in _TEXTS:
        raise UnusableWeights("load_failed", f"the size of weight {node.name} is not known")
    needed = node.output_descs[0].nbytes
    location, path, id = (_text(node, name) for name in ("location", "file_path", "file_id"))
    if location:
        offset, length = node.attrs.get("offset", 0), node.attrs.get("length", 0)
        if type(offset) is not int or offset < 0 or type(length) is not int or length not in (0, needed):
            why = f"weight {node.name} reads {str(length)[:20]} bytes at {str(offset)[:20]}, it has {needed}"
            raise UnusableWeights("weights_unsafe", why)
        return WeightRange(_name(location), offset, needed, "", node.name)
    if path:
        name = _name(path)
        if _folder_of(name, folders):
            return WeightRange(name, 0, needed, "", node.name)
        if os.path.isabs(path):
            _require(path, needed, node.name)
            return None
        raise UnusableWeights("weights_missing", f"weight {node.name}: {name}")
    if not id:
        raise UnusableWeights("load_failed", f"weight {node.name} names no file")
    if not bins.get(id):
        raise UnusableWeights("weights_missing", f"weight {node.name}: ge.exec.value_bins has no id {id[:100]!r}")
    _require(bins[id], needed, node.name)
    return None


def _text(node: OpDesc, name: str) -> str:
    value = node.attrs.get(name)
    return value if isinstance(value, str) else ""


def _name(location: str) -> str:
    try:
        return base_name(location)
    except UnsafeWeight as error:
        raise UnusableWeights("weights_unsafe", str(error)) from error


def _folder_of(name: str, folders: Sequence[str]) -> str:
    return next((folder for folder in folders if os.path.lexists(os.path.join(folder, name))), "")


def _require(path: str, needed: int, node: str) -> None:
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        raise UnusableWeights("weights_missing", f"weight {node}: {path[:200]}") from error
    if not stat.S_ISREG(found.st_mode) or found.st_size < needed:
        raise UnusableWeights("weights_corrupt", f"weight {node}: {path[:200]} has not the {needed} bytes of a file")


def _held(name: str, ranges: list[WeightRange], folders: Sequence[str], stats: StatIndex) -> HeldFile:
    folder = _folder_of(name, folders) or folders[-1]
    size = max(each.end for each in ranges)
    if is_split_name(name) and all(each.offset == 0 for each in ranges):
        damage = damaged_weight(folder, ranges) or _misnamed(folder, name, stats)
    else:
        damage = damaged_part(folder, told_by_names(ranges), stats)
    if damage is not None:
        raise UnusableWeights(*damage)
    return HeldFile(name, folder, size)


def _misnamed(folder: str, name: str, stats: StatIndex) -> tuple[str, str] | None:
    """The name of a file of a single weight is its digest."""
    try:
        sha256 = stats.sha256(os.path.join(folder, name))
    except OSError as error:
        return "io_error", f"{name}: {error.strerror or error}"
    if is_spelling_of(named_digest(name), sha256):
        return None
    return "weights_corrupt", f"{name}: its sha256 begins with {sha256[:12]}"
