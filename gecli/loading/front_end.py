"""Choosing the front end for a file: by its content, or as the user says when the content agrees."""

from __future__ import annotations

import sys

from gecli.errors import InputError
from gecli.loading.input_shapes import InputShapes
from gecli.loading.loaded_model import LoadedModel, LoadOptions
from gecli.loading.sniff import LOADABLE, FileKind, refusal, sniff, sniff_bytes

STDIN = "-"
_KIND_OF: dict[str, tuple[FileKind, ...]] = {
    "onnx": (FileKind.ONNX, FileKind.ONNX_TEXT),
    "json": (FileKind.JSON, FileKind.OM_DOCUMENT),
    "tf": (FileKind.TF_GRAPH, FileKind.TF_TEXT, FileKind.TF_SAVED_MODEL),
    "air": (FileKind.AIR,),
    "geproto": (FileKind.GE_TEXT, FileKind.AIR),
}


def load_file(
    path: str, front_end: str, shapes: InputShapes | None, base_dir: str | None, options: LoadOptions
) -> LoadedModel:
    """Load a model file, or standard input for `-`. Raises GecliError."""
    data = sys.stdin.buffer.read() if path == STDIN else None
    kind = sniff(path) if data is None else sniff_bytes(data)
    shown = "standard input" if data is not None else path
    wanted = _KIND_OF.get(front_end)
    if front_end != "auto" and wanted is None:
        known = ", ".join(_KIND_OF)
        raise InputError("E10001", f"{front_end!r} is not a front end", where="--from", do=f"one of auto, {known}")
    if wanted is not None and kind not in wanted and kind not in (FileKind.UNKNOWN, FileKind.EMPTY):
        found = refusal(kind, shown).first if kind not in LOADABLE else None
        raise InputError(
            "E10041",
            f"--from {front_end} contradicts the file",
            where=shown,
            why=found.message if found else f"the content is {_name_of(kind)}",
            do=found.do if found else f"--from {_name_of(kind)}, or leave the option out",
            file=path,
            expected=front_end,
            actual=_name_of(kind),
        )
    if kind is FileKind.ONNX:
        from gecli.loading.onnx_loader import load_onnx

        return load_onnx(shown if data is not None else path, shapes, options, base_dir=base_dir, data=data)
    if kind is FileKind.JSON:
        from gecli.loading.json_loader import load_json

        return load_json(shown if data is not None else path, shapes, options, base_dir=base_dir, data=data)
    if kind is FileKind.OM_DOCUMENT:
        from gecli.loading.om_document import load_om_document

        return load_om_document(shown if data is not None else path, options, base_dir=base_dir, data=data)
    if kind is FileKind.EMPTY and data is not None:
        raise InputError(
            "G1002", "standard input is empty", where=shown, why="it ended before its first byte",
            do="see why the command before the pipe wrote nothing, or give a file",
        )  # fmt: skip
    raise refusal(kind, shown)


def _name_of(kind: FileKind) -> str:
    """The front end that reads files of a kind."""
    return "json" if kind is FileKind.OM_DOCUMENT else kind.value
