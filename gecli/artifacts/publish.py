"""Files that appear whole or not at all: a temporary sibling, fsync, and a rename over the target."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # not from typing: a cache hit would pay 7 ms for it
if TYPE_CHECKING:
    from collections.abc import Callable
    from io import FileIO
    from typing import BinaryIO

    from gecli.errors import OutputError

FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file
COPY_BYTES = 1 << 20
NAME_MAX_BYTES = 255
MAX_PID_DIGITS = 10
RANDOM_BYTES = 4
HEX_DIGITS = "0123456789abcdef"
ATTEMPTS = 20
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_temporaries: set[str] = set()
# Whole files of `published_together`: temporary, target, the name to show, directories made, and a descriptor that
# keeps the file's lock, so that no other process takes it for one that was left behind.
_waiting: list[tuple[str, str, str, list[str], int]] | None = None


def remove_temporaries() -> None:
    """Remove every temporary file of this process that is not in place yet: for signal handlers and at exit."""
    for path in sorted(_temporaries):
        with suppress(OSError):
            os.unlink(path)
    _temporaries.clear()


def remove_when_stopped(path: str) -> None:
    """Have `remove_temporaries` remove this file too. Say so before it is made, and `forget` it when it is gone."""
    _temporaries.add(path)


def forget(path: str) -> None:
    _temporaries.discard(path)


@contextmanager
def published_together() -> Iterator[None]:
    """Files that are published in this block appear when it ends without an error, or none of them does.

    Only a rename that fails, after all files are written and on the disk, can leave the first ones in place.
    """
    global _waiting
    files: list[tuple[str, str, str, list[str], int]] = []
    _waiting = files
    try:
        yield
        _waiting = None
        for temporary, target, shown, _, _ in files:
            with _reported(shown, (target, temporary)):
                os.replace(temporary, target)
            _temporaries.discard(temporary)
    except BaseException:
        for temporary, _, _, made, _ in reversed(files):
            _withdraw(temporary, made)
        raise
    finally:
        _waiting = None
        for *_, descriptor in files:
            os.close(descriptor)


def _withdraw(temporary: str, made: list[str]) -> None:
    """Remove a temporary file, and the directories that were made for it unless somebody put something there."""
    with suppress(OSError):
        os.unlink(temporary)
    _temporaries.discard(temporary)
    with suppress(OSError):
        for folder in made:
            os.rmdir(folder)


@contextmanager
def publishing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A seekable stream whose content becomes the file `path` when the block ends without an error.

    Missing parent directories are made; a symbolic link is followed; a device or pipe is written directly. Raises
    OutputError (G6001, G6002 for a full disk); what stood at `path` then stays. Errors of other files pass unchanged.
    """
    target = os.path.realpath(os.fspath(path))
    shown = os.fspath(path)
    if is_special(shown):  # not the target: a pipe in /dev/fd has a name of its own there only
        with _reported(shown), os.fdopen(_open_special(shown), "wb") as stream:
            yield stream
        return
    with _reported(shown):
        made = _make_folders(os.path.dirname(target))
    _remove_left_behind(target)
    temporary = ""
    try:
        with _reported(shown):
            if os.path.isdir(target):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
            temporary, handle = _new_temporary(target)
        with _reported(shown, (target, temporary)):
            with os.fdopen(handle, "w+b") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                if _waiting is not None:
                    _waiting.append((temporary, target, shown, made, os.dup(stream.fileno())))
                    return
            os.replace(temporary, target)
    except BaseException:
        _withdraw(temporary, made)
        raise
    _temporaries.discard(temporary)


def publish_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Make `data` the content of the file `path`, as `publishing` does."""
    with publishing(path) as stream:
        stream.write(data)


def place_copy(
    source: str | os.PathLike[str], target: str | os.PathLike[str], accept: Callable[[int], bool] | None = None
) -> None:
    """Make `target` a copy of `source`: a reflink, else a copy inside the kernel, else a plain copy.

    Never a hard or symbolic link: outputs belong to the user, who may edit them. The copy's time is now. Raises
    OutputError as `publishing` does, and OSError when `source` cannot be read or `accept` refuses the open file.
    """
    with open_accepted(source, accept) as origin, publishing(target) as stream:
        copy_content(origin.fileno(), stream.fileno())


def open_accepted(source: str | os.PathLike[str], accept: Callable[[int], bool] | None) -> FileIO:
    """The open file, once `accept` has looked at its descriptor: a path may lead elsewhere a moment later.

    Raises OSError, ESTALE for a file that is refused.
    """
    origin = open(source, "rb", buffering=0)  # noqa: SIM115  # the caller closes it
    if accept is not None and not accept(origin.fileno()):
        origin.close()
        raise OSError(errno.ESTALE, "the file was replaced by another one", os.fspath(source))
    return origin


def copy_content(source: int, target: int) -> None:
    """Copy a whole file between two descriptors by the cheapest means there is."""
    if _reflink(source, target):
        return
    left = os.fstat(source).st_size
    offset = _kernel_copy(source, target, left)
    if offset:  # a pipe cannot be positioned
        os.lseek(target, offset, os.SEEK_SET)
    while block := os.pread(source, COPY_BYTES, offset):
        _write_all(target, block)
        offset += len(block)


def remove_file(path: str | os.PathLike[str]) -> bool:
    """Remove a stale companion file; True if there was one. A device or pipe stays. Raises OutputError."""
    if is_special(os.fspath(path)):
        return False
    with _reported(os.fspath(path)):
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
    return True


def temporary_name(target: str) -> str:
    """A name for the sibling that is written first; another one at each call.

    A process number alone is not enough: two containers that share a directory may have the same.
    """
    folder, name = os.path.split(target)
    return os.path.join(folder, f"{_prefix(name)}{os.getpid()}-{os.urandom(RANDOM_BYTES).hex()}")


def _prefix(name: str) -> str:
    """What the names of all temporary siblings of a file begin with."""
    room = NAME_MAX_BYTES - len("..tmp-") - MAX_PID_DIGITS - 1 - 2 * RANDOM_BYTES
    return f".{os.fsdecode(os.fsencode(name)[:room])}.tmp-"


def _new_temporary(target: str) -> tuple[str, int]:
    """A new file that nobody else has open, locked, and its descriptor. Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    for attempt in range(ATTEMPTS):
        path = temporary_name(target)
        _temporaries.add(path)  # before it is made: a signal may come at any moment
        try:
            handle = os.open(path, flags, 0o666)
        except BaseException as error:
            _temporaries.discard(path)
            if isinstance(error, FileExistsError) and attempt < ATTEMPTS - 1:
                continue
            raise
        # Somebody who takes this process for dead may have come between: then the file is locked by them, or gone.
        if _lock(handle) is not False and os.fstat(handle).st_nlink:
            break
        os.close(handle)
        with suppress(OSError):
            os.unlink(path)
        _temporaries.discard(path)
    else:
        raise OSError(errno.EAGAIN, "another process locks every file that is made here", target)
    return path, handle


