"""Checks of options against each other, in the order of spec cli.md 1.5."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gecli.options.inspect_table import DETAILS_OF_VIEWS, VIEWS

if TYPE_CHECKING:
    from gecli.errors import Diagnostic
    from gecli.options.values import Options

_GEARS = ("dynamic_batch_size", "dynamic_image_size", "dynamic_dims")
_FRAMEWORK_FORMATS = {
    3: ("NCHW", "NHWC", "ND", "NCDHW", "NDHWC"),
    5: ("NCHW", "ND", "NCDHW"),
    1: ("ND", "NCHW", "NHWC", "CHWN", "NC1HWC0", "NHWC1C0", "NCDHW", "NDHWC"),
}


def check_combinations(options: Options) -> list[Diagnostic]:
    """Every problem between options that can be seen before a model is read."""
    if options.subcommand == "compile":
        return [*_compile_checks(options)]
    if options.subcommand == "inspect-om":
        return [*_one_view(options), *_without_its_view(options)]
    if options.subcommand == "run":
        by_slices = _of_whole_models(options) if options.flag("jit") else _without_jit(options)
        pairs = [*_without_comparison(options), *_without_files_of_variables(options), *_no_session(options)]
        return [*by_slices, *pairs, *_output_files(options)]
    return []


def _compile_checks(options: Options) -> list[Diagnostic]:
    return [
        *_determinism(options),
        *_mode_and_framework(options),
        *_input_format(options),
        *_precision(options),
        *_shapes(options),
        *_variables(options),
        *_pairs(options),
    ]


def _determinism(options: Options) -> list[Diagnostic]:
    level, wanted = options.get("ge.deterministicLevel"), options.get("ge.deterministic")
    if not options.is_set("ge.deterministicLevel") or bool(level) == bool(wanted):
        return []
    why = f"--deterministic is {wanted} and --deterministic-level is {level}; both must be 0 or neither"
    return [
        _problem("E10001", "--deterministic-level does not fit --deterministic", why, f"--deterministic {1 - wanted}")
    ]


def _mode_and_framework(options: Options) -> list[Diagnostic]:
    found = []
    mode, framework = options.get("mode"), options.get("ge.frameworkType")
    if framework == 0:
        found.append(
            _problem(
                "E10008", "Caffe models are not supported", "--framework 0 means Caffe", "convert the model to ONNX"
            )
        )
    if mode == 1 and framework == 1:
        found.append(
            _problem("E10007", "--mode 1 does not read AIR models", "--framework is 1", "gecli inspect-om FILE")
        )
    if mode == 6 and framework is not None:
        found.append(
            _problem("E10057", "--mode 6 reads an OM, so it excludes --framework", "", "gecli inspect-om FILE --info")
        )
    if mode == 6 and not options.get("om"):
        found.append(_problem("E10004", f"--mode {mode} needs --om", "", "--om FILE"))
    if options.get("json-file") and mode not in (1, 5):
        why = "--json=FILE is the output path of --mode=1; --json alone prints gecli's JSON on stdout"
        found.append(_problem("E10055", "--json=FILE has no meaning here", why, "--json > FILE"))
    if options.get("singleop"):
        excluded = [name for name in ("ge.frameworkType", "ge.insertOpFile") if options.is_set(name)]
        excluded += ["mode"] if mode else []
        excluded += [
            name
            for name in ("check", "stop-after", "model", "input_shape", "dim", "input_shape_range")
            if options.get(name)
        ]
        excluded += ["ge.display_model_info"] if options.get("ge.display_model_info") else []
        names = ", ".join(f"--{options.option(name).name}" for name in excluded)
        if names:
            found.append(_problem("E10001", f"--singleop excludes {names}", "", f"leave out {names}"))
    return found


def _input_format(options: Options) -> list[Diagnostic]:
    framework, layout = options.get("ge.frameworkType"), options.get("input_format")
    legal = _FRAMEWORK_FORMATS.get(framework) if framework is not None else None
    if layout is None or legal is None or layout in legal:
        return []
    code = "E10061" if framework == 1 else "E10001"
    why = f"--framework {framework} accepts {', '.join(legal)}"
    return [_problem(code, f"--input-format {layout} does not fit the framework", why, f"--input-format {legal[0]}")]


def _precision(options: Options) -> list[Diagnostic]:
    found = []
    old, new = options.get("ge.exec.precision_mode"), options.get("ge.exec.precision_mode_v2")
    if old and new:
        why = f"--precision-mode is {old} and --precision-mode-v2 is {new}"
        found.append(_problem("E10056", "two precision options exclude each other", why, f"--precision {new}"))
    mixed = (old or "").startswith("allow_mix_") or (new or "").startswith("mixed_")
    if options.get("ge.exec.modify_mixlist") and not mixed:
        why = f"the precision is {new or old or 'that of the model'}"
        found.append(_problem("E10001", "--modify-mixlist needs a mixed precision", why, "--precision mixed_float16"))
    if options.get("ge.optypelistForImplmode") and not options.is_set("ge.opSelectImplmode"):
        do = "--op-select-implmode high_precision"
        found.append(_problem("E10001", "--optypelist-for-implmode needs --op-select-implmode", "", do))
    return found


def _shapes(options: Options) -> list[Diagnostic]:
    gears = [name for name in _GEARS if options.get(name)]
    ranged = bool(options.get("input_shape_range"))
    found = []
    if len(gears) + ranged > 1:
        names = [*gears, *(["input_shape_range"] if ranged else [])]
        given = ", ".join(f"--{options.option(name).name}" for name in names)
        found.append(
            _problem("E10009", "gear options and shape ranges exclude each other", f"given: {given}", "keep one")
        )
    if gears and not options.get("input_shape") and not ranged:
        name = options.option(gears[0]).name
        do = '--input-shape "NAME:-1,..."'
        found.append(_problem("E10004", f"--{name} needs --input-shape", "gears fill the -1 of the input shapes", do))
    if gears and any("~" in text for text in options.get("input_shape")):
        found.append(_problem("E10040", 'a range ("~") cannot be used with gears', "", "write -1 in --input-shape"))
    if options.get("ge.inputHintShape") and gears:
        name = options.option(gears[0]).name
        found.append(_problem("E10001", f"--input-hint-shape excludes --{name}", "", "leave out --input-hint-shape"))
    if options.get("is_input_adjust_hw_layout") and not options.get("ge.INPUT_NODES_SET_FP16"):
        do = "--input-fp16-nodes NAMES"
        found.append(_problem("E10057", "--is-input-adjust-hw-layout needs --input-fp16-nodes", "", do))
    return found


def _variables(options: Options) -> list[Diagnostic]:
    found = []
    acceleration = options.flag("ge.exec.variable_acc") and options.is_set("ge.exec.variable_acc")
    if acceleration and options.flag("ge.AllowMultiGraphParallelCompile"):
        why = "parallel compiles leave variables in their format; without --parallel-compile, variables may change it"
        do = "leave out --variable-acc to keep the formats, or --parallel-compile to let them change"
        found.append(_problem("E10001", "--variable-acc and --parallel-compile exclude each other", why, do))
    bins = options.get("ge.exec.value_bins")
    why = _why_no_bins(str(bins)) if bins else ""
    if why:
        do = '{"value_bins":[{"value_bin_id":"ID","value_bin_file":"PATH"}]}'
        found.append(_problem("E10001", f'value "{bins}" for ge.exec.value_bins is invalid', why, do))
    return found


def _why_no_bins(text: str) -> str:
    from gecli.json_text import parse_json

    try:
        content = parse_json(text, raw_bytes=True)
    except (ValueError, RecursionError) as error:
        return f"it is no JSON: {error}"
    lists = content.values() if isinstance(content, dict) else [None]
    if all(isinstance(each, list) and all(isinstance(entry, dict) for entry in each) for each in lists):
        return ""
    return "expected an object whose values are lists of objects"


def _pairs(options: Options) -> list[Diagnostic]:
    found = []
    if options.get("ge.enableCompressWeight") and options.get("compress_weight_conf"):
        message = "--enable-compress-weight and --compress-weight-conf exclude each other"
        found.append(_problem("E10047", message, "", "leave out --enable-compress-weight"))
    if options.get("compact-variables") and options.get("session-in"):
        message = "--compact-variables excludes --session-in"
        why = "models of earlier commands have the addresses that the snapshot says"
        found.append(_problem("E10047", message, why, "leave out --compact-variables"))
    found += _no_session(options)
    if options.flag("atc-compat") and options.get("mode") in (0, 3) and not options.is_set("ge.socVersion"):
        found.append(_problem("E10054", "required option --soc_version is missing", "", "--soc_version=Ascend910B1"))
    if options.flag("jit"):
        found += _jit(options)
    elif options.get("sample"):
        found.append(_problem("E10057", "--sample belongs to --jit", "", "--jit --sample FILE.npz"))
    elif options.get("mode") in (0, 3) and not options.get("output") and _writes(options):
        found.append(_problem("E10054", "required option --output is missing", "", "-o PATH"))
    return found


def _no_session(options: Options) -> Iterator[Diagnostic]:
    if options.get("no-session") and (options.get("session-in") or options.get("session-out")):
        message = "--no-session excludes --session-in and --session-out"
        yield _problem("E10047", message, "", "leave out --no-session")


def _jit(options: Options) -> list[Diagnostic]:
    names = ("output", "emit", "depfile", "if-changed", "print-hash", "singleop")
    given = [f"--{name}" for name in names if options.get(name)]
    if not given:
        return []
    why = "slices are kept in the cache only"
    return [_problem("E10047", f"--jit excludes {', '.join(given)}", why, f"leave out {', '.join(given)}")]


def _of_whole_models(options: Options) -> Iterator[Diagnostic]:
    """Options about a plan, a packet or steps that a model has only when it was compiled before it runs."""
    names = (
        "plan", "print-memory-map", "mem-limit", "vars", "profile", "profile-out", "session-in", "session-out",
        "external-var", "placeholder",
    )  # fmt: skip
    for name in names:
        if options.get(name):
            why = "what runs is compiled while it runs, piece by piece"
            yield _problem("E10047", f"--jit excludes --{name}", why, f"leave out --{name}", option=f"--{name}")


def _without_jit(options: Options) -> Iterator[Diagnostic]:
    """Options of a compile that is not asked for; from files and the environment they are for other commands."""
    from gecli.options.jit_table import compile_keys

    for key in compile_keys():
        if options.origin(key) == "flag" and not (key == "lock-timeout" and options.get("session-out")):
            flag = f"--{options.option(key).name}"
            message = f"{flag} belongs to --jit"
            yield _problem("E10057", message, "an OM is compiled already", "gecli run --jit MODEL", option=flag)


def _without_comparison(options: Options) -> Iterator[Diagnostic]:
    """Tolerances of a comparison that is not asked for; from files and the environment they are for other commands."""
    if options.get("compare"):
        return
    for key in ("rtol", "atol", "stat", "nan-differs"):
        if options.origin(key) == "flag":
            do = f"gecli run FILE --compare GOLDEN --{key}"
            yield _problem("E10057", f"--{key} belongs to --compare", "no golden is given", do, option=f"--{key}")


def _without_files_of_variables(options: Options) -> Iterator[Diagnostic]:
    """Options about the files of --load-vars and --save-vars."""
    loads, saves = options.get("load-vars"), options.get("save-vars")
    for key, used in (("var-names", loads or saves), ("vars-strict", loads)):
        if options.origin(key) == "flag" and not used:
            do = f"gecli run FILE --load-vars VARS.npz --{key}{' GLOB' if key == 'var-names' else ''}"
            yield _problem("E10057", f"--{key} belongs to --load-vars", "no such file is given", do, option=f"--{key}")


def _output_files(options: Options) -> Iterator[Diagnostic]:
    """`-o` names a directory for every format but npz; a name that looks like one tensor's file is a mistake."""
    target = options.text("output") or ""
    if target.endswith((".npy", ".bin", ".txt", ".json")) and not os.path.isdir(target):
        stem, ending = os.path.splitext(target)
        why = "the outputs of a run are a file each in a directory, or one .npz"
        do = f"-o {stem} --output-format {ending[1:]}, or -o {stem}.npz"
        yield _problem("E10001", f"-o {target} names no .npz and no directory", why, do, option="--output")


