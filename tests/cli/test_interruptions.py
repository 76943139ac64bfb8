"""Commands that are stopped at any moment: the status of the signal, nothing half written, and the next one works."""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DIGITS = REPOSITORY / "samples/digits/digits.onnx"
TRAIN = REPOSITORY / "samples/train/conv_train.json"
PLAIN = ["compile", str(TRAIN), "-o", "train", "--train"]
COMPILE = ["compile", str(DIGITS), "-o", "digits", "--cache-dir", "cache", "--graph-key", "k"]
COLLECT = ["cache", "gc", "--cache-dir", "cache", "--all", "--yes"]
TRAINING = ["run", "train.om", "--init", "zero", "--save-vars", "vars.npz", "-o", "out"]
COMMANDS = {"compile": PLAIN, "cache-store": COMPILE, "gc": COLLECT, "save-vars": TRAINING}
SWEEP = ["cache", "gc", "--cache-dir", "cache", "--grace", "0s", "--yes"]
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}


def signals_as_a_terminal_has_them() -> None:
    """In the child: a test that runs in the background has SIGINT ignored."""
    for number in STATUS:
        signal.signal(number, signal.SIG_DFL)


def start(words: list[str], directory: Path, *program: str, **more: object) -> subprocess.Popen[str]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "HOME": str(directory)}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "preexec_fn": signals_as_a_terminal_has_them}
    line = [sys.executable, *(program or ("-m", "gecli")), *words]
    return subprocess.Popen(line, cwd=directory, env=environment, text=True, **{**streams, **more})  # type: ignore[call-overload]  # keywords by name


def finish(words: list[str], directory: Path) -> str:
    process = start(words, directory)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The complete outputs of every command; in `old` those of earlier commands with other options."""
    directory = tmp_path_factory.mktemp("prepared")
    (directory / "cache").mkdir()
    (directory / "old").mkdir()
    for words in (COMPILE, PLAIN, TRAINING):
        finish(words, directory)
    finish([*PLAIN, "--format-policy", "origin"], directory / "old")
    finish([*TRAINING, "--init", "random", "--seed", "1"], directory / "old")
    return directory


# Says on stdout when gecli answers signals itself; before, Python or the system does.
BEGUN = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "gecli.cli.app":
            print("begun", flush=True)
sys.meta_path.insert(0, Finder())
from gecli.__main__ import main
sys.exit(main())
"""


def begun(words: list[str], directory: Path) -> subprocess.Popen[str]:
    process = start(words, directory, "-c", BEGUN)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def temporaries(directory: Path) -> list[str]:
    """Temporary files and the records of running compiles."""
    found = [*directory.rglob("*.tmp*"), *directory.rglob("inflight/*")]
    return sorted(str(path.relative_to(directory)) for path in found if path.is_file())


OUTPUTS = {"compile": ("train.om", "train.rdcpkt", "digits.om"), "cache": ("digits.om",), "run": ("vars.npz",)}


def fill(directory: Path, prepared: Path, words: list[str]) -> dict[str, bytes]:
    """Make what the command needs, and old outputs that it replaces; the content of those."""
    directory.mkdir(parents=True)
    if words is COLLECT:
        shutil.copytree(prepared / "cache", directory / "cache")
    else:
        (directory / "cache").mkdir()
    models = prepared / "old" if words is PLAIN else prepared
    for source in (models / "train.om", models / "train.rdcpkt", prepared / "old/vars.npz"):
        shutil.copy(source, directory)
    return {name: (directory / name).read_bytes() for name in OUTPUTS[words[0]] if (directory / name).exists()}


def check_that_nothing_is_lost(words: list[str], old: dict[str, bytes], prepared: Path, directory: Path) -> None:
    """Outputs are the old or the new ones, the cache can be read, the command works, gc leaves nothing half written."""
    complete = {name: (prepared / name).read_bytes() for name in OUTPUTS[words[0]]}
    for name, new in complete.items():
        if name in old or (directory / name).exists():
            assert (directory / name).read_bytes() in (new, old.get(name)), name
    if words is COMPILE or words is COLLECT:
        listed = json.loads(finish(["cache", "ls", "--cache-dir", "cache", "--json"], directory))
        assert {entry["state"] for entry in listed["entries"]} <= {"ok", "orphan"}  # orphan: complete, adopted next
    finish(words, directory)
    if words is COMPILE or words is COLLECT:
        finish(SWEEP, directory)
    if words is COLLECT:
        finish(COMPILE, directory)
    assert temporaries(directory) == []
    for name, new in complete.items():
        assert not (directory / name).exists() or (directory / name).read_bytes() == new


def check_words(err: str, number: signal.Signals) -> None:
    """No traceback out of `main`; before it, Python itself may show one for SIGINT."""
    assert re.search(r'__main__\.py", line \d+, in (main|_)', err) is None, err
    assert number is signal.SIGINT or "Exception ignored" not in err, err


