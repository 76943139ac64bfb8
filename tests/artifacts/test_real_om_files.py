"""Files made by Huawei's own tools are read completely."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gecli.artifacts.inout_info import inout_of
from gecli.artifacts.kernel_store import list_kernels
from gecli.artifacts.om_file import read_om
from gecli.artifacts.om_writer import om_image, write_om
from gecli.artifacts.partition_table import PartitionType
from gecli.errors import InputError
from gecli.ir.weight import Weight
from gecli.planning.weight_layout import lay_out_weights
from gecli.wire.model_record import ModelRecord
from gecli.wire.task import TaskList, TaskType

REAL = Path(__file__).resolve().parents[1] / "data" / "om" / "real"

# name: version, modeltype, partitions (type, size), nodes, constants, weight bytes, model name, platform
FACTS = {
    "ascend310-2020-conv_pad": (
        1, 0, [(0, 11089), (1, 25600), (3, 9462), (2, 473)], 10, 2, 25088, "yolo", "1.11.z.0",
    ),
    "ascend310-2021-a3c_pong": (
        1, 0, [(0, 32085), (1, 320000), (3, 20918), (2, 5644)], 25, 11, 317140, "a3c_pong_model", "1.11.z.0",
    ),
    "ascend310-2022-vae": (
        2, 0, [(0, 154630), (1, 386560), (3, 64667), (2, 12828)], 46, 17, 381184, "hh_om", "1.11.z.0",
    ),
    "hiai-aipp": (1, 3, [(0, 21867)], 32, 14, None, "ge_default", "3.51.z.0"),
    "hiai-batchnorm": (1, 3, [(0, 1315)], 7, 4, 16, "ge_default", "3.51.z.0"),
    "hiai-conv_merged_offset": (1, 3, [(0, 2063), (1, 18816)], 7, 1, 18816, "ge_default", "3.51.z.0"),
    "hiai-depthwise_merged_offset": (1, 3, [(0, 2467), (1, 170)], 10, 5, 170, "ge_default", "3.51.z.0"),
    "hiai-relu": (1, 3, [(0, 651)], 3, 0, 0, "ge_default", "3.51.z.0"),
    "hiai-resnet20_quant8": (1, 3, [(0, 314215)], 90, 44, 274040, "ge_default", "3.51.z.0"),
    "hiai-softmax_lite_cpucl": (1, 4, [(0, 1383), (1, 16), (2, 569)], 3, 0, 0, "ge_default_aihcs", ""),
    "hiai-softmax_lite_npucl": (1, 4, [(0, 2621), (1, 512), (2, 4693)], 4, 0, 0, "ge_default_aihcs", "3.51.z.0"),
    "hiai-softmax_v100": (
        1, 0, [(0, 1299), (1, 512), (2, 0)], 4, 0, 0, "domi_default_20201215162746", "3.51.z.0",
    ),
}  # fmt: skip
ATC = {
    "ascend310-2020-conv_pad": (6, {3: 1, 0: 6, 4: 1, 19: 1}),
    "ascend310-2021-a3c_pong": (12, {3: 1, 0: 12, 4: 1, 19: 1}),
    "ascend310-2022-vae": (26, {3: 1, 0: 24, 5: 1, 1: 1, 2: 1, 4: 1, 19: 1}),
}


def constants(model: ModelRecord) -> list[Weight]:
    return [node.attrs["value"] for node in model.root.nodes_of("Const")]


def test_every_file_is_in_the_table() -> None:
    names = {path.stem for path in REAL.glob("*.om")}
    assert names == {*FACTS, "encrypted-2020-conv_pad"}


@pytest.mark.parametrize("name", FACTS)
def test_the_container_and_the_graph_are_as_known(name: str) -> None:
    version, modeltype, partitions, nodes, consts, weight_bytes, model_name, platform = FACTS[name]
    om = read_om(REAL / f"{name}.om")
    assert om.kind == "om" and not om.warnings and not om.wide
    assert (om.header.version >> 28, om.header.modeltype, om.header.platform_version) == (version, modeltype, platform)
    assert om.is_mobile == name.startswith("hiai")
    assert [(item.type, item.size_bytes) for item in om.root.partitions] == partitions
    model = om.model()
    assert model.problems == [] and model.name == model_name and model.version == 2
    assert len(model.graphs) == 1 and len(model.root.nodes) == nodes
    assert len(constants(model)) == consts
    if weight_bytes is not None:
        assert sum(weight.nbytes for weight in constants(model)) == weight_bytes
    assert om.verify_checksum() is None


@pytest.mark.parametrize("name", ATC)
def test_kernels_tasks_and_weights_of_atc_files_agree_with_the_graph(name: str) -> None:
    kernels, tasks = ATC[name]
    om = read_om(REAL / f"{name}.om")
    model = om.model()
    store = om.root.partition(PartitionType.TBE_KERNELS)
    found = om.tasks()
    assert store is not None and found is not None
    listed = list_kernels(om.read(store))
    assert len(listed) == kernels and all(kernel.is_elf for kernel in listed)
    assert Counter(task.type for task in found.tasks) == tasks
    assert found.tasks[-1].type == TaskType.END_GRAPH
    assert len(model.attrs["task_index_op_name"]) == len(found.tasks)
    ids = {placement.id: node for node, placement in model.root.placements.items()}
    assert all(task.op_index in ids for task in found.tasks if task.type == TaskType.KERNEL)
    assert [model.root.placements[node].id for node in model.root.nodes] == list(range(len(model.root.nodes)))
    weights = om.root.partition(PartitionType.WEIGHTS_DATA)
    assert weights is not None and model.attrs["weight_size"] == weights.size_bytes
    assert om.read(weights)[:512] == bytes(512)
    for weight in constants(model):
        place = weight.source.offset_bytes - weights.offset_bytes
        assert place >= 512 and place % 512 == 0


# name: streams, task_gen_base_addr, task_gen_variable_addr, om_info_list, atc version, const inputs, descriptors
ATC_ATTRS = {
    "ascend310-2020-conv_pad": ({0}, 5 << 30, 12 << 30, None, None, 2, 23),
    "ascend310-2021-a3c_pong": ({0}, 5 << 30, 32 << 30, None, "1.75.22.0.220", 10, 49),
    "ascend310-2022-vae": ({0, 1}, 2 << 30, 32 << 30, (386560, 64667, 0, 12828), "1.80.T15.0.B156", 19, 93),
}  # fmt: skip


@pytest.mark.parametrize("name", FACTS)
def test_the_header_of_a_real_file_has_the_constants_of_all_real_files(name: str) -> None:
    om = read_om(REAL / f"{name}.om")
    header = om.header
    assert (header.headsize, header.om_ir_version, header.model_num) == (256, 2, 1)
    assert (header.is_encrypt, header.is_checksum, header.genmode, header.ops) == (0, 0, 0, 0)
    assert (header.need_check_os_cpu_info, header.is_unknow_model, header.model_length) == (0, 0, 0)
    assert not any(header.checksum) and not any(header.userdefineinfo) and header.padding_is_zero
    assert header.platform_type == int(not name.startswith("hiai")) and header.payload_sha256 is None
    running = 0
    for part in om.root.partitions:
        assert part.table_offset_bytes == running
        running += part.size_bytes
    assert om.root.partitions[-1].offset_bytes + om.root.partitions[-1].size_bytes == om.size_bytes


@pytest.mark.parametrize("name", ATC)
def test_the_attributes_addresses_and_kernels_of_atc_files_are_as_known(name: str) -> None:
    streams, base, variables, info, atc, const_inputs, descriptors = ATC_ATTRS[name]
    om = read_om(REAL / f"{name}.om")
    model = om.model()
    attrs, root = model.attrs, model.root
    parts = {part.type: part for part in om.root.partitions}
    tasks = om.tasks()
    assert tasks is not None and attrs["tasks"] == om.read(parts[2])
    assert (attrs["task_gen_base_addr"], attrs["task_gen_variable_addr"]) == (base, variables)
    assert attrs["task_gen_weight_addr"] == base + attrs["memory_size"]
    assert (attrs.get("om_info_list"), attrs.get("atc_version"), attrs["target_type"]) == (info, atc, "MINI")
    assert (tasks.memory_size, tasks.weight_size) == (attrs["memory_size"], parts[1].size_bytes)
    assert (root.name, root.inputs, root.outputs) == (f"{model.name}_0", (), ())
    assert {place.stream_id for place in root.placements.values()} == streams
    assert sum(len(node.input_descs) + len(node.output_descs) for node in root.nodes) == descriptors
    kernels = {kernel.name for kernel in list_kernels(om.read(parts[3]))}
    nodes = {place.id: node for node, place in root.placements.items()}
    engine = [nodes[task.op_index or 0] for task in tasks.tasks if task.kernel_type == 2]
    assert len(engine) == Counter(task.type for task in tasks.tasks)[TaskType.KERNEL]
    for node in engine:
        assert kernels & {node.name, node.attrs.get("_kernelname"), node.attrs.get(f"{node.name}_kernelname")}
    places = [
        (offset, port.node.attrs["value"].source.offset_bytes - parts[1].offset_bytes)
        for node in root.nodes
        for port, offset in zip(node.data_inputs, root.placements[node].input_offsets)
        if port.node.type == "Const"
    ]
    assert len(places) == const_inputs and all(offset == place for offset, place in places)


def test_sizes_of_outputs_are_the_padded_ones() -> None:
    sizes = [
        (desc.size_bytes, desc.nbytes)
        for name in ATC
        for node in read_om(REAL / f"{name}.om").model().root.nodes
        for desc in node.output_descs
        if desc.size_bytes
    ]
    padded = [(size, exact) for size, exact in sizes if size == (exact + 31) // 32 * 32 + 32]
    assert (len(sizes), len(padded)) == (75, 74)  # one FrameworkOp states its exact size
    assert all(size >= exact for size, exact in sizes)


def test_packed_weights_of_a_mobile_file_are_found_by_merged_offset() -> None:
    om = read_om(REAL / "hiai-depthwise_merged_offset.om")
    weights = om.root.partition(PartitionType.WEIGHTS_DATA)
    assert weights is not None
    places = [weight.source.offset_bytes - weights.offset_bytes for weight in constants(om.model())]
    assert sorted(places) == [0, 90, 110, 130, 150]


def test_an_encrypted_file_is_refused_by_name() -> None:
    with pytest.raises(InputError) as caught:
        read_om(REAL / "encrypted-2020-conv_pad.om")
    assert (caught.value.code, caught.value.kind) == ("G3001", "not-om")
    assert "encrypted-2020-conv_pad.om" in caught.value.first.message
    assert "after an encryption" in caught.value.first.why


def test_a_private_task_list_of_a_mobile_file_is_an_input_error_of_its_own() -> None:
    om = read_om(REAL / "hiai-softmax_lite_npucl.om")
    assert len(om.model().root.nodes) == 4
    with pytest.raises(InputError, match="TASK_INFO"):
        om.tasks()
    empty = read_om(REAL / "hiai-softmax_v100.om").tasks()
    assert empty is not None and empty.tasks == ()


@pytest.mark.parametrize("name", FACTS)
def test_a_real_model_written_again_is_the_same_model(name: str, tmp_path: Path) -> None:
    model = read_om(REAL / f"{name}.om").model()
    first, second = tmp_path / "first.om", tmp_path / "second.om"
    write_again(model, first)
    again = read_om(first).model()
    assert again.problems == []
    assert seen(again) == seen(model)
    write_again(again, second)
    assert second.read_bytes() == first.read_bytes()


@pytest.mark.parametrize(
    ("name", "source"),
    [("hiai-aipp", "srnetwork/add_3"), ("hiai-conv_merged_offset", "conv1/Conv2D"), ("hiai-relu", "out"),
     ("hiai-softmax_lite_npucl", "Softmax"), ("hiai-depthwise_merged_offset", "FusedBatchNorm")],
)  # fmt: skip
def test_the_output_of_a_mobile_file_is_named_by_the_source_that_net_output_names(name: str, source: str) -> None:
    assert inout_of(read_om(REAL / f"{name}.om").model()).outputs[0].name == f"output_0_{source}_0"


def write_again(model: ModelRecord, path: Path) -> None:
    nodes = model.root.nodes_of("Const")
    layout = lay_out_weights([node.attrs["value"] for node in nodes])
    write_om(path, om_image(model, TaskList(()), layout, dict(zip(nodes, layout.offsets))))


def seen(model: ModelRecord) -> list[object]:
    rows: list[object] = []
    for node in model.root.nodes:
        attrs = {key: value.sha256() if isinstance(value, Weight) else value for key, value in node.attrs.items()}
        rows.append((node.name, node.type, repr(attrs), node.input_names, node.output_names))
        rows.append(([port and str(port) for port in node.inputs], [str(before) for before in node.control_in]))
        rows.append((node.input_descs, node.output_descs, model.root.placements[node]))
    rows.append(model.root.output_sources)
    return rows
