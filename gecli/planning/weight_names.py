"""Names of external weight files and where weights lie in a combined one (GE: FileConstantUtils; cache.md 8.3, 8.4)."""

from __future__ import annotations

import re
from collections.abc import Iterable

SPLIT, COMBINED = 1, 2  # ge.externalWeight: a file each, one file for a model
SPLIT_PREFIX = "weight_"
COMBINED_SUFFIX = "_weight_combined"
BLOCK_BYTES = 512  # weights in a combined file begin at multiples of it, and the file ends at one
META_NAME = "meta.json"
_SPELLED = re.compile(r"[0-9a-f]{32,64}", re.ASCII)


def spelled(sha256: str) -> str:
    """A digest of 64 hex digits as GE writes it: every byte without zero padding, so 32 to 64 characters.

    Distinct digests may share a spelling, so it is never read back into a digest.
    """
    return "".join([f"{byte:x}" for byte in bytes.fromhex(sha256)])


def split_name(sha256: str) -> str:
    """The file of one weight in mode 1."""
    return SPLIT_PREFIX + spelled(sha256)


def combined_name(stem: str) -> str:
    """The file of all weights of a model in mode 2."""
    return f"{stem}{COMBINED_SUFFIX}"


def named_digest(name: str) -> str:
    """What a file `weight_<h>` or a node `<old>_<h>` says about its content, in either spelling; "" for others."""
    tail = name.rpartition("_")[2]
    return tail if _SPELLED.fullmatch(tail) else ""


def is_spelling_of(text: str, sha256: str) -> bool:
    """Whether `text` is a digest, in GE's spelling or with all its 64 digits."""
    return text in (sha256, spelled(sha256))


def is_split_name(name: str) -> bool:
    return name.startswith(SPLIT_PREFIX) and _SPELLED.fullmatch(name[len(SPLIT_PREFIX) :]) is not None


def is_weight_file(name: str) -> bool:
    """Whether a file of a weight directory is one of weights."""
    return is_split_name(name) or (name.endswith(COMBINED_SUFFIX) and not name.startswith("."))


def aligned(size_bytes: int) -> int:
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


def combined_offsets(sizes: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The offset of each distinct weight in a new combined file; `sizes` are (sha256, bytes) in order.

    Weights of 100, 512 and 513 bytes lie at 0, 512 and 1024, and the file has 2048.
    """
    offsets: dict[str, int] = {}
    end = 0
    for sha256, size in sizes:
        if sha256 not in offsets:
            offsets[sha256] = end
            end = aligned(end + size)
    return offsets
