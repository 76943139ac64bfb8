"""Models whose updates of a variable would be lost are refused when they are loaded (runtime.md 4.4, 5.6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gecli.artifacts.om_writer import write_om
from gecli.artifacts.rdcpkt import write_rdcpkt
from gecli.compiler.graph_compiler import CompiledGraph
from gecli.compiler.model_image import ImageFacts, model_image
from gecli.compiler.session import Session as CompileSession
from gecli.errors import InputError
from gecli.ir.text import parse
from gecli.layout.platform import platform_of
from gecli.passes.base import CompileSettings
from gecli.runtime.session import Session

Craft = Callable[[CompiledGraph], None]
WRITTEN = """
    graph g(%x : f32[4] ND) {
      %w = Variable() {_init_value={"fill": "00000040"}} : f32[4] ND
      %v = Variable() {_init_value={"fill": "00000040"}} : f32[4] ND
      %o = Relu(%v) : f32[4] ND
      %a = AssignAdd(%w, %x) : f32[4] ND
      %n = Neg(%a) : f32[4] ND
      %r = Relu(%n) : f32[4] ND
      return %r, %o
    }
"""


def compiled(place: Path, craft: Craft, source: str = WRITTEN) -> Path:
    """A model whose graph or plan was changed behind the passes."""
    compiler = CompileSession(platform_of("Ascend910B1"), CompileSettings())
    member = compiler.add(parse(source))
    compiler.compile_all()
    assert member.compiled is not None
    craft(member.compiled)
    facts = ImageFacts("g", "Ascend910B1", compiler.platform.profile, "json", "", "0" * 64)
    write_rdcpkt(place / "g.rdcpkt", member.compiled.record)
    write_om(place / "g.om", model_image(member.compiled, compiler.manager, facts))
    return place / "g.om"


def nothing(model: CompiledGraph) -> None:
    pass


def output_of_a_at(name: str) -> Craft:
    """The output of the writer lies where another node has its own."""

    def craft(model: CompiledGraph) -> None:
        places = model.plan.placements
        writer, other = model.graph.node("a"), model.graph.node(name)
        places[writer] = replace(places[writer], output_offsets=places[other].output_offsets)
        writer.output_descs[0] = replace(writer.output_descs[0], attrs={})  # without the mark that it is stored into w

    return craft


def input_gone(model: CompiledGraph) -> None:
    writer = model.graph.node("a")
    model.graph.disconnect(writer, 0)
    places = model.plan.placements
    places[writer] = replace(places[writer], input_offsets=places[writer].input_offsets[1:])


def test_a_model_as_compiled_is_loaded(tmp_path: Path) -> None:
    session = Session()
    model = session.load(compiled(tmp_path, nothing))
    model.run({"x": np.ones(4, np.float32)})
    assert session.store.value("w").tolist() == [3] * 4


@pytest.mark.parametrize(("place", "why"), [("n", "the feature map"), ("v", "variable 'v'")])
def test_a_writer_with_its_output_elsewhere_is_refused(tmp_path: Path, place: str, why: str) -> None:
    om = compiled(tmp_path, output_of_a_at(place))
    with pytest.raises(InputError, match="AssignAdd node 'a' writes variable 'w' in another place") as refused:
        Session().load(om)
    found = refused.value.first
    assert (found.code, found.kind, found.node, found.expected) == ("G4012", "RT_REF_MISMATCH", "a", "w")
    assert why in found.why
    assert found.where
    assert found.do
    assert refused.value.exit_status == 3


def test_a_writer_of_nothing_is_refused(tmp_path: Path) -> None:
    om = compiled(tmp_path, input_gone)
    with pytest.raises(InputError, match="AssignAdd node 'a' writes nothing") as refused:
        Session().load(om)
    found = refused.value.first
    assert (found.code, found.kind, found.node) == ("G4012", "RT_REF_UNBOUND", "a")
    assert all((found.where, found.why, found.do))
    assert refused.value.exit_status == 3
