"""Work that is divided over threads gives what one thread gives, and survives faults, interrupts and forks."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecli.ops import intra_op
from gecli.ops.conv_steps import Problem, bind_channels_last, bind_convolution, bind_transposed, private_scratch
from gecli.ops.integer_matmul import bind_integer_matmul
from gecli.ops.intra_op import divided, elementwise_step, even, matmul, parts_for, shared, side_by_side
from gecli.ops.numeric import Array, perform
from gecli.ops.thread_count import intra_op_threads, set_intra_op_threads
from gecli.ops.windows import Geometry


@pytest.fixture(autouse=True)
def several_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three threads, for work of any size."""
    monkeypatch.setattr(intra_op, "SMALLEST_PART_US", 1e-9)
    before = intra_op_threads()
    set_intra_op_threads(3)
    yield
    set_intra_op_threads(before)


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


@given(st.integers(0, 1000), st.integers(0, 9), st.sampled_from([1, 4, 16]))
def test_a_range_is_divided_into_neighbouring_slices(size: int, parts: int, multiple: int) -> None:
    found = divided(size, parts, multiple)
    assert [i for part in found for i in range(size)[part]] == list(range(size))
    assert len(found) <= max(parts, 1)
    assert all((part.stop - part.start) % multiple == 0 for part in found[:-1])
    assert even(size, multiple) % multiple == 0 and size <= even(size, multiple) < size + multiple


def test_short_work_is_not_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intra_op, "SMALLEST_PART_US", 60.0)
    assert [parts_for(us, 100) for us in (0, 119, 120, 181, 10_000)] == [1, 1, 2, 3, 3]
    assert parts_for(10_000, 2) == 2


