"""`gecli compile` with a cache: same bytes as without, every damage is a miss, nothing of it stops a compile."""

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

from gecli.cache.gc import select
from gecli.cache.gc_actions import GcPolicy
from gecli.cache.statistics import counts_by_key, total
from gecli.cache.survey import survey
from gecli.compiler.api import compile_models
from gecli.compiler.result import ModelResult
from gecli.errors import CacheError, GecliError, InvalidOption
from gecli.options.resolution import resolve

REPOSITORY = Path(__file__).parent.parent.parent
DIGITS = REPOSITORY / "samples/digits/digits.onnx"
TRAIN = REPOSITORY / "samples/train/mlp_train.json"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def compiled(
    model: Path, *, key: str | None = "k", out: str = "out/x.om", cache: str = "cache", **more: str
) -> ModelResult:
    """Compile one model in this process."""
    typed = {"output": (out,), **{name.replace("_", "-"): (value,) for name, value in more.items()}}
    if model == DIGITS:
        typed["input_shape"] = ("image:1,1,8,8",)
    if cache:
        typed["ge.graph_compiler_cache_dir"] = (cache,)
    if key is not None:
        typed["ge.graph_key"] = (key,)
    return compile_models([str(model)], resolve("compile", typed)).models[0]


def facts(result: ModelResult) -> tuple[str, str | None]:
    return result.cache.state, result.cache.reason


def entry(directory: Path, suffix: str) -> Path:
    found = sorted(directory.glob(f"*{suffix}"))
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("model", [DIGITS, TRAIN])
def test_miss_and_hit_give_the_bytes_of_a_compile_without_a_cache(model: Path, tmp_path: Path) -> None:
    outputs = []
    for cache, state in (("", "off"), ("cache", "miss"), ("cache", "hit")):
        shutil.rmtree("out", ignore_errors=True)
        result = compiled(model, cache=cache, key="k" if cache else None)
        assert result.cache.state == state
        outputs.append({path.name: path.read_bytes() for path in Path("out").iterdir()})
    assert outputs[0] == outputs[1] == outputs[2]
    assert sorted(outputs[0]) == (["x.om"] if model == DIGITS else ["x.om", "x.rdcpkt"])


@pytest.mark.parametrize(("model", "via"), [(DIGITS, "no-vars"), (TRAIN, "before")])
def test_a_hit_says_how_it_matched_and_reports_what_the_compile_did(model: Path, via: str) -> None:
    first, second = compiled(model), compiled(model)
    assert (second.cache.via, second.cache.entry) == (via, first.cache.entry)
    for name in ("inputs", "outputs", "variables", "memory", "node_count", "front_end"):
        assert getattr(second, name) == getattr(first, name)
    assert second.output.sha256 == first.output.sha256


def test_a_derived_key_comes_from_the_content() -> None:
    first = compiled(DIGITS, key=None)
    assert first.cache.key.startswith("auto-x-")
    assert compiled(DIGITS, key=None).cache.state == "hit"
    assert compiled(DIGITS, key=None, format_policy="origin").cache.key != first.cache.key


def test_other_options_under_the_same_key_are_another_entry(cache_directory: Path) -> None:
    compiled(DIGITS)
    assert facts(compiled(DIGITS, format_policy="origin")) == ("miss", "fingerprint_mismatch")
    assert facts(compiled(DIGITS)) == ("hit", None)
    assert facts(compiled(DIGITS, format_policy="origin")) == ("hit", None)
    assert len(json.loads((cache_directory / "k.idx").read_text())["cache_file_list"]) == 2


def test_another_model_under_the_same_key_is_not_served() -> None:
    compiled(DIGITS)
    assert facts(compiled(TRAIN)) == ("miss", "fingerprint_mismatch")


def test_a_model_saved_anew_with_the_same_content_still_hits(tmp_path: Path) -> None:
    text = json.loads(TRAIN.read_text())
    (tmp_path / "m.json").write_text(json.dumps(text))
    for name in TRAIN.parent.glob("*.npy"):
        shutil.copy(name, tmp_path)
    first = compiled(tmp_path / "m.json")
    (tmp_path / "m.json").write_text(json.dumps(text, indent=3))
    second = compiled(tmp_path / "m.json")
    assert (first.cache.state, second.cache.state) == ("miss", "hit")
    requests = json.loads(entry(tmp_path / "cache", ".gecli.json").read_text())["fingerprint"]["requests"]
    assert len(requests) == 2


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


