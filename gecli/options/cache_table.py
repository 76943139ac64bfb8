"""Options of the commands below `gecli cache`; those of `cache why` are the options of compile."""

from __future__ import annotations

from functools import partial

from gecli.options.option import CACHE_COMMANDS, INT64_MAX, Option

_every = partial(Option, subcommands=tuple(name for name in CACHE_COMMANDS if name != "cache why"), group="Documents")
_WITH_KEYS = ("cache ls", "cache gc", "cache verify", "cache stats", "cache export", "cache import")
_keys = partial(Option, subcommands=_WITH_KEYS, group="Selection")
_ls = partial(Option, subcommands=("cache ls",), group="Listing")
_policy = partial(Option, subcommands=("cache gc",), group="What is removed")
_gc = partial(Option, subcommands=("cache gc",), group="How it is removed")
_verify = partial(Option, subcommands=("cache verify",), group="Check and repair")
_import = partial(Option, subcommands=("cache import",), group="Directory")
_export = partial(Option, subcommands=("cache export",), group="Output")
_wait = partial(Option, subcommands=("cache import", "cache confirm"), group="Locks")
_stats = partial(Option, subcommands=("cache stats",), group="Counters")

CACHE_OPTIONS: tuple[Option, ...] = (
    _keys("key", "--key", "str", None, "Only these graph keys.", "GLOB"),

    _ls("sort", "--sort", "str", "key", "Order of the rows.", "COLUMN",
        choices=("key", "created", "used", "size", "state")),
    _ls("reverse", "--reverse", "bool", False, "Reverse the order."),
    _ls("state", "--state", "str", None, "Only these states.", "LIST"),
    _ls("older-than", "--older-than", "duration", None,
        "Only entries not used for so long: 7d, 12h, 30m; a number alone is seconds.", "AGE"),
    _ls("larger-than", "--larger-than", "size", None,
        "Only entries above this size: 1M, 2.5G; a number alone is bytes.", "SIZE"),
    _ls("layer", "--layer", "str", None, "Only this layer.", "LAYER", choices=("graph", "jit")),
    _ls("files", "--files", "bool", False, "List every file with its owner."),

    _policy("keep-last", "--keep-last", "int", None,
            "Keep the N newest entries of each key, and the N newest versions of each slice.", "N",
            bounds=(0, INT64_MAX)),
    _policy("max-age", "--max-age", "duration", None,
            "Remove entries not used for so long: 30d, 12h, 90m; a number alone is seconds.", "AGE"),
    _policy("max-size", "--max-size", "size", None,
            "Remove the least recently used entries of both layers until the rest takes no more: 10G, 512M; "
            "a number alone is bytes.", "SIZE"),
    _policy("superseded", "--superseded", "bool", False,
            "Remove entries of a key that has a newer one of another model, shape or option, "
            "though they may still hit."),
    _policy("foreign", "--foreign", "bool", False, "Remove entries made by other tools, bare models included."),
    _policy("shadowed", "--shadowed", "bool", False, "Remove files that an index hides."),
    _policy("stale-toolchain", "--stale-toolchain", "bool", False, "Remove entries of other versions."),
    _policy("all", "--all", "bool", False,
            "Remove every entry that an index names, all slices, and without --key what was set aside."),
    _policy("unreferenced-weights", "--unreferenced-weights", "bool", False, "Only weights nobody refers to."),
    _policy("orphans", "--orphans", "bool", False, "Only files without an entry."),
    _policy("tmp", "--tmp", "bool", False, "Only temporary files."),
    _policy("broken", "--broken", "bool", False, "Only damaged entries and slices."),
    _policy("quarantine", "--quarantine", "bool", False,
            "Only what was set aside in .gecli/quarantine; without it that goes after 30 days."),
    _policy("locks", "--locks", "bool", False,
            "Lock files without an entry too, when older than --grace; a day without it."),

    _gc("dry-run", "--dry-run", "bool", False, "Show what would be removed; change nothing."),
    _gc("yes", "--yes", "bool", False,
        "Do not ask before --all and --max-size. Only a terminal is asked: a script that gives them removes at once."),
    _gc("wait", "--wait", "seconds", 0.0, "Wait so long for a busy key.", "SEC"),
    _gc("grace", "--grace", "duration", 3600, "Spare files younger than this: 1h, 90 (seconds), 0 for none.", "AGE"),
    _gc("free", "--free", "size", None, "Stop when so much was freed: 2G, or bytes.", "SIZE"),
    _gc("protect-last", "--protect-last", "bool", False, "Let --keep-last win over age and size."),

    _verify("fast", "--fast", "bool", False, "Compare sizes and headers; read no file in full."),
    _verify("repair", "--repair", "bool", False,
            "Set damaged entries aside in .gecli/quarantine, rebuild indexes, adopt complete entries."),
    _verify("recompile", "--recompile", "path", None,
            "Compile this model again with the options of each entry made from it; compare the files.", "MODEL"),
    _verify("wait", "--wait", "seconds", 60.0, "Wait so long for a busy key that needs repair; inf for ever.", "SEC"),

    _import("cache-create", "--cache-create", "bool", False, "Make the cache directory if it is missing."),

    _export("output", "-o, --output", "path", None, "The archive to write; - is standard output.", "FILE"),

    _wait("wait", "--wait", "seconds", 60.0, "Wait so long for a busy key; inf for ever.", "SEC"),

    _every("print-schema", "--print-schema", "bool", False, "Print the JSON Schema of what --json prints."),

    _stats("since", "--since", "duration", None,
           "Only what happened in so long a time: 7d, 12h; a number alone is seconds.", "AGE"),
    _stats("by-key", "--by-key", "bool", False, "A row for each key."),
    _stats("zero", "--zero", "bool", False, "Begin to count anew, after printing."),
)  # fmt: skip
