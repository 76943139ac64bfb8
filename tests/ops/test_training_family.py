"""Losses, activation gradients, optimizers and assignments: worked numbers and laws of the training specification."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc
from gecli.ops.inference import InferenceError
from gecli.ops.registry import find, load_all
from tests.ops.onnx_judge import judge

Array = NDArray[Any]


def op(type: str, **attrs: Any) -> Any:
    kind = find(type)
    assert kind is not None, type
    return kind.cls(**attrs)


def f32(values: Any) -> Array:
    return np.array(values, np.float32)


def described(made: Any, inputs: list[Array]) -> list[TensorDesc]:
    found = made.infer(*[TensorDesc(DataType.from_numpy(x.dtype), x.shape) for x in inputs])
    return list(found) if isinstance(found, tuple) else [found]


WORKED: list[tuple[str, dict[str, Any], list[Array], list[Any]]] = [
    ("SigmoidCrossEntropyWithLogits", {}, [f32([0, 2, -1]), f32([1, 0, 1])], [[0.693147, 2.126928, 1.313262]]),
    (
        "SigmoidCrossEntropyWithLogitsGrad",
        {},
        [f32([0, 2, -1]), f32([1, 0, 1]), f32([1, 1, 1])],
        [[-0.5, 0.880797, -0.731059]],
    ),
    ("SigmoidCrossEntropyWithLogitsV2", {"reduction": "none"}, [f32([0, 2]), f32([1, 0])], [[0.693147, 2.126928]]),
    ("SigmoidCrossEntropyWithLogitsGradV2", {}, [f32([0, 2]), f32([1, 0]), f32([1, 1])], [[-0.25, 0.440399]]),
    ("MseLoss", {}, [f32([1, 2]), f32([0, 4])], [2.5]),
    ("MseLoss", {"reduction": "sum"}, [f32([1, 2]), f32([0, 4])], [5]),
    ("MseLossGrad", {"reduction": "mean"}, [f32([1, 2]), f32([0, 4]), f32(1)], [[1, -2]]),
    ("MseLossGrad", {"reduction": "sum"}, [f32([1, 2]), f32([0, 4]), f32(1)], [[2, -4]]),
    ("L2Loss", {}, [f32([3, 4])], [12.5]),
    ("LpLoss", {"p": 1, "reduction": "sum"}, [f32([1, 2]), f32([0, 4])], [3]),
    ("SmoothL1Loss", {"sigma": 1.0}, [f32([0.5, 3]), f32([0, 0])], [[0.125, 2.5]]),
    ("SmoothL1LossGrad", {"sigma": 1.0}, [f32([0.5, -3]), f32([0, 0]), f32([1, 2])], [[0.5, -2]]),
    ("BinaryCrossEntropy", {"reduction": "none"}, [f32([0.5, 0.25]), f32([1, 0])], [[0.693147, 0.287682]]),
    ("BinaryCrossEntropyGrad", {"reduction": "sum"}, [f32([0.5]), f32([1]), f32([1])], [[-2]]),
    (
        "NLLLoss",
        {},
        [f32([[-1, -2], [-3, -4], [-5, -6]]), np.int32([0, 1, -100]), f32([1, 3])],
        [(1 + 12) / 4, 4],
    ),
    (
        "NLLLossGrad",
        {},
        [f32([[-1, -2], [-3, -4]]), f32(1), np.int32([0, 1]), f32([1, 3]), f32(4)],
        [[[-0.25, 0], [0, -0.75]]],
    ),
    (
        "SoftmaxCrossEntropyWithLogits",
        {},
        [f32([[-0.26, 0.445, 0.045], [-0.1, -0.255, 0.13]]), f32([[0, 1, 0], [0, 0, 1]])],
        [[0.772156, 0.906234], [[0.228286, -0.537984, 0.309698], [0.321026, 0.274931, -0.595957]]],
    ),
    (
        "SparseSoftmaxCrossEntropyWithLogits",
        {},
        [f32([[-0.26, 0.445, 0.045], [-0.1, -0.255, 0.13]]), np.int32([1, 2])],
        [[0.772156, 0.906234], [[0.228286, -0.537984, 0.309698], [0.321026, 0.274931, -0.595957]]],
    ),
    ("ReluGrad", {}, [f32([1, 2, 3]), f32([-1, 0, 4])], [[0, 0, 3]]),
    ("ReluGrad", {}, [f32([1, 2]), f32([math.nan, -0.0])], [[0, 0]]),
    ("Relu6Grad", {}, [f32([1, 2, 3]), f32([6, 5, 0])], [[0, 2, 0]]),
    ("LeakyReluGrad", {"negative_slope": 0.5}, [f32([1, 2, 3]), f32([-1, 0, 4])], [[0.5, 1, 3]]),
    ("PReluGrad", {}, [f32([[1, 2]]), f32([[-1, -3]]), f32([0.5])], [[[0.5, 1]], [-7]]),
    ("PReluGrad", {}, [f32([[1, 2]]), f32([[-1, -3]]), f32([0.5, 2])], [[[0.5, 4]], [-1, -6]]),
    (
        "GeluGrad",
        {},
        [f32([1, 1, 1, 1]), f32([-1, 0, 1, 2]), f32([0, 0, 0, 0])],
        [[-0.082964, 0.5, 1.082964, 1.086099]],
    ),
    ("GeluGradV2", {}, [f32([1, 1, 1, 1]), f32([-1, 0, 1, 2])], [[-0.083315, 0.5, 1.083315, 1.085232]]),
    ("EluGrad", {}, [f32([1, 1]), f32([-0.5, 2])], [[0.5, 1]]),
    ("ReluV2", {}, [f32([-1, 2, 0, 3])], [[0, 2, 0, 3], [0b1010]]),
    ("ReluGradV2", {}, [f32([1, 2, 3]), np.uint8([0b101])], [[1, 0, 3]]),
    ("SqrtGrad", {}, [f32([2]), f32([1])], [[0.25]]),
    ("BiasAddGrad", {}, [f32([[1, 2], [3, 4]])], [[4, 6]]),
    ("BiasAddGrad", {"data_format": "NCHW"}, [np.arange(8, dtype=np.float32).reshape(2, 2, 2, 1)], [[10, 18]]),
]


@pytest.mark.parametrize("type, attrs, inputs, expected", WORKED)
def test_the_worked_numbers(type: str, attrs: dict[str, Any], inputs: list[Array], expected: list[Any]) -> None:
    made = op(type, **attrs)
    result = made.kernel(*inputs)
    results = list(result) if isinstance(result, tuple) else [result]
    assert len(results) == len(expected)
    for value, want, desc in zip(results, expected, described(made, inputs), strict=True):
        np.testing.assert_allclose(value, want, atol=2e-6)
        assert (desc.shape, desc.dtype.numpy) == (np.shape(value), np.asarray(value).dtype)
    if hasattr(made, "bind"):
        outputs = [np.full_like(value, 9) for value in results]
        step = made.bind(inputs, outputs)
        assert step is not None
        step()
        np.testing.assert_array_equal(outputs[0], results[0])


@pytest.mark.parametrize(
    "x1, x2, first, second",
    [([2, 3], [3], [], [0]), ([2, 1], [2, 3], [1], []), ([1], [1], [], []), ([], [4, 2], [0, 1], [])],
)
def test_broadcast_gradient_args_names_the_axes_to_sum(x1: Any, x2: Any, first: Any, second: Any) -> None:
    y1, y2 = op("BroadcastGradientArgs").kernel(np.array(x1, np.int32), np.array(x2, np.int32))
    assert (y1.tolist(), y2.tolist()) == (first, second)


def test_a_label_of_zero_adds_nothing_where_the_logit_is_minus_infinity() -> None:
    loss, _ = op("SoftmaxCrossEntropyWithLogits").kernel(f32([[0, -math.inf]]), f32([[1, 0]]))
    np.testing.assert_allclose(loss, [0], atol=1e-7)


def test_a_label_out_of_range_is_named() -> None:
    with pytest.raises(IndexError, match=r"label 3 at 1 is outside 0\.\.1"):
        op("SparseSoftmaxCrossEntropyWithLogits").kernel(f32([[0, 0], [0, 0]]), np.int32([0, 3]))


# Gradient type, its attributes, forward type, its attributes, how the gradient's inputs come from x, y, g.
SLOPES: list[tuple[str, dict[str, Any], str, dict[str, Any], Callable[[Array, Array, Array], list[Array]]]] = [
    ("ReluGrad", {}, "Relu", {}, lambda x, y, g: [g, x]),
    ("Relu6Grad", {}, "Relu6", {}, lambda x, y, g: [g, x]),
    ("LeakyReluGrad", {"negative_slope": 0.3}, "LeakyRelu", {"negative_slope": 0.3}, lambda x, y, g: [g, x]),
    ("SigmoidGrad", {}, "Sigmoid", {}, lambda x, y, g: [y, g]),
    ("TanhGrad", {}, "Tanh", {}, lambda x, y, g: [y, g]),
    ("GeluGrad", {}, "Gelu", {}, lambda x, y, g: [g, x, y]),
    ("GeluGradV2", {}, "GeluV2", {}, lambda x, y, g: [g, x]),
    ("GeluGradV2", {"approximate": "tanh"}, "GeluV2", {"approximate": "tanh"}, lambda x, y, g: [g, x]),
    ("FastGeluGrad", {}, "FastGelu", {}, lambda x, y, g: [g, x]),
    ("SoftplusGrad", {}, "Softplus", {}, lambda x, y, g: [g, x]),
    ("SoftplusV2Grad", {}, "Softplus", {}, lambda x, y, g: [g, x]),
    ("SoftsignGrad", {}, "Softsign", {}, lambda x, y, g: [g, x]),
    ("EluGrad", {}, "Elu", {}, lambda x, y, g: [g, y]),
    ("EluGradV2", {"alpha": 0.7}, "Elu", {"alpha": 0.7}, lambda x, y, g: [g, x]),
    ("EluGradV2", {"alpha": 0.7, "is_result": True}, "Elu", {"alpha": 0.7}, lambda x, y, g: [g, y]),
    ("SiluGrad", {}, "Swish", {}, lambda x, y, g: [g, x]),
    ("SwishGrad", {"scale": 0.8}, "Swish", {"scale": 0.8}, lambda x, y, g: [g, x, y]),
    ("HardSigmoidGrad", {}, "HardSigmoid", {}, lambda x, y, g: [g, x]),
    ("HardSwishGrad", {}, "HardSwish", {}, lambda x, y, g: [g, x]),
    ("MishGrad", {}, "Mish", {}, lambda x, y, g: [g, x]),
    ("SoftmaxGrad", {}, "SoftmaxV2", {}, lambda x, y, g: [y, g]),
    ("LogSoftmaxGrad", {}, "LogSoftmaxV2", {}, lambda x, y, g: [g, y]),
    ("ReciprocalGrad", {}, "Reciprocal", {}, lambda x, y, g: [y, g]),
    ("InvGrad", {}, "Reciprocal", {}, lambda x, y, g: [y, g]),
    ("AbsGrad", {}, "Abs", {}, lambda x, y, g: [x, g]),
    ("MseLossGrad", {}, "MseLoss", {}, lambda x, y, g: [x, LABEL, g]),
    ("SmoothL1LossGrad", {"sigma": 0.6}, "SmoothL1Loss", {"sigma": 0.6}, lambda x, y, g: [x, LABEL, g]),
    ("SigmoidCrossEntropyWithLogitsGrad", {}, "SigmoidCrossEntropyWithLogits", {}, lambda x, y, g: [x, LABEL, g]),
    ("SigmoidCrossEntropyWithLogitsGradV2", {}, "SigmoidCrossEntropyWithLogitsV2", {}, lambda x, y, g: [x, LABEL, g]),
]
X = np.array([[-2.3, -0.7, 0.4], [1.1, 2.2, -1.6]])
LABEL = np.array([[0.1, 0.9, 0.5], [0.3, 0.2, 0.8]])
SELU_CONSTANTS_BAR = 1e-6  # the definition rounds selu's constants to eight digits


@pytest.mark.parametrize("gradient, attrs, forward, forward_attrs, feed", SLOPES)
def test_gradients_are_the_slopes_of_their_forward_operator(
    gradient: str, attrs: dict[str, Any], forward: str, forward_attrs: dict[str, Any], feed: Any
) -> None:
    rest = [LABEL] if "Loss" in forward or "Entropy" in forward else []
    run = op(forward, **forward_attrs).kernel
    y = run(X, *rest)
    g = np.random.default_rng(3).uniform(0.5, 1.5, np.shape(y))
    found = op(gradient, **attrs).kernel(*feed(X, y, g))
    found = found[0] if isinstance(found, tuple) else found
    assert found.dtype == np.float64
    step = 1e-6
    for where in np.ndindex(*X.shape):
        up, down = X.copy(), X.copy()
        up[where] += step
        down[where] -= step
        slope = ((run(up, *rest) - run(down, *rest)) * g).sum() / (2 * step)
        assert found[where] == pytest.approx(slope, rel=1e-6, abs=1e-8), where


@pytest.mark.parametrize("type", ["SqrtGrad", "RsqrtGrad"])
def test_root_gradients_are_slopes(type: str) -> None:
    power = 0.5 if type == "SqrtGrad" else -0.5
    x = np.array([0.3, 2.0, 5.0])
    found = op(type).kernel(x**power, np.ones(3))
    np.testing.assert_allclose(found, power * x ** (power - 1), rtol=1e-12)


def test_selu_and_log_sigmoid_and_hardtanh_gradients() -> None:
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    x = np.array([-1.5, 0.5])
    y = np.where(x > 0, scale * x, scale * alpha * np.expm1(x))
    slope = np.where(x > 0, scale, scale * alpha * np.exp(x))
    np.testing.assert_allclose(op("SeluGrad").kernel(np.ones(2), y), slope, atol=SELU_CONSTANTS_BAR)
    np.testing.assert_allclose(op("LogSigmoidGrad").kernel(np.ones(2), x), 1 / (1 + np.exp(x)), rtol=1e-12)
    np.testing.assert_array_equal(op("HardtanhGrad").kernel(x, np.ones(2)), [0, 1])


def test_unequal_shapes_of_a_gradient_are_refused() -> None:
    descs = [TensorDesc(DataType.FLOAT, (2, 3)), TensorDesc(DataType.FLOAT, (3, 2))]
    with pytest.raises(InferenceError, match=r"\[3, 2\] and \[2, 3\] must be equal"):
        op("TanhGrad").infer(*descs)


@pytest.mark.parametrize("type", ["ReluGrad", "TanhGrad", "SoftplusGrad", "EluGrad", "SigmoidGrad"])
def test_half_precision_gradients_round_once(type: str) -> None:
    a, b = np.float16([0.3, -0.7, 1.9]), np.float16([0.11, 0.5, 0.77])
    wide = op(type).kernel(a.astype(np.float32), b.astype(np.float32))
    half = op(type).kernel(a, b)
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, wide.astype(np.float16))


def test_zero_gradients_give_zero_where_the_specification_says_so() -> None:
    for name, kind in load_all().items():
        if kind.cls.__module__.endswith(("activation_grad", "root_grad")) and kind.zero_preserving:
            zeros = [np.zeros(2, np.float32) for port in kind.inputs if not port.optional]
            result = kind.cls().kernel(*zeros)
            assert not np.any(result), name


Step = tuple[str, dict[str, Any], dict[str, float], dict[str, float]]
# One step from p = 1, g = 0.5, lr = 0.1: type, attributes, other inputs, expected written values.
ADAM = {"m": 0.1, "v": 0.01, "beta1_power": 0.81, "beta2_power": 0.998001, "beta1": 0.9, "beta2": 0.999}
STEPS: list[Step] = [
    ("ApplyGradientDescent", {}, {}, {"var": 0.95}),
    ("ApplyMomentum", {}, {"accum": 0.2, "momentum": 0.9}, {"var": 0.932, "accum": 0.68}),
    ("ApplyMomentumD", {"use_nesterov": True}, {"accum": 0.2, "momentum": 0.9}, {"var": 0.8888, "accum": 0.68}),
    ("ApplyKerasMomentum", {}, {"accum": 0.2, "momentum": 0.9}, {"var": 1.13, "accum": 0.13}),
    ("ApplyKerasMomentumD", {"use_nesterov": True}, {"accum": 0.2, "momentum": 0.9}, {"var": 1.067, "accum": 0.13}),
    (
        "SGD",
        {"weight_decay": 0.01},
        {"accum": 0.2, "momentum": 0.9, "stat": 0},
        {"parameters": 0.931, "accum": 0.69, "stat": 0},
    ),
    (
        "SGD",
        {"weight_decay": 0.01, "nesterov": True},
        {"accum": 0.2, "momentum": 0.9, "stat": 0},
        {"parameters": 0.8869, "accum": 0.69, "stat": 0},
    ),
    (
        "SGD",
        {"weight_decay": 0.01, "dampening": 0.1},
        {"accum": 0.2, "momentum": 0.9, "stat": 0},
        {"parameters": 0.9361, "accum": 0.639, "stat": 0},
    ),
    (
        "SGD",
        {"weight_decay": 0.01, "dampening": 0.1},
        {"accum": 0.2, "momentum": 0.9, "stat": 1},
        {"parameters": 0.931, "accum": 0.69, "stat": 0},
    ),
    (
        "SGD",
        {"weight_decay": 0.01},
        {"accum": 0.2, "momentum": 0, "stat": 1},
        {"parameters": 0.949, "accum": 0.2, "stat": 1},
    ),
    ("ApplyAdam", {}, {**ADAM, "epsilon": 1e-8}, {"var": 0.967444, "m": 0.14, "v": 0.01024}),
    ("ApplyAdamD", {"use_nesterov": True}, {**ADAM, "epsilon": 1e-8}, {"var": 0.959072, "m": 0.14, "v": 0.01024}),
    (
        "ApplyAdamW",
        {},
        {**ADAM, "beta1_power": 0.9, "beta2_power": 0.999, "epsilon": 1e-8, "weight_decay": 0.01},
        {"var": 0.966444, "m": 0.14, "v": 0.01024},
    ),
    (
        "ApplyRMSProp",
        {},
        {"ms": 0.04, "mom": 0.02, "rho": 0.9, "momentum": 0.9, "epsilon": 0.01},
        {"var": 0.794353, "ms": 0.061, "mom": 0.205647},
    ),
    (
        "ApplyRMSPropD",
        {"rho": 0.9, "momentum": 0.9, "epsilon": 0.01},
        {"ms": 0.04, "mom": 0.02},
        {"var": 0.794353, "ms": 0.061, "mom": 0.205647},
    ),
    ("ApplyAdagrad", {}, {"accum": 0.04}, {"var": 0.907152, "accum": 0.29}),
    ("ApplyAdagradD", {"update_slots": False}, {"accum": 0.04}, {"var": 0.75, "accum": 0.04}),
    ("ApplyAdagradV2", {}, {"accum": 0.04, "epsilon": 0.1}, {"var": 1 - 0.05 / (0.29**0.5 + 0.1), "accum": 0.29}),
    ("ApplyAdagradV2D", {"epsilon": 0.1}, {"accum": 0.04}, {"var": 1 - 0.05 / (0.29**0.5 + 0.1), "accum": 0.29}),
    (
        "ApplyFtrl",
        {},
        {"accum": 0.04, "linear": 0.3, "l1": 0.1, "l2": 0.05, "lr_power": -0.5},
        {"var": 0.453070, "accum": 0.29, "linear": -2.585165},
    ),
    (
        "ApplyFtrlV2",
        {},
        {"accum": 0.04, "linear": 0.3, "l1": 0.1, "l2": 0.05, "l2_shrinkage": 0.0, "lr_power": -0.5},
        {"var": 0.453070, "accum": 0.29, "linear": -2.585165},
    ),
    ("ApplyFtrlD", {}, {"accum": 0.04, "linear": 0.3, "l1": 9, "l2": 0, "lr_power": -0.5}, {"var": 0.0}),
    ("ApplyProximalGradientDescent", {}, {"l1": 0.1, "l2": 0.5}, {"var": (0.95 - 0.01) / 1.05}),
]
ONE_STEP = {"var": 1.0, "parameters": 1.0, "grad": 0.5, "delta": 0.5, "gradient": 0.5}
ONE_STEP |= {"lr": 0.1, "alpha": 0.1, "learning_rate": 0.1}


def arguments(made: Any, numbers: dict[str, float], dtype: Any, shape: tuple[int, ...]) -> list[Array]:
    """The inputs of an optimizer: scalars as such, tensors filled with one number."""
    names = [port.name for port in made.type.inputs if port.name in numbers]
    return [np.full(() if name in made.scalars else shape, numbers[name], dtype) for name in names]


@pytest.mark.parametrize("type, attrs, numbers, expected", STEPS)
def test_one_step_gives_the_worked_numbers(
    type: str, attrs: dict[str, Any], numbers: dict[str, float], expected: dict[str, float]
) -> None:
    made = op(type, **attrs)
    for dtype, bar in ((np.float64, 1e-6), (np.float32, 1e-6), (np.float16, 2e-3)):
        inputs = arguments(made, {**ONE_STEP, **numbers}, dtype, (2, 1))
        kept = [x.copy() for x in inputs]
        written = made.kernel(*inputs)
        for name, value in zip([name for name in made.writes if name in {**ONE_STEP, **numbers}], written, strict=True):
            assert value.dtype == dtype
            if name in expected:
                np.testing.assert_allclose(value, np.full((2, 1), expected[name]), rtol=bar, atol=bar, err_msg=name)
        for now, was in zip(inputs, kept, strict=True):
            np.testing.assert_array_equal(now, was)


@pytest.mark.parametrize("type, attrs, numbers, expected", STEPS)
def test_bind_updates_the_variables_in_place_as_the_kernel_says(
    type: str, attrs: dict[str, Any], numbers: dict[str, float], expected: dict[str, float]
) -> None:
    made = op(type, **attrs)
    inputs = arguments(made, {**ONE_STEP, **numbers}, np.float32, (3,))
    names = [port.name for port in made.type.inputs if port.name in {**ONE_STEP, **numbers}]
    refs = [array for name, array in zip(names, inputs, strict=True) if name in made.writes]
    first = made.kernel(*inputs)
    again = made.kernel(*[first[made.writes.index(n)] if n in made.writes else x for n, x in zip(names, inputs)])
    step = made.bind(inputs, refs[: len(made.type.outputs)])
    assert step is not None
    for values in (first, again):
        step()
        for ref, value in zip(refs, values, strict=True):
            np.testing.assert_array_equal(ref, value)


def scalar_adam(p: float, m: float, v: float, g: float, t: int) -> tuple[float, float, float]:
    rate = 0.1 * math.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - rate * m / (math.sqrt(v) + 1e-8), m, v


def test_three_steps_of_adam_follow_the_scalar_formula() -> None:
    p, m, v = 1.0, 0.0, 0.0
    arrays = [np.array([x]) for x in (p, m, v)]
    for t, g in enumerate((0.5, -0.25, 1.5), start=1):
        p, m, v = scalar_adam(p, m, v, g, t)
        powers = [np.array(0.9**t), np.array(0.999**t), np.array(0.1), np.array(0.9), np.array(0.999), np.array(1e-8)]
        arrays = list(op("ApplyAdam").kernel(*arrays, *powers, np.array([g])))
        np.testing.assert_allclose([a[0] for a in arrays], [p, m, v], rtol=1e-12)


REFERENCES: list[tuple[str, dict[str, float], Callable[..., tuple[float, ...]]]] = [
    (
        "ApplyAdadelta",
        {"var": 1, "accum": 0.04, "accum_update": 0.01, "lr": 0.1, "rho": 0.9, "epsilon": 0.01},
        lambda p, a, u, g: _adadelta(p, a, u, g),
    ),
    (
        "ApplyAdaMax",
        {"var": 1, "m": 0.1, "v": 0.2, "beta1_power": 0.9, "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "epsilon": 0.01},
        lambda p, m, v, g: _adamax(p, m, v, g),
    ),
    (
        "ApplyCenteredRMSProp",
        {"var": 1, "mg": 0.1, "ms": 0.2, "mom": 0.3, "lr": 0.1, "rho": 0.9, "momentum": 0.8, "epsilon": 0.01},
        lambda p, mg, ms, mom, g: _centered(p, mg, ms, mom, g),
    ),
    (
        "ApplyAdamWithAmsgrad",
        {**ADAM, "var": 1, "vhat": 0.5, "beta1_power": 0.9, "beta2_power": 0.999, "lr": 0.1, "epsilon": 0.01},
        lambda p, m, v, h, g: _amsgrad(p, m, v, h, g),
    ),
]


def _adadelta(p: float, a: float, u: float, g: float) -> tuple[float, ...]:
    a = 0.9 * a + 0.1 * g * g
    step = math.sqrt(u + 0.01) / math.sqrt(a + 0.01) * g
    return p - 0.1 * step, a, 0.9 * u + 0.1 * step * step


def _adamax(p: float, m: float, v: float, g: float) -> tuple[float, ...]:
    m, v = 0.9 * m + 0.1 * g, max(0.99 * v, abs(g))
    return p - 0.1 / (1 - 0.9) * m / (v + 0.01), m, v


def _centered(p: float, mg: float, ms: float, mom: float, g: float) -> tuple[float, ...]:
    mg, ms = 0.9 * mg + 0.1 * g, 0.9 * ms + 0.1 * g * g
    mom = 0.8 * mom + 0.1 * g / math.sqrt(ms - mg * mg + 0.01)
    return p - mom, mg, ms, mom


def _amsgrad(p: float, m: float, v: float, h: float, g: float) -> tuple[float, ...]:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    h = max(h, v)
    return p - 0.1 * math.sqrt(1 - 0.999) / (1 - 0.9) * m / (math.sqrt(h) + 0.01), m, v, h


@pytest.mark.parametrize("type, numbers, reference", REFERENCES)
def test_three_steps_follow_the_scalar_formula(type: str, numbers: dict[str, float], reference: Any) -> None:
    for name in (type, f"{type}D"):
        if name == "ApplyAdamWithAmsgradD":
            made = op(name, beta1=0.9, beta2=0.999, epsilon=0.01)
        else:
            made = op(name)
        state = {key: numbers[key] for key in made.writes}
        for g in (0.5, -0.25, 1.5):
            inputs = arguments(made, {**numbers, **state, "grad": g}, np.float64, (2,))
            state = dict(zip(made.writes, reference(*state.values(), g), strict=True))
            for key, value in zip(made.writes, made.kernel(*inputs), strict=True):
                np.testing.assert_allclose(value, np.full(2, state[key]), rtol=1e-12, err_msg=key)
            # continue from the scalar's state, so that rounding does not add up


def test_amsgrad_of_adamw_writes_the_largest_second_moment() -> None:
    made = op("ApplyAdamW", amsgrad=True, maximize=True)
    numbers = {**ONE_STEP, **ADAM, "beta1_power": 0.9, "beta2_power": 0.999, "epsilon": 1e-8, "weight_decay": 0.01}
    inputs = arguments(made, {**numbers, "max_grad_norm": 0.02}, np.float64, (1,))
    p, m, v, largest = (float(x[0]) for x in made.kernel(*inputs))
    assert (m, v, largest) == pytest.approx((0.09 - 0.05, 0.01024, 0.02))
    assert p == pytest.approx(0.999 - 0.1 / 0.19 * m / (math.sqrt(0.02 / (1 - 0.998001)) + 1e-8))


def test_adagrad_without_epsilon_gives_nan_for_zero_and_is_not_zero_preserving() -> None:
    with np.errstate(all="ignore"):
        p, _ = op("ApplyAdagrad").kernel(f32([1]), f32([0]), f32(0.1), f32([0]))
    assert np.isnan(p[0])
    for name, kind in load_all().items():
        if kind.writes and name.startswith("Apply"):
            assert kind.zero_preserving == (name not in ("ApplyAdagrad", "ApplyAdagradD")), name


def test_a_learning_rate_with_dims_and_a_slot_of_another_shape_are_refused() -> None:
    var, scalar, pair = (TensorDesc(DataType.FLOAT, dims) for dims in ((2, 3), (), (2,)))
    with pytest.raises(InferenceError, match=r"lr \[2\] must be a scalar"):
        op("ApplyMomentum").infer(var, var, pair, var, scalar)
    with pytest.raises(InferenceError, match=r"accum \[2\] must have the shape of \[2, 3\]"):
        op("ApplyMomentum").infer(var, pair, scalar, var, scalar)
    assert [desc.shape for desc in op("ApplyMomentum").infer(var, var, scalar, var, scalar)] == [(2, 3), (2, 3)]


def test_an_empty_variable_is_left_alone() -> None:
    empty = np.zeros((0, 3), np.float32)
    (p,) = op("ApplyGradientDescent").kernel(empty, f32(0.1), empty)
    assert p.shape == (0, 3)


def test_the_ports_of_optimizers_are_those_of_the_definitions() -> None:
    kind = find("ApplyMomentum")
    assert kind is not None
    assert [port.name for port in kind.inputs] == ["var", "accum", "lr", "grad", "momentum"]
    assert ([port.name for port in kind.outputs], kind.writes) == (["var"], ("var", "accum"))
    kind = find("ApplyAdamW")
    assert kind is not None and kind.inputs[-1].optional


@pytest.mark.parametrize("type, expected", [("Assign", [3, 4]), ("AssignAdd", [4, 6]), ("AssignSub", [-2, -2])])
def test_assignments_write_the_variable_in_place(type: str, expected: list[int]) -> None:
    for dtype in (np.float32, np.int32):
        ref, value = np.array([1, 2], dtype), np.array([3, 4], dtype)
        made = op(type)
        np.testing.assert_array_equal(made.kernel(ref, value), expected)
        step = made.bind([ref, value], [ref])
        step()
        np.testing.assert_array_equal(ref, expected)


def test_assign_add_wraps_integers() -> None:
    np.testing.assert_array_equal(op("AssignAdd").kernel(np.int8([127]), np.int8([1])), np.int8([-128]))


def test_a_strided_slice_of_a_variable_is_replaced() -> None:
    var, value = np.zeros((2, 4), np.float32), f32([[1, 2]])
    expected = [[0, 0, 0, 0], [0, 1, 2, 0]]
    made = op("StridedSliceAssignD", begin=(1, 1), end=(2, 3), strides=(1, 1))
    np.testing.assert_array_equal(made.kernel(var, value), expected)
    ends = [np.array(v, np.int64) for v in ((1, 1), (2, 3), (1, 1))]
    np.testing.assert_array_equal(op("StridedSliceAssign").kernel(var, *ends, value), expected)
    with pytest.raises(ValueError, match="does not fit the slice"):
        made.kernel(var, f32([1]))


def test_a_counter_stops_at_its_limit() -> None:
    old, new = op("CountUpTo", limit=3).kernel(np.int64(2).reshape(()))
    assert (int(old), int(new)) == (2, 3)
    with pytest.raises(ValueError, match="out of range"):
        op("CountUpTo", limit=3).kernel(np.int64(3).reshape(()))


@pytest.mark.parametrize("op_name", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("dims, weighted", [((4, 3), False), ((2, 3, 2, 2), True)])
def test_onnx_losses_give_what_onnxruntime_gives(
    op_name: str, reduction: str, dims: tuple[int, ...], weighted: bool
) -> None:
    random = np.random.default_rng(5)
    inputs = [random.normal(size=dims).astype(np.float32), random.integers(0, 3, (dims[0], *dims[2:]))]
    if weighted:
        inputs.append(f32([0.5, 1, 2]))
    attrs = {"reduction": reduction, "ignore_index": 1}
    judge(op_name, inputs, attrs=attrs, opset=13)
