"""Every command with every kind of bad file: one message of four parts, its status, nothing left behind."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gecli.cli.app import run
from tests.cli.bad_files import (
    KINDS,
    as_ordinary_user,
    check_document,
    check_message,
    contents,
    gecli_in,
    make,
    with_memory,
)
from tests.conftest import REPOSITORY

SAMPLES = REPOSITORY / "samples"
STATIC = ("--input-shape", "image:4,1,8,8")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one good file of every kind."""
    directory = tmp_path_factory.mktemp("good")
    shutil.copy(SAMPLES / "digits/digits.onnx", directory / "m.onnx")
    for name in ("conv_train.json", "w2.npy", "w3.npy"):
        shutil.copy(SAMPLES / "train" / name, directory / name)
    (directory / "cache").mkdir()
    for line in (
        ("compile", "m.onnx", "-o", "m.om", *STATIC, "--cache-dir", "cache", "--graph-key", "k"),
        ("compile", "conv_train.json", "-o", "t.om", "--train", "--session-out", "s.ses"),
        ("run", "t.om", "--init", "zero", "--save-vars", "v.npz", "--save-inputs", "i.npz"),
        ("run", "m.om", "--fill", "ones", "-o", "o.npz", "--save-inputs", "x.npz"),
    ):
        done = gecli_in(directory, *line)
        assert done.returncode == 0, done.stderr
    np.save(directory / "image.npy", np.ones((4, 1, 8, 8), np.float32))
    return directory


@pytest.fixture
def work(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "work"))


def refused(work: Path, words: list[str], status: int, count: int = 1) -> str:
    """Run the command, which fails and leaves the directory as it was; its messages."""
    before = contents(work)
    text = check_message(gecli_in(work, *words, prepare=as_ordinary_user), status, count)
    assert contents(work) == before
    return text


def refused_in_json(work: Path, words: list[str], status: int, text: str) -> None:
    before = contents(work)
    check_document(gecli_in(work, *words, "--json", prepare=as_ordinary_user), status, text)
    assert contents(work) == before


# What reads a file: the words, with `@` for the file's name without its suffix, and that suffix.
READERS: dict[str, tuple[str, str]] = {
    "compile": ("compile @.onnx -o o.om", ".onnx"),
    "compile json": ("compile @.json -o o.om", ".json"),
    "check": ("compile @.onnx --check", ".onnx"),
    "run": ("run @.om", ".om"),
    "inspect": ("inspect-om @.om", ".om"),
    "extract": ("inspect-om @.om --extract all --to out", ".om"),
    "npy": ("run m.om -i image=@.npy", ".npy"),
    "npz": ("run m.om -i @.npz -o out", ".npz"),
    "load-vars": ("run t.om --init zero --load-vars @.npz --save-vars n.npz", ".npz"),
    "set-var": ("run t.om --init zero --set-var w2=@.npy", ".npy"),
    "rdcpkt": ("run t.om --init zero --vars @.rdcpkt", ".rdcpkt"),
    "compare": ("run m.om --fill ones --compare @.npz", ".npz"),
    "session-in": ("compile conv_train.json -o o.om --train --session-in @.ses", ".ses"),
    "config": ("compile m.onnx -o o.om --config @.toml", ".toml"),
    "raw-ge-options": ("compile m.onnx -o o.om --raw-ge-options @.json", ".json"),
    "keep-dtype": ("compile m.onnx -o o.om --keep-dtype @.txt", ".txt"),
    "fusion-switch": ("compile m.onnx -o o.om --fusion-switch-file @.cfg", ".cfg"),
    "cache ls": ("cache ls --cache-dir @", ""),
    "cache gc": ("cache gc --cache-dir @", ""),
}
MAIN = ("compile", "run", "inspect", "npz")  # with every kind; the others with those that have bitten
OTHERS = ("missing", "directory", "unreadable", "pipe", "endless device", "git-lfs pointer", "html page")
ACCEPTED = {("cache ls", "directory"), ("cache gc", "directory")}  # an empty cache
# Options that are wrong, not files: a cache directory, or an option file whose content is no JSON, TOML or switch.
USAGE = {("raw-ge-options", "git-lfs pointer"), ("raw-ge-options", "html page"), ("cache ls", ""), ("cache gc", "")}


def line_of(reader: str, name: str) -> list[str]:
    words, suffix = READERS[reader]
    return [word.replace(f"@{suffix}", name) for word in words.split()]


def status_of(reader: str, kind: str) -> int:
    return 2 if {(reader, kind), (reader, "")} & USAGE else 3


RARE = ("noise", "zeros", "elf", "gzip", "pickle")
CASES = [
    pytest.param(reader, kind, id=f"{reader}: {kind}", marks=[pytest.mark.slow] if kind in RARE else [])
    for reader in READERS
    for kind in KINDS
    if (reader in MAIN or kind in OTHERS) and (reader, kind) not in ACCEPTED
]


