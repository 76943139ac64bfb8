"""Laws of variable memory and roads (variables.md 15.4, properties 1, 3, 5, 6, 11 and 12)."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gecli.errors import GecliError
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Inline, Weight
from gecli.layout.storage_shape import storage_shape
from gecli.variables.assignment import assign_variable_memory
from gecli.variables.limits import MemoryLimits
from gecli.variables.sizes import padded_size, span_bytes
from gecli.variables.trans_road import TransRoad, TransStep
from gecli.variables.var_manager import VarManager

DTYPES = st.sampled_from(["FLOAT", "FLOAT16", "INT8", "INT64", "BOOL", "INT4", "UINT1", "BF16", "STRING"])
SHAPES = st.lists(st.integers(0, 40), max_size=4).map(tuple)
DESCS = st.builds(
    lambda dtype, shape, fmt: TensorDesc(DataType[dtype], shape, fmt),
    DTYPES,
    SHAPES,
    st.sampled_from([Format.ND, Format.NCHW, Format.FRACTAL_Z.with_c0(16)]),
)
SPECS = st.lists(st.dictionaries(st.sampled_from("abcdef"), DESCS, max_size=5), min_size=1, max_size=3)
CONSTANTS = st.lists(
    st.tuples(st.sampled_from(["UINT8", "INT8", "UINT16", "INT4"]), st.binary(min_size=2, max_size=4)), max_size=8
)


def _graph(name: str, variables: dict[str, TensorDesc], constants: list[tuple[str, bytes]] | None = None) -> Graph:
    graph = Graph(name)
    for node, desc in variables.items():
        graph.create("Variable", node, output_descs=[desc])
    for k, (dtype, data) in enumerate(constants or []):
        desc = TensorDesc(DataType[dtype], (len(data) * 8 // (DataType[dtype].bits or 8),))
        graph.create("Constant", f"c{k}_{name}", output_descs=[desc], attrs={"value": Weight(desc, Inline(data))})
    return graph


def _state(manager: VarManager) -> tuple[object, ...]:
    resource = manager.resource
    return (
        manager.hbm.used_bytes,
        dict(resource.addresses),
        list(resource.blocks),
        dict(resource.current_descs),
        dict(resource.allocated_graph_ids),
        dict(resource.roads),
    )


@given(SPECS, CONSTANTS)
@settings(max_examples=80, deadline=None)
def test_blocks_are_disjoint_aligned_and_guarded_and_keys_never_move(
    specs: list[dict[str, TensorDesc]], constants: list[tuple[str, bytes]]
) -> None:
    manager = VarManager()
    for graph_id, spec in enumerate(specs, 1):
        known, before = dict(manager.resource.addresses), _state(manager)
        graph = _graph(f"g{graph_id}", spec, constants)
        try:
            assigned = assign_variable_memory(graph, manager, graph_id)
        except GecliError as error:
            assert error.kind == "VAR_SHAPE_GROWS"
            assert _state(manager) == before
            assert all(node.output_descs[0].size_bytes == 0 for node in graph.nodes())
            continue
        assert {key: manager.resource.addresses[key] for key in known} == known
        for node, address in assigned.items():
            block = manager.resource.blocks.get(address)
            assert block is not None
            assert node.output_descs[0].size_bytes <= block.capacity_bytes <= block.span_bytes - 1024
    position = 0
    for block in manager.resource.blocks:
        assert block.address - manager.logic_base == position
        assert position % 512 == 0
        position += block.span_bytes
    assert manager.hbm.used_bytes == position


@given(CONSTANTS)
@settings(max_examples=80, deadline=None)
def test_constants_share_a_block_exactly_when_width_and_bytes_agree(constants: list[tuple[str, bytes]]) -> None:
    manager = VarManager()
    assigned = assign_variable_memory(_graph("g", {}, constants), manager, 1)
    addresses = list(assigned.values())
    content = [(DataType[dtype].bits, data) for dtype, data in constants]
    for i in range(len(content)):
        for k in range(i):
            assert (addresses[i] == addresses[k]) == (content[i] == content[k])


@given(SPECS)
@settings(max_examples=40, deadline=None)
def test_the_order_of_equal_sessions_gives_equal_addresses(specs: list[dict[str, TensorDesc]]) -> None:
    states = []
    for _ in range(2):
        manager = VarManager()
        for graph_id, spec in enumerate(specs, 1):
            try:
                assign_variable_memory(_graph(f"g{graph_id}", spec), manager, graph_id)
            except GecliError:
                continue
        states.append(_state(manager))
    assert states[0] == states[1]


@given(st.dictionaries(st.sampled_from("abcdef"), DESCS, min_size=1), st.integers(0, 4096))
@settings(max_examples=60, deadline=None)
def test_an_assignment_that_fails_leaves_manager_and_graph_as_they_were(
    spec: dict[str, TensorDesc], limit: int
) -> None:
    manager = VarManager(limits=MemoryLimits(var_max_bytes=limit))
    before = _state(manager)
    graph = _graph("g", spec)
    try:
        assign_variable_memory(graph, manager, 1)
    except GecliError as error:
        assert error.kind == "VAR_MEM_EXHAUSTED"
        assert _state(manager) == before
        assert all(node.output_descs[0].size_bytes == 0 for node in graph.nodes())
    else:
        assert manager.hbm.used_bytes <= limit


@given(st.integers(0, 1 << 50), st.sampled_from([0, 32, 64, 512]), st.integers(0, 1000))
def test_padded_sizes_hold_the_padding_and_grow_with_the_raw_size(raw: int, padding: int, more: int) -> None:
    size = padded_size(raw, padding)
    assert size >= raw + padding
    assert size % 32 == 0
    assert padded_size(raw + more, padding) >= size
    assert span_bytes(size) % 512 == 0
    assert span_bytes(size) >= size + 1024


@st.composite
def roads(draw: st.DrawFn) -> TransRoad:
    """A chain that begins at a 4-D tensor and may be renamed, transposed, cast exactly and blocked."""
    shape = tuple(draw(st.lists(st.integers(1, 20), min_size=4, max_size=4)))
    dtype = draw(st.sampled_from([DataType.FLOAT16, DataType.INT32, DataType.UINT8]))
    desc = TensorDesc(dtype, shape)
    steps: list[TransStep] = []

    def go(type: str, dst: TensorDesc) -> TensorDesc:
        steps.append(TransStep(type, steps[-1].dst if steps else desc, dst))
        return dst

    named = draw(st.sampled_from([Format.NCHW, Format.NHWC, Format.HWCN]))
    current = go("ReFormat", TensorDesc(dtype, shape, named))
    wider = {DataType.FLOAT16: DataType.FLOAT, DataType.INT32: DataType.INT64, DataType.UINT8: DataType.INT32}[dtype]
    if draw(st.booleans()):
        current = go("Cast", current.with_dtype(wider))
    if draw(st.booleans()) and named != Format.HWCN:
        device = Format.NC1HWC0.with_c0(16)
    else:
        device = Format.FRACTAL_Z.with_c0(16)
    if draw(st.booleans()):
        go("TransData", current.with_format(device, storage_shape(named, shape, device, current.dtype, 16)))
    return TransRoad(steps)


@given(roads(), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_a_road_and_its_inverse_give_the_data_back(road: TransRoad, seed: int) -> None:
    assert road.broken_at() is None
    assert road.reversed().reversed() == road
    values = np.random.default_rng(seed).integers(0, 200, road.source.shape).astype(road.source.dtype.numpy)
    inverse = road.inverse()
    assert not road.lossy
    assert inverse is not None, road.why_one_way()
    assert inverse.inverse() == road
    stored = road.replay(values)
    assert stored.shape == road.target.shape
    assert np.array_equal(inverse.replay(stored), values)
    assert np.array_equal(road.convert_weight(Weight.of(values)).numpy(), stored)
