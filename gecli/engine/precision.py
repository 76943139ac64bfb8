"""Precision selection (GE: RefineRunningPrecision): the data type each operator computes in, by mode (formats.md 5.3).

Only descriptors change here; the Casts come with the other conversions (`trans_insert`). Integers, BOOL, shapes,
variables, model inputs and outputs keep their types in every mode.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gecli.engine.kernel_table import (
    DTYPE_FREE,
    DTYPE_FROZEN,
    PRECISION_BLACK,
    KernelRow,
    Policy,
    cube_combinations,
    kernel_row,
)
from gecli.errors import InvalidOption
from gecli.ir.attributes import KEEP_DTYPE
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.layout.platform import Platform
from gecli.ops.registry import find
from gecli.records import dataclass

_D = DataType
FLOATING = frozenset((_D.FLOAT, _D.FLOAT16, _D.BF16))


@dataclass(frozen=True, slots=True)
class Mode:
    """What a precision mode does: the type of cube operators, that of others, and whether lists decide."""

    cube: DataType | None = None
    others: DataType | None = None
    by_list: bool = False
    ignores_keep: bool = False


_KEEP = Mode()
_FP16 = Mode(_D.FLOAT16, _D.FLOAT16)
_FP32 = Mode(_D.FLOAT, _D.FLOAT, ignores_keep=True)
_CUBE_FP16 = Mode(_D.FLOAT16)
_MIX_FP16 = Mode(_D.FLOAT16, by_list=True)
_MIX_BF16 = Mode(_D.BF16, by_list=True)
MODES: dict[str, Mode] = {
    "": _KEEP,
    "origin": _KEEP,
    "must_keep_origin_dtype": _KEEP,
    "force_fp16": _FP16,
    "fp16": _FP16,
    "force_lowerprecision": _FP16,
    "force_fp32": _FP32,
    "cube_fp16in_fp32out": _FP32,
    "allow_fp32_to_fp16": _CUBE_FP16,
    "allow_fp32_to_lowprecision": _CUBE_FP16,
    "allow_fp32_to_bf16": Mode(_D.BF16),
    "allow_mix_precision": _MIX_FP16,
    "allow_mix_precision_fp16": _MIX_FP16,
    "mixed_float16": _MIX_FP16,
    "allow_mix_precision_bf16": _MIX_BF16,
    "mixed_bfloat16": _MIX_BF16,
    # The simulator has no HIFLOAT8 kernels: these modes run as their 16-bit counterparts.
    "cube_hif8": _CUBE_FP16,
    "mixed_hif8": _MIX_FP16,
}


@dataclass(frozen=True, slots=True)
class MixLists:
    """Types that a user moved to another list of the mixed precision modes."""

    white: frozenset[str] = frozenset()
    black: frozenset[str] = frozenset()
    gray: frozenset[str] = frozenset()

    def list_of(self, type: str, row: KernelRow) -> str:
        for name, types in (("white", self.white), ("black", self.black), ("gray", self.gray)):
            if type in types:
                return name
        if row.cube:
            return "white"
        return "black" if type in PRECISION_BLACK else "gray"


def select_precision(
    graph: Graph,
    platform: Platform,
    mode: str = "",
    *,
    keep: Collection[str] = (),
    lists: MixLists | None = None,
) -> list[str]:
    """Set the data types of every node's operands for `mode`; returns notes, one sentence each.

    `keep` names nodes whose types stay, as the attribute `_keep_dtype` does. Raises InvalidOption for an unknown mode
    and for a BF16 mode on a chip without BF16.
    """
    chosen = _mode(mode, platform)
    if lists is None:
        lists = MixLists()
    notes: list[str] = []
    capabilities = capabilities_of(platform)
    keeps_all = chosen.cube is None and chosen.others is None and not chosen.by_list
    for node in graph.all_nodes():
        row = kernel_row(node.type)
        if row.policy is Policy.GIVEN:
            continue
        target = None if keeps_all or _is_fixed(node, keep, chosen) else _target(node, row, chosen, lists)
        if node.type in DTYPE_FREE:
            _follow_producer(node)
        elif target is not None:
            _apply(node, row, target)
        if row.cube:
            notes += _unsupported_cube(node, row, capabilities, platform)
    return notes


def capabilities_of(platform: Platform) -> frozenset[str]:
    """The words that conditions in the kernel table may use."""
    return frozenset(name for name in ("fp32_cube", "bf16", "fp8") if getattr(platform, name))


def _mode(name: str, platform: Platform) -> Mode:
    mode = MODES.get(name)
    if mode is None:
        raise InvalidOption(
            "E10001",
            f"value {name!r} for --precision is invalid",
            option="--precision",
            do=f"use one of {', '.join(key for key in MODES if key)}",
            expected=[key for key in MODES if key],
            actual=name,
        )
    if mode.cube is _D.BF16 and not platform.bf16:
        raise InvalidOption(
            "E10001",
            f"value {name!r} for --precision is invalid on {platform.soc}: it has no BF16",
            option="--precision",
            actual=name,
        )
    return mode


def _is_fixed(node: OpDesc, keep: Collection[str], mode: Mode) -> bool:
    if node.type in DTYPE_FROZEN or node.subgraphs or "dtype" in node.attrs:
        return True
    kind = find(node.type)
    if kind is not None and kind.writes:
        return True  # computes in the type of the reference it writes
    return not mode.ignores_keep and (node.name in keep or bool(node.attrs.get(KEEP_DTYPE)))


def _target(node: OpDesc, row: KernelRow, mode: Mode, lists: MixLists) -> DataType | None:
    """The floating type the node shall compute in; None when it keeps its own."""
    if not mode.by_list:
        return mode.cube if row.cube else mode.others
    place = lists.list_of(node.type, row)
    if place == "white":
        return mode.cube
    if place == "black":
        return None
    return _produced(node)


def _produced(node: OpDesc) -> DataType | None:
    """The type of the first floating operand as its producer gives it."""
    for slot, port in enumerate(node.inputs):
        if port is not None and slot in _value_slots(node) and port.desc.dtype in FLOATING:
            if kernel_row(port.node.type).policy is Policy.GIVEN:
                continue
            return port.desc.dtype
    return None


def _value_slots(node: OpDesc) -> list[int]:
    """Inputs that hold values: not shapes, scales and sizes that decide dims."""
    kind = find(node.type)
    decided = () if kind is None else kind.shape_inputs
    return [slot for slot in range(len(node.inputs)) if slot not in decided]


def _apply(node: OpDesc, row: KernelRow, target: DataType) -> None:
    slots = [slot for slot in _value_slots(node) if row.input_token(slot) != "="]
    if not any(_is_floating(node.input_descs[slot]) for slot in slots):
        return
    for slot in slots:
        node.input_descs[slot] = _converted(node.input_descs[slot], target)
    fixed = _fixed_output(row, target)
    for index, desc in enumerate(node.output_descs):
        if row.output_token(index) != "=" and desc.dtype in FLOATING:
            node.output_descs[index] = desc.with_dtype(fixed)


def _fixed_output(row: KernelRow, target: DataType) -> DataType:
    """The result type of a computation in `target`: FLOAT for filter gradients."""
    pairs = [out for source, out in cube_combinations(row, frozenset(("fp32_cube", "bf16"))) if source == target]
    return pairs[0] if pairs else target


def _follow_producer(node: OpDesc) -> None:
    port = node.inputs[0] if node.inputs else None
    desc = node.input_descs[0] if node.input_descs else None
    if port is not None and _is_floating(desc) and port.desc.dtype in FLOATING:
        node.input_descs[0] = _converted(desc, port.desc.dtype)


def _is_floating(desc: TensorDesc | None) -> bool:
    return desc is not None and desc.dtype in FLOATING


def _converted(desc: TensorDesc | None, target: DataType) -> TensorDesc | None:
    return desc.with_dtype(target) if desc is not None and desc.dtype in FLOATING and desc.dtype != target else desc


def _unsupported_cube(node: OpDesc, row: KernelRow, capabilities: Iterable[str], platform: Platform) -> list[str]:
    """A note for a cube node whose types no kernel of the chip takes; the simulator computes it all the same."""
    slot = next((slot for slot in range(len(node.inputs)) if row.input_token(slot) not in ("=", "ND")), None)
    desc = None if slot is None else node.input_descs[slot]
    if desc is None or any(source == desc.dtype for source, _ in cube_combinations(row, frozenset(capabilities))):
        return []
    return [f"node {node.name} ({node.type}) keeps {desc.dtype.serial}, for which {platform.soc} has no kernel"]
