"""The node tests that ship with the onnx package, through the operators' importers and kernels."""

from __future__ import annotations

import re
import warnings
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from gecli.errors import GecliError, InputError
from gecli.ops.registry import find_onnx
from tests.ops.onnx_judge import assert_close, import_model, run

NEWEST_OPSET = 21  # what gecli promises; newer cases run where the operators exist


@cache
def cases() -> dict[str, Any]:
    """The cases whose operators gecli knows, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        found = {case.name: case for case in load_model_tests(kind="node")}
    return {name: case for name, case in found.items() if is_known(case.model)}


def is_known(model: onnx.ModelProto) -> bool:
    if model.functions or any(attr.type == attr.GRAPH for node in model.graph.node for attr in node.attribute):
        return False
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    return all(
        find_onnx(node.op_type, node.domain, opsets.get(node.domain, NEWEST_OPSET)) is not None
        for node in model.graph.node
    )


def as_array(value: Any, described: onnx.ValueInfoProto) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if described.type.HasField("tensor_type") else value


def check(case: Any, *, constant: bool, shapes: str = "static") -> None:
    """Every data set of a case gives its outputs; with constant inputs except the first, or none."""
    model = case.model
    for inputs, outputs in case.data_sets:
        values = model.graph.input
        feeds = {value.name: as_array(array, value) for value, array in zip(values, inputs)}
        sizes = [name for name, x in feeds.items() if np.ndim(x) == 0 and len(feeds) == 1]  # of a window function
        fixed = [*list(feeds)[1:], *sizes] if constant else []
        graph = import_model(model, feeds, constant=fixed, shapes=shapes)
        for index, (got, want) in enumerate(zip(run(graph, feeds), outputs, strict=True)):
            assert_close(got, as_array(want, model.graph.output[index]), f"{case.name} output {index}", case.rtol)


# Cases that cannot pass, by a pattern of their names, with the reason. Each is checked to fail still.
KNOWN_FAILURES: tuple[tuple[str, str], ...] = (
    ("FNUZ|UINT4|_to_UINT2|uint4", "GE has no such data type"),
    ("cast.*_to_INT[24]", "out of range is undefined in ONNX; gecli saturates, the published case wraps"),
    ("cast_no_saturate|castlike_no_saturate", "`saturate` is an option of the run (formats.md 8.2, row 44)"),
    ("cast_e8m0_FLOAT.*_to_FLOAT8E8M0$", "0 has no FLOAT8_E8M0 value; the published case gives the smallest"),
    ("^test_bernoulli", "random numbers are not specified"),
    ("resize_downsample_scales_.*_align_corners$", "onnxruntime and gecli divide by the whole output length"),
    ("spacetodepth_crd_mode.*(?<!_expanded)$", "an attribute of opset 28, newer than gecli promises"),
    ("^test_training_dropout(_default)?(_mask)?$", "Dropout with training_mode is refused"),
    ("^test_unique_(?!.*expanded)", "GE's UniqueWithCountsAndSorting gives no first indices and has no axis"),
)


def reason(name: str) -> str | None:
    return next((why for pattern, why in KNOWN_FAILURES if re.search(pattern, name)), None)


@pytest.mark.parametrize("name", sorted(cases()))
def test_a_node_case_gives_the_published_outputs(name: str) -> None:
    if reason(name) is None:
        check(cases()[name], constant=True)
        return
    with pytest.raises((GecliError, AssertionError, ValueError)):
        check(cases()[name], constant=True)


@pytest.mark.parametrize("name", sorted(name for name in cases() if reason(name) is None))
def test_a_node_case_is_right_or_refused_when_less_is_known(name: str) -> None:
    for constant, shapes in ((False, "static"), (True, "dims"), (True, "rank")):
        with suppress(InputError):  # an importer may ask for constants or ranks
            check(cases()[name], constant=constant, shapes=shapes)
