"""The sidecar of an entry, `{stem}.gecli.json`: what it was compiled from (cache.md 11.2). GE never looks at it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gecli.cache.graph_key import is_graph_key
from gecli.cache.layout import SIDECAR, entry_path
from gecli.cache.sidecar_report import report_fault
from gecli.wire.regular_file import io_fault, read_regular

SCHEMA = 1
MAX_REQUESTS = 8
COMPONENTS = ("graph", "weights", "options", "toolchain")
VARIABLE_MEMORY = "variable_memory"  # how the nodes in variable memory were placed; gecli only
CONFIRMED, USER_FUNCTIONS = "confirmed", "user_functions"  # members for the manual check


class InvalidSidecar(ValueError):
    """The sidecar is damaged or belongs to another entry, so the whole entry cannot be trusted."""


class SidecarOfAnother(InvalidSidecar):
    """It is that of the same files under another key."""

    def __init__(self, key: str, stem: str) -> None:
        super().__init__(f"it belongs to key {key!r}, entry {stem!r}")
        self.key = key


class Sidecar:
    """The content of a sidecar; members that gecli does not know are kept."""

    __slots__ = ("content",)

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        return _object(self.content.get("fingerprint"))

    @property
    def combined(self) -> str:
        """Empty in the sidecar of an entry that another tool made."""
        return str(self.fingerprint.get("combined") or "")

    @property
    def requests(self) -> list[str]:
        found = self.fingerprint.get("requests")
        return [str(each) for each in found] if isinstance(found, list) else []

    @property
    def files(self) -> Mapping[str, Any]:
        return _object(self.content.get("files"))

    @property
    def has_rdcpkt(self) -> bool:
        return "rdcpkt" in self.files

    @property
    def is_confirmed(self) -> bool:
        """Whether a person said that the entry may be used."""
        return self.content.get(CONFIRMED) is True

    @property
    def waits_for_confirmation(self) -> bool:
        """Whether a directory with `cache_manual_check` must not use it yet; a sidecar that does not say counts."""
        return self.content.get(USER_FUNCTIONS) is not False and not self.is_confirmed

    @property
    def variables_before(self) -> list[str]:
        """The variables that the session had before the compile; empty for a model alone and the first of a session."""
        found = _object(self.content.get("vars")).get("before")
        return [str(each) for each in found] if isinstance(found, list) else []

    @property
    def compile_seconds(self) -> float:
        value = self.content.get("compile_seconds")
        if not isinstance(value, int | float) or not 0 <= value < 1e12:  # NaN is not in the range either
            return 0.0
        return float(value)

    @property
    def report(self) -> Mapping[str, Any]:
        """What a summary says about the model; gecli's own member."""
        return _object(self.content.get("report"))

    @property
    def asks_for_weight_files(self) -> bool:
        """Whether the entry was compiled with --external-weight."""
        options = _object(_object(self.content.get("components")).get("options"))
        return options.get("ge.externalWeight") in ("1", "2")

    def file_facts(self, kind: str) -> tuple[int, str] | None:
        """Size and sha256 of the `om` or `rdcpkt`."""
        facts = _object(self.files.get(kind))
        size, digest = facts.get("size"), facts.get("sha256")
        return (size, digest) if isinstance(size, int) and isinstance(digest, str) else None

    def add_request(self, request: str) -> None:
        """Remember a request that this entry answers: newest first, at most eight."""
        kept = [each for each in self.requests if each != request]
        self.content["fingerprint"] = {**self.fingerprint, "requests": [request, *kept][:MAX_REQUESTS]}

    def text(self) -> str:
        import json

        return json.dumps(self.content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def read_sidecar(directory: str, key: str, stem: str) -> Sidecar | None:
    """The sidecar of an entry; None without one, or with one of another schema, or where several keys name the model
    and it belongs to another one. Raises InvalidSidecar, OSError.

    An OSError tells nothing of the sidecar: it may be whole.
    """
    try:
        data = read_regular(entry_path(directory, stem, SIDECAR))
    except FileNotFoundError:
        return None
    except OSError as error:
        if io_fault(error):
            raise
        raise InvalidSidecar(error.strerror or str(error)) from error
    try:
        return parse_sidecar(data, key, stem)
    except SidecarOfAnother as error:
        if _has_record(directory, error.key, stem):
            return None
        raise


def parse_sidecar(data: bytes, key: str, stem: str) -> Sidecar | None:
    """The sidecar in these bytes, checked against the entry that it should belong to. Raises InvalidSidecar.

    What has no number of a schema is no sidecar of another gecli, but a damaged one.
    """
    from gecli.json_text import parse_json

    try:
        content = parse_json(data, raw_bytes=True)
    except (ValueError, RecursionError) as error:
        raise InvalidSidecar(f"it is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise InvalidSidecar("it is no JSON object")
    schema = content.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise InvalidSidecar("it does not say which schema it has")
    if schema != SCHEMA:
        return None
    owner = content.get("graph_key")
    if isinstance(owner, str) and owner != key and content.get("entry") == stem and is_graph_key(owner):
        raise SidecarOfAnother(owner, stem)
    if owner != key or content.get("entry") != stem:
        raise InvalidSidecar(f"it belongs to key {content.get('graph_key')!r}, entry {content.get('entry')!r}")
    sidecar = Sidecar(content)
    kinds = ("om", "rdcpkt") if sidecar.has_rdcpkt else ("om",)
    if any(sidecar.file_facts(kind) is None for kind in kinds):
        raise InvalidSidecar("it does not say the size and sha256 of the files")
    if not sidecar.combined and not sidecar.is_confirmed:
        raise InvalidSidecar("it says neither what the entry was compiled from nor that it was confirmed")
    if "report" in content and (fault := report_fault(content["report"])):
        raise InvalidSidecar(fault)
    return sidecar


def _has_record(directory: str, key: str, stem: str) -> bool:
    from gecli.cache.index import UnreadableIndex, read_index

    try:
        content = read_index(directory, key)
    except (UnreadableIndex, OSError):
        return False
    return content is not None and any(each.graph_key == key and each.stem == stem for each in content.records)


def difference_of(stored: Mapping[str, Any], wanted: Mapping[str, str]) -> list[str]:
    """The components in which two fingerprints differ."""
    return [name for name in COMPONENTS if stored.get(name) != wanted.get(name)]


def last_used_ns(directory: str, stem: str) -> int | None:
    """The mtime of the sidecar, or of the .om of an entry without one."""
    for suffix in (SIDECAR, ".om"):
        try:
            return os.stat(entry_path(directory, stem, suffix)).st_mtime_ns
        except OSError:
            continue
    return None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
