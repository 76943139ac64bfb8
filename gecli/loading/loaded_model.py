"""What a front end hands to the compiler: the graph, and what must be known of where it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, BinaryIO

from gecli.errors import Diagnostic
from gecli.records import dataclass

if TYPE_CHECKING:
    from gecli.ir.graph import Graph
    from gecli.ir.op_desc import Port
    from gecli.loading.shape_binding import InputRow
    from gecli.wire.file_state import FileState


@dataclass(frozen=True, slots=True)
class Origin:
    """What the compile that a graph went through before says of itself; empty where it does not."""

    soc: str = ""
    framework: str = ""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A graph in memory with its source: `files` are all files read, the model first (depfile, digest).

    `tensors` says where the source's tensors are, if it names them.
    """

    graph: Graph
    front_end: str
    path: str
    files: tuple[str, ...]
    inputs: tuple[InputRow, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    producer: str = ""
    structure_only: bool = False
    tensors: Mapping[str, Port] = field(default_factory=dict)
    unmatched: tuple[Diagnostic, ...] = ()  # names of shape options that this model lacks, if it is one of several
    origin: Origin | None = None  # of an optimised graph
    states: tuple[FileState, ...] = ()  # of the files when they were read

    def require_unchanged(self) -> None:
        """Raises InputError when a file changed since: weights are read from it until an output is written."""
        for state in self.states:
            state.require_same()

    def written_unchanged(self, write: Callable[[BinaryIO], object]) -> Callable[[BinaryIO], None]:
        """`write`, which copies weights, and then the question whether all of them came out of the same files."""

        def checked(stream: BinaryIO) -> None:
            write(stream)
            self.require_unchanged()

        return checked

    @property
    def overrides(self) -> tuple[Diagnostic, ...]:
        """Warnings of fixed dimensions that a shape option replaced."""
        return tuple(warning for warning in self.warnings if warning.code == "E10050")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What the user allows a front end to do."""

    allow_outside: bool = False
    allow_unsupported: bool = False
    rename_duplicates: bool = False
    external_weights: bool = False
    strict: bool = False
