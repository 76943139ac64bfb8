"""The console: streams, limits, JSON that is valid everywhere."""

from __future__ import annotations

import io
import json

import pytest

from gecli.cli.console import Console
from gecli.errors import Diagnostic


def screens(encoding: str = "utf-8") -> tuple[io.TextIOWrapper, io.TextIOWrapper]:
    return io.TextIOWrapper(io.BytesIO(), encoding), io.TextIOWrapper(io.BytesIO(), encoding)


def written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode(stream.encoding)


def test_results_are_on_stdout_and_chatter_on_stderr() -> None:
    out, err = screens()
    console = Console(stdout=out, stderr=err, environ={})
    console.result("data")
    console.say("note")
    console.say("detail", level=1)
    assert (written(out), written(err)) == ("data\n", "note\n")


def test_with_json_the_results_for_people_go_to_stderr() -> None:
    out, err = screens()
    console = Console(json=True, stdout=out, stderr=err, environ={})
    console.result("data")
    console.document({"b": 1, "a": 2})
    assert written(out) == '{\n  "a": 2,\n  "b": 1\n}\n'
    assert written(err) == "data\n"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_a_document_is_valid_json_in_every_encoding(encoding: str) -> None:
    out, err = screens(encoding)
    content = {"name": "\u00e9\u4e2d", "bad file name": "\udc80", "values": [float("nan"), float("-inf"), 1.5]}
    Console(json=True, stdout=out, stderr=err, environ={}).document(content)
    assert json.loads(written(out)) == {**content, "values": ["nan", "-inf", 1.5]}


def test_at_most_twenty_diagnostics_of_one_code_are_shown() -> None:
    out, err = screens()
    console = Console(stdout=out, stderr=err, environ={})
    console.report([Diagnostic("E16002", f"operator {index}") for index in range(25)] + [Diagnostic("G1005", "sum")])
    text = written(err)
    assert text.count("error[E16002]") == 20
    assert "[E16002] and 5 more; --json lists 25" in text
    assert "error[G1005]: sum" in text


def test_quiet_shows_errors_only_and_notes_need_verbosity() -> None:
    found = [Diagnostic("E10001", severity, severity=severity) for severity in ("error", "warning", "note")]
    for settings, shown in (({"quiet": True}, 1), ({}, 2), ({"verbosity": 1}, 3)):
        out, err = screens()
        Console(stdout=out, stderr=err, environ={}, **settings).report(found)  # type: ignore[arg-type]  # keywords
        assert sum(not line.startswith(" ") for line in written(err).splitlines()) == shown


def test_text_that_the_terminal_cannot_show_is_escaped() -> None:
    out, err = screens("ascii")
    Console(stdout=out, stderr=err, environ={}).result("\u00e9")
    assert written(out) == "\\xe9\n"
