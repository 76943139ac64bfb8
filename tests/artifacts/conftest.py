"""A small model and ways to build OM files byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.artifacts.header import OmHeader
from gecli.artifacts.om_writer import OmImage, om_image
from gecli.ir.dtype import DataType
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.ir.placement import Placement
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.planning.weight_layout import lay_out_weights

F32 = TensorDesc(DataType.FLOAT, (2, 3))


@dataclass(frozen=True)
class Built:
    """An OM image, the constants inside, and their bytes."""

    image: OmImage
    weights: dict[str, bytes]


def connect(node: OpDesc, slot: int, producer: OpDesc) -> None:
    node.inputs[slot] = Port(producer, 0)
    producer.users[0][Use(node, slot)] = None


def build_model(seed: int = 0, extra: dict[str, Any] | None = None, *, rows: int = 2) -> Built:
    """x -> MatMul(w1) -> Add(w2) -> NetOutput, with a third constant equal to the second."""
    from gecli.wire.model_record import GraphRecord, ModelRecord
    from gecli.wire.task import Task, TaskList, TaskType

    random = np.random.default_rng(seed)
    first = random.standard_normal((3, 3)).astype(np.float32)
    second = random.standard_normal((rows, 3)).astype(np.float32)
    desc = TensorDesc(DataType.FLOAT, (rows, 3))
    x = OpDesc("x", "Data", attrs={"index": 0}, output_descs=[desc])
    w1 = OpDesc("w1", "Const", attrs={"value": Weight.of(first)}, output_descs=[TensorDesc(DataType.FLOAT, (3, 3))])
    w2 = OpDesc("w2", "Const", attrs={"value": Weight.of(second)}, output_descs=[desc])
    w3 = OpDesc("w3", "Const", attrs={"value": Weight.of(second)}, output_descs=[desc])
    dot = OpDesc("dot", "MatMulV2", input_descs=[desc, w1.output_descs[0], None], output_descs=[desc])
    add = OpDesc("add/1:a", "Add", input_descs=[desc, desc], output_descs=[desc], input_names=("x1", "x2"))
    more = OpDesc("more", "Add", input_descs=[desc, desc], output_descs=[desc])
    out = OpDesc("Node_Output", "NetOutput", input_descs=[desc])
    for node, slot, producer in [
        (dot, 0, x),
        (dot, 1, w1),
        (add, 0, dot),
        (add, 1, w2),
        (more, 0, add),
        (more, 1, w3),
        (out, 0, more),
    ]:
        connect(node, slot, producer)
    nodes = [x, w1, w2, w3, dot, add, more, out]
    consts = [w1, w2, w3]
    layout = lay_out_weights([node.attrs["value"] for node in consts])
    places = dict(zip(consts, layout.offsets))
    placements = {
        node: Placement(k, 0, tuple(places.get(port.node, 0) for port in node.data_inputs), (places.get(node, 64 * k),))
        for k, node in enumerate(nodes)
    }
    graph = GraphRecord("m_0", nodes, {"_session_graph_id": "-1_0"}, placements, ("x:0",))
    attrs = {"memory_size": 4096, "soc_version": "Ascend910B1", "attr_model_out_nodes_name": ("more:0:y",)}
    model = ModelRecord("m", [graph], {**attrs, **(extra or {})})
    tasks = TaskList((Task(TaskType.KERNEL, 0, 4, 8, "dot"), Task(TaskType.END_GRAPH)), "gecli-sim-1")
    image = om_image(model, tasks, layout, places)
    return Built(image, {"w1": first.tobytes(), "w2": second.tobytes(), "w3": second.tobytes()})


@pytest.fixture
def built() -> Built:
    return build_model()


@pytest.fixture
def make_model() -> Callable[..., Built]:
    return build_model


@pytest.fixture
def small_om(built: Built, tmp_path: Path) -> Path:
    path = tmp_path / "small.om"
    with path.open("wb") as stream:
        built.image.write(stream)
    return path


Partitions = Sequence[tuple[int, bytes]]


def wide_table(partitions: Partitions) -> bytes:
    offset, rows = 0, [struct.pack("<II", len(partitions), 0)]
    for kind, data in partitions:
        rows.append(struct.pack("<IIQQ", kind, 0, offset, len(data)))
        offset += len(data)
    return b"".join(rows) + b"".join(data for _, data in partitions)


def narrow_table(partitions: Partitions) -> bytes:
    offset, rows = 0, [struct.pack("<I", len(partitions))]
    for kind, data in partitions:
        rows.append(struct.pack("<III", kind, offset, len(data)))
        offset += len(data)
    return b"".join(rows) + b"".join(data for _, data in partitions)


@dataclass(frozen=True)
class OmBytes:
    """Builds OM files of every variant from partitions."""

    def wide(self, *models: Partitions, **fields: Any) -> bytes:
        payload = b"".join(map(wide_table, models))
        return OmHeader(model_num=len(models), model_length=len(payload), **fields).pack() + payload

    def narrow(self, partitions: Partitions, **fields: Any) -> bytes:
        payload = narrow_table(partitions)
        return OmHeader(length=len(payload), **fields).pack() + payload

    def version_1(self, partitions: Partitions, modeltype: int = 0, platform: bytes = b"1.11.z.0") -> bytes:
        payload = narrow_table(partitions)
        head = bytearray(OmHeader(length=len(payload), version=0x10000000, modeltype=modeltype).pack())
        head[156:256] = platform.ljust(20, b"\0") + b"\1" + bytes(79)
        return bytes(head) + payload

    def bundle(self, models: Sequence[bytes]) -> bytes:
        rows = [(25, struct.pack("<q", 1536)), *((24, model) for model in models)]
        offset = 8 + 24 * len(rows)
        table = [struct.pack("<II", len(rows), 0)]
        for kind, data in rows:
            table.append(struct.pack("<IIQQ", kind, 0, offset, len(data)))
            offset += len(data)
        body = b"".join(table) + b"".join(data for _, data in rows)
        head = bytearray(256)
        head[82] = 5
        head[156:160] = struct.pack("<I", len(models))
        head[184:192] = struct.pack("<Q", 256 + len(body))
        return bytes(head) + body


@pytest.fixture
def om_bytes() -> OmBytes:
    return OmBytes()


@pytest.fixture
def model_def(built: Built) -> bytes:
    """MODEL_DEF of the small model."""
    data = b"".join(built.image.payload())
    kinds = [kind for kind, _ in built.image.partitions]
    start = 8 + 24 * len(kinds)
    for kind, size in built.image.partitions:
        if kind == 0:
            return data[start : start + size]
        start += size
    raise AssertionError("no MODEL_DEF")
