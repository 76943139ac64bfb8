"""The errors of variable memory: each names the variable, the graph and the two values that disagree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from gecli.errors import CompileError, Diagnostic, InputError
from gecli.ir.tensor_desc import TensorDesc
from gecli.variables.limits import TOTAL_LIMIT_BYTES

if TYPE_CHECKING:
    from gecli.variables.trans_road import TransRoad

ONE_SESSION = "compile the models in one session, or run with --no-session"


def not_found(name: str, why: str, do: str = "") -> CompileError:
    return CompileError("G2015", f"variable {name!r} is not known", kind="VAR_NOT_FOUND", node=name, why=why, do=do)


def no_memory(name: str, type: str, writer: str) -> CompileError:
    return CompileError(
        "G2015",
        f"{type} {name!r} cannot be written",
        kind="VAR_NOT_FOUND",
        node=name,
        why=f"{writer!r} writes it, and a {type} has no variable memory",
        do='declare it with the type "Variable"',
    )


def other_form(name: str, graph: str, known: TensorDesc, desc: TensorDesc) -> Diagnostic:
    """A warning: two graphs use the same bytes as different things."""
    return Diagnostic(
        "G2016",
        f"variable {name!r} is declared in another form than in an earlier graph; its bytes are not converted",
        severity="warning",
        kind="VAR_FORM_DIFFERS",
        where=f"graph {graph!r}, node {name!r}",
        why=f"declared {desc} here, the session's variable is {known}",
        do="declare the variable as the first graph does, or rename it",
        node=name,
        expected=str(known),
        actual=str(desc),
    )


def shape_grows(name: str, old: TensorDesc, new: TensorDesc, capacity: int, where: str) -> CompileError:
    return CompileError(
        "G2011",
        f"variable {name!r} changed shape from {list(old.shape)} to {list(new.shape)}",
        kind="VAR_SHAPE_GROWS",
        node=name,
        where=where,
        why=f"its block holds {capacity} bytes ({old}); {new} needs {new.size_bytes}",
        do="remove the variable or rename it",
        expected=capacity,
        actual=new.size_bytes,
    )


def key_conflict(name: str, why: str) -> CompileError:
    return CompileError("G2010", f"variable {name!r} has two addresses", kind="VAR_KEY_CONFLICT", node=name, why=why)


def overlap(name: str, start: int, size: int, other: str, other_start: int) -> CompileError:
    return CompileError(
        "G2012",
        f"variable {name!r} overlaps variable {other!r}",
        kind="VAR_OVERLAP",
        node=name,
        why=f"{size} bytes at {start:#x} meet the block at {other_start:#x}",
        do=ONE_SESSION,
    )


def exhausted(graph: str, used: int, limit: int) -> CompileError:
    do = f"raise the limit: --var-mem-max-size {used}"
    if used > TOTAL_LIMIT_BYTES:
        do = f"make the variables smaller: no device has more than {TOTAL_LIMIT_BYTES} bytes for them"
    return CompileError(
        "G2013",
        f"variable memory exhausted: used {used}, limit {limit}",
        kind="VAR_MEM_EXHAUSTED",
        where=f"graph {graph!r}",
        why=f"expected at most {limit} bytes of variables; actual {used}",
        do=do,
        expected=limit,
        actual=used,
    )


def road_conflict(name: str, known: TransRoad, new: TransRoad) -> CompileError:
    return CompileError(
        "G2016",
        f"variable {name!r} already has another trans road",
        kind="VAR_ROAD_CONFLICT",
        node=name,
        why=f"a variable's stored form changes at most once a session; it took {_shown(known)}, now {_shown(new)}",
        do="compile the graphs that disagree in two sessions",
        expected=_shown(known),
        actual=_shown(new),
    )


def is_narrower(name: str, road: TransRoad, graph: str) -> CompileError:
    """An earlier command took from a variable what this graph needs."""
    wide, narrow = road.source.dtype.serial, road.target.dtype.serial
    return CompileError(
        "G2016",
        f"variable {name!r} is stored as {narrow}, and graph {graph!r} needs it as {wide}",
        kind="VAR_ROAD_CONFLICT",
        where=f"graph {graph!r}, variable {name}",
        why=f"every model compiled before casts it to {narrow}; this one would get and leave rounded values",
        do="compile the models in one command, or the earlier ones with --strict-variable-cast",
        node=name,
        expected=wide,
        actual=narrow,
    )


def _shown(road: TransRoad) -> str:
    return " ".join(f"{step.type}({step.src} -> {step.dst})" for step in road) or "no step"


@contextmanager
def in_graph(name: str) -> Iterator[None]:
    """Errors that name no place get the graph."""
    try:
        yield
    except CompileError as error:
        error.diagnostics = tuple(
            each if f"graph {name!r}" in each.where else replace(each, where=_joined(f"graph {name!r}", each.where))
            for each in error.diagnostics
        )
        raise


def _joined(graph: str, where: str) -> str:
    return f"{graph}, {where}" if where else graph


def restore_fault(kind: str, name: str, message: str, why: str, do: str = "") -> InputError:
    """A variable of a loaded model that does not fit the session, under the runtime's name."""
    code = "G4011" if kind == "RT_VAR_GREW" else "G4010"
    return InputError(code, message, kind=kind, node=name, why=why, do=do)
