"""Trans insertion: conversion nodes on every edge whose two ends differ (GE: trans_node_insertion, formats.md 5.5)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

from gecli.ir.attributes import DATA_TYPES
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph, feed
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.ir.tensor_desc import NO_ATTRS, Shape, TensorDesc
from gecli.layout.axes import AXES, permutation
from gecli.layout.platform import Platform
from gecli.layout.transfer import MATRIX_FORMATS
from gecli.layout.transfer_error import SHAPE, TransferError
from gecli.ops.registry import find

_F = Format
# Origin formats from which one TransData leads into a device format; all others are transposed to the first.
_INTO: dict[Format, tuple[Format, ...]] = {
    _F.NC1HWC0: (_F.NCHW, _F.NHWC),
    _F.NC1HWC0_C04: (_F.NCHW, _F.NHWC),
    _F.FRACTAL_Z: (_F.HWCN, _F.NCHW),
    _F.FRACTAL_Z_C04: (_F.HWCN, _F.NCHW),
    _F.C1HWNCoC0: (_F.HWCN,),
    _F.NDC1HWC0: (_F.NCDHW, _F.NDHWC),
    _F.FRACTAL_Z_3D: (_F.DHWCN,),
    _F.FRACTAL_Z_3D_TRANSPOSE: (_F.DHWNC,),
}
# Origin formats into which one TransData leads back; all others are reached by transposing the first.
_OUT_OF: dict[Format, tuple[Format, ...]] = {
    **_INTO,
    _F.FRACTAL_Z: (_F.NCHW, _F.HWCN),
    _F.FRACTAL_Z_C04: (_F.HWCN,),
}


class Step(NamedTuple):
    """One conversion: the node type to insert, its attributes, and what comes out."""

    type: str
    attrs: dict[str, Any]
    desc: TensorDesc


def conversion_steps(src: TensorDesc, dst: TensorDesc, platform: Platform) -> list[Step]:
    """The nodes that turn `src` into `dst`, in order. Raises TransferError when no chain leads there."""
    src, dst = bare(src), bare(dst)
    if src.dtype == dst.dtype:
        return _format_steps(src, dst)
    if _cast_first(src, dst, platform):
        cast = cast_step(src, dst.dtype)
        return [cast, *_format_steps(cast.desc, dst)]
    steps = _format_steps(src, dst.with_dtype(src.dtype))
    return [*steps, cast_step(steps[-1].desc if steps else src, dst.dtype)]


def insert_trans_nodes(graph: Graph, platform: Platform) -> Counter[str]:
    """Put conversions on all edges of one graph; returns how many of each type.

    Edges are taken by destination node in graph order, then by input slot; names are `trans_<Type>_<n>` with one n for
    the whole graph. An edge whose ends differ only in the name of an origin format needs no node.
    """
    counts = Counter[str]()
    names = _Names(graph)
    for node in graph.nodes():
        for slot, port in enumerate(node.inputs):
            if port is None:
                continue
            wanted = _wanted(node, slot, port)
            if wanted is port[0].output_descs[port[1]] or wanted.same_storage(port.desc):
                continue
            steps = conversion_steps(port.desc, wanted, platform)
            if steps:
                _insert(graph, Use(node, slot), steps, names)
                if node.is_variable:
                    node.input_descs[slot] = wanted
                counts.update(step.type for step in steps)
            elif wanted.shape == port.desc.shape:
                node.input_descs[slot] = bare(port.desc)
    return counts


def trans_data_attrs(src: Format, dst: Format) -> dict[str, Any]:
    """The attributes of a TransData between two formats; the C0 codes are in its descriptors."""
    return {
        "src_format": src.primary.name,
        "dst_format": dst.primary.name,
        "src_subformat": _sub_format(src),
        "dst_subformat": _sub_format(dst),
        "groups": max(src.groups, dst.groups),
    }


def cast_step(src: TensorDesc, dtype: DataType) -> Step:
    """A Cast to `dtype` in the storage of `src`."""
    return Step("Cast", {"dst_type": int(dtype)}, src.with_dtype(dtype))


def bare(desc: TensorDesc) -> TensorDesc:
    """A desc without the attributes, name and size of the tensor it was taken from."""
    if not desc.attrs and not desc.size_bytes and not desc.name:
        return desc
    return replace(desc, attrs=NO_ATTRS, name="", size_bytes=0)


def _sub_format(fmt: Format) -> int:
    return fmt.groups if fmt.groups > 1 else 0


def _wanted(node: OpDesc, slot: int, port: Port) -> TensorDesc:
    if node.is_variable:  # a variable ref stores in the form of its variable
        node.input_descs[slot] = bare(node.output_descs[0])
    desc = node.input_descs[slot]
    if desc is None:
        desc = node.input_descs[slot] = bare(port.desc)
    return desc


# ---------------------------------------------------------------- which steps


def _cast_first(src: TensorDesc, dst: TensorDesc, platform: Platform) -> bool:
    """Whether the Cast stands before the TransData (formats.md 5.5, Cast placement)."""
    into_device = not dst.format.is_origin
    before, after = src.dtype.bits or 0, dst.dtype.bits or 0
    src_c0 = platform.c0_of(src.dtype) if src.format.is_origin else src.format.c0
    if after < before:
        return True
    if not into_device:
        return False
    if dst.format.c0 == 8 and (src.format.is_origin or src_c0 != 8):
        return True
    return (src.format.is_origin and src_c0 != dst.format.c0) or after == before


def _format_steps(src: TensorDesc, dst: TensorDesc) -> list[Step]:
    if src.same_storage(dst):
        return []
    if src.format.is_origin and dst.format.is_origin:
        return _between_origins(src, dst)
    if src.format.is_origin:
        return _into_device(src, dst)
    if dst.format.is_origin:
        return _out_of_device(src, dst)
    # Different device formats, or different C0 or groups of one: through the origin format.
    middle = _out_of_device(src, src.logical())
    return [*middle, *_into_device(middle[-1].desc, dst)]


def _between_origins(src: TensorDesc, dst: TensorDesc) -> list[Step]:
    steps = _rank_steps(src, dst.shape, dst.format)
    reached = steps[-1].desc if steps else src
    have, want = reached.format.primary, dst.format.primary
    if have == want or have not in AXES or want not in AXES or len(AXES[have]) != len(reached.shape):
        return steps
    if sorted(AXES[have]) != sorted(AXES[want]):
        return steps
    transposed = _transpose(reached, dst.format)
    return [*steps, transposed] if transposed.desc.shape == dst.shape else steps


def _into_device(src: TensorDesc, dst: TensorDesc) -> list[Step]:
    layout = dst.logical_format
    if dst.format.primary in MATRIX_FORMATS:
        steps = [] if src.format == Format.ND else [_reformat(src, Format.ND)]
    else:
        steps = _rank_steps(src, dst.logical_shape, layout)
        reached = steps[-1].desc if steps else src
        if reached.format.primary not in AXES and layout.primary in AXES:
            steps.append(_reformat(reached, layout))
            reached = steps[-1].desc
        steps += _towards(reached, dst)
    reached = steps[-1].desc if steps else src
    return [*steps, Step("TransData", trans_data_attrs(reached.format, dst.format), dst)]


def _towards(src: TensorDesc, dst: TensorDesc) -> list[Step]:
    """A TransposeD into a layout from which the device format can be reached."""
    allowed = _INTO.get(dst.format.primary, (src.format,))
    if src.format.primary not in AXES:
        return []  # a two-dimensional ND filter
    if _is_depthwise(src, dst.format) and src.format.primary == Format.NCHW:
        return [_transpose(src, Format.HWCN)]
    return [] if src.format.primary in allowed else [_transpose(src, allowed[0])]


def _is_depthwise(src: TensorDesc, fmt: Format) -> bool:
    sizes = dict(zip(AXES[src.format.primary], src.shape))
    return fmt.groups > 1 and fmt.primary == Format.FRACTAL_Z and sizes["C"] == 1 and sizes["N"] == fmt.groups


def _out_of_device(src: TensorDesc, dst: TensorDesc) -> list[Step]:
    if src.format.primary in MATRIX_FORMATS:
        plain = replace(src.with_format(Format.ND, src.logical_shape))
        steps = [Step("TransData", trans_data_attrs(src.format, plain.format), plain)]
        return steps if dst.format == Format.ND else [*steps, _reformat(plain, dst.format)]
    target = dst.format if dst.format.primary in AXES else src.logical_format
    allowed = _OUT_OF.get(src.format.primary, (target,))
    layout = target if target.primary in allowed or target.primary not in AXES else allowed[0]
    reached = _as_origin(src, layout)
    steps = [Step("TransData", trans_data_attrs(src.format, layout), reached)]
    if layout.primary != target.primary:
        steps.append(_transpose(reached, target))
    steps += _rank_steps(steps[-1].desc, dst.shape, dst.format)
    if steps[-1].desc.format != dst.format:
        steps.append(_reformat(steps[-1].desc, dst.format))
    return steps


def _as_origin(src: TensorDesc, layout: Format) -> TensorDesc:
    """A device tensor in an origin layout."""
    own = src.logical_format
    shape = src.logical_shape
    if own.primary != layout.primary and own.primary in AXES and layout.primary in AXES:
        shape = tuple(shape[axis] for axis in permutation(own, layout))
    return src.logical() if layout == own else src.with_format(layout, shape)


def _transpose(src: TensorDesc, layout: Format) -> Step:
    perm = permutation(src.format, layout)
    desc = src.with_format(layout, tuple(src.shape[axis] for axis in perm))
    if desc.logical_format == layout and desc.logical_shape == desc.shape:
        desc = replace(desc, origin_format=None, origin_shape=None)
    return Step("TransposeD", {"perm": perm}, desc)


def _reformat(src: TensorDesc, layout: Format) -> Step:
    return Step("ReFormat", {}, replace(src, format=layout, origin_format=None, origin_shape=None))


def _rank_steps(src: TensorDesc, shape: Shape, layout: Format) -> list[Step]:
    """UnsqueezeV2 or SqueezeV2 where one shape has further axes of size 1."""
    missing = len(shape) - len(src.shape)
    if not missing:
        return []
    if missing > 0 and shape == (1,) * missing + src.shape:
        return [Step("UnsqueezeV2", {"axis": tuple(range(missing))}, TensorDesc(src.dtype, shape, layout))]
    if missing < 0 and src.shape == (1,) * -missing + shape:
        return [Step("SqueezeV2", {"axis": tuple(range(-missing))}, TensorDesc(src.dtype, shape, layout))]
    raise TransferError.because(SHAPE, f"{list(src.shape)} does not become {list(shape)} by axes of size 1")


# ---------------------------------------------------------------- placing nodes


class _Names:
    """Free names `trans_<Type>_<n>`."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.number = 0

    def take(self, type: str) -> str:
        while f"trans_{type}_{self.number}" in self.graph:
            self.number += 1
        name = f"trans_{type}_{self.number}"
        self.number += 1
        return name


