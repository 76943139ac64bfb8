"""Remove nodes that change nothing: Identity, Reshape to the same dims, Transpose that moves nothing."""

from __future__ import annotations

from collections import Counter

from gecli.ir.attributes import DATA_TYPES
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.surgery import isolate
from gecli.passes.base import Pass, PassContext, Stage
from gecli.passes.write_order import keeps_a_value

IDENTITIES = frozenset(("Identity", "StopGradient", "PreventGradient", "Snapshot", "GuaranteeConst"))
RESHAPES = frozenset(("Reshape", "Flatten", "FlattenV2", "SqueezeV2", "UnsqueezeV2", "Expand", "BroadcastTo"))


class IdentityRemove(Pass):
    """Take out Identity and its kind (GE: IdentityPass, StopGradientPass, PreventGradientPass, SnapshotPass)."""

    name = "IdentityPass"
    stage = Stage.PREPARE

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        for each in graph.all_graphs():
            for node in each.nodes_of(*sorted(IDENTITIES)):
                if _is_plain_copy(each, node):
                    isolate(each, node)
                    counts["nodes_removed"] += 1
        return counts


def _is_plain_copy(graph: Graph, node: OpDesc) -> bool:
    """An Identity of a variable is a read at that moment, and one between input and output keeps them apart."""
    source = node.inputs[0] if node.inputs else None
    if source is None or source.node.is_variable or keeps_a_value(node):
        return False
    to_output = any(use.node.type == "NetOutput" for use in node.users[0])
    return not (to_output and source.node.type in DATA_TYPES)


class NoUseReshapeRemove(Pass):
    """Take out Reshape, Squeeze, Flatten and Expand whose result has the dims of their input."""

    name = "NoUseReshapeRemovePass"
    stage = Stage.PREPARE
    level = "O1"

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        for each in graph.all_graphs():
            for node in each.nodes_of(*sorted(RESHAPES)):
                source = node.inputs[0] if node.inputs else None
                if source is None or source.node.is_variable or not node.output_descs[0].is_static:
                    continue
                if source.desc.shape != node.output_descs[0].shape or _between_input_and_output(node):
                    continue
                if not keeps_a_value(node):
                    isolate(each, node)
                    counts["nodes_removed"] += 1
        return counts


class UnchangedTransposeRemove(Pass):
    """Take out TransposeD that leaves every axis longer than 1 where it is."""

    name = "UnchangedTransposeRemovePass"
    stage = Stage.PREPARE
    level = "O1"

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        for each in graph.all_graphs():
            for node in each.nodes_of("TransposeD"):
                desc = node.input_descs[0]
                perm = node.attrs.get("perm", ())
                source = node.inputs[0] if node.inputs else None
                if source is None or desc is None or not desc.is_static or _between_input_and_output(node):
                    continue
                if keeps_a_value(node):
                    continue
                if all(dim == 1 or perm[axis] == axis for axis, dim in enumerate(desc.shape)):
                    isolate(each, node)
                    counts["nodes_removed"] += 1
        return counts


def _between_input_and_output(node: OpDesc) -> bool:
    source = node.inputs[0]
    to_output = any(use.node.type == "NetOutput" for use in node.users[0])
    return source is not None and to_output and source.node.type in DATA_TYPES
