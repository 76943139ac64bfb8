"""Every kind of failure: one line with the file, the kind, the offset and the numbers; which command refuses it how."""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gecli.artifacts.om_file import read_om
from gecli.artifacts.part_faults import part_faults
from gecli.errors import Diagnostic, InputError

from . import spec_om as spec

FLOAT = 1


def data_op(name: str = "x") -> bytes:
    desc = spec.descriptor(FLOAT, [2])
    return spec.operator(name, "Data", 0, [""], {"index": spec.attr_i(0)}, [desc], [desc], output_i=[0])


def relu(source: str, name: str = "y") -> bytes:
    desc = spec.descriptor(FLOAT, [2])
    return spec.operator(name, "Relu", 1, [source], {}, [desc], [desc], input_i=[0], output_i=[512])


def net_output(source: str = "y:0") -> bytes:
    name, _, index = source.rpartition(":")
    return spec.operator("out", "NetOutput", 2, [source], {}, [spec.descriptor(FLOAT, [2])], input_i=[512],
                         sources=[(name, int(index))])  # fmt: skip


ATTRS = {"memory_size": spec.attr_i(2048)}
SOUND = spec.model("m", [spec.graph("m_0", [data_op(), relu("x:0"), net_output()])], ATTRS)
TASKS = spec.task_info([spec.number(2, 19)], 2048, 1024)


def om(model: bytes = SOUND, extra: spec.Parts | None = None, **options: int) -> bytes:
    return spec.om_wide([(0, model), (1, bytes(1024)), (2, TASKS), *(extra or [])], **options)


def graphs(*operators: bytes, more: tuple[bytes, ...] = (), attrs: dict[str, bytes] | None = None) -> bytes:
    return om(spec.model("m", [spec.graph("m_0", operators), *more], ATTRS | (attrs or {})))


def patched(data: bytes, place: int, new: bytes) -> bytes:
    return data[:place] + new + data[place + len(new) :]


def calls(name: str, subgraph: str) -> bytes:
    return spec.operator(name, "PartitionedCall", 0, subgraphs=[subgraph])


