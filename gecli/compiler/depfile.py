"""--depfile: Make rules that name everything a compile read (cli.md 1.11). GNU Make and Ninja read them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from gecli.artifacts.publish import publish_bytes
from gecli.compiler.job import STDIO
from gecli.compiler.result import CompileReport
from gecli.options.values import Options

# Options that name files to read; files of recorded options are not opened.
READ_BY = ("ge.exec.modify_mixlist", "keep_dtype", "ge.fusionSwitchFile", "raw-ge-options", "session-in")


def write_depfile(path: str, report: CompileReport, options: Options) -> None:
    """Write the rules of every output, the OM's first. Raises OutputError.

    All that was read beside the models has an empty rule too, as `gcc -MP` writes: when one of these files is gone,
    Make compiles again instead of stopping with "No rule to make target".
    """
    others = [text for name in READ_BY if (text := options.text(name))]
    rules = []
    beside: dict[str, None] = {}
    for result in report.models:
        read = [as_typed(file, result.source) for file in result.files_read] or [result.source]
        wanted = [file for file in dict.fromkeys([*read, *others, *options.config_files]) if file != STDIO]
        outputs = [result.output.path, *([result.rdcpkt.path] if result.rdcpkt else [])]
        rules += [rule(output, wanted) for output in outputs if output != STDIO]
        beside |= dict.fromkeys(wanted)
    models = {result.source for result in report.models}
    rules += [f"{escaped(each)}:\n" for each in beside if each not in models and rules]
    publish_bytes(path, "".join(rules).encode("utf-8", "surrogateescape"))


def as_typed(path: str, model: str) -> str:
    """External data is found by its real path; beside a relative model it is named relative too."""
    if not os.path.isabs(path) or os.path.isabs(model) or model == STDIO:
        return path
    directory = os.path.dirname(model)
    return os.path.normpath(os.path.join(directory, os.path.relpath(path, os.path.realpath(directory or "."))))


def rule(output: str, dependencies: Iterable[str]) -> str:
    """One rule on one line."""
    return f"{escaped(output)}: {' '.join(escaped(each) for each in dependencies)}\n"


def escaped(path: str) -> str:
    """A path as Make reads it: blank and `#` behind a backslash (those before it doubled), `$` doubled."""
    path = re.sub(r"(\\*)([ \t#])", lambda found: f"{found[1]}{found[1]}\\{found[2]}", path)
    return path.replace("$", "$$")
