"""Rewriting of command lines: every form that the old parser took."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecli.options import SUBCOMMANDS, normalise_argv, options_of, scan
from gecli.options.global_table import GLOBAL_OPTIONS


@pytest.mark.parametrize(
    ("line", "canonical"),
    [
        ("compile m --soc-version=A", "compile --soc-version=A -- m"),
        ("compile m --soc_version=A", "compile --soc-version=A -- m"),
        ("compile m -soc_version=A", "compile --soc-version=A -- m"),
        ("compile m --soc_version A", "compile --soc-version=A -- m"),
        ("compile --model=m --output=x", "compile --model=m --output=x"),
        ("compile m -ox", "compile --output=x -- m"),
        ("compile m -o x", "compile --output=x -- m"),
        ("compile m -o=x", "compile --output=x -- m"),
        ("compile m --train", "compile --train=true -- m"),
        ("compile --train m", "compile --train=true -- m"),
        ("compile --train False m", "compile --train=False -- m"),
        ("compile m --raw_ge_options_ignore_unsupported Y", "compile --raw-ge-options-ignore-unsupported=Y -- m"),
        ("compile m --no-variable-acc", "compile --variable-acc=false -- m"),
        ("compile m --no-cache", "compile --cache-mode=off -- m"),
        ("compile m --cache-mode ro --no-cache", "compile --cache-mode=off -- m"),
        ("compile m --gears-batch 1,8", "compile --dynamic-batch-size=1,8 -- m"),
        ("compile m --precision force_fp16", "compile --precision-mode=force_fp16 -- m"),
        ("compile m --precision mixed_float16", "compile --precision-mode-v2=mixed_float16 -- m"),
        ("compile m --target Ascend310", "compile --soc-version=Ascend310 -- m"),
        ("compile m --target mini", "compile -- m"),
        ("compile m --input_shape x:-1,3", "compile --input-shape=x:-1,3 -- m"),
        ("compile m --optypelist_for_implmode -a_b", "compile --optypelist-for-implmode=-a_b -- m"),
        ("compile m --input-shape a:1 --input-shape b:2", "compile --input-shape=a:1 --input-shape=b:2 -- m"),
        ("compile m --json=f.json --mode=1", "compile --json-file=f.json --mode=1 -- m"),
        ("compile m --json", "compile --json=true -- m"),
        ("-v compile m -vv", "compile --verbose=3 -- m"),
        ("--color never compile m", "compile --color=never -- m"),
        ("compile -- --odd", "compile -- --odd"),
        ("compile - -o x", "compile --output=x -- -"),
        ("run a.om -i x.npy -i y.npy --dymBatch 4", "run --input=x.npy --input=y.npy --dym-batch=4 -- a.om"),
        ("run a.om --outfmt BIN", "run --output-format=BIN -- a.om"),
        ("-q cache --cache-dir d gc --all", "cache gc --quiet=true --cache-dir=d --all=true"),
    ],
)
def test_a_line_becomes_canonical(line: str, canonical: str) -> None:
    words, found = normalise_argv(line.split())
    assert " ".join(words) == canonical
    assert [diagnostic for diagnostic in found if diagnostic.severity == "error"] == []


def test_a_canonical_line_stays_as_it_is() -> None:
    first, _ = normalise_argv(
        ["-v", "compile", "m", "-soc_version=A", "--train", "--no-cache", "--dim", "a=1", "--dim", "b=2"]
    )
    again, _ = normalise_argv(first)
    assert again == first


@pytest.mark.parametrize("quoted", ['--soc_version="Ascend310"', "--soc_version='Ascend310'"])
def test_quotes_that_reached_the_program_are_removed_with_a_warning(quoted: str) -> None:
    found = scan(["compile", "m", quoted])
    assert found.typed["ge.socVersion"] == ["Ascend310"]
    assert [warning.severity for warning in found.warnings] == ["warning"]


def test_of_two_values_the_last_is_used_with_a_warning_that_names_both() -> None:
    found = scan(["compile", "m", "--soc_version=A", "--soc-version=B"])
    assert found.typed["ge.socVersion"] == ["B"]
    assert found.warnings[0].message == '--soc-version is given twice: "A" and "B"; the last one is used'


def test_a_prefix_is_not_accepted_and_the_full_name_is_shown() -> None:
    found = scan(["compile", "m", "--soc=A"])
    assert found.typed == {}
    assert found.problems[0].do == "--soc-version=A"


@pytest.mark.parametrize("word", ["--json=f.json"])
def test_json_with_a_file_belongs_to_compile(word: str) -> None:
    assert "output path of gecli compile" in scan(["run", "a.om", word]).problems[0].why


def test_an_option_without_its_value_is_an_error() -> None:
    assert scan(["compile", "m", "-o"]).problems[0].code == "E10004"


@pytest.mark.parametrize("following", ["--json", "--quiet=true", "--log_file=x", "-o", "-q", "-vv", "--no-hash"])
def test_an_option_behind_an_option_is_not_its_value(following: str) -> None:
    found = scan(["inspect-om", "m.om", "--hex", following, "out.txt"])
    assert [(each.code, each.message) for each in found.problems] == [("E10004", "option --hex needs a value")]
    assert following.partition("=")[0] in found.problems[0].why
    assert "hex" not in found.typed and len(found.typed) == 1


@pytest.mark.parametrize("value", ["-", "--", "-1,3,8,8", "-inf", "--no-such-option", "part"])
def test_a_word_that_is_no_option_is_a_value(value: str) -> None:
    found = scan(["inspect-om", "m.om", "--hex", value])
    assert (found.typed, found.problems) == ({"hex": [value]}, [])


def test_behind_an_equals_sign_everything_is_a_value() -> None:
    found = scan(["inspect-om", "m.om", "--hex=--json", "-o=--json"])
    assert (found.typed, found.problems) == ({"hex": ["--json"], "output": ["--json"]}, [])


@given(st.lists(st.text(max_size=8), max_size=6))
def test_any_words_are_taken_apart_without_an_exception(words: list[str]) -> None:
    scan(["compile", *words])
    scan(words)


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_every_option_is_unambiguous(subcommand: str) -> None:
    options = (*GLOBAL_OPTIONS, *options_of(subcommand))
    names = [
        name for option in options if option.flag for name in (option.name, option.negative, option.letter) if name
    ]
    names += [alias.replace("_", "-") for option in options for alias in option.aliases]
    names += [name for option in options for name, _ in option.shorthands]
    ge_names = [name for option in options_of(subcommand) for name in option.ge_names]
    keys = [option.key for option in options]
    for found in (names, ge_names, keys):
        assert sorted(found) == sorted(set(found))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2", 2),
        ("0", 0),
        ("true", 1),
        ("false", 0),
        ("\u00b2", None),
        ("\u0663", None),
        ("9" * 5000, None),
        ("x", None),
        ("", None),
        ("-1", None),
    ],
)
def test_verbose_takes_a_small_whole_number(text: str, count: int | None) -> None:
    found = scan(["compile", "m", f"--verbose={text}"])
    assert [each.code for each in found.problems] == ([] if count is not None else ["E10003"])
    assert found.verbosity == (count or 0)
    assert all(len(each.message) < 100 for each in found.problems)
