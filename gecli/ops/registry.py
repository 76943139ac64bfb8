"""Looking up operator types and ONNX mappings; family modules are imported when one of their types is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gecli.ir.op_desc import OpDesc
from gecli.ops.index import FAMILIES, FAMILY_OF_ONNX, FAMILY_OF_TYPE
from gecli.ops.onnx_import import IMPORTERS, Importer
from gecli.ops.operator import REGISTRY, From, OperatorType, instance


def find(type: str) -> OperatorType | None:
    """The definition of a GE operator type; None when gecli does not know it."""
    found = REGISTRY.get(type)
    if found is None and type in FAMILY_OF_TYPE:
        import_module(f"gecli.ops.{FAMILY_OF_TYPE[type]}")
        found = REGISTRY.get(type)
    return found


def operator_of(node: OpDesc) -> Any | None:
    """The operator object of a node (see `operator.instance`); None for unknown types."""
    kind = find(node.type)
    return None if kind is None else instance(kind, node)


def find_onnx(op: str, domain: str, opset: int) -> tuple[OperatorType, From] | Importer | None:
    """How an ONNX operator of this opset is imported: a one-to-one mapping, an importer function, or not at all.

    Where several hold, the one with the highest `since` not above `opset` wins.
    """
    for family in FAMILY_OF_ONNX.get((domain, op), ()):
        import_module(f"gecli.ops.{family}")
    best: tuple[OperatorType, From] | Importer | None = None
    best_since = 0
    for kind, mapping in _mappings_of(domain, op):
        if best_since < mapping.since <= opset and (mapping.until is None or opset <= mapping.until):
            best, best_since = (kind, mapping), mapping.since
    for importer in IMPORTERS.get((domain, op), ()):
        if best_since < importer.since <= opset and (importer.until is None or opset <= importer.until):
            best, best_since = importer, importer.since
    return best


def load_all() -> dict[str, OperatorType]:
    """Import every family; for documentation, tests and suggestions."""
    for family in FAMILIES:
        import_module(f"gecli.ops.{family}")
    return dict(REGISTRY)


_MAPPINGS: dict[tuple[str, str], list[tuple[OperatorType, From]]] = {}
_indexed = 0


def _mappings_of(domain: str, op: str) -> list[tuple[OperatorType, From]]:
    global _indexed
    if _indexed != len(REGISTRY):
        _MAPPINGS.clear()
        for kind in REGISTRY.values():
            for mapping in kind.onnx:
                _MAPPINGS.setdefault((mapping.domain, mapping.op), []).append((kind, mapping))
        _indexed = len(REGISTRY)
    return _MAPPINGS.get((domain, op), [])
