"""Checking one entry: is it there, is it whole, was it made from the same thing (cache.md 11.4, 4.2)."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from typing import NamedTuple

from gecli.cache.index import IndexRecord
from gecli.cache.layout import OM, RDCPKT, SIDECAR, entry_path
from gecli.cache.sidecar import InvalidSidecar, Sidecar, difference_of, read_sidecar
from gecli.cache.stat_index import StatIndex
from gecli.wire.regular_file import io_fault, read_regular

OM_MAGIC = b"IMOD"
OM_HEADER_BYTES = 256
CHECKSUM_END = 76  # of the field in the header that ends in gecli's mark


class Verdict(NamedTuple):
    """The outcome of a check: `via` how a match came about, or a reason code with what was seen."""

    via: str = ""
    reason: str = ""
    evidence: str = ""
    details: tuple[str, ...] = ()


class Wanted(NamedTuple):
    """What a compile needs from an entry. The two functions are asked only when it comes to them."""

    fingerprint: Mapping[str, str]  # combined, graph, weights, options, toolchain
    source: str
    match_variables: Callable[
        [str | None, bool], Verdict
    ]  # path of the rdcpkt or None; whether a digest vouches for it
    match_foreign: Callable[[str, str], Verdict]  # path of the .om, source fingerprint
    explain: Callable[[Sidecar], list[str]] = lambda sidecar: []
    has_user_functions: bool = False
    load: Callable[[Found], Verdict] | None = None  # brings an entry that fits into the session


class Found(NamedTuple):
    """An entry that fits. `rdcpkt_name` is that of its variable record, empty for an entry without one."""

    key: str
    stem: str
    via: str
    sidecar: Sidecar | None
    rdcpkt_name: str
    warnings: tuple[str, ...] = ()
    lost_sidecar: bool = False

    @property
    def is_foreign(self) -> bool:
        """Whether nothing proves that it was made from the model: only what meets the eye was compared."""
        return self.sidecar is None and not self.lost_sidecar

    @property
    def has_rdcpkt(self) -> bool:
        return bool(self.rdcpkt_name)

    def path(self, directory: str, suffix: str) -> str:
        """Where a file of the entry lies; the variable record of another tool's may have a name of its own."""
        return os.path.join(directory, self.rdcpkt_name if suffix == RDCPKT else self.stem + suffix)


class Rejected(NamedTuple):
    """An entry that does not fit, and the first check that it failed."""

    stem: str
    reason: str
    evidence: str = ""
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.stem or '-'}: {self.reason}" + (f" ({self.evidence})" if self.evidence else "")


class Policy(NamedTuple):
    """How foreign entries are treated: `accept`, `warn` or `reject`; whether user functions need a confirmation."""

    foreign_entries: str = "warn"
    manual_check: bool = False


def check_record(
    directory: str, record: IndexRecord, wanted: Wanted, policy: Policy, stats: StatIndex, *, is_legacy: bool = False
) -> Found | Rejected:
    """Run every check on the entry of an index record, in the order of the specification; the last one loads it."""
    found = _checked(directory, record, wanted, policy, stats, is_legacy)
    if wanted.load is None or isinstance(found, Rejected):
        return found
    verdict = wanted.load(found)
    return Rejected(found.stem, verdict.reason, verdict.evidence, verdict.details) if verdict.reason else found


def _checked(
    directory: str, record: IndexRecord, wanted: Wanted, policy: Policy, stats: StatIndex, is_legacy: bool
) -> Found | Rejected:
    stem = record.stem
    if record.problem:
        return Rejected(stem, record.problem, str(record.raw.get("cache_file_name", ""))[:200])
    missing = missing_file(directory, record)
    if missing:
        return Rejected(stem, *missing)
    sidecar: Sidecar | None = None
    if not is_legacy:
        try:
            sidecar = read_sidecar(directory, record.graph_key, stem)
        except InvalidSidecar as error:
            return Rejected(stem, "sidecar_invalid", str(error))
        except OSError as error:
            return Rejected(stem, "io_error", error.strerror or str(error))
    if sidecar is None or not sidecar.combined:
        return _check_foreign(directory, record, sidecar, wanted, policy, stats, is_legacy)
    if sidecar.combined != wanted.fingerprint["combined"]:
        differing = difference_of(sidecar.fingerprint, wanted.fingerprint)
        return Rejected(stem, "fingerprint_mismatch", ", ".join(differing), tuple(wanted.explain(sidecar)))
    return _check_variables(directory, record, sidecar, wanted, policy, stats)


