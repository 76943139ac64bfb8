"""--help and --help-all, made from the option table."""

from __future__ import annotations

from textwrap import wrap
from typing import NamedTuple

from gecli.options.global_table import GLOBAL_OPTIONS
from gecli.options.option import CACHE_COMMANDS, Option, domain_text, value_text
from gecli.options.table import options_of

WIDTH = 80
_INDENT = 28


class Command(NamedTuple):
    """What help, manual pages and completion say about a command besides its options."""

    usage: str
    summary: str
    examples: tuple[tuple[str, str], ...] = ()


COMMANDS: dict[str, Command] = {
    "": Command(
        "gecli COMMAND [ARGUMENTS] [OPTIONS]",
        "Compile model graphs for Ascend offline execution and run them, without Ascend hardware.",
        (
            ("Compile an ONNX model", "gecli compile model.onnx -o out/model"),
            ("See what is in it", "gecli inspect-om out/model.om"),
            ("Run it on the simulated device", "gecli run out/model.om --seed 3"),
        ),
    ),
    "compile": Command(
        "gecli compile MODEL... -o PATH [OPTIONS]",
        "Compile models to .om files, with a .rdcpkt where they hold variables.",
        (
            ("Fix a dynamic input", 'gecli compile a.onnx -o a --input-shape "x:1,3,224,224"'),
            ("Two graphs that share variables", "gecli compile init.json train.json -o out/ --train"),
            ("Keep compiled graphs", "gecli compile a.onnx -o a --cache-dir cache --cache-create"),
            ("Compile the slices of a dynamic model", "gecli compile --jit a.onnx --sample x.npz --cache-dir cache"),
        ),
    ),
    "inspect-om": Command(
        "gecli inspect-om FILE... [VIEW] [OPTIONS]",
        "Show what an .om, .rdcpkt, .idx, session or graph file holds.",
        (
            ("Does it load there?", "gecli inspect-om a.om --target Ascend310P3 --for-version 8.0.0"),
            ("Variables as JSON", "gecli inspect-om a.om --vars --json"),
            ("All weights as .npy", "gecli inspect-om a.om --extract all --to weights/"),
        ),
    ),
    "run": Command(
        "gecli run OM... [-i SPEC]... [-o PATH] [OPTIONS]",
        "Run .om files on the simulated device, in numpy.",
        (
            ("Random inputs, outputs to a directory", "gecli run a.om --seed 3 -o out"),
            (
                "Given input, compared with gecli's own evaluation of the source",
                "gecli run a.om -i x.npy --compare a.onnx",
            ),
            ("Train twice after initialising", 'gecli run init.om train.om --order "init.om;train.om;train.om"'),
            ("An input of one of several models", "gecli run a.om b.om -i b:x=x.npy"),
            ("A source model, compiled for its inputs", "gecli run --jit a.onnx -i x.npz --cache-dir cache"),
        ),
    ),
    "cache": Command(
        "gecli cache COMMAND --cache-dir DIR [OPTIONS]",
        "List, check, clean and share the cache of compiled graphs.",
        (
            ("All entries", "gecli cache ls --cache-dir cache"),
            ("What a cleaning would remove", "gecli cache gc --cache-dir cache --max-age 30d --dry-run"),
            ("Keep two entries of each key", "gecli cache gc --cache-dir cache --keep-last 2"),
        ),
    ),
    "cache ls": Command(
        "gecli cache ls --cache-dir DIR [OPTIONS]",
        "List the entries of the cache.",
        (
            ("All entries", "gecli cache ls --cache-dir cache"),
            ("The largest ones", "gecli cache ls --cache-dir cache --sort size --reverse"),
            ("As JSON", "gecli cache ls --cache-dir cache --json"),
        ),
    ),
    "cache gc": Command(
        "gecli cache gc --cache-dir DIR [OPTIONS]",
        "Remove garbage and, on request, entries from the cache.",
        (
            ("Garbage only", "gecli cache gc --cache-dir cache"),
            ("See first", "gecli cache gc --cache-dir cache --max-age 30d --dry-run"),
            ("Limit the size", "gecli cache gc --cache-dir cache --max-size 10G --yes"),
        ),
    ),
    "cache verify": Command(
        "gecli cache verify --cache-dir DIR [OPTIONS]",
        "Check every file of the cache and, on request, repair it; exits 1 when a problem is found or left.",
        (
            ("Read everything", "gecli cache verify --cache-dir cache"),
            ("Bring it in order", "gecli cache verify --cache-dir cache --repair"),
            ("Only sizes and headers, as JSON", "gecli cache verify --cache-dir cache --fast --json"),
        ),
    ),
    "cache stats": Command(
        "gecli cache stats --cache-dir DIR [OPTIONS]",
        "Count hits, misses with their reasons, and what is in the cache.",
        (
            ("All counters", "gecli cache stats --cache-dir cache"),
            ("The last week, key by key", "gecli cache stats --cache-dir cache --since 7d --by-key"),
            ("Begin anew", "gecli cache stats --cache-dir cache --zero"),
        ),
    ),
    "cache why": Command(
        "gecli cache why MODEL... --cache-dir DIR [COMPILE OPTIONS]",
        "Say whether a compile with these options would find its model in the cache, and if not, why; exits 1 then. "
        "Takes every option of gecli compile, changes nothing.",
        (
            ("The same words as for the compile", "gecli cache why a.onnx -o out/a --cache-dir cache"),
            ("Under a key", "gecli cache why a.onnx -o out/a --cache-dir cache --graph-key a"),
            ("Of slices, for these inputs", "gecli cache why --jit a.onnx --sample x.npz --cache-dir cache"),
            ("As JSON", "gecli cache why a.onnx -o out/a --cache-dir cache --json"),
        ),
    ),
    "cache confirm": Command(
        "gecli cache confirm KEY ENTRY --cache-dir DIR [OPTIONS]",
        "Let an entry with user functions be used, which cache_manual_check in cache.conf otherwise forbids.",
        (
            ("What waits", "gecli cache ls --cache-dir cache --state unconfirmed"),
            ("Look at it", "gecli inspect-om cache/flow_20260415_102030.om"),
            ("Confirm it", "gecli cache confirm flow flow_20260415_102030 --cache-dir cache"),
        ),
    ),
    "cache path": Command(
        "gecli cache path KEY --cache-dir DIR [OPTIONS]",
        "Print the .om file of the first whole entry of a key.",
        (
            ("One key", "gecli cache path resnet --cache-dir cache"),
            ("Run it as it lies there", 'gecli run "$(GECLI_CACHE_DIR=cache gecli cache path resnet)"'),
            ("With its variable record", "gecli cache path resnet --cache-dir cache --json"),
        ),
    ),
    "cache export": Command(
        "gecli cache export KEY [ENTRY] --cache-dir DIR -o FILE.tar",
        "Write the entries of a key, or of all keys that --key names, with their weights and slices into one file. The "
        "same entries give the same bytes; exits 1 when damaged ones were left out.",
        (
            ("One key", "gecli cache export resnet --cache-dir cache -o resnet.tar"),
            ("One entry", "gecli cache export a a_20260415_102030 --cache-dir cache -o a.tar"),
            ("Everything", "gecli cache export --key '*' --cache-dir cache -o cache.tar"),
        ),
    ),
    "cache import": Command(
        "gecli cache import FILE.tar --cache-dir DIR [OPTIONS]",
        "Take the entries of an exported file into the cache. Sizes and digests are checked before anything gets its "
        "name, and an entry that is there and whole stays. Import only what comes from somebody you trust.",
        (
            ("All entries", "gecli cache import cache.tar --cache-dir cache"),
            ("Some keys", "gecli cache import cache.tar --cache-dir cache --key 'resnet*'"),
            ("As JSON", "gecli cache import cache.tar --cache-dir cache --json"),
        ),
    ),
    "explain": Command(
        "gecli explain [CODE...]",
        "Explain error and warning codes, or the short name of a fault; without one, list all.",
        (
            ("One code", "gecli explain E10016"),
            ("A short name", "gecli explain RT_VAR_DESC_MISMATCH"),
            ("Several", "gecli explain G4003 G4004"),
            ("All codes", "gecli explain all"),
            ("As JSON", "gecli explain E10016 --json"),
        ),
    ),
    "completion": Command(
        "gecli completion bash|zsh|fish",
        "Print a completion script for a shell.",
        (
            ("bash", "gecli completion bash > ~/.local/share/bash-completion/completions/gecli"),
            ("zsh", "gecli completion zsh > ~/.zfunc/_gecli"),
            ("fish", "gecli completion fish > ~/.config/fish/completions/gecli.fish"),
        ),
    ),
}
# What the command reads from the environment besides the variables of options.
ENVIRONMENT: tuple[tuple[str, str], ...] = (
    ("GECLI_DEBUG", "1 shows the traceback of internal errors."),
    ("NO_COLOR, FORCE_COLOR, TERM", "Colour; --color wins over them."),
    ("CI", "Plain progress when not empty."),
    ("SOURCE_DATE_EPOCH", "Decimal seconds that fix every time stamp."),
    ("XDG_CONFIG_HOME", "Where the user's gecli/config.toml is."),
)
OF_WHY = ("output", "cache-dir", "graph-key", "auto-graph-key", "cache-verify")  # the others stand in compile's help
TOP_LEVEL = ("compile", "inspect-om", "run", "cache", "explain", "completion")


