"""--explain-cache says why there is no hit, with -q and in the document too."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, Gecli

DIGITS = str(REPOSITORY / "samples/digits/digits.onnx")
CACHE = ("--cache-dir", "cache", "--explain-cache")
SHAPE = ("--input-shape", "image:1,1,8,8")


@pytest.fixture
def filled(gecli: Gecli, tmp_path: Path) -> str:
    """A cache with an entry of the model as `one.om`; the entry's name."""
    done = gecli("compile", DIGITS, "-o", "one", *SHAPE, *CACHE, "--cache-create")
    assert done.returncode == 0, done.stderr
    return next((tmp_path / "cache").glob("*.om")).stem


def test_another_output_name_is_the_reason_of_a_miss(gecli: Gecli, filled: str) -> None:
    done = gecli("compile", DIGITS, "-o", "two", *SHAPE, *CACHE)
    assert "cache=miss" in done.stdout
    assert f"cache: {filled}: the same model with other options\n" in done.stderr
    changed = "cache:   option model_name: 'one' in the entry, 'two' now (the OM holds the name of its output file)"
    assert [line for line in done.stderr.splitlines() if line.startswith("cache:   ")] == [changed]
    assert gecli("inspect-om", "two.om").stdout != gecli("inspect-om", "one.om").stdout


def test_another_directory_is_a_hit(gecli: Gecli, filled: str) -> None:
    assert "cache=hit" in gecli("compile", DIGITS, "-o", "elsewhere/one", *SHAPE, *CACHE).stdout


def test_what_changed_in_a_model_is_told_without_a_graph_key(gecli: Gecli, filled: str, tmp_path: Path) -> None:
    import numpy as np
    import onnx
    from onnx import numpy_helper

    model = onnx.load(DIGITS)
    changed = numpy_helper.to_array(model.graph.initializer[0]) + np.float32(1)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(changed, model.graph.initializer[0].name))
    onnx.save(model, tmp_path / "digits.onnx")
    asked = gecli("cache", "why", "digits.onnx", "-o", "one", *SHAPE, "--cache-dir", "cache")
    nearest = "the newest entry for this output name; other weights"
    assert f"  {filled}, under key {filled.rsplit('_', 2)[0]}: {nearest}\n" in asked.stdout
    done = gecli("compile", "digits.onnx", "-o", "one", *SHAPE, *CACHE)
    assert done.stderr.startswith(f"cache: no_entry\ncache: {filled}: {nearest}\n")
    assert f"cache:   weight {model.graph.initializer[0].name}" in done.stderr and asked.returncode == 1


@pytest.mark.usefixtures("filled")
def test_another_model_of_another_name_is_not_named(gecli: Gecli, tmp_path: Path) -> None:
    import onnx

    model = onnx.load(DIGITS)
    model.graph.node[0].name = "renamed"
    onnx.save(model, tmp_path / "digits.onnx")
    done = gecli("compile", "digits.onnx", "-o", "two", *SHAPE, *CACHE)
    assert done.stderr == "cache: no_entry\n"


def test_an_explanation_that_was_asked_for_is_given_with_quiet_too(gecli: Gecli, filled: str) -> None:
    done = gecli("compile", DIGITS, "-o", "two", *SHAPE, *CACHE, "-q")
    assert done.stdout == ""
    assert done.stderr.startswith(f"cache: no_entry\ncache: {filled}: the same model")
    document = gecli("compile", DIGITS, "-o", "three", *SHAPE, *CACHE, "-q", "--json")
    assert document.stderr == ""
    assert json.loads(document.stdout)["models"][0]["cache"]["explanation"][0] == "no_entry"


def explained(gecli: Gecli, *words: str) -> list[str]:
    done = gecli("compile", *words, *CACHE, "--graph-key", "k")
    assert done.returncode == 0, done.stderr
    return [line.removeprefix("cache: ") for line in done.stderr.splitlines() if line.startswith("cache: ")]


