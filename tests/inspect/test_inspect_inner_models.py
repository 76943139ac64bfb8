"""Models inside a flow model or a bundle: what --strict finds in them, and how deep they are looked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from .conftest import REAL, Inspect, bundle, model_def, wide_om


def field(number: int, body: bytes) -> bytes:
    """A length-delimited field of a message."""
    length, left = b"", len(body)
    while left >= 0x80:
        length, left = length + bytes((left & 0x7F | 0x80,)), left >> 7
    return bytes((number << 3 | 2,)) + length + bytes((left,)) + body


def submodel(name: str, held: bytes) -> bytes:
    return field(1, name.encode()) + field(2, b"NPU") + field(3, held)


def flow_of(*submodels: tuple[str, bytes], listed: Sequence[str] = ()) -> bytes:
    """A flow model whose submodels hold these OM files."""
    graph = model_def('name: "flow" graph { name: "g" op { name: "a" type: "FlowNode" } }')
    names = b"".join(field(3, name.encode()) for name in listed)
    parts = [(7, submodel(name, held)) for name, held in submodels]
    data = bytearray(wide_om((0, graph), (6, names), *parts))
    data[82] = 3
    return bytes(data)


def with_byte(data: bytes, place: int, value: int) -> bytes:
    return data[:place] + bytes((value,)) + data[place + 1 :]


def test_a_submodel_that_is_listed_and_not_there_is_a_problem(tmp_path: Path, inspect: Inspect) -> None:
    inner = (REAL / "hiai-relu.om").read_bytes()
    (tmp_path / "flow.om").write_bytes(flow_of(("b", inner), listed=("b", "lost", "gone")))
    shown = inspect("flow.om", "--strict")
    assert (shown.status, "lists 2 submodels that no FLOW_SUBMODEL is: 'lost', 'gone'" in shown.err) == (3, True)
    assert "sound" not in inspect("flow.om").out
    (tmp_path / "flow.om").write_bytes(flow_of(("b", inner), listed=("b",)))
    assert (inspect("flow.om", "--strict").status, inspect("flow.om").out.count("sound")) == (0, 1)


@pytest.mark.parametrize("options", [[], ["--recursive"], ["--oneline"], ["--json"], ["--partitions"]])
@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("part", ["digest", "MODEL_DEF"])
def test_strict_reads_the_models_inside(
    part: str, depth: int, options: list[str], tmp_path: Path, inspect: Inspect, digits_om: Path
) -> None:
    whole = digits_om.read_bytes()
    position = len(whole) - 1 if part == "digest" else 900  # a number of a task, or inside an operator
    spoilt = with_byte(whole, position, whole[position] ^ 0x55)
    held = {"good.om": whole, "bad.om": spoilt}
    for name, data in held.items():
        for level in range(depth):
            data = flow_of((f"level{level}", data)) if level % 2 == 0 else bundle(data)
        (tmp_path / name).write_bytes(data)
    assert inspect("good.om", "--strict", *options).status == 0
    shown = inspect("bad.om", "--strict", *options)
    assert (shown.status, "G3006" in shown.err, "submodel 'level0'" in shown.err) == (3, True, True)
    assert part == "digest" or "bad-proto" in shown.err or "bad-graph" in shown.err


def test_models_deeper_than_four_levels_are_a_note(tmp_path: Path, inspect: Inspect) -> None:
    data = (REAL / "hiai-relu.om").read_bytes()
    for _ in range(4):
        data = flow_of(("inner", data))
    (tmp_path / "four.om").write_bytes(data)
    assert "deeper than" not in inspect("four.om", "--recursive").out
    (tmp_path / "deep.om").write_bytes(flow_of(("inner", data)))
    assert "deeper than" not in inspect("deep.om").out
    shown = inspect("deep.om", "--recursive")
    assert (shown.status, "note       models lie deeper than 4 levels" in shown.out) == (0, True)
    assert inspect("deep.om", "--strict").out.count("deeper than 4") == 1


def test_a_flow_model_of_gecli_names_one_loader(tmp_path: Path, inspect: Inspect, digits_om: Path) -> None:
    model = digits_om.read_bytes()
    record = next(part for part in json.loads(inspect(digits_om, "--partitions", "--json").out)["partitions"]
                  if part["name"] == "MODEL_DEF")  # fmt: skip
    graph = model[record["offset"] : record["offset"] + record["size"]]
    data = bytearray(wide_om((0, graph), (6, b""), (7, submodel("a", model))))
    data[82] = 3
    (tmp_path / "flow.om").write_bytes(data)
    assert inspect("flow.om").out.count("needs      loader") == 1
