"""`gecli compile --singleop`: each operator of a file becomes an OM of its own (GE: atc's single-op mode)."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gecli.compiler.graph_options import apply_graph_options
from gecli.compiler.job import OM, Job
from gecli.errors import InvalidOption
from gecli.ir.attributes import SINGLE_OP
from gecli.ir.graph import Graph
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Inline, Weight
from gecli.loading import LoadedModel
from gecli.loading.single_op import read_single_ops, single_op_names
from gecli.options.values import Options

MODEL_OP_TYPE = "ATTR_MODEL_OP_TYPE"
MODEL_INPUTS, MODEL_OUTPUTS = "ATTR_MODEL_TENSOR_INPUTS", "ATTR_MODEL_TENSOR_OUTPUTS"


def single_op_jobs(options: Options) -> list[Job]:
    """One job for each operator of the file; `--output` is the directory of the OMs.

    Raises InvalidOption and InputError for the file.
    """
    path, directory = options.text("singleop") or "", options.text("output")
    if not directory:
        raise InvalidOption("E10054", "--output is missing", option="--output", do="-o DIR/")
    if directory.endswith(OM) and not os.path.isdir(directory):
        raise InvalidOption(
            "E10001", f"-o {directory} looks like a file, and --singleop fills a directory", option="--output",
            why=f"each operator becomes an OM of its own name in it; {directory} does not exist",
            do=f"-o {os.path.dirname(directory) or '.'}/",
        )  # fmt: skip
    names = single_op_names(path)
    several = len(names) > 1
    return [Job(path, os.path.join(directory, f"{name}{OM}"), name, several) for name in names]


def load_single_ops(jobs: Sequence[Job], options: Options) -> list[LoadedModel]:
    """The operators of these jobs as models. Raises as `single_op_jobs`."""
    path = options.text("singleop") or ""
    graphs = {each.name: each for each in read_single_ops(path)}
    found = []
    for job in jobs:
        loaded = LoadedModel(
            graphs[job.stem].graph, "json", path, (path,), warnings=graphs[job.stem].warnings, producer="gecli"
        )
        apply_graph_options(loaded, options)
        found.append(loaded)
    return found


def single_op_attrs(graph: Graph) -> dict[str, object]:
    """What the OM of a single operator says about itself.

    `graph` is compiled: its operator may stand between conversions.
    """
    return {
        MODEL_OP_TYPE: str(graph.attrs[SINGLE_OP]),
        MODEL_INPUTS: tuple(_without_data(node.output_descs[0]) for node in graph.inputs),
        MODEL_OUTPUTS: tuple(_without_data(port.desc) for port in graph.outputs),
    }


def _without_data(desc: TensorDesc) -> Weight:
    return Weight(desc.logical(), Inline(b""))
