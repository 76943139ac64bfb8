"""Writing an OM file: one model, header version 2, wide table, in GE's order (GE: OmFileSaveHelper).

The weights are streamed: memory holds the graph part only.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

from gecli.artifacts.header import CHECKSUM_MARKER, HEADER_BYTES, OmHeader
from gecli.artifacts.inout_info import InOutInfo, inout_of
from gecli.artifacts.partition_table import PartitionType, pack_table, table_bytes
from gecli.artifacts.payload_digest import PayloadDigest
from gecli.artifacts.publish import publishing
from gecli.errors import InputError, OutputError
from gecli.ir.weight import Weight
from gecli.planning.weight_layout import WeightLayout
from gecli.records import dataclass

if TYPE_CHECKING:
    from gecli.ir.op_desc import OpDesc
    from gecli.wire.model_encoder import PortNames
    from gecli.wire.model_record import ModelRecord
    from gecli.wire.task import TaskList

PAYLOAD_ALIGN_BYTES = 64  # a mapped constant can then be used in place by vector code
PAD_ATTR = "_gecli_pad"
MAX_MODEL_DEF_BYTES = (1 << 32) - 1  # the size field of GE's writer
COMPUTED_ATTRS = ("weight_size", "om_info_list", PAD_ATTR)
_ZEROS = bytes(1 << 16)

Chunk = bytes | Weight


@dataclass(frozen=True, slots=True)
class OmImage:
    """A complete OM file that has not been written: `chunks` follow the header; a Weight stands for its bytes."""

    header: OmHeader
    chunks: tuple[Chunk, ...]
    partitions: tuple[tuple[int, int], ...]

    @property
    def size_bytes(self) -> int:
        return HEADER_BYTES + self.header.model_length

    def payload(self) -> Iterator[bytes]:
        """The bytes behind the header, in pieces."""
        for chunk in self.chunks:
            if isinstance(chunk, Weight):
                yield from chunk.chunks()
            else:
                yield chunk

    def write(self, stream: BinaryIO) -> None:
        """Write to a seekable stream, reading every weight once."""
        stream.write(bytes(HEADER_BYTES))
        with PayloadDigest(self.header.model_length) as digest:
            for block in self.payload():
                digest.update(block)
                stream.write(block)
        stream.seek(0)
        stream.write(self.signed(digest.result))

    def write_unseekable(self, stream: BinaryIO) -> None:
        """Write to a pipe: the weights are read twice, because the digest stands in front."""
        digest = hashlib.sha256()
        for block in self.payload():
            digest.update(block)
        stream.write(self.signed(digest.digest()))
        for block in self.payload():
            stream.write(block)

    def signed(self, sha256: bytes) -> bytes:
        """The header with the payload's digest and gecli's marker."""
        checksum = sha256.ljust(64 - len(CHECKSUM_MARKER), b"\0") + CHECKSUM_MARKER
        return replace(self.header, checksum=checksum).pack()


def om_image(
    model: ModelRecord,
    tasks: TaskList,
    layout: WeightLayout,
    weight_offsets: Mapping[OpDesc, int],
    *,
    inout: InOutInfo | None = None,
    port_names: PortNames | None = None,
    is_dynamic: bool = False,
) -> OmImage:
    """Lay out the OM file of a model.

    `layout` holds the constants of WEIGHTS_DATA and `weight_offsets` the place of each Const node there. The model
    attributes are the caller's; weight_size, om_info_list and `_gecli_pad` are set here. `inout` is derived from
    the graph when not given. Raises OutputError when MODEL_DEF is too large for the format.
    """
    from gecli.wire.model_encoder import encode_graphs
    from gecli.wire.task import encode_tasks

    task_info = encode_tasks(tasks)
    inout_info = (inout_of(model) if inout is None else inout).pack()
    graphs = encode_graphs(model, weight_offsets, port_names)
    fronts = [(PartitionType.MODEL_INOUT_INFO, inout_info)] if inout_info else []
    table_size = table_bytes(len(fronts) + 3)
    before = HEADER_BYTES + table_size + len(inout_info) + _size(graphs)
    attrs = {
        **model.attrs,
        "weight_size": layout.total_bytes,
        "om_info_list": (layout.total_bytes, 0, 0, len(task_info), 0),
    }
    model_attrs = _aligned_attrs(attrs, before)
    model_def = (*graphs, model_attrs)
    if _size(model_def) > MAX_MODEL_DEF_BYTES:
        raise OutputError(
            "E13023",
            f"the graph of {model.name} needs {_size(model_def)} bytes, the format has room for 4 GiB",
            do="compile with --external-weight",
        )
    partitions = (
        *((kind, len(data)) for kind, data in fronts),
        (PartitionType.MODEL_DEF, _size(model_def)),
        (PartitionType.WEIGHTS_DATA, layout.total_bytes),
        (PartitionType.TASK_INFO, len(task_info)),
    )
    chunks = (pack_table(partitions), inout_info, *model_def, *_weight_chunks(layout), task_info)
    header = OmHeader(
        name=model.name,
        platform_version=model.custom_version,
        om_ir_version=model.version,
        model_length=table_size + sum(size for _, size in partitions),
        is_unknow_model=int(is_dynamic),
    )
    return OmImage(header, chunks, partitions)


def write_om(path: str | os.PathLike[str], image: OmImage) -> int:
    """Publish an OM file; returns its size.

    Raises OutputError, and InputError (E13001) when the file of a weight is gone or became shorter.
    """
    try:
        with publishing(path) as stream:
            if stream.seekable():
                image.write(stream)
            else:
                image.write_unseekable(stream)
    except (OSError, EOFError) as error:
        raise unreadable_source(error) from error
    return image.size_bytes


def unreadable_source(error: OSError | EOFError) -> InputError:
    """The diagnostic for weights whose file went away or became shorter while they were written."""
    return InputError(
        "E13001",
        "the weights cannot be read",
        why=str(error),
        file=getattr(error, "filename", None),
        do="keep the source model in place until the compile has ended",
    )


def _aligned_attrs(attrs: Mapping[str, Any], before: int) -> bytes:
    """The attribute fields of MODEL_DEF with a pad that puts WEIGHTS_DATA, which follows, at a multiple of 64."""
    from gecli.wire.model_encoder import encode_model_attrs

    unpadded = encode_model_attrs({**attrs, PAD_ATTR: b""})
    pad = -(before + len(unpadded)) % PAYLOAD_ALIGN_BYTES
    return encode_model_attrs({**attrs, PAD_ATTR: bytes(pad)})


def _weight_chunks(layout: WeightLayout) -> Iterator[Chunk]:
    """WEIGHTS_DATA: the constants with zeros between them."""
    position = 0
    for place, weight in layout.blocks:
        yield from _zeros(place - position)
        yield weight
        position = place + weight.nbytes
    yield from _zeros(layout.total_bytes - position)


def _zeros(count: int) -> Iterator[bytes]:
    while count > 0:
        yield _ZEROS[: min(count, len(_ZEROS))]
        count -= len(_ZEROS)


def _size(chunks: tuple[Chunk, ...]) -> int:
    return sum(chunk.nbytes if isinstance(chunk, Weight) else len(chunk) for chunk in chunks)
