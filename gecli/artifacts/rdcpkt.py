"""The `.rdcpkt` file: a serialized VarMatchInfo without a header (GE: VarDescCache)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gecli.artifacts.publish import publish_bytes
from gecli.errors import InputError

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
    """The record in a file. Raises InputError: E13001 when it cannot be opened, rdcpkt_corrupt when it is none."""
    from gecli.wire.var_manager import decode_var_match

    name = os.fspath(path)
    try:
        size = os.stat(name).st_size
        if size > MAX_BYTES:
            raise InputError("G3007", f"{name} has {size} bytes, too many", kind="rdcpkt_corrupt", file=name)
        with open(name, "rb") as stream:
            data = stream.read()
    except OSError as error:
        raise InputError("E13001", f"cannot open {name}", why=error.strerror or "", file=name) from error
    return decode_var_match(data, path=name)
