"""The variables of a session on one simulated device: blocks at logical addresses, in the form each model stores.

A variable has one value and, when models compiled apart store it differently, several forms of it (design.md
decision 30). Exactly one form is current; before a model runs, its own forms are made current by converting the
value through the user's form.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gecli.errors import Diagnostic, InputError, RuntimeFault
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.records import dataclass
from gecli.runtime.memory import ALIGN_BYTES
from gecli.variables.initial_values import Conflict, GivenValue, conflict, conflict_warnings
from gecli.variables.trans_road import TransRoad

if TYPE_CHECKING:
    from gecli.runtime.session_table import SessionTable

Array = NDArray[Any]
SMALL_BYTES = 1 << 14  # variables up to this size share blocks: most of many variables are small
BLOCK_BYTES = 1 << 18
COPY_OF = "copy of "  # how `initialised_by` begins for a variable that began as another one
INIT_MODES = ("error", "zero", "random")


class Memory(Protocol):
    """What the tensors of variables lie in."""

    def array(self, desc: TensorDesc, address: int) -> Array:
        """A tensor of this form, whose logical address is `address`."""


@dataclass(eq=False, slots=True)
class Form:
    """A variable as one model stores it."""

    desc: TensorDesc
    logical_address: int
    road: TransRoad
    memory: Memory
    held: Array | None = None

    @property
    def view(self) -> Array:
        """The tensor in the memory of the session, which it has from the first time that somebody asks for it."""
        if self.held is None:
            self.held = self.memory.array(self.desc, self.logical_address)
        return self.held

    @property
    def user_desc(self) -> TensorDesc:
        """The form the user declared: where the road starts."""
        return self.road.source if self.road else self.desc

    def to_user(self, name: str) -> Array:
        """The value in the user's form. Raises RuntimeFault when the road has no way back."""
        if not self.road:
            return self.view.copy()
        back = self.road.inverse()
        if back is None:
            raise RuntimeFault(
                "G4011",
                f"variable {name!r} cannot be brought back to its declared format",
                why=self.road.why_one_way(),
                do="save the stored bytes with --raw-format",
                kind="RT_TRANS_UNSUPPORTED",
            )
        return back.replay(self.view)

    def from_user(self, array: Array) -> Array:
        return self.road.replay(array) if self.road else array


class Snapshot(NamedTuple):
    """What a variable was at one moment."""

    variable: Variable
    form: Form
    data: Array
    initialised_by: str


@dataclass(slots=True)
class Variable:
    """One variable of the session."""

    name: str
    forms: tuple[Form, ...] = ()
    current: Form | None = None
    initialised_by: str = ""  # what gave it its value; empty: nothing yet
    given: GivenValue | None = None  # the first initial value that a model gave

    @property
    def is_initialised(self) -> bool:
        return bool(self.initialised_by)

    @property
    def is_copy(self) -> bool:
        """Whether its value is that of another variable still: an initial value counts more."""
        return self.initialised_by.startswith(COPY_OF)


