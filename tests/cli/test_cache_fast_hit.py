"""The short way of a repeated compile: what it loads, what it prints, and when it must not be taken."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import gecli as package

Run = Callable[..., "subprocess.CompletedProcess[str]"]
REPOSITORY = Path(package.__file__).parent.parent
DIGITS = REPOSITORY / "samples/digits/digits.onnx"
TRAIN = REPOSITORY / "samples/train"

PROBE = """
import sys
from gecli.__main__ import main
status = main()
print(*sorted(sys.modules), file=sys.stderr)
sys.exit(status)
"""
ALLOWED = {
    "gecli", "gecli.__main__", "gecli.artifacts", "gecli.artifacts.publish", "gecli.artifacts.shared_files",
    "gecli.cache", "gecli.cache.command_memo", "gecli.cache.events", "gecli.cache.stat_index", "gecli.cli",
    "gecli.cli.fast_hit", "gecli.cli.stopping", "gecli.version", "gecli.wire", "gecli.wire.regular_file",
}  # fmt: skip
HEAVY = [
    "click", "dataclasses", "enum", "filelock", "google", "hashlib", "inspect", "json", "ml_dtypes", "networkx",
    "numpy", "pathlib", "re", "rich", "typing",
]  # fmt: skip


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A compile of a sample into tmp_path."""
    (tmp_path / "cache").mkdir()
    return ["compile", str(DIGITS), "--input-shape", "image:1,1,8,8", "-o", "out/x", "--cache-dir", "cache"]


