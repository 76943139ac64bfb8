"""Entries of other tools on their way to an output: their weights, and the OM that names them (cache.md 4.4, 4.6)."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gecli.artifacts.om_file import read_om
from gecli.artifacts.om_splice import spliced
from gecli.artifacts.om_writer import OmImage
from gecli.artifacts.publish import place_copy
from gecli.cache.foreign_weights import HeldFile, UnusableWeights, foreign_files
from gecli.cache.layout import OM, entry_path
from gecli.cache.weight_files import weight_dir
from gecli.compiler.direct_hit import place_entry
from gecli.compiler.result import OutputFile
from gecli.compiler.weight_output import DIRECTORY, weight_folder
from gecli.errors import GecliError, InputError
from gecli.planning.weight_names import combined_name, is_split_name
from gecli.wire.model_edit import Offsets, edited_model_def

if TYPE_CHECKING:
    from gecli.cache.candidate import Found
    from gecli.cache.model_cache import CacheDir
    from gecli.cache.stat_index import StatIndex
    from gecli.compiler.job import Job
    from gecli.compiler.result import ModelResult
    from gecli.options.values import Options
    from gecli.wire.model_record import ModelRecord

VALUE_BINS = "ge.exec.value_bins"


def files_of(model: ModelRecord, cache: CacheDir, options: Options, stats: StatIndex) -> list[HeldFile]:
    """The weight files of an entry: in --external-weight-dir, else in that of the cache. Raises UnusableWeights."""
    from gecli.runtime.weight_search import bins_of

    given = options.text(DIRECTORY)
    folders = [*([given] if given else []), weight_dir(cache.path)]
    return foreign_files(model, folders, bins_of(options.text(VALUE_BINS) or ""), stats)


def deliver_foreign(
    cache: CacheDir, job: Job, found: Found, stats: StatIndex, options: Options, result: ModelResult
) -> None:
    """Make an entry the outputs as it is, but with the bare names of its weight files, which are placed.

    Raises OutputError, and OSError when something of the entry cannot be had.
    """
    try:
        om = read_om(entry_path(cache.path, found.stem, OM))
        files = files_of(om.model(), cache, options, stats)
        place_files(files, job, options, stats, result)
        image = image_with({}, {}, om.path) if files else None
    except GecliError as error:
        raise OSError(errno.EIO, error.first.message) from error
    except UnusableWeights as error:
        raise OSError(errno.EIO, str(error)) from error
    try:
        place_entry(cache, job, found, stats, result, image)
    except InputError as error:  # gone since it was looked at
        raise OSError(errno.EIO, error.first.message) from error


def image_with(offsets: Mapping[tuple[int, str], Offsets], numbers: Mapping[str, int], path: str) -> OmImage | None:
    """The OM at `path` with bare names of weight files and these offsets and attributes; None where nothing changes.

    Raises InputError.
    """
    return spliced(read_om(path), lambda data: edited_model_def(data, offsets, numbers, bare_locations=True))


def place_files(files: Sequence[HeldFile], job: Job, options: Options, stats: StatIndex, result: ModelResult) -> None:
    """Copy weight files to the output's weight directory, unless they stand there already.

    A file of this name that is another one stays, as models beside the output may use it. Raises OutputError, OSError.
    """
    result.external_weights = []
    folder = weight_folder(job, options)
    for each in files:
        source, target = os.path.join(each.folder, each.name), os.path.join(folder, each.name)
        sha256 = stats.sha256(source)
        if not _is_same(source, target, sha256, stats):
            if os.path.lexists(target) and not is_split_name(each.name) and each.name != combined_name(job.stem):
                raise OSError(errno.EEXIST, "another weight file has this name", target)
            place_copy(source, target, partial(_is_content, stats, source, sha256))
        result.external_weights.append(OutputFile(target, os.path.getsize(source), sha256))
    if files and options.text(DIRECTORY):
        result.weight_dir = folder


def _is_same(source: str, target: str, sha256: str, stats: StatIndex) -> bool:
    if not os.path.isfile(target) or os.path.islink(target):
        return False
    if os.path.samefile(source, target):
        return True
    return os.path.getsize(source) == os.path.getsize(target) and stats.sha256(target) == sha256


def _is_content(stats: StatIndex, source: str, sha256: str, descriptor: int) -> bool:
    return stats.is_content(descriptor, source, sha256)
