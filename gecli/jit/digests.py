"""The digests that an entry of a compiled version must have."""

from __future__ import annotations

from typing import Any

from gecli.cache.digest import canonical_text, digest_of
from gecli.cache.jit_files import Facts


def version_digests(facts: Facts, slice_digest: str, guard: Any) -> dict[str, str]:
    """Those of a version of this slice; `guard` is its document."""
    found = {
        "graph": digest_of("gecli-gep-1", slice_digest, canonical_text(guard)),
        "weights": slice_digest,
        "options": facts.options,
        "toolchain": facts.toolchain,
    }
    return {**found, "combined": digest_of("gecli-fp-1", *found.values())}
