"""Tensors written as `.npy` with a sidecar each, and a manifest for all of them (cli.md 2.4)."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from math import prod
from typing import Any

from gecli.artifacts.publish import publish_waiting, publishing
from gecli.errors import Diagnostic, InvalidOption
from gecli.ir.dtype import DataType
from gecli.ir.weight import Absent, FileSlice
from gecli.records import dataclass
from gecli.report.inspect.attribute_values import desc_json
from gecli.report.inspect.json_text import json_chunks
from gecli.report.inspect.npy_header import is_opaque, npy_descr, npy_header, npy_name
from gecli.report.inspect.subject import Subject
from gecli.report.inspect.tensors import HeldTensor, bytes_needed, external_weights, held_tensors, look_at
from gecli.report.inspect.view import PackedRows, View, cell
from gecli.report.sizes import counted

ALL = "all"
# The files of all tensors appear together, and each that waits takes memory. Of tensors so small that this would be
# out of proportion to the file, as only hostile ones are, those that are whole appear first.
WAITING_COST, WAITING_BYTES = 6000, 4 << 20
DIGEST_BYTES = 32  # SHA-256
NAMELESS = "(which has no name)"
SHOWN_NAMES = 4  # tensors that an advice names
SHOWN_FILES = 4  # weight files that a line names
WHY_CHARACTERS = 400
NAME_BYTES = 200  # leaves room for the suffixes below the usual limit of 255
WIDENED = (DataType.INT4, DataType.INT2)  # written as int8


@dataclass(frozen=True, slots=True)
class Unwritten:
    """A tensor that no file was made of; `needed` is None where its description says no size."""

    tensor: HeldTensor
    needed: int | None
    available: int
    why: str

    def as_json(self) -> dict[str, Any]:
        return {"name": self.tensor.name, "bytes": self.needed, "available": self.available, "why": self.why}


class NoConversion(Exception):
    """The stored form of a tensor does not go back to its origin form; the text says why."""


def extract(subject: Subject, names: Sequence[str], directory: str, *, origin_format: bool = False) -> View:
    """Write the named tensors, or `all`; one that cannot be written is an error among the subject's warnings.

    Raises InvalidOption for a name that is not there, OutputError.
    """
    wanted = held_tensors(subject) if ALL in names else _named(subject, names)
    taken: dict[str, int] = {}
    missing: list[Unwritten] = []

    def written() -> Iterator[dict[str, Any]]:
        waiting = 0
        for each in wanted:
            unfit = _unfit(each)
            if unfit is not None:
                missing.append(unfit)
                continue
            held = each.weight.source.nbytes
            if ALL in names and not subject.may_read(held):
                missing.append(Unwritten(each, held, held, "it lies upon others"))
                continue
            try:
                row = _write(each, directory, unique_name(each.name, taken), origin_format)
            except NoConversion as error:
                missing.append(Unwritten(each, each.weight.source.nbytes, each.weight.source.nbytes, str(error)))
                continue
            yield row
            waiting += 1
            if waiting * WAITING_COST > WAITING_BYTES + subject.size_bytes:
                publish_waiting()
                waiting = 0

    rows = PackedRows(written())
    if ALL in names and len(rows):
        _publish(os.path.join(directory, "manifest.json"), _manifest(rows))
    outside = Counter(row["file"] or NAMELESS for row in external_weights(subject)) if ALL in names else Counter[str]()
    if missing:
        subject.warnings.append(_not_written(subject, missing))
    lacking = [each.as_json() for each in missing]
    lines = _lines(rows, missing, directory, is_all=ALL in names, outside=outside)
    document = {"directory": directory, "tensors": rows.as_list(), "missing": lacking, "weight_files": dict(outside)}
    return View("extract", document, [lines])


def _lines(
    rows: PackedRows[dict[str, Any]],
    missing: list[Unwritten],
    directory: str,
    *,
    is_all: bool,
    outside: Counter[str],
) -> Iterator[str]:
    for row in rows:
        yield f"{os.path.join(directory, row['file'])}  {cell(row['name'])}  {row['dtype']} {row['shape']}"
    for each in missing:
        yield f"not written: {cell(each.tensor.name)}, {cell(each.why, WHY_CHARACTERS)}"
    beside = ", each with its description in a .json beside it" if len(rows) else ""
    manifest = ", all of them in manifest.json" if is_all and len(rows) else ""
    yield f"{counted(len(rows), 'tensor')} written{beside}{manifest}"
    if outside:
        shown = ", ".join(cell(file) for file in islice(outside, SHOWN_FILES))
        more = f" and {len(outside) - SHOWN_FILES} more" if len(outside) > SHOWN_FILES else ""
        files = f"weight file{'s' if len(outside) > 1 else ''} {shown}{more}"
        count = counted(outside.total(), "tensor")
        yield f"not written: {count} in {files}, not opened; --tensors has the place of each"


def _manifest(rows: PackedRows[dict[str, Any]]) -> Iterator[bytes]:
    """File and digest of each tensor by its name, in the order of the names."""
    # One object for each: a hostile file has tens of thousands.
    entries = [_named_bytes(row["name"]) + row["file"].encode() + bytes.fromhex(row["sha256"]) for row in rows]
    entries.sort()
    mark = "{\n"
    for entry in entries:
        name, _, file = entry[:-DIGEST_BYTES].rpartition(b"\0")
        text = f'"file": {json.dumps(file.decode())},\n    "sha256": "{entry[-DIGEST_BYTES:].hex()}"'
        shown = json.dumps(name.decode("utf-8", "surrogatepass"), ensure_ascii=False)
        yield _bytes(f"{mark}  {shown}: {{\n    {text}\n  }}")
        mark = ",\n"
    yield b"\n}\n"


def _named_bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass") + b"\0"


def _unfit(each: HeldTensor) -> Unwritten | None:
    """Why no file can have the elements of a tensor; None for one that can be written."""
    source, desc = each.weight.source, each.weight.desc
    if isinstance(source, Absent):
        why = f"{source.held_bytes} of its {source.nbytes} bytes are in the file"
        return Unwritten(each, source.nbytes, source.held_bytes, why)
    if is_opaque(desc.dtype):
        return None
    needed, held = bytes_needed(desc), source.nbytes
    if needed == held:
        return None
    at = f" at offset {source.offset_bytes}" if isinstance(source, FileSlice) else ""
    asked = f"needs {needed} bytes" if needed is not None else "has dims that are not known"
    return Unwritten(each, needed, held, f"its description {desc} {asked}, {held} are there{at}")


def _not_written(subject: Subject, missing: list[Unwritten]) -> Diagnostic:
    first = missing[0]
    name, source = first.tensor.name, first.tensor.weight.source
    message = f"tensor {name!r} is not written: {first.why}"
    if len(missing) > 1:
        message = f"{len(missing)} tensors are not written, the first {name!r}: {first.why}"
    if isinstance(source, Absent):
        why = "what is not in the file cannot be extracted"
        if subject.om is None:
            why = "the file is a model without its OM, which has the WEIGHTS_DATA"
        do = "extract them from a whole copy of the OM"
    else:
        why = "a .npy file has the elements that its shape and type say, no more and no fewer"
        do = look_at(subject, first.tensor)
        if first.needed == first.available:
            why, do = "the data in their device format do not fit the origin format", "leave out --origin-format"
    return Diagnostic(
        "G3012", f"{subject.path}: {message}", kind="bad-weights", file=subject.path, node=first.tensor.node,
        offset=source.offset_bytes if isinstance(source, FileSlice) else None, why=why, do=do,
        expected=first.needed, actual=first.available,
    )  # fmt: skip


def unique_name(name: str, taken: dict[str, int]) -> str:
    """A file name that cannot leave its directory; clashes get ~2, ~3 (also on file systems that fold case).

    `taken` has the last number that was given to each name.
    """
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:NAME_BYTES]
    if not stem.strip(".") or stem.lower() == "manifest":
        stem = f"_{stem}"
    found = stem
    while found.lower() in taken:
        count = taken[stem.lower()] = taken.get(stem.lower(), 1) + 1
        found = f"{stem}~{count}"
    taken[found.lower()] = 1
    return found


def _named(subject: Subject, names: Sequence[str]) -> list[HeldTensor]:
    """The tensors of these names. Raises InvalidOption for one that is not there."""
    places = dict.fromkeys(names)
    found = {each.name: each for each in held_tensors(subject) if each.name in places}
    for name in places:
        if name not in found:
            raise _not_held(subject, name)
    return [found[name] for name in places]


def _not_held(subject: Subject, name: str) -> InvalidOption:
    outside = next((row for row in external_weights(subject) if row["node"] == name), None)
    if outside is not None:
        return InvalidOption(
            "E10001", f"tensor {name!r} is not in the OM", option="--extract",
            why=f"its bytes are in the weight file {outside['file'] or NAMELESS}, which is not opened",
            do="gecli inspect-om FILE --tensors",
        )  # fmt: skip
    from gecli.options.spelling import closest

    held = [each.name for each in held_tensors(subject)]
    is_pattern = any(mark in name for mark in "*?[")
    near = [each for each in held if fnmatchcase(each, name)] if is_pattern else closest(name, held)
    shown = near[:SHOWN_NAMES]
    why = f"{counted(len(held), 'tensor')} {'is' if len(held) == 1 else 'are'} there"
    if is_pattern:
        why = f"--extract takes names and no patterns; of the {counted(len(held), 'tensor')} {len(near)} match this one"
    elif shown:
        why += f", {'one is' if len(shown) == 1 else 'among them'} {', '.join(shown)}"
    do = " ".join(f"--extract {shlex.quote(each)}" for each in (shown if is_pattern else shown[:1]))
    return InvalidOption(
        "E10001", f"the file holds no tensor {name!r}", option="--extract", why=why,
        do=do + (" and so on, or --extract all" if len(near) > SHOWN_NAMES else "")
        or "gecli inspect-om FILE --tensors",
    )  # fmt: skip


def _write(each: HeldTensor, directory: str, stem: str, origin_format: bool) -> dict[str, Any]:
    weight, file = each.weight, f"{stem}.npy"
    desc = weight.desc
    path = os.path.join(directory, file)
    if origin_format and (desc.logical_format != desc.format or desc.logical_shape != desc.shape):
        desc = desc.logical()
        digest = _publish(path, _npy(_in_origin(each), desc.shape))
    elif is_opaque(desc.dtype):
        digest = _publish(path, _streamed(each, (each.weight.source.nbytes,)))
    elif desc.dtype.bits is not None and desc.dtype.bits >= 8:
        digest = _publish(path, _streamed(each, desc.shape))
    else:
        digest = _publish(path, _npy(_narrow(each), desc.shape))
    sidecar = {
        "name": each.name,
        "node": each.node,
        "dtype": npy_name(desc.dtype),
        "format": desc.format.name,
        "storage_shape": list(desc.shape),
        "origin_format": desc.logical_format.name,
        "origin_shape": list(desc.logical_shape),
        "stored_format": weight.desc.format.name,  # in the OM, also where --origin-format converted the data
        "stored_shape": list(weight.desc.shape),
    }
    _publish(os.path.join(directory, f"{stem}.json"), [_json(sidecar)])
    shown = desc_json(desc) or {}
    return {"name": each.name, "file": file, "sha256": digest, "dtype": sidecar["dtype"], "shape": shown["shape"]}


def _streamed(each: HeldTensor, shape: tuple[int, ...]) -> Iterable[bytes]:
    """The file's bytes under a header: nothing is held."""
    yield npy_header(npy_descr(each.weight.dtype), shape)
    yield from each.weight.chunks()


