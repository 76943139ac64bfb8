"""Optimizers with a learning rate for each element: RMSProp, Adagrad, Adadelta, Ftrl, proximal descent."""

from __future__ import annotations

import numpy as np

from gecli.ops.numeric import Array
from gecli.ops.operator import operator
from gecli.ops.optimizer import decay
from gecli.ops.optimizer_base import Optimizer


class _RmsProp(Optimizer):
    """ms = rho ms + (1 - rho) g^2; mom = mu mom + lr g / sqrt(ms + eps); p -= mom. eps is inside the root."""

    use_locking: bool = False
    writes = ("var", "ms", "mom")

    def moved(
        self,
        p: Array,
        ms: Array,
        mom: Array,
        g: Array,
        lr: float,
        rho: float,
        mu: float,
        epsilon: float,
        step: Array,
        space: Array,
    ) -> None:
        np.multiply(g, g, step)
        decay(ms, rho, step, space)
        np.add(ms, epsilon, space)
        np.sqrt(space, space)
        np.multiply(g, lr, step)
        np.divide(step, space, step)
        np.multiply(mom, mu, mom)
        np.add(mom, step, mom)
        np.subtract(p, mom, p)


@operator()
class ApplyRMSProp(_RmsProp):
    """RMSProp."""

    inputs = ("var", "ms", "mom", "lr", "rho", "momentum", "epsilon", "grad")
    outputs = ("var",)
    scalars = ("lr", "rho", "momentum", "epsilon")

    def update(
        self,
        p: Array,
        ms: Array,
        mom: Array,
        g: Array,
        lr: float,
        rho: float,
        mu: float,
        epsilon: float,
        step: Array,
        space: Array,
    ) -> None:
        self.moved(p, ms, mom, g, lr, rho, mu, epsilon, step, space)


@operator()
class ApplyRMSPropD(_RmsProp):
    """RMSProp; hyperparameters are attributes."""

    rho: float
    momentum: float
    epsilon: float
    inputs = ("var", "ms", "mom", "lr", "grad")
    outputs = ("var", "ms", "mom")
    scalars = ("lr",)

    def update(self, p: Array, ms: Array, mom: Array, g: Array, lr: float, step: Array, space: Array) -> None:
        self.moved(p, ms, mom, g, lr, self.rho, self.momentum, self.epsilon, step, space)


class _CenteredRmsProp(Optimizer):
    """RMSProp with the root of ms - mg^2 + eps."""

    use_locking: bool = False
    inputs = ("var", "mg", "ms", "mom", "lr", "rho", "momentum", "epsilon", "grad")
    writes = ("var", "mg", "ms", "mom")
    scalars = ("lr", "rho", "momentum", "epsilon")

    def update(
        self,
        p: Array,
        mg: Array,
        ms: Array,
        mom: Array,
        g: Array,
        lr: float,
        rho: float,
        mu: float,
        epsilon: float,
        step: Array,
        space: Array,
    ) -> None:
        np.multiply(g, g, step)
        decay(ms, rho, step, space)
        decay(mg, rho, g, space)
        np.multiply(mg, mg, space)
        np.subtract(ms, space, space)
        np.add(space, epsilon, space)
        np.sqrt(space, space)
        np.multiply(g, lr, step)
        np.divide(step, space, step)
        np.multiply(mom, mu, mom)
        np.add(mom, step, mom)
        np.subtract(p, mom, p)


@operator()
class ApplyCenteredRMSProp(_CenteredRmsProp):
    """Centred RMSProp."""

    outputs = ("var",)


@operator()
class ApplyCenteredRMSPropD(_CenteredRmsProp):
    """Centred RMSProp."""

    outputs = ("var", "mg", "ms", "mom")


class _Adagrad(Optimizer):
    """a += g^2; p -= lr g / (sqrt(a) + eps)."""

    update_slots: bool = True
    use_locking: bool = False
    writes = ("var", "accum")

    def moved(self, p: Array, a: Array, g: Array, lr: float, epsilon: float, step: Array, space: Array) -> None:
        if self.update_slots:
            np.multiply(g, g, space)
            np.add(a, space, a)
        np.sqrt(a, space)
        if epsilon:
            np.add(space, epsilon, space)
        np.multiply(g, lr, step)
        np.divide(step, space, step)
        np.subtract(p, step, p)


class _AdagradV1(_Adagrad):
    """Without epsilon: nothing keeps 0 / 0 away, so padding would turn into NaN."""

    zero_preserving = False
    inputs = ("var", "accum", "lr", "grad")
    scalars = ("lr",)

    def update(self, p: Array, a: Array, g: Array, lr: float, step: Array, space: Array) -> None:
        self.moved(p, a, g, lr, 0.0, step, space)


@operator()
class ApplyAdagrad(_AdagradV1):
    """Adagrad without epsilon."""

    outputs = ("var",)


@operator()
class ApplyAdagradD(_AdagradV1):
    """Adagrad without epsilon."""

    outputs = ("var", "accum")


@operator()
class ApplyAdagradV2(_Adagrad):
    """Adagrad with epsilon outside the root."""

    inputs = ("var", "accum", "lr", "epsilon", "grad")
    outputs = ("var",)
    scalars = ("lr", "epsilon")

    def update(self, p: Array, a: Array, g: Array, lr: float, epsilon: float, step: Array, space: Array) -> None:
        self.moved(p, a, g, lr, epsilon, step, space)


