"""The command line that an OM records: normalised, so that equal compiles give equal bytes (cli.md 1.11)."""

from __future__ import annotations

import os
import shlex

from gecli.options.option import value_text
from gecli.options.values import Options


def recorded_cmdline(options: Options, source: str) -> str:
    """`gecli compile MODEL` and every option that counts and differs from its default, paths cut to base names.

    With --keep-cmdline the line as typed.
    """
    if options.command_line:
        return options.command_line
    words = ["gecli", "compile", os.path.basename(source)]
    for option, value in options.non_default_items():
        text = value_text(value)
        if option.type == "path":
            text = os.path.basename(text)
        words.append(f"--{option.name}" if value is True else f"--{option.name}={text}")
    return shlex.join(words)
