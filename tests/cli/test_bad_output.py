"""Outputs that cannot be written: one message of four parts, status 5, nothing left, and nothing that waits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gecli.artifacts.publish import publish_bytes
from tests.cli.bad_files import as_ordinary_user, check_document, check_message, contents, gecli_in, with_largest_file
from tests.conftest import REPOSITORY

SAMPLES = REPOSITORY / "samples"
STATIC = "--input-shape image:4,1,8,8"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("good")
    shutil.copy(SAMPLES / "digits/digits.onnx", directory / "m.onnx")
    for name in ("conv_train.json", "w2.npy", "w3.npy"):
        shutil.copy(SAMPLES / "train" / name, directory / name)
    for line in (f"compile m.onnx -o m.om {STATIC}", "compile conv_train.json -o t.om --train"):
        done = gecli_in(directory, *line.split())
        assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture
def work(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "work"))


# What writes a file or a directory `@`.
WRITERS: dict[str, str] = {
    "om": f"compile m.onnx {STATIC} -o @.om",
    "rdcpkt": "compile conv_train.json --train -o @",
    "several": "compile m.onnx conv_train.json -o @/",
    "report": f"compile m.onnx {STATIC} -o o.om --report @",
    "depfile": f"compile m.onnx {STATIC} -o o.om --depfile @",
    "session-out": "compile conv_train.json --train -o o.om --session-out @",
    "dump-graph": f"compile m.onnx {STATIC} -o o.om --dump-graph @",
    "check-report": "compile m.onnx --check --check-report @",
    "log-file": f"compile m.onnx {STATIC} -o o.om --log-file @",
    "outputs": "run m.om --fill ones -o @",
    "npz": "run m.om --fill ones -o @.npz",
    "save-vars": "run t.om --init zero --quiet --save-vars @",
    "get-var": "run t.om --init zero --quiet --get-var w2=@",
    "export-times": "run m.om --fill ones --export-times @",
    "profile-out": "run m.om --fill ones --profile-out @.json",
    "save-inputs": "run m.om --fill ones --save-inputs @",
    "dump": "run m.om --fill ones --dump * --dump-dir @",
    "inspect": "inspect-om m.om -o @",
    "extract": "inspect-om m.om --extract all --to @",
}
IN_DIRECTORY = ("several", "dump-graph", "outputs", "dump", "extract")


def line_of(writer: str, name: str) -> list[str]:
    return [word.replace("@", name) for word in WRITERS[writer].split()]


def refused(work: Path, words: list[str], prepare: Callable[[], None] = as_ordinary_user, **environ: str) -> str:
    before = contents(work)
    text = check_message(gecli_in(work, *words, prepare=prepare, **environ), 5)
    assert contents(work) == before
    return text


@pytest.mark.parametrize("place", ["read-only", "below a file", "pipe"])
@pytest.mark.parametrize("writer", WRITERS)
def test_a_place_that_takes_no_file_is_refused_before_the_work(writer: str, place: str, work: Path) -> None:
    name = {"read-only": "closed/x", "below a file": "m.onnx/x", "pipe": "x"}[place]
    (work / "closed").mkdir()
    (work / "closed").chmod(0o555)
    if place == "pipe":
        ending = {"om": ".om", "npz": ".npz", "profile-out": ".json", "rdcpkt": ".rdcpkt"}.get(writer, "")
        os.mkfifo(work / f"x{ending}")
    text = refused(work, line_of(writer, name))
    assert place != "pipe" or writer in IN_DIRECTORY or "nobody reads this pipe" in text


def test_all_places_that_cannot_be_written_are_in_one_message(work: Path) -> None:
    words = ["compile", "m.onnx", "-o", "m.onnx/o.om", "--report", "m.onnx/r", "--depfile", "m.onnx/d"]
    text = refused(work, words)
    assert all(part in text for part in ("4 outputs", "--output m.onnx/o.om", "--report m.onnx/r", "m.onnx/d"))
    check_document(gecli_in(work, *words, "--json"), 5, text)


@pytest.mark.parametrize("writer", [name for name in WRITERS if name != "log-file"])
def test_a_full_disk_leaves_nothing_behind(writer: str, work: Path) -> None:
    """A log file stays as far as it came: it is for failures."""
    text = refused(work, line_of(writer, "x"), with_largest_file(100))
    assert "error[G6002]" in text or writer == "dump-graph"


@pytest.mark.parametrize("size", [3000, 40_000])
def test_a_cache_on_a_full_disk_does_not_stop_a_compile(size: int, work: Path) -> None:
    """The cache is no output: what cannot be stored is a warning; what fits nowhere is an error."""
    (work / "cache").mkdir()
    words = ["compile", "m.onnx", *STATIC.split(), "-o", "new/m.om", "--cache-dir", "cache", "--graph-key", "k"]
    check_message(gecli_in(work, *words, prepare=with_largest_file(size)), 5)
    assert not (work / "new").exists()
    assert not [path for path in work.rglob("*") if ".tmp" in path.name]
    done = gecli_in(work, *words)
    assert done.returncode == 0, done.stderr
    assert (work / "new/m.om").read_bytes() == (work / "m.om").read_bytes()


# As RLIMIT_FSIZE and no mount works everywhere, the write calls themselves say that the disk is full.
FULL = """
import os, sys
limit = int(sys.argv.pop(1))
def full(real):
    def call(handle, data, *rest):
        global limit
        if handle > 2:
            limit -= len(data)
            if limit < 0:
                raise OSError(28, os.strerror(28))
        return real(handle, data, *rest)
    return call
