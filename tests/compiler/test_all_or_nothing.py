"""The files of a session appear together, or none of them does (variables.md 15.3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from gecli.compiler import api
from gecli.compiler.api import compile_models
from gecli.errors import OutputError
from gecli.options.resolution import resolve

TRAIN = Path(__file__).parent.parent.parent / "samples" / "train"
MODELS = [str(TRAIN / "conv_train.json"), str(TRAIN / "conv_eval.json")]


def options(directory: Path):
    return resolve(
        "compile",
        {"output": (f"{directory}/out/",), "session-out": (str(directory / "session"),), "cache-mode": ("off",)},
    )


def names(directory: Path) -> list[str]:
    return sorted(str(each.relative_to(directory)) for each in directory.rglob("*"))


def test_every_file_of_a_session_appears(tmp_path: Path) -> None:
    compile_models(MODELS, options(tmp_path))
    files = ["out", *(f"out/conv_{name}.{kind}" for name in ("eval", "train") for kind in ("om", "rdcpkt")), "session"]
    assert names(tmp_path) == files


@pytest.mark.parametrize("failing", ["conv_train.om", "conv_eval.om"])
def test_a_file_that_cannot_be_written_keeps_the_others_away(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_om = api.write_om

    def full(path, image):
        if str(path).endswith(failing):
            raise OutputError("G6002", f"no space to write {path}")
        return write_om(path, image)

    monkeypatch.setattr(api, "write_om", full)
    with pytest.raises(OutputError):
        compile_models(MODELS, options(tmp_path))
    assert names(tmp_path) == []


def test_the_files_of_an_earlier_compile_stay_when_a_later_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_models(MODELS, options(tmp_path))
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path) if (tmp_path / name).is_file()}
    monkeypatch.setattr(api, "write_om", lambda path, image: (_ for _ in ()).throw(OutputError("G6002", "full")))
    with pytest.raises(OutputError):
        compile_models(MODELS, options(tmp_path))
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path) if (tmp_path / name).is_file()} == before
