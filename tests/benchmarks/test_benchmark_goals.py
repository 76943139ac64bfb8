"""The table of the benchmark, made from figures written down here."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from figures import Figures, growth_exponent, paired_ratio  # the folder is on the path only now
from goals import Row, markdown, seconds, summary, table_rows


def rows_of(*models: Figures, start_up: Figures | None = None) -> dict[str, Row]:
    return {row.measure: row for row in table_rows(start_up, models)}


def a_model(name: str = "magika", onnx_bytes: int = 3_000_000, real: bool = True) -> Figures:
    return Figures(
        name,
        real,
        onnx_bytes,
        nodes=100,
        wall_s={
            "pass": [0.01, 0.01, 0.01],
            "hit": [0.02, 0.05, 0.02],
            "compile": [0.4, 0.3, 0.3],
            "ort compile": [0.2, 0.2, 0.2],
            "ort reload": [0.2, 0.2, 0.2],
            "load": [0.1, 0.1, 0.1],
        },
        peak_mb={"compile": 90, "ort compile": 70, "run": 80, "ort run": 60},
        latency_s={"run": [0.006], "ort run": [0.003], "reference": [0.6]},
        om_bytes={"device": 3_100_000, "origin": 3_050_000},
        error={"absolute": 1e-7, "scaled": 2e-6},
    )


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    assert paired_ratio([1, 8, 3], [1, 4, 1]) == 2


def test_a_round_whose_slope_drowned_in_noise_has_no_ratio() -> None:
    assert paired_ratio([-0.5, 3, 4], [1, 1, 1]) == 3.5


def test_too_few_rounds_give_no_figure() -> None:
    assert math.isnan(paired_ratio([-0.5, 3], [1, 1]))
    model = a_model()
    model.latency_s["run"], model.latency_s["ort run"] = [-0.5, 0.006], [0.003, 0.003]
    row = rows_of(model)["latency / ort, convolution: magika"]
    assert (row.ours, row.ratio, row.met, row.note) == ("6.0 ms", "-", None, "noise exceeds the difference")


@pytest.mark.parametrize("power", [0.8, 1.0, 1.25])
def test_growth_is_net_of_start_up(power: float) -> None:
    assert growth_exponent(0.3, 0.3 + 0.01, 0.3 + 0.01 * 10**power) == pytest.approx(power)


def test_growth_hidden_by_noise_is_not_a_number() -> None:
    assert math.isnan(growth_exponent(0.3, 0.29, 0.5))


def test_every_kind_of_measure_has_a_row_that_says_whether_its_bar_is_met() -> None:
    start_up = Figures("start-up", wall_s={"pass": [0.01], "--version": [0.02], "--help": [0.06]})
    rows = rows_of(a_model(), start_up=start_up)
    assert {name: (row.ratio, row.bar, row.met) for name, row in rows.items()} == {
        "gecli --version / pass": ("2.00", "<= 5", True),
        "gecli --help / pass": ("6.00", "<= 5", False),
        "cache hit / pass: magika": ("2.00", "<= 6", True),
        "cache hit / ort reload: magika": ("0.10", "<= 0.45", True),
        "cold compile / ort compile: geometric mean of 1": ("1.50", "<= 1.5", True),
        "cold compile / ort compile: magika": ("1.50", "<= 1.6", True),
        "compile peak memory: magika": ("1.29", "<= 121 MB", True),
        "OM size / ONNX, origin formats: magika": ("1.02", "<= 3.16 MB", True),
        "OM size / ONNX, device formats: magika": ("1.03", "<= 1.1", True),
        "load / ort reload: magika": ("0.50", "<= 0.75", True),
        "latency / ort: geometric mean of 1": ("2.00", "-", None),
        "latency / ort, convolution: magika": ("2.00", "<= 3", True),
        "latency / ReferenceEvaluator: geometric mean of 1": ("0.01", "<= 0.05", True),
        "latency / ReferenceEvaluator: worst of 1": ("0.01", "<= 1", True),
        "scaled error against ort: magika": ("", "<= 1e-05", True),
        "run peak / ort: magika": ("1.33", "<= 1", False),
    }


def test_the_floor_is_held_against_the_same_peer() -> None:
    model = a_model()
    model.wall_s |= {"floor compile": [0.1, 0.2, 0.1], "floor hit": [0.005, 0.01, 0.005], "floor load": [0.09] * 3}
    floors = {name: row.floor for name, row in rows_of(model).items() if row.floor}
    assert floors == {
        "cold compile / ort compile: geometric mean of 1": "0.50",
        "cold compile / ort compile: magika": "0.50",
        "cache hit / pass: magika": "0.50",
        "cache hit / ort reload: magika": "0.025",
        "load / ort reload: magika": "0.45",
    }


def test_inspection_is_held_against_seconds_and_bytes() -> None:
    figures = Figures(
        "inspect",
        wall_s={"--version": [0.02, 0.02, 0.5], "summary": [0.3, 0.32, 0.9], "nodes": [4.5, 4.1, 3.0]},
        peak_mb={"summary": 40.0, "nodes": 200.0},
        om_bytes={"large": 1 << 30, "many": 50_000_000},
    )
    rows = {row.measure: (row.ours, row.bar, row.met) for row in table_rows(None, [], figures)}
    assert rows == {
        "inspect-om --summary of 1 GiB - --version": ("300 ms", "<= 500 ms", True),
        "inspect-om --summary of 1 GiB, peak memory": ("40 MB", "<= 157 MB", True),
        "inspect-om --nodes of elt-100k": ("4.10 s", "<= 4.00 s", False),
        "inspect-om --nodes of elt-100k, peak memory": ("200 MB", "<= 167 MB", False),
    }


def test_the_growth_of_sessions_is_judged_round_by_round_net_of_start_up() -> None:
    walls = {"20": [0.5, 1.0, 0.5], "2000": [1.5, 3.0, 1.5], "20000": [10.5, 41.0, 20.5]}
    figures = Figures("session", wall_s=walls, peak_mb={"20": 60.0, "2000": 200.0, "20000": 1300.0})
    rows = {row.measure: (row.ours, row.bar, row.met) for row in table_rows(None, [], session=figures)}
    assert rows == {
        "session, 2,000 variables and 20,000 nodes": ("1.50 s", "-", None),
        "session, 2,000 variables and 20,000 nodes: peak memory": ("200 MB", "-", None),
        "session, 20,000 variables and 200,000 nodes": ("20.50 s", "-", None),
        "session, 20,000 variables and 200,000 nodes: peak memory": ("1300 MB", "-", None),
        "growth exponent: session of 2,000 to 20,000 variables": ("1.30", "<= 1.15", False),
    }


def test_a_session_that_failed_has_the_reason_in_its_rows() -> None:
    walls, failures = {"20": [0.5], "2000": [1.5]}, {"20000": "exit 4: error[G2001]: no"}
    rows = table_rows(None, [], session=Figures("session", wall_s=walls, failures=failures))
    assert [row.note for row in rows] == ["", "", *["20000: exit 4: error[G2001]: no"] * 3]
    assert {row.met for row in rows} == {None}


def test_an_inspection_that_failed_has_the_reason_in_every_row() -> None:
    figures = Figures("inspect", failures={"compile": "gib.onnx: exit 5: error[G6002]: no space"})
    rows = table_rows(None, [], figures)
    assert len(rows) == 4 and all(row.met is None and "no space" in row.note for row in rows)


def test_large_models_have_their_own_bars() -> None:
    rows = rows_of(a_model("bert-base-shape", 434_000_000, real=False))
    assert rows["cold compile / ort compile: bert-base-shape"].bar == "<= 0.55"
    assert rows["cache hit / pass: bert-base-shape"].bar == "<= 8"
    assert rows["load / ort reload: bert-base-shape"].bar == "<= 0.15"
    assert rows["compile peak memory: bert-base-shape"].bar == "<= 228 MB"


def test_the_start_up_model_serves_the_exponents_and_has_no_rows() -> None:
    sizes = {"elt-10": 0.31, "elt-1k": 0.41, "elt-10k": 1.31, "elt-100k": 11.31}
    models = [
        Figures(name, wall_s={"compile": [wall], "ort compile": [wall]}, peak_mb={"compile": 300, "ort compile": 400})
        for name, wall in sizes.items()
    ]
    rows = rows_of(*models)
    assert (rows["growth exponent: elt-1k to elt-10k"].ours, rows["growth exponent: elt-1k to elt-10k"].met) == (
        "1.00",
        True,
    )
    assert rows["growth exponent: elt-10k to elt-100k"].ours == "1.04"
    assert rows["compile peak / ort: elt-100k"].met is True
    assert not [name for name in rows if name.endswith(": elt-10")]


def test_a_failed_command_leaves_a_dash_and_the_reason() -> None:
    model = a_model()
    del model.wall_s["hit"]
    model.failures["hit"] = "exit 7: error[G5002]: no cache"
    row = rows_of(model)["cache hit / pass: magika"]
    assert (row.ours, row.peer, row.ratio, row.met) == ("-", "10.0 ms", "-", None)
    assert markdown([row]).splitlines()[-1].endswith("| hit: exit 7: error[G5002]: no cache |")
    assert summary([row]) == "0 of 0 bars met; 1 rows without a figure"


@pytest.mark.parametrize(
    ("value", "text"), [(3.2e-4, "320 us"), (0.0123, "12.3 ms"), (0.45, "450 ms"), (12.345, "12.35 s")]
)
def test_times_are_shown_with_their_unit(value: float, text: str) -> None:
    assert seconds(value) == text