@pytest.fixture
def model(gecli: Gecli, tmp_path: Path) -> Path:
    """A model of the caller's own with an entry under key k."""
    import shutil

    shutil.copy(DIGITS, tmp_path / "m.onnx")
    (tmp_path / "cache").mkdir()
    assert explained(gecli, "m.onnx", "-o", "m", *SHAPE) == ["no_entry"]
    return tmp_path / "m.onnx"


def test_an_input_that_differs_is_shown_with_both_values(gecli: Gecli, model: Path) -> None:
    lines = explained(gecli, str(model), "-o", "m", "--input-shape", "image:2,1,8,8")
    assert lines[0].endswith(": fingerprint_mismatch (graph, options)")
    assert "  option input_shape: 'image:1,1,8,8' in the entry, 'image:2,1,8,8' now" in lines
    line = next(line for line in lines if line.startswith("  graph input image: "))
    assert line.index("[1,1,8,8]' in the entry") < line.index("[2,1,8,8]' now")
    # The option says it all: no list of nodes, whose digests tell nobody anything.
    assert lines[1].startswith("  option ")
    (nodes,) = [line for line in lines if " node" in line]
    assert re.fullmatch(r"  \d+ nodes differ: image, \S+, \S+ and \d+ more", nodes)


def test_a_weight_that_differs_is_named(gecli: Gecli, model: Path) -> None:
    import onnx
    from onnx import numpy_helper

    changed = onnx.load(model)
    weight = changed.graph.initializer[0]
    array = numpy_helper.to_array(weight).copy()
    array.flat[0] += 1
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    onnx.save(changed, model)
    lines = explained(gecli, "m.onnx", "-o", "m", *SHAPE)
    assert lines[0].endswith(": fingerprint_mismatch (weights)")
    assert [line for line in lines if line.startswith("  weight ")] == lines[1:]
    assert len(lines) == 2 and f"weight {weight.name}" in lines[1] and " in the entry, " in lines[1]


def test_a_node_that_differs_is_named(gecli: Gecli, model: Path) -> None:
    import onnx

    changed = onnx.load(model)
    old = changed.graph.node[0].name
    changed.graph.node[0].name = "renamed"
    onnx.save(changed, model)
    lines = explained(gecli, "m.onnx", "-o", "m", *SHAPE)
    assert "  node renamed: only now" in lines
    assert f"  node {old}: only in the entry" in lines
    assert any(re.fullmatch(r"  node \S+: changed", line) for line in lines)


@pytest.mark.usefixtures("model")
def test_a_tool_that_differs_is_shown_with_both_versions(gecli: Gecli, tmp_path: Path) -> None:
    sidecar = next((tmp_path / "cache").glob("*.gecli.json"))
    content = json.loads(sidecar.read_text())
    content["components"]["toolchain"]["numpy"] = "1.0"
    content["fingerprint"].update(combined="sha256:other", toolchain="sha256:other", requests=[])
    sidecar.write_text(json.dumps(content))
    lines = explained(gecli, "m.onnx", "-o", "m", *SHAPE)
    assert lines[0].endswith(": fingerprint_mismatch (toolchain)")
    assert len(lines) == 2 and lines[1].startswith("  toolchain numpy: '1.0' in the entry, '")


@pytest.mark.parametrize(
    ("words", "file", "start"),
    [
        ((), "em.txt", "graph "),
        (("--json",), "em.json", "{"),
        (("--emit", "json"), "em.json", "{"),
        (("-q",), "em.txt", "graph "),
    ],
)
def test_stop_after_writes_beside_the_output(
    gecli: Gecli, tmp_path: Path, words: tuple[str, ...], file: str, start: str
) -> None:
    done = gecli("compile", DIGITS, "--stop-after", "parse", "-o", "em", *words)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / file).read_text().startswith(start)
    assert "graph digits" not in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == [file]
    assert (f"wrote {file}" in done.stderr) == (words in ((), ("--json",)))
