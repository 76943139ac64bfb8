"""Compressed attribute names of OM files (option `--enable_attr_compression` of atc): read, never written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MAX_ROUNDS = 4  # a sub-model may have been compressed by its own dictionary and again by the root's


@dataclass(frozen=True, slots=True)
class AttrNames:
    """The dictionary of one model: attributes `attr_name_enum`, `attr_value_enum` and `attrs_use_string_value`."""

    names: tuple[str, ...]
    values: tuple[str, ...]
    use_string_value: tuple[bool, ...]

    @staticmethod
    def of(attrs: dict[str, Any]) -> AttrNames | None:
        """The dictionary in a model's attributes; None when the model is not compressed in the known way."""
        if attrs.get("om_compress_version") != 1:
            return None
        return AttrNames(
            _tuple(attrs.get("attr_name_enum")),
            _tuple(attrs.get("attr_value_enum")),
            _tuple(attrs.get("attrs_use_string_value")),
        )

    def restore(self, key: str, value: Any) -> tuple[str, Any]:
        """The real name and value behind a coded key. Raises LookupError when an index is out of range."""
        index = key_index(key)
        if index >= len(self.names):
            raise LookupError(f"index {index} of {len(self.names)} names")
        if index < len(self.use_string_value) and self.use_string_value[index]:
            value = self.text_of(value)
        return self.names[index], value

    def text_of(self, value: Any) -> Any:
        """The string or strings that stand behind an integer or a list of integers."""
        if isinstance(value, bool):
            return value
        if isinstance(value, int):
            return self.text(value)
        if isinstance(value, tuple) and all(isinstance(item, int) for item in value):
            return tuple(self.text(item) for item in value)
        return value

    def text(self, index: int) -> str:
        if not 0 <= index < len(self.values):
            raise LookupError(f"index {index} of {len(self.values)} string values")
        return self.values[index]


def key_index(key: str) -> int:
    """The number in a coded key: a NUL, then base-127 digits plus one, the least significant first."""
    if len(key) < 2 or len(key) > 6:
        raise LookupError(f"a coded name of {len(key)} characters")
    index = 0
    for power, digit in enumerate(key[1:]):
        code = ord(digit)
        if not 1 <= code <= 127:
            raise LookupError(f"digit {code} in a coded name")
        index += (code - 1) * 127**power
    return index


def coded_key(index: int) -> str:
    """The key that stands for a name: the inverse of `key_index`."""
    digits = [index % 127 + 1]
    while index >= 127:
        index //= 127
        digits.append(index % 127 + 1)
    return "\0" + "".join(map(chr, digits))


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else ()
