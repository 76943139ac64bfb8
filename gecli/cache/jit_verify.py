"""Checking the slices of the JIT layer, and bringing them in order (cache.md 9.9, 12.2).

Each slice must follow the one before, its graphs must have their digests, and what its list names must be there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from gecli.cache.jit_edit import write_lists
from gecli.cache.jit_survey import BROKEN, Slicing, slicing, user_keys
from gecli.cache.quarantine import set_aside_tree


def slicings_of(directory: str, wanted: Callable[[str], bool], *, full: bool) -> Iterator[Slicing]:
    """The slices of the graphs that are asked for; what looks wrong is looked at again, as others work there too."""
    for key in user_keys(directory):
        if wanted(key):
            found = slicing(directory, key, full=full)
            yield slicing(directory, key, full=full) if found.fault else found


def repair_slicing(directory: str, key: str, say: Callable[[str], None], mode: int, *, full: bool) -> None:
    """Set aside what cannot be believed and write the lists anew. Needs the lock of the graph. Raises OSError."""
    found = slicing(directory, key, full=full)
    if BROKEN not in found.problems:
        return
    if not found.usable:
        set_aside_tree(directory, found.home, f"jit-{key}", mode)
        say(f"the slices of key {key} were set aside ({BROKEN})")
        return
    count = len(found.usable)
    gone = sorted(number for number in found.sizes if number >= count)
    for number in gone:
        set_aside_tree(directory, os.path.join(found.home, str(number)), f"jit-{key}-{number}", mode)
    write_lists(directory, found, found.usable, mode)
    if gone:
        say(f"the slices of key {key} from slice {gone[0]} on were set aside ({BROKEN})")
    else:
        say(f"the lists of the slices of key {key} were written anew ({BROKEN})")
