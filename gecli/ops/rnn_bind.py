"""Recurrent layers over fixed arrays: the input projection is one matmul over all steps, gates one tanh a step.

sigmoid(x) = tanh(x / 2) / 2 + 1/2, so the sigmoid gates' weights are halved once and one tanh serves all gates. Two
directions run side by side, the second from the last time on: a numpy call takes longer to start than to work here,
so one call does both. Arrays of a step are [batch, ...] with one direction and [2, batch, ...] with two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from gecli.ops.intra_op import matmul_actions
from gecli.ops.numeric import Array, Step, sequence

HALF = np.float32(0.5)


class _Layer(NamedTuple):
    """The arrays of one layer, its directions stacked where there are two. Gates lie one after another."""

    project: Step  # computes the inputs' part of all gates
    gates_x: list[Array]  # that part, for every step in its order
    recurrent: Array  # [gates, ..., hidden, hidden]
    y: list[Array]  # where each step puts its output
    finish: Step | None  # brings the outputs into the order of time


def bind_lstm(reversals: Sequence[bool], slots: Sequence[Array | None], outputs: Sequence[Array]) -> Step:
    """x, w, r, b, -, initial_h, initial_c -> y, y_h, y_c, for default activations and full sequences."""
    x, w, r, b, _, initial_h, initial_c, _ = slots
    assert x is not None and w is not None and r is not None
    hidden = r.shape[2]
    scale = np.ones(4 * hidden, np.float32)
    scale[: 3 * hidden] = HALF
    bias = None if b is None else (b[:, : 4 * hidden] + b[:, 4 * hidden :]) * scale
    layer = _layer(reversals, x, w, r, scale, bias, outputs[0])
    return _lstm_run(layer, _stacked(outputs[1]), _stacked(outputs[2]), initial_h, initial_c)


def bind_gru(
    reversals: Sequence[bool], slots: Sequence[Array | None], outputs: Sequence[Array], linear_before_reset: bool
) -> Step:
    """x, w, r, b, -, initial_h -> y, y_h, for default activations and full sequences."""
    x, w, r, b, _, initial_h = slots
    assert x is not None and w is not None and r is not None
    hidden = r.shape[2]
    scale = np.ones(3 * hidden, np.float32)
    scale[: 2 * hidden] = HALF
    bias, inner = None, None
    if b is not None:
        bias = b[:, : 3 * hidden].copy()
        bias[:, : 2 * hidden] += b[:, 3 * hidden : 5 * hidden]
        if linear_before_reset:
            inner = _stacked(b[:, None, 5 * hidden :].copy())
        else:
            bias[:, 2 * hidden :] += b[:, 5 * hidden :]
        bias *= scale
    layer = _layer(reversals, x, w, r, scale, bias, outputs[0])
    if linear_before_reset:
        return _gru_run_linear(layer, inner, _stacked(outputs[1]), initial_h)
    return _gru_run(layer, _stacked(outputs[1]), initial_h)


def _stacked(array: Array) -> Array:
    """Without the axis of directions when there is one direction."""
    return array[0] if len(array) == 1 else array


def _start(given: Array | None, like: Array) -> Array:
    """The state before the first step."""
    return np.zeros(like.shape, np.float32) if given is None else _stacked(given)


def _layer(
    reversals: Sequence[bool], x: Array, w: Array, r: Array, scale: Array, bias: Array | None, y: Array
) -> _Layer:
    steps, batch, features = x.shape
    hidden, count = r.shape[2], len(reversals)
    gates_x = np.empty((steps, len(scale) // hidden, count, batch, hidden), np.float32)
    found = np.empty((steps, count, batch, hidden), np.float32)
    ways = [slice(None, None, -1 if reverse else 1) for reverse in reversals]
    product = gates_x if count * batch == 1 and not reversals[0] else np.empty((steps, batch, len(scale)), np.float32)
    flat = x.reshape(steps * batch, features)
    parts = []
    for d, way in enumerate(ways):
        by_gate = product.reshape(steps, batch, -1, hidden).swapaxes(1, 2)
        added = None if bias is None else bias[d].reshape(-1, 1, hidden)
        packed = np.ascontiguousarray((w[d] * scale[:, None]).T)
        whole = product.reshape(steps * batch, -1)
        parts.append(_projection(flat, packed, whole, by_gate[way], added, gates_x[:, :, d]))
    copies = [(y[:, d], found[way, d]) for d, way in enumerate(ways)]

    def project() -> None:
        for part in parts:
            part()

    def finish() -> None:
        for target, source in copies:
            np.copyto(target, source)

    recurrent = (r * scale[:, None]).reshape(count, -1, hidden, hidden)
    recurrent = np.ascontiguousarray(np.moveaxis(recurrent, 1, 0).swapaxes(2, 3))
    if count == 1:  # the outputs of one direction go where they belong
        times = range(steps)[ways[0]]
        return _Layer(parts[0], list(gates_x[:, :, 0]), recurrent[:, 0], [y[t, 0] for t in times], None)
    return _Layer(project, list(gates_x), recurrent, list(found), finish)


def _projection(flat: Array, packed: Array, product: Array, by_gate: Array, bias: Array | None, target: Array) -> Step:
    """product = flat @ packed, then target = by_gate + bias, where by_gate is a view of the product."""
    actions = matmul_actions(flat, packed, product)
    if bias is not None:
        actions.append((np.add, (by_gate, bias, target)))
    elif not np.shares_memory(by_gate, target):
        actions.append((np.copyto, (target, by_gate)))
    return sequence(actions)


def _product(weight: Array, product: Array) -> tuple[Array, Array]:
    """What to multiply a state by and where to put it: all gates of one sequence are one product, rows of a matrix."""
    gates, hidden = len(weight), weight.shape[-1]
    if product.size > gates * hidden:
        return weight, product
    return np.ascontiguousarray(weight.swapaxes(0, 1)).reshape(hidden, -1), product.reshape(1, -1)


def _lstm_run(layer: _Layer, y_h: Array, y_c: Array, h0: Array | None, c0: Array | None) -> Step:
    project, gates_x, recurrent, y, finish = layer
    gates = np.empty(gates_x[0].shape, np.float32)
    weight, product = _product(recurrent, gates)
    sigmoids = gates[:3]
    i, o, f, g = gates
    c, scratch = np.empty(y_h.shape, np.float32), np.empty(y_h.shape, np.float32)
    first_h, first_c = _start(h0, y_h), _start(c0, y_h)
    pairs = list(zip(gates_x, y))
    matmul, add, multiply, tanh, copyto = np.matmul, np.add, np.multiply, np.tanh, np.copyto

    def run() -> None:
        project()
        copyto(c, first_c)
        h = first_h
        for x_t, y_t in pairs:
            matmul(h, weight, product)
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
        if finish is not None:
            finish()

    return run


def _gru_pairs(layer: _Layer) -> list[tuple[Array, Array, Array]]:
    """For each step: the inputs' part of z and r, that of the candidate, and the place of the output."""
    return [(x[:2], x[2], y) for x, y in zip(layer.gates_x, layer.y)]


