"""The variable passes in the whole pipeline: order, switches, and the convolution network that is trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gecli.ir.graph import Graph
from gecli.ir.text import parse
from gecli.layout.platform import platform_of
from gecli.loading import load_graph
from gecli.ops.evaluate import evaluate_graph
from gecli.passes.apply_add_output import ApplyAddOutput
from gecli.passes.base import CompileSettings, PassContext, Stage
from gecli.passes.pipeline import StructureCheck, enabled, run_pipeline
from gecli.passes.registry import pass_names, pipeline
from gecli.variables.rebuild_control import RebuildControl
from gecli.variables.var_manager import VarManager

CONV_TRAIN = Path(__file__).parents[2] / "samples" / "train" / "conv_train.json"
VARIABLE_PASSES = [  # variables.md 7, with the correctness of each
    ("SplitVariableIntoSubgraphPass", True),
    ("VarIsInitializedOpPass", True),
    ("ApplyAddOutputPass", True),
    ("VariablePrepareOpPass", True),
    ("UpdateVariableFormats", True),
    ("VariableOpPass", False),
    ("CancelInverseTransPass", False),
    ("VariableRefUselessControlOutDeletePass", False),
    ("AssignRemovePass", False),
    ("RefIdentityDeleteOpPass", True),
    ("VariableRefDeleteOpPass", True),
]


def compiled(graph: Graph, settings: CompileSettings, session: VarManager | None = None) -> PassContext:
    ctx = PassContext(platform_of("Ascend910B1"), session or VarManager(), RebuildControl(), settings)
    assert run_pipeline(graph, ctx, pipeline(settings), [StructureCheck()])
    return ctx


def test_the_variable_passes_stand_in_the_order_of_ge() -> None:
    names = [step.name for step in pipeline(CompileSettings())]
    variable_passes = [name for name, _ in VARIABLE_PASSES]
    assert [name for name in names if name in variable_passes] == variable_passes


def test_passes_that_keep_writes_alive_cannot_be_switched_off() -> None:
    names = pass_names()
    assert [(name, names[name]) for name, _ in VARIABLE_PASSES] == VARIABLE_PASSES
    off = CompileSettings(oo_level="O0", switches=dict.fromkeys(names, False))
    left = {step.name for step in pipeline(off) if enabled(step, off)}
    assert {name for name, correctness in VARIABLE_PASSES if correctness} <= left
    assert not {name for name, correctness in VARIABLE_PASSES if not correctness} & left


def test_variable_acceleration_is_left_out_on_demand() -> None:
    assert "VariableOpPass" not in {step.name for step in pipeline(CompileSettings(variable_acc=False))}


def test_each_place_of_a_repeated_pass_belongs_to_its_stage() -> None:
    stages = [step.stage for step in pipeline(CompileSettings())]
    order = list(Stage)
    assert stages == sorted(stages, key=order.index)
    assert [step.stage for step in pipeline(CompileSettings()) if step.name == "PrunePass"] == [
        Stage.PREPARE,
        Stage.OPTIMIZE_1,
        Stage.OPTIMIZE_2,
    ]


@pytest.fixture
def conv_train() -> Graph:
    return load_graph(CONV_TRAIN).graph


def stored_by(graph: Graph) -> dict[str, str]:
    return {
        desc.attrs["ref_var_src_var_name"]: f"{node.name}:{index}"
        for node in graph.nodes()
        for index, desc in enumerate(node.output_descs)
        if "ref_var_src_var_name" in desc.attrs
    }


PARAMETERS = ("w1", "b1", "w2", "b2", "w3", "b3")


def test_training_a_convolution_stores_filters_and_momenta_in_device_format(conv_train: Graph) -> None:
    ctx = compiled(conv_train, CompileSettings())
    assert stored_by(conv_train) == {
        **{name: f"up_{name}:0" for name in PARAMETERS},
        **{f"{name}_momentum": f"up_{name}:1" for name in PARAMETERS},
    }
    changed = [name for name in ctx.variables.resource.roads if ctx.variables.trans_road(name)]
    assert changed == ["w1", "w1_momentum", "w2", "w2_momentum"]
    assert not ctx.warnings
    for name in changed:
        assert str(conv_train.node(name).output_descs[0]) == "DT_FLOAT FRACTAL_Z [9,1,16,8]"
    assert all(port is not None and port.node.type != "TransData" for port in conv_train.node("up_w1").inputs)


@pytest.mark.parametrize("level", ["O0", "O1", "O3"])
def test_every_update_is_stored_at_every_level(conv_train: Graph, level: str) -> None:
    compiled(conv_train, CompileSettings(oo_level=level, variable_acc=False))
    stored = stored_by(conv_train)
    assert sorted(stored) == sorted([*PARAMETERS, *(f"{name}_momentum" for name in PARAMETERS)])
    # Without acceleration a conversion back stands between the update and the variable.
    assert stored["w1"] != "up_w1:0" and stored["b1"] == "up_b1:0"


@pytest.mark.parametrize("level", ["O0", "O1", "O3"])
def test_the_pipeline_changes_no_loss_and_no_parameter_in_origin_format(conv_train: Graph, level: str) -> None:
    random = np.random.default_rng(7)
    feeds = {
        "x": random.standard_normal((32, 1, 8, 8)).astype(np.float32),
        "labels": np.eye(10, dtype=np.float32)[random.integers(0, 10, 32)],
    }
    plain = conv_train.copy()
    ApplyAddOutput().run(plain, PassContext(platform_of("Ascend910B1"), VarManager(), RebuildControl()))
    expected, before = evaluate_graph(plain, feeds)
    compiled(conv_train, CompileSettings(oo_level=level, format_policy="origin"))
    outputs, after = evaluate_graph(conv_train, feeds)
    for a, b in zip(expected, outputs, strict=True):
        np.testing.assert_array_equal(a, b)
    assert sorted(before) == sorted(after)
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])


def test_the_worked_momentum_example_keeps_two_conversions_of_eight() -> None:
    """training.md 17, from the model to the last pass."""
    window = 'strides=[1,1,1,1], pads=[1,1,1,1], dilations=[1,1,1,1], data_format="NCHW"'
    graph = parse(f"""
        graph conv_momentum(%x : f16[1,64,28,28] NCHW) {{
          %W = Variable() {{_init_value={{"fill": "0028"}}}} : f16[3,3,64,128] HWCN
          %M = Variable() {{_init_value={{"fill": "0000"}}}} : f16[3,3,64,128] HWCN
          %lr = Const() {{value=0.015625}} : f16[] ND
          %mu = Const() {{value=0.5}} : f16[] ND
          %fsize = Const() {{value=[3,3,64,128]}} : i32[4] ND
          %conv = Conv2D(%x, %W) {{{window}}} : f16[1,128,28,28] NCHW
          %loss = L2Loss(%conv) : f16[] ND
          %dw = Conv2DBackpropFilter(%x, %fsize, %conv) {{{window}}} : f32[3,3,64,128] HWCN
          %dw16 = Cast(%dw) {{dst_type=1}} : f16[3,3,64,128] HWCN
          %upd = ApplyMomentum(%W, %M, %lr, %dw16, %mu) {{use_nesterov=false}} : f16[3,3,64,128] HWCN
          return %loss
        }}
    """)
    ctx = compiled(graph, CompileSettings())
    assert [node.name for node in graph.nodes_of("TransData")] == ["trans_TransData_0", "trans_TransData_2"]
    assert stored_by(graph) == {"W": "upd:0", "M": "upd:1"}
    assert [str(port) for port in graph.node("upd").inputs[:2]] == ["W:0", "M:0"]
    assert graph.node("Node_Output") in graph.node("upd").control_out  # nothing else keeps the update alive
    assert ctx.variables.resource.changed_names(1) == ("M", "W")


def test_a_session_of_three_graphs_shares_one_variable() -> None:
    """variables.md 9.3: init, checkpoint, train, and the checkpoint again."""
    session, rebuild = VarManager(), RebuildControl()
    init = """
        graph init() {
          %var1 = Variable() : f32[2,2,3,2] ND
          %c = Const() {value={"fill": "0000803f"}} : f32[2,2,3,2] ND
          %a = Assign(%var1, %c) : f32[2,2,3,2] ND
          return %a
        }
    """
    checkpoint = "graph ckpt() {\n %var1 = Variable() : f32[2,2,3,2] ND\n return %var1\n }"
    fractal = "f32[4,1,16,16] FRACTAL_Z origin [2,2,3,2] HWCN"
    train = f"""
        graph train(%x : f32[1,3,4,4] NCHW) {{
          %var1 = Variable() : f32[2,2,3,2] ND
          %r = ReFormat(%var1) : f32[2,2,3,2] HWCN
          %t = TransData(%r) {{src_format=HWCN, dst_format=FRACTAL_Z}} : {fractal}
          %y = Relu(%t) : {fractal}
          return %y
        }}
    """
    steps = {step.name: step for step in pipeline(CompileSettings())}
    chosen = ("VariablePrepareOpPass", "UpdateVariableFormats", "VariableOpPass", "CancelInverseTransPass")

    def run(graph_id: int, source: str) -> Graph:
        graph = parse(source)
        rebuild.add_graph(graph_id, graph)
        ctx = PassContext(platform_of("Ascend910B1"), session, rebuild, graph_id=graph_id)
        assert run_pipeline(graph, ctx, [steps[name] for name in chosen], [StructureCheck()])
        if not session.exists("var1"):
            session.assign("var1", graph.node("var1").output_descs[0])
        rebuild.build_end(graph_id)
        return graph

    run(1, init)
    run(2, checkpoint)
    assert rebuild.stale_graphs == ()
    run(3, train)
    road = session.trans_road("var1")
    assert road is not None and [step.type for step in road] == ["ReFormat", "TransData"]
    assert session.resource.changed_graph_id("var1") == 3 and rebuild.stale_graphs == (1, 2)
    again = run(2, checkpoint)
    assert rebuild.stale_graphs == (1,)
    assert [(node.name, node.type) for node in again.nodes()][:3] == [
        ("var1", "Variable"),
        ("var1_trans_0", "TransData"),
        ("var1_trans_1", "ReFormat"),
    ]
    assert str(again.node("var1").output_descs[0]) == "DT_FLOAT FRACTAL_Z [4,1,16,16]"
