"""External weights of a cache entry on their way to an output (cache.md 4.4, 8.2).

Loads neither numpy, protobuf nor networkx for weights in files of their own.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from gecli.artifacts.publish import after_publication, place_copy
from gecli.artifacts.weight_meta import remove_odd
from gecli.cache.layout import OM, entry_path
from gecli.cache.stat_index import StatIndex, StatRow, numbers_of, touch_as_witness, write_rows
from gecli.cache.weight_files import (
    BadWeightRow,
    WeightRange,
    difference_of_rows,
    told_weights,
    weight_dir,
    weights_of,
)
from gecli.compiler.result import OutputFile
from gecli.compiler.weight_output import DIRECTORY, MODE, weight_folder
from gecli.planning.weight_names import COMBINED, SPLIT, spelled

if TYPE_CHECKING:
    from gecli.cache.candidate import Found
    from gecli.cache.foreign_weights import HeldFile
    from gecli.cache.model_cache import CacheDir
    from gecli.compiler.job import Job
    from gecli.compiler.result import ModelResult
    from gecli.compiler.weight_output import PendingWeights
    from gecli.options.values import Options
    from gecli.planning.external_weights import ExternalWeight
    from gecli.wire.model_record import ModelRecord


def entry_weights(cache: CacheDir, found: Found) -> list[WeightRange]:
    """The external weights of an entry. Raises OSError when they cannot be told."""
    try:
        ranges = weights_of(cache.path, found.stem, found.sidecar)
        # The source's own files, which no cache holds, have no digest.
        return [each for each in ranges if each.sha256] if found.sidecar is None else ranges
    except BadWeightRow as error:
        raise OSError(errno.EINVAL, str(error)) from error


def needs_new_offsets(options: Options, ranges: Sequence[WeightRange]) -> bool:
    """Whether an entry's OM names places in a combined file, which is another one beside an output."""
    return bool(ranges) and options.integer(MODE) == COMBINED


def place_single_files(
    cache: CacheDir, job: Job, ranges: Sequence[WeightRange], options: Options, stats: StatIndex, result: ModelResult
) -> None:
    """Copy files of single weights to the output's weight directory, unless they stand there already.

    Raises OutputError, and OSError when one of the entry's cannot be read.
    """
    if not ranges:
        return
    folder = weight_folder(job, options)
    distinct = {each.file: each for each in ranges}
    rows_path = _rows_path(cache, folder)
    stats.load(rows_path)
    for name, each in distinct.items():
        source, target = os.path.join(weight_dir(cache.path), name), os.path.join(folder, name)
        if not _is_in_place(target, each, stats):
            place_copy(source, target, partial(_is_content, stats, source, each.sha256))
        result.external_weights.append(OutputFile(target, each.length, each.sha256))
    after_publication(partial(_remember, cache, rows_path, folder, [(each.file, each.sha256) for each in ranges]))
    if options.text(DIRECTORY):
        from gecli.artifacts.weight_writer import record_split

        result.weight_dir = folder
        after_publication(partial(record_split, folder, sorted(distinct)))


def write_with_new_offsets(
    cache: CacheDir, job: Job, found: Found, ranges: Sequence[WeightRange], options: Options, result: ModelResult
) -> OutputFile:
    """The combined file of an output and its OM, with the places of that file. Raises OutputError, OSError."""
    from gecli.artifacts.om_file import read_om
    from gecli.artifacts.om_image_of import image_of
    from gecli.artifacts.om_writer import write_om
    from gecli.compiler.weight_output import pending_weights, write_weights
    from gecli.errors import InputError

    try:
        om = read_om(entry_path(cache.path, found.stem, OM))
        model = om.model()
        weights = weights_in(cache, found, ranges, model, job)
        pending = pending_weights(weights, job, options)
        assert pending is not None
        write_weights(pending, result)
        return OutputFile(job.om_path, write_om(job.om_path, image_of(om, model)))
    except InputError as error:  # whole when it was looked at
        node = error.first.node
        raise OSError(errno.EIO, f"the weight of node {node!r} is damaged" if node else error.first.message) from error


