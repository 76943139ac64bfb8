"""cache_manual_check lets pass what one side does not say about a foreign entry; contradictions still miss."""

from __future__ import annotations

from pathlib import Path

import pytest

from gecli.cache.foreign import match_foreign
from gecli.compiler.api import compile_model
from gecli.ir.text import parse

TEXT = "graph g(%x : f32[2,3] ND) {\n %b = Relu(%x) : f32[2,3] ND\n return %b\n}"
MODEL = """{"graph": {"name": "g", "inputs": ["x"], "outputs": ["b:0"]}, "directed": true, "multigraph": true,
"nodes": [{"id": "x", "type": "Data", "outputs": [{"dtype": "float32", "shape": [2, 3]}]},
{"id": "b", "type": "Relu"}], "links": [{"source": "x", "target": "b", "src_out": 0, "dst_in": 0}]}"""


@pytest.fixture
def foreign(tmp_path: Path) -> str:
    (tmp_path / "m.json").write_text(MODEL)
    compile_model(tmp_path / "m.json", tmp_path / "m.om")
    data = (tmp_path / "m.om").read_bytes()
    # As another tool writes it: other attribute names of the same length, no digest of gecli's.
    (tmp_path / "m.om").write_bytes(data.replace(b"_gecli_fp", b"_other_fp").replace(b"gecli1", bytes(6), 1))
    return str(tmp_path / "m.om")


@pytest.mark.parametrize(
    ("text", "strict", "lenient"),
    [
        (TEXT, "", ""),
        (TEXT.replace("%x : f32[2,3]", "%x : f32[-1,3]"), "signature_mismatch", ""),
        (TEXT.replace("%x : f32[2,3]", "%x : f32[5,3]"), "signature_mismatch", "signature_mismatch"),
        (TEXT.replace("%x : f32[2,3]", "%x : f16[2,3]"), "signature_mismatch", "signature_mismatch"),
        (
            TEXT.replace("%b =", "%w = Variable() : f32[2,3] ND\n %b ="),
            "signature_mismatch",
            "signature_mismatch",
        ),
    ],
)
def test_only_what_is_not_known_passes(text: str, strict: str, lenient: str, foreign: str) -> None:
    assert match_foreign(foreign, "sha256:x", parse(text)).reason == strict
    assert match_foreign(foreign, "sha256:x", parse(text), lenient=True).reason == lenient
