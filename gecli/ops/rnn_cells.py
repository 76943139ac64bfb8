"""Arithmetic of recurrent layers: activations by name, order of time, one direction of LSTM, GRU and RNN."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gecli.ops.numeric import Array

Activation = Callable[[Array], Array]


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow."""
    half = x.dtype.type(0.5)
    return np.tanh(x * half) * half + half


def _softplus(x: Array, a: float, b: float) -> Array:
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


# name -> (default alpha, default beta, function); None: the activation takes no such number.
ACTIVATIONS: dict[str, tuple[float | None, float | None, Callable[[Array, float, float], Array]]] = {
    "sigmoid": (None, None, lambda x, a, b: sigmoid(x)),
    "tanh": (None, None, lambda x, a, b: np.tanh(x)),
    "relu": (None, None, lambda x, a, b: np.maximum(x, 0)),
    "softsign": (None, None, lambda x, a, b: x / (1 + np.abs(x))),
    "softplus": (None, None, _softplus),
    "affine": (1.0, 0.0, lambda x, a, b: a * x + b),
    "leakyrelu": (0.01, None, lambda x, a, b: np.where(x >= 0, x, a * x)),
    "thresholdedrelu": (1.0, None, lambda x, a, b: np.where(x > a, x, 0)),
    "scaledtanh": (1.0, 1.0, lambda x, a, b: a * np.tanh(b * x)),
    "hardsigmoid": (0.2, 0.5, lambda x, a, b: np.clip(a * x + b, 0, 1)),
    "elu": (1.0, None, lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0)))),
}


def activations(names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]) -> list[Activation]:
    """The functions for `names`; alphas and betas go, in order, to those that take one. Raises ValueError."""
    left_alpha, left_beta = list(alphas), list(betas)
    made: list[Activation] = []
    for name in names:
        found = ACTIVATIONS.get(name.lower())
        if found is None:
            raise ValueError(f"activation {name!r} is not supported")
        alpha, beta, function = found
        if alpha is not None and left_alpha:
            alpha = left_alpha.pop(0)
        if beta is not None and left_beta:
            beta = left_beta.pop(0)
        made.append(_bound(function, alpha or 0.0, beta or 0.0))
    return made


def _bound(function: Callable[[Array, float, float], Array], alpha: float, beta: float) -> Activation:
    return lambda x: function(x, alpha, beta).astype(x.dtype, copy=False)


def time_order(steps: int, batch: int, lengths: Array | None, reverse: bool) -> Array | None:
    """For each step and batch entry the time that is processed; None for the natural order.

    A reversed sequence starts at its own last entry. The order is its own inverse.
    """
    if not reverse:
        return None
    time = np.arange(steps)[:, None]
    ends = np.full(batch, steps) if lengths is None else lengths.astype(np.int64)
    return np.where(time < ends, ends - 1 - time, time)


def in_order(x: Array, order: Array | None) -> Array:
    """x [time, batch, ...] with each batch entry in the given order of time."""
    return x if order is None else x[order, np.arange(x.shape[1])]


def clipped(x: Array, clip: float) -> Array:
    return np.clip(x, -clip, clip) if clip > 0 else x


def lstm_direction(
    x: Array,
    w: Array,
    r: Array,
    bias: Array,
    lengths: Array | None,
    h: Array,
    c: Array,
    peephole: Array,
    act: Sequence[Activation],
    clip: float,
    couple: bool,
) -> tuple[Array, Array, Array]:
    """One direction in its order of time: outputs [time, batch, hidden], last h, last c. Gates i, o, f, c."""
    steps, batch, _ = x.shape
    hidden = r.shape[1]
    f, g, k = act
    inputs = x @ w.T + (bias[: 4 * hidden] + bias[4 * hidden :])
    p_i, p_o, p_f = peephole[:hidden], peephole[hidden : 2 * hidden], peephole[2 * hidden :]
    y = np.zeros((steps, batch, hidden), x.dtype)
    recurrent = r.T
    for t in range(steps):
        gates = inputs[t] + h @ recurrent
        gate_i, gate_o, gate_f, gate_c = (gates[:, n * hidden : (n + 1) * hidden] for n in range(4))
        i = f(clipped(gate_i + p_i * c, clip))
        forget = 1 - i if couple else f(clipped(gate_f + p_f * c, clip))
        new_c = forget * c + i * g(clipped(gate_c, clip))
        new_h = f(clipped(gate_o + p_o * new_c, clip)) * k(new_c)
        h, c = _live(t, lengths, new_h, h), _live(t, lengths, new_c, c)
        y[t] = new_h if lengths is None else np.where((t < lengths)[:, None], new_h, 0)
    return y, h, c


def gru_direction(
    x: Array,
    w: Array,
    r: Array,
    bias: Array,
    lengths: Array | None,
    h: Array,
    act: Sequence[Activation],
    clip: float,
    linear_before_reset: bool,
) -> tuple[Array, Array]:
    """One direction in its order of time: outputs and last h. Gates z, r, h."""
    steps, batch, _ = x.shape
    hidden = r.shape[1]
    f, g = act
    inputs = x @ w.T + bias[: 3 * hidden]
    both, last = slice(0, 2 * hidden), slice(2 * hidden, None)
    r_both, r_last = r[both].T, r[last].T
    b_both, b_last = bias[3 * hidden : 5 * hidden], bias[5 * hidden :]
    y = np.zeros((steps, batch, hidden), x.dtype)
    for t in range(steps):
        gates = f(clipped(inputs[t, :, both] + h @ r_both + b_both, clip))
        z, reset = gates[:, :hidden], gates[:, hidden:]
        inner = reset * (h @ r_last + b_last) if linear_before_reset else (reset * h) @ r_last + b_last
        candidate = g(clipped(inputs[t, :, last] + inner, clip))
        new_h = (1 - z) * candidate + z * h
        h = _live(t, lengths, new_h, h)
        y[t] = new_h if lengths is None else np.where((t < lengths)[:, None], new_h, 0)
    return y, h


def rnn_direction(
    x: Array,
    w: Array,
    r: Array,
    bias: Array,
    lengths: Array | None,
    h: Array,
    act: Sequence[Activation],
    clip: float,
) -> tuple[Array, Array]:
    """One direction in its order of time: outputs and last h."""
    steps, batch, _ = x.shape
    hidden = r.shape[1]
    inputs = x @ w.T + (bias[:hidden] + bias[hidden:])
    y = np.zeros((steps, batch, hidden), x.dtype)
    recurrent = r.T
    for t in range(steps):
        new_h = act[0](clipped(inputs[t] + h @ recurrent, clip))
        h = _live(t, lengths, new_h, h)
        y[t] = new_h if lengths is None else np.where((t < lengths)[:, None], new_h, 0)
    return y, h


def _live(t: int, lengths: Array | None, new: Array, old: Array) -> Array:
    """The new state where the sequence still runs at step t."""
    return new if lengths is None else np.where((t < lengths)[:, None], new, old)
