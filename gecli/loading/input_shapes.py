"""The values of `--input-shape` and `--dim`: grammar (atc's, with additions) and the errors of its text.

images:1,3,224,224;im_scale:1~8,2       by name; 2~8 is a range, -1 any size
1,3,224,224;1,2                         by position
#0:1,3,224,224   images=1x3x224x224   images:[1,3,224,224]   scalar:
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gecli.errors import Diagnostic, InvalidOption
from gecli.ir.tensor_desc import Range
from gecli.records import dataclass

UNBOUNDED = -1  # upper end of a range without limit
INT64_MAX = (1 << 63) - 1
OPTION = "--input-shape"
_DIMS_ONLY = r"[\d\s,~.x\[\]+-]*\Z"
_BETWEEN_GROUPS = r"\]\s*,\s*(?=\[)"
_NUMBER = r"[+-]?\d+\Z"


@dataclass(frozen=True, slots=True)
class ShapeItem:
    """One input's shape as given: by name or by position, a (low, high) pair a dim."""

    text: str
    name: str | None
    position: int | None
    dims: tuple[Range, ...]
    option: str = OPTION

    @property
    def given(self) -> str:
        """The part of the text behind the name."""
        return ",".join(_dim_text(dim) for dim in self.dims)

    @property
    def is_dynamic(self) -> bool:
        return any(low != high for low, high in self.dims)


