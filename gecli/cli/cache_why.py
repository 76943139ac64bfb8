"""`gecli cache why`: would a compile with these words hit, and if not, why (cache.md 12.6)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gecli.cli.cache_directory import directory_of
from gecli.cli.cache_schema import print_schema
from gecli.cli.invocation import Invocation

if TYPE_CHECKING:
    from gecli.cli.console import Console
    from gecli.jit.inquiry import SliceInquiry
    from gecli.options.values import Options

MISS = 1
# They change what a compile does with its answer, not the answer.
WITHOUT_EFFECT = ("cache-create", "require-cache", "explain-cache")


def cache_why(invocation: Invocation) -> int:
    """Print what the cache holds for each model; 0 when every one of them would be taken from it."""
    typed = {key: list(texts) for key, texts in invocation.typed.items() if key not in WITHOUT_EFFECT}
    console = invocation.console
    models = [*invocation.operands, *typed.get("model", ())]
    if "output" not in typed and "jit" not in typed:
        # The name of the output is in the model, so it counts: without one, that of the source.
        first = "model" if models[:1] in ([], ["-"]) else os.path.splitext(os.path.basename(models[0].rstrip("/")))[0]
        typed["output"] = [first or "model"] if len(models) < 2 else ["./"]
    invocation.typed = typed
    options = invocation.resolve(operand="MODEL", as_command="compile")
    if options.flag("print-schema"):
        return print_schema(invocation.subcommand, console)
    directory_of(options)
    from gecli.report.cache_why_report import slice_document, slice_lines, why_document, why_lines

    if options.flag("jit"):
        slices = _about_slices(models, options, console)
        lines = [line for answer in slices for line in slice_lines(answer)]
        document = slice_document(directory_of(options), slices)
    else:
        from gecli.compiler.cache_inquiry import inquire

        answers = inquire(models, options, None)
        lines = [line for answer in answers for line in why_lines(answer)]
        document = why_document(directory_of(options), answers)
    console.result("\n".join(lines))
    if console.json:
        console.document(document)
    return 0 if document["would_hit"] else MISS


def _about_slices(models: Sequence[str], options: Options, console: Console) -> list[SliceInquiry]:
    """The slices that each sample passes; without one the first slice, for the shapes that are known or hinted at."""
    from gecli.cli.jit import check_one_model, hinted_inputs
    from gecli.jit.inquiry import inquire
    from gecli.jit.loading import load_jit_model
    from gecli.runtime.inputs import InputOptions, requests_for
    from gecli.runtime.model import check_input
    from gecli.runtime.session import Session

    check_one_model(models)
    setup = load_jit_model(models[0], options, Session(), say=console.say, reads_only=True)
    console.report(setup.warnings)
    inputs, samples = setup.model.inputs, options.texts("sample")
    if not samples:
        return inquire(setup, models[0], "", hinted_inputs(setup.model, options), runs=False)
    return [
        answer
        for sample in samples
        for feeds in requests_for(inputs, [sample], InputOptions())
        for answer in inquire(setup, models[0], sample, [check_input(each, feeds) for each in inputs], runs=True)
    ]
