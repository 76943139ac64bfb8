"""Diagnostics: what a user is told when something is wrong, and the exceptions that carry it.

Every diagnostic has four parts: what failed, where, why (expected and actual), and what to do. Its code, and with
the code the exit status, comes from the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from gecli.records import dataclass

if TYPE_CHECKING:
    from gecli.error_catalog import Entry  # loaded for messages only: a command that finds nothing wrong has none

MAX_SHOWN = 20  # diagnostics of one code on the screen; --json has all of them


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error, warning or note.

    `message` says what failed; `where` names the place in words; `why` shows expected and actual; `do` is a command
    or value the user can copy. `kind` is the short name of the other specifications (`bad-table`, `RT_OOM`).
    """

    code: str
    message: str
    where: str = ""
    why: str = ""
    do: str = ""
    kind: str = ""
    severity: str = "error"
    option: str | None = None
    file: str | None = None
    node: str | None = None
    stage: str | None = None
    offset: int | None = None
    pointer: str | None = None
    expected: Any = None
    actual: Any = None

    @property
    def exit_status(self) -> int:
        from gecli.error_catalog import exit_status_of

        return exit_status_of(self.code, self.kind)

    def as_json(self) -> dict[str, Any]:
        """The machine form: one object of the `errors` and `warnings` lists of every JSON document."""
        from gecli.error_catalog import title_of

        where = {
            "text": self.place() or None,
            "option": self.option,
            "file": self.file,
            "node": self.node,
            "stage": self.stage,
            "offset": self.offset,
            "pointer": self.pointer,
        }
        return {
            "severity": self.severity,
            "code": self.code,
            "kind": self.kind or None,
            "title": title_of(self.code),
            "where": {key: value for key, value in where.items() if value is not None},
            "expected": self.expected,
            "actual": self.actual,
            "message": self.message,
            "why": self.reason() or None,
            "fix": self.remedy() or None,
            "related": [],
            "ge_code": self.code if self.code.startswith(("E", "W")) else None,
        }

    def place(self) -> str:
        """Where it is: as said by the raise site, else made of option, file, offset, node and pointer."""
        if self.where:
            return self.where
        found = [self.option or "", self.file or ""]
        found += [f"offset {self.offset}" if self.offset is not None and self.file else ""]
        found += [f"node {self.node}" if self.node else "", self.pointer or ""]
        return ", ".join(each for each in found if each)

    def reason(self) -> str:
        """Why: as said by the raise site, else expected and actual, else, for an error, the cause in the catalogue."""
        if self.why:
            return self.why
        if self.expected is not None and self.actual is not None:
            return f"expected {self.expected}, got {self.actual}"
        entry = self._entry()
        return "" if entry is None else entry.cause

    def remedy(self) -> str:
        """What to do: as said by the raise site, else, for an error, the remedy in the catalogue."""
        entry = None if self.do else self._entry()
        return self.do if entry is None else entry.remedy

    def _entry(self) -> Entry | None:
        from gecli.error_catalog import entry_of

        return entry_of(self.code) if self.severity == "error" else None

    def lines(self) -> list[str]:
        """The human form, without colour."""
        shown = [f"{self.severity}[{self.code}]: {_in_block(self.message)}"]
        if place := self.place():
            shown.append(f"  --> {_in_block(place)}")
        if why := self.reason():
            shown.append(f"  why: {_in_block(why)}")
        if do := self.remedy():
            shown.append(f"  do:  {_in_block(do)}")
        return shown


class GecliError(Exception):
    """The user's mistake or the user's file: shown as messages without a traceback, with an exit status.

    Build it from one diagnostic's fields, or from several diagnostics with `GecliError.of`.
    """

    def __init__(self, code: str, message: str, **fields: Any) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = (Diagnostic(code, message, **fields),)
        super().__init__(f"[{code}] {message}")

    @classmethod
    def of(cls, diagnostics: Iterable[Diagnostic]) -> GecliError:
        """An error that reports several diagnostics at once; the first one decides the exit status."""
        found = tuple(diagnostics)
        first = found[0]
        error = cls(first.code, first.message)
        error.diagnostics = found
        return error

    def at(self, **place: Any) -> Self:
        """The same error; its diagnostics that say no place get this one."""
        self.diagnostics = tuple(each if each.place() else replace(each, **place) for each in self.diagnostics)
        return self

    @property
    def first(self) -> Diagnostic:
        return self.diagnostics[0]

    @property
    def code(self) -> str:
        return self.first.code

    @property
    def kind(self) -> str:
        return self.first.kind

    @property
    def exit_status(self) -> int:
        return self.first.exit_status


class InvalidOption(GecliError):
    """An option's name, value or combination (exit status 2)."""


class InputError(GecliError):
    """A model, artifact or data file that cannot be used (exit status 3)."""


class CompileError(GecliError):
    """A compile stage failed on a well-formed graph (exit status 4)."""


class OutputError(GecliError):
    """An output cannot be written (exit status 5)."""


class RuntimeFault(GecliError):
    """Execution failed (exit status 6)."""


class CacheError(GecliError):
    """The cache was required and cannot be used (exit status 7)."""


def printable(text: str, limit: int = 2000) -> str:
    """Text from files and options made safe for a terminal: control characters escaped, length capped."""
    shown = text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else _escape(c) for c in text)
    return shown if len(shown) <= limit else f"{shown[:limit]}... ({len(shown)} characters)"


def _in_block(text: str) -> str:
    """Printable text whose further lines are indented: a file name with a newline cannot look like a message."""
    return printable(text).replace("\n", "\n       ")


def _escape(char: str) -> str:
    return (
        char.encode("unicode_escape", "surrogatepass").decode("ascii") if ord(char) < 0xD800 else f"\\u{ord(char):04x}"
    )
