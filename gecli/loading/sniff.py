"""What a file is, by its content: the front end that reads it, or the name of the foreign kind."""

from __future__ import annotations

import os
import re
import struct
from dataclasses import replace
from enum import Enum

from gecli.errors import InputError
from gecli.records import dataclass
from gecli.wire.byte_source import ByteSource, FileSource, MemorySource

HEADER_BYTES = 256  # of an OM
HEAD_BYTES = 4096
MAX_FIELDS = 256  # top-level fields looked at; the telling ones of every message stand among the first


class FileKind(Enum):
    """Kinds of files that somebody may pass as a model."""

    ONNX = "onnx"
    JSON = "json"
    AIR = "air"
    GE_TEXT = "ge-text"
    OM = "om"
    ONNX_TEXT = "onnx-text"
    MODE1_JSON = "mode1-json"
    OTHER_JSON = "other-json"
    TF_GRAPH = "tf-graphdef"
    TF_TEXT = "tf-text"
    TF_SAVED_MODEL = "tf-savedmodel"
    CAFFE = "caffe"
    PYTORCH_ZIP = "pytorch-zip"
    OM2 = "om2"
    ZIP = "zip"
    PICKLE = "pickle"
    SAFETENSORS = "safetensors"
    TFLITE = "tflite"
    HDF5 = "hdf5"
    GIT_LFS = "git-lfs-pointer"
    HTML = "html"
    ELF = "elf"
    GZIP = "gzip"
    NUMPY = "numpy"
    SVP = "svp"
    GECLI_TEXT = "gecli-text"
    GECLI_DOCUMENT = "gecli-document"
    OM_DOCUMENT = "om-document"
    EMPTY = "empty"
    DIRECTORY = "directory"
    UNKNOWN = "unknown"


LOADABLE = (FileKind.ONNX, FileKind.JSON, FileKind.OM_DOCUMENT)


@dataclass(frozen=True, slots=True)
class _Refusal:
    code: str
    message: str
    why: str
    do: str


_EXPORT = "export the model to ONNX (torch.onnx.export) and compile that file"
_FREEZE = "convert it to ONNX: python -m tf2onnx.convert --graphdef FILE --inputs X:0 --outputs Y:0 --output model.onnx"
_SAVED_MODEL = "convert it to ONNX: python -m tf2onnx.convert --saved-model DIR --output model.onnx"
_AGAIN = "download the file again; what was saved is not the model"

_REFUSALS: dict[FileKind, _Refusal] = {
    FileKind.OM: _Refusal("G1001", "this is an OM, which is already compiled", "it begins with the OM magic",
                          "gecli run FILE, or gecli inspect-om FILE"),
    FileKind.AIR: _Refusal("G1001", "this is an AIR model (ModelDef), which gecli does not compile",
                           "it parses as GE's ModelDef", "compile the ONNX model or JSON graph it was made from"),
    FileKind.GE_TEXT: _Refusal("G1001", "this is a text dump of a GE graph, which gecli does not compile",
                               "it holds `graph {` and `op {`", "compile the model the dump was made from"),
    FileKind.ONNX_TEXT: _Refusal("G1001", "this is an ONNX model in text form", "it holds `node {` and `op_type:`",
                                 "save it in binary form with onnx.save"),
    FileKind.MODE1_JSON: _Refusal("G1001", "this is the JSON document of a compiled model, not a graph to compile",
                                  "it has `graph` but no `nodes`", "compile the model it describes"),
    FileKind.OTHER_JSON: _Refusal("E13005", "this JSON file is not a gecli graph",
                                  "a graph has the members `nodes` and `links`",
                                  "gecli compile --print-schema shows the form"),
    FileKind.TF_GRAPH: _Refusal("G1001", "this is a TensorFlow GraphDef", "its nodes have `name` and `op`", _FREEZE),
    FileKind.TF_TEXT: _Refusal("G1001", "this is a TensorFlow GraphDef in text form", "it holds `node {` and `op:`",
                               _FREEZE),
    FileKind.TF_SAVED_MODEL: _Refusal("G1001", "this is a TensorFlow SavedModel", "it holds meta graphs",
                                      _SAVED_MODEL),
    FileKind.CAFFE: _Refusal("G1001", "this is a Caffe model", "it holds a NetParameter",
                             "convert it to ONNX and compile that file"),
    FileKind.PYTORCH_ZIP: _Refusal("G1001", "this is a PyTorch file (zip)", "it holds data.pkl", _EXPORT),
    FileKind.OM2: _Refusal("G3008", "this is an OM of the second generation (om2)", "it is a zip with manifest.json",
                           "compile the source model with gecli"),
    FileKind.ZIP: _Refusal("G1001", "this is a zip archive", "it begins with PK", "unpack it and give the model file"),
    FileKind.PICKLE: _Refusal("G1001", "this is a pickle, which gecli never opens",
                              "opening a pickle runs code from the file", _EXPORT),
    FileKind.SAFETENSORS: _Refusal("G1001", "this is a safetensors file: weights without a graph",
                                   "it begins with a table of tensors", _EXPORT),
    FileKind.TFLITE: _Refusal("G1001", "this is a TensorFlow Lite model", "TFL3 stands at offset 4",
                              "convert it to ONNX: python -m tf2onnx.convert --tflite FILE --output model.onnx"),
    FileKind.HDF5: _Refusal("G1001", "this is an HDF5 file (Keras)", "it begins with the HDF5 magic",
                            "convert it to ONNX: python -m tf2onnx.convert --keras FILE --output model.onnx"),
    FileKind.GIT_LFS: _Refusal("G1001", "this is a git-LFS pointer, not the model", "it names the object only",
                               "git lfs pull"),
    FileKind.HTML: _Refusal("G1001", "this is an HTML page, not a model", "it begins with an HTML tag", _AGAIN),
    FileKind.ELF: _Refusal("G1001", "this is an ELF program or library", "it begins with the ELF magic",
                           "give the model file"),
    FileKind.GZIP: _Refusal("G1001", "this file is compressed with gzip", "it begins with the gzip magic",
                            "gunzip it first"),
    FileKind.NUMPY: _Refusal("G1001", "this is a numpy array, not a model", "it begins with the npy magic",
                             "arrays are inputs: gecli run MODEL.om -i FILE"),
    FileKind.SVP: _Refusal("G3008", "this is a model for the SVP accelerator", "it begins with PICO",
                           "compile the source model with gecli"),
    FileKind.GECLI_TEXT: _Refusal("G1001", "this is the text of a graph that gecli wrote (readable dump)",
                                  "it begins with `graph NAME(`, and is for reading only",
                                  "give the model it was written from, or the OM of the same compile"),
    FileKind.GECLI_DOCUMENT: _Refusal("G1001", "this is a report or document of gecli, not a model",
                                      "its member `schema` begins with `gecli.`",
                                      "give the model or the OM that it tells of"),
    FileKind.EMPTY: _Refusal("G1002", "the file is empty", "it has 0 bytes", _AGAIN),
    FileKind.DIRECTORY: _Refusal("E13006", "this is a directory", "a model is one file", "give the file inside it"),
    FileKind.UNKNOWN: _Refusal("E10041", "this is not a model that gecli knows",
                               "it is neither ONNX nor a gecli JSON graph", "compile an ONNX model or a JSON graph"),
}  # fmt: skip

_MAGICS: tuple[tuple[int, bytes, FileKind], ...] = (
    (0, b"IMOD", FileKind.OM),
    (0, b"PICO", FileKind.SVP),
    (0, b"version https://git-lfs", FileKind.GIT_LFS),
    (4, b"TFL3", FileKind.TFLITE),
    (0, b"\x89HDF\r\n\x1a\n", FileKind.HDF5),
    (0, b"\x7fELF", FileKind.ELF),
    (0, b"\x1f\x8b\x08", FileKind.GZIP),
    (0, b"\x93NUMPY", FileKind.NUMPY),
)


_GECLI_GRAPH = re.compile(r"(\s*(#[^\n]*)?\n)*graph [^\n(]+\([^\n]*\{\s*\n")
_OM_SCHEMA = re.compile(rb'"schema"\s*:\s*"gecli\.inspect/1"')
_GECLI_SCHEMA = re.compile(rb'"schema"\s*:\s*"gecli\.[a-z.-]+/\d+"')


