"""Header and tables of an OM file: which variant it is and where its partitions lie (GE: OmFileLoadHelper).

Nothing else is read. Every number is checked before it is used.
"""

from __future__ import annotations

from math import log2
from typing import Any, NamedTuple

from gecli.artifacts.file_access import pread
from gecli.artifacts.header import (
    BUNDLE_MODEL,
    FLOW_MODEL,
    HEADER_BYTES,
    MAGIC,
    VERSION_2,
    OmHeader,
    parse_header,
)
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
from gecli.artifacts.zip_directory import archive_has
from gecli.errors import Diagnostic, InputError
from gecli.records import dataclass
from gecli.wire.om_faults import om_error, om_problem

MAX_MODELS = 4096
MIN_MODEL_BYTES = 16  # a table of one entry: fewer bytes hold no model
BUNDLE_HEAD_BYTES = 280  # header and table of one entry: the least that can be a bundle
SAMPLE_BYTES = 8192  # of a file without magic; as many random bytes have 7.97 bits each
RANDOM_BITS = 7.9
CIPHER_BLOCK_BYTES = 16
_COMPILE_AGAIN = "give the .om that gecli compile or atc wrote"


@dataclass(frozen=True, slots=True)
class OmModel:
    """One model of a file: its table and its partitions in table order."""

    index: int
    table_offset_bytes: int
    partitions: tuple[Partition, ...]

    def partition(self, number: int) -> Partition | None:
        """The partition of this type, if there is one."""
        return next((item for item in self.partitions if item.type == number), None)


class Container(NamedTuple):
    """`kind` is om, flow, bundle or preload."""

    kind: str
    header: OmHeader
    wide: bool
    models: tuple[OmModel, ...]
    warnings: list[Diagnostic]