def longest_run_s(words: list[str], prepared: Path, directory: Path) -> float:
    """How long the command takes here and now, from the start of the interpreter."""
    times = []
    for turn in range(3):
        fill(directory / str(turn), prepared, words)
        begin = time.monotonic()
        finish(words, directory / str(turn))
        times.append(time.monotonic() - begin)
    return max(times)


def stop_at_random(words: list[str], number: signal.Signals, count: int, prepared: Path, directory: Path) -> None:
    chance = random.Random(11)
    longest_s = longest_run_s(words, prepared, directory / "measured")
    seen: Counter[int] = Counter()
    for turn in range(count):
        place = directory / str(turn)
        old = fill(place, prepared, words)
        process = start(words, place)
        time.sleep(chance.random() * longest_s)
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
        # SIGINT while Python itself loads site or runpy ends with a status of Python's own.
        is_starting = process.returncode == 1 and err.rstrip().endswith("KeyboardInterrupt")
        seen[-number if is_starting else process.returncode] += 1
        if number is not signal.SIGKILL:
            check_words(err, number)
            assert temporaries(place) == []
        check_that_nothing_is_lost(words, old, prepared, place)
    # 0: it came when all was done; -number: when nothing was begun yet, or nothing was left to do.
    assert set(seen) <= {STATUS.get(number), 0, -number}, seen
    assert seen[-number] + seen[STATUS.get(number, 0)] > 0, seen


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_two_hundred_kills_at_random_moments_lose_nothing(command: str, prepared: Path, tmp_path: Path) -> None:
    stop_at_random(COMMANDS[command], signal.SIGKILL, 200, prepared, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", STATUS)
@pytest.mark.parametrize("command", COMMANDS)
def test_stops_at_random_moments_leave_nothing(
    command: str, number: signal.Signals, prepared: Path, tmp_path: Path
) -> None:
    stop_at_random(COMMANDS[command], number, 25, prepared, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_compile_with_its_status_and_leaves_nothing(
    number: signal.Signals, prepared: Path, tmp_path: Path
) -> None:
    old = fill(tmp_path / "work", prepared, COMPILE)
    process = begun(COMPILE, tmp_path / "work")
    time.sleep(0.2)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode in (STATUS[number], 0, -number)  # 0 and -number: it came when all was done
    check_words(err, number)
    assert temporaries(tmp_path) == []
    check_that_nothing_is_lost(COMPILE, old, prepared, tmp_path / "work")


# Sends itself signals when a module is loaded: `when` is its name, `numbers` the signals.
AT_IMPORT = """
import os, signal, sys
when, numbers = sys.argv[1], [int(word) for word in sys.argv[2].split()]
del sys.argv[1:3]
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == when and numbers:
            signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
            while numbers:
                os.kill(os.getpid(), numbers.pop())
            signal.pthread_sigmask(signal.SIG_UNBLOCK, range(1, 16))
sys.meta_path.insert(0, Finder())
from gecli.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("number", STATUS)
@pytest.mark.parametrize("when", ["gecli.cli.app", "numpy", "filelock"])
def test_a_signal_while_modules_are_loaded_ends_with_its_status(
    when: str, number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "cache").mkdir()
    process = start([when, str(int(number)), *COMPILE], tmp_path, "-c", AT_IMPORT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (STATUS[number], "", f"gecli: {WORDS[number]}\n")
    assert temporaries(tmp_path) == []
    assert not (tmp_path / "digits.om").exists()


@pytest.mark.parametrize("when", ["gecli.cli.app", "filelock"])
def test_two_signals_at_once_stop_once(when: str, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    process = start([when, f"{int(signal.SIGINT)} {int(signal.SIGTERM)}", *COMPILE], tmp_path, "-c", AT_IMPORT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) in [(STATUS[number], f"gecli: {WORDS[number]}\n") for number in WORDS]
    assert temporaries(tmp_path) == []


def test_a_hang_up_that_the_caller_ignores_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    words = ["gecli.cli.app", str(int(signal.SIGHUP)), *COMPILE]
    process = start(
        words, tmp_path, "-c", f"import signal\nsignal.signal({signal.SIGHUP}, signal.SIG_IGN)\n{AT_IMPORT}"
    )
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("seed", range(2))
def test_a_storm_of_signals_leaves_nothing(seed: int, prepared: Path, tmp_path: Path) -> None:
    chance = random.Random(seed)
    fill(tmp_path / "work", prepared, COMPILE)
    process = begun(COMPILE, tmp_path / "work")
    time.sleep(chance.random() * 0.3)
    numbers = (signal.SIGINT, signal.SIGTERM)
    while process.poll() is None:
        process.send_signal(chance.choice(numbers))
        time.sleep(0.0005)
    assert process.returncode in (0, *(STATUS[number] for number in numbers), *(-number for number in numbers))
    _, err = process.communicate()
    assert [word for word in ("Traceback", "ignored") if word in err] == []
    assert temporaries(tmp_path) == []


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """A directory in whose cache the lock of the key is held."""
    (tmp_path / "cache").mkdir()
    with open(tmp_path / "cache/k.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield tmp_path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_for_a_lock(number: signal.Signals, locked: Path) -> None:
    process = start([*COMPILE, "--lock-timeout", "inf"], locked)
    assert process.stderr is not None
    said = process.stderr.readline()  # after a second of waiting
    assert said.startswith("waiting "), said
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == STATUS[number]
    lines = [line for line in err.splitlines() if not line.startswith("waiting ")]
    assert lines == [f"gecli: {WORDS[number]}"]
    assert temporaries(locked) == []


HASHING = """
import os, signal, sys, threading, time
import gecli.cache.fingerprint as fingerprint
number = int(sys.argv.pop(1))
begun = threading.Event()
def sha256(weight):
    if threading.current_thread() is threading.main_thread():
        begun.wait()
        os.kill(os.getpid(), number)
    begun.set()
    time.sleep(100)
fingerprint.PARALLEL_BYTES = 0
fingerprint.Weight.sha256 = sha256
from gecli.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_does_not_wait_for_threads_that_hash_weights(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    process = start([str(int(number)), *COMPILE], tmp_path, "-c", HASHING)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (STATUS[number], f"gecli: {WORDS[number]}\n")


KILLED_WITH_LOCK = """
import os, signal, sys
import gecli.compiler.cached_compile as cached_compile
def killed(self, work):
    assert os.listdir("cache/.gecli/inflight")
    os.kill(os.getpid(), signal.SIGKILL)
cached_compile.CachedCompiler._compile = killed
from gecli.__main__ import main
sys.exit(main())
"""


def test_the_lock_of_a_killed_process_blocks_nobody(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    process = start(COMPILE, tmp_path, "-c", KILLED_WITH_LOCK)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, err
    assert len(temporaries(tmp_path)) == 1
    finish([*COMPILE, "--lock-timeout", "0", "--require-cache"], tmp_path)
    finish(SWEEP, tmp_path)
    assert temporaries(tmp_path) == []


@pytest.mark.parametrize(
    "words",
    [
        COMPILE,
        [*COMPILE, "--json"],
        [*COMPILE[:3], "-", *COMPILE[4:]],
        ["cache", "ls", "--cache-dir", "cache", "--json"],
        ["inspect-om", "train.om"],
        TRAINING,
        ["--help"],
        ["--version"],
    ],
    ids=["compile", "compile-json", "compile-stdout", "cache-ls", "inspect-om", "run", "help", "version"],
)
def test_a_reader_that_goes_is_no_fault(words: list[str], prepared: Path, tmp_path: Path) -> None:
    fill(tmp_path / "work", prepared, COMPILE)
    reading, writing = os.pipe()
    os.close(reading)
    process = start(words, tmp_path / "work", stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 141, err
    assert [word for word in ("Traceback", "error", "ignored") if word in err] == []
    assert temporaries(tmp_path) == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stop_inside_a_callback_that_swallows_exceptions_still_stops(number: int, status: int) -> None:
    code = f"""
import os, sys, time, weakref
from gecli.cli import app
class Thing: pass
def swallowed(ref):
    os.kill(os.getpid(), {number})
    time.sleep(0.1)
def work(argv):
    thing = Thing()
    ref = weakref.ref(thing, swallowed)
    del thing
    time.sleep(20)
    return 0
app._run = work
sys.exit(app.run([]))
"""
    process = start([], REPOSITORY, "-c", code)
    _, err = process.communicate(timeout=15)
    assert (process.returncode, "Traceback" in err) == (status, False), err


@pytest.mark.parametrize("where", ["gecli.cli.app._answer", "gecli.__main__._answered"])  # inside and outside of run()
def test_a_stop_that_was_wrapped_in_another_exception_still_stops(where: str) -> None:
    module, _, name = where.rpartition(".")
    code = f"""
import os, signal, sys
import {module} as changed
import gecli.__main__
class Field:
    def __set_name__(self, owner, name):  # what this raises, Python wraps in a RuntimeError
        os.kill(os.getpid(), signal.SIGTERM)
def work(*words, **more):
    type("Made", (), dict(x=Field()))
changed.{name} = work
sys.exit(gecli.__main__.main())
"""
    process = start([], REPOSITORY, "-c", code)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (143, "gecli: terminated\n")


def test_a_stop_that_the_short_way_took_for_a_fault_still_stops(tmp_path: Path) -> None:
    code = """
import os, signal, sys
import gecli.cli.fast_hit as fast_hit
import gecli.__main__
def swallowed(argv):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except BaseException:
        return None
fast_hit.try_fast_hit = swallowed
sys.exit(gecli.__main__.main())
"""
    process = start(COMPILE, tmp_path, "-c", code)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (143, "gecli: terminated\n")
