"""The ONNX front end: an ONNX file as a graph, with the names that GE's parser gives (GE: parser/onnx)."""

from __future__ import annotations

import os
from typing import Any

from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph, GraphError
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.loading.inference import Inference
from gecli.loading.input_shapes import InputShapes
from gecli.loading.loaded_model import LoadedModel, LoadOptions
from gecli.loading.onnx_builder import GraphBuilder, Scope, build_body
from gecli.loading.onnx_functions import check_functions
from gecli.loading.onnx_nodes import Message, OnnxModel, check_names, check_supported
from gecli.loading.shape_binding import Binding, ModelInput, bind_input_shapes
from gecli.wire.collector import collector_paused
from gecli.wire.onnx import parse_onnx, parse_onnx_file


def load_onnx(
    path: str,
    shapes: InputShapes | None = None,
    options: LoadOptions | None = None,
    *,
    base_dir: str | None = None,
    data: bytes | None = None,
) -> LoadedModel:
    """The graph of an ONNX file (or of `data`, which came from no file) with its input shapes applied.

    Weights stay references into the file. Raises InputError for the file and InvalidOption for the shapes.
    """
    options = options or LoadOptions()
    message = parse_onnx_file(path) if data is None else parse_onnx(data, name=path)
    if data is None:
        base_dir = base_dir or os.path.dirname(path) or "."
    model = OnnxModel(message, path, options, base_dir, from_file=data is None)
    _check_outline(model)
    check_functions(model)
    if not options.allow_unsupported:
        check_supported(model)
    with collector_paused():
        try:
            graph, binding, tensors = _build(model, shapes or InputShapes())
        except GraphError as err:  # a made name that the model uses too
            raise model.fault(
                "E13009", "two nodes of the model get one name", str(err), "give the node another name"
            ) from err
    return LoadedModel(
        graph,
        "onnx",
        path,
        tuple(model.files),
        tuple(binding.rows),
        (*model.warnings, *binding.warnings),
        producer=f"{message.producer_name} {message.producer_version}".strip(),
        tensors=tensors,
        unmatched=tuple(binding.unmatched),
    )


def _check_outline(model: OnnxModel) -> None:
    """The model has a graph with outputs and nothing that gecli would silently leave out. Raises InputError."""
    message = model.message
    if not message.HasField("graph"):
        raise model.fault("E16004", "the ONNX model has no graph", do="export the model again")
    graph = message.graph
    if not len(graph.output):
        raise model.fault("E16001", "the ONNX graph has no outputs", f"graph {graph.name!r}", "export the model again")
    constants = {tensor.name for tensor in graph.initializer}
    if model.options.strict and all(value.name in constants for value in graph.input):
        raise model.fault("E16001", "the ONNX graph has no inputs", f"graph {graph.name!r}")
    for name, what in (("sparse_initializer", "sparse initializers"), ("training_info", "training information")):
        holder = graph if name == "sparse_initializer" else message
        if len(getattr(holder, name)):
            raise model.fault(
                "E13005",
                f"the ONNX model has {what}, which gecli does not import",
                f"{len(getattr(holder, name))} of them",
                "export the model without them",
            )


def _build(model: OnnxModel, shapes: InputShapes) -> tuple[Graph, Binding, Scope]:
    message = model.message.graph
    check_names(model, message)
    constants = {tensor.name for tensor in message.initializer}
    inputs = [_model_input(model, value) for value in message.input if value.name not in constants]
    others = dict.fromkeys(sorted(constants), "an initializer (a weight)") if shapes.items else {}
    if shapes.items:
        for node in message.node:
            others.update(dict.fromkeys(node.output, f"an output of node {node.name or node.op_type!r}"))
            others.setdefault(node.name, f"a node of type {node.op_type}")
    binding = bind_input_shapes(inputs, shapes, others, os.path.basename(model.path))
    graph = Graph(message.name or os.path.splitext(os.path.basename(model.path))[0])
    builder = GraphBuilder(model, graph, Inference())
    for position, each in enumerate(inputs):
        builder.add_input(each.name, binding.desc(position), position)
    build_body(builder, message, model.opsets)
    return graph, binding, builder.scope


def _model_input(model: OnnxModel, value: Message) -> ModelInput:
    """An input's descriptor; missing and symbolic dims are unknown. Raises InputError for sequences and maps."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        what = str(kind or "unknown type").removesuffix("_type")
        raise model.fault(
            "E13014",
            f"input {value.name!r} is not a tensor",
            f"its type is {what}",
            "export the model with tensor inputs",
        )
    tensor = value.type.tensor_type
    dtype = DataType.from_onnx(tensor.elem_type)
    if dtype is None:
        raise model.fault(
            "E13014",
            f"input {value.name!r} has a data type that GE lacks",
            f"ONNX data type {tensor.elem_type}",
            "export the model with another data type",
        )
    if not tensor.HasField("shape"):
        return ModelInput(value.name, TensorDesc(dtype, UNKNOWN_RANK))
    dims = list(tensor.shape.dim)
    model.check_rank(f"input {value.name!r}", len(dims))
    shape = tuple(_dim(dim) for dim in dims)
    symbols = tuple(str(dim.dim_param) or None if size < 0 else None for dim, size in zip(dims, shape))
    return ModelInput(value.name, TensorDesc(dtype, shape), symbols)


def _dim(dim: Any) -> int:
    if dim.WhichOneof("value") != "dim_value" or dim.dim_value < 0:
        return -1
    size: int = dim.dim_value
    return size
