"""Files that appear whole or not at all: a temporary sibling, fsync, and a rename over the target."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

TYPE_CHECKING = False  # not from typing: a cache hit would pay 7 ms for it
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
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
MAX_HELD = 128  # descriptors; a process may have as few as 256
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_temporaries: set[str] = set()
# A whole file of `published_together`: temporary, target, the name to show, directories made, and a descriptor that
# keeps the file's lock, so that no other process takes it for one that was left behind. Beyond MAX_HELD files it is
# -1: then only the number of this process says so, which other containers do not see.
_File = tuple[str, str, str, list[str], int]
_waiting: _Publication | None = None


class _Publication:
    """Whole files that wait for the end of their block, and what is done when they are in place."""

    __slots__ = ("actions", "files", "held", "left_behind", "undos")

    def __init__(self) -> None:
        self.files: list[_File] = []
        self.actions: list[Callable[[], object]] = []
        self.undos: list[Callable[[], bool]] = []
        self.held = ExitStack()
        self.left_behind: dict[str, list[str]] = {}  # temporary files in each directory when it was first written to

    def publish(self) -> None:
        """Put every file in place. A stop that comes meanwhile is raised when all of them are."""
        if len(self.files) == 1:  # as a cache hit has it, which loads next to nothing
            _sync_one(self.files[0])
        else:
            from gecli.artifacts.side_by_side import for_each

            for_each(self.files, _sync_one)
        stop: BaseException | None = None
        while self.files or self.actions:
            try:
                while self.files:
                    temporary, target, shown, _, descriptor = self.files[0]
                    with _reported(shown, (target, temporary)):
                        os.replace(temporary, target)
                    _temporaries.discard(temporary)
                    del self.files[0]
                    self.undos.clear()  # a file that is in place may need what they would take back
                    _close(descriptor)
                while self.actions:
                    self.actions[0]()
                    del self.actions[0]
            except Exception:
                raise
            except BaseException as error:
                stop = error
                if self.files and not os.path.lexists(self.files[0][0]):  # it struck behind the rename
                    _temporaries.discard(self.files[0][0])
                    del self.files[0]
        self.undos.clear()
        if stop is not None:
            raise stop

    def withdraw(self, files: int = 0, actions: int = 0, undos: int = 0) -> None:
        """Remove the files that wait, except for the first ones, and take back what was done for them."""
        while len(self.files) > files:
            temporary, _, _, made, descriptor = self.files[-1]
            _withdraw(temporary, made)
            del self.files[-1]
            _close(descriptor)
        del self.actions[actions:]
        undos_left = self.undos[undos:]
        del self.undos[undos:]
        while undos_left:  # those of several processes come in any order, and an earlier change waits for a later one
            count = len(undos_left)
            undos_left = [undo for undo in reversed(undos_left) if not undo()][::-1]
            if len(undos_left) == count:
                break


def _sync_one(file: _File) -> None:
    temporary, target, shown, _, descriptor = file
    with _reported(shown, (target, temporary)):
        handle = descriptor if descriptor >= 0 else os.open(temporary, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            os.fsync(handle)
        finally:
            if handle != descriptor:
                os.close(handle)


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        with suppress(OSError):
            os.close(descriptor)


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

    A block inside another one is a part of it: an error takes its own files back, else they appear with those of the
    outer block. Only a rename that fails, after all files are written and on the disk, can leave the first ones.
    """
    global _waiting
    if _waiting is not None:
        outer = _waiting
        before = len(outer.files), len(outer.actions), len(outer.undos)
        try:
            yield
        except BaseException:
            outer.withdraw(*before)
            raise
        return
    block = _waiting = _Publication()
    with block.held:
        try:
            yield
            _waiting = None
            block.publish()
        finally:
            _waiting = None
            block.withdraw()


def publish_waiting() -> None:
    """Let the files of the running block appear now: what they tell is wanted although an error ends the block."""
    global _waiting
    block = _waiting
    if block is None:
        return
    _waiting = None
    try:
        block.publish()
    finally:
        _waiting = block


def after_publication(action: Callable[[], object]) -> None:
    """Do something now, or when the files of the running block are in place."""
    if _waiting is None:
        action()
    else:
        _waiting.actions.append(action)


def on_withdrawal(undo: Callable[[], bool]) -> None:
    """Call `undo` when the running block ends with an error and nothing of it is in place.

    It says whether it did its work, and is asked again when another one did; it may not raise.
    """
    if _waiting is not None:
        _waiting.undos.append(undo)


@contextmanager
def held_until_published(manager: AbstractContextManager[object]) -> Iterator[None]:
    """Enter a context (a lock) that is left with this block, or at the end of the running `published_together`."""
    if _waiting is None:
        with manager:
            yield
        return
    _waiting.held.enter_context(manager)
    yield


