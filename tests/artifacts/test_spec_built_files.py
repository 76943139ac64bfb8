"""Files of every layout, built from the format's description by a writer that shares nothing with gecli."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gecli.artifacts.inout_info import parse_inout_info
from gecli.artifacts.kernel_store import CUSTOM_OP_MAGIC, list_kernels
from gecli.artifacts.om_file import OmFile, read_om
from gecli.artifacts.so_bins import list_libraries
from gecli.artifacts.tiling import list_tiling
from gecli.errors import InputError
from gecli.ir.attributes import NamedAttrs, RawAttr
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import FileSlice, Weight
from gecli.wire.attribute_names import AttrNames
from gecli.wire.model_record import ModelRecord

from . import spec_om as spec

FLOAT, FLOAT16, INT8, INT32 = 1, 2, 3, 7  # numbers of the protobuf enumeration
WEIGHT = bytes(range(24))
SCALE = bytes(range(100, 108))
INNER_GRAPH = spec.graph("inner", [spec.operator("n", "A", 0)])


# ---------------------------------------------------------------- the model in the files


def every_kind(names: spec.Dictionary | None) -> dict[str, bytes]:
    """An attribute of each kind, with plain names or coded ones."""
    small = spec.descriptor(INT32, [2], "ND")
    plain = {
        "axis": spec.attr_i(-5),
        "alpha": spec.attr_f(0.5),
        "keep": spec.attr_b(True),
        "blob": spec.attr_bt(b"\x00\xff\xfe"),
        "body": spec.attr_func("f", {"k": spec.attr_i(3), "who": spec.attr_s("me")}),
        "like": spec.attr_td(small),
        "table": spec.attr_t(spec.tensor(small, struct.pack("<2i", 7, -7))),
        "branch": spec.attr_g(INNER_GRAPH),
        "pads": spec.attr_rows([[1, -1], [0, 5]]),
        "to": spec.attr_dt(1),
        "grid": spec.attr_float_rows([[0.5, 1.5], [2.0]]),
        "law": spec.attr_expression(b"s0*2"),
        "nothing": b"",
        "ints": spec.attr_ints(1, -2, 1 << 40),
        "unpacked": spec.attr_list(spec.number(3, 4) + spec.number(3, 5), 2),
        "flags": spec.attr_bools(True, False),
        "floats": spec.attr_list(spec.blob(4, struct.pack("<2f", 0.25, -1.0)), 3),
        "blobs": spec.attr_list(spec.blob(7, b"a") + spec.blob(7, b""), 5),
        "likes": spec.attr_list(spec.blob(8, small), 6),
        "tables": spec.attr_list(spec.blob(9, spec.tensor(small, bytes(8))), 7),
        "branches": spec.attr_list(spec.blob(10, INNER_GRAPH), 8),
        "bodies": spec.attr_list(spec.blob(11, spec.named("g", {})), 9),
        "types": spec.attr_list(spec.packed(12, [0, 27]), 10),
        "no_list": spec.attr_list(b"", 2),
    }
    texts = {"mode": "SAME", "file": "a/b"}
    if names is None:
        coded = {**plain, **{key: spec.attr_s(value) for key, value in texts.items()}}
        return coded | {"untyped": spec.attr_strings("p", "q", val_type=0), "lied": spec.attr_ints(9, val_type=1)}
    coded = {}
    for key, value in plain.items():
        coded |= names.plain(key, value)
    for key, text in texts.items():
        coded |= names.text(key, text)
    coded |= names.texts("untyped", "p", "q") | names.plain("lied", spec.attr_ints(9, val_type=1))
    return coded | {"_input_name_key": spec.attr_strings("x1", "x2", "bias", val_type=0),
                    "_input_name_value": spec.attr_ints(0, 1, 2, val_type=0)}  # fmt: skip


EVERY_KIND: dict[str, Any] = {
    "axis": -5, "alpha": 0.5, "keep": True, "blob": b"\x00\xff\xfe", "mode": "SAME", "file": "a/b",
    "body": ("func", "f", {"k": 3, "who": "me"}),
    "like": ("desc", 3, (2,), "ND"),
    "table": ("tensor", struct.pack("<2i", 7, -7)),
    "branch": ("raw", "g"), "law": ("raw", "expression"), "nothing": ("raw", "none"), "branches": ("raw", "list_g"),
    "pads": ((1, -1), (0, 5)),
    "to": ("type", 1),
    "grid": ((0.5, 1.5), (2.0,)),
    "ints": (1, -2, 1 << 40), "unpacked": (4, 5), "flags": (True, False), "floats": (0.25, -1.0),
    "blobs": (b"a", b""), "likes": (("desc", 3, (2,), "ND"),), "tables": (("tensor", bytes(8)),),
    "bodies": (("func", "g", {}),), "types": (("type", 0), ("type", 27)), "no_list": (),
    "untyped": ("p", "q"), "lied": (9,),
}  # fmt: skip


def value_attr(place: str, merged_at: int, data: bytes, dtype: int, dims: list[int]) -> bytes:
    """The `value` of a constant: bytes inside, or in WEIGHTS_DATA in either of the two ways."""
    if place == "inline":
        return spec.attr_t(spec.tensor(spec.descriptor(dtype, dims, "NHWC"), data))
    if place == "merged":  # data_offset is a lie here: merged_offset wins, and 0 is a place
        attrs = {"merged_offset": spec.attr_i(merged_at)}
        return spec.attr_t(
            spec.tensor(spec.descriptor(dtype, dims, "NHWC", attrs, weight_size=len(data), data_offset=77))
        )
    offset = 512 if merged_at == 0 else 1024
    return spec.attr_t(spec.tensor(spec.descriptor(dtype, dims, "NHWC", weight_size=len(data), data_offset=offset)))


def weights_of(place: str) -> bytes:
    if place == "merged":
        return WEIGHT + bytes(6) + SCALE
    return bytes(512) + WEIGHT.ljust(512, b"\0") + SCALE.ljust(512, b"\0") + bytes(512)


def main_graph(place: str, names: spec.Dictionary | None, name: str = "m_0") -> bytes:
    x = spec.descriptor(FLOAT16, [1, 1, 2, 2, 16], "NC1HWC0", {
        "origin_format": spec.attr_s("NHWC"), "origin_format_for_int": spec.attr_i(0),
        "format_for_int": spec.attr_i(0x05000003), "origin_shape": spec.attr_ints(1, 16, 2, 2),
        "origin_shape_initialized": spec.attr_b(True), "origin_data_type": spec.attr_s("DT_FLOAT"),
        "shape_range": spec.attr_rows([[1, 1], [1, -1]]),
        **({"placement": spec.attr_i(1)} if names is None else names.plain("placement", spec.attr_i(1))),
    }, size=160)  # fmt: skip
    y = spec.descriptor(FLOAT, [2, 3], "ND", size=64)
    index = {"index": spec.attr_i(0)} if names is None else names.plain("index", spec.attr_i(0))
    value = "value" if names is None else names.name("value")
    w = value_attr(place, 0, WEIGHT, FLOAT, [2, 3])
    s = value_attr(place, 30, SCALE, INT8, [8])
    operators = [
        spec.operator("x", "Data", 0, [""], index, [x], [x], output_i=[0]),
        spec.operator("w", "Const", 1, (), {value: w}, (), [y], output_i=[512]),
        spec.operator("s", "Const", 2, (), {value: s}, (), [spec.descriptor(INT8, [8])], output_i=[1024]),
        spec.operator("first", "NoOp", 3),
        spec.operator(
            "mm/a:b", "MatMulV2", 4, ["x:0", "w:0", "", "first:-1"], every_kind(names), [x, y, spec.ABSENT], [y],
            stream=1, input_i=[0, 512], output_i=[4096], workspace=[(8192, 32)],
        ),
        spec.operator("Node_Output", "NetOutput", 5, ["mm/a:b:0"], {}, [y], (), input_i=[4096],
                      sources=[("mm/a:b", 0)]),
    ]  # fmt: skip
    return spec.graph(name, operators, {"_dynamic_shape_partitioned": spec.attr_b(False)}, ["x:0"])


def model_def(place: str, names: spec.Dictionary | None = None, extra: list[bytes] | None = None) -> bytes:
    graphs = [main_graph(place, names), *(extra or [])]
    attrs = {"memory_size": spec.attr_i(8224), "stream_num": spec.attr_i(2)}
    return spec.model("spec", graphs, attrs | (names.attrs() if names else {}))


def tasks_of(place: str) -> bytes:
    base = 0x80000000
    kernel = spec.kernel_task(4, [base, base + 8224 + 512, base + 4096], "mm")
    return spec.task_info(
        [spec.number(2, 3), kernel, spec.number(2, 4), spec.number(2, 19)], 8224, len(weights_of(place))
    )


# ---------------------------------------------------------------- what the reader must say about it


def plain(value: Any) -> Any:
    """A value that gecli read, in words that both sides share."""
    if isinstance(value, DataType):
        return ("type", int(value))
    if isinstance(value, TensorDesc):
        return ("desc", int(value.dtype), value.shape, value.format.name)
    if isinstance(value, Weight):
        return ("tensor", b"".join(value.chunks()))
    if isinstance(value, NamedAttrs):
        return ("func", value.name, {key: plain(each) for key, each in value.attrs.items()})
    if isinstance(value, RawAttr):
        return ("raw", value.kind)
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def check_model(model: ModelRecord, om: OmFile, place: str, index: int = 0) -> None:
    """Everything that the model says."""
    assert not model.problems, [problem.message for problem in model.problems]
    assert (model.name, model.version, model.custom_version) == ("spec", 2, "1.11.z.0")
    assert model.attrs["memory_size"] == 8224 and model.attrs["stream_num"] == 2
    graph = model.root
    assert (graph.name, graph.inputs, graph.attrs) == ("m_0", ("x:0",), {"_dynamic_shape_partitioned": False})
    assert [(node.name, node.type) for node in graph.nodes] == [
        ("x", "Data"), ("w", "Const"), ("s", "Const"), ("first", "NoOp"), ("mm/a:b", "MatMulV2"),
        ("Node_Output", "NetOutput"),
    ]  # fmt: skip
    x, w, s, first, mm, out = graph.nodes
    assert [port and (port.node.name, port.index) for port in mm.inputs] == [("x", 0), ("w", 0), None]
    assert list(mm.control_in) == [first] and [str(port) for port in out.inputs] == ["mm/a:b:0"]
    assert mm.input_descs[2] is None and len(mm.input_descs) == 3
    assert {key: plain(value) for key, value in mm.attrs.items()} == EVERY_KIND
    assert x.attrs == {"index": 0}
    desc = x.output_descs[0]
    assert (desc.dtype, desc.shape, int(desc.format)) == (DataType.FLOAT16, (1, 1, 2, 2, 16), 0x05000003)
    assert (desc.logical_shape, desc.logical_format) == ((1, 16, 2, 2), Format.NCHW)  # the integer wins over the text
    assert (desc.origin_dtype, desc.shape_range, desc.size_bytes) == (DataType.FLOAT, ((1, 1), (1, -1)), 160)
    assert dict(desc.attrs) == {"placement": 1}
    check_placements(model)
    check_weights(om, index, place, {"w": (w.attrs["value"], WEIGHT), "s": (s.attrs["value"], SCALE)})


def check_placements(model: ModelRecord) -> None:
    places = {node.name: place for node, place in model.root.placements.items()}
    assert [place.id for place in places.values()] == [0, 1, 2, 3, 4, 5]
    mm = places["mm/a:b"]
    assert (mm.stream_id, mm.input_offsets, mm.output_offsets) == (1, (0, 512), (4096,))
    assert (mm.workspace_offsets, mm.workspace_bytes) == ((8192,), (32,))


def check_weights(om: OmFile, index: int, place: str, found: dict[str, tuple[Weight, bytes]]) -> None:
    """The bytes, and that those in WEIGHTS_DATA are a range of the file and no copy."""
    part = om.models[index].partition(1)
    expected = {"partition": {"w": 512, "s": 1024}, "merged": {"w": 0, "s": 30}}.get(place, {})
    for name, (weight, data) in found.items():
        assert b"".join(weight.chunks()) == data
        if name in expected:
            assert part is not None and isinstance(weight.source, FileSlice)
            assert weight.source.offset_bytes == part.offset_bytes + expected[name]


# ---------------------------------------------------------------- containers


@dataclass(frozen=True)
class Case:
    """A file, what its container is, and the (model, type, size) of its partitions."""

    data: bytes
    wide: bool
    version: int
    place: str
    modeltype: int = 0
    platform: str = "1.11.z.0"
    mobile: bool = False


def parts(place: str, names: spec.Dictionary | None = None) -> spec.Parts:
    found = [(0, model_def(place, names))]
    if place != "inline":
        found.append((1, weights_of(place)))
    return [*found, (2, tasks_of(place))]


def single_names() -> spec.Dictionary:
    """A dictionary that needs two digits, as those of real files do."""
    names = spec.Dictionary()
    for k in range(130):
        names.name(f"filler_{k}")
    return names


CASES: dict[str, Callable[[], Case]] = {
    "v1 narrow, weights inside": lambda: Case(spec.om_v1(parts("inline")), False, 1, "inline"),
    "v1 narrow, WEIGHTS_DATA": lambda: Case(spec.om_v1(parts("partition")), False, 1, "partition"),
    "HiAI standard graph": lambda: Case(
        spec.om_v1(parts("merged")[:2], 3, "3.51.z.0"), False, 1, "merged", 3, "3.51.z.0", True
    ),
    "HiAI without platform": lambda: Case(spec.om_v1(parts("inline")[:1], 4, ""), False, 1, "inline", 4, "", True),
    "v2 narrow": lambda: Case(spec.om_narrow(parts("partition")), False, 2, "partition"),
    "v2 wide": lambda: Case(spec.om_wide(parts("partition")), True, 2, "partition"),
    "v2 wide, merged_offset": lambda: Case(spec.om_wide(parts("merged")), True, 2, "merged"),
    "v2 wide, other order": lambda: Case(spec.om_wide(parts("partition")[::-1]), True, 2, "partition"),
    "v2 wide, names compressed": lambda: Case(
        spec.om_wide(parts("partition", single_names())), True, 2, "partition"
    ),
    "v2 wide, names compressed, weights inside": lambda: Case(
        spec.om_wide(parts("inline", single_names())), True, 2, "inline"
    ),
}  # fmt: skip


@pytest.fixture
def read(tmp_path: Path) -> Callable[[bytes], OmFile]:
    def reader(data: bytes) -> OmFile:
        path = tmp_path / "case.om"
        path.write_bytes(data)
        return read_om(path)

    return reader


@pytest.mark.parametrize("name", CASES)
def test_a_file_of_this_layout_is_read_whole(name: str, read: Callable[[bytes], OmFile]) -> None:
    case = CASES[name]()
    om = read(case.data)
    assert (om.kind, om.wide, om.header.version >> 28) == ("om", case.wide, case.version)
    assert not om.warnings and om.is_mobile == case.mobile
    assert (om.header.name, om.header.modeltype, om.header.platform_version) == ("spec", case.modeltype, case.platform)
    assert om.header.payload_bytes == len(case.data) - 256 and len(om.models) == 1
    count = len(om.root.partitions)
    position = 256 + (8 + 24 * count if case.wide else 4 + 12 * count)
    for part in om.root.partitions:
        assert part.offset_bytes == position
        position += part.size_bytes
    assert position == len(case.data)
    model = om.model()
    check_model(model, om, case.place)
    assert bool(model.compressed_names) == ("compressed" in name) and model.unreadable_names == 0
    tasks = om.tasks()
    if tasks is not None:
        assert [task.type for task in tasks.tasks] == [3, 0, 4, 19]
        assert tasks.tasks[1].args == (0x80000000, 0x80000000 + 8224 + 512, 0x80000000 + 4096)
        assert (tasks.tasks[1].op_index, tasks.tasks[1].stub_func, tasks.tasks[1].block_dim) == (4, "mm", 2)
        assert (tasks.memory_size, tasks.weight_size) == (8224, len(weights_of(case.place)))


def twice(root: spec.Dictionary, own: spec.Dictionary, attrs: dict[str, bytes]) -> dict[str, bytes]:
    """Attributes whose coded names of the root were coded again by the sub-model."""
    return {own.name(key) if key.startswith("\0") else key: value for key, value in attrs.items()}


def test_a_dynamic_file_of_three_models_with_names_compressed_once_and_twice(read: Callable[[bytes], OmFile]) -> None:
    root, own = spec.Dictionary(), spec.Dictionary()
    for k in range(300):
        root.name(f"filler_{k}")
    root_graph = main_graph("partition", root)
    once = root.text("mode", "VALID") | root.texts("order", "b", "a") | root.plain("axis", spec.attr_i(2))
    sub = [spec.graph("sub_1", [spec.operator("n", "Relu", 0, (), once)]),
           spec.graph("sub_2", [spec.operator("n", "Relu", 0, (), twice(root, own, once))])]  # fmt: skip
    memory = {"memory_size": spec.attr_i(8224), "stream_num": spec.attr_i(2)}
    models: list[spec.Parts] = [
        [(0, spec.model("spec", [root_graph, sub[0]], memory | root.attrs())), (1, weights_of("partition"))],
        [(0, spec.model("one", [sub[0]])), (1, bytes(512)), (3, spec.kernel("k", b"ELF")), (2, b"")],
        [(0, spec.model("two", [sub[1]], own.attrs())), (1, bytes(1024))],
    ]
    data = spec.om_wide(*models, dynamic=True)
    om = read(data)
    assert (om.kind, len(om.models), om.header.is_unknow_model, om.header.model_num) == ("om", 3, 1, 3)
    position = 256
    for model, stored in zip(om.models, models):
        assert model.table_offset_bytes == position
        assert [(part.type, part.size_bytes) for part in model.partitions] == [
            (kind, len(each)) for kind, each in stored
        ]
        position += 8 + 24 * len(stored) + sum(len(each) for _, each in stored)
    assert position == len(data)
    check_model(om.model(0), om, "partition")
    for index in (1, 2):
        record = om.model(index)
        assert not record.problems and record.unreadable_names == 0
        assert record.root.nodes[0].attrs == {"mode": "VALID", "order": ("b", "a"), "axis": 2}
    empty = om.tasks(1)
    assert empty is not None and empty.tasks == () and om.tasks(2) is None
    names = om.root_names()
    assert names is not None and "mode" in names.names


def test_stores_tables_and_unknown_partitions_are_listed(read: Callable[[bytes], OmFile]) -> None:
    elf = b"\x7fELF" + bytes(60)
    stored: spec.Parts = [
        (5, spec.libraries(("liba.so", "huawei", 1, elf), ("libb.so", "", 3, b"x"))),
        (26, spec.kernel("MyOp", b"opaque", 0x4B43534B)),
        (12, spec.tiling((0, bytes(48)), (1, b"tile"), (2, bytes(16)))),
        (8, spec.tensors_block(0, spec.io_tensor("x", 96, 2, 0, [2, 12], [(1, 2), (12, 12)]))
            + spec.tensors_block(1, spec.io_tensor("out:0", 24, 29, 1, [2, 3])) + spec.batch_block(1, 4)
            + spec.rows_block(3, [224, 224], [320, 640]) + spec.rows_block(4, [1, 2, 3])
            + spec.texts_block(5, "1,2", "") + spec.texts_block(6, "a") + spec.block(77, b"later")),
        (0, model_def("partition")),
        (1, weights_of("partition")),
        (3, spec.kernel("te_mm_1", elf) + spec.kernel("te_add_2", b"fake")),
        (4, spec.kernel("node", b"so")),
        (2, tasks_of("partition")),
        (13, b"abc"), (99, b""), (0xFFFFFFFF, b"zz"),
    ]  # fmt: skip
    om = read(spec.om_wide(stored))
    assert [part.name for part in om.root.partitions] == [
        "SO_BINS", "CUSTOM_OPS", "TILING_DATA", "MODEL_INOUT_INFO", "MODEL_DEF", "WEIGHTS_DATA", "TBE_KERNELS",
        "CUST_AICPU_KERNELS", "TASK_INFO", "UNKNOWN_13", "UNKNOWN_99", "UNKNOWN_4294967295",
    ]  # fmt: skip
    assert [om.read(part) for part in om.root.partitions] == [data for _, data in stored]
    check_model(om.model(), om, "partition")
    kinds = {kind: part for (kind, _), part in zip(stored, om.root.partitions)}

    def listed(number: int, lister: Callable[..., Any], **options: Any) -> Any:
        with om.source(kinds[number]) as source:
            return lister(source, path=om.path, offset=kinds[number].offset_bytes, **options)

    assert [(each.name, each.vendor, each.kind, each.size_bytes) for each in listed(5, list_libraries)] == [
        ("liba.so", "huawei", 1, 64), ("libb.so", "", 3, 1),
    ]  # fmt: skip
    kernels = listed(3, list_kernels)
    assert [(each.name, each.size_bytes, each.is_elf) for each in kernels] == [
        ("te_mm_1", 64, True), ("te_add_2", 4, False),
    ]  # fmt: skip
    place = kinds[3].offset_bytes + kernels[1].offset_bytes
    assert om.slice(place, 4) == b"fake"
    assert [each.name for each in listed(4, list_kernels)] == ["node"]
    assert [each.name for each in listed(26, list_kernels, magic=CUSTOM_OP_MAGIC)] == ["MyOp"]
    found = listed(12, list_tiling)
    assert (found.version, found.size_bytes, found.tags) == (2, 83, (0, 1, 2))
    part = om.inout_partition()
    assert part is not None and part.type == 8
    info = parse_inout_info(om.read(part))
    (x,), (out,) = info.inputs, info.outputs
    assert (x.name, x.size_bytes, x.format, x.dtype, x.dims, x.dims_v2) == ("x", 96, 2, 0, (2, 12), (2, 12))
    assert x.shape_range == ((1, 2), (12, 12)) and (out.name, out.format, out.dtype) == ("out:0", 29, 1)
    assert (info.dynamic_batch, info.dynamic_hw, info.dynamic_dims) == ((1, 4), ((224, 224), (320, 640)), ((1, 2, 3),))
    assert (info.output_shapes, info.shape_order, info.unknown_blocks) == (("1,2", ""), ("a",), (77,))


def test_inputs_and_outputs_under_the_old_number_6(read: Callable[[bytes], OmFile]) -> None:
    block = spec.tensors_block(0, spec.io_tensor("x", 4, 2, 0, [1]))
    om = read(spec.om_narrow([(6, block), *parts("partition")]))
    part = om.inout_partition()
    assert part is not None and part.type == 6 and parse_inout_info(om.read(part)).inputs[0].name == "x"
    assert read(spec.om_narrow([(6, b"\1\2\3"), *parts("inline")])).inout_partition() is None


def test_numbers_6_and_8_mean_other_things_in_mobile_files(read: Callable[[bytes], OmFile]) -> None:
    block = spec.tensors_block(0, spec.io_tensor("x", 4, 2, 0, [1]))
    om = read(spec.om_v1([*parts("inline")[:1], (6, block), (8, block)], 3, "3.51.z.0"))
    assert om.is_mobile and om.inout_partition() is None


def test_the_private_task_list_of_a_mobile_file_is_a_fault_of_its_own(read: Callable[[bytes], OmFile]) -> None:
    om = read(spec.om_v1([*parts("merged")[:2], (2, bytes.fromhex("cdabcdab") + bytes(20))], 4, "3.51.z.0"))
    check_model(om.model(), om, "merged")
    with pytest.raises(InputError, match="bad-proto: TASK_INFO of 24 bytes"):
        om.tasks()


def test_a_flow_model_lists_its_parts_and_its_nested_files(read: Callable[[bytes], OmFile]) -> None:
    nested = spec.om_wide(parts("partition"))
    subs = [spec.submodel("s1", "NPU", nested), spec.submodel("s2", "HOST_CPU", path="/outside/model.om")]
    flow = spec.flow_model("flow", ["s1", "s2"])
    data = spec.om_wide([(0, model_def("inline")), (6, flow), *((7, each) for each in subs)], modeltype=3)
    om = read(data)
    assert om.kind == "flow" and om.wide
    assert [part.name for part in om.root.partitions] == ["MODEL_DEF", "FLOW_MODEL", "FLOW_SUBMODEL", "FLOW_SUBMODEL"]
    base = data.index(nested)
    inner = read_om(om.path, base=base, size=len(nested))
    assert inner.root.partitions[0].offset_bytes == base + 256 + 80
    check_model(inner.model(), inner, "partition")
    with pytest.raises(InputError, match="flow: not supported: flow") as caught:
        om.require_runnable()
    assert caught.value.exit_status == 3


@pytest.mark.parametrize("magic", [bytes(4), b"IMOD"])
def test_a_bundle_lists_its_models(magic: bytes, read: Callable[[bytes], OmFile]) -> None:
    nested = [spec.om_wide(parts("partition")), spec.om_narrow(parts("inline"))]
    data = spec.om_bundle(nested, magic)
    om = read(data)
    assert om.kind == "bundle" and om.header.model_num == 2
    assert [part.name for part in om.root.partitions] == [
        "BUNDLE_MODEL_VAR_INFO", "BUNDLE_MODEL_INFO", "BUNDLE_MODEL_INFO",
    ]  # fmt: skip
    assert om.read(om.root.partitions[0]) == struct.pack("<q", 4096)
    for part, stored, place in zip(om.root.partitions[1:], nested, ("partition", "inline")):
        assert om.read(part) == stored
        inner = read_om(om.path, base=part.offset_bytes, size=part.size_bytes)
        check_model(inner.model(), inner, place)


@pytest.mark.parametrize("number", [9, 10, 11, 20, 21, 22, 23])
def test_a_preload_file_is_recognised_by_its_partitions(number: int, read: Callable[[bytes], OmFile]) -> None:
    stored: spec.Parts = [(number, b"abc"), (1, b"weights!!"), (8, b"")]
    for data in (spec.om_wide(stored, modeltype=4), spec.om_nano(stored)):
        om = read(data)
        assert om.kind == "preload" and [om.read(part) for part in om.root.partitions] == [each for _, each in stored]
        with pytest.raises(InputError, match="no-model-def"):
            om.model()


def test_a_newer_version_is_read_with_a_warning(read: Callable[[bytes], OmFile]) -> None:
    om = read(spec.om_wide(parts("partition"), version=0x20000001))
    assert [warning.kind for warning in om.warnings] == ["newer-version"]
    check_model(om.model(), om, "partition")


def test_version_1_has_no_model_number_and_no_wide_length(read: Callable[[bytes], OmFile]) -> None:
    data = bytearray(spec.om_v1(parts("inline")))
    data[177], data[180:188] = 1, struct.pack("<II", 5, 3)  # fields of the mobile writer in reserved space
    om = read(bytes(data))
    assert (om.header.model_num, om.header.model_length, om.header.is_unknow_model) == (1, 0, 0)
    assert om.header.platform_type == 1 and len(om.models) == 1
    check_model(om.model(), om, "inline")


# ---------------------------------------------------------------- compressed names that lie


def compressed_with(read: Callable[[bytes], OmFile], attrs: dict[str, bytes], names: dict[str, bytes]) -> ModelRecord:
    graph = spec.graph("g", [spec.operator("n", "A", 0, (), attrs)])
    return read(spec.om_wide([(0, spec.model("m", [graph], names)), (1, bytes(1024))])).model()


LYING: dict[str, tuple[dict[str, bytes], dict[str, bytes], dict[str, Any], str, bool]] = {
    "index beyond the names": ({"\0\x05": spec.attr_i(1)}, {}, {"\0\x05": 1}, "index 4 of 2 names", True),
    "index beyond the values": ({"\0\x01": spec.attr_i(9)}, {}, {"\0\x01": 9}, "index 9 of 1 string", True),
    "negative value": ({"\0\x01": spec.attr_i(-1)}, {}, {"\0\x01": -1}, "index -1 of 1 string", True),
    "no digits": ({"\0": spec.attr_i(1)}, {}, {"\0": 1}, "1 characters", True),
    "digit 0": ({"\0\0": spec.attr_i(1)}, {}, {"\0\0": 1}, "digit 0", True),
    "many digits": ({"\0" + "\1" * 40: spec.attr_i(1)}, {}, {"\0" + "\1" * 40: 1}, "41 characters", True),
    "other kind": ({"\0\x01": spec.attr_f(0.5)}, {}, {"mode": 0.5}, "'mode' should hold numbers of strings", False),
    "list of bools": ({"\0\x01": spec.attr_bools(True)}, {}, {"mode": (True,)}, "numbers of strings", False),
    "empty name": ({"": spec.attr_i(1)}, {}, {"": 1}, "empty name", False),
    "unknown way": ({"\0\x01": spec.attr_i(0)}, {"om_compress_version": spec.attr_i(7)}, {"\0\x01": 0}, "way 7", False),
    "fewer flags": ({"\0\x02": spec.attr_i(0)}, {"attrs_use_string_value": spec.attr_bools(True)}, {"axis": 0},
                    "2 names, attrs_use_string_value 1", False),
    "names are numbers": ({"\0\x01": spec.attr_i(0)}, {"attr_name_enum": spec.attr_ints(5)}, {"\0\x01": 0},
                          "index 0 of 0 names", True),
    "values are numbers": ({"\0\x01": spec.attr_i(0)}, {"attr_value_enum": spec.attr_ints(5)}, {"\0\x01": 0},
                           "index 0 of 0 string", True),
    "names are missing": ({"\0\x01": spec.attr_i(0)}, {"attr_name_enum": b""}, {"\0\x01": 0}, "of 0 names", True),
}  # fmt: skip


@pytest.mark.parametrize("lie", LYING)
def test_a_dictionary_or_key_that_lies_leaves_the_raw_attribute(lie: str, read: Callable[[bytes], OmFile]) -> None:
    attrs, changed, expected, words, is_error = LYING[lie]
    names = spec.Dictionary(["mode", "axis"], ["SAME"], [True, False])
    model = compressed_with(read, attrs, names.attrs() | changed)
    assert model.root.nodes[0].attrs == expected
    texts = [problem.message for problem in model.problems]
    assert any(words in text for text in texts), texts
    assert {problem.kind for problem in model.problems} == {"bad-attr-enum"}
    assert any(problem.severity == "error" for problem in model.problems) == is_error
    assert model.unreadable_names == int(is_error)


@pytest.mark.parametrize(("index", "digits"), [(0, b"\0\x01"), (126, b"\0\x7f"), (127, b"\0\x01\x02")])
def test_the_stated_examples_of_coded_names(index: int, digits: bytes) -> None:
    names = AttrNames(tuple(map(str, range(200))), (), (False,) * 200)
    assert spec.coded(index).encode() == digits
    assert names.restore(digits.decode(), 1) == (str(index), 1, True)