DAMAGE = [
    (".om", Path.unlink, "om_missing"),
    (".om", cut, "om_corrupt"),
    (".om", flip, "om_corrupt"),
    (".rdcpkt", Path.unlink, "rdcpkt_missing"),
    (".rdcpkt", flip, "rdcpkt_corrupt"),
    (".gecli.json", cut, "sidecar_invalid"),
]


@pytest.mark.parametrize(("suffix", "damage", "reason"), DAMAGE)
def test_a_damaged_entry_is_a_miss_and_is_compiled_again(
    suffix: str, damage: Callable[[Path], object], reason: str, cache_directory: Path
) -> None:
    good = compiled(TRAIN, out="first/x.om")
    damage(entry(cache_directory, suffix))
    again = compiled(TRAIN)
    assert facts(again) == ("miss", reason)
    assert again.warnings and reason in again.warnings[0].message
    assert Path("out/x.om").read_bytes() == Path("first/x.om").read_bytes()
    assert good.cache.stored and again.cache.stored
    assert facts(compiled(TRAIN)) == ("hit", None)


@pytest.mark.parametrize(("suffix", "damage", "reason"), [DAMAGE[2], DAMAGE[4]])
def test_the_damage_is_the_reason_whatever_other_entries_the_key_has(
    suffix: str, damage: Callable[[Path], object], reason: str, cache_directory: Path
) -> None:
    compiled(TRAIN)
    path = entry(cache_directory, suffix)
    compiled(TRAIN, format_policy="origin")
    damage(path)
    again = compiled(TRAIN)
    assert facts(again) == ("miss", reason)
    assert reason in again.warnings[0].message and "set aside" in again.warnings[0].message
    assert total(counts_by_key(str(cache_directory)))[f"misses.{reason}"] == 1


@pytest.mark.parametrize("damage", [Path.unlink, cut, lambda path: path.write_bytes(b"")])
def test_a_lost_or_broken_index_costs_nothing(damage: Callable[[Path], object], cache_directory: Path) -> None:
    compiled(TRAIN)
    damage(cache_directory / "k.idx")
    again = compiled(TRAIN)
    assert facts(again) == ("hit", None)
    assert again.warnings


def test_a_broken_cache_conf_stops_the_command(cache_directory: Path) -> None:
    (cache_directory / "cache.conf").write_text('{"cache_debug_mode": "failed"}')
    with pytest.raises(InvalidOption) as caught:
        compiled(DIGITS)
    assert caught.value.code == "E10032"


def test_an_entry_that_lost_its_sidecar_is_known_by_the_fingerprint_in_the_om(cache_directory: Path) -> None:
    compiled(TRAIN)
    entry(cache_directory, ".gecli.json").unlink()
    again = compiled(TRAIN)
    assert facts(again) == ("hit", None)
    assert not [warning for warning in again.warnings if "another tool" in warning.message]
    content = json.loads(entry(cache_directory, ".gecli.json").read_text())  # it has one again
    assert (content["entry"], len(content["fingerprint"]["requests"])) == (again.cache.entry, 1)
    assert content["vars"]["after"]
    third = compiled(TRAIN)
    assert (third.cache.state, third.cache.via) == ("hit", "before")
    assert facts(compiled(TRAIN, format_policy="origin")) == ("miss", "fingerprint_mismatch")


def test_a_directory_as_ge_leaves_it_is_used(cache_directory: Path, tmp_path: Path) -> None:
    """Relative paths in the index, time stamps of 14 digits, no sidecar, an OM that carries no fingerprint."""
    compiled(DIGITS, out="made/m.om", key=None, cache="")
    data = Path("made/m.om").read_bytes()
    # As if another tool had made it: other attribute names of the same length, no digest of gecli's.
    data = data.replace(b"_gecli_fp", b"_other_fp").replace(b"gecli1", bytes(6), 1)
    (cache_directory / "k_20260415102030.om").write_bytes(data)
    record = {"cache_file_name": "./cache/k_20260415102030.om", "graph_key": "k"}
    (cache_directory / "k.idx").write_text(json.dumps({"cache_file_list": [record]}, indent=4))
    result = compiled(DIGITS)
    assert (facts(result), result.cache.entry) == (("hit", None), "k_20260415102030")
    assert Path("out/x.om").read_bytes() == data
    assert "another tool" in result.warnings[0].message
    assert facts(compiled(TRAIN)) == ("miss", "signature_mismatch")
    names = [each["cache_file_name"] for each in json.loads((cache_directory / "k.idx").read_text())["cache_file_list"]]
    assert names[0] == "k_20260415102030.om" and len(names) == 2