@given(
    st.lists(st.integers(1, 4), max_size=2),
    st.tuples(*[st.sampled_from([1, 2, 5, 17, 40])] * 3),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_a_divided_product_is_the_product(
    batch: list[int], sizes: tuple[int, int, int], how: tuple[bool, bool, bool]
) -> None:
    (m, k, n), (transposed, broadcast, given_out) = sizes, how
    a = normal(*batch, k, m).swapaxes(-1, -2) if transposed else normal(*batch, m, k)
    b = normal(*([] if broadcast else batch), k, n)
    expected = np.matmul(a, b)
    out = np.full(expected.shape, np.nan, np.float32) if given_out else None
    result = matmul(a, b, out)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    assert out is None or result is out


def test_vectors_and_what_numpy_refuses_go_to_numpy() -> None:
    assert float(matmul(np.ones(3), np.ones(3))) == 3
    assert matmul(normal(4, 3), normal(3)).shape == (4,)
    with pytest.raises(ValueError, match="mismatch"):
        matmul(normal(4, 3), normal(4, 3))


SHAPES = [
    ((6, 5), (6, 5)),
    ((6, 5), (5,)),
    ((1, 5), (6, 1)),
    ((2, 1, 9), (4, 1)),
    ((), (7,)),
    ((1,), (1,)),
    ((0, 3), (3,)),
]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("ufunc", [np.subtract, np.maximum])
@pytest.mark.parametrize("shapes", SHAPES)
def test_a_divided_elementwise_call_broadcasts_as_numpy_does(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], ufunc: np.ufunc, threads: int
) -> None:
    set_intra_op_threads(threads)
    a, b = (normal(*shape) if shape else np.float32(3) * np.ones(()) for shape in shapes)
    expected = ufunc(a, b)
    out = np.full(expected.shape, np.nan, expected.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy warns of some ways to pass the result
        elementwise_step(ufunc, (a, b), out)()
    np.testing.assert_array_equal(out, expected)


def test_operands_that_overlap_the_result_are_read_before_they_are_overwritten() -> None:
    for in_place in (True, False):
        memory = np.arange(31, dtype=np.float32)
        x = memory[:30] if in_place else memory[1:]
        expected = x + x
        elementwise_step(np.add, (x, x), memory[:30])()
        np.testing.assert_array_equal(memory[:30], expected)
    square = normal(9, 9)
    expected = square @ square
    matmul(square, square, square)
    np.testing.assert_allclose(square, expected, rtol=1e-5, atol=1e-5)


def bound(
    bind: Any, x: Array, w: Array, y_shape: tuple[int, ...], geometry: Geometry, groups: int, bias: Array
) -> Array:
    y = np.full(y_shape, np.nan, np.float32)
    bind(Problem(x, w, bias, y, geometry, groups, True), private_scratch)()
    return y


CONVOLUTIONS = [
    # binder, x, w, y, kernel, strides, dilations, pads, groups
    (bind_convolution, (2, 8, 9, 9), (20, 8, 1, 1), (2, 20, 9, 9), (1, 1), (1, 1), (1, 1), (0, 0), 1),
    (bind_convolution, (1, 8, 2, 2), (40, 8, 1, 1), (1, 40, 2, 2), (1, 1), (1, 1), (1, 1), (0, 0), 1),
    (bind_convolution, (2, 8, 9, 9), (20, 4, 1, 1), (2, 20, 9, 9), (1, 1), (1, 1), (1, 1), (0, 0), 2),
    (bind_convolution, (2, 3, 11, 9), (5, 3, 3, 3), (2, 5, 11, 9), (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (bind_convolution, (1, 4, 11, 9), (6, 2, 3, 3), (1, 6, 6, 5), (3, 3), (2, 2), (1, 1), (1, 1), 2),
    (bind_convolution, (2, 40, 30, 9), (2, 40, 3, 3), (2, 2, 30, 9), (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (bind_convolution, (1, 40, 30, 9), (2, 40, 3, 3), (1, 2, 26, 9), (3, 3), (1, 1), (2, 1), (0, 1), 1),
    (bind_convolution, (2, 7, 9, 9), (7, 1, 3, 3), (2, 7, 9, 9), (3, 3), (1, 1), (1, 1), (1, 1), 7),
    (bind_convolution, (2, 7, 9, 9), (7, 1, 3, 3), (2, 7, 5, 5), (3, 3), (2, 2), (1, 1), (1, 1), 7),
    (bind_convolution, (1, 3, 1, 50), (5, 3, 1, 4), (1, 5, 1, 47), (1, 4), (1, 1), (1, 1), (0, 0), 1),
    (bind_channels_last, (2, 9, 7, 3), (3, 3, 3, 5), (2, 9, 7, 5), (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (bind_channels_last, (2, 9, 7, 3), (1, 1, 3, 5), (2, 9, 7, 5), (1, 1), (1, 1), (1, 1), (0, 0), 1),
    (bind_transposed, (2, 6, 5, 5), (6, 4, 3, 3), (2, 4, 9, 9), (3, 3), (2, 2), (1, 1), (1, 1), 1),
    (bind_transposed, (2, 6, 5, 5), (6, 2, 3, 3), (2, 4, 7, 7), (3, 3), (1, 1), (1, 1), (0, 0), 2),
    (bind_transposed, (2, 6, 5, 5), (6, 4, 2, 2), (2, 4, 10, 10), (2, 2), (2, 2), (1, 1), (0, 0), 1),
]


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("threads", [2, 3, 16])
def test_a_divided_convolution_is_the_convolution(case: tuple[Any, ...], threads: int) -> None:
    bind, x_shape, w_shape, y_shape, kernel, strides, dilations, pads, groups = case
    geometry = Geometry(kernel, strides, dilations, tuple((pad, pad) for pad in pads))
    x, w = normal(*x_shape), normal(*w_shape)
    bias = normal(y_shape[-1] if bind is bind_channels_last else y_shape[1])
    set_intra_op_threads(1)
    expected = bound(bind, x, w, y_shape, geometry, groups, bias)
    set_intra_op_threads(threads)
    result = bound(bind, x, w, y_shape, geometry, groups, bias)
    assert not np.isnan(expected).any()
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(bound(bind, x, w, y_shape, geometry, groups, bias), result)


def test_a_divided_integer_product_is_exact() -> None:
    random = np.random.default_rng(1)
    a, b = random.integers(0, 256, (9, 1100), np.uint8), random.integers(-128, 128, (1100, 200), np.int8)
    zeros = random.integers(-9, 9, 200).astype(np.int8)
    y = np.zeros((9, 200), np.int32)
    step = bind_integer_matmul(a, b, np.array(7, np.uint8), zeros, y, private_scratch, b_fixed=True)
    assert step is not None
    step()
    np.testing.assert_array_equal(y, (a.astype(np.int64) - 7) @ (b.astype(np.int64) - zeros))


def test_every_item_is_done_once() -> None:
    counts = np.zeros(10, np.int64)
    perform(shared(range(10), 1.0, lambda item: [(np.add, (counts[item : item + 1], 1, counts[item : item + 1]))]))
    assert counts.tolist() == [1] * 10
    assert shared([], 1.0, lambda item: []) == []


def fail() -> None:
    raise OverflowError("in a part")


def works() -> bool:
    done: list[int] = []
    perform(side_by_side([[(done.append, (i,))] for i in range(3)]))
    return sorted(done) == [0, 1, 2]


@pytest.mark.parametrize("place", range(3))
def test_what_a_part_raises_reaches_the_caller(place: int) -> None:
    programs: list[Any] = [[] for _ in range(3)]
    programs[place] = [(fail, ())]
    with pytest.raises(OverflowError, match="in a part"):
        perform(side_by_side(programs))
    assert works()


def test_an_interrupt_while_parts_are_waited_for_leaves_the_threads_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert works()
    worker = intra_op._workers[0]
    go_on = threading.Event()

    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(worker, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            perform(side_by_side([[], [(go_on.wait, (10,))], []]))
    go_on.set()
    assert works()


def test_overflow_in_a_part_warns_no_more_than_in_the_caller() -> None:
    large = np.full(30, 1e38, np.float32)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        elementwise_step(np.multiply, (large, large), np.empty_like(large))()


def test_two_callers_at_once_both_get_their_results() -> None:
    results: list[bool] = []
    callers = [threading.Thread(target=lambda: results.append(all(works() for _ in range(200)))) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(30)
    assert results == [True] * 4


def test_a_forked_child_has_its_own_threads() -> None:
    assert works()
    with warnings.catch_warnings():  # newer Pythons warn of forks beside threads
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        os._exit(0 if works() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
