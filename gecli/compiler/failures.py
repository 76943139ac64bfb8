"""Errors of several models in one, and warnings that --werror makes errors: their exit statuses (cli.md 0.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gecli.errors import CompileError, Diagnostic, GecliError


class SeveralFailures(GecliError):
    """What failed with --keep-going; the exit status is the largest."""

    @property
    def exit_status(self) -> int:
        return max(diagnostic.exit_status for diagnostic in self.diagnostics)


class RefusedWarnings(CompileError):
    """Warnings of a compile under --werror."""

    @property
    def exit_status(self) -> int:
        from gecli.error_catalog.entry import COMPILE

        return COMPILE


def combined(errors: Sequence[GecliError]) -> GecliError:
    """One error that reports all of these."""
    if len(errors) == 1:
        return errors[0]
    return SeveralFailures.of([diagnostic for error in errors for diagnostic in error.diagnostics])


def refuse(warnings: Iterable[Diagnostic]) -> None:
    """Raises RefusedWarnings if there are any."""
    found = [replace(warning, severity="error") for warning in warnings if warning.severity == "warning"]
    if found:
        raise RefusedWarnings.of(found)
