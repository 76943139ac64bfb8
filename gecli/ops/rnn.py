"""Recurrent layers: CommonLSTM, CommonGRU, CommonRNN (ONNX layout: time, batch, features)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.ops.bound import constant
from gecli.ops.inference import InferenceError
from gecli.ops.numeric import Array, Step, in_float32
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import operator
from gecli.ops.rnn_bind import bind_gru, bind_lstm
from gecli.ops.rnn_cells import (
    Activation,
    activations,
    gru_direction,
    in_order,
    lstm_direction,
    rnn_direction,
    time_order,
)


class _Recurrent:
    """Attributes and shapes that the three layers share."""

    hidden_size: int
    direction: str = "forward"
    clip: float = -1.0
    activations: tuple[str, ...] = ()
    activation_alpha: tuple[float, ...] = ()
    activation_beta: tuple[float, ...] = ()
    foldable = False
    gates = 1
    defaults: ClassVar[tuple[str, ...]] = ("Tanh",)

    @property
    def reversals(self) -> tuple[bool, ...]:
        """For each direction: does it run backwards? Raises ValueError."""
        table = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
        if self.direction not in table:
            raise ValueError(f"direction {self.direction!r} is not one of {', '.join(table)}")
        return table[self.direction]

    def functions(self) -> list[list[Activation]]:
        """The activations of each direction."""
        count, each = len(self.reversals), len(self.defaults)
        names = self.activations or self.defaults * count
        if len(names) != each * count:
            raise ValueError(f"{len(names)} activations are given, {each * count} are needed")
        made = activations(names, self.activation_alpha, self.activation_beta)
        return [made[d * each : (d + 1) * each] for d in range(count)]

    @property
    def plain(self) -> bool:
        """True for the default activations without clipping: what `bind` handles."""
        usual = [name.lower() for name in self.defaults] * len(self.reversals)
        return self.clip <= 0 and [name.lower() for name in self.activations or usual] == usual

    def described(self, x: TensorDesc, w: TensorDesc, *states: TensorDesc | None) -> tuple[TensorDesc, ...]:
        """y, then the final states; `states` are the initial ones. Raises InferenceError."""
        steps, batch = (UNKNOWN_DIM, UNKNOWN_DIM) if x.shape == UNKNOWN_RANK else self._time_and_batch(x)
        if w.shape != UNKNOWN_RANK and w.rank == 3 and w.shape[1] not in (UNKNOWN_DIM, self.gates * self.hidden_size):
            raise InferenceError(f"w {list(w.shape)} does not hold {self.gates} gates of {self.hidden_size}")
        count, hidden = len(self.reversals), self.hidden_size
        y = TensorDesc(x.dtype, (steps, count, batch, hidden))
        final = TensorDesc(x.dtype, (count, batch, hidden))
        for state in states:
            if state is not None and not _agree(state.shape, final.shape):
                raise InferenceError(f"an initial state is {list(state.shape)}, the sequences need {list(final.shape)}")
        return (y, *[final] * len(states))

    def _time_and_batch(self, x: TensorDesc) -> tuple[int, int]:
        if len(x.shape) != 3:
            raise InferenceError(f"x {list(x.shape)} must have three dims: time, batch, features")
        return x.shape[0], x.shape[1]

    def prepared(self, x: Array, b: Array | None, lengths: Array | None, h: Array | None) -> tuple[Any, ...]:
        """Bias and state where the model leaves them out; no lengths where all sequences are full."""
        steps, batch, _ = x.shape
        count, hidden = len(self.reversals), self.hidden_size
        bias = np.zeros((count, 2 * self.gates * hidden), x.dtype) if b is None else b
        if lengths is not None and (lengths == steps).all():
            lengths = None
        state = np.zeros((count, batch, hidden), x.dtype) if h is None else h
        self.require_state(x, state)
        return bias, lengths, state

    def require_state(self, x: Array, state: Array) -> None:
        """Raises ValueError for an initial state of another batch or size: it would be broadcast."""
        needed = (len(self.reversals), x.shape[1], self.hidden_size)
        if state.shape != needed:
            raise ValueError(f"an initial state is {list(state.shape)}, the sequences need {list(needed)}")


@operator()
class CommonLSTM(_Recurrent):
    """Long short-term memory: gates in the order i, o, f, c; `input_forget` couples i and f."""

    input_forget: int = 0
    outputs = ("y", "y_h", "y_c")
    gates = 4
    defaults = ("Sigmoid", "Tanh", "Tanh")

    def infer(
        self,
        x: TensorDesc,
        w: TensorDesc,
        r: TensorDesc,
        b: TensorDesc | None = None,
        sequence_lens: TensorDesc | None = None,
        initial_h: TensorDesc | None = None,
        initial_c: TensorDesc | None = None,
        p: TensorDesc | None = None,
    ) -> tuple[TensorDesc, ...]:
        return self.described(x, w, initial_h, initial_c)

    @in_float32
    def kernel(
        self,
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        sequence_lens: Array | None = None,
        initial_h: Array | None = None,
        initial_c: Array | None = None,
        p: Array | None = None,
    ) -> tuple[Array, ...]:
        bias, lengths, h = self.prepared(x, b, sequence_lens, initial_h)
        c = np.zeros_like(h) if initial_c is None else initial_c
        self.require_state(x, c)
        peephole = np.zeros((len(h), 3 * self.hidden_size), x.dtype) if p is None else p
        parts = []
        for d, (reverse, act) in enumerate(zip(self.reversals, self.functions(), strict=True)):
            order = time_order(x.shape[0], x.shape[1], lengths, reverse)
            y, last_h, last_c = lstm_direction(
                in_order(x, order),
                w[d],
                r[d],
                bias[d],
                lengths,
                h[d],
                c[d],
                peephole[d],
                act,
                self.clip,
                bool(self.input_forget),
            )
            parts.append((in_order(y, order), last_h, last_c))
        return (
            np.stack([y for y, _, _ in parts], 1),
            np.stack([h for _, h, _ in parts]),
            np.stack([c for *_, c in parts]),
        )

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        slots = [*inputs, *[None] * (8 - len(inputs))]
        if not self.plain or self.input_forget or slots[7] is not None or not _fast(self, slots, outputs):
            return None
        return _whatever_lengths(self, bind_lstm(self.reversals, slots, outputs), slots, outputs)


@operator()
class CommonGRU(_Recurrent):
    """Gated recurrent unit: gates in the order z, r, h."""

    linear_before_reset: int = 0
    outputs = ("y", "y_h")
    gates = 3
    defaults = ("Sigmoid", "Tanh")

    def infer(
        self,
        x: TensorDesc,
        w: TensorDesc,
        r: TensorDesc,
        b: TensorDesc | None = None,
        sequence_lens: TensorDesc | None = None,
        initial_h: TensorDesc | None = None,
    ) -> tuple[TensorDesc, ...]:
        return self.described(x, w, initial_h)

    @in_float32
    def kernel(
        self,
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        sequence_lens: Array | None = None,
        initial_h: Array | None = None,
    ) -> tuple[Array, ...]:
        bias, lengths, h = self.prepared(x, b, sequence_lens, initial_h)
        parts = []
        for d, (reverse, act) in enumerate(zip(self.reversals, self.functions(), strict=True)):
            order = time_order(x.shape[0], x.shape[1], lengths, reverse)
            y, last = gru_direction(
                in_order(x, order), w[d], r[d], bias[d], lengths, h[d], act, self.clip, bool(self.linear_before_reset)
            )
            parts.append((in_order(y, order), last))
        return np.stack([y for y, _ in parts], 1), np.stack([h for _, h in parts])

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        slots = [*inputs, *[None] * (6 - len(inputs))]
        if not self.plain or not _fast(self, slots, outputs):
            return None
        fast = bind_gru(self.reversals, slots, outputs, bool(self.linear_before_reset))
        return _whatever_lengths(self, fast, slots, outputs)


@operator()
class CommonRNN(_Recurrent):
    """The plain recurrent layer h = f(x w + h r + b); gecli's extension."""

    outputs = ("y", "y_h")

    def infer(
        self,
        x: TensorDesc,
        w: TensorDesc,
        r: TensorDesc,
        b: TensorDesc | None = None,
        sequence_lens: TensorDesc | None = None,
        initial_h: TensorDesc | None = None,
    ) -> tuple[TensorDesc, ...]:
        return self.described(x, w, initial_h)

    @in_float32
    def kernel(
        self,
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        sequence_lens: Array | None = None,
        initial_h: Array | None = None,
    ) -> tuple[Array, ...]:
        bias, lengths, h = self.prepared(x, b, sequence_lens, initial_h)
        parts = []
        for d, (reverse, act) in enumerate(zip(self.reversals, self.functions(), strict=True)):
            order = time_order(x.shape[0], x.shape[1], lengths, reverse)
            y, last = rnn_direction(in_order(x, order), w[d], r[d], bias[d], lengths, h[d], act, self.clip)
            parts.append((in_order(y, order), last))
        return np.stack([y for y, _ in parts], 1), np.stack([h for _, h in parts])