real_fdopen = os.fdopen
def fdopen(*args, **more):
    stream = real_fdopen(*args, **more)
    if "w" in stream.mode or "+" in stream.mode:
        inner = stream.write
        def write(data):
            global limit
            limit -= len(data)
            if limit < 0:
                raise OSError(28, os.strerror(28))
            return inner(data)
        stream.write = write
    return stream
os.fdopen = fdopen
os.write = full(os.write)
from gecli.__main__ import main
sys.exit(main())
"""


def test_a_small_file_system_that_fills_up(work: Path, tmp_path: Path) -> None:
    """On a tmpfs of 32 KiB where the system lets us mount one, else with writes that fail as there."""
    mount = 'mkdir -p small && mount -t tmpfs -o size=32k none small && exec "$@"'
    script = 'gecli() { "$0" -m gecli "$@"; }; gecli compile m.onnx --input-shape image:4,1,8,8 -o small/o.om; '
    script += "echo status $?; ls -A small"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path)}
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", mount, "sh", "bash", "-c", script, sys.executable],
        cwd=work, env=environment, capture_output=True, text=True, timeout=60,
    ) if shutil.which("unshare") else None  # fmt: skip
    if done is not None and "status" in done.stdout:
        assert done.stdout == "status 5\n"
        done.returncode = 5
    else:
        words = ("20000", "compile", "m.onnx", "--input-shape", "image:4,1,8,8", "-o", "new/o.om")
        before = contents(work)
        done = gecli_in(work, *words, program=("-c", FULL))
        assert contents(work) == before
    assert "error[G6002]" in check_message(done, 5)


@pytest.mark.parametrize("limit", [0, 500, 5000, 49_000, 63_000])
def test_a_disk_that_fills_up_at_any_write_leaves_no_output(limit: int, work: Path) -> None:
    before = contents(work)
    words = (str(limit), "compile", "conv_train.json", "--train", "-o", "new/o.om", "--report", "new/r")
    done = gecli_in(work, *words, program=("-c", FULL))
    check_message(done, 5)
    assert contents(work) == before


def test_a_pipe_with_a_reader_gets_the_output(work: Path) -> None:
    os.mkfifo(work / "x.npz")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append((work / "x.npz").read_bytes()))
    reader.start()
    done = gecli_in(work, "run", "m.om", "--fill", "ones", "-o", "x.npz")
    reader.join(20)
    assert done.returncode == 0, done.stderr
    assert got[0].startswith(b"PK")


# ---------------------------------------------------------------- what killed writers left


def test_the_next_writer_removes_what_killed_ones_left(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    old, gone, other, alive = (
        tmp_path / f".o.om.tmp-{dead.pid}",
        tmp_path / f".o.om.tmp-{dead.pid}-0123abcd",
        tmp_path / f".p.om.tmp-{dead.pid}",
        tmp_path / f".o.om.tmp-{os.getppid()}",
    )
    for path in (old, gone, other, alive):
        path.write_bytes(b"half")
    publish_bytes(tmp_path / "o.om", b"whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["o.om", other.name, alive.name])


def test_a_file_whose_writer_still_holds_it_stays(tmp_path: Path) -> None:
    """As of a container with process numbers of its own, where the writer's number looks dead here."""
    import fcntl

    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    held = tmp_path / f".o.om.tmp-{dead.pid}"
    with held.open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        publish_bytes(tmp_path / "o.om", b"whole")
        assert held.exists()
    publish_bytes(tmp_path / "o.om", b"whole")
    assert not held.exists()


