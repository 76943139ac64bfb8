"""What is written reads back equal, and what was read is written with the same bytes, for models of every content."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gecli.artifacts.inout_info import InOutInfo, ModelTensor, parse_inout_info
from gecli.artifacts.om_file import read_om
from gecli.artifacts.om_image_of import image_of
from gecli.artifacts.om_writer import om_image, write_om
from gecli.ir.attributes import NamedAttrs
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.ir.placement import Placement
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.planning.weight_layout import lay_out_weights
from gecli.wire.model_record import GraphRecord, ModelRecord
from gecli.wire.task import Task, TaskList

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
NAME = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=6)
FLOAT = st.floats(width=32, allow_nan=False)
DIMS = st.lists(st.integers(0, 5), max_size=4).map(tuple)
DTYPES = st.sampled_from([item for item in DataType if item.bits])
FORMATS = st.sampled_from(
    [
        Format.ND,
        Format.NCHW,
        Format.NHWC,
        Format.FRACTAL_NZ,
        Format.NC1HWC0.with_c0(16),
        Format.FRACTAL_Z.with_groups(96),
    ]
)
RANGE = st.tuples(st.integers(0, 9), st.integers(-1, 9))
DESC_ATTRS = st.sampled_from(["placement", "_inner_offset", "data_offset"])
SMALL_WEIGHTS = st.lists(st.integers(-128, 127), max_size=5).map(lambda row: Weight.of(np.array(row, np.int8)))


@st.composite
def descs(draw: Any) -> TensorDesc:
    shape, fmt = draw(DIMS), draw(FORMATS)
    origin_shape, origin_format = draw(st.none() | DIMS), draw(st.none() | st.just(Format.NHWC))
    return TensorDesc(
        draw(DTYPES),
        shape,
        fmt,
        origin_shape=None if origin_shape == shape else origin_shape,
        origin_format=None if origin_format == fmt else origin_format,
        origin_dtype=draw(st.none() | DTYPES),
        shape_range=draw(st.none() | st.lists(RANGE, min_size=1, max_size=3).map(tuple)),
        name=draw(TEXT),
        size_bytes=draw(st.integers(0, 1 << 40)),
        attrs=draw(st.dictionaries(DESC_ATTRS, st.integers(1, 1 << 40), max_size=2)),
    )  # fmt: skip


SCALARS = [
    st.booleans(),
    I64,
    FLOAT,
    TEXT,
    st.binary(max_size=6),
    st.sampled_from(list(DataType)),
    descs(),
    SMALL_WEIGHTS,
]
LISTS = [st.lists(kind, min_size=1, max_size=4).map(tuple) for kind in SCALARS]
ROWS = [
    st.lists(st.lists(kind, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple)
    for kind in (I64, FLOAT)
]
FUNCTIONS = st.builds(NamedAttrs, NAME, st.dictionaries(NAME, st.one_of(*SCALARS), max_size=2))
VALUES = st.one_of(
    *SCALARS, *LISTS, *ROWS, st.just(()), FUNCTIONS, st.lists(FUNCTIONS, min_size=1, max_size=2).map(tuple)
)
ATTRS = st.dictionaries(NAME.filter(lambda name: not name.startswith("_")), VALUES, max_size=4)
OFFSETS = st.lists(st.integers(0, 1 << 50), max_size=3).map(tuple)


@st.composite
def graphs(draw: Any, name: str, below: list[str]) -> GraphRecord:
    names = draw(st.lists(NAME, min_size=1, max_size=5, unique=True))
    nodes: list[OpDesc] = []
    placements: dict[OpDesc, Placement] = {}
    for k, each in enumerate(names):
        is_const = draw(st.booleans())
        attrs = draw(ATTRS)
        if is_const:
            attrs = {"value": draw(SMALL_WEIGHTS)}
        node = OpDesc(each, "Const" if is_const else draw(st.sampled_from(["Add", "Case", "NetOutput"])), attrs=attrs,
                      input_descs=[] if is_const else draw(st.lists(st.none() | descs(), max_size=3)),
                      output_descs=draw(st.lists(descs(), min_size=1, max_size=2)),
                      subgraphs=draw(st.lists(st.sampled_from(below), max_size=2)) if below else [])  # fmt: skip
        for slot, desc in enumerate(node.input_descs):
            if desc is not None and nodes and draw(st.booleans()):
                producer = draw(st.sampled_from(nodes))
                index = draw(st.integers(0, len(producer.output_descs) - 1))
                node.inputs[slot] = Port(producer, index)
                producer.users[index][Use(node, slot)] = None
        for before in draw(st.lists(st.sampled_from(nodes), max_size=2, unique=True)) if nodes else []:
            node.control_in[before] = None
            before.control_out[node] = None
        work = draw(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=2))
        placements[node] = Placement(k, draw(st.integers(0, 3)), draw(OFFSETS), draw(OFFSETS),
                                     tuple(a for a, _ in work), tuple(b for _, b in work))  # fmt: skip
        nodes.append(node)
    return GraphRecord(name, nodes, draw(ATTRS), placements, tuple(draw(st.lists(TEXT, max_size=2))))


@st.composite
def models(draw: Any) -> ModelRecord:
    subs = [draw(graphs(f"sub{k}", [])) for k in range(draw(st.integers(0, 2)))]
    root = draw(graphs("root", [graph.name for graph in subs]))
    return ModelRecord(draw(NAME), [root, *subs], draw(ATTRS))


TASKS = st.builds(
    Task, st.integers(0, 50), st.integers(0, 9), st.integers(0, 99), st.sampled_from([2, 8]), TEXT, TEXT, TEXT,
    st.integers(0, 9), st.lists(st.integers(0, (1 << 64) - 1), max_size=4).map(tuple), st.integers(0, 99), TEXT,
)  # fmt: skip
LIST_OF_TASKS = st.builds(TaskList, st.lists(TASKS, max_size=3).map(tuple), TEXT, st.integers(0, 1 << 60))
TENSOR = st.builds(ModelTensor, TEXT, st.integers(0, 1 << 60), st.integers(0, 60), st.integers(0, 42), DIMS, DIMS)
TENSORS = st.lists(TENSOR, max_size=2).map(tuple)
INOUTS = st.builds(InOutInfo, TENSORS, TENSORS, st.lists(st.integers(0, 99), max_size=2).map(tuple))


def value_seen(value: Any) -> Any:
    if isinstance(value, Weight):
        return ("weight", value.desc, b"".join(value.chunks()))
    if isinstance(value, NamedAttrs):
        return ("func", value.name, {key: value_seen(each) for key, each in value.attrs.items()})
    if isinstance(value, TensorDesc):
        return desc_seen(value)
    return (type(value).__name__, tuple(map(value_seen, value)) if isinstance(value, tuple) else value)


def desc_seen(desc: TensorDesc | None, *, is_input: bool = False) -> Any:
    if desc is None:
        return None
    attrs = {key: value for key, value in desc.attrs.items() if not (is_input and key == "data_offset")}
    return (desc, desc.name, desc.size_bytes, desc.origin_dtype, desc.shape_range, attrs)


def seen(model: ModelRecord, own_attrs: set[str]) -> list[Any]:
    """All that a model says; `data_offset` of an input that a constant feeds is the writer's."""
    rows: list[Any] = [model.name, model.version, {key: value_seen(model.attrs[key]) for key in sorted(own_attrs)}]
    for graph in model.graphs:
        rows.append((graph.name, graph.inputs, {key: value_seen(graph.attrs[key]) for key in sorted(graph.attrs)}))
        for node in graph.nodes:
            rows.append((node.name, node.type, list(node.subgraphs), graph.placements[node]))
            rows.append({key: value_seen(node.attrs[key]) for key in sorted(node.attrs)})
            rows.append([port and str(port) for port in node.inputs])
            rows.append([each.name for each in node.control_in])
            rows.append([desc_seen(desc, is_input=True) for desc in node.input_descs])
            rows.append([desc_seen(desc) for desc in node.output_descs])
            rows.append([[(use.node.name, use.slot) for use in users] for users in node.users])
    return rows


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(models(), LIST_OF_TASKS, INOUTS, st.booleans())
def test_a_written_model_reads_back_equal_and_is_written_again_the_same(
    model: ModelRecord, tasks: TaskList, inout: InOutInfo, is_dynamic: bool
) -> None:
    consts = [node for graph in model.graphs for node in graph.nodes_of("Const")]
    layout = lay_out_weights([node.attrs["value"] for node in consts])
    image = om_image(model, tasks, layout, dict(zip(consts, layout.offsets)), inout=inout, is_dynamic=is_dynamic)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.om"
        write_om(path, image)
        om = read_om(path)
        again = om.model()
        assert not [problem for problem in again.problems if problem.kind != "bad-weights"]
        assert seen(again, set(model.attrs)) == seen(model, set(model.attrs))
        assert om.tasks() == tasks and om.verify_checksum() is None
        part = om.inout_partition()
        assert (parse_inout_info(om.read(part)) if part is not None else InOutInfo()) == inout
        assert om.header.is_unknow_model == int(is_dynamic)
        second = Path(folder) / "again.om"
        write_om(second, image_of(om))
        assert second.read_bytes() == path.read_bytes()