def help_text(subcommand: str, everything: bool = False) -> str:
    """The whole help of a subcommand ("" is gecli itself) in at most 80 columns, except where an example is longer."""
    command = COMMANDS[subcommand]
    parts = [f"Usage: {command.usage}", "\n".join(wrap(command.summary, WIDTH))]
    if not subcommand:
        parts.append(_section("Commands", [_entry(name, COMMANDS[name].summary) for name in TOP_LEVEL]))
    if subcommand == "cache":
        parts.append(_section("Commands", [_entry(name.split()[1], COMMANDS[name].summary) for name in CACHE_COMMANDS]))
    parts += [
        _section(group, [_entry(flag_text(option), describe(option)) for option in options])
        for group, options in grouped(subcommand, everything).items()
    ]
    shown = [option for option in GLOBAL_OPTIONS if option.name != "help-all" or _has_more(subcommand)]
    parts.append(_section("Global options", [_entry(flag_text(option), describe(option)) for option in shown]))
    if not subcommand:
        from gecli.error_catalog.entry import EXIT_STATUSES

        parts.append(
            _section("Exit status", [_entry(f"{status} {name}", when) for status, name, when in EXIT_STATUSES])
        )
    parts.append(_section("Examples", [f"  # {title}\n  {line}" for title, line in command.examples]))
    return "\n\n".join(parts) + "\n"


