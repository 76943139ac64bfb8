"""An output appears whole or not at all."""

from __future__ import annotations

import errno
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gecli.artifacts import publish
from gecli.artifacts.publish import (
    after_publication,
    content_path,
    handed_over,
    held_until_published,
    lock_taken_over,
    place_copy,
    publish_bytes,
    publish_waiting,
    published_together,
    publishing,
    remove_file,
    start_apart,
    take_over,
)
from gecli.errors import OutputError

ROOT = Path(__file__).resolve().parents[2]


def test_a_file_is_written_and_nothing_else_is_left(tmp_path: Path) -> None:
    target = tmp_path / "new" / "dir" / "m.om"
    publish_bytes(target, b"abc")
    assert target.read_bytes() == b"abc"
    assert os.listdir(target.parent) == ["m.om"]


def test_the_old_file_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "m.om"
    target.write_bytes(b"old")
    with publishing(target) as stream:
        stream.write(b"new")
        assert target.read_bytes() == b"old"
        temporary, kept = sorted(os.listdir(tmp_path))
        assert re.fullmatch(rf"\.m\.om\.tmp-{os.getpid()}-[0-9a-f]{{8}}", temporary) and kept == "m.om"
    assert target.read_bytes() == b"new"


def test_an_error_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "m.om"
    target.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), publishing(target) as stream:
        stream.write(b"half")
        raise ZeroDivisionError
    assert target.read_bytes() == b"old" and os.listdir(tmp_path) == ["m.om"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_mode_follows_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        publish_bytes(tmp_path / "m.om", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "m.om").stat().st_mode & 0o777 == mode


@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOSPC, "G6002"), (errno.EDQUOT, "G6002"), (errno.EIO, "G6001"), (errno.EROFS, "G6001")]
)
def test_errors_of_the_file_system_are_output_errors(tmp_path: Path, number: int, code: str) -> None:
    with pytest.raises(OutputError) as caught, publishing(tmp_path / "m.om"):
        raise OSError(number, os.strerror(number))
    assert caught.value.code == code and caught.value.first.why == os.strerror(number)
    assert os.listdir(tmp_path) == []


def test_a_directory_or_a_file_as_parent_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "dir").mkdir()
    for target in (tmp_path / "dir", tmp_path / "file" / "m.om"):
        with pytest.raises(OutputError):
            publish_bytes(target, b"x")
    assert sorted(os.listdir(tmp_path)) == ["dir", "file"]


def test_a_link_keeps_pointing_at_the_new_content(tmp_path: Path) -> None:
    (tmp_path / "real.om").write_bytes(b"old")
    (tmp_path / "link.om").symlink_to("real.om")
    publish_bytes(tmp_path / "link.om", b"new")
    assert (tmp_path / "link.om").is_symlink() and (tmp_path / "real.om").read_bytes() == b"new"


def test_a_device_is_written_directly() -> None:
    publish_bytes("/dev/null", b"x")
    assert not os.path.isfile("/dev/null")


def test_the_longest_file_name_can_be_published(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 252 + ".om")
    publish_bytes(target, b"x")
    assert target.read_bytes() == b"x"


@pytest.mark.parametrize("means", ["reflink", "kernel", "plain"])
def test_a_copy_is_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, means: str) -> None:
    if means != "reflink":
        monkeypatch.setattr(publish, "_reflink", lambda source, target: False)
    if means == "plain":
        monkeypatch.delattr(os, "copy_file_range")
    data = os.urandom(3_000_001)
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(data)
    os.utime(source, (1, 1))
    place_copy(source, target)
    assert target.read_bytes() == data
    assert target.stat().st_ino != source.stat().st_ino and target.stat().st_nlink == 1
    assert target.stat().st_mtime > 1_000_000


def test_files_published_together_appear_together(tmp_path: Path) -> None:
    with published_together():
        publish_bytes(tmp_path / "a", b"1")
        publish_bytes(tmp_path / "deep" / "b", b"2")
        assert not (tmp_path / "a").exists() and not (tmp_path / "deep" / "b").exists()
    assert (tmp_path / "a").read_bytes() == b"1" and (tmp_path / "deep" / "b").read_bytes() == b"2"
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["a", "b", "deep"]
    publish_bytes(tmp_path / "a", b"3")
    assert (tmp_path / "a").read_bytes() == b"3"


