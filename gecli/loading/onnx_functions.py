"""Model-local functions before they are inlined: none calls itself, and the inlined model has a bearable size."""

from __future__ import annotations

from gecli.loading.onnx_nodes import OnnxModel, all_nodes, domain_of

MAX_DEPTH = 64  # functions that call functions; exporters nest a handful
MAX_NODES = 1_000_000  # of the inlined model

Key = tuple[str, str]


def check_functions(model: OnnxModel) -> None:
    """Raises InputError for functions that call themselves, nest too deeply, or make too many nodes."""
    if not model.functions:
        return
    calls = {
        key: [(domain_of(node), node.op_type) for node in all_nodes(function)]
        for key, function in model.functions.items()
    }
    sizes: dict[Key, int] = {}
    depths: dict[Key, int] = {}
    for key in calls:
        _measure(model, key, calls, sizes, depths, [])
    total = sum(sizes.get((domain_of(node), node.op_type), 1) for node in all_nodes(model.message.graph))
    if total > MAX_NODES:
        raise model.fault(
            "E13015",
            "the functions of the ONNX model make too many nodes",
            f"{total} nodes after inlining, the limit is {MAX_NODES}",
            "export the model without nested functions",
        )


def _measure(
    model: OnnxModel,
    key: Key,
    calls: dict[Key, list[Key]],
    sizes: dict[Key, int],
    depths: dict[Key, int],
    open_calls: list[Key],
) -> None:
    """Note how many nodes a call of `key` makes and how deep it goes; what it calls is measured first."""
    if key in sizes:
        return
    names = [".".join(part for part in each if part) for each in (*open_calls, key)]
    if key in open_calls:
        loop = " -> ".join(names[open_calls.index(key) :])
        raise model.fault("E13005", f"the ONNX function {names[-1]!r} calls itself", loop, "export the model again")
    inner = [each for each in dict.fromkeys(calls[key]) if each in calls]
    if len(open_calls) < MAX_DEPTH:
        for each in inner:
            _measure(model, each, calls, sizes, depths, [*open_calls, key])
    sizes[key] = sum(sizes.get(each, 1) for each in calls[key])
    depths[key] = 1 + max((depths.get(each, MAX_DEPTH) for each in inner), default=0)
    if depths[key] > MAX_DEPTH:
        raise model.fault(
            "E13005",
            "the functions of the ONNX model are nested too deeply",
            f"{names[-1]} begins a chain of more than {MAX_DEPTH} calls",
            "export the model without nested functions",
        )
