"""The member `report` of a sidecar: whether a hit can say what it says (cache.md 11.2). Loads no library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Checks = Mapping[str, Callable[[Any], bool]]
LIMIT = 1 << 63
MEMORY_NUMBERS = ("feature_bytes", "reusable_bytes", "lower_bound_bytes", "weight_bytes") + (
    "variable_bytes",
    "variable_base",
    "streams",
    "events",
)
SEVERITIES = ("error", "warning", "note")


def report_fault(report: object) -> str:
    """What is wrong with a report, as the end of a sentence; empty when nothing is. Members not known are let be."""
    if not isinstance(report, dict):
        return "report is no object"
    for name, value in report.items():
        check = _MEMBERS.get(name)
        if check is not None and not check(value):
            return f"report.{name} has the wrong form"
    return ""


def _text(value: object) -> bool:
    return isinstance(value, str)


def _text_or_none(value: object) -> bool:
    return value is None or isinstance(value, str)


def _number(value: object) -> bool:
    return type(value) is int and -LIMIT <= value < LIMIT


def _size(value: object) -> bool:
    return type(value) is int and 0 <= value < LIMIT


def _number_or_none(value: object) -> bool:
    return value is None or _number(value)


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _shape(value: object) -> bool:
    return isinstance(value, list) and all(map(_number, value))


_TENSOR: Checks = {"name": _text, "dtype": _text, "format": _text, "shape": _shape}
_BLOCK: Checks = {
    "dtype": _text,
    "format": _text,
    "shape": _shape,
    "logical_address": _size,
    "offset": _size,
    "bytes": _size,
    "in_use": _flag,
}
_VARIABLE: Checks = {
    **_TENSOR,
    "declared_dtype": _text,
    "declared_format": _text,
    "declared_shape": _shape,
    "logical_address": _size,
    "size_bytes": _size,
    "road": _texts,
    "lossy": _flag,
    "changed_here": _flag,
    "init_converted": _flag,
    "blocks": lambda value: _rows(value, _BLOCK),
}
_VERIFICATION: Checks = {
    **dict.fromkeys(("passes", "unchecked", "variables"), _texts),
    **dict.fromkeys(("seed", "outputs"), _size),
    **dict.fromkeys(("unknown_dims", "integers_below"), _number_or_none),
    "result": _text,
    "reason": _text_or_none,
}
_WARNING: Checks = {"code": _text, "message": _text}
_WARNING_EXTRAS: Checks = {
    **dict.fromkeys(("where", "why", "do", "kind"), _text),
    **dict.fromkeys(("option", "file", "node", "stage", "pointer"), _text_or_none),
    "severity": lambda value: value in SEVERITIES if isinstance(value, str) else False,
    "offset": _number_or_none,
    "expected": lambda value: True,
    "actual": lambda value: True,
}


def _has(row: object, checks: Checks) -> bool:
    """Whether an object has every one of these members, each of the right form."""
    return isinstance(row, dict) and all(name in row and check(row[name]) for name, check in checks.items())


def _rows(value: Any, checks: Checks) -> bool:
    return isinstance(value, list) and all(_has(row, checks) for row in value)


def _memory(value: object) -> bool:
    """Sizes may be missing: what the entry of a lost sidecar does not say is not known."""
    if not isinstance(value, dict) or not value:
        return False
    return all(_text(each) if name == "order" else _size(each) for name, each in value.items())


def _cause(value: object) -> bool:
    return value is None or _has(value, {"node": _text, "type": _text, "why": _text})


def _warnings(value: object) -> bool:
    """A warning becomes a Diagnostic, which takes no other member."""
    if not _rows(value, _WARNING) or not isinstance(value, list):
        return False
    return all(
        name in _WARNING or (name in _WARNING_EXTRAS and _WARNING_EXTRAS[name](each))
        for row in value
        for name, each in row.items()
    )


_MEMBERS: Checks = {
    "front_end": _text,
    "inputs": lambda value: _rows(value, _TENSOR),
    "outputs": lambda value: _rows(value, _TENSOR),
    "variables": lambda value: _rows(value, _VARIABLE),
    "memory": _memory,
    "node_count": _size,
    "is_dynamic": _flag,
    "dynamic_cause": _cause,
    "notes": _texts,
    "verification": lambda value: value is None or _has(value, _VERIFICATION),
    "warnings": _warnings,
}
