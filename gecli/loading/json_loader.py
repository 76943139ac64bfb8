"""The JSON front end: gecli's graph document (networkx node-link form) as a graph."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from gecli.errors import Diagnostic, InputError
from gecli.ir.graph import Graph
from gecli.json_text import GRAPHS, TooManyValues, half_character, require_room
from gecli.loading.input_shapes import InputShapes
from gecli.loading.json_graph import EXAMPLE, VERSION, GraphReader, warn_unknown
from gecli.loading.json_values import Json, Source, pointer_to
from gecli.loading.loaded_model import LoadedModel, LoadOptions
from gecli.loading.shape_binding import Binding, bind_input_shapes
from gecli.loading.temporary_variables import rewrite_temporaries
from gecli.loading.variable_handles import REWRITTEN, rewrite_handles
from gecli.ops.registry import find
from gecli.options.spelling import similar

DOCUMENT_KEYS = frozenset(
    ("gecli_graph", "directed", "multigraph", "graph", "nodes", "links", "edges", "subgraphs", "comment", "$schema")
)


def load_json(
    path: str,
    shapes: InputShapes | None = None,
    options: LoadOptions | None = None,
    *,
    base_dir: str | None = None,
    data: bytes | None = None,
) -> LoadedModel:
    """The graph of a JSON document with its input shapes applied.

    Raises InputError, with the JSON pointer of the fault, and InvalidOption for the shapes.
    """
    options = options or LoadOptions()
    if data is None:
        base_dir = base_dir or os.path.dirname(path) or "."
    source = Source(path, base_dir or "", options.allow_outside)
    if data is None:
        source.files[path] = None
    document = parse_document(path, data)
    try:
        graph, binding = read_document(source, document, shapes, options)
    except RecursionError as err:
        raise too_deep(path) from err
    return LoadedModel(
        graph,
        "json",
        path,
        tuple(source.files),
        tuple(binding.rows),
        (*source.warnings, *binding.warnings),
        producer="gecli",
        unmatched=tuple(binding.unmatched),
    )


def parse_document(path: str, data: bytes | None = None) -> Json:
    """The JSON of a file. Raises InputError with line and column."""
    try:
        if data is None:
            with open(path, "rb") as stream:
                data = stream.read()
        require_room(data, GRAPHS)
        text = data.decode("utf-8-sig")
        document = json.loads(text)
        _refuse_half_characters(path, text, document)
        return document
    except OSError as err:
        raise InputError(
            "E13001", f"cannot open {path}", why=err.strerror or "", file=path, do="check the path and its permissions"
        ) from err
    except UnicodeDecodeError as err:
        raise InputError(
            "E13005",
            "the graph is not UTF-8 text",
            where=path,
            why=str(err),
            file=path,
            offset=err.start,
            do="save the JSON as UTF-8",
        ) from err
    except RecursionError as err:
        raise too_deep(path) from err
    except json.JSONDecodeError as err:
        raise InputError(
            "E13005",
            "the graph is not valid JSON",
            where=f"{path}:{err.lineno}:{err.colno}",
            why=err.msg,
            do="correct the text at that place",
            file=path,
            offset=err.pos,
        ) from err
    except TooManyValues as err:
        raise InputError(
            "E13005",
            "the JSON is hardly more than brackets",
            where=path,
            why=str(err),
            do="correct the document",
            file=path,
        ) from err
    except ValueError as err:  # Python's limit of digits
        raise InputError(
            "E13005",
            "the graph holds a number that is too long",
            where=path,
            why=str(err).partition(":")[0],
            do="correct the number",
            file=path,
        ) from err


def too_deep(path: str) -> InputError:
    return InputError(
        "E13005",
        "the JSON is nested too deeply",
        where=path,
        why="objects and lists lie inside each other more than some hundred times",
        do="correct the document",
        file=path,
    )


def _refuse_half_characters(path: str, text: str, document: Json) -> None:
    """Names of nodes and files must be texts that can be written again."""
    half = half_character(text, document)
    if half:
        raise InputError(
            "E13005",
            "a string of the graph is no Unicode text",
            where=path,
            why=f"{half} is one half of a surrogate pair",
            do=f"remove {half}, or write the character itself",
            file=path,
        )


def read_document(
    source: Source, document: Json, shapes: InputShapes | None = None, options: LoadOptions | None = None
) -> tuple[Graph, Binding]:
    """The graph of a parsed document. Raises InputError and InvalidOption."""
    options = options or LoadOptions()
    members = source.object(document, "", "the document")
    _check_outline(source, members)
    root = GraphReader(source, members, "", None)
    subs = source.object(members.get("subgraphs", {}), "/subgraphs", "subgraphs")
    readers = [root]
    for name, sub in subs.items():
        pointer = pointer_to("subgraphs", name)
        inner = GraphReader(source, source.object(sub, pointer, "a subgraph"), pointer, root.graph, name)
        root.graph.add_subgraph(inner.graph)
        readers.append(inner)
    for reader in readers:
        reader.read_nodes()
    if not options.allow_unsupported:
        _check_types(source, readers)
    binding = bind_input_shapes(root.model_inputs(), shapes or InputShapes(), root.other_names(), source.path)
    root.apply(binding)
    for reader in reversed(readers):
        reader.connect()
    rewrite_handles(readers)
    rewrite_temporaries(readers)
    for reader in reversed(readers):
        reader.infer(again=reader is root and _changed(root, binding))
    for reader in readers:
        reader.set_outputs()
    return root.graph, binding


def _check_outline(source: Source, members: dict[str, Json]) -> None:
    version = members.get("gecli_graph", VERSION)
    if version != VERSION:
        raise source.fault(
            "/gecli_graph", "the graph has a version that gecli does not know", f"found {version!r}, known is {VERSION}"
        )
    if "nodes" not in members:
        raise source.fault("", "the document has no nodes", "a graph has the members `nodes` and `links`", EXAMPLE)
    for name in ("directed", "multigraph"):
        if members.get(name, True) is False and name == "directed":
            raise source.fault("/directed", "the graph is undirected", "links run from source to target")
    warn_unknown(source, members, DOCUMENT_KEYS, "", "the document")


def _check_types(source: Source, readers: Iterable[GraphReader]) -> None:
    """Every type has a definition. Raises InputError that lists all types that have none."""
    from gecli.ops.index import FAMILY_OF_TYPE

    found: dict[str, list[tuple[str, str]]] = {}
    for reader in readers:
        for pointer, node in reader.read:
            if find(node.type) is None and node.type not in REWRITTEN:
                found.setdefault(node.type, []).append((node.name, pointer))
    if not found:
        return
    diagnostics = [
        Diagnostic(
            "G1005",
            f"{len(found)} operator type{'s' if len(found) > 1 else ''} of the graph"
            f" {'are' if len(found) > 1 else 'is'} not supported",
            where=source.path,
            why=", ".join(f"{name} ({len(found[name])})" for name in sorted(found)),
            do="replace them, or --allow-unsupported to look at the graph",
            file=source.path,
        )
    ]
    for name in sorted(found):
        (first, pointer), close = found[name][0], similar(name, sorted(FAMILY_OF_TYPE), 1, 0.6)
        diagnostics.append(
            Diagnostic(
                "E10501",
                f"operator type {name!r} has no definition",
                where=f"{source.path}#{pointer}/type",
                why=f"{len(found[name])} node{'s' if len(found[name]) > 1 else ''}, the first is {first!r}",
                do=f"the nearest type is {close[0]!r}" if close else "",
                file=source.path,
                node=first,
                pointer=f"{pointer}/type",
                actual=name,
            )
        )
    raise InputError.of(diagnostics)


def _changed(root: GraphReader, binding: Binding) -> bool:
    return any(row.desc is not each.desc for row, each in zip(binding.rows, root.model_inputs()))
