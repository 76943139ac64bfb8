"""Format selection (GE: RefineRunningFormat): storage formats of format-bound operators, and how far they spread.

Cube operators choose the formats of their kernel row. From each of their operands the format walks over the edges to
operators that accept it: format-agnostic ones, and further rows that have it. Constants and variables are transparent:
they keep their own format, and the walk goes on to their other readers only if all of them accept (formats.md 5.4).
Only descriptors of the consumers and producers change here; `trans_insert` puts the conversions between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import field, replace
from typing import NamedTuple

from gecli.engine.agnostic_format import Acceptance, agnostic_formats
from gecli.engine.kernel_table import HEAVY_TOKENS, KernelRow, Policy, kernel_row
from gecli.engine.trans_ops import TRANS_OPS
from gecli.ir.attributes import CONST_TYPES, DATA_TYPES, INSERTED_BY_GE, VARIABLE_TYPES
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.ir.tensor_desc import TensorDesc
from gecli.layout.axes import AXES
from gecli.layout.platform import Platform
from gecli.layout.storage_shape import to_storage
from gecli.layout.transfer_error import TransferError
from gecli.records import dataclass

_PRIMARY = {
    "5HD": Format.NC1HWC0,
    "FZ": Format.FRACTAL_Z,
    "6HD": Format.NDC1HWC0,
    "FZ3": Format.FRACTAL_Z_3D,
    "NZ": Format.FRACTAL_NZ,
}
_RANK = {"5HD": 4, "FZ": 4, "6HD": 5, "FZ3": 5}
_BLOCKED_DTYPES = frozenset(
    (DataType.FLOAT16, DataType.BF16, DataType.FLOAT, DataType.INT8, DataType.UINT8, DataType.INT32)
)
_WEIGHTS = CONST_TYPES | VARIABLE_TYPES
SMALL_CHANNEL = 4


class Operand(NamedTuple):
    """Input slot or output index of a node."""

    node: OpDesc
    is_output: bool
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody asks of an operand

    @property
    def desc(self) -> TensorDesc | None:
        return self.node.output_descs[self.index] if self.is_output else self.node.input_descs[self.index]


@dataclass(slots=True)
class FormatChoice:
    """What was chosen: the storage desc of each operand that leaves its origin format."""

    descs: dict[Operand, TensorDesc] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def apply(self) -> Counter[str]:
        """Write the choice into the nodes."""
        counts = Counter[str]()
        for operand, desc in self.descs.items():
            target = operand.node.output_descs if operand.is_output else operand.node.input_descs
            if operand.is_output:
                desc = _with_attrs_of(desc, operand.node.output_descs[operand.index])
            target[operand.index] = desc
            counts[f"operands_in_{desc.format.primary.name}"] += 1
        return counts


def choose_formats(graph: Graph, platform: Platform, *, enable_small_channel: bool = False) -> FormatChoice:
    """The storage formats for the nodes of one graph; nothing is changed yet."""
    walk = _Walk(graph, platform, enable_small_channel)
    nodes = graph.nodes()
    rows = [(node, kernel_row(node.type)) for node in nodes]
    walk.choice.notes += dict.fromkeys(row.note for _, row in rows if row.note)
    bound = [(node, row) for node, row in rows if row.policy is Policy.TABLE]
    for node, row in bound:
        if row.cube:
            walk.judge(node, row)
    for node, row in bound:
        if row.cube and _is_seed(node, platform):
            walk.spread(node)
    for node, row in bound:
        if not row.cube and walk.judge(node, row):
            walk.spread(node)
    return walk.choice


def _is_seed(node: OpDesc, platform: Platform) -> bool:
    """GE leaves out cube nodes that are FLOAT on both sides on a chip with an fp32 cube (`fp32_cube_seeds` false)."""
    if not platform.fp32_cube or platform.fp32_cube_seeds:
        return True
    descs = [desc for desc in (*node.input_descs[:2], *node.output_descs[:1]) if desc is not None]
    return not all(desc.dtype is DataType.FLOAT for desc in descs if desc.dtype.is_float)


class _Walk:
    """The worklist of operands whose neighbours have not seen their format."""

    def __init__(self, graph: Graph, platform: Platform, small_channel: bool) -> None:
        self.graph = graph
        self.platform = platform
        self.small_channel = small_channel
        self.choice = FormatChoice()
        self.descs = self.choice.descs
        self.pending: list[Operand] = []
        self.next = 0
        self.visited: set[tuple[OpDesc, Format]] = set()  # transparent nodes
        self.stopped: set[str] = set()
        self.refs: dict[str, list[OpDesc]] = {}
        self.variables: dict[str, list[OpDesc]] = {}
        for variable in graph.nodes_of("Variable", "VariableV2"):
            source = variable.ref_variable
            group = self.variables if source is None else self.refs
            group.setdefault(variable.name if source is None else source, []).append(variable)

    # ------------------------------------------------------------ choosing

    def judge(self, node: OpDesc, row: KernelRow, given: Format | None = None) -> bool:
        """Give a format-bound node the formats of its row (C0 as in `given`); False leaves it in origin format."""
        if any(operand in self.descs for operand in _operands(node, row)):
            return False
        try:
            chosen = self._row_descs(node, row, given)
        except TransferError as error:
            self.choice.notes.append(f"{node.name} ({node.type}) stays in origin format: {error.first.message}")
            return False
        self.descs.update(chosen)
        return bool(chosen)

    def _row_descs(self, node: OpDesc, row: KernelRow, given: Format | None) -> dict[Operand, TensorDesc]:
        if _is_dynamic(node) or not self._row_applies(node, row):
            return {}
        groups = _filter_groups(node)
        small = self.small_channel and groups == 1 and node.type == "Conv2D" and _channels(node) <= SMALL_CHANNEL
        chosen: dict[Operand, TensorDesc] = {}
        for operand in _operands(node, row):
            desc = operand.desc
            assert desc is not None
            token = row.output_token(operand.index) if operand.is_output else row.input_token(operand.index)
            fmt = _PRIMARY[token]
            if small and not operand.is_output:
                fmt = Format.NC1HWC0_C04 if token == "5HD" else Format.FRACTAL_Z_C04
            if token in ("FZ", "FZ3"):
                fmt = fmt.with_groups(groups)
            if fmt.primary != Format.NC1HWC0_C04:
                fmt = fmt.with_c0(self._c0(node, row, desc) if given is None or given.c0 is None else given.c0)
            chosen[operand] = to_storage(desc, fmt, self.platform)
        return chosen

    def _row_applies(self, node: OpDesc, row: KernelRow) -> bool:
        operands = _operands(node, row)
        if not operands or _is_scalar_like(operands):
            return False
        for operand in operands:
            desc = operand.desc
            token = row.output_token(operand.index) if operand.is_output else row.input_token(operand.index)
            if desc is None or desc.dtype not in _BLOCKED_DTYPES or not desc.format.is_origin:
                return False
            if token == "NZ":
                # Chips with an ND matrix kernel have no use for FRACTAL_NZ; vectors have no rows to block.
                if self.platform.nd_matmul or len(desc.shape) < 2:
                    return False
                if node.type == "FullyConnection" and len(desc.shape) != 2:
                    return False
            elif len(desc.shape) != _RANK[token] or desc.format.primary not in AXES:
                return False
            if token == "FZ3" and _filter_groups(node) > 1:
                return False
        return True

    def _c0(self, node: OpDesc, row: KernelRow, desc: TensorDesc) -> int:
        """C0 of FLOAT is 8 only on an fp32 cube whose first operand is FLOAT too (training.md 5 and 14)."""
        if desc.dtype is DataType.FLOAT and row.cube:
            first = _operands(node, row)[0].desc
            both_float = self.platform.fp32_cube and first is not None and first.dtype is DataType.FLOAT
            return 8 if both_float else 16
        return self.platform.c0_of(desc.dtype)

    # ------------------------------------------------------------ spreading

    def spread(self, node: OpDesc) -> None:
        """Walk from every heavy operand of `node` until nobody accepts."""
        self.pending.extend(operand for operand in self._all_operands(node) if operand in self.descs)
        while self.next < len(self.pending):
            operand = self.pending[self.next]
            self.next += 1
            self._step(operand, self.descs[operand].format)
        self.pending.clear()
        self.next = 0

    def _step(self, operand: Operand, fmt: Format) -> None:
        if operand.is_output:
            for use in self._readers(operand.node.out(operand.index)):
                if use.node.is_variable:
                    self._through_weight(use.node, fmt)
                else:
                    self._offer(Operand(use.node, False, use.slot), fmt)
            return
        port = operand.node.inputs[operand.index]
        while port is not None and _is_road_step(port.node):
            port = port.node.inputs[0]
        if port is None:
            return
        source = port.node
        if source.type in _WEIGHTS:
            self._through_weight(source, fmt)
        elif source.type in DATA_TYPES:
            if (source, fmt) in self.visited:
                return
            self.visited.add((source, fmt))
            for use in self.graph.consumers(port):
                self._offer(Operand(use.node, False, use.slot), fmt)
        else:
            self._offer(Operand(source, True, port.index), fmt)

    def _offer(self, operand: Operand, fmt: Format) -> bool:
        """Let a node take `fmt` at one operand; True when it has it afterwards."""
        have = self.descs.get(operand)
        if have is not None:
            return have.format == fmt
        accepted = self._accepted(operand, fmt)
        if not accepted:
            return False
        self.descs.update(accepted)
        self.pending.extend(accepted)
        return True

    def _accepted(self, operand: Operand, fmt: Format) -> dict[Operand, TensorDesc]:
        node = operand.node
        row = kernel_row(node.type)
        if row.policy is Policy.TABLE:
            return self._row_with(operand, row, fmt)
        if row.policy not in (Policy.AGNOSTIC, Policy.PAIRED, Policy.JOINED) or _is_dynamic(node):
            return {}
        try:
            found: Acceptance = agnostic_formats(node, row.policy, operand.is_output, operand.index, fmt, self.platform)
        except TransferError:
            return {}
        return {Operand(node, is_output, index): desc for (is_output, index), desc in found.items()}

    def _row_with(self, operand: Operand, row: KernelRow, fmt: Format) -> dict[Operand, TensorDesc]:
        """A vector row takes a format it has, with the C0 that arrives; cube rows have chosen before."""
        token = row.output_token(operand.index) if operand.is_output else row.input_token(operand.index)
        if row.cube or token not in HEAVY_TOKENS or _PRIMARY[token] != fmt.primary:
            return {}
        if any(other in self.descs for other in _operands(operand.node, row)):
            return {}
        try:
            return self._row_descs(operand.node, row, fmt)
        except TransferError:
            return {}

    def _through_weight(self, weight: OpDesc, fmt: Format) -> None:
        """Offer the format to all other readers of a constant or variable, and to those who write it."""
        name = weight.ref_variable or weight.name
        if name in self.stopped or (weight, fmt) in self.visited:
            return
        self.visited.add((weight, fmt))
        before, waiting = len(self.descs), len(self.pending)
        nodes = [weight] if weight.type in CONST_TYPES else self.variables.get(name, [])
        operands = [
            Operand(use.node, False, use.slot)
            for node in nodes
            for use in self._readers(node.out())
            if not use.node.is_variable
        ]
        if not all(self._offer(operand, fmt) for operand in operands):
            while len(self.descs) > before:
                self.descs.popitem()
            del self.pending[waiting:]
            self.stopped.add(name)
            return
        for ref in self.refs.get(name, []):
            port = ref.inputs[0] if ref.inputs else None
            while port is not None and _is_road_step(port.node):
                port = port.node.inputs[0]
            if port is not None:
                self._offer(Operand(port.node, True, port.index), fmt)

    def _readers(self, port: Port) -> Iterator[Use]:
        """The consumers of a port, behind the conversions of a recovered trans road."""
        for use in self.graph.consumers(port):
            if _is_road_step(use.node):
                yield from self._readers(use.node.out())
            else:
                yield use

    def _all_operands(self, node: OpDesc) -> list[Operand]:
        return [
            *(Operand(node, True, index) for index in range(len(node.output_descs))),
            *(Operand(node, False, slot) for slot in range(len(node.inputs))),
        ]


def _is_road_step(node: OpDesc) -> bool:
    """A conversion between the stored and the declared form of a variable: the walk goes through."""
    return node.type in TRANS_OPS and bool(node.attrs.get(INSERTED_BY_GE))


def _operands(node: OpDesc, row: KernelRow) -> list[Operand]:
    """The operands of a format-bound node that its row wants in a heavy format."""
    found = [
        Operand(node, False, slot)
        for slot, port in enumerate(node.inputs)
        if port is not None and row.input_token(slot) in HEAVY_TOKENS
    ]
    return found + [
        Operand(node, True, index) for index in range(len(node.output_descs)) if row.output_token(index) in HEAVY_TOKENS
    ]


def _is_dynamic(node: OpDesc) -> bool:
    descs = [desc for desc in (*node.input_descs, *node.output_descs) if desc is not None]
    return not all(desc.is_static for desc in descs)


def _is_scalar_like(operands: list[Operand]) -> bool:
    return any(operand.desc is None or not operand.desc.shape for operand in operands)


def _filter_groups(node: OpDesc) -> int:
    """Sub format of the filter: the groups attribute, for depthwise types the channels of the image."""
    if node.type.startswith("Depthwise"):
        return _channels(node)
    return int(node.attrs.get("groups", 1))


def _channels(node: OpDesc) -> int:
    row = kernel_row(node.type)
    for operand in _operands(node, row):
        token = row.output_token(operand.index) if operand.is_output else row.input_token(operand.index)
        desc = operand.desc
        if token in ("5HD", "6HD") and desc is not None and desc.format.primary in AXES:
            letters = AXES[desc.format.primary]
            if len(letters) == len(desc.shape):
                return desc.shape[letters.index("C")]
    return 1


def _with_attrs_of(desc: TensorDesc, old: TensorDesc) -> TensorDesc:
    return replace(desc, attrs=old.attrs, name=old.name)