@pytest.mark.parametrize(
    "name", ["o.om.tmp-x", ".o.om.tmp-", ".o.om.tmp-12x", ".o.om.tmp--1", ".o.om.tmp-\u0663", ".o.om.tmp-999999999-x"]
)
def test_other_names_are_no_temporary_files(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"mine")
    publish_bytes(tmp_path / "o.om", b"whole")
    assert (tmp_path / name).exists()


def test_a_killed_compile_is_cleaned_up_by_the_next_one(work: Path) -> None:
    kill = FULL.replace("raise OSError(28, os.strerror(28))", "os.kill(os.getpid(), 9)")
    words = ("compile", "m.onnx", *STATIC.split(), "-o", "new/m.om")
    assert gecli_in(work, "20000", *words, program=("-c", kill)).returncode == -9
    assert list(work.glob("new/.m.om.tmp-*"))
    assert gecli_in(work, *words).returncode == 0
    assert [path.name for path in (work / "new").iterdir()] == ["m.om"]
    assert (work / "new/m.om").read_bytes() == (work / "m.om").read_bytes()


@pytest.mark.parametrize("how", ["split", "combined"])
@pytest.mark.parametrize("option", ["--save-inputs", "--export-times", "--log-file"])
def test_no_output_of_a_run_overwrites_the_weights_beside_the_model(how: str, option: str, work: Path) -> None:
    done = gecli_in(work, "compile", "m.onnx", *STATIC.split(), "-o", "w.om", "--external-weight", how)
    assert done.returncode == 0, done.stderr
    weights = [path.name for path in sorted((work / "weight").iterdir())]
    (work / "link").symlink_to(f"weight/{weights[0]}")
    before = contents(work)
    for name in (f"weight/{weights[-1]}", "link"):
        text = check_message(gecli_in(work, "run", "w.om", "--fill", "ones", option, name), 2)
        assert "error[E10047]" in text
    assert contents(work) == before
    assert gecli_in(work, "run", "w.om", "--fill", "ones", option, "weight/other").returncode == 0


def test_a_machine_without_a_place_for_temporary_files_is_said_so(work: Path) -> None:
    words = ("compile", "--jit", "m.onnx", *STATIC.split(), "--cache-dir", "new", "--cache-create")
    text = check_message(gecli_in(work, *words, prepare=with_largest_file(0)), 5)
    assert "error[G6001]" in text
    assert "TMPDIR" in text


def test_no_lock_is_left_beside_a_session(work: Path) -> None:
    for words in (("--session-out", "s"), ("--session-in", "s", "--session-out", "s2")):
        done = gecli_in(work, "compile", "conv_train.json", "--train", "-o", "o.om", *words)
        assert done.returncode == 0, done.stderr
    assert not list(work.glob("*.lock"))