def content_path(path: str) -> str:
    """Where the content of an output is: a temporary file as long as it waits for the end of its block."""
    if _waiting is not None:
        target = os.path.realpath(path)
        for temporary, its_target, *_ in reversed(_waiting.files):
            if its_target == target:
                return temporary
    return path


def start_apart() -> None:
    """In a forked process: nothing that its parent began is published or removed here."""
    global _waiting
    _waiting = _Publication()
    _temporaries.clear()


def handed_over() -> tuple[list[_File], list[Callable[[], object]], list[Callable[[], bool]]]:
    """What this process has waiting, for another one to `take_over`. The locks stay here as long as the process."""
    assert _waiting is not None
    files = [(*file[:4], -1) for file in _waiting.files]
    found = files, _waiting.actions, _waiting.undos
    _waiting.files, _waiting.actions, _waiting.undos = [], [], []
    return found


def take_over(
    files: Sequence[_File], actions: Sequence[Callable[[], object]], undos: Sequence[Callable[[], bool]]
) -> None:
    """Publish at the end of the running block what another process has written."""
    assert _waiting is not None
    _temporaries.update(temporary for temporary, *_ in files)
    _waiting.files += files
    _waiting.actions += actions
    _waiting.undos += undos


def lock_taken_over() -> None:
    """Called when the processes that wrote the files have ended."""
    assert _waiting is not None
    for number, (temporary, target, shown, made, descriptor) in enumerate(_waiting.files[:MAX_HELD]):
        if descriptor < 0:
            with suppress(OSError):
                handle = os.open(temporary, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
                _waiting.files[number] = (temporary, target, shown, made, handle)
                _lock(handle)


def _withdraw(temporary: str, made: list[str]) -> None:
    """Remove a temporary file, and the directories that were made for it unless somebody put something there."""
    with suppress(OSError):
        os.unlink(temporary)
    _temporaries.discard(temporary)
    with suppress(OSError):
        for folder in made:
            os.rmdir(folder)


@contextmanager
def publishing(path: str | os.PathLike[str], *, in_place: bool = True) -> Iterator[BinaryIO]:
    """A seekable stream whose content becomes the file `path` when the block ends without an error.

    Missing parent directories are made; a symbolic link is followed; a device or pipe is written directly. Without
    `in_place` the new file takes the place of a link, device or pipe: for names that no user has given. Raises
    OutputError (G6001, G6002 for a full disk); what stood at `path` then stays. Errors of other files pass unchanged.
    """
    shown = os.fspath(path)
    folder, name = os.path.split(shown)
    target = os.path.realpath(shown) if in_place else os.path.join(os.path.realpath(folder), name)
    if in_place and is_special(shown):  # not the target: a pipe in /dev/fd has a name of its own there only
        with _reported(shown), os.fdopen(_open_special(shown), "wb") as stream:
            yield stream
        return
    with _reported(shown):
        made = make_folders(os.path.dirname(target))
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
                if _waiting is None:
                    os.fsync(stream.fileno())
                else:  # synced with the others
                    held = os.dup(stream.fileno()) if len(_waiting.files) < MAX_HELD else -1
                    _waiting.files.append((temporary, target, shown, made, held))
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
    """Remove a stale companion file; True if there was one. A device or pipe stays. Raises OutputError.

    In a block of `published_together` it goes when the new files are in place.
    """
    if is_special(os.fspath(path)):
        return False
    if _waiting is not None:
        after_publication(partial(remove_file, path))
        return os.path.lexists(path)
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


def make_folders(folder: str) -> list[str]:
    """Make a directory, given by its whole path, and those above it; returns the new ones, the deepest first."""
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
    for found in _temporary_names(folder):
        if found.startswith(prefix):
            path = os.path.join(folder, found)
            writer = _writer_of(found[len(prefix) :])
            if writer is not None and path not in _temporaries and (writer == os.getpid() or not _is_alive(writer)):
                _remove_unlocked(path)


def remove_left_behind(folder: str, suffix: str) -> None:
    """The same for all names with this suffix in a directory, where every run may choose another name."""
    for found in _temporary_names(folder):
        name, mark, tail = found.rpartition(".tmp-")
        if mark and name.endswith(suffix) and _writer_of(tail) is not None:
            _remove_left_behind(os.path.join(folder, name[1:]))


def _temporary_names(folder: str) -> list[str]:
    """What looks like a temporary file in a directory; a block that writes a thousand files looks once."""
    known = {} if _waiting is None else _waiting.left_behind
    if folder not in known:
        known[folder] = []
        with suppress(OSError), os.scandir(folder) as entries:
            known[folder] = [entry.name for entry in entries if entry.name.startswith(".") and ".tmp-" in entry.name]
    return known[folder]


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
