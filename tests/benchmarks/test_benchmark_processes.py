"""Timing of whole processes, comparing of outputs, and the synthetic models."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import make_models  # noqa: E402  # the folder is on the path only now
from feeds import count_nodes, input_shape_option, make_feeds  # noqa: E402
from measure import Bench  # noqa: E402
from output_error import output_error  # noqa: E402
from run import choose_models, made_session  # noqa: E402
from whole_process import Run, environment, interleave, run_process  # noqa: E402

GOOD = Run(0.1, 0.1, 10, 0, "", "")
BAD = Run(0.1, 0.1, 10, 3, "", "warning: old\nerror[E10001]: no such file\n  do: look\n")


def test_a_process_is_measured_as_the_system_accounts_for_it(tmp_path: Path) -> None:
    code = "import time; x = bytearray(60_000_000); time.sleep(0.1); print(len(x))"
    run = run_process([sys.executable, "-c", code], os.environ, tmp_path)
    assert (run.status, run.stdout, run.failure) == (0, "60000000\n", "")
    assert run.wall_s >= 0.1
    assert run.peak_mb > 60


def test_a_process_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    run = run_process([sys.executable, "-c", "import time; time.sleep(60)"], os.environ, tmp_path, timeout_s=0.2)
    assert run.failure == "timed out"
    assert run.wall_s < 30


def test_the_failure_of_a_process_is_its_error_line() -> None:
    assert BAD.failure == "exit 3: error[E10001]: no such file"


def test_jobs_run_in_turn_and_warm_up_is_not_kept() -> None:
    order: list[str] = []

    def job(name: str, result: Run) -> Run:
        order.append(name)
        return result

    runs = interleave({"a": lambda: job("a", GOOD), "b": lambda: job("b", BAD), "c": lambda: job("c", GOOD)}, rounds=2)
    assert "".join(order) == "abcacac"
    assert {name: len(kept) for name, kept in runs.items()} == {"a": 2, "b": 1, "c": 2}


def test_children_inherit_nothing_that_changes_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "GECLI_CACHE_DIR", "PYTHONDONTWRITEBYTECODE"):
        monkeypatch.setenv(name, "1")
    env = environment(2, Path("first"))
    assert not {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "GECLI_CACHE_DIR", "PYTHONDONTWRITEBYTECODE"} & set(env)
    assert (env["OMP_NUM_THREADS"], env["GECLI_THREADS"]) == ("2", "2")
    assert env["PYTHONPATH"].split(os.pathsep)[0] == "first"


def test_the_measuring_process_imports_no_numpy() -> None:
    code = "import run, sys; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=BENCHMARKS, check=True)


INFINITE = float("inf")
ERRORS = {
    "equal": ([1.0, 2.0], [1.0, 2.0], 0),
    "over the largest magnitude": ([1.0, 2.5], [1.0, 2.0], 0.25),
    "equal infinities": ([INFINITE, 1.0], [INFINITE, 1.0], 0),
    "NaN in the same place": ([np.nan, 1.0], [np.nan, 1.0], 0),
    "NaN in another place": ([np.nan, 1.0], [1.0, 1.0], INFINITE),
    "tiny outputs, close enough": ([1e-7], [0.0], 0),
    "tiny outputs, too far": ([1e-5], [0.0], INFINITE),
    "another shape": ([1.0], [1.0, 1.0], INFINITE),
    "equal integers": ([1, 2], [1, 2], 0),
    "other integers": ([1, 2], [1, 3], INFINITE),
}


@pytest.mark.parametrize("case", ERRORS)
def test_the_error_of_outputs(case: str) -> None:
    got, want, scaled = ERRORS[case]
    assert output_error({"y": np.array(got)}, {"y": np.array(want)})["scaled"] == scaled


def test_a_missing_output_is_an_infinite_error() -> None:
    assert output_error({}, {"y": np.zeros(1)})["scaled"] == INFINITE


def test_a_synthetic_model_is_valid_and_has_the_nodes_of_its_name(tmp_path: Path) -> None:
    make_models.main(tmp_path, "elt-10", "elt-1k")
    model = onnx.load(tmp_path / "elt-1k.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert count_nodes(model.graph) == 1000
    assert make_feeds(tmp_path / "elt-1k.onnx")["x"].shape == (1, 64)
    assert input_shape_option(tmp_path / "elt-10.onnx") == "x:1,64"


@pytest.mark.parametrize("maker", ["bert", "mlp", "gib"])
def test_a_small_sibling_of_a_large_synthetic_model_is_valid(maker: str, tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    if maker == "bert":
        make_models.bert(path, width=16, heads=2, layers=2, words=50, seq=4)
    elif maker == "gib":
        make_models.gib(path, first=8, layers=2)
        assert path.with_suffix(".weights").stat().st_size == 4 * (8 * 24 + 24 * 40)
    else:
        make_models.mlp(path, width=8, layers=3)
    onnx.checker.check_model(onnx.load(path), full_check=True)


def test_only_names_models_and_what_is_absent_is_refused(tmp_path: Path) -> None:
    make_models.main(tmp_path, "elt-10", "elt-1k")
    real, synthetic = choose_models(tmp_path, tmp_path, {"elt-10", "start-up"}, quick=False)
    assert [path.stem for path in (*real, *synthetic)] == ["elt-10", "elt-10"]
    with pytest.raises(SystemExit, match="no such model: resnet"):
        choose_models(None, tmp_path, {"resnet"}, quick=False)
    with pytest.raises(SystemExit, match="get_models"):
        choose_models(tmp_path / "absent", tmp_path, set(), quick=False)


def test_inspection_is_measured_from_end_to_end(tmp_path: Path) -> None:
    make_models.gib(tmp_path / "gib.onnx", first=8, layers=2)
    make_models.main(tmp_path, "elt-10")
    bench = Bench(rounds=1, threads=1, warm_up=0)
    figures = bench.inspecting(tmp_path / "gib.onnx", tmp_path / "elt-10.onnx")
    assert figures.failures == {}
    assert set(figures.wall_s) == set(figures.peak_mb) == {"--version", "summary", "nodes"}
    assert set(figures.om_bytes) == {"large", "many"}
    failed = bench.inspecting(tmp_path / "absent.onnx", tmp_path / "elt-10.onnx")
    assert "absent.onnx: exit 3" in failed.failures["compile"] and not failed.wall_s


def test_sessions_are_measured_from_end_to_end(tmp_path: Path) -> None:
    bench = Bench(rounds=1, threads=1, warm_up=0)
    figures = bench.compiling_sessions({count: made_session(tmp_path, count) for count in (5, 8)})
    assert figures.failures == {}
    assert set(figures.wall_s) == set(figures.peak_mb) == {"5", "8"}
    (tmp_path / "session-8/train.json").unlink()
    failed = bench.compiling_sessions({8: tmp_path / "session-8"})
    assert "exit 3" in failed.failures["8"] and not failed.wall_s


def test_a_model_is_measured_from_end_to_end(tmp_path: Path) -> None:
    make_models.main(tmp_path, "elt-1k")
    figures = Bench(rounds=1, threads=1, warm_up=0, budget_s=0.01).model(tmp_path / "elt-1k.onnx", real=False)
    assert figures.failures == {}
    assert {name for name, walls in figures.wall_s.items() if len(walls) == 1} == {
        "pass", "compile", "hit", "ort compile", "ort reload", "run", "load", "ort run",
        "floor compile", "floor hit", "floor load",
    }  # fmt: skip
    assert (figures.nodes, set(figures.om_bytes), set(figures.latency_s)) == (
        1000,
        {"device", "origin"},
        {"run", "ort run"},
    )
    assert figures.error["scaled"] < 1e-5