class VariableStore:
    """All variables of a session, by name."""

    def __init__(
        self, seed: int = 1, fill: int = 0, *, memory: Memory | None = None, table: SessionTable | None = None
    ) -> None:
        self._memory: Memory = _Memory(fill) if memory is None else memory
        self._table = table
        self._variables: dict[str, Variable] = {}
        self._conflicts: list[Conflict] = []  # of initial values
        self.without_record: dict[str, str] = {}  # variables whose road nobody knows: the record that is not there
        self._seed = seed

    def __contains__(self, name: str) -> bool:
        return name in self._variables

    def __getitem__(self, name: str) -> Variable:
        """The variable of this name. Raises RuntimeFault (RT_VAR_NOT_FOUND) with close names."""
        found = self._variables.get(name)
        if found is None:
            import difflib

            near = difflib.get_close_matches(name, self._variables, n=3)
            raise RuntimeFault(
                "G4010",
                f"the session has no variable {name!r}",
                why=f"close names: {', '.join(near)}"
                if near
                else f"its variables: {', '.join(self.names()) or 'none'}",
                kind="RT_VAR_NOT_FOUND",
            )
        return found

    def names(self) -> list[str]:
        return sorted(self._variables)

    def take_over(self, name: str) -> bool:
        """Whether there is the variable, entered now when only the session that goes on knows it, and no model."""
        known = None if name in self._variables or self._table is None else self._table.get(name)
        if known is not None:
            self.register(name, known.desc, known.address, known.road, known.init_value, "the session")
        return name in self._variables

    def register(
        self, name: str, desc: TensorDesc, address: int, road: TransRoad, init_value: Weight | None, model: str
    ) -> Form:
        """The form in which `model` stores the variable, made on first use.

        The initial value counts when nothing has given the variable a value before; `take_warnings` tells of one that
        differs from that of an earlier model. Raises InputError (RT_VAR_DESC_MISMATCH) when another model of the
        session declares the variable differently, and RuntimeFault (RT_INIT_VALUE_MISMATCH) when the initial value
        does not fit.
        """
        variable = self._variables.get(name)
        if variable is None:
            variable = self._variables[name] = Variable(name)
        form = self._form_of(variable, desc, address, road, model)
        if init_value is not None:
            self._give(variable, form, GivenValue(init_value, model, form.road))
        return form

    def _form_of(self, variable: Variable, desc: TensorDesc, address: int, road: TransRoad, model: str) -> Form:
        for form in variable.forms:
            if form.desc.same_storage(desc):
                return form
        form = Form(desc, address, road, self._memory)
        if variable.forms:
            _require_same_user_form(variable.name, variable.forms[0], form, model)
        variable.forms += (form,)
        if variable.current is None:
            variable.current = form
            if desc.is_static and not desc.elements:
                variable.initialised_by = "its size"  # an empty variable has all the values that it can have
        return form

    def _give(self, variable: Variable, form: Form, given: GivenValue) -> None:
        if not variable.is_initialised or variable.is_copy:
            _initialise(variable.name, form, given.value)
            variable.current = form
            variable.initialised_by = "_init_value"
        if variable.given is None:
            variable.given = given
        elif (found := conflict(variable.name, variable.given, given)) is not None:
            self._conflicts.append(found)

    def take_warnings(self) -> list[Diagnostic]:
        """The warnings since the last call."""
        found, self._conflicts = self._conflicts, []
        return conflict_warnings(found)

    def snapshot(self, names: Iterable[str]) -> list[Snapshot]:
        """The variables of these names as they are, for `restore`."""
        found = []
        for name in names:
            form = self._current(name)
            variable = self._variables[name]
            found.append(Snapshot(variable, form, form.view.copy(), variable.initialised_by))
        return found

    @staticmethod
    def restore(snapshots: Iterable[Snapshot]) -> None:
        """Make variables what they were."""
        for variable, form, data, initialised_by in snapshots:
            form.view[...] = data
            variable.current = form
            variable.initialised_by = initialised_by

    def activate(self, name: str, form: Form, *, is_written: bool = True) -> None:
        """Make `form` the current one, converting the value when another form holds it.

        A form of less precision that is not written is filled and does not become the current one: what is only read
        stays whole for the other models.
        """
        variable = self._variables[name]
        if variable.current is form:
            return
        if variable.is_initialised and variable.current is not None:
            form.view[...] = form.from_user(variable.current.to_user(name))
            if form.road.lossy and not is_written:
                return
        variable.current = form

    def require_value(self, name: str, init: str, reader: str) -> None:
        """Called before a program reads a variable that it has not written. Raises RuntimeFault when it has no value.

        `init` is what to do then: `error`, `zero`, or `random` (as an input of that name would be filled).
        """
        variable = self._variables[name]
        if variable.is_initialised or variable.current is None:
            return
        form = variable.current
        if init == "error":
            raise RuntimeFault(
                "G4006",
                f"variable {name!r} is read before anything gave it a value",
                where=f"first read by node {reader}",
                do="load it with --load-vars, run a model that assigns it first, or use --init zero",
                kind="RT_VAR_UNINITIALISED",
            )
        if init == "zero":
            form.view[...] = 0
        if init == "random":
            from gecli.runtime.inputs import random_array

            user = form.user_desc
            form.view[...] = form.from_user(random_array(name, user.dtype, user.shape, self._seed))
        variable.initialised_by = init

    def mark_written(self, name: str, by: str) -> None:
        variable = self._variables[name]
        if not variable.is_initialised or variable.is_copy:
            variable.initialised_by = by

    def value(self, name: str, *, raw: bool = False) -> Array:
        """A copy of the variable in the user's form, or as stored with `raw`."""
        form = self._current(name)
        return form.view.copy() if raw else form.to_user(name)

    def set_value(self, name: str, array: Array, by: str = "loaded") -> None:
        """Store `array`, given in the user's form. Raises RuntimeFault when dtype or shape differ."""
        form = self._current(name)
        user = form.user_desc
        if tuple(array.shape) != user.shape or array.dtype != user.dtype.numpy:
            raise RuntimeFault(
                "G4011",
                f"the value for variable {name!r} does not fit",
                why=f"expected {user.dtype.serial} {list(user.shape)}, got {array.dtype.name} {list(array.shape)}",
                kind="RT_INIT_VALUE_MISMATCH",
                expected=list(user.shape),
                actual=list(array.shape),
            )
        form.view[...] = form.from_user(array)
        self._variables[name].initialised_by = by

    def copy_value(self, source: str, name: str) -> None:
        """Let `name`, if it has no value, begin with that of `source`, cast to its type. Raises as `set_value`."""
        if not self[source].is_initialised or self[name].is_initialised:
            return
        from gecli.layout.cast import cast

        src, dst = self._current(source).user_desc, self._current(name).user_desc
        value = self.value(source)
        self.set_value(
            name, value if src.dtype is dst.dtype else cast(value, src.dtype, dst.dtype), f"{COPY_OF}{source}"
        )

    def _current(self, name: str) -> Form:
        form = self[name].current
        assert form is not None
        return form


