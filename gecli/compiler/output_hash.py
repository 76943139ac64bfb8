"""sha256 of what a compile wrote: for --print-hash and the reports."""

from __future__ import annotations

import hashlib
import os
from typing import IO, TYPE_CHECKING

from gecli.artifacts.publish import content_path
from gecli.compiler.job import STDIO

if TYPE_CHECKING:
    from gecli.compiler.result import CompileReport


def add_hashes(report: CompileReport) -> None:
    """Fill in the digests that are not known yet, by reading the files."""
    for result in report.models:
        for file in (result.output, result.rdcpkt):
            if file is None or file.sha256 or file.path == STDIO:
                continue
            path = content_path(file.path)
            if os.path.isfile(path):
                with open(path, "rb") as stream:
                    file.sha256 = hashlib.file_digest(stream, "sha256").hexdigest()


class HashingStream:
    """A stream that only writes, and hashes what it writes."""

    def __init__(self, target: IO[bytes]) -> None:
        self._target = target
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        return self._target.write(data)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()
