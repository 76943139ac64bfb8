"""Options of `gecli inspect-om`."""

from __future__ import annotations

from functools import partial

from gecli.options.option import Option

VIEWS = (
    "summary", "info", "atc-json", "nodes", "tensors", "vars", "io", "partitions", "tasks", "kernels", "options", "hex",
    "full",
)  # fmt: skip
# Options that say more of certain views, and these views.
DETAILS_OF_VIEWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("type", ("nodes",)), ("name", ("nodes",)), ("graph-name", ("nodes",)), ("show", ("nodes",)),
    ("stats", ("tensors",)), ("map", ("vars",)), ("hash", ("partitions",)),
    ("target", ("summary",)), ("for-version", ("summary",)), ("recursive", ("summary",)),
)  # fmt: skip

_view = partial(Option, subcommands=("inspect-om",), group="Views (at most one)")
_filter = partial(Option, subcommands=("inspect-om",), group="Filters and detail")
_other = partial(Option, subcommands=("inspect-om",), group="Extraction")
_refused = partial(Option, subcommands=("inspect-om",), option_class="X", group="Refused", hidden=True)

_NO_PICTURES = "gecli draws no graphs yet; --nodes --show edges lists them"
_NO_DIFF = "gecli compares no files yet; compare the output of --json or --atc-json of both"

INSPECT_OPTIONS: tuple[Option, ...] = (
    _view("summary", "--summary", "bool", False, "What the file is and holds (default)."),
    _view("info", "--info", "bool", False, "The text of atc mode 6.", aliases=("model-info",)),
    _view("atc-json", "--atc-json", "bool", False, "The JSON document of atc mode 1."),
    _view("nodes", "--nodes", "bool", False, "Nodes with type, engine, shapes and formats."),
    _view("tensors", "--tensors", "bool", False, "Weights and constants."),
    _view("vars", "--vars", "bool", False, "Variables with road, address and size."),
    _view("io", "--io", "bool", False, "Inputs and outputs in run order."),
    _view("partitions", "--partitions", "bool", False, "Partitions with offset, size and digest."),
    _view("tasks", "--tasks", "bool", False, "The task list with kernels and addresses."),
    _view("kernels", "--kernels", "bool", False, "Kernels and libraries inside; none is loaded."),
    _view("options", "--options", "bool", False, "The options recorded in the file."),
    _view("full", "--full", "bool", False, "With --json: the whole model, as --json alone."),
    _view("hex", "--hex", "str", None, "Bytes of the header, table or a partition.", "PART[:OFF[:LEN]]"),

    _filter("output", "-o, --output", "path", None, "Write to a file instead of stdout.", "FILE"),
    _filter("type", "--type", "str", None, "--nodes: only nodes of these types.", "GLOB", multiple=True),
    _filter("name", "--name", "str", None, "--nodes: only nodes with these names.", "GLOB", multiple=True),
    _filter("graph-name", "--graph-name", "str", None, "--nodes: only this graph.", "NAME"),
    _filter("show", "--show", "str", None, "--nodes: more of each, attrs,weights,io,edges.", "LIST",
            pattern=r"(?:attrs|weights|io|edges)(?:,(?:attrs|weights|io|edges))*",
            rule="a list of attrs, weights, io, edges"),
    _filter("target", "--target", "str", None, "--summary: does it load on this chip? Exit 1 if not.", "SOC"),
    _filter("for-version", "--for-version", "str", None, "--summary: does it load with this CANN? Exit 1 if not.",
            "VERSION"),
    _filter("recursive", "--recursive", "bool", False, "--summary: models inside models too, four deep."),
    _filter("stats", "--stats", "bool", False, "--tensors: minimum, maximum and mean too."),
    _filter("map", "--map", "bool", False, "--vars: the address map too."),
    _filter("hash", "--hash/--no-hash", "bool", True, "--partitions: digest and entropy; reads all of the file."),
    _filter("print-schema", "--print-schema", "bool", False, "Print the JSON Schema of the view's document."),
    _filter("oneline", "--oneline", "bool", False, "One line per file."),
    _filter("strict", "--strict", "bool", False, "Treat the reader's warnings as errors."),
    _filter("salvage", "--salvage", "bool", False, "Print what can be read of a damaged file."),
    _filter("embed-data", "--embed-data", "bool", False, "Put data into the JSON document as base64."),
    _filter("data-file", "--data-file", "path", None, "Put the JSON document's data into a file.", "FILE"),

    _other("extract", "--extract", "str", None, "Write a tensor, or all, as .npy.", "NAME", multiple=True),
    _other("to", "--to", "path", None, "Directory of --extract.", "DIR"),
    _other("origin-format", "--origin-format", "bool", False, "Convert extracted data to the origin format."),

    _refused("graph", "--graph", "str", None, "The graph as a picture or text.", "FORMAT", note=_NO_PICTURES),
    _refused("around", "--around", "str", None, "Only the surroundings of a node.", "NODE", note=_NO_PICTURES),
    _refused("depth", "--depth", "str", None, "How far --around goes.", "N", note=_NO_PICTURES),
    _refused("force", "--force", "bool", False, "Draw graphs of more than 2000 nodes.", note=_NO_PICTURES),
    _refused("diff", "--diff", "bool", False, "Compare two files.", note=_NO_DIFF),
    _refused("only", "--only", "str", None, "Compare these sections only.", "LIST", note=_NO_DIFF),
    _refused("ignore", "--ignore", "str", None, "Leave out of the comparison.", "LIST", note=_NO_DIFF),
    _refused("rtol", "--rtol", "str", None, "Relative tolerance of weights.", "R", note=_NO_DIFF),
    _refused("atol", "--atol", "str", None, "Absolute tolerance of weights.", "A", note=_NO_DIFF),
)  # fmt: skip
