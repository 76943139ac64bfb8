"""Options of `gecli compile` that `gecli run --jit` takes too, for the slices that it compiles on the way."""

from __future__ import annotations

from collections.abc import Iterator

from gecli.options.compile_table import COMPILE_OPTIONS

GROUP = "Compiling, with --jit"
SHOWN = ("input_shape", "ge.socVersion", "ge.exec.precision_mode_v2", "format-policy")
KEYS = (
    "from", "ge.frameworkType", "input_shape", "dim", "input_shape_range", "input_format", "ge.INPUT_NODES_SET_FP16",
    "base-dir", "allow-external-outside", "rename-duplicates", "ge.outputNodeName", "ge.outputDatatype",
    "ge.socVersion", "ge.exec.precision_mode_v2", "ge.exec.precision_mode", "ge.exec.modify_mixlist", "keep_dtype",
    "format-policy", "ge.enableSmallChannel", "ge.oo.level", "ge.oo.constantFolding", "ge.oo.deadCodeElimination",
    "ge.optimizationSwitch", "ge.fusionSwitchFile", "ge.exec.disableReuseMemory", "verify-passes",
    "ge.exec.variable_acc",
)  # fmt: skip

# `--outputs` is another option of `gecli run`.
JIT_OPTIONS = tuple(
    option._replace(
        subcommands=("run",),
        group=GROUP,
        hidden=option.key not in SHOWN,
        aliases=tuple(name for name in option.aliases if name != "outputs"),
    )
    for option in COMPILE_OPTIONS
    if option.key in KEYS
)


def compile_keys() -> Iterator[str]:
    """The options of `gecli run` that say how to compile, those of the cache among them."""
    yield from KEYS
    for option in COMPILE_OPTIONS:
        if option.group == "Cache" and "run" in option.subcommands and option.key != "jit":
            yield option.key
