"""ONNX nodes before they become GE nodes: opsets, names, attribute values, order, unsupported operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any

from gecli.errors import Diagnostic, InputError
from gecli.ir.weight import FileSlice, Weight
from gecli.loading.loaded_model import LoadOptions
from gecli.ops.inference import MAX_RANK
from gecli.ops.onnx_import import Importer
from gecli.ops.operator import From, OperatorType
from gecli.ops.registry import find_onnx
from gecli.options.spelling import similar
from gecli.records import dataclass
from gecli.wire.onnx import tensor_weight

Message = Any  # a protobuf message of the ONNX definitions
Mapping = tuple[OperatorType, From] | Importer
AI_ONNX = ("", "ai.onnx")
# AttributeProto.type
FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS, TENSORS, GRAPHS = range(1, 11)


@dataclass(slots=True)
class OnnxModel:
    """A parsed model with what importing its nodes needs: opsets, functions, options, files and warnings."""

    message: Message
    path: str
    options: LoadOptions
    base_dir: str | None = None  # where external data lie; None for a model that comes from no file
    from_file: bool = True
    opsets: dict[str, int] = field(default_factory=dict)
    functions: dict[tuple[str, str], Message] = field(default_factory=dict)
    warnings: list[Diagnostic] = field(default_factory=list)
    files: dict[str, None] = field(default_factory=dict)
    expanded: int = 0  # nodes of expansions so far: the <n> of PartitionedCall_<part>_<n>
    loops: int = 0  # loops around the node that is being imported
    _found: dict[tuple[str, str, int], Mapping | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.opsets = opsets_of(self.message.opset_import)
        self.functions = {(domain_of(each), each.name): each for each in self.message.functions}
        if self.from_file:
            self.files[self.path] = None

    def find(self, domain: str, op: str, opsets: dict[str, int]) -> Mapping | None:
        """How an operator is imported; None when it is not known."""
        key = (domain, op, opsets.get(domain, 1))
        if key not in self._found:
            self._found[key] = find_onnx(op, domain, key[2])
        return self._found[key]

    def weight(self, tensor: Message, where: str) -> Weight:
        """The value of a tensor by reference. Raises InputError."""
        weight = tensor_weight(
            tensor,
            self.base_dir,
            path=self.path if self.from_file else None,
            allow_outside=self.options.allow_outside,
            problems=self.warnings,
            where=where,
        )
        self.check_rank(where, len(weight.desc.shape))
        if isinstance(weight.source, FileSlice):
            self.files[weight.source.path] = None
        return weight

    def check_rank(self, what: str, rank: int) -> None:
        if rank > MAX_RANK:
            raise self.fault(
                "E13014", f"{what} has too many dims", f"{rank} dims, the limit is {MAX_RANK}", "reshape it"
            )

    def fault(self, code: str, message: str, why: str = "", do: str = "", node: str | None = None) -> InputError:
        return InputError(code, message, where=self.path, why=why, do=do, file=self.path, node=node)

    def attributes(self, node: Message, where: str) -> dict[str, Any]:
        """The attributes of a node as Python values; graphs stay messages."""
        return {attr.name: self.attribute(attr, where) for attr in node.attribute}

    def attribute(self, attr: Message, where: str) -> Any:
        match attr.type or _kind_by_content(attr):
            case 2:
                return attr.i
            case 1:
                return attr.f
            case 7:
                return tuple(attr.ints)
            case 3:
                return text_of(attr.s)
            case 4:
                return self.weight(attr.t, f"attribute {attr.name!r} of {where}")
            case 6:
                return tuple(attr.floats)
            case 8:
                return tuple(map(text_of, attr.strings))
            case 5:
                return attr.g
            case 9:
                return tuple(self.weight(each, f"attribute {attr.name!r} of {where}") for each in attr.tensors)
            case 10:
                return tuple(attr.graphs)
            case 13:
                return attr.tp
            case other:
                raise self.fault("E13014", f"attribute {attr.name!r} of {where} has kind {other}, which is not known")


def check_names(model: OnnxModel, graph: Message) -> None:
    """Every name of a graph is text. Raises InputError (protobuf hands out bytes where a string is not UTF-8)."""
    names = [graph.name, *(node.name for node in graph.node)]
    names += [each.name for part in (graph.input, graph.output, graph.initializer) for each in part]
    bad = next((name for name in names if type(name) is not str), None)
    if bad is not None:
        raise model.fault(
            "E13005", "a name of the ONNX model is not UTF-8 text", f"{bad!r:.100}", "export the model again"
        )


def opsets_of(imports: Iterable[Message]) -> dict[str, int]:
    """Domain to version; `ai.onnx` is the empty domain."""
    return {"" if each.domain in AI_ONNX else each.domain: each.version for each in imports}


def domain_of(node: Message) -> str:
    domain: str = node.domain
    return "" if domain in AI_ONNX else domain


def text_of(data: bytes) -> str | bytes:
    """A string attribute; bytes where they are not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