def test_none_of_the_files_appears_when_a_later_one_fails(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError), published_together():
        publish_bytes(tmp_path / "a", b"new")
        publish_bytes(tmp_path / "deep" / "b", b"new")
        publish_bytes(tmp_path / "file" / "c", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["a", "file"]
    publish_bytes(tmp_path / "a", b"3")
    assert (tmp_path / "a").read_bytes() == b"3"


def listed(directory: Path) -> list[str]:
    return sorted(str(each.relative_to(directory)) for each in directory.rglob("*"))


def test_a_block_inside_another_appears_with_it_and_fails_alone(tmp_path: Path) -> None:
    with published_together():
        publish_bytes(tmp_path / "a", b"1")
        with published_together():
            publish_bytes(tmp_path / "b", b"2")
        with pytest.raises(KeyError), published_together():
            publish_bytes(tmp_path / "deep" / "c", b"3")
            after_publication(lambda: (tmp_path / "d").touch())
            raise KeyError
        assert not {"a", "b", "deep"} & set(listed(tmp_path))
    assert listed(tmp_path) == ["a", "b"]


def test_what_follows_on_a_file_waits_for_it_and_locks_are_held_until_then(tmp_path: Path) -> None:
    seen: list[tuple[str, list[str]]] = []

    @contextmanager
    def lock() -> Iterator[None]:
        yield
        seen.append(("free", listed(tmp_path)))

    (tmp_path / "old").touch()
    with published_together():
        with held_until_published(lock()):
            publish_bytes(tmp_path / "a", b"1")
        after_publication(lambda: seen.append(("after", listed(tmp_path))))
        assert remove_file(tmp_path / "old") is True
        assert (tmp_path / "old").exists() and seen == []
    assert seen == [("after", ["a", "old"]), ("free", ["a"])]
    with held_until_published(lock()):
        after_publication(lambda: seen.append(("now", [])))
    assert [name for name, _ in seen[2:]] == ["now", "free"]


def test_an_error_leaves_what_was_published_before_it(tmp_path: Path) -> None:
    with pytest.raises(KeyError), published_together():
        publish_bytes(tmp_path / "a", b"1")
        publish_waiting()
        assert listed(tmp_path) == ["a"]
        publish_bytes(tmp_path / "b", b"2")
        raise KeyError
    assert listed(tmp_path) == ["a"]


def test_a_file_can_be_read_while_it_waits(tmp_path: Path) -> None:
    target = tmp_path / "a"
    with published_together():
        for data in (b"1", b"2"):
            publish_bytes(target, data)
        assert Path(content_path(str(target))).read_bytes() == b"2"
        assert content_path(str(tmp_path / "b")) == str(tmp_path / "b")
    assert content_path(str(target)) == str(target) and target.read_bytes() == b"2"
    assert listed(tmp_path) == ["a"]


@pytest.mark.parametrize("behind", [False, True])
def test_a_stop_between_the_renames_comes_when_all_files_are_in_place(
    behind: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.replace, []

    def replace(source: str, target: str) -> None:
        calls.append(target)
        if behind or len(calls) != 2:
            real(source, target)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt), published_together():
        for name in "abc":
            publish_bytes(tmp_path / name, b"1")
    assert listed(tmp_path) == ["a", "b", "c"]
    assert publish._temporaries == set()


def test_a_rename_that_fails_leaves_no_temporary_file(tmp_path: Path) -> None:
    with pytest.raises(OutputError), published_together():
        for name in "abc":
            publish_bytes(tmp_path / name, b"1")
        (tmp_path / "b").mkdir()
    assert listed(tmp_path) == ["a", "b"]


def test_a_thousand_files_need_few_descriptors(tmp_path: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with published_together():
            for number in range(1000):
                publish_bytes(tmp_path / str(number), b"")
            assert not any(not name.startswith(".") for name in listed(tmp_path))
        assert listed(tmp_path) == sorted(map(str, range(1000)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_files_of_another_process_appear_with_those_of_this_one(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with published_together():
        publish_bytes(tmp_path / "a", b"1")
        child = os.fork()
        if child == 0:
            start_apart()
            publish_bytes(tmp_path / "b", b"2")
            remove_file(tmp_path / "old")
            os.write(writer, pickle.dumps(handed_over()))
            os._exit(0)
        os.waitpid(child, 0)
        take_over(*pickle.loads(os.read(reader, 1 << 16)))
        lock_taken_over()
        (tmp_path / "old").touch()
        subprocess.run([sys.executable, "-c", PUBLISH, tmp_path / "b"], check=True, cwd=ROOT)
        assert (tmp_path / "b").read_bytes() == b"3"  # and the one that waits was not taken for one left behind
    assert listed(tmp_path) == ["a", "b"]
    assert (tmp_path / "b").read_bytes() == b"2"


PUBLISH = "import sys; from gecli.artifacts.publish import publish_bytes; publish_bytes(sys.argv[1], b'3')"


def test_a_stale_companion_is_removed_once(tmp_path: Path) -> None:
    (tmp_path / "m.rdcpkt").write_bytes(b"x")
    assert remove_file(tmp_path / "m.rdcpkt") is True
    assert remove_file(tmp_path / "m.rdcpkt") is False


def test_a_signal_handler_can_remove_what_is_half_written(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from gecli.artifacts.publish import publishing, remove_temporaries\n"
        "def stop(*_): remove_temporaries(); os._exit(130)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "with publishing(sys.argv[1]) as stream:\n"
        "    stream.write(b'half'); stream.flush(); os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "m.om")], cwd=ROOT, timeout=60)
    assert done.returncode == 130 and os.listdir(tmp_path) == []


def test_two_containers_with_one_process_number_write_two_files(tmp_path: Path) -> None:
    """The other one is a process whose number is taken to be ours."""
    code = (
        "import os, sys\n"
        "os.getpid = lambda: int(sys.argv[2])\n"
        "from gecli.artifacts.publish import publishing\n"
        "with publishing(sys.argv[1]) as stream:\n"
        "    stream.write(b'theirs'); stream.flush(); print('ready', flush=True); sys.stdin.readline()\n"
    )
    target = tmp_path / "m.om"
    command = [sys.executable, "-c", code, str(target), str(os.getpid())]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "ready\n"
        publish_bytes(target, b"ours")
        assert target.read_bytes() == b"ours"
        other.communicate("\n", timeout=60)
    assert other.returncode == 0 and target.read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["m.om"]


def test_what_a_killed_process_with_our_number_left_is_removed(tmp_path: Path) -> None:
    for tail in ("", "-0123abcd"):
        (tmp_path / f".m.om.tmp-{os.getpid()}{tail}").write_bytes(b"half")
    with publishing(tmp_path / "m.om"):
        publish_bytes(tmp_path / "m.om", b"inner")  # does not take the outer one for left behind
    assert os.listdir(tmp_path) == ["m.om"]


def test_a_file_that_another_process_locked_or_removed_at_once_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [False, True, True]
    plain = publish._lock

    def lock(handle: int) -> bool | None:
        answer = answers.pop(0)
        if len(answers) == 1:
            [found] = tmp_path.glob(".n.om.tmp-*")
            found.unlink()
        return plain(handle) if answer else False

    monkeypatch.setattr(publish, "_lock", lock)
    publish_bytes(tmp_path / "n.om", b"x")
    assert (tmp_path / "n.om").read_bytes() == b"x" and answers == []
    assert os.listdir(tmp_path) == ["n.om"]


def test_files_are_published_where_files_have_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "_lock", lambda handle: None)
    stale = tmp_path / ".m.om.tmp-999999999"
    stale.write_bytes(b"half")
    publish_bytes(tmp_path / "m.om", b"x")
    assert (tmp_path / "m.om").read_bytes() == b"x" and stale.exists()
