"""ONNX Loop and Scan: compiled and run like onnxruntime does, with known and unknown shapes."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper, parser

from gecli import compile_model
from gecli.errors import GecliError
from gecli.runtime.session import Session

Arrays = dict[str, NDArray[Any]]
HEAD = '<ir_version: 8, opset_import: ["":17]>'

GROWING = """ g (float[1,N] x, int64 n) => (float[M,N] y, float[T,1] s) {
    c = Constant<value = bool {1}>()
    y, s = Loop<body = b (int64 i, bool ci, float[A,B] v) => (bool co, float[A2,B] vo, float[1] z) {
        co = Identity(ci)
        size = Size(v)
        added = Cast<to=1>(size)
        w = Add(v, added)
        vo = Concat<axis=0>(v, w)
        r = ReduceSum<keepdims=0>(v)
        ax = Constant<value = int64[1] {0}>()
        z = Unsqueeze(r, ax)
    }>(n, c, x)
}"""
WHILE = """ g (float[2] x) => (float[2] y, float[T,2] s) {
    c = Constant<value = bool {1}>()
    y, s = Loop<body = b (int64 i, bool ci, float[2] v) => (bool co, float[2] vo, float[2] z) {
        vo = Add(v, x)
        z = Mul(vo, x)
        t = ReduceSum<keepdims=0>(vo)
        ten = Constant<value = float {10}>()
        co = Less(t, ten)
    }>( , c, x)
}"""
BOTH = """ g (float[2] x, int64[1] n) => (float[2] y, int64[T] s) {
    y, s = Loop<body = b (int64 i, bool ci, float[2] v) => (bool co, float[2] vo, int64 z) {
        vo = Add(v, x)
        z = Identity(i)
        t = ReduceSum<keepdims=0>(vo)
        ten = Constant<value = float {10}>()
        co = Less(t, ten)
    }>(n, , x)
}"""
VECTORS = """ g (float[2] x, int64[1] n, bool[1] k) => (float[2] y, int64[T,1] s) {
    y, s = Loop<body = b (int64[1] i, bool[1] ci, float[2] v) => (bool[1] co, float[2] vo, int64[1] z) {
        f = Cast<to=1>(i)
        vo = Add(v, f)
        z = Identity(i)
        co = Identity(ci)
    }>(n, k, x)
}"""
NESTED = """ g (float[N,2] x, int64 n) => (float[N,2] y, float[T,U,N] s) {
    c = Constant<value = bool {1}>()
    y, s = Loop<body = b (int64 i, bool ci, float[N,2] v) => (bool co, float[N,2] vo, float[U,N] z) {
        co = Identity(ci)
        m = Constant<value = int64 {2}>()
        vo, z = Loop<body = bb (int64 j, bool cj, float[N,2] u) => (bool cjo, float[N,2] uo, float[N] zz) {
            cjo = Identity(cj)
            sum = Add(u, x)
            ij = Add(i, j)
            f = Cast<to=1>(ij)
            uo = Mul(sum, f)
            one = Constant<value = int64[1] {1}>()
            zz = ReduceSum<keepdims=0>(uo, one)
        }>(m, ci, v)
    }>(n, c, x)
}"""
CHOOSING = """ g (float[2] x, int64 n) => (float[2] y) {
    c = Constant<value = bool {1}>()
    y = Loop<body = b (int64 i, bool ci, float[2] v) => (bool co, float[2] vo) {
        co = Identity(ci)
        two = Constant<value = int64 {2}>()
        m = Mod(i, two)
        z = Constant<value = int64 {0}>()
        e = Equal(m, z)
        vo = If<then_branch = t () => (float[2] a) { a = Add(v, x) },
                else_branch = f () => (float[2] b) { b = Mul(v, x) }>(e)
    }>(n, c, x)
}"""
STATELESS = """ g (float[N,2] x, int64 n) => (float[T,N,2] s) {
    c = Constant<value = bool {1}>()
    s = Loop<body = b (int64 i, bool ci) => (bool co, float[N,2] z) {
        co = Identity(ci)
        f = Cast<to=1>(i)
        z = Add(x, f)
    }>(n, c)
}"""
SCAN = """ g (float[2] h, float[N,2] x, float[2,N] w) => (float[2] y, float[N,2] s, float[2,N] r) {
    y, s, r = Scan<num_scan_inputs=2, scan_input_axes=[0,-1], scan_input_directions=[0,1], scan_output_axes=[0,-1],
                   scan_output_directions=[1,0],
                   body = b (float[2] hi, float[2] xi, float[2] wi) => (float[2] ho, float[2] so, float[2] ro) {
        p = Mul(xi, wi)
        ho = Add(hi, p)
        so = Tanh(ho)
        ro = Sub(xi, wi)
    }>(h, x, w)
}"""


def numbers(*shape: int) -> NDArray[Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def number(value: int) -> NDArray[Any]:
    return np.array(value, np.int64)


CASES: dict[str, tuple[str, list[Arrays]]] = {
    "a value that grows": (GROWING, [{"x": numbers(1, 3), "n": number(n)} for n in (0, 1, 3)]),
    "a condition alone": (WHILE, [{"x": np.array([1, k], np.float32)} for k in (1, 9, 30)]),
    "a count and a condition": (BOTH, [{"x": np.array([1, k], np.float32), "n": np.array([6])} for k in (1, 9)]),
    "heads of one element": (
        VECTORS,
        [{"x": numbers(2), "n": np.array([3]), "k": np.array([k])} for k in (True, False)],
    ),
    "a loop in a loop": (NESTED, [{"x": numbers(rows, 2), "n": number(n)} for rows, n in ((1, 1), (3, 2), (2, 3))]),
    "a branch in a loop": (CHOOSING, [{"x": numbers(2), "n": number(n)} for n in (0, 5)]),
    "no value of its own": (STATELESS, [{"x": numbers(rows, 2), "n": number(n)} for rows, n in ((3, 2), (0, 2))]),
    "a scan": (SCAN, [{"h": numbers(2), "x": numbers(rows, 2), "w": numbers(2, rows)} for rows in (1, 4)]),
}


def outputs(model: onnx.ModelProto, feeds: Arrays, directory: Path, shapes: str = "") -> Arrays:
    onnx.save(model, directory / "m.onnx")
    compile_model(directory / "m.onnx", directory / "m.om", **({"input_shape": shapes} if shapes else {}))
    return Session().load(directory / "m.om").run(feeds)[0]


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("known", [False, True])
def test_a_loop_gives_what_onnxruntime_gives(name: str, known: bool, tmp_path: Path) -> None:
    text, runs = CASES[name]
    model = parser.parse_model(HEAD + text)
    judge = onnxruntime.InferenceSession(model.SerializeToString())
    for feeds in runs:
        if known and any(0 in array.shape for array in feeds.values()):
            continue  # a static shape has sizes of 1 and more
        shapes = ";".join(f"{key}:{','.join(map(str, array.shape))}" for key, array in feeds.items()) if known else ""
        got = outputs(model, feeds, tmp_path, shapes)
        for value, want in zip(judge.get_outputs(), judge.run(None, feeds), strict=True):
            np.testing.assert_allclose(got[value.name], want, rtol=1e-5, atol=1e-6)
            assert got[value.name].dtype == want.dtype


def test_a_loop_that_never_runs_gives_empty_rows_of_the_known_dims(tmp_path: Path) -> None:
    feeds = {"x": numbers(3, 2), "n": number(0)}
    assert outputs(parser.parse_model(HEAD + STATELESS), feeds, tmp_path)["s"].shape == (0, 0, 2)
    assert outputs(parser.parse_model(HEAD + STATELESS), feeds, tmp_path, "x:3,2;n:")["s"].shape == (0, 3, 2)


@cache
def published() -> dict[str, Any]:
    """The node cases that hold a Loop or Scan of tensors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        found = {case.name: case for case in load_model_tests(kind="node")}
    return {name: case for name, case in found.items() if _is_loop_of_tensors(case.model)}


