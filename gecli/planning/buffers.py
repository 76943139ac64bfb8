"""Which feature-map buffers a graph needs and how long each lives (runtime.md 9.2, steps 1 and 2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from gecli.ir.attributes import BROADCAST_TYPES, CONST_TYPES, DATA_TYPES
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


def collect_buffers(
    order: list[OpDesc], graph: Graph, elsewhere: Collection[Port], into: Mapping[Port, Port] = MappingProxyType({})
) -> Buffers:
    """The buffers of `graph`, whose nodes run in `order`; `elsewhere` are ports that lie in variable memory.

    View operators (Reshape and its like) share the buffer of their input, broadcasts that of an input which nobody else
    reads, and so do the keys of `into`, which write what another node has made. Sizes are GE's padded sizes rounded up
    to 512. A view of what a later node writes has a buffer of its own. Every shape must be static.
    """
    step = {node: position for position, node in enumerate(order)}
    views: dict[str, bool] = {}  # by type
    last_write = _last_writes(into, step)
    returned = set(graph.outputs)
    owner: dict[Port, Port] = {}
    members: dict[Port, list[Port]] = {}
    for node in order:
        type = node.type
        if type in _NO_FEATURE_MEMORY:
            continue
        view = views.get(type)
        if view is None:
            view = views[type] = _is_view(type)
        for index in range(len(node.output_descs)):
            port = Port(node, index)
            if port in elsewhere:
                continue
            source = into.get(port) if port in into else _viewed(node) if view and not index else None
            if source is None and type in BROADCAST_TYPES:
                source = _overwritten(node, index, members, returned)
            root = port if source is None else owner.get(source, port)
            if (
                last_write
                and port not in into
                and any(last_write.get(each, 0) > step[node] for each in members.get(root, ()))
            ):
                root = port  # what it shows is overwritten: it must be a copy
            owner[port] = root
            if root is port:
                members[port] = [port]
            else:
                members[root].append(port)
    returned = {owner[port] for port in returned if port in owner}
    reusable, outputs, inputs = [], [], []
    blocks: dict[int, int] = {}  # by identity of the descriptor: alike nodes share theirs
    for root, ports in members.items():
        buffer = _buffer(root, ports, step, blocks)
        if root.node.type in DATA_TYPES:
            inputs.append(buffer)
        elif root in returned:
            outputs.append(buffer)
        else:
            reusable.append(buffer)
    inputs.sort(key=lambda buffer: buffer.size_bytes)
    aliases = len(owner) - len(members)
    return Buffers(tuple(reusable), tuple(outputs), tuple(inputs), aliases)


def _last_writes(into: Mapping[Port, Port], step: Mapping[OpDesc, int]) -> dict[Port, int]:
    """The last step at which something writes into the buffer of a port, for the first port of each such buffer."""
    found: dict[Port, int] = {}
    for port in into:
        first = port
        while first in into:
            first = into[first]
        if port.node in step:
            found[first] = max(found.get(first, 0), step[port.node])
    return found


def _is_view(type: str) -> bool:
    kind = find(type)
    return kind is not None and bool(getattr(kind.cls, "view", False))


def _viewed(node: OpDesc) -> Port | None:
    """The input port whose bytes output 0 of a view operator is."""
    source = node.inputs[0] if node.inputs else None
    if source is None or source.node.type in _NO_FEATURE_MEMORY:
        return None
    same = source.desc.nbytes == node.output_descs[0].nbytes and source.desc.dtype == node.output_descs[0].dtype
    return source if same else None


def _overwritten(node: OpDesc, index: int, members: Mapping[Port, list[Port]], returned: set[Port]) -> Port | None:
    """The input that a broadcast replaces in place: a feature map of its own that is of no further use."""
    port = node.inputs[index] if index < len(node.inputs) else None
    if port is None or port.node.type in DATA_TYPES or port in returned:
        return None
    return port if members.get(port) == [port] and len(port.node.users[port.index]) == 1 else None


def _buffer(root: Port, ports: list[Port], step: dict[OpDesc, int], blocks: dict[int, int]) -> Buffer:
    first = last = step[root[0]]
    size = 0
    for node, index in ports:
        users = node.users[index]
        # A value that nobody reads lives while it is made.
        end = max([step[use[0]] for use in users]) if users else step[node]
        if end > last:
            last = end
        desc = node.output_descs[index]
        block = blocks.get(id(desc))
        if block is None:
            block = blocks[id(desc)] = block_bytes(padded_bytes(desc))
        if block > size:
            size = block
    return Buffer(size, first, last, tuple(ports))


def block_bytes(size: int) -> int:
    """A size rounded up to whole blocks."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES
