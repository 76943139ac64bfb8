"""From resolved options to what the stages of a compile ask for."""

from __future__ import annotations

from gecli.errors import InvalidOption
from gecli.layout.platform import Platform, platform_of
from gecli.options.resolution import Options
from gecli.passes.base import CompileSettings
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
        format_policy=options.text("format-policy") or "device",
        precision=_precision(options),
        oo_level=options.text("ge.oo.level") or "O3",
        variable_acc=options.flag("ge.exec.variable_acc") and not parallel,
        strict_variable_cast=options.flag("strict-variable-cast"),
        enable_small_channel=options.text("ge.enableSmallChannel") == "1",
        constant_folding=options.flag("ge.oo.constantFolding"),
        dead_code_elimination=options.flag("ge.oo.deadCodeElimination"),
        switches=_switches(options.texts("ge.optimizationSwitch")),
    )


def memory_limits(options: Options) -> MemoryLimits:
    """Limits of feature-map and variable memory. Raises InvalidOption when their sum is too large."""
    limits = MemoryLimits()
    variable_max = options.integer("ge.variableMemoryMaxSize")
    return limits.with_var_max(variable_max) if variable_max else limits


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


def _switches(texts: tuple[str, ...]) -> dict[str, bool]:
    """`PassName:on;PassName:off`, repeatable. Unknown names and correctness passes are refused."""
    known = pass_names()
    switches: dict[str, bool] = {}
    for item in (item for text in texts for item in text.split(";") if item):
        name, _, state = item.rpartition(":")
        if name not in known:
            raise _refused(item, f"no pass is called {name!r}", f"passes: {', '.join(sorted(known))}")
        if known[name] and state == "off":
            raise _refused(item, f"{name} is needed for correct results", "leave it on")
        switches[name] = state == "on"
    return switches


def _refused(item: str, why: str, do: str) -> InvalidOption:
    return InvalidOption(
        "E10001", f"value {item!r} for --optimization-switch is invalid", option="--optimization-switch", why=why, do=do
    )
