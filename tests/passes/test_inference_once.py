"""Nodes that are alike are inferred once, and that changes no descriptor."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecli.ir.attributes import VALUE
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph, feed
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.ops.inference_memo import InferenceMemo, memo_key
from gecli.ops.registry import find
from gecli.passes.infer_shape import infer_graph

SHAPES = ((), (1,), (4,), (3, 1), (3, 4), (-1, 4), (-2,))
UNARY = ("Relu", "Tanh", "Neg", "Shape", "Cast", "SoftmaxV2", "Flatten")
BINARY = ("Add", "Mul", "Equal", "Reshape")
UNKNOWN = TensorDesc(DataType.FLOAT, (-2,))
Step = tuple[str, int, int, int]


def graph_of(shapes: list[tuple[int, ...]], steps: list[Step]) -> Graph:
    """Inputs of `shapes`, a shape constant, then one node a step whose operands are any earlier tensors."""
    graph = Graph("alike")
    ports: list[Port] = []
    for index, shape in enumerate(shapes):
        node = OpDesc(f"x{index}", "Data", attrs={"index": index}, output_descs=[TensorDesc(DataType.FLOAT, shape)])
        ports.append(graph.add(node).out())
    value = Weight.of(np.array([-1], np.int64))
    target = graph.add(OpDesc("shape", "Const", attrs={VALUE: value}, output_descs=[value.desc])).out()
    for number, (kind, first, second, attr) in enumerate(steps):
        attrs: dict[str, object] = {}
        if kind == "Cast":
            attrs["dst_type"] = (0, 1)[attr % 2]
        elif kind == "SoftmaxV2":
            attrs["axes"] = (-1,)
        elif kind == "Flatten":
            attrs["axis"] = attr % 2
        node = graph.add(OpDesc(f"n{number}", kind, attrs=attrs))
        operands = [ports[first % len(ports)]]
        if kind in BINARY:
            operands.append(target if kind == "Reshape" else ports[second % len(ports)])
        feed(graph, node, *operands)
        ports.append(node.add_output(UNKNOWN))
    graph.set_outputs(ports[-1:])
    return graph


def inferred(graph: Graph) -> list[object]:
    """Every descriptor after inference, or the refusal."""
    try:
        infer_graph(graph, Counter(), folding=False)
    except Exception as err:
        return [type(err).__name__, str(err)]
    return [(node.name, tuple(node.input_descs), tuple(node.output_descs)) for node in graph.nodes()]


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3),
    st.lists(
        st.tuples(st.sampled_from((*UNARY, *BINARY)), st.integers(0, 9), st.integers(0, 9), st.integers(0, 1)),
        min_size=1,
        max_size=12,
    ),
)
def test_a_remembered_result_is_what_the_rule_gives(shapes: list[tuple[int, ...]], steps: list[Step]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InferenceMemo, "get", lambda self, key: None)
        expected = inferred(graph_of(shapes, steps))
    assert inferred(graph_of(shapes, steps)) == expected


def test_a_chain_of_like_nodes_asks_the_rule_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = find("Tanh")
    assert kind is not None
    rule, asked = kind.cls.infer, []
    monkeypatch.setattr(kind.cls, "infer", lambda self, *descs: asked.append(descs) or rule(self, *descs))
    graph = graph_of([(3, 4)], [("Tanh", position, 0, 0) for position in range(50)])
    infer_graph(graph, Counter(), folding=False)
    assert len(asked) == 2  # the input's own descriptor, then the shared one
    assert len({id(node.output_descs[0]) for node in graph.nodes_of("Tanh")}) == 1


@pytest.mark.parametrize("other", [{"dst_type": 1}, {}, {"dst_type": 0, "unknown": 3}])
def test_declared_attributes_alone_tell_nodes_apart(other: dict[str, object]) -> None:
    kind = find("Cast")
    assert kind is not None
    desc = TensorDesc(DataType.FLOAT, (2,))
    keys = [memo_key(kind, OpDesc("n", "Cast", attrs=attrs), [desc]) for attrs in ({"dst_type": 0}, other)]
    assert (keys[0] == keys[1]) is ("unknown" in other)


def test_a_node_with_an_attribute_that_has_no_value_to_compare_is_always_inferred() -> None:
    kind = find("Cast")
    assert kind is not None
    node = OpDesc("n", "Cast", attrs={"dst_type": Weight.of(np.zeros(1))})
    assert memo_key(kind, node, []) is None
