"""The mode-1 document follows atc's rules (cli.md 2.2)."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from gecli.report.inspect.atc_document import atc_document, c_escaped, float_text, group_name
from gecli.report.inspect.json_text import json_chunks
from gecli.report.inspect.model_fields import ModelFields
from gecli.wire.byte_source import MemorySource

from .conftest import REAL, Inspect, wide_om


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def f(number: int, value: int | bytes | float) -> bytes:
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def attr(key: bytes, value: bytes) -> bytes:
    return f(1, key) + f(2, value)


def document(model: bytes) -> dict[str, Any]:
    fields = ModelFields(MemorySource(model), 0)
    found: dict[str, Any] = json.loads("".join(json_chunks(atc_document(fields))))
    return found


def op_of(op: bytes, model: bytes = b"") -> Any:
    return document(f(7, f(6, op)) + model)["graph"][0]["op"][0]


def value_of(value: bytes) -> Any:
    return op_of(f(1, b"n") + f(10, attr(b"a", value)))["attr"]


def test_unset_fields_are_absent_and_empty_elements_null() -> None:
    assert document(f(1, b"m") + f(2, 2)) == {"name": "m", "version": 2}
    assert op_of(f(1, b"n") + f(33, b"") + f(33, f(2, 1)))["input_desc"] == [None, {"dtype": "DT_FLOAT"}]
    assert op_of(f(1, b"n") + f(33, f(3, b"") + f(2, 1)))["input_desc"] == [{"dtype": "DT_FLOAT"}]


def test_the_named_fields_are_dropped_at_every_level() -> None:
    desc = f(1, b"d") + f(10, 64) + f(11, 8) + f(18, 512)
    shown = op_of(f(1, b"n") + f(34, desc) + f(30, 4) + f(31, 8) + f(29, 12) + f(10, attr(b"size", f(3, 5))))
    assert shown == {
        "name": "n",
        "output_i": [12],
        "output_desc": [{"name": "d"}],
        "attr": [{"key": "size", "value": {"i": 5}}],
    }


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (f(3, 0), {"i": 0}),
        (f(3, -1), {"i": -1}),
        (f(5, 0), {"b": False}),
        (f(2, b"text\n\x01\xe4\xb8"), {"s": "text\\n\\001\\344\\270"}),
        (f(4, 0.5), {"f": "0.5"}),
        (f(4, -1.0), {"f": "-1"}),
        (f(1, f(20, 2)), {"list": {"val_type": "VT_LIST_INT"}}),
        (f(1, f(20, 2) + f(3, b"\x01\x02")), {"list": {"i": [1, 2], "val_type": "VT_LIST_INT"}}),
        (f(1, f(2, b"raw\xff") + f(20, 1)), {"list": {"s": ["raw"], "val_type": "VT_LIST_STRING"}}),
        (f(14, f(1, f(1, b"\x01")) + f(1, b"")), {"list_list_int": {"list_list_i": [{"list_i": [1]}, None]}}),
        (f(7, b"xx"), None),
        (f(15, 1), {"dt": 1}),
    ],
)
def test_a_value_is_shown_as_atc_shows_it(value: bytes, shown: Any) -> None:
    assert value_of(value) == [{"key": "a", "value": shown}]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (f(3, 7) + f(2, b"text"), {"s": "text"}),
        (f(2, b"text") + f(3, 7), {"i": 7}),
        (f(1, f(20, 2)) + f(15, 1), {"dt": 1}),
        (f(12, f(1, f(2, 1))) + f(12, b"") + f(5, 0), {"b": False}),
        (f(11, f(2, 1) + f(13, 1)) + f(11, f(1, b"d") + f(13, 0)), {"td": {"name": "d", "dtype": "DT_FLOAT"}}),
        (f(3, 7) + f(2, 1), {"i": 7}),  # field 2 as a number is no field of the message
        (f(11, f(10, b"\x01") + f(2, 27)), {"td": {"dtype": "DT_BF16"}}),
        (f(1, f(3, b"") + f(12, b"")), {"list": None}),
    ],
)  # fmt: skip
def test_a_field_that_is_there_twice_or_in_another_form_counts_as_in_protobuf(value: bytes, shown: Any) -> None:
    absent = {key: inner for key, inner in shown.items() if inner is not None}
    assert value_of(value) == [{"key": "a", "value": absent or None}]
    assert op_of(f(1, b"n") + f(24, 5) + f(25, b"") + f(28, b"\x01")) == {"name": "n", "input_i": [1]}


def nested(levels: int, inner: bytes, in_function: bool) -> bytes:
    """An attribute with graphs inside graphs, in a function when that is wanted."""
    value = f(13, inner)
    for _ in range(levels):
        value = f(13, f(1, b"g") + f(6, f(1, b"o") + f(10, attr(b"b", value))))
    return f(10, f(1, b"f") + f(2, attr(b"k", value))) if in_function else value


@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("inner", [f(1, b"leaf"), f(1, b"leaf") + b"\x0b"], ids=["sound", "broken"])
def test_a_graph_in_an_attribute_is_shown_or_said_to_be_left_out(
    inner: bytes, in_function: bool, tmp_path: Path, inspect: Inspect
) -> None:
    told = []
    for levels in (0, 5, *range(21, 28), 60):
        op = f(1, b"n") + f(2, b"If") + f(10, attr(b"a", nested(levels, inner, in_function)))
        (tmp_path / "m.om").write_bytes(wide_om((0, f(1, b"m") + f(7, f(1, b"g") + f(6, op)))))
        for words in (["--json"], ["--atc-json"]):
            shown = inspect("m.om", *words)
            is_said = "m.om: bad-proto: attribute 'a' of 'n' holds a graph of which not all can be shown: " in shown.err
            assert (shown.status, "leaf" in shown.out) == (0, not is_said), levels
        told.append(is_said)
    assert told == sorted(told) and told[-1] and told[0] is (inner[-1:] == b"\x0b")
    assert inspect("m.om", "--strict").status == 3


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (f(2, b"a") + f(3, b"\x01") + f(20, 2), [1]),
        (f(2, b"a") + f(3, b"\x01") + f(20, 3), ["a"]),  # of the kind that it names there are none
        (f(2, b"a") + f(12, b"\x1b") + f(20, 10), {"type": "list_data_type", "value": [27]}),
        (f(2, b"a") + f(3, b"\x01"), ["a"]),
    ],
)
def test_the_type_of_a_list_says_which_of_its_fields_is_the_list(
    content: bytes, shown: Any, tmp_path: Path, inspect: Inspect
) -> None:
    op = f(1, b"n") + f(2, b"Relu") + f(10, attr(b"a", f(1, content)))
    (tmp_path / "m.om").write_bytes(wide_om((0, f(1, b"m") + f(7, f(1, b"g") + f(6, op)))))
    whole = json.loads(inspect("m.om", "--json").out)["models"][0]["graphs"][0]["ops"][0]["attr"]["a"]
    node = json.loads(inspect("m.om", "--nodes", "--show", "attrs", "--json").out)["nodes"][0]["attrs"]["a"]
    plain = node if not isinstance(node[0], dict) else {"type": "list_data_type", "value": [27]}
    assert (whole, plain) == (shown, shown)


def test_an_attribute_without_a_value_has_a_key_only() -> None:
    assert value_of(b"") == [{"key": "a"}]


def test_numbers_of_repeated_floats_stay_numbers() -> None:
    data = struct.pack("<3f", 0.5, 2.0, float("nan"))
    assert value_of(f(1, f(4, data) + f(20, 3))) == [
        {"key": "a", "value": {"list": {"f": [0.5, 2.0, None], "val_type": "VT_LIST_FLOAT"}}}
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.1, "0.1"), (1e-05, "1e-05"), (123456.0, "123456"), (-123456.0, "-123456"), (1.5e38, "1.5e+38")],
)
def test_a_short_float_is_text(value: float, shown: str) -> None:
    assert float_text(value) == shown


def test_a_float_of_more_than_nine_characters_is_a_number() -> None:
    assert float_text(-1.23457e-05) == -1.23457e-05


def test_bytes_are_escaped_as_in_c() -> None:
    assert c_escaped(b"a\"'\\\t\r\n\x00\x7f\xff~") == "a\\\"\\'\\\\\\t\\r\\n\\000\\177\\377~"


def test_attributes_are_sorted_by_key() -> None:
    shown = op_of(f(10, attr(b"b", f(3, 1))) + f(10, attr(b"a", f(3, 2))))
    assert [entry["key"] for entry in shown["attr"]] == ["a", "b"]


def compression(names: list[bytes], values: list[bytes], strings: list[bool]) -> bytes:
    enumerations = [
        (b"attr_name_enum", f(1, b"".join(f(2, name) for name in names))),
        (b"attr_value_enum", f(1, b"".join(f(2, value) for value in values))),
        (b"attrs_use_string_value", f(1, f(5, bytes(strings)))),
        (b"om_compress_version", f(3, 1)),
    ]
    return b"".join(f(11, attr(key, value)) for key, value in enumerations)


def test_compressed_names_and_values_are_undone_and_the_dictionary_removed() -> None:
    names = [b"index", b"_is_x"] + [b"n%d" % k for k in range(2, 128)]
    model = compression(names, [b"zero", b"one"], [False, True] + [False] * 126)
    op = (
        f(10, attr(b"\x00\x02", f(3, 1)))
        + f(10, attr(b"\x00\x01\x02", f(3, 7)))
        + f(34, f(2, 1) + f(5, attr(b"\x00\x02", f(1, f(3, b"\x00\x01")))))
    )
    shown = document(f(7, f(6, op)) + model + f(11, attr(b"stream_num", f(3, 1))))
    assert shown["attr"] == [{"key": "stream_num", "value": {"i": 1}}]
    found = shown["graph"][0]["op"][0]
    assert found["attr"] == [{"key": "_is_x", "value": {"s": "one"}}, {"key": "n127", "value": {"i": 7}}]
    assert found["output_desc"][0]["attr"] == [
        {"key": "_is_x", "value": {"list": {"s": ["zero", "one"], "val_type": "VT_LIST_STRING"}}}
    ]


@pytest.mark.parametrize(
    ("scope", "name"), [(0, None), (3, "group_op_ub_3_1"), (0x20000, "group_op_l1_2_1"), (0x20003, "group_op_l1_2_1")]
)
def test_a_fused_group_has_a_name(scope: int, name: str | None) -> None:
    assert group_name(scope, 1) == name


def test_operators_of_a_fused_group_get_the_synthetic_attribute() -> None:
    record = f(1, b"n") + f(10, attr(b"fusion_scope", f(3, 0x50000)))
    model = f(11, attr(b"fm", f(1, f(7, record) + f(20, 5))))
    assert op_of(f(1, b"n") + f(22, 2), model)["attr"] == [{"key": "group_op_name", "value": {"s": "group_op_l1_5_2"}}]


def test_nesting_has_no_limit_of_twenty() -> None:
    value = f(3, 1)
    for _ in range(24):
        value = f(10, f(2, attr(b"k", value)))
    shown: Any = value_of(value)[0]["value"]
    for _ in range(24):
        shown = shown["func"]["attr"][0]["value"]
    assert shown == {"i": 1}


def test_a_real_file_has_its_nodes_and_no_dropped_field(inspect: Inspect) -> None:
    shown = json.loads(inspect(REAL / "ascend310-2022-vae.om", "--atc-json").out)
    assert sorted(shown) == ["attr", "custom_version", "graph", "name", "version"]
    ops = shown["graph"][0]["op"]
    assert (len(ops), "schema" in shown) == (46, False)
    assert not any(
        {"size", "data_offset", "weight_size"} & set(desc) for op in ops for desc in op.get("output_desc", [])
    )


def test_the_document_can_be_written_to_a_file(tmp_path: Path, inspect: Inspect, digits_om: Path) -> None:
    shown = inspect(digits_om, "--atc-json", "-o", "model.json")
    assert (shown.status, shown.out) == (0, "")
    assert json.loads((tmp_path / "model.json").read_text())["name"] == "digits"
