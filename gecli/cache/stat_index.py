"""The stat index: digests of files that have not changed since they were read (cache.md 4.2).

A hint, never the truth: what is missing, torn or doubtful is read again. Loads nothing but `os`.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable

from gecli.wire.regular_file import open_regular, read_regular

RACY_NS = 2_000_000_000  # a change in the same tick as the reading would not show in the time stamps
MAGIC = "gecli-stat-1"
END = "end"
FIELDS = 9
PARTS = "parts:"  # before the digest of a row that tells of places in a file, not of all of it
READ_BYTES = 1 << 20

Numbers = tuple[int, int, int, int, int]


class StatRow:
    """What a file looked like when its content was known. `is_witness`: gecli set its mtime itself."""

    __slots__ = ("is_witness", "made_ns", "numbers", "path", "sha256")

    def __init__(self, path: str, numbers: Numbers, sha256: str, made_ns: int, is_witness: bool = False) -> None:
        self.path = path
        self.numbers = numbers
        self.sha256 = sha256
        self.made_ns = made_ns
        self.is_witness = is_witness

    @property
    def is_racy(self) -> bool:
        """Whether the file may have changed after the row was made without showing it.

        A witness has an mtime in whole nanoseconds that gecli chose; no clock tick gives a later write the same one.
        """
        return not self.is_witness and self.made_ns - max(self.numbers[3:]) < RACY_NS

    def fits(self, numbers: Numbers | None) -> bool:
        """Whether a file that looks like `numbers` has this row's content."""
        return numbers == self.numbers and not self.is_racy

    def fields(self) -> list[str]:
        return [
            self.path,
            *map(str, self.numbers),
            self.sha256,
            str(self.made_ns),
            "w" if self.is_witness else "",
        ]

    @staticmethod
    def of(fields: list[str]) -> StatRow:
        """Raises ValueError for fields that are no row."""
        device, inode, size, mtime, ctime = (int(text) for text in fields[1:6])
        return StatRow(fields[0], (device, inode, size, mtime, ctime), fields[6], int(fields[7]), fields[8] == "w")


def numbers_of(path: str) -> Numbers | None:
    """Device, inode, size, mtime and ctime of a regular file; None when there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    if found.st_mode & 0o170000 != 0o100000:
        return None
    return _numbers(found)


def numbers_of_open(descriptor: int) -> Numbers:
    """The same of an open file, wherever its name leads now."""
    return _numbers(os.fstat(descriptor))


def _numbers(found: os.stat_result) -> Numbers:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def touch_as_witness(path: str) -> Numbers | None:
    """Set the mtime to now; the file's numbers if the file system kept every nanosecond of it, else None.

    Raises OSError when the time cannot be set.
    """
    now = time.time_ns()
    now += 1 if now % 1000 == 0 else 0  # a tick of the kernel clock could fall on whole microseconds
    os.utime(path, ns=(now, now))
    numbers = numbers_of(path)
    return numbers if numbers is not None and numbers[3] == now else None


def row_now(path: str, sha256: str) -> StatRow | None:
    """A row for a file whose content is known to be `sha256`, from its present time stamps."""
    numbers = numbers_of(path)
    return None if numbers is None else StatRow(path, numbers, sha256, time.time_ns())


class StatIndex:
    """Digests by real path. With `trusting` off every file is read, and only new rows are made."""

    def __init__(self, *, trusting: bool = True) -> None:
        self.trusting = trusting
        self._rows: dict[str, StatRow] = {}
        self._parts: dict[str, StatRow] = {}
        self._new: set[str] = set()  # paths whose rows are in no file of the index yet
        self._hash_file: Callable[[str], str] = _sha256_of_file

    def load(self, path: str) -> list[StatRow]:
        """Add the rows of one file of the index; an unusable file adds none."""
        rows = read_rows(path)
        for row in rows:
            self._put(row)
        return rows

    def _put(self, row: StatRow) -> None:
        (self._parts if row.sha256.startswith(PARTS) else self._rows)[row.path] = row

    def add(self, row: StatRow | None) -> None:
        if row is not None:
            self._put(row)
            self._new.add(row.path)

    def row(self, path: str) -> StatRow | None:
        """The row of a file that has not changed."""
        row = self._rows.get(os.path.realpath(path))
        return row if row is not None and row.fits(numbers_of(row.path)) else None

    def sha256(self, path: str) -> str:
        """64 hex digits of the file's content, from the index where possible. Raises OSError."""
        real = os.path.realpath(path)
        before = numbers_of(real)
        known = self._rows.get(real)
        if self.trusting and known is not None and known.fits(before):
            return known.sha256
        made = time.time_ns()
        digest = self._hash_file(real)
        if before is not None and numbers_of(real) == before:
            self.add(StatRow(real, before, digest, made))
        return digest

    def knows_parts(self, path: str, places: str) -> bool:
        """Whether the parts of a file that `places` stands for were found whole, and it has not changed since."""
        row = self._parts.get(os.path.realpath(path))
        if not self.trusting or row is None or row.sha256 != f"{PARTS}{places}":
            return False
        return row.fits(numbers_of(row.path))

    def add_parts(self, path: str, places: str, before: Numbers | None, made_ns: int) -> None:
        """Keep that these parts are whole; `before` is what the file looked like when they were read."""
        real = os.path.realpath(path)
        if before is not None and numbers_of(real) == before:
            self.add(StatRow(real, before, f"{PARTS}{places}", made_ns))

    def is_content(self, descriptor: int, path: str, sha256: str) -> bool:
        """Whether the open file, which was `path` a moment ago, has this content. It is read if it looks different."""
        row = self._rows.get(os.path.realpath(path))
        if row is not None and row.sha256 == sha256 and row.numbers == numbers_of_open(descriptor):
            return True
        return _sha256_of_open(descriptor) == sha256

    def knows_more(self, paths: Iterable[str]) -> bool:
        """Whether any of these paths has a row that did not come from a file of the index."""
        return not self._new.isdisjoint(map(os.path.realpath, paths))

    def rows_of(self, paths: Iterable[str]) -> list[StatRow]:
        found = [rows.get(os.path.realpath(path)) for path in paths for rows in (self._rows, self._parts)]
        return [row for row in found if row is not None]


