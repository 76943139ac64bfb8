"""Compiles whose request is known: the entry's own files are the outputs, nothing is parsed (cache.md 4.4, 11.3).

Loads neither numpy, protobuf nor networkx.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gecli.artifacts.publish import after_publication, is_special, place_copy, published_together, remove_file
from gecli.cache.candidate import Found
from gecli.cache.events import hit_event, record
from gecli.cache.layout import OM, RDCPKT
from gecli.cache.model_cache import CacheDir, find_request, model_rows_path, note_use, save_entry_rows
from gecli.cache.request_digest import EMPTY_SESSION, known_files, option_items, request_digest
from gecli.cache.stat_index import StatIndex, StatRow, numbers_of, short_name, touch_as_witness, write_rows
from gecli.compiler.cache_setup import CacheSetup
from gecli.compiler.job import is_one_file
from gecli.compiler.result import CacheUse, ModelResult, OutputFile

if TYPE_CHECKING:
    from gecli.artifacts.om_writer import OmImage
    from gecli.cache.sidecar import Sidecar
    from gecli.compiler.job import Job
    from gecli.errors import Diagnostic
    from gecli.options.values import Options


class Request(NamedTuple):
    """A model with its options: the files read, and the digest."""

    files: list[str]
    digest: str
    items: list[tuple[str, str]]


def direct_hits(
    setup: CacheSetup,
    jobs: Sequence[Job],
    options: Options,
    stats: StatIndex,
    check_read: Callable[[str, Sequence[str]], None] | None = None,
) -> list[Found] | None:
    """An entry for every job, by its request digest; None if any is missing, for the long way.

    Several models of one session are taken only if none has variables, because they would share them. `check_read` is
    told of each model and its files, and may raise.
    """
    if setup.cache.mode not in ("rw", "ro") or options.text("session-out"):
        return None
    found = []
    for position, job in enumerate(jobs):
        request = request_of(setup.cache, job, options, stats)
        entry = request and find_request(setup.cache, request.digest, setup.key_of(position), stats)
        if not entry or (entry.has_rdcpkt and len(jobs) > 1 and not options.flag("no-session")):
            return None
        if request and check_read is not None:
            check_read(job.source, request.files)
        found.append(entry)
    return found


def has_session_file(options: Options) -> bool:
    """Whether the session goes on from another command, or to one."""
    return bool(options.text("session-in") or options.text("session-out"))


def request_of(
    cache: CacheDir, job: Job, options: Options, stats: StatIndex, files: Sequence[str] | None = None
) -> Request | None:
    """The request of a job; None for a model from standard input or one that cannot be read.

    Without `files` (the model, then its data) they are those of the last compile of an equal model.
    """
    if job.source == "-":
        return None
    try:
        items = option_items(options, stats, job.stem, job.source)
        if files is None:
            files = known_files(model_rows_path(cache.path, job.source), job.source, stats)
        session_file = options.text("session-in")
        session = f"sha256:{stats.sha256(session_file)}" if session_file else EMPTY_SESSION
        return Request(list(files), request_digest(files, items, stats, session), items)
    except OSError:
        return None  # the loader says what is wrong with the file


def deliver(cache: CacheDir, job: Job, found: Found, stats: StatIndex, options: Options, result: ModelResult) -> None:
    """Make the entry's files the outputs of `result`: weights, the rdcpkt, then the OM; a stale rdcpkt goes last.

    Raises OutputError, and OSError when the entry cannot be read.
    """
    if found.has_rdcpkt and is_one_file(job.om_path):
        from gecli.compiler.job_checks import refuse_variables_in_one_file

        refuse_variables_in_one_file(job.om_path, job.source)
    with published_together():
        if found.sidecar is None and not found.lost_sidecar:
            from gecli.compiler.foreign_entry import deliver_foreign

            deliver_foreign(cache, job, found, stats, options, result)
            return
        if options.get("ge.externalWeight"):
            _deliver_with_weights(cache, job, found, stats, options, result)
            return
        place_entry(cache, job, found, stats, result)


def place_entry(
    cache: CacheDir, job: Job, found: Found, stats: StatIndex, result: ModelResult, image: OmImage | None = None
) -> None:
    """Make the entry's own files the outputs; `image` is the OM when it is another one. Raises OutputError, OSError."""
    _place_packet(cache, job, found, stats, result)
    if image is None:
        result.output = _place(cache, found, OM, job.om_path, stats)
    else:
        from gecli.artifacts.om_writer import write_om

        result.output = OutputFile(job.om_path, write_om(job.om_path, image))
    if not found.has_rdcpkt:
        remove_file(job.rdcpkt_path)


def _place_packet(cache: CacheDir, job: Job, found: Found, stats: StatIndex, result: ModelResult) -> None:
    result.rdcpkt = _place(cache, found, RDCPKT, job.rdcpkt_path, stats) if found.has_rdcpkt else None


def _deliver_with_weights(
    cache: CacheDir, job: Job, found: Found, stats: StatIndex, options: Options, result: ModelResult
) -> None:
    from gecli.compiler.weight_delivery import (
        entry_weights,
        needs_new_offsets,
        place_single_files,
        write_with_new_offsets,
    )

    ranges = entry_weights(cache, found)
    result.external_weights = []
    if needs_new_offsets(options, ranges):
        _place_packet(cache, job, found, stats, result)
        result.output = write_with_new_offsets(cache, job, found, ranges, options, result)
        return
    place_single_files(cache, job, ranges, options, stats, result)
    place_entry(cache, job, found, stats, result)


