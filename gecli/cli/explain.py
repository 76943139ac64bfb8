"""`gecli explain CODE`: the catalogue entry of a diagnostic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gecli.cli.console import Console
from gecli.error_catalog import CATALOGUE, entry_of, explain_text, similar_codes, statuses_of

if TYPE_CHECKING:
    from gecli.errors import Diagnostic


def explain(codes: list[str], console: Console) -> int:
    """Print the entries of the codes; without one, or for `all`, a line for each code there is.

    The short name of a fault, such as RT_VAR_DESC_MISMATCH, stands for the codes that have it. An unknown one is an
    error that names similar ones.
    """
    if not codes or [code.lower() for code in codes] == ["all"]:
        console.result("\n".join(f"{code}  {entry.title}" for code, entry in sorted(CATALOGUE.items())))
        if console.json:
            console.document({"schema": "gecli.explain/1", "codes": [_as_json(code) for code in sorted(CATALOGUE)]})
        return 0
    wanted = list(dict.fromkeys(code for each in codes for code in _codes_of(each.strip().upper())))
    unknown = [code for code in wanted if entry_of(code) is None]
    if unknown:
        from gecli.errors import InvalidOption

        raise InvalidOption.of(_unknown(code) for code in unknown)
    console.result("\n".join(explain_text(code) for code in wanted).rstrip())
    if console.json:
        console.document({"schema": "gecli.explain/1", "codes": [_as_json(code) for code in wanted]})
    return 0


def _codes_of(word: str) -> tuple[str, ...]:
    if "_" not in word:
        return (word,)
    from gecli.error_catalog.short_names import CODES_OF_NAMES

    return CODES_OF_NAMES.get(word, (word,))


def _unknown(code: str) -> Diagnostic:
    from gecli.errors import Diagnostic

    if "_" in code:
        from gecli.error_catalog.short_names import similar_names

        if names := similar_names(code):
            why = f"similar names: {', '.join(names)}"
            return Diagnostic("E10001", f'unknown name "{code}"', why=why, do=f"gecli explain {names[0]}")
    if not code[1:].isdigit():
        why = "a code is E, W or G with digits behind it, as messages show it; gecli explain lists all of them"
        return Diagnostic("E10001", f'"{code}" is no code', why=why, do="gecli explain E10016")
    near = similar_codes(code)
    why = f"similar codes: {', '.join(near)}"
    return Diagnostic("E10001", f'unknown code "{code}"', why=why, do=f"gecli explain {near[0]}")


def _as_json(code: str) -> dict[str, object]:
    entry = entry_of(code)
    assert entry is not None  # checked by the caller
    return {
        "code": code,
        "title": entry.title,
        "cause": entry.cause,
        "remedy": entry.remedy,
        "exit_statuses": list(statuses_of(code)),
    }
