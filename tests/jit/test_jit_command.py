"""`gecli run --jit` and `gecli compile --jit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from gecli.cli.app import run
from gecli.cli.jit import _compile_options
from gecli.options.jit_table import KEYS
from gecli.options.resolution import resolve
from tests.conftest import Gecli
from tests.jit.dynamic_models import MODELS, assert_equal, expected

NAME = "chosen_rows"
CACHE = ("--cache-dir", "c", "--cache-create", "--graph-key", "rows")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (NAME, "plain", "reshaped"):
        make, classes = MODELS[name]
        (tmp_path / f"{name}.onnx").write_bytes(make())
        for number, feeds in enumerate(classes):
            np.savez(tmp_path / f"{name}_{number}.npz", **feeds)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def document(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert run([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_source_model_runs_slice_by_slice(gecli: Gecli, place: Path) -> None:
    for number in (0, 1, 0):
        done = gecli("run", "--jit", f"{NAME}.onnx", "-i", f"{NAME}_{number}.npz", "-o", "o.npz", *CACHE)
        assert done.returncode == 0, done.stderr
        feeds = MODELS[NAME][1][number]
        assert_equal(dict(np.load(place / "o.npz")), expected(place / f"{NAME}.onnx", feeds))
    assert "2 slices: 0 versions compiled, 2 from the cache" in done.stderr


def test_the_time_of_compiled_versions_is_counted(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = ("--sample", f"{NAME}_0.npz", "--sample", f"{NAME}_1.npz")
    document(capsys, "compile", "--jit", f"{NAME}.onnx", *samples, *CACHE)
    counters = document(capsys, "cache", "stats", "--cache-dir", "c")["counters"]
    sidecars = [json.loads(path.read_text()) for path in (place / "c/jit").glob("*.gecli.json")]
    assert len(sidecars) == counters["writes"] > 1
    seconds = sum(each["compile_seconds"] for each in sidecars)
    assert counters["seconds_spent"] == pytest.approx(seconds, abs=0.002 * len(sidecars)) and seconds > 0


def test_without_a_cache_nothing_is_left(gecli: Gecli, place: Path) -> None:
    before = sorted(place.iterdir())
    done = gecli(
        "run", "--jit", "plain.onnx", "-i", "plain_1.npz", "--compare", "plain.onnx", env={"TMPDIR": str(place)}
    )
    assert done.returncode == 0, done.stderr
    assert "equal    y" in done.stdout
    assert sorted(place.iterdir()) == before


def test_samples_fill_the_cache_for_later_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = ("--sample", f"{NAME}_0.npz", "--sample", f"{NAME}_1.npz")
    filled = document(capsys, "compile", "--jit", f"{NAME}.onnx", *samples, *CACHE)
    assert filled["schema"] == "gecli.compile-jit/1"
    assert filled["graph_key"] == "rows"
    assert filled["counts"] == {"cut": 2, "compiled": 4, "restored": 0, "hits": 0}
    assert [(part["id"], part["is_last"], len(part["versions"])) for part in filled["slices"]] == [
        (0, False, 2),
        (1, True, 2),
    ]
    assert filled["slices"][0]["cut_reason"][0]["node"] == "NonZero_3"
    ran = document(capsys, "run", "--jit", f"{NAME}.onnx", "-i", f"{NAME}_1.npz", *CACHE)
    assert ran["jit"][0]["counts"] == {"cut": 0, "compiled": 0, "restored": 2, "hits": 2}


def test_the_report_file_is_the_document(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("compile", "--jit", "plain.onnx", "--sample", "plain_0.npz", "--report", "r.json", *CACHE)
    assert document(capsys, *words) == json.loads(Path("r.json").read_text())


def test_each_slice_has_a_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "--jit", f"{NAME}.onnx", "--sample", f"{NAME}_0.npz", *CACHE]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "slice 0: 1 compiled version; ends behind 'NonZero_3' (NonZero: its shapes exist only after it has run)",
        "slice 1: 1 compiled version",
    ]


def test_slices_end_behind_nodes_of_the_users_model(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Compress becomes several nodes, of which one ends the slice."""
    node = helper.make_node("Compress", ["x", "flags"], ["chosen"], axis=0, name="pick_rows")
    shapes = {"x": (TensorProto.FLOAT, ["N", 4]), "flags": (TensorProto.BOOL, ["N"])}
    graph = helper.make_graph(
        [node, helper.make_node("Neg", ["chosen"], ["y"])],
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in shapes.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M", 4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (place / "compress.onnx").write_bytes(model.SerializeToString())
    feeds = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "flags": np.array([True, False, True])}
    np.savez(place / "compress.npz", **feeds)
    assert run(["compile", "--jit", "compress.onnx", "--sample", "compress.npz", *CACHE]) == 0
    shown = capsys.readouterr().out
    assert "ends behind 'pick_rows' (Where: " in shown and "PartitionedCall" not in shown