def sniff(path: str) -> FileKind:
    """The kind of the file at `path`, from its first bytes and the outline of its message.

    Raises InputError E13001 when it cannot be opened and E13003 when it cannot be read.
    """
    try:
        if os.path.isdir(path):
            return FileKind.TF_SAVED_MODEL if _is_saved_model(path) else FileKind.DIRECTORY
        with FileSource(path) as source:
            return _kind_of(source)
    except OSError as err:
        code = "E13003" if isinstance(err, BlockingIOError) else "E13001"
        raise InputError(
            code,
            f"cannot open {path}",
            why=err.strerror or str(err),
            file=path,
            do="check the path and its permissions",
        ) from err


def sniff_bytes(data: bytes) -> FileKind:
    """The kind of bytes that come from no file."""
    return _kind_of(MemorySource(data))


def refusal(kind: FileKind, path: str) -> InputError:
    """The error for a file that is no input of `gecli compile`: what it is and what to do with it."""
    told = _REFUSALS[kind]
    if kind is FileKind.OM and not _may_run(path):
        told = replace(told, do="gecli inspect-om FILE")
    do = told.do.replace("FILE", path).replace("DIR", path)
    return InputError(told.code, told.message, where=path, why=told.why, do=do, file=path, kind=_short_name(kind))


def _may_run(path: str) -> bool:
    """Whether an OM may be one that `gecli run` takes: encrypted files and those of mobile tools are none."""
    try:
        with open(path, "rb") as stream:
            head = stream.read(HEADER_BYTES)
    except OSError:
        return True
    if len(head) < HEADER_BYTES:
        return True
    (version,) = struct.unpack_from("<I", head, 8)
    is_encrypted, kind, platform = head[80], head[82], head[156:176]
    is_mobile = 0 < version < 0x20000000 and (kind in (3, 4) or platform.startswith(b"3."))
    return not is_encrypted and not is_mobile


def _short_name(kind: FileKind) -> str:
    return kind.value if kind in (FileKind.OM2, FileKind.SVP, FileKind.GIT_LFS) else ""


def _is_saved_model(path: str) -> bool:
    return any(os.path.exists(os.path.join(path, name)) for name in ("saved_model.pb", "saved_model.pbtxt"))


def _kind_of(source: ByteSource) -> FileKind:
    if source.size == 0:
        return FileKind.EMPTY
    head = source.read(0, HEAD_BYTES)
    for offset, magic, kind in _MAGICS:
        if head.startswith(magic, offset):
            return kind
    if head.startswith(b"PK\x03\x04"):
        return _kind_of_zip(source, head)
    if re.match(rb"\x80[\x02-\x05][\x00-\x7f\x80-\xff]", head) and not head.startswith(b"\x80\x01"):
        return FileKind.PICKLE
    if re.match(rb".{7}\x00\{", head, re.DOTALL):
        return FileKind.SAFETENSORS
    text = _text_kind(source, head)
    return text if text is not None else _message_kind(source)


def _kind_of_zip(source: ByteSource, head: bytes) -> FileKind:
    """By the names in the local headers and, for large archives, in the directory at the end."""
    names = head + source.read(max(source.size - (1 << 16), 0), 1 << 16)
    if b"manifest.json" in names:
        return FileKind.OM2
    return FileKind.PYTORCH_ZIP if b"data.pkl" in names else FileKind.ZIP


def _text_kind(source: ByteSource, head: bytes) -> FileKind | None:
    """The kind of a text file; None for binary content."""
    begin = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if begin.startswith((b"{", b"[")) and b"\x00" not in head:
        return _json_kind(source) if begin.startswith(b"{") else FileKind.OTHER_JSON
    if re.match(rb"<(!doctype html|html|head|\?xml)", begin, re.IGNORECASE):
        return FileKind.HTML
    if b"\x00" in head or not _mostly_printable(head):
        return None
    text = source.read(0, 1 << 18).decode("utf-8", "replace")
    if _GECLI_GRAPH.match(text):
        return FileKind.GECLI_TEXT
    has_node = re.search(r"^\s*node\s*\{", text, re.MULTILINE) is not None
    has_graph = re.search(r"^\s*graph\s*\{", text, re.MULTILINE) is not None
    if re.search(r"^\s*ir_version:", text, re.MULTILINE) or (has_node and "op_type:" in text):
        return FileKind.ONNX_TEXT
    if has_graph and re.search(r"^\s*op\s*\{", text, re.MULTILINE):
        return FileKind.GE_TEXT
    if has_node and re.search(r"^\s*op:", text, re.MULTILINE):
        return FileKind.TF_TEXT
    if re.search(r"^\s*layers?\s*\{", text, re.MULTILINE) and re.search(r"^\s*(bottom|top|type):", text, re.MULTILINE):
        return FileKind.CAFFE
    return None


