"""What the passes on conversion nodes share: data inputs, inverse pairs, loss of information (formats.md 6.2)."""

from __future__ import annotations

from collections.abc import Iterable

from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.ir.tensor_desc import TensorDesc
from gecli.layout.cast import exact_embedding

TRANS_OPS = frozenset(
    ("TransData", "Transpose", "TransposeD", "Reshape", "ReFormat", "Cast", "Squeeze", "SqueezeV2", "SqueezeV3",
     "UnsqueezeV2", "UnsqueezeV3", "ExpandDims")
)  # fmt: skip
_LOSSY_TARGETS = (DataType.INT32, DataType.INT64)
_LOSSY_SOURCES = (DataType.FLOAT, DataType.FLOAT16, DataType.DOUBLE, DataType.BF16)


def data_index(type: str) -> int:
    """The input that a conversion type converts; -1 for every other type."""
    return 0 if type in TRANS_OPS else -1


def source_desc(node: OpDesc) -> TensorDesc | None:
    """What a conversion node reads."""
    return node.input_descs[0] if node.input_descs else None


def loses_values(src: DataType, dst: DataType, *, like_ge: bool = False) -> bool:
    """Whether a cast from `src` may change a value. `like_ge` counts only what GE counts."""
    if like_ge:
        to_bool = dst is DataType.BOOL and src is not DataType.BOOL
        return to_bool or (dst in _LOSSY_TARGETS and src in _LOSSY_SOURCES)
    return not exact_embedding(src, dst)


def is_inverse_perm(first: Iterable[int], second: Iterable[int]) -> bool:
    """True when two permutations of one rank cancel. Lists that are no permutations never do."""
    a, b = tuple(first), tuple(second)
    if len(a) != len(b) or not a or sorted(a) != list(range(len(a))) or sorted(b) != list(range(len(b))):
        return False
    return all(a[b[axis]] == axis for axis in range(len(a)))


def reads_later(source: Port, first: OpDesc, use: Use) -> bool:
    """True when a consumer that reads `source` directly could see a later write than the conversion `first` does.

    Only for variables: a consumer ordered behind further nodes (writers, perhaps) must keep reading the copy.
    """
    return source.node.is_variable and not use.node.control_in.keys() <= first.control_in.keys()


def drop_unused(graph: Graph, nodes: Iterable[OpDesc]) -> int:
    """Remove those of `nodes` (last first) that nobody reads any more; control edges are bridged."""
    removed = 0
    for node in nodes:
        if any(node.users):
            continue
        before, after = graph.predecessors(node), list(node.control_out)
        graph.remove(node)
        for first in before:
            for second in after:
                graph.add_control(first, second)
        removed += 1
    return removed
