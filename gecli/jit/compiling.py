"""Compiling one version of a slice, and what is kept beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from time import perf_counter
from typing import Any, NamedTuple

from gecli.artifacts.om_writer import OmImage
from gecli.cache.digest import canonical_text, digest_of
from gecli.cache.fingerprint import Fingerprint
from gecli.cache.jit_files import Facts
from gecli.cache.layout import host_name
from gecli.cache.sidecar import SCHEMA, Sidecar
from gecli.compiler.api import fingerprint, new_session
from gecli.compiler.cmdline import recorded_cmdline
from gecli.compiler.job import Job
from gecli.compiler.model_image import ImageFacts, model_image
from gecli.errors import Diagnostic
from gecli.ir.graph import Graph
from gecli.jit.digests import version_digests
from gecli.jit.guard import Guard
from gecli.jit.slice_options import options_of_slice
from gecli.loading import LoadedModel
from gecli.ops.thread_count import intra_op_threads, set_intra_op_threads
from gecli.options.values import Options
from gecli.variables.var_match import VarMatch
from gecli.version import __version__

GUARD = "_gecli_guard"  # attribute of the root graph in the OM of a slice


class CompiledSlice(NamedTuple):
    """A version of a slice in memory: its OM, its variable record, and what the compile said."""

    image: OmImage
    record: VarMatch
    seconds: float
    warnings: tuple[Diagnostic, ...]
    is_dynamic: bool


@contextmanager
def one_thread() -> Iterator[None]:
    """Constants are computed by one thread, so that they are the same everywhere; the run around it may use more."""
    before = intra_op_threads()
    set_intra_op_threads(1)
    try:
        yield
    finally:
        set_intra_op_threads(before)


class SliceCompiler:
    """Compiles slices of one model with one set of options."""

    def __init__(self, loaded: LoadedModel, job: Job, options: Options) -> None:
        self._loaded = loaded
        self._job = job
        self._options = options
        self._digest: Fingerprint = fingerprint(loaded, job, options, new_session(options))

    @property
    def combined(self) -> str:
        """The fingerprint of the whole model, from which a missing graph key is derived."""
        return self._digest.combined

    @property
    def facts(self) -> Facts:
        """What every slice of the model depends on."""
        graph = digest_of("gecli-slice-1", self._digest.graph, self._digest.weights)
        return Facts(graph, self._digest.toolchain, self._digest.options)

    def compile(self, graph: Graph, guard: Guard, slice_id: int, digest: str, *, is_last: bool) -> CompiledSlice:
        """Compile a graph, which is changed. Raises GecliError."""
        options = options_of_slice(self._options, is_first=slice_id == 0, is_last=is_last)
        start = perf_counter()
        document = guard.as_json()
        graph.name = f"{self._job.stem}_{slice_id}"
        graph.attrs[GUARD] = canonical_text(document)
        session = new_session(options)
        member = session.add(graph)
        session.compile_all()
        compiled = member.compiled
        assert compiled is not None
        found = version_digests(self.facts, digest, document)
        parts = (found["graph"], found["weights"], found["options"], __version__)
        facts = ImageFacts(
            name=f"{self._job.stem}_{slice_id}",
            soc=session.platform.soc,
            arch=session.platform.profile,
            framework=self._loaded.front_end,
            cmdline=recorded_cmdline(options, self._job.source),
            fingerprint=digest_of("gecli-src-1", *parts),
        )
        image = model_image(compiled, session.manager, facts)
        warnings = tuple(compiled.warnings)
        return CompiledSlice(image, compiled.record, perf_counter() - start, warnings, compiled.plan.is_dynamic)

    def sidecar(
        self, key: str, stem: str, files: dict[str, Any], compiled: CompiledSlice, guard: Guard, digest: str
    ) -> Sidecar:
        """What is written beside the entry of a version."""
        from datetime import UTC, datetime

        document = guard.as_json()
        record = compiled.record
        return Sidecar(
            {
                "schema": SCHEMA,
                "graph_key": key,
                "entry": stem,
                "created_utc": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                "compile_seconds": round(compiled.seconds, 3),
                "created_by": {"tool": "gecli", "version": __version__, "host": host_name(), "pid": os.getpid()},
                "fingerprint": {**version_digests(self.facts, digest, document), "requests": []},
                "components": {"options": {}, "graph": {}},
                "files": files,
                "weight_dir": "weight",
                "weights": [],
                "vars": {
                    "before": sorted(record.before.var_desc_map),
                    "after": sorted(record.after.var_desc_map),
                    "changed": list(record.after.changed_var_names),
                    "staged": sorted(record.after.staged_var_desc_map),
                },
                "guard": document,
                "confirmed": False,
                "report": {"warnings": [asdict(each) for each in compiled.warnings]},
            }
        )