def _gru_run_linear(layer: _Layer, inner: Array | None, y_h: Array, h0: Array | None) -> Step:
    """candidate = tanh(x + r * (h R + b)): one matmul a step."""
    project, finish = layer.project, layer.finish
    all_gates = np.empty(layer.gates_x[0].shape, np.float32)
    weight, product = _product(layer.recurrent, all_gates)
    gates, (z, r, candidate) = all_gates[:2], all_gates
    first, pairs = _start(h0, y_h), _gru_pairs(layer)
    matmul, add, multiply, tanh = np.matmul, np.add, np.multiply, np.tanh
    blend = _blend(z, candidate)

    def run() -> None:
        project()
        h = first
        for x_gates, x_candidate, y_t in pairs:
            matmul(h, weight, product)
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
        if finish is not None:
            finish()

    return run


def _gru_run(layer: _Layer, y_h: Array, h0: Array | None) -> Step:
    """candidate = tanh(x + (r * h) R + b): two matmuls a step."""
    project, finish = layer.project, layer.finish
    gates = np.empty((2, *y_h.shape), np.float32)
    candidate, kept = np.empty(y_h.shape, np.float32), np.empty(y_h.shape, np.float32)
    z, r = gates
    r_gates, product = _product(layer.recurrent[:2], gates)
    r_candidate = layer.recurrent[2]
    first, pairs = _start(h0, y_h), _gru_pairs(layer)
    matmul, add, multiply, tanh = np.matmul, np.add, np.multiply, np.tanh
    blend = _blend(z, candidate)

    def run() -> None:
        project()
        h = first
        for x_gates, x_candidate, y_t in pairs:
            matmul(h, r_gates, product)
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
        if finish is not None:
            finish()

    return run


def _blend(z: Array, candidate: Array) -> Callable[[Array, Array], None]:
    """y = (1 - z) * candidate + z * h, as candidate + z * (h - candidate)."""
    subtract, multiply, add = np.subtract, np.multiply, np.add

    def run(h: Array, y: Array) -> None:
        subtract(h, candidate, y)
        multiply(y, z, y)
        add(y, candidate, y)

    return run
