"""The image of an OM file that was read: written again, a file of gecli is the same byte for byte."""

from __future__ import annotations

from typing import NamedTuple

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


class OmParts(NamedTuple):
    """What an OM holds, apart: `places` has the place in WEIGHTS_DATA of each Const node."""

    model: ModelRecord
    tasks: TaskList
    layout: WeightLayout
    places: dict[OpDesc, int]
    is_dynamic: bool

    def image(self, inout: InOutInfo | None = None) -> OmImage:
        """The file; `inout` is derived from the graph when not given."""
        return om_image(self.model, self.tasks, self.layout, self.places, inout=inout, is_dynamic=self.is_dynamic)


def image_of(om: OmFile, model: ModelRecord | None = None) -> OmImage:
    """What `om` holds as a file of gecli's own layout; the weights stay in `om` until the image is written.

    WEIGHTS_DATA is taken over as it stands. `model` replaces the graphs: those of `om`, with other attributes. Raises
    InputError where `om` is damaged or no ordinary OM.
    """
    parts = parts_of(om, model)
    part = om.inout_partition()
    if part is None:
        return parts.image(InOutInfo())
    with om.source(part) as source:
        return parts.image(parse_inout_info(source, path=om.path, offset=part.offset_bytes))


def parts_of(om: OmFile, model: ModelRecord | None = None) -> OmParts:
    """The parts from which `om` can be written again. Raises as `image_of`."""
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
    return OmParts(model, tasks or TaskList(()), layout, places, bool(om.header.is_unknow_model))


def _whole(path: str, area: Partition) -> Weight:
    """WEIGHTS_DATA as one block: constants of other writers may overlap."""
    desc = TensorDesc(DataType.UINT8, (area.size_bytes,))
    return Weight(desc, FileSlice(path, area.offset_bytes, area.size_bytes))


def _size(area: Partition | None) -> int:
    return 0 if area is None else area.size_bytes
