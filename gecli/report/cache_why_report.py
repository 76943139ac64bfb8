"""The document and the lines of `gecli cache why` (cache.md 12.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gecli.cache.reasons import REASONS

if TYPE_CHECKING:
    from gecli.cache.candidate import Rejected
    from gecli.compiler.cache_inquiry import Inquiry
    from gecli.jit.inquiry import SliceInquiry


def slice_lines(answer: SliceInquiry) -> list[str]:
    """As `why_lines`, for one slice and the inputs of a sample."""
    parts = [answer.sample, "" if answer.slice is None else f"slice {answer.slice}"]
    return why_lines(answer.inquiry, [part for part in parts if part])


def why_lines(answer: Inquiry, parts: Sequence[str] = ()) -> list[str]:
    """The answer, then each candidate with the first check that it failed and what was seen."""
    lookup = answer.lookup
    where = f"{', '.join([answer.source, *parts])}: " + (
        f"key {answer.key} ({answer.key_origin}), " if answer.key else ""
    )
    if lookup.found is not None:
        foreign = " (foreign)" if lookup.found.is_foreign else ""
        adopted = ", which is complete but not indexed yet" if answer.adopts else ""
        lines = [f"{where}would hit {lookup.found.stem} via {lookup.found.via}{foreign}{adopted}"]
        lines += [f"  warning: {text}" for text in lookup.found.warnings]
    else:
        words = answer.note or REASONS.get(lookup.reason, "")
        lines = [f"{where}would miss, {lookup.reason}{f': {words}' if words else ''}"]
    for each in lookup.rejected:
        lines.append(f"  {each}")
        lines += [f"    {detail}" for detail in each.details]
    for near in answer.near:
        lines.append(f"  {near.entry}, under key {near.key}: {near.kind}")
        lines += [f"    {detail}" for detail in near.details]
    return lines


def why_document(directory: str, answers: Sequence[Inquiry]) -> dict[str, Any]:
    return _document(directory, [{**_answer_json(answer), "sample": None, "slice": None} for answer in answers])


def slice_document(directory: str, answers: Sequence[SliceInquiry]) -> dict[str, Any]:
    rows = [(_answer_json(each.inquiry), each.sample or None, each.slice) for each in answers]
    return _document(directory, [{**row, "sample": sample, "slice": number} for row, sample, number in rows])


def _document(directory: str, models: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schema": "gecli.cache-why/1",
        "cache_dir": directory,
        "would_hit": all(model["would_hit"] for model in models),
        "models": models,
    }


def _answer_json(answer: Inquiry) -> dict[str, Any]:
    found = answer.lookup.found
    reason = answer.lookup.reason if found is None else ""
    return {
        "source": answer.source,
        "key": answer.key or None,
        "key_origin": answer.key_origin or None,
        "would_hit": found is not None,
        "entry": None if found is None else found.stem,
        "via": None if found is None else found.via,
        "adopts": answer.adopts,
        "foreign": found is not None and found.is_foreign,
        "reason": reason or None,
        "reason_text": (answer.note or REASONS.get(reason)) if found is None else None,
        "warnings": [] if found is None else list(found.warnings),
        "candidates": [_candidate_json(each) for each in answer.lookup.rejected],
        "near": [{"key": each.key, "entry": each.entry, "details": list(each.details)} for each in answer.near],
    }


def _candidate_json(each: Rejected) -> dict[str, Any]:
    return {
        "entry": each.stem or None,
        "reason": each.reason,
        "reason_text": REASONS.get(each.reason),
        "evidence": each.evidence or None,
        "details": list(each.details),
    }
