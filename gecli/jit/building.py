"""Cutting a model and compiling its slices: what a run does when the cache has nothing for it (cache.md 9.6, 9.9)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from gecli.cache.jit_files import REST_GRAPH, SLICE_GRAPH, StoredSlice
from gecli.cache.jit_store import Graphs, JitStore
from gecli.compiler.job import Job
from gecli.compiler.model_loading import load_model
from gecli.compiler.optimised_graphs import refuse_where_a_source_is_needed
from gecli.errors import CompileError
from gecli.ir.graph import Graph
from gecli.jit.compiling import CompiledSlice, SliceCompiler, one_thread
from gecli.jit.cut import cut
from gecli.jit.guard import Guard
from gecli.jit.points import BrokenSlice, ExecutionPoint, is_empty
from gecli.jit.refusal import refusal
from gecli.jit.slice_file import UnusableSlice, chunks_of, encoded, graph_digest, read_slice, sha256_of
from gecli.jit.slices import remove_dead_ends, taken_apart, whole
from gecli.jit.specialise import Specialised, general, specialised
from gecli.options.values import Options

Array = NDArray[Any]


class SliceBuilder:
    """The graph of a source model, and its slices. `refusal` says why it is not cut. Raises GecliError when made.

    `store` is where restored slices are read from. Without `with_values` nothing is known of the values of inputs.
    """

    def __init__(self, job: Job, options: Options) -> None:
        self.loaded = load_model(job, options)
        refuse_where_a_source_is_needed(self.loaded, "which is not cut into slices", "--jit")
        self.compiler = SliceCompiler(self.loaded, job, options)
        remove_dead_ends(self.loaded.graph)  # behind the fingerprint, which is that of the whole model
        self.graph = self.loaded.graph
        self.refusal = refusal(self.graph)
        self.store: JitStore | None = None
        self.with_values = True

    def cut(self, before: ExecutionPoint | None, arrays: Sequence[Array]) -> ExecutionPoint:
        """The slice behind another one, or the first, for inputs as they are now."""
        position = 0 if before is None else before.stored.id + 1
        parent = self.graph if before is None else self._rest_of(before)
        parent_digest = self.compiler.facts.graph if before is None else str(before.stored.rest)
        prepared: Specialised | None = None
        reasons: list[tuple[str, str]] = []
        inside: frozenset[str] = frozenset()
        if self.refusal:
            reasons = [("", self.refusal)]
        elif not is_empty(arrays):
            with one_thread():
                prepared = specialised(parent, arrays, with_values=self.with_values)
            found = cut(parent, prepared.known)
            inside, reasons = found.inside, list(found.breaks)
        if inside:
            parts = taken_apart(parent, inside)
            point = ExecutionPoint(
                self._described(position, parent_digest, parts.sliced, parts.remaining), parts.sliced, parts.remaining
            )
            point.stored.outputs, point.stored.io_map = list(parts.outputs), list(parts.io_map)
        else:
            point = ExecutionPoint(self._described(position, parent_digest, whole(parent), None), parent)
            point.prepared = prepared
        point.stored.reasons = reasons
        return point

    def _described(self, position: int, parent_digest: str, graph: Graph, rest: Graph | None) -> StoredSlice:
        digest = graph_digest(graph) if rest is not None else parent_digest
        keeps = self.store is not None and self.store.may_write
        return StoredSlice(
            id=position,
            parent=parent_digest,
            digest=digest,
            rest=None if rest is None else graph_digest(rest),
            outputs=[],
            io_map=[],
            reasons=[],
            formats=[data.output_descs[0].logical().format.name for data in graph.inputs],
            pb_sha256=sha256_of(encoded(graph)) if keeps else "",
            rest_pb_sha256=sha256_of(encoded(rest)) if keeps and rest is not None else None,
        )

    def _graph_of(self, point: ExecutionPoint) -> Graph:
        """The graph of a slice; restored ones are read when a version has to be compiled. Raises GecliError."""
        if point.graph is None:
            if point.is_last and point.stored.id == 0:
                point.graph = self.graph
            else:
                point.graph = self._read(point, SLICE_GRAPH, point.stored.digest)
        return point.graph

    def _rest_of(self, point: ExecutionPoint) -> Graph:
        if point.rest is None:
            point.rest = self._read(point, REST_GRAPH, str(point.stored.rest))
        return point.rest

    def _read(self, point: ExecutionPoint, name: str, digest: str) -> Graph:
        assert self.store is not None
        path = os.path.join(self.store.home, str(point.stored.id), name)
        try:
            return read_slice(path, digest)
        except (UnusableSlice, OSError) as error:
            raise BrokenSlice(f"{path}: {error}") from error

    def compiled(self, point: ExecutionPoint, arrays: Sequence[Array], *, symbols: bool) -> tuple[CompiledSlice, Guard]:
        """A version for these inputs; with `symbols` for other sizes too, where sizes have changed before."""
        with one_thread():
            found = self._version(point, arrays, symbols=symbols)
        point.prepared = None
        return found

    def _version(self, point: ExecutionPoint, arrays: Sequence[Array], *, symbols: bool) -> tuple[CompiledSlice, Guard]:
        graph = self._graph_of(point)
        if self.refusal or is_empty(arrays) or point.is_full:
            copy, guard = general(graph, arrays)
            return self._compile(point, copy, guard), guard
        free, varied = point.changed(arrays)
        if symbols and (any(free) or varied):
            try:
                found = specialised(graph, arrays, with_values=self.with_values, free=free, varied=varied)
                return self._compile(point, found.graph, found.guard), found.guard
            except CompileError:
                pass  # some nodes want to know sizes
        found = point.prepared or specialised(graph, arrays, with_values=self.with_values)
        return self._compile(point, found.graph, found.guard), found.guard

    def _compile(self, point: ExecutionPoint, graph: Graph, guard: Guard) -> CompiledSlice:
        return self.compiler.compile(graph, guard, point.stored.id, point.stored.digest, is_last=point.is_last)

    def graphs(self, point: ExecutionPoint) -> Graphs:
        """The files that hold the graphs of a slice."""
        graph = self._graph_of(point)
        found = {SLICE_GRAPH: chunks_of(encoded(whole(graph) if point.is_last else graph))}
        if not point.is_last:
            found[REST_GRAPH] = chunks_of(encoded(self._rest_of(point)))
        return found
