"""Resizing, block moves and grid sampling against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc
from gecli.ops.registry import find
from tests.ops.onnx_judge import import_model, judge, one_node_model

RANDOM = np.random.default_rng(24)


def normal(*shape: int) -> NDArray[Any]:
    return RANDOM.standard_normal(shape).astype(np.float32)


def op(type: str, **attrs: Any) -> Any:
    kind = find(type)
    assert kind is not None
    return kind.cls(**attrs)


IMAGE = normal(1, 2, 7, 6)
SCALES = [[1, 1, 2, 2], [1, 1, 0.6, 0.8], [1, 1, 1.7, 0.5]]
COORDINATES = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_nearest_equals_onnxruntime(coordinates: str, rounding: str) -> None:
    attrs = {"mode": "nearest", "coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    for scales in SCALES:
        judge("Resize", [IMAGE, None, np.float32(scales)], attrs=attrs, constant=(2,))
    judge("Resize", [IMAGE, None, None, np.array([1, 2, 9, 5])], attrs=attrs, constant=(3,))


@pytest.mark.parametrize("coordinates", [*COORDINATES, "half_pixel_symmetric"])
@pytest.mark.parametrize("mode, exclude", [("linear", 0), ("cubic", 0), ("cubic", 1)])
def test_interpolation_equals_onnxruntime(mode: str, exclude: int, coordinates: str) -> None:
    attrs = {"mode": mode, "coordinate_transformation_mode": coordinates, "exclude_outside": exclude}
    for scales in SCALES:
        judge("Resize", [IMAGE, None, np.float32(scales)], attrs=attrs, constant=(2,), opset=19)
    judge("Resize", [IMAGE, None, None, np.array([1, 2, 9, 5])], attrs=attrs, constant=(3,), opset=19)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiasing_follows_the_definition(mode: str) -> None:
    attrs = {"mode": mode, "antialias": 1}
    for scales in SCALES[1:]:
        inputs = [IMAGE, None, np.float32(scales)]
        judge("Resize", inputs, attrs=attrs, constant=(2,), opset=19, judge_with="reference")


def test_crops_are_extrapolated() -> None:
    attrs = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 3.0}
    roi = np.float32([0, 0, 0.2, 0.3, 1, 1, 0.8, 1.2])
    judge("Resize", [IMAGE, roi, None, np.array([1, 2, 9, 5])], attrs=attrs, constant=(3,), opset=13)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_aspect_ratio_policies(policy: str) -> None:
    attrs = {"axes": [2, 3], "keep_aspect_ratio_policy": policy, "mode": "linear"}
    judge("Resize", [IMAGE, None, None, np.array([9, 5])], attrs=attrs, opset=18, constant=(3,), dynamic=False)


def test_older_opsets_resize_asymmetrically() -> None:
    judge("Upsample", [IMAGE], attrs={"mode": "nearest", "scales": [1.0, 1, 2, 3]}, opset=7)
    judge("Upsample", [IMAGE, np.float32([1, 1, 2, 3])], opset=9, constant=(1,))
    judge("Upsample", [IMAGE, np.float32([1, 1, 2, 3])], attrs={"mode": "linear"}, opset=9, constant=(1,))
    judge("Resize", [IMAGE, np.float32([1, 1, 0.5, 0.6])], opset=10, constant=(1,))


@pytest.mark.parametrize(
    "scales, rounding, coordinates, expected",
    [
        ([1, 1, 2, 2], "floor", "asymmetric", "ResizeNearestNeighborV2"),
        ([1, 1, 2, 2], "round_prefer_ceil", "half_pixel", "ResizeNearestNeighborV2"),
        ([1, 1, 2, 2], "round_prefer_floor", "half_pixel", "Resize"),
        ([1, 1, 1.7, 2], "floor", "asymmetric", "Resize"),
        ([1, 2, 2, 2], "floor", "asymmetric", "Resize"),
    ],
)
def test_ge_nearest_is_used_only_where_it_rounds_like_onnx(
    scales: list[float], rounding: str, coordinates: str, expected: str
) -> None:
    attrs = {"nearest_mode": rounding, "coordinate_transformation_mode": coordinates}
    model, feeds = one_node_model("Resize", [IMAGE, None, np.float32(scales)], attrs, 13, "", 1)
    graph = import_model(model, feeds, constant={"x2"})
    assert [node.type for node in graph.nodes() if "Resize" in node.type] == [expected]


def test_ge_nearest_of_channels_last_images() -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 2, 2, 1)
    layer = op("ResizeNearestNeighborV2")
    layer.in_descs = (TensorDesc(DataType.FLOAT, (1, 2, 2, 1), Format.NHWC), None)
    assert layer.kernel(x, np.int32([4, 2]))[0, :, :, 0].tolist() == [[0, 1], [0, 1], [2, 3], [2, 3]]


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space_equals_onnxruntime(mode: str) -> None:
    judge("DepthToSpace", [normal(2, 8, 3, 4)], attrs={"blocksize": 2, "mode": mode})


def test_space_to_depth_equals_onnxruntime_and_undoes_depth_to_space() -> None:
    x = normal(2, 3, 4, 6)
    judge("SpaceToDepth", [x], attrs={"blocksize": 2})
    for data_format in ("NCHW", "NHWC"):
        deep = op("SpaceToDepth", block_size=2, data_format=data_format).kernel(normal(2, 4, 4, 4))
        back = op("DepthToSpace", block_size=2, data_format=data_format).kernel(deep)
        np.testing.assert_array_equal(op("SpaceToDepth", block_size=2, data_format=data_format).kernel(back), deep)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_grid_sample_equals_onnxruntime(mode: str, padding: str, align: int) -> None:
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": align}
    judge("GridSample", [normal(2, 3, 5, 6), normal(2, 4, 3, 2)], attrs=attrs, opset=20)
    if mode != "cubic":
        judge("GridSample", [normal(2, 3, 4, 5, 6), normal(2, 2, 4, 3, 3)], attrs=attrs, opset=20)


def test_upsample_repeats_and_scales() -> None:
    y = op("Upsample", scale=0.5, stride_h=1, stride_w=2).kernel(np.float32([[[[2, 4]]]]))
    assert y.tolist() == [[[[1, 1, 2, 2]]]]
