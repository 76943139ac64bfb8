"""Races of readers and writers of a variable: every pair without a path, and no other."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.text import parse
from gecli.planning.variable_races import find_races, race_warnings


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[OpDesc], dict[OpDesc, list[str]], dict[OpDesc, list[str]]]:
    """Nodes in order with data and control edges forwards, and what each reads and writes."""
    graph = Graph("g")
    count = draw(st.integers(1, 12))
    nodes = [graph.create("Add", f"n{k}", output_descs=[TensorDesc(DataType.FLOAT, ())]) for k in range(count)]
    for second in range(count):
        for first in draw(st.lists(st.integers(0, max(second - 1, 0)), max_size=3, unique=True)):
            if first == second:
                continue
            if draw(st.booleans()):
                graph.add_control(nodes[first], nodes[second])
            else:
                graph.connect(Port(nodes[first], 0), nodes[second], len(nodes[second].inputs))
    names = st.lists(st.sampled_from("abc"), max_size=2, unique=True)
    reads = {node: draw(names) for node in nodes}
    writes = {node: draw(names) for node in nodes if draw(st.booleans())}
    return nodes, reads, writes


@given(programs())
@settings(max_examples=200, deadline=None)
def test_the_races_are_the_pairs_that_no_path_joins(
    program: tuple[list[OpDesc], dict[OpDesc, list[str]], dict[OpDesc, list[str]]],
) -> None:
    nodes, reads, writes = program
    order = nx.DiGraph((edge[0], edge[1]) for edge in nodes[0].graph.networkx.edges())
    order.add_nodes_from(node.name for node in nodes)
    expected = {
        (name, first.name, second.name)
        for name in "abc"
        for first, second in combinations(nodes, 2)
        if name in (*reads[first], *writes.get(first, ())) and name in (*reads[second], *writes.get(second, ()))
        if name in writes.get(first, ()) or name in writes.get(second, ())
        if not nx.has_path(order, first.name, second.name)
    }
    found = find_races(nodes, reads, writes)
    assert {(race.variable, race.first.name, race.second.name) for race in found} == expected
    assert len(found) == len(expected)
    for race in found:
        assert race.first_writes == (race.variable in writes.get(race.first, ()))
        assert race.second_writes == (race.variable in writes.get(race.second, ()))
    assert [race.variable for race in found] == sorted(race.variable for race in found)


def test_a_conversion_that_gecli_inserts_is_told_as_the_node_that_it_is_for() -> None:
    graph = parse("""
        graph g(%x : f32[4] ND) {
          %v = Variable() : f32[4] ND
          %trans_Cast_0 = Cast(%v) {dst_type=1} : f16[4] ND
          %y = Relu(%trans_Cast_0) : f16[4] ND
          %a = Add(%x, %x) : f32[4] ND
          %v_TO_a_REF_0_trans_0 = Cast(%a) {dst_type=0, _inserted_by_ge=true} : f32[4] ND
          return %y, %v_TO_a_REF_0_trans_0
        }
    """)
    reads = {graph.node("trans_Cast_0"): ["v"]}
    writes = {graph.node("v_TO_a_REF_0_trans_0"): ["v"]}
    (found,) = race_warnings(find_races(graph.nodes(), reads, writes), "graph 'g'")
    assert found.message == "nothing orders 'a', which writes variable 'v', and 'y'"
    assert (found.node, found.actual, found.do) == ("a", ["y"], "add a control edge between 'y' and 'a'")
    assert found.why.endswith("'y' runs before 'a' here")
