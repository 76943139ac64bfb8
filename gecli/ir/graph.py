"""The graph that passes see: one `networkx.MultiDiGraph` with fast adjacency on the nodes beside it.

networkx keeps the graph for algorithms, drawing and node-link export. What a pass asks all the time (who produces
this input, who reads this output, which nodes have this type) is kept on `OpDesc` and in an index by type, because
networkx alone needs 0.4 s to look at all consumers of 100,000 nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from heapq import heapify, heappop, heappush
from typing import Any

import networkx as nx

from gecli.ir.attributes import DATA_INDEX, DATA_TYPES
from gecli.ir.op_desc import OpDesc, Port, Use

RANK_GAP = 1 << 16  # room for nodes inserted between two neighbours before the order must be computed anew
NET_OUTPUT = "NetOutput"
NET_OUTPUT_NAME = "Node_Output"  # GE's name of the node that collects the outputs
CONTROL_KEY = ("c",)


class GraphError(Exception):
    """A graph operation that would break the graph: a duplicate name, an occupied slot, a cycle."""


@cache
def _edge_key(src_out: int, dst_in: int) -> tuple[str, int, int]:
    return ("d", src_out, dst_in)


class Graph:
    """A named graph of `OpDesc` nodes in a deterministic order, with its subgraphs.

    The order is by rank; a node added between two others takes a rank between theirs, and only an edge that goes
    backwards makes the order be computed again (topological, ties by the old order). Subgraphs are kept by name on
    the root graph.
    """

    def __init__(self, name: str, parent: Graph | None = None) -> None:
        self.name = name
        self.parent = parent
        self.attrs: dict[str, Any] = {}
        self.output_names: list[str] = []
        self.is_optimised = False  # on the root: the passes of a compile ran on it before
        self.subgraphs: dict[str, Graph] = {} if parent is None else parent.root.subgraphs
        self.networkx: nx.MultiDiGraph[str] = nx.MultiDiGraph(name=name)
        self._nodes: dict[str, OpDesc] = {}
        self._by_type: dict[str, dict[OpDesc, None]] = {}
        self._next_seq = 0
        self._next_rank = RANK_GAP
        self._sorted: list[OpDesc] | None = []
        self._backward_edge = False

    # ------------------------------------------------------------------ looking

    @property
    def root(self) -> Graph:
        graph = self
        while graph.parent is not None:
            graph = graph.parent
        return graph

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def node(self, name: str) -> OpDesc:
        """The node of this name. Raises KeyError."""
        return self._nodes[name]

    def get(self, name: str) -> OpDesc | None:
        return self._nodes.get(name)

    def nodes(self) -> list[OpDesc]:
        """All nodes in graph order, as a snapshot that survives changes to the graph."""
        return list(self._in_order())

    def nodes_of(self, *types: str) -> list[OpDesc]:
        """The nodes of these types in graph order; costs nothing for the other nodes."""
        self._settle()
        found = [node for name in types for node in self._by_type.get(name, ())]
        found.sort(key=_order)
        return found

    def types(self) -> list[str]:
        """The node types that occur, sorted."""
        return sorted(name for name, nodes in self._by_type.items() if nodes)

    def count_of(self, type: str) -> int:
        return len(self._by_type.get(type, ()))

    def all_graphs(self) -> Iterator[Graph]:
        """This graph, then every subgraph that its nodes name, each once, depth first."""
        seen: set[str] = set()

        def walk(graph: Graph) -> Iterator[Graph]:
            yield graph
            if not self.subgraphs:
                return
            for node in graph._in_order():
                for name in node.subgraphs:
                    if name not in seen and name in self.subgraphs:
                        seen.add(name)
                        yield from walk(self.subgraphs[name])

        yield from walk(self)

    def all_nodes(self) -> Iterator[OpDesc]:
        """The nodes of this graph and its subgraphs: a node, then the nodes of its subgraphs, depth first."""
        for node in self.nodes():
            yield node
            for name in node.subgraphs:
                if name in self.subgraphs:
                    yield from self.subgraphs[name].all_nodes()

    @property
    def inputs(self) -> list[OpDesc]:
        """The Data nodes by their `index` attribute."""
        return sorted(self.nodes_of(*DATA_TYPES), key=lambda node: (node.attrs.get(DATA_INDEX, 0), _order(node)))

    @property
    def net_output(self) -> OpDesc | None:
        nodes = self._by_type.get(NET_OUTPUT)
        return next(iter(nodes)) if nodes else None

    @property
    def outputs(self) -> list[Port]:
        """The ports that the graph returns, in order."""
        node = self.net_output
        return [] if node is None else node.data_inputs

    def consumers(self, port: Port) -> list[Use]:
        """Who reads `port`, in graph order then slot order."""
        uses = port.node.users[port.index]
        if len(uses) <= 1:
            return list(uses)
        return sorted(uses, key=lambda use: (*_order(use.node), use.slot))

    def successors(self, node: OpDesc) -> list[OpDesc]:
        """Nodes behind `node` by data or control, each once, in graph order."""
        found = {use.node: None for users in node.users for use in users}
        found.update(node.control_out)
        return sorted(found, key=_order)

    def predecessors(self, node: OpDesc) -> list[OpDesc]:
        """Nodes before `node` by data or control, each once, in graph order."""
        found: dict[OpDesc, None] = {port.node: None for port in node.inputs if port is not None}
        found.update(node.control_in)
        return sorted(found, key=_order)

    def unique_name(self, base: str) -> str:
        """`base`, or `base_1`, `base_2`... when it is taken."""
        name, k = base, 0
        while name in self._nodes:
            k += 1
            name = f"{base}_{k}"
        return name

    # ------------------------------------------------------------------ changing

    def add(self, node: OpDesc, *, near: OpDesc | None = None) -> OpDesc:
        """Add a node without connections: at the end of the order, or right behind `near`.

        Raises GraphError when the name is taken.
        """
        if node.name in self._nodes:
            raise GraphError(f"graph {self.name!r} already has a node {node.name!r}")
        self._nodes[node.name] = node
        same = self._by_type.get(node.type)
        if same is None:
            same = self._by_type[node.type] = {}
        same[node] = None
        self.networkx.add_node(node.name, op=node)
        node.graph = self
        node.seq = self._next_seq
        self._next_seq += 1
        if near is None:
            node.rank = self._next_rank
            self._next_rank += RANK_GAP
            if self._sorted is not None:
                self._sorted.append(node)
        else:
            node.rank = near.rank
            self._sorted = None
        return node

    def create(self, type: str, name: str, *, near: OpDesc | None = None, **fields: Any) -> OpDesc:
        """Build a node (fields as those of `OpDesc`), give it a free name and add it."""
        return self.add(OpDesc(self.unique_name(name), type, **fields), near=near)

    def remove(self, node: OpDesc) -> None:
        """Remove a node with all its edges."""
        for slot in range(len(node.inputs)):
            self.disconnect(node, slot)
        for users in node.users:
            for use in list(users):
                self.disconnect(use.node, use.slot)
        for before in list(node.control_in):
            self.remove_control(before, node)
        for after in list(node.control_out):
            self.remove_control(node, after)
        del self._nodes[node.name]
        del self._by_type[node.type][node]
        self.networkx.remove_node(node.name)
        node.graph = None
        self._sorted = None

    def rename(self, node: OpDesc, name: str) -> None:
        """Give a node another name. Raises GraphError when it is taken."""
        if name == node.name:
            return
        if name in self._nodes:
            raise GraphError(f"graph {self.name!r} already has a node {name!r}")
        from networkx.relabel import relabel_nodes

        del self._nodes[node.name]
        relabel_nodes(self.networkx, {node.name: name}, copy=False)
        node.name = name
        self._nodes[name] = node

    def retype(self, node: OpDesc, type: str) -> None:
        """Change a node's operator type; ports and attributes stay as they are."""
        del self._by_type[node.type][node]
        node.type = type
        self._by_type.setdefault(type, {})[node] = None

    def connect(self, source: Port, node: OpDesc, slot: int) -> None:
        """Feed input `slot` of `node` from `source`. Raises GraphError when the slot is taken or the port missing."""
        producer, index = source
        if index >= len(producer.output_descs):
            raise GraphError(f"{producer.name!r} has no output {index}")
        inputs, descs = node.inputs, node.input_descs
        while len(inputs) <= slot:
            inputs.append(None)
        while len(descs) <= slot:
            descs.append(None)
        if inputs[slot] is not None:
            raise GraphError(f"input {slot} of {node.name!r} is already fed by {inputs[slot]}")
        inputs[slot] = source
        producer.users[index][Use(node, slot)] = None
        self.networkx.add_edge(producer.name, node.name, _edge_key(index, slot))
        if producer.rank >= node.rank and _order(producer) >= _order(node):
            self._backward_edge = True

    def disconnect(self, node: OpDesc, slot: int) -> Port | None:
        """Unplug input `slot` of `node`; returns what fed it."""
        source = node.inputs[slot]
        if source is not None:
            node.inputs[slot] = None
            del source.node.users[source.index][Use(node, slot)]
            self.networkx.remove_edge(source.node.name, node.name, _edge_key(source.index, slot))
        return source

    def replace_input(self, node: OpDesc, slot: int, source: Port) -> None:
        """Feed input `slot` from another port."""
        self.disconnect(node, slot)
        self.connect(source, node, slot)

    def move_users(self, source: Port, target: Port) -> None:
        """All consumers of `source` read `target` from now on."""
        for use in self.consumers(source):
            if use.node is not target.node:
                self.replace_input(use.node, use.slot, target)

    def add_control(self, before: OpDesc, after: OpDesc) -> None:
        """Order `before` ahead of `after`. Existing edges and self edges change nothing."""
        if before is after or after in before.control_out:
            return
        before.control_out[after] = None
        after.control_in[before] = None
        self.networkx.add_edge(before.name, after.name, CONTROL_KEY)
        if _order(before) >= _order(after):
            self._backward_edge = True

    def remove_control(self, before: OpDesc, after: OpDesc) -> None:
        if after in before.control_out:
            del before.control_out[after]
            del after.control_in[before]
            self.networkx.remove_edge(before.name, after.name, CONTROL_KEY)

    def set_outputs(self, ports: Iterable[Port], names: Iterable[str] = ()) -> OpDesc:
        """Make the graph return `ports`; a NetOutput node is created or fed anew."""
        ports = list(ports)
        node = self.net_output
        if node is None:
            node = self.create(NET_OUTPUT, self.unique_name(NET_OUTPUT_NAME))
        for slot in range(len(node.inputs)):
            self.disconnect(node, slot)
        node.inputs.clear()
        node.input_descs = [port.desc for port in ports]
        for slot, port in enumerate(ports):
            self.connect(port, node, slot)
        self.output_names = list(names)
        return node

    def add_subgraph(self, graph: Graph) -> Graph:
        """Register a subgraph by its name on the root. Raises GraphError when the name is taken."""
        if graph.name in self.subgraphs:
            raise GraphError(f"there is already a subgraph {graph.name!r}")
        graph.parent = graph.parent or self
        graph.subgraphs = self.subgraphs
        self.subgraphs[graph.name] = graph
        return graph

    # ------------------------------------------------------------------ order

    def _in_order(self) -> list[OpDesc]:
        self._settle()
        if self._sorted is None:
            self._sorted = sorted(self._nodes.values(), key=_order)
        return self._sorted

    def _settle(self) -> None:
        if self._backward_edge:
            self._sort()

    def _sort(self) -> None:
        """Topological order, ties by the order so far. Raises GraphError on a cycle."""
        waiting = {
            node: sum(port is not None for port in node.inputs) + len(node.control_in) for node in self._nodes.values()
        }
        ready = [(node.rank, node.seq, node) for node, count in waiting.items() if not count]
        heapify(ready)
        order: list[OpDesc] = []
        while ready:
            node = heappop(ready)[2]
            order.append(node)
            for users in node.users:
                for use in users:
                    waiting[use.node] -= 1
                    if not waiting[use.node]:
                        heappush(ready, (use.node.rank, use.node.seq, use.node))
            for after in node.control_out:
                waiting[after] -= 1
                if not waiting[after]:
                    heappush(ready, (after.rank, after.seq, after))
        if len(order) != len(self._nodes):
            stuck = sorted(node.name for node, count in waiting.items() if count)
            raise GraphError(f"graph {self.name!r} has a cycle through {', '.join(stuck[:5])}")
        for position, node in enumerate(order):
            node.rank = (position + 1) * RANK_GAP
        self._next_rank = (len(order) + 1) * RANK_GAP
        self._sorted = order
        self._backward_edge = False

    # ------------------------------------------------------------------ copying

    def copy(self) -> Graph:
        """An independent copy of this graph and its subgraphs (weights are shared: they are references)."""
        names = [sub.name for sub in self.all_graphs() if sub is not self]
        root = self._copy_one(None)
        for name in names:
            root.subgraphs[name] = self.subgraphs[name]._copy_one(root)
        return root

    def _copy_one(self, parent: Graph | None) -> Graph:
        other = Graph(self.name, parent)
        other.attrs = dict(self.attrs)
        other.is_optimised = self.is_optimised
        twins: dict[OpDesc, OpDesc] = {}
        for node in self._in_order():
            twins[node] = other.add(
                OpDesc(
                    node.name,
                    node.type,
                    attrs=dict(node.attrs),
                    output_descs=list(node.output_descs),
                    input_descs=list(node.input_descs),
                    input_names=node.input_names,
                    output_names=node.output_names,
                    subgraphs=list(node.subgraphs),
                )
            )
        for node, twin in twins.items():
            for slot, port in enumerate(node.inputs):
                if port is not None:
                    other.connect(Port(twins[port.node], port.index), twin, slot)
            for after in node.control_out:
                other.add_control(twin, twins[after])
        other.output_names = list(self.output_names)
        return other

    def __repr__(self) -> str:
        return f"<Graph {self.name!r}, {len(self)} nodes>"


def _order(node: OpDesc) -> tuple[int, int]:
    return (node.rank, node.seq)


def feed(graph: Graph, node: OpDesc, *sources: Port | None) -> OpDesc:
    """Connect `sources` to the inputs of a new node in order; its input descs become those of the sources."""
    for slot, source in enumerate(sources):
        if source is None:
            while len(node.inputs) <= slot:
                node.inputs.append(None)
                node.input_descs.append(None)
            continue
        graph.connect(source, node, slot)
        node.input_descs[slot] = source[0].output_descs[source[1]]
    return node
