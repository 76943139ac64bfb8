"""Which family file holds which operator type and ONNX mapping; written by `python -m gecli.ops.make_index`."""

from __future__ import annotations

FAMILIES: tuple[str, ...] = ("activation",)

FAMILY_OF_TYPE: dict[str, str] = {
    "LeakyRelu": "activation",
    "Relu": "activation",
    "Sigmoid": "activation",
}

FAMILY_OF_ONNX: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "LeakyRelu"): ("activation",),
    ("", "Relu"): ("activation",),
    ("", "Sigmoid"): ("activation",),
}
