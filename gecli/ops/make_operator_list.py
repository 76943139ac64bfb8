"""Write `docs/operators.md`: `python -m gecli.ops.make_operator_list [--check]`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from textwrap import fill

from gecli.ops.index import FAMILY_OF_ONNX, FAMILY_OF_TYPE
from gecli.ops.onnx_import import IMPORTERS
from gecli.ops.operator import OperatorType
from gecli.ops.registry import load_all

PATH = Path(__file__).parents[2] / "docs" / "operators.md"
WIDTH = 120
HEAD = """# Operators

Written by `python -m gecli.ops.make_operator_list` from what the program knows; `make generated` checks it.

## ONNX

{onnx} operators are imported. The opsets are those of the model; `8-` is 8 and newer ones. Where a GE type is named the
node becomes one node of that type, else an importer builds what it needs. Functions of a model (its own operators) are
put in place of their calls. What is not listed is refused; one message names all such operators of a model.

| Operator | Opsets | GE type |
|---|---|---|
"""
GE = """
## GE

{types} types may stand in a JSON graph, a single-op file or `gecli.acl.single_op`; several have more names than one.

"""


def list_text() -> str:
    """The text that `docs/operators.md` must have."""
    kinds = load_all()
    head = HEAD.format(onnx=len(FAMILY_OF_ONNX))
    rows = [_row(domain, op, kinds.values()) for domain, op in sorted(FAMILY_OF_ONNX)]
    types = fill(
        ", ".join(f"`{name}`" for name in sorted(FAMILY_OF_TYPE)), WIDTH, break_long_words=False, break_on_hyphens=False
    )
    return head + "\n".join(rows) + "\n" + GE.format(types=len(FAMILY_OF_TYPE)) + types + "\n"


def _row(domain: str, op: str, kinds: Iterable[OperatorType]) -> str:
    found = [
        (mapping.since, mapping.until, kind.name)
        for kind in kinds
        for mapping in kind.onnx
        if (mapping.domain, mapping.op) == (domain, op)
    ]
    found += [(each.since, each.until, "") for each in IMPORTERS.get((domain, op), ())]
    found.sort(key=lambda row: (row[0], row[2]))
    opsets = list(dict.fromkeys(f"{since}-{'' if until is None else until}" for since, until, _ in found))
    types = sorted({name for *_, name in found if name})
    shown = f"{domain}.{op}" if domain else op
    return f"| {shown} | {', '.join(opsets)} | {', '.join(types)} |".replace("|  |", "| |")


def main(argv: list[str]) -> int:
    text = list_text()
    if "--check" not in argv:
        PATH.write_text(text, encoding="utf-8")
        return 0
    if PATH.read_text(encoding="utf-8") == text:
        return 0
    print("docs/operators.md is out of date: run python -m gecli.ops.make_operator_list", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
