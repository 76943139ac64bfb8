"""Whatever is wrong with the cache directory: the compile succeeds, with the same bytes, and reports the reason."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gecli.cache.lock import KeyLock
from gecli.cache.model_cache import CacheDir, read_request_hint
from gecli.compiler import cached_compile
from gecli.compiler.api import compile_models
from gecli.compiler.result import ModelResult
from gecli.errors import CacheError
from gecli.options.resolution import resolve
from tests.conftest import REPOSITORY

TRAIN = REPOSITORY / "samples/train/mlp_train.json"
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
Process = subprocess.CompletedProcess[str]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def compiled(out: str = "out/x.om", model: Path = TRAIN, **more: str) -> ModelResult:
    typed = {"output": (out,), "ge.graph_compiler_cache_dir": ("cache",), "ge.graph_key": ("k",)}
    typed |= {name.replace("_", "-"): (value,) for name, value in more.items()}
    return compile_models([str(model)], resolve("compile", typed)).models[0]


def facts(result: ModelResult) -> tuple[str, str | None, bool]:
    return result.cache.state, result.cache.reason, result.cache.stored


def the(cache: Path, pattern: str) -> Path:
    (found,) = cache.glob(pattern)
    return found


def rewritten(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


# What happens to a directory with one entry: the pattern of a file, the damage, (state, reason, stored).
FAULTS: dict[str, tuple[str, Callable[[Path], object], tuple[str, str | None, bool]]] = {
    "om is a directory": ("k_*.om", lambda p: (p.unlink(), p.mkdir()), ("miss", "om_missing", True)),
    "om is a link to nothing": ("k_*.om", lambda p: (p.unlink(), p.symlink_to("x")), ("miss", "om_missing", True)),
    "om of another model": ("k_*.om", lambda p: p.write_bytes(b"IMOD" + bytes(300)), ("miss", "om_corrupt", True)),
    "rdcpkt is empty": ("k_*.rdcpkt", lambda p: p.write_bytes(b""), ("miss", "rdcpkt_corrupt", True)),
    "sidecar of another key": (
        "k_*.json", lambda p: rewritten(p, lambda c: c.update(graph_key="z")), ("miss", "sidecar_invalid", True),
    ),
    "sidecar of another entry": (
        "k_*.json", lambda p: rewritten(p, lambda c: c.update(entry="k_20200101_000000")),
        ("miss", "sidecar_invalid", True),
    ),
    "sidecar without facts": (
        "k_*.json", lambda p: rewritten(p, lambda c: c.pop("files")), ("miss", "sidecar_invalid", True),
    ),
    "sidecar of a later gecli": (
        "k_*.json", lambda p: rewritten(p, lambda c: c.update(schema=2)), ("hit", None, False),
    ),
    "index names no file": (
        "k.idx", lambda p: rewritten(p, lambda c: c["cache_file_list"][0].update(cache_file_name="..")),  # type: ignore[index]
        ("hit", None, False),  # adopted again
    ),
    "index names a file elsewhere": (
        "k.idx",
        lambda p: p.write_text(
            '{"cache_file_list": [{"cache_file_name": "/etc/passwd", "graph_key": "k"}]}'
        ),
        ("hit", None, False),
    ),
    "index is a directory": ("k.idx", lambda p: (p.unlink(), p.mkdir()), ("hit", None, False)),
    "index of another key only": (
        "k.idx", lambda p: rewritten(p, lambda c: c["cache_file_list"][0].update(graph_key="z")),  # type: ignore[index]
        ("miss", "no_entry", True),
    ),
    "lock is left over": ("k.lock", lambda p: p.write_text("4711"), ("hit", None, False)),
    "private directory is gone": (".gecli", shutil.rmtree, ("hit", None, False)),
    "private directory is a file": (
        ".gecli", lambda p: (shutil.rmtree(p), p.write_text("")), ("hit", None, False),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_an_entry(name: str, cache: Path) -> None:
    compiled("first/x.om")
    pattern, damage, expected = FAULTS[name]
    damage(the(cache, pattern))
    assert facts(compiled()) == expected
    for suffix in ("om", "rdcpkt"):
        assert Path(f"out/x.{suffix}").read_bytes() == Path(f"first/x.{suffix}").read_bytes()
    assert facts(compiled("third/x.om"))[0] == "hit"


def test_a_lock_that_a_dead_process_held_delays_nobody(cache: Path) -> None:
    compiled()
    records = cache / ".gecli/inflight"
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    host = os.uname().nodename
    (records / f"{host}-{dead.stdout.strip()}-aa.json").write_text(
        json.dumps({"host": host, "pid": int(dead.stdout), "key": "k", "since": 1})
    )
    the(cache, "k_*.om").unlink()
    assert facts(compiled(lock_timeout="0")) == ("miss", "om_missing", True)


def test_a_lock_that_is_a_directory_makes_the_key_read_only(cache: Path) -> None:
    compiled()
    (cache / "k.lock").unlink()
    (cache / "k.lock").mkdir()
    assert facts(compiled()) == ("hit", None, False)
    the(cache, "k_*.om").unlink()
    result = compiled("out/x.om")
    assert facts(result) == ("bypassed", "lock_unavailable", False)
    assert [warning.code for warning in result.warnings] == ["G5002"]
    with pytest.raises(CacheError) as caught:
        compiled(require_cache="true")
    assert (caught.value.exit_status, caught.value.kind) == (7, "lock_unavailable")


# ------------------------------------------------------------------ full disks


def test_a_file_size_limit_leaves_the_output_whole_and_no_entry(tmp_path: Path, cache: Path) -> None:
    """The outputs go to a pipe, which has no limit; the entry is larger than a file may become."""
    words = [sys.executable, "-m", "gecli", "compile", str(REPOSITORY / "samples/digits/digits.onnx"), "-o", "-"]
    words += ["--input-shape", "image:1,1,8,8"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path)}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # the limit would cut the files of the interpreter too
    whole = subprocess.run(words, env=environment, capture_output=True, timeout=60, check=True)
    done = subprocess.run(
        [*words, "--cache-dir", "cache", "--graph-key", "k"], env=environment, capture_output=True, timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)), check=True,
    )  # fmt: skip
    assert done.stdout == whole.stdout and len(whole.stdout) > 8192
    assert b"warning[G5003]" in done.stderr and b"EFBIG" in done.stderr
    assert [path.name for path in cache.iterdir() if path.name != ".gecli"] == ["k.lock"]


def test_a_full_disk_is_tried_again_when_limits_let_something_be_removed(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled("first/x.om")
    old = the(cache, "k_*.om").stem
    (cache / "cache.conf").write_text('{"gecli": {"max_size": "1"}}')
    plain, calls = cached_compile.store_entry, []

    def full_once(*arguments: object, **more: object) -> object:
        calls.append(1)
        if len(calls) == 1:
            raise OSError(28, "No space left on device")
        return plain(*arguments, **more)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(cached_compile, "store_entry", full_once)
    monkeypatch.setattr(cached_compile, "collect_sometimes", lambda *arguments: None)
    # Under another key: entries of a key in use are not removed.
    typed = {"output": ("out/x.om",), "ge.graph_compiler_cache_dir": ("cache",), "ge.graph_key": ("other",)}
    result = compile_models([str(TRAIN)], resolve("compile", typed)).models[0]
    assert (len(calls), result.cache.stored, result.warnings) == (2, True, [])
    assert not (cache / f"{old}.om").exists()


# ------------------------------------------------------------------ permissions


@pytest.fixture
def filled(cache: Path) -> Iterator[Path]:
    """A cache with an entry; whatever a test forbids is allowed again."""
    compiled("first/x.om")
    yield cache
    for path in (cache, *cache.rglob("*")):
        path.chmod(0o755)


def _obey_permissions() -> None:
    """They mean nothing to root, unless it has lost the capabilities to override them (PR_CAPBSET_DROP)."""
    if os.geteuid() == 0:
        system = ctypes.CDLL(None)
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            system.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def forbidden(cache: Path, *words: str) -> Process:
    """A compile that obeys permissions."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "HOME": str(cache.parent)}
    return subprocess.run(
        [sys.executable, "-m", "gecli", "compile", str(TRAIN), "-o", "x", "--graph-key", "k", *words]
        + ["--cache-dir", "cache", "--lock-timeout", "5"],
        cwd=cache.parent, env=environment, capture_output=True, text=True, timeout=60, preexec_fn=_obey_permissions,
    )  # fmt: skip


