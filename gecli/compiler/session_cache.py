"""The cache behind a session of several models, or one that --session-in continues (cache.md 4.4, 6.1).

Each model is looked up in the state in which the session is then, so an entry of each state of the variables is kept.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from time import perf_counter

from gecli.artifacts.publish import publish_waiting
from gecli.artifacts.rdcpkt import read_rdcpkt
from gecli.cache.candidate import Found, Verdict, Wanted
from gecli.cache.events import event
from gecli.cache.foreign_weights import UnusableWeights
from gecli.cache.layout import OM, RDCPKT, entry_path
from gecli.cache.lock import LockTimeout, LockUnavailable
from gecli.cache.model_cache import Lookup, look
from gecli.cache.sidecar import VARIABLE_MEMORY
from gecli.compiler.cached_compile import CachedCompiler, Compiled, Work
from gecli.compiler.direct_hit import finish_hit, hit_result
from gecli.compiler.entry_sidecar import describe_foreign
from gecli.compiler.readdressing import CannotReaddress, Readdressed, readdressed
from gecli.compiler.result import CacheUse, ModelResult, OutputFile
from gecli.compiler.session import Member, Session
from gecli.compiler.variable_report import variable_rows
from gecli.compiler.weight_delivery import EntryWeights
from gecli.errors import Diagnostic, GecliError, InputError
from gecli.variables.var_manager import VarManager
from gecli.variables.var_match import VarMatch, match


class Missed(Exception):
    """A model of the session is not in the cache, and nothing may be compiled without the locks."""


class SessionCache:
    """Takes the models of one session from the cache and keeps those that were compiled.

    `compiled(session, member)` is what a compiled model leaves. With `hits_only` a model that is not there raises
    Missed.
    """

    def __init__(
        self,
        compiler: CachedCompiler,
        works: Sequence[Work],
        compiled: Callable[[Session, Member], Compiled],
        *,
        hits_only: bool = False,
        stores: bool = False,
    ) -> None:
        self.compiler = compiler
        self.works = works
        self.compiled = compiled
        self.hits_only = hits_only
        self.stores = stores
        self.lookups: dict[int, Lookup] = {}  # the last one of each model, by position
        self._weights: dict[int, EntryWeights] = {}  # of each model that was taken
        self._started = 0.0

    def take(self, session: Session, member: Member) -> Readdressed | None:
        """The entry of a model for the session's present state; the session is then as after its compile."""
        work, cache = self._work(session, member), self.compiler.cache
        self._started = perf_counter()
        if cache.mode == "refresh":
            work.use.reason = "refresh"
            return None
        loaded: list[Readdressed] = []
        lookup = look(cache, work.key, self._wanted(work, session, member, loaded), self.compiler.stats)
        self.lookups[position_of(session, member)] = lookup
        if cache.mode == "debug":
            self.compiler.note_debug(work, lookup)
            return None
        if lookup.found is not None and loaded:
            work.entry = lookup.found
            explanation = work.use.explanation
            work.use = CacheUse(
                "hit",
                work.key,
                work.use.key_origin,
                lookup.found.stem,
                via=lookup.found.via,
                explanation=explanation,
                foreign=lookup.found.is_foreign,
            )
            self.compiler.explain(work, lookup)
            self.compiler.warn_of(work, lookup.found)
            return loaded[0]
        if self.hits_only:
            raise Missed
        work.entry = None
        first = work.use.reason
        self.compiler.note_miss(work, lookup, is_locked=self.stores, counts=not first)
        if first:  # compiled again because a later model changed a variable: the first look says why
            work.use.reason = first
        return None

    def keep(self, session: Session, member: Member) -> None:
        """Store a compiled model, as the session is at this moment."""
        work = self._work(session, member)
        if self.stores:
            self.compiler.store(work, self.compiled(session, member), perf_counter() - self._started)

    def result(self, session: Session, member: Member) -> ModelResult:
        """The report of a model that was taken, with its OM image. Call it when every model is built."""
        work, taken = self._work(session, member), member.taken
        assert taken is not None and work.entry is not None
        result = hit_result(work.job, work.entry, self.compiler.setup, self.compiler.options)
        if work.entry.sidecar is None:
            describe_foreign(result, work.loaded, entry_path(self.compiler.cache.path, work.entry.stem, OM))
        result.pending = self._weights[position_of(session, member)].pending()
        image = taken.image(session.manager)
        result.image = image
        result.output = OutputFile(work.job.om_path, image.size_bytes)
        result.rdcpkt = None
        result.variables = variable_rows(taken.variables, taken.record, session.manager)
        places = {"variable_bytes": session.manager.hbm.used_bytes, "variable_base": session.manager.logic_base}
        result.memory = {**result.memory, **places}
        return result

    def finish(self, results: Sequence[ModelResult]) -> None:
        """Say in the reports of published models how the cache took part."""
        for work, result in zip(self.works, results):
            use = work.use
            if result.cache.state == "hit":
                use.seconds_saved = result.cache.seconds_saved
            result.cache = use
            self.compiler.tell(work, result)
            if use.state == "hit" and work.entry is not None:
                finish_hit(self.compiler.cache, work.entry, self.compiler.stats)

    def _work(self, session: Session, member: Member) -> Work:
        return self.works[position_of(session, member)]

    def _wanted(self, work: Work, session: Session, member: Member, loaded: list[Readdressed]) -> Wanted:
        """What an entry must be; the last check brings it into the session."""

        def load(found: Found) -> Verdict:
            if self.compiler.cache.mode == "debug":
                return Verdict(found.via)
            cache, directory = self.compiler.cache, self.compiler.cache.path
            weights = EntryWeights(cache, work.job, found, self.compiler.options, self.compiler.stats)
            try:
                record = read_rdcpkt(found.path(directory, RDCPKT)) if found.has_rdcpkt else None
                loaded.append(
                    readdressed(
                        entry_path(directory, found.stem, OM),
                        None if found.sidecar is None else found.sidecar.content.get(VARIABLE_MEMORY) or {},
                        record,
                        is_before=found.via == "before" or _is_state_before(record, session.manager),
                        manager=session.manager,
                        rebuild=session.rebuild,
                        graph_id=member.graph_id,
                        graph_name=member.graph.name,
                        accelerates=session.accelerates(member),
                        relocate=weights.relocate,
                        is_foreign=found.sidecar is None and not found.lost_sidecar,
                    )
                )
                self._weights[position_of(session, member)] = weights
            except CannotReaddress as error:
                return Verdict(reason=error.reason, evidence=str(error))
            except UnusableWeights as error:
                return Verdict(reason=error.reason, evidence=str(error))
            except GecliError as error:
                return Verdict(reason="load_failed", evidence=str(error))
            return Verdict(found.via)

        wanted = self.compiler.wanted(work, session.manager)
        return wanted._replace(load=load)


