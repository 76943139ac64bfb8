"""The catalogue: statuses of the specification, texts, nearest codes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import gecli
from gecli.error_catalog import CATALOGUE, exit_status_of, explain_text, similar_codes
from gecli.error_catalog.short_names import CODES_OF_NAMES


@pytest.mark.parametrize(
    ("code", "kind", "status"),
    [
        ("E10016", "", 2), ("E10024", "", 3), ("E10041", "", 3), ("E11003", "", 3), ("E13001", "", 3),
        ("E13001", "RT_WEIGHT_MISSING", 6), ("E13004", "", 5), ("E13025", "RT_INPUT_SIZE", 6), ("E13026", "", 2),
        ("E14001", "", 4), ("G2010", "VAR_KEY_CONFLICT", 4), ("G3003", "bad-table", 3),
        ("G4010", "RT_ADDR_UNASSIGNED", 3), ("G4010", "RT_VAR_NOT_FOUND", 6), ("G4011", "RT_VAR_DESC_MISMATCH", 3),
        ("G4011", "RT_INIT_VALUE_MISMATCH", 6), ("G4012", "RT_REF_MISMATCH", 3), ("G4012", "RT_RW_RACE", 6),
        ("G5001", "lock_timeout", 7), ("G5004", "", 3),
        ("G6002", "", 5), ("G9001", "", 70), ("G9999", "", 70), ("W11001", "", 0),
        ("Z1", "", 70),
    ],
)  # fmt: skip
def test_a_code_has_the_exit_status_of_the_specification(code: str, kind: str, status: int) -> None:
    assert exit_status_of(code, kind) == status


def test_every_code_that_the_program_raises_is_in_the_catalogue() -> None:
    root = Path(gecli.__file__).parent
    used: set[str] = set()
    for path in root.rglob("*.py"):
        if "error_catalog" not in path.parts:
            used |= set(re.findall(r'"([EGW]\d{4,5})"', path.read_text()))
    assert sorted(code for code in used if not explain_text(code)) == []


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_every_entry_has_a_title_cause_and_remedy_in_the_tone_of_the_house(code: str) -> None:
    entry = CATALOGUE[code]
    assert "!" not in "".join(entry[1:])
    assert not entry.title.endswith(".")
    assert entry.cause.endswith(".") and entry.remedy.endswith((".", ".'"))


def test_similar_codes_share_their_beginning() -> None:
    assert similar_codes("G4099") == ["G4016", "G4015", "G4014"]


def short_names_of(path: Path) -> set[tuple[str, str]]:
    """Names and codes that one call of a source file has together."""
    found: set[tuple[str, str]] = set()
    for call in ast.walk(ast.parse(path.read_text())):
        if isinstance(call, ast.Call):
            values = [*call.args, *(keyword.value for keyword in call.keywords)]
            texts = [each.value for each in values if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            codes = [text for text in texts if re.fullmatch(r"[EGW]\d{4,5}", text)]
            names = [text for text in texts if re.fullmatch(r"(RT|VAR)_[A-Z0-9_]+", text)]
            found |= {(name, code) for name in names for code in codes}
    return found


def test_every_short_name_that_the_program_gives_a_fault_leads_to_its_code() -> None:
    root = Path(gecli.__file__).parent
    used = set().union(*(short_names_of(path) for path in root.rglob("*.py") if "error_catalog" not in path.parts))
    assert len(used) > 30
    assert sorted((name, code) for name, code in used if code not in CODES_OF_NAMES.get(name, ())) == []
    assert all(code in CATALOGUE for codes in CODES_OF_NAMES.values() for code in codes)
