"""Writing external weights: a file each, or one for a model, new or behind what a directory holds (cache.md 8.4, 8.5).

Files of single weights are published one by one: their names are digests, so one without its OM harms nobody, and
the next compile uses it.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from gecli.artifacts.om_writer import unreadable_source
from gecli.artifacts.publish import make_folders, on_withdrawal, output_error, publishing
from gecli.artifacts.shared_files import give_to_group
from gecli.artifacts.weight_file import UnsafeWeight, base_name, open_weight, sha256_of_range
from gecli.artifacts.weight_meta import MetaFile, MetaLocked, WeightMeta, locked_file, locked_meta, remove_odd
from gecli.errors import InputError
from gecli.planning.weight_names import META_NAME, aligned, combined_name, named_digest, spelled

if TYPE_CHECKING:
    from gecli.planning.external_weights import ExternalWeight

TAKE_BACK_TIMEOUT_S = 2.0
_ZEROS = bytes(512)


class WeightFile(NamedTuple):
    """A weight file beside an output."""

    path: str
    size_bytes: int
    sha256: str


def write_split(folder: str, weights: Sequence[ExternalWeight]) -> list[WeightFile]:
    """A file for each distinct weight; one that is there with the same content is kept.

    Raises OutputError, and InputError (E13001) when the source of a weight is gone or changed.
    """
    found = []
    for each in distinct_weights(weights):
        path = os.path.join(folder, each.file)
        if not _is_in_place(folder, each):
            _publish_one(path, each)
        found.append(WeightFile(path, each.length_bytes, each.sha256))
    return found


def write_combined(folder: str, weights: Sequence[ExternalWeight]) -> WeightFile:
    """One new file with every weight at its offset, zeros between and behind them. Raises as `write_split`."""
    path = os.path.join(folder, weights[0].file)
    digest = hashlib.sha256()
    position = 0
    with _sources_readable(), publishing(path) as stream:
        for each in distinct_weights(weights):
            assert each.offset_bytes == position, "distinct weights lie one behind the other"
            position = aligned(position + write_checked(stream, each, digest))
            padding = bytes(position - each.offset_bytes - each.length_bytes)
            stream.write(padding)
            digest.update(padding)
    return WeightFile(path, position, digest.hexdigest())


def record_split(folder: str, names: Iterable[str], *, timeout_s: float = 2.0, mode: int = 0o666) -> None:
    """Note files of single weights in `meta.json`, if its lock is free soon: it is a hint for GE."""
    with suppress(OSError, MetaLocked), locked_meta(folder, timeout_s=timeout_s, mode=mode) as (meta, save):
        for name in names:
            meta.record(named_digest(name), os.path.join(folder, name))
        save()


def append_combined(
    folder: str, stem: str, weights: Sequence[ExternalWeight], *, timeout_s: float = 60.0
) -> list[WeightFile]:
    """As `append_weights`; the files that hold the weights then. Raises OutputError, InputError, MetaLocked.

    What was written is taken back when the running block of `published_together` fails.
    """
    try:
        on_withdrawal(append_weights(folder, stem, weights, timeout_s=timeout_s))
        return [_whole(os.path.join(folder, each)) for each in sorted({weight.file for weight in weights})]
    except EOFError as error:
        raise unreadable_source(error) from error
    except OSError as error:
        named = os.path.join(folder, combined_name(stem)) if error.filename is None else os.fsdecode(error.filename)
        if folder not in (named, os.path.dirname(named)):
            raise unreadable_source(error) from error
        raise output_error(named, error) from error


def append_weights(
    folder: str, stem: str, weights: Sequence[ExternalWeight], *, timeout_s: float = 60.0, mode: int = 0o666
) -> Callable[[], bool]:
    """Put weights behind what the model's combined file in `folder` holds, unless the directory has them already.

    Lets the nodes name the places. A range counts as held when its bytes hash right, whatever `meta.json` says, and is
    recorded after it is on the disk; so a crash leaves bytes that nobody names. An error leaves both files as they
    were. Returns what takes it all back, if nobody has used the directory since. Raises OSError, EOFError, InputError,
    MetaLocked.
    """
    path = os.path.join(folder, combined_name(stem))
    made = make_folders(os.path.realpath(folder))
    try:
        with locked_file(folder, timeout_s=timeout_s, mode=mode) as file:
            old_size = _size_of(path)
            try:
                _append_missing(folder, path, weights, file, mode)
            except BaseException:
                _shorten(path, old_size)
                raise
            now = time.time_ns()
            is_marked = file.set_time(now)  # a compile that finds its weights here changes no byte
            change = _Change(folder, path, old_size, _size_of(path), file.before, file.changed_ns, now, tuple(made))
    except BaseException:
        _remove_folders(made)
        raise
    return partial(_take_back, change) if is_marked else _keep


def _append_missing(folder: str, path: str, weights: Sequence[ExternalWeight], file: MetaFile, mode: int) -> None:
    meta = file.meta(folder)
    missing = [
        each
        for each in distinct_weights(weights)
        if not _find(folder, meta, each) and not (meta.is_rebuilt and _find_again(folder, path, meta, each))
    ]
    if missing:
        _append(path, missing, mode)
        for each in missing:
            meta.record(spelled(each.sha256), path, each.offset_bytes)
    _let_equals_follow(weights)
    file.rewrite(meta.data())


class _Change(NamedTuple):
    """What `append_weights` did to a combined file and to `meta.json`, and which directories are new.

    None as the old size or content: there was no file.
    """

    folder: str
    path: str
    old_size: int | None
    new_size: int | None
    old_meta: bytes | None
    old_time_ns: int
    new_time_ns: int
    made: tuple[str, ...]


def _keep() -> bool:
    return False


def _take_back(change: _Change) -> bool:
    """Whether the directory is as before: another compile that found its weights here may name them by now."""
    meta_path = os.path.join(change.folder, META_NAME)
    if not os.path.lexists(meta_path):
        return False
    try:
        with locked_file(change.folder, timeout_s=TAKE_BACK_TIMEOUT_S) as file:
            if file.changed_ns != change.new_time_ns or _size_of(change.path) != change.new_size:
                return False
            _shorten(change.path, change.old_size)
            if change.old_meta is None:
                os.unlink(meta_path)
            else:
                file.rewrite(change.old_meta)
                file.set_time(change.old_time_ns)
    except (OSError, MetaLocked):
        return False
    _remove_folders(change.made)
    return True


def _size_of(path: str) -> int | None:
    """None for what is no regular file: it is replaced."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _shorten(path: str, size: int | None) -> None:
    """Take away what was appended, or the file if there was none."""
    with suppress(OSError):
        if size is None:
            os.unlink(path)
        elif os.lstat(path).st_size > size:
            os.truncate(path, size)


