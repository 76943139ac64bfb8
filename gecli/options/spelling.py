"""Which known name a user may have meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def closest(word: str, known: Iterable[str], limit: int = 3, count: int = 3) -> list[str]:
    """The known names within `limit` edits of `word` (fewer for short words), nearest first, at most `count`."""
    limit = min(limit, len(word) // 2)
    found = []
    for name in dict.fromkeys(known):
        distance = edit_distance(word, name, limit)
        if distance <= limit:
            found.append((distance, name))
    return [name for _, name in sorted(found)[:count]]


def similar(word: str, known: Sequence[str], count: int = 3, cutoff: float = 0.6) -> list[str]:
    """As `difflib.get_close_matches`, whose module is loaded when a name is wrong only."""
    from difflib import get_close_matches

    return get_close_matches(word, known, count, cutoff)


def edit_distance(a: str, b: str, limit: int) -> int:
    """Insertions, deletions, replacements and swaps of neighbours that turn a into b; `limit` + 1 if more."""
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        following = [i]
        for j, right in enumerate(b, 1):
            cost = min(row[j] + 1, following[j - 1] + 1, row[j - 1] + (left != right))
            if i > 1 and j > 1 and left == b[j - 2] and a[i - 2] == right:
                cost = min(cost, before[j - 2] + 1)
            following.append(cost)
        if min(following) > limit:
            return limit + 1
        before, row = row, following
    return row[-1]
