"""Variables in files: `--save-vars` and `--load-vars` (runtime.md 5.7).

An npz with one array a variable, in the user's format, and a member `__meta__` (JSON) that names types, formats and
digests. Loading checks every entry before the first variable changes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.artifacts.publish import publish_bytes
from gecli.errors import Diagnostic, InputError, InvalidOption, OutputError, RuntimeFault
from gecli.ir.tensor_desc import TensorDesc
from gecli.json_text import GRAPHS, parse_json
from gecli.runtime.array_files import from_portable, read_npz
from gecli.runtime.variable_store import VariableStore

Array = NDArray[Any]
META = "__meta__"
VERSION = 1
LONGEST_NAME = 65535 - len(".npy")  # bytes; a zip archive has 16 bits for it


def save_variables(store: VariableStore, path: str, *, raw: bool = False, globs: Sequence[str] = ()) -> list[str]:
    """Write every variable with a value, or those that one of `globs` names; returns their names.

    Raises RuntimeFault for a road without a way back, and InvalidOption when `globs` name no variable.
    """
    arrays: dict[str, Array] = {}
    entries: dict[str, Any] = {}
    for name in chosen_names(store.names(), globs, "the models"):
        variable = store[name]
        if not variable.is_initialised or variable.current is None:
            continue
        form = variable.current
        desc = form.desc if raw else form.user_desc
        array = store.value(name, raw=raw)
        arrays[name] = portable(array)
        entries[name] = {
            "dtype": desc.dtype.serial,
            "format": desc.format.name,
            "shape": list(desc.shape),
            "stored_format": form.desc.format.name,
            "stored_shape": list(form.desc.shape),
            "raw": raw,
            "sha256": hashlib.sha256(arrays[name].tobytes()).hexdigest(),
        }
    if META in arrays:
        raise OutputError(
            "G6001",
            f"variable {META!r} cannot be saved with the others",
            why=f"the member {META!r} of the file says what its arrays are",
            do=f"--get-var {META}=FILE.npy saves it alone; --save-vars needs another name for it",
            node=META,
        )
    meta = json.dumps({"version": VERSION, "entries": entries}, sort_keys=True).encode()
    arrays[META] = np.frombuffer(meta, dtype=np.uint8)
    publish_bytes(path, npz_bytes(arrays))
    return sorted(entries)


def load_variables(
    store: VariableStore, path: str, *, globs: Sequence[str] = (), strict: bool = False
) -> tuple[list[str], list[Diagnostic]]:
    """Set the variables that the file and the session have in common; returns their names and what to say of the rest.

    With `globs` only those that one of them names; with `strict` the session must have all of these. Else variables
    that no model has are a note, unless none is left: a training checkpoint in an evaluation is ordinary.

    Raises InputError for a damaged file and RuntimeFault for a value that does not fit; then nothing has changed.
    """
    arrays = read_npz(path)
    meta = _meta(arrays.pop(META, None), path)
    strangers: list[str] = []
    values: dict[str, Array] = {}
    for name in chosen_names(sorted(arrays), globs, path):
        array = arrays[name]
        entry = meta.get(name, {})
        digest = entry.get("sha256")
        if digest is not None and hashlib.sha256(array.tobytes()).hexdigest() != digest:
            raise InputError("E13005", f"{path}: the data of variable {name!r} are damaged", file=path, node=name)
        if not store.take_over(name):
            strangers.append(name)
            continue
        values[name] = _checked(store, name, array, entry, path)
    if strict and strangers:
        raise _strangers(strangers, path)
    for name, array in values.items():
        store.set_value(name, array, by=f"--load-vars {path}")
    if not values:
        return [], [_nothing_fits(strangers, store.names(), path)]
    return sorted(values), [_no_model_has(strangers, path)] if strangers else []


def chosen_names(names: list[str], globs: Sequence[str], owner: str) -> list[str]:
    """The names that one of the globs matches, all without globs. Raises InvalidOption for a glob that matches none."""
    if not globs:
        return names
    from fnmatch import fnmatchcase

    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in names):
            raise InvalidOption(
                "E10016", f"--var-names {glob} names no variable of {owner}", option="--var-names",
                why=f"it has {_some(names) or 'none'}", do="--var-names with a name or pattern of these",
            )  # fmt: skip
    return [name for name in names if any(fnmatchcase(name, glob) for glob in globs)]


def _strangers(names: list[str], path: str) -> RuntimeFault:
    what = "a variable" if len(names) == 1 else f"{len(names)} variables"
    return RuntimeFault(
        "G4008", f"{path} holds {what} that no loaded model has", file=path, why=_some(names), kind="RT_VAR_NOT_FOUND",
        option="--vars-strict", do="leave out --vars-strict, or choose the others with --var-names",
    )  # fmt: skip


def _nothing_fits(names: list[str], known: list[str], path: str) -> Diagnostic:
    why = f"it holds {_some(names) or 'none'}; the models have {_some(known) or 'none'}"
    return Diagnostic(
        "G4008", f"{path} holds no variable of the session: nothing was loaded", severity="warning", file=path, why=why,
        do="load the checkpoint of a model with the same variable names", kind="RT_VAR_NOT_FOUND",
    )  # fmt: skip


def _no_model_has(names: list[str], path: str) -> Diagnostic:
    what = "a variable" if len(names) == 1 else f"{len(names)} variables"
    return Diagnostic("G4008", f"{path} holds {what} that no loaded model has", severity="note", file=path,
                      why=f"left out: {_some(names)}")  # fmt: skip


def _some(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def set_variable(store: VariableStore, name: str, array: Array, source: str) -> None:
    """Set one variable from an array in the user's format. Raises RuntimeFault."""
    store.set_value(name, _checked(store, name, array, {}, source), by=source)


