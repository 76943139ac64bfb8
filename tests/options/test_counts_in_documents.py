"""Numbers that README, CHANGELOG and the documents state are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gecli.ops.index import FAMILY_OF_ONNX, FAMILY_OF_TYPE

ROOT = Path(__file__).resolve().parents[2]
ONNX_OPERATORS = len({name for domain, name in FAMILY_OF_ONNX if domain in ("", "ai.onnx")})
GE_TYPES = len(FAMILY_OF_TYPE)


def test_the_changelog_counts_operators_as_the_index_does() -> None:
    text = re.sub(r"\s+", " ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    (found,) = re.findall(r"(\d+) ONNX operators and (\d+) GE operator types", text)
    assert found == (str(ONNX_OPERATORS), str(GE_TYPES))


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "docs/architecture.md"])
def test_no_document_counts_what_changes_every_week(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    counted = re.findall(r"\b(?:\d+|eleven|twelve|nineteen|twenty)\s+(?:packages|passes|modules|tests|options)\b", text)
    assert counted == []
