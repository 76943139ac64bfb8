"""What an operator object knows about the node it belongs to."""

from __future__ import annotations

from typing import Any, ClassVar

from gecli.ir.tensor_desc import TensorDesc


class Bound:
    """Base of operators that look at their node; without a node all three are empty."""

    in_descs: ClassVar[tuple[TensorDesc | None, ...]] = ()
    out_descs: ClassVar[tuple[TensorDesc, ...]] = ()
    # Input slots whose arrays never change; set by the executor before `bind`.
    constant_inputs: ClassVar[frozenset[int]] = frozenset()


def constant(op: Any, *slots: int) -> bool:
    """True when the executor said that all these inputs never change."""
    known: frozenset[int] = getattr(op, "constant_inputs", frozenset())
    return all(slot in known for slot in slots)
