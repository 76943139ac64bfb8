"""Which feature-map buffers a graph needs and how long each lives (runtime.md 9.2, steps 1 and 2)."""

from __future__ import annotations

from collections.abc import Collection

from gecli.ir.attributes import CONST_TYPES, DATA_TYPES
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ops.registry import find
from gecli.records import dataclass
from gecli.variables.sizes import padded_bytes

BLOCK_BYTES = 512  # session memory unit: every block starts and ends on it
# Outputs of these types lie elsewhere: in the weights, in variable memory, or nowhere.
_NO_FEATURE_MEMORY = CONST_TYPES | {"Variable", "VariableV2", "FileConstant", "ConstPlaceHolder", "NetOutput"}


@dataclass(frozen=True, slots=True)
class Buffer:
    """One block of feature-map memory: its size, its first and last step (inclusive), and the ports that share it."""

    size_bytes: int
    first: int
    last: int
    ports: tuple[Port, ...]


@dataclass(frozen=True, slots=True)
class Buffers:
    """The buffers of a graph: those that may share memory, and the zero-copy blocks of model outputs and inputs."""

    reusable: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    inputs: tuple[Buffer, ...]
    aliases: int


def collect_buffers(order: list[OpDesc], graph: Graph, elsewhere: Collection[Port]) -> Buffers:
    """The buffers of `graph`, whose nodes run in `order`; `elsewhere` are ports that lie in variable memory.

    View operators (Reshape and its like) share the buffer of their input. Sizes are GE's padded sizes rounded up to
    512. Every shape must be static.
    """
    step = {node: position for position, node in enumerate(order)}
    owner: dict[Port, Port] = {}
    members: dict[Port, list[Port]] = {}
    for node in order:
        if node.type in _NO_FEATURE_MEMORY:
            continue
        for index in range(len(node.output_descs)):
            port = Port(node, index)
            if port in elsewhere:
                continue
            source = _viewed(node, index)
            root = owner.get(source) if source is not None else None
            owner[port] = root or port
            members.setdefault(owner[port], []).append(port)
    returned = {owner[port] for port in graph.outputs if port in owner}
    reusable, outputs, inputs = [], [], []
    for root, ports in members.items():
        buffer = _buffer(root, ports, step)
        if root.node.type in DATA_TYPES:
            inputs.append(buffer)
        elif root in returned:
            outputs.append(buffer)
        else:
            reusable.append(buffer)
    inputs.sort(key=lambda buffer: buffer.size_bytes)
    aliases = len(owner) - len(members)
    return Buffers(tuple(reusable), tuple(outputs), tuple(inputs), aliases)


def _viewed(node: OpDesc, index: int) -> Port | None:
    """The input port whose bytes output `index` of `node` is, for view operators."""
    kind = find(node.type)
    if index or kind is None or not getattr(kind.cls, "view", False) or not node.inputs:
        return None
    source = node.inputs[0]
    if source is None or source.node.type in _NO_FEATURE_MEMORY:
        return None
    same = source.desc.nbytes == node.output_descs[0].nbytes and source.desc.dtype == node.output_descs[0].dtype
    return source if same else None


def _buffer(root: Port, ports: list[Port], step: dict[OpDesc, int]) -> Buffer:
    last = max(max((step[use.node] for use in port.node.users[port.index]), default=step[port.node]) for port in ports)
    size = max(block_bytes(padded_bytes(port.desc)) for port in ports)
    return Buffer(size, step[root.node], last, tuple(ports))


def block_bytes(size: int) -> int:
    """A size rounded up to whole blocks."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES
