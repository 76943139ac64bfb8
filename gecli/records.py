"""`dataclass` as in `dataclasses`, made in a sixth of the time.

The standard decorator writes and compiles up to seven functions a class, 0.4 ms for a frozen one with slots; a hundred
such classes were a tenth of a small compile. Here `__init__` alone is compiled. Whatever else is asked of an instance
(equality, hash, text, being frozen) is done by functions that all classes share. `dataclasses.fields`, `replace` and
`asdict` work, standard dataclasses can inherit, and type checkers see the standard decorator.

Not here, because nothing needs it: inheritance between such classes, order, `kw_only`, InitVar.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable
from dataclasses import MISSING, Field, FrozenInstanceError, field
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, ClassVar

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True):
        """As `dataclasses.dataclass` with these arguments."""
        if cls is None:
            return lambda cls: _finish(cls, frozen, slots, eq)
        return _finish(cls, frozen, slots, eq)


_FIELD = getattr(dataclasses, "_FIELD")  # noqa: B009  # the mark of a plain field, which `fields` and `replace` look for
_PARAMS = getattr(dataclasses, "_DataclassParams")  # noqa: B009


def _finish(cls: type[Any], frozen: bool, slots: bool, eq: bool) -> type[Any]:
    fields = _fields_of(cls)
    if slots:
        cls = _with_slots(cls, fields)
    members: dict[str, Any] = {
        "__dataclass_fields__": fields,
        "__match_args__": tuple(name for name, each in fields.items() if each.init),
        "__init__": _init(cls, fields.values(), frozen, slots),
        "__repr__": _repr,
        "__replace__": _replace,
        "__dataclass_params__": _params(frozen, slots, eq),
    }
    if eq:
        members["__eq__"], members["__hash__"] = _comparison(fields.values(), frozen)
    if frozen:
        members |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    if frozen and slots:
        members |= {"__getstate__": _state, "__setstate__": _set_state}
    own = vars(cls)
    for name, member in members.items():
        if name not in own or (name == "__hash__" and own[name] is None):
            setattr(cls, name, member)
    return cls


def _fields_of(cls: type[Any]) -> dict[str, Field[Any]]:
    """The fields in order; their defaults stay on the class as class attributes, as the standard decorator does it."""
    fields: dict[str, Field[Any]] = {}
    for name, annotation in cls.__annotations__.items():
        if _is_of_the_class(annotation):
            continue
        given = cls.__dict__.get(name, MISSING)
        each: Field[Any] = given if isinstance(given, Field) else field(default=given)
        each.name, each.type = name, annotation
        each.kw_only = False
        setattr(each, "_field_type", _FIELD)  # noqa: B010  # private there
        if each.default is not MISSING:
            setattr(cls, name, each.default)
        elif given is not MISSING:
            delattr(cls, name)
        fields[name] = each
    return fields


def _is_of_the_class(annotation: object) -> bool:
    """Whether an annotation, or its text, is ClassVar or ClassVar[...]."""
    if isinstance(annotation, str):
        return annotation.partition("[")[0].strip().rpartition(".")[2] == "ClassVar"
    return annotation is ClassVar or getattr(annotation, "__origin__", None) is ClassVar


def _with_slots(cls: type[Any], fields: dict[str, Field[Any]]) -> type[Any]:
    """The class once more: slots must be known when a class is made."""
    left_out = {*fields, "__dict__", "__weakref__"}
    members = {name: value for name, value in vars(cls).items() if name not in left_out}
    metaclass: type[type] = type(cls)
    made = metaclass(cls.__name__, cls.__bases__, {**members, "__slots__": tuple(fields)})
    made.__qualname__ = cls.__qualname__
    return made


def _init(cls: type[Any], fields: Iterable[Field[Any]], frozen: bool, slots: bool) -> Callable[..., None]:
    names: dict[str, Any] = {"_MISSING": MISSING}
    parameters, lines = ["self"], []
    for each in fields:
        name = value = each.name
        if each.default_factory is not MISSING:
            names[f"_make_{name}"] = each.default_factory
            value = f"_make_{name}() if {name} is _MISSING else {name}" if each.init else f"_make_{name}()"
            default = "=_MISSING"
        elif each.default is not MISSING:
            names[f"_default_{name}"] = each.default
            default = f"=_default_{name}"
            value = name if each.init else f"_default_{name}"
        elif each.init:
            default = ""
        else:
            continue  # __post_init__ sets it
        if each.init:
            parameters.append(name + default)
        if frozen and slots:  # past __setattr__, by the slot itself
            names[f"_set_{name}"] = getattr(cls, name).__set__
            lines.append(f"_set_{name}(self, {value})")
        elif frozen:
            lines.append(f"self.__dict__[{name!r}] = {value}")
        else:
            lines.append(f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    body = "".join(f"\n {line}" for line in lines) or " pass"
    exec(f"def __init__({', '.join(parameters)}):{body}", names)
    made: Callable[..., None] = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _comparison(fields: Iterable[Field[Any]], frozen: bool) -> tuple[Callable[..., Any], Callable[..., int] | None]:
    compared = _tuple_getter([each.name for each in fields if each.compare])

    def equal(self: object, other: object) -> Any:
        if other.__class__ is self.__class__:
            return compared(self) == compared(other)
        return NotImplemented

    def hashed(self: object) -> int:
        return hash(compared(self))

    return equal, hashed if frozen else None


def _tuple_getter(names: list[str]) -> Callable[[Any], Hashable]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _params(frozen: bool, slots: bool, eq: bool) -> Any:
    """What a standard dataclass asks of a class that it inherits from; which arguments are listed varies by release."""
    given = {"frozen": frozen, "slots": slots, "eq": eq, "init": True, "repr": True, "match_args": True}
    return _PARAMS(**{name: given.get(name, False) for name in _PARAMS.__slots__})


def _replace(self: Any, /, **changes: Any) -> Any:
    """For copy.replace."""
    return dataclasses.replace(self, **changes)


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{self.__class__.__qualname__}({shown})"


def _refuse_to_set(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__dataclass_fields__]


def _set_state(self: Any, state: list[Any]) -> None:
    """For copies: they set attributes, which a frozen class refuses."""
    for name, value in zip(self.__dataclass_fields__, state):
        object.__setattr__(self, name, value)