def run(words: list[str], cwd: Path, **env: str) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """Run a command line; the modules it loaded."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "HOME": str(cwd), **env}
    result = subprocess.run(
        [sys.executable, "-c", PROBE, *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=60
    )
    text, _, modules = result.stderr.rstrip("\n").rpartition("\n")
    result.stderr = text
    return result, set(modules.split())


def is_short(modules: set[str]) -> bool:
    return "gecli.options" not in modules


def settle() -> None:
    time.sleep(2.1)  # the racy time of the stat index: inputs made by the test itself must be older than that


def test_a_repeated_compile_loads_next_to_nothing(words: list[str], tmp_path: Path) -> None:
    first, modules = run(words, tmp_path)
    assert (first.returncode, is_short(modules)) == (0, False)
    assert "cache=miss" in first.stdout
    (tmp_path / "out/x.om").rename(tmp_path / "first.om")
    second, modules = run(words, tmp_path)
    assert (second.returncode, second.stderr) == (0, "")
    assert {name for name in modules if name.partition(".")[0] == "gecli"} == ALLOWED
    assert [name for name in HEAVY if name in modules] == []
    assert (tmp_path / "out/x.om").read_bytes() == (tmp_path / "first.om").read_bytes()


def test_the_short_way_prints_what_the_long_way_prints(words: list[str], tmp_path: Path) -> None:
    for extra in ([], ["--json"], ["-q"]):
        run([*words, *extra], tmp_path)
        short, modules = run([*words, *extra], tmp_path)
        assert is_short(modules)
        for path in (tmp_path / "cache/.gecli/stat").glob("c-*"):
            path.unlink()
        long, modules = run([*words, *extra], tmp_path)
        assert not is_short(modules)
        if extra == ["--json"]:
            documents = [json.loads(each.stdout) for each in (short, long)]
            for document in documents:
                assert document["models"][0].pop("ms") > 0
            assert documents[0] == documents[1]
            texts = [each.stderr.splitlines()[1:] for each in (short, long)]  # the first line holds the time
            assert texts[0] == texts[1]
        else:
            assert (short.stdout, short.stderr) == (long.stdout, long.stderr)


def replaced(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)


CONFIG = '[compile]\nformat-policy="origin"'
CHANGES: list[tuple[str, Callable[[Path], object], str]] = [
    ("the output is edited", lambda cwd: (cwd / "out/x.om").write_bytes(b"x"), "hit"),
    ("the output is gone", lambda cwd: shutil.rmtree(cwd / "out"), "hit"),
    ("a stale rdcpkt appears", lambda cwd: (cwd / "out/x.rdcpkt").write_bytes(b"x"), "hit"),
    ("the entry is damaged", lambda cwd: next((cwd / "cache").glob("*.om")).write_bytes(b"x"), "miss"),
    ("the entry is gone", lambda cwd: next((cwd / "cache").glob("*.om")).unlink(), "miss"),
    ("the index is gone", lambda cwd: next((cwd / "cache").glob("*.idx")).unlink(), "hit"),
    (
        "a configuration file appears",
        lambda cwd: (cwd / "gecli.toml").write_text('[compile]\nformat-policy="origin"'),
        "miss",
    ),
    ("cache.conf appears", lambda cwd: (cwd / "cache/cache.conf").write_text('{"cache_debug_mode": true}'), "debug"),
    ("the memo is torn", lambda cwd: cut_memo(cwd), "hit"),
    ("the model is rewritten", lambda cwd: replaced(cwd / "m.onnx"), "hit"),
]


def cut_memo(cwd: Path) -> None:
    for path in (cwd / "cache/.gecli/stat").glob("c-*"):
        path.write_bytes(path.read_bytes()[:-3])


def test_any_change_leads_to_the_right_result(words: list[str], tmp_path: Path) -> None:
    shutil.copy(DIGITS, tmp_path / "m.onnx")
    settle()
    words[1] = "m.onnx"
    run(words, tmp_path)
    good = (tmp_path / "out/x.om").read_bytes()
    for what, change, state in CHANGES:
        run(words, tmp_path)  # leaves a memo again after the changes before
        change(tmp_path)
        result, _ = run(words, tmp_path)
        assert result.returncode == 0, what
        assert result.stdout.split("cache=")[1].split()[0] == state, what
        if "configuration" not in what:
            assert (tmp_path / "out/x.om").read_bytes() == good, what
        assert not (tmp_path / "out/x.rdcpkt").exists(), what
        for added in (tmp_path / "gecli.toml", tmp_path / "cache/cache.conf"):
            added.unlink(missing_ok=True)


@pytest.mark.parametrize("change", ["words", "environment", "data"])
def test_other_words_or_data_are_not_served_from_the_memo(change: str, words: list[str], tmp_path: Path) -> None:
    for name in ("conv_train.json", "w2.npy", "w3.npy"):
        shutil.copy(TRAIN / name, tmp_path)
    settle()
    words = ["compile", "conv_train.json", "-o", "out/x", "--cache-dir", "cache"]
    run(words, tmp_path)
    second, modules = run(words, tmp_path)
    assert is_short(modules) and "cache=hit" in second.stdout
    env: dict[str, str] = {}
    if change == "words":
        words = [*words, "--format-policy", "origin"]
    elif change == "environment":
        env = {"GECLI_CACHE_MODE": "off"}
    else:
        data = bytearray((tmp_path / "w2.npy").read_bytes())
        data[-1] ^= 1
        (tmp_path / "w2.npy").write_bytes(data)
    result, modules = run(words, tmp_path, **env)
    assert (result.returncode, is_short(modules)) == (0, False)
    assert "cache=hit" not in result.stdout


def test_the_short_way_keeps_an_output_in_place_with_a_new_time(words: list[str], tmp_path: Path) -> None:
    run(words, tmp_path)
    inode = (tmp_path / "out/x.om").stat().st_ino
    for _ in range(3):
        before = time.time()
        _, modules = run(words, tmp_path)
        assert is_short(modules)
        assert (tmp_path / "out/x.om").stat().st_ino == inode
        assert (tmp_path / "out/x.om").stat().st_mtime >= before - 0.01


def test_a_cache_hit_takes_at_most_six_times_an_empty_python(words: list[str], tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path)}
    env["PYTHONPYCACHEPREFIX"] = str(tmp_path / "bytecode")

    def fastest(*arguments: str) -> float:
        times = []
        for _ in range(7):
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, check=True)
            times.append(time.perf_counter() - start)
        return min(times)

    for _ in range(2):
        subprocess.run([sys.executable, "-m", "gecli", *words], cwd=tmp_path, env=env, check=True, capture_output=True)
    assert fastest("-m", "gecli", *words) <= 6 * fastest("-c", "pass")


HEAVY_LIBRARIES = ["click", "filelock", "google", "ml_dtypes", "networkx", "numpy", "rich"]


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_a_known_request_with_another_output_path_is_served_without_parsing_the_model(
    extra: list[str], words: list[str], tmp_path: Path
) -> None:
    run(words, tmp_path)
    words[words.index("out/x")] = "elsewhere/x"
    result, modules = run([*words, *extra], tmp_path)
    assert result.returncode == 0
    assert [name for name in HEAVY_LIBRARIES if name in modules] == []
    assert (tmp_path / "elsewhere/x.om").read_bytes() == (tmp_path / "out/x.om").read_bytes()
    if extra:
        assert json.loads(result.stdout)["models"][0]["cache"]["state"] == "hit"
    else:
        assert "cache=hit" in result.stdout


def test_another_model_name_is_not_served_by_the_request(words: list[str], tmp_path: Path) -> None:
    run(words, tmp_path)
    words[words.index("out/x")] = "out/y"
    result, _ = run(words, tmp_path)
    assert "cache=miss" in result.stdout
    assert (tmp_path / "out/y.om").read_bytes() != (tmp_path / "out/x.om").read_bytes()


STOPPED = """
import os, signal, sys
import gecli.artifacts.publish as publish
publish.copy_content = lambda source, target: os.kill(os.getpid(), signal.SIGTERM)
from gecli.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("output", ["out/x", "elsewhere/x"])
def test_a_terminated_short_way_leaves_no_temporary_file(output: str, words: list[str], tmp_path: Path) -> None:
    run(words, tmp_path)
    (tmp_path / "out/x.om").unlink()
    words[words.index("out/x")] = output
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path)}
    result = subprocess.run([sys.executable, "-c", STOPPED, *words], cwd=tmp_path, env=environment, timeout=60)
    assert result.returncode == 143
    assert [*tmp_path.glob("out/*"), *tmp_path.glob("out/.*"), *tmp_path.glob("elsewhere/*")] == []


EXCHANGED = """
import glob, os, sys
import gecli.artifacts.publish as publish
real = publish.open_accepted
def exchanged(source, accept):
    if not os.path.exists("kept"):  # once: collected and stored again under the same name, with another model
        os.rename(source, "kept")
        with open(source, "wb") as stream:
            stream.write(bytes(os.path.getsize("kept")))
    return real(source, accept)
publish.open_accepted = exchanged
from gecli.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("output", ["out/x", "elsewhere/x"])  # by the memo of the command, by the request
def test_an_entry_that_is_exchanged_before_it_is_opened_is_not_delivered(
    output: str, words: list[str], tmp_path: Path
) -> None:
    run(words, tmp_path)
    (tmp_path / "out/x.om").rename(tmp_path / "first.om")
    words[words.index("out/x")] = output
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path)}
    line = [sys.executable, "-c", EXCHANGED, *words]
    result = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (tmp_path / "kept").exists()
    assert result.returncode == 0, result.stderr
    assert (tmp_path / f"{output}.om").read_bytes() == (tmp_path / "first.om").read_bytes()
