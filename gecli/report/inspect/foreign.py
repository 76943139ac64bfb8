"""What a file is that was given in place of an OM: `gecli run` and `gecli inspect-om` say it alike."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from gecli.errors import InputError
from gecli.loading.sniff import LOADABLE, FileKind, refusal, sniff

_TOLD_BY_READER = (FileKind.OM, FileKind.SVP, FileKind.OM2, FileKind.GIT_LFS)
_SOURCES = {
    FileKind.ONNX: "an ONNX model",
    FileKind.JSON: "a gecli JSON graph",
    FileKind.OM_DOCUMENT: "the document of a model (gecli.inspect/1)",
}
SCHEMA_MEMBER = re.compile(rb'"schema"\s*:\s*"(gecli\.[a-z.-]+/\d+)"')
MAX_NAMED = 4  # OMs of a directory that a message names


def not_an_om(kind: FileKind, path: str, do: str = "") -> InputError:
    """The error for a file of a kind that is no OM. `do` says what to do with a model that could be compiled."""
    if kind in LOADABLE:
        do = do or f"gecli compile {path} -o {os.path.splitext(path)[0]}.om"
        return _not_om(path, f"this is {_SOURCES[kind]}, not an OM file", "it is the source of a compile", do)
    if kind is FileKind.EMPTY and _has_content(path):
        return _not_om(
            path, "the system says of this file that it is empty, but it can be read", "as of those in /proc, no size "
            "of it is known", f"cat {shlex.quote(path)} | gecli inspect-om -",
        )  # fmt: skip
    told = refusal(kind, path)
    if kind in (FileKind.DIRECTORY, FileKind.TF_SAVED_MODEL) or told.first.kind:
        return told
    what = told.first.message
    if kind is FileKind.OTHER_JSON:
        broken = _broken_json(path)
        if broken is not None:
            return broken
        why, do = "an index has the list `cache_file_list`", "give the .om, the .rdcpkt or the .idx"
        return _not_om(path, "this JSON file is neither a cache index nor a model", why, do)
    if kind is FileKind.GECLI_DOCUMENT:
        what = f"this is {_document_name(path)}, not an OM file"
    return _not_om(path, what, told.first.why, told.first.do)


def _has_content(path: str) -> bool:
    """Whether a file of size 0 gives bytes all the same, as those that the system makes when they are read."""
    try:
        with open(path, "rb") as stream:
            return bool(stream.read(1))
    except OSError:
        return False


def _broken_json(path: str) -> InputError | None:
    """The error for JSON that is cut or damaged, such as half a cache index; None for sound JSON."""
    import json

    from gecli.cache.index import MAX_BYTES, UnreadableIndex, parse_index
    from gecli.wire.om_faults import om_error

    with open(path, "rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    try:
        parse_index(data, os.path.dirname(path) or ".")
    except UnreadableIndex as error:
        fault = error.__cause__
        if not isinstance(fault, json.JSONDecodeError):
            return None
        what = "cache index" if b'"cache_file_list"' in data else "JSON file"
        offset = len(fault.doc[: fault.pos].encode("utf-8", "surrogatepass"))
        place = f"line {fault.lineno}, column {fault.colno}"
        is_cut = not fault.doc[fault.pos :].strip() or fault.msg.startswith("Unterminated")
        state = f"is cut: it has {len(data)} byte{'s' * (len(data) != 1)}" if is_cut else f"is damaged in {place}"
        return om_error(
            "not-om", path, f"this {what} {state}", offset, why=f"{fault.msg}, {place}",
            do="copy the file again" + ("; `gecli cache verify --repair` makes a new index" * (what == "cache index")),
        )  # fmt: skip
    return None


def _not_om(path: str, what: str, why: str, do: str) -> InputError:
    from gecli.wire.om_faults import om_error

    return om_error("not-om", path, f"{what}: {os.path.getsize(path)} bytes", 0, why=why, do=do)


def _document_name(path: str) -> str:
    """`a report of gecli (gecli.compile/1)`: what wrote a document, by its schema."""
    with open(path, "rb") as stream:
        head = stream.read(1 << 20)
        stream.seek(max(os.path.getsize(path) - (1 << 16), 0))
        match = SCHEMA_MEMBER.search(head + stream.read())
    return f"a document of gecli ({match[1].decode()})" if match is not None else "a document of gecli"


def instead_of_om(path: str) -> InputError | None:
    """The error for a path given to `gecli run` that is no OM: what is there and which command helps.

    None for an OM, damaged or not, and where the error of reading it says all there is to say.
    """
    if not os.path.exists(path):
        return _missing(path)
    try:
        kind = sniff(path)
    except InputError as error:
        return error
    stem = os.path.splitext(path)[0]
    if kind is FileKind.DIRECTORY:
        return _directory(path)
    if kind in LOADABLE:
        compiled = f"gecli compile {path} -o {stem}.om, then gecli run {stem}.om"
        at_once = "" if kind is FileKind.OM_DOCUMENT else f"gecli run --jit {path}, or "
        return not_an_om(kind, path, at_once + compiled)
    if kind not in _TOLD_BY_READER:
        record = _record(path, stem)
        if record is not None:
            return record
    return None if kind in _TOLD_BY_READER or kind is FileKind.UNKNOWN else not_an_om(kind, path)


def _missing(path: str) -> InputError | None:
    if path == "-":
        why = "the weights of an OM are mapped, so it must be a file; stdin is none"
        return InputError("E13001", "gecli run reads no OM from stdin", why=why, do="cat > m.om, then gecli run m.om")
    near = [each for each in (f"{path}.om", f"{os.path.splitext(path)[0]}.om") if os.path.isfile(each)]
    if not near:
        return None
    why = "No such file or directory"
    return InputError("E13001", f"cannot open {path}", why=why, file=path, do=f"gecli run {near[0]}")


def _directory(path: str) -> InputError:
    found = sorted(str(each) for each in Path(path).glob("*.om"))
    shown = " ".join(found[:MAX_NAMED]) + (" ..." if len(found) > MAX_NAMED else "")
    why = f"{len(found) or 'no'} .om file{'s are' if len(found) > 1 else ' is'} in it"
    do = f"gecli run {shown}" if found else "give an .om file"
    return InputError("E13006", f"{path} is a directory", why=why, file=path, do=do)


def _record(path: str, stem: str) -> InputError | None:
    """The error for a variable packet, whole or damaged, or a cache index."""
    from gecli.report.inspect.subject import open_subject

    try:
        kind = open_subject(path).kind
    except InputError as error:
        return error if error.kind == "rdcpkt_corrupt" else None
    name = {
        "rdcpkt": "a variable packet",
        "idx": "a cache index",
        "model-def": "a bare ModelDef",
        "session": "a session snapshot",
    }.get(kind)
    if name is None:
        return None
    beside = f"gecli run {stem}.om --vars {path}"
    return InputError(
        "G3008", f"{path}: this is {name}, not an OM file", kind=kind, file=path,
        why="it holds no compiled model" if kind != "model-def" else "it has no OM container around it",
        do=beside if kind == "rdcpkt" else f"gecli inspect-om {path}",
    )  # fmt: skip