class ContainerReader:
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

    def shrunk(self, position: int, expected: int, actual: int) -> InputError:
        message = f"the file became shorter while it was read: {expected} bytes were asked for, {actual} came"
        return self.fail("truncated", message, position, expected=expected, actual=actual)

    def read(self) -> Container:
        """The container. Raises InputError with the kind, the offset and the numbers when it is not sound."""
        head = pread(self.handle, self.base, min(self.size, BUNDLE_HEAD_BYTES))
        is_bundle = self.sniff(head)
        if self.size < HEADER_BYTES:
            raise self.fail(
                "truncated",
                f"{self.size} bytes, a header has {HEADER_BYTES}",
                self.size,
                expected=HEADER_BYTES,
                actual=self.size,
            )
        header = parse_header(head, as_version_2=is_bundle)
        if header.magic == MAGIC:
            self.check_header(header)
        if is_bundle or (header.modeltype == BUNDLE_MODEL and not header.is_version_1):
            return self.bundle(header)
        self.check_length(header)
        flow = header.modeltype == FLOW_MODEL and not header.is_version_1
        wide = not header.is_version_1 and (header.model_length != 0 or flow)
        models = self.models(header, wide, flow)
        kind = "flow" if flow else self.ordinary_kind(models)
        return Container(kind, header, wide, models, self.warnings)

    def sniff(self, head: bytes) -> bool:
        """Refuse what is something else than an OM file; True for a bundle, whose header GE leaves nearly empty."""
        magic = head[:4]
        is_bundle = len(head) == BUNDLE_HEAD_BYTES and head[82] == BUNDLE_MODEL and magic in (MAGIC, bytes(4))
        is_bundle = is_bundle and int.from_bytes(head[184:192], "little") == self.size
        if is_bundle or magic == MAGIC:
            return is_bundle
        if magic == b"PK\x03\x04":
            if archive_has(self.handle, self.base, self.size, "manifest.json"):
                raise self.fail("om2", f"OM2 (ZIP) package of {self.size} bytes: not supported", 0)
            raise self.fail(
                "not-om",
                f"a ZIP archive of {self.size} bytes, not an OM file",
                0,
                expected="IMOD",
                actual="PK",
                do=_COMPILE_AGAIN,
            )
        if magic == b"PICO":
            raise self.fail("svp", f"SVP model (PICO) of {self.size} bytes: not supported", 0)
        if head.startswith(b"version https://git-lfs"):
            raise self.fail(
                "git-lfs-pointer",
                f"a Git LFS pointer of {self.size} bytes, not the model itself",
                0,
                why="it names the object that the repository keeps elsewhere",
                do="run 'git lfs pull' in its repository",
            )
        shown = magic.hex(" ") or "nothing"
        raise self.fail(
            "not-om",
            f"not an OM file: it begins with {shown}, not with {MAGIC.hex(' ')}",
            0,
            expected=MAGIC.hex(" "),
            actual=shown,
            why=self.unknown_content(),
            do=_COMPILE_AGAIN,
        )

    def unknown_content(self) -> str:
        """What a file without magic looks like; ciphers leave bytes that look random, in whole blocks."""
        sample = pread(self.handle, self.base, SAMPLE_BYTES)
        begins = "an OM file begins with 'IMOD'"
        if sample and all(byte >= 32 or byte in b"\t\n\r\f" for byte in sample):
            return f"{begins}; this is text"
        if len(sample) < SAMPLE_BYTES or self.size % CIPHER_BLOCK_BYTES:
            return begins
        counts = [sample.count(value) for value in range(256)]
        bits = -sum(count / len(sample) * log2(count / len(sample)) for count in counts if count)
        if bits < RANDOM_BITS:
            return begins
        return f"{begins}; this one looks random from its first byte, as after an encryption by a third party"

    def check_header(self, header: OmHeader) -> None:
        if header.is_encrypt == 1:
            raise self.fail("encrypted", "the model is encrypted (header byte 80 is 1)", 80)
        if header.is_encrypt > 1:
            raise self.fail(
                "bad-header",
                f"is_encrypt is {header.is_encrypt}, neither 0 nor 1",
                80,
                expected="0 or 1",
                actual=header.is_encrypt,
            )
        if header.headsize != HEADER_BYTES:
            raise self.fail(
                "bad-header",
                f"the header says it has {header.headsize} bytes, it has {HEADER_BYTES}",
                4,
                expected=HEADER_BYTES,
                actual=header.headsize,
            )
        if header.version > VERSION_2:
            self.warn("newer-version", f"file version {header.version:#x} is newer than {VERSION_2:#x}", 8)
        if not header.padding_is_zero:
            self.warn("bad-header", "reserved header bytes are not zero", 181)

    def check_length(self, header: OmHeader) -> None:
        declared = header.payload_bytes
        if declared == 0:
            raise self.fail("bad-header", f"both payload lengths are 0, the file has {self.size} bytes", 76)
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
        raise self.fail(
            kind,
            f"the header declares {declared} bytes behind it, the file has {actual}",
            HEADER_BYTES + min(declared, actual),  # where the file ends, or where what is too much begins
            expected=declared,
            actual=actual,
        )

    def models(self, header: OmHeader, wide: bool, flow: bool) -> tuple[OmModel, ...]:
        count = max(1, header.model_num)
        room = 1 if flow else min(MAX_MODELS, max((self.size - HEADER_BYTES) // MIN_MODEL_BYTES, 1))
        if count > room:
            raise self.fail(
                "bad-table",
                f"model_num is {count}, there is no table of model {room}: the file has room for {room}",
                156,
                expected=room,
                actual=count,
            )
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
            raise self.fail(
                "bad-table",
                f"no {where}: {self.size - position} bytes are left, a table needs {table_bytes(1, wide=wide)}",
                position,
                expected=table_bytes(1, wide=wide),
                actual=self.size - position,
            )
        count = int.from_bytes(head[:4], "little")
        if not 1 <= count <= cap:
            raise self.fail(
                "bad-table",
                f"{where}: {count} partitions, 1 to {cap} are possible",
                position,
                expected=f"1 to {cap}",
                actual=count,
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
            raise self.shrunk(position, length, len(data))
        if wide and any(head[4:8]):
            self.warn("bad-table", f"{where}: padding is not zero", position + 4)
        rows, padding_is_zero = unpack_entries(data, count, wide=wide)
        if not padding_is_zero:
            self.warn("bad-table", f"{where}: padding inside the entries is not zero", position + 8)
        self.check_types(rows, where, position, flow)
        partitions, end = self.partitions(rows, where, position, length)
        return OmModel(index, self.base + position, partitions), end

    def check_types(self, rows: list[tuple[int, int, int]], where: str, position: int, flow: bool) -> None:
        seen: dict[int, int] = {}
        for k, (number, _, _) in enumerate(rows):
            first = seen.setdefault(number, k)
            if first != k and number not in REPEATABLE_TYPES:
                raise self.fail(
                    "bad-table",
                    f"{where}: partitions {first} and {k} have the same type {number}",
                    position,
                    actual=number,
                )
        if flow:
            order = [number for number, _, _ in rows]
            if order[:2] != [0, 6] or any(number != 7 for number in order[2:]):
                raise self.fail(
                    "bad-table",
                    f"{where}: types {', '.join(map(str, order[:8]))}; a flow model has 0, 6, then 7 only",
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
                    f"{where}: partition {k} (type {number}) at {offset} with {size} bytes ends outside the file, "
                    f"which has {self.size - start} bytes behind the table",
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

    def bundle(self, header: OmHeader) -> Container:
        """A bundle: offsets count from the header's end and model_length is the size of the whole file."""
        if header.model_length != self.size:
            kind = "truncated" if header.model_length > self.size else "trailing-bytes"
            raise self.fail(
                kind,
                f"the header declares {header.model_length} bytes, the file has {self.size}",
                min(header.model_length, self.size),
                expected=header.model_length,
                actual=self.size,
            )
        rows, length = self.bundle_rows()
        types = [number for number, _, _ in rows]
        if types[0] != PartitionType.BUNDLE_MODEL_VAR_INFO or any(number != 24 for number in types[1:]):
            shown = ", ".join(map(str, types[:8]))
            raise self.fail(
                "bad-table",
                f"types {shown}; a bundle has 25, then 24 only",
                HEADER_BYTES,
                expected="25, 24...",
                actual=shown,
            )
        if header.model_num != len(rows) - 1:
            raise self.fail(
                "bad-table",
                f"model_num is {header.model_num}, the bundle has {len(rows) - 1} models",
                156,
                expected=header.model_num,
                actual=len(rows) - 1,
            )
        model = OmModel(0, self.base + HEADER_BYTES, self.bundle_partitions(rows, length))
        return Container("bundle", header, True, (model,), self.warnings)

    def bundle_rows(self) -> tuple[list[tuple[int, int, int]], int]:
        """The entries of a bundle's table, and the bytes of the table."""
        room = self.size - HEADER_BYTES
        head = pread(self.handle, self.base + HEADER_BYTES, min(8, room))
        count = int.from_bytes(head[:4], "little")
        length = table_bytes(count)
        if not 1 <= count <= MAX_FLOW_PARTITIONS or length > room:
            raise self.fail(
                "bad-table",
                f"{count} entries need {length} bytes, {room} are left; 1 to {MAX_FLOW_PARTITIONS} are possible",
                HEADER_BYTES,
                expected=room,
                actual=length,
            )
        data = pread(self.handle, self.base + HEADER_BYTES, length)
        if len(data) != length:
            raise self.shrunk(HEADER_BYTES, length, len(data))
        rows, padding_is_zero = unpack_entries(data, count, wide=True)
        if not padding_is_zero or any(head[4:8]):
            self.warn("bad-table", "padding of the table is not zero", HEADER_BYTES + 4)
        return rows, length

    def bundle_partitions(self, rows: list[tuple[int, int, int]], length: int) -> tuple[Partition, ...]:
        running = length
        found: list[Partition] = []
        for k, (number, offset, size) in enumerate(rows):
            end = HEADER_BYTES + offset + size
            if offset != running or end > self.size or (k == 0 and size != 8):
                raise self.fail(
                    "bad-partition",
                    f"partition {k} (type {number}) is at {offset} with {size} bytes, the ones before end at "
                    f"{running} and the file at {self.size - HEADER_BYTES}",
                    HEADER_BYTES + 8 + 24 * k,
                    expected=running,
                    actual=offset,
                )
            found.append(Partition(number, self.base + HEADER_BYTES + offset, size, offset))
            running += size
        if HEADER_BYTES + running != self.size:
            raise self.fail(
                "bad-partition",
                f"the last partition ends at {HEADER_BYTES + running}, the file at {self.size}",
                HEADER_BYTES + running,
                expected=self.size,
                actual=HEADER_BYTES + running,
            )
        return tuple(found)
