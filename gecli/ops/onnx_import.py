"""How ONNX operators without a one-to-one GE type are imported: functions that build the replacement.

    @importer("Gemm", since=7)
    def gemm(node: OnnxNode, build: Builder) -> None:
        product = build.op("MatMulV2", node.input(0), node.input(1), transpose_x1=bool(node.attr("transA", 0)), ...)
        build.output(0, product)

An importer lives in the family file of its main GE type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from gecli.errors import InputError
from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import TensorDesc

Array = NDArray[Any]


class OnnxNode(NamedTuple):
    """One ONNX node: its names, the ports that feed it (None: left out), its attributes as Python values.

    Attribute values: int, float, str, tuple of these, Weight for tensors, the raw GraphProto for subgraphs.
    `outputs` are the tensor names, "" for an output that is not wanted.
    """

    name: str
    op: str
    domain: str
    opset: int
    inputs: tuple[Port | None, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, Any]

    def input(self, index: int) -> Port:
        """Input `index`, which must be there. Raises InputError."""
        port = self.optional(index)
        if port is None:
            raise self.fault(f"input {index} is missing")
        return port

    def optional(self, index: int) -> Port | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def attr(self, name: str, default: Any = None) -> Any:
        return self.attrs.get(name, default)

    def wants(self, index: int) -> bool:
        """True when output `index` is named by the model."""
        return index < len(self.outputs) and bool(self.outputs[index])

    def fault(self, message: str, do: str = "") -> InputError:
        """The error to raise when this node cannot be imported."""
        return InputError(
            "E13014",
            f"{self.op} node {self.name!r}: {message}",
            where=f"node {self.name} ({self.op}, opset {self.opset})",
            do=do,
            node=self.name,
        )


class Builder(Protocol):
    """What an importer may do; the ONNX loader implements it."""

    def op(self, type: str, /, *inputs: Port | None, **attrs: Any) -> Port:
        """Add a GE node with one output and return that output."""

    def ops(self, type: str, outputs: int, /, *inputs: Port | None, **attrs: Any) -> tuple[Port, ...]:
        """Add a GE node with `outputs` outputs."""

    def const(self, value: Array, role: str) -> Port:
        """Add a Const; `role` names the input it stands for and becomes part of its name."""

    def output(self, index: int, port: Port) -> None:
        """Say which port is ONNX output `index`."""

    def constant(self, port: Port | None) -> Array | None:
        """The value of a constant port; None when it is not constant (or `port` is None)."""

    def desc(self, port: Port) -> TensorDesc | None:
        """Dtype and shape of a port as far as inferred; None when unknown."""

    def rank(self, port: Port) -> int | None:
        """The rank of a port; None when unknown."""

    def subgraph(self, node: OnnxNode, attribute: str) -> tuple[str, tuple[Port, ...]]:
        """Import the graph in `attribute`; returns its name and the outer ports that it captures."""

    def loop(
        self, node: OnnxNode, attribute: str, initial: Sequence[Port], steps: LoopSteps
    ) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
        """A While with the graph in `attribute` as body; returns the last values and what the iterations gave, stacked.

        `initial` are values that the steps carry from iteration to iteration.
        """


class LoopSteps(Protocol):
    """How a graph is the body of a loop; `count` is the number of the iteration (INT64 scalar)."""

    def begin(self, build: Builder, count: Port, values: Sequence[Port]) -> Sequence[Port]:
        """What the graph's inputs are in an iteration."""

    def end(
        self, build: Builder, values: Sequence[Port], results: Sequence[Port]
    ) -> tuple[Sequence[Port], Sequence[Port]]:
        """The carried values of the next iteration, and the tensors that are to be stacked."""

    def goes_on(self, build: Builder, count: Port, values: Sequence[Port]) -> Port:
        """Whether there is an iteration with this number (BOOL scalar)."""


class Importer(NamedTuple):
    function: Callable[[OnnxNode, Builder], None]
    since: int
    until: int | None


IMPORTERS: dict[tuple[str, str], list[Importer]] = {}


def importer(
    op: str, *, since: int = 1, until: int | None = None, domain: str = ""
) -> Callable[[Callable[[OnnxNode, Builder], None]], Callable[[OnnxNode, Builder], None]]:
    """Register a function as the importer of an ONNX operator for opsets from `since` to `until`."""

    def decorate(function: Callable[[OnnxNode, Builder], None]) -> Callable[[OnnxNode, Builder], None]:
        IMPORTERS.setdefault((domain, op), []).append(Importer(function, since, until))
        return function

    return decorate