@pytest.mark.parametrize(("reader", "kind"), CASES)
def test_a_bad_file_has_one_message(reader: str, kind: str, work: Path) -> None:
    name = make(kind, work / f"bad{READERS[reader][1]}")
    refused(work, line_of(reader, name), status_of(reader, kind))


@pytest.mark.parametrize("kind", ["missing", "unreadable", "html page", "noise"])
@pytest.mark.parametrize("reader", MAIN)
def test_a_bad_file_has_the_same_message_in_json(reader: str, kind: str, work: Path) -> None:
    words = line_of(reader, make(kind, work / f"bad{READERS[reader][1]}"))
    text = check_message(gecli_in(work, *words, prepare=as_ordinary_user), 3)
    refused_in_json(work, words, 3, text)


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("pytorch zip", "PyTorch"),
        ("tflite", "TFLite|TensorFlow Lite"),
        ("git-lfs pointer", "git-(lfs|LFS)"),
        ("html page", "HTML"),
        ("empty", "empty"),
        ("directory", "directory"),
        ("unreadable", "Permission denied"),
        ("missing", "No such file"),
    ],
)
@pytest.mark.parametrize("reader", ["compile", "run", "inspect"])
def test_a_foreign_file_is_named(reader: str, kind: str, word: str, work: Path) -> None:
    name = make(kind, work / f"bad{READERS[reader][1]}")
    assert re.search(word, gecli_in(work, *line_of(reader, name), prepare=as_ordinary_user).stderr)


WHOLE = {
    "compile": "m.onnx", "compile json": "conv_train.json", "run": "m.om", "inspect": "m.om", "npy": "image.npy",
    "npz": "x.npz", "load-vars": "v.npz", "set-var": "w2.npy", "rdcpkt": "t.rdcpkt", "session-in": "s.ses",
}  # fmt: skip


@pytest.mark.parametrize("part", [0.03, 0.5, 0.98])
@pytest.mark.parametrize("reader", WHOLE)
def test_a_truncated_file_has_one_message(reader: str, part: float, work: Path) -> None:
    data = (work / WHOLE[reader]).read_bytes()
    name = f"bad{READERS[reader][1]}"
    (work / name).write_bytes(data[: int(len(data) * part)])
    refused(work, line_of(reader, name), 3)


def test_every_unsupported_operator_is_listed_with_its_count(work: Path) -> None:
    types = ["Fancy", "Fancy", "Odd", "Relu", "Fancy", "Strange", "Odd"]
    nodes = [helper.make_node(kind, [f"t{k}"], [f"t{k + 1}"]) for k, kind in enumerate(types)]
    save(work / "u.onnx", nodes, [value("t0", 2)], "t7")
    words = ["compile", "u.onnx", "-o", "o.om"]
    text = refused(work, words, 3, count=4)
    assert "why: Fancy (3), Odd (2), Strange (1)" in text
    assert [line.split()[3] for line in text.splitlines() if line.startswith("error[E16002]")] == [
        "Fancy", "Odd", "Strange",
    ]  # fmt: skip
    refused_in_json(work, words, 3, text)


@pytest.mark.parametrize(
    ("shape", "code"),
    [
        ("nope:1,1,8,8", "E10016"),
        ("image:1,8,8", "E10049"),
        ("image:1,1,8,8,1", "E10049"),
        ("image:0,1,8,8", "E10011"),
        ("image:-4,1,8,8", "E10011"),
        ("image:a,1,8,8", "E10014"),
        ("image:1.5,1,8,8", "E10002"),
        ("image:99999999999999999999,1,8,8", "E10013"),
        ("image", "E10002"),
        ("image:", "E10049"),
        ("", "E10002"),
    ],
)
def test_a_wrong_input_shape_has_one_message(shape: str, code: str, work: Path) -> None:
    words = ["compile", "m.onnx", "-o", "o.om", f"--input-shape={shape}"]
    text = refused(work, words, 2)
    assert text.startswith(f"error[{code}]")
    refused_in_json(work, words, 2, text)


@pytest.mark.parametrize("content", ["", "garbage", "{", '{"a": 1', "\0\0", "[1,"])
def test_a_corrupt_cache_conf_stops_a_compile_and_nothing_else(content: str, work: Path) -> None:
    (work / "cache/cache.conf").write_text(content)
    words = ["compile", "m.onnx", "-o", "o.om", *STATIC, "--cache-dir", "cache", "--graph-key", "k"]
    refused_in_json(work, words, 2, refused(work, words, 2))
    for command in ("ls", "gc"):
        assert gecli_in(work, "cache", command, "--cache-dir", "cache").returncode == 0


@pytest.mark.parametrize("content", ["", "garbage", "{", '{"cache_file_list": 1}', "\0\0"])
def test_a_corrupt_index_is_a_warning_and_the_model_is_right(content: str, work: Path) -> None:
    (work / "cache/k.idx").write_text(content)
    words = ("compile", "m.onnx", "-o", "new/m.om", *STATIC, "--cache-dir", "cache", "--graph-key", "k")
    done = gecli_in(work, *words)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert (work / "new/m.om").read_bytes() == (work / "m.om").read_bytes()
    assert gecli_in(work, *words, "--require-cache").returncode == 0  # it was mended