def test_a_hint_is_enough_for_the_first_slice(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "--jit", f"{NAME}.onnx", "--input-hint-shape", "0:[3,4]", *CACHE]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("slice 0: 1 compiled version; ends behind 'NonZero_3'")
    assert "only the first slice was compiled" in shown.err
    ran = document(capsys, "run", "--jit", f"{NAME}.onnx", "-i", f"{NAME}_0.npz", *CACHE)
    assert ran["jit"][0]["counts"] == {"cut": 1, "compiled": 1, "restored": 1, "hits": 1}


def test_a_hint_says_nothing_of_values(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hint = ("--input-hint-shape", "0:[6];1:[2]")
    found = document(capsys, "compile", "--jit", "reshaped.onnx", *hint, "--cache-dir", "c", "--cache-create")
    assert found["slices"][0]["versions"][0]["guard"]["checks"] == []


@pytest.mark.parametrize(
    ("words", "code", "status"),
    [
        ("compile --jit plain.onnx", "E10054", 2),
        ("compile --jit plain.onnx --cache-dir c --cache-create", "E10054", 2),
        ("compile --jit plain.onnx --sample plain_0.npz --cache-dir c", "E13026", 2),
        ("compile --jit plain.onnx reshaped.onnx --cache-dir c --cache-create", "E10001", 2),
        ("compile --jit plain.onnx -o p.om --cache-dir c --cache-create", "E10047", 2),
        ("compile --jit plain.onnx --cache-dir c --cache-create --train", "E10001", 2),
        ("compile --jit plain.onnx --cache-dir c --cache-create --input-hint-shape 1", "E10014", 2),
        ("compile --jit plain.onnx --cache-dir c --cache-create --input-hint-shape 0:[1,x]", "E10014", 2),
        ("compile --jit plain.onnx --cache-dir c --cache-create --input-hint-shape 0:[1];0:[1]", "E10014", 2),
        ("compile plain.onnx --sample plain_0.npz -o p.om", "E10057", 2),
        ("run plain.om --input-shape x:1,4", "E10057", 2),
        ("run plain.om --cache-dir c", "E10057", 2),
        ("run --jit plain.onnx -i reshaped_0.npz", "", 1),
        ("run --jit missing.onnx", "E13001", 3),
        ("run --jit plain.onnx --plan", "E10047", 2),
        ("run --jit plain.onnx --mem-limit 1G", "E10047", 2),
        ("run --jit plain.onnx --profile", "E10047", 2),
    ],
)
def test_what_does_not_fit_is_told(
    words: str, code: str, status: int, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run(words.split())
    assert found in ((status,) if code else range(1, 7))
    assert f"error[{code}" in capsys.readouterr().err
    assert not (place / "c/jit").exists()


def test_the_environment_and_config_files_serve_run_with_jit(gecli: Gecli, place: Path) -> None:
    (place / "gecli.toml").write_text('[cache]\ncache-dir = "c"\ncache-create = true\n')
    for _ in range(2):
        done = gecli("run", "--jit", "plain.onnx", "-i", "plain_0.npz")
        assert done.returncode == 0, done.stderr
    assert "1 slice: 0 versions compiled, 1 from the cache" in done.stderr
    plain = gecli("compile", "plain.onnx", "-o", "p.om")
    assert plain.returncode == 0, plain.stderr
    assert gecli("run", "p.om", "-i", "plain_0.npz").returncode == 0


def test_explain_cache_says_what_was_found(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["run", "--jit", "plain.onnx", "-i", "plain_0.npz", "--explain-cache", *CACHE]
    assert run(line) == 0
    assert "cache: slicing: no_entry" in capsys.readouterr().err
    assert run(line) == 0
    shown = capsys.readouterr().err
    assert "cache: slicing: 1 slice is known" in shown
    assert "fits" in shown


VALUES = {
    "from": "onnx", "ge.frameworkType": "5", "input_shape": "x:1,4", "dim": "N=2", "input_shape_range": "x:[1~4,4]",
    "input_format": "ND", "ge.INPUT_NODES_SET_FP16": "x", "base-dir": "d", "allow-external-outside": "true",
    "rename-duplicates": "true", "ge.outputNodeName": "y", "ge.outputDatatype": "FP16",
    "ge.socVersion": "Ascend310P3", "ge.exec.precision_mode_v2": "fp16", "ge.exec.precision_mode": "force_fp32",
    "ge.exec.modify_mixlist": "mix.json", "keep_dtype": "keep.txt", "format-policy": "origin",
    "ge.enableSmallChannel": "1", "ge.oo.level": "O1", "ge.oo.constantFolding": "false",
    "ge.oo.deadCodeElimination": "false", "ge.optimizationSwitch": "VariableOpPass:off",
    "ge.fusionSwitchFile": "switch.json", "ge.exec.disableReuseMemory": "1", "verify-passes": "true",
    "ge.exec.variable_acc": "false", "cache-mode": "ro", "lock-timeout": "3", "cache-verify": "full",
}  # fmt: skip


def test_every_option_of_the_table_has_a_value_here() -> None:
    assert set(KEYS) <= set(VALUES)


@pytest.mark.parametrize("key", list(VALUES))
def test_an_option_of_a_compile_reaches_the_compile_of_the_slices(key: str) -> None:
    extra = {"ge.exec.precision_mode_v2": ("mixed_float16",)} if key == "ge.exec.modify_mixlist" else {}
    given = resolve("run", {"jit": ("true",), key: (VALUES[key],), **extra})
    direct = resolve("compile", {"jit": ("true",), key: (VALUES[key],), **extra})
    assert given.is_set(key)
    assert _compile_options(given).fingerprint_items() == direct.fingerprint_items()
    assert _compile_options(given).get(key) == direct.get(key) != resolve("compile", {"jit": ("true",)}).get(key)


def contents(directory: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino) for path in directory.rglob("*")}


def test_why_answers_for_each_slice_and_sample(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("cache", "why", "--jit", f"{NAME}.onnx", "--cache-dir", "c", "--graph-key", "rows", "--json")
    sample = ("--sample", f"{NAME}_0.npz")
    (place / "c").mkdir()

    def answers(*words: str) -> list[tuple[int | None, bool, str | None]]:
        before = contents(place / "c")
        status = run([*asked, *words])
        found = json.loads(capsys.readouterr().out)
        assert status == (0 if found["would_hit"] else 1)
        assert contents(place / "c") == before
        return [(each["slice"], each["would_hit"], each["reason"]) for each in found["models"]]

    assert answers(*sample) == [(0, False, "no_entry")]
    document(capsys, "compile", "--jit", f"{NAME}.onnx", *sample, *CACHE)
    assert answers(*sample) == [(0, True, None), (1, True, None)]
    assert answers(*sample, "--sample", f"{NAME}_1.npz")[2:] == [(0, False, "guard_failed")]
    assert answers("--input-hint-shape", "0:[3,4]") == [(0, True, None)]
    assert answers("--input-hint-shape", "0:[9,4]") == [(0, False, "guard_failed")]
    assert answers(*sample, "--cache-mode", "off") == [(None, False, "disabled")]
    assert answers(*sample, "--format-policy", "origin") == [(0, False, "jit_stale")]
    next((place / "c/jit").glob("rows_1_*.om")).write_bytes(b"")
    assert answers(*sample) == [(0, True, None), (1, False, "om_corrupt")]


def test_why_says_in_words_which_versions_do_not_fit(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document(capsys, "compile", "--jit", f"{NAME}.onnx", "--sample", f"{NAME}_0.npz", *CACHE)
    words = ("cache", "why", "--jit", f"{NAME}.onnx", "--cache-dir", "c", "--graph-key", "rows")
    assert run([*words, "--input-hint-shape", "0:[9,4]"]) == 1
    answer, version = capsys.readouterr().out.splitlines()
    assert "slice 0: key rows (--graph-key), would miss, guard_failed: " in answer
    assert "guard_failed (input 0 is [9, 4] instead of [3, 4])" in version
    assert run(list(words)) == 2
    assert "--sample FILE.npz" in capsys.readouterr().err


def test_explain_cache_says_why_known_versions_do_not_fit(gecli: Gecli, place: Path) -> None:
    words = ("run", "--jit", f"{NAME}.onnx", "-o", "o.npz", *CACHE, "--explain-cache")
    gecli(*words, "-i", f"{NAME}_0.npz")
    done = gecli(*words, "-i", f"{NAME}_1.npz")
    assert "cache: slice 0: rows_0_" in done.stderr
    assert ": guard_failed (input 0 is " in done.stderr
