"""Folding does not blow a file up: what grows is computed when the model runs."""

from __future__ import annotations

import numpy as np
import pytest

from gecli.ir.attributes import VALUE
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph, feed
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.passes.constant_folding import GROWTH_BYTES, fold


@pytest.mark.parametrize(("rows", "folded"), [(GROWTH_BYTES // 64, True), (GROWTH_BYTES // 64 + 1, False)])
def test_an_outer_product_is_folded_up_to_the_limit(rows: int, folded: bool) -> None:
    graph = Graph("g")
    ports = []
    for name, shape in (("column", (rows, 1)), ("row", (1, 16))):
        weight = Weight.of(np.ones(shape, np.float32))
        ports.append(graph.add(OpDesc(name, "Const", attrs={VALUE: weight}, output_descs=[weight.desc])).out())
    node = graph.add(OpDesc("product", "Mul", output_descs=[TensorDesc(DataType.FLOAT, (rows, 16))]))
    graph.set_outputs([feed(graph, node, *ports).out()])
    assert fold(graph, node) is folded
    assert graph.node("product").type == ("Const" if folded else "Mul")


def test_a_result_no_larger_than_its_inputs_is_folded_beyond_the_limit() -> None:
    graph = Graph("g")
    weight = Weight.of(np.ones((GROWTH_BYTES,), np.float32))
    const = graph.add(OpDesc("c", "Const", attrs={VALUE: weight}, output_descs=[weight.desc]))
    node = graph.add(OpDesc("n", "Neg", output_descs=[weight.desc]))
    graph.set_outputs([feed(graph, node, const.out()).out()])
    assert fold(graph, node)
