"""From resolved options to what the stages of a compile ask for."""

from __future__ import annotations

from dataclasses import replace

from gecli.compiler.pass_switches import mix_lists, pass_switches
from gecli.errors import Diagnostic, InvalidOption
from gecli.layout.platform import Platform, platform_of
from gecli.options.spelling import similar
from gecli.options.values import Options
from gecli.passes.base import CompileSettings, Stage
from gecli.passes.registry import pass_names
from gecli.variables.limits import MemoryLimits


def platform_setting(options: Options) -> Platform:
    """The target chip. Raises InvalidOption for an unknown name."""
    return platform_of(options.text("ge.socVersion") or "Ascend910B1")


def compile_settings(options: Options) -> CompileSettings:
    """The settings of passes and engine. Raises InvalidOption for a pass switch that names no pass."""
    parallel = options.flag("ge.AllowMultiGraphParallelCompile")
    return CompileSettings(
        train=options.flag("ge.graphRunMode"),
        constants_in_session=options.text("ge.constLifecycle") == "session",
        constants_in_graph=_constants_in_graph(options),
        format_policy=options.text("format-policy") or "device",
        precision=_precision(options),
        oo_level=options.text("ge.oo.level") or "O3",
        variable_acc=options.flag("ge.exec.variable_acc") and not parallel,
        strict_variable_cast=options.flag("strict-variable-cast"),
        strict_var_init=options.flag("strict-var-init"),
        strict_order=options.flag("strict-order"),
        enable_small_channel=options.text("ge.enableSmallChannel") == "1",
        constant_folding=options.flag("ge.oo.constantFolding"),
        dead_code_elimination=options.flag("ge.oo.deadCodeElimination"),
        switches=pass_switches(options, pass_names()),
        mix_lists=mix_lists(options),
    )


def _constants_in_graph(options: Options) -> bool:
    """Whether the constants of a training graph are asked to live as long as the graph (GE: graph_builder.cc)."""
    if options.is_set("ge.constLifecycle"):
        return options.text("ge.constLifecycle") == "graph"
    return options.text("ge.exec.memoryOptimizationPolicy") == "MemoryPriority"


def memory_limits(options: Options) -> MemoryLimits:
    """Limits of feature-map and variable memory. Raises InvalidOption when their sum is too large."""
    limits = _limits(options)
    return replace(limits, evaluate_only=True) if options.integer("ge.evaluateGraphResourceMode") else limits


def limit_warnings(options: Options) -> list[Diagnostic]:
    """Limits that no device of GE's documentation has."""
    limits = memory_limits(options)
    total, usual = limits.graph_max_bytes + limits.var_max_bytes, MemoryLimits().use_max_bytes
    if total <= usual:
        return []
    return [
        Diagnostic(
            "E10001",
            "graph memory and variable memory are more than a device has for them",
            why=f"{limits.graph_max_bytes} + {limits.var_max_bytes} = {total} bytes; GE documents at most {usual}",
            do="lower --var-mem-max-size or ge.graphMemoryMaxSize",
            severity="warning",
            option="--var-mem-max-size",
            expected=usual,
            actual=total,
        )
    ]


def _limits(options: Options) -> MemoryLimits:
    default = MemoryLimits()
    variable_max, graph_max = options.integer("ge.variableMemoryMaxSize"), options.integer("ge.graphMemoryMaxSize")
    if graph_max:
        return MemoryLimits.of(graph_max, variable_max or default.var_max_bytes)
    return default.with_var_max(variable_max) if variable_max else default


def stop_stage(options: Options) -> str | None:
    """The stage or pass of --stop-after. Raises InvalidOption for a name that is neither."""
    name = options.text("stop-after")
    if name:
        _require_stages("--stop-after", [name], ["parse", *_stage_names()])
    return name


def dump_setting(options: Options) -> tuple[str, frozenset[str]] | None:
    """Directory and stages or passes of --dump-graph; no stages are all. Raises InvalidOption."""
    text = options.text("dump-graph")
    if not text:
        return None
    directory, _, words = text.partition(":")
    stages = [stage for stage in words.split(",") if stage]
    _require_stages("--dump-graph", stages, _stage_names())
    return directory or options.text("ge.debugDir") or ".", frozenset(stages)


def _stage_names() -> list[str]:
    return [*(stage.value for stage in Stage), *pass_names()]


def _require_stages(option: str, given: list[str], known: list[str]) -> None:
    for name in given:
        if name not in known:
            near = similar(name, known, 3)
            raise InvalidOption(
                "E10001",
                f"value {name!r} for {option} is invalid: there is no such stage or pass",
                option=option,
                why=f"stages: {', '.join(stage.value for stage in Stage)}; --print-pipeline lists the passes",
                do=" or ".join(f"{option} {each}" for each in near),
            )


# precision_mode_v2 in the words of the older option (formats.md 5.3).
_V2 = {
    "fp16": "force_fp16",
    "origin": "",
    "mixed_float16": "allow_mix_precision_fp16",
    "mixed_bfloat16": "allow_mix_precision_bf16",
    "cube_fp16in_fp32out": "cube_fp16in_fp32out",
}


def _precision(options: Options) -> str:
    new, old = options.text("ge.exec.precision_mode_v2"), options.text("ge.exec.precision_mode")
    mode = _V2.get(new, new) if new else old or ""
    return "" if mode == "must_keep_origin_dtype" else mode
