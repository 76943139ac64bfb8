"""Graph keys: the rule, placeholders for several models, and the automatic key (cache.md 1.4, 11.5)."""

from __future__ import annotations

MAX_LENGTH = 128
ALPHABET = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
AUTO_NAME_LENGTH = 40
AUTO_HEX_DIGITS = 32


def is_graph_key(text: str) -> bool:
    """GE: IsMatchFileName. The whole text is 1 to 128 ASCII letters, digits, `_` and `-`."""
    return 0 < len(text) <= MAX_LENGTH and ALPHABET.issuperset(text)


def clean(text: str) -> str:
    """Text with every character that keys do not allow replaced by `_`."""
    return "".join(char if char in ALPHABET else "_" for char in text)


def has_placeholder(template: str) -> bool:
    """Whether several models get different keys from one --graph-key."""
    return "{stem}" in template or "{n}" in template


def expanded(template: str, stem: str, number: int) -> str:
    """The key of one model: `{stem}` is the output's stem, `{n}` the model's position."""
    return template.replace("{stem}", clean(stem)).replace("{n}", str(number))


def auto_key(stem: str, combined: str) -> str:
    """The key of content: `auto-NAME-HEX`, from the model name and the combined fingerprint (`sha256:...`)."""
    name = clean(stem)[:AUTO_NAME_LENGTH] or "graph"
    return f"auto-{name}-{combined.removeprefix('sha256:')[:AUTO_HEX_DIGITS]}"