def grouped(subcommand: str, everything: bool) -> dict[str, list[Option]]:
    """The options of a subcommand by group, in table order; `everything` adds old, recorded and refused ones."""
    groups: dict[str, list[Option]] = {}
    for option in options_of(subcommand):
        if subcommand == "cache why" and not everything and option.name not in OF_WHY:
            continue
        if not everything and _is_extra(option):
            continue
        group = option.group if option.flag else "GE options without a flag (--ge-option KEY=VALUE)"
        groups.setdefault(group, []).append(option)
    return groups


def flag_text(option: Option) -> str:
    """How help and manuals show a flag: letter, name and value."""
    if not option.flag:
        return option.key
    main = f"-{option.letter}, --{option.name}" if option.letter else f"    --{option.name}"
    if option.negative:
        main = f"    --[no-]{option.name}"
    takes_value = option.type != "bool" and option.key != "verbose"
    return f"{main} {option.metavar or option.type.upper()}" if takes_value else main


def describe(option: Option) -> str:
    """Help, domain and default of an option as one text."""
    parts = [option.help]
    domain = domain_text(option) if option.type != "bool" and (option.choices or option.bounds) else ""
    if domain:
        parts.append(f"One of {domain}." if option.choices else f"From {domain}.")
    default = value_text(option.default)
    if option.default not in (None, False, "", ()) and default:
        parts.append(f"Default: {default}.")
    if option.aliases and option.flag:
        parts.append(f"Also {', '.join(f'--{alias}' for alias in option.aliases)}.")
    if option.shorthands:
        parts.append(", ".join(f"--{name} is {value}" for name, value in option.shorthands) + ".")
    if option.env:
        parts.append(f"Environment: {option.env}.")
    if option.note:
        parts.append(option.note[0].upper() + option.note[1:].rstrip(".") + ".")
    return " ".join(parts)


def _is_extra(option: Option) -> bool:
    return option.hidden or option.option_class != "I" or not option.flag


def _has_more(subcommand: str) -> bool:
    return any(_is_extra(option) for option in options_of(subcommand))


def _section(title: str, entries: list[str]) -> str:
    return "\n".join([f"{title}:", *entries])


def _entry(name: str, text: str) -> str:
    lines = wrap(text, WIDTH - _INDENT) or [""]
    head = f"  {name}"
    if len(head) + 2 > _INDENT:
        return "\n".join([head, *(" " * _INDENT + line for line in lines)])
    return "\n".join([f"{head:<{_INDENT}}{lines[0]}", *(" " * _INDENT + line for line in lines[1:])])
