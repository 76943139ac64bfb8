"""The model cache of one directory (GE: ModelCache): look-up, adoption, damage control (cache.md 2.3, 5.3, 11.4)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from gecli.artifacts.shared_files import SHARED_MODE, make_folder
from gecli.cache.cache_conf import CacheConf
from gecli.cache.candidate import (
    Found,
    Policy,
    Rejected,
    Wanted,
    check_record,
    damaged_file,
    damaged_weights,
    missing_file,
)
from gecli.cache.graph_key import is_graph_key
from gecli.cache.index import IndexContent, IndexRecord, UnreadableIndex, index_path, read_index
from gecli.cache.layout import (
    ENTRY_SUFFIXES,
    OM,
    SIDECAR,
    entry_path,
    request_dir,
    stat_dir,
)
from gecli.cache.sidecar import InvalidSidecar, Sidecar, last_used_ns, read_sidecar
from gecli.cache.stat_index import StatIndex, StatRow, short_name, touch_as_witness, write_hint, write_rows
from gecli.wire.regular_file import read_regular

USE_TIME_STEP_NS = 3_600_000_000_000  # a hit renews the use time at most once an hour
OF_OTHERS = ("fingerprint_mismatch", "signature_mismatch", "foreign_rejected")
QUARANTINED = ("om_corrupt", "rdcpkt_corrupt")


class CacheDir(NamedTuple):
    """A cache directory in use. `mode` is rw, ro, refresh or debug; `verify` is fast or full."""

    path: str
    conf: CacheConf = CacheConf()
    mode: str = "rw"
    verify: str = "fast"

    @property
    def may_write(self) -> bool:
        """Whether anything may be left there; a directory without write permission is read only, whatever the mode."""
        return self.mode in ("rw", "refresh") and os.access(self.path, os.W_OK | os.X_OK)

    @property
    def policy(self) -> Policy:
        return Policy(self.conf.foreign_entries, self.conf.manual_check)


class Lookup(NamedTuple):
    """The result of a search under one key: an entry, or the reason of the candidate that came closest."""

    found: Found | None
    reason: str = ""
    rejected: tuple[Rejected, ...] = ()

    def explanation(self) -> list[str]:
        """One line a candidate, and what differs in detail below it."""
        lines = []
        for each in self.rejected:
            lines.append(str(each))
            lines += [f"  {detail}" for detail in each.details]
        if self.found is not None:
            lines.append(f"{self.found.stem}: hit via {self.found.via}")
        return lines or [self.reason]


def find_request(cache: CacheDir, request: str, key: str | None, stats: StatIndex) -> Found | None:
    """The entry that answers exactly this request, without looking at the model; None when in any doubt.

    The hint is believed only if the entry is indexed and its sidecar lists the request.
    """
    hint = read_request_hint(cache.path, request)
    if hint is None or (key is not None and hint[0] != key):
        return None
    try:
        content = read_index(cache.path, hint[0])
        record = _record_of(content, *hint)
        sidecar = read_sidecar(cache.path, *hint)
    except (OSError, UnreadableIndex, InvalidSidecar):
        return None
    if record is None or sidecar is None or request not in sidecar.requests:
        return None
    if cache.conf.manual_check and sidecar.waits_for_confirmation:
        return None
    load_entry_rows(cache.path, record.stem, stats)
    if missing_file(cache.path, record) or damaged_file(cache.path, record, sidecar, stats):
        return None
    if damaged_weights(cache.path, record.stem, sidecar, stats):
        return None
    via = "before" if record.rdcpkt_name else "no-vars"
    return Found(hint[0], record.stem, via, sidecar, record.rdcpkt_name)


def look(cache: CacheDir, key: str, wanted: Wanted, stats: StatIndex) -> Lookup:
    """Search the entries of a key, in index order; changes nothing and takes no lock."""
    records, reason, is_legacy = candidates(cache.path, key)
    rejected: list[Rejected] = []
    for record in records:
        load_entry_rows(cache.path, record.stem, stats)
        outcome = check_record(cache.path, record, wanted, cache.policy, stats, is_legacy=is_legacy)
        if isinstance(outcome, Found):
            return Lookup(outcome, "", tuple(rejected))
        rejected.append(outcome)
    if rejected:
        reason = max(reversed(rejected), key=_closeness).reason
    return Lookup(None, reason or "no_entry", tuple(rejected))


def _closeness(each: Rejected) -> int:
    """How near a candidate came to a hit: another model or option, the variables, and last damage."""
    if each.reason in OF_OTHERS:
        return 0
    return 1 if each.reason.startswith("var_") else 2


def candidates(directory: str, key: str) -> tuple[list[IndexRecord], str, bool]:
    """The records to try, a reason when there can be none, and whether the one is a legacy `{key}.om`.

    The bare file counts only without an index: it has no variable record and would hide every newer entry.
    """
    try:
        content = read_index(directory, key)
    except UnreadableIndex:
        return [], "index_corrupt", False
    except OSError:
        return [], "io_error", False
    if content is None:
        if not os.path.isfile(entry_path(directory, key, OM)):
            return [], "no_entry", False
        return [IndexRecord(key, f"{key}{OM}", "", {})], "", True
    records = [record for record in content.records if record.graph_key == key]
    return records, "index_entry_invalid" if content.malformed and not records else "", False


def note_use(cache: CacheDir, found: Found, stats: StatIndex) -> None:
    """Renew the use time, at most once an hour: for gc, as far as the directory may be written."""
    import time

    if not cache.may_write:
        return
    used = last_used_ns(cache.path, found.stem)
    if used is not None and 0 <= time.time_ns() - used < USE_TIME_STEP_NS:  # one of the future is of another clock
        return
    path = entry_path(cache.path, found.stem, SIDECAR if found.sidecar is not None else OM)
    known = stats.row(path)
    try:
        numbers = touch_as_witness(path)
    except OSError:
        return  # another user's file: gc then knows an older time
    if known is not None and numbers is not None:
        stats.add(StatRow(known.path, numbers, known.sha256, time.time_ns(), is_witness=True))


def remember_request(cache: CacheDir, key: str, stem: str, request: str) -> None:
    """Leave the hint that leads from a request to its entry."""
    if cache.may_write:
        _make_private(cache, request_dir(cache.path))
        write_hint(_request_path(cache.path, request), f"{key}\n{stem}\n")


def read_request_hint(directory: str, request: str) -> tuple[str, str] | None:
    """(key, stem) that a request was answered with."""
    try:
        lines = read_regular(_request_path(directory, request), 1024).decode("utf-8").split("\n")
    except (OSError, ValueError):
        return None
    if len(lines) != 3 or not is_graph_key(lines[0]) or not lines[1].startswith(f"{lines[0]}_") or "/" in lines[1]:
        return None
    return lines[0], lines[1]


def load_entry_rows(directory: str, stem: str, stats: StatIndex) -> None:
    stats.load(_entry_rows_path(directory, stem))


def save_entry_rows(cache: CacheDir, key: str, stem: str, stats: StatIndex, sidecar: Sidecar | None = None) -> None:
    """Keep what is known about an entry's files (with `sidecar` its weights too) and the index for the next look-up."""
    if not cache.may_write:
        return
    paths = [entry_path(cache.path, stem, suffix) for suffix in ENTRY_SUFFIXES]
    paths.append(index_path(cache.path, key))
    if sidecar is not None and sidecar.content.get("weights"):
        paths += _weight_paths(cache.path, sidecar)
    if stats.knows_more(paths):
        _make_private(cache, stat_dir(cache.path))
        write_rows(_entry_rows_path(cache.path, stem), stats.rows_of(paths))


