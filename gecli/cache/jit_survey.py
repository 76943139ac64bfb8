"""The JIT layer of a cache directory as management sees it: which versions a slice lists, which chains are broken.

Entries in `{cache_dir}/jit` are entries like all others; `slicing_hierarchy/` says which graph they belong to
(cache.md 9.2).
"""

from __future__ import annotations

import os

from gecli.cache.graph_key import is_graph_key
from gecli.cache.jit_files import HIERARCHY, SLICING, VERSIONS, Facts, hierarchy_dir, jit_dir, read_object, restore
from gecli.cache.stat_index import StatIndex


def user_keys(directory: str) -> list[str]:
    """The graph keys whose slices are kept."""
    try:
        names = sorted(os.listdir(os.path.join(jit_dir(directory), HIERARCHY)))
    except OSError:
        return []
    return [name for name in names if is_graph_key(name) and os.path.isdir(hierarchy_dir(directory, name))]


def listed_versions(directory: str) -> dict[str, str] | None:
    """The graph key of every compiled version that a slice lists; None when a list cannot be read."""
    found: dict[str, str] = {}
    for key in user_keys(directory):
        home = hierarchy_dir(directory, key)
        for name in sorted(name for name in os.listdir(home) if name.isdecimal()):
            try:
                rows = read_object(os.path.join(home, name, VERSIONS)).get("gep_list")
            except FileNotFoundError:
                continue
            except (OSError, ValueError):
                return None
            for row in rows if isinstance(rows, list) else ():
                if isinstance(row, dict) and isinstance(row.get("gep_graph_key"), str):
                    found[row["gep_graph_key"]] = key
    return found


def chain_fault(directory: str, key: str) -> str:
    """What is wrong with the slices of a graph key, every digest checked; empty when they can be believed."""
    try:
        content = read_object(os.path.join(hierarchy_dir(directory, key), SLICING))
    except FileNotFoundError:
        return ""  # GE's, which is only listed
    except (OSError, ValueError) as error:
        return f"{SLICING}: {error}"
    facts = Facts(*(str(content.get(name)) for name in ("graph_fp", "toolchain_fp", "options_fp")))
    found = restore(directory, key, facts, StatIndex(trusting=False))
    return found.evidence or found.reason if found.reason not in ("", "no_entry", "jit_foreign") else ""