def position_of(session: Session, member: Member) -> int:
    """Which model of the command a member is."""
    return member.graph_id - session.first_graph_id


def _is_state_before(record: VarMatch | None, manager: VarManager) -> bool:
    """Whether a session that is as after a compile is also as before it: a compile would stage what it staged then."""
    if record is None or not record.after.var_desc_map.keys() <= record.before.var_desc_map.keys():
        return False
    return match(VarMatch(record.before, record.before), manager).side == "after"


def compile_through_cache(
    compiler: CachedCompiler,
    works: Sequence[Work],
    together: Callable[[SessionCache | None], list[ModelResult]],
    compiled: Callable[[Session, Member], Compiled],
) -> list[ModelResult]:
    """Compile the models of a session with the cache.

    `together(source)` compiles them in one new session, with or without the cache, and publishes the outputs. First
    all of them are looked up without a lock; if one is missing, once more with the locks of all keys, taken in order of
    their names, so that two sessions never wait for each other.
    """
    if compiler.cache.mode in ("rw", "ro"):
        source = SessionCache(compiler, works, compiled, hits_only=True)
        try:
            return _published(source, together)
        except Missed:
            works = [compiler.new_work(w.job, w.loaded, w.digest, w.key, w.request) for w in works]
    if compiler.cache.mode == "ro" or compiler.is_write_protected(works[0]):
        return _published(SessionCache(compiler, works, compiled), together)
    with ExitStack() as stack:
        try:
            for work in sorted(works, key=lambda each: each.key):
                stack.enter_context(compiler.lock(work))
        except LockTimeout as error:
            reasons = [compiler.note_timeout(work, error) for work in works]
            return _bypassed(compiler, works, together, reasons)
        except LockUnavailable as error:
            compiler.note_unavailable(works[0], error)
            return _published(SessionCache(compiler, works, compiled), together)
        if compiler.cache.mode == "rw":
            for work in works:
                compiler.recover(work)
        stores = compiler.cache.mode in ("rw", "refresh")
        return _published(SessionCache(compiler, works, compiled, stores=stores), together)


def _published(source: SessionCache, together: Callable[[SessionCache | None], list[ModelResult]]) -> list[ModelResult]:
    try:
        results = together(source)
    except InputError as error:
        # The weights of an entry that was taken are read while the output is written.
        if error.code != "E13001" or not any(work.entry is not None for work in source.works):
            raise
        results = _damaged_meanwhile(source, together, error)
    else:
        source.finish(results)
    not_stored = [work.not_stored for work in source.works if work.not_stored is not None]
    if not_stored:
        publish_waiting()  # --require-cache: the outputs are made, the status tells of the cache
        raise not_stored[0]
    return results


def _damaged_meanwhile(
    source: SessionCache, together: Callable[[SessionCache | None], list[ModelResult]], error: InputError
) -> list[ModelResult]:
    node = error.first.node
    cause = OSError(errno.EIO, f"the weight of node {node!r} is damaged" if node else error.first.message)
    for work in source.works:
        if work.entry is not None:
            message = f"cache entry {work.entry.stem} cannot be read"
            work.warnings.append(
                Diagnostic("G5002", message, why=str(cause.strerror), severity="warning", kind="io_error")
            )
            work.not_stored = work.not_stored or source.compiler.refusal(message, cause)
    return _bypassed(source.compiler, source.works, together, ["io_error"] * len(source.works))


def _bypassed(
    compiler: CachedCompiler,
    works: Sequence[Work],
    together: Callable[[SessionCache | None], list[ModelResult]],
    reasons: Sequence[str],
) -> list[ModelResult]:
    """Compile without the cache."""
    results = together(None)
    for work, result, reason in zip(works, results, reasons):
        result.cache = CacheUse("bypassed", work.key, work.use.key_origin, reason=reason)
        compiler.tell(work, result)
        compiler.count(event("miss", work.key, reason))
    return results
