"""Entries of other tools: their weights are found and placed, and sessions give their variables addresses."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.artifacts.om_file import read_om
from gecli.artifacts.om_splice import spliced
from gecli.cache.layout import OM, SIDECAR
from gecli.cache.verify import verify
from gecli.cache.weight_files import WeightRange, told_by_names
from gecli.cli.app import run
from gecli.compiler.api import compile_models
from gecli.compiler.result import ModelResult
from gecli.errors import GecliError
from gecli.ir.attributes import SHA256_ATTR
from gecli.options.resolution import resolve
from gecli.pb import ge_ir_pb2 as ge_ir
from gecli.wire.model_edit import edited_model_def
from tests.compiler.test_session_cache import OTHER, renamed
from tests.conftest import REPOSITORY

DIGITS = str(REPOSITORY / "samples/digits/digits.onnx")
SAMPLES = REPOSITORY / "samples/train"
MODELS = ("conv_init.json", "conv_train.json", "conv_eval.json")
MODES = pytest.mark.parametrize("mode", ["1", "2"])
SESSION_MODES = pytest.mark.parametrize("mode", ["0", "1"])
Change = Callable[[dict[str, Any]], object]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache").mkdir()
    for path in (*SAMPLES.glob("*.json"), *SAMPLES.glob("*.npy")):
        shutil.copy(path, tmp_path)
    (tmp_path / OTHER).write_text(json.dumps(renamed(json.loads((SAMPLES / "mlp_train.json").read_text()))))
    return tmp_path / "cache"


def compiled(out: str, *models: str, cached: bool = True, **more: str) -> list[ModelResult]:
    single = len(models) == 1
    typed: dict[str, tuple[str, ...]] = {"output": (f"{out}/{Path(models[0]).stem}" if single else f"{out}/",)}
    if models == (DIGITS,):
        typed["input_shape"] = ("image:1,1,8,8",)
    typed |= {name: (value,) for name, value in more.items()}
    if cached:
        typed |= {"ge.graph_compiler_cache_dir": ("cache",), "ge.graph_key": ("{stem}",)}
    return compile_models(list(models), resolve("compile", typed)).models


def as_ge_leaves_it(cache: Path, change: Change = lambda attrs: None) -> None:
    """Every entry without gecli's marks, and with the paths under which GE wrote its weights; see `change`."""
    for path in cache.glob(f"*{SIDECAR}"):
        path.unlink()
    for path in cache.glob(f"*{OM}"):
        data = bytearray(path.read_bytes())
        data[12:76] = bytes(64)  # the checksum, with gecli's mark
        path.write_bytes(data.replace(b"_gecli_fp", b"_other_fp"))
        image = spliced(read_om(path), lambda part: ge_model_def(part, change))
        assert image is not None
        with open(f"{path}.new", "wb") as stream:
            image.write(stream)
        os.replace(f"{path}.new", path)
    shutil.rmtree(cache / ".gecli")


def ge_model_def(data: bytes, change: Change) -> bytes:
    model = ge_ir.ModelDef.FromString(data)
    for position, part in enumerate(model.graph):
        graph = ge_ir.GraphDef.FromString(part)
        for op in (each for each in graph.op if each.type == "FileConstant"):
            values = {name: ge_ir.AttrDef.FromString(op.attr[name].SerializeToString()) for name in op.attr}
            facts = {"name": op.name, "location": f"/data/cache//weight/{values['location'].s.decode()}"}
            facts |= {"offset": values["offset"].i, "length": values["length"].i}
            change(facts)
            del op.attr[SHA256_ATTR]
            for name in ("location", "offset", "length"):
                del op.attr[name]
            for name in facts.keys() - {"name"}:
                value = facts[name]
                attr = ge_ir.AttrDef(i=value) if isinstance(value, int) else ge_ir.AttrDef(s=value.encode())
                op.attr[name].ParseFromString(attr.SerializeToString())
        model.graph[position] = graph.SerializeToString()
    model.attr["made_by"].ParseFromString(ge_ir.AttrDef(s=b"GE").SerializeToString())
    return model.SerializeToString()


def weights(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (Path(folder) / "weight").iterdir()}


