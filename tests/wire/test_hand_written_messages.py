"""What is encoded by hand has the bytes that protobuf gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gecli.ir.dtype import DataType
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.placement import Placement
from gecli.ir.tensor_desc import TensorDesc
from gecli.pb import ge_ir_pb2, task_pb2
from gecli.wire.model_encoder import encode_desc, encode_model
from gecli.wire.model_record import GraphRecord, ModelRecord
from gecli.wire.task import Task, TaskList, encode_tasks
from gecli.wire.writer import bytes_field, integer_field, number_field, packed_field

U32 = st.integers(0, (1 << 32) - 1)
U64 = st.integers(0, (1 << 64) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
NAME = st.text(st.characters(codec="utf-8"), max_size=140)
TASKS = st.builds(
    Task,
    type=U32,
    stream_id=U32,
    op_index=st.none() | U32,
    kernel_type=st.none() | st.integers(0, 10_000),
    stub_func=NAME,
    so_name=NAME,
    kernel_name=NAME,
    block_dim=U32,
    args=st.lists(U64, max_size=20).map(tuple),
    args_size=U32,
    args_format=NAME,
    event_id=U32,
)


def by_protobuf(tasks: TaskList) -> bytes:
    message = task_pb2.ModelTaskDef(version=tasks.version, attr=dict(tasks.attrs), memory_size=tasks.memory_size)
    message.stream_num, message.event_num, message.batch_num = tasks.stream_num, tasks.event_num, tasks.batch_num
    message.weight_size, message.base_addr, message.weight_addr = tasks.weight_size, tasks.base_addr, tasks.weight_addr
    for task in tasks.tasks:
        target = message.task.add(type=task.type, stream_id=task.stream_id, event_id=task.event_id)
        if task.kernel_type is None:
            continue
        kernel = target.kernel
        kernel.context.kernel_type, kernel.context.op_index = task.kernel_type, task.op_index or 0
        kernel.context.args_offset, kernel.context.args_count = b"\0\0", len(task.args)
        kernel.context.args_format, kernel.stub_func = task.args_format, task.stub_func
        kernel.block_dim, kernel.args_size = task.block_dim, task.args_size
        kernel.args = b"".join(address.to_bytes(8, "little") for address in task.args)
        kernel.so_name, kernel.kernel_name = task.so_name, task.kernel_name
    data: bytes = message.SerializeToString(deterministic=True)
    return data


@given(st.lists(TASKS, max_size=4), NAME, U64, U32, st.dictionaries(st.sampled_from("abc"), NAME))
def test_a_task_list(tasks: list[Task], version: str, size: int, number: int, attrs: dict[str, str]) -> None:
    whole = TaskList(tuple(tasks), version, size, size, number, number, size, size, number, attrs)
    assert encode_tasks(whole) == by_protobuf(whole)


@given(I64, st.lists(I64, max_size=5), st.binary(max_size=200))
def test_fields_of_each_kind(number: int, numbers: list[int], data: bytes) -> None:
    message = ge_ir_pb2.OpDef(attr_groups=data, id=number, input_i=numbers)
    parts = bytes_field(11, data) if data else b""
    assert parts + number_field(21, number) + packed_field(28, numbers) == message.SerializeToString()
    assert ge_ir_pb2.OpDef.FromString(integer_field(21, number)).id == number


@given(
    NAME,
    NAME,
    st.lists(st.booleans(), max_size=4),
    st.lists(I64, max_size=4),
    st.builds(TensorDesc, st.just(DataType.FLOAT), st.lists(st.integers(-1, 300), max_size=3).map(tuple)),
)
def test_a_node(name: str, type: str, fed: list[bool], offsets: list[int], desc: TensorDesc) -> None:
    source = OpDesc(name + "_source", "Relu", output_descs=[desc])
    node = OpDesc(name, type, input_descs=[desc if each else None for each in fed], output_descs=[desc])
    node.inputs = [Port(source, 0) if each else None for each in fed]
    places = tuple(offsets[: sum(fed)])
    record = GraphRecord("g", [node], placements={node: Placement(7, 0, places, (512,))})
    data = encode_model(ModelRecord("m", [record])).data()
    expected = ge_ir_pb2.OpDef(name=name, type=type, id=7, input_i=places, output_i=(512,))
    expected.input.extend(f"{source.name}:0" if each else "" for each in fed)
    absent = ge_ir_pb2.TensorDescriptor(layout="FORMAT_RESERVED").SerializeToString()
    expected.input_desc.extend(encode_desc(desc) if each else absent for each in fed)
    expected.output_desc.append(encode_desc(desc))
    graph = ge_ir_pb2.GraphDef.FromString(ge_ir_pb2.ModelDef.FromString(data).graph[0])
    assert bytes_field(6, expected.SerializeToString(deterministic=True)) in data
    assert list(graph.op) == [expected]
