#!/usr/bin/env python3
"""Measure gecli against onnxruntime and its own goals, and print one table (README.md says what each row means)."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

from feeds import feeds_path
from figures import Figures
from goals import SESSIONS, markdown, summary, table_rows
from measure import HERE, Bench
from whole_process import environment

SYNTHETIC = ["elt-10", "elt-1k", "elt-10k", "elt-100k", "bert-base-shape"]
ON_REQUEST = ["mlp-deep"]  # synthetic too, measured when --only names it
QUICK_SYNTHETIC = ["elt-10", "elt-1k", "elt-10k"]
QUICK_BYTES = 5_000_000
START_UP, INSPECT, SESSION = "start-up", "inspect", "session"
INSPECTED = ["gib", "elt-100k"]
FACTS = """
import json, numpy, onnxruntime, gecli.version
from threadpoolctl import threadpool_info
blas = [f"{i['internal_api']} {i['version']} {i.get('architecture')} x{i['num_threads']}" for i in threadpool_info()]
versions = {"gecli": gecli.version.__version__, "numpy": numpy.__version__, "onnxruntime": onnxruntime.__version__}
print(json.dumps({"blas": "; ".join(blas), **versions}))
"""


def main() -> int:
    options = parse()
    bench = Bench(options.rounds, options.threads)
    if options.quick:
        bench = replace(bench, rounds=1, warm_up=0, budget_s=0.3, reference=False)
    facts = machine_facts(bench.threads, bench.rounds)
    only = set(filter(None, options.only.split(",")))
    real, synthetic = choose_models(options.models, options.synthetic, only, options.quick)
    start_up = bench.start_up() if not only or START_UP in only else None
    inspect = None
    if INSPECT in only or not (only or options.quick):
        inspect = bench.inspecting(*made_models(options.synthetic, INSPECTED))
    session = None
    if SESSION in only or not (only or options.quick):
        session = bench.compiling_sessions({count: made_session(options.synthetic, count) for count in SESSIONS})
    figures: list[Figures] = []

    def keep() -> None:
        if options.json:
            kept = {
                "machine": facts,
                "start_up": start_up and asdict(start_up),
                "inspect": inspect and asdict(inspect),
                "session": session and asdict(session),
                "models": [asdict(each) for each in figures],
            }
            options.json.write_text(json.dumps(kept, indent=1))

    keep()
    for path in [*real, *synthetic]:
        start = time.perf_counter()
        figures.append(bench.model(path, real=path in real))
        print(f"{path.stem}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        keep()
    rows = table_rows(start_up, figures, inspect, session)
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), markdown(rows), summary(rows), sep="\n\n")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, help="real models, as get_models.py fetches them")
    parser.add_argument(
        "--synthetic", type=Path, default=Path("build/synthetic"), help="synthetic models; made when missing"
    )
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds after one to warm up (default 5)")
    parser.add_argument("--threads", type=int, default=cores(), help="of gecli and of its peers (default: the cores)")
    parser.add_argument(
        "--only",
        default="",
        metavar="NAME,...",
        help=f"only these models; {START_UP}, {INSPECT} and {SESSION} are names too",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure here, model by model")
    parser.add_argument("--quick", action="store_true", help="one round, small models only, no ReferenceEvaluator")
    return parser.parse_args()


def choose_models(models: Path | None, synthetic: Path, only: set[str], quick: bool) -> tuple[list[Path], list[Path]]:
    """The real and the synthetic models to measure; makes the synthetic ones that are missing."""
    if models and not models.is_dir():
        raise SystemExit(f"{models} is no directory; benchmarks/get_models.py {models} fills it")
    real = sorted((path for path in models.glob("*.onnx") if feeds_path(path).is_file()), key=size) if models else []
    names = QUICK_SYNTHETIC if quick else SYNTHETIC
    if quick:
        real = [path for path in real if size(path) <= QUICK_BYTES]
    if only:
        real = [path for path in real if path.stem in only]
        names = [name for name in [*SYNTHETIC, *ON_REQUEST] if name in only]
        unknown = only - {path.stem for path in real} - {*names, START_UP, INSPECT, SESSION}
        if unknown:
            raise SystemExit(f"no such model: {', '.join(sorted(unknown))}")
    return real, made_models(synthetic, names)


def made_models(synthetic: Path, names: list[str]) -> list[Path]:
    """The synthetic models of these names; makes those that are missing."""
    made = [synthetic / f"{name}.onnx" for name in names]
    missing = [path.stem for path in made if not path.is_file()]
    if missing:
        subprocess.run([sys.executable, str(HERE / "make_models.py"), str(synthetic), *missing], check=True, stdout=2)
    return made


def made_session(synthetic: Path, variables: int) -> Path:
    """The folder with the graphs of a session with so many variables; made when missing."""
    folder = synthetic / f"session-{variables}"
    if not (folder / "eval.json").is_file():  # the last one that is written
        words = [sys.executable, str(HERE / "make_sessions.py"), str(folder), str(variables)]
        subprocess.run(words, check=True, stdout=2)
    return folder


def size(path: Path) -> int:
    return path.stat().st_size


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_facts(threads: int, rounds: int) -> dict[str, str]:
    """What the figures depend on. A child asks numpy: this process stays small."""
    child = subprocess.run(
        [sys.executable, "-c", FACTS], env=environment(threads, HERE.parent), capture_output=True, text=True, check=True
    )
    cpu = next(
        (line.partition(":")[2].strip() for line in cpu_lines() if line.startswith("model name")), platform.processor()
    )
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": cpu,
        "cores": str(cores()),
        "system": platform.system(),
        "python": platform.python_version(),
        **json.loads(child.stdout),
        "load when started": f"{os.getloadavg()[0]:.1f}",
        "rounds": str(rounds),
        "threads": str(threads),
    }


def cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.is_file() else []


if __name__ == "__main__":
    sys.exit(main())
