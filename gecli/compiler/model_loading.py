"""Models of a command as graphs: front end, input shapes, and the options that change a graph before its passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gecli.compiler.graph_options import apply_graph_options
from gecli.compiler.job import Job
from gecli.compiler.pass_switches import switch_warnings
from gecli.errors import Diagnostic, GecliError, InvalidOption
from gecli.loading import LoadedModel, LoadOptions, load_graph
from gecli.loading.input_shapes import InputShapes, parse_input_shapes
from gecli.options.values import Options
from gecli.passes.registry import pass_names

RANGE = "input_shape_range"
FRAMEWORKS = {1: "air", 3: "tf", 5: "onnx"}  # atc's numbers


def load_all(
    jobs: Sequence[Job], options: Options, progress: Callable[[str, str], None] | None = None
) -> tuple[list[LoadedModel], list[GecliError]]:
    """Load every model. With --keep-going the errors of models are returned, else the first is raised."""
    loaded: list[LoadedModel] = []
    failed: list[GecliError] = []
    for job in jobs:
        try:
            loaded.append(load_model(job, options, progress))
        except GecliError as error:
            if not options.flag("keep-going"):
                raise
            failed.append(error)
    return loaded, failed


def load_model(job: Job, options: Options, progress: Callable[[str, str], None] | None = None) -> LoadedModel:
    """Load one model and apply the options to its graph. Raises InputError and InvalidOption."""
    if progress:
        progress(job.stem, "parse")
    shapes, warnings = input_shapes(options)
    loaded = load_graph(
        job.source,
        front_end=front_end(options),
        input_shapes=shapes,
        base_dir=options.text("base-dir"),
        options=LoadOptions(
            allow_outside=options.flag("allow-external-outside"),
            allow_unsupported=options.flag("allow-unsupported"),
            rename_duplicates=options.flag("rename-duplicates"),
        ),
    )
    warnings += apply_graph_options(loaded, options)
    warnings += switch_warnings(options, pass_names())
    return replace(loaded, warnings=(*loaded.warnings, *warnings)) if warnings else loaded


def front_end(options: Options) -> str:
    """The front end that --from or --framework names. Raises InvalidOption when they disagree."""
    name = options.text("from") or "auto"
    number = options.integer("ge.frameworkType")
    by_number = FRAMEWORKS.get(number) if number is not None else None
    if by_number is None or name == by_number:
        return name
    if name != "auto":
        raise InvalidOption(
            "E10047",
            f"--from {name} and --framework {number} name two front ends",
            why=f"--framework {number} is {by_number}",
            do="leave out --framework",
            option="--framework",
            expected=name,
            actual=by_number,
        )
    return by_number


def input_shapes(options: Options) -> tuple[InputShapes, list[Diagnostic]]:
    """What was said about input shapes; --input-shape-range wins over --input-shape, with warnings, as in atc."""
    ranges, shapes = options.text(RANGE), options.texts("input_shape")
    if not ranges:
        return parse_input_shapes(shapes, options.texts("dim")), []
    warnings = [
        Diagnostic(
            "E10048",
            "--input-shape-range is deprecated",
            do=f'--input-shape "{ranges}"',
            severity="warning",
            option="--input-shape-range",
        )
    ]
    if shapes:
        text = ";".join(shapes)
        message = f'--input-shape "{text}" is not used: --input-shape-range is given too'
        warnings.append(Diagnostic("E10048", message, severity="warning", option="--input-shape"))
    return parse_input_shapes((ranges,), options.texts("dim"), "--input-shape-range"), warnings
