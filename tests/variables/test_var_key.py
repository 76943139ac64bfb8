"""Variable keys (variables.md 3.4) and the interval map that finds variables by address."""

from __future__ import annotations

import pytest

from gecli.errors import CompileError
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc
from gecli.variables.interval_map import IntervalMap, OverlapError
from gecli.variables.var_key import VarKey, require_unambiguous

F = DataType.FLOAT


@pytest.mark.parametrize(
    ("key", "ge", "seed"),
    [
        (VarKey("w", Format.NCHW, F), "w0_0", "w_0_0"),
        (VarKey("w", Format(83886340), F), "w83886340_0", "w_83886340_0"),
        (VarKey("var1", Format.ND, F), "var12_0", "var1_2_0"),
        (VarKey("var1", Format(83886340), F), "var183886340_0", "var1_83886340_0"),
        (VarKey("a_", Format.ND, DataType.FLOAT16), "a_2_1", "a__2_1"),
    ],
)
def test_both_text_forms_of_a_key_are_written_and_read(key: VarKey, ge: str, seed: str) -> None:
    desc = TensorDesc(key.dtype, (1,), key.format)
    assert (key.to_ge(), key.to_seed()) == (ge, seed)
    assert VarKey.parse(ge, desc, [key.name]) == key
    assert VarKey.parse(seed, desc, [key.name]) == key


def test_a_key_that_contradicts_its_descriptor_is_refused() -> None:
    with pytest.raises(ValueError, match="does not end with"):
        VarKey.parse("w0_0", TensorDesc(DataType.FLOAT16, (1,), Format.NCHW))


def test_two_keys_with_one_text_are_refused() -> None:
    keys = [VarKey("w1", Format.ND, F), VarKey("w", Format.NC1HWC0_C04, F)]
    assert keys[0].to_ge() == keys[1].to_ge() == "w12_0"
    with pytest.raises(CompileError) as error:
        require_unambiguous(keys)
    assert error.value.kind == "VAR_KEY_CONFLICT"
    assert "'w1'" in error.value.first.why and "'w'" in error.value.first.why
    require_unambiguous([keys[0], keys[0], VarKey("w", Format.ND, F)])


def test_an_interval_is_found_by_any_address_inside_and_by_none_outside() -> None:
    ranges: IntervalMap[str] = IntervalMap()
    ranges.add(500, 1500, "a")
    ranges.add(2000, 2001, "b")
    assert ranges.find(700) == (500, "a")
    assert ranges.find(500) == (500, "a")
    assert ranges.find(1499) == (500, "a")
    assert ranges.find(1500) is None
    assert ranges.find(499) is None
    assert ranges.get(500) == "a" and ranges.get(501) is None
    assert list(ranges) == ["a", "b"]


@pytest.mark.parametrize(("start", "end"), [(0, 11), (10, 20), (12, 13), (19, 40), (0, 100)])
def test_an_overlapping_interval_is_refused(start: int, end: int) -> None:
    ranges: IntervalMap[str] = IntervalMap()
    ranges.add(10, 20, "a")
    with pytest.raises(OverlapError):
        ranges.add(start, end, "b")
    ranges.add(0, 10, "left")
    ranges.add(20, 30, "right")
    assert list(ranges) == ["left", "a", "right"]


def test_an_interval_can_only_grow_into_free_space() -> None:
    ranges: IntervalMap[str] = IntervalMap()
    ranges.add(0, 10, "a")
    ranges.add(20, 30, "b")
    ranges.extend(0, 20, "longer")
    assert ranges.find(15) == (0, "longer")
    with pytest.raises(OverlapError):
        ranges.extend(0, 21, "too long")
