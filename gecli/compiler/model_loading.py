"""Models of a command as graphs: front end, input shapes, and the options that change a graph before its passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gecli.compiler.graph_options import apply_graph_options
from gecli.compiler.job import Job
from gecli.compiler.pass_switches import switch_warnings
from gecli.compiler.settings import limit_warnings
from gecli.errors import Diagnostic, GecliError, InputError, InvalidOption
from gecli.loading import LoadedModel, LoadOptions, load_graph
from gecli.loading.input_shapes import InputShapes, parse_input_shapes
from gecli.options.values import Options
from gecli.passes.registry import pass_names

RANGE = "input_shape_range"
FRAMEWORKS = {1: "air", 3: "tf", 5: "onnx"}  # atc's numbers


def load_all(
    jobs: Sequence[Job], options: Options, progress: Callable[[str, str], None] | None = None
) -> tuple[list[LoadedModel], list[GecliError]]:
    """Load every model. With --keep-going the errors of models are returned, else the first is raised.

    A name in a shape option must belong to one of the models. Raises InvalidOption for one that belongs to none.
    """
    if options.text("singleop") is not None:
        from gecli.compiler.single_op import load_single_ops

        return load_single_ops(jobs, options), []
    loaded: list[LoadedModel] = []
    failed: list[GecliError] = []
    for job in jobs:
        try:
            loaded.append(load_model(job, options, progress))
        except GecliError as error:
            if not options.flag("keep-going"):
                raise
            failed.append(error)
    if len(loaded) > 1 and not failed:
        check_names(loaded)
        if any(each.graph.is_optimised for each in loaded):
            from gecli.compiler.optimised_graphs import check_session

            check_session(loaded)
    return loaded, failed


def check_names(loaded: Sequence[LoadedModel]) -> None:
    """Raises InvalidOption for the names in shape options that none of the models has."""
    lacking = [{(each.option, str(each.actual)): each for each in model.unmatched} for model in loaded]
    nowhere = [name for name in lacking[0] if all(name in faults for faults in lacking)]
    if nowhere:
        sources = [model.path for model in loaded]
        raise InvalidOption.of(_in_no_model(sources, [faults[name] for faults in lacking]) for name in nowhere)


def _in_no_model(sources: Sequence[str], faults: Sequence[Diagnostic]) -> Diagnostic:
    """One fault for all models, with what each of them has."""
    reasons = "; ".join(f"{source}: {fault.why}" for source, fault in zip(sources, faults))
    where = faults[0].where.partition("   (model")[0]
    message = f"{faults[0].option} names {str(faults[0].actual)!r}, which none of the {len(sources)} models has"
    do = " or ".join(dict.fromkeys(fault.do for fault in faults if fault.do))
    return replace(faults[0], message=message, where=where, why=reasons, do=do)


def load_model(job: Job, options: Options, progress: Callable[[str, str], None] | None = None) -> LoadedModel:
    """Load one model and apply the options to its graph. Raises InputError and InvalidOption.

    Names in shape options that one of several models lacks are in its `unmatched`.
    """
    if progress:
        progress(job.stem, "parse")
    shapes, warnings = input_shapes(options)
    name = front_end(options)
    if job.one_of_several:
        shapes = replace(shapes, for_several_models=True)
    allowed = LoadOptions(
        allow_outside=options.flag("allow-external-outside"),
        allow_unsupported=options.flag("allow-unsupported"),
        rename_duplicates=options.flag("rename-duplicates"),
    )
    base = options.text("base-dir")
    try:
        loaded = load_graph(job.source, front_end=name, input_shapes=shapes, base_dir=base, options=allowed)
    except InputError as error:
        if error.code != "E10041" or options.text("from") == name:
            raise
        raise _in_numbers_of_atc(error, options.integer("ge.frameworkType"), name) from error
    if loaded.graph.is_optimised:
        from gecli.compiler.optimised_graphs import check_options

        warnings += check_options(loaded, options)
    else:
        warnings += apply_graph_options(loaded, options)
        warnings += switch_warnings(options, pass_names())
    warnings += limit_warnings(options)
    return replace(loaded, warnings=(*loaded.warnings, *warnings)) if warnings else loaded


def _in_numbers_of_atc(error: InputError, number: int | None, name: str) -> InputError:
    """The front end was chosen by --framework, so that is the option to name."""
    message = error.first.message.replace(f"--from {name}", f"--framework {number} ({name})")
    numbers = {word: known for known, word in FRAMEWORKS.items()}
    actual = numbers.get(str(error.first.actual))
    do = f"--framework {actual}, or leave the option out" if actual else "leave --framework out"
    found = InputError.of([replace(error.first, message=message, do=do, option="--framework"), *error.diagnostics[1:]])
    assert isinstance(found, InputError)
    return found


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