def _insert(graph: Graph, use: Use, steps: list[Step], names: _Names) -> None:
    source = graph.disconnect(use.node, use.slot)
    assert source is not None
    lives_long = source.node.is_variable or source.node.type in DATA_TYPES
    near = _before(use.node) if lives_long else source.node
    first: OpDesc | None = None
    for step in steps:
        node = OpDesc(
            names.take(step.type),
            step.type,
            attrs=step.attrs,
            output_descs=[step.desc],
            input_descs=[bare(source.desc)],
        )
        graph.add(node, near=near)
        feed(graph, node, source)
        node.input_descs[0] = bare(source.desc)
        first = first or node
        source = node.out()
    graph.connect(source, use.node, use.slot)
    wanted = use.node.input_descs[use.slot]
    assert first is not None and wanted is not None
    if source.desc.shape == wanted.shape:
        use.node.input_descs[use.slot] = replace(source.desc)
    if _is_mutable(first.inputs[0]):
        for before in list(use.node.control_in):
            graph.add_control(before, first)


def _before(node: OpDesc) -> OpDesc:
    """A place in the graph order right before `node`: a conversion of a long-lived tensor waits for its reader."""
    place = OpDesc("", "")
    place.rank = node.rank - 1
    return place


def _is_mutable(port: Port | None) -> bool:
    """Variable memory: what is read there depends on the writes that came before."""
    if port is None:
        return False
    kind = find(port.node.type)
    return port.node.is_variable or port.node.type == "RefData" or (kind is not None and bool(kind.writes))
