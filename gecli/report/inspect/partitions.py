"""Partitions: where they lie, their digest, and whether their bytes look compressed or encrypted."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import Any

from gecli.artifacts.file_access import opened, pread
from gecli.artifacts.om_file import OmFile
from gecli.artifacts.partition_table import Partition, partition_name
from gecli.records import dataclass
from gecli.report.inspect.subject import Subject
from gecli.report.inspect.view import Table, View

CHUNK_BYTES = 1 << 20
SAMPLE_BYTES = 1 << 16  # one sample of every chunk is enough to tell random bytes from others
DENSE_BITS = 7.9  # bits of information a byte; weights of float32 stay below 7.6
NUMPY_BYTES = 8 << 20  # counting in numpy pays for its import from about here on
LEAST_BYTES = 4096  # shorter ones look random by chance


@dataclass(frozen=True, slots=True)
class Listed:
    """A partition with its number over all models of the file."""

    number: int
    model: int
    name: str
    partition: Partition


def listed(om: OmFile) -> Iterator[Listed]:
    """Every partition of every model, in file order."""
    number = 0
    for model in om.models:
        for partition in model.partitions:
            yield Listed(number, model.index, name_of(om, partition), partition)
            number += 1


def name_of(om: OmFile, partition: Partition) -> str:
    """The name of a partition's type in files of this kind."""
    if partition.type == 6 and om.kind == "om" and not om.is_mobile:
        return "MODEL_INOUT_INFO" if om.inout_partition() == partition else "UNKNOWN_6"
    return partition_name(partition.type, mobile=om.is_mobile)


def partition_rows(om: OmFile) -> list[dict[str, Any]]:
    """Type, place and size of each partition."""
    return [
        {
            "index": item.number,
            "model": item.model,
            "type": item.partition.type,
            "name": item.name,
            "offset": item.partition.offset_bytes,
            "size": item.partition.size_bytes,
        }
        for item in listed(om)
    ]


def partitions_view(subject: Subject, *, digests: bool = True) -> View:
    om = subject.container
    subject.digest_state(always=digests)
    rows = partition_rows(om)
    if digests:
        for row in rows:
            held = om.base + om.size_bytes - row["offset"]
            row |= _content_facts(om.path, row["offset"], row["size"]) if held >= row["size"] else {"available": held}
    columns: tuple[str, ...] = ("#", "model", "type", "name", "offset", "size")
    if digests:
        columns += ("sha256", "entropy", "looks")
    table = Table(columns, [_cells(row, digests) for row in rows], frozenset(("#", "model", "type", "offset", "size")))
    return View("partitions", {"wide": om.wide, "partitions": rows}, [table])


def _cells(row: dict[str, Any], digests: bool) -> tuple[str, ...]:
    plain = tuple(str(row[key]) for key in ("index", "model", "type", "name", "offset", "size"))
    if not digests:
        return plain
    if "available" in row:  # of a damaged file
        return (*plain, "-", "-", f"cut after {row['available']} bytes")
    return (*plain, row["sha256"][:16], f"{row['entropy']:.2f}", "random" if row["looks_random"] else "")


def _content_facts(path: str, offset: int, size: int) -> dict[str, Any]:
    """Digest of all bytes and entropy of samples, in one pass that holds one chunk."""
    digest = hashlib.sha256()
    counts = [0] * 256
    sampled = 0
    count = _counted if size > NUMPY_BYTES else _counted_without_numpy
    with opened(path) as handle:
        position, end = offset, offset + size
        while position < end:
            block = pread(handle, position, min(CHUNK_BYTES, end - position))
            if not block:
                break
            digest.update(block)
            sample = block[:SAMPLE_BYTES]
            sampled += len(sample)
            counts = [old + new for old, new in zip(counts, count(sample))]
            position += len(block)
    entropy = -sum(n / sampled * math.log2(n / sampled) for n in counts if n) if sampled else 0.0
    return {
        "sha256": digest.hexdigest(),
        "entropy": round(entropy, 3) + 0.0,
        "looks_random": entropy > DENSE_BITS and sampled >= LEAST_BYTES,
    }


def _counted(sample: bytes) -> list[int]:
    """How often each byte value occurs."""
    import numpy as np

    found: list[int] = np.bincount(np.frombuffer(sample, np.uint8), minlength=256).tolist()
    return found


def _counted_without_numpy(sample: bytes) -> list[int]:
    present = set(sample)
    return [sample.count(value) if value in present else 0 for value in range(256)]