def computed(folder: str) -> Any:
    """What the model computes from ones."""
    np.savez("ones.npz", image=np.ones((1, 1, 8, 8), np.float32))
    assert run(["run", f"{folder}/digits.om", "-i", "ones.npz", "-o", f"{folder}.npz", "-q"]) == 0
    with np.load(f"{folder}.npz") as found:
        return [found[name].tolist() for name in found.files]


@MODES
@pytest.mark.parametrize("asked", ["0", "1", "2"])
def test_the_weights_of_another_tool_s_entry_are_placed(mode: str, asked: str, cache: Path) -> None:
    compiled("plain", DIGITS, cached=False, **{"ge.externalWeight": mode})
    compiled("first", DIGITS, **{"ge.externalWeight": mode})
    as_ge_leaves_it(cache)
    [result] = compiled("out", DIGITS, **{"ge.externalWeight": asked})
    assert (result.cache.state, result.cache.via) == ("hit", "before"), result.cache.explanation
    assert [each.message for each in result.warnings if "another tool" in each.message]
    assert weights("out") == weights("plain")
    assert computed("out") == computed("plain")
    assert {Path(row.path).name: row.sha256 for row in result.external_weights} == {
        name: hashlib.sha256(data).hexdigest() for name, data in weights("out").items()
    }
    entry = read_om(next(cache.glob("*.om")))
    output = read_om("out/digits.om")
    assert {node.attrs["location"] for node in output.model().root.nodes_of("FileConstant")} == set(weights("out"))
    assert [entry.read(part) for part in entry.root.partitions if part.type] == [
        output.read(part) for part in output.root.partitions if part.type
    ]
    assert output.model().attrs["made_by"] == "GE"


def moved(facts: dict[str, Any]) -> None:
    facts.update(location="..")


def far(facts: dict[str, Any]) -> None:
    facts.update(offset=1 << 62)


def longer(facts: dict[str, Any]) -> None:
    facts.update(length=facts["length"] + 4)


def nameless(facts: dict[str, Any]) -> None:
    facts.update(location="")


def by_id(facts: dict[str, Any]) -> None:
    facts.update(location="", file_id="one")


def by_path(facts: dict[str, Any]) -> None:
    facts.update(file_path=facts.pop("location"), offset=512, length=4)


def by_far_path(facts: dict[str, Any]) -> None:
    facts.update(location="", file_path="/nowhere/w.bin")


def whole_tensor(facts: dict[str, Any]) -> None:
    facts.update(length=0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (moved, "weights_unsafe"),
        (far, "weights_corrupt"),
        (longer, "weights_unsafe"),
        (nameless, "load_failed"),
        (by_id, "weights_missing"),
        (by_far_path, "weights_missing"),
        (by_path, None),
        (whole_tensor, None),
    ],
)
def test_what_a_weight_is_named_by_decides(change: Change, reason: str | None, cache: Path) -> None:
    more = {"ge.externalWeight": "1"}
    compiled("plain", DIGITS, cached=False, **more)
    compiled("first", DIGITS, **more)
    as_ge_leaves_it(cache, change)
    [result] = compiled("out", DIGITS, **more)
    assert (result.cache.state, result.cache.reason) == ("miss" if reason else "hit", reason)
    assert weights("out") == weights("plain")


def test_an_id_leads_to_the_user_s_own_file(cache: Path, tmp_path: Path) -> None:
    more = {"ge.externalWeight": "1"}
    compiled("first", DIGITS, **more)
    as_ge_leaves_it(cache, by_id)
    shutil.rmtree(cache / "weight")
    (tmp_path / "own.bin").write_bytes(bytes(1 << 16))
    bins = {"value_bins": [{"value_bin_id": "one", "value_bin_file": str(tmp_path / "own.bin")}]}
    [result] = compiled("out", DIGITS, **more, **{"ge.exec.value_bins": json.dumps(bins)})
    assert (result.cache.state, result.external_weights) == ("hit", [])
    assert not Path("out/weight").exists()