def test_a_read_only_directory_gives_hits_and_one_line_for_a_miss(filled: Path) -> None:
    for path in filled.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    filled.chmod(0o555)
    before = {path: path.stat().st_mtime_ns for path in filled.rglob("*")}
    hit = forbidden(filled)
    assert (hit.returncode, hit.stderr) == (0, "")
    assert hit.stdout.splitlines()[-1].startswith("cache=hit reason=- key=k entry=k_")
    assert hit.stdout.splitlines()[-1].endswith(" via=before")
    assert Path("x.om").read_bytes() == Path("first/x.om").read_bytes()
    miss = forbidden(filled, "--format-policy", "origin")
    assert (miss.returncode, miss.stderr) == (0, "")
    assert "cache=miss reason=fingerprint_mismatch" in miss.stdout
    assert miss.stdout.count("the cache cache cannot be written: it is read only") == 1
    required = forbidden(filled, "--format-policy", "origin", "--require-cache")
    assert (required.returncode, "error[G5002]" in required.stderr) == (7, True)
    assert forbidden(filled, "--require-cache").returncode == 0
    assert {path: path.stat().st_mtime_ns for path in filled.rglob("*")} == before


def test_the_lock_of_another_user_makes_the_key_read_only(filled: Path) -> None:
    (filled / "k.lock").chmod(0)
    assert "cache=hit" in forbidden(filled).stdout
    miss = forbidden(filled, "--format-policy", "origin")
    assert (miss.returncode, "cache=bypassed reason=lock_unavailable" in miss.stdout) == (0, True)
    assert miss.stderr.count("warning[G5002]") == 1
    required = forbidden(filled, "--format-policy", "origin", "--require-cache")
    assert required.returncode == 7


