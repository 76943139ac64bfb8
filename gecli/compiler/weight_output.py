"""Where a compile puts the weights that do not go into its OM, and when (cli.md 1.12)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gecli.compiler.job import Job
from gecli.compiler.result import OutputFile
from gecli.errors import CacheError
from gecli.options.values import Options
from gecli.planning.weight_names import COMBINED, META_NAME, SPLIT
from gecli.records import dataclass

if TYPE_CHECKING:
    from gecli.artifacts.weight_writer import WeightFile
    from gecli.compiler.result import ModelResult
    from gecli.planning.external_weights import ExternalWeight

MODE, DIRECTORY = "ge.externalWeight", "ge.externalWeightDir"
FOLDER = "weight"  # beside the OM


@dataclass(frozen=True, slots=True)
class PendingWeights:
    """External weights between compiling and publishing. `is_shared`: in --external-weight-dir, with a meta.json.

    `written` are the files that hold them already. `place` publishes weights that are files of the cache.
    """

    folder: str
    mode: int
    is_shared: bool
    weights: Sequence[ExternalWeight]
    written: tuple[WeightFile, ...] = ()
    place: Callable[[ModelResult], None] | None = None


def weight_folder(job: Job, options: Options) -> str:
    """The directory of --external-weight-dir, else `weight/` beside the OM."""
    return options.text(DIRECTORY) or os.path.join(os.path.dirname(job.om_path), FOLDER)


def pending_weights(weights: Sequence[ExternalWeight], job: Job, options: Options) -> PendingWeights | None:
    """What is to be written for a compiled model; None without external weights.

    A combined file in a shared directory is appended to at once, because its offsets go into the OM; it is taken back
    when the running block of `published_together` fails. Call it before the OM is laid out. Raises OutputError,
    InputError, and CacheError when the directory stays locked.
    """
    if not weights:
        return None
    folder, mode, is_shared = weight_folder(job, options), options.integer(MODE) or 0, bool(options.text(DIRECTORY))
    written: tuple[WeightFile, ...] = ()
    if mode == COMBINED and is_shared:
        from gecli.artifacts.weight_meta import MetaLocked
        from gecli.artifacts.weight_writer import append_combined

        given = options.number("lock-timeout")
        timeout_s = 60.0 if given is None else given
        try:
            written = tuple(append_combined(folder, job.stem, weights, timeout_s=timeout_s))
        except MetaLocked:
            raise _locked(folder, timeout_s) from None
    return PendingWeights(folder, mode, is_shared, weights, written)


def unwritten_weights(weights: Sequence[ExternalWeight], job: Job, options: Options) -> PendingWeights | None:
    """The same of a model that is only stored in the cache yet: no place of an output is taken."""
    if not weights:
        return None
    return PendingWeights(
        weight_folder(job, options), options.integer(MODE) or 0, bool(options.text(DIRECTORY)), weights
    )


def write_weights(pending: PendingWeights, result: ModelResult) -> None:
    """Publish the weight files of a model, before its rdcpkt and OM. Raises OutputError, InputError."""
    from gecli.artifacts.publish import after_publication
    from gecli.artifacts.weight_writer import record_split, write_combined, write_split

    if pending.place is not None:
        result.pending, result.external_weights = None, []
        pending.place(result)
        return
    if pending.mode == SPLIT:
        files = write_split(pending.folder, pending.weights)
        if pending.is_shared:
            names = sorted({each.file for each in pending.weights})
            after_publication(partial(record_split, pending.folder, names))
    elif pending.is_shared:
        files = list(pending.written)
    else:
        files = [write_combined(pending.folder, pending.weights)]
    result.external_weights = [OutputFile(*file) for file in files]
    result.weight_dir = pending.folder if pending.is_shared else ""
    result.pending = None


def _locked(folder: str, timeout_s: float) -> CacheError:
    path = os.path.join(folder, META_NAME)
    return CacheError(
        "G5001",
        f"weight directory {folder} is in use",
        why=f"another process has held the lock of {path} for {timeout_s:g} s",
        do="wait, or raise --lock-timeout",
        kind="lock_timeout",
        file=path,
    )
