"""The image of an OM file that was read: written again, a file of gecli is the same byte for byte."""

from __future__ import annotations

from gecli.artifacts.inout_info import InOutInfo, parse_inout_info
from gecli.artifacts.om_file import OmFile
from gecli.artifacts.om_writer import OmImage, om_image
from gecli.artifacts.partition_table import Partition, PartitionType
from gecli.ir.attributes import VALUE
from gecli.ir.dtype import DataType
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import FileSlice, Weight
from gecli.planning.weight_layout import WeightLayout
from gecli.wire.model_record import ModelRecord
from gecli.wire.task import TaskList


def image_of(om: OmFile, model: ModelRecord | None = None) -> OmImage:
    """What `om` holds as a file of gecli's own layout; the weights stay in `om` until the image is written.

    WEIGHTS_DATA is taken over as it stands. `model` replaces the graphs: those of `om`, with other attributes. Raises
    InputError where `om` is damaged or no ordinary OM.
    """
    om.require_runnable()
    model = om.model() if model is None else model
    model.require_sound()
    tasks = om.tasks()
    area = om.root.partition(PartitionType.WEIGHTS_DATA)
    places: dict[OpDesc, int] = {}
    for graph in model.graphs:
        for node in graph.nodes_of("Const"):
            weight = node.attrs.get(VALUE)
            if area is None or not isinstance(weight, Weight) or not isinstance(weight.source, FileSlice):
                continue
            place = weight.source.offset_bytes - area.offset_bytes
            if 0 <= place <= area.size_bytes - weight.nbytes:
                places[node] = place
    layout = WeightLayout(tuple(places.values()), () if area is None else ((0, _whole(om.path, area)),), _size(area))
    part = om.inout_partition()
    if part is None:
        inout = InOutInfo()
    else:
        with om.source(part) as source:
            inout = parse_inout_info(source, path=om.path, offset=part.offset_bytes)
    return om_image(
        model,
        tasks or TaskList(()),
        layout,
        places,
        inout=inout,
        is_dynamic=bool(om.header.is_unknow_model),
    )


def _whole(path: str, area: Partition) -> Weight:
    """WEIGHTS_DATA as one block: constants of other writers may overlap."""
    desc = TensorDesc(DataType.UINT8, (area.size_bytes,))
    return Weight(desc, FileSlice(path, area.offset_bytes, area.size_bytes))


def _size(area: Partition | None) -> int:
    return 0 if area is None else area.size_bytes
