"""The command as a process: version, help, errors, colour, exit statuses."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import gecli as package
from gecli.cli import click_group, root
from gecli.cli.console import Console
from gecli.cli.crash import PACKAGES
from gecli.options.argv import scan
from gecli.options.table import SUBCOMMANDS
from tests.conftest import REPOSITORY

Run = Callable[..., "subprocess.CompletedProcess[str]"]
HELP_PAGES = ["", "cache", *SUBCOMMANDS]


def test_version_is_one_line(gecli: Run) -> None:
    result = gecli("--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"gecli {package.__version__}\n", "")


@pytest.mark.parametrize("page", HELP_PAGES)
@pytest.mark.parametrize("switch", ["--help", "--help-all"])
def test_help_is_the_golden_text(page: str, switch: str, gecli: Run, golden: Callable[[str, str], None]) -> None:
    result = gecli(*page.split(), switch)
    assert (result.returncode, result.stderr) == (0, "")
    name = "-".join(["gecli", *page.split()])
    golden(f"help/{name}{switch}.txt", result.stdout)


@pytest.mark.parametrize("page", HELP_PAGES)
def test_help_fits_80_columns_and_has_three_examples(page: str, gecli: Run) -> None:
    text = gecli(*page.split(), "-h").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("\n  gecli ") >= 3


def test_all_problems_of_a_command_line_are_reported_at_once(gecli: Run, tmp_path: Path) -> None:
    (tmp_path / "raw.json").write_text('{"compile options": {"global": {"ge.nosuch": "1", "ge.oo.level": "O7"}}}')
    words = ["m.onnx", "--bufer_optimize=x", "--mode=9", "--dynamic_dims=1,2;3,4", "--raw_ge_options=raw.json"]
    words += ["--no-session", "--session-in=s"]
    result = gecli("compile", *words)
    assert result.returncode == 2
    assert result.stdout == ""
    heads = [line for line in result.stderr.splitlines() if line.startswith("error")]
    assert heads == [
        "error[E10055]: unknown option --bufer_optimize",
        'error[E10001]: value "9" for --mode is invalid',
        "error[E10055]: --dynamic-dims is not supported",
        'error[E10055]: unknown GE option "ge.nosuch"',
        'error[E10001]: value "O7" for --oo-level is invalid',
        "error[E10047]: --no-session excludes --session-in and --session-out",
        "error[E10054]: required option --output is missing",
    ]


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["compile", "m", "-o", "x", "--bufer_optimize=l1"], "--buffer-optimize=l1"),
        (["compile", "m", "-o", "x", "--soc=Ascend310"], "--soc-version=Ascend310"),
        (["compile", "m", "-o", "x", "--loop=3"], "gecli run --loop=3"),
        (["compile", "m", "-o", "x", "--ge.oo.level=O1"], "--ge-option ge.oo.level=O1"),
        (["cmpile", "m"], "gecli compile"),
        (["cache", "lss"], "gecli cache ls"),
        (["compile", "m", "-o", "x", "--ge-option", "ge.oo.levle=O1"], "ge.oo.level=O1"),
        (["compile", "m", "-o", "x", "--oo-level", "O4"], "--oo-level O0 or --oo-level O1 or --oo-level O3"),
    ],
)
def test_a_misspelt_word_gets_the_near_one(words: list[str], advice: str, gecli: Run) -> None:
    result = gecli(*words)
    assert result.returncode == 2
    assert f"  do:  {advice}" in result.stderr.splitlines()


def test_a_refused_option_says_what_to_do_and_can_be_recorded(gecli: Run) -> None:
    refused = gecli("compile", "m", "-o", "x", "--cal_conf=c", "--show-config")
    assert refused.returncode == 2
    assert "it needs the AMCT library; quantise the model before compiling" in refused.stderr
    recorded = gecli("compile", "m", "-o", "x", "--cal_conf=c", "--show-config", "--ignore-unsupported")
    assert recorded.returncode == 0
    assert "warning[E10055]: --cal-conf is not supported; recorded without effect" in recorded.stderr


def test_an_error_with_json_is_one_document_on_stdout(gecli: Run) -> None:
    result = gecli("compile", "--json", "--mode", "x")
    document = json.loads(result.stdout)
    assert result.returncode == 2
    assert document["schema"] == "gecli.compile/1"
    assert document["ok"] is False
    assert [error["code"] for error in document["errors"]] == ["E10054", "E10001", "E10054"]
    assert document["errors"][1]["actual"] == "x"


@pytest.mark.parametrize(
    ("env", "words", "colored"),
    [
        ({}, [], False),
        ({"FORCE_COLOR": "1"}, [], True),
        ({"FORCE_COLOR": ""}, [], False),
        ({"FORCE_COLOR": "1"}, ["--color=never"], False),
        ({"NO_COLOR": "1"}, ["--color=always"], True),
        ({"NO_COLOR": "1"}, [], False),
    ],
)
def test_colour_follows_option_then_variables_then_terminal(
    env: dict[str, str], words: list[str], colored: bool, gecli: Run
) -> None:
    assert ("\x1b[" in gecli("explain", "X1", *words, env=env).stderr) is colored


def test_global_options_stand_before_or_after_the_command(gecli: Run) -> None:
    before = gecli("--json", "--color", "never", "explain", "E10016")
    after = gecli("explain", "E10016", "--color=never", "--json")
    assert before.returncode == 0
    assert before.stdout == after.stdout
    assert json.loads(before.stdout)["codes"][0]["exit_statuses"] == [2]


def test_explain_shows_cause_remedy_and_status(gecli: Run) -> None:
    result = gecli("explain", "g4003")
    assert result.returncode == 0
    assert result.stdout.splitlines()[0] == "G4003: external weight is missing"
    assert "Exit status: 6" in result.stdout


@pytest.mark.parametrize("words", [[], ["all"]])
def test_explain_without_a_code_lists_all_of_them(words: list[str], gecli: Run) -> None:
    from gecli.error_catalog import CATALOGUE

    result = gecli("explain", *words)
    assert (result.returncode, result.stderr) == (0, "")
    assert [line.split("  ")[0] for line in result.stdout.splitlines()] == sorted(CATALOGUE)
    codes = json.loads(gecli("explain", *words, "--json").stdout)["codes"]
    assert [entry["code"] for entry in codes] == sorted(CATALOGUE) and all(entry["cause"] for entry in codes)


def test_explain_of_an_unknown_code_names_similar_ones(gecli: Run) -> None:
    result = gecli("explain", "E10015")
    assert result.returncode == 2
    assert "why: similar codes: E10014, E10016, E10013" in result.stderr


@pytest.mark.parametrize(
    ("name", "codes"),
    [("RT_VAR_DESC_MISMATCH", ["G4011"]), ("rt_rw_race", ["G4012"]), ("RT_VAR_NOT_FOUND", ["G4008", "G4010"])],
)
def test_explain_knows_the_short_names_of_faults(name: str, codes: list[str], gecli: Run) -> None:
    document = json.loads(gecli("explain", name, "--json").stdout)
    assert [entry["code"] for entry in document["codes"]] == codes


def test_explain_of_an_unknown_short_name_names_similar_ones(gecli: Run) -> None:
    result = gecli("explain", "RT_VAR_DESC_MISMATCHED")
    assert result.returncode == 2
    assert "why: similar names: RT_VAR_DESC_MISMATCH" in result.stderr


@pytest.mark.parametrize("word", ["foo", "E11xxx", "E"])
def test_explain_of_what_is_no_code_says_what_a_code_looks_like(word: str, gecli: Run) -> None:
    result = gecli("explain", word)
    assert result.returncode == 2
    assert "why: a code is E, W or G with digits behind it" in result.stderr
    assert "do:  gecli explain E10016" in result.stderr


def test_a_closed_stdout_ends_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gecli", "compile", "--help-all"]
    cwd = Path(package.__file__).parent.parent
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.wait(60) in (0, 141)
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize(
    "line",
    [
        "compile a.onnx -o b.om --train --input-shape=x:1,3 --input-shape y:2 -vv --no-variable-acc",
        "compile -ob.om --json --color never -- -a.onnx b.onnx",
        "run a.om -i x.npy --input y=3 --loop=4 --quiet -o -",
        "--json=true run --fill zeros a.om",
    ],
)
def test_a_line_without_problems_reaches_its_command_as_click_would_hand_it_over(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(click_group, "body_of", lambda subcommand: lambda invocation: seen.append(invocation) or 0)
    monkeypatch.setattr(root, "body_of", click_group.body_of)
    found = scan(line.split())
    assert found.problems == []
    assert root.dispatch(found, Console()) == 0
    assert click_group.dispatch_through_click(found, Console()) == 0
    direct, through_click = seen
    assert direct.typed == through_click.typed
    assert direct.operands == through_click.operands


STOPPED = """
import sys, time, types
publish = types.ModuleType("gecli.artifacts.publish")
publish.remove_temporaries = lambda: print("cleaned", flush=True)
sys.modules["gecli.artifacts.publish"] = publish
import gecli.cli.root
def dispatch(scan, console):
    print("ready", flush=True)
    time.sleep(60)
