"""Sessions of many variables: a hundredth of the size that the benchmark compiles, and a small one that is run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.compiler.session import Session
from gecli.ir.graph import Graph
from gecli.layout.platform import platform_of
from gecli.loading import load_graph
from gecli.passes.base import CompileSettings
from gecli.runtime.session import Session as Device
from tests.conftest import REPOSITORY, Gecli

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

import make_sessions  # the folder is on the path only now


def test_every_graph_of_a_session_of_200_variables_agrees_with_the_manager(tmp_path: Path) -> None:
    make_sessions.main(tmp_path, 200)
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    for name in make_sessions.GRAPHS:
        session.add(load_graph(str(tmp_path / f"{name}.json")).graph)
    assert sum(len(member.graph.nodes()) for member in session.members) >= 2000
    session.compile_all()
    assert session.rebuild.stale_graphs == ()
    manager = session.manager
    for member in session.members:
        assert member.compiled is not None
        for node in member.compiled.variables:
            current = manager.current_desc(node.name)
            assert current is not None and node.output_descs[0].same_storage(current), (member.graph.name, node.name)
            address = manager.resource.address_of(node.name, current)
            assert member.compiled.plan.placements[node].output_offsets == (address,)
    changed = [name for name in manager.resource.current_descs if manager.trans_road(name)]
    assert {name.rpartition("/")[2] for name in changed} == {"w", "s"}
    assert sum(name.endswith("/w") for name in changed) == 66


def test_a_session_orders_its_graphs_as_often_however_many_variables_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pass may need the order again after its changes; one that needs it for every variable is quadratic."""
    original, calls = Graph._sort, [0]

    def counted(graph: Graph, *arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        return original(graph, *arguments, **options)

    monkeypatch.setattr(Graph, "_sort", counted)
    counts = []
    for variables in (20, 80):
        calls[0] = 0
        make_sessions.main(tmp_path / str(variables), variables)
        session = Session(platform_of("Ascend910B1"), CompileSettings())
        for name in make_sessions.GRAPHS:
            session.add(load_graph(str(tmp_path / str(variables) / f"{name}.json")).graph)
        session.compile_all()
        counts.append(calls[0])
    assert counts[1] == counts[0]


def test_a_session_runs_the_same_with_and_without_acceleration(gecli: Gecli, tmp_path: Path) -> None:
    make_sessions.main(tmp_path, 14)
    sources = [str(tmp_path / f"{name}.json") for name in make_sessions.GRAPHS]
    x = np.linspace(-1, 1, 8 * 16, dtype=np.float32).reshape(1, 8, 4, 4)
    stores = []
    for acceleration in ("variable-acc", "no-variable-acc"):
        done = gecli("compile", *sources, "-o", f"{acceleration}/", "-q", f"--{acceleration}")
        assert done.returncode == 0, done.stderr
        device = Device(poison=True)
        init, train, evaluate = (device.load(tmp_path / f"{acceleration}/{name}.om") for name in make_sessions.GRAPHS)
        init.run({})
        for count in (1, 2):
            before, _ = evaluate.run({"x": x})
            outputs, _ = train.run({"x": x})
            np.testing.assert_allclose(outputs["loss:0"], before["loss:0"], rtol=1e-6)
            assert outputs["count:0"] == count
        stores.append({name: device.store.value(name) for name in device.store.names()})
    assert len(stores[0]) == 14
    assert np.ptp(stores[0]["layer0/w"]) > 0, "it was trained"
    for name, value in stores[0].items():
        np.testing.assert_allclose(stores[1][name], value, rtol=1e-6, atol=1e-9, err_msg=name)
