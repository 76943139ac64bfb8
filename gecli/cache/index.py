"""The index of a graph key, `{key}.idx` (GE: CacheFileIndex, CacheFileIdx; cache.md 2.2)."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Any, NamedTuple

from gecli.cache.layout import OM
from gecli.wire.regular_file import io_fault, read_regular

SUFFIX = ".idx"
MAX_BYTES = 1 << 26
NO_FILE = (errno.EINVAL, errno.EISDIR, errno.ELOOP)  # a pipe, device, directory or circle of links


class IndexRecord(NamedTuple):
    """One record: which files, by base name. `rdcpkt_name` is empty for an entry without variables.

    `problem` is a reason code when the record cannot be used; `raw` is what the file holds.
    """

    graph_key: str
    om_name: str
    rdcpkt_name: str
    raw: dict[str, Any]
    problem: str = ""

    @property
    def file_names(self) -> tuple[str, ...]:
        return (self.om_name, self.rdcpkt_name) if self.rdcpkt_name else (self.om_name,)

    @property
    def stem(self) -> str:
        return self.om_name.removesuffix(".om")


class IndexContent(NamedTuple):
    """The records in file order, elements that are none, and members beside the list."""

    records: list[IndexRecord]
    malformed: list[Any]
    others: dict[str, Any]


class NamedFiles:
    """Which keys the records of a directory's indexes name files for: several may name the same ones."""

    def __init__(self) -> None:
        self._keys: dict[str, set[str]] = {}

    def add(self, content: IndexContent) -> None:
        for record in content.records:
            for name in record.file_names if not record.problem else ():
                self._keys.setdefault(name, set()).add(record.graph_key)

    def remove(self, key: str, stem: str) -> None:
        """The record of an entry has gone; its variable record is asked for by its stem."""
        for name in (f"{stem}{OM}", f"{stem}.rdcpkt"):
            self._keys.get(name, set()).discard(key)

    def is_of_another(self, path: str, key: str) -> bool:
        """Whether a record of another key names this file."""
        return bool(self._keys.get(os.path.basename(path), frozenset()) - {key})


class UnreadableIndex(ValueError):
    """The whole index is unusable: not JSON, or without a list of files."""


def index_path(directory: str, key: str) -> str:
    return os.path.join(directory, key + SUFFIX)


def read_index(directory: str, key: str) -> IndexContent | None:
    """The index of a key; None when there is none. Raises UnreadableIndex, OSError."""
    path = index_path(directory, key)
    try:
        data = read_regular(path, MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        if io_fault(error):
            raise
        raise UnreadableIndex(error.strerror or str(error)) from error
    return parse_index(data, directory)


def named_files(directory: str) -> NamedFiles:
    """The files that the indexes of a directory name; an index that cannot be read names none. Raises OSError."""
    found = NamedFiles()
    for name in sorted(os.listdir(directory)):
        if name.endswith(SUFFIX):
            with suppress(UnreadableIndex, OSError):
                found.add(read_index(directory, name.removesuffix(SUFFIX)) or IndexContent([], [], {}))
    return found


def parse_index(data: bytes, directory: str) -> IndexContent:
    """The records in an index; file names are resolved against `directory`. Raises UnreadableIndex."""
    from gecli.json_text import parse_json

    try:
        if len(data) > MAX_BYTES:
            raise UnreadableIndex("the file is too large")
        content = parse_json(data, raw_bytes=True, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UnreadableIndex(str(error) or "not JSON") from error
    if not isinstance(content, dict) or not isinstance(content.get("cache_file_list"), list):
        raise UnreadableIndex("there is no cache_file_list")
    records: list[IndexRecord] = []
    malformed = []
    for element in content.pop("cache_file_list"):
        record = _record(element, directory)
        if record is None:
            malformed.append(element)
        else:
            records.append(record)
    return IndexContent(records, malformed, content)


def index_text(content: IndexContent) -> str:
    """The exact text of an index, as GE writes it: indent 4, sorted keys, no newline at the end."""
    import json

    document = {**content.others, "cache_file_list": [_written(record) for record in content.records]}
    return json.dumps(document, indent=4, sort_keys=True, ensure_ascii=False)


def new_record(key: str, stem: str, *, has_rdcpkt: bool) -> IndexRecord:
    rdcpkt = f"{stem}.rdcpkt" if has_rdcpkt else ""
    return IndexRecord(key, f"{stem}.om", rdcpkt, {"graph_key": key, "cache_file_name": f"{stem}.om"})


def _written(record: IndexRecord) -> dict[str, Any]:
    """A record as it is written: base names only, unknown members kept.

    GE writes back the paths that it had put in front of the older names, which breaks a directory that moves.
    """
    if record.problem:
        return record.raw
    written = {**record.raw, "graph_key": record.graph_key, "cache_file_name": record.om_name}
    written.pop("var_desc_file_name", None)
    if record.rdcpkt_name:
        written["var_desc_file_name"] = record.rdcpkt_name
    return written


def _record(element: Any, directory: str) -> IndexRecord | None:
    if not isinstance(element, dict):
        return None
    key, om, rdcpkt = (element.get(name) for name in ("graph_key", "cache_file_name", "var_desc_file_name"))
    if not isinstance(key, str) or not isinstance(om, str) or not isinstance(rdcpkt, str | None):
        return None
    om_name = _inside(om, directory) if om.endswith(OM) else None
    rdcpkt_name = _inside(rdcpkt, directory) if rdcpkt else ""
    if om_name is None or rdcpkt_name is None:
        return IndexRecord(key, _shown(om), _shown(rdcpkt or ""), element, "bad_path")
    return IndexRecord(key, om_name, rdcpkt_name, element)


def _shown(name: str) -> str:
    """The base name of a file that cannot be one of the directory, without what no file name can hold."""
    return os.path.basename(name).replace("\0", "\ufffd")


def _inside(name: str, directory: str) -> str | None:
    """The name below `directory` of a file that a record names; None for one that is elsewhere.

    The base name counts when such a file exists, so that a directory can be moved.
    """
    base = os.path.basename(name)
    if base in ("", ".", "..") or "\0" in name:
        return None
    if "/" not in name or os.path.lexists(os.path.join(directory, base)):
        return base
    real = os.path.realpath(directory)
    for literal in (name, os.path.join(os.path.dirname(real), name)):
        found = os.path.realpath(literal)
        if os.path.dirname(found) == real and os.path.exists(found):
            return os.path.basename(found)
    # The file is missing wherever one looks; in the cache directory it would have its base name.
    folder = os.path.dirname(name)
    places = (folder, os.path.join(os.path.dirname(real), folder), os.path.join(real, folder))
    return base if any(os.path.realpath(each) == real for each in places) else None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
