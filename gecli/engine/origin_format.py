"""Origin format inference (GE: InferFormatPass): which tensors are images, filters or plain arrays.

The operators that say a layout in `data_format` are the anchors; from them the format spreads over the edges, forward
and backward, through operators that keep the meaning of the axes.
"""

from __future__ import annotations

from dataclasses import replace

from gecli.engine.kernel_table import Policy, kernel_row
from gecli.ir.attributes import CONST_TYPES, DATA_TYPES, VARIABLE_TYPES
from gecli.ir.format import Format
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.layout.axes import AXES

# Types in origin formats whose result has the axes of input 0, as long as the rank is the same.
_AXIS_KEEPING = """
Pad PadD PadV2 PadV3 MirrorPad Slice SliceD StridedSlice StridedSliceD StridedSliceV2 Resize ResizeBilinear
ResizeBilinearV2 ResizeNearestNeighbor ResizeNearestNeighborV2 SoftmaxV2 LogSoftmaxV2 Cumsum CumsumD ReverseV2
ReverseV2D ReduceSum ReduceSumD ReduceMean ReduceMeanD ReduceMax ReduceMaxD ReduceMin ReduceMinD PRelu DropOutDoMask
DropOutDoMaskV3 DepthToSpace SpaceToDepth InstanceNormV2 MaxPoolWithArgmax LRNGrad
"""
AXIS_KEEPING = frozenset(_AXIS_KEEPING.split())
_HOLDERS = CONST_TYPES | DATA_TYPES | VARIABLE_TYPES | {"FileConstant"}
# The layout of a filter whose producer does not say it, by data_format.
_FILTER_LAYOUT = {"NHWC": Format.HWCN, "NDHWC": Format.DHWCN, "NCHW": Format.NCHW, "NCDHW": Format.NCDHW}
_IMAGE_TOKENS = ("5HD", "6HD")
_FILTER_TOKENS = ("FZ", "FZ3")
_LAYOUTS = frozenset(map(int, AXES))


def infer_origin_formats(graph: Graph) -> int:
    """Replace ND by the layout that anchors demand, wherever it reaches; returns how many tensors changed.

    Formats that a model states are never changed. A tensor whose rank is not that of the layout stays ND.
    """
    changed = 0
    for each in graph.all_graphs():
        spread = _Spread()
        anchors = {type for type in each.types() if kernel_row(type).policy is Policy.TABLE}
        for node in each.nodes():
            if node.type in anchors:
                _anchor(node, spread)
            for index, desc in enumerate(node.output_descs):
                if desc.format & 0xFF in _LAYOUTS:
                    spread.pending.append(Port(node, index))
        changed += spread.run()
        _align_inputs(each)
    return changed


class _Spread:
    """Ports that have a layout and whose neighbours have not seen it yet."""

    def __init__(self) -> None:
        self.pending: list[Port] = []
        self.changed = 0

    def give(self, port: Port | None, fmt: Format) -> None:
        """Set the layout of a tensor that has none."""
        if port is None or port.index >= len(port.node.output_descs):
            return
        desc = port.desc
        if int(desc.format) != int(Format.ND) or desc.origin_format is not None or not _fits(desc, fmt):
            return
        port.node.output_descs[port.index] = replace(desc, format=fmt)
        self.changed += 1
        self.pending.append(port)

    def run(self) -> int:
        while self.pending:
            port = self.pending.pop()
            fmt = port.desc.format
            for use in port.node.users[port.index]:
                if _passes_on(use.node, use.slot):
                    for index in range(len(use.node.output_descs)):
                        self.give(use.node.out(index), fmt)
                    self._siblings(use.node, fmt)
            if _passes_on(port.node, 0):
                self._siblings(port.node, fmt)
        return self.changed

    def _siblings(self, node: OpDesc, fmt: Format) -> None:
        for slot, source in enumerate(node.inputs):
            if _passes_on(node, slot):
                self.give(source, fmt)


def _anchor(node: OpDesc, spread: _Spread) -> None:
    row = kernel_row(node.type)
    data_format = node.attrs.get("data_format")
    if row.policy is not Policy.TABLE or not isinstance(data_format, (str, bytes)):
        return
    name = data_format.decode() if isinstance(data_format, bytes) else data_format
    if name not in _FILTER_LAYOUT:
        return
    layouts = {
        **dict.fromkeys(_IMAGE_TOKENS, Format.parse(name)),
        **dict.fromkeys(_FILTER_TOKENS, _FILTER_LAYOUT[name]),
    }
    for slot, port in enumerate(node.inputs):
        layout = layouts.get(row.input_token(slot))
        if layout is not None:
            spread.give(port, layout)
    for index in range(len(node.output_descs)):
        layout = layouts.get(row.output_token(index))
        if layout is not None:
            spread.give(node.out(index), layout)


def _passes_on(node: OpDesc, slot: int) -> bool:
    """Whether the tensor at input `slot` has the axes of the node's outputs."""
    policy = kernel_row(node.type).policy
    if policy in (Policy.AGNOSTIC, Policy.JOINED) or (node.is_variable and node.ref_variable is not None):
        return True
    return slot == 0 and node.type in AXIS_KEEPING


def _fits(desc: TensorDesc, fmt: Format) -> bool:
    return desc.shape != UNKNOWN_RANK and len(desc.shape) == len(AXES[fmt.primary])


def _align_inputs(graph: Graph) -> None:
    """Every input desc has the origin format of what feeds it."""
    for node in graph.nodes():
        descs = node.input_descs
        for slot, port in enumerate(node.inputs):
            if port is None:
                continue
            desc, source = descs[slot], port[0].output_descs[port[1]]
            if desc is source or desc is None or desc.format == source.format:
                continue
            if desc.format.is_origin and desc.shape == source.shape and source.format.is_origin:
                descs[slot] = replace(desc, format=source.format, origin_format=source.origin_format)
        if node.type in _HOLDERS and node.inputs and node.ref_variable is not None and node.input_descs[0] is not None:
            node.input_descs[0] = replace(node.input_descs[0], format=node.output_descs[0].format)