def _checked(store: VariableStore, name: str, array: Array, entry: dict[str, Any], path: str) -> Array:
    form = store[name].current
    assert form is not None
    if entry.get("raw"):
        raise RuntimeFault(
            "G4011",
            f"{path} holds variable {name!r} as stored, not in its declared format",
            do="save it without --raw-format",
            kind="RT_INIT_VALUE_MISMATCH",
            file=path,
        )
    user = form.user_desc
    array = from_portable(array, user.dtype)
    converted = None if name in store.without_record else _from_origin(array, user, entry.get("format"))
    if converted is not None:
        return converted
    lost = "" if user.format.is_origin else store.without_record.get(name, "")
    cure = f"keep {os.path.basename(lost)} beside the OM, or name it with --vars, or give --session-in" if lost else ""
    unknown = f"; {lost} is not there, and only it says in which form the variable was declared" if lost else ""
    if tuple(array.shape) != user.shape or array.dtype != user.dtype.numpy:
        raise RuntimeFault(
            "G4011",
            f"the value for variable {name!r} in {path} does not fit",
            why=f"expected {_forms(user)}, got {_given(array, entry)}{unknown}",
            do=cure,
            kind="RT_INIT_VALUE_MISMATCH",
            file=path,
            expected=list(user.shape),
            actual=list(array.shape),
        )
    return array


def _from_origin(array: Array, user: TensorDesc, format: str | None) -> Array | None:
    """A value in the origin form of a variable that is declared blocked, converted; None for any other value.

    A graph that was emitted behind its passes declares its variables so. Not for a variable whose road is lost: its
    declared form may have other axes.
    """
    origin = user.logical()
    if user.format.is_origin or array.shape != origin.shape or array.dtype != origin.dtype.numpy:
        return None
    if format is None and array.shape == user.shape:
        return None
    if format is not None and format != origin.format.name:
        return None
    from gecli.layout.transfer import can_transfer  # not for those who only save
    from gecli.layout.transforms import convert

    if not can_transfer(origin, user, road=False)[0]:
        return None
    return convert(array, origin, user)


def _forms(user: TensorDesc) -> str:
    return str(user) if user.format.is_origin else f"{user} or {user.logical()}"


def _given(array: Array, entry: dict[str, Any]) -> str:
    format = entry.get("format")
    return f"{array.dtype.name} {f'{format} ' if format else ''}{list(array.shape)}"


def _meta(member: Array | None, path: str) -> dict[str, Any]:
    if member is None:
        return {}
    try:
        document = parse_json(member.astype(np.uint8).tobytes(), room=GRAPHS)
        entries: dict[str, Any] = document["entries"]
        if not isinstance(entries, dict) or not all(isinstance(each, dict) for each in entries.values()):
            raise TypeError("its entries are no objects")
    except (ValueError, KeyError, TypeError, RecursionError) as err:
        raise InputError("E13005", f"{path}: its {META} member is damaged", why=str(err), file=path) from err
    return entries


def portable(array: Array) -> Array:
    """The array in a type that numpy itself can load: types of ml_dtypes as unsigned integers of their width."""
    if array.dtype.kind != "V" and array.dtype.isbuiltin == 1:
        return array
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def npz_bytes(arrays: dict[str, Array], order: Iterable[str] | None = None) -> bytes:
    """An uncompressed npz; deterministic, because its members carry no time.

    Raises OutputError (G6001) for a name that no member of a zip archive can have.
    """
    import zipfile

    for name in arrays:
        if "\0" in name or len(name.encode("utf-8", "surrogatepass")) > LONGEST_NAME:
            raise _no_member(name)
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name in order or arrays:
            member = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            with archive.open(member, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(arrays[name]), allow_pickle=False)
    return buffer.getvalue()


def _no_member(name: str) -> OutputError:
    shown = name if len(name) <= 40 else f"{name[:40]}..."
    return OutputError(
        "G6001",
        f"array {shown!r} cannot be in an .npz file",
        why="its name has a NUL character" if "\0" in name else f"its name has more than {LONGEST_NAME} bytes",
        do="give the node of the model another name, or write .npy files: -o DIR, --get-var NAME=FILE.npy",
        node=name,
    )
