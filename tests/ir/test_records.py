"""gecli's `dataclass` against the standard one: the same classes are made by both and asked the same things."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from functools import cached_property
from typing import Any, ClassVar

import pytest

from gecli import records

Make = Callable[..., Any]
VARIANTS: list[dict[str, bool]] = [
    {"frozen": frozen, "slots": slots, "eq": eq}
    for frozen in (False, True)
    for slots in (False, True)
    for eq in (False, True)
]


def classes(**variant: bool) -> list[Any]:
    """The same class from the standard decorator and from ours."""
    made = []
    for decorator in (dataclasses.dataclass, records.dataclass):

        @decorator(**variant)
        class Pair:
            """Two and more."""

            shared: ClassVar[int] = 7
            left: int
            right: str = "r"
            items: list[int] = field(default_factory=list)
            note: str = field(default="", compare=False)

            def both(self) -> str:
                return f"{self.left}{self.right}"

        made.append(Pair)
    return made


def answers(cls: Any) -> list[Any]:
    """What can be seen of a class and its instances."""
    one, same, other, noted = cls(1), cls(left=1, right="r"), cls(2, "x", [3]), cls(1, note="seen")
    return [
        repr(one), one == same, one == other, one == noted, one == 1, one.both(), one.items is same.items, cls.shared,
        [each.name for each in dataclasses.fields(cls)], dataclasses.asdict(other), cls.__match_args__, cls.__doc__,
        repr(dataclasses.replace(one, right="new")), repr(copy.copy(other)), repr(copy.deepcopy(other)),
        cls.__name__, cls.__qualname__, hasattr(one, "__dict__"), getattr(cls, "__slots__", None),
    ]  # fmt: skip


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (TypeError, AttributeError) as error:
        return type(error), str(error).rpartition("<locals>.")[2]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_instances_answer_as_those_of_the_standard_decorator(variant: dict[str, bool]) -> None:
    standard, ours = classes(**variant)
    assert answers(ours) == answers(standard)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize(
    "use",
    [
        lambda cls: cls(),
        lambda cls: cls(1, "a", [], "n", 5),
        lambda cls: cls(1, wrong=2),
        lambda cls: len({cls(1, "a", ()), cls(1, "a", (), "n")}),
        lambda cls: hash(cls(1)) and None,
        lambda cls: setattr(cls(1), "left", 2),
        lambda cls: delattr(cls(1), "right"),
    ],
)
def test_misuse_and_hashing_end_as_with_the_standard_decorator(variant: dict[str, bool], use: Make) -> None:
    standard, ours = classes(**variant)
    assert outcome(lambda: use(ours)) == outcome(lambda: use(standard))


@records.dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = field(init=False, default=0)


@records.dataclass(frozen=True, slots=True)
class Single:
    value: float


@records.dataclass(slots=True)
class Link:
    next: Link | None = None
    seen: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.seen = [1]


@records.dataclass(frozen=True)
class Lazy:
    base: int

    @cached_property
    def double(self) -> int:
        return 2 * self.base


def test_a_frozen_record_is_pickled_and_cannot_be_changed() -> None:
    assert pickle.loads(pickle.dumps(Point(3))) == Point(3)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        Point(3).x = 4


def test_records_of_different_classes_are_never_equal() -> None:
    assert Point(1) != Single(1)
    assert Single(float("nan")) != Single(float("nan"))


def test_a_record_that_holds_itself_has_a_text() -> None:
    link = Link()
    link.next = link
    assert repr(link) == "Link(next=..., seen=[1])"


def test_cached_properties_work_on_frozen_records_without_slots() -> None:
    assert Lazy(4).double == 8


def test_a_name_that_is_one_of_the_generated_functions_own_is_no_trouble() -> None:
    @records.dataclass(slots=True)
    class Odd:
        MISSING: int
        default_b: int = 1
        items: list[int] = field(default_factory=list)

    assert repr(Odd(5)).endswith("Odd(MISSING=5, default_b=1, items=[])")


@pytest.mark.parametrize(
    "annotation",
    ["ClassVar", "ClassVar[int]", "typing.ClassVar[int]", " t.ClassVar [int]", ClassVar, ClassVar[int]],
    ids=str,
)
def test_a_class_variable_is_no_field_however_it_is_annotated(annotation: Any) -> None:
    made = records.dataclass(type("Counted", (), {"__annotations__": {"count": annotation, "x": int}, "count": 7}))
    assert [each.name for each in dataclasses.fields(made)] == ["x"]
    assert made(1).count == 7


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_fields_and_parameters_are_described_as_by_the_standard_decorator(variant: dict[str, bool]) -> None:
    standard, ours = classes(**variant)
    assert [each.kw_only for each in dataclasses.fields(ours)] == [
        each.kw_only for each in dataclasses.fields(standard)
    ]
    assert repr(ours.__dataclass_params__) == repr(standard.__dataclass_params__)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_standard_dataclass_can_inherit(variant: dict[str, bool]) -> None:
    made = []
    for base in classes(**variant):

        @dataclasses.dataclass(**variant)
        class Derived(base):  # type: ignore[misc]  # the base is one of two
            last: int = 4

        made.append(repr(Derived(1, "a")).rpartition("<locals>.")[2])
        with pytest.raises(TypeError, match="cannot inherit"):
            dataclasses.dataclass(frozen=not variant["frozen"])(type("Other", (base,), {"__annotations__": {"y": int}}))
    assert made[0] == made[1] == "Derived(left=1, right='a', items=[], note='', last=4)"


def test_a_record_is_replaced_as_copy_replace_does_it() -> None:
    assert Single(1.0).__replace__(value=2.0) == Single(2.0)  # type: ignore[attr-defined]  # of Python 3.13
    with pytest.raises(TypeError):
        Single(1.0).__replace__(wrong=2.0)  # type: ignore[attr-defined]
