"""Inputs of a run: files, inline values, several runs in one file, reproducible random data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gecli.errors import GecliError
from gecli.ir.dtype import DataType
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import TensorDesc
from gecli.runtime.inputs import InputOptions, random_array, requests_for
from gecli.runtime.interface import Tensor


def tensor(name: str, *shape: int, dtype: DataType = DataType.FLOAT) -> Tensor:
    return Tensor(name, Port(OpDesc(name, "Data"), 0), TensorDesc(dtype, shape))


X, Y = tensor("x", 2, 3), tensor("y", 4, dtype=DataType.INT32)


def one(inputs: list[Tensor], *specs: str, options: InputOptions | None = None) -> dict[str, np.ndarray]:
    (feeds,) = requests_for(inputs, specs, options or InputOptions())
    return feeds


def test_random_values_depend_on_seed_and_name_only() -> None:
    alone = one([X])["x"]
    with_another = one([X, Y])["x"]
    np.testing.assert_array_equal(alone, with_another)
    assert not np.array_equal(alone, one([X], options=InputOptions(seed=2))["x"])
    assert ((alone >= 0) & (alone < 1)).all()


def test_integers_are_drawn_from_0_to_15_and_bools_from_0_and_1() -> None:
    assert set(np.unique(random_array("i", DataType.INT64, (500,)))) == set(range(16))
    assert random_array("b", DataType.BOOL, (50,)).dtype == np.bool_


@pytest.mark.parametrize(
    ("fill", "expected"),
    [
        ("zeros", [[0, 0, 0], [0, 0, 0]]),
        ("ones", [[1, 1, 1], [1, 1, 1]]),
        ("iota", [[0, 1, 2], [3, 4, 5]]),
        ("const:2.5", [[2.5] * 3, [2.5] * 3]),
    ],
)
def test_inputs_that_are_not_given_are_filled(fill: str, expected: list[list[float]]) -> None:
    np.testing.assert_array_equal(one([X], options=InputOptions(fill=fill))["x"], expected)


def test_an_npy_file_is_taken_by_position_by_name_and_by_number(tmp_path: Path) -> None:
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "a.npy", value)
    for spec in (f"{tmp_path}/a.npy", f"x={tmp_path}/a.npy", f"#0={tmp_path}/a.npy"):
        np.testing.assert_array_equal(one([X, Y], spec)["x"], value)


def test_an_npz_is_taken_by_its_keys(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x=np.ones((2, 3), np.float32), y=np.zeros(4, np.int32))
    feeds = one([X, Y], str(tmp_path / "all.npz"))
    assert feeds["x"].sum() == 6
    assert feeds["y"].dtype == np.int32


def test_an_npz_with_a_leading_axis_holds_one_value_a_run(tmp_path: Path) -> None:
    np.savez(tmp_path / "runs.npz", x=np.arange(18, dtype=np.float32).reshape(3, 2, 3))
    feeds = requests_for([X], [str(tmp_path / "runs.npz")], InputOptions())
    assert [int(each["x"][0, 0]) for each in feeds] == [0, 6, 12]


def test_raw_bytes_are_read_in_the_shape_of_the_input(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    assert one([X], f"{tmp_path}/x.bin")["x"][1, 2] == 5


def test_inline_values_have_shape_and_type() -> None:
    np.testing.assert_array_equal(one([X], "x=2x3xf32=1,2,3,4,5,6")["x"], [[1, 2, 3], [4, 5, 6]])


def test_a_directory_gives_the_files_named_like_the_inputs(tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", np.arange(4, dtype=np.int32))
    np.save(tmp_path / "x.npy", np.zeros((2, 3), np.float32))
    assert one([X, Y], str(tmp_path))["y"][3] == 3


def test_a_directory_with_k_times_n_files_gives_k_runs_in_natural_order(tmp_path: Path) -> None:
    for index in (10, 9, 1):
        np.save(tmp_path / f"img{index}.npy", np.full((2, 3), index, np.float32))
    feeds = requests_for([X], [str(tmp_path)], InputOptions())
    assert [int(each["x"][0, 0]) for each in feeds] == [1, 9, 10]


def test_cast_converts_and_refuses_values_that_would_change(tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", np.array([1.0, 2.0, 3.0, 4.0]))
    assert one([Y], f"{tmp_path}/y.npy", options=InputOptions(cast=True))["y"].dtype == np.int32
    np.save(tmp_path / "y.npy", np.array([1.5, 2.0, 3.0, 4.0]))
    with pytest.raises(GecliError, match="would change"):
        one([Y], f"{tmp_path}/y.npy", options=InputOptions(cast=True))


def test_scalars_keep_their_rank(tmp_path: Path) -> None:
    np.save(tmp_path / "s.npy", np.float32(3))
    assert one([tensor("s")], f"{tmp_path}/s.npy")["s"].shape == ()


@pytest.mark.parametrize(
    ("spec", "code", "part"),
    [
        ("nothere.npy", "E13001", "cannot open"),
        ("z=nothere.npy", "E10016", "no input of the model"),
        ("broken.npy", "E13005", "is not a .npy array"),
        ("broken.npz", "E13005", "is not an npz"),
        ("short.bin", "E13025", "does not fit"),
        ("pickle.npy", "E13005", "is not a .npy array"),
    ],
)
def test_a_bad_source_has_one_clear_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, code: str, part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.npy").write_bytes(b"\x93NUMPY\x01\x00garbage")
    Path("broken.npz").write_bytes(b"PK\x03\x04 not really")
    Path("short.bin").write_bytes(b"\0" * 12)
    np.save("pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(GecliError, match=part) as caught:
        one([X, Y], spec)
    assert caught.value.code == code


def test_a_raw_file_of_half_the_size_hints_at_another_type(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"\0" * 12)
    with pytest.raises(GecliError) as caught:
        one([X], f"{tmp_path}/x.bin")
    assert "another data type is likely" in caught.value.first.why


def test_different_numbers_of_runs_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "r.npz", x=np.zeros((3, 2, 3), np.float32), y=np.zeros((2, 4), np.int32))
    with pytest.raises(GecliError, match="different numbers of runs"):
        requests_for([X, Y], [str(tmp_path / "r.npz")], InputOptions())


S = tensor("s", dtype=DataType.INT64)


@pytest.mark.parametrize("spec", ["s=16000", "s=i64=16000", "s=1xi64=16000", "s=0x3e80"])
def test_a_scalar_is_given_in_any_of_these_forms(spec: str) -> None:
    value = one([S], spec)["s"]
    assert (value.shape, value.dtype, int(value)) == ((), np.int64, 16000)


def test_large_integers_keep_every_digit() -> None:
    assert int(one([S], f"s={2**62 + 1}")["s"]) == 2**62 + 1


def test_plain_values_take_type_and_shape_of_the_input() -> None:
    np.testing.assert_array_equal(one([X], "x=1,2,3,4,5,6")["x"], [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(one([X], "x=-1.5e0")["x"], np.full((2, 3), -1.5, np.float32))


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("s=1.5", "'1.5' is no int64"),
        ("s=1,2", "takes 1 value; there are 2"),
        ("s=q8=1", "'q8' is no data type"),
        ("s=i64=x", "'x' is no int64"),
        ("s=i8=300", "does not fit int8"),
    ],
)
def test_a_value_that_cannot_be_lists_the_accepted_forms(spec: str, why: str) -> None:
    with pytest.raises(GecliError) as caught:
        one([S], spec)
    assert why in caught.value.first.why
    assert caught.value.first.do == "-i s=FILE.npy or -i s=1 or -i s=i64=1"


def test_an_input_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", x=np.ones((2, 3), np.float32))
    with pytest.raises(GecliError, match="input 'x' is given twice") as caught:
        one([X, Y], f"{tmp_path}/a.npz", f"{tmp_path}/b.npz")
    assert caught.value.first.why == f"by -i {tmp_path}/a.npz and by -i {tmp_path}/b.npz"


def test_shape_and_a_file_of_another_shape_contradict(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    with pytest.raises(GecliError, match="has another shape than --shape says"):
        one([tensor("x", -1, 3)], f"x={tmp_path}/x.npy", options=InputOptions(shapes={"x": (4, 3)}))


@pytest.mark.parametrize("named_first", [False, True])
def test_a_named_input_wins_over_the_file_that_holds_all(tmp_path: Path, named_first: bool) -> None:
    np.savez(tmp_path / "all.npz", x=np.ones((2, 3), np.float32), y=np.zeros(4, np.int32))
    specs = [f"{tmp_path}/all.npz", "y=7"]
    feeds = one([X, Y], *(reversed(specs) if named_first else specs))
    assert feeds["x"].sum() == 6 and feeds["y"].tolist() == [7] * 4


def test_two_files_that_hold_one_input_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((2, 3), np.float32))
    np.savez(tmp_path / "b.npz", x=np.ones((2, 3), np.float32))
    with pytest.raises(GecliError, match="input 'x' is given twice"):
        one([X], f"{tmp_path}/a.npz", f"{tmp_path}/b.npz")


def test_an_array_that_no_input_takes_is_named_with_its_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x=np.ones((2, 3), np.float32), label=np.zeros(1))
    with pytest.raises(GecliError) as caught:
        one([X], f"{tmp_path}/all.npz")
    first = caught.value.first
    assert first.message.startswith(f"{tmp_path}/all.npz names 'label'")
    assert first.do.startswith("leave that array out of the file")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((4, 3), np.float32), "the value for input 'x' has the wrong shape"),
        (np.ones((2, 3), np.float64), "the value for input 'x' has the wrong data type"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_its_file(tmp_path: Path, array: np.ndarray, message: str) -> None:
    np.save(tmp_path / "odd.npy", array)
    with pytest.raises(GecliError) as caught:
        one([Y, X], f"x={tmp_path}/odd.npy")
    assert caught.value.first.message == message
    assert caught.value.first.place() == f"-i x={tmp_path}/odd.npy"
