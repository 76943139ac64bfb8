"""Initial values of one variable that several models of a session give: the first counts, others are told of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gecli.errors import Diagnostic
from gecli.ir.weight import Weight
from gecli.variables.trans_road import TransRoad

NO_ROAD = TransRoad()
SHOWN_NAMES = 3


class GivenValue(NamedTuple):
    """An `_init_value`, the model that gives it, and the road to the form in which that stores the variable."""

    value: Weight
    model: str
    road: TransRoad = NO_ROAD


class Conflict(NamedTuple):
    """A variable to which two models give different initial values."""

    name: str
    first: str
    other: str


def conflict(name: str, first: GivenValue, other: GivenValue) -> Conflict | None:
    """None for equal values, and where that cannot be told: the forms differ and have no way to the declared one."""
    if first.model == other.model or _are_equal(first, other) is not False:
        return None
    return Conflict(name, first.model, other.model)


def conflict_warnings(conflicts: Iterable[Conflict]) -> list[Diagnostic]:
    """A warning for each two models, in the order in which they were found."""
    names: dict[tuple[str, str], list[str]] = {}
    for each in conflicts:
        names.setdefault((each.first, each.other), []).append(each.name)
    return [_warning(first, other, found) for (first, other), found in names.items()]


def _warning(first: str, other: str, names: list[str]) -> Diagnostic:
    shown = ", ".join(repr(name) for name in names[:SHOWN_NAMES])
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return Diagnostic(
        "G4011",
        f"{first} and {other} give variable {shown}{more} different initial values",
        why=f"in one session a variable has one value, and that of {first} comes first",
        do="give both the same value, or name the model first whose value is meant",
        kind="RT_INIT_VALUE_DIFFERS",
        severity="warning",
        file=other,
    )


def _are_equal(first: GivenValue, other: GivenValue) -> bool | None:
    """Whether both are the same bytes, in the stored form or the declared one; None where there is no such form."""
    one: Weight | None = first.value
    two: Weight | None = other.value
    if not first.value.desc.same_storage(other.value.desc):
        one, two = _declared(first), _declared(other)
    if one is None or two is None or not one.desc.same_storage(two.desc):
        return None
    if one.source == two.source and one.transforms == two.transforms:
        return True
    return b"".join(one.chunks()) == b"".join(two.chunks())


def _declared(given: GivenValue) -> Weight | None:
    """The value in the form that the user declared; None when the road has no way back."""
    if not given.road or given.value.desc.same_storage(given.road.source):
        return given.value
    back = given.road.inverse()
    return None if back is None else back.convert_weight(given.value)
