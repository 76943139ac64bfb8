"""Which input of which model a specification of `gecli run -i` speaks of."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from gecli.errors import InvalidOption
from gecli.records import dataclass
from gecli.runtime.interface import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(slots=True, eq=False)
class Command:
    """The models of one command by name, and what they read together: standard input has its bytes only once."""

    models: Sequence[tuple[str, Sequence[Tensor]]]
    _stdin: Mapping[str, NDArray[Any]] | None = field(default=None, init=False)

    def stdin_arrays(self) -> Mapping[str, NDArray[Any]]:
        from gecli.runtime.array_files import read_npz_from_stdin

        if self._stdin is None:
            self._stdin = read_npz_from_stdin()
        return self._stdin


@dataclass(frozen=True, slots=True)
class InputNames:
    """The inputs of one model, among those of the other models of the command."""

    inputs: Sequence[Tensor]
    model: str = ""
    command: Command = field(default_factory=lambda: Command(()))

    @property
    def is_alone(self) -> bool:
        return len(self.command.models) < 2

    def find(self, name: str, file: str) -> Tensor | None:
        """The input that an npz has an array for; None when it is one of another model.

        Raises InvalidOption when no model has it.
        """
        for tensor in self.inputs:
            if tensor.name == name:
                return tensor
        if any(tensor.name == name for _, inputs in self.command.models for tensor in inputs):
            return None
        raise self._unknown(name, file)

    def at(self, index: int, spec: str, file: str = "") -> Tensor | None:
        """Input number `index`; None when only another model has so many. Raises InvalidOption when none has."""
        if index < len(self.inputs):
            return self.inputs[index]
        if any(index < len(inputs) for _, inputs in self.command.models):
            return None
        raise self._unknown(spec, file)

    def positional(self, index: int, file: str) -> Tensor | None:
        """The input for a file without a name; None for a model that has no inputs where others have some.

        Raises InvalidOption for a file too many: which of several models should get it is not said.
        """
        if index < len(self.inputs):
            return self.inputs[index]
        others = [inputs for _, inputs in self.command.models if inputs]
        if not self.inputs and index < max(map(len, others), default=0):
            return None
        count = len(self.inputs)
        shown = f" {self.model!r}" if self.model else ""
        raise InvalidOption(
            "E10001", f"-i {file!r} is one input too many", option="--input",
            why=f"the model{shown} has {count} input{'s' if count != 1 else ''}", do=self._cure(self._near(file)),
        )  # fmt: skip

    def split(self, spec: str) -> tuple[str, str | None]:
        """(input name or "", source); source None when the specification is for another OM."""
        names = {tensor.name for tensor in self.inputs}
        for name in sorted(names, key=len, reverse=True):
            if spec.startswith(f"{name}="):
                return name, spec[len(name) + 1 :]
        head, equals, source = spec.partition("=")
        if not equals or os.path.exists(spec):
            return "", spec
        if re.fullmatch(r"#\d{1,9}", head):
            tensor = self.at(int(head[1:]), head)
            return ("", None) if tensor is None else (tensor.name, source)
        if any(spec.startswith(f"{tensor.name}=") for _, inputs in self.command.models for tensor in inputs):
            return "", None
        for model, inputs in self.command.models:
            name = head.removeprefix(f"{model}:")
            if name != head and any(tensor.name == name for tensor in inputs):
                return (name, source) if model == self.model and name in names else ("", None)
        raise self._unknown(head)

    def _unknown(self, name: str, file: str = "") -> InvalidOption:
        """Several models are all named: what one of them lacks may be an input of another."""
        names = self._all_names()
        shown = f" {self.model!r}" if self.model else ""
        own = ", ".join(f"{tensor.name} {tensor.desc}" for tensor in self.inputs) or "none"
        cure = self._cure(self._near(name))
        return InvalidOption(
            "E10016",
            f"{file or '--input'} names {name!r}, which is no input of "
            + (f"the model{shown}" if self.is_alone else "any model"),
            option="--input",
            why=f"its inputs: {own}" if self.is_alone else f"the inputs of {self._shown()}",
            do=f"leave that array out of the file, or give inputs one by one: {cure}" if file and names else cure,
            expected=names,
            actual=name,
        )

    def _shown(self) -> str:
        rows = [f"{model}: {', '.join(t.name for t in inputs) or 'none'}" for model, inputs in self.command.models]
        return "; of ".join(rows)

    def _all_names(self) -> list[str]:
        models = [self.inputs] if self.is_alone else [inputs for _, inputs in self.command.models]
        return list(dict.fromkeys(tensor.name for inputs in models for tensor in inputs))

    def _near(self, name: str) -> str:
        import difflib

        names = self._all_names()
        return next(iter((*difflib.get_close_matches(name, names, n=1), *names)), "")

    def _cure(self, near: str) -> str:
        if near:
            return f"-i {near}=FILE"
        return "leave out -i: nothing is read" if self.is_alone else "leave out -i: the models read nothing"
