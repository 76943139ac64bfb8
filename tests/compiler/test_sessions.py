"""Sessions of several graphs: what counts as built, what they end with, what failures leave (variables.md 9, 15.4)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecli.compiler import graph_compiler
from gecli.compiler.session import Member, Session
from gecli.errors import CompileError
from gecli.ir.graph import Graph
from gecli.ir.text import parse
from gecli.layout.platform import platform_of
from gecli.passes.base import CompileSettings, Pass, PassContext
from gecli.passes.registry import pipeline
from gecli.variables.mem_resource import MemoryType
from gecli.wire.var_session import encode_var_manager

WINDOW = 'strides=[1,1,1,1], pads=[1,1,1,1], dilations=[1,1,1,1], data_format="NCHW"'
READS = "graph reads() {\n %w = Variable() : f32[4] ND\n %r = Relu(%w) : f32[4] ND\n return %r\n }"


def test_a_graph_that_failed_is_not_built() -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    broken = READS.replace("Relu(%w)", "VarIsInitializedOp(%r0)").replace("%r =", "%r0 = Relu(%w) : f32[4] ND\n %r =")
    member = session.add(parse(broken))
    session.rebuild.state_changed("w")
    with pytest.raises(CompileError):
        session.compile(member)
    assert session.rebuild.is_stale(member.graph_id) and session.rebuild.needs_build(member.graph_id), "GE: built"
    assert (member.compiled, member.compile_count) == (None, 0)
    assert not session.manager.resource.addresses


def test_a_graph_that_succeeded_is_built() -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    member = session.add(parse(READS))
    session.rebuild.state_changed("w")
    session.compile(member)
    assert not session.rebuild.is_stale(member.graph_id) and not session.rebuild.needs_build(member.graph_id)
    assert member.compile_count == 1


# ------------------------------------------------------------------ random sessions (variables.md 9.2, 15.4-10)


def _source(name: str, uses: dict[str, str]) -> str:
    """A graph that reads each variable as it is, or as the filter of a convolution, or writes it."""
    lines, results = [], []
    for variable, use in sorted(uses.items()):
        lines.append(f"%{variable} = Variable() : f32[8,1,3,3] NCHW")
        if use in ("filter", "written filter"):
            lines.append(f"%c_{variable} = Conv2D(%x, %{variable}) {{{WINDOW}}} : f32[1,8,8,8] NCHW")
            results.append(f"%c_{variable}")
        if use == "read":
            lines.append(f"%r_{variable} = Relu(%{variable}) : f32[8,1,3,3] NCHW")
            results.append(f"%r_{variable}")
        if use in ("written", "written filter"):
            lines.append(f"%u_{variable} = AssignAdd(%{variable}, %{variable}) : f32[8,1,3,3] NCHW")
            results.append(f"%u_{variable}")
    body = "\n".join(lines)
    return f"graph {name}(%x : f32[1,1,8,8] NCHW) {{\n{body}\nreturn {', '.join(results)}\n}}"


USES = st.dictionaries(
    st.sampled_from("abc"), st.sampled_from(["read", "filter", "written", "written filter"]), min_size=1
)


@given(st.lists(USES, min_size=1, max_size=3))
@settings(max_examples=25, deadline=None)
def test_a_session_ends_with_every_graph_built_for_the_stored_form(specs: list[dict[str, str]]) -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    for number, uses in enumerate(specs):
        session.add(parse(_source(f"g{number}", uses)))
    session.compile_all()
    names = sorted({name for uses in specs for name in uses})
    assert session.rebuild.stale_graphs == ()
    assert all(session.rebuild.changes(name) <= 1 for name in names)
    others = sum(len(session.rebuild.users(name)) - 1 for name in names if session.rebuild.changes(name))
    assert sum(member.compile_count for member in session.members) <= len(specs) + others
    for member in session.members:
        assert member.compiled is not None
        for node in member.compiled.variables:
            current = session.manager.current_desc(node.name)
            assert current is not None and node.output_descs[0].same_storage(current)
    roads = {name for name in names if session.manager.trans_road(name)}
    assert roads <= {name for uses in specs for name, use in uses.items() if use.endswith("filter")}


@given(st.lists(USES, min_size=2, max_size=2))
@settings(max_examples=10, deadline=None)
def test_a_graph_added_later_moves_no_variable(specs: list[dict[str, str]]) -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    first, second = (session.add(parse(_source(f"g{number}", uses))) for number, uses in enumerate(specs))
    session.compile(first)
    before = {key: entry.address for key, entry in session.manager.resource.addresses.items()}
    session.compile(second)
    after = session.manager.resource.addresses
    assert {key: after[key].address for key in before} == before


# ------------------------------------------------------------------ failures leave no trace (variables.md 15.4-11)

STEPS = sorted({step.name for step in pipeline(CompileSettings())})


def _state(session: Session) -> tuple[object, ...]:
    """Everything that a compile may change; the snapshot holds all serialized tables."""
    resource, rebuild = session.manager.resource, session.rebuild
    names = ("a", "b", "c")
    return (
        encode_var_manager(session.manager),
        {graph: dict(descs) for graph, descs in resource.staged_descs.items()},
        dict(resource.graph_names),
        resource.assigned_names,
        rebuild.stale_graphs,
        [(rebuild.changes(name), rebuild.users(name)) for name in names],
    )


def _session() -> tuple[Session, Member]:
    """The second graph changes `a`, which the first one reads."""
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    first = session.add(parse(_source("first", {"a": "read", "b": "written"})))
    second = session.add(parse(_source("second", {"a": "written filter", "b": "filter", "c": "filter"})))
    session.compile(first)
    return session, second


@pytest.mark.parametrize("name", STEPS)
def test_a_pass_that_fails_leaves_the_session_as_it_was(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session, member = _session()
    before = _state(session)
    kind = next(type(step) for step in pipeline(CompileSettings()) if step.name == name)
    real = kind.run

    def run(self: Pass, graph: Graph, ctx: PassContext) -> Counter[str]:
        real(self, graph, ctx)
        raise CompileError("G2018", "planted")

    monkeypatch.setattr(kind, "run", run)
    with pytest.raises(CompileError, match="planted"):
        session.compile(member)
    assert _state(session) == before
    monkeypatch.undo()
    session.compile(member)
    assert session.manager.trans_road("c"), "the session goes on"


@pytest.mark.parametrize("step", ["assign_variable_memory", "variable_ports", "plan_model"])
def test_a_placement_that_fails_leaves_the_session_as_it_was(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session, member = _session()
    before = _state(session)
    real = getattr(graph_compiler, step)

    def fail(*args: object, **more: object) -> None:
        real(*args, **more)
        raise KeyboardInterrupt

    monkeypatch.setattr(graph_compiler, step, fail)
    with pytest.raises(KeyboardInterrupt):
        session.compile(member)
    assert _state(session) == before


# ------------------------------------------------------------------ weights beside the model, memory of others


def test_file_constants_and_placeholders_have_addresses_in_the_om_and_in_the_session() -> None:
    """variables.md 4.4, 4.7: two names of one place in one file share a block; a placeholder has a range only."""
    file = '{location="w.bin", offset=%d}'
    holder = '{origin_shape=[4], origin_format=2, storage_shape=[4], storage_format=2, expand_dim_rules="", dtype=0'
    graph = parse(f"""
        graph g() {{
          %a = FileConstant() {file % 0} : f32[4] ND
          %b = FileConstant() {file % 0} : f32[4] ND
          %c = FileConstant() {file % 16} : f32[4] ND
          %p = ConstPlaceHolder() {holder}, addr=4096, size=16, placement=1}} : f32[4] ND
          %s = Add(%a, %b) : f32[4] ND
          %t = Add(%c, %p) : f32[4] ND
          %r = Add(%s, %t) : f32[4] ND
          return %r
        }}
    """)
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    member = session.add(graph)
    compiled = session.compile(member)
    places = {
        node.name: place.output_offsets[0] for node, place in compiled.plan.placements.items() if node.output_descs
    }
    base = 1 << 37
    assert {name: places[name] - base for name in "abcp"} == {"a": 0, "b": 0, "c": 1536, "p": 3072}
    assert session.manager.memory_bytes(MemoryType.HBM) == 2 * 1536, "the placeholder brings its own memory"
    assert next(block for block in session.manager.resource.blocks if block.name == "p").device_address == 4096


class TestNamesOfConstants:
    """Constants in variable memory: GE takes those that two graphs call the same for one."""

    CONSTANT = """
        graph {name}(%x : f32[2] ND) {{
          %c = Const() {{value=[{values}]}} : f32[2] ND
          %y = Add(%x, %c) : f32[2] ND
          return %y
        }}
    """
    VARIABLE = """
        graph v(%x : f32[2] ND) {
          %c = Variable() {_init_value={"fill": "00000000"}} : f32[2] ND
          %y = Add(%x, %c) : f32[2] ND
          return %y
        }
    """

    def addresses(self, *sources: str) -> list[int]:
        settings = CompileSettings(train=True, constants_in_session=True)
        session = Session(platform_of("Ascend910B1"), settings)
        for source in sources:
            session.add(parse(source))
        session.compile_all()
        found = []
        for member in session.members:
            assert member.compiled is not None
            node = member.compiled.graph.node("c")
            found += member.compiled.plan.placements[node].output_offsets
        return found

    def test_constants_of_one_name_share_memory_when_their_bytes_agree_and_only_then(self) -> None:
        a = self.CONSTANT.format(name="a", values="1.0, 2.0")
        b = self.CONSTANT.format(name="b", values="3.0, 4.0")
        c = self.CONSTANT.format(name="c", values="1.0, 2.0")
        first, second, third, fourth = self.addresses(a, b, c, b.replace("graph b", "graph d"))
        assert first == third != second == fourth

    def test_a_constant_with_the_name_of_a_variable_has_its_own_memory(self) -> None:
        first, second = self.addresses(self.VARIABLE, self.CONSTANT.format(name="a", values="1.0, 2.0"))
        assert first != second

    def test_a_variable_with_the_name_of_a_constant_is_refused(self) -> None:
        with pytest.raises(CompileError, match="'c'") as refused:
            self.addresses(self.CONSTANT.format(name="a", values="1.0, 2.0"), self.VARIABLE)
        assert refused.value.first.kind == "VAR_KEY_CONFLICT"
        assert "a constant of an earlier graph has this name" in refused.value.first.why
