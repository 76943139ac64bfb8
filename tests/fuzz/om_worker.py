"""Runs the command on broken OM files, in this process, and writes what went wrong as JSON.

om_worker.py CORPUS SEED COUNT [FIRST]    # in a directory of its own
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from om_corpus import load_seeds
from om_mutations import Mutator

LIMIT_S = 2.0
ADDRESS_SPACE = 4 << 30  # beyond what any file here may lead to
BASE_BYTES = 24 << 20  # of growth: with the interpreter and numpy it stays below 64 MiB
CASE = "case.om"
VIEWS: tuple[tuple[str, ...], ...] = (
    ("--summary",), ("--json",), ("--atc-json",), ("--info",), ("--nodes",), ("--nodes", "--json"),
    ("--nodes", "--show", "attrs,weights,io,edges"), ("--nodes", "--show", "attrs,weights,io,edges", "--json"),
    ("--tensors",), ("--tensors", "--stats"), ("--tensors", "--stats", "--json"), ("--vars", "--map"),
    ("--vars", "--json"), ("--io",), ("--io", "--json"), ("--options",), ("--options", "--json"), ("--partitions",),
    ("--partitions", "--json"), ("--tasks",), ("--tasks", "--json"), ("--kernels",), ("--kernels", "--json"),
    ("--hex", "header"), ("--hex", "table"), ("--hex", "file"), ("--hex", "file:0:100"), ("--oneline",),
    ("--strict",), ("--strict", "--json"), ("--nodes", "--strict"), ("--salvage",), ("--salvage", "--json"),
    ("--extract", "all", "--to", "out"), ("--extract", "all", "--to", "out", "--origin-format"),
    ("--embed-data", "--json"), ("--summary", "--json"), ("--partitions", "--no-hash"),
)  # fmt: skip
# A run that is planned and bound, and one that executes.
RUNS: tuple[tuple[str, ...], ...] = (("--plan",), ("--plan",), ("--plan", "--json"), (), ("--init", "zero", "--json"))


class Hang(BaseException):
    """A case took too long; no `except Exception` stops it."""


def words_for(rng: random.Random, what: str) -> list[str]:
    """The command for a case: every view in its turn, and runs of files that can be run."""
    own = "ascend" not in what and "hiai" not in what and "encrypted" not in what
    if rng.random() < (0.3 if own else 0.05):
        return ["run", CASE, *rng.choice(RUNS)]
    view = list(rng.choice(VIEWS))
    if rng.random() < 0.05:
        view.append("--salvage")
    return ["inspect-om", CASE, *dict.fromkeys(view)]


def run_case(data: bytes, words: list[str]) -> tuple[str, int]:
    """What is wrong with how the command treats the file (empty: nothing), and its exit status."""
    from gecli.cli.app import run

    Path(CASE).write_bytes(data)
    out, err = io.StringIO(), io.StringIO()
    before = reset_peak()
    status = -1
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run(words)
    except Hang:
        return f"more than {LIMIT_S} s", status
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    grown = peak() - before
    return judged(words, status, out.getvalue(), err.getvalue(), grown, len(data)), status


def judged(words: list[str], status: int, out: str, err: str, grown: int, size: int) -> str:
    if "--hex" in words and status == 2 and "has no part" in err:
        return ""  # what is asked for is not in a file of this kind
    if words[0] == "run" and status == 2 and "error[E10054]" in err:
        return ""  # an input whose shape the file leaves open
    if status not in allowed(words):
        return f"exit {status}: {err[-3000:]}"
    if "Traceback" in err or "Traceback" in out:
        return f"traceback: {err[-3000:]}"
    if (status != 0) != ("error[" in err) and "--oneline" not in words:
        return f"exit {status} and the errors disagree: {err[-500:]}"
    if grown > 2 * size + BASE_BYTES:
        return f"{grown >> 20} MiB for a file of {size} bytes"
    if "--json" in words and out:
        try:
            json.loads(out)
        except ValueError as error:
            return f"no JSON: {error}"
    return ""


def allowed(words: list[str]) -> tuple[int, ...]:
    """The exit statuses for a file that may be broken: a run may also fail while it executes."""
    return (0, 3) if words[0] == "inspect-om" else (0, 3, 6)


def reset_peak() -> int:
    """Resident bytes now; the peak counts from here where the system can."""
    try:
        with open("/proc/self/clear_refs", "w") as stream:
            stream.write("5")
    except OSError:
        pass
    return memory("VmRSS")


def peak() -> int:
    return memory("VmHWM")


def memory(name: str) -> int:
    try:
        with open("/proc/self/status", "rb") as stream:
            for line in stream:
                if line.startswith(name.encode()):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main(corpus: str, seed: str, count: int, first: int = 0) -> dict[str, Any]:
    mutator = Mutator(load_seeds(Path(corpus)))
    os.environ.update(GECLI_DEBUG="1", TMPDIR=os.getcwd())
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    signal.signal(signal.SIGPROF, _hang)
    warm_up(mutator)
    statuses: Counter[str] = Counter()
    failures: list[dict[str, Any]] = []
    slowest = (0.0, -1)
    for number in range(first, first + count):
        what, data, rng = mutator.case(f"{seed}:{number}")
        words = words_for(rng, what)
        start = time.process_time()
        fault, status = run_case(data, words)
        slowest = max(slowest, (time.process_time() - start, number))
        statuses[f"{words[0]} {status}"] += 1
        if fault:
            failures.append({"case": f"{seed}:{number}", "what": what, "words": words, "fault": fault})
    return {"count": count, "statuses": dict(statuses), "slowest": slowest, "failures": failures}


def warm_up(mutator: Mutator) -> None:
    """Every module is imported by sound files, so that no case pays for it."""
    sound = next(seed for seed in mutator.seeds if seed.name == "half.om")
    for words in (*(["inspect-om", CASE, *view] for view in VIEWS), *(["run", CASE, *each] for each in RUNS)):
        fault, status = run_case(sound.data, words)
        assert status == 0 and (not fault or "MiB" in fault), fault


def _hang(number: int, frame: FrameType | None) -> None:
    raise Hang


if __name__ == "__main__":
    json.dump(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])), sys.stdout)
