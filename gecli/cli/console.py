"""Where text goes: results on stdout, everything else on stderr, one JSON document with --json."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from gecli.errors import Diagnostic

_COLORS = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "note": "\x1b[1;36m"}
_RESET = "\x1b[0m"


class Console:
    """The screen of one command. `verbosity` counts -v; `quiet` leaves only errors and requested data."""

    def __init__(
        self,
        *,
        verbosity: int = 0,
        quiet: bool = False,
        json: bool = False,
        color: str = "auto",
        progress: str = "auto",
        environ: Mapping[str, str] | None = None,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        self.verbosity = verbosity
        self.quiet = quiet
        self.json = json
        self.color = color
        self.progress = progress
        self.environ = os.environ if environ is None else environ
        self.stdout = stdout or sys.stdout
        self.stderr = stderr or sys.stderr
        self.warnings: list[Diagnostic] = []  # those shown so far; documents list them
        self.document_printed = False
        self._log: TextIO | None = None
        self._log_fault: OSError | None = None

    def result(self, text: str) -> None:
        """What the user asked for, for people: stdout; stderr when stdout carries a JSON document."""
        if not self.json:
            self._write(self.stdout, text)
        elif not self.quiet:
            self._write(self.stderr, text)

    def say(self, text: str, level: int = 0, *, asked: bool = False) -> None:
        """Something to know on the way: stderr, from this verbosity on; always in the log file.

        What an option of its own has `asked` for is said with -q too, unless a document holds it.
        """
        self._note(text)
        if self.verbosity >= level and (not self.quiet or (asked and not self.json)):
            self._write(self.stderr, text)

    def document(self, content: Mapping[str, Any]) -> None:
        """The one JSON document of --json: sorted keys, a final newline."""
        import json

        self.document_printed = True
        # An escape that a narrow encoding would put in place of a character is not JSON's own.
        ascii_only = (self.stdout.encoding or "ascii").lower().replace("-", "") != "utf8"
        try:
            text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=ascii_only, allow_nan=False)
        except ValueError:
            text = json.dumps(_finite(content), indent=2, sort_keys=True, ensure_ascii=ascii_only, allow_nan=False)
        self._write(self.stdout, text)

    def report(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Errors, warnings and notes on stderr; at most 20 of one code, notes from -v on, no warnings when quiet."""
        from gecli.errors import MAX_SHOWN

        counts: dict[str, int] = {}
        for diagnostic in diagnostics:
            if diagnostic.severity == "warning":
                self.warnings.append(diagnostic)
            counts[diagnostic.code] = counts.get(diagnostic.code, 0) + 1
            if counts[diagnostic.code] <= MAX_SHOWN:
                self._show(diagnostic)
        for code, count in counts.items():
            if count > MAX_SHOWN:
                self.say(f"[{code}] and {count - MAX_SHOWN} more; --json lists {count}")

    def warn(self, diagnostic: Diagnostic) -> None:
        self.report([diagnostic])

    def open_log(self, path: str) -> None:
        """Write everything up to verbosity 3 to this file too."""
        try:
            self._log = open(path, "w", encoding="utf-8", opener=_without_waiting)  # noqa: SIM115  # open until close()
        except OSError as error:
            from gecli.errors import OutputError

            why = error.strerror or str(error)
            raise OutputError("E13004", f'log file "{path}" cannot be written', why=why, file=path) from error

    def close(self) -> Diagnostic | None:
        """End the log file; what was wrong with it, if anything."""
        if self._log is not None:
            try:
                self._log.close()
            except OSError as error:
                self._log_fault = self._log_fault or error
        if self._log_fault is None:
            return None
        from gecli.errors import Diagnostic

        path = self._log.name if self._log is not None else ""
        self._log = None
        why = self._log_fault.strerror or str(self._log_fault)
        return Diagnostic("E13004", "the log file is not complete", why=why, file=path, do="name another --log-file")

    def colored(self, stream: TextIO) -> bool:
        """Whether text on this stream may carry colour: --color, then FORCE_COLOR and NO_COLOR, then the terminal."""
        if self.color != "auto":
            return self.color == "always"
        if self.environ.get("FORCE_COLOR"):
            return True
        if self.environ.get("NO_COLOR") or self.environ.get("TERM") == "dumb":
            return False
        return stream.isatty()

    @property
    def progress_style(self) -> str:
        """`rich`, `plain` or `none`."""
        if self.progress != "auto":
            return self.progress
        if self.stderr.isatty() and not self.quiet and not self.environ.get("CI"):
            return "rich"
        return "plain" if self.verbosity >= 1 and not self.quiet else "none"

    def _show(self, diagnostic: Diagnostic) -> None:
        lines = diagnostic.lines()
        self._note("\n".join(lines))
        if diagnostic.severity != "error" and self.quiet:
            return
        if diagnostic.severity == "note" and self.verbosity < 1:
            return
        if self.colored(self.stderr):
            head, colon, rest = lines[0].partition(": ")
            lines[0] = f"{_COLORS[diagnostic.severity]}{head}{_RESET}{colon}{rest}"
        self._write(self.stderr, "\n".join(lines))

    def _note(self, text: str) -> None:
        """Into the log file. Its faults do not stop the command; `close` tells them."""
        if self._log is None or self._log_fault is not None:
            return
        try:
            self._write(self._log, text)
        except OSError as error:
            self._log_fault = error

    def _write(self, stream: TextIO, text: str) -> None:
        """Bytes of paths that are no UTF-8 are escapes in every environment, in JSON and in lines for people."""
        if not text.isascii():
            from gecli.json_text import escape_halves

            text = escape_halves(text)
        try:
            print(text, file=stream)
        except UnicodeEncodeError:
            encoding = stream.encoding or "ascii"
            print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream)


def _without_waiting(path: str, flags: int) -> int:
    """A pipe that nobody reads is an error at once (ENXIO)."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
    if hasattr(os, "set_blocking"):
        os.set_blocking(handle, True)
    return handle


def _finite(content: Any) -> Any:
    """JSON has no numbers for NaN and infinities: they are the strings nan, inf and -inf."""
    if isinstance(content, float) and content - content != 0:
        return str(content)
    if isinstance(content, Mapping):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return content
