"""Archives of cache entries: the same bytes every time, and an import that believes nothing."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gecli.cache import present_entries, recovery
from gecli.cache.archive import MANIFEST, ArchivedEntry, ArchivedFile, DamagedArchive, reading
from gecli.cache.export_archive import plan_export, write_archive
from gecli.cache.import_archive import EntryImporter, Imported, import_entries
from gecli.cache.index import new_record
from gecli.cache.model_cache import read_request_hint
from gecli.cache.present_entries import PresentEntries
from gecli.cache.sidecar import read_sidecar
from gecli.cache.verify import verify

from .conftest import Store, om_bytes

REQUEST = "sha256:" + "5" * 64


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def exported(directory: Path, *keys: str) -> bytes:
    stream = io.BytesIO()
    write_archive(stream, plan_export(str(directory), keys))
    return stream.getvalue()


def imported(directory: Path, data: bytes, **options: Any) -> list[Imported]:
    path = directory.parent / "a.tar"
    path.write_bytes(data)
    with reading(str(path)) as archive:
        return list(import_entries(str(directory), archive, wait_s=0, mode=0o644, **options))


def stems(directory: Path, key: str = "k") -> list[str]:
    records = json.loads((directory / f"{key}.idx").read_text())["cache_file_list"]
    return [record["cache_file_name"].removesuffix(".om") for record in records]


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file() and path.suffix != ".lock"}


def with_weight(directory: Path, stem: str, name: str, data: bytes) -> None:
    """Make an entry refer to a weight file."""
    (directory / "weight").mkdir(exist_ok=True)
    (directory / "weight" / name).write_bytes(data)
    path = directory / f"{stem}.gecli.json"
    row = {"file": name, "offset": 0, "length": len(data), "sha256": hashlib.sha256(data).hexdigest(), "node": "w"}
    path.write_text(json.dumps({**json.loads(path.read_text()), "weights": [row]}))


def test_an_import_makes_the_same_directory(store: Store, source: Path, target: Path) -> None:
    store("k", "a", directory=source, rdcpkt=b"\x0a\x00", requests=(REQUEST,))
    store("k", "b", directory=source, body="other")
    store("more", "c", directory=source)
    data = exported(source, "k", "more")
    assert [each.state for each in imported(target, data)] == ["imported"] * 3
    own = {name: text for name, text in files(source).items() if not name.endswith(".gecli.json")}
    assert {name: text for name, text in files(target).items() if not name.endswith(".gecli.json")} == own
    assert verify(str(target)).problems == []
    assert exported(target, "k", "more") == data
    assert read_request_hint(str(target), REQUEST) == ("k", stems(target)[0])


def test_the_same_entries_give_the_same_bytes(store: Store, source: Path, tmp_path: Path) -> None:
    store("k", "a", directory=source)
    first = exported(source, "k")
    for path in source.iterdir():
        os.utime(path, (1, 1))
        path.chmod(0o600)
    source.rename(tmp_path / "elsewhere")
    assert exported(tmp_path / "elsewhere", "k") == first


def test_the_head_of_a_member_tells_nothing_of_this_machine(store: Store, source: Path) -> None:
    store("k", "a", directory=source)
    with tarfile.open(fileobj=io.BytesIO(exported(source, "k"))) as tar:
        heads = {(info.mtime, info.mode, info.uid, info.gid, info.uname, info.gname) for info in tar}
    assert heads == {(0, 0o644, 0, 0, "", "")}


def test_a_long_key_goes_into_an_archive(store: Store, source: Path, target: Path) -> None:
    key = "k" * 128
    store(key, "a", directory=source)
    assert [each.state for each in imported(target, exported(source, key))] == ["imported"]


def test_damaged_entries_are_left_out(store: Store, source: Path) -> None:
    good, bad = store("k", "a", directory=source).stem, store("k", "b", directory=source).stem
    (source / f"{bad}.om").write_bytes(b"IMOD")
    plan = plan_export(str(source), ["k"])
    assert [entry.stem for entry in plan.manifest.entries] == [good]
    assert [(each.kind, each.entry) for each in plan.left_out] == [("om-corrupt", bad)]


def test_a_file_that_changes_during_the_export_ends_it(store: Store, source: Path) -> None:
    stem = store("k", "a", directory=source).stem
    plan = plan_export(str(source), ["k"])
    om = source / f"{stem}.om"
    om.write_bytes(om.read_bytes()[:-1] + b"?")
    with pytest.raises(OSError, match="changed or was removed"):
        write_archive(io.BytesIO(), plan)
    om.unlink()
    with pytest.raises(OSError, match="changed or was removed"):
        write_archive(io.BytesIO(), plan)


def test_an_entry_that_is_there_stays_and_a_damaged_one_makes_room(store: Store, source: Path, target: Path) -> None:
    stem = store("k", "a", directory=source).stem
    data = exported(source, "k")
    imported(target, data)
    before = files(target)
    assert [each.state for each in imported(target, data)] == ["present"]
    assert files(target) == before
    (target / f"{stem}.om").write_bytes(b"IMOD torn")
    assert [(each.state, each.stem) for each in imported(target, data)] == [("imported", stem)]
    assert files(target) == before
    assert [path.name.split(".")[1] for path in (target / ".gecli/quarantine").glob("*.om.*")] == ["om"]


def test_another_entry_of_the_same_name_stays(store: Store, source: Path, target: Path) -> None:
    here = store("k", "mine", directory=target, body="mine").stem
    there = store("k", "theirs", directory=source, body="theirs").stem
    assert here == there
    [each] = imported(target, exported(source, "k"))
    assert (each.state, each.stem) == ("imported", f"{here}_1")
    assert stems(target) == [here, f"{here}_1"]
    assert (target / f"{here}.om").read_bytes() == om_bytes("mine")
    assert (target / f"{here}_1.om").read_bytes() == om_bytes("theirs")
    sidecar = read_sidecar(str(target), "k", f"{here}_1")
    assert sidecar is not None and sidecar.combined == "sha256:theirs"
    assert verify(str(target)).problems == []


@pytest.mark.parametrize("combined", [True, False])
def test_a_confirmation_does_not_travel(combined: bool, store: Store, source: Path, target: Path) -> None:
    stem = store(directory=source).stem
    path = source / f"{stem}.gecli.json"
    content = {**json.loads(path.read_text()), "confirmed": True}
    path.write_text(json.dumps(content if combined else {**content, "fingerprint": {}}))
    data = exported(source, "k")
    assert [each.state for each in imported(target, data)] == ["imported"]
    sidecar = read_sidecar(str(target), "k", stem)
    assert (None if sidecar is None else sidecar.is_confirmed) is (False if combined else None)


STATES_OF_VARIABLES = (b"", b"\x0a\x00", b"\x12\x00")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("archives", [1, 3])
def test_an_entry_for_each_state_of_the_variables_is_kept(
    archives: int, order: tuple[int, ...], store: Store, tmp_path: Path, target: Path
) -> None:
    data = []
    for number in range(archives):
        source = tmp_path / f"source{number}"
        source.mkdir()
        for state in order if archives == 1 else order[number : number + 1]:
            store(directory=source, body=f"model {state}", rdcpkt=STATES_OF_VARIABLES[state] or None)
        data.append(exported(source, "k"))
    assert [each.state for one in data for each in imported(target, one)] == ["imported"] * 3
    kept = [path.read_bytes() for path in target.glob("*.rdcpkt")]
    assert sorted([b"", *kept]) == sorted(STATES_OF_VARIABLES)
    assert verify(str(target), fast=True).problems == []
    assert [each.state for one in data for each in imported(target, one)] == ["present"] * 3


def test_only_the_keys_asked_for_are_imported(store: Store, source: Path, target: Path) -> None:
    for key in ("one", "two"):
        store(key, key, directory=source)
    assert [each.entry.key for each in imported(target, exported(source, "one", "two"), key_glob="t*")] == ["two"]
    assert not (target / "one.idx").exists()


def test_weights_travel_once_and_bad_ones_are_replaced(store: Store, source: Path, target: Path) -> None:
    name = f"weight_{'a' * 40}"
    for key in ("one", "two"):
        with_weight(source, store(key, key, directory=source).stem, name, b"data")
    data = exported(source, "one", "two")
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert [info.name for info in tar if info.name.startswith("weight/")] == [f"weight/{name}"]
    (target / "weight").mkdir()
    (target / "weight" / name).write_bytes(b"torn")
    assert [each.state for each in imported(target, data)] == ["imported", "imported"]
    assert (target / "weight" / name).read_bytes() == b"data"
    assert verify(str(target)).problems == []


def test_a_combined_weight_file_of_others_is_never_replaced(store: Store, source: Path, target: Path) -> None:
    name = "m_weight_combined"
    with_weight(source, store("k", "a", directory=source).stem, name, b"theirs")
    data = exported(source, "k")
    (target / "weight").mkdir()
    (target / "weight" / name).write_bytes(b"other")
    [each] = imported(target, data)
    assert (each.state, stems_or_none(target)) == ("refused", None)
    assert (target / "weight" / name).read_bytes() == b"other"
    (target / "weight" / name).write_bytes(b"theirs and more")  # as if another model had been appended
    assert [each.state for each in imported(target, data)] == ["imported"]
    assert verify(str(target)).problems == []


def stems_or_none(directory: Path) -> list[str] | None:
    return stems(directory) if (directory / "k.idx").exists() else None


# ---------------------------------------------------------------- archives that lie


def rebuilt(data: bytes, change: Callable[[dict[str, Any], dict[str, bytes]], None], **heads: Any) -> bytes:
    """The archive with its list and its members changed; `heads` go into the header of the last member."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        members = {info.name: stream.read() for info in tar if (stream := tar.extractfile(info)) is not None}
    manifest = json.loads(members.pop(MANIFEST))
    change(manifest, members)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in {MANIFEST: json.dumps(manifest).encode(), **members}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            if name == list(members)[-1]:
                for field, value in heads.items():
                    setattr(info, field, value)
            tar.addfile(info, io.BytesIO(content))
    return made.getvalue()


