"""What `gecli run` says about wrong files, names, shapes and values: each message has a cure that works."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.conftest import Gecli

REPOSITORY = Path(__file__).resolve().parents[2]
DIGITS = REPOSITORY / "samples/digits/digits.onnx"
TRAIN = REPOSITORY / "samples/train"


@pytest.fixture
def digits(gecli: Gecli) -> str:
    assert gecli("compile", str(DIGITS), "-o", "digits.om", "--input-shape", "image:2,1,8,8").returncode == 0
    return "digits.om"


@pytest.fixture
def evaluation(gecli: Gecli) -> str:
    done = gecli("compile", str(TRAIN / "conv_train.json"), str(TRAIN / "conv_eval.json"), "-o", "s/", "--train")
    assert done.returncode == 0, done.stderr
    return "s/conv_eval.om"


@pytest.fixture
def product(gecli: Gecli, tmp_path: Path) -> str:
    """z = log(x . w) with all dims free."""
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="mm"), helper.make_node("Log", ["y"], ["z"])]
    inputs = [info("x", TensorProto.FLOAT, ["a", "b"]), info("w", TensorProto.FLOAT, ["c", "d"])]
    graph = helper.make_graph(nodes, "g", inputs, [info("z", TensorProto.FLOAT, None)])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "product.onnx")
    assert gecli("compile", "product.onnx", "-o", "product.om").returncode == 0
    return "product.om"


def refused(gecli: Gecli, status: int, *words: str) -> str:
    done = gecli(*words)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_files_in_place_of_an_om_are_named_with_the_command_that_helps(
    gecli: Gecli, evaluation: str, tmp_path: Path
) -> None:
    told = refused(gecli, 3, "run", str(DIGITS))
    assert "this is an ONNX model, not an OM file" in told
    assert f"do:  gecli run --jit {DIGITS}, or gecli compile {DIGITS} -o " in told
    told = refused(gecli, 3, "run", "s/conv_eval.rdcpkt")
    assert "this is a variable packet" in told and "do:  gecli run s/conv_eval.om" in told
    assert "do:  gecli run s/conv_eval.om\n" in refused(gecli, 3, "run", "s/conv_eval")
    whole = (tmp_path / "s" / "conv_eval.rdcpkt").read_bytes()
    (tmp_path / "cut.rdcpkt").write_bytes(whole[: len(whole) // 2])
    told = refused(gecli, 3, "run", "cut.rdcpkt")
    assert "cut.rdcpkt: damaged variable record: " in told and "not an OM file" not in told
    told = refused(gecli, 3, "run", "s")
    assert "s is a directory" in told and "do:  gecli run s/conv_eval.om s/conv_train.om" in told


@pytest.mark.parametrize(
    "words",
    [["compile", "no", "-o", "x"], ["inspect-om", "no"], ["run", "no"], ["run", "OM", "--compare", "no"],
     ["run", "OM", "--compare", "no.npz"], ["run", "OM", "--load-vars", "no"], ["run", "OM", "-i", "no"]],
)  # fmt: skip
def test_a_missing_file_reads_alike_everywhere(gecli: Gecli, digits: str, words: list[str]) -> None:
    name = next(word for word in reversed(words) if word.startswith("no"))
    told = refused(gecli, 3, *(digits if word == "OM" else word for word in words))
    assert told.splitlines()[-4:] == [
        f"error[E13001]: cannot open {name}",
        f"  --> {name}",
        "  why: No such file or directory",
        "  do:  check the path and its permissions",
    ]


def test_all_operators_that_a_real_om_lacks_attributes_for_are_named_once(gecli: Gecli) -> None:
    told = refused(gecli, 3, "run", str(REPOSITORY / "tests/data/om/real/ascend310-2022-vae.om"))
    assert "AtomicAddrClean (1x), Conv2DBackpropInputD (1x), FrameworkOp (1x)" in told
    assert "E14002" not in told


def test_a_wrong_shape_is_cured_by_what_the_model_takes(
    gecli: Gecli, product: str, digits: str, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.zeros(5, np.float32))
    assert "do:  give an array of shape [N,M] (N, M any size)" in refused(
        gecli, 6, "run", product, "-i", "x.npy", "--shape", "w:4,4"
    )
    assert "do:  give an array of shape [2,1,8,8]" in refused(gecli, 6, "run", digits, "-i", "x.npy")


def test_shape_takes_the_form_of_input_shape_and_repeats(gecli: Gecli, product: str) -> None:
    for words in (["--shape", "x:2,3;w:3,4"], ["--shape", "x:2,3", "--shape", "w=3x4"], ["--shape", "2,3;3,4"]):
        done = gecli("run", product, *words, "--json")
        assert json.loads(done.stdout)["requests"][0]["outputs"][0]["shape"] == [2, 4]
    assert "a run needs a number for every dimension" in refused(gecli, 2, "run", product, "--shape", "x:2~3,3")
    assert 'do:  --shape "x:1,1;w:1,1"' in refused(gecli, 2, "run", product)
    assert "its inputs are x, w" in refused(gecli, 2, "run", product, "--shape", "q:2,3")


def test_a_raw_file_of_a_dynamic_input_takes_the_shape_of_the_option(
    gecli: Gecli, product: str, tmp_path: Path
) -> None:
    (tmp_path / "x.bin").write_bytes(np.ones(6, np.float32).tobytes())
    words = ["run", product, "-i", "x=x.bin", "-i", "w=3x1xf32=1"]
    told = refused(gecli, 2, *words)
    assert "do:  give a .npy file, or --shape x:1,1" in told
    done = gecli(*words, "--shape", "x:2,3", "--json")
    assert json.loads(done.stdout)["requests"][0]["outputs"][0]["shape"] == [2, 1]


def test_a_node_that_cannot_compute_is_named_with_its_inputs(gecli: Gecli, product: str) -> None:
    told = refused(gecli, 6, "run", product, "--shape", "x:2,3;w:2,3")
    assert "error[G4009]: BatchMatMulV2 node 'mm' cannot compute with its inputs" in told
    assert "the inputs are float32 [2, 3], float32 [2, 3]" in told
    assert "do:  give inputs of other shapes (-i, --shape)" in told


def test_outputs_that_are_not_finite_are_one_warning(gecli: Gecli, product: str) -> None:
    done = gecli("run", product, "-i", "x=2x3xf32=-1", "-i", "w=3x4xf32=1")
    assert done.returncode == 0
    (warning,) = [line for line in done.stderr.splitlines() if "G4007" in line]
    assert "z (8 nan, 0 inf)" in warning
    assert "warning" not in gecli("run", product, "--shape", "x:2,3;w:3,4").stderr


def test_a_checkpoint_of_training_is_no_warning_for_the_evaluation(gecli: Gecli, evaluation: str, digits: str) -> None:
    assert gecli("run", "s/conv_train.om", "--save-vars", "v.npz").returncode == 0
    done = gecli("run", evaluation, "--load-vars", "v.npz")
    assert done.returncode == 0
    assert "G4008" not in done.stderr
    assert "note[G4008]" in gecli("run", evaluation, "--load-vars", "v.npz", "-v").stderr
    assert "warning[G4008]: v.npz holds no variable" in gecli("run", digits, "--load-vars", "v.npz").stderr


@pytest.mark.parametrize("option", ["--get-var", "--set-var"])
def test_a_variable_that_no_model_has_is_refused_before_the_run(
    gecli: Gecli, evaluation: str, option: str, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3, np.float32))
    told = refused(gecli, 2, "run", evaluation, option, "w9=x.npy", "-o", "out/")
    assert "E10016" in told and "their variables: b1, b2, b3, w1, w2, w3" in told
    assert not (tmp_path / "out").exists()


def test_tensors_are_dumped_only_where_the_user_says(gecli: Gecli, digits: str, tmp_path: Path) -> None:
    told = refused(gecli, 2, "run", digits, "--dump", "conv*")
    assert "error[E10057]: --dump needs a directory" in told
    assert not (tmp_path / "dump").exists()
    assert gecli("run", digits, "--dump", "conv*", "--dump-dir", "here", "-o", "o.npz").returncode == 0
    assert (tmp_path / "here/0000/index.csv").is_file()
    assert gecli("run", digits, "--dump", "conv*", "-o", "out/").returncode == 0
    assert (tmp_path / "out/dump/0000/index.csv").is_file()


def test_quiet_still_prints_what_was_asked_for(gecli: Gecli, digits: str, tmp_path: Path) -> None:
    assert "Conv2D" in gecli("run", digits, "-q", "--profile").stdout
    np.savez(tmp_path / "other.npz", probabilities=np.zeros((2, 10), np.float32))
    done = gecli("run", digits, "-q", "--compare", "other.npz")
    assert done.returncode == 1
    assert done.stdout.startswith("differs  probabilities")


@pytest.mark.parametrize("flag", [("--rtol", "1"), ("--atol", "x:1"), ("--stat", "mean"), ("--nan-differs",)])
def test_a_tolerance_without_a_golden_is_refused(gecli: Gecli, digits: str, flag: tuple[str, ...]) -> None:
    done = gecli("run", digits, *flag)
    assert done.returncode == 2 and f"error[E10057]: {flag[0]} belongs to --compare" in done.stderr


@pytest.mark.parametrize("name", ["o.txt", "o.json", "d/o.npy", "o.bin"])
def test_outputs_go_into_a_directory_or_an_npz_and_no_other_file(
    gecli: Gecli, digits: str, tmp_path: Path, name: str
) -> None:
    done = gecli("run", digits, "-o", name)
    assert done.returncode == 2 and f"-o {name} names no .npz and no directory" in done.stderr
    stem, ending = name.rsplit(".", 1)
    assert f"do:  -o {stem} --output-format {ending}, or -o {stem}.npz" in done.stderr
    assert gecli("run", digits, "-o", stem, "--output-format", ending).returncode == 0
    (tmp_path / name).mkdir(parents=True)
    assert gecli("run", digits, "-o", name).returncode == 0


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (["--val-range", "5,1"], "--val-range 1,5"),
        (["--val-range", "image:[5,1]"], '--val-range "image:[1,5]"'),
        (["--val-range", "image"], "--val-range 0,1"),
        (["--fill", "const:x"], "--fill const:0.5"),
        (["--transpose", "image:0,0"], "--transpose image:0,3,1,2"),
        (["--shape", "image:1;image:2"], "give the shape once"),
        (["--compare", "digits.om", "--rtol", "-1"], "--rtol 1e-3"),
    ],
)
def test_a_value_that_an_option_does_not_take_has_a_cure_of_its_own(
    gecli: Gecli, digits: str, words: list[str], cure: str
) -> None:
    done = gecli("run", digits, *words)
    assert done.returncode == 2 and f"\n  do:  {cure}\n" in done.stderr


def test_an_attribute_that_a_real_om_lacks_is_described_in_words(gecli: Gecli) -> None:
    told = refused(gecli, 3, "run", str(REPOSITORY / "tests/data/om/real/ascend310-2021-a3c_pong.om"))
    assert "Conv2D requires 'strides', a list of integers" in told and "tuple[" not in told