def _kind_by_content(attr: Message) -> int:
    """Files of the first ONNX versions leave the type out."""
    for name, kind in (("f", FLOAT), ("i", INT), ("s", STRING), ("t", TENSOR), ("g", GRAPH)):
        if attr.HasField(name):
            return kind
    for name, kind in (("floats", FLOATS), ("ints", INTS), ("strings", STRINGS), ("tensors", TENSORS)):
        if len(getattr(attr, name)):
            return kind
    return GRAPHS if len(attr.graphs) else INTS


def graphs_of(node: Message) -> Iterator[tuple[str, Message]]:
    """The graphs in a node's attributes, with the attributes' names."""
    for attr in node.attribute:
        if attr.HasField("g"):
            yield attr.name, attr.g
        for graph in attr.graphs:
            yield attr.name, graph


def all_nodes(graph: Message) -> Iterator[Message]:
    """The nodes of a graph or function and of the graphs inside them, in file order."""
    for node in graph.node:
        yield node
        if node.attribute:
            for _, inner in graphs_of(node):
                yield from all_nodes(inner)


# ---------------------------------------------------------------- names


def node_names(model: OnnxModel, graph: Message, taken: Iterable[str] = ()) -> list[str]:
    """A name for each node: its own, or `<OpType>_<k>` with k counting the unnamed nodes of the graph.

    `taken` are names of the graph's inputs. Raises InputError E13009 for names used twice, all of them at once.
    """
    given = [node.name for node in graph.node]
    used = set(taken)
    twice: dict[str, int] = {}
    for position, name in enumerate(given):
        if not name:
            continue
        if name not in used:
            used.add(name)
        elif model.options.rename_duplicates:
            given[position] = _free(f"{name}__", 1, used)[0]
        else:
            twice[name] = twice.get(name, 1) + 1
    if twice:
        raise model.fault(
            "E13009",
            f"{len(twice)} node name{'s are' if len(twice) > 1 else ' is'} used more than once",
            ", ".join(f"{name!r} ({count} times)" for name, count in list(twice.items())[:20]),
            "--rename-duplicates, or give the nodes names of their own",
            next(iter(twice)),
        )
    k = 0
    for position, node in enumerate(graph.node):
        if not given[position]:
            given[position], k = _free(f"{node.op_type}_", k, used)
    return given


def _free(prefix: str, k: int, used: set[str]) -> tuple[str, int]:
    """The first free name `<prefix><k>` from k on, and the next k."""
    while f"{prefix}{k}" in used:
        k += 1
    used.add(f"{prefix}{k}")
    return f"{prefix}{k}", k + 1


# ---------------------------------------------------------------- order


def ordered(model: OnnxModel, graph: Message, known: set[str]) -> Sequence[int]:
    """Positions of the nodes so that producers come first: file order where that already holds.

    `known` are the tensors that exist before the first node. Raises InputError for a tensor that two nodes make,
    tensors that nothing makes (all of them) and cycles.
    """
    if _is_in_order(graph, known):
        return range(len(graph.node))
    makers: dict[str, int] = {}
    for position, node in enumerate(graph.node):
        for name in node.output:
            if not name:
                continue
            if name in makers or name in known:
                raise _made_twice(model, graph, name, position, makers.get(name))
            makers[name] = position
    missing: dict[str, int] = {}
    needs = [_reads(node, makers, known, position, missing) for position, node in enumerate(graph.node)]
    if missing:
        raise _never_made(model, graph, missing)
    return _sorted(model, graph, needs)


def _is_in_order(graph: Message, known: set[str]) -> bool:
    """Every tensor is made once and before it is read: what exporters write, found in one walk."""
    made = set(known)
    made.add("")
    for node in graph.node:
        for name in node.input:
            if name not in made:
                return False
        if node.attribute:
            for _, inner in graphs_of(node):
                if not made.issuperset(captured_names(inner)):
                    return False
        for name in node.output:
            if name in made and name:
                return False
            made.add(name)
    return True


def _reads(node: Message, makers: dict[str, int], known: set[str], position: int, missing: dict[str, int]) -> list[int]:
    before: list[int] = []
    for name in node.input:
        maker = makers.get(name)
        if maker is not None:
            before.append(maker)
        elif name and name not in known:
            missing.setdefault(name, position)
    for _, inner in graphs_of(node):
        before += [makers[name] for name in captured_names(inner) if name in makers]
    return before


