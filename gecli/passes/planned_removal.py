"""Taking nodes out of a graph in two steps: look at the graph as it will be, then change it all at once."""

from __future__ import annotations

from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.ir.surgery import bypass, isolate
from gecli.passes.trans_ops import unplug_constants


class PlannedRemoval:
    """Nodes of one data input that are to go, and uses that are to read past a node. Planning changes no graph.

    A later plan sees what the earlier ones leave; `apply` makes the changes in the order in which they were planned.
    """

    def __init__(self) -> None:
        self._steps: list[OpDesc | Use] = []
        self._removed: set[OpDesc] = set()
        self._moved: dict[Use, Port] = {}
        self._arrived: dict[Port, list[Use]] = {}

    def consumers(self, port: Port) -> list[Use]:
        """Who will read `port`, in graph order then slot order."""
        found = self._readers(port)
        found.sort(key=lambda use: (use.node.rank, use.node.seq, use.slot))
        return found

    def source(self, use: Use) -> Port | None:
        """What a use will read; None for an input that is not connected."""
        port = self._moved.get(use)
        if port is None:
            port = use.node.inputs[use.slot] if use.slot < len(use.node.inputs) else None
        return None if port is None else self._resolved(port)

    def remove(self, node: OpDesc) -> None:
        """Plan that the readers of `node` read what it reads."""
        self._removed.add(node)
        self._steps.append(node)

    def bypass(self, use: Use) -> None:
        """Plan that one use reads what the node before it reads; that node stays for its other readers."""
        port = self.source(use)
        assert port is not None
        behind = self.source(Use(port.node, 0))
        assert behind is not None
        self._moved[use] = behind
        self._arrived.setdefault(behind, []).append(use)
        self._steps.append(use)

    def apply(self) -> None:
        """Make the planned changes."""
        for step in self._steps:
            if isinstance(step, OpDesc):
                unplug_constants(step.graph, step)
                isolate(step.graph, step)
            else:
                bypass(step.node.graph, step)

    def _readers(self, port: Port) -> list[Use]:
        found = [use for use in self._arrived.get(port, ()) if self._moved[use] == port]
        for use in port.node.users[port.index]:
            if use in self._moved:
                continue
            if use.node not in self._removed:
                found.append(use)
            elif use.slot == 0:
                found += self._readers(use.node.out())
        return found

    def _resolved(self, port: Port) -> Port:
        while port.node in self._removed:
            before = self.source(Use(port.node, 0))
            assert before is not None
            port = before
        return port