@MODES
@pytest.mark.parametrize("damage", ["missing", "short", "link", "folder", "other"])
def test_a_damaged_weight_of_another_tool_is_a_miss(mode: str, damage: str, cache: Path, tmp_path: Path) -> None:
    more = {"ge.externalWeight": mode}
    compiled("plain", DIGITS, cached=False, **more)
    compiled("first", DIGITS, **more)
    as_ge_leaves_it(cache)
    path = sorted(each for each in (cache / "weight").iterdir() if each.name != "meta.json")[0]
    data = path.read_bytes()
    path.unlink()
    if damage == "short":
        path.write_bytes(data[:-600])
    elif damage == "other":
        path.write_bytes(bytes(len(data)))
    elif damage == "link":
        (tmp_path / "outside").write_bytes(data)
        path.symlink_to(tmp_path / "outside")
    elif damage == "folder":
        path.mkdir()
    reasons = {"missing": "weights_missing", "link": "weights_unsafe", "folder": "weights_unsafe"}
    [result] = compiled("out", DIGITS, **more)
    assert (result.cache.state, result.cache.reason) == ("miss", reasons.get(damage, "weights_corrupt"))
    assert weights("out") == weights("plain")


def test_a_changed_byte_of_a_combined_file_is_noticed_by_the_digests_in_the_names_of_nodes(cache: Path) -> None:
    more = {"ge.externalWeight": "2"}
    compiled("plain", DIGITS, cached=False, **more)
    compiled("first", DIGITS, **more)
    as_ge_leaves_it(cache)
    assert verify(str(cache)).all_problems == []
    [path] = (cache / "weight").glob("*_weight_combined")
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    assert [each.kind for each in verify(str(cache)).all_problems] == ["weights-corrupt"]
    [result] = compiled("out", DIGITS, **more)
    assert (result.cache.state, result.cache.reason) == ("miss", "weights_corrupt")
    assert weights("out") == weights("plain")


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ("w_ba7816bf8f1cfea414140de5dae2223b0361a396177a9cb410ff61f2015ad",
         "ba7816bf8f1cfea414140de5dae2223b0361a396177a9cb410ff61f2015ad"),
        ("w", ""),
        ("w_0123", ""),
        ("ba7816bf8f1cfea414140de5dae2223b0361a396177a9cb410ff61f2015adx", ""),
    ],
)  # fmt: skip
def test_the_name_of_a_node_tells_a_digest_or_nothing(node: str, told: str) -> None:
    [row] = told_by_names([WeightRange("g_weight_combined", 0, 3, "", node)])
    assert row == WeightRange("g_weight_combined", 0, 3, told, node)
    known = row._replace(sha256="5" * 64)
    assert told_by_names([known]) == [known]


def test_a_weight_directory_of_the_user_s_comes_first(cache: Path) -> None:
    more = {"ge.externalWeight": "1", "ge.externalWeightDir": "own"}
    compiled("first", DIGITS, **more)
    as_ge_leaves_it(cache)
    shutil.rmtree(cache / "weight")
    [result] = compiled("out", DIGITS, **more)
    assert result.cache.state == "hit"
    assert all(os.path.dirname(row.path) == "own" for row in result.external_weights)


def test_another_weight_file_of_the_name_stays(cache: Path) -> None:
    more = {"ge.externalWeight": "2"}
    compiled("first", DIGITS, **more)
    old, new = cache / "weight" / "digits_weight_combined", cache / "weight" / "g_weight_combined"
    old.rename(new)
    as_ge_leaves_it(cache, lambda facts: facts.update(location="/x/g_weight_combined"))
    Path("out/weight").mkdir(parents=True)
    Path("out/weight/g_weight_combined").write_bytes(b"of another model")
    [result] = compiled("out", DIGITS, **more)
    assert (result.cache.state, result.cache.reason) == ("bypassed", "io_error")
    assert Path("out/weight/g_weight_combined").read_bytes() == b"of another model"
    assert compiled("free", DIGITS, **more)[0].cache.state == "hit"
    assert set(weights("free")) == {"g_weight_combined"}


