"""What a whole command line led to, so that repeating it costs some `stat` calls (design.md 4, 16).

A memo holds everything that decided the result: words, environment, and how every file looked that was read, the
cache entry's included. One difference, and the memo is not used. It is a row of the stat index with more columns, and
like it never the truth. Loads nothing but `os`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from gecli.cache.stat_index import Numbers, numbers_of, short_name, write_hint
from gecli.version import __version__
from gecli.wire.regular_file import read_regular

MAGIC = "gecli-memo-2"
END = "end"
ABSENT = "-"
TIME_MARK = "\x01"  # stands in the texts where the time goes
ENVIRONMENT = ("SOURCE_DATE_EPOCH", "XDG_CONFIG_HOME", "HOME", "GE_USE_STATIC_MEMORY")


class Placement:
    """One output: a file of the entry, where it goes, and how the target looked when it was last right."""

    __slots__ = ("numbers", "source", "target")

    def __init__(self, source: str, target: str, numbers: Numbers | None) -> None:
        self.source = source
        self.target = target
        self.numbers = numbers


class Memo:
    """The content of a memo file. `files` maps a path to its numbers, None for one that must not exist."""

    __slots__ = ("conditions", "event", "files", "placements", "sidecar", "stale", "texts")

    def __init__(
        self,
        conditions: list[str],
        files: dict[str, Numbers | None],
        placements: list[Placement],
        sidecar: str,
        stale: str,
        texts: dict[str, str],
        event: str = "",
    ) -> None:
        self.conditions = conditions
        self.files = files
        self.placements = placements
        self.sidecar = sidecar  # its time is the use time of the entry
        self.stale = stale  # an output of an earlier compile that must go, or ""
        self.texts = texts  # what to print: plain, human, document; the last is empty without --json
        self.event = event  # how the hit is counted

    def holds(self, conditions: Sequence[str]) -> bool:
        """Whether everything is as it was."""
        return self.conditions == list(conditions) and all(
            numbers_of(path) == numbers and (numbers is not None or not os.path.lexists(path))
            for path, numbers in self.files.items()
        )

    def text(self) -> str:
        words = [MAGIC, str(len(self.conditions)), *self.conditions, str(len(self.files))]
        for path, numbers in self.files.items():
            words += [path, _numbers_text(numbers)]
        words.append(str(len(self.placements)))
        for each in self.placements:
            words += [each.source, each.target, _numbers_text(each.numbers)]
        texts = [self.texts[name] for name in ("plain", "human", "document")]
        return "\0".join([*words, self.sidecar, self.stale, self.event, *texts, END])


def conditions_of(argv: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """What a command depends on beside files: words, directory, program, environment."""
    relevant = [
        f"{name}={environ[name]}" for name in sorted(environ) if name.startswith("GECLI_") or name in ENVIRONMENT
    ]
    try:
        directory = os.getcwd()
    except FileNotFoundError:  # somebody has removed it
        directory = ""
    program = [__version__, sys.version, os.path.dirname(os.path.dirname(__file__)), directory]
    return [*program, *relevant, "--", *argv]


def memo_path(directory: str, conditions: Sequence[str]) -> str:
    return os.path.join(directory, ".gecli", "stat", f"c-{short_name(chr(1).join(conditions))}")


def read_memo(path: str) -> Memo | None:
    """The memo in a file; None when it is missing, torn or of another form."""
    try:
        words = read_regular(path).decode("utf-8", "surrogateescape").split("\0")
        return _parsed(words)
    except (OSError, ValueError, IndexError):
        return None


def write_memo(path: str, memo: Memo) -> None:
    """Replace a memo file; a failure is no loss. Nothing that holds a NUL can be remembered."""
    text = memo.text()
    words = text.split("\0")
    expected = 11 + len(memo.conditions) + 2 * len(memo.files) + 3 * len(memo.placements)
    if len(words) == expected:
        write_hint(path, text)


def _parsed(words: list[str]) -> Memo | None:
    if words[0] != MAGIC or words[-1] != END:
        return None
    at = 2 + int(words[1])
    conditions = words[2:at]
    count, at = int(words[at]), at + 1
    files = {words[at + 2 * each]: _numbers(words[at + 2 * each + 1]) for each in range(count)}
    at += 2 * count
    count, at = int(words[at]), at + 1
    rows = [words[each : each + 3] for each in range(at, at + 3 * count, 3)]
    placements = [Placement(source, target, _numbers(numbers)) for source, target, numbers in rows]
    at += 3 * count
    sidecar, stale, event, plain, human, document, _ = words[at:]
    texts = {"plain": plain, "human": human, "document": document}
    return Memo(conditions, files, placements, sidecar, stale, texts, event)


def _numbers_text(numbers: Numbers | None) -> str:
    return ABSENT if numbers is None else " ".join(map(str, numbers))


def _numbers(text: str) -> Numbers | None:
    if text == ABSENT:
        return None
    device, inode, size, mtime, ctime = (int(word) for word in text.split(" "))
    return (device, inode, size, mtime, ctime)
