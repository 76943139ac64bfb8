"""The weights of a loaded model that lie in files of their own (GE: FileConstantUtils; runtime.md 6).

Files are found, checked against their digests and mapped when a model is loaded; pages come into memory when a
kernel reads them. All models of a session share the mapping of a file.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.artifacts.weight_file import sha256_of_range
from gecli.errors import Diagnostic, RuntimeFault
from gecli.ir.attributes import SHA256_ATTR
from gecli.ir.op_desc import OpDesc
from gecli.ir.packing import unpack
from gecli.planning.weight_names import aligned, is_spelling_of, is_split_name, named_digest
from gecli.records import dataclass
from gecli.runtime.weight_search import (
    FoundFile,
    WeightFault,
    WeightRange,
    WeightSettings,
    find_file,
    missing_files,
    range_of,
    stored_path_warning,
)

Array = NDArray[Any]
MAPPED_FROM_BYTES = 1 << 14  # a smaller file costs less to read than to map
SPARE_DESCRIPTORS = 64
_DO = "compile the model again, or restore the file"


@dataclass(slots=True)
class OpenWeights:
    """The content of one file, mapped or read. `checked` are the ranges whose digests were right."""

    path: str
    content: mmap.mmap | memoryview
    checked: set[tuple[int, int, str]] = field(default_factory=set)


@dataclass(slots=True)
class FileUse:
    """How a model uses a weight file, for reports. `verified` is None when nothing tells its digest."""

    file: str
    path: str
    rule: str
    size_bytes: int
    verified: bool | None

    def as_json(self) -> dict[str, Any]:
        return {
            "file": self.file, "path": self.path, "rule": self.rule, "bytes": self.size_bytes,
            "verified": self.verified,
        }  # fmt: skip


class WeightFiles:
    """The weight files of a session, each opened once whatever models use it."""

    def __init__(self, settings: WeightSettings, *, copy: bool = False) -> None:
        self.settings = settings
        self.warnings: list[Diagnostic] = []
        self._copy = copy
        self._open: dict[tuple[int, ...], OpenWeights] = {}

    def load(self, nodes: Sequence[OpDesc], om_path: str) -> tuple[dict[OpDesc, Array], list[FileUse]]:
        """The value of every FileConstant in `nodes`, read-only, and the files used.

        Raises RuntimeFault: files that are missing (all in one message), short or changed, ids that are not known,
        ranges that do not fit.
        """
        ranges = self._ranges(nodes, om_path)
        by_file: dict[tuple[str, str], list[WeightRange]] = {}
        for each in ranges:
            by_file.setdefault((each.named, "value-bins" if each.rule == "value-bins" else ""), []).append(each)
        found = self._find(by_file, om_path)
        arrays: dict[OpDesc, Array] = {}
        uses: list[FileUse] = []
        unknown: list[str] = []
        try:
            room = _room_for(len(found))
            # The largest first: should descriptors run out, the smallest are read.
            for key in sorted(found, key=lambda key: (-found[key].status.st_size, key)):
                file = found[key]
                held = self._held(file, is_mapped=not self._copy and room > 0)
                room -= isinstance(held.content, mmap.mmap)
                uses.append(self._use(file, held, by_file[key], om_path, unknown))
                for each in by_file[key]:
                    arrays[each.node] = _view(held, each)
        finally:
            for file in found.values():
                os.close(file.handle)
        self._tell_unknown(unknown, om_path)
        return arrays, sorted(uses, key=lambda use: use.file)

    def take_warnings(self) -> list[Diagnostic]:
        """What loading had to say since this was asked last."""
        found, self.warnings = self.warnings, []
        return found

    def _ranges(self, nodes: Sequence[OpDesc], om_path: str) -> list[WeightRange]:
        outcomes = [range_of(node, self.settings.bins) for node in nodes]
        faults = [each for each in outcomes if isinstance(each, WeightFault)]
        if faults:
            raise RuntimeFault.of(
                Diagnostic(
                    each.code,
                    f"FileConstant {each.node!r} {each.message}",
                    where=om_path,
                    why=each.why,
                    do="compile the model again" if each.code == "G3012" else "--value-bins '{\"value_bins\": [...]}'",
                    kind=each.kind,
                    node=each.node,
                    file=om_path,
                )
                for each in faults
            )
        return [each for each in outcomes if isinstance(each, WeightRange)]

    def _find(
        self, by_file: dict[tuple[str, str], list[WeightRange]], om_path: str
    ) -> dict[tuple[str, str], FoundFile]:
        found: dict[tuple[str, str], FoundFile] = {}
        missing: dict[str, list[tuple[str, str]]] = {}
        try:
            for key, ranges in by_file.items():
                outcome = find_file(key[0], ranges[0].rule, om_path, self.settings.directories)
                if not isinstance(outcome, FoundFile):
                    missing[key[0].rpartition("/")[2] or key[0]] = outcome
                    continue
                found[key] = outcome
                _require_size(outcome, ranges, om_path)
                if outcome.rule == "stored path":
                    self.warnings.append(stored_path_warning(outcome, om_path))
            if missing:
                raise RuntimeFault.of([missing_files(om_path, missing)])
        except BaseException:
            for file in found.values():
                os.close(file.handle)
            raise
        return found

    def _held(self, file: FoundFile, *, is_mapped: bool) -> OpenWeights:
        status = file.status
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if key not in self._open:
            self._open[key] = OpenWeights(file.path, _content(file, is_mapped=is_mapped))
        return self._open[key]

    def _use(
        self, file: FoundFile, held: OpenWeights, ranges: list[WeightRange], om_path: str, unknown: list[str]
    ) -> FileUse:
        name = os.path.basename(file.path)
        size = sum(aligned(length) for _, length in {(each.offset, each.length) for each in ranges})
        use = FileUse(name, file.path, file.rule, size, None)
        if not self.settings.verify:
            return use
        wanted = [(each, _expected(each, name, file.status.st_size)) for each in ranges]
        for each, digest in wanted:
            key = (each.offset, each.length, digest)
            if digest and key not in held.checked:
                _require_digest(file, each, digest, om_path)
                held.checked.add(key)
        if all(digest for _, digest in wanted):
            use.verified = True
        else:
            unknown.append(name)
        return use

    def _tell_unknown(self, names: list[str], om_path: str) -> None:
        if names:
            self.warnings.append(
                Diagnostic(
                    "G4004",
                    f"it is not known whether these weight files changed: {', '.join(sorted(names)[:3])}",
                    where=om_path,
                    why="neither the names nor the OM tell their digests",
                    do="--no-verify-weights, if that is as it should be",
                    severity="warning",
                    file=om_path,
                )
            )


def _expected(each: WeightRange, file: str, size: int) -> str:
    """The digest that the bytes of a range must have, in either spelling; "" when nothing tells it."""
    own = each.node.attrs.get(SHA256_ATTR)
    if isinstance(own, str) and own:
        return own
    if is_split_name(file) and each.offset == 0 and each.length == size:
        return named_digest(file)
    return named_digest(each.node.name)


def _require_size(file: FoundFile, ranges: list[WeightRange], om_path: str) -> None:
    last = max(ranges, key=lambda each: each.offset + each.length)
    end = last.offset + last.length
    if end > file.status.st_size:
        raise RuntimeFault(
            "G4004",
            f"weight file {file.path} is too short",
            where=om_path,
            why=f"node {last.node.name!r} reads up to byte {end}, the file has {file.status.st_size}",
            do=_DO,
            kind="RT_WEIGHT_SHORT",
            file=file.path,
            node=last.node.name,
            expected=end,
            actual=file.status.st_size,
        )


def _require_digest(file: FoundFile, each: WeightRange, digest: str, om_path: str) -> None:
    try:
        actual = sha256_of_range(file.handle, each.offset, each.length)
    except (OSError, EOFError) as error:
        raise RuntimeFault(
            "G4004", f"weight file {file.path} cannot be read", where=om_path, why=str(error), do=_DO,
            kind="RT_WEIGHT_SHORT", file=file.path, node=each.node.name,
        ) from error  # fmt: skip
    if not is_spelling_of(digest, actual):
        raise RuntimeFault(
            "G4004",
            f"weight file {file.path} changed since the compile",
            where=om_path,
            why=f"the sha256 of its {each.length} bytes at {each.offset} is {actual[:16]}..., not {digest[:16]}...",
            do=f"{_DO}; --no-verify-weights takes it as it is",
            kind="RT_WEIGHT_HASH",
            file=file.path,
            node=each.node.name,
            expected=digest,
            actual=actual,
        )


def _content(file: FoundFile, *, is_mapped: bool) -> mmap.mmap | memoryview:
    if is_mapped and file.status.st_size >= MAPPED_FROM_BYTES:
        with suppress(OSError):
            return mmap.mmap(file.handle, file.status.st_size, access=mmap.ACCESS_READ)
    content = bytearray(file.status.st_size)
    at = 0
    while at < len(content) and (count := os.preadv(file.handle, [memoryview(content)[at:]], at)):
        at += count
    return memoryview(content).toreadonly()


def _view(held: OpenWeights, each: WeightRange) -> Array:
    desc = each.node.output_descs[0]
    if not each.length:
        return np.zeros(desc.shape, desc.dtype.numpy)
    return unpack(memoryview(held.content)[each.offset : each.offset + each.length], desc.dtype, desc.shape)


def _room_for(count: int) -> int:
    """How many files may be mapped: each mapping keeps a descriptor. The soft limit is raised where that is allowed."""
    try:
        import resource
    except ImportError:
        return SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return count
    used = len(os.listdir("/dev/fd")) if os.path.isdir("/dev/fd") else SPARE_DESCRIPTORS
    needed = used + count + SPARE_DESCRIPTORS
    if soft < needed:
        wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(soft - used - SPARE_DESCRIPTORS, 0)
