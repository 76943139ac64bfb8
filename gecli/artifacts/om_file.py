"""Reading an OM file: which variant it is, its header, and where its partitions lie (GE: OmFileLoadHelper).

Nothing but the header and the tables is read until a partition is asked for, and weights are never copied.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gecli.artifacts.file_access import opened, pread
from gecli.artifacts.header import (
    BUNDLE_MODEL,
    FLOW_MODEL,
    HEADER_BYTES,
    MAGIC,
    VERSION_2,
    OmHeader,
    parse_header,
)
from gecli.artifacts.inout_info import is_inout_info
from gecli.artifacts.om_faults import om_error, om_problem
from gecli.artifacts.partition_table import (
    MAX_FLOW_PARTITIONS,
    MAX_PARTITIONS,
    PRELOAD_TYPES,
    REPEATABLE_TYPES,
    Partition,
    PartitionType,
    table_bytes,
    unpack_entries,
)
from gecli.errors import Diagnostic, InputError

if TYPE_CHECKING:
    from gecli.wire.attribute_names import AttrNames
    from gecli.wire.model_record import ModelRecord
    from gecli.wire.task import TaskList

MAX_MODELS = 4096
_COMPILE_AGAIN = "give the .om that gecli compile or atc wrote"
MIN_MODEL_BYTES = 16  # a table of one entry: fewer bytes hold no model


@dataclass(frozen=True, slots=True)
class OmModel:
    """One model of a file: its table and its partitions in table order."""

    index: int
    table_offset_bytes: int
    partitions: tuple[Partition, ...]

    def partition(self, number: int) -> Partition | None:
        """The partition of this type, if there is one."""
        return next((item for item in self.partitions if item.type == number), None)


@dataclass(slots=True)
class OmFile:
    """An OM file whose container is sound. `kind` is om, flow, bundle or preload."""

    path: str
    base: int
    size_bytes: int
    kind: str
    header: OmHeader
    wide: bool
    models: tuple[OmModel, ...]
    warnings: list[Diagnostic] = field(default_factory=list)

    @property
    def root(self) -> OmModel:
        return self.models[0]

    @property
    def is_mobile(self) -> bool:
        """True for files of the HiAI (mobile) tools, whose partition types above 2 mean other things."""
        return self.header.is_version_1 and (
            self.header.modeltype in (3, 4) or self.header.platform_version.startswith("3.")
        )

    def read(self, partition: Partition) -> bytes:
        """The bytes of a partition."""
        return self.slice(partition.offset_bytes, partition.size_bytes)

    def slice(self, offset: int, length: int) -> bytes:
        """Bytes by file offset. Raises InputError (truncated) when the file became shorter."""
        with opened(self.path) as handle:
            data = pread(handle, offset, length)
        if len(data) != length:
            raise om_error("truncated", self.path, f"the file became shorter while it was read ({self.path})", offset)
        return data

    def inout_partition(self, model: int = 0) -> Partition | None:
        """MODEL_INOUT_INFO, also where CANN 5.20 numbered it 6."""
        found = self.models[model].partition(PartitionType.MODEL_INOUT_INFO)
        if found is not None or self.kind != "om" or self.is_mobile:
            return found
        old = self.models[model].partition(PartitionType.FLOW_MODEL)
        return old if old is not None and is_inout_info(self.read(old)) else None

    def model(self, index: int = 0, root_names: AttrNames | None = None) -> ModelRecord:
        """The graphs of one model. Raises InputError (no-model-def, bad-proto).

        Smaller faults are in `problems` of the record. `root_names` is the root's dictionary of compressed attribute
        names, for the further models of a file; it is looked up when not given.
        """
        from gecli.wire.attribute_names import AttrNames
        from gecli.wire.attributes import WeightArea
        from gecli.wire.byte_source import FileSource
        from gecli.wire.model_decoder import decode_model

        part = self.models[index].partition(PartitionType.MODEL_DEF)
        if part is None or part.size_bytes == 0:
            raise om_error("no-model-def", self.path, f"model {index} of the file has no MODEL_DEF")
        if index and root_names is None:
            root_names = AttrNames.of(self.model(0).attrs)
        weights = self.models[index].partition(PartitionType.WEIGHTS_DATA)
        area = None if weights is None else WeightArea(self.path, weights.offset_bytes, weights.size_bytes)
        with FileSource(self.path, part.offset_bytes, part.size_bytes) as source:
            return decode_model(
                source,
                path=self.path,
                file_size=self.base + self.size_bytes,
                weights=area,
                root_names=root_names,
            )

    def tasks(self, index: int = 0) -> TaskList | None:
        """TASK_INFO of one model; None without one. Raises InputError (bad-proto)."""
        from gecli.wire.task import decode_tasks

        part = self.models[index].partition(PartitionType.TASK_INFO)
        return None if part is None else decode_tasks(self.read(part), path=self.path, offset=part.offset_bytes)

    def verify_checksum(self) -> Diagnostic | None:
        """What is wrong with the payload digest, if gecli put one there; reads the whole file."""
        expected = self.header.payload_sha256
        if expected is None:
            return None
        digest = hashlib.sha256()
        with opened(self.path) as handle:
            position, end = self.base + HEADER_BYTES, self.base + self.size_bytes
            while position < end:
                block = os.pread(handle, min(1 << 20, end - position), position)
                if not block:
                    break
                digest.update(block)
                position += len(block)
        if digest.digest() == expected:
            return None
        return om_problem(
            "bad-checksum",
            self.path,
            "the payload is not the one that was written",
            offset=self.base + 12,
            expected=expected.hex(),
            actual=digest.hexdigest(),
            do="compile the model again or copy the file again",
        )

    def require_runnable(self) -> None:
        """Raises InputError for the variants whose graph cannot be executed from this file."""
        if self.kind != "om":
            raise om_error(self.kind, self.path, f"{self.kind} models are not supported", do="use an ordinary OM file")


def read_om(path: str | os.PathLike[str], *, base: int = 0, size: int | None = None) -> OmFile:
    """The container of an OM file, or of one nested in a file at `base`.

    Raises InputError with the kind, the offset and the numbers when the file is not a readable OM.
    """
    name = os.fspath(path)
    with opened(name) as handle:
        whole = os.fstat(handle).st_size
        if size is None:
            size = whole - base
        elif base < 0 or size < 0 or base + size > whole:
            raise om_error(
                "truncated", name, f"a nested model at {base} + {size} lies outside the file", base, actual=whole
            )
        return _Reader(name, handle, base, size).file()


class _Reader:
    """One pass over header and tables; every number is checked before it is used."""

    def __init__(self, path: str, handle: int, base: int, size: int) -> None:
        self.path = path
        self.handle = handle
        self.base = base
        self.size = size
        self.warnings: list[Diagnostic] = []

    def fail(self, kind: str, message: str, offset: int, **fields: Any) -> InputError:
        return om_error(kind, self.path, message, self.base + offset, **fields)

    def warn(self, kind: str, message: str, offset: int) -> None:
        self.warnings.append(om_problem(kind, self.path, message, offset=self.base + offset, severity="warning"))

    def file(self) -> OmFile:
        head = pread(self.handle, self.base, min(self.size, 280))
        self.sniff(head)
        if self.size < HEADER_BYTES:
            raise self.fail(
                "truncated", f"{self.size} bytes, a header has {HEADER_BYTES}", self.size, expected=HEADER_BYTES
            )
        header = parse_header(head)
        if header.magic != MAGIC:
            return self.bundle(header)
        self.check_header(header)
        if header.modeltype == BUNDLE_MODEL and not header.is_version_1:
            return self.bundle(header)
        self.check_length(header)
        flow = header.modeltype == FLOW_MODEL and not header.is_version_1
        wide = not header.is_version_1 and (header.model_length != 0 or flow)
        models = self.models(header, wide, flow)
        kind = "flow" if flow else self.ordinary_kind(models)
        return OmFile(self.path, self.base, self.size, kind, header, wide, models, self.warnings)

    def sniff(self, head: bytes) -> None:
        """Refuse what is something else than an OM file."""
        if head[:4] == MAGIC:
            return
        if head[:4] == b"PK\x03\x04":
            if self.is_om2():
                raise self.fail("om2", "OM2 (ZIP) packages are not supported", 0)
            raise self.fail(
                "not-om", "a ZIP archive, not an OM file", 0, expected="IMOD", actual="PK", do=_COMPILE_AGAIN
            )
        if head[:4] == b"PICO":
            raise self.fail("svp", "SVP models (PICO) are not supported", 0)
        if head.startswith(b"version https://git-lfs"):
            raise self.fail(
                "git-lfs-pointer",
                "a Git LFS pointer, not the model itself",
                0,
                why="it names the object that the repository keeps elsewhere",
                do="run 'git lfs pull' in its repository",
            )
        bundle = len(head) >= 280 and head[:4] == bytes(4) and head[82] == BUNDLE_MODEL
        if bundle and parse_header(head).model_length == self.size:
            return
        shown = head[:4].hex(" ") or "nothing"
        raise self.fail(
            "not-om",
            f"not an OM file: it begins with {shown}",
            0,
            expected=MAGIC.hex(" "),
            actual=shown,
            why="an OM file begins with 'IMOD'; a file encrypted by a third party does not",
            do=_COMPILE_AGAIN,
        )

    def is_om2(self) -> bool:
        import zipfile

        try:
            with os.fdopen(os.dup(self.handle), "rb") as stream, zipfile.ZipFile(stream) as archive:
                names = archive.namelist()
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
            return False
        return any(name.rsplit("/", 1)[-1] == "manifest.json" for name in names)

    def check_header(self, header: OmHeader) -> None:
        if header.is_encrypt == 1:
            raise self.fail("encrypted", "the model is encrypted (header byte 80 is 1)", 80)
        if header.is_encrypt > 1:
            raise self.fail("bad-header", "is_encrypt is neither 0 nor 1", 80, actual=header.is_encrypt)
        if header.headsize != HEADER_BYTES:
            raise self.fail("bad-header", "unexpected header length", 4, expected=HEADER_BYTES, actual=header.headsize)
        if header.version > VERSION_2:
            self.warn("newer-version", f"file version {header.version:#x} is newer than {VERSION_2:#x}", 8)
        if not header.padding_is_zero:
            self.warn("bad-header", "reserved header bytes are not zero", 181)

    def check_length(self, header: OmHeader) -> None:
        declared = header.payload_bytes
        if declared == 0:
            raise self.fail("bad-header", "both payload lengths are 0", 76)
        if header.length and header.model_length and header.length != header.model_length:
            self.warn(
                "bad-header",
                f"length {header.length} and model_length {header.model_length} differ; the latter is used",
                76,
            )
        actual = self.size - HEADER_BYTES
        if declared == actual:
            return
        kind = "truncated" if declared > actual else "trailing-bytes"
        offset = 184 if header.model_length else 76
        raise self.fail(
            kind,
            f"the header declares {declared} bytes behind it, the file has {actual}",
            offset,
            expected=declared,
            actual=actual,
        )

    def models(self, header: OmHeader, wide: bool, flow: bool) -> tuple[OmModel, ...]:
        count = 1 if flow else max(1, header.model_num)
        room = (self.size - HEADER_BYTES) // MIN_MODEL_BYTES
        if count > min(MAX_MODELS, max(room, 1)):
            raise self.fail("bad-header", f"model_num {count} cannot be", 156, actual=count)
        models: list[OmModel] = []
        position = HEADER_BYTES
        for index in range(count):
            model, position = self.table(index, position, wide, flow)
            models.append(model)
        if position != self.size and not self.is_padded(models):
            raise self.fail(
                "bad-partition",
                f"the last partition ends at {position}, the file at {self.size}",
                position,
                expected=self.size,
                actual=position,
            )
        return tuple(models)

    def table(self, index: int, position: int, wide: bool, flow: bool) -> tuple[OmModel, int]:
        """One partition table; returns its model and the position behind its last partition."""
        cap = MAX_FLOW_PARTITIONS if flow else MAX_PARTITIONS
        where = f"table of model {index}"
        head = pread(self.handle, self.base + position, min(8 if wide else 4, self.size - position))
        if len(head) < (8 if wide else 4):
            raise self.fail("bad-table", f"no room for the {where}", position, actual=len(head))
        count = int.from_bytes(head[:4], "little")
        if not 1 <= count <= cap:
            raise self.fail(
                "bad-table", f"{where}: {count} partitions, 1 to {cap} are possible", position, actual=count
            )
        length = table_bytes(count, wide=wide)
        if length > self.size - position:
            raise self.fail(
                "bad-table",
                f"{where}: {count} entries need {length} bytes, {self.size - position} are left",
                position,
                expected=length,
                actual=self.size - position,
            )
        data = pread(self.handle, self.base + position, length)
        if len(data) != length:
            raise self.fail("truncated", "the file became shorter while it was read", position)
        if wide and any(head[4:8]):
            self.warn("bad-table", f"{where}: padding is not zero", position + 4)
        rows, padding_is_zero = unpack_entries(data, count, wide=wide)
        if not padding_is_zero:
            self.warn("bad-table", f"{where}: padding inside the entries is not zero", position + 8)
        self.check_types(rows, where, position, flow)
        partitions, end = self.partitions(rows, where, position, length)
        return OmModel(index, self.base + position, partitions), end

    def check_types(self, rows: list[tuple[int, int, int]], where: str, position: int, flow: bool) -> None:
        seen: set[int] = set()
        for number, _, _ in rows:
            if number in seen and number not in REPEATABLE_TYPES:
                raise self.fail("bad-table", f"{where}: partition type {number} occurs twice", position, actual=number)
            seen.add(number)
        if flow:
            order = [number for number, _, _ in rows]
            if order[:2] != [0, 6] or any(number != 7 for number in order[2:]):
                raise self.fail(
                    "bad-table",
                    f"{where}: the entries of a flow model are out of order",
                    position,
                    expected="0, 6, 7...",
                    actual=", ".join(map(str, order[:8])),
                )

    def partitions(
        self, rows: list[tuple[int, int, int]], where: str, position: int, length: int
    ) -> tuple[tuple[Partition, ...], int]:
        """The partitions of one table: each must begin where the one before ends."""
        start = position + length
        padded = any(number in PRELOAD_TYPES for number, _, _ in rows) and all(n != 0 for n, _, _ in rows)
        running = 0
        found: list[Partition] = []
        for k, (number, offset, size) in enumerate(rows):
            entry = position + (8 + 24 * k if length == table_bytes(len(rows)) else 4 + 12 * k)
            if start + offset + size > self.size:
                raise self.fail(
                    "bad-partition",
                    f"{where}: partition {k} (type {number}) at {offset} with {size} bytes ends outside the file",
                    entry,
                    expected=self.size - start,
                    actual=offset + size,
                )
            if offset != running and not (padded and running <= offset < running + 8):
                raise self.fail(
                    "bad-partition",
                    f"{where}: partition {k} (type {number}) is at {offset}, the ones before end at {running}",
                    entry,
                    expected=running,
                    actual=offset,
                )
            found.append(Partition(number, self.base + start + offset, size, offset))
            running = offset + size
        return tuple(found), start + running

    def is_padded(self, models: list[OmModel]) -> bool:
        """Preload files of the nano flavour pad the end, too."""
        end = self.base + self.size
        last = models[-1].partitions[-1]
        return self.ordinary_kind(tuple(models)) == "preload" and end - last.offset_bytes - last.size_bytes < 8

    def ordinary_kind(self, models: tuple[OmModel, ...]) -> str:
        types = {item.type for item in models[0].partitions}
        return "preload" if 0 not in types and types & PRELOAD_TYPES else "om"

    def bundle(self, header: OmHeader) -> OmFile:
        """A bundle: offsets count from the header's end and model_length is the size of the whole file."""
        if header.model_length != self.size:
            kind = "truncated" if header.model_length > self.size else "trailing-bytes"
            raise self.fail(
                kind,
                f"the header declares {header.model_length} bytes, the file has {self.size}",
                184,
                expected=header.model_length,
                actual=self.size,
            )
        head = pread(self.handle, self.base + HEADER_BYTES, 8)
        count = int.from_bytes(head[:4], "little")
        length = table_bytes(count)
        if not 1 <= count <= MAX_FLOW_PARTITIONS or length > self.size - HEADER_BYTES:
            raise self.fail("bad-table", f"{count} entries do not fit the file", HEADER_BYTES, actual=count)
        rows, _ = unpack_entries(pread(self.handle, self.base + HEADER_BYTES, length), count, wide=True)
        running = length
        found: list[Partition] = []
        for k, (number, offset, size) in enumerate(rows):
            if offset != running or HEADER_BYTES + offset + size > self.size:
                raise self.fail(
                    "bad-partition",
                    f"partition {k} (type {number}) at {offset} with {size} bytes",
                    HEADER_BYTES + 8 + 24 * k,
                    expected=running,
                    actual=offset,
                )
            found.append(Partition(number, self.base + HEADER_BYTES + offset, size, offset))
            running += size
        types = [item.type for item in found]
        if types[0] != 25 or any(number != 24 for number in types[1:]):
            raise self.fail("bad-table", "the entries of a bundle are out of order", HEADER_BYTES, actual=types[:8])
        model = OmModel(0, self.base + HEADER_BYTES, tuple(found))
        return OmFile(self.path, self.base, self.size, "bundle", header, True, (model,), self.warnings)
