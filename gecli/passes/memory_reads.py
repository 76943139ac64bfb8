"""Let every reader of a written variable have the value that its memory holds at the reader's place in the order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gecli.engine.trans_ops import TRANS_OPS
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.ir.surgery import insert_on_edge
from gecli.ir.tensor_desc import NO_ATTRS
from gecli.passes.write_order import Reference, WriteOrder, references
from gecli.passes.written_inputs import writes_at


def state_reads(graph: Graph) -> Counter[str]:
    """Make the order of reads and writes hold whatever conversions later passes put in, move and take out.

    The output of a node that writes a variable is the variable's memory. Read or written behind a further write, it is
    replaced by the variable. A reader behind a write gets a control edge, which conversions before it copy. What a
    conversion of the model has read is copied where a later write could come before its readers: without the conversion
    they would read the variable themselves.

    Needs the refs of VariablePrepare. Returns counts.
    """
    counts = Counter[str]()
    if not any(map(graph.count_of, ("Variable", "VariableV2"))):
        return counts
    order = WriteOrder(graph)
    for variable in graph.nodes_of("Variable", "VariableV2"):
        writers = order.writers(variable.name)
        if variable.ref_variable is not None or not writers:
            continue
        for reference in list(references(graph, variable)):
            for use in graph.consumers(reference.port):
                if use.node.type == "RefIdentity" or use.node.is_variable:
                    continue
                before = order.behind(use.node, writers)
                if _is_written_again(reference, before, order):
                    counts["references_resolved"] += _resolve(graph, use, variable)
                counts["orders_stated"] += _state_order(graph, use.node, before, order)
                if use.node.type in TRANS_OPS and not use.slot:
                    later = [each for each in writers if order.is_before(use.node, each)]
                    counts["copies_added"] += _keep_values(graph, use.node.out(), later, order)
    return +counts


def _is_written_again(reference: Reference, writers: list[OpDesc], order: WriteOrder) -> bool:
    """Whether one of `writers` writes the memory after what made the reference."""
    if not reference.writers:
        return False  # the variable itself
    node = reference.port.node
    return any(
        writer not in reference.writers and not _stores(writer, reference.port) and not order.behind(node, (writer,))
        for writer in writers
    )


def _stores(ref: OpDesc, port: Port) -> bool:
    """Whether a ref says no more than that `port` is the variable."""
    return ref.is_variable and ref.inputs[0] == port


def _resolve(graph: Graph, use: Use, variable: OpDesc) -> int:
    port = use.node.inputs[use.slot]
    assert port is not None
    if not port.desc.same_storage(variable.output_descs[0]):
        return 0  # a write with other dims
    graph.replace_input(use.node, use.slot, variable.out())
    if use.node.type != "NetOutput":
        graph.add_control(port.node, use.node)
    return 1


def _state_order(graph: Graph, node: OpDesc, writers: list[OpDesc], order: WriteOrder) -> int:
    """Control edges from the last of `writers` where only data edges lead from them to `node`."""
    if node.type == "NetOutput":
        return 0
    # An operator that writes stands before its ref, which says when the variable has the value.
    refs = [each for each in writers if each.is_variable or each.subgraphs]
    missing = [each for each in _without(refs, order.is_before) if each not in node.control_in]
    for each in missing:
        graph.add_control(each, node)
    return len(missing)


def _keep_values(graph: Graph, port: Port, later: Sequence[OpDesc], order: WriteOrder) -> int:
    """Put copies behind conversions of a variable where a reader may run after a write that it must not see.

    `port` is what a chain of conversions gives, or an operator that writes its result; `later` are the writes that come
    behind it.
    """
    mine: list[OpDesc] = []  # what writes here, and where that is stored
    for use in graph.consumers(port):
        for _, output in writes_at(use):
            mine += [use.node, *(() if output is None else _refs_behind(graph, use.node.out(output)))]
    others = [each for each in later if each not in mine]
    added = 0
    for use in graph.consumers(port) if others else ():
        node = use.node
        if node.is_variable:
            continue
        if use.slot == 0 and node.type in TRANS_OPS and not order.behind(node, others):
            added += _keep_values(graph, node.out(), others, order)
        elif writes := writes_at(use):
            outputs = [node.out(output) for _, output in writes if output is not None]
            added += sum(_keep_values(graph, each, others, order) for each in outputs)
        elif not all(node is each or order.is_before(node, each) for each in others):
            copy = _copy(graph, use)
            for before in order.behind(node, [each for each in mine if not each.is_variable]):
                graph.add_control(before, copy)
            for after in _without(others, lambda each, other: order.is_before(other, each)):
                graph.add_control(copy, after)
            added += 1
    return added


def _refs_behind(graph: Graph, port: Port) -> Iterator[OpDesc]:
    """The refs that store a port, through conversions."""
    for use in graph.consumers(port):
        if use.node.is_variable:
            yield use.node
        elif use.node.type in TRANS_OPS:
            yield from _refs_behind(graph, use.node.out())


def _without(nodes: Sequence[OpDesc], covers: Callable[[OpDesc, OpDesc], bool]) -> list[OpDesc]:
    """Those of `nodes` for which no other one is found that `covers` it."""
    return [each for each in nodes if not any(covers(each, other) for other in nodes if other is not each)]


def _copy(graph: Graph, use: Use) -> OpDesc:
    """A copy for `use` of what it reads."""
    port = use.node.inputs[use.slot]
    assert port is not None
    name = graph.unique_name(f"TensorMove_{port.node.name}_{port.index}_TO_{use.node.name}")
    desc = replace(port.desc, attrs=NO_ATTRS)
    return insert_on_edge(graph, use, OpDesc(name, "TensorMove", input_descs=[desc], output_descs=[desc]))
