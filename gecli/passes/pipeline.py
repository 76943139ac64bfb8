"""Running passes in order, with instruments around each: time, counts, dumps, verification, an early stop."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from time import perf_counter_ns
from typing import Protocol

from gecli.errors import CompileError, OutputError
from gecli.ir.graph import Graph
from gecli.ir.verify import verify
from gecli.passes.base import CompileSettings, Pass, PassContext, Stage
from gecli.passes.facts import check
from gecli.records import dataclass

_LEVELS = {"O0": 0, "O1": 1, "O3": 3}


class Instrument(Protocol):
    """Something that watches a pipeline. Raising from a method stops the compile."""

    def before(self, step: Pass, graph: Graph, ctx: PassContext) -> None: ...

    def after(self, step: Pass, graph: Graph, ctx: PassContext, counts: Counter[str], elapsed_ns: int) -> None: ...


@dataclass(slots=True)
class PassRecord:
    """What one pass did: for the report."""

    name: str
    stage: Stage
    elapsed_ns: int
    nodes_before: int
    nodes_after: int
    counts: dict[str, int]


@dataclass(slots=True)
class Timeline:
    """Collects a record for each pass."""

    records: list[PassRecord] = field(default_factory=list)
    _nodes_before: int = 0

    def before(self, step: Pass, graph: Graph, ctx: PassContext) -> None:
        self._nodes_before = len(graph)

    def after(self, step: Pass, graph: Graph, ctx: PassContext, counts: Counter[str], elapsed_ns: int) -> None:
        self.records.append(
            PassRecord(step.name, step.stage, elapsed_ns, self._nodes_before, len(graph), dict(sorted(counts.items())))
        )


@dataclass(slots=True)
class StructureCheck:
    """Verifies the graph's structure and each pass's facts; a violation is a bug of gecli."""

    def before(self, step: Pass, graph: Graph, ctx: PassContext) -> None:
        self._check(step, graph, [problem for fact in step.requires for problem in check(graph, fact)], "before")

    def after(self, step: Pass, graph: Graph, ctx: PassContext, counts: Counter[str], elapsed_ns: int) -> None:
        self._check(step, graph, [problem for fact in step.ensures for problem in check(graph, fact)], "after")

    def _check(self, step: Pass, graph: Graph, problems: list[str], when: str) -> None:
        problems = verify(graph) + problems
        if problems:
            raise AssertionError(f"{when} pass {step.name}: " + "; ".join(problems[:5]))


@dataclass(slots=True)
class Dump:
    """Writes the graph's text after each pass (or after each pass of the named stages) into a directory."""

    directory: Path
    stages: frozenset[str] = frozenset()
    _number: int = 0
    _made: list[Path] = field(default_factory=list)
    _is_new: bool = False

    def before(self, step: Pass, graph: Graph, ctx: PassContext) -> None: ...

    def after(self, step: Pass, graph: Graph, ctx: PassContext, counts: Counter[str], elapsed_ns: int) -> None:
        from gecli.ir.text import text

        if self.stages and step.stage.value not in self.stages and step.name not in self.stages:
            return
        path = self.directory / f"ge_readable_{self._number:08d}_graph_{ctx.graph_id}_{step.name}.txt"
        temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")  # an older dump is replaced by a whole one
        self._is_new = self._is_new or not self.directory.exists()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            temporary.write_text(text(graph), encoding="utf-8")
            self._made += [] if path.exists() else [path]
            temporary.replace(path)
        except BaseException as error:
            with suppress(OSError):
                temporary.unlink()
            if not isinstance(error, OSError):
                raise
            self._take_back()
            raise OutputError(
                "G6001", f"the dump {path} cannot be written", why=error.strerror or str(error), file=str(path),
                option="--dump-graph", do="name another directory with --dump-graph, or leave it out",
            ) from error  # fmt: skip
        self._number += 1

    def _take_back(self) -> None:
        """Remove the dumps of this compile: without the next ones they would look like those of another."""
        for path in self._made:
            with suppress(OSError):
                path.unlink()
        if self._is_new:
            with suppress(OSError):
                self.directory.rmdir()


def enabled(step: type[Pass] | Pass, settings: CompileSettings) -> bool:
    """Whether a pass runs under these settings: its level, overridden by a switch; correctness passes always run."""
    if step.correctness:
        return True
    if step.name in settings.switches:
        return settings.switches[step.name]
    return _LEVELS[settings.oo_level] >= _LEVELS[step.level]


def run_pipeline(
    graph: Graph,
    ctx: PassContext,
    steps: Iterable[Pass],
    instruments: Sequence[Instrument] = (),
    stop_after: str | None = None,
) -> bool:
    """Run `steps` on `graph`. Returns False when `stop_after` (a stage or pass name) ended the run early.

    Raises CompileError; an unexpected exception in a pass is passed on with the pass named in a note.
    """
    steps = list(steps)
    for position, step in enumerate(steps):
        if enabled(step, ctx.settings):
            _run_one(step, graph, ctx, instruments)
        last_of_stage = position + 1 == len(steps) or steps[position + 1].stage is not step.stage
        if stop_after == step.name or (last_of_stage and stop_after == step.stage.value):
            return False
    return True


def _run_one(step: Pass, graph: Graph, ctx: PassContext, instruments: Sequence[Instrument]) -> None:
    for instrument in instruments:
        instrument.before(step, graph, ctx)
    start = perf_counter_ns()
    try:
        counts = step.run(graph, ctx)
    except CompileError:
        raise
    except Exception as err:
        err.add_note(f"in pass {step.name} (stage {step.stage.value}) on graph {graph.name!r}")
        raise
    elapsed = perf_counter_ns() - start
    for instrument in instruments:
        instrument.after(step, graph, ctx, counts, elapsed)