def _writes(options: Options) -> bool:
    switches = ("check", "print-pipeline", "print-schema", "show-config")
    return (
        options.get("mode") == 0 and not options.get("stop-after") and not any(options.get(name) for name in switches)
    )


def _one_view(options: Options) -> list[Diagnostic]:
    given = [f"--{name}" for name in (*VIEWS, "extract", "oneline") if options.get(name)]
    if given == ["--summary", "--oneline"]:  # the one line is the summary's
        return []
    if len(given) < 2:
        return []
    return [
        _problem(
            "E10047", "views exclude each other", f"given: {', '.join(given)}", f"gecli inspect-om FILE {given[0]}"
        )
    ]


def _without_its_view(options: Options) -> list[Diagnostic]:
    """Details of a view that is not asked for would change nothing."""
    given = next((name for name in VIEWS if options.get(name)), "")
    whole = not given and options.flag("json") and not options.flag("oneline")  # the one line is the summary's
    in_effect = given or ("full" if whole else "summary")
    found = []
    for detail, views in DETAILS_OF_VIEWS:
        # A default that was only repeated (--hash) asks for nothing.
        option = options.option(detail)
        if options.get(detail) in (option.default, ()) or in_effect in views:
            continue
        flag = f"--{option.negative or option.name}"
        do = f"gecli inspect-om FILE --{views[0]} {flag}" + (f" {option.metavar}" if option.metavar else "")
        do += " --json" if whole else ""
        shown = f"the view is {f'--{given}' if given else 'the whole model (--json alone)' if whole else 'the summary'}"
        found.append(_problem("E10057", f"{flag} belongs to --{' and --'.join(views)}", shown, do, option=flag))
    if options.flag("origin-format") and not options.get("extract"):
        do = "gecli inspect-om FILE --extract all --to DIR --origin-format"
        found.append(_problem("E10057", "--origin-format belongs to --extract", "", do, option="--origin-format"))
    if not options.flag("json") or given not in ("", "full"):
        for name in ("embed-data", "data-file"):
            if options.get(name):
                flag = f"--{name}"
                shown = f"the view is --{given}" if given else "--json is not given"
                do = f"gecli inspect-om FILE --json {flag}" + (" DATA" if name == "data-file" else "")
                message = f"{flag} belongs to --json without a view"
                found.append(_problem("E10057", message, shown, do, option=flag))
    return found


def _problem(code: str, message: str, why: str = "", do: str = "", **fields: Any) -> Diagnostic:
    from gecli.errors import Diagnostic

    return Diagnostic(code, message, why=why, do=do, **fields)