def _weight_paths(directory: str, sidecar: Sidecar) -> list[str]:
    from gecli.cache.weight_files import BadWeightRow, weight_dir, weights_of_sidecar

    with suppress(BadWeightRow):
        names = sorted({each.file for each in weights_of_sidecar(sidecar)})
        return [os.path.join(weight_dir(directory), name) for name in names]
    return []


def model_rows_path(directory: str, model: str) -> str:
    """The file of the stat index that belongs to a model file."""
    return os.path.join(stat_dir(directory), f"m-{short_name(os.path.realpath(model))}")


def forget_entry_hints(directory: str, stem: str, requests: Iterable[str] = ()) -> None:
    """Remove the private rows of an entry that is gone, and what leads to it from these requests."""
    for path in (_entry_rows_path(directory, stem), *(_request_path(directory, each) for each in requests)):
        with suppress(OSError):
            os.unlink(path)


def _entry_rows_path(directory: str, stem: str) -> str:
    return os.path.join(stat_dir(directory), f"e-{stem}")


def _request_path(directory: str, request: str) -> str:
    return os.path.join(request_dir(directory), os.path.basename(request.removeprefix("sha256:")))


def _record_of(content: IndexContent | None, key: str, stem: str) -> IndexRecord | None:
    if content is None:
        return None
    found = [each for each in content.records if each.graph_key == key and each.stem == stem and not each.problem]
    return found[0] if found else None


def _make_private(cache: CacheDir, path: str) -> None:
    with suppress(OSError):
        make_folder(path, SHARED_MODE if cache.conf.shared else -1)


def learn_request(cache: CacheDir, key: str, stem: str, request: str, mode: int) -> None:
    """Let an entry's sidecar list one more request. Call it with the key's lock held. Raises OSError."""
    from gecli.cache.store import replace_file

    sidecar: Sidecar | None
    try:
        sidecar = read_sidecar(cache.path, key, stem)
    except InvalidSidecar:
        return
    if sidecar is None or request in sidecar.requests[:1]:
        return
    sidecar.add_request(request)
    replace_file(entry_path(cache.path, stem, SIDECAR), sidecar.text().encode("utf-8", "surrogateescape"), mode)