def _make_folders(folder: str) -> list[str]:
    """Make a directory and those above it; returns the new ones, the deepest first."""
    if os.path.isdir(folder):
        return []
    made = []
    above = folder
    while not os.path.lexists(above):
        made.append(above)
        above = os.path.dirname(above)
    os.makedirs(folder, exist_ok=True)
    return made


def _remove_left_behind(target: str) -> None:
    """Remove the temporary siblings of `target` whose writers were killed.

    A writer holds the lock of its file until it ends, so a file whose process seems dead, or to be this one, but that
    is locked belongs to another machine or container and stays.
    """
    folder, name = os.path.split(target)
    prefix = _prefix(name)
    with suppress(OSError), os.scandir(folder) as entries:
        for path in [os.path.join(folder, entry.name) for entry in entries if entry.name.startswith(prefix)]:
            writer = _writer_of(os.path.basename(path)[len(prefix) :])
            if writer is not None and path not in _temporaries and (writer == os.getpid() or not _is_alive(writer)):
                _remove_unlocked(path)


def _writer_of(tail: str) -> int | None:
    """The process number of `PID-RANDOM`, or of `PID` as older releases wrote it."""
    pid, dash, rest = tail.partition("-")
    if not (pid.isascii() and pid.isdigit()) or (dash and (len(rest) != 2 * RANDOM_BYTES or rest.strip(HEX_DIGITS))):
        return None
    return int(pid)


def _remove_unlocked(path: str) -> None:
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
        try:
            if stat.S_ISREG(os.fstat(handle).st_mode) and _lock(handle):  # without locks nothing can be known
                os.unlink(path)
        finally:
            os.close(handle)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return pid < 1 << 31
    return True


def _lock(handle: int) -> bool | None:
    """Take the exclusive lock of an open file without waiting.

    False when another process holds it, None where files have no locks.
    """
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # not on this system, or not of this file system
        return None
    return True


def _open_special(path: str) -> int:
    """A device, or a pipe that somebody reads: without a reader ENXIO comes at once instead of waiting for ever."""
    handle = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    if hasattr(os, "set_blocking"):
        os.set_blocking(handle, True)
    return handle


def _reflink(source: int, target: int) -> bool:
    try:
        import fcntl

        fcntl.ioctl(target, FICLONE, source)
    except (ImportError, OSError):  # not this file system, or two different ones
        return False
    return True


def _kernel_copy(source: int, target: int, count: int) -> int:
    """Bytes copied from the start with copy_file_range, which not every pair of file systems has."""
    done = 0
    copy = getattr(os, "copy_file_range", None)
    while copy is not None and done < count:
        try:
            step = copy(source, target, count - done, done, done)
        except OSError as error:
            if error.errno in NO_SPACE:
                raise
            break
        if step == 0:
            break
        done += step
    return done


def _write_all(target: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(target, view) :]


def is_special(path: str) -> bool:
    """Whether something that is neither a file nor a directory stands there: a device, a pipe, a socket."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


@contextmanager
def _reported(path: str, own: tuple[str, ...] = ()) -> Iterator[None]:
    """Failures of the file system as OutputError.

    With `own`, an error that names another file (one that is read while this one is written) passes unchanged.
    """
    try:
        yield
    except OSError as error:
        if own and error.filename is not None and os.fsdecode(error.filename) not in own:
            raise
        raise output_error(path, error) from error


def output_error(path: str, error: OSError) -> OutputError:
    """The diagnostic for a file that cannot be written."""
    from gecli.errors import OutputError  # not above: a cache hit publishes without loading the diagnostics

    reason = error.strerror or str(error)
    if error.errno == errno.ENXIO:
        return OutputError(
            "G6001", f"cannot write {path}", why="nobody reads this pipe", file=path,
            do=f"start the reader first: cat {path} &",
        )  # fmt: skip
    if error.errno in NO_SPACE:
        return OutputError(
            "G6002", f"no space to write {path}", why=reason, file=path, do="free space or choose another directory"
        )
    return OutputError("G6001", f"cannot write {path}", why=reason, file=path, do="check the path and its permissions")
