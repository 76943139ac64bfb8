"""An entry gets the sidecar back that it lost, when its OM proves what it was made from (cache.md 11.1)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gecli.artifacts.rdcpkt import read_rdcpkt
from gecli.cache.layout import OM, RDCPKT, SIDECAR, entry_path
from gecli.cache.model_cache import CacheDir
from gecli.cache.sidecar import Sidecar
from gecli.cache.stat_index import StatIndex
from gecli.cache.store import replace_file
from gecli.compiler.entry_sidecar import sidecar_content
from gecli.compiler.readdressing import member_told_by
from gecli.errors import GecliError
from gecli.variables.var_match import VarDescCache, VarMatch

if TYPE_CHECKING:
    from gecli.compiler.cached_compile import Work


def readopt(cache: CacheDir, work: Work, stats: StatIndex, mode: int) -> Sidecar | None:
    """Write the sidecar of a model's entry anew; None when that is not possible. Call it with the key's lock held.

    How long the compile took is lost.
    """
    entry, result = work.entry, work.result
    assert entry is not None and result is not None
    path = entry_path(cache.path, entry.stem, SIDECAR)
    if os.path.lexists(path):
        return None  # of a later gecli, or somebody was faster
    if entry.rdcpkt_name not in ("", entry.stem + RDCPKT):
        return None  # an index that is made anew from the files would not find it
    kinds = {"om": OM, "rdcpkt": RDCPKT} if entry.has_rdcpkt else {"om": OM}
    try:
        files = {}
        for kind, suffix in kinds.items():
            file = entry_path(cache.path, entry.stem, suffix)
            files[kind] = {"size": os.path.getsize(file), "sha256": stats.sha256(file)}
        record = VarMatch(VarDescCache(), VarDescCache())
        if entry.has_rdcpkt:
            record = read_rdcpkt(entry_path(cache.path, entry.stem, RDCPKT))
        memory = member_told_by(entry_path(cache.path, entry.stem, OM))
        sidecar = Sidecar(sidecar_content(work, result, record, entry.stem, files, 0.0, memory))
        replace_file(path, sidecar.text().encode("utf-8", "surrogateescape"), mode)
    except (OSError, GecliError):
        return None  # the next hit tries again
    return sidecar
