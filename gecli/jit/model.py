"""A model that is cut, compiled and run slice by slice (GE: JitExecutor; cache.md 9.9)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gecli.cache.candidate import Rejected, Verdict, Wanted
from gecli.cache.jit_files import REST_GRAPH, SLICE_GRAPH, Restored
from gecli.cache.jit_store import JitStore
from gecli.cache.lock import KeyLock, LockTimeout, LockUnavailable
from gecli.compiler.job import stem_of
from gecli.errors import CacheError, Diagnostic, GecliError, InputError
from gecli.jit.digests import version_digests
from gecli.jit.guard import Guard, GuardError, parse_guard
from gecli.jit.known_model import KnownModel, save_file_rows
from gecli.jit.points import BrokenSlice, CompiledVersion, ExecutionPoint, SliceLookup
from gecli.runtime.interface import Tensor
from gecli.runtime.model import LoadedModel, Times, check_input
from gecli.runtime.program import Watch
from gecli.runtime.session import Session

if TYPE_CHECKING:
    from gecli.jit.building import SliceBuilder
    from gecli.jit.compiling import CompiledSlice

Array = NDArray[Any]
ORDINARY = ("no_entry", "refresh")  # nothing is wrong with the cache: there is nothing in it yet


class JitModel(LoadedModel):
    """A source model as something that runs: each run uses compiled slices whose guards take its inputs.

    What no guard takes is compiled on the way and, with a store, kept; `build` is called for that, so a run that the
    cache has everything for parses nothing. `refusal` says why a graph is not cut.
    """

    def __init__(
        self,
        known: KnownModel,
        build: Callable[[], SliceBuilder],
        session: Session,
        *,
        name: str,
        path: str,
        store: JitStore | None = None,
        is_required: bool = False,
        init: str = "error",
    ) -> None:
        super().__init__(name, path, known.inputs, known.outputs, {}, session.store, [], init)
        self.points: list[ExecutionPoint] = []
        self.jit_warnings: list[Diagnostic] = []
        self.explanation: list[str] = []  # one line for each thing that was looked for in the cache
        self.rejected: list[Rejected] = []  # versions that the look-ups so far found damaged
        self.restored = Restored([], "no_entry")  # what the cache knew of the slices at the first run
        self.counts = {"cut": 0, "compiled": 0, "restored": 0, "hits": 0}
        self.refusal = known.refusal
        self._facts = known.facts
        self._build = build
        self._built: SliceBuilder | None = None
        self._session = session
        self._files = store
        self._is_required = is_required
        self._scratch: TemporaryDirectory[str] | None = None
        self._scratch_files = 0
        self._values_count = True
        self._restored_once = False
        self._distrusts_files = False  # what the cache says about slices was believed once, and was wrong

    # ------------------------------------------------------------------ running

    def run(self, feeds: Mapping[str, Array], watch: Watch | None = None) -> tuple[dict[str, Array], Times]:
        """The outputs for these inputs, by name, and the times without compiling. Raises GecliError."""
        arrays = [check_input(tensor, feeds) for tensor in self.inputs]
        try:
            return self._run(arrays, watch)
        except BrokenSlice as error:
            self._warn(f"a slice of the JIT cache cannot be read and is cut again: {error}", "jit_corrupt")
            self.points.clear()
            self._distrusts_files = True
            return self._run(arrays, watch)  # a graph that is cut writes no variables, so nothing was done yet

    def _run(self, arrays: list[Array], watch: Watch | None) -> tuple[dict[str, Array], Times]:
        spent = Times(0, 0, 0)
        position = 0
        while True:
            point, version = self._version(position, arrays)
            values, times = self._values(version, arrays, watch)
            spent = Times(*(a + b for a, b in zip(_parts(spent), _parts(times))))
            if point.is_last:
                return {tensor.name: value for tensor, value in zip(self.outputs, values)}, spent
            arrays = _passed_on(point, values)
            position += 1

    def _values(
        self, version: CompiledVersion, arrays: Sequence[Array], watch: Watch | None
    ) -> tuple[list[Array], Times]:
        assert version.model is not None
        outputs, times = version.model.run(_named(version.model.inputs, arrays), watch)
        return list(outputs.values()), times

    def look_up(self, arrays: Sequence[Array]) -> Iterator[SliceLookup]:
        """What a run with these inputs would take from the cache, slice by slice, to the first that is not there.

        Compiles nothing; a slice that is there runs when the next one is asked for. Raises GecliError.
        """
        given, is_last, position = list(arrays), False, 0
        while not is_last:
            self.rejected.clear()
            if not self._restored_once:
                self._refresh(is_first=True)
            point = self._usable(position)
            version = None if point is None else self._found(point, given)
            if point is None or version is None:
                yield SliceLookup(position, None, (*self.rejected, *(point.refusals(given) if point else ())))
                return
            yield SliceLookup(position, version, tuple(self.rejected))
            is_last = point.is_last
            if not is_last:
                given = _passed_on(point, self._values(version, given, None)[0])
            position += 1

    def prepare(self, arrays: Sequence[Array]) -> None:
        """Cut and compile the first slice for inputs of these shapes, without running it. Raises GecliError.

        Nothing is known of the values, so none decides a shape or a branch.
        """
        self._values_count = False
        try:
            self._version(0, arrays)
        finally:
            self._values_count = True

    def _version(self, position: int, arrays: Sequence[Array]) -> tuple[ExecutionPoint, CompiledVersion]:
        """The compiled version of a slice for these inputs."""
        if not self._restored_once:
            self._refresh(is_first=True)
        point = self._usable(position)
        version = None if point is None else self._found(point, arrays)
        if point is not None and version is not None:
            return point, self._own(point, version, arrays) if point.runs_often(version, arrays) else version
        with self._locked() as held:
            if held is not None:
                self._refresh()
                point = self._usable(position)
                version = None if point is None else self._found(point, arrays)
                if point is not None and version is not None:
                    return point, version
            if point is not None:
                self.explanation += [f"slice {point.stored.id}: {each}" for each in point.refusals(arrays)]
            point = point or self._cut(position, arrays)
            version = self._compile(point, arrays, into_cache=held is not None)
            if held is not None:
                self._save()
        return point, version

    def _found(self, point: ExecutionPoint, arrays: Sequence[Array]) -> CompiledVersion | None:
        self._look_at_waiting(point)
        while (version := point.matching(arrays)) is not None:
            if version.model is not None or self._load_from_cache(point, version):
                version.hits += 1
                self.counts["hits"] += 1
                return version
            point.versions.remove(version)
        return None

    def _own(self, point: ExecutionPoint, version: CompiledVersion, arrays: Sequence[Array]) -> CompiledVersion:
        """A version for exactly these inputs, in place of one for many sizes; that one if there is none to be had."""
        with self._locked(waits=False) as held:
            if held is not None:
                self._refresh()
                found = self._found(point, arrays)
                if found is not None and found.guard.free < version.guard.free:
                    return found
            elif self._files is not None and self._files.may_write:
                return version  # another process compiles
            try:
                own = self._compile(point, arrays, into_cache=held is not None, symbols=False)
            except GecliError:
                return version
            if held is not None:
                self._save()
        return own

    # ------------------------------------------------------------------ cutting

    def _usable(self, position: int) -> ExecutionPoint | None:
        return self.points[position] if position < len(self.points) else None

    def _cut(self, position: int, arrays: Sequence[Array]) -> ExecutionPoint:
        point = self._builder().cut(self.points[position - 1] if position else None, arrays)
        self.points[position:] = [point]
        self.counts["cut"] += 1
        return point

    def _builder(self) -> SliceBuilder:
        """What cuts and compiles, made when the cache has nothing. Raises GecliError."""
        if self._built is None:
            built = self._build()
            if built.compiler.facts != self._facts:
                raise InputError(
                    "E13001",
                    f"{self.path} changed while it was run",
                    why="the cache was asked for what it was before",
                    do="keep the source model as it is until the run has ended",
                    file=self.path,
                )
            built.store = self._files
            self._built = built
        self._built.with_values = self._values_count
        return self._built

    # ------------------------------------------------------------------ compiling

    def _compile(
        self, point: ExecutionPoint, arrays: Sequence[Array], *, into_cache: bool, symbols: bool = True
    ) -> CompiledVersion:
        """A new version for these inputs; with `symbols` for other sizes too, where sizes have changed before."""
        compiled, guard = self._builder().compiled(point, arrays, symbols=symbols)
        self.jit_warnings += compiled.warnings
        self.counts["compiled"] += 1
        key, path = self._placed(point, compiled, guard, into_cache=into_cache)
        version = CompiledVersion(key, guard, hits=1, stem=stem_of(path) if key else "")
        version.model = self._loaded(path)
        point.add(version)
        return version

    def _placed(
        self, point: ExecutionPoint, compiled: CompiledSlice, guard: Guard, *, into_cache: bool
    ) -> tuple[str, str]:
        """Where a compiled version lies: its cache key and the path of its OM."""
        if into_cache and self._files is not None:
            from gecli.wire.var_manager import encode_var_match

            store, compiler = self._files, self._builder().compiler
            key = store.new_key(point.stored.id)
            rdcpkt = None if compiled.record.is_empty else encode_var_match(compiled.record)
            try:
                stem = store.store(
                    key,
                    self._builder().loaded.written_unchanged(compiled.image.write),
                    rdcpkt,
                    lambda stem, files: compiler.sidecar(key, stem, files, compiled, guard, point.stored.digest),
                    compiled.seconds,
                )
                return key, store.om_path(stem)
            except (OSError, LockTimeout, LockUnavailable) as error:
                self._not_stored(error)
        return "", self._scratch_path(point, compiled)

    def _scratch_path(self, point: ExecutionPoint, compiled: CompiledSlice) -> str:
        """The OM in a directory that goes with this process."""
        from gecli.wire.var_manager import encode_var_match

        if self._scratch is None:
            self._scratch = TemporaryDirectory(prefix="gecli-jit-")
        self._scratch_files += 1
        path = os.path.join(self._scratch.name, f"{self.name}_{point.stored.id}_{self._scratch_files}.om")
        if not compiled.record.is_empty:
            with open(os.path.splitext(path)[0] + ".rdcpkt", "wb") as stream:
                stream.write(encode_var_match(compiled.record))
        with open(path, "w+b") as stream:
            self._builder().loaded.written_unchanged(compiled.image.write)(stream)
        return path

    def _loaded(self, path: str) -> LoadedModel:
        model = self._session.load(path)
        self._session.models.pop()  # a version that makes room for another one must not stay in memory
        self.jit_warnings += self._session.warnings
        self._session.warnings.clear()
        known = {variable.name for variable in self.variables}
        self.variables += [variable for variable in model.variables if variable.name not in known]
        self.load_ns += model.load_ns
        return model

    # ------------------------------------------------------------------ the cache

    def _refresh(self, *, is_first: bool = False) -> None:
        """Take over what the cache knows now."""
        self._restored_once = True
        if self._files is None:
            return
        if self._distrusts_files:
            if not self.points and self._files.may_write:
                self._set_aside()
            return
        restored = self._files.restore()
        if is_first:
            self.restored = restored
            self._note_restored(restored)
        elif not restored.slices and restored.reason not in ORDINARY and self._files.may_write:
            self._set_aside()
        for position, stored in enumerate(restored.slices):
            if position == len(self.points):
                self.points.append(ExecutionPoint(stored))
            if self.points[position].stored.digest != stored.digest:
                return
            self.points[position].offer(list(stored.versions))

    def _note_restored(self, restored: Restored) -> None:
        count = len(restored.slices)
        known = f"{count} slice{' is' if count == 1 else 's are'} known"
        also = f"; then {restored}" if restored.reason else ""
        self.explanation.append(f"slicing: {known}{also}" if count else f"slicing: {restored}")
        if restored.reason and restored.reason not in ORDINARY:
            self._warn(f"the JIT cache of this graph was not used: {restored}", restored.reason)

    def _set_aside(self) -> None:
        assert self._files is not None
        if self.points:
            return  # this process has said so already, and its own slices replace the others
        try:
            self._files.set_aside()
        except OSError as error:
            self._warn(f"{self._files.home} cannot be set aside: {error.strerror or error}", "io_error")

    def _look_at_waiting(self, point: ExecutionPoint) -> None:
        waiting, point.waiting = point.waiting, []
        for key in waiting:
            assert self._files is not None
            point.seen.add(key)
            found = self._files.version(key)
            if isinstance(found, Rejected):
                self._reject(key, found)
                continue
            try:
                guard = parse_guard(found.guard)
            except GuardError as error:
                self._reject(key, Rejected(found.stem, "guard_unreadable", str(error)))
                continue
            version = CompiledVersion(key, guard, point.stored.versions.get(key, 0), stem=found.stem)
            if not point.is_full:
                point.versions.append(version)

    def _load_from_cache(self, point: ExecutionPoint, version: CompiledVersion) -> bool:
        """Load the OM of a version whose guard fits, after the checks of every cache entry."""
        assert self._files is not None
        wanted = version_digests(self._facts, point.stored.digest, version.guard.as_json())
        found = self._files.find(
            version.key, Wanted(wanted, "", _match_variables, lambda om, source: Verdict(reason="guard_unreadable"))
        )
        if isinstance(found, Rejected):
            self._reject(version.key, found)
            return False
        try:
            version.model = self._loaded(self._files.om_path(found.stem))
        except GecliError as error:
            self._reject(version.key, Rejected(found.stem, "load_failed", error.first.message))
            return False
        self.counts["restored"] += 1
        self._keep_file_rows()
        self.explanation.append(f"slice {point.stored.id}: {found.stem} fits")
        return True

    def _reject(self, key: str, found: Rejected) -> None:
        self.explanation.append(str(found))
        self.rejected.append(found)
        if found.reason not in ORDINARY and self._files is not None:
            self._warn(f"cache entry {found} was not used", found.reason)
            self._files.put_in_order(key, found)

    def _locked(self, *, waits: bool = True) -> AbstractContextManager[Any]:
        """The lock of the user graph; a context of None when there is no cache to write or it is not to be had."""
        if self._files is None or not self._files.may_write:
            return nullcontext()
        return _Lock(self._files, self._not_locked if waits else None)

    def _not_locked(self, error: Exception) -> None:
        timed_out = isinstance(error, LockTimeout)
        reason = "lock_timeout" if timed_out else "lock_unavailable"
        why = f"held by {error}" if timed_out else str(error)
        message = f"the lock of cache key {self._files.key if self._files else ''} was not obtained"
        if self._is_required:
            raise CacheError(
                "G5001" if timed_out else "G5002", message, why=why, do="raise --lock-timeout", kind=reason
            )
        self._warn(f"{message}; compiled without the cache ({why})", reason)

    def _not_stored(self, error: Exception) -> None:
        why = getattr(error, "strerror", None) or str(error)
        if self._is_required:
            raise CacheError("G5003", "a compiled slice was not stored in the cache", why=why, kind="io_error")
        self._warn(f"a compiled slice was not stored in the cache: {why}", "io_error")

    def _save(self) -> None:
        assert self._files is not None
        for point in self.points:
            point.record_hits()
        try:
            self._files.save(
                [point.stored for point in self.points], lambda position: self._builder().graphs(self.points[position])
            )
        except OSError as error:
            self._not_stored(error)

    def _keep_file_rows(self) -> None:
        """Spare the next process the reading of what this one has read and found right."""
        assert self._files is not None
        store = self._files
        paths = []
        for point in self.points:
            folder = os.path.join(store.home, str(point.stored.id))
            paths += [os.path.join(folder, name) for name in (SLICE_GRAPH, REST_GRAPH)]
            paths += [version.model.path for version in point.versions if version.model is not None and version.key]
        save_file_rows(store.cache, store.home, store.stats, paths)

    def _warn(self, message: str, kind: str) -> None:
        warning = Diagnostic("G5002", message, severity="warning", kind=kind)
        if warning not in self.jit_warnings:
            self.jit_warnings.append(warning)


class _Lock:
    """The lock of a user graph; a lock that is not to be had is told, and the block runs with None.

    Without somebody to tell it is not waited for.
    """

    def __init__(self, store: JitStore, tell: Callable[[Exception], None] | None) -> None:
        self._store = store
        self._tell = tell
        self._lock: Any = None

    def __enter__(self) -> Any:
        try:
            self._lock = self._store.lock() if self._tell is not None else _lock_at_once(self._store)
            self._lock.__enter__()
        except (LockTimeout, LockUnavailable, OSError) as error:
            self._lock = None
            if self._tell is not None:
                self._tell(error)
        return self._lock

    def __exit__(self, *details: Any) -> None:
        if self._lock is not None:
            self._lock.__exit__(*details)


def _lock_at_once(store: JitStore) -> KeyLock:
    return KeyLock(store.directory, store.key, timeout_s=0, shared=store.cache.conf.shared)


def _passed_on(point: ExecutionPoint, values: Sequence[Array]) -> list[Array]:
    """The inputs of the slice behind one with these outputs."""
    return [values[source] for source, _ in sorted(point.stored.io_map, key=lambda pair: pair[1])]


def _named(inputs: Sequence[Tensor], arrays: Sequence[Array]) -> dict[str, Array]:
    return {tensor.name: np.asarray(array) for tensor, array in zip(inputs, arrays)}


def _parts(times: Times) -> tuple[int, int, int]:
    return times.h2d_ns, times.compute_ns, times.d2h_ns


def _match_variables(rdcpkt: str | None, is_vouched: bool) -> Verdict:
    """Slices are compiled in a session without variables, so a record only has to be whole."""
    if rdcpkt is None:
        return Verdict("no-vars")
    from gecli.artifacts.rdcpkt import read_rdcpkt
    from gecli.variables.var_manager import VarManager
    from gecli.variables.var_match import match, why_contradictory

    try:
        record = read_rdcpkt(rdcpkt)
    except GecliError as error:
        return Verdict(reason="rdcpkt_corrupt", evidence=error.first.message)
    contradiction = why_contradictory(record, is_vouched=is_vouched)
    if contradiction:
        return Verdict(reason="rdcpkt_corrupt", evidence=contradiction)
    found = match(record, VarManager(0))
    return Verdict(str(found.side)) if found.matched else Verdict(reason=found.reason)
