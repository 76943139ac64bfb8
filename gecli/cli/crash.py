"""What a user sees of an exception that gecli did not foresee."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Mapping

from gecli.errors import Diagnostic

ISSUES = "the project's issue tracker"
PACKAGES = {  # what pip installs with gecli, by the name that is imported
    "click": "click",
    "filelock": "filelock",
    "google": "protobuf",
    "ml_dtypes": "ml_dtypes",
    "networkx": "networkx",
    "numpy": "numpy",
    "rich": "rich",
}


def diagnostics_of(error: Exception, environ: Mapping[str, str]) -> Diagnostic:
    """What is lacking (disk: G6002, memory: G4005, a package: G9001) is named; all else is ours (G9999)."""
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
    if isinstance(error, FileNotFoundError) and _is_nowhere():
        return Diagnostic(
            "E13001", "the working directory is gone", where="the current directory", why=error.strerror or str(error),
            do="cd to a directory that exists, or give absolute paths",
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
    package, why = _broken_package(error)
    if package:
        return Diagnostic(
            "G9001", f"the installation of gecli is incomplete: {package} cannot be loaded",
            where=f"Python {sys.prefix}", why=why, do="pip install --force-reinstall gecli",
        )  # fmt: skip
    kind = type(error).__name__
    do = f"report it to {ISSUES} with {_write_report(error)}"
    where = " ".join(["gecli", *sys.argv[1:]])[:200]
    return Diagnostic("G9999", "gecli met a case that it does not handle", where=where, why=f"{kind}: {error}", do=do)


def _is_nowhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and its causes."""
    seen: list[BaseException] = []  # an exception may be its own cause
    while error is not None and all(error is not each for each in seen):
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__


def _broken_package(error: BaseException) -> tuple[str, str]:
    """The package of gecli that is missing or cannot be imported, and the words; empty when it is something else."""
    faults = [each for each in _chain(error) if isinstance(each, ImportError)]
    for each in faults:
        missing = (each.name or "").partition(".")[0]
        words = " ".join(str(faults[-1]).split())  # the first cause: packages put advice around it
        if missing == "gecli" and isinstance(each, ModuleNotFoundError):
            return "gecli", words
        for name in (missing, *_importing(each)):  # or what it needs itself is missing
            if name in PACKAGES:
                return PACKAGES[name], words
    return "", ""


def _importing(error: BaseException) -> Iterator[str]:
    """The top-level names of the modules that an exception came through, the innermost first."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    return (str(frame.f_globals.get("__name__", "")).partition(".")[0] for frame in reversed(frames))


def _lack_of_memory(error: BaseException) -> str:
    """Its words, if that is what an exception or a cause of it says; the system has many ways to say so."""
    for each in _chain(error):
        text = str(each).splitlines()[-1].strip() if str(each).strip() else ""
        if isinstance(each, MemoryError):
            return text or "an allocation failed"
        if isinstance(each, OSError) and each.errno == errno.ENOMEM:
            return each.strerror or text
        if isinstance(each, ImportError) and ("failed to map segment" in text or "allocate memory" in text):
            return text
        if isinstance(each, RuntimeError) and text == "can't start new thread":
            return "no thread can be started"
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
