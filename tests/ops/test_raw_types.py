"""Elements that a run holds as bare bits are moved and cast, never computed with as integers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.artifacts.om_writer import write_om
from gecli.compiler.model_image import ImageFacts, model_image
from gecli.compiler.session import Session
from gecli.errors import CompileError, InputError
from gecli.ir.dtype import DataType
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.text import parse
from gecli.ir.weight import Weight
from gecli.layout import hif8
from gecli.layout.platform import platform_of
from gecli.loading import load_graph
from gecli.ops.raw_types import RAW_TYPES, raw_fault
from gecli.passes.base import CompileSettings
from gecli.passes.infer_shape import infer_graph
from gecli.runtime.inputs import random_array
from gecli.runtime.model import require_supported
from gecli.runtime.session import Session as Runtime

D = DataType
CODES = np.array([8, 8, 16], np.uint8)  # 1, 1, 2 as HIFLOAT8


def outputs_of(tmp_path: Path, text: str, feeds: dict[str, Any], *, acceleration: bool = True) -> list[Any]:
    session = Session(platform_of("Ascend910B1"), CompileSettings(variable_acc=acceleration))
    graph = parse(text)
    for variable in graph.nodes_of("Variable"):
        variable.set_init_value(Weight.of(CODES, TensorDesc(D.HIFLOAT8, (3,))))
    member = session.add(graph)
    session.compile_all()
    assert member.compiled is not None
    facts = ImageFacts("g", "Ascend910B1", session.platform.profile, "json", "", "0" * 64)
    write_om(f"{tmp_path}/g.om", model_image(member.compiled, session.manager, facts))
    (outputs, *_) = Runtime().load(f"{tmp_path}/g.om").run(feeds)
    return list(outputs.values())


@pytest.mark.parametrize("acceleration", [True, False])
def test_a_variable_of_hifloat8_reads_the_same_folded_and_at_run_time(acceleration: bool, tmp_path: Path) -> None:
    text = """
        graph g() {
          %v = Variable() : hif8[3] ND
          %y = Cast(%v) {dst_type = 0} : f32[3] ND
          return %y
        }
    """
    (found,) = outputs_of(tmp_path, text, {}, acceleration=acceleration)
    assert found.tolist() == [1, 1, 2]


@pytest.mark.parametrize("to", [D.FLOAT, D.FLOAT16, D.DOUBLE, D.INT32, D.UINT8, D.INT8, D.BOOL, D.BF16])
def test_a_cast_from_hifloat8_at_run_time_gives_the_numbers_of_the_codec(to: DataType, tmp_path: Path) -> None:
    text = f"""
        graph g(%x : f32[3] ND) {{
          %h = Cast(%x) {{dst_type = 34}} : hif8[3] ND
          %y = Cast(%h) {{dst_type = {int(to)}}} : {to.short}[3] ND
          return %y, %h
        }}
    """
    values = np.array([1, 1.5, 3], np.float32)
    found, codes = outputs_of(tmp_path, text, {"x": values})
    assert codes.tolist() == hif8.encode(values).tolist()
    assert found.astype(np.float64).tolist() == values.astype(to.numpy).astype(np.float64).tolist()


@pytest.mark.parametrize("kind", ["Add", "Mul", "AssignAdd", "Maximum", "MatMulV2", "ReduceSum", "Relu", "ArgMaxV2"])
@pytest.mark.parametrize("dtype", sorted(RAW_TYPES))
def test_arithmetic_on_bare_bits_has_a_fault(kind: str, dtype: DataType) -> None:
    desc = TensorDesc(dtype, (3,))
    node = OpDesc("n", kind, input_descs=[desc, desc], output_descs=[desc])
    assert dtype.serial in raw_fault(node)
    with pytest.raises(Exception, match="cannot be executed"):
        require_supported([node], "g.om")


@pytest.mark.parametrize("kind", ["Identity", "Transpose", "ConcatD", "Assign", "NetOutput", "TransData", "Cast"])
@pytest.mark.parametrize("dtype", sorted(RAW_TYPES))
def test_bare_bits_are_moved(kind: str, dtype: DataType) -> None:
    desc = TensorDesc(dtype, (3,))
    node = OpDesc("n", kind, input_descs=[desc, desc], output_descs=[desc])
    assert raw_fault(node) == ""


@pytest.mark.parametrize("other", [D.UINT8, D.FLOAT, D.INT32])
def test_a_code_and_a_number_do_not_mix(other: DataType) -> None:
    ref, value = TensorDesc(D.HIFLOAT8, (3,)), TensorDesc(other, (3,))
    node = OpDesc("n", "Assign", input_descs=[ref, value], output_descs=[ref])
    assert "mix elements" in raw_fault(node)


@pytest.mark.parametrize("dtype", [d for d in D if d not in RAW_TYPES])
def test_all_other_types_are_computed_with(dtype: DataType) -> None:
    desc = TensorDesc(dtype, (3,))
    assert raw_fault(OpDesc("n", "Add", input_descs=[desc, desc], output_descs=[desc])) == ""


def test_arithmetic_on_hifloat8_does_not_compile_also_between_constants() -> None:
    graph = parse("graph g(%x : hif8[3] ND) {\n  %y = Add(%x, %x) : hif8[3] ND\n  return %y\n}")
    with pytest.raises(CompileError, match="cannot compute with its types") as caught:
        infer_graph(graph, {}, folding=True)  # type: ignore[arg-type]  # counts what it does
    assert caught.value.code == "G2001" and "Cast" in caught.value.first.do


@pytest.mark.parametrize("dtype", [D.DUAL, D.FLOAT4_E1M2, D.HIFLOAT4])
def test_a_type_that_no_array_holds_does_not_compile(dtype: DataType) -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    session.add(parse(f"graph g() {{\n  %v = Variable() : {dtype.short}[4] ND\n  return %v\n}}"))
    with pytest.raises(CompileError, match="has a type that no array holds") as caught:
        session.compile_all()
    assert dtype.serial in caught.value.first.why


def weight_of(tmp_path: Path, tensor: dict[str, Any]) -> Weight:
    document = {
        "gecli_graph": 1, "directed": True, "multigraph": True,
        "graph": {"name": "g", "inputs": [], "outputs": ["c:0"]},
        "nodes": [{"id": "c", "type": "Const", "value": tensor}], "links": [],
    }  # fmt: skip
    path = tmp_path / "g.json"
    path.write_text(json.dumps(document))
    value: Weight = load_graph(path).graph.node("c").attrs["value"]
    return value


@pytest.mark.parametrize("given", [{"data": [1.5, 1.5]}, {"fill": 1.5}, {"random": {"range": [1.5, 1.5]}}], ids=str)
def test_numbers_of_hifloat8_in_json_are_encoded(given: dict[str, Any], tmp_path: Path) -> None:
    weight = weight_of(tmp_path, {"dtype": "DT_HIFLOAT8", "shape": [2], **given})
    assert hif8.decode(weight.numpy()).tolist() == [1.5, 1.5]


@pytest.mark.parametrize("given", [{"data": [1, 0]}, {"fill": 0}, {"random": {}}], ids=str)
@pytest.mark.parametrize("dtype", ["DT_DUAL", "DT_FLOAT4_E1M2", "DT_HIFLOAT4"])
def test_numbers_of_types_without_arrays_are_refused(dtype: str, given: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"no array holds tensors of {dtype}"):
        weight_of(tmp_path, {"dtype": dtype, "shape": [2], **given})


@pytest.mark.parametrize("dtype", [d for d in D if d.bits and d.has_numpy and d not in (D.STRING, D.STRING_REF)])
def test_no_data_are_of_any_type(dtype: DataType, tmp_path: Path) -> None:
    weight = weight_of(tmp_path, {"dtype": dtype.serial, "shape": [0, 3], "data": []})
    assert weight.numpy().shape == (0, 3)


def test_random_inputs_of_hifloat8_are_numbers_of_the_range() -> None:
    values = hif8.decode(random_array("x", D.HIFLOAT8, (64,), low=1, high=2))
    assert values.min() >= 1 and values.max() <= 2 and len(set(values.tolist())) > 4
