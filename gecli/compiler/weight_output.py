"""Where a compile puts the weights that do not go into its OM, and when (cli.md 1.12)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gecli.compiler.job import Job, is_one_file
from gecli.errors import CacheError, InvalidOption
from gecli.options.values import Options
from gecli.planning.weight_names import COMBINED, META_NAME, SPLIT
from gecli.records import dataclass

if TYPE_CHECKING:
    from gecli.artifacts.weight_writer import WeightFile
    from gecli.planning.external_weights import ExternalWeight

MODE, DIRECTORY = "ge.externalWeight", "ge.externalWeightDir"
FOLDER = "weight"  # beside the OM


@dataclass(frozen=True, slots=True)
class PendingWeights:
    """External weights between compiling and publishing. `is_shared`: in --external-weight-dir, with a meta.json.

    `written` are the files that hold them already.
    """

    folder: str
    mode: int
    is_shared: bool
    weights: Sequence[ExternalWeight]
    lock_timeout_s: float
    written: tuple[WeightFile, ...] = ()


def weight_folder(job: Job, options: Options) -> str:
    """The directory of --external-weight-dir, else `weight/` beside the OM."""
    return options.text(DIRECTORY) or os.path.join(os.path.dirname(job.om_path), FOLDER)


def refuse_weights_in_one_file(jobs: Sequence[Job], options: Options) -> None:
    """Raises InvalidOption when weights shall lie beside an OM that goes to standard output, a device or a pipe."""
    single = [job for job in jobs if is_one_file(job.om_path)]
    if not options.integer(MODE) or not single:
        return
    raise InvalidOption(
        "E10001",
        f"-o {single[0].om_path} cannot be used with --external-weight",
        where=single[0].source,
        why="the OM needs its weight files and its .rdcpkt, and this output is one file",
        do="-o FILE.om, or leave out --external-weight",
        option="--output",
    )


def pending_weights(weights: Sequence[ExternalWeight], job: Job, options: Options) -> PendingWeights | None:
    """What is to be written for a compiled model; None without external weights.

    A combined file in a shared directory is appended to at once, because its offsets go into the OM. Call it before
    the OM is laid out. Raises OutputError, InputError, and CacheError when the directory stays locked.
    """
    if not weights:
        return None
    folder, mode, is_shared = weight_folder(job, options), options.integer(MODE) or 0, bool(options.text(DIRECTORY))
    given = options.number("lock-timeout")
    timeout_s = 60.0 if given is None else given
    written: tuple[WeightFile, ...] = ()
    if mode == COMBINED and is_shared:
        from gecli.artifacts.weight_meta import MetaLocked
        from gecli.artifacts.weight_writer import append_combined

        try:
            written = tuple(append_combined(folder, job.stem, weights, timeout_s=timeout_s))
        except MetaLocked:
            raise _locked(folder, timeout_s) from None
    return PendingWeights(folder, mode, is_shared, weights, timeout_s, written)


def write_single_files(pending: PendingWeights) -> list[WeightFile]:
    """The files of mode 1, each published at once: their names are digests. Raises as `pending_weights`."""
    if pending.mode != SPLIT:
        return []
    from gecli.artifacts.publish import output_error
    from gecli.artifacts.weight_meta import MetaLocked
    from gecli.artifacts.weight_writer import record_split, write_split

    found = write_split(pending.folder, pending.weights)
    if pending.is_shared:
        try:
            record_split(pending.folder, pending.weights, timeout_s=pending.lock_timeout_s)
        except MetaLocked:
            raise _locked(pending.folder, pending.lock_timeout_s) from None
        except OSError as error:
            raise output_error(os.path.join(pending.folder, META_NAME), error) from error
    return found


def write_combined_file(pending: PendingWeights) -> list[WeightFile]:
    """The file of mode 2 beside an output, published with it. Raises OutputError, InputError."""
    if pending.mode != COMBINED or pending.is_shared:
        return list(pending.written)
    from gecli.artifacts.weight_writer import write_combined

    return [write_combined(pending.folder, pending.weights)]


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