@pytest.mark.parametrize("state", ["{}", "[]", "1", "null", '"ON"'])
def test_a_switch_that_is_neither_on_nor_off_is_refused(state: str, work: Path) -> None:
    (work / "s.cfg").write_text(f'{{"Switch": {{"GraphFusion": {{"ALL": {{"a": {state}}}}}}}}}')
    words = ["compile", "m.onnx", "-o", "o.om", "--fusion-switch-file", "s.cfg"]
    assert "not on or off" in refused(work, words, 2)


# ---------------------------------------------------------------- memory, and types that numpy lacks


def value(name: str, *dims: int, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, list(dims))


def save(
    path: Path, nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], output: str, *weights: onnx.TensorProto
) -> None:
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info(output)], weights)
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]), path)


@pytest.mark.parametrize("limit_mib", [400, 500])
def test_too_little_memory_for_an_input_is_said_so(limit_mib: int, tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((1, 1), np.float32), "w")
    save(tmp_path / "m.onnx", [helper.make_node("Add", ["x", "w"], ["y"])], [value("x", 4096, 8192)], "y", weight)
    assert gecli_in(tmp_path, "compile", "m.onnx", "-o", "m.om").returncode == 0
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((4096, 8192), np.float32))
    before = contents(tmp_path)
    done = gecli_in(
        tmp_path, "run", "m.om", "-i", "x.npz", "-o", "o.npz", prepare=with_memory(limit_mib << 20),
        OPENBLAS_NUM_THREADS="1",
    )  # fmt: skip
    assert "error[G4005]" in check_message(done, 6)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(12, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
        ImportError("\nOriginal error was: libx.so: failed to map segment from shared object\n"),
    ],
    ids=["allocation", "mapping", "thread", "library"],
)
def test_every_way_of_the_system_to_say_no_memory_is_one_message(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(path: str, *rest: object) -> None:
        raise error

    monkeypatch.setattr("gecli.cli.explain.explain", fail)
    assert run(["explain", "E10001"]) == 6
    assert re.match(r"error\[G4005\].*\n  --> .*\n  why: .*\n  do:  .*\n\Z", capsys.readouterr().err)


def test_an_exception_that_is_its_own_cause_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(path: str, *rest: object) -> None:
        error = ValueError("odd")
        raise error from error

    monkeypatch.setattr("gecli.cli.explain.explain", fail)
    assert run(["explain", "E10001"]) == 70
    assert "ValueError: odd" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("bfloat16", TensorProto.BFLOAT16),
        ("int4", TensorProto.INT4),
        ("float8_e4m3fn", TensorProto.FLOAT8E4M3FN),
        ("float8_e5m2", TensorProto.FLOAT8E5M2),
    ],
)
def test_types_that_numpy_saves_without_their_name_are_taken_for_inputs_of_that_type(
    name: str, number: int, work: Path
) -> None:
    save(work / "c.onnx", [helper.make_node("Cast", ["x"], ["y"], to=1)], [value("x", 2, 2, dtype=number)], "y")
    assert gecli_in(work, "compile", "c.onnx", "-o", "c.om").returncode == 0
    array = np.array([[1, 2], [3, -4]], np.float32).astype(getattr(ml_dtypes, name))
    np.save(work / "x.npy", array)
    np.savez(work / "x.npz", x=array)
    for file in ("x.npy", "x.npz"):
        done = gecli_in(work, "run", "c.om", "-i", file, "-o", "y.npz")
        assert done.returncode == 0, done.stderr
        np.testing.assert_array_equal(np.load(work / "y.npz")["y"], [[1, 2], [3, -4]])
    np.save(work / "image.npy", np.ones((4, 1, 8, 8), ml_dtypes.bfloat16))
    assert "without a type" in refused(work, ["run", "m.om", "-i", "image.npy"], 6)


@pytest.mark.parametrize("depth", [40, 100, 400])
def test_graphs_in_graphs_beyond_the_limit_have_their_own_cure(depth: int, work: Path) -> None:
    def field(number: int, data: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(data)) + data

    graph = field(2, b"g")
    for _ in range(depth):
        attribute = field(1, b"then_branch") + varint(20 << 3) + b"\x05" + field(6, graph)
        graph = field(1, field(1, b"c") + field(2, b"y") + field(4, b"If") + field(5, attribute)) + field(2, b"g")
    (work / "deep.onnx").write_bytes(b"\x08\x09" + field(7, graph))
    assert "do:  flatten the nested graphs" in refused(work, ["compile", "deep.onnx", "-o", "o.om"], 3)


def test_a_damaged_file_with_the_word_nested_in_it_is_not_called_deep(work: Path) -> None:
    (work / "nested.onnx").write_bytes((work / "m.onnx").read_bytes()[:2000])
    assert "flatten" not in refused(work, ["compile", "nested.onnx", "-o", "o.om"], 3)


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])
