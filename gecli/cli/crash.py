"""What a user sees of an exception that gecli did not foresee."""

from __future__ import annotations

import errno
import sys
from collections.abc import Mapping

from gecli.errors import Diagnostic

ISSUES = "the project's issue tracker"


def diagnostics_of(error: Exception, environ: Mapping[str, str]) -> Diagnostic:
    """What the system lacks (disk: G6002, memory: G4005) is named; all else is ours (G9999), with a crash report."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        where = str(error.filename or "standard output")
        return Diagnostic(
            "G6002", "no space left for the output", where=where, why=error.strerror or "", do="free some space"
        )
    if isinstance(error, FileNotFoundError) and "usable temporary directory" in str(error):  # words of `tempfile`
        return Diagnostic(
            "G6001", "no temporary file can be written", where="TMPDIR", why=error.strerror or str(error),
            do="export TMPDIR=DIRECTORY, one with free space that this user may write",
        )  # fmt: skip
    lack = _lack_of_memory(error)
    if lack:
        return Diagnostic(
            "G4005", "there is not enough memory", where="this machine", why=lack,
            do="give smaller inputs, or use a machine with more memory", kind="RT_OOM",
        )  # fmt: skip
    if environ.get("GECLI_DEBUG") == "1":
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    kind = type(error).__name__
    do = f"report it to {ISSUES} with {_write_report(error)}"
    where = " ".join(["gecli", *sys.argv[1:]])[:200]
    return Diagnostic("G9999", "gecli met a case that it does not handle", where=where, why=f"{kind}: {error}", do=do)


def _lack_of_memory(error: BaseException | None) -> str:
    """Its words, if that is what an exception or a cause of it says; the system has many ways to say so."""
    seen: list[BaseException] = []  # an exception may be its own cause
    while error is not None and all(error is not each for each in seen):
        seen.append(error)
        text = str(error).splitlines()[-1].strip() if str(error).strip() else ""
        if isinstance(error, MemoryError):
            return text or "an allocation failed"
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            return error.strerror or text
        if isinstance(error, ImportError) and ("failed to map segment" in text or "allocate memory" in text):
            return text
        if isinstance(error, RuntimeError) and text == "can't start new thread":
            return "no thread can be started"
        error = error.__cause__ or error.__context__
    return ""


def _write_report(error: Exception) -> str:
    """Write the crash report; returns its path, or what to do when it cannot be written."""
    import platform
    import tempfile
    import traceback

    from gecli.version import __version__

    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="gecli-crash-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(f"gecli {__version__}, Python {platform.python_version()}, {platform.platform()}\n")
            file.write(f"argv: {sys.argv!r}\n\n")
            file.writelines(traceback.format_exception(error))
            return file.name
    except OSError:
        return "the traceback that GECLI_DEBUG=1 prints"
