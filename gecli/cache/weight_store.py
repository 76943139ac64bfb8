"""Putting external weights into the weight directory of a cache, before the entry that needs them (cache.md 8.5)."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gecli.artifacts.shared_files import make_folder
from gecli.artifacts.side_by_side import for_each
from gecli.artifacts.weight_meta import MetaLocked
from gecli.artifacts.weight_writer import append_weights, distinct_weights, holds_weight, record_split, write_checked
from gecli.cache.stat_index import StatIndex
from gecli.cache.store import publish, seal, sync_directory, temporary, witness_row
from gecli.cache.weight_files import WeightRange, weight_dir
from gecli.planning.weight_names import META_NAME

if TYPE_CHECKING:
    from gecli.planning.external_weights import ExternalWeight

LOCK_TIMEOUT_S = 60.0
WRITERS = 8


def ranges_of(weights: Sequence[ExternalWeight]) -> list[WeightRange]:
    """The rows of a sidecar, for the places that the nodes name now."""
    return [
        WeightRange(each.file, each.offset_bytes, each.length_bytes, each.sha256, each.node.name) for each in weights
    ]


def store_single_files(directory: str, weights: Sequence[ExternalWeight], mode: int, stats: StatIndex) -> None:
    """A file for each distinct weight; those that are there with the same content are kept, and are new for gc.

    Raises OSError, and InputError when the source of a weight is gone or changed.
    """
    folder = _made_folder(directory, mode)
    missing = [each for each in distinct_weights(weights) if not _is_there(folder, each, stats)]
    for_each(missing, lambda each: _store_one(folder, each, mode), _thread_count())
    for each in missing:
        stats.add(witness_row(os.path.join(folder, each.file), each.sha256))
    sync_directory(folder)
    record_split(folder, sorted({each.file for each in weights}), mode=mode)


def _store_one(folder: str, each: ExternalWeight, mode: int) -> None:
    path = os.path.join(folder, each.file)
    with temporary(folder, each.file, "", mode) as (stream, made):
        write_checked(stream, each)
        seal(stream)
        try:
            publish(made, path)
        except FileExistsError:
            if not holds_weight(folder, each.file, 0, each, whole=True):
                os.rename(made, path)  # damaged, or no file of ours


def _thread_count() -> int:
    """As many as GE's writer of weights has (GE: MAX_COMPILE_CORE_NUMBER, else 8)."""
    text = os.environ.get("MAX_COMPILE_CORE_NUMBER", "")
    return min(max(int(text), 1), WRITERS) if text.isascii() and text.isdecimal() and len(text) < 4 else WRITERS


def store_combined(directory: str, stem: str, weights: Sequence[ExternalWeight], mode: int) -> None:
    """Append to the model's combined file what the directory lacks, and let the nodes name the places.

    Raises OSError, and InputError when the source of a weight is gone or changed.
    """
    folder = _made_folder(directory, mode)
    try:
        append_weights(folder, stem, weights, timeout_s=LOCK_TIMEOUT_S, mode=mode)
    except MetaLocked:
        path = os.path.join(folder, META_NAME)
        raise OSError(errno.EAGAIN, "another process holds its lock", path) from None


def _made_folder(directory: str, mode: int) -> str:
    folder = weight_dir(directory)
    make_folder(folder, mode)
    return folder


def _is_there(folder: str, each: ExternalWeight, stats: StatIndex) -> bool:
    """Whether the file has the content; a row of the stat index saves reading it."""
    path = os.path.join(folder, each.file)
    if os.path.islink(path):
        os.unlink(path)
        return False
    row = stats.row(path)
    known = row is not None and stats.trusting and row.sha256 == each.sha256
    if not known and not holds_weight(folder, each.file, 0, each, whole=True):
        return False
    stats.add(witness_row(path, each.sha256))  # touches it
    return True
