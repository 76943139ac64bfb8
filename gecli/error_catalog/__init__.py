"""The catalogue of diagnostics: code -> exit status, title, cause and remedy.

Codes beginning with E and W are GE's and keep GE's meaning; codes beginning with G are gecli's own.
"""

from __future__ import annotations

from gecli.error_catalog.entry import EXIT_STATUSES, INTERNAL_STATUS, RUN, Entry
from gecli.error_catalog.ge_codes import GE_CODES
from gecli.error_catalog.gecli_codes import GECLI_CODES

__all__ = [
    "CATALOGUE",
    "EXIT_STATUSES",
    "Entry",
    "entry_of",
    "exit_status_of",
    "explain_text",
    "similar_codes",
    "statuses_of",
    "title_of",
]

CATALOGUE: dict[str, Entry] = {**GE_CODES, **GECLI_CODES}

# Codes that stand for two exit statuses: the short name of the fault decides.
_STATUS_OF_KIND: dict[tuple[str, str], int] = {
    **{
        (code, kind): RUN  # a weight file that cannot be read while a model runs
        for code in ("E13000", "E13001", "E13003")
        for kind in ("RT_WEIGHT_MISSING", "RT_WEIGHT_SHORT", "RT_WEIGHT_HASH")
    },
    ("G4010", "RT_NOT_INITED"): RUN,
    ("G4010", "RT_VAR_NOT_FOUND"): RUN,
    ("G4011", "RT_INIT_VALUE_MISMATCH"): RUN,
    ("G4012", "RT_RW_RACE"): RUN,
    ("G4012", "RT_IO_REUSE"): RUN,
}


def entry_of(code: str) -> Entry | None:
    """The catalogue entry of a code, None if there is none; GE's Caffe codes share one entry."""
    if code in CATALOGUE:
        return CATALOGUE[code]
    caffe = len(code) == 6 and code.startswith("E11") and code[1:].isascii() and code[1:].isdecimal()
    return CATALOGUE["E11xxx"] if caffe else None


def exit_status_of(code: str, kind: str = "") -> int:
    """The exit status of an error with this code; `kind` decides where a code stands for two."""
    status = _STATUS_OF_KIND.get((code, kind))
    if status is not None:
        return status
    entry = entry_of(code)
    return INTERNAL_STATUS if entry is None else entry.exit_status


def title_of(code: str) -> str:
    entry = entry_of(code)
    return "" if entry is None else entry.title


def statuses_of(code: str) -> tuple[int, ...]:
    """Every exit status that the code can end with, the usual one first."""
    usual = exit_status_of(code)
    others = {status for (known, _), status in _STATUS_OF_KIND.items() if known == code} - {usual}
    return (usual, *sorted(others))


def explain_text(code: str) -> str:
    """The full entry of a code as shown by `gecli explain`, or "" for an unknown code."""
    entry = entry_of(code)
    if entry is None:
        return ""
    statuses = " or ".join(str(status) for status in statuses_of(code))
    return (
        f"{code}: {entry.title}\n\nCause:       {entry.cause}\nRemedy:      {entry.remedy}\nExit status: {statuses}\n"
    )


def similar_codes(code: str, count: int = 3) -> list[str]:
    """Known codes that look most like `code`: those with the longest common beginning, then the nearest number."""
    wanted = code.strip().upper()
    digits = "".join(char for char in wanted if char in "0123456789") or "0"

    def distance(known: str) -> tuple[int, int, str]:
        common = 0
        while common < min(len(known), len(wanted)) and known[common] == wanted[common]:
            common += 1
        number = "".join(char for char in known if char.isdigit())
        return -common, abs(int(number) - int(digits[:9])), known

    return sorted((code for code in CATALOGUE if code[1:].isdigit()), key=distance)[:count]
