"""What `--jit` would take from the cache, without compiling, locking or changing anything: `gecli cache why --jit`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from gecli.cache.candidate import Found
from gecli.cache.model_cache import Lookup
from gecli.cache.reasons import REASONS
from gecli.compiler.cache_inquiry import Inquiry
from gecli.jit.loading import JitSetup


class SliceInquiry(NamedTuple):
    """The answer for one slice of a model and the inputs of `sample`, which is empty for hinted shapes."""

    inquiry: Inquiry
    sample: str
    slice: int | None


def inquire(
    setup: JitSetup, source: str, sample: str, arrays: Sequence[NDArray[Any]], *, runs: bool
) -> list[SliceInquiry]:
    """An answer for each slice that these inputs pass, to the first that would be compiled; a found one runs for that.

    Without `runs` the answer is about the first slice only. Raises GecliError.
    """
    if not setup.key:
        return [SliceInquiry(Inquiry(source, "", "", Lookup(None, "disabled"), setup.note), sample, None)]
    answers = _answers(setup, source, sample, arrays)
    return list(answers) if runs else [next(answers)]


def _answers(setup: JitSetup, source: str, sample: str, arrays: Sequence[NDArray[Any]]) -> Iterator[SliceInquiry]:
    model = setup.model
    for each in model.look_up(arrays):
        found, reason = None, ""
        if each.version is not None:
            found = Found(each.version.key, each.version.stem, "jit", None, "", lost_sidecar=True)
        elif each.rejected:
            reason = each.rejected[0].reason  # damage comes before versions for other inputs
        else:
            reason = model.restored.reason or "no_entry"
        evidence = "" if found is not None or each.rejected else model.restored.evidence
        lookup = Lookup(found, reason, each.rejected)
        note = f"{REASONS[reason]} ({evidence})" if evidence else ""
        yield SliceInquiry(Inquiry(source, setup.key, setup.key_origin, lookup, note), sample, each.id)
