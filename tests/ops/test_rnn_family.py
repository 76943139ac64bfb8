"""LSTM, GRU and RNN against onnxruntime: directions, lengths, activations, peepholes, layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc
from gecli.ops.inference import InferenceError
from gecli.ops.registry import find
from tests.ops.onnx_judge import judge

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, FEATURES, HIDDEN = 5, 3, 4, 6


def layer(op: str, directions: int = 1, slots: str = "b") -> list[Any]:
    """Inputs of a layer; `slots` names the optional ones that are given."""
    random = np.random.default_rng(7)

    def values(*shape: int) -> NDArray[np.float32]:
        return random.uniform(-1, 1, shape).astype(np.float32)

    gates = GATES[op] * HIDDEN
    inputs: list[Any] = [
        values(STEPS, BATCH, FEATURES),
        values(directions, gates, FEATURES),
        values(directions, gates, HIDDEN),
        values(directions, 2 * gates) if "b" in slots else None,
        np.array([2, 5, 3], np.int32) if "l" in slots else None,
        values(directions, BATCH, HIDDEN) if "h" in slots else None,
    ]
    if op == "LSTM":
        inputs.append(values(directions, BATCH, HIDDEN) if "c" in slots else None)
        inputs.append(values(directions, 3 * HIDDEN) if "p" in slots else None)
    while inputs[-1] is None:
        inputs.pop()
    return inputs


CASES: list[tuple[str, int, str, dict[str, Any]]] = [
    ("LSTM", 1, "", {}),
    ("LSTM", 1, "b", {}),
    ("LSTM", 1, "bhc", {"direction": "reverse"}),
    ("LSTM", 2, "bhc", {"direction": "bidirectional"}),
    ("LSTM", 2, "blhc", {"direction": "bidirectional"}),
    ("LSTM", 1, "bl", {"direction": "reverse"}),
    ("LSTM", 1, "bhcp", {}),
    ("LSTM", 1, "b", {"clip": 0.4}),
    ("LSTM", 1, "b", {"input_forget": 1}),
    ("LSTM", 1, "b", {"activations": ["HardSigmoid", "Softsign", "Relu"], "activation_alpha": [0.3]}),
    ("GRU", 1, "", {}),
    ("GRU", 1, "bh", {}),
    ("GRU", 1, "bh", {"linear_before_reset": 1}),
    ("GRU", 2, "bh", {"direction": "bidirectional", "linear_before_reset": 1}),
    ("GRU", 2, "blh", {"direction": "bidirectional"}),
    ("GRU", 1, "b", {"direction": "reverse"}),
    ("GRU", 1, "b", {"activations": ["Sigmoid", "LeakyRelu"], "activation_alpha": [0.2], "clip": 0.7}),
    ("RNN", 1, "b", {}),
    ("RNN", 2, "blh", {"direction": "bidirectional"}),
    ("RNN", 1, "b", {"activations": ["Elu"]}),
    ("RNN", 1, "b", {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.1]}),
]


@pytest.mark.parametrize("op, directions, slots, attrs", CASES)
def test_recurrent_layers_give_what_onnxruntime_gives(
    op: str, directions: int, slots: str, attrs: dict[str, Any]
) -> None:
    outputs = 3 if op == "LSTM" else 2
    inputs = layer(op, directions, slots)
    constant = [slot for slot in (1, 2, 3) if slot < len(inputs)]
    judge(op, inputs, attrs={"hidden_size": HIDDEN, **attrs}, opset=14, outputs=outputs, constant=constant)


@pytest.mark.parametrize("op", GATES)
def test_layout_1_is_the_transposed_layer(op: str) -> None:
    inputs = layer(op, 1, "bh")
    outputs = 3 if op == "LSTM" else 2
    attrs = {"hidden_size": HIDDEN}
    plain = judge(op, inputs, attrs=attrs, opset=14, outputs=outputs)
    swapped = [inputs[0].swapaxes(0, 1), *inputs[1:5], inputs[5].swapaxes(0, 1)]
    expected = [plain[0].transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in plain[1:])]
    judge(op, swapped, attrs={**attrs, "layout": 1}, opset=14, outputs=outputs, expected=expected)


@pytest.mark.parametrize("op", GATES)
def test_half_precision_layers_compute_in_float32_and_round_once(op: str) -> None:
    inputs = [x if x is None or x.dtype != np.float32 else x.astype(np.float16) for x in layer(op, 1, "bh")]
    kind = find(f"Common{op}")
    assert kind is not None
    half = kind.cls(hidden_size=HIDDEN).kernel(*inputs)
    wide = kind.cls(hidden_size=HIDDEN).kernel(*[None if x is None else x.astype(np.float32) for x in inputs])
    for got, want in zip(half, wide, strict=True):
        np.testing.assert_array_equal(got, want.astype(np.float16))


def test_an_unknown_activation_is_refused() -> None:
    kind = find("CommonRNN")
    assert kind is not None
    with pytest.raises(ValueError, match="activation 'Sine'"):
        kind.cls(hidden_size=HIDDEN, activations=("Sine",)).kernel(*layer("RNN"))


@pytest.mark.parametrize("op, slot", [("LSTM", 5), ("LSTM", 6), ("GRU", 5), ("RNN", 5)])
@pytest.mark.parametrize("shape", [(1, 1, HIDDEN), (1, BATCH, 1), (2, BATCH, HIDDEN), (BATCH, HIDDEN)])
def test_an_initial_state_of_another_shape_is_refused_not_broadcast(op: str, slot: int, shape: tuple[int, ...]) -> None:
    kind = find(f"Common{op}")
    assert kind is not None
    made = kind.cls(hidden_size=HIDDEN)
    made.constant_inputs = frozenset((1, 2))
    inputs = layer(op, 1, "hc")
    good = [np.empty_like(value) for value in made.kernel(*inputs)]
    inputs[slot] = np.zeros(shape, np.float32)
    descs = [None if value is None else TensorDesc(DataType.FLOAT, value.shape) for value in inputs]
    with pytest.raises(InferenceError, match="an initial state is"):
        made.infer(*descs)
    with pytest.raises(ValueError, match="an initial state is"):
        made.kernel(*inputs)
    assert op == "RNN" or made.bind(inputs, good) is None  # the plain layer has no other way than its kernel


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
@pytest.mark.parametrize("directions, batch, reverse", [(1, 1, False), (1, 1, True), (2, 1, False), (2, 3, False)])
@pytest.mark.parametrize("ends", [5, 2])
def test_a_bound_layer_follows_the_lengths_that_a_run_brings(
    op: str, directions: int, batch: int, reverse: bool, ends: int
) -> None:
    kind = find(f"Common{op}")
    assert kind is not None
    direction = "bidirectional" if directions == 2 else "reverse" if reverse else "forward"
    made = kind.cls(hidden_size=HIDDEN, direction=direction)
    made.constant_inputs = frozenset((1, 2, 3))
    inputs = layer(op, directions, "bhc")
    inputs[0] = np.ascontiguousarray(inputs[0][:, :batch])
    inputs[5:] = [np.ascontiguousarray(state[:, :batch]) for state in inputs[5:]]
    lengths = inputs[4] = np.full(batch, STEPS, np.int32)
    outputs = [np.empty_like(value) for value in made.kernel(*inputs)]
    step = made.bind(inputs, outputs)
    lengths[-1] = ends
    step()
    for got, want in zip(outputs, made.kernel(*inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)