def test_foreign_entries_can_be_refused(cache_directory: Path) -> None:
    test_a_directory_as_ge_leaves_it_is_used(cache_directory, Path())
    (cache_directory / "cache.conf").write_text('{"gecli": {"foreign_entries": "reject"}}')
    shutil.rmtree("out")
    (cache_directory / "k.idx").write_text(
        '{"cache_file_list": [{"cache_file_name": "k_20260415102030.om", "graph_key": "k"}]}'
    )
    for path in cache_directory.glob("*.gecli.json"):
        path.unlink()
    assert compiled(DIGITS).cache.reason == "foreign_rejected"


def test_a_bare_om_without_an_index_is_used(cache_directory: Path) -> None:
    compiled(DIGITS, out="made/x.om", key=None, cache="")
    shutil.copy("made/x.om", cache_directory / "k.om")
    result = compiled(DIGITS)
    assert (result.cache.state, result.cache.via, result.cache.entry) == ("hit", "legacy", "k")
    assert not (cache_directory / "k.idx").exists()


def test_who_wrote_a_model_without_a_sidecar_stands_in_the_model(cache_directory: Path) -> None:
    for name in ("k", "other"):
        compiled(DIGITS, out=f"cache/{name}.om", key=None, cache="")
    ours = (cache_directory / "k.om").read_bytes()
    (cache_directory / "other.om").write_bytes(ours.replace(b"gecli1", bytes(6), 1))
    (cache_directory / "k_20260415102030.om").write_bytes(ours)
    record = {"cache_file_name": "k_20260415102030.om", "graph_key": "k"}
    (cache_directory / "k.idx").write_text(json.dumps({"cache_file_list": [record]}))
    shown = {row.stem: (row.made_by, row.state) for row in survey("cache").rows}
    states = {"k": "shadowed", "other": "legacy", "k_20260415102030": "recovered"}
    assert shown == {stem: ("ge" if stem == "other" else "gecli", state) for stem, state in states.items()}


def test_an_entry_of_gecli_without_its_sidecar_is_not_foreign(cache_directory: Path) -> None:
    """Its OM says what it was compiled from: it is used for that and for nothing else, and gets its sidecar back."""
    compiled(DIGITS)
    entry(cache_directory, ".gecli.json").unlink()
    (cache_directory / "cache.conf").write_text('{"gecli": {"foreign_entries": "reject"}}')
    found = survey("cache")
    assert [(row.state, row.problems) for row in found.rows] == [("recovered", ("recovered",))]
    assert select(found, GcPolicy(states=frozenset(("foreign", "legacy"))), time.time()) == []
    assert facts(compiled(DIGITS, format_policy="origin", cache_mode="ro")) == ("miss", "fingerprint_mismatch")
    assert facts(compiled(DIGITS)) == ("hit", None)
    assert [row.state for row in survey("cache").rows] == ["ok"]
    data = entry(cache_directory, ".om").read_bytes().replace(b"gecli1", bytes(6), 1)
    entry(cache_directory, ".gecli.json").unlink()
    entry(cache_directory, ".om").write_bytes(data.replace(b"_gecli_fp", b"_other_fp"))
    (cache_directory / "k.idx").write_text("torn")
    assert facts(compiled(DIGITS)) == ("miss", "foreign_rejected")
    (row,) = [row for row in survey("cache").rows if row.made_by == "ge"]
    assert (row.state, row.problems) == ("recovered", ("recovered", "foreign"))


def snapshot(directory: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in directory.rglob("*") if path.is_file()
    }


def test_ro_never_writes_into_the_directory(cache_directory: Path) -> None:
    assert facts(compiled(DIGITS, cache_mode="ro")) == ("miss", "no_entry")
    assert snapshot(cache_directory) == {}
    compiled(DIGITS)
    before = snapshot(cache_directory)
    assert facts(compiled(DIGITS, cache_mode="ro")) == ("hit", None)
    assert snapshot(cache_directory) == before


def test_refresh_compiles_and_appends() -> None:
    compiled(DIGITS)
    again = compiled(DIGITS, cache_mode="refresh")
    assert facts(again) == ("refreshed", "refresh")
    assert again.cache.stored