def _is_loop_of_tensors(model: onnx.ModelProto) -> bool:
    kinds = {node.op_type for node in model.graph.node}
    values = [*model.graph.input, *model.graph.output]
    return bool(kinds & {"Loop", "Scan"}) and all(value.type.HasField("tensor_type") for value in values)


REFUSED = {"test_scan_sum": "gecli imports Scan, but not of opset 8", "sequence": "SequenceAt"}


@pytest.mark.parametrize("name", sorted(published()))
def test_a_published_case_gives_its_outputs(name: str, tmp_path: Path) -> None:
    case = published()[name]
    (inputs, wanted), *_ = case.data_sets
    feeds = {
        value.name: numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else np.asarray(x)
        for value, x in zip(case.model.graph.input, inputs)
    }
    refused = next((why for pattern, why in REFUSED.items() if pattern in name), None)
    if refused is not None:
        with pytest.raises(GecliError) as caught:
            outputs(case.model, feeds, tmp_path)
        assert refused in "\n".join(f"{each.message} {each.why}" for each in caught.value.diagnostics)
        return
    got = outputs(case.model, feeds, tmp_path)
    for value, each in zip(case.model.graph.output, wanted, strict=True):
        want = numpy_helper.to_array(each) if isinstance(each, onnx.TensorProto) else np.asarray(each)
        rtol = 1e-2 if want.dtype.itemsize == 2 else 1e-5
        np.testing.assert_allclose(
            got[value.name].astype(np.float64), want.astype(np.float64), rtol=rtol, atol=1e-2 * rtol
        )


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("(n, c, x)", "(n, c)", "its body has 3 inputs and 2 outputs for 0 values that it carries"),
        ("Add(v, x)", "Add(v, nothing)", "reads 'nothing', which nothing makes"),
    ],
)
def test_a_body_that_does_not_fit_is_refused(old: str, new: str, told: str, tmp_path: Path) -> None:
    model = parser.parse_model(HEAD + CHOOSING.replace(old, new))
    with pytest.raises(GecliError) as caught:
        outputs(model, {}, tmp_path)
    assert told in caught.value.first.message


def test_loops_in_loops_are_imported_in_time(tmp_path: Path) -> None:
    """Each of 12 levels gives a value of another shape back."""
    inner = "vo = Concat<axis=0>(v, v)"
    for level in range(12):
        inner = (
            f"vo = Loop<body = b{level} (int64 i{level}, bool c{level}, float[A{level}] v)"
            f" => (bool o{level}, float[B{level}] vo) {{ o{level} = Identity(c{level}) {inner} }}>(n, k, v)"
        )
    text = f" g (float[1] v, int64 n, bool k) => (float[Z] vo) {{ {inner} }}"
    feeds = {"v": numbers(1), "n": number(1), "k": np.array(True)}
    np.testing.assert_array_equal(outputs(parser.parse_model(HEAD + text), feeds, tmp_path)["vo"], [feeds["v"][0]] * 2)
