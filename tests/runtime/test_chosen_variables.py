"""`--var-names` and `--vars-strict`: which variables of a file are loaded and saved (runtime.md 5.7)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.options.workshop import write_models


@pytest.fixture
def place(gecli, tmp_path: Path) -> Path:
    write_models(tmp_path)
    assert gecli("compile", "bare.json", "conv.json", "-o", "s/").returncode == 0
    w = np.arange(72, dtype=np.float32).reshape(8, 1, 3, 3)
    np.savez(tmp_path / "all.npz", v=np.float32([1, 2]), w=w, stranger=np.float32([3]))
    return tmp_path


@pytest.mark.parametrize(("globs", "loaded"), [("*", "vw"), ("v", "v"), ("[vx],w*", "vw"), ("w", "w")])
def test_names_and_patterns_choose_what_is_loaded(gecli, place: Path, globs: str, loaded: str) -> None:
    words = ("run", "s/bare.om", "s/conv.om", "--init", "zero", "--load-vars", "all.npz", "--var-names", globs)
    done = gecli(*words, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["variables"]
    by_file = {name for name, row in found.items() if row["initialised_by"] == "--load-vars all.npz"}
    assert by_file == set(loaded)


def test_names_choose_what_is_saved(gecli, place: Path) -> None:
    words = ("run", "s/bare.om", "s/conv.om", "--init", "zero", "--save-vars", "some.npz")
    assert gecli(*words, "--var-names", "w").returncode == 0
    assert np.load(place / "some.npz").files == ["w", "__meta__"]
    refused = gecli(*words, "--var-names", "w,u*", "-o", "out.npz")
    assert refused.returncode == 2 and "u* names no variable of the models" in refused.stderr
    assert not (place / "out.npz").exists()


def test_a_file_with_others_than_the_session_has_is_a_note_or_refused(gecli, place: Path) -> None:
    words = ("run", "s/bare.om", "s/conv.om", "--load-vars", "all.npz")
    assert gecli(*words).returncode == 0
    strict = gecli(*words, "--vars-strict", "--save-vars", "s.npz")
    assert strict.returncode == 6 and "G4008" in strict.stderr and "stranger" in strict.stderr
    assert not (place / "s.npz").exists()
    assert gecli(*words, "--vars-strict", "--var-names", "v,w").returncode == 0


@pytest.mark.parametrize("words", [("--var-names", "w"), ("--vars-strict", "--save-vars", "v.npz")])
def test_a_choice_needs_something_to_choose_from(gecli, place: Path, words: tuple[str, ...]) -> None:
    done = gecli("run", "s/conv.om", *words)
    assert done.returncode == 2 and f"{words[0]} belongs to --load-vars" in done.stderr
