"""Single operators from Python: compiled once for what they compute, with the results of numpy."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gecli.acl.single_op import SingleOps
from gecli.cli.app import run
from gecli.errors import GecliError

A = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "expected"),
    [
        ("Add", [A, A], {}, [A + A]),
        ("Mul", [A, np.float32(3)], {}, [A * 3]),
        ("Cast", [A], {"dst_type": 3}, [A.astype(np.int32)]),
        ("Reshape", [A, np.array([3, 2])], {}, [A.reshape(3, 2)]),
        ("TransposeD", [A], {"perm": [1, 0]}, [A.T]),
        ("ConcatD", [A, A], {"concat_dim": 0, "N": 2}, [np.concatenate([A, A])]),
        ("TopKV2", [A, np.array(2, np.int32)], {}, [A[:, ::-1][:, :2], np.array([[2, 1], [2, 1]], np.int32)]),
        ("NonZero", [A], {"transpose": True}, [np.array(np.nonzero(A))]),
    ],
)
def test_an_operator_gives_what_numpy_gives(
    op: str, inputs: list[Any], attrs: dict[str, Any], expected: list[NDArray[Any]]
) -> None:
    ops = SingleOps()
    for _ in range(2):
        found = ops.run(op, inputs, attrs)
        assert len(found) == len(expected)
        for have, want in zip(found, expected):
            np.testing.assert_array_equal(have, want)
    assert (ops.cache.counters.misses, ops.cache.counters.hits) == (1, 1)


def test_what_decides_the_computation_decides_the_model() -> None:
    ops = SingleOps()
    ops.run("Add", [A, A])
    ops.run("Add", [A[:1], A])
    ops.run("Add", [A.astype(np.float16), A.astype(np.float16)])
    ops.run("Add", [A, A], formats=["ND", "NCHW"])
    ops.run("SoftmaxV2", [A], {"axes": [-1]})
    ops.run("SoftmaxV2", [A], {"axes": [0]})
    ops.run("Reshape", [A, np.array([3, 2])])
    ops.run("Reshape", [A, np.array([6, 1])])
    ops.run("Add", [A + 1, A])
    assert (ops.cache.counters.misses, ops.cache.counters.hits) == (8, 1)


def test_the_first_outputs_alone_can_be_asked_for() -> None:
    (values,) = SingleOps().run("TopKV2", [A, np.array(1, np.int32)], outputs=1)
    np.testing.assert_array_equal(values, A[:, -1:])


def test_old_operators_are_aged() -> None:
    ops = SingleOps(max_models=2)
    for size in (1, 2, 3, 1):
        ops.run("Neg", [np.ones(size, np.float32)])
    assert len(ops.cache) == 2
    assert ops.cache.counters.misses == 4


def test_options_of_a_compile_count() -> None:
    (found,) = SingleOps(precision_mode_v2="fp16").run("Add", [A + 2049, np.zeros_like(A)])
    np.testing.assert_array_equal(found, (A + 2049).astype(np.float16).astype(np.float32))
    with pytest.raises(TypeError, match="no option 'colour'"):
        SingleOps(colour="red")


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "text"),
    [
        ("Nonsense", [A], {}, "'Nonsense'"),
        ("Add", [A, np.ones((2, 2), np.float32)], {}, "do not broadcast"),
        ("Add", [A], {}, "x2"),
        ("SoftmaxV2", [A], {"axis": 0}, "axes"),
        ("SoftmaxV2", [A], {"axes": "x"}, "axes"),
    ],
)
def test_what_an_operator_does_not_take_is_told(op: str, inputs: list[Any], attrs: dict[str, Any], text: str) -> None:
    ops = SingleOps()
    with pytest.raises(GecliError) as caught:
        ops.run(op, inputs, attrs)
    assert text in f"{caught.value.first.message} {caught.value.first.why}"
    assert len(ops.cache) == 0


def test_a_compiled_file_is_registered_and_never_aged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tensor = '{"format": "ND", "shape": [2, 3], "type": "float"}'
    (tmp_path / "op.json").write_text(f'[{{"op": "Neg", "input_desc": [{tensor}], "output_desc": [{tensor}]}}]')
    assert run(["compile", "--singleop", "op.json", "-o", "d"]) == 0
    (name,) = os.listdir("d")
    ops = SingleOps(max_models=1)
    model_id = ops.load(tmp_path / "d" / name)
    assert ops.load(tmp_path / "d" / name) == model_id  # registered already
    assert len(ops.cache) == 1
    for size in (1, 2, 3):
        ops.run("Neg", [np.ones(size, np.float32)])
    np.testing.assert_array_equal(ops.execute(model_id, [A])[0], -A)
    with pytest.raises(GecliError):
        ops.execute(model_id + 1000, [A])


def test_another_om_is_no_single_operator(tmp_path: Path) -> None:
    samples = Path(__file__).parents[2] / "samples"
    out = tmp_path / "d.om"
    assert run(["compile", str(samples / "digits/digits.onnx"), "-o", str(out), "--input-shape", "image:1,1,8,8"]) == 0
    with pytest.raises(GecliError, match="not the OM of a single operator"):
        SingleOps().load(out)


def test_threads_share_models_and_get_their_own_results() -> None:
    ops = SingleOps(max_models=3)
    wrong: list[int] = []

    def work(seed: int) -> None:
        for step in range(30):
            size = (seed + step) % 5 + 1
            value = np.full(size, seed * 100 + step, np.float32)
            (found,) = ops.run("Neg", [value])
            if not np.array_equal(found, -value):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("dtype", [">f4", "<f4"])
def test_arrays_of_either_byte_order_are_taken(dtype: str) -> None:
    (found,) = SingleOps().run("Add", [A.astype(dtype), A])
    assert found.dtype == np.dtype(np.float32)
    np.testing.assert_array_equal(found, A + A)
