"""The options of one slice: those of the inputs of a model are for its first, those of outputs for its last (9.5).

Those that change a graph have done so before it was cut; here they matter for what the OM of a slice says of itself.
"""

from __future__ import annotations

from gecli.options.values import Options, default_of

FIRST_ONLY = frozenset((
    "input_shape", "dim", "input_shape_range", "ge.inputHintShape", "ge.inputHintValue", "input_format",
    "ge.exec.inputReuseMemIndexes", "ge.exec.hostInputIndexes", "ge.INPUT_NODES_SET_FP16",
))  # fmt: skip
LAST_ONLY = frozenset((
    "ge.outputDatatype", "ge.exec.outputReuseMemIndexes", "ge.outputNodeName", "ge.outputMaxSize",
))  # fmt: skip


def options_of_slice(options: Options, *, is_first: bool, is_last: bool) -> Options:
    """The first slice has all options, the last all but those of inputs, one between neither those of outputs."""
    if is_first:
        return options
    dropped = FIRST_ONLY if is_last else FIRST_ONLY | LAST_ONLY
    own = options.copy()
    for option, _, _ in options.items():
        if option.key in dropped:
            own.set(option, default_of(option), "default")
    own.unknown_ge_options = {name: text for name, text in options.unknown_ge_options.items() if name not in dropped}
    return own
