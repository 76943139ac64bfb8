"""What a compile would find in the cache, without compiling, locking or changing anything (cache.md 12.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from gecli.cache.candidate import Found, check_record
from gecli.cache.differences import differences
from gecli.cache.index import IndexRecord, UnreadableIndex, read_index
from gecli.cache.model_cache import CacheDir, Lookup, find_request, look
from gecli.cache.near_entries import kind_of, near_entries
from gecli.cache.recovery import adoptable
from gecli.cache.stat_index import StatIndex
from gecli.compiler.api import fingerprint, fingerprints, jobs_of_command, new_session
from gecli.compiler.cache_setup import CacheOff, CacheSetup, cache_setup
from gecli.compiler.cached_compile import CachedCompiler, Compiled, Work, uses_session
from gecli.compiler.direct_hit import has_session_file
from gecli.compiler.failures import combined
from gecli.compiler.model_loading import load_all
from gecli.compiler.session import Member, Session
from gecli.compiler.session_cache import Missed, SessionCache
from gecli.options.values import Options


class NearEntry(NamedTuple):
    """An entry of the same model under another key, and in what it differs."""

    key: str
    entry: str
    details: tuple[str, ...]
    kind: str


class Inquiry(NamedTuple):
    """The answer for one model. `adopts`: the entry is complete, and the compile would first put it into the index."""

    source: str
    key: str
    key_origin: str
    lookup: Lookup
    note: str = ""
    adopts: bool = False
    near: tuple[NearEntry, ...] = ()


def inquire(models: Sequence[str], options: Options, progress: Callable[[str, str], None] | None) -> list[Inquiry]:
    """Search for every model as a compile with these options would. Raises GecliError as that compile does."""
    jobs = jobs_of_command(models, options)
    setup = cache_setup(options, jobs)
    if isinstance(setup, CacheOff):
        return [Inquiry(job.source, "", "", Lookup(None, setup.reason or "disabled"), setup.note) for job in jobs]
    loaded, failed = load_all(jobs, options, progress)
    if failed:
        raise combined(failed)
    several = len(jobs) > 1 and not options.flag("no-session") and uses_session(loaded, options)
    is_session = several or has_session_file(options)
    setup = setup._replace(cache=setup.cache._replace(mode="ro"))
    compiler = _compiler(setup, options)
    session = new_session(options)
    together = fingerprints(loaded, jobs, options, session)
    digests = together if is_session else [fingerprint(each, job, options, session) for each, job in zip(loaded, jobs)]
    works = [
        compiler.work_of(position, job, each, digest)
        for position, (job, each, digest) in enumerate(zip(jobs, loaded, digests))
    ]
    return _answers_in(session, compiler, works) if is_session else [_answer(compiler, work) for work in works]


def _answers_in(session: Session, compiler: CachedCompiler, works: Sequence[Work]) -> list[Inquiry]:
    """One model after the other, each in the state that the ones before it leave, up to one that is not there."""

    def compiled(session: Session, member: Member) -> Compiled:
        raise AssertionError("an inquiry compiles nothing")

    source = session.source = SessionCache(compiler, works, compiled, hits_only=True)
    for work in works:
        session.add(work.loaded.graph, work.loaded.overrides)
    with suppress(Missed):
        session.compile_all()
    note = "the state of its session is known only when the models before it are compiled"
    origin = compiler.setup.key_origin
    return [
        Inquiry(work.job.source, work.key, origin, lookup)
        if (lookup := source.lookups.get(position)) is not None
        else Inquiry(work.job.source, work.key, origin, Lookup(None, "session"), note)
        for position, work in enumerate(works)
    ]


def _compiler(setup: CacheSetup, options: Options) -> CachedCompiler:
    def compile_one(work: Work) -> Compiled:
        raise AssertionError("an inquiry compiles nothing")

    stats = StatIndex(trusting=setup.cache.verify != "full")
    return CachedCompiler(setup, options, stats, compile_one, lambda: new_session(options).manager)


def _answer(compiler: CachedCompiler, work: Work) -> Inquiry:
    cache, wanted = compiler.cache, compiler.wanted(work)
    origin = compiler.setup.key_origin
    lookup = look(cache, work.key, wanted, compiler.stats)
    if lookup.found is not None:
        return Inquiry(work.job.source, work.key, origin, lookup)
    if not compiler.setup.keys and work.request is not None:
        # Without --graph-key the compile takes the entry of an equal request under whatever key.
        known = find_request(cache, work.request.digest, None, compiler.stats)
        if known is not None:
            return Inquiry(work.job.source, known.key, "of an equal request", Lookup(known))
    for record in _orphans(cache, work.key):
        outcome = check_record(cache.path, record, wanted, cache.policy, compiler.stats)
        if isinstance(outcome, Found):
            return Inquiry(work.job.source, work.key, origin, Lookup(outcome, "", lookup.rejected), adopts=True)
    near: tuple[NearEntry, ...] = ()
    if lookup.reason == "no_entry":
        derived = "" if compiler.setup.keys else work.key
        near = tuple(
            NearEntry(
                str(each.content["graph_key"]),
                str(each.content["entry"]),
                tuple(differences(each, work.digest)),
                kind_of(each, wanted.fingerprint),
            )
            for each in near_entries(cache.path, wanted.fingerprint, derived)
        )
    return Inquiry(work.job.source, work.key, origin, lookup, near=near)


def _orphans(cache: CacheDir, key: str) -> list[IndexRecord]:
    try:
        return adoptable(cache.path, key, read_index(cache.path, key), StatIndex())
    except (UnreadableIndex, OSError):
        return []
