"""Options of `gecli inspect-om`."""

from __future__ import annotations

from functools import partial

from gecli.options.option import INT64_MAX, Option

VIEWS = ("summary", "info", "atc-json", "nodes", "tensors", "vars", "io", "partitions", "options", "graph", "hex")

_view = partial(Option, subcommands=("inspect-om",), group="Views (at most one)")
_filter = partial(Option, subcommands=("inspect-om",), group="Filters and detail")
_other = partial(Option, subcommands=("inspect-om",), group="Extraction and comparison")

INSPECT_OPTIONS: tuple[Option, ...] = (
    _view("summary", "--summary", "bool", False, "What the file is and holds (default)."),
    _view("info", "--info", "bool", False, "The text of atc mode 6.", aliases=("model-info",)),
    _view("atc-json", "--atc-json", "bool", False, "The JSON document of atc mode 1."),
    _view("nodes", "--nodes", "bool", False, "Nodes with type, engine, shapes and formats."),
    _view("tensors", "--tensors", "bool", False, "Weights and constants."),
    _view("vars", "--vars", "bool", False, "Variables with road, address and size."),
    _view("io", "--io", "bool", False, "Inputs and outputs in run order."),
    _view("partitions", "--partitions", "bool", False, "Partitions with offset, size and digest."),
    _view("options", "--options", "bool", False, "The options recorded in the file."),
    _view("graph", "--graph", "str", None, "The graph as a picture or text.", "FORMAT",
          choices=("dot", "svg", "mermaid", "onnx", "readable")),
    _view("hex", "--hex", "str", None, "Bytes of the header, table or a partition.", "PART[:OFF[:LEN]]"),

    _filter("output", "-o, --output", "path", None, "Write to a file instead of stdout.", "FILE"),
    _filter("type", "--type", "str", None, "Only nodes of these types.", "GLOB", multiple=True),
    _filter("name", "--name", "str", None, "Only nodes with these names.", "GLOB", multiple=True),
    _filter("graph-name", "--graph-name", "str", None, "Only this graph.", "NAME"),
    _filter("show", "--show", "str", None, "More of each node: attrs,weights,io,edges.", "LIST",
            pattern=r"(?:attrs|weights|io|edges)(?:,(?:attrs|weights|io|edges))*",
            rule="a list of attrs, weights, io, edges"),
    _filter("stats", "--stats", "bool", False, "Minimum, maximum and mean of the tensors."),
    _filter("map", "--map", "bool", False, "Draw the address map of the variables."),
    _filter("around", "--around", "str", None, "Only the surroundings of a node.", "NODE"),
    _filter("depth", "--depth", "int", 2, "How far --around goes.", "N", bounds=(0, INT64_MAX)),
    _filter("force", "--force", "bool", False, "Draw graphs of more than 2000 nodes."),
    _filter("oneline", "--oneline", "bool", False, "One line per file."),
    _filter("strict", "--strict", "bool", False, "Treat the reader's warnings as errors."),
    _filter("salvage", "--salvage", "bool", False, "Print what can be read of a damaged file."),
    _filter("embed-data", "--embed-data", "bool", False, "Put data into the JSON document as base64."),
    _filter("data-file", "--data-file", "path", None, "Put the JSON document's data into a file.", "FILE"),

    _other("extract", "--extract", "str", None, "Write a tensor, or all, as .npy.", "NAME", multiple=True),
    _other("to", "--to", "path", None, "Directory of --extract.", "DIR"),
    _other("origin-format", "--origin-format", "bool", False, "Convert extracted data to the origin format."),
    _other("diff", "--diff", "bool", False, "Compare two files; exit 1 when they differ."),
    _other("only", "--only", "str", None, "Compare these sections only.", "LIST"),
    _other("ignore", "--ignore", "str", None, "Leave out: options,cmdline,names,addresses,attr:GLOB.", "LIST"),
    _other("rtol", "--rtol", "float", None, "Relative tolerance of weights.", "R"),
    _other("atol", "--atol", "float", None, "Absolute tolerance of weights.", "A"),
)  # fmt: skip
