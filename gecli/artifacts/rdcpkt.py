"""The `.rdcpkt` file: a serialized VarMatchInfo without a header (GE: VarDescCache)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gecli.artifacts.file_access import opened_source
from gecli.artifacts.publish import publish_bytes

if TYPE_CHECKING:
    from gecli.variables.var_match import VarMatch

SUFFIX = ".rdcpkt"
MAX_BYTES = 1 << 30


def write_rdcpkt(path: str | os.PathLike[str], record: VarMatch) -> int:
    """Publish the record; returns its size in bytes."""
    from gecli.wire.var_manager import encode_var_match

    data = encode_var_match(record)
    publish_bytes(path, data)
    return len(data)


def read_rdcpkt(path: str | os.PathLike[str]) -> VarMatch:
    """The record in a file. Raises InputError: E13001 when it cannot be opened, G3007 when it is none."""
    from gecli.wire.var_manager import read_var_match

    name = os.fspath(path)
    with opened_source(name, MAX_BYTES) as source:
        return read_var_match(source, path=name)
