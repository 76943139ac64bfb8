"""Files that options write: none may be an input of the same command, and no two may be one file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from gecli.errors import Diagnostic, InvalidOption
from gecli.options.values import Options


def check_written_files(names: Sequence[str], inputs: Sequence[str], options: Options) -> None:
    """Raises InvalidOption for each option of `names` that would overwrite an input or what another option writes."""
    owners = {_identity(path): f"the input {path}" for path in inputs if path != "-"}
    if "report" in names:  # compile, which has an --output of its own kind
        owners.update((_identity(path), f"--output {path}") for path in _outputs(options, len(inputs)))
    problems = []
    for name in names:
        path = options.text(name)
        if not path or not _is_plain(path):
            continue
        owner = owners.setdefault(_identity(path), f"--{name} {path}")
        if owner != f"--{name} {path}":
            problems.append(
                Diagnostic(
                    "E10047",
                    f"--{name} would overwrite {owner}",
                    why="both name one file",
                    do=f"--{name} ANOTHER_FILE",
                    option=f"--{name}",
                    file=path,
                )
            )
    if problems:
        raise InvalidOption.of(problems)


def _outputs(options: Options, count: int) -> Iterator[str]:
    """The OM and rdcpkt of a command with one model; several models lie in a directory."""
    output = options.text("output")
    if not output or output == "-" or count != 1 or os.path.isdir(output):
        return
    path = output if output.endswith(".om") else f"{output}.om"
    yield path
    yield f"{path.removesuffix('.om')}.rdcpkt"


def _is_plain(path: str) -> bool:
    """A regular file, or one that is not there yet; many may write to a device."""
    return os.path.isfile(path) or not os.path.lexists(path)


def _identity(path: str) -> tuple[int, int] | str:
    """What two names of one file share."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return os.path.realpath(path) if "\0" not in path else path
    return found.st_dev, found.st_ino
