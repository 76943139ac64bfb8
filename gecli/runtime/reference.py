"""Another model as the judge of a run: an OM, or the source model evaluated node by node (cli.md 3.6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gecli.errors import InvalidOption
from gecli.ir.attributes import CONST_TYPES, VALUE
from gecli.ir.op_desc import Port
from gecli.loading import load_graph
from gecli.loading.input_shapes import InputShapes, ShapeItem
from gecli.loading.loaded_model import LoadedModel as SourceModel
from gecli.runtime.dynamic import DynamicExecutor
from gecli.runtime.session import Session
from gecli.runtime.variable_store import VariableStore
from gecli.wire.model_record import GraphRecord

Array = NDArray[Any]
Arrays = dict[str, Array]
Say = Callable[[str], None]
OPTION = "--compare"


class Reference(Protocol):
    """A model that gives the expected outputs of each request."""

    def run(self, feeds: Mapping[str, Array]) -> Arrays:
        """The outputs by name; variables keep what the requests before have written."""


class OmReference:
    """Another OM in a session of its own, whose variables begin with the values that the judged run begins with."""

    def __init__(self, path: str, session: Session, variables: Mapping[str, Array], say: Say) -> None:
        self._model = session.load(path)
        self._say = say
        for name, value in variables.items():
            if name in session.store:
                session.store.set_value(name, value, by="the compared run")

    def run(self, feeds: Mapping[str, Array]) -> Arrays:
        types = {tensor.name: tensor.dtype.numpy for tensor in self._model.inputs}
        outputs, _ = self._model.run(matched(feeds, types, self._model.path, self._say))
        return outputs


class SourceReference:
    """The model that an OM was compiled from, by the plain meaning of its graph: no pass, no storage format.

    Raises InvalidOption for a graph with variables: what updates them is only decided by a compile.
    """

    def __init__(self, path: str, say: Say) -> None:
        self._path = path
        self._say = say
        self._loaded: dict[tuple[object, ...], SourceModel] = {}
        graph = load_graph(path).graph
        if graph.is_optimised:
            raise InvalidOption(
                "E10001", f"--compare cannot evaluate {path}", option=OPTION, file=path,
                why="it is the document of a compiled model, whose graph has device formats",
                do="compile it and compare with its OM, or give the source model",
            )  # fmt: skip
        if any(node.is_variable for node in graph.nodes()):
            raise InvalidOption(
                "E10001", f"--compare cannot evaluate {path}", option=OPTION, file=path, why="the graph has variables",
                do="compile it and compare with its OM",
            )  # fmt: skip
        absent = [node for node in graph.all_nodes() if node.type == "FileConstant"]
        if absent:
            raise InvalidOption(
                "E10001", f"--compare cannot evaluate {path}", option=OPTION, file=path,
                why=f"the weights of node {absent[0].name!r} are not there", do="put the weight files beside the graph",
            )  # fmt: skip
        unknown = [node for node in graph.all_nodes() if node.type == "ConstPlaceHolder"]
        if unknown:
            raise InvalidOption(
                "E10001", f"--compare cannot evaluate {path}", option=OPTION, file=path,
                why=f"the graph does not hold what the placeholder {unknown[0].name!r} stands for",
                do="compile it and compare with its OM",
            )  # fmt: skip
        self._names = [each.name for each in graph.inputs]

    def run(self, feeds: Mapping[str, Array]) -> Arrays:
        feeds = matched(feeds, dict.fromkeys(self._names), self._path, self._say)
        graph = self._with_shapes(feeds).graph
        types = {node.name: node.output_descs[0].dtype.numpy for node in graph.inputs}
        feeds = {name: np.asarray(array, types[name]) for name, array in feeds.items()}
        outputs = _executed(graph, feeds)
        plain = [f"{port.node.name}:{port.index}" for port in graph.outputs]
        names = [*graph.output_names, *plain[len(graph.output_names) :]]
        return {name or other: array for name, other, array in zip(names, plain, outputs)}

    def _with_shapes(self, feeds: Mapping[str, Array]) -> SourceModel:
        key = tuple((name, array.shape) for name, array in feeds.items())
        if key not in self._loaded:
            items = [
                ShapeItem(f"{name}:{','.join(map(str, array.shape))}", name, None, _ranges(array.shape), OPTION)
                for name, array in feeds.items()
            ]
            self._loaded[key] = load_graph(self._path, input_shapes=InputShapes(tuple(items)))
        return self._loaded[key]


def _ranges(shape: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return tuple((dim, dim) for dim in shape)


def _executed(graph: Any, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs of a graph without variables; it may hold branches and loops."""
    records = {graph.name: GraphRecord.of(graph, {})}
    records |= {name: GraphRecord.of(inner, {}, name) for name, inner in graph.subgraphs.items()}
    constants = {
        Port(node, 0): node.attrs[VALUE].numpy()
        for record in records.values()
        for node in record.nodes
        if node.type in CONST_TYPES
    }
    with np.errstate(all="ignore"):
        return DynamicExecutor(records, constants).run(records[graph.name], feeds)


def values_of(store: VariableStore) -> Arrays:
    """The variables that have a value now, in the user's form."""
    return {name: store.value(name) for name in store.names() if store[name].is_initialised}


def matched(feeds: Mapping[str, Array], wanted: Mapping[str, Any], path: str, say: Say) -> Arrays:
    """The inputs of one model for another: by name, or by position when no name is in both. Raises InvalidOption."""
    names = list(wanted)
    if not set(names) & set(feeds) and len(names) == len(feeds):
        if names:
            pairs = ", ".join(f"{theirs} = {ours}" for theirs, ours in zip(names, feeds))
            say(f"the inputs of {path} are matched by position: {pairs}")
        found = dict(zip(names, feeds.values()))
    elif missing := [name for name in names if name not in feeds]:
        raise InvalidOption(
            "E10001", f"{path} has inputs that the model lacks: {', '.join(missing)}", option=OPTION, file=path,
            why=f"the model's inputs are {', '.join(feeds) or 'none'}",
            do="run it by itself: gecli run ... -o GOLDEN.npz",
        )  # fmt: skip
    else:
        found = {name: feeds[name] for name in names}
    return {name: array if wanted[name] is None else np.asarray(array, wanted[name]) for name, array in found.items()}
