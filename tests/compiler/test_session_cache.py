"""A session through the cache: the bytes of a session without one, whatever is taken and whatever is compiled."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from gecli.artifacts.rdcpkt import read_rdcpkt, write_rdcpkt
from gecli.cache.statistics import counts_by_key, total
from gecli.compiler.api import compile_models
from gecli.compiler.cache_inquiry import inquire
from gecli.compiler.result import ModelResult
from gecli.errors import CacheError
from gecli.ir.text import parse
from gecli.loading.json_writer import document_of, document_text
from gecli.options.resolution import resolve
from tests.compiler.test_sessions import USES, _source
from tests.conftest import REPOSITORY

SAMPLES = REPOSITORY / "samples/train"
OTHER = "other.json"
MODELS = ("conv_init.json", "conv_train.json", "conv_eval.json")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache").mkdir()
    for path in (*SAMPLES.glob("*.json"), *SAMPLES.glob("*.npy")):
        shutil.copy(path, tmp_path)
    (tmp_path / OTHER).write_text(json.dumps(renamed(json.loads((SAMPLES / "mlp_train.json").read_text()))))
    return tmp_path / "cache"


def renamed(document: dict[str, Any]) -> dict[str, Any]:
    """A model with variables of its own."""
    for node in document["nodes"]:
        node["id"] = f"o_{node['id']}"
    for link in document["edges" if "edges" in document else "links"]:
        link["source"], link["target"] = f"o_{link['source']}", f"o_{link['target']}"
    for name in ("inputs", "outputs"):
        document["graph"][name] = [f"o_{each}" for each in document["graph"][name]]
    return document


def compiled(out: str, *models: str, cache: str = "cache", **more: str) -> list[ModelResult]:
    typed: dict[str, tuple[str, ...]] = {"output": (f"{out}/" if len(models) > 1 else f"{out}/{Path(models[0]).stem}",)}
    typed |= {name.replace("_", "-"): (value,) for name, value in more.items()}
    if cache:
        typed["ge.graph_compiler_cache_dir"] = (cache,)
        typed["ge.graph_key"] = ("{stem}",)
    return compile_models(list(models), resolve("compile", typed)).models


def states(results: list[ModelResult]) -> list[tuple[str, str | None, bool]]:
    return [(each.cache.state, each.cache.via or each.cache.reason, each.cache.stored) for each in results]


def files(directory: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(directory).iterdir() if path.suffix in (".om", ".rdcpkt")}


def told(results: list[ModelResult]) -> list[Any]:
    return [(each.variables, each.memory, each.inputs, each.outputs, each.node_count) for each in results]


def test_a_session_is_taken_from_the_cache_with_the_bytes_of_a_compile() -> None:
    plain = compiled("plain", *MODELS, cache="")
    first = compiled("first", *MODELS)
    assert {state for state, _, _ in states(first)} == {"miss"}
    assert all(stored for _, _, stored in states(first))
    again = compiled("again", *MODELS)
    assert {state for state, _, _ in states(again)} == {"hit"}
    assert files("first") == files("plain")
    assert files("again") == files("plain")
    assert told(again) == told(first) == told(plain)


@pytest.mark.parametrize("models", [MODELS[::-1], MODELS[1:], (MODELS[2], MODELS[0]), (MODELS[1], OTHER)])
def test_entries_serve_other_sessions_or_miss_and_the_bytes_are_right(models: tuple[str, ...]) -> None:
    compiled("first", *MODELS)
    compiled("alone", OTHER)
    plain = compiled("plain", *models, cache="")
    for run in range(3):
        results = compiled(f"run{run}", *models)
        assert files(f"run{run}") == files("plain"), run
        assert [each.variables for each in results] == [each.variables for each in plain]
    assert {state for state, _, _ in states(results)} == {"hit"}


def test_an_entry_of_a_model_alone_gets_the_addresses_of_a_session() -> None:
    compiled("alone", OTHER)
    plain = compiled("plain", "conv_train.json", OTHER, cache="")
    results = compiled("session", "conv_train.json", OTHER)
    assert states(results) == [("miss", "no_entry", True), ("hit", "before", False)]
    assert files("session") == files("plain")
    assert results[1].variables == plain[1].variables
    addresses = [row["logical_address"] for row in results[1].variables]
    assert addresses != [row["logical_address"] for row in compiled("alone", OTHER, cache="")[0].variables]
    # And back: what the session stored serves the model alone, or is passed over.
    assert states(compiled("alone", "conv_train.json"))[0][0] in ("hit", "miss")
    compiled("alone_plain", "conv_train.json", cache="")
    assert files("alone")["conv_train.om"] == files("alone_plain")["conv_train.om"]


def test_a_session_goes_on_in_another_command() -> None:
    def both(out: str, cache: str) -> list[tuple[str, str | None, bool]]:
        first = compiled(out, MODELS[0], cache=cache, session_out=f"{out}/s1")
        second = compiled(out, MODELS[1], cache=cache, session_in=f"{out}/s1", session_out=f"{out}/s2")
        third = compiled(out, MODELS[2], cache=cache, session_in=f"{out}/s2")
        return states([*first, *second, *third])

    both("plain", "")
    assert {state for state, _, _ in both("first", "cache")} == {"miss"}
    assert {state for state, _, _ in both("again", "cache")} == {"hit"}
    for out in ("first", "again"):
        assert files(out) == files("plain")
        for name in ("s1", "s2"):
            assert Path(out, name).read_bytes() == Path("plain", name).read_bytes(), (out, name)


def test_a_model_that_is_compiled_again_in_its_session_keeps_the_reason_of_its_first_look(cache: Path) -> None:
    for mode in ("ro", "rw"):
        results = compiled(mode, *MODELS[:2], cache_mode=mode)
        assert [each.cache.reason for each in results] == ["no_entry", "no_entry"]
    counted = total(counts_by_key(str(cache)))
    assert (counted["misses"], counted["misses.no_entry"]) == (2, 2)


def test_an_entry_of_another_state_of_the_session_is_a_miss_without_a_warning() -> None:
    compiled("one", *MODELS[:2])
    first = compiled("two", MODELS[0], session_out="two/s1")
    (second,) = compiled("two", MODELS[1], session_in="two/s1", session_out="two/s2")
    assert states([*first, second]) == [("hit", "before", False), ("miss", "var_conflict", True)]
    assert not second.warnings and not first[0].warnings
    assert states(compiled("two", MODELS[1], session_in="two/s1", session_out="two/s2"))[0][0] == "hit"


def test_an_equal_session_file_makes_the_request_known(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled("s", MODELS[0], session_out="s/s1")
    compiled("first", MODELS[1], session_in="s/s1")
    monkeypatch.setattr("gecli.compiler.api.load_all", lambda *arguments: pytest.fail("the model was parsed"))
    (again,) = compiled("first", MODELS[1], session_in="s/s1")
    assert (again.cache.state, again.cache.via) == ("hit", "before")
    shutil.copy("s/s1", "s/other")
    assert compiled("first", MODELS[1], session_in="s/other")[0].cache.state == "hit"


def rows(sidecar: Path, change: Callable[[Any], object]) -> None:
    content = json.loads(sidecar.read_text())
    change(content["variable_memory"])
    sidecar.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    [
        lambda memory: memory.clear(),
        lambda memory: memory.update(nodes=[["x"]]),
        lambda memory: memory["nodes"].pop(),
        lambda memory: memory["nodes"][0].__setitem__(0, 99),
        lambda memory: memory["nodes"][0].__setitem__(1, "nothing"),
        lambda memory: memory["nodes"][0].__setitem__(2, 5),
    ],
)
def test_an_entry_that_cannot_be_brought_into_the_session_is_a_miss(
    change: Callable[[Any], object], cache: Path
) -> None:
    compiled("alone", OTHER)
    (sidecar,) = cache.glob("*.gecli.json")
    rows(sidecar, change)
    compiled("plain", "conv_train.json", OTHER, cache="")
    results = compiled("session", "conv_train.json", OTHER)
    assert states(results)[1] == ("miss", "load_failed", True)
    assert files("session") == files("plain")


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("ro", ("miss", "no_entry", False)),
        ("refresh", ("refreshed", "refresh", True)),
        ("debug", ("debug", "no_entry", False)),
    ],
)
def test_the_modes(mode: str, expected: tuple[str, str, bool], cache: Path) -> None:
    compiled("plain", *MODELS[:2], cache="")
    assert states(compiled("out", *MODELS[:2], cache_mode=mode)) == [expected, expected]
    assert files("out") == files("plain")
    if mode == "ro":
        assert list(cache.iterdir()) == []
    if mode == "debug":
        assert sorted(path.name for path in cache.iterdir()) == ["conv_init.lock", "conv_train.lock"]


def test_a_busy_key_means_no_cache_or_exit_7(cache: Path) -> None:
    import fcntl

    compiled("plain", *MODELS[:2], cache="")
    with open(cache / "conv_train.lock", "w") as peer:
        fcntl.flock(peer, fcntl.LOCK_EX)
        results = compiled("out", *MODELS[:2], lock_timeout="0")
        assert states(results) == [("bypassed", "lock_timeout", False)] * 2
        assert files("out") == files("plain")
        with pytest.raises(CacheError) as caught:
            compiled("other", *MODELS[:2], lock_timeout="0", require_cache="true")
    assert (caught.value.exit_status, Path("other").exists()) == (7, False)


def without_roads(path: Path) -> int:
    """Take the roads out of a variable record, which its sidecar goes on to vouch for; how many variables changed."""
    record = read_rdcpkt(str(path))
    write_rdcpkt(str(path), replace(record, after=replace(record.after, var_trans_roads_map={})))
    sidecar = path.with_suffix(".gecli.json")
    content = json.loads(sidecar.read_text())
    data = path.read_bytes()
    content["files"]["rdcpkt"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    sidecar.write_text(json.dumps(content))
    return len(record.after.changed_var_names)


def test_an_entry_that_does_not_say_how_it_changed_a_variable_is_a_miss(cache: Path) -> None:
    compiled("plain", *MODELS, cache="")
    compiled("first", *MODELS)
    assert sum(without_roads(path) for path in cache.glob("*.rdcpkt"))
    results = compiled("again", *MODELS)
    assert "trans_road_missing" in {each.cache.reason for each in results}
    assert [each.kind for result in results for each in result.warnings].count("trans_road_missing") == 1
    assert files("again") == files("plain")
    assert len(list(cache.glob("*.om"))) > len(MODELS)  # it is no damage: the entry stays beside the new one


def test_a_damaged_entry_of_a_session_is_set_aside_and_compiled_again(cache: Path) -> None:
    compiled("first", *MODELS[:2])
    om = next(cache.glob("conv_train_*.om"))
    om.write_bytes(om.read_bytes()[:-1])
    results = compiled("again", *MODELS[:2])
    assert "om_corrupt" in [reason for _, reason, _ in states(results)]
    assert files("again") == files("first")
    assert {state for state, _, _ in states(compiled("third", *MODELS[:2]))} == {"hit"}


def test_an_entry_that_vanishes_while_it_is_delivered_is_compiled_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gecli.compiler import api

    compiled("first", *MODELS[:2])
    plain = api.publish

    def vanished(*arguments: Any) -> None:
        for path in cache.glob("*.om"):
            path.unlink()
        plain(*arguments)

    monkeypatch.setattr(api, "publish", vanished)
    results = compiled("again", *MODELS[:2])
    assert files("again") == files("first")
    assert {state for state, _, _ in states(results)} <= {"hit", "bypassed"}


# ------------------------------------------------------------------ random sessions


GRAPHS = ("conv_init.json", "conv_parallel.json", "conv_train.json", "conv_eval.json")
SESSIONS = st.permutations(GRAPHS).flatmap(lambda order: st.integers(1, 4).map(lambda count: tuple(order[:count])))


@given(fillers=st.lists(SESSIONS, min_size=1, max_size=3), models=SESSIONS)
@example(fillers=[(GRAPHS[1],), (GRAPHS[2],)], models=(GRAPHS[1], GRAPHS[2]))
@example(fillers=[(GRAPHS[2],), (GRAPHS[3],)], models=(GRAPHS[3], GRAPHS[2]))  # the session has some of its variables
@settings(
    max_examples=8,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_sample_sessions_on_entries_of_other_sessions_give_every_byte_of_a_compile(
    tmp_path: Path, fillers: list[tuple[str, ...]], models: tuple[str, ...]
) -> None:
    place = Path(tempfile.mkdtemp(dir=tmp_path))
    (place / "cache").mkdir()
    for number, each in enumerate(fillers):
        compiled(str(place / f"filler{number}"), *each, cache=str(place / "cache"), train="true")
    found = []
    for out, cache in ((place / "plain", ""), (place / "cached", str(place / "cache"))):
        results = compiled(str(out), *models, cache=cache, session_out=str(out / "session"), train="true")
        found.append((files(str(out)), (out / "session").read_bytes(), [each.variables for each in results]))
    assert found[1] == found[0]


@pytest.mark.parametrize("has_sidecars", [True, False])
@pytest.mark.parametrize(("level", "staged"), [("O3", 12), ("O1", 0)])
def test_a_model_that_an_entry_of_it_alone_serves_has_the_record_of_its_session(
    level: str, staged: int, has_sidecars: bool, cache: Path
) -> None:
    options = {"train": "true", "ge.oo.level": level}  # O1 is without variable acceleration
    for model in GRAPHS[1:3]:
        compiled("alone", model, **options)
    if not has_sidecars:
        for path in cache.glob("*.gecli.json"):
            path.unlink()
    results = compiled("session", *GRAPHS[1:3], **options)
    assert states(results) == [("hit", "before", False), ("hit", "after", False)]
    compiled("plain", *GRAPHS[1:3], cache="", **options)
    assert files("session") == files("plain")
    assert len(read_rdcpkt("session/conv_train.rdcpkt").after.staged_var_desc_map) == staged


@given(
    specs=st.lists(USES, min_size=3, max_size=3),
    orders=st.lists(st.permutations((0, 1, 2)), min_size=2, max_size=4),
    data=st.data(),
)
@settings(
    max_examples=12,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_sessions_on_one_cache_give_the_bytes_of_sessions_without_it(
    tmp_path: Path, specs: list[dict[str, str]], orders: list[tuple[int, ...]], data: st.DataObject
) -> None:
    place = Path(tempfile.mkdtemp(dir=tmp_path))
    (place / "cache").mkdir()
    for number, uses in enumerate(specs):
        graph = parse(_source(f"g{number}", uses))
        (place / f"g{number}.json").write_text("".join(document_text(document_of(graph, str(place)))))
    for run, order in enumerate(orders):
        models = [str(place / f"g{number}.json") for number in order[: data.draw(st.integers(1, 3))]]
        found = {}
        for cache in ("", str(place / "cache")):
            out = place / f"{run}{'cached' if cache else 'plain'}"
            results = compiled(str(out), *models, cache=cache, session_out=str(out / "session"))
            found[cache] = (files(str(out)), (out / "session").read_bytes(), [each.variables for each in results])
        plain, cached = found.values()
        assert cached == plain


def test_why_looks_at_the_models_in_the_state_of_their_session(cache: Path) -> None:
    typed = {"output": ("out/",), "ge.graph_compiler_cache_dir": ("cache",), "ge.graph_key": ("{stem}",)}
    options = resolve("compile", typed)

    def reasons() -> list[str]:
        return [each.lookup.reason for each in inquire(MODELS, options, None)]

    assert reasons() == ["no_entry", "session", "session"]
    compiled("out", *MODELS)
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    assert reasons() == ["", "", ""]
    next(cache.glob("conv_train_*.om")).unlink()
    assert reasons() == ["", "om_missing", "session"]
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")}.items() <= before.items()


WEIGHT_MODES = pytest.mark.parametrize("mode", ["1", "2"])


def all_files(directory: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in Path(directory).rglob("*") if path.is_file()
    }


@WEIGHT_MODES
def test_a_session_with_external_weights_is_taken_from_the_cache(mode: str) -> None:
    more = {"ge.externalWeight": mode}
    plain = compiled("plain", *MODELS, cache="", **more)
    results = {name: compiled(name, *MODELS, **more) for name in ("first", "hit", "hit2")}
    assert [{state for state, _, _ in states(each)} for each in results.values()] == [{"miss"}, {"hit"}, {"hit"}]
    expected = all_files("plain")
    assert any(name.startswith("weight/") for name in expected)
    for name, found in results.items():
        assert all_files(name) == expected
        assert told(found) == told(plain)
        assert [each.external_weights and [row.sha256 for row in each.external_weights] for each in found] == [
            each.external_weights and [row.sha256 for row in each.external_weights] for each in plain
        ]


@WEIGHT_MODES
def test_entries_with_external_weights_serve_other_sessions_and_models_alone(mode: str) -> None:
    more = {"ge.externalWeight": mode}
    compiled("first", *MODELS, **more)
    compiled("alone", OTHER, **more)
    for number, models in enumerate((MODELS[::-1], (MODELS[1], OTHER), (OTHER, MODELS[1]), (OTHER,), (MODELS[2],))):
        compiled(f"plain{number}", *models, cache="", **more)
        for run in range(3):
            results = compiled(f"out{number}_{run}", *models, **more)
            assert all_files(f"out{number}_{run}") == all_files(f"plain{number}"), (models, run)
        assert {state for state, _, _ in states(results)} == {"hit"}


@WEIGHT_MODES
def test_a_weight_directory_of_several_commands_holds_the_weights_of_cached_sessions(mode: str) -> None:
    def both(out: str, cache: str) -> list[ModelResult]:
        more = {"ge.externalWeight": mode, "ge.externalWeightDir": f"{out}/w"}
        return compiled(out, *MODELS, cache=cache, **more)

    both("plain", "")
    runs = [both(name, "cache") for name in ("a", "b")]
    assert [{state for state, _, _ in states(each)} for each in runs] == [{"miss"}, {"hit"}]
    for name in ("a", "b"):
        found, expected = all_files(name), all_files("plain")
        assert [found.pop("w/meta.json") is None, expected.pop("w/meta.json") is None] == [False, False]
        assert found == expected


@WEIGHT_MODES
@pytest.mark.parametrize("damage", ["missing", "short", "other"])
def test_a_weight_of_a_session_that_is_damaged_is_a_miss_and_the_outputs_are_right(
    mode: str, damage: str, cache: Path
) -> None:
    more = {"ge.externalWeight": mode, "cache-verify": "full"}
    compiled("plain", *MODELS, **more, cache="")
    compiled("first", *MODELS, **more)
    for path in (cache / "weight").glob("weight_*" if mode == "1" else "*_weight_combined"):
        data = path.read_bytes()
        if damage == "missing":
            path.unlink()
        else:
            path.write_bytes(data[: len(data) // 2] if damage == "short" else b"?" + data[1:])
    results = compiled("again", *MODELS, **more)
    reason = "weights_missing" if damage == "missing" else "weights_corrupt"
    # A model may find the weights that the one before it stored again, and one that became stale its own.
    assert reason in {each.cache.reason for each in results} <= {reason, None}
    assert all_files("again") == all_files("plain")
    assert {state for state, _, _ in states(compiled("last", *MODELS, **more))} == {"hit"}
    assert all_files("last") == all_files("plain")


@WEIGHT_MODES
def test_weights_that_go_while_a_session_is_written_are_compiled(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from gecli.compiler.weight_delivery import EntryWeights

    more = {"ge.externalWeight": mode}
    compiled("plain", *MODELS, **more, cache="")
    compiled("first", *MODELS, **more)
    original = EntryWeights.pending

    def vanish(weights: EntryWeights) -> Any:
        for path in Path("cache/weight").iterdir():
            path.unlink()
        return original(weights)

    monkeypatch.setattr(EntryWeights, "pending", vanish)
    results = compiled("again", *MODELS, **more)
    assert {(each.cache.state, each.cache.reason) for each in results} == {("bypassed", "io_error")}
    assert all_files("again") == all_files("plain")


def test_two_sessions_with_the_same_models_in_other_orders_do_not_wait_for_each_other(tmp_path: Path) -> None:
    orders = ((MODELS[0], OTHER), (OTHER, MODELS[0]))
    plain = []
    for number, order in enumerate(orders):
        compiled(f"plain{number}", *order, cache="")
        plain.append(files(f"plain{number}"))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path)}
    words = [sys.executable, "-m", "gecli", "compile", "--cache-dir", "cache", "--graph-key", "{stem}"]
    running = [
        subprocess.Popen(
            [*words, *order, "-o", f"out{number}/", "--lock-timeout", "60"],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for number, order in enumerate(orders)
    ]  # fmt: skip
    for process in running:
        said = process.communicate(timeout=50)
        assert process.returncode == 0, said
        assert "bypassed" not in said[0]
    assert [files("out0"), files("out1")] == plain
