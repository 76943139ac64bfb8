"""The text that a node adds to a fingerprint is the canonical JSON of what it holds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gecli.cache.digest import canonical
from gecli.cache.fingerprint import _NodeTexts
from gecli.ir.attributes import INIT_VALUE
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight

NAME = st.text(max_size=20)
VALUE = st.none() | st.booleans() | st.integers() | NAME | st.binary(max_size=3) | st.just(0.1)
DESCS = st.builds(
    TensorDesc,
    st.sampled_from((DataType.FLOAT, DataType.INT64)),
    st.lists(st.integers(-1, 9), max_size=4).map(tuple),
    st.sampled_from((Format.ND, Format.NCHW)),
    origin_shape=st.none() | st.just((2, 3)),
    origin_format=st.none() | st.just(Format.NHWC),
    shape_range=st.none() | st.just(((1, 4),)),
)


def row(desc: TensorDesc) -> list[object]:
    found: list[object] = [desc.dtype.serial, list(desc.shape), int(desc.format)]
    found.append(None if desc.origin_shape is None else list(desc.origin_shape))
    found.append(None if desc.origin_format is None else int(desc.origin_format))
    return [*found, [list(pair) for pair in desc.shape_range]] if desc.shape_range else found


@given(NAME, NAME, NAME, st.dictionaries(NAME.map("a".__add__), VALUE, max_size=4), st.lists(DESCS, max_size=3))
def test_any_node(path: str, name: str, type: str, attrs: dict[str, object], descs: list[TensorDesc]) -> None:
    source, before = OpDesc(f"{name}>", "Relu", output_descs=descs[:1]), OpDesc(f"{name}<", "NoOp")
    node = OpDesc(name, type, attrs={**attrs, "_gecli_x": 1}, output_descs=descs, input_descs=[*descs, None])
    node.inputs = [*(Port(source, 0) for _ in descs), None]
    node.control_in[before] = None
    plain = {key: value.hex() if isinstance(value, float) else value for key, value in attrs.items()}
    fed = [*([source.name, 0] for _ in descs), None]
    rows = [row(desc) for desc in descs]
    expected = canonical([path, name, type, plain, [*rows, None], rows, fed, [before.name], []])
    texts = _NodeTexts(path, [])
    assert texts.of(node) == expected
    assert texts.of(node) == expected  # from the shared texts


def test_every_weight_of_a_node_is_noted_with_its_place() -> None:
    weight = Weight.of(np.zeros(2, np.float32))
    desc = TensorDesc(DataType.FLOAT, (2,), attrs={INIT_VALUE: weight})
    weights: list[tuple[str, Weight]] = []
    texts = _NodeTexts("p/", weights)
    for name in ("v", "w"):
        texts.of(OpDesc(name, "Variable", attrs={"value": weight}, output_descs=[desc]))
    assert [where for where, _ in weights] == ["p/v.value", "p/v:0._init_value", "p/w.value", "p/w:0._init_value"]