def _remove_folders(made: Sequence[str]) -> None:
    with suppress(OSError):
        for folder in made:
            os.rmdir(folder)


def distinct_weights(weights: Sequence[ExternalWeight]) -> list[ExternalWeight]:
    """The first weight of each content."""
    found: dict[str, ExternalWeight] = {}
    for each in weights:
        found.setdefault(each.sha256, each)
    return list(found.values())


def _is_in_place(folder: str, each: ExternalWeight) -> bool:
    """Whether a regular file of this name has the content. Its time becomes now: gc spares what is new."""
    path = os.path.join(folder, each.file)
    if remove_odd(path):
        return False
    if not holds_weight(folder, each.file, 0, each, whole=True):
        return False
    with suppress(OSError):
        os.utime(path)
    return True


def holds_weight(folder: str, name: str, offset: int, each: ExternalWeight, *, whole: bool = False) -> bool:
    """Whether a file has the bytes of a weight at an offset, and with `whole` no others."""
    try:
        handle = open_weight(folder, name)
    except (OSError, UnsafeWeight):
        return False
    try:
        size = os.fstat(handle).st_size
        if size < offset + each.length_bytes or (whole and size != each.length_bytes):
            return False
        return sha256_of_range(handle, offset, each.length_bytes) == each.sha256
    except (OSError, EOFError):
        return False
    finally:
        os.close(handle)


def _publish_one(path: str, each: ExternalWeight) -> None:
    with _sources_readable(), publishing(path) as stream:
        write_checked(stream, each)


def write_checked(stream: BinaryIO, each: ExternalWeight, more: hashlib._Hash | None = None) -> int:
    """Write a weight; its digest was taken before, so a source that changed since is seen."""
    digest = hashlib.sha256()
    for chunk in each.weight.chunks():
        digest.update(chunk)
        if more is not None:
            more.update(chunk)
        stream.write(chunk)
    if digest.hexdigest() != each.sha256:
        raise InputError(
            "E13001",
            f"the weight of node {each.node.name!r} changed while the model was compiled",
            why=f"its sha256 was {each.sha256[:12]}..., it is {digest.hexdigest()[:12]}... now",
            do="keep the source model as it is until the compile has ended",
            node=each.node.name,
        )
    return each.length_bytes


def _find(folder: str, meta: WeightMeta, each: ExternalWeight) -> bool:
    """Let a node name the place that `meta.json` records, if the bytes are really there."""
    spelling = spelled(each.sha256)
    recorded, offset = meta.files.get(spelling), meta.offsets.get(spelling)
    if recorded is None or offset is None:
        return False
    try:
        name = base_name(recorded)
    except UnsafeWeight:
        return False
    if not holds_weight(folder, name, offset, each):
        return False
    each.move_to(name, offset)
    return True


def _find_again(folder: str, path: str, meta: WeightMeta, each: ExternalWeight) -> bool:
    """Whether a combined file that nothing tells of has a weight where the first compile of the model put it."""
    if not holds_weight(folder, os.path.basename(path), each.offset_bytes, each):
        return False
    meta.record(spelled(each.sha256), path, each.offset_bytes)
    each.move_to(os.path.basename(path), each.offset_bytes)
    return True


def _append(path: str, missing: list[ExternalWeight], mode: int) -> None:
    remove_odd(path)
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(path, flags, mode), "r+b") as stream:
        give_to_group(stream.fileno(), mode)
        end = stream.seek(0, os.SEEK_END)
        stream.write(bytes(aligned(end) - end))
        end = aligned(end)
        for each in missing:
            write_checked(stream, each)
            each.move_to(os.path.basename(path), end)
            following = aligned(end + each.length_bytes)
            stream.write(_ZEROS[: following - end - each.length_bytes])
            end = following
        stream.flush()
        os.fsync(stream.fileno())


def _let_equals_follow(weights: Sequence[ExternalWeight]) -> None:
    places = {each.sha256: (each.file, each.offset_bytes) for each in distinct_weights(weights)}
    for each in weights:
        each.move_to(*places[each.sha256])


def _whole(path: str) -> WeightFile:
    with open(path, "rb") as stream:
        return WeightFile(path, os.fstat(stream.fileno()).st_size, hashlib.file_digest(stream, "sha256").hexdigest())


@contextmanager
def _sources_readable() -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError) as error:
        raise unreadable_source(error) from error
