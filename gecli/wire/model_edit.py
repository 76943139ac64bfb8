"""MODEL_DEF bytes of any writer with a few values changed; everything that gecli does not know stays as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gecli.pb import ge_ir_pb2 as ge_ir

LOCATION, FILE_CONSTANT = "location", "FileConstant"


class Offsets(NamedTuple):
    """Where the inputs and outputs of an operator lie."""

    inputs: Sequence[int]
    outputs: Sequence[int]


def edited_model_def(
    data: bytes, offsets: Mapping[tuple[int, str], Offsets], numbers: Mapping[str, int], *, bare_locations: bool
) -> bytes:
    """MODEL_DEF with other offsets of operators, by graph and name, and other numbers as model attributes.

    Attributes that the model does not have are not added. `bare_locations` cuts the paths of external weights down to
    the names of their files; a model with compressed attribute names keeps them. Raises protobuf's DecodeError.
    """
    model = ge_ir.ModelDef.FromString(data)
    for name, number in numbers.items():
        if name in model.attr:
            model.attr[name].ParseFromString(ge_ir.AttrDef(i=number).SerializeToString())
    for position, part in enumerate(model.graph):
        graph = ge_ir.GraphDef.FromString(part)
        changed = [_edited(op, offsets.get((position, op.name)), bare_locations) for op in graph.op]
        if any(changed):
            model.graph[position] = graph.SerializeToString(deterministic=True)
    edited: bytes = model.SerializeToString(deterministic=True)
    return edited


def _edited(op: ge_ir.OpDef, offsets: Offsets | None, bare_locations: bool) -> bool:
    changed = False
    if offsets is not None and (list(op.input_i) != [*offsets.inputs] or list(op.output_i) != [*offsets.outputs]):
        op.input_i[:], op.output_i[:] = offsets.inputs, offsets.outputs
        changed = True
    if bare_locations and op.type == FILE_CONSTANT and LOCATION in op.attr:
        attr = ge_ir.AttrDef.FromString(op.attr[LOCATION].SerializeToString())
        name = attr.s.rpartition(b"/")[2]
        if name != attr.s:
            attr.s = name
            op.attr[LOCATION].ParseFromString(attr.SerializeToString())
            changed = True
    return changed
