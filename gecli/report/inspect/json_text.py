"""JSON text of documents whose long lists are made while they are written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gecli.report.inspect.view import Rows

INDENT = "  "


def json_chunks(value: Any, *, ascii_only: bool = False, pad: str = "") -> Iterator[str]:
    """The text of `value` in pieces: two-space indent, sorted keys, no newline at the end.

    NaN and infinities are the strings nan, inf and -inf: JSON has no numbers for them.
    """
    inner = pad + INDENT
    if isinstance(value, Mapping) and _holds_rows(value):
        mark = "{\n"
        for key in sorted(value):
            yield f"{mark}{inner}{json.dumps(key, ensure_ascii=ascii_only)}: "
            yield from json_chunks(value[key], ascii_only=ascii_only, pad=inner)
            mark = ",\n"
        yield f"\n{pad}}}" if value else "{}"
    elif isinstance(value, Rows) or (isinstance(value, list) and any(map(_holds_rows, value))):
        mark = "[\n"
        for item in value:
            yield mark + inner
            yield from json_chunks(item, ascii_only=ascii_only, pad=inner)
            mark = ",\n"
        yield f"\n{pad}]" if mark == ",\n" else "[]"
    else:
        text = _text(value, ascii_only)
        yield text.replace("\n", "\n" + pad) if pad else text


def _holds_rows(value: Any) -> bool:
    """Whether a lazy list is somewhere below; looked for only along dictionaries and lists of dictionaries."""
    if isinstance(value, Rows):
        return True
    if isinstance(value, Mapping):
        return any(_holds_rows(item) for item in value.values())
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping) and any(map(_holds_rows, value))


def _text(value: Any, ascii_only: bool) -> str:
    try:
        return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=ascii_only, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), indent=2, sort_keys=True, ensure_ascii=ascii_only, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and value - value != 0:
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
