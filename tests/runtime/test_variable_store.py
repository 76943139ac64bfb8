"""Variables at run time: values in the user's format, several stored forms, initial values, checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gecli.errors import GecliError, OutputError
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.layout.platform import platform_of
from gecli.layout.storage_shape import to_storage
from gecli.runtime.checkpoint import load_variables, save_variables
from gecli.runtime.variable_store import VariableStore
from gecli.variables.trans_road import TransRoad, TransStep

USER = TensorDesc(DataType.FLOAT, (3, 3, 8, 16), Format.HWCN)
STORED = to_storage(USER, Format.FRACTAL_Z, platform_of("Ascend910B1"))
ROAD = TransRoad((TransStep("TransData", USER, STORED),))
BASE = 1 << 37


def filled(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def test_a_value_goes_through_the_road_and_back() -> None:
    store = VariableStore()
    form = store.register("w", STORED, BASE, ROAD, None, "a.om")
    store.set_value("w", filled(USER.shape))
    assert form.view.shape == STORED.shape
    np.testing.assert_array_equal(store.value("w"), filled(USER.shape))
    assert store.value("w", raw=True).shape == STORED.shape


def test_two_stored_forms_of_one_variable_hold_one_value() -> None:
    store = VariableStore()
    blocked = store.register("w", STORED, BASE, ROAD, None, "a.om")
    plain = store.register("w", USER, BASE, TransRoad(), None, "b.om")
    store.set_value("w", filled(USER.shape))
    store.activate("w", plain)
    np.testing.assert_array_equal(plain.view, filled(USER.shape))
    plain.view[...] *= 2
    store.activate("w", blocked)
    np.testing.assert_array_equal(store.value("w"), 2 * filled(USER.shape))


def test_models_that_declare_a_variable_differently_cannot_share_it() -> None:
    store = VariableStore()
    store.register("w", USER, BASE, TransRoad(), None, "a.om")
    with pytest.raises(GecliError, match="declared differently") as caught:
        store.register("w", TensorDesc(DataType.FLOAT, (4,)), BASE, TransRoad(), None, "b.om")
    assert caught.value.kind == "RT_VAR_DESC_MISMATCH"


def test_an_initial_value_in_the_user_form_is_converted() -> None:
    store = VariableStore()
    store.register("w", STORED, BASE, ROAD, Weight.of(filled(USER.shape), USER), "a.om")
    np.testing.assert_array_equal(store.value("w"), filled(USER.shape))


def test_a_variable_without_a_value_is_an_error_when_read() -> None:
    store = VariableStore()
    store.register("w", USER, BASE, TransRoad(), None, "a.om")
    with pytest.raises(GecliError, match="before anything gave it a value") as caught:
        store.require_value("w", "error", "conv")
    assert caught.value.kind == "RT_VAR_UNINITIALISED"


@pytest.mark.parametrize("init", ["zero", "random"])
def test_init_fills_a_variable_without_a_value(init: str) -> None:
    store = VariableStore()
    store.register("w", STORED, BASE, ROAD, None, "a.om")
    store.require_value("w", init, "conv")
    assert store.value("w").any() == (init == "random")


def test_an_unknown_variable_is_answered_with_close_names() -> None:
    store = VariableStore()
    store.register("weight", USER, BASE, TransRoad(), None, "a.om")
    with pytest.raises(GecliError) as caught:
        store.value("wieght")
    assert "weight" in caught.value.first.why


def test_a_checkpoint_brings_the_values_back(tmp_path: Path) -> None:
    store, other = VariableStore(), VariableStore()
    store.register("w", STORED, BASE, ROAD, None, "a.om")
    store.set_value("w", filled(USER.shape))
    save_variables(store, str(tmp_path / "v.npz"))
    other.register("w", USER, BASE, TransRoad(), None, "b.om")
    names, warnings = load_variables(other, str(tmp_path / "v.npz"))
    assert (names, warnings) == (["w"], [])
    np.testing.assert_array_equal(other.value("w"), filled(USER.shape))
    with np.load(tmp_path / "v.npz") as archive:
        assert archive["w"].shape == USER.shape


def test_a_bfloat16_variable_survives_a_checkpoint(tmp_path: Path) -> None:
    desc = TensorDesc(DataType.BF16, (4,))
    store = VariableStore()
    store.register("b", desc, BASE, TransRoad(), None, "a.om")
    store.set_value("b", np.array([1.5, -2, 0, 3], dtype=desc.dtype.numpy))
    save_variables(store, str(tmp_path / "v.npz"))
    store.set_value("b", np.zeros(4, dtype=desc.dtype.numpy))
    load_variables(store, str(tmp_path / "v.npz"))
    assert store.value("b").astype(np.float32).tolist() == [1.5, -2, 0, 3]


def test_a_variable_that_is_declared_blocked_takes_values_in_its_origin_form(tmp_path: Path) -> None:
    """An emitted graph has no road: its variables are declared as they are stored."""
    first, again = VariableStore(), VariableStore()
    first.register("w", STORED, BASE, ROAD, None, "a.om")
    form = again.register("w", STORED, BASE, TransRoad(), None, "b.om")
    first.set_value("w", filled(USER.shape))
    save_variables(first, str(tmp_path / "v.npz"))
    np.savez(tmp_path / "plain.npz", w=filled(USER.shape))
    for name in ("v.npz", "plain.npz"):
        form.view[...] = 0
        assert load_variables(again, str(tmp_path / name))[0] == ["w"]
        np.testing.assert_array_equal(form.view, first.value("w", raw=True))
    save_variables(again, str(tmp_path / "stored.npz"))
    load_variables(again, str(tmp_path / "stored.npz"))
    np.testing.assert_array_equal(form.view, first.value("w", raw=True))


SQUARE = TensorDesc(DataType.FLOAT, (3, 3, 3, 3), Format.HWCN)
TURNED = TensorDesc(DataType.FLOAT, (3, 3, 3, 3), Format.NCHW)


@pytest.mark.parametrize("lost", [False, True])
def test_a_value_in_another_format_than_the_origin_is_refused(tmp_path: Path, lost: bool) -> None:
    """Where nobody knows in which form it was declared, a plain array is refused too: its axes may be others."""
    stored = to_storage(SQUARE, Format.FRACTAL_Z, platform_of("Ascend910B1"))
    store, other = VariableStore(), VariableStore()
    store.register("w", stored, BASE, TransRoad(), None, "b.om")
    other.register("w", TURNED, BASE, TransRoad(), None, "a.om")
    other.set_value("w", filled(TURNED.shape))
    save_variables(other, str(tmp_path / "v.npz"))
    np.savez(tmp_path / "plain.npz", w=filled(TURNED.shape))
    if lost:
        store.without_record["w"] = "b.rdcpkt"
    with pytest.raises(GecliError, match="does not fit") as caught:
        load_variables(store, str(tmp_path / "v.npz"))
    assert "expected DT_FLOAT FRACTAL_Z [9,1,16,8] or DT_FLOAT HWCN [3,3,3,3], got float32 NCHW [3, 3, 3, 3]" in str(
        caught.value.first.why
    )
    if lost:
        with pytest.raises(GecliError, match="does not fit"):
            load_variables(store, str(tmp_path / "plain.npz"))
    else:
        assert load_variables(store, str(tmp_path / "plain.npz"))[0] == ["w"]


def test_a_damaged_checkpoint_changes_nothing(tmp_path: Path) -> None:
    store = VariableStore()
    for name in ("a", "b"):
        store.register(name, TensorDesc(DataType.FLOAT, (64,)), BASE, TransRoad(), None, "a.om")
        store.set_value(name, np.ones(64, np.float32))
    path = tmp_path / "v.npz"
    save_variables(store, str(path))
    data = bytearray(path.read_bytes())
    at = data.rindex(np.ones(16, np.float32).tobytes())
    data[at] ^= 0xFF
    path.write_bytes(bytes(data))
    store.set_value("a", np.zeros(64, np.float32))
    with pytest.raises(GecliError):
        load_variables(store, str(path))
    assert not store.value("a").any()


def test_names_that_no_model_has_are_reported_and_ignored(tmp_path: Path) -> None:
    store = VariableStore()
    np.savez(tmp_path / "v.npz", **{f"stranger{index}": np.zeros(3, np.float32) for index in range(8)})
    names, warnings = load_variables(store, str(tmp_path / "v.npz"))
    assert names == []
    (warning,) = warnings
    assert (warning.severity, warning.code) == ("warning", "G4008")
    assert "stranger0, stranger1, stranger2, stranger3, stranger4, stranger5 and 2 more" in warning.why


def test_names_that_an_evaluation_does_not_use_are_a_note(tmp_path: Path) -> None:
    store = VariableStore()
    store.register("w", USER, BASE, TransRoad(), None, "a.om")
    np.savez(tmp_path / "v.npz", w=filled(USER.shape), w_momentum=filled(USER.shape))
    names, (note,) = load_variables(store, str(tmp_path / "v.npz"))
    assert names == ["w"]
    assert (note.severity, note.why) == ("note", "left out: w_momentum")


def test_a_checkpoint_has_the_same_bytes_every_time(tmp_path: Path) -> None:
    store = VariableStore()
    store.register("w", USER, BASE, TransRoad(), None, "a.om")
    store.set_value("w", filled(USER.shape))
    for name in ("one.npz", "two.npz"):
        save_variables(store, str(tmp_path / name))
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


@pytest.mark.parametrize("shape", [(0,), (0, 4), (2, 0, 3)])
def test_an_empty_variable_needs_no_value(shape: tuple[int, ...]) -> None:
    store = VariableStore()
    store.register("w", TensorDesc(DataType.FLOAT, shape), 1 << 37, TransRoad(), None, "m.om")
    store.require_value("w", "error", "reader")
    assert store.value("w").shape == shape


@pytest.mark.parametrize(
    ("name", "why"),
    [("w\0", "NUL"), ("\0", "NUL"), ("é" * 32766, "more than 65531 bytes"), ("__meta__", "'__meta__'")],
    ids=["NUL at the end", "only NUL", "long", "the member that describes"],
)
def test_a_name_that_no_archive_can_hold_is_refused_and_nothing_is_written(tmp_path: Path, name: str, why: str) -> None:
    store = VariableStore()
    store.register(name, TensorDesc(DataType.FLOAT, (2,)), BASE, TransRoad(), None, "m.om")
    store.set_value(name, np.ones(2, np.float32))
    with pytest.raises(OutputError, match="cannot be") as caught:
        save_variables(store, str(tmp_path / "v.npz"))
    assert caught.value.code == "G6001" and why in caught.value.first.why
    assert not any(tmp_path.iterdir())


def test_the_longest_name_of_an_archive_is_saved_and_loaded(tmp_path: Path) -> None:
    store = VariableStore()
    name = "w" * 65531
    store.register(name, TensorDesc(DataType.FLOAT, (2,)), BASE, TransRoad(), None, "m.om")
    store.set_value(name, np.ones(2, np.float32))
    save_variables(store, str(tmp_path / "v.npz"))
    store.set_value(name, np.zeros(2, np.float32))
    assert load_variables(store, str(tmp_path / "v.npz"))[0] == [name]
    assert store.value(name).tolist() == [1, 1]


def given(number: float, desc: TensorDesc = USER) -> Weight:
    return Weight.of(np.full(desc.shape, number, np.float32), desc)


def test_an_initial_value_counts_from_whatever_model_it_comes() -> None:
    store = VariableStore()
    store.register("w", USER, BASE, TransRoad(), None, "a.om")
    store.register("w", USER, BASE, TransRoad(), given(2), "b.om")
    store.require_value("w", "zero", "conv")
    np.testing.assert_array_equal(store.value("w"), np.full(USER.shape, 2, np.float32))
    assert store["w"].initialised_by == "_init_value"
    assert store.take_warnings() == []


def test_an_initial_value_does_not_replace_what_the_variable_has() -> None:
    store = VariableStore()
    store.register("w", USER, BASE, TransRoad(), None, "a.om")
    store.set_value("w", filled(USER.shape))
    store.register("w", USER, BASE, TransRoad(), given(2), "b.om")
    np.testing.assert_array_equal(store.value("w"), filled(USER.shape))


def test_of_two_initial_values_the_first_counts_and_the_models_are_named() -> None:
    store = VariableStore()
    for name in ("v", "w"):
        store.register(name, USER, BASE, TransRoad(), given(1), "a.om")
        store.register(name, USER, BASE, TransRoad(), given(2), "b.om")
    assert (store.value("w") == 1).all()
    (warning,) = store.take_warnings()
    assert warning.message == "a.om and b.om give variable 'v', 'w' different initial values"
    assert (warning.severity, warning.kind) == ("warning", "RT_INIT_VALUE_DIFFERS")
    assert store.take_warnings() == []


@pytest.mark.parametrize("second, told", [(1, False), (2, True)])
def test_initial_values_in_different_forms_are_compared_in_the_declared_one(second: float, told: bool) -> None:
    store = VariableStore()
    store.register("w", STORED, BASE, ROAD, ROAD.convert_weight(given(1)), "a.om")
    store.register("w", USER, BASE, TransRoad(), given(second), "b.om")
    assert bool(store.take_warnings()) is told
