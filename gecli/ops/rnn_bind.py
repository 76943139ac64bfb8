"""Recurrent layers over fixed arrays: the input projection is one matmul over all steps, gates one tanh a step.

sigmoid(x) = tanh(x / 2) / 2 + 1/2, so the sigmoid gates' weights are halved once and one tanh serves all gates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gecli.ops.numeric import Array, Step

HALF = np.float32(0.5)


def bind_lstm(reversals: Sequence[bool], slots: Sequence[Array | None], outputs: Sequence[Array]) -> Step:
    """x, w, r, b, -, initial_h, initial_c -> y, y_h, y_c, for default activations and full sequences."""
    x, w, r, b, _, initial_h, initial_c, _ = slots
    assert x is not None and w is not None and r is not None
    y, y_h, y_c = outputs
    hidden = r.shape[2]
    scale = np.ones(4 * hidden, np.float32)
    scale[: 3 * hidden] = HALF
    runs = []
    for d, reverse in enumerate(reversals):
        bias = None if b is None else (b[d, : 4 * hidden] + b[d, 4 * hidden :]) * scale
        project, gates_x = _projection(x, w[d], scale, bias)
        h0 = None if initial_h is None else initial_h[d]
        c0 = None if initial_c is None else initial_c[d]
        runs.append(_lstm_run(project, gates_x, _packed(r[d], scale), y[:, d], y_h[d], y_c[d], h0, c0, reverse))
    return _all(runs)


def _packed(weight: Array, scale: Array) -> Array:
    """The weight transposed, its gate columns scaled."""
    return np.ascontiguousarray((weight * scale[:, None]).T)


def _projection(x: Array, w: Array, scale: Array, bias: Array | None) -> tuple[Step, Array]:
    """A step that computes the inputs' part of all gates, and the array [time, batch, gates] that it fills."""
    steps, batch, features = x.shape
    flat = x.reshape(steps * batch, features)
    packed = _packed(w, scale)
    out = np.empty((steps * batch, packed.shape[1]), np.float32)
    matmul, add = np.matmul, np.add

    def run() -> None:
        matmul(flat, packed, out)
        if bias is not None:
            add(out, bias, out)

    return run, out.reshape(steps, batch, -1)


def _all(runs: Sequence[Step]) -> Step:
    if len(runs) == 1:
        return runs[0]

    def run() -> None:
        for each in runs:
            each()

    return run


def _lstm_run(
    project: Step,
    gates_x: Array,
    recurrent: Array,
    y: Array,
    y_h: Array,
    y_c: Array,
    h0: Array | None,
    c0: Array | None,
    reverse: bool,
) -> Step:
    steps, batch, wide = gates_x.shape
    hidden = wide // 4
    gates = np.empty((batch, wide), np.float32)
    sigmoids = gates[:, : 3 * hidden]
    i, o, f, g = (gates[:, n * hidden : (n + 1) * hidden] for n in range(4))
    c, scratch = np.empty((batch, hidden), np.float32), np.empty((batch, hidden), np.float32)
    zeros = np.zeros((batch, hidden), np.float32)
    first_h = zeros if h0 is None else h0
    first_c = zeros if c0 is None else c0
    times = range(steps - 1, -1, -1) if reverse else range(steps)
    pairs = [(gates_x[t], y[t]) for t in times]
    matmul, add, multiply, tanh, copyto = np.matmul, np.add, np.multiply, np.tanh, np.copyto

    def run() -> None:
        project()
        copyto(c, first_c)
        h = first_h
        for x_t, y_t in pairs:
            matmul(h, recurrent, gates)
            add(gates, x_t, gates)
            tanh(gates, gates)
            multiply(sigmoids, HALF, sigmoids)
            add(sigmoids, HALF, sigmoids)
            multiply(c, f, c)
            multiply(i, g, scratch)
            add(c, scratch, c)
            tanh(c, scratch)
            multiply(o, scratch, y_t)
            h = y_t
        copyto(y_h, h)
        copyto(y_c, c)

    return run


