"""`gecli cache why`: would a compile with these words hit, and if not, why (cache.md 12.6)."""

from __future__ import annotations

import os

from gecli.cli.cache_directory import directory_of
from gecli.cli.cache_schema import print_schema
from gecli.cli.invocation import Invocation

MISS = 1
# They change what a compile does with its answer, not the answer.
WITHOUT_EFFECT = ("cache-create", "require-cache", "explain-cache")


def cache_why(invocation: Invocation) -> int:
    """Print what the cache holds for each model; 0 when every one of them would be taken from it."""
    typed = {key: list(texts) for key, texts in invocation.typed.items() if key not in WITHOUT_EFFECT}
    console = invocation.console
    models = [*invocation.operands, *typed.get("model", ())]
    if "output" not in typed:
        # The name of the output is in the model, so it counts: without one, that of the source.
        first = "model" if models[:1] in ([], ["-"]) else os.path.splitext(os.path.basename(models[0].rstrip("/")))[0]
        typed["output"] = [first or "model"] if len(models) < 2 else ["./"]
    invocation.typed = typed
    options = invocation.resolve(operand="MODEL", as_command="compile")
    if options.flag("print-schema"):
        return print_schema(invocation.subcommand, console)
    if options.flag("jit"):
        from gecli.errors import InvalidOption

        why = "which version of a slice is used depends on the inputs"
        do = "gecli run --jit MODEL -i INPUTS --cache-dir DIR --explain-cache"
        raise InvalidOption("E10055", "cache why is about whole models, not slices", option="--jit", why=why, do=do)
    directory_of(options)
    from gecli.compiler.cache_inquiry import inquire
    from gecli.report.cache_why_report import why_document, why_lines

    answers = inquire(models, options, None)
    console.result("\n".join(line for answer in answers for line in why_lines(answer)))
    if console.json:
        console.document(why_document(directory_of(options), answers))
    return 0 if all(answer.lookup.found is not None for answer in answers) else MISS
