"""Codes that many faults share say why this one happened, in words of this one."""

from __future__ import annotations

import pytest

from gecli.error_catalog import CATALOGUE
from gecli.errors import InvalidOption
from gecli.options.argv import scan
from gecli.options.resolution import resolve
from gecli.options.table import CACHE_SUBCOMMANDS


@pytest.mark.parametrize(
    ("words", "why", "do"),
    [
        (["compil", "x"], "the commands are compile, inspect-om, run, cache, explain, completion", "gecli compile"),
        (["frobnicate"], "the commands are compile, inspect-om, run, cache, explain, completion", "gecli --help"),
        (["cache", "lss"], f"one of {', '.join(CACHE_SUBCOMMANDS)}", "gecli cache ls"),
        (["run", "a.om", "--frobnicate"], "gecli run has no such option", "gecli run --help"),
        (["--frobnicate"], "gecli has no such option", "gecli --help"),
    ],
)
def test_an_unknown_word_is_answered_with_what_there_is(words: list[str], why: str, do: str) -> None:
    [problem] = scan(words).problems
    assert (problem.reason(), problem.remedy()) == (why, do)
    assert problem.reason() != CATALOGUE[problem.code].cause


@pytest.mark.parametrize(
    ("words", "do"),
    [
        (["--om=X", "--mode=1", "--json=F"], "gecli compile --mode=1 --om=X --json=F, or "
         "gecli inspect-om X --atc-json -o F"),
        (["--mode", "1", "--om", "X"], "gecli compile --mode=1 --om=X --json=OUT.json, or "
         "gecli inspect-om X --atc-json -o OUT.json"),
        (["X.om", "--mode=6"], "gecli compile --mode=6 --om=X.om, or gecli inspect-om X.om --info"),
    ],
)  # fmt: skip
def test_the_spelling_of_atc_is_answered_with_the_whole_command(words: list[str], do: str) -> None:
    unknown = [each for each in scan(["inspect-om", *words]).problems if each.message.startswith("unknown option")]
    assert unknown and {each.remedy() for each in unknown} == {do}


@pytest.mark.parametrize(
    ("subcommand", "key", "text", "do"),
    [
        ("cache gc", "max-age", "2x", "--max-age 30d"),
        ("cache gc", "max-size", "2q", "--max-size 512M"),
        ("cache gc", "keep-last", "x", "--keep-last 1"),
        ("cache gc", "grace", "soon", "--grace 30d"),
        ("run", "seed", "x", "--seed 1"),
        ("run", "loop", "0", "--loop 1"),
        ("compile", "lock-timeout", "x", "--lock-timeout 60"),
        ("compile", "ge.externalWeight", "7", "--external-weight 0"),
    ],
)
def test_a_bad_value_gets_one_that_can_be_copied(subcommand: str, key: str, text: str, do: str) -> None:
    required = {"output": ("x",)} if subcommand == "compile" else {}
    with pytest.raises(InvalidOption) as caught:
        resolve(subcommand, {**required, key: (text,)})
    assert caught.value.first.remedy() == do
    flag, value = do.split()
    assert flag == f"--{caught.value.first.option}".replace("----", "--")
    resolve(subcommand, {**required, key: (value,)})