@dataclass(frozen=True, slots=True)
class InputShapes:
    """What the user said about input shapes: items, and sizes of symbolic dims."""

    items: tuple[ShapeItem, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    for_several_models: bool = False  # what one model lacks may belong to another

    @property
    def is_empty(self) -> bool:
        return not self.items and not self.sizes


def parse_input_shapes(texts: Sequence[str] = (), dims: Sequence[str] = (), option: str = OPTION) -> InputShapes:
    """Read the values of a repeated `--input-shape` and of `--dim NAME=N`.

    Raises InvalidOption with every fault of every item.
    """
    faults: list[Diagnostic] = []
    items: list[ShapeItem] = []
    for text in texts:
        for item, start in _split_items(text):
            try:
                items.append(_parse_item(item, start, text, len(items), option))
            except _ItemFault as err:
                faults.append(err.diagnostic)
    faults += _mixed_styles(items, option)
    sizes: dict[str, int] = {}
    for text in dims:
        fault = _parse_size(text, sizes)
        if fault is not None:
            faults.append(fault)
    if faults:
        raise InvalidOption.of(faults)
    return InputShapes(tuple(items), tuple(sizes.items()))


class _ItemFault(Exception):
    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in the option's text something is, for the caret below it."""

    text: str
    option: str

    def fault(self, code: str, message: str, at: int, why: str = "", do: str = "") -> _ItemFault:
        shown = f'{self.option} "{self.text}"'
        # Both lines begin in one column: a message indents its further lines as far as `  --> ` and one more.
        caret = " " * (len(self.option) + 1 + at) + "^"
        return _ItemFault(
            Diagnostic(code, message, where=f"{shown}\n{caret}", why=why, do=do, option=self.option, actual=self.text)
        )


def _split_items(text: str) -> Iterable[tuple[str, int]]:
    """Items with their place in the text; one trailing `;` is dropped."""
    text = re.sub(_BETWEEN_GROUPS, lambda found: "];" + " " * (len(found.group()) - 2), text)
    pieces = text.split(";")
    if len(pieces) > 1 and not pieces[-1].strip():
        pieces.pop()
    start = 0
    for piece in pieces:
        yield piece, start
        start += len(piece) + 1


def _parse_item(item: str, start: int, text: str, position: int, option: str) -> ShapeItem:
    place = _Place(text, option)
    if not item.strip():
        raise place.fault(
            "E10002", f"{option} holds an empty item", start, 'two ";" without an item between', f'{option} "x:1,3"'
        )
    split = _name_end(item)
    if split is None:
        if not re.match(_DIMS_ONLY, item):
            raise place.fault(
                "E10002",
                f"{option} item {item.strip()!r} has no shape",
                start + len(item.rstrip()),
                'expected NAME:D1,D2,...; found no ":"',
                f'{option} "{item.strip()}:1,3,224,224"',
            )
        return ShapeItem(item.strip(), None, position, _parse_dims(item, start, place), option)
    name = item[:split].strip()
    if not name:
        raise place.fault("E10002", f"{option} item has no name", start, f'nothing stands before ":" in {item!r}')
    dims = _parse_dims(item[split + 1 :], start + split + 1, place)
    if re.fullmatch(r"#\d{1,9}", name):
        return ShapeItem(item.strip(), None, int(name[1:]), dims, option)
    return ShapeItem(item.strip(), name, None, dims, option)


def _name_end(item: str) -> int | None:
    """Where the name ends: the last `:`; or the last `=` when what follows the `:` is no shape."""
    colon, equals = item.rfind(":"), item.rfind("=")
    if colon >= 0 and (equals < colon or re.match(_DIMS_ONLY, item[colon + 1 :])):
        return colon
    if equals >= 0:
        return equals
    return colon if colon >= 0 else None


def _parse_dims(text: str, start: int, place: _Place) -> tuple[Range, ...]:
    bare = text.strip()
    if bare.startswith("[") and bare.endswith("]"):
        start += text.index("[") + 1
        text = text[text.index("[") + 1 : text.rindex("]")]
    if not text.strip():
        return ()
    pieces: list[tuple[str, int]] = []
    at = start
    for piece in re.split(r"[,x]", text):
        pieces.append((piece, at + len(piece) - len(piece.lstrip())))
        at += len(piece) + 1
    ranged = any("~" in piece or piece.strip() == "-1" for piece, _ in pieces)
    return tuple(_parse_dim(piece.strip(), at, place, ranged) for piece, at in pieces)


def _parse_dim(piece: str, at: int, place: _Place, ranged: bool) -> Range:
    if "~" in piece:
        low_text, _, high_text = piece.partition("~")
        low = _number(low_text.strip(), at, place)
        high_at = at + len(low_text) + 1
        high = _number(high_text.strip(), high_at, place)
        if low < 0 or high < UNBOUNDED:
            raise place.fault("E10048", f"range {piece!r} has a negative end", at, "both ends must be 0 or more")
        if high != UNBOUNDED and low > high:
            do = f"{high}~{low}"
            raise place.fault("E10048", f"range {piece!r} is empty", at, f"its low end {low} exceeds {high}", do)
        return (low, high)
    value = _number(piece, at, place)
    if value == -1:
        return (0, UNBOUNDED)
    if ranged and value < 0:
        raise place.fault(
            "E10048", f"{value} is not a dimension", at, "only -1 stands for an unknown size", f"0~{-value}"
        )
    if not ranged and value <= 0:
        raise place.fault(
            "E10011",
            f"dimension {value} is not positive",
            at,
            "a static shape has sizes of 1 and more",
            "give the real size, -1, a range such as 1~8, or --dim NAME=N",
        )
    return (value, value)


def _number(piece: str, at: int, place: _Place) -> int:
    if re.match(_NUMBER, piece):
        value = _whole(piece)
        if abs(value) > INT64_MAX:
            raise place.fault("E10013", f"{piece} is out of range", at, f"the largest size is {INT64_MAX}")
        return value
    if not piece:
        raise place.fault("E10002", "a dimension is missing", at, "two separators follow each other, or one ends it")
    bad = re.match(r"[+-]?\d+", piece)
    if "." in piece and re.fullmatch(r"[+-]?\d*\.\d*", piece):
        dot = at + piece.index(".")
        raise place.fault("E10002", f"{piece} is not a whole number", dot, "sizes are integers")
    if bad is not None:
        raise place.fault("E10002", f"{piece!r} is not a number", at + bad.end(), f"{piece[bad.end()]!r} follows it")
    raise place.fault("E10014", f"{piece!r} is not a number", at, "expected an integer, -1 or LOW~HIGH")


def _whole(text: str) -> int:
    """The number, or one that is out of range too: Python refuses to read thousands of digits."""
    digits = text.lstrip("+-").lstrip("0")
    return int(text) if len(digits) < 20 and len(text) < 4000 else INT64_MAX + 1


def _mixed_styles(items: list[ShapeItem], option: str) -> list[Diagnostic]:
    listed = [item for item in items if item.position is not None and not item.text.startswith("#")]
    if not listed or len(listed) == len(items):
        return []
    named = next(item for item in items if item not in listed)
    return [
        Diagnostic(
            "E10002",
            f"{option} mixes shapes by position with shapes by name",
            where=f'{option} "{listed[0].text}" and "{named.text}"',
            why="the position of an item would depend on the named ones before it",
            do=f'name every input, or write "#{listed[0].position}:{listed[0].text}"',
            option=option,
        )
    ]


def _parse_size(text: str, sizes: dict[str, int]) -> Diagnostic | None:
    """Add `NAME=N` to `sizes`; returns what is wrong with it."""
    name, equals, number = text.rpartition("=")
    name, number = name.strip(), number.strip()
    where = f'--dim "{text}"'
    if not equals or not name:
        return Diagnostic("E10002", "--dim needs NAME=N", where=where, do="--dim batch=4", option="--dim")
    if not re.match(_NUMBER, number):
        why = f"{number!r} is not an integer"
        return Diagnostic("E10014", f"--dim {name} has no size", where=where, why=why, option="--dim", actual=number)
    size = _whole(number)
    if size > INT64_MAX:
        why = f"the largest size is {INT64_MAX}"
        return Diagnostic("E10013", f"{number} is out of range", where=where, why=why, option="--dim", actual=number)
    if size <= 0:
        return Diagnostic(
            "E10011", f"size {size} of {name!r} is not positive", where=where, option="--dim", actual=size
        )
    if sizes.setdefault(name, size) != size:
        why = f"first {sizes[name]}, then {size}"
        return Diagnostic("E10014", f"--dim gives {name!r} twice", where=where, why=why, option="--dim")
    return None


def _dim_text(dim: Range) -> str:
    low, high = dim
    if low == high:
        return str(low)
    if dim == (0, UNBOUNDED):
        return "-1"
    return f"{low}~{high}"