@operator()
class ApplyAdagradV2D(_Adagrad):
    """Adagrad with epsilon outside the root, as an attribute."""

    epsilon: float
    inputs = ("var", "accum", "lr", "grad")
    outputs = ("var", "accum")
    scalars = ("lr",)

    def update(self, p: Array, a: Array, g: Array, lr: float, step: Array, space: Array) -> None:
        self.moved(p, a, g, lr, self.epsilon, step, space)


class _Adadelta(Optimizer):
    """a = rho a + (1 - rho) g^2; u = sqrt(au + eps) / sqrt(a + eps) g; au = rho au + (1 - rho) u^2; p -= lr u."""

    use_locking: bool = False
    inputs = ("var", "accum", "accum_update", "lr", "rho", "epsilon", "grad")
    writes = ("var", "accum", "accum_update")
    scalars = ("lr", "rho", "epsilon")
    scratch_arrays = 2

    def update(
        self,
        p: Array,
        a: Array,
        au: Array,
        g: Array,
        lr: float,
        rho: float,
        epsilon: float,
        u: Array,
        space: Array,
    ) -> None:
        np.multiply(g, g, u)
        decay(a, rho, u, space)
        np.add(au, epsilon, u)
        np.sqrt(u, u)
        np.add(a, epsilon, space)
        np.sqrt(space, space)
        np.divide(u, space, u)
        np.multiply(u, g, u)
        np.multiply(au, rho, au)
        np.multiply(u, u, space)
        np.multiply(space, 1 - rho, space)
        np.add(au, space, au)
        np.multiply(u, lr, u)
        np.subtract(p, u, p)


@operator()
class ApplyAdadelta(_Adadelta):
    """Adadelta."""

    outputs = ("var",)


@operator()
class ApplyAdadeltaD(_Adadelta):
    """Adadelta."""

    outputs = ("var", "accum", "accum_update")


class _Ftrl(Optimizer):
    """Follow the regularised leader; q = lr_power."""

    use_locking: bool = False
    writes = ("var", "accum", "linear")
    scratch_arrays = 3

    def moved(
        self,
        p: Array,
        a: Array,
        linear: Array,
        g: Array,
        lr: float,
        l1: float,
        l2: float,
        shrinkage: float,
        power: float,
        grown: Array,
        root: Array,
        space: Array,
    ) -> None:
        """A = a + g^2; linear += g + 2 s p - (A^-q - a^-q) p / lr; p from linear; a = A."""
        np.multiply(g, g, grown)
        np.add(a, grown, grown)
        np.power(grown, -power, root)
        np.power(a, -power, space)
        np.subtract(root, space, space)
        np.divide(space, lr, space)
        np.multiply(space, p, space)
        np.add(linear, g, linear)
        np.subtract(linear, space, linear)
        if shrinkage:
            np.multiply(p, 2 * shrinkage, space)
            np.add(linear, space, linear)
        np.copyto(a, grown)
        np.divide(root, lr, root)
        np.add(root, 2 * l2, root)
        np.clip(linear, -l1, l1, space)  # sign(linear) * l1 where |linear| > l1, else linear itself: p = 0
        np.subtract(space, linear, space)
        np.divide(space, root, p)
        np.copyto(p, 0, where=space == 0)


class _FtrlV1(_Ftrl):
    """Ftrl without shrinkage."""

    inputs = ("var", "accum", "linear", "grad", "lr", "l1", "l2", "lr_power")
    scalars = ("lr", "l1", "l2", "lr_power")

    def update(
        self,
        p: Array,
        a: Array,
        linear: Array,
        g: Array,
        lr: float,
        l1: float,
        l2: float,
        power: float,
        *space: Array,
    ) -> None:
        self.moved(p, a, linear, g, lr, l1, l2, 0.0, power, *space)


class _FtrlV2(_Ftrl):
    """Ftrl with l2 shrinkage of the variable."""

    inputs = ("var", "accum", "linear", "grad", "lr", "l1", "l2", "l2_shrinkage", "lr_power")
    scalars = ("lr", "l1", "l2", "l2_shrinkage", "lr_power")

    def update(
        self,
        p: Array,
        a: Array,
        linear: Array,
        g: Array,
        lr: float,
        l1: float,
        l2: float,
        shrinkage: float,
        power: float,
        *space: Array,
    ) -> None:
        self.moved(p, a, linear, g, lr, l1, l2, shrinkage, power, *space)


@operator()
class ApplyFtrl(_FtrlV1):
    """Follow the regularised leader."""

    outputs = ("var",)


@operator()
class ApplyFtrlD(_FtrlV1):
    """Follow the regularised leader."""

    outputs = ("var", "accum", "linear")


@operator()
class ApplyFtrlV2(_FtrlV2):
    """Follow the regularised leader, with shrinkage."""

    outputs = ("var",)


@operator()
class ApplyFtrlV2D(_FtrlV2):
    """Follow the regularised leader, with shrinkage."""

    outputs = ("var", "accum", "linear")


@operator()
class ApplyProximalGradientDescent(Optimizer):
    """q = p - alpha delta; p = sign(q) max(|q| - alpha l1, 0) / (1 + alpha l2)."""

    use_locking: bool = False
    inputs = ("var", "alpha", "l1", "l2", "delta")
    outputs = ("var",)
    writes = ("var",)
    values = ("delta",)
    scalars = ("alpha", "l1", "l2")

    def update(self, p: Array, delta: Array, alpha: float, l1: float, l2: float, q: Array, space: Array) -> None:
        np.multiply(delta, alpha, q)
        np.subtract(p, q, q)
        np.abs(q, space)
        np.subtract(space, alpha * l1, space)
        np.maximum(space, 0, out=space)
        np.sign(q, q)
        np.multiply(q, space, p)
        np.divide(p, 1 + alpha * l2, p)
