"""Canonical JSON and digests over it; what every fingerprint is made of (cache.md 11.3)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

ARTIFACT_SCHEMA = 2  # raised when the same graph and options give other bytes


def digest_of(head: str, *parts: str) -> str:
    """`sha256:` of the lines `head` and `parts`."""
    return "sha256:" + hashlib.sha256("\n".join((head, *parts)).encode("utf-8", "surrogateescape")).hexdigest()


def digest_of_json(value: Any) -> str:
    return "sha256:" + hashlib.sha256(canonical(value)).hexdigest()


def digest_of_large_json(value: Any) -> str:
    """The same, of values whose canonical text shall not lie in memory; this takes ten times as long."""
    digest = hashlib.sha256()
    for piece in _ENCODER.iterencode(value):
        digest.update(piece.encode("utf-8", "surrogatepass"))
    return "sha256:" + digest.hexdigest()


def canonical(value: Any) -> bytes:
    """Canonical JSON: sorted keys, no blanks, UTF-8, bytes as their digest."""
    return canonical_text(value).encode("utf-8", "surrogatepass")


def canonical_text(value: Any) -> str:
    return _ENCODER.encode(value)


def plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return f"sha256:{hashlib.sha256(value).hexdigest()}"
    raise TypeError(f"{type(value).__name__} has no canonical form")


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=plain)
