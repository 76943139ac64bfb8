"""`--input-shape` and `--dim`: the grammar, what it does to inputs, and each of its errors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gecli.errors import InvalidOption
from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.loading.input_shapes import parse_input_shapes
from gecli.loading.shape_binding import Binding, ModelInput, bind_input_shapes

IMAGES = ModelInput("images", TensorDesc(DataType.FLOAT, (-1, 3, 640, 640)), ("N", None, None, None))
SCALE = ModelInput("im_scale", TensorDesc(DataType.FLOAT, (-1, 2)), ("N", None))
COLON = ModelInput("in:0", TensorDesc(DataType.FLOAT, (-1, -1)), (None, None))
SCALAR = ModelInput("lr", TensorDesc(DataType.FLOAT, ()))
ANY = ModelInput("any", TensorDesc(DataType.FLOAT, UNKNOWN_RANK))


def bind(inputs: list[ModelInput], *texts: str, dims: tuple[str, ...] = ()) -> Binding:
    return bind_input_shapes(inputs, parse_input_shapes(texts, dims), {"w": "an initializer (a weight)"}, "m.onnx")


@pytest.mark.parametrize(
    ("text", "shape", "ranges"),
    [
        ("images:1,3,640,640", (1, 3, 640, 640), None),
        (" images : 1 , 3 , 640 , 640 ", (1, 3, 640, 640), None),
        ("images:1,3,640,640;", (1, 3, 640, 640), None),
        ("images=1x3x640x640", (1, 3, 640, 640), None),
        ("images:[1,3,640,640]", (1, 3, 640, 640), None),
        ("#0:1,3,640,640", (1, 3, 640, 640), None),
        ("1,3,640,640", (1, 3, 640, 640), None),
        ("images:-1,3,640,640", (-1, 3, 640, 640), ((0, -1), (3, 3), (640, 640), (640, 640))),
        ("images:1~8,3,640,640", (-1, 3, 640, 640), ((1, 8), (3, 3), (640, 640), (640, 640))),
        ("images:4~4,3,640,640", (4, 3, 640, 640), None),
        ("1~8,3,640,640", (-1, 3, 640, 640), ((1, 8), (3, 3), (640, 640), (640, 640))),
        ("images:[1~8,3,-1,640]", (-1, 3, -1, 640), ((1, 8), (3, 3), (0, -1), (640, 640))),
    ],
)
def test_every_accepted_form_gives_its_shape(
    text: str, shape: tuple[int, ...], ranges: tuple[tuple[int, int], ...] | None
) -> None:
    desc = bind([IMAGES], text).desc(0)
    assert (desc.shape, desc.shape_range) == (shape, ranges)


def test_the_name_ends_at_the_last_colon_and_may_hold_minus_one() -> None:
    inputs = [COLON, ModelInput("x-1", TensorDesc(DataType.FLOAT, (-1, 3)))]
    result = bind(inputs, "in:0:2,5;x-1:1,3")
    assert [row.desc.shape for row in result.rows] == [(2, 5), (1, 3)]
    assert all(row.desc.shape_range is None for row in result.rows)


def test_a_name_with_a_colon_may_be_followed_by_an_equals_sign() -> None:
    assert bind([COLON], "in:0=2x5").desc(0).shape == (2, 5)


def test_the_option_may_be_repeated_and_inputs_not_listed_keep_their_shape() -> None:
    result = bind([IMAGES, SCALE, SCALAR], "im_scale:1~8,2", "images:2,3,640,640")
    assert [row.desc.shape for row in result.rows] == [(2, 3, 640, 640), (-1, 2), ()]


def test_positions_count_over_repeated_options() -> None:
    assert [row.desc.shape for row in bind([SCALE, IMAGES], "1,2", "1,3,640,640").rows] == [(1, 2), (1, 3, 640, 640)]


def test_brackets_in_a_row_are_positions() -> None:
    assert [row.desc.shape for row in bind([SCALE, SCALE], "[1,2],[3,2]").rows[:2]] == [(1, 2), (3, 2)]


def test_an_empty_shape_is_a_scalar() -> None:
    assert bind([SCALAR], "lr:").desc(0).shape == ()


def test_a_scalar_input_and_an_input_of_unknown_rank_take_any_shape() -> None:
    assert [row.desc.shape for row in bind([SCALAR, ANY], "lr:1;any:2,3").rows] == [(1,), (2, 3)]


def test_dim_binds_a_symbol_in_every_input_and_an_item_wins_for_the_rest() -> None:
    result = bind([IMAGES, SCALE], dims=("N=4",))
    assert [row.desc.shape for row in result.rows] == [(4, 3, 640, 640), (4, 2)]


def test_the_table_shows_what_the_model_says_what_was_given_and_what_is_compiled() -> None:
    batch = ModelInput("im_scale", TensorDesc(DataType.FLOAT, (-1, 2)), ("M", None))
    rows = bind([IMAGES, batch], "im_scale:1~8,2", dims=("N=4",)).rows
    assert [(row.model_shape, row.given, row.compiled) for row in rows] == [
        ("[N,3,640,640]", "--dim N=4", "[4,3,640,640]"),
        ("[M,2]", "1~8,2", "[-1,2] range [(1,8),(2,2)]"),
    ]
    assert rows[1].as_json()["range"] == [[1, 8], [2, 2]]


def test_replacing_a_fixed_dim_by_another_static_one_is_allowed_with_a_warning() -> None:
    result = bind([IMAGES], "images:1,3,320,640")
    assert result.desc(0).shape == (1, 3, 320, 640)
    assert [warning.severity for warning in result.warnings] == ["warning"]
    assert result.warnings[0].message == "dimension 2 of 'images' is 640 in the model, 320 given"
    assert result.warnings[0].do == '--input-shape "images:1,3,640,640"'


ROWS_OF_CURES = [
    ("image:1,3,640,640", '--input-shape "images:1,3,640,640"'),
    ("input:1,2048", '--input-shape "images:1,3,640,640;im_scale:1,2"'),
    ("image:1,2048", '--input-shape "images:1,3,640,640;im_scale:1,2"'),
    ("scale:4,2", '--input-shape "im_scale:4,2"'),
    ("#7:1", '--input-shape "images:1,3,640,640;im_scale:1,2"'),
    ("images:1,3,640,640,im_scale:1,2", '--input-shape "images:1,3,640,640;im_scale:1,2"'),
    ("images=1x3x640x640, im_scale=1x2", '--input-shape "images=1x3x640x640;im_scale=1x2"'),
    ("images:1,3,640", '--input-shape "images:1,3,640,640"'),
    ("w:1,3", '--input-shape "images:1,3,640,640;im_scale:1,2"'),
]


@pytest.mark.parametrize(("text", "cure"), ROWS_OF_CURES)
def test_the_cure_of_a_name_or_rank_works_when_it_is_copied(text: str, cure: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        bind([IMAGES, SCALE], text)
    assert caught.value.first.do == cure
    assert bind([IMAGES, SCALE], cure.removeprefix('--input-shape "').rstrip('"')).warnings == []


def test_a_comma_between_inputs_is_answered_with_the_semicolon() -> None:
    with pytest.raises(InvalidOption) as caught:
        bind([IMAGES, SCALE], "images:1,3,640,640,im_scale:1,2")
    assert "a semicolon separates inputs" in caught.value.first.why


def test_names_that_another_model_may_have_are_left_to_it() -> None:
    shapes = replace(parse_input_shapes(["images:1,3,640,640;other:1"], ["M=2"]), for_several_models=True)
    result = bind_input_shapes([IMAGES], shapes)
    assert result.desc(0).shape == (1, 3, 640, 640)
    assert [(fault.code, fault.actual) for fault in result.unmatched] == [("E10016", "other"), ("E10016", "M")]


@pytest.mark.parametrize(
    ("texts", "dims", "code", "words"),
    [
        (("images:1;;im_scale:2,2",), (), "E10002", "empty item"),
        (("images",), (), "E10002", "has no shape"),
        ((":1,2",), (), "E10002", "no name"),
        (("images:1,3.5,2,2",), (), "E10002", "whole number"),
        (("images:1,3a,2,2",), (), "E10002", "'a' follows"),
        (("images:1,,2,2",), (), "E10002", "missing"),
        (("images:1,3,2,2;1,2",), (), "E10002", "by position"),
        (("images:a,3,2,2",), (), "E10014", "not a number"),
        (("images:99999999999999999999,3,2,2",), (), "E10013", "out of range"),
        (("images:0,3,2,2",), (), "E10011", "not positive"),
        (("images:-5,3,2,2",), (), "E10011", "not positive"),
        (("images:-5,3,-1,2",), (), "E10048", "only -1"),
        (("images:8~1,3,2,2",), (), "E10048", "is empty"),
        (("images:-3~4,3,2,2",), (), "E10048", "negative"),
        (("images:1,3,640,640;images:2,3,640,640",), (), "E10014", "twice"),
        (("image:1,3,640,640",), (), "E10016", "does not have"),
        (("#7:1",), (), "E10016", "input 7"),
        (("w:1,3",), (), "E10017", "not an input"),
        (("images:1,3,640",), (), "E10049", "rank 3"),
        (("images:1~8,4,640,640",), (), "E10050", "dimension 1"),
        (("images:2,3,640,640",), ("N=4",), "E10050", "by --dim N"),
        ((), ("batch=4",), "E10016", "no input has"),
        ((), ("N",), "E10002", "NAME=N"),
        ((), ("N=x",), "E10014", "no size"),
        ((), ("N=0",), "E10011", "not positive"),
        ((), ("N=1", "N=2"), "E10014", "twice"),
    ],
)
def test_each_fault_has_its_code(texts: tuple[str, ...], dims: tuple[str, ...], code: str, words: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        bind([IMAGES, SCALE], *texts, dims=dims)
    assert caught.value.code == code
    assert caught.value.exit_status == 2
    assert words in "\n".join(caught.value.first.lines())


def test_faults_of_several_items_are_reported_together() -> None:
    with pytest.raises(InvalidOption) as caught:
        bind([IMAGES, SCALE], "images:1,3;im_scale:1;foo:2")
    assert [each.code for each in caught.value.diagnostics] == ["E10016", "E10049", "E10049"]


def test_a_syntax_error_has_a_caret_under_the_bad_character() -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_input_shapes(["images:1,3.5"])
    lines = "\n".join(caught.value.first.lines()).splitlines()
    assert lines[1] == '  --> --input-shape "images:1,3.5"'
    assert lines[1][lines[2].index("^")] == "."


def test_an_unknown_name_comes_with_the_inputs_and_the_closest_name() -> None:
    with pytest.raises(InvalidOption) as caught:
        bind([IMAGES, SCALE], "image:1,3,640,640")
    first = caught.value.first
    assert "images FLOAT [N,3,640,640], im_scale FLOAT [N,2]" in first.why
    assert first.do == '--input-shape "images:1,3,640,640"'
