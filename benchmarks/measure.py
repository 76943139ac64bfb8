"""Runs gecli and its peers in turn, as whole processes, and keeps the figures."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from feeds import input_shape_option
from figures import START_UP_MODEL, Figures
from whole_process import Job, Run, environment, interleave, run_process

HERE = Path(__file__).resolve().parent
GECLI = [sys.executable, "-m", "gecli"]
PASS = [sys.executable, "-c", "pass"]
MAX_CALLS = 10_000
HIT_MARKS = ("cache=hit", "cache     hit")
SESSION_GRAPHS = ("init", "train", "eval")  # as make_sessions.py writes them, in the order of the command line
START_UP_ROUNDS = 7  # cheap, and a difference of a few milliseconds counts


@dataclass(frozen=True, slots=True)
class Bench:
    """How everything is measured; one scratch directory a model."""

    rounds: int
    threads: int
    warm_up: int = 1
    budget_s: float = 1.0  # of steady calls in one process
    reference: bool = True

    def start_up(self) -> Figures:
        """--version and --help beside a Python that does nothing."""
        figures = Figures("start-up")
        with tempfile.TemporaryDirectory() as folder:
            session = Session(self, Path(folder))
            commands = {"pass": PASS, "--version": [*GECLI, "--version"], "--help": [*GECLI, "--help"]}
            session.take(
                figures,
                {name: session.job(words) for name, words in commands.items()},
                rounds=max(self.rounds, START_UP_ROUNDS),
            )
        return figures

    def inspecting(self, large: Path, many: Path) -> Figures:
        """inspect-om of the OMs of two models: one of a GiB of weights, one of 100,000 nodes."""
        figures = Figures("inspect")
        with tempfile.TemporaryDirectory() as folder:
            session = Session(self, Path(folder))
            for name, model in (("large", large), ("many", many)):
                words = [*GECLI, "compile", str(model.resolve()), "-o", f"{name}.om", "--format-policy", "origin"]
                compiled = session.run(*words)
                if compiled.status != 0:
                    figures.failures["compile"] = f"{model.name}: {compiled.failure}"
                    return figures
                figures.om_bytes[name] = (session.folder / f"{name}.om").stat().st_size
            show = [*GECLI, "inspect-om"]
            commands = {
                "--version": [*GECLI, "--version"],
                "summary": [*show, "large.om", "--summary"],
                "nodes": [*show, "many.om", "--nodes"],
            }
            session.take(figures, {name: session.job(words) for name, words in commands.items()})
        return figures

    def compiling_sessions(self, folders: Mapping[int, Path]) -> Figures:
        """Compiles of three graphs that share variables, by the number of variables; the fewest are the start-up."""
        figures = Figures("session")
        with tempfile.TemporaryDirectory() as folder:
            session = Session(self, Path(folder))
            jobs = {}
            for count, graphs in folders.items():
                sources = [str(graphs.resolve() / f"{name}.json") for name in SESSION_GRAPHS]
                jobs[str(count)] = session.job([*GECLI, "compile", *sources, "-o", f"om{count}/", "--quiet"])
            session.take(figures, jobs)
        return figures

    def model(self, model: Path, real: bool) -> Figures:
        """Every figure of one model."""
        figures = Figures(model.stem, real, model.stat().st_size)
        with tempfile.TemporaryDirectory() as folder:
            session = ModelSession(self, Path(folder), model.resolve())
            prepared = session.run(sys.executable, str(HERE / "feeds.py"), str(session.model), "in.npz")
            if prepared.status != 0:
                raise SystemExit(f"{model.name}: no inputs: {prepared.failure}")
            figures.nodes = json.loads(prepared.stdout)["nodes"]
            session.compiling(figures)
            if model.stem != START_UP_MODEL:
                session.sizes(figures)
                if "compile" not in figures.failures:
                    session.running(figures)
        return figures


@dataclass(frozen=True, slots=True)
class Session:
    """Processes in one scratch directory."""

    bench: Bench
    folder: Path

    def run(self, *words: str) -> Run:
        return run_process(words, environment(self.bench.threads, HERE.parent), self.folder)

    def job(self, words: list[str], *remove: str) -> Job:
        """A process to be measured; what an earlier round left is removed first."""

        def run() -> Run:
            for name in remove:
                (self.folder / name).unlink(missing_ok=True)
            return self.run(*words)

        return run

    def take(self, figures: Figures, jobs: Mapping[str, Job], rounds: int = 0) -> dict[str, list[Run]]:
        """Run jobs in turn; the runs of those that succeeded."""
        good = {}
        for name, runs in interleave(jobs, rounds or self.bench.rounds, self.bench.warm_up).items():
            if runs[0].status != 0:
                figures.failures[name] = runs[0].failure
                continue
            good[name] = runs
            figures.wall_s[name] = [run.wall_s for run in runs]
            figures.peak_mb[name] = statistics.median(run.peak_mb for run in runs)
        return good


@dataclass(frozen=True, slots=True)
class ModelSession(Session):
    """The processes of one model."""

    model: Path

    def compile_words(self, out: str, *options: str) -> list[str]:
        return [
            *GECLI,
            "compile",
            str(self.model),
            "-o",
            out,
            "--input-shape",
            input_shape_option(self.model),
            *options,
        ]

    def peer(self, *words: str) -> list[str]:
        return [sys.executable, str(HERE / "peer_ort.py"), *words]

    def compiling(self, figures: Figures) -> None:
        """Cold compile, cache hit, and what onnxruntime has in their place."""
        cached = self.compile_words("hit.om", "--cache-dir", "cache", "--cache-create")
        stored = self.run(*cached)  # fills the cache

        def hit() -> Run:
            run = self.job(cached, "hit.om")()
            if run.status == 0 and not any(mark in run.stdout + run.stderr for mark in HIT_MARKS):
                return replace(run, status=1, stderr="error: compiled again instead of a cache hit")
            return run

        jobs = {
            "pass": self.job(PASS),
            "compile": self.job(self.compile_words("model.om"), "model.om"),
            "hit": hit if stored.status == 0 else lambda: stored,
            "ort compile": self.job(self.peer("compile", str(self.model), "ort.onnx"), "ort.onnx"),
            "ort reload": self.job(self.peer("reload", "ort.onnx")),
            "floor compile": self.job(floor("compile", str(self.model), str(figures.nodes), "floor.om"), "floor.om"),
            "floor hit": self.job(floor("hit", "model.om", "floor.om"), "floor.om"),
        }
        self.take(figures, jobs)
        (self.folder / "floor.om").unlink(missing_ok=True)
        shutil.rmtree(self.folder / "cache", ignore_errors=True)

    def sizes(self, figures: Figures) -> None:
        if (self.folder / "model.om").is_file():
            figures.om_bytes["device"] = (self.folder / "model.om").stat().st_size
        origin = self.run(*self.compile_words("origin.om", "--format-policy", "origin"))
        if origin.status != 0:
            figures.failures["origin"] = origin.failure
            return
        figures.om_bytes["origin"] = (self.folder / "origin.om").stat().st_size
        (self.folder / "origin.om").unlink()

    def run_words(self, calls: int, *options: str) -> list[str]:
        loop = ["--loop", str(calls), "--warmup", "0"]
        return [*GECLI, "run", "model.om", "-i", "in.npz", *loop, "--json", *options]

    def ort_words(self, calls: int) -> list[str]:
        return self.peer("run", str(self.model), "in.npz", "want.npz", str(calls))

    def running(self, figures: Figures) -> None:
        """Load, one call, many calls: the latency is the slope, so start-up and the first call cancel out."""
        calls, ort_calls = self.calls(self.run_words), self.calls(self.ort_words)
        jobs = {
            "run": self.job(self.run_words(1)),
            "run many": self.job(self.run_words(calls)),
            "ort run": self.job(self.ort_words(1)),
            "ort run many": self.job(self.ort_words(ort_calls)),
            "floor load": self.job(floor("load", "model.om")),
        }
        good = self.take(figures, jobs)
        for name, count in (("run", calls), ("ort run", ort_calls)):
            one, many = figures.wall_s.get(name), figures.wall_s.pop(f"{name} many", None)
            if one and many:
                figures.latency_s[name] = [(b - a) / (count - 1) for a, b in zip(one, many)]
        if "run" in good:
            figures.wall_s["load"] = [run.wall_s - call_s(run) for run in good["run"]]
            self.error(figures)
        if figures.real and self.bench.reference:
            self.reference(figures)

    def calls(self, words: Callable[[int], list[str]]) -> int:
        """How many calls make the slope stand out of the noise of start-up: the budget, or half of a long start-up."""
        once_s = self.run(*words(1)).wall_s
        target_s = max(self.bench.budget_s, once_s / 2)
        count = 4
        while count < MAX_CALLS:
            extra_s = self.run(*words(count)).wall_s - once_s
            if extra_s >= target_s / 2:
                break
            factor = target_s / max(extra_s, 1e-3)
            count = min(MAX_CALLS, int(count * min(10, max(2, factor))))
        return count

    def error(self, figures: Figures) -> None:
        self.run(*self.run_words(1, "-o", "got.npz"))
        compared = self.run(sys.executable, str(HERE / "output_error.py"), "got.npz", "want.npz")
        if compared.status != 0:
            figures.failures["error"] = compared.failure
            return
        figures.error = json.loads(compared.stdout)

    def reference(self, figures: Figures) -> None:
        run = self.run(sys.executable, str(HERE / "peer_reference.py"), str(self.model), "in.npz")
        if run.status != 0:
            figures.failures["reference"] = run.failure
            return
        figures.latency_s["reference"] = [json.loads(run.stdout)["call_s"]]


def floor(*words: str) -> list[str]:
    return [sys.executable, str(HERE / "floor.py"), *words]


def call_s(run: Run) -> float:
    """The seconds of the one measured call of `gecli run --json`."""
    return float(json.loads(run.stdout)["models"][0]["stats"]["phases"]["total"]["mean"]) / 1e3
