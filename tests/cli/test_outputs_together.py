"""The files of one command appear together: whatever fails, the directory is as before, old outputs included."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.cli.bad_files import check_message, contents, gecli_in
from tests.conftest import REPOSITORY

SAMPLES = REPOSITORY / "samples"
SHAPE = "--input-shape image:4,1,8,8"

# The disk takes so many bytes below the working directory; then every way of writing fails as on a full one.
FULL = """
import os, sys
left = int(sys.argv.pop(1))
written = 0
def take(count):
    global written
    written += count
    if written > left:
        raise OSError(28, os.strerror(28))
def full(real):
    def call(handle, data, *rest):
        if handle > 2:
            take(len(data))
        return real(handle, data, *rest)
    return call
def opening(real):
    def call(*args, **more):
        stream = real(*args, **more)
        if stream.writable() and stream.fileno() > 2:
            inner = stream.write
            def write(data):
                take(len(data))
                return inner(data)
            stream.write = write
        return stream
    return call
import builtins, io
os.fdopen = opening(os.fdopen)
os.write = full(os.write)
if hasattr(os, "copy_file_range"):
    del os.copy_file_range
from gecli.__main__ import main
status = main()
print(f"written {written}", file=sys.stderr)
sys.exit(status)
"""

COMMANDS = {
    "report and depfile": f"compile m.onnx {SHAPE} -o o.om --report r --depfile d",
    "session": "compile conv_train.json --train -o o.om --session-in s --session-out s --report r --depfile d",
    "emit": f"compile m.onnx {SHAPE} -o o.om --emit json,readable,report,varmap --depfile d",
    "several": f"compile m.onnx conv_eval.json {SHAPE} -o out/ --report r",
    "several sessions": f"compile m.onnx conv_eval.json {SHAPE} -o out/ --no-session --report r",
    "combined": f"compile m.onnx {SHAPE} -o new/o.om --external-weight 2 --external-weight-dir shared --report r",
    "new combined": f"compile m.onnx {SHAPE} -o n.om --external-weight 2 --external-weight-dir new/w --report r",
    "hit": "compile conv_train.json --train -o hit/k.om --cache-dir cache --graph-key k --report r",
    "stop": f"compile m.onnx {SHAPE} -o o --stop-after parse --emit json,readable",
    "run": "run m.om --fill ones -o a/b --save-inputs i --export-times e --profile-out p.json --dump * --dump-dir t",
    "requests": "run m.om -i two.npz -o q --export-times e",
    "train": "run t.om --init zero --quiet --get-var w2=w.npy --save-vars v --export-times e",
    "extract": "inspect-om m.om --extract all --to x -o y",
    "document": "inspect-om m.om --json --full --data-file z -o y",
}
OLD = (
    "o.om", "o.rdcpkt", "o.txt", "r", "d", "hit/k.rdcpkt", "out/m.om", "x/manifest.json", "t/0000/index.csv", "v", "z",
    "q/0000/probabilities.npy",
)  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("good")
    shutil.copy(SAMPLES / "digits/digits.onnx", directory / "m.onnx")
    for name in ("conv_train.json", "conv_eval.json", "w2.npy", "w3.npy"):
        shutil.copy(SAMPLES / "train" / name, directory / name)
    two = np.zeros((2, 4, 1, 8, 8), np.float32)
    np.savez(directory / "two.npz", image=two)
    two[1] = np.nan
    np.savez(directory / "bad.npz", image=two)
    (directory / "cache").mkdir()
    lines = (
        f"compile m.onnx -o m.om {SHAPE}",
        "compile conv_train.json -o t.om --train",
        "compile conv_train.json -o k.om --train --cache-dir cache --graph-key k",
        "compile conv_eval.json -o e.om --session-out s",
        "compile conv_eval.json -o o.om --external-weight 2 --external-weight-dir shared",
    )
    for line in lines:
        done = gecli_in(directory, *line.split())
        assert done.returncode == 0, done.stderr
    for name in OLD:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("old")
    return directory


@pytest.fixture
def work(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "work"))


def outputs(directory: Path) -> dict[str, str]:
    """The cache may learn what it likes."""
    return {name: held for name, held in contents(directory).items() if not name.startswith("cache/")}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_disk_that_fills_up_at_any_file_of_a_command_changes_nothing(command: str, work: Path, good: Path) -> None:
    words, before = COMMANDS[command].split(), outputs(work)
    done = gecli_in(work, "1000000000", *words, program=("-c", FULL))
    assert done.returncode == 0, done.stderr
    written = int(done.stderr.rpartition("written ")[2])
    after = outputs(work)
    assert len([name for name in after if after[name] != before.get(name)]) > 1
    shutil.rmtree(work)
    shutil.copytree(good, work)
    for left in (written - 40, written // 2):  # documents hold times, whose length varies
        done = gecli_in(work, str(left), *words, program=("-c", FULL))
        assert "error[G6002]" in check_message(done, 5)
        assert outputs(work) == before, left
    assert gecli_in(work, *words).returncode == 0
    assert outputs(work).keys() == after.keys()


@pytest.mark.parametrize(
    "line",
    [
        f"compile m.onnx {SHAPE} -o o.om --report /dev/full",
        f"compile m.onnx {SHAPE} -o o.om --depfile /dev/full",
        f"compile m.onnx conv_eval.json {SHAPE} -o out/ --no-session -j 2 --depfile /dev/full",
        f"compile m.onnx none.json conv_eval.json {SHAPE} -o out/ --no-session -j 2 --keep-going --report /dev/full",
        "compile conv_train.json --train -o new/o.om --session-in s --session-out s --depfile /dev/full",
        f"compile m.onnx {SHAPE} -o o.om --external-weight 2 --external-weight-dir shared --report /dev/full",
        f"compile m.onnx conv_eval.json {SHAPE} -o out/ --external-weight 2 --external-weight-dir a/b "
        "--report /dev/full",
        f"compile m.onnx conv_eval.json {SHAPE} -o out/ --no-session -j 2 --external-weight 2 "
        "--external-weight-dir shared --report /dev/full",
        "run m.om --fill ones -o q --dump * --dump-dir t --save-vars /dev/full",
        "run m.om --fill ones -o q --export-times /dev/full",
        "run t.om --init zero --quiet --save-vars v --get-var w2=/dev/full",
        "inspect-om m.om --json --full --data-file z -o /dev/full",
    ],
)
def test_the_last_file_that_fails_takes_the_first_ones_back(line: str, work: Path) -> None:
    before = contents(work)
    assert "error[G6002]" in check_message(gecli_in(work, *line.split()), 5)
    assert contents(work) == before


def test_models_that_several_processes_compiled_appear_with_the_report(work: Path) -> None:
    words = f"compile m.onnx conv_eval.json {SHAPE} -o out/ --no-session".split()
    for number in ("1", "2"):
        assert gecli_in(work, *words, "-j", number, "--report", f"r{number}").returncode == 0
    for name in ("out/m.om", "out/conv_eval.om", "out/conv_eval.rdcpkt"):
        assert (work / name).read_bytes() != b"old"
    one, two = ((work / f"r{number}").read_text() for number in "12")
    assert one.count('"sha256"') == two.count('"sha256"') > 2
    assert not [path for path in work.rglob("*") if ".tmp" in path.name]


def test_a_model_that_fails_keeps_the_ones_before_it_back(work: Path) -> None:
    before = contents(work)
    done = gecli_in(work, "compile", "m.onnx", "none.json", *SHAPE.split(), "-o", "out/", "--no-session")
    assert done.returncode == 3
    assert contents(work) == before


def test_weights_that_went_to_a_shared_directory_are_taken_back_with_a_later_model(work: Path) -> None:
    before = contents(work)
    words = ["compile", "m.onnx", "none.json", *SHAPE.split(), "-o", "out/", "--no-session", "--external-weight", "2"]
    assert gecli_in(work, *words, "--external-weight-dir", "shared").returncode == 3
    assert contents(work) == before
    assert gecli_in(work, *words, "--external-weight-dir", "shared", "--keep-going").returncode == 3
    assert (work / "shared/m_weight_combined").stat().st_size > 0


def test_a_cache_that_is_required_and_full_leaves_the_outputs(work: Path) -> None:
    """Status 7 tells of the cache: the model is compiled."""
    shutil.copytree(work / "cache", work / "closed")
    words = ["compile", "m.onnx", *SHAPE.split(), "-o", "out/m.om", "--cache-dir", "closed", "--graph-key", "n"]
    program = FULL.replace("from gecli.__main__", "import gecli.cache.store\n"
                           "def no(*args, **more): raise OSError(28, 'full')\n"
                           "gecli.cache.store.publish = no\nfrom gecli.__main__")  # fmt: skip
    done = gecli_in(work, "1000000000", *words, "--require-cache", program=("-c", program))
    assert done.returncode == 7, done.stderr
    assert (work / "out/m.om").read_bytes() == (work / "m.om").read_bytes()


def test_a_run_that_fails_leaves_what_its_dump_saw_and_nothing_else(work: Path) -> None:
    words = ["run", "m.om", "-i", "bad.npz", "-o", "q", "--check-numerics", "--save-inputs", "i", "--export-times", "e"]
    before = contents(work)
    assert gecli_in(work, *words).returncode == 6
    assert contents(work) == before
    assert gecli_in(work, *words, "--dump", "*", "--dump-dir", "t").returncode == 6
    after = contents(work)
    assert {name: held for name, held in after.items() if name in before and name != "t/0000/index.csv"} == {
        name: held for name, held in before.items() if name != "t/0000/index.csv"
    }
    rows = {request: (work / f"t/{request}/index.csv").read_text().splitlines() for request in ("0000", "0001")}
    assert len(rows["0000"]) > len(rows["0001"]) > 1
    for request, lines in rows.items():
        assert all((work / "t" / request / line.rpartition(",")[2]).is_file() for line in lines[1:])


def test_a_bad_input_of_a_later_model_leaves_no_dump(work: Path) -> None:
    before = contents(work)
    words = ["run", "m.om", "t.om", "-i", "m:image=two.npz", "-i", "t:x=none.npy", "--dump", "*", "--dump-dir", "new"]
    assert gecli_in(work, *words).returncode in (2, 3)
    assert contents(work) == before


def test_a_short_way_through_the_cache_places_both_files_or_none(work: Path) -> None:
    words = ["compile", "conv_train.json", "--train", "-o", "hit/k.om", "--cache-dir", "cache", "--graph-key", "k"]
    for _ in range(3):
        assert gecli_in(work, *words).returncode == 0
    new = outputs(work)
    for name in ("hit/k.om", "hit/k.rdcpkt"):
        (work / name).write_text("old")
    before = outputs(work)
    done = gecli_in(work, "40000", *words, program=("-c", FULL))
    assert "error[G6002]" in check_message(done, 5)
    assert outputs(work) == before
    assert gecli_in(work, *words).returncode == 0
    assert outputs(work) == new


def test_the_old_variable_record_goes_with_the_model_that_had_it(work: Path) -> None:
    words = ["compile", "m.onnx", *SHAPE.split(), "-o", "o.om"]
    assert gecli_in(work, *words, "--report", "/dev/full").returncode == 5
    assert (work / "o.rdcpkt").read_text() == "old"
    assert gecli_in(work, *words).returncode == 0
    assert not (work / "o.rdcpkt").exists()


def test_dumps_of_passes_are_those_of_one_compile(work: Path) -> None:
    words = ["compile", "m.onnx", *SHAPE.split(), "-o", "n.om", "--dump-graph", "g"]
    program = FULL.replace("os.fdopen = ", "builtins.open = io.open = opening(io.open)\nos.fdopen = ")
    before = contents(work)
    assert "the dump g/" in check_message(gecli_in(work, "20000", *words, program=("-c", program)), 5)
    assert contents(work) == before


def test_a_comparison_that_cannot_be_made_leaves_no_outputs(work: Path) -> None:
    words = ["run", "m.om", "t.om", "--fill", "ones", "--init", "zero", "-o", "q", "--save-vars", "v"]
    before = contents(work)
    assert "--compare" in check_message(gecli_in(work, *words, "--compare", "m.onnx"), 2)
    assert contents(work) == before