def placed(folder: str) -> dict[str, Any]:
    """The offsets of every node of every model, and the descriptors of the session."""
    found: dict[str, Any] = {}
    for path in sorted(Path(folder).glob("*.om")):
        for graph in read_om(path).model().graphs:
            for node, place in graph.placements.items():
                found[f"{path.name}/{node.name}"] = (tuple(place.input_offsets), tuple(place.output_offsets))
        found[path.with_suffix(".rdcpkt").name] = path.with_suffix(".rdcpkt").read_bytes()
    return found


@SESSION_MODES
def test_a_session_gives_the_entries_of_another_tool_its_addresses(mode: str, cache: Path) -> None:
    more = {"ge.externalWeight": mode}
    compiled("plain", *MODELS, cached=False, **more)
    compiled("first", *MODELS, **more)
    as_ge_leaves_it(cache)
    results = compiled("out", *MODELS, **more)
    assert {each.cache.state for each in results} == {"hit"}, [each.cache for each in results]
    assert placed("out") == placed("plain")
    assert [each.variables for each in results] == [
        each.variables for each in compiled("p2", *MODELS, cached=False, **more)
    ]
    if mode == "1":
        assert weights("out") == weights("plain")


def records_renamed(cache: Path) -> None:
    """Every variable record with a name of its own, which its entry's index names."""
    for path in cache.glob("*.rdcpkt"):
        path.rename(path.with_name(f"of_{path.name}"))
    for path in cache.glob("*.idx"):
        path.write_text(path.read_text().replace('"var_desc_file_name": "', '"var_desc_file_name": "of_'))


@SESSION_MODES
@pytest.mark.parametrize("models", [("conv_train.json",), MODELS], ids=["alone", "session"])
@pytest.mark.parametrize("is_foreign", [True, False])
def test_a_variable_record_may_have_another_name_than_its_model(
    is_foreign: bool, models: tuple[str, ...], mode: str, cache: Path
) -> None:
    more = {"ge.externalWeight": mode}
    compiled("plain", *models, cached=False, **more)
    compiled("first", *models, **more)
    if is_foreign:
        as_ge_leaves_it(cache)
    records_renamed(cache)
    for _ in range(2):
        results = compiled("out", *models, **more)
        assert {each.cache.state for each in results} == {"hit"}, [each.cache for each in results]
        assert placed("out") == placed("plain")
        shutil.rmtree("out")


@pytest.mark.parametrize("damage", ["corrupt", "missing"])
def test_a_damaged_variable_record_of_another_name_is_a_miss(damage: str, cache: Path) -> None:
    compiled("first", "conv_train.json")
    as_ge_leaves_it(cache)
    records_renamed(cache)
    [path] = cache.glob("of_*.rdcpkt")
    path.unlink() if damage == "missing" else path.write_bytes(path.read_bytes()[:-3])
    [result] = compiled("out", "conv_train.json")
    assert (result.cache.state, result.cache.reason) == ("miss", f"rdcpkt_{damage}")


@SESSION_MODES
def test_entries_of_models_alone_serve_a_session(mode: str, cache: Path) -> None:
    more = {"ge.externalWeight": mode}
    models = (OTHER, "conv_train.json")
    compiled("plain", *models, cached=False, **more)
    for model in models:
        compiled("alone", model, **more)
    as_ge_leaves_it(cache)
    results = compiled("out", *models, **more)
    found = {each.cache.reason for each in results if each.cache.state == "miss"}
    assert found <= {"var_conflict", "var_desc_mismatch", "var_missing"}
    assert placed("out") == placed("plain")


@pytest.mark.parametrize("mode", ["0", "1", "2"])
def test_a_session_takes_entries_that_lost_their_sidecars(mode: str, cache: Path) -> None:
    more = {"ge.externalWeight": mode}
    compiled("plain", *MODELS, cached=False, **more)
    compiled("first", *MODELS, **more)
    for path in cache.glob(f"*{SIDECAR}"):
        path.unlink()
    results = compiled("out", *MODELS, **more)
    assert {each.cache.state for each in results} == {"hit"}, [each.cache for each in results]
    assert placed("out") == placed("plain")
    assert [path.read_bytes() for path in sorted(Path("out").glob("*.om"))] == [
        path.read_bytes() for path in sorted(Path("plain").glob("*.om"))
    ]