def _sorted(model: OnnxModel, graph: Message, needs: list[list[int]]) -> list[int]:
    from heapq import heapify, heappop, heappush

    waiting = [len(set(before)) for before in needs]
    after: list[list[int]] = [[] for _ in needs]
    for position, before in enumerate(needs):
        for each in sorted(set(before)):
            after[each].append(position)
    ready = [position for position, count in enumerate(waiting) if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        position = heappop(ready)
        order.append(position)
        for each in after[position]:
            waiting[each] -= 1
            if not waiting[each]:
                heappush(ready, each)
    if len(order) < len(needs):
        stuck = [graph.node[position].name or graph.node[position].op_type for position, n in enumerate(waiting) if n]
        raise model.fault(
            "E13005",
            "the ONNX graph has a cycle",
            f"these nodes wait for each other: {', '.join(stuck[:10])}",
            "export the model again",
            stuck[0],
        )
    return order


def captured_names(graph: Message) -> list[str]:
    """Outer tensors that a graph and the graphs inside it read, sorted by name."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    read: set[str] = set()
    for node in graph.node:
        read.update(node.input)
        for _, inner in graphs_of(node):
            read.update(captured_names(inner))
    read.update(value.name for value in graph.output)
    return sorted(read - own - {""})


def _made_twice(model: OnnxModel, graph: Message, name: str, position: int, first: int | None) -> InputError:
    second = graph.node[position]
    other = "an input or initializer" if first is None else f"node {graph.node[first].name or first!r}"
    return model.fault(
        "E13005",
        f"tensor {name!r} is made twice",
        f"by {other} and by node {second.name or position!r} ({second.op_type})",
        "export the model again; tensor names must be unique",
        second.name or None,
    )


def _never_made(model: OnnxModel, graph: Message, missing: dict[str, int]) -> InputError:
    reads = [f"{name!r} of node {graph.node[at].name or graph.node[at].op_type!r}" for name, at in missing.items()]
    first = graph.node[next(iter(missing.values()))]
    return model.fault(
        "E13005",
        f"{len(missing)} tensor{'s are' if len(missing) > 1 else ' is'} read but never made",
        ", ".join(reads[:20]) + (f" and {len(reads) - 20} more" if len(reads) > 20 else ""),
        "export the model again",
        first.name or None,
    )


# ---------------------------------------------------------------- unsupported operators


def check_supported(model: OnnxModel) -> None:
    """Every operator of the model can be imported. Raises InputError that lists all types that cannot."""
    found: dict[tuple[str, str, int], list[str]] = {}
    _collect(model, all_nodes(model.message.graph), model.opsets, found, set())
    if not found:
        return
    nodes = sum(map(len, found.values()))
    keys = sorted(found)
    shown = ", ".join(f"{domain + '.' if domain else ''}{op} ({len(found[domain, op, v])})" for domain, op, v in keys)
    summary = Diagnostic(
        "G1005",
        f"{len(found)} operator type{'s' if len(found) > 1 else ''} of the model"
        f" ({nodes} node{'s' if nodes > 1 else ''}) {'are' if len(found) > 1 else 'is'} not supported",
        where=model.path,
        why=shown,
        do="replace them, or --allow-unsupported to look at the graph",
        file=model.path,
    )
    raise InputError.of([summary, *(_unsupported(model, key, found[key]) for key in keys)])


def _collect(
    model: OnnxModel,
    nodes: Iterable[Message],
    opsets: dict[str, int],
    found: dict[tuple[str, str, int], list[str]],
    entered: set[tuple[str, str]],
) -> None:
    for node in nodes:
        domain, op = domain_of(node), node.op_type
        if model.find(domain, op, opsets) is not None:
            continue
        function = model.functions.get((domain, op))
        if function is None:
            found.setdefault((domain, op, opsets.get(domain, 1)), []).append(node.name)
        elif (domain, op) not in entered:
            entered.add((domain, op))
            _collect(model, all_nodes(function), opsets_of(function.opset_import) or opsets, found, entered)


def _unsupported(model: OnnxModel, key: tuple[str, str, int], names: list[str]) -> Diagnostic:
    from gecli.ops.index import FAMILY_OF_ONNX

    domain, op, opset = key
    others = sorted(name for known, name in FAMILY_OF_ONNX if known == domain)
    close = similar(op, others, 1, 0.75)
    if op in others:
        why = f"gecli imports {op}, but not of opset {opset}"
    else:
        why = f"key {domain or 'ai.onnx'}::{opset}::{op}" + (
            f"; the nearest known operator is {close[0]}" if close else ""
        )
    first = names[0] or f"the first {op}"
    return Diagnostic(
        "E16002",
        f"ONNX operator {op} is not supported",
        where=f"{len(names)} node{'s' if len(names) > 1 else ''}, the first is {first!r}",
        why=why,
        file=model.path,
        node=names[0] or None,
        actual=f"{domain or 'ai.onnx'}::{opset}::{op}",
    )