def test_an_entry_that_may_not_be_read_is_a_miss(filled: Path) -> None:
    the(filled, "k_*.om").chmod(0)
    shutil.rmtree(filled / ".gecli")
    done = forbidden(filled)
    assert (done.returncode, "cache=miss reason=io_error" in done.stdout) == (0, True), done.stdout + done.stderr
    assert Path("x.om").read_bytes() == Path("first/x.om").read_bytes()


# ------------------------------------------------------------------ what is not written


def everything(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_debug_mode_writes_nothing_but_the_lock(cache: Path) -> None:
    assert facts(compiled(cache_mode="debug")) == ("debug", "no_entry", False)
    assert everything(cache) == ["k.lock"]
    stored = compiled()
    before = everything(cache)
    again = compiled(cache_mode="debug")
    assert (again.cache.would_hit, again.cache.entry, again.cache.via) == (True, stored.cache.entry, "before")
    assert everything(cache) == before


def test_the_private_directories_of_a_shared_cache_belong_to_the_group(cache: Path) -> None:
    (cache / "cache.conf").write_text('{"gecli": {"shared": true}}')
    old = os.umask(0o077)
    try:
        compiled()
        (cache / "k.idx").write_text("{")
        compiled()
    finally:
        os.umask(old)
    for name in (".gecli", ".gecli/req", ".gecli/stat", ".gecli/inflight", ".gecli/quarantine"):
        assert stat.S_IMODE((cache / name).stat().st_mode) & 0o070 == 0o070, name


# ------------------------------------------------------------------ what is told


def test_a_vain_setting_is_told_with_every_hit(cache: Path) -> None:
    (cache / "cache.conf").write_text('{"gecli": {"max_size": 7}}')
    for state in ("miss", "hit", "hit"):
        result = compiled()
        assert result.cache.state == state
        assert [warning.code for warning in result.warnings] == ["E10032"]


def test_an_older_entry_that_ge_would_take_first_is_told(cache: Path) -> None:
    assert compiled().notes == []
    notes = compiled(format_policy="origin").notes
    assert [note for note in notes if "GE would take first" in note and "gc --superseded" in note] == notes
    assert len(notes) == 1


def test_two_damages_of_one_second_are_both_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gecli.cache.recovery._utc", lambda: "20260415T022030Z")
    for _ in range(2):
        compiled()
        (cache / "k.idx").write_text("{")
    compiled()
    kept = [path.name for path in (cache / ".gecli/quarantine").iterdir()]
    assert sorted(kept) == ["k.idx.20260415T022030Z", "k.idx.20260415T022030Z.1"]


def test_a_hint_of_a_request_survives_a_restart_only_with_its_entry(cache: Path) -> None:
    compiled()
    (hint,) = (cache / ".gecli/req").iterdir()
    assert read_request_hint("cache", hint.name) == ("k", the(cache, "k_*.om").stem)
    the(cache, "k_*.json").unlink()
    assert facts(compiled())[0] == "hit"  # by the fingerprint in the OM


def test_a_debug_lock_leaves_no_record(cache: Path) -> None:
    with KeyLock(CacheDir("cache").path, "k", timeout_s=0, leaves_record=False):
        assert everything(cache) == ["k.lock"]


# ------------------------------------------------------------------ entries of other tools, network file systems


def as_of_ge(cache: Path, place: str) -> str:
    """Make the one entry what GE leaves: a stamp of 14 digits, paths in the index, no sidecar, no digest of gecli's."""
    old = the(cache, "k_*.om")
    name = "k_20260415102030"
    data = old.read_bytes().replace(b"_gecli_fp", b"_other_fp").replace(b"gecli1", bytes(6), 1)
    (cache / f"{name}.om").write_bytes(data)
    the(cache, "k_2*.rdcpkt").rename(cache / f"{name}.rdcpkt")
    for path in (old, the(cache, "k_*.gecli.json")):
        path.unlink()
    shutil.rmtree(cache / ".gecli")
    record = {
        "cache_file_name": f"{place}{name}.om", "graph_key": "k", "var_desc_file_name": f"{place}{name}.rdcpkt",
    }  # fmt: skip
    (cache / "k.idx").write_text(json.dumps({"cache_file_list": [record]}, indent=4, sort_keys=True))
    return name


@pytest.mark.parametrize("place", ["", "./cache/", "cache/", "./where/it/was/once/", "/somewhere/else/"])
def test_an_entry_of_ge_with_variables_is_used_wherever_it_was_written(place: str, cache: Path) -> None:
    compiled("first/x.om")
    name = as_of_ge(cache, place)
    result = compiled()
    assert facts(result) == ("hit", None, False)
    assert (result.cache.entry, result.cache.via) == (name, "before")
    assert Path("out/x.om").read_bytes() == (cache / f"{name}.om").read_bytes()
    assert Path("out/x.rdcpkt").read_bytes() == Path("first/x.rdcpkt").read_bytes()
    assert not list(cache.glob("*.gecli.json"))


@pytest.mark.parametrize("suffix", ["om", "rdcpkt"])
def test_a_damaged_entry_of_ge_is_set_aside(suffix: str, cache: Path) -> None:
    compiled("first/x.om")
    path = cache / f"{as_of_ge(cache, './cache/')}.{suffix}"
    path.write_bytes(path.read_bytes()[:-5] if suffix == "om" else b"\xff\xff")
    assert facts(compiled()) == ("miss", f"{suffix}_corrupt", True)
    assert Path("out/x.om").read_bytes() == Path("first/x.om").read_bytes()
    assert facts(compiled())[0] == "hit"


def test_a_damaged_bare_om_stays_where_it_is(cache: Path) -> None:
    (cache / "k.om").write_bytes(b"IMOD" + bytes(300))
    assert facts(compiled()) == ("miss", "om_corrupt", True)
    assert (cache / "k.om").stat().st_size == 304
    assert facts(compiled())[0] == "hit"  # the index hides it now


def test_a_file_that_is_stale_is_read_once_more(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled()
    plain, stale = os.open, []

    def opened(path: object, *arguments: object, **more: object) -> int:
        if str(path).startswith("cache/") and path not in stale:
            stale.append(path)
            raise OSError(errno.ESTALE, "Stale file handle", path)
        return plain(path, *arguments, **more)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(os, "open", opened)
    assert facts(compiled(cache_mode="ro")) == ("hit", None, False)
    assert stale
