"""onnxruntime as the peer: what a user would run instead of gecli, as whole processes.

    peer_ort.py compile MODEL OUT             session with every optimisation, optimised model saved
    peer_ort.py reload OUT                    session from the saved model, optimiser off
    peer_ort.py run MODEL IN.npz OUT.npz N    N calls, the outputs of the last one saved

Nothing but onnxruntime and numpy is imported: these processes are timed whole.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def session(model: str, optimise: bool = True, save: str = "") -> Any:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
    options.inter_op_num_threads = 1
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimise else level.ORT_DISABLE_ALL
    if save:
        options.optimized_model_filepath = save
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(model: str, inputs: str, outputs: str, calls: int) -> None:
    import numpy as np

    ready = session(model)
    names = [output.name for output in ready.get_outputs()]
    with np.load(inputs) as stored:
        feeds = dict(stored)
    results: list[Any] = []
    for _ in range(calls):
        results = ready.run(names, feeds)
    np.savez(outputs, **dict(zip(names, results)))


def main(words: list[str]) -> None:
    match words:
        case ["compile", model, out]:
            session(model, save=out)
        case ["reload", model]:
            session(model, optimise=False)
        case ["run", model, inputs, outputs, calls]:
            run(model, inputs, outputs, int(calls))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
