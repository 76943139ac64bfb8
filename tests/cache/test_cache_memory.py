"""The JSON files and archives of a cache are read in less than twice the file and 64 MiB, whatever they say."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from gecli.cache.archive import MANIFEST, SCHEMA, DamagedArchive, reading
from gecli.cache.digest import digest_of_json, digest_of_large_json
from gecli.json_text import GRAPHS, TooManyValues, parse_json
from tests.artifacts.hostile_graphs import repeated
from tests.artifacts.test_om_memory import ALLOWED_BYTES, MIB, measured

SIZE = 4 * MIB
KEY = "K"
WIDE = "\N{GRINNING FACE}".encode()  # one character of four bytes makes each one of the text as wide
# Values of SIZE bytes. The first ones are refused, the others have just as many members as a file may have.
REFUSED: dict[str, Callable[[], bytes]] = {
    "lists": lambda: listed(b"[],"),
    "lists of one": lambda: listed(b"[0],"),
    "objects": lambda: listed(b'{"a":0},'),
    "numbers": lambda: listed(b"999,"),
    "small texts": lambda: listed(b'"ab",'),
    "different texts": lambda: b"[" + repeated(lambda k: b'"%x",' % k, SIZE) + b"1]",
    "keys": lambda: b"{" + repeated(lambda k: b'"%x":1,' % k, SIZE) + b'"z":1}',
    "nesting": lambda: b"[" * (SIZE // 2) + b"]" * (SIZE // 2),
}
READ: dict[str, Callable[[], bytes]] = {
    "texts": lambda: b"[" + repeated(lambda k: b'"%07x",' % k, SIZE) + b"1]",
    "longer keys": lambda: b"{" + repeated(lambda k: b'"%013x":"%013x",' % (k, k), SIZE) + b'"z":1}',
    "a wide text": lambda: b'"' + b"a" * (SIZE - 6) + WIDE + b'"',
    "halves of pairs": lambda: b'["\\udc80",' + repeated(lambda k: b'"%07x",' % k, SIZE) + b"1]",
}
CONTENTS = {**{name: REFUSED[name] for name in ("keys", "lists of one")}, **READ}


def listed(piece: bytes) -> bytes:
    return b"[" + piece * (SIZE // len(piece)) + b"1]"


def index(folder: Path, value: bytes) -> Path:
    path = folder / f"{KEY}.idx"
    path.write_bytes(b'{"cache_file_list":[{"graph_key":"K","cache_file_name":"K.om","x":' + value + b"}]}")
    return path


def elements(folder: Path, value: bytes) -> Path:
    path = folder / f"{KEY}.idx"
    path.write_bytes(b'{"cache_file_list":' + value + b"}")
    return path


def slices(folder: Path, value: bytes) -> Path:
    path = folder / "jit" / "slicing_hierarchy" / KEY / "gecli_slicing.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"schema":1,"slices":' + value + b"}")
    return path


def weights(folder: Path, value: bytes) -> Path:
    path = folder / "weight" / "meta.json"
    path.parent.mkdir()
    path.write_bytes(b'{"hash_to_weight_file":' + value + b',"hash_to_weight_offset":{}}')
    return path


def archive(folder: Path, value: bytes) -> Path:
    path = folder.parent / "cache.tar"
    content = b'{"schema":"%s","weights":[],"entries":%s}' % (SCHEMA.encode(), value)
    path.write_bytes(member(MANIFEST, content) + bytes(1024))
    return path


def member(name: str, content: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = len(content), kind
    return info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512)


COMMANDS: dict[str, tuple[Callable[[Path, bytes], Path], list[str]]] = {
    "index": (index, ["cache", "verify", "--cache-dir", "{folder}"]),
    "elements": (elements, ["inspect-om", "{path}"]),
    "slices": (slices, ["cache", "verify", "--cache-dir", "{folder}"]),
    "weights": (weights, ["cache", "verify", "--cache-dir", "{folder}"]),
    "archive": (archive, ["cache", "import", "{path}", "--cache-dir", "{folder}"]),
}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("kind", COMMANDS)
def test_a_hostile_file_of_the_cache_stays_within_the_bound(kind: str, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    write, words = COMMANDS[kind]
    path = write(folder, CONTENTS[name]())
    peak, status, _ = measured("-m", "gecli", *[word.format(path=path, folder=folder) for word in words])
    limit = 2 * path.stat().st_size + ALLOWED_BYTES
    assert status in (0, 1, 3) and peak < limit, f"{peak / MIB:.1f} MiB of {limit / MIB:.1f}, status {status}"


@pytest.mark.parametrize("name", REFUSED)
def test_a_record_of_too_many_values_is_refused_before_it_is_read(name: str) -> None:
    with pytest.raises(TooManyValues, match="characters of a real file do not have"):
        parse_json(REFUSED[name]())


@pytest.mark.parametrize(
    "real",
    [
        {"cache_file_name": "/cache/resnet50_20261130_120520.om", "graph_key": "resnet50", "var_desc_file_name": ""},
        {"key": "a", "files": [{"name": "a.om", "sha256": "0" * 64, "size_bytes": 1}] * 3, "weights": ["w" * 40]},
        {"0" * 64: "/cache/weight/weight_" + "0" * 64},
        {"id": 0, "outputs": [["node", 0]], "slice_fp": "sha256:" + "0" * 64, "pb_sha256": "0" * 64, "hits": {}},
    ],
    ids=["index", "archive", "meta", "slices"],
)
def test_records_have_room(real: object) -> None:
    text = json.dumps(real, indent=4)
    assert parse_json(f"[{','.join([text] * (2 * MIB // len(text)))}]")


def test_the_description_of_a_checkpoint_has_room_at_any_size() -> None:
    shape = [1024, 1024]
    form = {"dtype": "DT_FLOAT", "format": "ND", "shape": shape, "stored_dtype": "DT_FLOAT16", "stored_shape": shape}
    text = json.dumps({"layer/kernel": {**form, "stored_format": "FRACTAL_NZ", "raw": False, "sha256": "0" * 64}})
    assert parse_json(f"[{','.join([text] * (16 * MIB // len(text)))}]", room=GRAPHS)


@pytest.mark.parametrize("text", ['["a", {"\\ud800": 1}]', '{"a": ["b", "\\ud800"]}', '"\\ud800"', '[[], "\\ud83d"]'])
def test_half_of_a_pair_is_found_wherever_it_stands(text: str) -> None:
    with pytest.raises(ValueError, match=r"\\ud8(00|3d) is one half of a surrogate pair"):
        parse_json(text)
    assert parse_json(text.replace("\\ud800", "\\ud83d\\ude00").replace('"\\ud83d"', '"x"'))


def test_a_digest_in_pieces_is_the_same() -> None:
    value = {"b": [1, 2.5, None, True, "\N{GRINNING FACE}"], "a": {"y": [], "x": {}}, "c": "\udc80"}
    assert digest_of_large_json(value) == digest_of_json(value)


def extended(count: int, kind: bytes, content: bytes = b"8 a=bcd\n") -> bytes:
    return member("x", content, kind) * count


def records(size: int, number: int = 0) -> bytes:
    """Members of an extended header, no two of one name."""
    return repeated(lambda k: b"%d %02x%06x=\n" % (13, number, k), size)


MANIFEST_ONLY = member(MANIFEST, b'{"schema":"%s","weights":[],"entries":[]}' % SCHEMA.encode()) + bytes(1024)
HEADERS: dict[str, Callable[[], bytes]] = {
    "thousands of extended headers": lambda: extended(4096, b"x"),
    "thousands of global headers": lambda: extended(4096, b"g"),
    "thousands of long names": lambda: extended(4096, b"L", b"name\0"),
    "large extended headers": lambda: b"".join(extended(1, b"x", records(MIB - 4096)) for _ in range(4)),
    "large global headers": lambda: b"".join(extended(1, b"g", records(MIB - 4096)) for _ in range(4)),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_of_an_archive_stay_within_the_bound(name: str, tmp_path: Path) -> None:
    path, folder = tmp_path / "cache.tar", tmp_path / "cache"
    folder.mkdir()
    path.write_bytes(HEADERS[name]() + MANIFEST_ONLY)
    with pytest.raises(DamagedArchive, match="the headers of a member have more than 65536 bytes"), reading(str(path)):
        pass
    peak, status, _ = measured("-m", "gecli", "cache", "import", str(path), "--cache-dir", str(folder))
    assert status == 3 and peak < 2 * path.stat().st_size + ALLOWED_BYTES, f"{peak / MIB:.1f} MiB"


def test_what_is_said_of_all_members_is_not_kept(tmp_path: Path) -> None:
    """Each member has global headers of its own, which are as many as its headers may be."""
    names = [f"weight_{k:032x}" for k in range(60)]
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    files = [{"name": name, "size_bytes": 0, "sha256": empty} for name in names]
    listing = json.dumps({"schema": SCHEMA, "entries": [], "weights": files}).encode()
    path = tmp_path / "cache.tar"
    heads = [extended(1, b"g", records(60_000, k)) for k in range(len(names))]
    parts = [head + member(f"weight/{name}", b"") for head, name in zip(heads, names)]
    path.write_bytes(member(MANIFEST, listing) + b"".join(parts) + bytes(1024))
    tracemalloc.start()
    try:
        with reading(str(path)) as found:
            assert [file.name for file in found.manifest.weights] == names
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size * 2
    finally:
        tracemalloc.stop()


def test_headers_as_other_tools_write_them_are_read(tmp_path: Path) -> None:
    path = tmp_path / "cache.tar"
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "c" * 999}) as tar:
        content = MANIFEST_ONLY[512 : 512 + int(MANIFEST_ONLY[124:135], 8)]
        info = tarfile.TarInfo(MANIFEST)
        info.size, info.mtime, info.uname = len(content), 1.5, "\N{GREEK SMALL LETTER ALPHA}" * 20  # type: ignore[assignment]  # pax has fractions
        tar.addfile(info, io.BytesIO(content))
    path.write_bytes(stream.getvalue())
    with reading(os.fspath(path)) as found:
        assert found.manifest.is_empty