gecli.cli.root.dispatch = dispatch
sys.argv = ["gecli", "compile", "m", "-o", "x"]
from gecli.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_removes_temporary_files_and_sets_the_status(number: signal.Signals, status: int) -> None:
    cwd = Path(package.__file__).parent.parent
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.05)
        process.send_signal(number)
        assert process.stdout.read() == "cleaned\n"
        assert "Traceback" not in process.stderr.read()
    assert process.returncode == status


CRASH = """
import sys
import gecli.cli.root
def dispatch(scan, console):
    raise RuntimeError("boom")
gecli.cli.root.dispatch = dispatch
sys.argv = ["gecli", "compile", "m", "-o", "x"]
from gecli.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("debug", [False, True])
def test_a_bug_names_its_crash_report_and_shows_the_traceback_only_for_debugging(debug: bool, tmp_path: Path) -> None:
    cwd = Path(package.__file__).parent.parent
    env = {"TMPDIR": str(tmp_path), **({"GECLI_DEBUG": "1"} if debug else {})}
    result = subprocess.run([sys.executable, "-c", CRASH], cwd=cwd, env=env, capture_output=True, text=True)
    assert result.returncode == 70
    assert "error[G9999]: gecli met a case that it does not handle" in result.stderr
    assert ("Traceback" in result.stderr) is debug
    (report,) = tmp_path.glob("gecli-crash-*.txt")
    assert str(report) in result.stderr
    assert "RuntimeError: boom" in report.read_text()


MISSING = """
import sys
from importlib.abc import MetaPathFinder
class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == missing:
            raise fault