def _mostly_printable(head: bytes) -> bool:
    return sum(byte < 32 and byte not in (9, 10, 13) for byte in head) == 0


def _json_kind(source: ByteSource) -> FileKind:
    """By the members' names; the whole file is not parsed here."""
    text = source.read(0, source.size) if source.size <= 1 << 22 else source.read(0, 1 << 20) + _tail(source)
    if _GECLI_SCHEMA.search(text) and b'"gecli_graph"' not in text:
        return FileKind.OM_DOCUMENT if _OM_SCHEMA.search(text) else FileKind.GECLI_DOCUMENT
    if b'"nodes"' in text and (b'"links"' in text or b'"edges"' in text):
        return FileKind.JSON
    if b'"gecli_graph"' in text or b'"nodes"' in text:
        return FileKind.JSON  # the loader says what is missing
    return FileKind.MODE1_JSON if b'"graph"' in text else FileKind.OTHER_JSON


def _tail(source: ByteSource) -> bytes:
    return source.read(source.size - (1 << 20), 1 << 20)


Outline = dict[int, tuple[int, int, int]]  # field number -> wire type, offset and length of its first occurrence


def _message_kind(source: ByteSource) -> FileKind:
    found = outline(source, 0, source.size)
    kinds = {number: wire for number, (wire, _, _) in found.items()}
    if kinds.get(7) == 2 and (kinds.get(1) == 0 or (8 in kinds and kinds.get(1) != 2)):
        return FileKind.ONNX
    if kinds.get(8) == 2 and kinds.get(1) == 0:
        return FileKind.ONNX
    if kinds.get(7) == 2 and (kinds.get(1) == 2 or kinds.get(2) == 0):
        return FileKind.AIR
    if kinds.get(100) == 2 or (kinds.get(1) == 2 and kinds.get(2) == 2 and _is_caffe_layer(source, found[2])):
        return FileKind.CAFFE
    if kinds.get(1) == 2 and _is_tf_node(source, found[1]):
        return FileKind.TF_GRAPH
    if kinds.get(1) == 0 and kinds.get(2) == 2 and set(kinds) <= {1, 2}:
        return FileKind.TF_SAVED_MODEL
    return FileKind.UNKNOWN


def _is_tf_node(source: ByteSource, field: tuple[int, int, int]) -> bool:
    """NodeDef: name (1) and op (2) are text."""
    _, offset, length = field
    inner = outline(source, offset, offset + length)
    if 1 not in inner or 2 not in inner:
        return False
    texts = [source.read(inner[number][1], min(inner[number][2], 64)) for number in (1, 2)]
    return all(inner[number][0] == 2 for number in (1, 2)) and all(_mostly_printable(text) and text for text in texts)


def _is_caffe_layer(source: ByteSource, field: tuple[int, int, int]) -> bool:
    """V1LayerParameter: bottom (2) or top (3) are text and type (5) is a number."""
    _, offset, length = field
    inner = outline(source, offset, offset + length)
    return inner.get(5, (2, 0, 0))[0] == 0 and 3 in inner


def outline(source: ByteSource, begin: int, end: int) -> Outline:
    """The first fields of a message; empty when the bytes are none. Bodies are skipped, not read."""
    found: Outline = {}
    position = begin
    for _ in range(MAX_FIELDS):
        if position >= end:
            break
        window = source.read(position, min(20, end - position))
        tag, at = _varint(window, 0)
        if tag is None or tag >> 3 == 0:
            return found
        wire = tag & 7
        value, after = _varint(window, at) if wire in (0, 2) else (0, at)
        if value is None:
            return found
        if wire == 2:
            found.setdefault(tag >> 3, (wire, position + after, value))
            position += after + value
        elif wire in (0, 1, 5):
            found.setdefault(tag >> 3, (wire, position + at, 0))
            position += after if wire == 0 else at + (8 if wire == 1 else 4)
        else:
            return {}
    return found


def _varint(window: bytes, at: int) -> tuple[int | None, int]:
    value = shift = 0
    while at < len(window) and shift < 64:
        byte = window[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return None, at
