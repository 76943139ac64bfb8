"""What a compile says about itself: plain data that the report turns into tables and JSON."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from gecli.records import dataclass

if TYPE_CHECKING:
    from gecli.artifacts.om_writer import OmImage
    from gecli.compiler.weight_output import PendingWeights
    from gecli.errors import Diagnostic, GecliError
    from gecli.ir.graph import Graph
    from gecli.passes.pipeline import PassRecord


@dataclass(slots=True)
class CacheUse:
    """How the cache took part. `state`: off, hit, miss, refreshed, debug, bypassed (cli.md 1.10)."""

    state: str = "off"
    key: str = ""
    key_origin: str = ""
    entry: str = ""
    via: str | None = None
    reason: str | None = None
    would_hit: bool | None = None
    stored: bool = False
    explanation: list[str] = field(default_factory=list)
    seconds_saved: float | None = None
    foreign: bool = False  # the entry is another tool's, which nothing proves to be this model


@dataclass(slots=True)
class OutputFile:
    """A file that was written (or left in place because it already had these bytes)."""

    path: str
    size_bytes: int
    sha256: str = ""


@dataclass(slots=True)
class ModelResult:
    """One compiled model. Sizes are bytes, times milliseconds."""

    source: str
    front_end: str
    output: OutputFile
    rdcpkt: OutputFile | None = None
    inputs: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[dict[str, Any]] = field(default_factory=list)
    options: list[dict[str, Any]] = field(default_factory=list)
    session: str = ""
    variables: list[dict[str, Any]] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
    external_weights: list[OutputFile] = field(default_factory=list)
    weight_dir: str = ""  # of --external-weight-dir, which run must be told
    passes: list[PassRecord] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    cache: CacheUse = field(default_factory=CacheUse)
    warnings: list[Diagnostic] = field(default_factory=list)
    files_read: list[str] = field(default_factory=list)
    node_count: int = 0
    compile_count: int = 0
    is_dynamic: bool = False
    dynamic_cause: dict[str, str] | None = None  # the node that keeps it so whatever its inputs: node, type, why
    up_to_date: bool = False
    elapsed_ms: float = 0.0
    notes: list[str] = field(default_factory=list)
    stories: dict[str, dict[str, Any]] = field(default_factory=dict)  # of the variables that are to be explained
    verification: dict[str, Any] | None = None  # what --verify-passes compared, and the result
    image: OmImage | None = None  # between compiling and publishing
    pending: PendingWeights | None = None  # between compiling and publishing
    graph: Graph | None = None  # after all passes, for --emit


@dataclass(slots=True)
class CompileReport:
    """The result of one `gecli compile`."""

    models: list[ModelResult]
    soc: str
    recorded_options: list[str] = field(default_factory=list)
    failures: list[GecliError] = field(default_factory=list)  # of other models, with --no-session --keep-going