def _check_variables(
    directory: str, record: IndexRecord, sidecar: Sidecar, wanted: Wanted, policy: Policy, stats: StatIndex
) -> Found | Rejected:
    damage = damaged_file(directory, record, sidecar, stats)
    if damage:
        return Rejected(record.stem, *damage)
    rdcpkt = os.path.join(directory, record.rdcpkt_name) if record.rdcpkt_name else None
    verdict = wanted.match_variables(rdcpkt, True)
    if verdict.reason:
        return Rejected(record.stem, verdict.reason, verdict.evidence, verdict.details)
    damage = damaged_weights(directory, record.stem, sidecar, stats)
    if damage:
        return Rejected(record.stem, *damage)
    if policy.manual_check and wanted.has_user_functions and not sidecar.is_confirmed:
        return _unconfirmed(record)
    return Found(record.graph_key, record.stem, verdict.via, sidecar, record.rdcpkt_name)


def _check_foreign(
    directory: str,
    record: IndexRecord,
    sidecar: Sidecar | None,
    wanted: Wanted,
    policy: Policy,
    stats: StatIndex,
    is_legacy: bool,
) -> Found | Rejected:
    """An entry without a proof of its content: the model itself is compared, as far as that goes (cache.md 4.6)."""
    stem = record.stem
    if sidecar is not None:
        damage = damaged_file(directory, record, sidecar, stats)
        if damage:
            return Rejected(stem, *damage)
    om = entry_path(directory, stem, OM)
    fault = om_fault(om)
    if fault:
        return Rejected(stem, *fault)
    judged = wanted.match_foreign(om, wanted.source)
    if judged.reason:
        return Rejected(stem, judged.reason, judged.evidence)
    proven = judged.via == "source"  # the OM carries the fingerprint of exactly this compile
    if not proven and policy.foreign_entries == "reject":
        return Rejected(stem, "foreign_rejected")
    rdcpkt = os.path.join(directory, record.rdcpkt_name) if record.rdcpkt_name else None
    verdict = wanted.match_variables(rdcpkt, sidecar is not None)
    if verdict.reason:
        return Rejected(stem, verdict.reason, verdict.evidence, verdict.details)
    damage = damaged_weights(directory, stem, None, stats) if proven else None
    if damage:
        return Rejected(stem, *damage)
    if policy.manual_check and wanted.has_user_functions and not _is_confirmed(directory, record, sidecar, stats):
        return _unconfirmed(record)
    via = "legacy" if is_legacy else verdict.via
    warnings: tuple[str, ...] = ()
    if not proven and policy.foreign_entries == "warn":
        warnings = (
            f"cache entry {stem} was made by another tool: only its inputs, outputs and variables were checked",
        )
    return Found(record.graph_key, stem, via, None, record.rdcpkt_name, warnings, lost_sidecar=proven)


def _is_confirmed(directory: str, record: IndexRecord, sidecar: Sidecar | None, stats: StatIndex) -> bool:
    """Whether the confirmation of another tool's entry is there and is for these files."""
    try:
        found = sidecar or read_sidecar(directory, record.graph_key, record.stem)
    except (InvalidSidecar, OSError):
        return False
    return found is not None and found.is_confirmed and damaged_file(directory, record, found, stats) is None


def _unconfirmed(record: IndexRecord) -> Rejected:
    do = f"gecli cache confirm {record.graph_key} {record.stem}"
    return Rejected(record.stem, "manual_check_required", f"it has user functions; {do} allows it")


def missing_file(directory: str, record: IndexRecord) -> tuple[str, str] | None:
    """(reason, name) of a file that the record names and that is not there, or of which that is not known."""
    for name, reason in ((record.om_name, "om_missing"), (record.rdcpkt_name, "rdcpkt_missing")):
        if not name:
            continue
        try:
            is_there = stat.S_ISREG(os.stat(os.path.join(directory, name)).st_mode)
        except (OSError, ValueError) as error:
            if why := io_fault(error):
                return "io_error", f"{name}: {why}"
            is_there = False
        if not is_there:
            return reason, name
    return None


