"""Text dumps are read in less than twice the file and 64 MiB, whatever they say, and what is refused is so at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.artifacts.hostile_graphs import repeated
from tests.artifacts.test_om_memory import ALLOWED_BYTES, MIB, measured

SIZE = 4 * MIB
HEAD = b'name: "m"\ngraph {\n name: "g"\n op { name: "a" type: "Data" }\n'
DUMP = b'ir_version: 7\nproducer_name: "ge"\ngraph {\n name: "g"\n node { name: "a" op_type: "ge:Data" }\n'
NODE = b'node { name: "b" op_type: "ge:Add" '
MANY_DESCS = b'node { attribute { name: "input_desc_dtype:65535" s: "DT_FLOAT" } }'
READ, REFUSED = 0, 3
HOSTILE: dict[str, tuple[int, Callable[[], bytes]]] = {
    "operators of no bytes": (REFUSED, lambda: HEAD + b"op{}" * (SIZE // 4) + b"}"),
    "operators with a name": (REFUSED, lambda: HEAD + repeated(lambda k: b'op{name:"%x"}' % k, SIZE) + b"}"),
    "unknown fields": (REFUSED, lambda: HEAD + repeated(lambda k: b"x%x:1 " % k, SIZE) + b"}"),
    "a list of numbers": (
        REFUSED, lambda: HEAD + b"op { attr { value { list { i: [" + b"1," * (SIZE // 2) + b"1] } } } } }",
    ),
    "numbers": (REFUSED, lambda: HEAD + b"op { attr { value { list { " + b"i:1 " * (SIZE // 4) + b"} } } } }"),
    "strings side by side": (REFUSED, lambda: HEAD + b"op { name: " + b'"" ' * (SIZE // 3) + b"} }"),
    "nesting": (REFUSED, lambda: HEAD + b"op{" * (SIZE // 3)),
    "a long name": (READ, lambda: HEAD + b'op { name: "' + b"n" * SIZE + b'" } }'),
    "escapes": (READ, lambda: HEAD + b'op { name: "' + b"\\n" * (SIZE // 2) + b'" } }'),
    "a string without an end": (REFUSED, lambda: HEAD + b'op { name: "' + b"\\n" * (SIZE // 2)),
    "comments": (READ, lambda: HEAD + b"#\n" * (SIZE // 2) + b"}"),
    "blanks": (REFUSED, lambda: HEAD + b" " * SIZE + b"~"),
    "a long number": (REFUSED, lambda: HEAD + b"op { id: " + b"9" * SIZE + b" } }"),
    "nodes of no bytes": (REFUSED, lambda: DUMP + b"node{}" * (SIZE // 6) + b"}"),
    "attributes": (REFUSED, lambda: DUMP + NODE + repeated(lambda k: b'attribute{name:"%x" i:1}' % k, SIZE) + b"} }"),
    "descriptors that are left out": (READ, lambda: DUMP + MANY_DESCS * (SIZE // 2 // len(MANY_DESCS)) + b"}"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_dump_stays_within_the_bound(name: str, tmp_path: Path) -> None:
    status, content = HOSTILE[name]
    path = tmp_path / "hostile.txt"
    path.write_bytes(content())
    begin = time.monotonic()
    peak, actual, _ = measured("-m", "gecli", "inspect-om", "--summary", str(path))
    limit = 2 * path.stat().st_size + ALLOWED_BYTES
    assert actual == status and peak < limit, f"{peak / MIB:.1f} MiB of {limit / MIB:.1f}"
    assert time.monotonic() - begin < 60, "it takes a second on an idle machine"
