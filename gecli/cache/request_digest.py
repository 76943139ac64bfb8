"""The request digest: files, options, tools and session of a compile, known before the model is parsed.

Equal requests have equal results (cache.md 11.3). Needs no numpy, protobuf, networkx or click.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gecli.cache.digest import ARTIFACT_SCHEMA, digest_of, digest_of_json
from gecli.cache.stat_index import StatIndex
from gecli.version import __version__

if TYPE_CHECKING:
    from gecli.options.values import Options

EMPTY_SESSION = "empty"


def request_digest(
    files: Sequence[str], items: Sequence[tuple[str, str]], stats: StatIndex, session: str = EMPTY_SESSION
) -> str:
    """The digest of a request; `files` are the model and then its external data. Raises OSError."""
    rows = [
        ["model" if position == 0 else "data", os.path.basename(path), stats.sha256(path)]
        for position, path in enumerate(files)
    ]
    parts = (digest_of_json(sorted(rows)), digest_of_json([list(item) for item in items]))
    return digest_of("gecli-req-1", *parts, digest_of_json(request_toolchain()), session)


def option_items(options: Options, stats: StatIndex, stem: str, source: str) -> list[tuple[str, str]]:
    """(key, value) of everything beside the files that decides the result, sorted.

    A path counts as its base name and the content of its file. Model name and source name are in the OM.
    """
    paths = dict(options.path_options())
    items = [
        (key, _file_item(paths[key], stats) if key in paths else value) for key, value in options.fingerprint_items()
    ]
    return sorted([*items, ("model_name", stem), ("source_name", os.path.basename(source))])


def known_files(rows_path: str, model: str, stats: StatIndex) -> list[str]:
    """The model and, if it was seen before with this content, the data files that it names. Raises OSError.

    A model that nobody has seen counts as having none: a request with data files has another digest.
    """
    rows = stats.load(rows_path)
    if not rows or rows[0].path != os.path.realpath(model) or rows[0].sha256 != stats.sha256(model):
        return [model]
    return [model, *(row.path for row in rows[1:])]


def request_toolchain() -> dict[str, str]:
    """The tools whose change makes a cached result doubtful."""
    return {
        "gecli": __version__,
        "artifact_schema": str(ARTIFACT_SCHEMA),
        "numpy": numpy_version(),
        "byte_order": sys.byteorder,
    }


def numpy_version() -> str:
    """Major and minor version of the numpy that would be imported, without importing it."""
    numpy = sys.modules.get("numpy")
    text = numpy.__version__ if numpy is not None else _version_in(numpy_version_file())
    return ".".join(text.split(".")[:2])


def numpy_version_file() -> str:
    """The file that says which numpy would be imported; empty when there is none."""
    for folder in sys.path:
        path = os.path.join(folder or ".", "numpy", "version.py")
        if os.path.isfile(path):
            return path
    return ""


def _version_in(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as stream:
            for line in stream:
                name, equals, value = line.partition("=")
                if equals and name.strip() == "version":
                    return value.strip().strip("\"'")
    except OSError:
        return ""
    return ""


def _file_item(path: str, stats: StatIndex) -> str:
    name = os.path.basename(path.rstrip("/"))
    return f"{name} sha256:{stats.sha256(path)}" if os.path.isfile(path) else name