def damaged_file(
    directory: str, record: IndexRecord, sidecar: Sidecar, stats: StatIndex, *, hashed: bool = True
) -> tuple[str, str] | None:
    """(reason, evidence) of a file that is not what the sidecar says; sizes only with `hashed` off."""
    if bool(record.rdcpkt_name) != sidecar.has_rdcpkt:
        return "sidecar_invalid", "index and sidecar disagree about the .rdcpkt"
    for kind in ("om", "rdcpkt") if sidecar.has_rdcpkt else ("om",):
        facts = sidecar.file_facts(kind)
        path = os.path.join(directory, record.om_name if kind == "om" else record.rdcpkt_name)
        try:
            size = os.path.getsize(path)
            if facts is None or size != facts[0]:
                return f"{kind}_corrupt", f"{size} bytes instead of {facts[0] if facts else '?'}"
            if hashed and stats.sha256(path) != facts[1]:
                return f"{kind}_corrupt", "the sha256 is not that of the sidecar"
        except FileNotFoundError:
            return f"{kind}_missing", os.path.basename(path)
        except OSError as error:
            return "io_error", error.strerror or str(error)
    return None


def damaged_weights(directory: str, stem: str, sidecar: Sidecar | None, stats: StatIndex) -> tuple[str, str] | None:
    """(reason, evidence) of an external weight of an entry that is missing, short, unsafe, changed or not told of.

    They are read unless the stat index knows them: an output is made of them without another look.
    """
    if sidecar is not None and not sidecar.content.get("weights") and not sidecar.asks_for_weight_files:
        return None
    from gecli.cache.weight_files import (
        BadWeightRow,
        damaged_part,
        damaged_weight,
        is_single,
        row_fault,
        weight_dir,
        weights_of,
    )

    try:
        ranges = weights_of(directory, stem, sidecar)
        if sidecar is None:  # the source's own files, which no cache holds, have no digest
            ranges = [each for each in ranges if each.sha256]
        elif not _is_known(directory, stem, stats):
            fault = row_fault(directory, stem, sidecar)
            if fault:
                return "sidecar_invalid", fault
            stats.sha256(entry_path(directory, stem, SIDECAR))  # the next look-up knows it
    except (BadWeightRow, OSError) as error:
        if why := io_fault(error):
            return "io_error", why
        return "sidecar_invalid" if sidecar is not None else "load_failed", str(error)
    folder = weight_dir(directory)
    single, parts = [each for each in ranges if is_single(each)], [each for each in ranges if not is_single(each)]
    return damaged_weight(folder, single, stats, hashed=True) or damaged_part(folder, parts, stats)


def _is_known(directory: str, stem: str, stats: StatIndex) -> bool:
    """Whether the sidecar is as it was when it was written, or when its rows were compared with the OM."""
    return stats.trusting and stats.row(entry_path(directory, stem, SIDECAR)) is not None


def om_fault(path: str) -> tuple[str, str] | None:
    """(reason, evidence) without magic and a complete header; the cheapest look at an OM that nothing else vouches for.

    One that cannot be read is not damaged.
    """
    try:
        head = read_regular(path, OM_HEADER_BYTES)
    except OSError as error:
        head = b""
        if why := io_fault(error):
            return "io_error", why
    is_whole = len(head) == OM_HEADER_BYTES and head.startswith(OM_MAGIC)
    return None if is_whole else ("om_corrupt", "the header is not that of a whole OM file")


def maker_of(om: str) -> str:
    """Who wrote an OM that nothing else tells of: `gecli` by its mark in the header, else `ge`."""
    from gecli.artifacts.header import CHECKSUM_MARKER

    try:
        head = read_regular(om, OM_HEADER_BYTES)
    except OSError:
        return "ge"
    return "gecli" if head[CHECKSUM_END - len(CHECKSUM_MARKER) : CHECKSUM_END] == CHECKSUM_MARKER else "ge"
