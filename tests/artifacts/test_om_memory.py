"""Reading takes less than twice the file and 64 MiB, whatever the file says; weights stay in the file."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gecli.artifacts.om_file import read_om
from gecli.artifacts.part_faults import part_faults
from gecli.errors import InputError
from gecli.ir.weight import FileSlice

from . import hostile_graphs
from . import spec_om as spec

REPOSITORY = Path(__file__).resolve().parents[2]
ALLOWED_BYTES = 64 << 20
MIB = 1 << 20
READ_ALL = """
import sys
from gecli.artifacts.om_file import read_om
from gecli.artifacts.part_faults import part_faults
from gecli.errors import InputError
try:
    om = read_om(sys.argv[1])
    for index in range(len(om.models)):
        found = om.tasks(index), om.model(index)
    print("faults", len(part_faults(om)) + len(found[1].problems))
except InputError as error:
    print(error.kind)
"""


MEASURE = """
import os, sys
child = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, *sys.argv[1:]])
_, status, usage = os.wait4(child, 0)
print("PEAK", usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024), os.waitstatus_to_exitcode(status))
"""


def measured(*command: str) -> tuple[int, int, str]:
    """Peak bytes, exit status and output of a process."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *command], capture_output=True, text=True, env=environment, timeout=300
    )
    assert "Traceback" not in done.stderr, done.stderr
    said, _, figures = done.stdout.rpartition("PEAK ")
    peak, status = map(int, figures.split())
    return peak, status, said.strip()


def write_sparse(path: Path, head: bytes, hole: int, tail: bytes = b"") -> None:
    """A file with `hole` zero bytes that take no disk."""
    with path.open("wb") as stream:
        stream.write(head)
        stream.seek(hole, os.SEEK_CUR)
        stream.write(tail)
        stream.truncate(len(head) + hole + len(tail))


