"""Configuration files: search, precedence, paths, mistakes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def shown(gecli: Run, *words: str, **kwargs: Any) -> dict[str, tuple[str, str]]:
    result = gecli("compile", "m.onnx", "-o", "x", "--show-config", "--json", "-q", *words, **kwargs)
    assert result.returncode == 0, result.stderr
    return {row["name"]: (row["value"], row["source"]) for row in json.loads(result.stdout)["options"]}


def test_flag_then_environment_then_project_then_user_wins(gecli: Run, tmp_path: Path) -> None:
    user = tmp_path / ".config/gecli/config.toml"
    user.parent.mkdir(parents=True)
    user.write_text('[compile]\nsoc-version = "Ascend310"\noo-level = "O0"\n[cache]\ncache-mode = "debug"\n')
    assert shown(gecli)["soc-version"] == ("Ascend310", "user config")
    (tmp_path / "gecli.toml").write_text('[compile]\nsoc-version = "Ascend310P3"\n[cache]\ncache-mode = "ro"\n')
    assert shown(gecli)["soc-version"] == ("Ascend310P3", "project config")
    assert shown(gecli)["oo-level"] == ("O0", "user config")
    assert shown(gecli)["cache-mode"] == ("ro", "project config")
    assert shown(gecli, env={"GECLI_CACHE_MODE": "refresh"})["cache-mode"] == ("refresh", "environment")
    typed = shown(gecli, "--no-cache", env={"GECLI_CACHE_MODE": "refresh"})
    assert typed["cache-mode"] == ("off", "flag")
    assert shown(gecli, "--no-config")["soc-version"] == ("Ascend910B1", "default")


def test_every_override_is_listed_at_verbose(gecli: Run, tmp_path: Path) -> None:
    (tmp_path / "gecli.toml").write_text('[compile]\nsoc-version = "Ascend310"\n')
    result = gecli("compile", "m", "-o", "x", "--show-config", "-v", "--soc_version=Ascend910A")
    assert "ge.socVersion: Ascend910A (flag) over Ascend310 (project config)" in result.stderr.splitlines()


def test_the_nearest_file_upwards_counts_and_its_paths_start_beside_it(gecli: Run, tmp_path: Path) -> None:
    inner = tmp_path / "a/b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.gecli.cache]\ncache-dir = "build/cache"\n')
    assert shown(gecli, cwd=inner)["cache-dir"] == ("../../build/cache", "project config")
    (tmp_path / "a/gecli.toml").write_text("[compile]\ntrain = true\n")
    found = shown(gecli, cwd=inner)
    assert found["cache-dir"] == ("", "default")
    assert found["train"] == ("true", "project config")


def test_a_profile_and_ge_options_are_read(gecli: Run, tmp_path: Path) -> None:
    (tmp_path / "gecli.toml").write_text(
        '[compile]\nformat-policy = "origin"\n[compile.ge-options]\n"ge.exec.variable_acc" = "False"\n'
        '[compile.profiles.device]\nformat-policy = "device"\nprecision = "force_fp16"\n'
    )
    assert shown(gecli)["format-policy"][0] == "origin"
    found = shown(gecli, "--profile", "device")
    assert found["format-policy"][0] == "device"
    assert found["precision-mode"] == ("force_fp16", "project config")
    assert found["variable-acc"] == ("false", "project config")


def test_mistakes_are_named_with_file_and_line(gecli: Run, tmp_path: Path) -> None:
    (tmp_path / "gecli.toml").write_text('[compile]\n\nsoc-versoin = "x"\noo-level = "O9"\n[complie]\n')
    result = gecli("compile", "m", "-o", "x", "--show-config")
    assert result.returncode == 2
    told = 'error[E10055]: unknown key "complie"\n  --> gecli.toml:5\n  why: gecli reads no such key there\n'
    assert told in result.stderr
    assert 'unknown key "soc-versoin" in [compile]\n  --> gecli.toml:3\n  why: ' in result.stderr
    assert "\n  do:  [compile]\n" in result.stderr
    assert "\n  do:  soc-version\n" in result.stderr
    assert 'value "O9" for --oo-level is invalid\n  --> project config, ge.oo.level\n' in result.stderr


def test_broken_toml_is_an_option_error(gecli: Run, tmp_path: Path) -> None:
    (tmp_path / "gecli.toml").write_text("[compile\n")
    result = gecli("compile", "m", "-o", "x", "--show-config")
    assert result.returncode == 2
    assert 'error[E10032]: configuration file "gecli.toml" is not valid TOML' in result.stderr
    assert gecli("compile", "m", "-o", "x", "--show-config", "--config=none.toml").returncode == 3


HOSTILE = {
    "digits": ("x = 1" + "0" * 6000, "Exceeds the limit"),
    "long key": ("a" + ".a" * 20_000 + " = 1", "a key in line 1 has more than 64 parts"),
    "long key in a table": ("\nx = {a" + '."a"' * 20_000 + " = 1}", "a key in line 2 has more than 64 parts"),
    "many lists": ("x = [" + "[]," * 100_000 + "]", "it has 300006 characters, at most 262144 are read"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_configuration_is_refused_before_it_takes_time_and_memory(
    name: str, gecli: Run, tmp_path: Path
) -> None:
    text, why = HOSTILE[name]
    (tmp_path / "gecli.toml").write_text(text)
    result = gecli("compile", "m", "-o", "x")
    assert (result.returncode, result.stderr.count("error[E10032]")) == (2, 1)
    assert 'configuration file "gecli.toml" is n' in result.stderr and f"why: {why}" in result.stderr


def test_of_very_many_unknown_keys_the_first_are_told(gecli: Run, tmp_path: Path) -> None:
    (tmp_path / "gecli.toml").write_text("".join(f"[a{k}]\n" for k in range(20_000)))
    result = gecli("compile", "m", "-o", "x")
    assert result.returncode == 2 and "[E10055] and 81 more; --json lists 101" in result.stderr


@pytest.mark.parametrize(
    "text",
    ["[compile]\nthreads = []\n", "[compile]\nthreads = {}\n", "[compile]\ninput-shape = [[1]]\n", f"a = {'[' * 3000}"],
    ids=["empty list", "table", "list of lists", "deep"],
)
def test_a_value_of_no_usable_form_is_an_option_error(gecli: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "gecli.toml").write_text(text)
    result = gecli("compile", "m", "-o", "x", "--show-config")
    assert result.returncode == 2
    assert "error[E10032]" in result.stderr


def test_an_options_file_of_a_thousand_lists_is_an_option_error(gecli: Run, tmp_path: Path) -> None:
    (tmp_path / "raw.json").write_text("[" * 5000)
    result = gecli("compile", "m", "-o", "x", "--raw-ge-options", "raw.json")
    assert result.returncode == 2
    assert "is not valid JSON" in result.stderr


def test_a_pyproject_whose_tool_table_is_no_table_is_an_option_error(gecli: Run, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\ngecli = 3\n# [tool.gecli]\n")
    result = gecli("compile", "m", "-o", "x", "--show-config")
    assert result.returncode == 2
    assert "is not a table" in result.stderr
