"""Blocked tensors in shape inference: rules see the origin form, results get their storage (GE infers origin shapes).

A document may declare `NC1HWC0 [2,1,4,4,8]` with the origin `NCHW [2,3,4,4]`. The rules of operators speak of axes, so
they are asked about the origin form; what was declared of an output must be the storage of what they answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from gecli.ir.format import Format
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import UNKNOWN_RANK, Shape, TensorDesc
from gecli.layout.axes import AXES, permutation
from gecli.layout.platform import Platform, resolve_c0
from gecli.layout.storage_shape import storage_shape, to_storage
from gecli.layout.transfer_error import TransferError
from gecli.ops.inference import InferenceError

TRANS_DATA = frozenset(("TransData", "TransDataD"))
BORDERS = TRANS_DATA | {"ReFormat"}
# A runtime keeps these in origin form: one without it does not fit one that has it.
_IMAGES = frozenset((Format.NC1HWC0, Format.NC1HWC0_C04, Format.NDC1HWC0))
_DECLARE = "declare origin_format and origin_shape of it"


class Contradiction(NamedTuple):
    """What a desc is declared as, and what it would have to be."""

    what: str
    expected: Shape
    actual: Shape


class ContradictionError(ValueError):
    """A declaration that does not fit what is inferred."""

    def __init__(self, found: Contradiction) -> None:
        super().__init__(found.what)
        self.found = found


def names_origins(graph: Graph) -> bool:
    """Whether a document with conversions tells the origin form of blocked tensors, or leaves outputs to inference."""
    return any(
        desc.dtype.name == "UNDEFINED" or (not desc.format.is_origin and desc.logical_format.is_origin)
        for each in graph.all_graphs()
        if any(map(each.count_of, TRANS_DATA))
        for node in each.nodes()
        for desc in node.output_descs
    )


def knows_origin(desc: TensorDesc | None) -> bool:
    """True for a blocked tensor whose origin form is known."""
    return (
        desc is not None and desc.origin_shape is not None and not desc.format.is_origin
        and desc.logical_format.is_origin
    )  # fmt: skip


def logical_inputs(node: OpDesc, descs: Sequence[TensorDesc | None]) -> list[TensorDesc | None]:
    """The inputs in origin form where that is known; as they are when it is known of none of them.

    Raises InferenceError for an input that has none beside one that has.
    """
    if node.type in BORDERS or node.subgraphs:
        return list(descs)
    known = [desc for desc in descs if desc is not None and knows_origin(desc)]
    if not known:
        return list(descs)
    return [None if desc is None else _logical(slot, desc, known) for slot, desc in enumerate(descs)]


def _logical(slot: int, desc: TensorDesc, known: list[TensorDesc]) -> TensorDesc:
    if desc.format.is_origin:
        return desc
    if knows_origin(desc):
        return desc.logical()
    twin = next((each for each in known if each.same_storage(desc)), None)
    if twin is None or desc.format.primary in _IMAGES:
        raise InferenceError(f"input {slot} is {desc} without an origin form, another input has one", _DECLARE)
    return twin.logical()


def stored(declared: TensorDesc, result: TensorDesc, inputs: Sequence[TensorDesc | None]) -> TensorDesc:
    """An output whose origin form is `result`, in its declared storage, or in that of an input of the same form.

    Raises ContradictionError where the declaration is not a storage of `result`.
    """
    if not result.format.is_origin:
        return result
    blocked = [desc for desc in inputs if desc is not None and knows_origin(desc)]
    if declared.format.is_origin or declared.shape == UNKNOWN_RANK:
        if declared.shape not in ((), UNKNOWN_RANK):
            return result
        twin = next((desc for desc in blocked if _same_axes(desc, result)), None)
        return result if twin is None else replace(twin, dtype=result.dtype, shape_range=None)
    if result.shape == UNKNOWN_RANK:
        return replace(declared, dtype=result.dtype)
    fmt = _origin_format(declared, result, blocked)
    shape = _agreed(declared.origin_shape, result.shape, declared, result)
    return _checked(replace(declared, dtype=result.dtype, origin_shape=shape, origin_format=fmt))


def _same_axes(desc: TensorDesc, result: TensorDesc) -> bool:
    if desc.logical_shape != result.shape:
        return False
    return result.format == Format.ND or desc.logical_format.primary == result.format.primary


def _origin_format(declared: TensorDesc, result: TensorDesc, blocked: list[TensorDesc]) -> Format:
    said = declared.origin_format
    if result.format.primary != Format.ND:
        if said is not None and said.primary not in (Format.ND, result.format.primary):
            what = f"declared {declared} of {said.name}, inferred {result}"
            raise ContradictionError(Contradiction(what, result.shape, declared.logical_shape))
        return result.format
    if said is not None:
        return said
    rank = len(result.shape)
    return next((desc.logical_format for desc in blocked if len(desc.logical_shape) == rank), result.format)


def _agreed(said: Shape | None, shape: Shape, declared: TensorDesc, result: TensorDesc) -> Shape:
    if said is None or said == UNKNOWN_RANK:
        return shape
    if len(said) != len(shape) or any(a >= 0 and b >= 0 and a != b for a, b in zip(said, shape)):
        what = f"declared {declared} with origin_shape {list(said)}, inferred {result}"
        raise ContradictionError(Contradiction(what, shape, said))
    return tuple(a if b < 0 else b for a, b in zip(said, shape))


def _checked(desc: TensorDesc) -> TensorDesc:
    """A blocked desc whose dims are those of its origin form. Raises ContradictionError."""
    expected = _storage_of(desc)
    if expected is None:
        return desc
    if len(expected) != len(desc.shape) or any(a >= 0 and b >= 0 and a != b for a, b in zip(desc.shape, expected)):
        origin = f"{desc.logical_format.name} {list(desc.logical_shape)}"
        what = f"declared {desc}, but {origin} is {list(expected)} there"
        raise ContradictionError(Contradiction(what, expected, desc.shape))
    return replace(desc, shape=tuple(a if b < 0 else b for a, b in zip(desc.shape, expected)))


def _storage_of(desc: TensorDesc) -> Shape | None:
    """The dims that the origin form has in the format of `desc`; None where no formula says it."""
    letters = AXES.get(desc.logical_format.primary)
    if letters is not None and len(letters) != len(desc.logical_shape):
        return None  # which axes it has is said by no descriptor
    try:
        c0 = resolve_c0(desc.format, desc.dtype, None, desc.shape)
    except TransferError as error:
        raise ContradictionError(Contradiction(f"declared {desc}: {error.first.message}", (), desc.shape)) from error
    try:
        return storage_shape(desc.logical_format, desc.logical_shape, desc.format, desc.dtype, c0)
    except TransferError:
        return None


def check_given(desc: TensorDesc) -> None:
    """A tensor that is given, not inferred: its storage must be that of its origin form. Raises ContradictionError."""
    if desc.format.is_origin or desc.origin_format is None or desc.shape == UNKNOWN_RANK:
        return
    if desc.origin_shape is None:
        raise InferenceError(f"{desc} has origin_format {desc.origin_format.name}, but no origin_shape", _DECLARE)
    if desc.logical_format.is_origin:
        _checked(desc)


def converted(source: TensorDesc, target: TensorDesc, platform: Platform, *, complete: bool) -> TensorDesc:
    """The output of a TransData, its storage filled in where nothing is declared, its origin form with `complete`.

    Raises ContradictionError and TransferError.
    """
    if target.format.is_origin:
        _check_back(source, target)
        return target
    if target.shape == UNKNOWN_RANK:
        if target.origin_shape is None or target.origin_shape == UNKNOWN_RANK:
            return target
        return to_storage(target.logical(), target.format, platform)
    if not source.format.is_origin and not knows_origin(source):
        return target
    logical = _reordered(source.logical(), target.origin_format)
    said = target.origin_shape
    if said is not None and _same_count(said, logical.shape):
        logical = replace(logical, shape=said)  # H and W may be split otherwise: the elements lie in the same order
    found = stored(target, logical.with_dtype(target.dtype), (source,))
    return found if complete or target.origin_format is not None else target


def _check_back(source: TensorDesc, target: TensorDesc) -> None:
    """The way back from a blocked form must give as many elements as went in."""
    if source.format.is_origin or not target.is_static or not source.is_static:
        return
    if knows_origin(source):
        logical = _reordered(source.logical(), target.format)
        if logical.is_static and not _same_count(logical.shape, target.shape):
            what = f"declared {target}, inferred {logical}"
            raise ContradictionError(Contradiction(what, logical.shape, target.shape))
    elif source.logical_format == source.format and target.format.primary in AXES:
        _checked(source.with_dtype(target.dtype).with_origin(target.shape, target.format))


def _same_count(a: Shape, b: Shape) -> bool:
    return min((*a, *b), default=0) >= 0 and prod(a) == prod(b)


def _reordered(desc: TensorDesc, fmt: Format | None) -> TensorDesc:
    """A tensor with its axes in the order of `fmt`, where both say what they are."""
    if fmt is None or fmt.primary == desc.format.primary or desc.shape == UNKNOWN_RANK:
        return desc
    have, want = AXES.get(desc.format.primary), AXES.get(fmt.primary)
    if have is None or want is None or len(desc.shape) != len(have) or sorted(have) != sorted(want):
        return desc
    return replace(desc, format=fmt, shape=tuple(desc.shape[axis] for axis in permutation(desc.format, fmt)))
