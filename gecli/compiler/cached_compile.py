"""Compiling with the model cache: search, compile under the key's lock, store, deliver (cache.md 4 to 6, 11).

Every fault of the cache directory ends in a compile without it and a warning, never in a failed compile.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import field
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from gecli.cache.candidate import Found, Rejected, Verdict, Wanted, damaged_weights
from gecli.cache.confirmation import has_user_functions
from gecli.cache.differences import differences
from gecli.cache.events import event, record
from gecli.cache.fingerprint import Fingerprint
from gecli.cache.foreign import match_foreign
from gecli.cache.gc import collect_sometimes, make_room
from gecli.cache.graph_key import auto_key
from gecli.cache.layout import OM, RDCPKT, entry_path
from gecli.cache.lock import KeyLock, LockTimeout, LockUnavailable, wait_for_writers
from gecli.cache.model_cache import (
    QUARANTINED,
    Lookup,
    learn_request,
    look,
    model_rows_path,
    remember_request,
    save_entry_rows,
)
from gecli.cache.near_entries import kind_of, near_entries
from gecli.cache.recovery import append_record, recover, set_aside_entry
from gecli.cache.sidecar import COMPONENTS, InvalidSidecar, Sidecar, read_sidecar
from gecli.cache.stat_index import StatIndex, write_rows
from gecli.cache.store import NO_SPACE, Written, file_mode, forget_full, store_entry
from gecli.compiler.cache_setup import CacheSetup
from gecli.compiler.direct_hit import (
    Request,
    conf_warnings,
    deliver,
    finish_hit,
    hit_result,
    request_of,
)
from gecli.compiler.entry_sidecar import describe_foreign, sidecar_content
from gecli.compiler.job import Job
from gecli.compiler.result import CacheUse, ModelResult
from gecli.errors import CacheError, Diagnostic, GecliError
from gecli.loading import LoadedModel
from gecli.options.values import Options
from gecli.planning.weight_names import COMBINED
from gecli.records import dataclass
from gecli.variables.var_manager import VarManager
from gecli.variables.var_match import VarMatch, changed_without_road, match, why_contradictory

if TYPE_CHECKING:
    from gecli.artifacts.om_writer import OmImage
    from gecli.cache.weight_files import WeightRange

# Reasons that say nothing is wrong with the entry: it belongs to something else.
ORDINARY = ("fingerprint_mismatch", "signature_mismatch", "var_missing", "var_desc_mismatch", "var_conflict")
STATES = {"rw": "miss", "ro": "miss", "refresh": "refreshed", "debug": "debug"}


class Compiled(NamedTuple):
    """A freshly compiled model: its report (with the OM image) and its variable record.

    `lay_out` makes the image anew, for weights at other places.
    """

    result: ModelResult
    record: VarMatch
    lay_out: Callable[[], OmImage]
    memory: dict[str, Any] | None = None


class StoredWeights(NamedTuple):
    """External weights of an entry: where they lie in the cache, and the OM that names these places if it differs."""

    ranges: list[WeightRange]
    image: OmImage | None


@dataclass(slots=True)
class Work:
    """One model on its way through the cache. `entry` is set when an entry holds the outputs."""

    job: Job
    loaded: LoadedModel
    digest: Fingerprint
    key: str
    request: Request | None
    use: CacheUse
    warnings: list[Diagnostic] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    passed_over: tuple[Rejected, ...] = ()
    result: ModelResult | None = None
    compiled: Compiled | None = None
    entry: Found | None = None
    not_stored: CacheError | None = None


class CachedCompiler:
    """Compiles the models of one command that share no variables, each through the cache.

    `compile_one` compiles a work's graph from scratch in an empty session; the models of one session are compiled
    elsewhere (`gecli.compiler.session_cache`), with the steps of this class.
    """

    def __init__(
        self,
        setup: CacheSetup,
        options: Options,
        stats: StatIndex,
        compile_one: Callable[[Work], Compiled] | None,
        new_manager: Callable[[], VarManager],
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.setup = setup
        self.cache = setup.cache
        self.options = options
        self.stats = stats
        self.compile_one = compile_one
        self.new_manager = new_manager
        self.say = say
        self.mode = file_mode(setup.cache.conf.shared)
        self._conf_warnings = conf_warnings(setup)

    def work_of(self, position: int, job: Job, loaded: LoadedModel, digest: Fingerprint) -> Work:
        key = self.setup.key_of(position) or auto_key(job.stem, digest.combined)
        request = request_of(self.cache, job, self.options, self.stats, loaded.files)
        return self.new_work(job, loaded, digest, key, request)

    def new_work(self, job: Job, loaded: LoadedModel, digest: Fingerprint, key: str, request: Request | None) -> Work:
        return Work(job, loaded, digest, key, request, CacheUse(STATES[self.cache.mode], key, self.setup.key_origin))

    def prepare(self, work: Work) -> None:
        """Find the entry of a model, or compile the model and store it. Nothing is delivered yet."""
        wanted = self.wanted(work)
        if self.cache.mode in ("rw", "ro"):
            # Entries are immutable and indexes are replaced at once, so a hit needs no lock and does not queue
            # behind a compile of the same key. Anything but a hit is decided under the lock.
            lookup = look(self.cache, work.key, wanted, self.stats)
            if lookup.found is not None:
                self._take(work, lookup)
                self._learn_later(work)
                return
        if self.cache.mode == "ro" or self.is_write_protected(work):
            self._read_only(work, wanted)
            return
        with ExitStack() as stack:
            try:
                stack.enter_context(self.lock(work))
            except LockTimeout as error:
                self._bypass(work, error)
                return
            except LockUnavailable as error:
                self._without_lock(work, wanted, error)
                return
            self._under_lock(work, wanted)

    def deliver(self, work: Work) -> ModelResult:
        """Write the outputs of a prepared model. Raises OutputError."""
        assert work.result is not None
        result = work.result
        if work.entry is not None:
            try:
                deliver(self.cache, work.job, work.entry, self.stats, self.options, result)
                finish_hit(self.cache, work.entry, self.stats)
                result.image = result.pending = None
            except OSError as error:
                # The entry vanished between decision and use (a gc, or a full disk of somebody else).
                result = self._deliver_without_entry(work, error)
        result.cache = work.use
        self.tell(work, result)
        if work.use.stored:
            collect_sometimes(self.cache.path, self.cache.conf, time.time())
        return result

    def tell(self, work: Work, result: ModelResult) -> None:
        """Add to a report what went wrong with the cache."""
        result.warnings = [*result.warnings, *self._conf_warnings, *work.warnings]
        result.notes = [*result.notes, *work.notes]
        self._conf_warnings = []

    def _deliver_without_entry(self, work: Work, error: OSError) -> ModelResult:
        message = f"cache entry {work.use.entry} cannot be read"
        work.warnings.append(_warning("G5002", message, error, "io_error"))
        work.not_stored = work.not_stored or self.refusal(message, error)
        work.entry = None
        if work.compiled is None:
            work.use = CacheUse("bypassed", work.key, self.setup.key_origin, reason="io_error")
            self.count(event("miss", work.key, "io_error"))
            self._compile(work)
        assert work.compiled is not None
        return work.compiled.result

    # ------------------------------------------------------------------ the three ways

    def _under_lock(self, work: Work, wanted: Wanted) -> None:
        lookup = Lookup(None, "refresh")
        if self.cache.mode != "refresh":
            if self.cache.mode == "rw":
                self.recover(work)
            lookup = look(self.cache, work.key, wanted, self.stats)
        if self.cache.mode == "debug":
            self.note_debug(work, lookup)
            self._compile(work)
            return
        if lookup.found is not None:
            self._take(work, lookup)
            self._learn(work)
            return
        self.note_miss(work, lookup, is_locked=True)
        start = perf_counter()
        compiled = self._compile(work)
        self.store(work, compiled, perf_counter() - start)

    def note_miss(self, work: Work, lookup: Lookup, *, is_locked: bool, counts: bool = True) -> None:
        """Say why a model is compiled, and count it; with the lock, damaged entries are set aside."""
        work.use = CacheUse(STATES[self.cache.mode], work.key, self.setup.key_origin, reason=lookup.reason)
        self.explain(work, lookup)
        if counts:
            self.count(event("miss", work.key, lookup.reason))
        if is_locked:
            self._set_aside(work, lookup)
            work.passed_over = lookup.rejected

    def note_debug(self, work: Work, lookup: Lookup) -> None:
        """Say what would have been found."""
        self.explain(work, lookup)
        work.use.would_hit, work.use.reason = lookup.found is not None, lookup.reason or "debug_mode"
        if lookup.found:
            work.use.entry, work.use.via = lookup.found.stem, lookup.found.via
            work.use.foreign = lookup.found.is_foreign

    def _read_only(self, work: Work, wanted: Wanted) -> None:
        if not wait_for_writers(self.cache.path, work.key, self.setup.lock_timeout_s):
            self._bypass(work, LockTimeout("another process"))
            return
        is_asked = self.cache.mode != "refresh"
        lookup = look(self.cache, work.key, wanted, self.stats) if is_asked else Lookup(None, "refresh")
        if self.cache.mode == "debug":
            self.note_debug(work, lookup)
            self._compile(work)
            return
        if lookup.found is not None:
            self._take(work, lookup)
            return
        self.explain(work, lookup)
        work.use.reason = lookup.reason
        self._compile(work)

    def is_write_protected(self, work: Work) -> bool:
        """Whether the directory cannot be written: then it is used as with --cache-mode ro, which one line says.

        Raises CacheError when the cache is required.
        """
        if self.cache.may_write or self.cache.mode == "debug":
            return False
        message, do = f"the cache {self.cache.path} cannot be written", "check the permissions of the directory"
        if self.setup.is_required:
            raise CacheError("G5002", message, why="the directory is read-only", do=do, kind="io_error")
        work.notes.append(f"{message}: it is read only")
        return True

    def _without_lock(self, work: Work, wanted: Wanted, error: LockUnavailable) -> None:
        """Read the key without its lock: entries are never changed."""
        self.note_unavailable(work, error)
        self._read_only(work, wanted)
        if work.use.state != "hit":
            work.use.state, work.use.reason = "bypassed", "lock_unavailable"

    def note_unavailable(self, work: Work, error: LockUnavailable) -> None:
        """Warn that nothing is stored. Raises CacheError when the cache is required."""
        message, do = f"the lock of cache key {work.key} cannot be used", "check the permissions of the .lock file"
        if self.setup.is_required:
            raise CacheError("G5002", message, why=str(error), do=do, kind="lock_unavailable")
        text = f"{message}; nothing is stored"
        work.warnings.append(
            Diagnostic("G5002", text, why=str(error), do=do, kind="lock_unavailable", severity="warning")
        )

    def _bypass(self, work: Work, error: LockTimeout) -> None:
        """Compile without the cache, unless it is required."""
        reason = self.note_timeout(work, error)
        work.use = CacheUse("bypassed", work.key, self.setup.key_origin, reason=reason)
        self.count(event("miss", work.key, reason))
        self._compile(work)

    def note_timeout(self, work: Work, error: LockTimeout) -> str:
        """Warn that the cache is not used; the reason's code. Raises CacheError when the cache is required."""
        message, why = f"the lock of cache key {work.key} was not obtained", f"held by {error}"
        reason, do = "lock_timeout", "raise --lock-timeout"
        if self.setup.is_required:
            raise CacheError("G5001", message, why=why, do=do, kind=reason)
        text = f"{message}; compiled without the cache"
        work.warnings.append(Diagnostic("G5001", text, why=why, do=do, kind=reason, severity="warning"))
        return reason

    # ------------------------------------------------------------------ steps

    def lock(self, work: Work) -> KeyLock:
        """The lock of a model's key, which tells the user who is waited for."""

        def waiting(seconds: float, holder: str) -> None:
            if self.say:
                self.say(f"waiting {seconds:.0f} s for key {work.key}, held by {holder}")

        return KeyLock(
            self.cache.path,
            work.key,
            timeout_s=self.setup.lock_timeout_s,
            on_wait=waiting,
            shared=self.cache.conf.shared,
            leaves_record=self.cache.may_write,
        )

    def recover(self, work: Work) -> None:
        """Bring the index of a key in order; needs its lock."""
        try:
            for sentence in recover(self.cache.path, work.key, self.stats, self.mode):
                work.warnings.append(Diagnostic("G5002", sentence, severity="warning", kind="index_corrupt"))
        except OSError as error:
            work.warnings.append(_warning("G5002", "the cache directory cannot be repaired", error, "io_error"))

    def _set_aside(self, work: Work, lookup: Lookup) -> None:
        for each in lookup.rejected:
            if each.reason in QUARANTINED and each.stem != work.key:  # a legacy {key}.om is not ours to move
                try:
                    set_aside_entry(self.cache.path, work.key, each.stem, self.mode)
                    work.warnings.append(
                        Diagnostic("G5002", f"cache entry {each} was set aside", severity="warning", kind=each.reason)
                    )
                except OSError as error:
                    work.warnings.append(_warning("G5002", f"cache entry {each.stem} is damaged", error, each.reason))
            elif each.reason not in ("fingerprint_mismatch", "signature_mismatch") and not each.reason.startswith(
                "var_"
            ):
                work.warnings.append(
                    Diagnostic("G5002", f"cache entry {each} was not used", severity="warning", kind=each.reason)
                )

    def _compile(self, work: Work) -> Compiled:
        assert self.compile_one is not None
        work.compiled = self.compile_one(work)
        work.result = work.compiled.result
        return work.compiled

    def _take(self, work: Work, lookup: Lookup) -> None:
        assert lookup.found is not None
        work.entry = lookup.found
        work.result = hit_result(work.job, lookup.found, self.setup, self.options)
        if lookup.found.sidecar is None:
            om = entry_path(self.cache.path, lookup.found.stem, OM)
            describe_foreign(work.result, work.loaded, om)
        explanation = work.use.explanation
        work.use = work.result.cache
        work.use.explanation = explanation
        self.explain(work, lookup)
        self.warn_of(work, lookup.found)

    def warn_of(self, work: Work, found: Found) -> None:
        """What there is to say about an entry that is used, once."""
        told = {each.message for each in work.warnings}
        work.warnings += [Diagnostic("G5002", text, severity="warning") for text in found.warnings if text not in told]

    def explain(self, work: Work, lookup: Lookup) -> None:
        """What --explain-cache shows."""
        if self.setup.explain:
            work.use.explanation = lookup.explanation()
            if lookup.reason == "no_entry" and not self.setup.keys:
                wanted = _fingerprint_of(work)
                for near in near_entries(self.cache.path, wanted, work.key):
                    work.use.explanation.append(f"{near.content['entry']}: {kind_of(near, wanted)}")
                    work.use.explanation += [f"  {line}" for line in differences(near, work.digest)]

    def _learn_later(self, work: Work) -> None:
        """Let the entry know this request, if the lock is free at once; else the next hit does it."""
        if not self._can_learn(work) or work.request is None or work.entry is None:
            return
        if work.entry.sidecar is None or work.request.digest not in work.entry.sidecar.requests:
            try:
                with KeyLock(self.cache.path, work.key, timeout_s=0, shared=self.cache.conf.shared):
                    self._learn(work)
            except (LockTimeout, LockUnavailable):
                return
        else:
            self._remember(work, work.entry.stem)

    def _can_learn(self, work: Work) -> bool:
        """Whether the entry's files are the outputs and its sidecar may say more; one that was lost is made anew."""
        entry = work.entry
        if work.request is None or entry is None or self.cache.mode != "rw" or not self._is_direct:
            return False
        if entry.sidecar is not None:
            return True
        return entry.lost_sidecar and entry.via != "legacy" and not self.options.integer("ge.externalWeight")

    def _learn(self, work: Work) -> None:
        if not self._can_learn(work) or work.request is None or work.entry is None or not self.cache.may_write:
            return
        if work.entry.sidecar is None:
            from gecli.compiler.readoption import readopt

            sidecar = readopt(self.cache, work, self.stats, self.mode)
            if sidecar is None:
                return
            work.entry = work.entry._replace(sidecar=sidecar)
        try:
            learn_request(self.cache, work.key, work.entry.stem, work.request.digest, self.mode)
        except OSError:
            return  # the next hit parses the model again
        self._remember(work, work.entry.stem)

    def _remember(self, work: Work, stem: str) -> None:
        """Leave the hints by which the next equal request finds the entry without parsing."""
        if work.request is None or not self._is_direct:
            return
        remember_request(self.cache, work.key, stem, work.request.digest)
        save_entry_rows(self.cache, work.key, stem, self.stats, work.entry.sidecar if work.entry else None)
        write_rows(model_rows_path(self.cache.path, work.job.source), self.stats.rows_of(work.request.files))

    def store(self, work: Work, compiled: Compiled, seconds: float) -> None:
        """Store what was compiled; a failure is a warning, or exit status 7 after delivery."""
        from gecli.wire.var_manager import encode_var_match

        result, record, image = compiled.result, compiled.record, compiled.result.image
        assert image is not None
        rdcpkt = None if record.is_empty else encode_var_match(record)
        described: list[Sidecar] = []
        stored = StoredWeights([], None)

        def describe(stem: str, files: dict[str, Any]) -> Sidecar:
            content = sidecar_content(work, result, record, stem, files, seconds, compiled.memory)
            content["weights"] = [each.as_json() for each in stored.ranges]
            content.update(_files_of_source(result, stored.ranges))
            if not self._is_direct:
                content["fingerprint"]["requests"] = []
            described.append(Sidecar(content))
            return described[-1]

        def store() -> Written:
            nonlocal stored
            stored = self._weights_stored(work, compiled)
            return store_entry(
                self.cache.path,
                work.key,
                work.loaded.written_unchanged((stored.image or image).write),
                rdcpkt,
                describe,
                style=self.cache.conf.timestamp,
                mode=self.mode,
                stats=self.stats,
                append=lambda each: append_record(self.cache.path, each, self.mode),
            )

        try:
            written = self._stored(store)
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, "error")
            message = f"the compiled model was not stored in the cache {self.cache.path} ({name})"
            work.warnings.append(_warning("G5003", message, error, "io_error"))
            work.not_stored = self.refusal(message, error, "G5003")
            self.count(event("write_error", work.key, name))
            return
        size_bytes = sum(size for size, _ in written.digests.values())
        self.count(event("write", work.key, seconds=seconds, size_bytes=size_bytes))
        work.use.stored, work.use.entry = True, written.stem
        self._set_aside_lost(work)
        self._note_older(work)
        if not self._is_direct:
            return  # the outputs have other offsets: they are written from the compiled model
        work.entry = Found(work.key, written.stem, "", described[-1], "" if rdcpkt is None else written.stem + RDCPKT)
        result.output.sha256 = written.digests["om"][1]
        self._remember(work, written.stem)

    def refusal(self, message: str, error: OSError, code: str = "G5002") -> CacheError | None:
        """What a command that requires the cache ends with after its outputs; None for any other."""
        if not self.setup.is_required:
            return None
        return CacheError(code, message, why=error.strerror or str(error), kind="io_error", file=self.cache.path)

    def _stored(self, store: Callable[[], Written]) -> Written:
        """Store an entry; on a full disk again, once, when limits of cache.conf let something be removed."""
        try:
            return store()
        except OSError as error:
            if error.errno not in NO_SPACE or not make_room(self.cache.path, self.cache.conf, time.time()):
                raise
        forget_full(self.cache.path)
        return store()

    def _set_aside_lost(self, work: Work) -> None:
        """Storing makes files of single weights anew; an entry that lacks weights even so hits never again."""
        for each in work.passed_over:
            if each.reason not in ("weights_corrupt", "weights_missing"):
                continue
            try:
                sidecar = read_sidecar(self.cache.path, work.key, each.stem)
                if sidecar is None or damaged_weights(self.cache.path, each.stem, sidecar, self.stats) is None:
                    continue
                set_aside_entry(self.cache.path, work.key, each.stem, self.mode)
            except InvalidSidecar:
                continue
            except OSError as error:
                work.warnings.append(_warning("G5002", f"cache entry {each.stem} is damaged", error, each.reason))
                continue
            work.notes.append(f"cache entry {each.stem}, whose weights are lost, was set aside")

    def _note_older(self, work: Work) -> None:
        """GE takes the first entry whose variables match: it does not look at what an entry was made from."""
        older = [each.stem for each in work.passed_over if each.reason == "fingerprint_mismatch"]
        if older and self.setup.keys:
            work.notes.append(
                f"key {work.key} has older entries of other models or options, which GE would take first "
                "(gecli cache gc --superseded removes them, also those that would still hit)"
            )

    def count(self, what: str) -> None:
        """Note an event for `gecli cache stats`."""
        if self.cache.may_write:
            record(self.cache.path, what)

    @property
    def _is_direct(self) -> bool:
        """Whether the entry's own files are the outputs: not with a combined weight file, whose offsets differ."""
        return self.options.integer("ge.externalWeight") != COMBINED

    def _weights_stored(self, work: Work, compiled: Compiled) -> StoredWeights:
        """Put external weights into the cache, before the entry. Raises OSError."""
        pending = compiled.result.pending
        if pending is None:
            return StoredWeights([], None)
        from gecli.cache.weight_store import ranges_of, store_combined, store_single_files

        if self._is_direct:
            store_single_files(self.cache.path, pending.weights, self.mode, self.stats)
            return StoredWeights(ranges_of(pending.weights), None)
        places = [(each.file, each.offset_bytes) for each in pending.weights]
        try:
            store_combined(self.cache.path, work.job.stem, pending.weights, self.mode)
            ranges = ranges_of(pending.weights)
            moved = any((each.file, each.offset) != place for each, place in zip(ranges, places))
            return StoredWeights(ranges, compiled.lay_out() if moved else None)
        finally:
            for each, place in zip(pending.weights, places):
                each.move_to(*place)

    def wanted(self, work: Work, manager: VarManager | None = None) -> Wanted:
        """What an entry must be to hold this model's outputs, in a new session or in that of `manager`."""
        return Wanted(
            _fingerprint_of(work),
            work.digest.source,
            lambda rdcpkt, is_vouched: _match_variables(rdcpkt, manager or self.new_manager(), is_vouched=is_vouched),
            lambda om, source: self._match_foreign(om, source, work),
            lambda sidecar: differences(sidecar, work.digest),
            has_user_functions(work.loaded.graph),
        )

    def _match_foreign(self, om: str, source: str, work: Work) -> Verdict:
        from gecli.compiler.foreign_entry import files_of

        return match_foreign(
            om,
            source,
            work.loaded.graph,
            lenient=self.cache.conf.manual_check,
            find_weights=lambda model: files_of(model, self.cache, self.options, self.stats),
        )


