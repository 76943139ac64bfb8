"""Inputs and outputs of a loaded model as its user sees them: names, types, logical shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gecli.ir.attributes import DATA_INDEX, DATA_TYPES
from gecli.ir.dtype import DataType
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import UNKNOWN_RANK, Range, Shape, TensorDesc
from gecli.records import dataclass

UNBOUNDED = -1  # the upper end of a range
OUT_NODES = "attr_model_out_nodes_name"


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input or output: `shape` is logical, -1 where it is only known at run time."""

    name: str
    port: Port
    desc: TensorDesc

    @property
    def dtype(self) -> DataType:
        return self.desc.dtype

    @property
    def shape(self) -> Shape:
        return self.desc.shape

    def range_of(self, axis: int) -> Range | None:
        """The sizes from and to that the model names for an unknown dim; None where any size will do."""
        ranges = self.desc.shape_range
        if ranges is None or len(ranges) != len(self.shape) or self.shape[axis] >= 0:
            return None
        low, high = ranges[axis]
        return (low, high) if high > 0 or (high == UNBOUNDED and low > 0) else None

    def admits(self, shape: Shape) -> bool:
        """Whether a value of this shape is one for the tensor: known dims are equal, others in their ranges."""
        if self.shape == UNKNOWN_RANK:
            return True
        return len(self.shape) == len(shape) and all(self._admits(axis, size) for axis, size in enumerate(shape))

    def _admits(self, axis: int, size: int) -> bool:
        bounds = self.range_of(axis)
        if bounds is None:
            return self.shape[axis] in (-1, size)
        return bounds[0] <= size and (bounds[1] == UNBOUNDED or size <= bounds[1])

    def nearest(self, axis: int, size: int) -> int:
        """A size that dim `axis` may have: `size`, or what is closest to it."""
        if self.shape[axis] >= 0:
            return self.shape[axis]
        low, high = self.range_of(axis) or (size, UNBOUNDED)
        return max(low, size if high == UNBOUNDED else min(size, high))

    @property
    def sizes(self) -> str:
        """The dims that a value may have: `[1~4, 3, -1]`, ranges as --input-shape writes them."""
        words = []
        for axis, size in enumerate(self.shape):
            bounds = self.range_of(axis)
            words.append(str(size) if bounds is None else f"{bounds[0]}~{bounds[1]}")
        return f"[{', '.join(words)}]"

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "dtype": self.dtype.serial,
            "shape": list(self.shape),
            "format": self.desc.format.name,
        }


def model_inputs(nodes: list[OpDesc]) -> tuple[Tensor, ...]:
    """The Data nodes by `index`; an input is named like its node."""
    data = [node for node in nodes if node.type in DATA_TYPES]
    data.sort(key=lambda node: node.attrs.get(DATA_INDEX, 0))
    return tuple(Tensor(node.name, Port(node, 0), _logical(node.output_descs[0])) for node in data)


def _logical(stored: TensorDesc) -> TensorDesc:
    """The origin form of an input; the ranges of other stored dims say nothing about its own."""
    logical = stored.logical()
    return logical if logical.shape == stored.shape else replace(logical, shape_range=None)


def model_outputs(nodes: list[OpDesc], attrs: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """The inputs of NetOutput. Names come from the model attribute: the tensor name where it has one, else
    `node:index`; without the attribute they are made as the OM format says (om-format.md 8.3).
    """
    output = next((node for node in nodes if node.type == "NetOutput"), None)
    if output is None:
        return ()
    ports = output.data_inputs
    stored = attrs.get(OUT_NODES) or ()
    if len(stored) == len(ports):
        names = [_tensor_name(entry, port) for entry, port in zip(stored, ports)]
    else:
        told: tuple[tuple[str, int], ...] = getattr(output.graph, "output_sources", ())  # of a file that was read
        sources = [*told, *((port.node.name, port.index) for port in ports[len(told) :])]
        names = [f"output_{i}_{name}_{index}" for i, (name, index) in enumerate(sources[: len(ports)])]
    names = made_unique(names)
    return tuple(Tensor(name, port, port.desc.logical()) for name, port in zip(names, ports))


def _tensor_name(entry: str | bytes, port: Port) -> str:
    """`node:index:tensor` -> `tensor`; `node:index` and bare names stay. All three parts may contain colons."""
    text = entry.decode("utf-8", "replace") if isinstance(entry, bytes) else entry
    return text.removeprefix(f"{port.node.name}:{port.index}:")


def made_unique(names: list[str]) -> list[str]:
    """The names of outputs, those that are there already with `#1`, `#2` behind them."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        count = seen.get(name, 0)
        seen[name] = count + 1
        result.append(name if not count else f"{name}#{count}")
    return result
