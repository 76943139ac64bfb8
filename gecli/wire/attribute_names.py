"""Compressed attribute names of OM files (option `--enable_attr_compression` of atc): read, never written."""

from __future__ import annotations

from typing import Any

from gecli.ir.attributes import EmptyList, empty_list
from gecli.records import dataclass

_INTS, _NO_TEXTS = 2, empty_list(1)
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
            _strings(attrs.get("attr_name_enum")),
            _strings(attrs.get("attr_value_enum")),
            _flags(attrs.get("attrs_use_string_value")),
        )

    @property
    def fault(self) -> str:
        """What is wrong with the dictionary as such; empty when nothing is."""
        if len(self.names) == len(self.use_string_value):
            return ""
        return f"attr_name_enum has {len(self.names)} names, attrs_use_string_value {len(self.use_string_value)} flags"

    def restore(self, key: str, value: Any) -> tuple[str, Any, bool]:
        """The real name and value behind a coded key, and whether the value is of a kind that the dictionary allows.

        Raises LookupError when an index is out of range.
        """
        index = key_index(key)
        if index >= len(self.names):
            raise LookupError(f"index {index} of {len(self.names)} names")
        fits = True
        if index < len(self.use_string_value) and self.use_string_value[index]:
            fits = _is_number(value) or (isinstance(value, tuple) and all(map(_is_number, value)))
            value = self.text_of(value) if fits else value
        return self.names[index], value, fits

    def text_of(self, value: int | tuple[int, ...]) -> Any:
        """The string or strings that stand behind an integer or a list of integers."""
        if isinstance(value, EmptyList):
            return _NO_TEXTS if value.kind == _INTS else value
        return tuple(map(self.text, value)) if isinstance(value, tuple) else self.text(value)

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


def _strings(value: Any) -> tuple[str, ...]:
    return value if isinstance(value, tuple) and all(isinstance(item, str) for item in value) else ()


def _flags(value: Any) -> tuple[bool, ...]:
    return value if isinstance(value, tuple) and all(isinstance(item, bool) for item in value) else ()


def _is_number(value: Any) -> bool:
    return type(value) is int
