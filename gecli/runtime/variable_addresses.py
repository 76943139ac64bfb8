"""The addresses that loaded models give their variables, checked against each other (variables.md 4.22)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gecli.errors import InputError
from gecli.ir.tensor_desc import TensorDesc
from gecli.runtime.record_checks import VARIABLE_BASE, VARIABLE_SIZE
from gecli.variables import var_faults
from gecli.variables.limits import MemoryLimits
from gecli.variables.sizes import padded_bytes
from gecli.variables.var_manager import VarManager

Row = tuple[str, TensorDesc, int]  # a variable's name, stored form and logical address


class AddressBook:
    """Where the models of a session have their variables.

    Each model finds its variables through its own table, so models that were compiled apart may use one address for
    two variables. With `strict` they may not: what a device with one variable memory could not load is refused.
    `session` is the memory of a session that goes on.
    """

    def __init__(self, *, strict: bool = False, session: VarManager | None = None) -> None:
        self._session = (session or VarManager()) if strict else None

    def enter(self, rows: Iterable[Row], attrs: Mapping[str, Any], path: str) -> None:
        """Check the variables of a model.

        Raises InputError (RT_VAR_OVERLAP, RT_VAR_BASE_CONFLICT, RT_ADDR_OUT_OF_RANGE, RT_VAR_GREW).
        """
        known: dict[int, TensorDesc] = {}  # equal descriptors are one object, and stay one
        rows = [
            (name, known.get(id(desc)) or known.setdefault(id(desc), sized(desc)), address)
            for name, desc, address in rows
            if address
        ]
        default = MemoryLimits()
        base = int(attrs.get(VARIABLE_BASE, default.var_logic_base))
        size = int(attrs.get(VARIABLE_SIZE, default.var_max_bytes))
        own = VarManager()
        own.configure_from_model(base, size)
        _restore(own, rows, path)
        if self._session is None or not rows:
            return
        configure(self._session, attrs, path)
        places = {(name, address) for name, _, address in rows}
        for name, desc, address in rows:
            found = None if self._session.resource.exists(name) else self._session.resource.resolve(address)
            # Variables of one model may share memory on purpose (fp16 twins).
            if found is not None and found[0].name != name and (found[0].name, address) not in places:
                raise var_faults.restore_fault(
                    "RT_VAR_OVERLAP",
                    name,
                    f"variable {name!r} overlaps variable {found[0].name!r} of the session",
                    f"{desc.size_bytes} bytes at {address:#x} meet {found[0].address:#x}",
                    var_faults.ONE_SESSION,
                )
        _restore(self._session, rows, path, strict=True)


def configure(manager: VarManager, attrs: Mapping[str, Any], path: str) -> None:
    """Take over base and limit of a model; the limit only grows.

    Raises InputError (RT_VAR_BASE_CONFLICT) when the session has variables at another base; GE keeps the first one.
    """
    base = int(attrs.get(VARIABLE_BASE, MemoryLimits().var_logic_base))
    if manager.logic_base != base and manager.resource.addresses:
        raise InputError(
            "G4010",
            f"{path} has its variables at {base:#x}, the session at {manager.logic_base:#x}",
            kind="RT_VAR_BASE_CONFLICT",
            file=path,
            do=var_faults.ONE_SESSION,
        )
    manager.configure_from_model(base, max(int(attrs.get(VARIABLE_SIZE, 0)), manager.limits.var_max_bytes))


def _restore(manager: VarManager, rows: Iterable[Row], path: str, *, strict: bool = False) -> None:
    for name, desc, address in rows:
        try:
            manager.restore_variable(name, desc, address, strict_addresses=strict)
        except InputError as error:
            raise InputError.of(replace(each, where=path, file=path) for each in error.diagnostics) from error


def sized(desc: TensorDesc) -> TensorDesc:
    """The descriptor with the size of its tensor, which other compilers may leave out."""
    return desc if desc.size_bytes else replace(desc, size_bytes=padded_bytes(desc))
