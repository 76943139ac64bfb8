"""Write `index.py`: `python -m gecli.ops.make_index [--check]`."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from gecli.ops.onnx_import import IMPORTERS
from gecli.ops.operator import REGISTRY

# Modules of this package that hold no operators.
MACHINERY = frozenset(
    [
        "evaluate",
        "index",
        "inference",
        "make_index",
        "make_operator_list",
        "numeric",
        "onnx_import",
        "operator",
        "registry",
        "__init__",
        "__main__",
    ]
)


def families() -> list[str]:
    """The family modules in this folder: those that register an operator or an importer."""
    here = Path(__file__).parent
    return sorted(path.stem for path in here.glob("*.py") if path.stem not in MACHINERY)


def index_text() -> str:
    """The text that `index.py` must have."""
    of_type: dict[str, str] = {}
    of_onnx: dict[tuple[str, str], list[str]] = {}
    holding: list[str] = []
    for family in families():
        module = import_module(f"gecli.ops.{family}").__name__
        kinds = [(name, kind) for name, kind in REGISTRY.items() if kind.cls.__module__ == module]
        imported = [
            key for key, found in IMPORTERS.items() if any(each.function.__module__ == module for each in found)
        ]
        if kinds or imported:
            holding.append(family)
        for name, kind in kinds:
            of_type[name] = family
            for mapping in kind.onnx:
                of_onnx.setdefault((mapping.domain, mapping.op), []).append(family)
        for key in imported:
            of_onnx.setdefault(key, []).append(family)
    lines = [
        '"""Which family file holds which operator type and ONNX mapping;'
        ' written by `python -m gecli.ops.make_index`."""',
        "",
        "from __future__ import annotations",
        "",
        "FAMILIES: tuple[str, ...] = (",
        *(f'    "{family}",' for family in holding),
        ")",
        "",
        "FAMILY_OF_TYPE: dict[str, str] = {",
        *(f'    "{name}": "{of_type[name]}",' for name in sorted(of_type)),
        "}",
        "",
        "FAMILY_OF_ONNX: dict[tuple[str, str], tuple[str, ...]] = {",
    ]
    for domain, op in sorted(of_onnx):
        found_in = sorted(set(of_onnx[(domain, op)]))
        inside = ", ".join(f'"{family}"' for family in found_in)
        lines.append(f'    ("{domain}", "{op}"): ({inside}{"," if len(found_in) == 1 else ""}),')
    lines += ["}", ""]
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    path = Path(__file__).with_name("index.py")
    text = index_text()
    if "--check" in argv:
        if path.read_text() != text:
            print("gecli/ops/index.py is out of date: run python -m gecli.ops.make_index", file=sys.stderr)
            return 1
        return 0
    path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
