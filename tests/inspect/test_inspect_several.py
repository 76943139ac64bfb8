"""Several files, damaged files, models inside models, and where the words go."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import REAL, REPOSITORY, Files, Inspect, bundle, model_def, wide_om

VAE = REAL / "ascend310-2022-vae.om"


def test_one_line_each_names_every_bad_file_on_stderr_too(tmp_path: Path, inspect: Inspect, digits_om: Path) -> None:
    (tmp_path / "text.om").write_bytes(b"nothing of the kind")
    (tmp_path / "cut.om").write_bytes(digits_om.read_bytes()[:400])
    (tmp_path / "empty.om").write_bytes(b"")
    shown = inspect("text.om", digits_om, "cut.om", VAE, "empty.om", "missing.om", "--oneline")
    states = [line.split("  ")[:2] for line in shown.out.splitlines()]
    assert states == [
        ["text.om", "bad"], [str(digits_om), "ok"], ["cut.om", "bad"], [str(VAE), "ok"], ["empty.om", "bad"],
        ["missing.om", "bad"],
    ]  # fmt: skip
    assert shown.status == 3
    for name in ("text.om", "cut.om", "empty.om", "missing.om"):
        assert re.search(rf"error\[\w+\].*\n?.*{name}", shown.err), name


def test_one_line_each_of_good_files_ends_well_for_every_kind(inspect: Inspect, files: Files, digits_om: Path) -> None:
    shown = inspect(digits_om, *files.values(), "--oneline", "--summary")
    assert (shown.status, shown.err) == (0, "")
    assert [line.split("  ")[1] for line in shown.out.splitlines()] == ["ok"] * (len(files) + 1)
    rows = json.loads(inspect(*files.values(), "--oneline", "--json").out)["files"]
    assert [row["kind"] for row in rows] == list(files)


def test_strict_makes_a_line_bad_whose_file_has_a_warning(tmp_path: Path, inspect: Inspect, digits_om: Path) -> None:
    data = bytearray(digits_om.read_bytes())
    data[-1] ^= 1
    (tmp_path / "changed.om").write_bytes(data)
    mild, strict = inspect("changed.om", "--oneline"), inspect("changed.om", "--oneline", "--strict")
    assert (mild.status, mild.out.split("  ")[1], "warning[" in mild.err) == (0, "damaged", True)
    assert (strict.status, strict.out.split("  ")[1], "error[" in strict.err) == (3, "bad", True)


def test_the_line_of_a_file_has_the_state_of_the_summary(tmp_path: Path, inspect: Inspect, digits_om: Path) -> None:
    parts = json.loads(inspect(digits_om, "--partitions", "--json").out)["partitions"]
    data = bytearray(digits_om.read_bytes())
    data[next(part["offset"] for part in parts if part["name"] == "WEIGHTS_DATA")] ^= 1
    (tmp_path / "digest.om").write_bytes(data)
    data = bytearray(VAE.read_bytes())
    data[541_498] ^= 1  # the mark of the first kernel
    (tmp_path / "kernels.om").write_bytes(data)
    (tmp_path / "tasks.om").write_bytes(wide_om((0, model_def('name: "m" graph { name: "g" }')), (2, b"\x52\xff")))
    for name, said in (("digest", "bad-checksum"), ("kernels", "kernel store"), ("tasks", "TASK_INFO")):
        summary = inspect(f"{name}.om", "--summary", "--json")
        verdict = json.loads(summary.out)["verdict"]
        line = inspect(f"{name}.om", "--oneline")
        assert (line.status, line.out.split("  ")[1], said in line.out) == (summary.status, "damaged", True)
        [row] = json.loads(inspect(f"{name}.om", "--oneline", "--json").out)["files"]
        assert (row["ok"], row["state"], row["problems"]) == (False, "damaged", verdict["problems"])
        assert row["error"] == verdict["problems"][0]
    [row] = json.loads(inspect(digits_om, "--oneline", "--json").out)["files"]
    assert (row["ok"], row["state"], row["error"], row["problems"], row["loads"]) == (True, "ok", None, [], None)


def test_each_line_says_whether_the_file_loads_on_the_target(inspect: Inspect, digits_om: Path) -> None:
    words = ("--oneline", "--target", "Ascend310", "--for-version", "8.0.RC1")
    shown = inspect(VAE, digits_om, *words)
    answers = [inspect(path, *words[1:]).out.splitlines()[-1].strip() for path in (VAE, digits_om)]
    assert shown.status == 1
    assert [line.split("  ")[-1] for line in shown.out.splitlines()] == answers
    assert [answer.split(" on ")[0] for answer in answers] == ["loads", "does not load"]
    rows = json.loads(inspect(VAE, digits_om, *words, "--json").out)["files"]
    assert [(row["ok"], row["loads"], row["answer"]) for row in rows] == list(zip((True, True), (True, False), answers))
    assert inspect(VAE, *words).status == 0
    assert inspect(VAE, "--oneline", "--target", "Ascend999").status == 2


def test_what_is_said_of_a_detail_without_its_view_fits_the_view(inspect: Inspect) -> None:
    shown = inspect(VAE, "--json", "--target", "Ascend310")
    assert shown.status == 2
    assert "--target belongs to --summary" in shown.err + shown.out
    assert "the view is the whole model (--json alone)" in shown.err + shown.out
    assert "gecli inspect-om FILE --summary --target SOC --json" in shown.err + shown.out
    assert "the view is the summary" in inspect(VAE, "--stats").err


def test_the_status_of_several_files_is_that_of_the_first_bad_one(
    tmp_path: Path, inspect: Inspect, digits_om: Path
) -> None:
    (tmp_path / "bad.om").write_bytes(b"nothing of the kind")
    shown = inspect(digits_om, "bad.om", digits_om, "--io")
    assert shown.status == 3
    assert shown.out.count("== ") == 2 and "bad.om" in shown.err
    assert inspect(digits_om, VAE, "--summary", "--target", "Ascend910B1").status == 1


@pytest.mark.parametrize("words", [["--nodes"], ["--tasks"], ["--tensors"]])
def test_salvage_shows_a_view_whose_part_is_whole(words: list[str], tmp_path: Path, inspect: Inspect) -> None:
    whole = inspect(VAE, *words).out
    (tmp_path / "cut.om").write_bytes(VAE.read_bytes()[:-100])
    shown = inspect("cut.om", *words, "--salvage")
    assert (shown.status, "truncated" in shown.err) == (3, True)
    if words == ["--tasks"]:  # the last partition is the one that was cut
        assert "TASK_INFO is cut: 12728 of its 12828 bytes are in the file" in shown.out
    else:
        assert shown.out == whole


def test_salvage_shows_the_nodes_before_the_cut(tmp_path: Path, inspect: Inspect) -> None:
    names = [row["name"] for row in json.loads(inspect(VAE, "--nodes", "--json").out)["nodes"]]
    counts = []
    for size in (400, 20_000, 80_000, 150_000):
        (tmp_path / "cut.om").write_bytes(VAE.read_bytes()[:size])
        cut = json.loads(inspect("cut.om", "--salvage", "--json").out)["cut_model"]
        found = [node["name"] for node in cut["nodes"]]
        assert found == names[: len(found)]
        counts.append(len(found))
    assert counts == sorted(counts) and counts[0] == 0 and counts[-1] > 40
    shown = inspect("cut.om", "--salvage", "--nodes")
    assert (shown.status, "no-model-def" in shown.err) == (3, True)
    assert re.search(r"\d+ nodes in the first \d+ of 154630 bytes of MODEL_DEF: ", shown.out)


def test_salvage_of_a_sound_file_is_the_view_itself(inspect: Inspect) -> None:
    shown = inspect(VAE, "--io", "--salvage")
    assert (shown.status, shown.out) == (0, inspect(VAE, "--io").out)


def test_models_inside_models_are_listed_one_level_deep_and_on_demand_more(inspect: Inspect, files: Files) -> None:
    plain, deep = (inspect(files["bundle"], *words) for words in ([], ["--recursive"]))
    assert (plain.status, deep.status) == (0, 0)
    assert [line.count("nested") for line in (plain.out, deep.out)] == [2, 4]
    nested = json.loads(inspect(files["bundle"], "--recursive", "--summary", "--json").out)["nested"]
    assert [entry["kind"] for entry in nested] == ["om", "bundle"]
    assert [entry["header_name"] for entry in nested[1]["nested"]] == [nested[0]["header_name"]] * 2


def test_models_inside_models_are_followed_four_deep(tmp_path: Path, inspect: Inspect) -> None:
    inner = (REAL / "hiai-relu.om").read_bytes()
    for _ in range(7):
        inner = bundle(inner)
    (tmp_path / "deep.om").write_bytes(inner)
    assert inspect("deep.om", "--recursive").out.count("nested") == 4


def test_the_last_view_wins_over_no_other(inspect: Inspect, digits_om: Path) -> None:
    for words in (["--io", "--nodes"], ["--io", "--extract", "all", "--to", "out"], ["--nodes", "--oneline"]):
        shown = inspect(digits_om, *words)
        assert (shown.status, "views exclude each other" in shown.err) == (2, True)
    shown = inspect(digits_om, "--full")
    assert (shown.status, "--full belongs to --json" in shown.err) == (2, True)


def test_full_is_the_document_of_json_alone(inspect: Inspect, digits_om: Path) -> None:
    assert inspect(digits_om, "--json", "--full").out == inspect(digits_om, "--json").out


def test_an_address_that_lies_in_no_memory_of_the_model_is_unmapped(inspect: Inspect, digits_om: Path) -> None:
    rows = json.loads(inspect(VAE, "--tasks", "--json").out)["models"][0]["tasks"]
    areas = [area for row in rows for area in row["areas"]]
    assert {"features", "unmapped"} <= set(areas)
    memory = json.loads(inspect(VAE, "--summary", "--json").out)["memory"]
    base, size = memory["task_gen_base_addr"], memory["memory_size"]
    for row in rows:
        for address, area in zip(row["args"], row["areas"], strict=True):
            assert (base <= address < base + size) is (area == "features")
    own = json.loads(inspect(digits_om, "--tasks", "--json").out)["models"][0]["tasks"]
    assert {area for row in own for area in row["areas"]} == {"features", "weights"}


def test_bytes_that_nobody_reads_and_bytes_that_are_there_twice_are_told(
    tmp_path: Path, inspect: Inspect, files: Files
) -> None:
    const = files["ge-text"].read_text()
    start, end = const.index('  op {\n    name: "w"'), const.index('  op {\n    name: "add"')
    double = const[:end] + const[start:end].replace('name: "w"', 'name: "v"') + const[end:]
    (tmp_path / "double.txt").write_text(double)
    rows = json.loads(inspect("double.txt", "--tensors", "--json").out)["tensors"]
    assert [(row["name"], row["users"], row["same_as"]) for row in rows] == [("w", 1, None), ("v", 0, "w")]
    shown = inspect("double.txt", "--tensors").out
    assert "no node reads v: 8 B" in shown and "v has the bytes of w" in shown


@pytest.mark.parametrize("words", [["--nodes"], ["--json"], ["--tensors", "--stats"], ["--atc-json"], ["--tasks"]])
def test_a_reader_that_stops_early_gets_no_complaint(words: list[str]) -> None:
    command = [sys.executable, "-m", "gecli", "inspect-om", str(VAE), *words]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        complaint = process.stderr.read()
        status = process.wait(timeout=60)
    assert (complaint, status in (0, 141, -13)) == (b"", True)


@pytest.mark.parametrize("words", [[], ["--nodes"], ["--vars", "--map"], ["--tensors"]])
def test_no_view_writes_colour_into_a_pipe_or_depends_on_its_width(words: list[str]) -> None:
    command = [sys.executable, "-m", "gecli", "inspect-om", str(VAE), *words]
    shown = [
        subprocess.run(
            command, capture_output=True, timeout=60, check=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": columns, "TERM": "xterm-256color"},
        ).stdout
        for columns in ("20", "300")
    ]  # fmt: skip
    assert shown[0] == shown[1] and b"\x1b" not in shown[0]


@pytest.mark.parametrize("words", [["--oneline"], ["--summary"], ["--summary", "--json"], ["--oneline", "--json"]])
def test_the_status_of_several_files_does_not_depend_on_their_order(
    words: list[str], tmp_path: Path, inspect: Inspect, digits_om: Path
) -> None:
    """A file that cannot be read is graver than one that does not load."""
    (tmp_path / "none.om").write_bytes(b"")
    files = [Path("none.om"), VAE, digits_om]
    for order in (files, files[::-1], [VAE, Path("none.om"), digits_om]):
        assert inspect(*order, *words, "--target", "Ascend910B1").status == 3
    for order in ([VAE, digits_om], [digits_om, VAE]):
        assert inspect(*order, *words, "--target", "Ascend910B1").status == 1


def proto_field(number: int, body: bytes) -> bytes:
    """A length-delimited field of a message."""
    length = bytes((len(body),)) if len(body) < 128 else bytes((len(body) & 0x7F | 0x80, len(body) >> 7))
    return bytes((number << 3 | 2,)) + length + body


def test_a_flow_model_lists_its_submodels_and_shows_its_graph(tmp_path: Path, inspect: Inspect) -> None:
    graph = model_def('name: "flow" graph { name: "g" op { name: "a" type: "FlowNode" } }')
    inner = (REAL / "hiai-relu.om").read_bytes()
    submodel = proto_field(1, b"first") + proto_field(2, b"NPU") + proto_field(3, inner)
    data = bytearray(wide_om((0, graph), (6, b""), (7, submodel), (7, proto_field(1, b"outside"))))
    data[82] = 3
    (tmp_path / "flow.om").write_bytes(data)
    shown = inspect("flow.om")
    assert (shown.status, shown.err) == (0, "")
    assert "nested     first om at" in shown.out and "nodes      1: FlowNode 1" in shown.out
    assert "needs      loader: gecli run does not support flow models" in shown.out
    assert inspect("flow.om", "--nodes").out.splitlines()[1].split()[:3] == ["0", "a", "FlowNode"]
    for view in ("--partitions", "--io", "--tasks", "--kernels", "--json", "--atc-json", "--vars"):
        assert inspect("flow.om", view).status == 0


def test_a_submodel_that_holds_no_om_is_listed_and_the_file_that_it_names_is_not_opened(
    tmp_path: Path, inspect: Inspect
) -> None:
    graph = model_def('name: "flow" graph { name: "g" op { name: "a" type: "FlowNode" } }')
    outside = proto_field(1, b"outside") + proto_field(2, b"HOST_CPU") + proto_field(9, b"/no/such/dir/m.om")
    source = proto_field(1, b"source") + proto_field(4, proto_field(1, b"g"))
    long = proto_field(1, b"long") + b"\x1a\x7fIMOD"
    parts = [outside, source, proto_field(1, b"none"), long, b"\xff\xff"]
    data = bytearray(wide_om((0, graph), (6, b""), *((7, each) for each in parts)))
    data[82] = 3
    (tmp_path / "flow.om").write_bytes(data)
    shown = inspect("flow.om", "--summary", "--json")
    nested = json.loads(shown.out)["nested"]
    assert [(entry["name"], entry["kind"], entry["file"]) for entry in nested] == [
        ("outside", "file", "/no/such/dir/m.om"), ("source", "graph", None), ("none", "empty", None),
        ("long", "empty", None), (None, "empty", None),
    ]  # fmt: skip
    assert (shown.status, shown.err.count("bad-proto: a FLOW_SUBMODEL of")) == (0, 2)
    text = inspect("flow.om").out
    assert "nested     outside is in the file /no/such/dir/m.om, which is not opened" in text
    assert "nested     source is a graph of 3 bytes at" in text and "nested     none holds no model" in text
    assert inspect("flow.om", "--strict").status == 3


def test_the_summary_counts_weights_and_tasks_of_all_models(tmp_path: Path, inspect: Inspect) -> None:
    def graph(name: str) -> bytes:
        return model_def(f'name: "{name}" graph {{ name: "{name}_g" op {{ name: "n" type: "NoOp" }} }}')

    tasks = proto_field(10, b"\x10\x13")  # END_GRAPH
    models = (
        [(0, graph("root")), (2, tasks)],
        [(0, graph("a")), (1, bytes(512)), (2, tasks)],
        [(0, graph("b")), (1, bytes(64))],
    )
    (tmp_path / "m.om").write_bytes(several_models(*models))
    shown = json.loads(inspect("m.om", "--summary", "--json").out)
    assert (shown["memory"]["weight_size"], shown["tasks"]) == (576, {"count": 2, "types": {"END_GRAPH": 2}})
    assert "weights 576 B" in inspect("m.om").out


def test_every_field_of_the_header_is_in_the_document(tmp_path: Path, inspect: Inspect) -> None:
    data = bytearray(wide_om((0, model_def('name: "m" graph { name: "g" }')), (1, bytes(512))))
    places = {"is_checksum": 81, "genmode": 83, "ops": 116, "platform_type": 180, "need_check_os_cpu_info": 192,
              "is_unknow_model": 193}  # fmt: skip
    for number, at in enumerate(places.values(), 3):
        data[at] = number
    data[120:123] = b"abc"
    (tmp_path / "m.om").write_bytes(data)
    header = json.loads(inspect("m.om", "--summary", "--json").out)["header"]
    assert [header[name] for name in places] == [3, 4, 5, 6, 7, 8]
    assert header["userdefineinfo"] == (b"abc" + bytes(29)).hex()


def test_a_preload_model_lists_its_partitions_and_says_that_it_has_no_graph(tmp_path: Path, inspect: Inspect) -> None:
    (tmp_path / "p.exeom").write_bytes(wide_om((20, bytes(24)), (21, bytes(8)), (9, bytes(16))))
    shown = inspect("p.exeom")
    assert (shown.status, shown.err) == (0, "")
    assert "PRE_MODEL_DESC" in shown.out and "note       preload model: graph not available" in shown.out
    for view in ("--partitions", "--json", "--kernels"):
        assert inspect("p.exeom", view).status == 0
    refused = inspect("p.exeom", "--nodes")
    assert (refused.status, "preload model: graph not available" in refused.err) == (3, True)
    assert inspect("p.exeom", "--strict").status == 0


def test_strict_finds_what_is_wrong_in_a_part_that_the_view_does_not_show(tmp_path: Path, inspect: Inspect) -> None:
    whole = VAE.read_bytes()
    store = next(
        row for row in json.loads(inspect(VAE, "--partitions", "--json").out)["partitions"] if row["type"] == 3
    )
    damaged = bytearray(whole)
    damaged[store["offset"]] ^= 0xFF
    (tmp_path / "kernels.om").write_bytes(damaged)
    mild, strict = inspect("kernels.om", "--io"), inspect("kernels.om", "--io", "--strict")
    assert (mild.status, mild.err) == (0, "")
    assert (strict.status, "error[G3013]" in strict.err, strict.out) == (3, True, mild.out)
    assert "verdict    1 problem" in inspect("kernels.om").out


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("rows", "columns", "drawn"), [(3, 80, True), (5000, 80, False), (3, 40, False), (3, 56, True)]
)
def test_a_table_is_drawn_on_a_terminal_where_it_is_short_and_fits(
    rows: int, columns: int, drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gecli.cli.console import Console
    from gecli.report.inspect.command import Output
    from gecli.report.inspect.view import Table

    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    screen = Console(stdout=stream, environ={"TERM": "xterm"})
    cells = [(f"{1000 + k}", "FRACTAL_Z", "f" * 30, "x") for k in range(rows)]
    table = Table(("number", "format", "road", "name"), cells, frozenset(("number",)))
    Output(screen, stream.write, is_file=False).table(table)
    text = stream.getvalue()
    assert ("─" in text) is drawn
    assert text.count("1002") == 1 and text.count("FRACTAL_Z") == rows  # numbers and formats stay whole
    assert ("f" * 30 in text) is (not drawn or columns > 60)


def several_models(*models: list[tuple[int, bytes]]) -> bytes:
    """One file with a table and partitions for each model, as files of dynamic shapes have."""
    bodies = [wide_om(*parts)[256:] for parts in models]
    header = bytearray(wide_om((0, b""))[:256])
    header[156:160] = len(models).to_bytes(4, "little")
    header[184:192] = sum(map(len, bodies)).to_bytes(8, "little")
    header[193] = 1
    return bytes(header) + b"".join(bodies)


def test_every_model_of_a_file_is_in_every_view(tmp_path: Path, inspect: Inspect) -> None:
    def graph(name: str) -> bytes:
        desc = '{ dtype: DT_FLOAT layout: "ND" shape { dim: 2 } }'
        value = f'value {{ t {{ desc {desc} data: "\\000\\000\\200?\\000\\000\\000@" }} }}'
        const = f'op {{ name: "{name}_c" type: "Const" attr {{ key: "value" {value} }} output_desc {desc} }}'
        return model_def(f'name: "{name}" graph {{ name: "{name}_g" {const} }}')

    (tmp_path / "m.om").write_bytes(several_models([(0, graph("root"))], [(0, graph("sub")), (1, bytes(512))]))
    shown = inspect("m.om")
    assert (shown.status, shown.err) == (0, "")
    assert "models     2" in shown.out and "dynamic shapes" in shown.out and "nodes      1: Const 1" in shown.out
    nodes = json.loads(inspect("m.om", "--nodes", "--json").out)["nodes"]
    assert [(row["model"], row["graph"], row["name"]) for row in nodes] == [
        (0, "root_g", "root_c"), (1, "sub_g", "sub_c")
    ]  # fmt: skip
    assert "model 1, graph sub_g" in inspect("m.om", "--nodes").out
    assert inspect("m.om", "--nodes", "--graph-name", "sub_g").out.count("Const") == 1
    tensors = json.loads(inspect("m.om", "--tensors", "--json").out)["tensors"]
    assert [(row["name"], row["same_as"]) for row in tensors] == [("root_c", None), ("sub_c", "root_c")]
    models = json.loads(inspect("m.om", "--json").out)["models"]
    assert [model["name"] for model in models] == ["root", "sub"]
    partitions = json.loads(inspect("m.om", "--partitions", "--json").out)["partitions"]
    assert [(row["model"], row["name"]) for row in partitions] == [
        (0, "MODEL_DEF"), (1, "MODEL_DEF"), (1, "WEIGHTS_DATA")
    ]  # fmt: skip
    assert json.loads(inspect("m.om", "--atc-json").out)["name"] == "root"
    assert inspect("m.om", "--extract", "sub_c", "--to", "out").status == 0


def test_salvage_lists_the_partitions_of_all_models_and_shows_those_that_are_whole(
    tmp_path: Path, inspect: Inspect
) -> None:
    def graph(name: str) -> bytes:
        return model_def(f'name: "{name}" graph {{ name: "{name}_g" op {{ name: "{name}_n" type: "NoOp" }} }}')

    names = ("root", "one", "two")
    data = several_models(*[[(0, graph(name)), (1, bytes(64))] for name in names])
    ends = [data.index(f"{name}_n".encode()) + 40 for name in names]  # in the weights
    for whole, size in enumerate([ends[0], ends[1], ends[2], len(data) - 1]):
        (tmp_path / "cut.om").write_bytes(data[:size])
        shown = inspect("cut.om", "--salvage", "--nodes", "--json")
        assert shown.status == 3
        assert [row["name"] for row in json.loads(shown.out)["nodes"]] == [f"{n}_n" for n in names[: min(whole + 1, 3)]]
        rows = json.loads(inspect("cut.om", "--salvage", "--json").out)["partitions"]
        assert [row["index"] for row in rows] == list(range(len(rows)))
        assert [row["model"] for row in rows] == [0, 0, 1, 1, 2, 2][: len(rows)] and len(rows) >= 2 * min(whole + 1, 3)
    assert inspect("cut.om", "--salvage").out.splitlines()[2].split() == ["model", "#", "partition", "offset", "bytes",
                                                                          "there"]  # fmt: skip


def test_a_part_of_a_file_without_a_container_is_the_file(inspect: Inspect, files: Files) -> None:
    shown = inspect(files["idx"], "--hex", "header")
    assert (shown.status, "a cache index is one part, file" in shown.err) == (2, True)
    assert (
        inspect(files["idx"], "--hex", "file:0:4").out
        == '00000000  7b 22 63 61                                       |{"ca|\n'
    )


def test_the_summary_names_no_framework_for_a_graph_that_comes_from_none(
    inspect: Inspect, conv_train_om: Path, digits_om: Path
) -> None:
    assert "  from GE  by gecli " in inspect(conv_train_om, "--summary").out
    assert "  from Onnx  by gecli " in inspect(digits_om, "--summary").out
    assert "framework_type[GE]" in inspect(conv_train_om, "--info").out
