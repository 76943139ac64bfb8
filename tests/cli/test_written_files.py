"""No option of a command overwrites its model or what another option writes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from gecli.cli.app import run
from tests.conftest import Gecli

DIGITS = Path(__file__).resolve().parents[2] / "samples/digits/digits.onnx"


@pytest.mark.parametrize("option", ["--log-file", "--report", "--depfile", "--session-out"])
@pytest.mark.parametrize("target", ["m.onnx", "./sub/../m.onnx", "link.onnx", "hard.onnx", "o.om", "o.rdcpkt"])
def test_a_file_that_the_command_needs_is_not_overwritten(
    gecli: Gecli, tmp_path: Path, option: str, target: str
) -> None:
    shutil.copy(DIGITS, tmp_path / "m.onnx")
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.onnx").symlink_to("m.onnx")
    os.link(tmp_path / "m.onnx", tmp_path / "hard.onnx")
    done = gecli("compile", "m.onnx", "-o", "o.om", option, target)
    assert done.returncode == 2
    assert f"{option} would overwrite" in done.stderr
    assert all(part in done.stderr for part in ("-->", "why:", "do:"))
    assert (tmp_path / "m.onnx").read_bytes() == DIGITS.read_bytes()
    assert not (tmp_path / "o.om").exists()


def test_two_options_do_not_write_one_file(gecli: Gecli) -> None:
    done = gecli("compile", str(DIGITS), "-o", "o.om", "--report", "r", "--depfile", "r")
    assert done.returncode == 2
    assert "--depfile would overwrite --report r" in done.stderr


def test_a_run_does_not_log_into_its_model(gecli: Gecli, tmp_path: Path) -> None:
    assert gecli("compile", str(DIGITS), "-o", "o.om", "--input-shape", "image:1,1,8,8").returncode == 0
    before = (tmp_path / "o.om").read_bytes()
    done = gecli("run", "o.om", "--log-file", "o.om")
    assert done.returncode == 2, done.stderr
    assert (tmp_path / "o.om").read_bytes() == before


def test_a_device_may_be_named_by_several_options(gecli: Gecli) -> None:
    done = gecli("compile", str(DIGITS), "-o", "o.om", "--report", "/dev/null", "--log-file", "/dev/null")
    assert done.returncode == 0, done.stderr


def test_an_output_path_longer_than_the_system_allows_is_e10021(gecli: Gecli) -> None:
    done = gecli("compile", str(DIGITS), "-o", "x/" * 3000 + "o")
    assert done.returncode == 2
    assert "error[E10021]" in done.stderr


def test_a_variable_of_unknown_size_is_named(gecli: Gecli, tmp_path: Path) -> None:
    (tmp_path / "g.json").write_text(
        '{"nodes": [{"id": "w", "type": "Variable", "outputs": [{"dtype": "DT_FLOAT", "shape": [-1, 3]}]},'
        ' {"id": "r", "type": "Relu"}], "links": [{"source": "w", "target": "r"}]}'
    )
    done = gecli("compile", "g.json", "-o", "o.om")
    assert done.returncode == 4
    assert "error[G2014]" in done.stderr
    assert "node w (Variable)" in done.stderr


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("compiled")
    words = ["compile", str(DIGITS), "-o", str(place / "a.om"), "--input-shape", "image:1,1,8,8", "-q"]
    assert run(words) == 0
    (place / "a.rdcpkt").write_bytes(b"variables")
    np.savez(place / "x.npz", image=np.zeros((1, 1, 8, 8), np.float32))
    np.save(place / "x.npy", np.zeros((1, 1, 8, 8), np.float32))
    (place / "data").mkdir()
    np.save(place / "data/image.npy", np.zeros((1, 1, 8, 8), np.float32))
    (place / "link.om").symlink_to("a.om")
    os.link(place / "a.om", place / "hard.om")
    return place


@pytest.mark.parametrize(
    ("words", "option", "owner"),
    [
        ("run a.om --save-inputs a.om", "--save-inputs", "the input a.om"),
        ("run a.om --save-inputs link.om", "--save-inputs", "the input a.om"),
        ("run a.om --export-times hard.om", "--export-times", "the input a.om"),
        ("run a.om --profile-out a.om", "--profile-out", "the input a.om"),
        ("run a.om --save-vars ./data/../a.om", "--save-vars", "the input a.om"),
        ("run a.om --get-var N=a.om", "--get-var", "the input a.om"),
        ("run a.om -o a.om", "--output", "the input a.om"),
        ("run a.om --log-file a.om", "--log-file", "the input a.om"),
        ("run --model a.om --log-file a.om", "--log-file", "the input a.om"),
        ("run a.om --save-vars a.rdcpkt", "--save-vars", "the input a.rdcpkt"),
        ("run a.om --vars x.npy --save-vars x.npy", "--save-vars", "the input x.npy"),
        ("run a.om -i x.npz --save-inputs x.npz", "--save-inputs", "the input x.npz"),
        ("run a.om -i image=x.npy --export-times x.npy", "--export-times", "the input x.npy"),
        ("run a.om -i x.npy,x.npz --export-times x.npz", "--export-times", "the input x.npz"),
        ("run a.om -i data --export-times data/image.npy", "--export-times", "the input data"),
        ("run a.om --set-var v=x.npy --get-var v=x.npy", "--get-var", "the input x.npy"),
        ("run a.om --compare x.npz -o x.npz", "--output", "the input x.npz"),
        ("run a.om --compare data -o data", "--output", "the input data"),
        ("run a.om --load-vars x.npz --save-inputs x.npz", "--save-inputs", "the input x.npz"),
        ("run a.om -o y.npz --save-inputs y.npz", "--save-inputs", "--output y.npz"),
        ("run a.om --get-var v=y.npy --get-var w=y.npy", "--get-var", "--get-var y.npy"),
        ("inspect-om a.om --json -o a.om", "--output", "the input a.om"),
        ("inspect-om a.om --json --data-file link.om", "--data-file", "the input a.om"),
        ("inspect-om a.om --json -o y --data-file y", "--data-file", "--output y"),
        ("compile m.onnx -o link.om", "--output", "the input m.onnx"),
        ("compile m.onnx -o n.om --keep-dtype k.txt --report k.txt", "--report", "the input k.txt"),
    ],
)
def test_no_output_of_any_command_overwrites_an_input_or_another_output(
    compiled: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    option: str,
    owner: str,
) -> None:
    shutil.copytree(compiled, tmp_path / "w", symlinks=True)
    monkeypatch.chdir(tmp_path / "w")
    os.remove("hard.om")
    os.link("a.om", "hard.om")
    shutil.copy(DIGITS, "m.onnx")
    Path("k.txt").write_text("Relu\n")
    if words.startswith("compile"):
        os.remove("link.om")
        os.symlink("m.onnx", "link.om")
    before = {path: path.read_bytes() for path in sorted(Path().rglob("*")) if path.is_file()}
    assert run(words.split()) == 2
    assert f"error[E10047]: {option} would overwrite {owner}\n" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in sorted(Path().rglob("*")) if path.is_file()} == before


def test_variables_are_loaded_from_the_file_that_they_are_saved_in(
    compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(compiled / "a.om", "a.om")
    np.savez("v.npz")
    assert run(["run", "a.om", "-q", "--load-vars", "v.npz", "--save-vars", "v.npz"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("words", [["-i", "d/probabilities.npy"], ["-i", "image=d/probabilities.npy"]])
def test_an_output_in_a_directory_is_no_input_either(
    compiled: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("d").mkdir()
    shutil.copy(compiled / "a.om", "a.om")
    shutil.copy(compiled / "x.npy", "d/probabilities.npy")
    assert run(["run", "a.om", *words, "-o", "d"]) == 2
    assert "--output would overwrite the input d/probabilities.npy" in capsys.readouterr().err
    assert Path("d/probabilities.npy").read_bytes() == (compiled / "x.npy").read_bytes()
    os.rename("d/probabilities.npy", "d/image.npy")
    for _ in range(2):
        assert run(["run", "a.om", "-i", "d/image.npy", "-o", "d", "-q"]) == 0
    assert sorted(os.listdir("d")) == ["image.npy", "probabilities.npy"]


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("cached")
    words = ["compile", str(DIGITS), "-o", str(place / "a.om"), "--input-shape", "image:1,1,8,8", "-q"]
    words += [
        "--cache-create",
        "--cache-dir",
        str(place / "cache"),
        "--graph-key",
        "k",
        "--external-weight",
        "combined",
    ]
    assert run(words) == 0
    (place / "cache/cache.conf").write_text("{}")
    return place


def _into_cache(gecli: Gecli, tmp_path: Path, *words: str) -> None:
    """A compile with these words is refused and changes no file of the cache."""
    files = sorted(each for each in (tmp_path / "cache").rglob("*") if each.is_file())
    before = [each.read_bytes() for each in files]
    done = gecli("compile", str(DIGITS), "-o", "a.om", "--cache-dir", "cache", "--graph-key", "k", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "it belongs to the cache cache" in done.stderr
    assert [each.read_bytes() for each in files] == before


@pytest.mark.parametrize(
    "pattern", ["*.idx", "*.lock", "*.om", "*.gecli.json", "cache.conf", "weight/*c*", ".gecli/*/*"]
)
@pytest.mark.parametrize("kind", ["name", "link", "hard"])
def test_a_compile_does_not_log_into_a_file_of_its_cache(
    gecli: Gecli, cached: Path, tmp_path: Path, pattern: str, kind: str
) -> None:
    shutil.copytree(cached, tmp_path, dirs_exist_ok=True)
    target = next(each for each in sorted((tmp_path / "cache").glob(pattern)) if each.is_file())
    log = target if kind == "name" else tmp_path / "log"
    if kind == "link":
        log.symlink_to(target)
    elif kind == "hard":
        os.link(target, log)
    _into_cache(gecli, tmp_path, "--log-file", str(log))


def test_a_compile_does_not_replace_the_entries_of_its_cache(gecli: Gecli, cached: Path, tmp_path: Path) -> None:
    shutil.copytree(cached, tmp_path, dirs_exist_ok=True)
    entry = next((tmp_path / "cache").glob("k_*.om"))
    _into_cache(gecli, tmp_path, "-o", str(entry))
    _into_cache(gecli, tmp_path, "-o", "cache/new.om", "--external-weight", "combined")
    assert not (tmp_path / "cache/weight/new_weight_combined").exists()


def test_outputs_may_lie_in_the_cache_directory_and_around_it(gecli: Gecli, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for output in ("mine.om", "sub/mine.om"):
        words = ["compile", str(DIGITS), "-o", output, "--input-shape", "image:1,1,8,8", "--cache-dir", "."]
        for _ in range(2):
            done = gecli(*words, "--graph-key", "k", "--log-file", "sub/log")
            assert done.returncode == 0, done.stderr


def test_the_weight_directory_of_a_cache_may_be_the_one_of_the_outputs(
    gecli: Gecli, cached: Path, tmp_path: Path
) -> None:
    shutil.copytree(cached, tmp_path, dirs_exist_ok=True)
    words = ["compile", str(DIGITS), "-o", "b.om", "--input-shape", "image:1,1,8,8", "--cache-dir", "cache"]
    words += ["--external-weight", "combined", "--external-weight-dir", "cache/weight"]
    for _ in range(2):
        assert gecli(*words).returncode == 0
    assert gecli("cache", "verify", "--cache-dir", "cache").returncode == 0


def test_a_link_to_an_entry_is_refused_also_when_the_model_is_a_hit(gecli: Gecli, tmp_path: Path) -> None:
    line = ("compile", str(DIGITS), "-o", "o", "--cache-dir", "c", "--cache-create", "--format-policy", "origin")
    stored = gecli("compile", str(DIGITS), "-o", "a", "--cache-dir", "c", "--cache-create", "--graph-key", "k")
    assert stored.returncode == 0
    entry = next((tmp_path / "c").glob("k_*.om"))
    content = entry.read_bytes()
    for count in (1, 2, 2):
        assert gecli(*line).returncode == 0
        if count == 1:
            continue
        (tmp_path / "o.om").unlink()
        (tmp_path / "o.om").symlink_to(entry)
        done = gecli(*line)
        assert (done.returncode, entry.read_bytes()) == (2, content), done.stdout
        assert "it belongs to the cache c" in done.stderr
        (tmp_path / "o.om").unlink()


@pytest.mark.parametrize("is_link", [True, False])
def test_an_entry_of_a_cache_that_the_command_does_not_name_is_refused(
    is_link: bool, gecli: Gecli, tmp_path: Path
) -> None:
    stored = gecli("compile", str(DIGITS), "-o", "a", "--cache-dir", "c", "--cache-create", "--graph-key", "k")
    assert stored.returncode == 0
    entry = next((tmp_path / "c").glob("k_*.om"))
    content = entry.read_bytes()
    (tmp_path / "o.om").symlink_to(entry)
    done = gecli("compile", str(DIGITS), "-o", "o" if is_link else str(entry), "--format-policy", "origin")
    assert (done.returncode, entry.read_bytes()) == (2, content)
    assert "it belongs to the cache" in done.stderr