def constant(size: int, offset: int) -> bytes:
    desc = spec.descriptor(FLOAT, [size // 4], weight_size=size, data_offset=offset)
    value = {"value": spec.attr_t(spec.tensor(desc))}
    return spec.operator("w", "Const", 1, (), value, (), [spec.descriptor(FLOAT, [size // 4])], output_i=[offset])


def zipped(name: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, "{}")
    return stream.getvalue()


def signed(data: bytes) -> bytes:
    """With the digest of a payload that differs in the last byte."""
    other = hashlib.sha256(data[256:-1] + bytes([data[-1] ^ 1])).digest()
    return patched(data, 12, other + bytes(26) + b"gecli1")


@dataclass(frozen=True)
class Fault:
    """A file, its kind and code, where the fault is, and the numbers that the line names."""

    data: bytes
    kind: str
    code: str
    offset: int
    numbers: tuple[object, ...] = ()


def end_of(data: bytes, needle: bytes) -> int:
    return data.index(needle)


SIZE = len(om())
BROKEN_PROTO = patched(om(), 256 + 80 + 1, b"\xff\xff\xff\xff\x0f")
TWO_TABLES = om(model_num=2)
KERNELS = om(extra=[(3, spec.kernel("a", b"b") + b"junk")])
LIBRARIES = om(extra=[(5, struct.pack("<I", 3) + spec.libraries(("a.so", "v", 1, b"x"))[4:])])
TILING = om(extra=[(12, spec.tiling((0, b"abc"))[:-1])])
INOUT = om(extra=[(8, spec.block(0, struct.pack("<I", 1 << 30)))])
FLOW = spec.om_wide([(0, SOUND), (7, b""), (6, b"")], modeltype=3)
BUNDLE = spec.om_bundle([om()])
DANGLING = graphs(data_op(), relu("gone:0"), net_output())
NO_OUTPUT = graphs(data_op(), relu("x:7"), net_output())
CONTROL = graphs(data_op(), relu("x:0"), spec.operator("out", "NetOutput", 2, ["y:0", "ghost:-1"], {},
                                                       [spec.descriptor(FLOAT, [2])]))  # fmt: skip
MISSING = graphs(data_op(), calls("call", "nowhere"))
CYCLE = graphs(data_op(), calls("a", "sub"), more=(spec.graph("sub", [calls("b", "m_0")]),))
NEGATIVE = graphs(data_op(), constant(64, -8))
OUTSIDE = graphs(data_op(), constant(512, 1000))
NAMES = graphs(spec.operator("n", "Relu", 0, (), {"\0\x05": spec.attr_i(0)}),
               attrs=spec.Dictionary(["a"], [], [False]).attrs())  # fmt: skip

FIRST_TABLE, SECOND_TABLE = 256, SIZE
HARD: dict[str, Fault] = {
    "random bytes": Fault(b"\x75\x57\x03\xa4" * 100, "not-om", "G3001", 0, ("75 57 03 a4",)),
    "empty": Fault(b"", "not-om", "G3001", 0),
    "other ZIP": Fault(zipped("word.xml"), "not-om", "G3001", 0, (len(zipped("word.xml")),)),
    "other ZIP with a manifest": Fault(zipped("a/b/manifest.json"), "not-om", "G3001", 0,
                                       (len(zipped("a/b/manifest.json")),)),
    "LFS pointer": Fault(b"version https://git-lfs.github.com/spec/v1\n", "git-lfs-pointer", "G3001", 0, (43,)),
    "half a header": Fault(om()[:100], "truncated", "G3002", 100, (100, 256)),
    "cut": Fault(om()[:-1], "truncated", "G3002", SIZE - 1, (SIZE - 256, SIZE - 257)),
    "cut narrow": Fault(spec.om_narrow([(0, SOUND)])[:-2], "truncated", "G3002",
                        256 + len(SOUND) + 14,
                        (len(SOUND) + 16, len(SOUND) + 14)),
    "cut bundle": Fault(patched(BUNDLE, 0, b"IMOD\0\1\0\0\0\0\0\x20")[:-1], "truncated", "G3002",
                        len(BUNDLE) - 1, (len(BUNDLE), len(BUNDLE) - 1)),
    "longer": Fault(om() + b"x", "trailing-bytes", "G3002", SIZE, (SIZE - 256, SIZE - 255)),
    "is_encrypt 7": Fault(patched(om(), 80, b"\7"), "bad-header", "G3009", 80, (7,)),
    "headsize": Fault(patched(om(), 4, b"\0\2\0\0"), "bad-header", "G3009", 4, (512, 256)),
    "no length": Fault(patched(om(), 184, bytes(8)), "bad-header", "G3009", 76, (0, SIZE)),
    "header only": Fault(spec.header_v2(0), "bad-header", "G3009", 76, (256,)),
    "encrypted": Fault(patched(om(), 80, b"\1"), "encrypted", "G3008", 80, (1,)),
    "OM2": Fault(zipped("root/manifest.json"), "om2", "G3008", 0, (len(zipped("root/manifest.json")),)),
    "SVP": Fault(b"PICO" + bytes(96), "svp", "G3008", 0, (100,)),
    "num 0": Fault(patched(om(), 256, bytes(4)), "bad-table", "G3003", 256, (0, 64)),
    "num 65": Fault(patched(om(), 256, b"\x41"), "bad-table", "G3003", 256, (65, 64)),
    "num 4 billion": Fault(patched(om(), 256, b"\xff" * 4), "bad-table", "G3003", 256, (0xFFFFFFFF, 64)),
    "num 64": Fault(patched(om(), 256, b"\x40"), "bad-table", "G3003", 256, (64, 8 + 64 * 24, SIZE - 256)),
    "twice": Fault(spec.om_wide([(0, SOUND), (1, b"a"), (1, b"b")]), "bad-table", "G3003", 256, (1, 2)),
    "flow order": Fault(FLOW, "bad-table", "G3003", 256, ("0, 7, 6",)),
    "flow of 2 models": Fault(spec.om_wide([(0, SOUND), (6, b"")], modeltype=3, model_num=2), "bad-table", "G3003",
                              156, (2, "model 1")),
    "second model missing": Fault(TWO_TABLES, "bad-table", "G3003", SIZE, ("model 1", 0)),
    "model_num 4 billion": Fault(patched(om(), 156, b"\xff" * 4), "bad-table", "G3003", 156, (0xFFFFFFFF,)),
    "bundle order": Fault(patched(BUNDLE, 264 + 24, struct.pack("<I", 25)), "bad-table", "G3003", 256, ("25, 25",)),
    "bundle model_num": Fault(patched(BUNDLE, 156, b"\5"), "bad-table", "G3003", 156, (5, 1)),
    "outside": Fault(patched(om(), 264 + 48 + 16, b"\xff" * 8), "bad-partition", "G3003", 264 + 48, ((1 << 64) - 1,)),
    "offset of its own": Fault(patched(om(), 264 + 24 + 8, b"\1"), "bad-partition", "G3003", 264 + 24, (len(SOUND),)),
    "gap at the end": Fault(patched(om(), 264 + 48 + 16, b"\1\0"), "bad-partition", "G3003", SIZE - len(TASKS) + 1,
                            (SIZE, SIZE - len(TASKS) + 1)),
    "bundle gap": Fault(patched(BUNDLE, 264 + 24 + 8, struct.pack("<Q", 1)), "bad-partition", "G3003", 264 + 24,
                        (1, 64)),
    "broken MODEL_DEF": Fault(BROKEN_PROTO, "bad-proto", "G3004", 336, (len(SOUND),)),
    "no MODEL_DEF": Fault(spec.om_wide([(1, bytes(1024)), (2, b"")]), "no-model-def", "G3010", 256, (0, 2)),
    "empty MODEL_DEF": Fault(spec.om_wide([(0, b""), (1, b"x")]), "no-model-def", "G3010", 256, (0,)),
}  # fmt: skip
SOFT: dict[str, Fault] = {
    "no such producer": Fault(DANGLING, "bad-graph", "G3011", end_of(DANGLING, relu("gone:0")) - 2, ("gone:0", 0)),
    "no such output": Fault(NO_OUTPUT, "bad-graph", "G3011", end_of(NO_OUTPUT, relu("x:7")) - 2, (7, 1)),
    "no such control": Fault(CONTROL, "bad-graph", "G3011", end_of(CONTROL, b"\x0a\x03out") - 2, ("ghost", -1)),
    "no such subgraph": Fault(MISSING, "bad-graph", "G3011", end_of(MISSING, b"\x0a\x03m_0"), ("nowhere", 1)),
    "subgraphs in a circle": Fault(CYCLE, "bad-graph", "G3011", end_of(CYCLE, b"\x0a\x03m_0"),
                                   ("m_0 -> sub -> m_0", 2)),
    "constant outside": Fault(OUTSIDE, "bad-weights", "G3012", end_of(OUTSIDE, b"\x0a\x01w") - 2, (512, 1000, 1024)),
    "constant before": Fault(NEGATIVE, "bad-weights", "G3012", end_of(NEGATIVE, b"\x0a\x01w") - 2, (64, -8, 1024)),
    "kernel store": Fault(KERNELS, "bad-kernels", "G3013", len(KERNELS) - 4, (1, 4, 12)),
    "library store": Fault(LIBRARIES, "bad-kernels", "G3013", len(LIBRARIES) - 26, (3, 1)),
    "tiling": Fault(TILING, "bad-kernels", "G3013", len(TILING) - 11, (8, 7)),
    "attribute name": Fault(NAMES, "bad-attr-enum", "G3014", end_of(NAMES, b"\x0a\x01n") - 2, (4, 1)),
    "inputs and outputs": Fault(INOUT, "bad-inout", "G3015", len(INOUT), (1 << 30, 0)),
    "digest": Fault(signed(om()), "bad-checksum", "G3006", 12, (SIZE - 256,)),
    "task list": Fault(spec.om_wide([(0, SOUND), (1, bytes(1024)), (2, b"\xcd\xab\xcd\xab")]), "bad-proto", "G3004",
                       len(om()) - len(TASKS), (4,)),
}  # fmt: skip


def check_line(line: str, path: str, fault: Fault) -> None:
    """One line with all that is asked for."""
    assert "\n" not in line and line.startswith(f"{path}: {fault.kind}: "), line
    assert line.endswith(f"(offset {fault.offset})"), line
    for number in fault.numbers:
        assert re.search(rf"(?<![\w-]){re.escape(str(number))}(?!\w)", line), (number, line)


def faults_of(path: Path) -> list[Diagnostic]:
    """All that the reader says about a file, the first error first."""
    found = read_om(path)
    model = found.model()
    problem = found.verify_checksum()
    return [*model.problems, *part_faults(found), *([problem] if problem else [])]


@pytest.mark.parametrize("name", HARD)
def test_what_cannot_be_read_raises_one_line(name: str, tmp_path: Path) -> None:
    fault = HARD[name]
    path = tmp_path / "case.om"
    path.write_bytes(fault.data)
    with pytest.raises(InputError) as caught:
        faults_of(path)
    (found,) = caught.value.diagnostics
    assert (found.kind, found.code, found.exit_status, found.offset, found.file) == (
        fault.kind, fault.code, 3, fault.offset, str(path),
    )  # fmt: skip
    check_line(found.message, str(path), fault)


@pytest.mark.parametrize("name", SOFT)
def test_what_is_wrong_inside_is_a_problem_in_one_line(name: str, tmp_path: Path) -> None:
    fault = SOFT[name]
    path = tmp_path / "case.om"
    path.write_bytes(fault.data)
    (found,) = faults_of(path)
    assert (found.kind, found.code, found.severity, found.offset) == (fault.kind, fault.code, "error", fault.offset)
    check_line(found.message, str(path), fault)


def test_every_kind_of_failure_has_a_case() -> None:
    assert {fault.kind for fault in (*HARD.values(), *SOFT.values())} == {
        "not-om", "truncated", "trailing-bytes", "bad-header", "encrypted", "om2", "svp", "git-lfs-pointer",
        "bad-table", "bad-partition", "bad-proto", "no-model-def", "bad-graph", "bad-weights", "bad-kernels",
        "bad-attr-enum", "bad-inout", "bad-checksum",
    }  # fmt: skip


# ---------------------------------------------------------------- the command line


Gecli = Callable[..., subprocess.CompletedProcess[str]]
VIEW_OF = {"bad-kernels": "--kernels", "bad-inout": "--io", "bad-proto": "--tasks", "bad-checksum": "--summary"}


def lines_of(text: str, fault: Fault, severity: str) -> list[str]:
    head = f"{severity}[{fault.code}]: "
    return [line.removeprefix(head) for line in text.splitlines() if line.startswith(head)]


# One command for all files: it goes on behind a bad one and says one line each.
def test_inspect_om_names_every_unreadable_file_in_one_line(gecli: Gecli,
                                                            tmp_path: Path) -> None:  # fmt: skip
    names = [f"f{k}.om" for k in range(len(HARD))]
    for name, fault in zip(names, HARD.values()):
        (tmp_path / name).write_bytes(fault.data)
    done = gecli("inspect-om", *names)
    assert done.returncode == 3 and "Traceback" not in done.stderr
    said = [line.partition("]: ")[2] for line in done.stderr.splitlines() if line.startswith("error[")]
    for name, (case, fault) in zip(names, HARD.items()):
        own = [line for line in said if line.startswith(f"{name}: ")]
        assert len(own) == 1, (case, own)
        check_line(own[0], name, fault)


FOREIGN = {
    "page.om": b"<html>404</html>", "packed.om": b"\x1f\x8b\x08" + bytes(20), "program.om": b"\x7fELF" + bytes(64),
    "array.om": b"\x93NUMPY\x01\0" + bytes(64), "keras.om": b"\x89HDF\r\n\x1a\n" + bytes(64),
    "lite.om": b"\0\0\0\0TFL3" + bytes(64), "pickle.om": b"\x80\x04\x95.",
    "report.om": b'{"schema": "gecli.compile/1"}', "graph.om": b'{"nodes": [], "links": []}',
}  # fmt: skip


@pytest.mark.parametrize("command", ["inspect-om", "run"])
def test_what_another_program_wrote_is_named_in_one_line_with_its_size(
    command: str, gecli: Gecli, tmp_path: Path
) -> None:
    for name, data in FOREIGN.items():
        (tmp_path / name).write_bytes(data)
    files = [list(FOREIGN)] if command == "inspect-om" else [[name] for name in list(FOREIGN)[:2]]
    for names in files:
        done = gecli(command, *names)
        said = [line for line in done.stderr.splitlines() if line.startswith("error[")]
        assert (done.returncode, len(said)) == (3, len(names))
        for name, line in zip(names, said, strict=True):
            assert line.startswith(f"error[G3001]: {name}: not-om: this ") and line.endswith(
                f": {len(FOREIGN[name])} bytes (offset 0)"
            )


@pytest.mark.parametrize(
    ("second", "kind"),
    [([(1, b"x")], "no-model-def"), ([(0, b"\xff" * 9)], "bad-proto"),
     ([(0, spec.model("s", [spec.graph("s_0", [relu("gone:0")])]))], "bad-graph"),
     ([(0, spec.model("s", [spec.graph("s_0", [constant(64, 0)])]))], "bad-weights")],
)  # fmt: skip
def test_run_refuses_a_file_whose_second_model_is_damaged(
    second: spec.Parts, kind: str, gecli: Gecli, tmp_path: Path
) -> None:
    root = [(0, SOUND), (1, bytes(1024)), (2, TASKS)]
    (tmp_path / "good.om").write_bytes(spec.om_wide(root, [(0, SOUND)], dynamic=True))
    (tmp_path / "case.om").write_bytes(spec.om_wide(root, second, dynamic=True))
    assert part_faults(read_om(tmp_path / "good.om")) == []
    done = gecli("run", "case.om")
    assert done.returncode == 3 and f"case.om: {kind}: " in done.stderr.splitlines()[0]


@pytest.mark.parametrize("name", ["cut", "num 0", "outside", "broken MODEL_DEF", "no MODEL_DEF", "encrypted", "OM2"])
@pytest.mark.parametrize("command", ["inspect-om", "run"])
def test_a_command_refuses_an_unreadable_file_with_status_3(
    command: str, name: str, gecli: Gecli, tmp_path: Path
) -> None:
    (tmp_path / "case.om").write_bytes(HARD[name].data)
    done = gecli(command, "case.om")
    (line,) = lines_of(done.stderr, HARD[name], "error")
    check_line(line, "case.om", HARD[name])
    assert done.returncode == 3 and "Traceback" not in done.stderr


@pytest.mark.parametrize("name", SOFT)
def test_inspect_om_warns_and_run_refuses(name: str, gecli: Gecli, tmp_path: Path) -> None:
    fault = SOFT[name]
    (tmp_path / "case.om").write_bytes(fault.data)
    view = VIEW_OF.get(fault.kind, "--summary")
    shown = gecli("inspect-om", "case.om", view)
    (line,) = lines_of(shown.stderr, fault, "warning")
    check_line(line, "case.om", fault)
    assert shown.returncode == 0
    strict = gecli("inspect-om", "case.om", view, "--strict", "--json")
    assert strict.returncode == 3 and len(lines_of(strict.stderr, fault, "error")) == 1
    assert [each["kind"] for each in json.loads(strict.stdout)["warnings"]] == [fault.kind]
    ran = gecli("run", "case.om")
    (line,) = lines_of(ran.stderr, fault, "error")
    check_line(line, "case.om", fault)
    assert ran.returncode == 3 and "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("bundle", BUNDLE),
        ("flow", spec.om_wide([(0, SOUND), (6, b"")], modeltype=3)),
        ("preload", spec.om_nano([(20, b"abc"), (21, b"d")])),
    ],
)
def test_structures_are_listed_and_not_run(kind: str, data: bytes, gecli: Gecli, tmp_path: Path) -> None:
    (tmp_path / "case.om").write_bytes(data)
    shown = gecli("inspect-om", "case.om")
    assert (shown.returncode, kind in shown.stdout) == (0, True)
    ran = gecli("run", "case.om")
    assert ran.returncode == 3
    assert f"error[G3008]: case.om: {kind}: not supported: {kind}" in ran.stderr


def test_a_newer_version_is_a_warning_everywhere(gecli: Gecli, tmp_path: Path) -> None:
    (tmp_path / "case.om").write_bytes(om(version=0x20000005))
    words = "warning[G3005]: case.om: newer-version: file version 0x20000005 is newer than 0x20000000 (offset 8)"
    for command in (["inspect-om", "case.om", "--strict"], ["run", "case.om"]):
        done = gecli(*command)
        assert (done.returncode, words in done.stderr) == (0, True), done.stderr


def test_of_several_faults_the_first_in_the_stated_order_is_told(tmp_path: Path) -> None:
    path = tmp_path / "case.om"
    operators = [data_op(), constant(512, 1000), relu("gone:0"), net_output()]
    path.write_bytes(signed(graphs(*operators)))
    with pytest.raises(InputError) as caught:
        read_om(path).model().require_sound()
    assert [problem.kind for problem in caught.value.diagnostics] == ["bad-graph", "bad-weights"]


def test_run_checks_the_digest_of_small_files_and_inspect_strict_that_of_all(
    gecli: Gecli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/inspect-om.md says: a damaged weight of a large file is not noticed by a run."""
    from gecli.runtime import session

    data = bytearray(om())
    digest = hashlib.sha256(bytes(data[256:])).digest()
    data[12:44], data[70:76] = digest, b"gecli1"
    path = tmp_path / "d.om"
    path.write_bytes(data)
    session.Session().load(path)
    data[-1000] ^= 1  # among the weights, which no node reads
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        session.Session().load(path)
    assert caught.value.kind == "bad-checksum"
    monkeypatch.setattr(session, "CHECKSUM_LIMIT_BYTES", 100)
    session.Session().load(path)
    done = gecli("inspect-om", "--strict", str(path))
    assert done.returncode == 3 and "bad-checksum" in done.stderr