@pytest.mark.parametrize("how", ["option", "conf"])
def test_debug_says_what_would_happen_and_writes_only_the_lock(how: str, cache_directory: Path) -> None:
    more = {"cache_mode": "debug"} if how == "option" else {}
    if how == "conf":
        (cache_directory / "cache.conf").write_text('{"cache_debug_mode": true}')
    result = compiled(DIGITS, **more)
    assert (result.cache.state, result.cache.would_hit) == ("debug", False)
    assert [path.name for path in cache_directory.glob("k*")] == ["k.lock"]


def test_off_is_as_if_there_were_no_cache(cache_directory: Path) -> None:
    assert compiled(DIGITS, cache_mode="off").cache.state == "off"
    assert snapshot(cache_directory) == {}


@pytest.mark.parametrize(
    ("key", "cache", "note"), [("k", "", "needs --cache-dir"), ("", "cache", "is empty"), (None, "", "")]
)
def test_half_a_cache_is_no_cache_and_a_note(key: str | None, cache: str, note: str) -> None:
    result = compiled(DIGITS, key=key, cache=cache)
    assert result.cache.state == "off"
    assert note in "".join(result.notes)


def test_without_a_derived_key_the_cache_is_off() -> None:
    result = compiled(DIGITS, key=None, auto_graph_key="false")
    assert (result.cache.state, len(result.notes)) == ("off", 1)


def test_a_missing_directory_is_a_usage_error_unless_it_may_be_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption) as caught:
        compiled(DIGITS, cache="nowhere")
    assert caught.value.code == "E13026"
    assert compiled(DIGITS, cache="nowhere/new", cache_create="true").cache.stored
    assert (tmp_path / "nowhere/new").stat().st_mode & 0o777 == 0o700


def test_an_output_with_the_right_bytes_stays_and_gets_a_new_time() -> None:
    compiled(DIGITS)
    os.utime("out/x.om", (1e9, 1e9))
    inode = os.stat("out/x.om").st_ino
    compiled(DIGITS)
    assert os.stat("out/x.om").st_ino == inode
    assert os.stat("out/x.om").st_mtime > 1.5e9


def test_an_output_is_a_copy_and_editing_it_does_not_change_the_cache(cache_directory: Path) -> None:
    compiled(DIGITS)
    good = Path("out/x.om").read_bytes()
    with open("out/x.om", "r+b") as stream:
        stream.write(b"BAD!")
    assert facts(compiled(DIGITS)) == ("hit", None)
    assert Path("out/x.om").read_bytes() == entry(cache_directory, ".om").read_bytes() == good


def test_a_hit_removes_a_stale_rdcpkt() -> None:
    compiled(DIGITS)
    Path("out/x.rdcpkt").write_bytes(b"old")
    compiled(DIGITS)
    assert not Path("out/x.rdcpkt").exists()


