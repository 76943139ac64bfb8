"""The contract of a pass, and what a pass may use while it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any, ClassVar

from gecli.engine.precision import MixLists
from gecli.errors import Diagnostic
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.layout.platform import Platform
from gecli.passes.facts import Fact
from gecli.records import dataclass
from gecli.variables.rebuild_control import RebuildControl
from gecli.variables.var_manager import VarManager


class Stage(Enum):
    """The stages of GE's offline compile in their order; the values are GE's dump names (cli.md 6.1)."""

    NORMALIZE = "NormalizeGraph"
    PREPARE = "Prepare"
    ORIGINAL = "OptimizeOriginalGraph"
    RUNNING_FORMAT = "PrepareRunningFormatRefiner"
    PRECISION = "RefineRunningPrecision"
    AFTER_PRECISION = "AfterPrecisionRefine"
    FORMAT = "RefineRunningFormat"
    OPTIMIZE_1 = "Optimize1"
    OPTIMIZE_2 = "Optimize2"


@dataclass(slots=True)
class CompileSettings:
    """The options that passes and engine ask for, already checked. Field names follow the command line."""

    train: bool = False
    constants_in_session: bool = False  # ge.constLifecycle=session: constants live in variable memory
    constants_in_graph: bool = False  # asked for: constants of a training graph stay in the model
    format_policy: str = "device"  # device | origin
    precision: str = ""  # one of formats.md 5.3; "" keeps the source dtypes
    oo_level: str = "O3"
    variable_acc: bool = True
    strict_variable_cast: bool = False
    # Of variables that other graphs of the session use: the type to which all those cast it, None when they do not.
    casts_of_others: Mapping[str, DataType | None] = field(default_factory=dict)
    strict_var_init: bool = False
    strict_order: bool = False  # a variable that is read and written in no order stops the compile
    enable_small_channel: bool = False
    constant_folding: bool = True
    dead_code_elimination: bool = True
    keep_dtype_nodes: frozenset[str] = frozenset()
    mix_lists: MixLists | None = None  # what --modify-mixlist moved; None: the built-in lists
    switches: dict[str, bool] = field(default_factory=dict)  # pass name -> on or off


@dataclass(slots=True)
class PassContext:
    """What surrounds a graph while passes work on it.

    `records` collects what passes did and why, one dict an event with at least `pass` and `event`; `-vv`,
    `--explain-variable` and the report read them. `warnings` go to the user.
    """

    platform: Platform
    variables: VarManager
    rebuild: RebuildControl
    settings: CompileSettings = field(default_factory=CompileSettings)
    graph_id: int = 1
    records: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)

    def record(self, pass_name: str, event: str, **facts: Any) -> None:
        self.records.append({"pass": pass_name, "event": event, **facts})


class Pass(ABC):
    """One transformation of a graph.

    A subclass with options is a frozen dataclass of them. `requires` and `ensures` name facts that
    `facts.check` can test on any graph. A pass plans first and applies atomically: when it cannot complete, the graph
    is as it was. It runs at optimisation levels from `level` up; a correctness pass runs at every level and cannot
    be switched off.
    """

    name: ClassVar[str]
    stage: ClassVar[Stage]
    requires: ClassVar[tuple[Fact, ...]] = ()
    ensures: ClassVar[tuple[Fact, ...]] = ()
    level: ClassVar[str] = "O0"
    correctness: ClassVar[bool] = False

    @abstractmethod
    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        """Transform `graph` (and its subgraphs, where the pass says so); returns what it counted."""