def _fingerprint_of(work: Work) -> dict[str, str]:
    return {name: getattr(work.digest, name) for name in ("combined", *COMPONENTS)}


def uses_session(loaded: Sequence[LoadedModel], options: Options) -> bool:
    """Whether any of these models has variables, or constants that become variables or get addresses like them."""
    if (
        options.integer("ge.externalWeight")
        or options.flag("ge.graphRunMode")
        or options.text("ge.constLifecycle") == "session"
    ):
        return True
    types = ("Variable", "VariableV2", "VarHandleOp", "Constant", "FileConstant", "ConstPlaceHolder")
    return any(graph.nodes_of(type_name) for each in loaded for graph in each.graph.all_graphs() for type_name in types)


def _files_of_source(result: ModelResult, ranges: Sequence[WeightRange]) -> dict[str, list[str]]:
    """The member of a sidecar that tells of FileConstants of the source, beside those that the compile made."""
    if not result.graph or not ranges:
        return {}
    from gecli.cache.weight_files import SOURCE_FILES

    made = {each.node for each in ranges}
    own = {node.name for graph in result.graph.all_graphs() for node in graph.nodes_of("FileConstant")} - made
    return {SOURCE_FILES: sorted(own)} if own else {}


def _match_variables(rdcpkt: str | None, manager: VarManager, *, is_vouched: bool) -> Verdict:
    """Match an entry's record with the session in which the model would be compiled.

    `is_vouched` says that a digest proves the file to be as it was written.
    """
    if rdcpkt is None:
        return Verdict("no-vars")
    from gecli.artifacts.rdcpkt import read_rdcpkt

    try:
        record = read_rdcpkt(rdcpkt)
    except GecliError as error:
        missing = error.first.code == "E13001"
        return Verdict(reason="rdcpkt_missing" if missing else "rdcpkt_corrupt", evidence=error.first.message)
    contradiction = why_contradictory(record, is_vouched=is_vouched)
    if contradiction:
        return Verdict(reason="rdcpkt_corrupt", evidence=contradiction)
    result = match(record, manager)
    if not result.matched:
        found = result.conflict or result.before
        before = f"matches, but {found}" if result.conflict else str(found)
        details = (f"state after its compile: {result.after}", f"state before it: {before}")
        return Verdict(reason=result.reason, evidence=str(found), details=details)
    roadless = changed_without_road(record) if result.needs_refresh else None
    if roadless is not None:
        return Verdict(reason="trans_road_missing", evidence=f"variable {roadless!r}")
    return Verdict(str(result.side))


def _warning(code: str, message: str, error: OSError, kind: str) -> Diagnostic:
    return Diagnostic(code, message, why=error.strerror or str(error), severity="warning", kind=kind)
