"""What a sidecar's report says is checked when it is read: a hit cannot stumble over it (cache.md 11.2)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gecli.cache.sidecar import InvalidSidecar, parse_sidecar
from gecli.cache.sidecar_report import MEMORY_NUMBERS, report_fault
from gecli.compiler.result import ModelResult, OutputFile
from gecli.report.compile_report import summary_lines
from tests.conftest import REPOSITORY

MODEL = str(REPOSITORY / "samples/train/conv_train.json")
LINE = ("compile", MODEL, "--train", "-o", "m.om", "--graph-key", "k", "--cache-dir", "cache")
TENSOR = {"name": "x", "dtype": "DT_FLOAT", "format": "ND", "shape": [2]}
BLOCK = {"dtype": "DT_FLOAT", "format": "ND", "shape": [2], "logical_address": 0, "offset": 0}
VARIABLE = {"declared_dtype": "DT_FLOAT", "declared_format": "ND", "declared_shape": [2], "road": ["Cast ND->ND"]}
FLAGS = dict.fromkeys(("lossy", "changed_here", "init_converted"), False)
REPORT: dict[str, Any] = {
    "front_end": "onnx",
    "inputs": [TENSOR],
    "outputs": [TENSOR],
    "variables": [
        {
            **TENSOR, **VARIABLE, **FLAGS, "logical_address": 0, "size_bytes": 8,
            "blocks": [{**BLOCK, "bytes": 8, "in_use": True}],
        }
    ],
    "memory": {**dict.fromkeys(MEMORY_NUMBERS, 0), "order": "first"},
    "node_count": 3,
    "is_dynamic": False,
    "dynamic_cause": None,
    "notes": [],
    "verification": {
        "result": "unchanged", "reason": None, "passes": ["PrunePass"], "unchecked": [], "outputs": 1,
        "variables": ["w"], "seed": 1, "unknown_dims": None, "integers_below": 16,
    },
    "warnings": [],
}  # fmt: skip
WARNING = {"code": "E10001", "message": "part of an option has no effect", "severity": "warning"}
Path_ = tuple[str | int, ...]
WRONG: list[tuple[Path_, Any]] = [
    ((), True), ((), [1]), (("warnings",), [1]), (("warnings",), [{"code": "E1"}]),
    (("warnings",), [{**WARNING, "surprise": 1}]), (("warnings",), [{**WARNING, "severity": "loud"}]),
    (("warnings",), [{**WARNING, "offset": "x"}]), (("memory",), 7), (("memory",), {}), (("memory",), None),
    (("memory", "lower_bound_bytes"), [1]), (("memory", "feature_bytes"), 10**400), (("memory", "streams"), True),
    (("memory", "order"), 1), (("inputs",), {"a": 1}), (("inputs", 0), "x"), (("inputs", 0, "shape"), 7),
    (("inputs", 0, "shape"), ["1"]), (("inputs", 0, "dtype"), 7), (("outputs", 0, "name"), True),
    (("outputs", 0, "format"), None), (("variables", 0), {}), (("variables", 0, "road"), "ab"),
    (("variables", 0, "logical_address"), 1.5), (("variables", 0, "blocks"), [7]), (("notes",), {"a": 1}),
    (("notes",), [1]), (("front_end",), []), (("node_count",), "1"), (("is_dynamic",), 1),
    (("dynamic_cause",), {"node": 1}), (("verification",), {}), (("verification", "passes"), 3),
    (("verification", "reason"), 1), (("verification", "outputs"), None),
]  # fmt: skip


def with_leaf(report: Any, path: Path_, value: Any) -> Any:
    """A copy of the report with one member changed."""
    if not path:
        return value
    changed = json.loads(json.dumps(report))
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return changed


@pytest.fixture
def stored(gecli: Any, tmp_path: Path) -> Path:
    """The sidecar of an entry of a model with variables."""
    (tmp_path / "cache").mkdir()
    done = gecli(*LINE)
    assert done.returncode == 0, done.stderr
    (found,) = (tmp_path / "cache").glob("*.gecli.json")
    return found


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


BARE = {"schema": 1, "graph_key": "k", "entry": "k_1", "files": {"om": {"size": 1, "sha256": "0"}}}


@pytest.mark.parametrize("content", [{}, {"a": 1}, {**BARE, "schema": "1"}, {**BARE, "schema": True}, BARE])
def test_an_object_without_what_a_sidecar_must_have_is_a_damaged_one(content: dict[str, Any]) -> None:
    with pytest.raises(InvalidSidecar):
        parse_sidecar(json.dumps(content).encode(), "k", "k_1")


@pytest.mark.parametrize("content", [{"schema": 2}, {**BARE, "schema": 0}])
def test_a_sidecar_of_another_schema_says_nothing(content: dict[str, Any]) -> None:
    assert parse_sidecar(json.dumps(content).encode(), "k", "k_1") is None


def test_a_sidecar_without_content_is_invalid_for_every_command_and_repaired(gecli: Any, stored: Path) -> None:
    stored.write_text("{}")
    assert "sidecar-invalid" in gecli("cache", "ls", "--cache-dir", "cache").stdout
    assert "sidecar-invalid" in gecli("cache", "verify", "--cache-dir", "cache").stdout
    done = gecli(*LINE)
    assert "cache=miss reason=sidecar_invalid" in done.stdout and "was not used" in done.stderr
    assert "was set aside" in gecli("cache", "verify", "--cache-dir", "cache", "--repair").stdout
    assert gecli("cache", "verify", "--cache-dir", "cache").returncode == 0


@pytest.mark.parametrize(("path", "value"), WRONG, ids=[f"{'.'.join(map(str, p))}={v!r:.30}" for p, v in WRONG])
def test_a_report_of_a_wrong_form_makes_the_sidecar_invalid(path: Path_, value: Any) -> None:
    content = {**BARE, "fingerprint": {"combined": "sha256:a"}}
    assert parse_sidecar(json.dumps({**content, "report": REPORT}).encode(), "k", "k_1") is not None
    wrong = {**content, "report": with_leaf(REPORT, path, value)}
    with pytest.raises(InvalidSidecar, match="report"):
        parse_sidecar(json.dumps(wrong).encode(), "k", "k_1")


def test_warnings_and_members_of_later_versions_are_taken() -> None:
    report = json.loads(json.dumps(REPORT))
    report["warnings"] = [{**WARNING, "node": None, "expected": [1], "offset": 3}]
    report["later"] = report["inputs"][0]["later"] = report["memory"]["later_bytes"] = 7
    assert report_fault(report) == ""


def test_a_compile_misses_an_entry_with_a_wrong_report_and_verify_tells_it(gecli: Any, stored: Path) -> None:
    assert "cache=hit" in gecli(*LINE).stdout
    rewrite(stored, lambda content: content["report"]["memory"].update(lower_bound_bytes=[1]))
    told = gecli("cache", "verify", "--cache-dir", "cache")
    assert told.returncode != 0
    assert "sidecar-invalid" in told.stdout
    done = gecli(*LINE)
    assert done.returncode == 0, done.stderr
    assert "cache=miss reason=sidecar_invalid" in done.stdout


def test_an_entry_without_a_report_is_a_hit_that_says_so(gecli: Any, stored: Path) -> None:
    rewrite(stored, lambda content: content.pop("report"))
    done = gecli(*LINE)
    assert done.returncode == 0, done.stderr
    assert "cache=hit" in done.stdout
    assert "note=memory sizes are not known" in done.stdout


def test_a_hit_without_a_sidecar_tells_what_the_om_says_and_leaves_the_rest_out(gecli: Any, stored: Path) -> None:
    told = gecli(*LINE).stdout.splitlines()
    stored.unlink()
    first, again = (gecli(*LINE, *words).stdout.splitlines() for words in (("--cache-mode", "ro"), ()))
    assert [line for line in first if line.startswith("cache=hit")]
    assert "note=some memory sizes are not known: the cache entry has no report" in first
    kept = (
        "input.",
        "output.",
        "feature_bytes",
        "weight_bytes",
        "variable_base",
        "zero_copy_bytes",
        "streams",
        "events",
    )
    assert [line for line in first if line.startswith(kept)] == [line for line in told if line.startswith(kept)]
    assert not [line for line in first if line.startswith(("variable_bytes", "lower_bound_bytes", "reusable_bytes"))]
    assert [line for line in first if line.startswith(kept)] == [line for line in again if line.startswith(kept)]
    assert gecli("cache", "verify", "--cache-dir", "cache").returncode == 0  # it has its sidecar again
    last = gecli(*LINE, "--json")
    memory = json.loads(last.stdout)["models"][0]["memory"]
    assert (memory["variable_bytes"], memory["lower_bound_bytes"]) == (None, None)
    assert memory["feature_bytes"] > 0


def test_the_summary_of_a_hit_says_which_sizes_are_not_known() -> None:
    result = ModelResult("m.onnx", "onnx", OutputFile("m.om", 1))
    result.memory = {"feature_bytes": 1024, "streams": 1}
    (line,) = [line for line in summary_lines(result) if line.startswith("memory")]
    assert line == "memory    features 1.0 KiB   weights not known   variables not known   streams 1"