def read_rows(path: str) -> list[StatRow]:
    """The rows in a file of the index; none when it is missing, torn or of another form."""
    try:
        words = read_regular(path).decode("utf-8", "surrogateescape").split("\0")
        if words[0] != MAGIC or words[-1] != END or (len(words) - 2) % FIELDS:
            return []
        return [StatRow.of(words[at : at + FIELDS]) for at in range(1, len(words) - 1, FIELDS)]
    except (OSError, ValueError):
        return []


def write_rows(path: str, rows: Iterable[StatRow]) -> None:
    """Replace a file of the index; a failure is no loss."""
    words = [MAGIC, *(field for row in rows for field in row.fields()), END]
    write_hint(path, "\0".join(words))


def write_hint(path: str, text: str) -> None:
    """Replace a small private file of the cache at once, without syncing; failures are ignored: it is a hint."""
    from gecli.artifacts.shared_files import give_to_group, mode_in

    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.tmp.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with open(temporary, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
            give_to_group(stream.fileno(), mode_in(folder))
            stream.write(text)
        os.replace(temporary, path)
    except OSError:
        _remove(temporary)
    except BaseException:  # a signal
        _remove(temporary)
        raise


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def short_name(text: str) -> str:
    """A file name for any text. Two texts may share one: the files hold the text itself."""
    from binascii import crc32

    data = text.encode("utf-8", "surrogateescape")
    return f"{crc32(data):08x}{crc32(data[::-1], len(data)):08x}"


def _sha256_of_file(path: str) -> str:
    try:
        return _sha256_of_path(path)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
    return _sha256_of_path(path)  # replaced by another machine at this moment


def _sha256_of_path(path: str) -> str:
    descriptor = open_regular(path)
    try:
        return _sha256_of_open(descriptor)
    finally:
        os.close(descriptor)


def _sha256_of_open(descriptor: int) -> str:
    """The digest of the whole file; its position stays."""
    import hashlib

    digest = hashlib.sha256()
    at = 0
    while block := os.pread(descriptor, READ_BYTES, at):
        digest.update(block)
        at += len(block)
    return digest.hexdigest()
