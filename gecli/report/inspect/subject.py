"""One file under inspection: what it is, and its parts, read when a view asks for them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeVar

from gecli.artifacts.om_file import OmFile, read_om
from gecli.errors import Diagnostic, InputError
from gecli.records import dataclass
from gecli.wire.om_faults import IN_MEMORY

if TYPE_CHECKING:
    from collections import Counter

    from gecli.artifacts.inout_info import InOutInfo
    from gecli.cache.index import IndexContent
    from gecli.ir.op_desc import OpDesc
    from gecli.ir.placement import Placement
    from gecli.loading.sniff import FileKind
    from gecli.variables.var_manager import VarManager
    from gecli.variables.var_match import VarMatch
    from gecli.wire.model_record import GraphRecord, ModelRecord
    from gecli.wire.task import TaskList

T = TypeVar("T")
MAX_SESSION_BYTES = 1 << 30
# Kinds of files, as messages name them.
KINDS = {
    "om": "an OM file", "flow": "a flow model", "bundle": "a bundle", "preload": "a preload model",
    "model-def": "a ModelDef file", "ge-text": "a text dump", "ge-onnx-text": "a text dump",
    "rdcpkt": "a variable record", "session": "a session snapshot", "idx": "a cache index",
}  # fmt: skip
WITHOUT_GRAPH = ("rdcpkt", "session", "idx")
# Tensors may share bytes, but a file that names the same ones again and again would keep a view busy for ever.
TENSOR_BYTES, TENSOR_FACTOR = 64 << 20, 4
DIGEST_BYTES = 16 << 20  # files up to this size have their payload digest checked by every view that judges


@dataclass(slots=True)
class Subject:
    """One of KINDS; `warnings` grows while parts are read.

    `path` is what the user typed, `place` where the bytes are (they differ for standard input). `data` is the
    ModelDef of a file in text form. `cut_parts` says of the partitions that a damaged file does not hold whole, by
    their type, how much is there.
    """

    path: str
    place: str
    kind: str
    size_bytes: int
    om: OmFile | None = None
    warnings: list[Diagnostic] = field(default_factory=list)
    data: bytes | None = None
    cut_parts: dict[int, str] = field(default_factory=dict)
    _models: dict[int, ModelRecord | None] = field(default_factory=dict)
    _parts: dict[str, object] = field(default_factory=dict)
    _session: VarManager | None = None
    _read_bytes: int = 0

    def may_read(self, nbytes: int) -> bool:
        """Whether a view should read the bytes of one more tensor; once it should not, that is a warning."""
        limit = TENSOR_BYTES + TENSOR_FACTOR * self.size_bytes
        before, self._read_bytes = self._read_bytes, self._read_bytes + nbytes
        if self._read_bytes <= limit:
            return True
        if before <= limit:
            self.warn(
                Diagnostic(
                    "G3012", f"{self.path}: the tensors lie upon each other", kind="bad-weights", file=self.path,
                    why=f"they have more than {TENSOR_FACTOR} times the {self.size_bytes} bytes of the file; those "
                    "behind are not read", do="gecli inspect-om FILE --extract NAME --to DIR for a single one",
                )
            )  # fmt: skip
        return False

    @property
    def container(self) -> OmFile:
        """The OM container. Raises InputError for files of other kinds."""
        if self.om is None:
            raise self.lacks("partitions")
        return self.om

    @property
    def model_count(self) -> int:
        if self.om is None or self.kind in ("bundle", "preload", "flow"):
            return 1
        return len(self.om.models)

    def lacks(self, what: str) -> InputError:
        name = KINDS[self.kind]
        view = "--vars" if self.kind in ("rdcpkt", "session") else "--summary"
        do = f"gecli inspect-om {self.path} {view}"
        return InputError("G3008", f"{self.path}: {name} has no {what}", kind=self.kind, file=self.path, do=do)

    def model(self, index: int = 0) -> ModelRecord:
        """The graphs of a model. Raises InputError (no-model-def, bad-proto)."""
        found = self._models.get(index)
        if found is not None:
            return found
        if self.kind in WITHOUT_GRAPH:
            raise self.lacks("graph")
        if self.kind in ("bundle", "preload"):
            raise InputError(
                "G3010", f"{self.path}: {self.kind} model: graph not available", kind="no-model-def", file=self.path,
                do="gecli inspect-om FILE --partitions",
            )  # fmt: skip
        model = self.container.model(index) if self.om is not None else self._bare_model()
        self.warn(*model.problems)
        if model.nested_graphs:
            self._check_nested(model, index)
        self._models[index] = model
        return model

    def _check_nested(self, model: ModelRecord, index: int) -> None:
        from gecli.artifacts.partition_table import PartitionType
        from gecli.report.inspect.nested_graphs import nested_faults

        part = None if self.om is None else self.om.models[index].partition(PartitionType.MODEL_DEF)
        found = nested_faults(model, self.path, 0 if part is None else part.offset_bytes)
        self.warn(*(found if self.data is None else (_of_text(each, self.path) for each in found)))

    def forget_model(self, index: int = 0) -> None:
        """Let go of a model of which only the problems were wanted; it is read again when somebody asks for it."""
        import gc

        self._models.pop(index, None)
        gc.collect()  # linked nodes are cycles

    def model_or_none(self, index: int = 0) -> ModelRecord | None:
        """The same, with a fault as a warning: for views that show what else there is."""
        if index not in self._models:
            self._models[index] = None
            try:
                return self.model(index)
            except InputError as error:
                self.warn(*error.diagnostics)
        return self._models[index]

    def graphs(self) -> Iterator[tuple[int, GraphRecord]]:
        """(model index, graph) of every model."""
        for index in range(self.model_count):
            for graph in self.model(index).graphs:
                yield index, graph

    def nodes(self) -> Iterator[tuple[int, GraphRecord, OpDesc, Placement]]:
        """Every node with its model, graph and placement."""
        for index, graph in self.graphs():
            for node in graph.nodes:
                yield index, graph, node, graph.placements[node]

    def task_counts(self, index: int = 0) -> tuple[TaskList, Counter[str]] | None:
        """TASK_INFO without its tasks, and how many there are of which type; None without one.

        What cannot be decoded, and what does not agree with the model, is a warning.
        """
        if self.om is None or self.om.is_mobile:
            return None
        om = self.om

        def read() -> tuple[TaskList, Counter[str]] | None:
            if self.kind == "om":
                self.model_or_none(index)
            audit = om.task_audit(index)
            found = om.task_counts(index, audit)
            if audit is not None and found is not None:
                self.warn(*audit.problems(), *audit.size_problems(found[0]))
            return found

        return self._part(f"tasks {index}", read)

    def inout(self) -> InOutInfo | None:
        """MODEL_INOUT_INFO; None without one. A damaged one is a warning."""
        if self.om is None:
            return None
        om = self.om

        def read() -> InOutInfo | None:
            from gecli.artifacts.inout_info import parse_inout_info
            from gecli.wire.om_faults import om_problem

            part = om.inout_partition()
            if part is None:
                return None
            with om.source(part) as source:
                info = parse_inout_info(source, path=self.path, offset=part.offset_bytes)
            if info.unknown_blocks:
                shown = ", ".join(map(str, info.unknown_blocks[:8]))
                message = f"MODEL_INOUT_INFO has blocks of unknown types: {shown}"
                self.warn(om_problem("bad-inout", self.path, message, part.offset_bytes))
            return info

        return self._part("inout", read)

    def variable_record(self) -> VarMatch | None:
        """The rdcpkt: of this file, or the one beside the OM (`<stem>.rdcpkt`); None without one."""
        path = self.place if self.kind == "rdcpkt" else self.record_path
        if self.kind not in ("rdcpkt", "om") or not os.path.exists(path):
            return None

        def read() -> VarMatch:
            from gecli.artifacts.rdcpkt import read_rdcpkt

            record = read_rdcpkt(path)
            after = record.after
            lost = sorted({*after.changed_var_names} - (after.var_desc_map.keys() & after.var_trans_roads_map.keys()))
            if lost:
                shown = self.path if path == self.place else path
                message = f"{shown}: changed is said of {len(lost)} variables without a road or a form: {lost[0]!r}"
                do = "compile the model again; the cache takes no such record"
                self.warn(Diagnostic("G3007", message, kind="rdcpkt_corrupt", file=shown, do=do))
            return record

        return self._part("rdcpkt", read)

    @property
    def record_path(self) -> str:
        """Where the variable record of this OM would be."""
        return os.path.splitext(self.path)[0] + ".rdcpkt"

    def session(self) -> VarManager:
        """The variables of a session snapshot. Raises InputError (DATA_CORRUPT) when its fields contradict."""
        found = self._session
        if found is None:
            from gecli.artifacts.file_access import opened_source
            from gecli.wire.var_session import read_var_manager

            with opened_source(self.place, MAX_SESSION_BYTES) as source:
                found = self._session = read_var_manager(source, path=self.path)
        return found

    def index_file(self) -> IndexContent:
        """The records of a cache index."""
        if self.kind != "idx":
            raise self.lacks("index")
        from gecli.cache.index import parse_index

        with open(self.place, "rb") as stream:
            return parse_index(stream.read(), os.path.dirname(self.path) or ".")

    def digest_state(self, *, always: bool = False) -> str:
        """`verified`, `bad`, `absent` or `not checked` (large files, unless `always`); a bad one is a warning."""
        if self.om is None or self.om.header.payload_sha256 is None:
            return "absent"
        if not always and self.size_bytes > DIGEST_BYTES and "digest" not in self._parts:
            return "not checked"
        problem = self._part("digest", self.om.verify_checksum)
        if problem is None:
            return "verified"
        self.warn(problem)
        return "bad"

    def _bare_model(self) -> ModelRecord:
        from gecli.wire.byte_source import FileSource
        from gecli.wire.model_decoder import decode_model

        if self.data is not None:
            try:
                model = decode_model(self.data, in_container=False)
            except InputError as error:
                raise InputError.of(_of_text(each, self.path) for each in error.diagnostics) from error
            model.problems[:] = [_of_text(each, self.path) for each in model.problems]
            return model
        with FileSource(self.place) as source:
            return decode_model(source, path=self.place, file_size=self.size_bytes, in_container=False)

    def warn(self, *diagnostics: Diagnostic) -> None:
        """Keep faults that do not stop the inspection; each is shown once."""
        for diagnostic in diagnostics:
            shown = diagnostic if diagnostic.severity == "note" else replace(diagnostic, severity="warning")
            if shown not in self.warnings:
                self.warnings.append(shown)

    @property
    def faults(self) -> list[Diagnostic]:
        """The warnings that speak against the file; notes do not."""
        return [each for each in self.warnings if each.severity != "note"]

    def _part(self, name: str, read: Callable[[], T | None]) -> T | None:
        if name not in self._parts:
            self._parts[name] = None
            try:
                self._parts[name] = read()
            except InputError as error:
                self.warn(*error.diagnostics)
        return self._parts[name]  # type: ignore[return-value]  # stored under this name only by this reader


def open_subject(path: str, place: str | None = None) -> Subject:
    """The file at `path`, named by its content.

    Raises InputError with the kind for everything that is no file of gecli or GE.
    """
    place = place or path
    from gecli.loading.sniff import FileKind, sniff
    from gecli.report.inspect.foreign import not_an_om

    kind = sniff(place)
    if kind in (FileKind.EMPTY, FileKind.DIRECTORY, FileKind.TF_SAVED_MODEL):
        raise not_an_om(kind, place)
    size = os.stat(place).st_size
    if kind is FileKind.AIR:
        return Subject(path, place, "model-def", size)
    if kind in (FileKind.OTHER_JSON, FileKind.JSON) and _is_index(place):
        return Subject(path, place, "idx", size)
    if kind in (FileKind.GE_TEXT, FileKind.ONNX_TEXT):
        return _text_dump(kind, path, place, size)
    if kind in (FileKind.UNKNOWN, FileKind.TF_SAVED_MODEL, FileKind.TF_GRAPH, FileKind.CAFFE):
        if _is_record(place):
            return Subject(path, place, "rdcpkt", size)
        if _is_session(place):
            return Subject(path, place, "session", size)
    if kind is FileKind.UNKNOWN and (path.endswith(".rdcpkt") or _begins_as_record(place)):
        _read_damaged_record(path, place)
    if kind in (FileKind.OM, FileKind.OM2, FileKind.ZIP, FileKind.SVP, FileKind.GIT_LFS, FileKind.UNKNOWN):
        om = read_om(place)
        return Subject(path, place, om.kind, size, om, list(om.warnings))
    if _is_bundle(place):
        om = read_om(place)
        return Subject(path, place, om.kind, size, om, list(om.warnings))
    raise not_an_om(kind, place, "" if path == place else "gecli compile - -o model.om")


def _text_dump(kind: FileKind, path: str, place: str, size: int) -> Subject:
    """A graph dump of GE in either text form. Raises InputError for other ONNX text and for damaged text."""
    from gecli.artifacts.file_access import read_whole
    from gecli.loading.sniff import FileKind
    from gecli.report.inspect.text_proto import MAX_TEXT_BYTES, model_bytes, node_bytes, parse_text

    data = read_whole(place, MAX_TEXT_BYTES)
    if kind is FileKind.GE_TEXT:
        return Subject(path, place, "ge-text", size, data=model_bytes(parse_text(data, path, "op", node_bytes), path))
    from gecli.report.inspect.foreign import not_an_om
    from gecli.report.inspect.onnx_dump import NODE, is_dump, model_tree, node_encoder

    if not is_dump(data):
        raise not_an_om(kind, place)
    tree = model_tree(parse_text(data, path, NODE, node_encoder()))
    return Subject(path, place, "ge-onnx-text", size, data=model_bytes(tree, path))


def _of_text(fault: Diagnostic, path: str) -> Diagnostic:
    """A fault of the ModelDef that was made of a text, as one of the text: offsets in the former are of no use."""
    message = fault.message.removesuffix(f" (offset {fault.offset})")
    message = re.sub(r"MODEL_DEF of \d+ bytes: ", "", message, count=1)
    if message.startswith(IN_MEMORY):
        message = path + message.removeprefix(IN_MEMORY)
    return replace(fault, message=message, file=path, offset=None)


def _is_session(path: str) -> bool:
    """A VarManagerInfo: numbers in fields 1 to 8, variables (9), memory (10)."""
    from gecli.loading.sniff import outline
    from gecli.wire.byte_source import FileSource

    with FileSource(path) as source:
        fields = outline(source, 0, source.size)
    wires = {number: wire for number, (wire, _, _) in fields.items()}
    numbers, messages = set(wires) & set(range(1, 9)), set(wires) & {9, 10}
    return (
        bool(numbers and messages)
        and set(wires) <= set(range(1, 12))
        and all(wires[number] == 0 for number in numbers)
        and all(wires[number] == 2 for number in messages)
    )


def _is_index(path: str) -> bool:
    from gecli.cache.index import MAX_BYTES, UnreadableIndex, parse_index

    try:
        with open(path, "rb") as stream:
            parse_index(stream.read(MAX_BYTES + 1), os.path.dirname(path) or ".")
    except UnreadableIndex:
        return False
    return True


def _is_record(path: str) -> bool:
    """A VarMatchInfo: fields 1 and 2 only, and descriptors with names behind them.

    Raises InputError (rdcpkt_corrupt) for one that cannot be read in the memory that its size allows.
    """
    from gecli.loading.sniff import outline
    from gecli.wire.byte_source import FileSource

    with FileSource(path) as source:
        fields = outline(source, 0, source.size)
        if not fields or not set(fields) <= {1, 2} or any(wire != 2 for wire, _, _ in fields.values()):
            return False
        for _, offset, length in fields.values():
            inside = outline(source, offset, offset + length)
            if length and (not inside or not set(inside) <= {1, 2, 3, 4}):
                return False
            if any(wire != 2 for wire, _, _ in inside.values()):
                return False
    from gecli.artifacts.rdcpkt import read_rdcpkt
    from gecli.wire.memory_budget import is_about_memory

    try:
        return not read_rdcpkt(path).is_empty
    except InputError as error:
        if is_about_memory(error):
            raise
        return False


def _begins_as_record(path: str) -> bool:
    """The first fields of a VarMatchInfo with variables behind it, whatever is wrong further on."""
    from gecli.loading.sniff import outline
    from gecli.wire.byte_source import FileSource

    with FileSource(path) as source:
        if source.read(0, 1) not in (b"\x0a", b"\x12"):
            return False
        fields = outline(source, 0, source.size)
        insides = [outline(source, offset, min(offset + length, source.size)) for _, offset, length in fields.values()]
    entries = [entry for inside in insides for entry in inside.items()]
    return (
        bool(entries)
        and set(fields) <= {1, 2}
        and all(wire == 2 for wire, _, _ in fields.values())
        and all(number <= 4 and wire == 2 for number, (wire, _, _) in entries)
    )


def _read_damaged_record(path: str, place: str) -> None:
    """Raises InputError (rdcpkt_corrupt) that says what is wrong with the record."""
    from gecli.artifacts.rdcpkt import read_rdcpkt

    try:
        read_rdcpkt(place)
    except InputError as error:
        prefix = "the variable record cannot be read: "
        raise InputError.of(
            replace(each, message=f"{path}: damaged variable record: {each.message.removeprefix(prefix)}")
            for each in error.diagnostics
        ) from error


def _is_bundle(path: str) -> bool:
    with open(path, "rb") as stream:
        head = stream.read(256)
    return len(head) == 256 and head[:4] == bytes(4) and head[82] == 5
