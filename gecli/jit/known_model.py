"""What is known of a source model: its interface and its digests. Of an equal request it need not be parsed again.

The note of a request lies with the private hints of the cache (`.gecli/stat`). It holds a digest of itself; one that is
damaged, of another form or gone costs a look at the model. Loads no passes and no networkx.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, NamedTuple

from gecli.artifacts.shared_files import make_folder
from gecli.cache.digest import digest_of, digest_of_json
from gecli.cache.jit_files import Facts, ge_text, read_object
from gecli.cache.layout import stat_dir
from gecli.cache.model_cache import CacheDir, model_rows_path
from gecli.cache.stat_index import StatIndex, read_rows, short_name, write_hint, write_rows
from gecli.cache.store import file_mode
from gecli.compiler.direct_hit import Request
from gecli.errors import Diagnostic
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import TensorDesc
from gecli.runtime.interface import Tensor

SCHEMA = 1


class KnownModel(NamedTuple):
    """`refusal` says why it is not cut, `combined` is the digest from which a missing graph key is derived."""

    facts: Facts
    combined: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    refusal: str
    warnings: tuple[Diagnostic, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "facts": list(self.facts),
            "combined": self.combined,
            "inputs": [_row(tensor) for tensor in self.inputs],
            "outputs": [_row(tensor) for tensor in self.outputs],
            "refusal": self.refusal,
            "warnings": [asdict(each) for each in self.warnings],
        }


def recall(cache: CacheDir, request: Request) -> KnownModel | None:
    """What an earlier process knew of this request; None when there is no note of it that can be believed."""
    try:
        content = read_object(_note_path(cache.path, request))
        digest = content.pop("self_fp", None)
        if digest != digest_of_json(content) or content["schema"] != SCHEMA:
            return None
        graph, toolchain, options = map(str, content["facts"])
        return KnownModel(
            Facts(graph, toolchain, options),
            str(content["combined"]),
            tuple(map(_tensor, content["inputs"])),
            tuple(map(_tensor, content["outputs"])),
            str(content["refusal"]),
            tuple(Diagnostic(**each) for each in content["warnings"]),
        )
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        return None


def remember(cache: CacheDir, source: str, request: Request, known: KnownModel, stats: StatIndex) -> None:
    """Leave a note of this request for the next process, and of the files that were read for it."""
    tensors = (*known.inputs, *known.outputs)
    if not cache.may_write or any(_tensor(_row(tensor)).desc != tensor.desc for tensor in tensors):
        return
    _make_hints_dir(cache)
    content = known.as_json()
    write_hint(_note_path(cache.path, request), ge_text({**content, "self_fp": digest_of_json(content)}))
    write_rows(model_rows_path(cache.path, source), stats.rows_of(request.files))


def load_file_rows(cache: CacheDir, home: str, stats: StatIndex) -> None:
    """Take over what is known of the files of a user graph, whose directory is `home`."""
    stats.load(_rows_path(cache.path, home))


def save_file_rows(cache: CacheDir, home: str, stats: StatIndex, paths: Sequence[str]) -> None:
    """Keep what is known of these files, so that the next process need not read them; of others what was known."""
    if not cache.may_write or not stats.knows_more(paths):
        return
    _make_hints_dir(cache)
    target = _rows_path(cache.path, home)
    others = [row.path for row in read_rows(target) if os.path.lexists(row.path)]
    write_rows(target, stats.rows_of(dict.fromkeys([*map(os.path.realpath, paths), *others])))


def _make_hints_dir(cache: CacheDir) -> None:
    with suppress(OSError):
        make_folder(stat_dir(cache.path), file_mode(cache.conf.shared))


def _note_path(directory: str, request: Request) -> str:
    name = digest_of("gecli-jit-req-1", request.digest).removeprefix("sha256:")
    return os.path.join(stat_dir(directory), f"j-{name}")


def _rows_path(directory: str, home: str) -> str:
    return os.path.join(stat_dir(directory), f"g-{short_name(os.path.realpath(home))}")


def _row(tensor: Tensor) -> dict[str, Any]:
    desc = tensor.desc
    ranges = None if desc.shape_range is None else [list(each) for each in desc.shape_range]
    return {
        "name": tensor.name,
        "node": tensor.port.node.name,
        "type": tensor.port.node.type,
        "output": tensor.port.index,
        "dtype": desc.dtype.serial,
        "format": int(desc.format),
        "shape": list(desc.shape),
        "shape_range": ranges,
    }


def _tensor(row: Mapping[str, Any]) -> Tensor:
    """Raises KeyError, TypeError and ValueError for a row of another form."""
    ranges = row["shape_range"]
    desc = TensorDesc(
        DataType.parse(row["dtype"]),
        tuple(int(dim) for dim in row["shape"]),
        Format(int(row["format"])),
        shape_range=None if ranges is None else tuple((int(low), int(high)) for low, high in ranges),
    )
    index = int(row["output"])
    node = OpDesc(str(row["node"]), str(row["type"]), output_descs=[desc] * (index + 1))
    return Tensor(str(row["name"]), Port(node, index), desc)