def conf_warnings(setup: CacheSetup) -> list[Diagnostic]:
    """What cache.conf says in vain."""
    if not setup.cache.conf.warnings:
        return []
    from gecli.errors import Diagnostic

    path = setup.cache.path
    return [
        Diagnostic("E10032", each.message, severity="warning", file=path, do=each.do)
        for each in setup.cache.conf.warnings
    ]


def deliver_direct(setup: CacheSetup, job: Job, found: Found, options: Options, stats: StatIndex) -> ModelResult:
    """Deliver a direct hit and report it. Raises OutputError."""
    result = hit_result(job, found, setup, options)
    deliver(setup.cache, job, found, stats, options, result)
    finish_hit(setup.cache, found, stats)
    result.warnings = [*result.warnings, *conf_warnings(setup)]
    if options.text("depfile"):
        request = request_of(setup.cache, job, options, stats)
        result.files_read = [] if request is None else request.files
    if setup.explain:
        result.cache.explanation = [f"{found.stem}: hit via {found.via} (the request is known)"]
    return result


def finish_hit(cache: CacheDir, found: Found, stats: StatIndex) -> None:
    """Keep what was learned: use time, stat rows and the counters."""
    note_use(cache, found, stats)
    save_entry_rows(cache, found.key, found.stem, stats, found.sidecar)
    if cache.may_write and found.via:  # an entry that was stored a moment ago is no hit
        record(cache.path, hit_event(found))


def hit_result(job: Job, found: Found, setup: CacheSetup, options: Options) -> ModelResult:
    """The report of a hit, from the entry's sidecar."""
    sidecar = found.sidecar
    result = ModelResult(job.source, "", OutputFile(job.om_path, 0))
    if sidecar is not None:
        fill_from_sidecar(result, sidecar)
    result.options = options.records()
    result.session = options.text("session") or "default"
    result.cache = CacheUse(
        "hit",
        found.key,
        setup.key_origin,
        found.stem,
        via=found.via,
        seconds_saved=sidecar.compile_seconds if sidecar is not None else None,
        foreign=found.is_foreign,
    )
    return result


REPORT_MEMBERS = (
    "front_end",
    "inputs",
    "outputs",
    "variables",
    "memory",
    "node_count",
    "is_dynamic",
    "dynamic_cause",
    "notes",
    "verification",
)
MEMORY_UNKNOWN = "memory sizes are not known: the cache entry has no report"


def fill_from_sidecar(result: ModelResult, sidecar: Sidecar) -> None:
    """Take over what the compile said about the model."""
    for name in REPORT_MEMBERS:
        value = sidecar.report.get(name)
        if value is not None:
            setattr(result, name, list(value) if isinstance(value, list) else value)
    if not result.memory:
        result.notes = [*result.notes, MEMORY_UNKNOWN]
    warnings = sidecar.report.get("warnings")
    if warnings:
        from gecli.errors import Diagnostic

        result.warnings = [Diagnostic(**fields) for fields in warnings]
    om, rdcpkt = sidecar.file_facts("om"), sidecar.file_facts("rdcpkt")
    if om is not None:
        result.output = OutputFile(result.output.path, *om)
    if rdcpkt is not None:
        path = os.path.splitext(result.output.path)[0] + RDCPKT
        result.rdcpkt = OutputFile(path, *rdcpkt)


def _place(cache: CacheDir, found: Found, suffix: str, target: str, stats: StatIndex) -> OutputFile:
    """Copy one file of the entry to `target`, unless it stands there already; its time becomes now either way."""
    source = found.path(cache.path, suffix)
    facts = found.sidecar.file_facts(suffix[1:]) if found.sidecar is not None else None
    size, digest = facts or (os.path.getsize(source), stats.sha256(source))

    def is_meant(descriptor: int) -> bool:
        # Collected and stored again within a second, an entry may have the name of another one of its key.
        return stats.is_content(descriptor, source, digest)

    if target == "-":
        _to_stdout(source, is_meant)
        return OutputFile(target, size, digest)
    if is_special(target):
        place_copy(source, target, is_meant)
        return OutputFile(target, size, digest)
    rows_path = output_rows_path(cache.path, target)
    if not _is_in_place(target, size, digest, rows_path, stats):
        place_copy(source, target, is_meant)
    after_publication(partial(remember_output, cache, target, digest))
    return OutputFile(target, size, digest)


def _is_in_place(target: str, size: int, digest: str, rows_path: str, stats: StatIndex) -> bool:
    if os.path.islink(target):
        return False
    numbers = numbers_of(target)
    if numbers is None or numbers[2] != size:
        return False
    stats.load(rows_path)
    try:
        if stats.sha256(target) != digest:
            return False
        os.utime(target)
    except OSError:
        return False  # replacing the file may still work
    return True


def output_rows_path(directory: str, target: str) -> str:
    """The file of the stat index for an output path."""
    return os.path.join(directory, ".gecli", "stat", f"o-{short_name(os.path.realpath(target))}")


def remember_output(cache: CacheDir, target: str, digest: str) -> StatRow | None:
    """Note that an output has this content, so that the next hit need not read it."""
    import time

    if not cache.may_write:
        return None
    real = os.path.realpath(target)
    try:
        numbers = touch_as_witness(real)
    except OSError:
        return None
    if numbers is None:
        return None
    row = StatRow(real, numbers, digest, time.time_ns(), is_witness=True)
    write_rows(output_rows_path(cache.path, target), [row])
    return row


def _to_stdout(source: str, accept: Callable[[int], bool]) -> None:
    import shutil
    import sys

    from gecli.artifacts.publish import open_accepted

    with open_accepted(source, accept) as stream:
        shutil.copyfileobj(stream, sys.stdout.buffer)
    sys.stdout.buffer.flush()
