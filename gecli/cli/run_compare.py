"""`gecli run --compare`: what the outputs should be, from files or from another model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from gecli.cli.run_inputs import bad_value
from gecli.errors import InvalidOption
from gecli.report.comparison import Difference, Tolerances, compare_outputs, position_note, read_golden

if TYPE_CHECKING:
    from collections.abc import Callable

    from gecli.cli.console import Console
    from gecli.options.values import Options
    from gecli.runtime.reference import Reference
    from gecli.runtime.runner import Outcome
    from gecli.runtime.session import Session

Arrays = dict[str, Any]
FILE_ENDINGS = (".npz", ".npy")


class Golden:
    """Expected outputs: those in files, or a model that gives them for the inputs of this run.

    Open it before the run: a model begins with the variables that the session has then.
    """

    def __init__(
        self, options: Options, console: Console, session: Session, new_session: Callable[[], Session]
    ) -> None:
        path = options.text("compare") or ""
        self._tolerances = _tolerances(options)
        self._console = console
        self._path = path
        self._arrays: Arrays = {}
        self._reference: Reference | None = None
        self.origin = f"golden read from {path}"  # a sentence for the report
        if os.path.isdir(path) or path.endswith(FILE_ENDINGS):
            self._arrays = read_golden(path)
            return
        self._reference = self._model(path, session, new_session)

    def _model(self, path: str, session: Session, new_session: Callable[[], Session]) -> Reference:
        from gecli.loading.sniff import LOADABLE, FileKind, refusal, sniff
        from gecli.runtime.reference import OmReference, SourceReference, values_of

        kind = sniff(path)
        if kind in LOADABLE:
            self.origin = f"golden computed by gecli from {path}, unoptimised"
            return SourceReference(path, self._console.say)
        if kind is FileKind.OM:
            self.origin = f"golden computed by gecli from {path}, as compiled"
            return OmReference(path, new_session(), values_of(session.store), self._console.say)
        if kind in (FileKind.UNKNOWN, FileKind.NUMPY):
            raise InvalidOption(
                "E10001", f"--compare cannot read {path}", option="--compare", file=path,
                why="expected a .npz or .npy file, a directory of .npy files, an OM or an ONNX model",
                do="run the other model with -o GOLDEN.npz first, then --compare GOLDEN.npz",
            )  # fmt: skip
        raise refusal(kind, path)

    def differences(self, outcomes: list[Outcome], requests: list[list[Arrays]]) -> list[Difference]:
        """One row for each output of each model. Raises InvalidOption when the two cannot be laid side by side."""
        if self._reference is not None:
            if len(outcomes) > 1:
                raise InvalidOption(
                    "E10055", "--compare with a model takes one OM", option="--compare",
                    why=f"{len(outcomes)} runs of OMs are compared with {self._path}",
                    do="run the OMs one by one, or compare with a file of -o GOLDEN.npz",
                )  # fmt: skip
            self._arrays = _stacked([self._reference.run(feeds) for feeds in requests[0]], self._path)
        rows: list[Difference] = []
        for outcome in outcomes:
            outputs = _stacked(outcome.outputs, outcome.model.path)
            prefix = f"{outcome.model.name}/" if len(outcomes) > 1 else ""
            mine = {name[len(prefix) :]: array for name, array in self._arrays.items() if name.startswith(prefix)}
            if note := position_note(outputs, mine):
                self._console.say(f"{prefix}{note}")
            rows += compare_outputs(outputs, mine, self._tolerances)
        return rows


def _stacked(runs: list[Arrays], path: str) -> Arrays:
    """The outputs of one run; of several, with a leading axis for the runs."""
    if len(runs) == 1:
        return runs[0]
    for name in runs[0]:
        if len({each[name].shape for each in runs}) > 1:
            raise InvalidOption(
                "E10055", f"output {name!r} of {path} has another shape in every run", option="--compare",
                why="runs are compared as one array with a leading axis", do="give one run at a time with -i",
            )  # fmt: skip
    return {name: np.stack([each[name] for each in runs]) for name in runs[0]}


def _tolerances(options: Options) -> Tolerances:
    return Tolerances(
        _numbers(options.texts("rtol"), "--rtol"),
        _numbers(options.texts("atol"), "--atol"),
        options.text("stat") or "all",
        options.flag("nan-differs"),
    )


def _numbers(texts: tuple[str, ...], option: str) -> dict[str, float]:
    """`1e-5`, or `out0:1e-3`; several in one value are separated by blanks."""
    found: dict[str, float] = {}
    for item in (item for text in texts for item in text.split()):
        name, _, number = item.rpartition(":")
        try:
            found[name] = float(number)
        except ValueError as err:
            raise bad_value(option, item, "expected a number or NAME:NUMBER", f"{option} 1e-3") from err
        if not found[name] >= 0:
            raise bad_value(option, item, "a tolerance is a number that is not negative", f"{option} 1e-3")
    return found