def test_a_readopted_entry_serves_sessions(cache: Path) -> None:
    compiled("alone", "conv_train.json")
    next(cache.glob(f"*{SIDECAR}")).unlink()
    assert compiled("again", "conv_train.json")[0].cache.state == "hit"
    assert list(cache.glob(f"*{SIDECAR}"))
    models = (OTHER, "conv_train.json")
    compiled("plain", *models, cached=False)
    compiled("out", *models)
    assert placed("out") == placed("plain")


@pytest.mark.parametrize("path", sorted((REPOSITORY / "tests/data/om/real").glob("*.om")), ids=lambda path: path.name)
def test_a_real_model_keeps_every_other_partition_when_its_graph_changes(path: Path, tmp_path: Path) -> None:
    if path.name.startswith("encrypted"):
        return
    om = read_om(path)

    def grown(data: bytes) -> bytes:
        model = ge_ir.ModelDef.FromString(data)
        model.attr["more"].ParseFromString(ge_ir.AttrDef(s=b"x" * 777).SerializeToString())
        return model.SerializeToString(deterministic=True)

    assert spliced(om, lambda data: data) is None
    image = spliced(om, grown)
    assert image is not None
    with open(tmp_path / "new.om", "wb") as stream:
        image.write(stream)
    new = read_om(tmp_path / "new.om")
    assert (tmp_path / "new.om").stat().st_size == image.size_bytes
    assert new.model().attrs["more"] == "x" * 777
    assert [(part.type, om.read(part)) for part in om.root.partitions if part.type] == [
        (part.type, new.read(part)) for part in new.root.partitions if part.type
    ]
    kept = edited_model_def(om.read(om.root.partitions[0]), {}, {"none": 1}, bare_locations=True)
    assert ge_ir.ModelDef.FromString(kept) == ge_ir.ModelDef.FromString(om.read(om.root.partitions[0]))


@pytest.mark.parametrize("models", [(DIGITS,), MODELS])
def test_werror_refuses_what_the_cache_warns_of_and_writes_nothing(cache: Path, models: tuple[str, ...]) -> None:
    compiled("first", *models)
    as_ge_leaves_it(cache)
    with pytest.raises(GecliError) as caught:
        compiled("out", *models, werror="true")
    assert caught.value.exit_status == 4
    assert {each.code for each in caught.value.diagnostics} == {"G5002"}
    assert not list(Path("out").glob("*"))
    (cache / "cache.conf").write_text('{"gecli": {"foreign_entries": "accept"}}')
    assert all(each.cache.foreign for each in compiled("out", *models, werror="true"))


@pytest.mark.parametrize("fault", ["miss", "hit"])
def test_werror_refuses_a_vain_setting_of_the_cache(cache: Path, fault: str) -> None:
    if fault == "hit":
        compiled("first", DIGITS)
        compiled("first", DIGITS, werror="true")
    (cache / "cache.conf").write_text('{"gecli": {"max_size": 7}}')
    with pytest.raises(GecliError) as caught:
        compiled("out", DIGITS, werror="true")
    assert (caught.value.exit_status, caught.value.code) == (4, "E10032")
    assert not Path("out/digits.om").exists()


def test_a_hit_on_another_tools_entry_is_told_apart_everywhere(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = [
        DIGITS,
        "-o",
        "out/digits",
        "--input-shape",
        "image:1,1,8,8",
        "--cache-dir",
        "cache",
        "--graph-key",
        "digits",
    ]
    assert run(["compile", *line]) == 0
    assert run(["compile", *line]) == 0
    assert "foreign" not in capsys.readouterr().out
    as_ge_leaves_it(cache)
    assert run(["compile", *line]) == 0
    assert " via=no-vars foreign=yes\n" in capsys.readouterr().out
    assert run(["cache", "why", *line]) == 0
    assert "via no-vars (foreign)" in capsys.readouterr().out
    for command, member in (("compile", "cache"), ("cache why", "")):
        assert run([*command.split(), *line, "--json"]) == 0
        (model,) = json.loads(capsys.readouterr().out)["models"]
        assert (model[member] if member else model)["foreign"] is True
