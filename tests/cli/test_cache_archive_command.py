"""`gecli cache export`, `import`, `confirm` and `path` as processes."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.bad_files import as_ordinary_user, check_message, gecli_in
from tests.conftest import REPOSITORY

Run = Callable[..., "subprocess.CompletedProcess[str]"]
TRAIN = str(REPOSITORY / "samples/train/conv_train.json")
COMPILE = ("compile", TRAIN, "-o", "t", "--train", "--graph-key", "k", "--cache-dir")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from gecli.compiler.api import compile_models
    from gecli.options.resolution import resolve

    directory = tmp_path_factory.mktemp("filled")
    (directory / "cache").mkdir()
    for key in ("k", "other"):
        options = {"output": (f"{directory}/t",), "ge.graph_compiler_cache_dir": (f"{directory}/cache",)}
        options |= {"ge.graphRunMode": ("1",), "ge.graph_key": (key,)}
        compile_models([TRAIN], resolve("compile", options))
    return directory / "cache"


@pytest.fixture
def cache(filled: Path, tmp_path: Path) -> Path:
    shutil.copytree(filled, tmp_path / "cache")
    (tmp_path / "new").mkdir()
    return tmp_path / "cache"


def test_an_entry_goes_to_another_directory_and_is_hit_there(gecli: Run, cache: Path) -> None:
    done = gecli("cache", "export", "k", "--cache-dir", "cache", "-o", "k.tar")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("exported 1 entry to k.tar, ")
    stem = next(cache.glob("k_*.om")).stem
    done = gecli("cache", "import", "k.tar", "--cache-dir", "new")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"imported  {stem}", "imported 1 entry, 0 present already"]
    shutil.rmtree(cache)
    assert f"cache=hit reason=- key=k entry={stem}" in gecli(*COMPILE, "new").stdout
    assert gecli("cache", "verify", "--cache-dir", "new").returncode == 0


def test_an_export_clears_what_killed_exports_left(gecli: Run, cache: Path, tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = [tmp_path / f".{name}.tar.tmp-{dead.pid}-01234567" for name in ("kk", "other")]
    kept = [tmp_path / f".x.tar.tmp-{os.getppid()}-01234567", tmp_path / f".x.om.tmp-{dead.pid}-01234567"]
    for path in (*left, *kept):
        path.touch()
    assert gecli("cache", "export", "k", "--cache-dir", "cache", "-o", "new.tar").returncode == 0
    assert [path.exists() for path in (*left, *kept)] == [False, False, True, True]


def test_verify_asks_the_model_what_it_was_compiled_from(gecli: Run, cache: Path) -> None:
    model, other = (next(cache.glob(f"{key}_*.om")) for key in ("k", "other"))
    made = gecli("compile", TRAIN, "-o", "another", "--train", "--graph-key", "new", "--cache-dir", "cache")
    assert made.returncode == 0, made.stderr
    swapped = next(cache.glob("new_*.om")).read_bytes()
    model.write_bytes(swapped)
    sidecar = model.with_suffix(".gecli.json")
    content = json.loads(sidecar.read_text())
    content["files"]["om"] = {"size": len(swapped), "sha256": hashlib.sha256(swapped).hexdigest()}
    sidecar.write_text(json.dumps(content))
    done = gecli("cache", "verify", "--cache-dir", "cache", "--json")
    found = [(row["kind"], row["entry"]) for row in json.loads(done.stdout)["problems"]]
    assert (done.returncode, found) == (1, [("om-corrupt", model.stem)])
    assert other.exists()


def test_a_session_that_left_entries_for_several_states_hits_after_an_import(gecli: Run, tmp_path: Path) -> None:
    models = [str(REPOSITORY / f"samples/train/conv_{name}.json") for name in ("init", "train")]
    compile_both = ("compile", *models, "-o", "train/", "--train", "--cache-dir")
    assert gecli(*compile_both, "old", "--cache-create").returncode == 0
    assert gecli("cache", "export", "--key", "*", "--cache-dir", "old", "-o", "a.tar").returncode == 0
    done = gecli("cache", "import", "a.tar", "--cache-dir", "new", "--cache-create")
    assert done.stdout.splitlines()[-1] == "imported 3 entries, 0 present already"
    assert {path.name for path in (tmp_path / "new").glob("*.om")} == {
        path.name for path in (tmp_path / "old").glob("*.om")
    }
    done = gecli(*compile_both, "new", "--require-cache")
    assert (done.returncode, done.stdout.count("cache=hit"), done.stdout.count("cache=miss")) == (0, 2, 0)


@pytest.mark.parametrize("option", ["--output", "--log-file"])
@pytest.mark.parametrize("pattern", ["*.idx", "*.om", "cache.conf", ".gecli/*/*"])
def test_no_output_overwrites_a_file_of_the_cache(option: str, pattern: str, gecli: Run, cache: Path) -> None:
    (cache / "cache.conf").write_text("{}")
    path = next(each for each in sorted(cache.glob(pattern)) if each.is_file())
    before = path.read_bytes()
    words = ["-o", "k.tar"] if option == "--log-file" else []
    done = gecli("cache", "export", "k", "--cache-dir", "cache", *words, option, str(path))
    assert f"{option} would overwrite {path}" in check_message(done, 2)
    assert path.read_bytes() == before


def test_all_keys_go_through_a_pipe(gecli: Run, cache: Path) -> None:
    gecli("cache", "export", "--key", "*", "--cache-dir", "cache", "-o", "all.tar")
    words = ["cache", "export", "--key", "*", "--cache-dir", "cache", "-o", "-"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-m", "gecli", *words], cwd=cache.parent, env=environment, capture_output=True, check=True
    )
    assert done.stdout == (cache.parent / "all.tar").read_bytes()
    document = json.loads(gecli("cache", "import", "all.tar", "--cache-dir", "new", "--json").stdout)
    assert [(each["key"], each["state"]) for each in document["entries"]] == [("k", "imported"), ("other", "imported")]


def test_what_is_exported_can_be_named(gecli: Run, cache: Path) -> None:
    stem = next(cache.glob("k_*.om")).stem
    words = ("--cache-dir", "cache", "-o", "a.tar", "--json")
    document = json.loads(gecli("cache", "export", "k", stem, *words).stdout)
    assert [each["entry"] for each in document["entries"]] == [stem]
    for names in (["k", "nothing"], ["nothing"], ["../k"], []):
        assert gecli("cache", "export", *names, *words).returncode == 2
    assert gecli("cache", "export", "k", "--cache-dir", "cache").returncode == 2


def test_damaged_entries_are_left_out_with_exit_1_or_3_if_there_is_no_other(gecli: Run, cache: Path) -> None:
    next(cache.glob("k_*.om")).write_bytes(b"IMOD")
    done = gecli("cache", "export", "--key", "*", "--cache-dir", "cache", "-o", "a.tar")
    assert (done.returncode, done.stdout.split()[:2]) == (1, ["left", "out"])
    check_message(gecli_in(cache.parent, "cache", "export", "k", "--cache-dir", "cache", "-o", "b.tar"), 3)
    assert not (cache.parent / "b.tar").exists()


def test_a_key_whose_index_is_torn_is_named(gecli: Run, cache: Path) -> None:
    (cache / "k.idx").write_text("{")
    done = gecli("cache", "export", "--key", "*", "--cache-dir", "cache", "-o", "a.tar")
    assert done.returncode == 1
    assert done.stdout.startswith("left out  k.idx  index-corrupt  ")
    check_message(gecli_in(cache.parent, "cache", "export", "k", "--cache-dir", "cache", "-o", "b.tar"), 3)
    assert "its index cannot be read: " in gecli("cache", "path", "k", "--cache-dir", "cache").stderr


def test_an_archive_does_not_overwrite_the_cache_unseen(gecli: Run, cache: Path) -> None:
    done = gecli("cache", "export", "k", "--cache-dir", "cache", "-o", "cache")
    assert done.returncode == 5
    assert next(cache.glob("k_*.om")).exists()


def test_a_damaged_archive_is_exit_3(gecli: Run, cache: Path) -> None:
    gecli("cache", "export", "k", "--cache-dir", "cache", "-o", "k.tar")
    path = cache.parent / "k.tar"
    path.write_bytes(path.read_bytes()[:3000])
    text = check_message(gecli_in(cache.parent, "cache", "import", "k.tar", "--cache-dir", "new"), 3)
    assert text.startswith("error[G5004]: archive k.tar cannot be imported")
    check_message(gecli_in(cache.parent, "cache", "import", "nowhere.tar", "--cache-dir", "new"), 3)
    assert list((cache.parent / "new").iterdir()) == []


def test_an_import_into_a_key_in_use_is_exit_7(gecli: Run, cache: Path) -> None:
    gecli("cache", "export", "k", "--cache-dir", "cache", "-o", "k.tar")
    with open(cache / "k.lock") as peer:
        fcntl.flock(peer, fcntl.LOCK_EX)
        words = ("cache", "import", "k.tar", "--cache-dir", "cache", "--wait", "0.1")
        check_message(gecli_in(cache.parent, *words), 7)


def test_an_import_that_cannot_write_is_exit_5(gecli: Run, cache: Path) -> None:
    gecli("cache", "export", "k", "--cache-dir", "cache", "-o", "k.tar")
    new = cache.parent / "new"
    (new / "k.lock").touch()
    new.chmod(0o555)
    try:
        words = ("cache", "import", "k.tar", "--cache-dir", "new")
        check_message(gecli_in(cache.parent, *words, prepare=as_ordinary_user), 5)
    finally:
        new.chmod(0o755)
    assert [path.name for path in new.iterdir()] == ["k.lock"]


def test_import_makes_the_directory_of_a_new_machine_on_request(gecli: Run, cache: Path) -> None:
    gecli("cache", "export", "k", "--cache-dir", "cache", "-o", "k.tar")
    words = ("cache", "import", "k.tar", "--cache-dir", "far/away")
    text = check_message(gecli_in(cache.parent, *words), 2)
    assert "E13026" in text and "--cache-create makes it" in text
    broken = cache.parent / "broken.tar"
    broken.write_bytes((cache.parent / "k.tar").read_bytes()[:3000])
    check_message(gecli_in(cache.parent, "cache", "import", "broken.tar", *words[3:], "--cache-create"), 3)
    assert not (cache.parent / "far").exists()
    done = gecli(*words, "--cache-create")
    assert (done.returncode, done.stderr) == (0, "")
    assert (cache.parent / "far/away").stat().st_mode & 0o777 == 0o700
    assert "cache=hit" in gecli(*COMPILE, "far/away").stdout
    for name in ("k.tar", "k.tar/x"):
        done = gecli_in(cache.parent, "cache", "import", "k.tar", "--cache-dir", name, "--cache-create")
        check_message(done, 2 if name == "k.tar" else 5)


def test_a_stopped_import_tells_of_what_it_imported_and_of_nothing_else(gecli: Run, cache: Path) -> None:
    gecli("cache", "export", "--key", "*", "--cache-dir", "cache", "-o", "all.tar")
    path = cache.parent / "all.tar"
    whole = path.read_bytes()
    path.write_bytes(whole[:3000])
    assert "stay" not in check_message(gecli_in(cache.parent, "cache", "import", "all.tar", "--cache-dir", "new"), 3)
    path.write_bytes(whole)
    with open(cache.parent / "new/other.lock", "w") as peer:
        fcntl.flock(peer, fcntl.LOCK_EX)
        words = ("cache", "import", "all.tar", "--cache-dir", "new", "--wait", "0.1")
        assert "; 1 imported entry stays" in check_message(gecli_in(cache.parent, *words), 7)
        assert "stay" not in check_message(gecli_in(cache.parent, *words), 7)  # it is there already


def test_import_refuses_a_directory_that_is_no_cache(gecli: Run, cache: Path) -> None:
    gecli("cache", "export", "k", "--cache-dir", "cache", "-o", "k.tar")
    (cache.parent / "new/mine.txt").write_text("")
    check_message(gecli_in(cache.parent, "cache", "import", "k.tar", "--cache-dir", "new"), 2)
    assert [path.name for path in (cache.parent / "new").iterdir()] == ["mine.txt"]


def test_path_prints_the_first_whole_model_of_a_key(gecli: Run, cache: Path) -> None:
    om = next(cache.glob("k_*.om"))
    assert gecli("cache", "path", "k", "--cache-dir", "cache").stdout == f"cache/{om.name}\n"
    document = json.loads(gecli("cache", "path", "k", "--cache-dir", "cache", "--json").stdout)
    assert (document["entry"], document["rdcpkt"]) == (om.stem, f"cache/{om.stem}.rdcpkt")
    om.write_bytes(b"IMOD")
    for key in ("k", "nothing", "../k", ""):
        done = gecli("cache", "path", key, "--cache-dir", "cache")
        assert (done.returncode, done.stdout) == (2, "")


def test_confirm_marks_one_entry(gecli: Run, cache: Path) -> None:
    stem = next(cache.glob("k_*.om")).stem
    words = ("cache", "confirm", "k", stem, "--cache-dir", "cache")
    needless = "; nothing needed it: the graph has no user functions"
    assert gecli(*words).stdout == f"confirmed {stem}{needless}\n"
    assert json.loads((cache / f"{stem}.gecli.json").read_text())["confirmed"] is True
    assert gecli(*words).stdout == f"was confirmed before: {stem}{needless}\n"
    assert json.loads(gecli(*words, "--json").stdout)["confirmed_now"] is False
    assert gecli("cache", "verify", "--cache-dir", "cache").returncode == 0
    for names in (["k", "nothing"], ["nothing", stem], ["k"], []):
        assert gecli("cache", "confirm", *names, "--cache-dir", "cache").returncode == 2


def test_confirm_of_a_key_in_use_is_exit_7(gecli: Run, cache: Path) -> None:
    stem = next(cache.glob("k_*.om")).stem
    with open(cache / "k.lock") as peer:
        fcntl.flock(peer, fcntl.LOCK_EX)
        words = ("cache", "confirm", "k", stem, "--cache-dir", "cache", "--wait", "0.1")
        check_message(gecli_in(cache.parent, *words), 7)