def weights_in(
    cache: CacheDir, found: Found, ranges: Sequence[WeightRange], model: ModelRecord, job: Job
) -> list[ExternalWeight]:
    """The weights of an entry in the combined file of its cache, for the one of an output, whose places `model` gets.

    Raises OSError where sidecar and `model` do not fit together.
    """
    from gecli.ir.weight import FileSlice, Weight
    from gecli.planning.external_weights import ExternalWeight, place_in_combined

    if found.sidecar is None:  # whose rows have the order of the compile
        ranges = _in_name_order(ranges)
    elif fault := difference_of_rows(ranges, told_weights(model, found.sidecar)):
        raise OSError(errno.EINVAL, fault)
    named: dict[str, list[WeightRange]] = {}
    for row in ranges:
        named.setdefault(row.node, []).append(row)
    nodes = {node: named[node.name][0] for graph in model.graphs for node in graph.nodes if node.name in named}
    order = {row.node: position for position, row in enumerate(ranges)}
    folder = weight_dir(cache.path)
    weights = [
        ExternalWeight(
            node,
            Weight(node.output_descs[0], FileSlice(os.path.join(folder, row.file), row.offset, row.length)),
            row.sha256,
        )
        for node, row in sorted(nodes.items(), key=lambda item: order[item[1].node])
    ]
    place_in_combined(weights, job.stem)
    return weights


class EntryWeights:
    """The external weights of an entry whose model is written anew, for an output of a session."""

    def __init__(self, cache: CacheDir, job: Job, found: Found, options: Options, stats: StatIndex) -> None:
        self._cache, self._job, self._found, self._options, self._stats = cache, job, found, options, stats
        self._ranges: list[WeightRange] = []
        self._combined: list[ExternalWeight] = []
        self._foreign: list[HeldFile] = []

    def relocate(self, model: ModelRecord) -> None:
        """Let the nodes of the model name the places that a compile gives them. Raises OSError, UnusableWeights."""
        if self._found.sidecar is None and not self._found.lost_sidecar:
            from gecli.compiler.foreign_entry import files_of

            self._foreign = files_of(model, self._cache, self._options, self._stats)
            return
        self._ranges = entry_weights(self._cache, self._found)
        if needs_new_offsets(self._options, self._ranges):
            self._combined = weights_in(self._cache, self._found, self._ranges, model, self._job)

    def pending(self) -> PendingWeights | None:
        """What is to be published; None without any. Raises OutputError, InputError, CacheError."""
        from gecli.compiler.weight_output import PendingWeights, pending_weights

        if self._combined or not (self._ranges or self._foreign):
            return pending_weights(self._combined, self._job, self._options)
        folder, is_shared = weight_folder(self._job, self._options), bool(self._options.text(DIRECTORY))
        return PendingWeights(folder, SPLIT, is_shared, (), place=self._place)

    def _place(self, result: ModelResult) -> None:
        from gecli.artifacts.om_writer import unreadable_source

        try:
            if self._foreign:
                from gecli.compiler.foreign_entry import place_files

                place_files(self._foreign, self._job, self._options, self._stats, result)
                return
            place_single_files(self._cache, self._job, self._ranges, self._options, self._stats, result)
        except OSError as error:
            raise unreadable_source(error) from error


def _in_name_order(ranges: Sequence[WeightRange]) -> list[WeightRange]:
    """The order in which a compile places weights: by the names that their nodes had as constants.

    Raises OSError when two graphs have constants of one name, whose order the OM does not tell.
    """
    named: dict[str, WeightRange] = {}
    for each in ranges:
        name = each.node.removesuffix(f"_{spelled(each.sha256)}") if each.sha256 else each.node
        if named.setdefault(name, each).sha256 != each.sha256:
            raise OSError(errno.EINVAL, f"two constants are named {name}")
    return [named[name] for name in sorted(named)]


def _is_content(stats: StatIndex, source: str, sha256: str, descriptor: int) -> bool:
    return stats.is_content(descriptor, source, sha256)


def _rows_path(cache: CacheDir, folder: str) -> str:
    from gecli.compiler.direct_hit import output_rows_path

    return output_rows_path(cache.path, folder)


def _is_in_place(target: str, each: WeightRange, stats: StatIndex) -> bool:
    if remove_odd(target):
        return False
    numbers = numbers_of(target)
    if numbers is None or numbers[2] != each.length:
        return False
    try:
        return stats.sha256(target) == each.sha256
    except OSError:
        return False


def _remember(cache: CacheDir, rows_path: str, folder: str, files: list[tuple[str, str]]) -> None:
    """Note that these files have this content, so that the next hit need not read them."""
    import time

    if not cache.may_write:
        return
    rows = []
    for name, sha256 in dict(files).items():
        real = os.path.realpath(os.path.join(folder, name))
        with suppress(OSError):
            numbers = touch_as_witness(real)
            if numbers is not None:
                rows.append(StatRow(real, numbers, sha256, time.time_ns(), is_witness=True))
    write_rows(rows_path, rows)
