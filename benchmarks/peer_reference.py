"""onnx's ReferenceEvaluator as the peer: one call, and the seconds it took.

peer_reference.py MODEL IN.npz
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator


def main(model: str, inputs: str) -> None:
    evaluator = ReferenceEvaluator(onnx.load(model))
    with np.load(inputs) as stored:
        feeds = dict(stored)
    start = time.perf_counter()
    evaluator.run(None, feeds)
    print(json.dumps({"call_s": time.perf_counter() - start}))


if __name__ == "__main__":
    main(*sys.argv[1:])
