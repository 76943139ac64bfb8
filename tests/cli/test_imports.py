"""Which modules a cheap command may load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import gecli
from tests.conftest import REPOSITORY, Gecli

HEAVY = ["numpy", "networkx", "google", "rich", "ml_dtypes", "filelock", "click", "dataclasses", "inspect", "difflib"]
LIGHT = {
    "gecli", "gecli.version", "gecli.__main__", "gecli.cli", "gecli.cli.app", "gecli.cli.console", "gecli.cli.help",
    "gecli.cli.stopping",
    "gecli.options", "gecli.options.argv", "gecli.options.option", "gecli.options.global_table",
    "gecli.options.compile_table", "gecli.options.spelling", "gecli.options.table",
}  # fmt: skip
UNUSED_IN_A_COMPILE = [
    "networkx.algorithms", "click", "rich", "filelock", "ml_dtypes", "difflib",
    "gecli.compiler.cached_compile",
    "gecli.cache.model_cache", "gecli.compiler.session_file", "gecli.wire.var_session", "gecli.error_catalog",
]  # fmt: skip
UNUSED_IN_A_RUN = [
    "networkx", "click", "filelock", "rich", "csv", "gecli.compiler", "gecli.passes", "gecli.variables.var_manager",
    "gecli.runtime.checkpoint", "gecli.report.comparison", "gecli.error_catalog",
]  # fmt: skip
CATALOGUE = {f"gecli.error_catalog{name}" for name in ("", ".entry", ".ge_codes", ".gecli_codes")}
ALLOWED = {
    "--version": {"gecli", "gecli.version", "gecli.cli", "gecli.cli.stopping"},
    "--help": LIGHT | CATALOGUE,
    "compile --help": LIGHT | {"gecli.options.recorded_table", "gecli.cli.fast_hit"},
    "run --help": LIGHT | {"gecli.options.run_table", "gecli.options.jit_table"},
    "explain E10016": (LIGHT | CATALOGUE | {"gecli.cli.explain"}) - {"gecli.cli.help"},
    "completion bash": LIGHT
    | CATALOGUE
    | {f"gecli.options.{name}_table" for name in ("recorded", "run", "jit", "inspect", "cache")}
    | {"gecli.cli.completion"},
}
PROBE = """
import sys
from gecli.__main__ import main
status = main()
print(*sorted(sys.modules), file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.parametrize("line", ALLOWED)
def test_a_cheap_command_loads_only_what_it_needs(line: str) -> None:
    cwd = Path(gecli.__file__).parent.parent
    result = subprocess.run([sys.executable, "-c", PROBE, *line.split()], cwd=cwd, capture_output=True, text=True)
    loaded = set(result.stderr.split())
    assert result.returncode == 0
    ours = {name for name in loaded if name.partition(".")[0] == "gecli"}
    assert ours <= ALLOWED[line] | {"gecli.__main__"}
    assert [name for name in HEAVY if name in loaded] == []


def modules_of(line: list[str]) -> set[str]:
    result = subprocess.run([sys.executable, "-c", PROBE, *line], cwd=REPOSITORY, capture_output=True, text=True)
    assert result.returncode == 0
    return set(result.stderr.splitlines()[-1].split())


def test_a_plain_compile_loads_the_graph_classes_and_neither_algorithms_nor_click(tmp_path: Path) -> None:
    graph = REPOSITORY / "samples/digits/digits.onnx"
    words = ["compile", str(graph), "-o", str(tmp_path / "d.om"), "--input-shape", "image:1,1,8,8", "--quiet"]
    loaded = modules_of(words)
    assert "networkx.classes.multidigraph" in loaded
    assert [name for name in UNUSED_IN_A_COMPILE if name in loaded] == []


def test_a_run_loads_what_executing_needs_and_no_graph_library(gecli: Gecli, tmp_path: Path) -> None:
    graph = REPOSITORY / "samples/digits/digits.onnx"
    assert gecli("compile", str(graph), "-o", "d.om", "--input-shape", "image:1,1,8,8").returncode == 0
    line = ["run", str(tmp_path / "d.om"), "--seed", "1", "--quiet"]
    loaded = modules_of(line)
    assert [name for name in UNUSED_IN_A_RUN if name in loaded] == []


@pytest.mark.parametrize("jit", [True, False])
def test_a_run_that_writes_its_outputs_loads_no_rules_of_blocked_formats(
    jit: bool, gecli: Gecli, tmp_path: Path
) -> None:
    graph = REPOSITORY / "samples/digits/digits.onnx"
    line = ["run", "--jit", str(graph), "--cache-dir", f"{tmp_path}/cache", "--cache-create"]
    if not jit:
        line = ["run", str(tmp_path / "d.om")]
        shape = ("--input-shape", "image:1,1,8,8", "--format-policy", "origin")
        assert gecli("compile", str(graph), "-o", "d.om", *shape).returncode == 0
    else:
        line += ["--shape", "image:1,1,8,8", "--format-policy", "origin"]
        assert gecli(*line).returncode == 0
    loaded = modules_of([*line, "--quiet", "-o", f"{tmp_path}/out"])
    rules = ("gecli.layout.platform", "gecli.layout.storage_shape", "gecli.layout.transfer", "gecli.ops.raw_types")
    assert "gecli.runtime.checkpoint" in loaded and [name for name in rules if name in loaded] == []