def _narrow(each: HeldTensor) -> Any:
    """Types of less than a byte: one element a byte."""
    import numpy as np

    from gecli.ir.packing import unpack

    desc = each.weight.desc
    values = unpack(each.weight.source.read(), desc.dtype, desc.shape)
    return values.astype(np.int8) if desc.dtype in WIDENED else values.view(np.uint8)


def _in_origin(each: HeldTensor) -> Any:
    """The elements in the origin format. Raises NoConversion."""
    import numpy as np

    from gecli.ir.packing import unpack
    from gecli.layout.transfer import transfer
    from gecli.layout.transfer_error import TransferError

    desc = each.weight.desc
    try:
        array = unpack(each.weight.source.read(), desc.dtype, desc.shape)
        moved = transfer(array, desc, desc.logical())
    except (ValueError, TransferError) as error:
        raise NoConversion(f"it does not convert to {desc.logical_format.name}: {error}") from error
    return np.ascontiguousarray(moved).view(npy_descr(desc.dtype))


def _npy(array: Any, shape: tuple[int, ...]) -> Iterable[bytes]:
    array = array if array.size != prod(shape) else array.reshape(shape)
    return [npy_header(array.dtype.str, array.shape), array.tobytes()]


def _json(content: dict[str, Any]) -> bytes:
    return _bytes("".join(json_chunks(content)) + "\n")  # json.dumps would leave a cycle of objects for each


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _publish(path: str, pieces: Iterable[bytes]) -> str:
    """Write the file; returns its digest."""
    digest = hashlib.sha256()
    with publishing(path, in_place=False) as stream:  # the names are those of a file that others made
        for piece in pieces:
            digest.update(piece)
            stream.write(piece)
    return digest.hexdigest()
