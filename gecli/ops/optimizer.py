"""Optimizers (training.md 9): each updates its variable and slots in place.

A formula is written once, in `update`, over arrays that it may overwrite; `Optimizer` runs it on copies or in place.
The D forms have all written inputs as outputs, the others get them by ApplyAddOutput; the kernel returns all of
them, in the order of the inputs, either way.
"""

from __future__ import annotations

import math

import numpy as np

from gecli.ops.numeric import Array
from gecli.ops.operator import operator
from gecli.ops.optimizer_base import Optimizer


def decay(slot: Array, beta: float, value: Array, space: Array) -> None:
    """slot = beta * slot + (1 - beta) * value."""
    np.multiply(slot, beta, slot)
    np.multiply(value, 1 - beta, space)
    np.add(slot, space, slot)


@operator()
class ApplyGradientDescent(Optimizer):
    """p -= alpha * delta."""

    use_locking: bool = False
    inputs = ("var", "alpha", "delta")
    outputs = ("var",)
    writes = ("var",)
    values = ("delta",)
    scalars = ("alpha",)
    scratch_arrays = 1

    def update(self, p: Array, delta: Array, alpha: float, space: Array) -> None:
        np.multiply(delta, alpha, space)
        np.subtract(p, space, p)


class _Momentum(Optimizer):
    """a = a * mu + g; p -= lr * a, or with nesterov p -= g * lr + a * mu * lr."""

    use_nesterov: bool = False
    use_locking: bool = False
    inputs = ("var", "accum", "lr", "grad", "momentum")
    writes = ("var", "accum")
    scalars = ("lr", "momentum")
    scratch_arrays = 1

    def update(self, p: Array, a: Array, g: Array, lr: float, mu: float, space: Array) -> None:
        np.multiply(a, mu, a)
        np.add(a, g, a)
        if self.use_nesterov:
            np.multiply(g, lr, space)
            np.subtract(p, space, p)
            np.multiply(a, mu * lr, space)
        else:
            np.multiply(a, lr, space)
        np.subtract(p, space, p)


@operator()
class ApplyMomentum(_Momentum):
    """Gradient descent with momentum."""

    outputs = ("var",)


@operator()
class ApplyMomentumD(_Momentum):
    """Gradient descent with momentum."""

    outputs = ("var", "accum")


class _KerasMomentum(Optimizer):
    """a = a * mu - g * lr; p += a, or with nesterov p += a * mu - g * lr."""

    use_locking: bool = False
    use_nesterov: bool = False
    inputs = ("var", "accum", "lr", "grad", "momentum")
    writes = ("var", "accum")
    scalars = ("lr", "momentum")

    def update(self, p: Array, a: Array, g: Array, lr: float, mu: float, step: Array, space: Array) -> None:
        np.multiply(g, lr, step)
        np.multiply(a, mu, a)
        np.subtract(a, step, a)
        if self.use_nesterov:
            np.multiply(a, mu, space)
            np.add(p, space, p)
            np.subtract(p, step, p)
        else:
            np.add(p, a, p)


@operator()
class ApplyKerasMomentum(_KerasMomentum):
    """Momentum with the learning rate inside the slot."""

    outputs = ("var",)


@operator()
class ApplyKerasMomentumD(_KerasMomentum):
    """Momentum with the learning rate inside the slot."""

    outputs = ("var", "accum")


@operator()
class SGD(Optimizer):
    """Gradient descent with weight decay, dampening and momentum; `stat` is 1 before the first step."""

    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    inputs = ("parameters", "gradient", "learning_rate", "accum", "momentum", "stat")
    outputs = ("parameters",)
    writes = ("parameters", "accum", "stat")
    values = ("gradient",)
    scalars = ("learning_rate", "momentum")

    def update(
        self,
        p: Array,
        a: Array,
        stat: Array,
        gradient: Array,
        lr: float,
        mu: float,
        g: Array,
        new: Array,
    ) -> None:
        self._check(p)
        np.copyto(g, gradient)
        if self.weight_decay:
            np.multiply(p, self.weight_decay, new)
            np.add(g, new, g)
        np.multiply(a, mu, new)
        np.add(new, g, new)
        if self.dampening:
            np.subtract(new, self.dampening * (1 - stat) * g, new)
        if mu:
            np.copyto(a, new)
            stat[...] = 0
        if self.nesterov:
            np.multiply(g, lr, g)
            np.subtract(p, g, p)
            np.multiply(new, mu * lr, new)
        else:
            np.multiply(new, lr, new)
        np.subtract(p, new, p)

    def _check(self, p: Array) -> None:
        if self.nesterov and self.dampening:
            raise ValueError("nesterov needs a dampening of 0")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay {self.weight_decay} is negative")
        if not p.ndim:
            raise ValueError("parameters must have a dim")


class _Adam(Optimizer):
    """Adam with the powers beta^t, t = 1 at the first step (the graph multiplies them afterwards)."""

    use_locking: bool = False
    use_nesterov: bool = False
    inputs = ("var", "m", "v", "beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad")
    writes = ("var", "m", "v")
    scalars = ("beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon")

    def update(
        self,
        p: Array,
        m: Array,
        v: Array,
        g: Array,
        power1: float,
        power2: float,
        lr: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        step: Array,
        space: Array,
    ) -> None:
        rate = lr * math.sqrt(1 - power2) / (1 - power1)
        np.subtract(g, m, space)
        np.multiply(space, 1 - beta1, space)
        np.add(m, space, m)
        np.multiply(g, g, space)
        np.subtract(space, v, space)
        np.multiply(space, 1 - beta2, space)
        np.add(v, space, v)
        if self.use_nesterov:
            np.multiply(m, beta1, step)
            np.multiply(g, 1 - beta1, space)
            np.add(step, space, step)
            np.multiply(step, rate, step)
        else:
            np.multiply(m, rate, step)
        np.sqrt(v, space)
        np.add(space, epsilon, space)
        np.divide(step, space, step)
        np.subtract(p, step, p)


