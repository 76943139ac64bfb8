"""Archives of cache entries: a plain tar whose first member says what the others are (cache.md 12.5).

The same entries give the same bytes: members in the order of the list, no times, no owners. A reader believes nothing:
names, sizes and digests must be those of the list, and no name leads out of the directory that is imported into.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

from gecli.cache.graph_key import is_graph_key
from gecli.cache.layout import ENTRY_SUFFIXES, OM, RDCPKT, SIDECAR, STEM_PATTERN
from gecli.json_text import parse_json
from gecli.wire.regular_file import open_regular

if TYPE_CHECKING:
    from gecli.wire.model_record import ModelRecord

SCHEMA = "gecli.cache-archive/1"
MANIFEST = "gecli-cache.json"
WEIGHTS = "weight/"
VERSIONS, SLICES = "jit/", "jit/slicing_hierarchy/"
MAX_MANIFEST_BYTES = 1 << 26
MAX_HEADER_BYTES = 1 << 16  # of all headers of a member: tar holds them in memory, and goes one call deeper for each
MAX_SIDECAR_BYTES = 1 << 26
MAX_MEMBERS = 1 << 20
BLOCK_BYTES = 1 << 20
_SLICE_FILE = re.compile(
    r"gecli_slicing\.json|slicing_result\.json|(?:0|[1-9]\d{0,5})/(?:gep_list\.json|slice_graph\.pb|rem_graph\.pb)",
    re.ASCII,
)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_WEIGHT = re.compile(r"weight_[0-9a-f]{32,64}|[^/\0.][^/\0]{0,230}_weight_combined|weight_combined", re.ASCII)


class DamagedArchive(ValueError):
    """The file is no archive of cache entries, or not a whole one; the text says where and why."""


class Readable(Protocol):
    """What a member is read from."""

    def read(self, size: int = -1, /) -> bytes: ...


class ArchivedFile(NamedTuple):
    """A member: its name, size and the sha256 of its content."""

    name: str
    size_bytes: int
    sha256: str


class ArchivedEntry(NamedTuple):
    """One entry: files by suffix, and the names of its weight files."""

    key: str
    stem: str
    files: Mapping[str, ArchivedFile]
    weights: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files.values())


class ArchivedSlices(NamedTuple):
    """How a graph was cut: files by their names in `slicing_hierarchy/{key}`, and the compiled versions."""

    key: str
    files: Mapping[str, ArchivedFile]
    entries: tuple[ArchivedEntry, ...]

    @property
    def folder(self) -> str:
        """Where the files lie in the archive."""
        return f"{SLICES}{self.key}/"


class Manifest(NamedTuple):
    """The entries in the order in which they stand in their indexes, the weight files that they share, and slices."""

    entries: tuple[ArchivedEntry, ...]
    weights: tuple[ArchivedFile, ...] = ()
    slices: tuple[ArchivedSlices, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.entries and not self.slices

    @property
    def all_entries(self) -> list[ArchivedEntry]:
        """Whole models and compiled versions of slices."""
        return [*self.entries, *(entry for each in self.slices for entry in each.entries)]

    def members(self) -> Iterator[ArchivedFile]:
        """Every member behind the list itself, in order; the names are those in the archive."""
        for entry in self.entries:
            yield from entry.files.values()
        for weight in self.weights:
            yield weight._replace(name=WEIGHTS + weight.name)
        for each in self.slices:
            for file in each.files.values():
                yield file._replace(name=each.folder + file.name)
            for entry in each.entries:
                for file in entry.files.values():
                    yield file._replace(name=VERSIONS + file.name)


def manifest_text(manifest: Manifest) -> str:
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "entries": [_entry_json(entry) for entry in manifest.entries],
        "weights": [file._asdict() for file in manifest.weights],
    }
    if manifest.slices:
        content["slices"] = [
            {
                "key": each.key,
                "files": [file._asdict() for file in each.files.values()],
                "versions": [_entry_json(entry) for entry in each.entries],
            }
            for each in manifest.slices
        ]
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=True) + "\n"


def _entry_json(entry: ArchivedEntry) -> dict[str, Any]:
    return {
        "key": entry.key,
        "entry": entry.stem,
        "files": [file._asdict() for file in entry.files.values()],
        "weights": list(entry.weights),
    }


def parse_manifest(data: bytes) -> Manifest:
    """The list in the first member, every name checked. Raises DamagedArchive."""
    try:
        content = parse_json(data)
    except (ValueError, RecursionError) as error:
        raise DamagedArchive(f"{MANIFEST} is not JSON: {error}") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise DamagedArchive(f"{MANIFEST} has not the schema {SCHEMA}")
    weights = tuple(_file(row) for row in _rows(content, "weights"))
    for weight in weights:
        if not _WEIGHT.fullmatch(weight.name):
            raise DamagedArchive(f"{weight.name!r} is no name of a weight file")
    known = {weight.name for weight in weights}
    entries = tuple(_entry(row, known) for row in _rows(content, "entries"))
    slices = tuple(_slices(row) for row in _rows(content, "slices")) if "slices" in content else ()
    manifest = Manifest(entries, weights, slices)
    names = [member.name for member in manifest.members()]
    if len(names) > MAX_MEMBERS or len(names) != len(set(names)):
        raise DamagedArchive("the list names a member twice, or too many")
    return manifest


def _slices(row: Any) -> ArchivedSlices:
    key = row.get("key") if isinstance(row, dict) else None
    if not isinstance(key, str) or not is_graph_key(key):
        raise DamagedArchive(f"{str(key)[:200]!r} is no graph key")
    files = {file.name: file for file in map(_file, _rows(row, "files"))}
    for file in files.values():
        if not _SLICE_FILE.fullmatch(file.name):
            raise DamagedArchive(f"{file.name[:300]!r} is no file of slices")
        if file.name.endswith(".json") and file.size_bytes > MAX_SIDECAR_BYTES:
            raise DamagedArchive(f"{file.name} is too large")
    return ArchivedSlices(key, files, tuple(_entry(each, set()) for each in _rows(row, "versions")))


def _entry(row: Any, weights: set[str]) -> ArchivedEntry:
    key, stem = (row.get("key"), row.get("entry")) if isinstance(row, dict) else (None, None)
    if not isinstance(key, str) or not is_graph_key(key) or not isinstance(stem, str):
        raise DamagedArchive(f"{str(key)[:200]!r} is no graph key")
    named = re.fullmatch(STEM_PATTERN, stem, re.ASCII)
    if stem != key and (named is None or named["key"] != key):
        raise DamagedArchive(f"{stem[:200]!r} is no name of an entry of key {key}")
    files: dict[str, ArchivedFile] = {}
    for each in _rows(row, "files"):
        file = _file(each)
        suffix = file.name[len(stem) :]
        if not file.name.startswith(stem) or suffix not in ENTRY_SUFFIXES or suffix in files:
            raise DamagedArchive(f"{file.name[:300]!r} is no file of entry {stem}")
        files[suffix] = file
    if OM not in files:
        raise DamagedArchive(f"entry {stem} has no .om")
    if SIDECAR in files and files[SIDECAR].size_bytes > MAX_SIDECAR_BYTES:
        raise DamagedArchive(f"{files[SIDECAR].name} is too large")
    used = tuple(name for name in _rows(row, "weights") if isinstance(name, str) and name in weights)
    if len(used) != len(_rows(row, "weights")):
        raise DamagedArchive(f"entry {stem} names a weight file that is not in the archive")
    ordered = {suffix: files[suffix] for suffix in (OM, RDCPKT, SIDECAR) if suffix in files}
    return ArchivedEntry(key, stem, ordered, used)


def _file(row: Any) -> ArchivedFile:
    name, size, digest = (row.get(each) for each in ArchivedFile._fields) if isinstance(row, dict) else (None,) * 3
    if (
        not isinstance(name, str)
        or not isinstance(size, int)
        or isinstance(size, bool)
        or size < 0
        or not isinstance(digest, str)
        or not _DIGEST.fullmatch(digest)
    ):
        raise DamagedArchive(f"{str(row)[:200]} is no description of a file")
    return ArchivedFile(name, size, digest)


def _rows(content: Any, name: str) -> Sequence[Any]:
    rows = content.get(name)
    if not isinstance(rows, list):
        raise DamagedArchive(f"there is no list {name}")
    return rows


# ---------------------------------------------------------------- tar


@contextmanager
def writing(stream: BinaryIO) -> Iterator[tarfile.TarFile]:
    """An empty archive, which is complete when the block ends; `stream` need not be seekable."""
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        yield tar


def add(tar: tarfile.TarFile, name: str, size_bytes: int, content: Readable) -> None:
    """Write one member, with nothing of this machine in its header. Raises OSError when `content` is shorter."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size_bytes, 0o644, 0
    tar.addfile(info, content)