def test_a_store_that_fails_is_a_warning_or_exit_7(cache_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gecli.compiler import cached_compile

    def full(*arguments: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cached_compile, "store_entry", full)
    result = compiled(DIGITS)
    assert facts(result) == ("miss", "no_entry")
    assert [warning.code for warning in result.warnings] == ["G5003"]
    shutil.rmtree("out")
    with pytest.raises(CacheError) as caught:
        compiled(DIGITS, require_cache="true")
    assert (caught.value.code, caught.value.exit_status) == ("G5003", 7)
    assert Path("out/x.om").exists()


def test_a_busy_key_is_compiled_without_the_cache_or_exit_7(cache_directory: Path) -> None:
    import fcntl

    with open(cache_directory / "k.lock", "w") as peer:
        fcntl.flock(peer, fcntl.LOCK_EX)
        result = compiled(DIGITS, lock_timeout="0")
        assert facts(result) == ("bypassed", "lock_timeout")
        assert [warning.code for warning in result.warnings] == ["G5001"]
        shutil.rmtree("out")
        with pytest.raises(CacheError) as caught:
            compiled(DIGITS, lock_timeout="0", require_cache="true")
        assert (caught.value.exit_status, Path("out").exists()) == (7, False)


def test_a_hit_does_not_wait_for_the_lock(cache_directory: Path) -> None:
    import fcntl

    compiled(DIGITS)
    with open(cache_directory / "k.lock") as peer:
        fcntl.flock(peer, fcntl.LOCK_EX)
        assert facts(compiled(DIGITS, lock_timeout="0")) == ("hit", None)


def several(key: str | None = None, models: tuple[Path, ...] = (DIGITS, DIGITS)) -> list[ModelResult]:
    names = []
    for number, model in enumerate(models):
        names.append(f"m{number}{model.suffix}")
        shutil.copy(model, names[-1])
    typed = {"output": ("many/",), "ge.graph_compiler_cache_dir": ("cache",)}
    if key:
        typed["ge.graph_key"] = (key,)
    return compile_models(names, resolve("compile", typed)).models


def test_several_models_without_variables_have_an_entry_each() -> None:
    assert [result.cache.state for result in several("m-{stem}")] == ["miss", "miss"]
    shutil.rmtree("many")
    again = several("m-{stem}")
    assert [(result.cache.state, result.cache.key) for result in again] == [("hit", "m-m0"), ("hit", "m-m1")]


def test_several_models_that_share_variables_are_looked_up_in_the_state_of_their_session() -> None:
    for name in TRAIN.parent.glob("*.npy"):
        shutil.copy(name, ".")
    assert {facts(result) for result in several(None, (TRAIN, TRAIN))} == {("miss", "no_entry")}
    files = {path.name: path.read_bytes() for path in Path("many").iterdir()}
    shutil.rmtree("many")
    assert {facts(result) for result in several(None, (TRAIN, TRAIN))} == {("hit", None)}
    assert {path.name: path.read_bytes() for path in Path("many").iterdir()} == files


@pytest.mark.parametrize("key", ["same", "{stem}-{bad}", "x" * 126 + "{n}{n}{n}"])
def test_one_key_for_several_models_is_a_usage_error(key: str) -> None:
    with pytest.raises(GecliError) as caught:
        several(key)
    assert caught.value.exit_status == 2


def test_two_processes_with_one_key_compile_once(tmp_path: Path, cache_directory: Path) -> None:
    words = [sys.executable, "-m", "gecli", "compile", str(DIGITS), "--input-shape", "image:1,1,8,8"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    processes = [
        subprocess.Popen(
            [*words, "-o", f"out{number}/x", "--cache-dir", "cache", "--graph-key", "k"],
            env=environment, stdout=subprocess.PIPE, text=True,
        )
        for number in range(3)
    ]  # fmt: skip
    texts = [process.communicate(timeout=60)[0] for process in processes]
    assert sorted(text.split("cache=")[1].split()[0] for text in texts) == ["hit", "hit", "miss"]
    assert len({Path(f"out{number}/x.om").read_bytes() for number in range(3)}) == 1
    assert len(json.loads((cache_directory / "k.idx").read_text())["cache_file_list"]) == 1


def test_explain_cache_names_what_differs(gecli: Run) -> None:
    words = ["compile", str(DIGITS), "-o", "x", "--cache-dir", "cache", "--graph-key", "k", "--explain-cache"]
    gecli(*words)
    result = gecli(*words, "--format-policy", "origin")
    assert result.returncode == 0
    assert "fingerprint_mismatch (options" in result.stderr
    assert "option format-policy: 'device' in the entry, 'origin' now" in result.stderr


def test_an_entry_that_vanishes_between_decision_and_use_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from gecli.compiler import direct_hit

    compiled(DIGITS, out="first/x.om")
    place_copy = direct_hit.place_copy

    def vanish(source: str, target: str, *more: object) -> None:
        if "cache/" in source and Path(source).exists():
            Path(source).unlink()
        place_copy(source, target)

    monkeypatch.setattr(direct_hit, "place_copy", vanish)
    result = compiled(DIGITS)
    assert result.cache.state in ("miss", "bypassed")
    assert Path("out/x.om").read_bytes() == Path("first/x.om").read_bytes()


def test_entries_of_a_shared_cache_are_writable_by_the_group(cache_directory: Path) -> None:
    (cache_directory / "cache.conf").write_text('{"gecli": {"shared": true, "timestamp": "ge"}}')
    result = compiled(DIGITS)
    assert len(result.cache.entry) == len("k_20260415102030")
    modes = {path.stat().st_mode & 0o777 for path in cache_directory.glob("k_*")}
    assert modes == {0o664}


def test_require_cache_is_exit_7_when_no_cache_is_used(gecli: Run, tmp_path: Path) -> None:
    done = gecli("compile", str(DIGITS), "-o", "x", "--require-cache")
    assert done.returncode == 7
    assert "error[G5002]: --require-cache was given, and the cache is not used" in done.stderr
    assert not (tmp_path / "x.om").exists()


def test_a_cache_directory_that_is_a_file_is_said_to_be_one(gecli: Run, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    done = gecli("compile", str(DIGITS), "-o", "x", "--cache-dir", "f", "--auto-graph-key", "--cache-create")
    assert done.returncode == 2
    assert "f is not a directory" in done.stderr