def bind_gru(
    reversals: Sequence[bool], slots: Sequence[Array | None], outputs: Sequence[Array], linear_before_reset: bool
) -> Step:
    """x, w, r, b, -, initial_h -> y, y_h, for default activations and full sequences."""
    x, w, r, b, _, initial_h = slots
    assert x is not None and w is not None and r is not None
    y, y_h = outputs
    hidden = r.shape[2]
    scale = np.ones(3 * hidden, np.float32)
    scale[: 2 * hidden] = HALF
    runs = []
    for d, reverse in enumerate(reversals):
        bias, inner = None, None
        if b is not None:
            bias = b[d, : 3 * hidden].copy()
            bias[: 2 * hidden] += b[d, 3 * hidden : 5 * hidden]
            if linear_before_reset:
                inner = b[d, 5 * hidden :].copy()
            else:
                bias[2 * hidden :] += b[d, 5 * hidden :]
            bias *= scale
        project, gates_x = _projection(x, w[d], scale, bias)
        h0 = None if initial_h is None else initial_h[d]
        make = _gru_run_linear if linear_before_reset else _gru_run
        runs.append(make(project, gates_x, _packed(r[d], scale), inner, y[:, d], y_h[d], h0, reverse))
    return _all(runs)


def _gru_pairs(gates_x: Array, y: Array, reverse: bool) -> list[tuple[Array, Array, Array]]:
    """For each step: the inputs' part of z and r, that of the candidate, and the place of the output."""
    steps, _, wide = gates_x.shape
    both = 2 * (wide // 3)
    times = range(steps - 1, -1, -1) if reverse else range(steps)
    return [(gates_x[t, :, :both], gates_x[t, :, both:], y[t]) for t in times]


def _gru_run_linear(
    project: Step,
    gates_x: Array,
    recurrent: Array,
    inner: Array | None,
    y: Array,
    y_h: Array,
    h0: Array | None,
    reverse: bool,
) -> Step:
    """candidate = tanh(x + r * (h R + b)): one matmul a step."""
    _, batch, wide = gates_x.shape
    hidden = wide // 3
    product = np.empty((batch, wide), np.float32)
    gates, candidate = product[:, : 2 * hidden], product[:, 2 * hidden :]
    z, r = product[:, :hidden], product[:, hidden : 2 * hidden]
    first = np.zeros((batch, hidden), np.float32) if h0 is None else h0
    pairs = _gru_pairs(gates_x, y, reverse)
    matmul, add, multiply, tanh = np.matmul, np.add, np.multiply, np.tanh
    blend = _blend(z, candidate)

    def run() -> None:
        project()
        h = first
        for x_gates, x_candidate, y_t in pairs:
            matmul(h, recurrent, product)
            add(gates, x_gates, gates)
            tanh(gates, gates)
            multiply(gates, HALF, gates)
            add(gates, HALF, gates)
            if inner is not None:
                add(candidate, inner, candidate)
            multiply(candidate, r, candidate)
            add(candidate, x_candidate, candidate)
            tanh(candidate, candidate)
            blend(h, y_t)
            h = y_t
        np.copyto(y_h, h)

    return run


def _gru_run(
    project: Step,
    gates_x: Array,
    recurrent: Array,
    inner: Array | None,
    y: Array,
    y_h: Array,
    h0: Array | None,
    reverse: bool,
) -> Step:
    """candidate = tanh(x + (r * h) R + b): two matmuls a step."""
    _, batch, wide = gates_x.shape
    hidden = wide // 3
    gates, candidate = np.empty((batch, 2 * hidden), np.float32), np.empty((batch, hidden), np.float32)
    kept = np.empty((batch, hidden), np.float32)
    z, r = gates[:, :hidden], gates[:, hidden:]
    r_gates, r_candidate = (
        np.ascontiguousarray(recurrent[:, : 2 * hidden]),
        np.ascontiguousarray(recurrent[:, 2 * hidden :]),
    )
    first = np.zeros((batch, hidden), np.float32) if h0 is None else h0
    pairs = _gru_pairs(gates_x, y, reverse)
    matmul, add, multiply, tanh = np.matmul, np.add, np.multiply, np.tanh
    blend = _blend(z, candidate)

    def run() -> None:
        project()
        h = first
        for x_gates, x_candidate, y_t in pairs:
            matmul(h, r_gates, gates)
            add(gates, x_gates, gates)
            tanh(gates, gates)
            multiply(gates, HALF, gates)
            add(gates, HALF, gates)
            multiply(h, r, kept)
            matmul(kept, r_candidate, candidate)
            add(candidate, x_candidate, candidate)
            tanh(candidate, candidate)
            blend(h, y_t)
            h = y_t
        np.copyto(y_h, h)

    return run


def _blend(z: Array, candidate: Array) -> Callable[[Array, Array], None]:
    """y = (1 - z) * candidate + z * h, as candidate + z * (h - candidate)."""
    subtract, multiply, add = np.subtract, np.multiply, np.add

    def run(h: Array, y: Array) -> None:
        subtract(h, candidate, y)
        multiply(y, z, y)
        add(y, candidate, y)

    return run
