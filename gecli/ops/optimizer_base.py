"""What all optimizers share: which inputs are written, rounding, running in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.ops.inference import InferenceError, plain
from gecli.ops.numeric import Array, Step, is_half


class Optimizer:
    """Base of the optimizers: a subclass names its inputs and writes `update`.

    `inputs` are the ports, `writes` the references among them, `scalars` the hyperparameters, `values` the other
    tensors. `update` gets the references, then the values, then the hyperparameters as numbers, then scratch arrays,
    and overwrites the references. Every operator reads all it needs of a reference before it writes it.
    """

    inputs: ClassVar[tuple[str, ...]] = ()
    writes: ClassVar[tuple[str, ...]] = ()
    scalars: ClassVar[tuple[str, ...]] = ()
    values: ClassVar[tuple[str, ...]] = ("grad",)
    scratch_arrays: ClassVar[int] = 2
    foldable: ClassVar[bool] = False
    stateless: ClassVar[bool] = False
    zero_preserving: ClassVar[bool] = True

    update: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        # The decorator looks for ports in the decorated class itself.
        cls.inputs = cls.inputs

    def infer(self, *descs: TensorDesc | None) -> tuple[TensorDesc, ...]:
        """The descs of the written inputs. Raises InferenceError for unequal shapes and for a lr with dims."""
        by_name = {name.rstrip("?"): desc for name, desc in zip(self.inputs, descs)}
        var = descs[0]
        assert var is not None
        for name in (*self.writes, *self.values):
            desc = by_name.get(name)
            if desc is not None and not _fits(var, desc):
                raise InferenceError(f"{name} {list(desc.shape)} must have the shape of {list(var.shape)}")
        for name in self.scalars:
            desc = by_name.get(name)
            if desc is not None and any(dim not in (1, UNKNOWN_DIM, -2) for dim in desc.shape):
                raise InferenceError(f"{name} {list(desc.shape)} must be a scalar")
        return tuple(plain(desc) for name in self.writes if (desc := by_name.get(name)) is not None)

    def kernel(self, *arrays: Array) -> tuple[Array, ...]:
        """The new values of the written inputs, in the order of the inputs."""
        given = self._given(arrays)
        kind = given[self.writes[0]].dtype
        wide = np.dtype(np.float32) if is_half(kind) else kind
        refs = [np.array(given[name], wide) for name in self.writes if name in given]
        values = [given[name].astype(wide, copy=False) for name in self.values]
        space = [np.empty(refs[0].shape, wide) for _ in range(self.scratch_arrays)]
        if refs[0].size:
            self.update(*refs, *values, *[_number(given[name], wide) for name in self.scalars], *space)
        return tuple(ref.astype(kind, copy=False) for ref in refs)

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        """The update in the variables' own memory; float32 and float64 only."""
        arrays = [array for array in inputs if array is not None]
        given = self._given(arrays)
        refs = [given[name] for name in self.writes if name in given]
        values = [given[name] for name in self.values]
        kind = refs[0].dtype
        if kind not in (np.float32, np.float64) or any(each.dtype != kind for each in (*refs, *values)):
            return None
        if any(not ref.flags.writeable for ref in refs) or any(
            np.shares_memory(ref, value) for ref in refs for value in values
        ):
            return None
        if any(not np.shares_memory(ref, y) for ref, y in zip(refs, outputs) if ref.size):
            return None
        scalars = [given[name] for name in self.scalars]
        space = [np.empty(refs[0].shape, kind) for _ in range(self.scratch_arrays)]
        update = self.update
        if not refs[0].size:
            return lambda: None
        return lambda: update(*refs, *values, *[_number(scalar, kind) for scalar in scalars], *space)

    def _given(self, arrays: Sequence[Array]) -> dict[str, Array]:
        return {name.rstrip("?"): array for name, array in zip(self.inputs, arrays)}


def _fits(var: TensorDesc, desc: TensorDesc) -> bool:
    if UNKNOWN_RANK in (var.shape, desc.shape):
        return True
    return len(var.shape) == len(desc.shape) and all(
        a == b or UNKNOWN_DIM in (a, b) for a, b in zip(var.shape, desc.shape, strict=True)
    )


def _number(array: Array, kind: Any) -> float:
    """A hyperparameter, after its own rounding; whole for integers. Raises ValueError for more than one element."""
    if array.size != 1:
        raise ValueError(f"a hyperparameter of shape {list(array.shape)} is not a scalar")
    value = float(array.reshape(-1)[0])
    return int(value) if kind.kind in "iu" else value
