"""Make every write to a variable visible as a variable ref node (GE: VariablePrepareOpPass)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from gecli.errors import CompileError
from gecli.ir.attributes import REF_VAR_SRC_VAR_NAME, STREAM_LABEL, VARIABLE_TYPES
from gecli.ir.calls import STATELESS_TYPES
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.ir.surgery import insert_on_edge, isolate
from gecli.ir.tensor_desc import NO_ATTRS
from gecli.ops.evaluate import source_variable
from gecli.passes.base import Pass, PassContext, Stage
from gecli.passes.facts import Fact
from gecli.passes.memory_reads import state_reads
from gecli.passes.written_inputs import writes_at

VAR_LIKE_TYPES = VARIABLE_TYPES | {"RefData"}
_MERGES = frozenset(("Merge", "RefMerge"))


class _Write(NamedTuple):
    """A node that writes a variable: through which input, and the output that shows it."""

    node: OpDesc
    slot: int
    output: int | None


class VariablePrepare(Pass):
    """Put a node `{variable}_TO_{writer}_REF_{output}` behind the last write of each chain of writers.

    Later passes see in it where the variable's new value arrives. A writer without an output for the variable reads
    it through a RefIdentity, and the ref node hangs on that. The ref comes before everything behind the writer.
    """

    name = "VariablePrepareOpPass"
    stage = Stage.RUNNING_FORMAT
    ensures = (Fact.VARIABLES_PREPARED, Fact.ACYCLIC)
    level = "O3"
    correctness = True

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        _require_stateless(graph)
        for each in graph.all_graphs():
            counts["references_removed"] += _remove_identities(each)
            for variable in each.nodes_of(*sorted(VAR_LIKE_TYPES)):
                if variable.ref_variable is not None:
                    continue
                for ref in add_refs(each, variable):
                    counts["refs_added"] += 1
                    ctx.record(self.name, "ref_added", variable=variable.name, node=ref.name)
        for each in graph.all_graphs():
            counts += state_reads(each)
        return +counts


def _remove_identities(graph: Graph) -> int:
    """Let users of a RefIdentity that the model has use what it refers to.

    With a conversion before it they would have what the variable held when that ran. Those before a ref stay: this pass
    makes them.
    """
    found = 0
    for node in graph.nodes_of("RefIdentity"):
        if source_variable(node, 0) is not None and not any(use.node.is_variable for use in node.users[0]):
            isolate(graph, node)
            found += 1
    return found


def _require_stateless(graph: Graph) -> None:
    """Raises CompileError for a variable that is written below a node whose type says that nothing is."""
    if not graph.subgraphs:
        return
    for caller in (node for each in graph.all_graphs() for node in each.nodes_of(*sorted(STATELESS_TYPES))):
        inside = list(caller.subgraphs)
        for name in inside:
            below = graph.subgraphs[name]
            inside += [inner for node in below.nodes() for inner in node.subgraphs if inner not in inside]
            for variable in below.nodes_of(*sorted(VAR_LIKE_TYPES)):
                write = next(_writes_behind(below, variable.out()), None) if variable.ref_variable is None else None
                if write is not None:
                    raise _not_stateless(caller, variable, write.node)


def _not_stateless(caller: OpDesc, variable: OpDesc, writer: OpDesc) -> CompileError:
    return CompileError(
        "G2018",
        f"{caller.type} {caller.name!r} writes variable {variable.name!r}",
        kind="PASS_FAILED",
        where=f"node {writer.name} ({writer.type})",
        why=f"graphs of a {caller.type} may not write variables",
        do=f"make the node a {caller.type.removeprefix('Stateless')}",
        node=writer.name,
    )


def add_refs(graph: Graph, variable: OpDesc) -> list[OpDesc]:
    """Add the refs of one variable; returns the new ref nodes."""
    added: list[OpDesc] = []
    stack = list(_writes_behind(graph, variable.out()))[::-1]
    seen = set(stack)
    while stack:
        write = stack.pop()
        if write.output is None:
            added += _insert_ref(graph, variable, write)
            continue
        further = list(_writes_behind(graph, write.node.out(write.output)))
        if not further or _is_followed(write.node, further):
            added += _append_ref(graph, variable, write.node, write.output)
        # A loop of references leads back to a write that was seen (GE never ends there).
        for each in reversed(further):
            if each not in seen:
                seen.add(each)
                stack.append(each)
    return added


def _writes_behind(graph: Graph, port: Port) -> Iterator[_Write]:
    """Who writes what `port` refers to; a RefIdentity is the same memory."""
    for use in graph.consumers(port):
        if use.node.type == "RefIdentity":
            yield from _writes_behind(graph, use.node.out())
        for slot, output in writes_at(use):
            yield _Write(use.node, slot, output)


def _is_followed(writer: OpDesc, further: list[_Write]) -> bool:
    """Whether anything but the next writers comes behind a writer: it may read the variable.

    GE asks for control edges only. What the graph returns is there when it ends.
    """
    if writer.control_out:
        return True
    known = {each.node for each in further}
    behind = (use.node for users in writer.users for use in users)
    return any(
        node not in known and not node.is_variable and node.type not in ("RefIdentity", "NetOutput") for node in behind
    )


def is_ref_to(node: OpDesc, variable: str) -> bool:
    return node.type in VAR_LIKE_TYPES and node.ref_variable == variable


def _append_ref(graph: Graph, variable: OpDesc, writer: OpDesc, output: int) -> list[OpDesc]:
    """GE: AddVariableRef."""
    port = writer.out(output)
    if any(is_ref_to(use.node, variable.name) for use in graph.consumers(port)):
        return []
    ref = _create_ref(graph, variable, writer, output)
    _order_before_successors(graph, writer, ref)
    graph.connect(port, ref, 0)
    return [ref]


def _insert_ref(graph: Graph, variable: OpDesc, write: _Write) -> list[OpDesc]:
    """GE: InsertVariableRef."""
    writer, slot = write.node, write.slot
    source = writer.inputs[slot]
    assert source is not None
    if source.node.type == "RefIdentity":
        if any(is_ref_to(use.node, variable.name) for use in graph.consumers(source)):
            return []
        identity = source.node
    else:
        name = graph.unique_name(f"RefIdentity_{source.node.name}_{source.index}_TO_{writer.name}_{slot}")
        desc = writer.input_descs[slot]
        assert desc is not None
        plain = replace(desc, attrs=NO_ATTRS)
        identity = OpDesc(name, "RefIdentity", input_descs=[plain], output_descs=[plain])
        insert_on_edge(graph, Use(writer, slot), identity)
    ref = _create_ref(graph, variable, writer, slot)
    _order_before_successors(graph, writer, ref)
    graph.connect(identity.out(), ref, 0)
    graph.add_control(writer, ref)
    return [ref]


def _create_ref(graph: Graph, variable: OpDesc, writer: OpDesc, index: int) -> OpDesc:
    desc = replace(variable.output_descs[0], attrs=NO_ATTRS)
    attrs = {REF_VAR_SRC_VAR_NAME: variable.name}
    if STREAM_LABEL in writer.attrs:
        attrs[STREAM_LABEL] = writer.attrs[STREAM_LABEL]
    name = f"{variable.name}_TO_{writer.name}_REF_{index}"
    return graph.create(variable.type, name, near=writer, attrs=attrs, input_descs=[desc], output_descs=[desc])


def _order_before_successors(graph: Graph, writer: OpDesc, ref: OpDesc) -> None:
    """The variable has its new value before anything behind the writer runs."""
    merges = [
        use
        for index in range(len(writer.output_descs))
        for use in graph.consumers(writer.out(index))
        if use.node.type in _MERGES
    ]
    for use in merges:
        # A Merge runs as soon as one input has arrived, so the order must lie on the edge itself.
        port = use.node.inputs[use.slot]
        assert port is not None
        identity = OpDesc(
            graph.unique_name(f"Identity_{writer.name}_TO_{use.node.name}_{use.slot}"),
            "Identity",
            input_descs=[port.desc],
            output_descs=[port.desc],
        )
        insert_on_edge(graph, use, identity)
    for after in graph.successors(writer):
        if after is not ref:
            graph.add_control(ref, after)