class _Memory:
    """Memory of variables, every byte of which is `fill`; what nobody touches takes none of the host when that is 0."""

    def __init__(self, fill: int) -> None:
        self._fill = fill
        self._block = np.empty(0, np.uint8)
        self._used = 0

    def array(self, desc: TensorDesc, address: int) -> Array:
        """A tensor of this form, wherever there is room."""
        bits = desc.dtype.bits or 0
        if bits % 8 or desc.dtype.numpy.hasobject:
            return np.zeros(desc.shape, desc.dtype.numpy)
        piece = self._piece(desc.nbytes)
        return piece.view(desc.dtype.numpy).reshape(desc.shape)

    def _piece(self, size: int) -> Array:
        if size > SMALL_BYTES:
            return self._new_block(size)
        if self._used + size > self._block.size:
            self._block, self._used = self._new_block(BLOCK_BYTES), 0
        begin = self._used
        self._used += -(-size // ALIGN_BYTES) * ALIGN_BYTES
        return self._block[begin : begin + size]

    def _new_block(self, size: int) -> Array:
        raw = np.zeros(size + ALIGN_BYTES, np.uint8)
        if self._fill:
            raw[:] = self._fill
        shift = -raw.ctypes.data % ALIGN_BYTES
        return raw[shift : shift + size]


def _initialise(name: str, form: Form, value: Weight) -> None:
    if value.desc.same_storage(form.desc):
        form.view[...] = value.numpy()
        return
    if form.road and value.desc.same_storage(form.road.source):
        form.view[...] = form.road.replay(value.numpy())
        return
    raise RuntimeFault(
        "G4011",
        f"the initial value of variable {name!r} does not fit",
        why=f"the variable is {form.desc}, its initial value {value.desc}",
        do="compile the model again",
        kind="RT_INIT_VALUE_MISMATCH",
    )


def _require_same_user_form(name: str, known: Form, new: Form, model: str) -> None:
    one, two = known.user_desc, new.user_desc
    if one.same_storage(two) or (one.dtype == two.dtype and one.shape == two.shape):
        return
    raise InputError(
        "G4011",
        f"variable {name!r} is declared differently by the models of this session",
        where=model,
        why=f"an earlier model declares {one}, this one {two}",
        do="declare the variable alike in both models and compile them again, or run with --no-session",
        kind="RT_VAR_DESC_MISMATCH",
        expected=str(one),
        actual=str(two),
    )
