"""Rebuild control (variables.md 9.1-9.2, cache.md 7)."""

from __future__ import annotations

from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.variables.rebuild_control import RebuildControl

DESC = TensorDesc(DataType.FLOAT, (2,))


def _graph(*names: str, type: str = "Variable") -> Graph:
    graph = Graph("g")
    for name in names:
        graph.add(OpDesc(name, type, output_descs=[DESC]))
    return graph


def test_a_change_makes_every_user_stale_the_compiling_graph_included() -> None:
    rebuild = RebuildControl()
    for graph_id, names in [(1, ("a", "b")), (2, ("b",)), (3, ("c",))]:
        rebuild.add_graph(graph_id, _graph(*names))
    rebuild.state_changed("b")
    assert rebuild.stale_graphs == (1, 2)
    rebuild.build_end(2)
    assert rebuild.stale_graphs == (1,)
    assert rebuild.users("b") == (1, 2)


def test_a_variable_may_change_once_and_a_removed_graph_does_not_give_the_change_back() -> None:
    rebuild = RebuildControl()
    rebuild.add_graph(1, _graph("a"))
    assert rebuild.permits_change("a") and rebuild.permits_change("unknown")
    rebuild.state_changed("a")
    rebuild.remove_graph(1)
    assert not rebuild.permits_change("a")
    assert not rebuild.is_stale(1)
    rebuild.add_graph(1, _graph("a"))
    assert not rebuild.is_stale(1)


def test_a_change_before_a_graph_is_added_does_not_mark_it() -> None:
    rebuild = RebuildControl()
    rebuild.state_changed("a")
    rebuild.add_graph(1, _graph("a"))
    assert not rebuild.is_stale(1)


def test_adding_a_graph_again_replaces_its_names_and_keeps_the_mark() -> None:
    rebuild = RebuildControl()
    rebuild.add_graph(1, _graph("a"))
    rebuild.state_changed("a")
    rebuild.add_graph(1, _graph("b"))
    assert rebuild.is_stale(1)
    assert rebuild.users("a") == ()


def test_names_come_from_subgraphs_and_from_all_variable_types_but_not_from_constants() -> None:
    graph = _graph("v2", type="VariableV2")
    graph.add(OpDesc("handle", "VarHandleOp", output_descs=[DESC]))
    graph.add(OpDesc("c", "Constant", output_descs=[DESC]))
    owner = graph.add(OpDesc("if", "If", subgraphs=["then"]))
    then = Graph("then", parent=graph)
    then.add(OpDesc("inner", "Variable", output_descs=[DESC]))
    graph.subgraphs["then"] = then
    assert owner.subgraphs == ["then"]
    rebuild = RebuildControl()
    rebuild.add_graph(1, graph)
    assert [name for name in ("v2", "handle", "c", "inner") if rebuild.users(name)] == ["v2", "handle", "inner"]


def test_a_resource_name_is_added_to_the_set_of_a_graph() -> None:
    rebuild = RebuildControl()
    rebuild.add_resource_name(7, "g/stack")
    rebuild.state_changed("g/stack")
    assert rebuild.is_stale(7)


def test_a_snapshot_brings_everything_back() -> None:
    rebuild = RebuildControl()
    rebuild.add_graph(1, _graph("a"))
    saved = rebuild.snapshot()
    rebuild.state_changed("a")
    rebuild.add_graph(2, _graph("a"))
    rebuild.add_resource_name(1, "g/stack")
    rebuild.restore(saved)
    assert rebuild.users("g/stack") == ()
    assert (rebuild.stale_graphs, rebuild.users("a"), rebuild.changes("a")) == ((), (1,), 0)


def test_a_graph_needs_a_build_until_one_succeeded_and_again_when_it_is_stale_or_was_removed() -> None:
    control = RebuildControl()
    assert control.needs_build(7), "an unknown graph"
    control.add_graph_names(1, ["w"])
    assert control.needs_build(1)
    control.build_end(1)
    assert not control.needs_build(1)
    before = control.snapshot()
    control.state_changed("w")
    assert control.needs_build(1)
    control.restore(before)
    assert not control.needs_build(1)
    control.remove_graph(1)
    assert control.needs_build(1)