def _agree(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether two shapes can be one, as far as they are known."""
    return shape == UNKNOWN_RANK or (
        len(shape) == len(other) and all(a == b or UNKNOWN_DIM in (a, b) for a, b in zip(shape, other))
    )


def _fast(op: Any, slots: Sequence[Array | None], outputs: Sequence[Array]) -> bool:
    """float32 with constant weights."""
    x = slots[0]
    if x is None or x.dtype != np.float32 or not x.size or not constant(op, 1, 2) or any(y is None for y in outputs):
        return False
    if slots[3] is not None and not constant(op, 3):
        return False
    state = (len(op.reversals), x.shape[1], op.hidden_size)
    if any(each is not None and each.shape != state for each in slots[5:7]):
        return False
    return len(outputs) == len(op.type.outputs)


def _whatever_lengths(op: Any, full: Step, slots: Sequence[Array | None], outputs: Sequence[Array]) -> Step:
    """`full` while every sequence has all steps, which only the run can tell, else the kernel."""
    x, lengths = slots[0], slots[4]
    if x is None or lengths is None:
        return full
    steps = x.shape[0]

    def run() -> None:
        if (lengths == steps).all():
            full()
            return
        for output, value in zip(outputs, op.kernel(*slots)):
            np.copyto(output, value)

    return run


def _import_recurrent(
    node: OnnxNode, build: Builder, type: str, slots: int, states: Sequence[int], **more: Any
) -> None:
    """Import one of the three; `layout` 1 (batch first) becomes transposes around it. `states`: initial states."""
    inputs: list[Port | None] = [node.optional(index) for index in range(slots)]
    hidden = node.attr("hidden_size")
    if hidden is None:
        desc = build.desc(node.input(2))
        if desc is None or desc.rank != 3 or desc.shape[2] < 0:
            raise node.fault("hidden_size is missing and the shape of R is unknown")
        hidden = desc.shape[2]
    batch_first = bool(node.attr("layout", 0))
    if batch_first:
        for index in (0, *states):
            port = inputs[index]
            inputs[index] = None if port is None else build.op("TransposeD", port, perm=(1, 0, 2))
    attrs: dict[str, Any] = {"hidden_size": hidden, "direction": node.attr("direction", "forward"), **more}
    for name in ("clip", "activations", "activation_alpha", "activation_beta"):
        if node.attr(name) is not None:
            attrs[name] = node.attr(name)
    while inputs and inputs[-1] is None:
        inputs.pop()
    ports = build.ops(type, 1 + len(states), *inputs, **attrs)
    for index, port in enumerate(ports):
        if batch_first and node.wants(index):
            port = build.op("TransposeD", port, perm=(2, 0, 1, 3) if index == 0 else (1, 0, 2))
        build.output(index, port)


@importer("LSTM", since=7)
def lstm(node: OnnxNode, build: Builder) -> None:
    _import_recurrent(node, build, "CommonLSTM", 8, (5, 6), input_forget=node.attr("input_forget", 0))


@importer("GRU", since=7)
def gru(node: OnnxNode, build: Builder) -> None:
    more = {"linear_before_reset": node.attr("linear_before_reset", 0)}
    _import_recurrent(node, build, "CommonGRU", 6, (5,), **more)


@importer("RNN", since=7)
def rnn(node: OnnxNode, build: Builder) -> None:
    _import_recurrent(node, build, "CommonRNN", 6, (5,))
