"""docs/operators.md and what the README says of operators are true of the registry."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gecli.ops import make_operator_list
from gecli.ops.index import FAMILY_OF_ONNX, FAMILY_OF_TYPE
from gecli.ops.operator import KINDS
from gecli.ops.registry import find_onnx, load_all

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_list_in_the_documents_is_that_of_the_registry() -> None:
    assert (REPOSITORY / "docs" / "operators.md").read_text(encoding="utf-8") == make_operator_list.list_text()


def test_a_list_that_is_out_of_date_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_operator_list, "PATH", tmp_path / "operators.md")
    assert make_operator_list.main([]) == 0
    assert make_operator_list.main(["--check"]) == 0
    with open(tmp_path / "operators.md", "a", encoding="utf-8") as stream:
        stream.write("Loop\n")
    assert make_operator_list.main(["--check"]) == 1


def test_every_listed_opset_has_an_importer() -> None:
    rows = re.findall(r"^\| ([\w.]+) \| ([\d, -]+) \|", make_operator_list.list_text(), re.MULTILINE)
    assert len(rows) == len(FAMILY_OF_ONNX)
    for shown, opsets in rows:
        domain, _, op = shown.rpartition(".")
        assert all(find_onnx(op, domain, int(each.partition("-")[0])) for each in opsets.split(", ")), shown


def test_the_readme_names_operators_as_supported_that_are() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (dynamic,) = re.findall(r"depend on values \(([^)]*)\)", readme)
    assert all(("", name) in FAMILY_OF_ONNX or name in FAMILY_OF_TYPE for name in re.findall(r"`(\w+)`", dynamic))
    (absent,) = re.findall(r"ONNX ((?:`\w+`(?: and )?)+) are\s+not among them", readme)
    assert not any(("", name) in FAMILY_OF_ONNX for name in re.findall(r"`(\w+)`", absent))


def test_every_kind_of_attribute_has_words_for_messages() -> None:
    kinds = {annotation for kind in load_all().values() for annotation, _ in kind.attributes.values()}
    assert kinds <= KINDS.keys()
