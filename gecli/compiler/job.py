"""Which models a command compiles and where each result goes (cli.md 1.11, 1.12)."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gecli.artifacts.publish import is_special
from gecli.errors import Diagnostic, GecliError, InvalidOption
from gecli.records import dataclass

STDIO = "-"
OM = ".om"
STDOUT_FILES = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
MAX_NAME_BYTES = 255 - len(".rdcpkt") - len("..tmp-4194304")
MAX_PATH_BYTES = 4095  # PATH_MAX without its end mark


@dataclass(frozen=True, slots=True)
class Job:
    """One model to compile. `om_path` is `-` for standard output; `stem` is the name of model and graph.

    `one_of_several`: the command has more models, so that options may name what this one lacks.
    """

    source: str
    om_path: str
    stem: str
    one_of_several: bool = False

    @property
    def rdcpkt_path(self) -> str:
        """Beside the OM. A device or pipe has nothing beside it."""
        return os.devnull if is_one_file(self.om_path) else os.path.splitext(self.om_path)[0] + ".rdcpkt"


def is_one_file(om_path: str) -> bool:
    """Whether the OM of a job goes to standard output, a device or a pipe: every other one has its suffix."""
    return not om_path.endswith(OM)


def jobs_of(models: Sequence[str], output: str | None) -> list[Job]:
    """One job for each model.

    The output is a directory when it ends in a slash, is one already, or there are several models; else it is the OM
    with or without its suffix, which devices and pipes do not get. Raises InvalidOption: E10054 without an output,
    E10022 and E10021 for a bad name, E10001 for two models with one stem, E10047 for an output that is the model.
    """
    if not output:
        raise InvalidOption("E10054", "--output is missing", option="--output", do=f"-o {_stem(models[0])}.om")
    if output == STDIO or output in STDOUT_FILES:
        return [_to_stdout(models, output)]
    if output.endswith(os.sep) or len(models) > 1 or os.path.isdir(output):
        several = len(models) > 1
        jobs = [
            Job(model, os.path.join(output, f"{_stem(model)}{OM}"), _name(_stem(model)), several) for model in models
        ]
    elif is_special(output):
        jobs = [Job(models[0], output, _name(stem_of(output) if output.endswith(OM) else _stem(models[0])))]
    else:
        path = output if output.endswith(OM) else f"{output}{OM}"
        jobs = [Job(models[0], path, _name(stem_of(path)))]
    _check(jobs)
    return jobs


def _to_stdout(models: Sequence[str], output: str) -> Job:
    if len(models) > 1:
        raise InvalidOption(
            "E10001",
            f"-o {output} takes one model",
            option="--output",
            why=f"{len(models)} models were given",
            do="-o DIR/",
        )
    return Job(models[0], STDIO, _name(_stem(models[0])))


def stem_of(path: str) -> str:
    """The last part of a path without its last suffix."""
    return os.path.splitext(os.path.basename(path.rstrip(os.sep)))[0]


def _stem(model: str) -> str:
    return "model" if model == STDIO else stem_of(model) or "model"


def _name(stem: str) -> str:
    """A stem as a model's name, which is UTF-8: other bytes of a file name are written as `\\xe9`."""
    return stem if stem.isascii() else os.fsencode(stem).decode("utf-8", "backslashreplace")


def _check(jobs: list[Job]) -> None:
    problems: list[Diagnostic] = []
    seen: dict[str, Job] = {}
    for job in jobs:
        if job.stem in ("", "."):
            problems.append(Diagnostic("E10022", f"output {job.om_path!r} has no file name", option="--output"))
        if len(os.fsencode(job.om_path)) > MAX_PATH_BYTES:
            why = f"{len(os.fsencode(job.om_path))} bytes, the limit is {MAX_PATH_BYTES}"
            message = f"the output path of {job.source} is too long"
            problems.append(Diagnostic("E10021", message, option="--output", why=why, do="-o NAME.om"))
        elif len(os.fsencode(os.path.basename(job.om_path))) > MAX_NAME_BYTES:
            problems.append(
                Diagnostic("E10021", f"the output name of {job.source} is too long", option="--output", do="-o NAME.om")
            )
        other = seen.setdefault(job.om_path, job)
        if other is not job:
            problems.append(
                Diagnostic(
                    "E10001",
                    f"two models would be written to {job.om_path}",
                    option="--output",
                    why=f"{other.source} and {job.source} have the same stem",
                    do="rename one, or compile them with two commands",
                )
            )
        if _is_same(job.om_path, job.source):
            problems.append(
                Diagnostic(
                    "E10047", f"--output would overwrite the input {job.source}", why="both name one file",
                    do="-o ANOTHER_FILE", option="--output", file=job.om_path,
                )
            )  # fmt: skip
    if problems:
        raise GecliError.of(problems)


def _is_same(om_path: str, source: str) -> bool:
    if os.path.abspath(om_path) == os.path.abspath(source):
        return not is_special(om_path)
    try:
        return os.path.samefile(om_path, source) and os.path.isfile(om_path)
    except (OSError, ValueError):
        return False