missing, kind = sys.argv[1:3]
fault = ImportError("a.so: bad")
if kind == "missing":
    fault = ModuleNotFoundError(f"No module named {missing!r}", name=missing)
sys.meta_path.insert(0, Missing())
sys.argv[1:] = sys.argv[3:]
from gecli.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("module", "kind", "package"),
    [
        ("numpy", "missing", "numpy"),
        ("networkx", "missing", "networkx"),
        ("google.protobuf", "missing", "protobuf"),
        ("numpy._core._multiarray_umath", "broken", "numpy"),
        ("gecli.loading", "missing", "gecli"),
    ],
)
def test_a_package_that_is_missing_or_broken_is_named_with_the_cure(
    module: str, kind: str, package: str, tmp_path: Path
) -> None:
    words = ("compile", str(REPOSITORY / "samples/digits/digits.onnx"), "-o", str(tmp_path / "d"))
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", MISSING, module, kind, *words], cwd=REPOSITORY, env=env, capture_output=True, text=True
    )
    assert result.returncode == 70, result.stderr
    fault = f"the installation of gecli is incomplete: {package} cannot be loaded"
    assert result.stderr.startswith(f"error[G9001]: {fault}\n")
    assert (module if kind == "missing" else "a.so: bad") in result.stderr
    assert "pip install --force-reinstall gecli" in result.stderr and "issue tracker" not in result.stderr
    assert not list(tmp_path.glob("gecli-crash-*"))


def test_the_packages_that_a_crash_names_are_those_that_gecli_depends_on() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert sorted(PACKAGES.values()) == sorted(re.split("[><=]", each)[0] for each in project["dependencies"])


def test_atc_compat_speaks_as_atc(gecli: Run) -> None:
    result = gecli("compile", "--atc-compat", "--model=m", "--output=x", "--mode=9")
    assert result.returncode == 255
    lines = result.stdout.splitlines()
    assert lines[0] == "ATC start working now, please wait for a moment."
    assert lines[1].startswith("ATC run failed, Please check the detail log")
    assert [line.partition(":")[0] for line in lines[2:] if line[0] == "E"] == ["E10001", "E10054"]


def test_werror_makes_option_warnings_errors(gecli: Run) -> None:
    words = ["compile", "m", "-o", "x", "-o", "y", "--show-config"]
    assert gecli(*words).returncode == 0
    result = gecli(*words, "--werror")
    assert result.returncode == 2
    assert 'error[E10001]: --output is given twice: "x" and "y"; the last one is used' in result.stderr


def test_a_bad_environment_variable_is_named(gecli: Run) -> None:
    env = {"GECLI_CACHE_MODE": "rx", "SOURCE_DATE_EPOCH": "now"}
    result = gecli("compile", "m", "-o", "x", "--show-config", env=env)
    assert result.returncode == 2
    assert 'error[E13024]: value "rx" for GECLI_CACHE_MODE is invalid' in result.stderr
    assert 'error[E13024]: value "now" for SOURCE_DATE_EPOCH is invalid' in result.stderr


def test_a_log_file_has_everything_whatever_the_screen_shows(gecli: Run, tmp_path: Path) -> None:
    words = ["-q", "compile", "m", "-o", "x", "--sparsity=1", "--show-config", "--log-file", "log.txt"]
    result = gecli(*words)
    assert (result.returncode, result.stderr) == (0, "")
    assert "recorded, no effect here: sparsity" in (tmp_path / "log.txt").read_text()
