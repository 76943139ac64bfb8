"""atc's modes that look at files instead of compiling: 1 (OM to JSON) and 6 (model information)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gecli.cli.console import Console
    from gecli.options.values import Options


def inspect_as_atc(options: Options, models: list[str], console: Console) -> int:
    """Run `gecli inspect-om` with the view that the mode stands for. Raises InvalidOption."""
    from gecli.errors import InvalidOption

    mode, om = options.get("mode"), options.text("om")
    if mode == 1 and models:
        raise InvalidOption(
            "E10055",
            "--mode 1 of a source model is not supported",
            why="gecli writes its own JSON graph, not atc's",
            do="--emit json --stop-after parse",
            option="--mode",
        )
    if not om:
        raise InvalidOption("E10004", f"--mode {mode} needs --om", do="--om FILE", option="--om")
    words = {"info": ("true",)} if mode == 6 else {"atc-json": ("true",)}
    target = options.text("json-file")
    return inspect_file(om, {**words, **({"output": (target,)} if target else {})}, console)


def show_model_info(path: str, console: Console) -> int:
    """--display-model-info=1: the text of mode 6 for an OM that was just written."""
    if console.json:  # stdout belongs to the document of the compile
        from gecli.cli.console import Console

        console = Console(quiet=console.quiet, stdout=console.stderr, stderr=console.stderr)
    return inspect_file(path, {"info": ("true",)}, console)


def inspect_file(path: str, typed: dict[str, tuple[str, ...]], console: Console) -> int:
    from gecli.options.resolution import resolve
    from gecli.report.inspect.command import inspect_command

    return inspect_command(resolve("inspect-om", typed), [path], console)
