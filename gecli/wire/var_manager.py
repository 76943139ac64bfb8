"""`VarMatchInfo` messages <-> variable records (GE: deployer.VarMatchInfo, the content of a .rdcpkt file)."""

from __future__ import annotations

from collections.abc import Mapping

from gecli.errors import InputError
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.pb import var_manager_pb2 as pb
from gecli.variables.trans_road import TransRoad, TransStep
from gecli.variables.var_match import VarDescCache, VarMatch
from gecli.wire.attributes import AttrReader, fill_attr
from gecli.wire.decode_errors import DECODE_ERRORS
from gecli.wire.tensor_desc import Message, desc_of, fill_desc

INLINE_BYTES = 1 << 16  # larger initial values are in the OM and not repeated: the match ignores attributes


def encode_var_match(record: VarMatch) -> bytes:
    """The bytes of a `.rdcpkt`, the same for the same record."""
    message = pb.VarMatchInfo()
    fill_var_descs(message.desc_info_before_compile, record.before)
    fill_var_descs(message.desc_info_after_compile, record.after)
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def decode_var_match(data: bytes, *, path: str | None = None) -> VarMatch:
    """The record in `.rdcpkt` bytes. Raises InputError (rdcpkt_corrupt)."""
    try:
        message = pb.VarMatchInfo.FromString(data)
        reader = AttrReader(path)
        return VarMatch(
            var_descs_of(message.desc_info_before_compile, reader),
            var_descs_of(message.desc_info_after_compile, reader),
        )
    except DECODE_ERRORS as error:
        raise InputError(
            "G3007",
            f"the variable record cannot be read: {error}",
            kind="rdcpkt_corrupt",
            file=path,
            do="compile the model again",
        ) from error


def fill_var_descs(message: Message, cache: VarDescCache) -> None:
    """Write one side of a record into a VarDescInfo."""
    message.SetInParent()
    fill_var_map(message.cur_var_tensor_desc_map, cache.var_desc_map)
    fill_roads(message.var_to_trans_road, cache.var_trans_roads_map)
    message.changed_var_names.extend(sorted(cache.changed_var_names))
    fill_var_map(message.staged_var_tensor_desc_map, cache.staged_var_desc_map)


def var_descs_of(message: Message, reader: AttrReader) -> VarDescCache:
    """One side of a record from a VarDescInfo."""
    return VarDescCache(
        var_map_of(message.cur_var_tensor_desc_map, reader),
        roads_of(message.var_to_trans_road, reader),
        tuple(message.changed_var_names),
        var_map_of(message.staged_var_tensor_desc_map, reader),
    )


def fill_var_map(target: Message, descs: Mapping[str, TensorDesc]) -> None:
    for name, desc in descs.items():
        fill_var_desc(target[name], desc)


def fill_var_desc(message: Message, desc: TensorDesc) -> None:
    """Write a variable's descriptor with its origin form spelled out, as GE does."""
    for name, value in desc.attrs.items():
        if isinstance(value, Weight) and value.nbytes > INLINE_BYTES:
            desc = desc.without_attr(name)
    fill_desc(message, desc, fill_attr, full=True)


def var_map_of(source: Message, reader: AttrReader) -> dict[str, TensorDesc]:
    return {name: var_desc_of(source[name], reader) for name in sorted(source)}


def var_desc_of(message: Message, reader: AttrReader) -> TensorDesc:
    return desc_of(message, lambda key, value: (key, reader.decode(value)))


def fill_roads(target: Message, roads: Mapping[str, TransRoad]) -> None:
    for name, road in roads.items():
        message = target[name]
        message.SetInParent()
        for step in road:
            info = message.node_info.add()
            info.node_type = step.type
            fill_var_desc(info.input, step.src)
            fill_var_desc(info.output, step.dst)


def roads_of(source: Message, reader: AttrReader) -> dict[str, TransRoad]:
    return {
        name: TransRoad(
            TransStep(info.node_type, var_desc_of(info.input, reader), var_desc_of(info.output, reader))
            for info in source[name].node_info
        )
        for name in sorted(source)
    }