@operator()
class ApplyAdam(_Adam):
    """Adam."""

    outputs = ("var",)


@operator()
class ApplyAdamD(_Adam):
    """Adam."""

    outputs = ("var", "m", "v")


@operator()
class ApplyAdamW(Optimizer):
    """Adam with decoupled weight decay; the powers given are beta^(t-1), 1 at the first step."""

    amsgrad: bool = False
    maximize: bool = False
    inputs = (
        "var",
        "m",
        "v",
        "beta1_power",
        "beta2_power",
        "lr",
        "weight_decay",
        "beta1",
        "beta2",
        "epsilon",
        "grad",
        "max_grad_norm?",
    )
    outputs = ("var", "m", "v")
    writes = ("var", "m", "v", "max_grad_norm")
    scalars = ("beta1_power", "beta2_power", "lr", "weight_decay", "beta1", "beta2", "epsilon")

    def update(self, p: Array, m: Array, v: Array, *rest: object) -> None:
        largest, rest = (None, rest) if len(rest) == 10 else (rest[0], rest[1:])
        self._step(p, m, v, largest, *rest)  # type: ignore[arg-type]  # the base passes arrays and floats in order

    def _step(
        self,
        p: Array,
        m: Array,
        v: Array,
        largest: Array | None,
        grad: Array,
        power1: float,
        power2: float,
        lr: float,
        weight_decay: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        g: Array,
        space: Array,
    ) -> None:
        np.copyto(g, grad)
        if self.maximize:
            np.negative(g, g)
        decay(m, beta1, g, space)
        np.multiply(g, g, g)
        decay(v, beta2, g, space)
        root = v
        if self.amsgrad:
            if largest is None:
                raise ValueError("amsgrad needs max_grad_norm")
            np.maximum(largest, v, out=largest)
            root = largest
        np.multiply(p, 1 - lr * weight_decay, p)
        np.divide(root, 1 - power2 * beta2, space)
        np.sqrt(space, space)
        np.add(space, epsilon, space)
        np.divide(m, space, space)
        np.multiply(space, lr / (1 - power1 * beta1), space)
        np.subtract(p, space, p)


class _Amsgrad(Optimizer):
    """Adam with the largest v so far in the root."""

    use_locking: bool = False
    writes = ("var", "m", "v", "vhat")

    def moved(
        self,
        p: Array,
        m: Array,
        v: Array,
        vhat: Array,
        g: Array,
        rate: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        step: Array,
        space: Array,
    ) -> None:
        decay(m, beta1, g, space)
        np.multiply(g, g, step)
        decay(v, beta2, step, space)
        np.maximum(vhat, v, out=vhat)
        np.sqrt(vhat, space)
        np.add(space, epsilon, space)
        np.multiply(m, rate, step)
        np.divide(step, space, step)
        np.subtract(p, step, p)


@operator()
class ApplyAdamWithAmsgrad(_Amsgrad):
    """Adam with the largest v so far in the root."""

    inputs = ("var", "m", "v", "vhat", "beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad")
    outputs = ("var",)
    scalars = ("beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon")

    def update(
        self,
        p: Array,
        m: Array,
        v: Array,
        vhat: Array,
        g: Array,
        power1: float,
        power2: float,
        lr: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        step: Array,
        space: Array,
    ) -> None:
        rate = lr * math.sqrt(1 - power2) / (1 - power1)
        self.moved(p, m, v, vhat, g, rate, beta1, beta2, epsilon, step, space)


@operator()
class ApplyAdamWithAmsgradD(_Amsgrad):
    """Adam with the largest v so far in the root; hyperparameters are attributes."""

    beta1: float
    beta2: float
    epsilon: float
    inputs = ("var", "m", "v", "vhat", "beta1_power", "beta2_power", "lr", "grad")
    outputs = ("var", "m", "v", "vhat")
    scalars = ("beta1_power", "beta2_power", "lr")

    def update(
        self,
        p: Array,
        m: Array,
        v: Array,
        vhat: Array,
        g: Array,
        power1: float,
        power2: float,
        lr: float,
        step: Array,
        space: Array,
    ) -> None:
        rate = lr * math.sqrt(1 - power2) / (1 - power1)
        self.moved(p, m, v, vhat, g, rate, self.beta1, self.beta2, self.epsilon, step, space)


class _AdaMax(Optimizer):
    """m = b1 m + (1 - b1) g; v = max(b2 v, |g|); p -= lr / (1 - b1p) m / (v + eps)."""

    use_locking: bool = False
    inputs = ("var", "m", "v", "beta1_power", "lr", "beta1", "beta2", "epsilon", "grad")
    writes = ("var", "m", "v")
    scalars = ("beta1_power", "lr", "beta1", "beta2", "epsilon")

    def update(
        self,
        p: Array,
        m: Array,
        v: Array,
        g: Array,
        power1: float,
        lr: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        step: Array,
        space: Array,
    ) -> None:
        decay(m, beta1, g, space)
        np.multiply(v, beta2, v)
        np.abs(g, space)
        np.maximum(v, space, out=v)
        np.add(v, epsilon, space)
        np.multiply(m, lr / (1 - power1), step)
        np.divide(step, space, step)
        np.subtract(p, step, p)


@operator()
class ApplyAdaMax(_AdaMax):
    """Adam in the maximum norm."""

    outputs = ("var",)


@operator()
class ApplyAdaMaxD(_AdaMax):
    """Adam in the maximum norm."""

    outputs = ("var", "m", "v")
