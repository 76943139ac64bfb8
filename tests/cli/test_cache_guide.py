"""The commands in docs/cache.md do what stands below them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from gecli.cache.index import index_text, parse_index
from tests.conftest import REPOSITORY

Run = Callable[..., "subprocess.CompletedProcess[str]"]
GUIDE = REPOSITORY / "docs/cache.md"


def same(line: str) -> str:
    """A line without what differs from run to run: numbers, digests and the blanks that they take."""
    return re.sub(r"\s+", " ", re.sub(r"\b[0-9a-f]{12}\b|\d+", "#", line)).strip()


def steps() -> list[tuple[list[str], list[str]]]:
    """Each command of the guide with the lines that it prints. A line behind `\\`, or far indented, goes on with it."""
    found: list[tuple[list[str], list[str]]] = []
    text = re.sub(r"^```.*?^```$", "", GUIDE.read_text(), flags=re.DOTALL | re.MULTILINE)
    for line in re.sub(r"(?: \\)?\n {10,}", " ", text).splitlines():
        if line.startswith("    $ gecli "):
            found.append((shlex.split(line)[2:], []))
        elif line.startswith("    ") and found:
            found[-1][1].append(line[4:])
    return found


def test_the_guide_is_true(gecli: Run, tmp_path: Path) -> None:
    shutil.copy(REPOSITORY / "samples/digits/digits.onnx", tmp_path)
    assert len(steps()) > 8
    for words, wanted in steps():
        result = gecli(*words)
        assert result.returncode == (1 if words[:2] == ["cache", "why"] else 0), result.stderr
        printed = [same(line) for line in result.stdout.splitlines()]
        missing = [line for line in wanted if line != "..." and same(line) not in printed]
        assert missing == [], result.stdout
        assert "..." in wanted or len(wanted) == len(printed), result.stdout


def test_the_index_in_the_guide_is_the_text_that_gecli_writes(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```json\n(.*?)\n```$", GUIDE.read_text(), flags=re.DOTALL | re.MULTILINE)
    content = parse_index(block.encode(), str(tmp_path))
    assert [(each.graph_key, each.problem) for each in content.records] == [("net", "")]
    assert index_text(content) == block