class _Headers:
    """A file of which no more is read than the headers of a member may be. `left` is set anew for each member."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.left = MAX_HEADER_BYTES

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self.left:
            raise DamagedArchive(f"the headers of a member have more than {MAX_HEADER_BYTES} bytes")
        self.left -= size
        return self.stream.read(size)

    def seek(self, position: int, whence: int = 0) -> int:
        return self.stream.seek(position, whence)

    def tell(self) -> int:
        return self.stream.tell()


class Archive:
    """An open archive whose members are all there, with the right sizes and digests."""

    def __init__(self, path: str, stream: BinaryIO, manifest: Manifest, offsets: Mapping[str, int]) -> None:
        self.manifest = manifest
        self._path = path
        self._stream = stream
        self._offsets = offsets

    def blocks(self, member: ArchivedFile, folder: str = "") -> Iterator[bytes]:
        """The content of a member, hashed again on the way: the file may have changed. Raises DamagedArchive."""
        yield from _checked(self._stream, self._offsets[folder + member.name], member)

    def model(self, member: ArchivedFile, folder: str = "") -> ModelRecord:
        """The graphs of an OM in the archive, read where it lies. Raises InputError."""
        from gecli.artifacts.om_file import read_om

        return read_om(self._path, base=self._offsets[folder + member.name], size=member.size_bytes).model()

    def content(self, member: ArchivedFile, folder: str = "") -> bytes:
        return b"".join(self.blocks(member, folder))


@contextmanager
def reading(path: str) -> Iterator[Archive]:
    """A whole archive. Raises DamagedArchive, and OSError for a file that cannot be read."""
    with os.fdopen(open_regular(path), "rb") as stream:
        try:
            archive = _opened(path, stream)
        except DamagedArchive:
            raise
        except (tarfile.TarError, ValueError, OverflowError) as error:
            raise DamagedArchive(f"it is no tar archive: {error}") from error
        yield archive


def _opened(path: str, stream: BinaryIO) -> Archive:
    total = os.fstat(stream.fileno()).st_size
    headers = _Headers(stream)
    with tarfile.open(fileobj=headers, mode="r:") as tar:  # type: ignore[call-overload]  # it reads and seeks
        manifest: Manifest | None = None
        expected: Iterator[ArchivedFile] = iter(())
        offsets: dict[str, int] = {}
        members: list[ArchivedFile] = []
        while (info := tar.next()) is not None:
            tar.members = []  # it would keep all of them
            tar.pax_headers.clear()  # and what is said of all members
            headers.left = MAX_HEADER_BYTES
            if not info.isreg() or info.issparse():
                raise DamagedArchive(f"member {info.name[:300]!r} is no plain file")
            if info.offset_data + info.size > total:
                raise DamagedArchive(f"it ends inside member {info.name[:300]!r}")
            if manifest is None:
                manifest = _manifest_of(stream, info)
                expected = manifest.members()
                continue
            member = next(expected, None)
            if member is None or info.name != member.name or info.size != member.size_bytes:
                raise DamagedArchive(f"member {info.name[:300]!r} of {info.size} bytes is not the next one of the list")
            offsets[member.name] = info.offset_data
            members.append(member)
        if manifest is None:
            raise DamagedArchive("it is empty")
        missing = next(expected, None)
        if missing is not None:
            raise DamagedArchive(f"member {missing.name!r} is missing")
    for member in members:
        for _ in _checked(stream, offsets[member.name], member):
            pass
    return Archive(path, stream, manifest, offsets)


def _manifest_of(stream: BinaryIO, info: tarfile.TarInfo) -> Manifest:
    if info.name != MANIFEST:
        raise DamagedArchive(f"its first member is {info.name[:300]!r}, not {MANIFEST}")
    if info.size > MAX_MANIFEST_BYTES:
        raise DamagedArchive(f"{MANIFEST} is too large")
    return parse_manifest(os.pread(stream.fileno(), info.size, info.offset_data))


def _checked(stream: BinaryIO, offset: int, member: ArchivedFile) -> Iterator[bytes]:
    digest = hashlib.sha256()
    left = member.size_bytes
    while left:
        block = os.pread(stream.fileno(), min(left, BLOCK_BYTES), offset)
        if not block:
            raise DamagedArchive(f"it ends inside member {member.name!r}")
        digest.update(block)
        yield block
        offset += len(block)
        left -= len(block)
    if digest.hexdigest() != member.sha256:
        raise DamagedArchive(f"the sha256 of member {member.name!r} is not that of the list")