def constant_model(size: int) -> bytes:
    desc = spec.descriptor(1, [size // 4], weight_size=size, data_offset=512)
    value = {"value": spec.attr_t(spec.tensor(desc))}
    return spec.model("m", [spec.graph("g", [spec.operator("w", "Const", 0, (), value, (), [desc])])])


def with_large_weights(path: Path, size: int) -> None:
    model = constant_model(size)
    rows = [(0, len(model)), (1, size + 512)]
    table = struct.pack("<II", 2, 0)
    offset = 0
    for kind, length in rows:
        table += struct.pack("<IIQQ", kind, 0, offset, length)
        offset += length
    write_sparse(path, spec.header_v2(len(table) + offset) + table + model, size + 512)


@pytest.mark.parametrize("command", ["api", "inspect-om", "inspect-om --json", "run"])
def test_large_weights_are_not_read(command: str, tmp_path: Path) -> None:
    path = tmp_path / "large.om"
    with_large_weights(path, 512 * MIB)
    words = ["-c", READ_ALL] if command == "api" else ["-m", "gecli", *command.split()]
    peak, status, said = measured(*words, str(path))
    assert peak < (ALLOWED_BYTES if command != "run" else 2 * ALLOWED_BYTES), f"{peak / MIB:.1f} MiB"
    assert status in (0, 3) and (command != "api" or said == "faults 0")


def test_a_constant_is_a_range_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "large.om"
    with_large_weights(path, 8 * MIB)
    weight = read_om(path).model().root.nodes[0].attrs["value"]
    assert isinstance(weight.source, FileSlice) and weight.source.length_bytes == weight.nbytes == 8 * MIB
    assert weight.source.offset_bytes == path.stat().st_size - 8 * MIB


def test_large_weights_inside_the_graph_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "inline.om"
    size = 256 * MIB
    desc = spec.blob(1, spec.descriptor(1, [size // 4]))
    data_head = spec.varint(2 << 3 | 2) + spec.varint(size)
    heads = [data_head]
    inner = len(desc) + len(data_head) + size
    before = desc
    # From the inside out: TensorDef, AttrDef, map entry, OpDef, GraphDef, ModelDef.
    for tag, lead in (
        (12, b""),
        (2, spec.blob(1, b"value")),
        (10, spec.blob(1, b"w") + spec.blob(2, b"Const")),
        (6, b""),
        (7, b""),
    ):
        head = spec.varint(tag << 3 | 2) + spec.varint(inner)
        before = lead + head + before
        inner += len(lead) + len(head)
    model_size = len(before) + len(heads[0]) + size
    table = struct.pack("<IIIIQQ", 1, 0, 0, 0, 0, model_size)
    write_sparse(path, spec.header_v2(32 + model_size) + table + before + data_head, size)
    peak, _, said = measured("-c", READ_ALL, str(path))
    assert said == "faults 0" and peak < ALLOWED_BYTES, f"{peak / MIB:.1f} MiB"
    weight = read_om(path).model().root.nodes[0].attrs["value"]
    assert weight.source == FileSlice(str(path), path.stat().st_size - size, size)


def graph_of(content: bytes) -> bytes:
    return spec.blob(7, spec.blob(1, b"g") + content)


def node_of(content: bytes) -> bytes:
    return graph_of(spec.blob(6, spec.blob(1, b"n") + spec.blob(2, b"A") + content))


def attr_of(value: bytes) -> bytes:
    return node_of(spec.blob(10, spec.blob(1, b"a") + spec.blob(2, value)))


def model_attr_of(value: bytes) -> bytes:
    return spec.blob(11, spec.blob(1, b"a") + spec.blob(2, value))


def beside(part: tuple[int, bytes]) -> spec.Parts:
    """A partition beside an empty graph."""
    return [(0, graph_of(b"")), part]


def io_of(*tensors: bytes) -> bytes:
    return spec.tensors_block(0, *tensors)


def deep(levels: int) -> bytes:
    value = spec.attr_i(1)
    for _ in range(levels):
        value = spec.attr_func("f", {"a": value})
    return value


SIZE = 2 * MIB
NAMES = b"".join(spec.blob(10, spec.blob(1, struct.pack("<I", k).hex().encode()) + b"\x12\0") for k in range(120_000))
HOSTILE: dict[str, Callable[[], spec.Parts]] = {
    "operators of no bytes": lambda: [(0, graph_of(b"\x32\0" * (SIZE // 2)))],
    "operators of a type only": lambda: [(0, graph_of(b"\x32\x03\x12\x01A" * (SIZE // 5)))],
    "graphs of no bytes": lambda: [(0, b"\x3a\0" * (SIZE // 2))],
    "inputs of no bytes": lambda: [(0, node_of(b"\x2a\0" * (SIZE // 2)))],
    "descriptors of no bytes": lambda: [(0, node_of(b"\x92\x02\0" * (SIZE // 3)))],
    "absent inputs": lambda: [(0, node_of(b"\x8a\x02\0" * (SIZE // 3)))],
    "attributes of no value": lambda: [(0, node_of(NAMES))],
    "model attributes of no value": lambda: [(0, NAMES.replace(b"\x52", b"\x5a"))],
    "a list of small numbers": lambda: [(0, attr_of(spec.attr_list(spec.blob(3, b"\1" * SIZE), 2)))],
    "a list of larger numbers": lambda: [(0, attr_of(spec.attr_list(spec.blob(3, b"\xff\x7f" * (SIZE // 2)), 2)))],
    "a list of empty strings": lambda: [(0, attr_of(spec.attr_list(b"\x12\0" * (SIZE // 2), 1)))],
    "a list of empty tensors": lambda: [(0, attr_of(spec.attr_list(b"\x4a\0" * (SIZE // 2), 7)))],
    "a list of empty functions": lambda: [(0, attr_of(spec.attr_list(b"\x5a\0" * (SIZE // 2), 9)))],
    "rows of no numbers": lambda: [(0, attr_of(spec.blob(14, b"\x0a\0" * (SIZE // 2))))],
    "many dims": lambda: [(0, node_of(spec.blob(34, spec.blob(3, spec.blob(1, b"\x7f" * SIZE)))))],
    "offsets": lambda: [(0, node_of(spec.blob(28, b"\x7f" * SIZE)))],
    "nesting beyond 64": lambda: [(0, attr_of(deep(80)))],
    "nesting beyond 100": lambda: [(0, attr_of(deep(5000)))],
    "a huge string": lambda: [(0, attr_of(spec.blob(2, bytes(16 * MIB))))],
    "huge bytes": lambda: [(0, attr_of(spec.blob(7, bytes(16 * MIB))))],
    "huge bytes in the model": lambda: [(0, model_attr_of(spec.blob(7, bytes(16 * MIB))))],
    "a huge list of bytes": lambda: [(0, attr_of(spec.attr_list(spec.blob(7, bytes(MIB)) * 16, 5)))],
    "a huge unknown field": lambda: [(0, spec.blob(99, bytes(16 * MIB)))],
    "a huge name": lambda: [(0, spec.blob(1, b"n" * (16 * MIB)))],
    "tasks of no bytes": lambda: beside((2, b"\x52\0" * (SIZE // 2))),
    "a task of many addresses": lambda: beside((2, spec.blob(10, spec.blob(20, spec.blob(13, b"\xff" * SIZE))))),
    "kernels of no name": lambda: beside((3, struct.pack("<III", 0x5D776EFD, 0, 0) * (SIZE // 12))),
    "a kernel of a huge name": lambda: beside((3, spec.kernel("n" * (16 * MIB), b""))),
    "libraries": lambda: beside((5, spec.libraries(*[("", "", 0, b"x")] * (SIZE // 17)))),
    "tiling records": lambda: beside((12, spec.tiling(*[(0, b"")] * (SIZE // 5)))),
    "dims of an input": lambda: beside((8, io_of(spec.io_tensor("", 0, 0, 0, [1 << 40] * (SIZE // 16))))),
    "inputs": lambda: beside((8, io_of(*[spec.io_tensor("", 0, 0, 0, ())] * (SIZE // 32)))),
    "texts": lambda: beside((8, spec.texts_block(5, *[""] * (SIZE // 4)))),
    "a block of 64 MiB": lambda: beside((8, spec.block(0, struct.pack("<I", 1) + bytes(64 * MIB)))),
    "the old number of inputs": lambda: beside((6, spec.block(0, struct.pack("<I", 1) + bytes(64 * MIB)))),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_takes_no_more_than_twice_its_size_and_64_mib(name: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.om"
    path.write_bytes(spec.om_wide(HOSTILE[name]()))
    peak, status, said = measured("-c", READ_ALL, str(path))
    assert status == 0 and said
    limit = 2 * path.stat().st_size + ALLOWED_BYTES
    assert peak < limit, f"{peak / MIB:.1f} MiB of {limit / MIB:.1f}, {said}"


READ_BOTH = """
import sys
from gecli.artifacts.om_file import read_om
from gecli.errors import InputError
om = read_om(sys.argv[1])
held, said = [], []
for part in sys.argv[2:]:
    try:
        held.append(getattr(om, part)())
    except InputError as error:
        said.append(error.first.where)
print("refused", *said)
"""


@pytest.mark.parametrize("order", [("model", "tasks"), ("tasks", "model")])
def test_graph_and_tasks_of_one_file_share_what_every_file_may_cost(order: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "both.om"
    graph = hostile_graphs.HOSTILE["operators with a name"](300 << 10)
    path.write_bytes(spec.om_wide([(0, graph), (2, b"\x52\0" * 70_000)]))
    peak, status, said = measured("-c", READ_BOTH, str(path), *order)
    limit = 2 * path.stat().st_size + ALLOWED_BYTES
    names = {"model": "MODEL_DEF", "tasks": "TASK_INFO"}
    assert (status, said) == (0, f"refused {names[order[1]]}")
    assert peak < limit, f"{peak / MIB:.1f} MiB of {limit / MIB:.1f}"
    assert all(measured("-c", READ_BOTH, str(path), part)[2] == "refused" for part in order)


def test_tasks_that_are_read_again_cost_no_more(tmp_path: Path) -> None:
    path = tmp_path / "tasks.om"
    path.write_bytes(spec.om_wide([(0, graph_of(b"")), (2, b"\x52\0" * 60_000)]))
    om = read_om(path)
    for _ in range(3):
        tasks = om.tasks()
        assert tasks is not None and len(tasks.tasks) == 60_000
        assert len(om.model().root.nodes) == 0


def test_tasks_of_no_bytes_are_not_counted_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "tasks.om"
    path.write_bytes(spec.om_wide([(0, graph_of(b"")), (2, b"\x52\0" * 100_000)]))
    with pytest.raises(InputError, match="there are more than 73869 tasks, most of them without content"):
        read_om(path).task_counts()
    (fault,) = part_faults(read_om(path))
    assert (fault.code, fault.kind) == ("G3004", "bad-proto") and "73869" in fault.message


LARGE = 8 * MIB  # where objects of a few bytes each pass the 64 MiB
WORST = ("control edges", "names of graph inputs", "lists of tensors", "constants outside")
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in hostile_graphs.HOSTILE if name not in WORST]


@pytest.mark.parametrize("name", [*WORST, *OTHERS])
def test_a_large_hostile_graph_takes_no_more_than_twice_its_size_and_64_mib(name: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.om"
    path.write_bytes(spec.om_wide([(0, hostile_graphs.HOSTILE[name](LARGE))]))
    peak, status, said = measured("-m", "gecli", "inspect-om", "--summary", str(path))
    limit = 2 * path.stat().st_size + ALLOWED_BYTES
    assert status == 3 and "\nneeds" not in said
    assert peak < limit, f"{peak / MIB:.1f} MiB of {limit / MIB:.1f}"


@pytest.mark.parametrize(("name", "mib"), [("attributes of one operator", 4), ("attributes of one descriptor", 2)])
def test_one_operator_of_many_attributes_is_no_message_of_as_many(name: str, mib: int, tmp_path: Path) -> None:
    path = tmp_path / "hostile.om"
    path.write_bytes(spec.om_wide([(0, hostile_graphs.HOSTILE[name](mib * MIB))]))
    peak, status, _ = measured("-m", "gecli", "inspect-om", "--summary", str(path))
    limit = 2 * path.stat().st_size + ALLOWED_BYTES
    assert status == 3 and peak < limit, f"{peak / MIB:.1f} MiB of {limit / MIB:.1f}"


@pytest.mark.parametrize("name", ["operators with a name", "control edges"])
def test_a_run_refuses_a_hostile_graph_in_the_same_memory(name: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.om"
    path.write_bytes(spec.om_wide([(0, hostile_graphs.HOSTILE[name](MIB))]))
    peak, status, _ = measured("-m", "gecli", "run", str(path))
    limit = 2 * path.stat().st_size + ALLOWED_BYTES
    assert status == 3 and peak < limit, f"{peak / MIB:.1f} MiB of {limit / MIB:.1f}"


@pytest.mark.parametrize(
    ("kind", "view"),
    [
        ("external", "--summary"),
        ("external", "--tensors --json"),
        ("variable", "--vars"),
        ("variable", "--vars --map --json"),
        ("inline_constant", "--tensors"),
    ],
)
def test_a_view_with_a_row_for_each_node_holds_none_of_them(kind: str, view: str, tmp_path: Path) -> None:
    path = tmp_path / "many.om"
    path.write_bytes(spec.om_wide([(0, hostile_graphs.operators(getattr(hostile_graphs, kind), MIB))]))
    peak, status, said = measured("-m", "gecli", "inspect-om", str(path), *view.split())
    limit = 2 * path.stat().st_size + ALLOWED_BYTES
    assert status == 0 and said
    assert peak < limit, f"{peak / MIB:.1f} MiB of {limit / MIB:.1f}"


@pytest.mark.parametrize(
    ("name", "kib", "view"),
    [
        ("names of graph inputs", 750, "--json"),
        ("model attributes", 1100, "--atc-json"),
        ("rows of numbers", 1100, "--json"),
        ("functions in functions", 560, "--atc-json"),
    ],
)
def test_a_document_of_many_objects_is_made_while_it_is_written(name: str, kib: int, view: str, tmp_path: Path) -> None:
    path = tmp_path / "dense.om"
    path.write_bytes(spec.om_wide([(0, hostile_graphs.HOSTILE[name](kib << 10))]))
    peak, status, said = measured("-m", "gecli", "inspect-om", str(path), view)
    limit = 2 * path.stat().st_size + ALLOWED_BYTES
    assert status == 0 and len(said) > MIB
    assert peak < limit, f"{peak / MIB:.1f} MiB of {limit / MIB:.1f}"


@pytest.mark.parametrize("view", ["--json", "--atc-json", "--nodes --show attrs"])
@pytest.mark.parametrize("place", ["node", "model"])
def test_a_long_text_is_escaped_in_pieces(place: str, view: str, tmp_path: Path) -> None:
    path = tmp_path / "text.om"
    value = spec.blob(2, b"\1" * (3 * MIB))
    content = attr_of(value) if place == "node" else graph_of(b"") + model_attr_of(value)
    path.write_bytes(spec.om_wide([(0, content)]))
    peak, status, _ = measured("-m", "gecli", "inspect-om", str(path), *view.split(), "-o", str(tmp_path / "out"))
    limit = 2 * path.stat().st_size + ALLOWED_BYTES
    assert status == 0 and (tmp_path / "out").stat().st_size > (12 * MIB if "json" in view else 0)
    assert peak < limit, f"{peak / MIB:.1f} MiB of {limit / MIB:.1f}"


def test_a_graph_as_compilers_write_it_has_room(tmp_path: Path) -> None:
    path = tmp_path / "large.om"
    graph = hostile_graphs.operators(hostile_graphs.ordinary, 12 * MIB)
    tasks = [spec.kernel_task(k, [512 * k, 512, 512 * k + 512], f"/layers/block/Add_{k}") for k in range(70_000)]
    path.write_bytes(spec.om_wide([(0, graph), (2, spec.task_info(tasks, 4096, 0))]))
    peak, status, said = measured("-m", "gecli", "inspect-om", "--nodes", str(path))
    limit = 2 * path.stat().st_size + ALLOWED_BYTES
    assert status == 0 and len(said.splitlines()) > 70_000
    assert peak < limit, f"{peak / MIB:.1f} MiB of {limit / MIB:.1f}"


def test_a_graph_of_too_many_objects_is_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "many.om"
    path.write_bytes(spec.om_wide([(0, hostile_graphs.HOSTILE["operators with a name"](4 * MIB))]))
    with pytest.raises(InputError, match=r"would need more than [0-9]+ bytes of memory") as caught:
        read_om(path).model()
    assert (caught.value.code, "64 MiB" in caught.value.first.why) == ("G3004", True)


def test_a_zip_of_many_names_is_looked_through_in_pieces(tmp_path: Path) -> None:
    entry = b"PK\x01\x02" + bytes(24) + struct.pack("<HHH", 4, 0, 0) + bytes(12) + b"name"
    directory = entry * 200_000
    end = b"PK\x05\x06" + bytes(8) + struct.pack("<IIH", len(directory), 4, 0)
    path = tmp_path / "zip.om"
    path.write_bytes(b"PK\x03\x04" + directory + end)
    peak, _, said = measured("-c", READ_ALL, str(path))
    assert (said, peak < ALLOWED_BYTES) == ("not-om", True)
    last = entry[:28] + struct.pack("<HHH", 13, 0, 0) + bytes(12) + b"manifest.json"
    end = b"PK\x05\x06" + bytes(8) + struct.pack("<IIH", len(directory) + len(last), 4, 0)
    path.write_bytes(b"PK\x03\x04" + directory + last + end)
    assert measured("-c", READ_ALL, str(path))[2] == "om2"


NODES = 30_000
VIEWS = ("--summary", "--nodes", "--nodes --show attrs,edges,io", "--json --full", "--tasks",
         "--tasks --json", "--tensors", "--vars")  # fmt: skip


@pytest.fixture(scope="module")
def many_nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chain of small operators with a task each; every name, address and layer number is another."""
    desc, stored = spec.descriptor(1, [1, 64]), spec.descriptor(1, [1, 64], size=288)
    names = {"_input_name_key": spec.attr_strings("x1", "x2"), "_input_name_value": spec.attr_ints(0, 1)}
    nodes = [
        spec.operator("x", "Data", 0, [], {"index": spec.attr_i(0)}, [desc], [stored], output_i=[0]),
        spec.operator("v", "Variable", 1, [], {}, [], [stored], output_i=[1 << 37]),
    ]
    before, last = "v", "x"
    for k in range(2, NODES):
        name = f"/layers/block/Add_{k}"
        attrs = {**names, "layer": spec.attr_i(k)}
        places = {"input_i": [512 * k, 512 * k - 512], "output_i": [512 * k + 512]}
        nodes.append(spec.operator(name, "Add", k, [f"{last}:0", f"{before}:0"], attrs, [desc] * 2, [stored], **places))
        before, last = last, name
    attrs = {"task_gen_variable_addr": spec.attr_i(1 << 37), "variable_size": spec.attr_i(512)}
    model = spec.model("many", [spec.graph("g", nodes, inputs=["x:0"])], attrs)
    tasks = [spec.kernel_task(k, [512 * k, 512 * k - 512, 512 * k + 512], f"add_{k}") for k in range(2, NODES)]
    path = tmp_path_factory.mktemp("many") / "many.om"
    path.write_bytes(spec.om_wide([(0, model), (2, spec.task_info(tasks, 4096, 0))]))
    return path


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_of_many_nodes_takes_less_than_twice_the_file_and_64_mib(view: str, many_nodes: Path) -> None:
    peak, status, said = measured("-m", "gecli", "inspect-om", str(many_nodes), *view.split())
    limit = 2 * many_nodes.stat().st_size + ALLOWED_BYTES
    assert status == 0 and len(said.splitlines()) > (NODES - 1 if "nodes" in view or "tasks" in view else 1)
    assert peak < limit, f"{peak / MIB:.1f} MiB of {limit / MIB:.1f}"


def test_nodes_that_were_read_share_what_is_equal_and_refuse_to_be_changed(many_nodes: Path) -> None:
    graph = read_om(many_nodes).model().root
    first, second = graph.nodes[100:102]
    assert first.input_descs is second.input_descs and first.output_descs is second.output_descs
    assert first.input_names == ("x1", "x2") and first.attrs == {"layer": 100}
    with pytest.raises((AttributeError, TypeError)):
        first.output_descs.append(first.output_descs[0])
    with pytest.raises(TypeError):
        graph.nodes[1].attrs["new"] = 1


def test_the_users_of_a_node_that_was_read_are_its_consumers_in_order(many_nodes: Path) -> None:
    graph = read_om(many_nodes).model().root
    for node in graph.nodes[2:NODES:997]:
        uses = [(use.node.name, use.slot) for use in node.users[0]]
        following = graph.nodes[node.seq + 1 : node.seq + 3]
        assert uses == [(other.name, slot) for slot, other in enumerate(following)]
        assert all(other.inputs[slot] == (node, 0) for slot, other in enumerate(following))
    assert graph.nodes[-1].users == [{}] and not graph.nodes[5].control_in
