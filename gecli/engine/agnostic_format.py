"""Which operands of a format-agnostic node take a storage format together, and when the node refuses it."""

from __future__ import annotations

from gecli.engine.kernel_table import Policy
from gecli.engine.zero_padding import has_padding, preserves_zeros
from gecli.ir.attributes import CONST_TYPES, VALUE
from gecli.ir.format import Format
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import Shape, TensorDesc
from gecli.layout.axes import AXES
from gecli.layout.platform import Platform
from gecli.layout.storage_shape import to_storage
from gecli.layout.transfer import MATRIX_FORMATS

Acceptance = dict[tuple[bool, int], TensorDesc]  # (is output, index) -> storage desc
_IMAGE_FORMATS = frozenset((Format.NC1HWC0, Format.NC1HWC0_C04, Format.NDC1HWC0))
_NOTHING: Acceptance = {}


def agnostic_formats(
    node: OpDesc, policy: Policy, is_output: bool, index: int, fmt: Format, platform: Platform
) -> Acceptance:
    """The operands that take `fmt` when it arrives at one operand of `node`; empty when the node refuses.

    Raises TransferError when an operand has no storage shape in `fmt`.
    """
    arriving = node.output_descs[index] if is_output else node.input_descs[index]
    if arriving is None or not _may_block(arriving, fmt):
        return _NOTHING
    if policy is Policy.PAIRED:
        return _paired(node, index, fmt, platform)
    if policy is Policy.JOINED:
        return _joined(node, arriving, fmt, platform)
    chosen = _shared(node, arriving, is_output, fmt, platform)
    # A one-element operand that stays as it is passes nothing on.
    return chosen if (is_output, index) in chosen else _NOTHING


def _may_block(desc: TensorDesc, fmt: Format) -> bool:
    """Scalars, formats that do not name the axes and operands that are blocked already refuse."""
    if not desc.shape or not desc.format.is_origin or not desc.is_static:
        return False
    if fmt.primary in MATRIX_FORMATS:
        return len(desc.shape) >= 2
    letters = AXES.get(desc.format.primary)
    return letters is not None and len(letters) == len(desc.shape)


def _paired(node: OpDesc, index: int, fmt: Format, platform: Platform) -> Acceptance:
    source, result = node.input_descs[index], node.output_descs[index]
    if source is None or source.shape != result.shape or source.format != result.format:
        return _NOTHING
    return {(False, index): to_storage(source, fmt, platform), (True, index): to_storage(result, fmt, platform)}


def _shared(node: OpDesc, arriving: TensorDesc, is_output: bool, fmt: Format, platform: Platform) -> Acceptance:
    """agn(1): operands of the full shape are blocked, one-element operands and vectors of a row stay."""
    if not node.output_descs or node.attrs.get("reduction") == "prod":
        return _NOTHING  # a product over ranks would multiply padding zeros, which is harmless only for sum, max, min
    shape, layout = node.output_descs[0].shape, node.output_descs[0].format
    if arriving.shape != shape and is_output:
        return _NOTHING
    chosen: Acceptance = {}
    for slot, desc in enumerate(node.input_descs):
        if node.inputs[slot] is None or desc is None or _stays(node, slot, desc, shape):
            continue
        blocked = _broadcast_desc(desc, shape, layout, fmt)
        if blocked is None:
            return _NOTHING
        chosen[False, slot] = to_storage(blocked, fmt, platform)
    for position, desc in enumerate(node.output_descs):
        if desc.shape != shape or not _may_block(desc, fmt) or desc.format != layout:
            return _NOTHING
        chosen[True, position] = to_storage(desc, fmt, platform)
    return chosen if _padding_is_safe(node, chosen) else _NOTHING


def _stays(node: OpDesc, slot: int, desc: TensorDesc, shape: Shape) -> bool:
    """Operands that a kernel takes in origin format beside blocked ones: one element, and the bias of BiasAdd."""
    if node.type == "BiasAdd" and slot == 1:
        return True
    return desc.shape != shape and all(dim == 1 for dim in desc.shape)


def _broadcast_desc(desc: TensorDesc, shape: Shape, layout: Format, fmt: Format) -> TensorDesc | None:
    """The operand at full rank in the layout of the result; None when it cannot be blocked beside the result."""
    if not desc.format.is_origin or len(desc.shape) > len(shape):
        return None
    if desc.shape == shape:
        return desc if desc.format == layout and _may_block(desc, fmt) else None
    if fmt.primary not in _IMAGE_FORMATS or layout.primary not in AXES:
        return None
    full = (1,) * (len(shape) - len(desc.shape)) + desc.shape
    channel = AXES[layout.primary].index("C")
    if full[channel] != shape[channel] or any(own not in (1, dim) for own, dim in zip(full, shape)):
        return None
    if len(desc.shape) == len(shape) and desc.format != layout:
        return None
    return TensorDesc(desc.dtype, full, layout)


def _padding_is_safe(node: OpDesc, chosen: Acceptance) -> bool:
    if not any(has_padding(desc) for desc in chosen.values()):
        return True
    return preserves_zeros(node, frozenset(index for is_output, index in chosen if not is_output))


def _joined(node: OpDesc, arriving: TensorDesc, fmt: Format, platform: Platform) -> Acceptance:
    """Concat and Split in image formats: any axis but C, or C where every part is whole blocks."""
    axis = _join_axis(node)
    if fmt.primary not in _IMAGE_FORMATS or axis is None:
        return _NOTHING
    letters = AXES[arriving.format.primary]
    axis = axis + len(letters) if axis < 0 else axis
    chosen: Acceptance = {}
    tensors = [(False, slot, desc) for slot, desc in enumerate(node.input_descs) if _is_part(node, slot)]
    tensors += [(True, index, desc) for index, desc in enumerate(node.output_descs)]
    for is_output, index, desc in tensors:
        if desc is None or desc.format != arriving.format or not _may_block(desc, fmt):
            return _NOTHING
        stored = to_storage(desc, fmt, platform)
        if letters[axis] == "C" and desc.shape[axis] % stored.shape[-1]:
            return _NOTHING
        chosen[is_output, index] = stored
    return chosen


def _is_part(node: OpDesc, slot: int) -> bool:
    if node.inputs[slot] is None:
        return False
    if node.type == "Split":
        return slot == 1
    if node.type == "SplitV":
        return slot == 0
    if node.type == "Concat":
        return slot > 0
    return not (node.type == "ConcatV2" and slot == len(node.inputs) - 1)


def _join_axis(node: OpDesc) -> int | None:
    """The axis of a Concat or Split, from its attribute or a constant input; None when it is not known."""
    for name in ("concat_dim", "split_dim"):
        if name in node.attrs:
            return int(node.attrs[name])
    slot = {"Split": 0, "SplitV": 2, "Concat": 0, "ConcatV2": len(node.inputs) - 1}.get(node.type)
    port = node.inputs[slot] if slot is not None and slot < len(node.inputs) else None
    if port is None or port.node.type not in CONST_TYPES or VALUE not in port.node.attrs:
        return None
    return int(port.node.attrs[VALUE].numpy().reshape(-1)[0])
