"""The key of a variable's address (GE: VarResource::VarKey): base name, full format, data type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from gecli.errors import CompileError
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc


class VarKey(NamedTuple):
    """One storage form of a variable. The shape is no part of it, as in GE."""

    name: str
    format: Format
    dtype: DataType

    @staticmethod
    def of(name: str, desc: TensorDesc) -> VarKey:
        return VarKey(name, desc.format, desc.dtype)

    def to_ge(self) -> str:
        """GE's text: name and packed format without a separator, so `w` NCHW FLOAT is `w0_0`."""
        return f"{self.name}{int(self.format)}_{int(self.dtype)}"

    def to_seed(self) -> str:
        """The text with an underscore behind the name, so `w` NCHW FLOAT is `w_0_0`."""
        return f"{self.name}_{int(self.format)}_{int(self.dtype)}"

    @staticmethod
    def parse(text: str, desc: TensorDesc, known_names: Iterable[str] = ()) -> VarKey:
        """Read either text form; format and type are those of `desc`, the entry's own descriptor.

        GE's form of a name that ends with an underscore looks like the other form: a name of `known_names` decides.
        Raises ValueError when the text does not end with the descriptor's format and type.
        """
        tail = _tail(desc)
        if not text.endswith(tail):
            raise ValueError(f"variable key {text!r} does not end with {tail!r}, the format and type of {desc}")
        name = text[: len(text) - len(tail)]
        if name.endswith("_") and name not in frozenset(known_names):
            name = name[:-1]
        return VarKey(name, desc.format, desc.dtype)


def parse_all(texts: Mapping[str, TensorDesc], names: Iterable[str]) -> dict[str, VarKey]:
    """The keys of a whole table, whose variables have these names.

    A table is written in one form, and the longest name that ends with an underscore is not a name without it; so
    the names tell the form, also when `w` and `w_` are both variables. Raises ValueError as `VarKey.parse`.
    """
    known = frozenset(names)
    keys = {text: VarKey.parse(text, desc, (text[: -len(_tail(desc))],)) for text, desc in texts.items()}
    if all(key.name in known for key in keys.values()):
        return keys
    shorter = {text: key._replace(name=key.name[:-1]) for text, key in keys.items() if key.name.endswith("_")}
    if len(shorter) == len(keys) and all(key.name in known for key in shorter.values()):
        return shorter
    return {text: VarKey.parse(text, desc, known) for text, desc in texts.items()}


def _tail(desc: TensorDesc) -> str:
    return f"{int(desc.format)}_{int(desc.dtype)}"


def require_unambiguous(keys: Iterable[VarKey], text: Callable[[VarKey], str] = VarKey.to_ge) -> None:
    """Refuse keys that GE's text cannot tell apart: `w1` ND and `w` NC1HWC0_C04 are both `w12_0`.

    Raises CompileError (VAR_KEY_CONFLICT) naming both variables.
    """
    seen: dict[str, VarKey] = {}
    for key in keys:
        other = seen.setdefault(text(key), key)
        if other != key:
            raise CompileError(
                "G2010",
                f"ambiguous variable key {text(key)!r}",
                kind="VAR_KEY_CONFLICT",
                node=key.name,
                why=f"variable {other.name!r} in {other.format} and variable {key.name!r} in {key.format} share it",
                do="rename one of the variables",
                expected=other.to_seed(),
                actual=key.to_seed(),
            )
