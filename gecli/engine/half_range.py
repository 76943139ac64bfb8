"""Constants that a precision mode turns into half and that half cannot hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from gecli.errors import Diagnostic
from gecli.ir.attributes import CONST_TYPES, VALUE
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.weight import Weight

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST_INFINITE = 65520.0  # the smallest magnitude that rounds to infinity in half
LAST_ZERO = 2.0**-25  # the largest that rounds to zero: half of the smallest subnormal, tied to even


class Unfit(NamedTuple):
    """Names of constants with an element that becomes infinite, and of those that become zero as a whole.

    Single elements that vanish among larger ones are the ordinary rounding of a weight and not listed.
    """

    infinite: tuple[str, ...]
    zero: tuple[str, ...]


def unfit_for_half(graph: Graph) -> Unfit:
    """The constants of float that some operator reads as half. Call it when data types are chosen."""
    checked: dict[str, float] = {}
    for node in graph.all_nodes():
        for desc, port in zip(node.input_descs, node.inputs):
            if desc is None or port is None or desc.dtype is not DataType.FLOAT16:
                continue
            source = port.node
            if source.type in CONST_TYPES and port.desc.dtype is DataType.FLOAT and source.name not in checked:
                checked[source.name] = _largest_magnitude(source.attrs[VALUE])
    return Unfit(
        tuple(name for name, largest in checked.items() if largest >= FIRST_INFINITE),
        tuple(name for name, largest in checked.items() if 0 < largest <= LAST_ZERO),
    )


def half_range_warning(unfit: Unfit) -> Diagnostic | None:
    """One warning with counts and the first name of either kind."""
    parts = [
        f"{len(names)} {'becomes' if len(names) == 1 else 'become'} {what} (first: {names[0]})"
        for names, what in ((unfit.infinite, "infinite"), (unfit.zero, "zero"))
        if names
    ]
    if not parts:
        return None
    return Diagnostic(
        "G2020", f"constants do not fit half: {', '.join(parts)}", severity="warning",
        node=(unfit.infinite or unfit.zero)[0],
        why="half holds magnitudes from 6e-8 to 65504; results may be wrong or NaN",
        do="--precision mixed_float16 or cube_fp16in_fp32out, or --keep-dtype for the nodes that read them",
    )  # fmt: skip


def _largest_magnitude(weight: Weight) -> float:
    """Of the finite elements."""
    import numpy as np

    largest = 0.0
    for piece in _pieces(weight):
        top = float(max(piece.max(), -piece.min())) if piece.size else 0.0
        if not np.isfinite(top):
            piece = piece[np.isfinite(piece)]
            top = float(np.abs(piece).max()) if piece.size else 0.0
        largest = max(largest, top)
    return largest


def _pieces(weight: Weight) -> Iterator[NDArray[Any]]:
    """The elements, piece by piece where the weight is read from its file as it stands."""
    import numpy as np

    if weight.transforms:
        yield weight.numpy().reshape(-1)
        return
    rest = b""
    for chunk in weight.chunks():
        data = rest + chunk if rest else chunk
        whole = len(data) // 4 * 4
        yield np.frombuffer(data, "<f4", whole // 4)
        rest = data[whole:]
