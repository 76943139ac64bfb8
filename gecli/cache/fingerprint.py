"""What a compiled model depends on, as digests (cache.md 11.3): graph, weights, options, toolchain.

Taken before the first pass changes the graph. Options are in unless they are on a deny list, so a forgotten one can
only cost a miss.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from gecli.cache.digest import canonical, canonical_text, digest_of, digest_of_json, plain
from gecli.cache.request_digest import request_toolchain
from gecli.ir.attributes import EmptyList, NamedAttrs, RawAttr
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.records import dataclass
from gecli.version import __version__

VOLATILE = frozenset(("_session_graph_id", "_value_sha256", "session_id"))
MAX_NODE_DIGESTS = 2000  # digests of single nodes are kept for explanations up to this many
PARALLEL_BYTES = 16 << 20  # from this size on two threads hash the weights: hashlib works without the interpreter lock

PlacedWeight = tuple[str, Weight]  # where it stands, and the weight


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Digests, each `sha256:` + 64 hex digits.

    The rest explains a miss: `nodes` and `weights_fp` map names to 12 hex digits (empty for large graphs), `ports` has
    the model's inputs and outputs, `items` the options, `tools` the tools.
    """

    graph: str
    weights: str
    options: str
    toolchain: str
    nodes: Mapping[str, str]
    node_count: int
    edge_count: int
    weights_fp: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, str] = field(default_factory=dict)
    items: Mapping[str, str] = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)

    @property
    def combined(self) -> str:
        """Decides whether a cache entry fits."""
        return digest_of("gecli-fp-1", self.graph, self.weights, self.options, self.toolchain)

    @property
    def source(self) -> str:
        """What an artifact may depend on: no machine or library version is in it. Written to the OM as `_gecli_fp`."""
        return source_of(self.graph, self.weights, self.options, __version__)


def source_of(graph: str, weights: str, options: str, version: str) -> str:
    """The `_gecli_fp` of what this version of gecli compiled from these."""
    return digest_of("gecli-src-1", graph, weights, options, version)


def fingerprint_of(
    graph: Graph, options: Sequence[tuple[str, str]], toolchain: Mapping[str, str], origin: Sequence[str] = ()
) -> Fingerprint:
    """Digest a loaded graph (and its subgraphs), the options that count and the tools. Reads every weight once.

    `origin` is what an earlier compile of an optimised graph says of itself.
    """
    body = hashlib.sha256()
    if graph.is_optimised:
        body.update(canonical(["optimised", *origin]))
    weights: list[PlacedWeight] = []
    nodes: dict[str, str] = {}
    count = edges = 0
    for path, each in _graphs(graph, ""):
        body.update(canonical([path, [_port(p) for p in each.outputs], list(each.output_names)]))
        if attrs := _attrs(each.attrs, path, weights):
            body.update(canonical(attrs))
        texts = _NodeTexts(path, weights)
        for node in each.nodes():
            data = texts.of(node)
            body.update(data)
            count += 1
            edges += len(node.data_inputs)
            if count <= MAX_NODE_DIGESTS:
                nodes[f"{path}{node.name}"] = hashlib.sha256(data).hexdigest()[:12]
    if count > MAX_NODE_DIGESTS:
        nodes = {}
    rows = sorted(_weight_rows(weights))
    return Fingerprint(
        graph=f"sha256:{body.hexdigest()}",
        weights=digest_of_json(rows),
        options=digest_of_json([list(item) for item in options]),
        toolchain=digest_of_json(dict(toolchain)),
        nodes=nodes,
        node_count=count,
        edge_count=edges,
        weights_fp={where: digest[:12] for where, _, _, digest in rows} if len(rows) <= MAX_NODE_DIGESTS else {},
        ports=_ports(graph),
        items=dict(options),
        tools=dict(toolchain),
    )


def toolchain_of(soc: str, pass_names: Iterable[str]) -> dict[str, str]:
    """The tools whose change makes a cached result doubtful: gecli, artifact schema, passes, SoC, numpy, byte order."""
    return {**request_toolchain(), "passes": digest_of_json(list(pass_names)), "soc": soc}


def _ports(graph: Graph) -> dict[str, str]:
    """The inputs and outputs of a model in words."""
    inputs = {f"input {node.name}": str(node.output_descs[0]) for node in graph.inputs if node.output_descs}
    outputs = {f"output {index}": f"{port} {port.desc}" for index, port in enumerate(graph.outputs)}
    return {**inputs, **outputs}


def _graphs(graph: Graph, path: str) -> Iterator[tuple[str, Graph]]:
    """The graph, then the graph of each calling node, in order; the root's own name does not count."""
    yield path, graph
    for node in graph.nodes():
        for name in node.subgraphs:
            yield from _graphs(graph.subgraphs[name], f"{path}{node.name}/{name}/")


def _weight_rows(placed: list[PlacedWeight]) -> Iterator[tuple[str, str, str, str]]:
    for (where, weight), digest in zip(placed, weight_digests([weight for _, weight in placed])):
        yield where, weight.dtype.serial, str(list(weight.shape)), digest


def weight_digests(weights: Sequence[Weight]) -> list[str]:
    """The digest of each weight's bytes, 64 hex digits. Reads every weight once."""
    if sum(weight.nbytes for weight in weights) < PARALLEL_BYTES:
        return [weight.sha256() for weight in weights]
    return _hashed_by_two(weights)


def _hashed_by_two(weights: Sequence[Weight]) -> list[str]:
    """The digests in order, made by this thread and a second one.

    Not by a pool: a signal that stops the command would have to wait until its threads have done everything.
    """
    from threading import Thread

    digests = [""] * len(weights)
    faults: list[Exception] = []
    positions = iter(range(len(weights)))  # each is handed out once, whoever asks

    def work() -> None:
        try:
            for position in positions:
                digests[position] = weights[position].sha256()
        except Exception as fault:
            faults.append(fault)

    second = Thread(target=work, daemon=True)  # does not keep a stopped process alive
    second.start()
    work()
    second.join()
    if faults:
        raise faults[0]
    return digests


class _NodeTexts:
    """The canonical JSON of the nodes of one graph.

    Joined from texts that nodes share, because an encoder that walks lists and dictionaries for every node takes
    four times as long.
    """

    def __init__(self, path: str, weights: list[PlacedWeight]) -> None:
        self.path = path
        self.weights = weights
        self._descs: dict[int, str] = {}  # by identity: the graph keeps them alive
        self._quoted: dict[str, str] = {}

    def of(self, node: OpDesc) -> bytes:
        """A list of path, name, type, attributes, descriptors, inputs, control predecessors and subgraphs."""
        where = f"{self.path}{node.name}"
        name = self.quoted(node.name)
        attrs = self.attrs(node, where) if node.attrs else "{}"
        wanted = ",".join(["null" if desc is None else self.desc(desc, where) for desc in node.input_descs])
        made = ",".join([self.desc(desc, f"{where}:{index}") for index, desc in enumerate(node.output_descs)])
        fed = ",".join(["null" if port is None else f"[{self.quoted(port[0].name)},{port[1]}]" for port in node.inputs])
        control = canonical_text(sorted(before.name for before in node.control_in)) if node.control_in else "[]"
        inner = canonical_text(node.subgraphs) if node.subgraphs else "[]"
        text = (
            f"[{self.quoted(self.path)},{name},{self.quoted(node.type)},{attrs},"
            f"[{wanted}],[{made}],[{fed}],{control},{inner}]"
        )
        return text.encode("utf-8", "surrogatepass")

    def quoted(self, text: str) -> str:
        found = self._quoted.get(text)
        if found is None:
            found = self._quoted[text] = canonical_text(text)
        return found

    def attrs(self, node: OpDesc, where: str) -> str:
        return canonical_text(_attrs(node.attrs, where, self.weights))

    def desc(self, desc: TensorDesc, where: str) -> str:
        if desc.attrs:
            return canonical_text(_desc(desc, where, self.weights))
        found = self._descs.get(id(desc))
        if found is None:
            found = self._descs[id(desc)] = canonical_text(_desc(desc, where, self.weights))
        return found


def _attrs(attrs: Mapping[str, Any], where: str, weights: list[PlacedWeight]) -> dict[str, Any]:
    return {
        name: _attr(value, f"{where}.{name}", weights)
        for name, value in attrs.items()
        if name not in VOLATILE and not name.startswith("_gecli")
    }


def _port(port: Any) -> list[Any]:
    return [port.node.name, port.index]


def _desc(desc: TensorDesc, where: str, weights: list[PlacedWeight]) -> list[Any]:
    data: list[Any] = [desc.dtype.serial, list(desc.shape), int(desc.format)]
    data += [desc.origin_shape and list(desc.origin_shape), desc.origin_format and int(desc.origin_format)]
    if desc.shape_range:
        data.append([list(pair) for pair in desc.shape_range])
    if desc.origin_dtype is not None or desc.name:
        data.append(["as", desc.origin_dtype and desc.origin_dtype.serial, desc.name])
    if desc.attrs and (attrs := _attrs(desc.attrs, where, weights)):
        data.append(attrs)
    return data


def _attr(value: Any, where: str, weights: list[PlacedWeight]) -> Any:
    match value:
        case bool() | str() | None:
            return value
        case DataType():
            return value.serial
        case Format():
            return int(value)
        case int():
            return int(value)
        case float():
            return value.hex()
        case bytes():
            return plain(value)
        case EmptyList():
            return ["empty", value.kind]
        case tuple() | list():
            return [_attr(each, where, weights) for each in value]
        case Weight():
            weights.append((where, value))
            return ["weight", value.dtype.serial, list(value.shape), int(value.desc.format)]
        case TensorDesc():
            return ["desc", *_desc(value, where, weights)]
        case NamedAttrs():
            return ["func", value.name, {name: _attr(each, where, weights) for name, each in value.attrs.items()}]
        case RawAttr():
            return ["raw", value.kind, plain(value.data)]
    raise TypeError(f"attribute {where} of type {type(value).__name__} has no digest")