def renamed(old: str, new: str) -> Callable[[dict[str, Any], dict[str, bytes]], None]:
    """Another name for the .om, in the list and in the archive."""

    def change(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
        for name in list(members):
            members[name.replace(old, new)] = members.pop(name)
        text = json.dumps(manifest).replace(old, new.replace("\\", "\\\\"))
        manifest.clear()
        manifest.update(json.loads(text))

    return change


def first_file(manifest: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = manifest["entries"][0]["files"][0]
    return row


def swap(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
    """The right bytes under the wrong names."""
    names = list(members)
    members[names[0]], members[names[1]] = members[names[1]], members[names[0]]


LIES: dict[str, Callable[[dict[str, Any], dict[str, bytes]], object]] = {
    "a changed byte": lambda m, f: f.update({first_file(m)["name"]: om_bytes("modeL")}),
    "a shorter member": lambda m, f: f.update({first_file(m)["name"]: om_bytes("mode")}),
    "a longer list": lambda m, f: m["entries"][0]["files"].append(
        {**first_file(m), "name": "k_20260415_022030.rdcpkt"}
    ),
    "another member": lambda m, f: f.update({"k_20260415_022030.rdcpkt": b""}),
    "a member in front": lambda m, f: [f.update({name: f.pop(name)}) for name in sorted(f, reverse=True)[:1]],
    "a member elsewhere": renamed("k_20260415_022030.om", "../k_20260415_022030.om"),
    "an absolute member": renamed("k_20260415_022030.om", "/tmp/k_20260415_022030.om"),
    "an entry elsewhere": renamed("k_20260415_022030", "../k_20260415_022030"),
    "an entry of another key": renamed("k_20260415_022030", "x_20260415_022030"),
    "a hidden index": renamed("k_20260415_022030.om", "k.idx"),
    "a key that is none": lambda m, f: m["entries"][0].update(key="../k"),
    "no om": lambda m, f: f.pop(m["entries"][0]["files"].pop(0)["name"]),
    "a size below zero": lambda m, f: first_file(m).update(size_bytes=-1),
    "a size that is none": lambda m, f: first_file(m).update(size_bytes=True),
    "a digest that is none": lambda m, f: first_file(m).update(sha256="0"),
    "weights elsewhere": lambda m, f: m.update(
        weights=[{"name": "../x_weight_combined", "size_bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()}]
    ),
    "weights that are not there": lambda m, f: m["entries"][0].update(weights=["weight_" + "a" * 40]),
    "another schema": lambda m, f: m.update(schema="gecli.cache-archive/2"),
    "no entries": lambda m, f: m.pop("entries"),
    "wrong names": swap,
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_refused_before_anything_is_written(name: str, store: Store, source: Path, target: Path) -> None:
    store("k", "a", directory=source)
    data = rebuilt(exported(source, "k"), lambda manifest, members: LIES[name](manifest, members) and None)
    with pytest.raises(DamagedArchive):
        imported(target, data)
    assert files(target) == {}
    assert not (target.parent / "k_20260415_022030.om").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_member_that_is_no_file_is_refused(kind: bytes, store: Store, source: Path, target: Path) -> None:
    store("k", "a", directory=source)
    data = rebuilt(exported(source, "k"), lambda manifest, members: None, type=kind, linkname="/etc/passwd")
    with pytest.raises(DamagedArchive):
        imported(target, data)
    assert files(target) == {}


def test_a_sidecar_that_tells_of_other_files_is_refused(store: Store, source: Path, target: Path) -> None:
    stem = store("k", "a", directory=source).stem
    side = f"{stem}.gecli.json"

    def change(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
        content = json.loads(members[side])
        content["files"]["om"]["sha256"] = "0" * 64
        members[side] = json.dumps(content).encode()
        row = next(row for row in manifest["entries"][0]["files"] if row["name"] == side)
        row.update(size_bytes=len(members[side]), sha256=hashlib.sha256(members[side]).hexdigest())

    with pytest.raises(DamagedArchive, match=r"tells of another \.om"):
        imported(target, rebuilt(exported(source, "k"), change))
    assert files(target) == {}


@pytest.mark.parametrize("part", [0, 1, 100, 511, 512, 513, 1024, 1500, 2048, 2600, 3000])
def test_a_part_of_an_archive_is_refused(part: int, store: Store, source: Path, target: Path) -> None:
    store("k", "a", directory=source)
    with pytest.raises(DamagedArchive):
        imported(target, exported(source, "k")[:part])
    assert files(target) == {}


def test_no_flipped_bit_gets_in(store: Store, source: Path, target: Path) -> None:
    store("k", "a", directory=source)
    data = exported(source, "k")
    wanted = {name: text for name, text in files(source).items() if name.endswith(".om")}
    for position in range(0, len(data), 37):
        torn = bytearray(data)
        torn[position] ^= 1
        try:
            imported(target, bytes(torn))
        except DamagedArchive:
            continue
        assert {name: text for name, text in files(target).items() if name.endswith(".om")} == wanted


def test_a_header_that_claims_gigabytes_costs_no_memory(target: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 4 << 30
    path = target.parent / "large.tar"
    path.write_bytes(info.tobuf(tarfile.USTAR_FORMAT))
    os.truncate(path, 5 << 30)
    with pytest.raises(DamagedArchive, match="more than 65536 bytes"), reading(str(path)):
        pass


def test_an_import_reads_and_writes_the_index_of_a_key_once_for_many_entries(
    source: Path, target: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        store(name=f"n{number}", body=f"model {number}", directory=source)
    data, counts = exported(source, "k"), dict.fromkeys(("index", "sidecar", "list"), 0)

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return function(*arguments, **options)

        return run

    monkeypatch.setattr(recovery, "write_index", counted("index", recovery.write_index))
    monkeypatch.setattr(present_entries, "read_sidecar", counted("sidecar", present_entries.read_sidecar))
    monkeypatch.setattr(os, "listdir", counted("list", os.listdir))
    assert {each.state for each in imported(target, data)} == {"imported"}
    assert (counts["index"], counts["sidecar"]) == (1, 0)
    assert counts["list"] < 12
    assert {each.state for each in imported(target, data)} == {"present"}
    assert (counts["index"], counts["sidecar"]) == (1, 12)
    assert stems(target) == stems(source)
    assert verify(str(target)).problems == []


def test_entries_in_front_of_one_that_fails_are_in_the_index(
    source: Path, target: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [store(name=f"n{number}", body=f"model {number}", directory=source).stem for number in range(4)]
    data, whole = exported(source, "k"), EntryImporter._store

    def failing(importer: EntryImporter, entry: Any, sidecar: Any) -> str:
        if entry.stem == names[2]:
            raise OSError("the disk is gone")
        return whole(importer, entry, sidecar)

    monkeypatch.setattr(EntryImporter, "_store", failing)
    with pytest.raises(OSError, match="disk is gone"):
        imported(target, data)
    assert stems(target) == names[:2]
    monkeypatch.undo()
    assert [each.state for each in imported(target, data)] == ["present", "present", "imported", "imported"]
    assert [each.state for each in imported(target, data)] == ["present"] * 4


def test_a_damaged_entry_makes_room_and_its_neighbours_stay(source: Path, target: Path, store: Store) -> None:
    names = [store(name=f"n{number}", body=f"model {number}", directory=source).stem for number in range(3)]
    data = exported(source, "k")
    imported(target, data)
    (target / f"{names[1]}.om").write_bytes(om_bytes("damaged"))
    assert [each.state for each in imported(target, data)] == ["present", "imported", "present"]
    assert [each.state for each in imported(target, data)] == ["present"] * 3


def test_an_entry_without_a_sidecar_is_known_by_its_content(target: Path, store: Store) -> None:
    for number in range(3):
        stem = store(name=f"n{number}", body=f"model {number}", directory=target).stem
        (target / f"{stem}.gecli.json").unlink()
    present = PresentEntries(str(target), "k")

    def found(body: str) -> list[str]:
        om = ArchivedFile("x.om", 1, hashlib.sha256(om_bytes(body)).hexdigest())
        return [record.stem for record in present.same_as(ArchivedEntry("k", "x", {".om": om}), None)]

    assert [found(f"model {number}") for number in range(4)] == [[each] for each in stems(target)] + [[]]
    present.remove(stems(target)[1])
    assert found("model 1") == []
    om = ArchivedFile("new.om", 1, hashlib.sha256(om_bytes("model 1")).hexdigest())
    present.add(new_record("k", "new", has_rdcpkt=False), None, ArchivedEntry("k", "new", {".om": om}))
    assert found("model 1") == ["new"]


def test_an_entry_without_a_sidecar_is_known_by_its_variables_too(target: Path, store: Store) -> None:
    stem = store(rdcpkt=b"\x0a\x00", directory=target).stem
    (target / f"{stem}.gecli.json").unlink()
    present = PresentEntries(str(target), "k")
    om = ArchivedFile("x.om", 1, hashlib.sha256(om_bytes("model")).hexdigest())

    def found(rdcpkt: bytes | None) -> list[str]:
        files = {".om": om}
        if rdcpkt is not None:
            files[".rdcpkt"] = ArchivedFile("x.rdcpkt", 1, hashlib.sha256(rdcpkt).hexdigest())
        return [record.stem for record in present.same_as(ArchivedEntry("k", "x", files), None)]

    assert (found(b"\x0a\x00"), found(b"\x12\x00"), found(None)) == ([stem], [], [])


def test_an_entry_whose_sidecar_cannot_be_read_is_known_by_its_name(target: Path, store: Store) -> None:
    stem = store(directory=target).stem
    (target / f"{stem}.gecli.json").write_bytes(b"{")
    present = PresentEntries(str(target), "k")
    om = ArchivedFile("x.om", 1, "0" * 64)
    assert [each.stem for each in present.same_as(ArchivedEntry("k", stem, {".om": om}), None)] == [stem]
    assert present.same_as(ArchivedEntry("k", "other", {".om": om}), None) == []
