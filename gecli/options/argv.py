"""The words of a command line, rewritten as the old parser did and matched with the option table (spec: cli.md 1.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gecli.options.compile_table import PRECISION_V1
from gecli.options.option import FALSE_WORDS, TRUE_WORDS, Option
from gecli.options.spelling import closest
from gecli.options.table import CACHE_SUBCOMMANDS, find_flag, flags_of, subcommands_with

if TYPE_CHECKING:
    from gecli.errors import Diagnostic

_TOP_LEVEL = ("compile", "inspect-om", "run", "cache", "explain", "completion")
_BOOL_WORDS = TRUE_WORDS | FALSE_WORDS
MAX_COUNT_DIGITS = 9


class Scan(NamedTuple):
    """A command line taken apart: what was typed per option key, the operands, and what was wrong."""

    subcommand: str
    typed: dict[str, list[str]]
    operands: list[str]
    problems: list[Diagnostic]
    warnings: list[Diagnostic]

    def has(self, key: str) -> bool:
        """Whether a switch was typed and not taken back."""
        return key in self.typed and self.typed[key][-1].lower() not in FALSE_WORDS

    @property
    def verbosity(self) -> int:
        return int(self.typed.get("verbose", ["0"])[-1])

    def canonical(self) -> list[str]:
        """The same command line with every option as --name=value, options before operands."""
        words = self.subcommand.split()
        flags = flags_of(self.subcommand)
        names = {flag.option.key: flag.option.name for flag in flags.values()}
        for key, texts in self.typed.items():
            words += [f"--{names[key]}={text}" for text in texts]
        return [*words, "--", *self.operands] if self.operands else words


def normalise_argv(argv: list[str]) -> tuple[list[str], list[Diagnostic]]:
    """The command line in canonical form, and what was found while rewriting (errors, warnings and notes)."""
    found = scan(argv)
    return found.canonical(), found.problems + found.warnings


def scan(argv: list[str]) -> Scan:
    """Take a command line apart; nothing is raised, all problems are in the result."""
    words, subcommand, problem = _take_subcommand(argv)
    scanner = _Scanner(subcommand)
    if problem is not None:
        scanner.result.problems.append(problem)
    scanner.run(words)
    return scanner.result


_OF_ATC = ("mode", "om")  # of `atc --mode=1 --om=FILE --json=OUT`


class _Scanner:
    def __init__(self, subcommand: str) -> None:
        self.result = Scan(subcommand, {}, [], [], [])
        self.verbosity = 0
        self.words: list[str] = []

    def run(self, words: list[str]) -> None:
        self.words = words
        index = 0
        while index < len(words):
            word = words[index]
            index += 1
            if word == "--":
                self.result.operands.extend(words[index:])
                break
            if word == "-" or not word.startswith("-"):
                self.result.operands.append(word)
            else:
                index += self.take(word, words[index] if index < len(words) else None)
        if self.verbosity:
            self.result.typed["verbose"] = [str(self.verbosity)]

    def take(self, word: str, following: str | None) -> int:
        """Record one option; returns how many of the following words it used."""
        name, equals, attached = word.lstrip("-").partition("=")
        single = not word.startswith("--")
        if single and name and not name.strip("v"):
            self.verbosity += len(name)
            return 0
        if single and len(name) > 1 and find_flag(self.result.subcommand, name) is None:
            # -j4, -ofile: a letter with its value. -soc_version is a long name and was looked up first.
            name, equals, attached = name[0], "=", word[2:]
        flag = find_flag(self.result.subcommand, name) if name else None
        if flag is None:
            self.unknown(word)
            return 0
        if single and len(name) > 1:
            self.note("E10055", f'"{word}" is taken as "--{name.replace("_", "-")}"', "note")
        option = flag.option
        if flag.implied is not None:
            self.add(option, flag.implied if not equals else _opposite(flag.implied, attached))
            return 0
        if option.key == "json":
            return self.take_json(option, attached if equals else None)
        if equals:
            self.add(option, self.unquoted(option, attached), name)
            return 0
        if option.key == "verbose":
            self.verbosity += 1
            return 0
        if option.type == "bool":
            used = following is not None and following.lower() in _BOOL_WORDS
            self.add(option, following if used and following is not None else "true")
            return int(used)
        if following is None or self.is_option(following):
            why = "" if following is None else f"{following.partition('=')[0]} behind it is an option"
            self.error("E10004", f"option --{option.name} needs a value", why, do=f"--{option.name} {option.metavar}")
            return 0
        self.add(option, self.unquoted(option, following), name)
        return 1

    def is_option(self, word: str) -> bool:
        """Whether a word is no value: a value that reads like an option of this command is given with `=`."""
        name = word.lstrip("-").partition("=")[0]
        if not word.startswith("-") or not name:
            return False
        return find_flag(self.result.subcommand, name) is not None or (word[1] != "-" and not name.strip("v"))

    def take_json(self, option: Option, attached: str | None) -> int:
        """--json is a switch; --json=FILE is atc's output path of mode 1."""
        if attached is None or attached.lower() in ("true", "false"):
            self.add(option, attached or "true")
        elif self.result.subcommand == "compile":
            self.result.typed["json-file"] = [attached]
        else:
            self.error(
                "E10055",
                f'--json takes no value here, got "{attached}"',
                why="--json=FILE is the output path of gecli compile with --mode=1",
                do=f"--json > {attached}",
            )
        return 0

    def add(self, option: Option, text: str, name: str = "") -> None:
        key = option.key
        if option.key == "verbose":
            self.verbosity = self.count(text)
            return
        if name == "precision" and text in PRECISION_V1:
            key = "ge.exec.precision_mode"  # --precision takes the names of both generations
        if name == "target" and option.name != "target" and not text.lower().startswith("ascend"):
            return  # atc's internal --target; it names a chip only when it looks like one
        before = self.result.typed.get(key)
        if before and before[-1] != text and not option.multiple:
            self.note("E10001", f'--{option.name} is given twice: "{before[-1]}" and "{text}"; the last one is used')
        if option.multiple:
            self.result.typed.setdefault(key, []).append(text)
        else:
            self.result.typed[key] = [text]

    def count(self, text: str) -> int:
        """The number of --verbose=N, which switches may stand for too."""
        if text.lower() in _BOOL_WORDS and not text.isdecimal():
            return int(text.lower() in TRUE_WORDS)
        if text.isascii() and text.isdecimal() and len(text) <= MAX_COUNT_DIGITS:
            return int(text)
        shown = text if len(text) <= 20 else f"{text[:20]}..."
        self.error("E10003", f'value "{shown}" for --verbose is invalid', why="expected a whole number", do="-v or -vv")
        return 0

    def unquoted(self, option: Option, text: str) -> str:
        if len(text) < 2 or text[0] not in "\"'" or text[0] != text[-1]:
            return text
        self.note("E10001", f"quotes around the value of --{option.name} are removed: {text}")
        return text[1:-1]

    def unknown(self, word: str) -> None:
        name = word.lstrip("-").partition("=")[0].replace("_", "-")
        _, equals, value = word.partition("=")
        subcommand = self.result.subcommand
        if name.startswith("ge."):
            self.error("E10055", f"unknown option {word}", **_ge_advice(word.lstrip("-").partition("=")[0], value))
            return
        elsewhere = [other for other in subcommands_with(name) if other != subcommand]
        if "compile" in elsewhere and "cache why" in elsewhere:
            elsewhere.remove("cache why")  # it takes the options of a compile to tell of that
        known = [other for other in flags_of(subcommand) if len(other) > 1]
        # Prefixes are not accepted, because they would change their meaning when options are added.
        near = [other for other in known if len(name) > 2 and other.startswith(name)][:3] or closest(name, known)
        advice = " or ".join(f"--{other}{equals}{value}" for other in near)
        if elsewhere:
            advice = " or ".join(f"gecli {other} {word}" for other in elsewhere)
        if subcommand == "inspect-om" and name in _OF_ATC:
            advice = _as_atc_has_it(self.words)
        command = f"gecli {subcommand}".rstrip()
        why = f"it is an option of gecli {', '.join(elsewhere)}" if elsewhere else f"{command} has no such option"
        self.error("E10055", f"unknown option {word.partition('=')[0]}", why=why, do=advice or f"{command} --help")

    def error(self, code: str, message: str, why: str = "", do: str = "") -> None:
        from gecli.errors import Diagnostic

        self.result.problems.append(Diagnostic(code, message, why=why, do=do))

    def note(self, code: str, message: str, severity: str = "warning") -> None:
        from gecli.errors import Diagnostic

        self.result.warnings.append(Diagnostic(code, message, severity=severity))


def _as_atc_has_it(words: list[str]) -> str:
    """The whole command for `--mode=1 --om=X --json=Y`: with half of it the next error would follow."""
    given = dict(word.lstrip("-").partition("=")[::2] for word in words if word.startswith("-") and "=" in word)
    plain = [word for word in words if not word.startswith("-")]
    mode = given.get("mode") or next((word for word in plain if word.isdecimal()), "1")
    om = given.get("om") or next((word for word in plain if not word.isdecimal()), "FILE")
    if mode == "6":
        return f"gecli compile --mode=6 --om={om}, or gecli inspect-om {om} --info"
    out = given.get("json") or "OUT.json"
    return f"gecli compile --mode={mode} --om={om} --json={out}, or gecli inspect-om {om} --atc-json -o {out}"


def _take_subcommand(argv: list[str]) -> tuple[list[str], str, Diagnostic | None]:
    """The words without the subcommand's name, the subcommand, and what is wrong with it."""
    at = _next_operand(argv, 0, "")
    if at is None:
        return list(argv), "", None
    name = argv[at]
    rest = argv[:at] + argv[at + 1 :]
    if name not in _TOP_LEVEL:
        from gecli.errors import Diagnostic

        advice = " or ".join(f"gecli {near}" for near in closest(name, _TOP_LEVEL)) or "gecli --help"
        why = f"the commands are {', '.join(_TOP_LEVEL)}"
        return _switches(rest, at), "", Diagnostic("E10055", f'unknown command "{name}"', why=why, do=advice)
    if name != "cache":
        return rest, name, None
    return _take_cache_subcommand(rest, at)


def _take_cache_subcommand(words: list[str], start: int) -> tuple[list[str], str, Diagnostic | None]:
    at = _next_operand(words, start, "cache ls")
    if at is not None and words[at] in CACHE_SUBCOMMANDS:
        return words[:at] + words[at + 1 :], f"cache {words[at]}", None
    from gecli.errors import Diagnostic

    legal = ", ".join(CACHE_SUBCOMMANDS)
    if at is None:
        # Not an error when only help is wanted, which the caller decides.
        return (
            words,
            "cache",
            Diagnostic("E10054", "gecli cache needs a command", why=f"one of {legal}", do="gecli cache ls"),
        )
    advice = (
        " or ".join(f"gecli cache {near}" for near in closest(words[at], CACHE_SUBCOMMANDS)) or "gecli cache --help"
    )
    return (
        _switches(words, start),
        "cache",
        Diagnostic("E10055", f'unknown command "cache {words[at]}"', why=f"one of {legal}", do=advice),
    )


def _switches(words: list[str], at: int) -> list[str]:
    """Of the words of an unknown command: what stands before its name, and whether JSON is wanted."""
    return [*words[:at], *(word for word in words[at:] if word == "--json")]


def _next_operand(words: list[str], start: int, subcommand: str) -> int | None:
    index = start
    while index < len(words):
        word = words[index]
        if word == "--" or word == "-":
            return None
        if not word.startswith("-"):
            return index
        name, equals, _ = word.lstrip("-").partition("=")
        flag = find_flag(subcommand, name) if name else None
        takes_word = flag is not None and flag.implied is None and flag.option.type != "bool" and not equals
        index += 2 if takes_word and name.strip("v") and name != "verbose" else 1
    return None


def _opposite(implied: str, attached: str) -> str:
    """--no-x=false is --x."""
    return "true" if implied == "false" and attached.lower() in FALSE_WORDS else implied


def _ge_advice(key: str, value: str) -> dict[str, str]:
    from gecli.options.table import ge_options_of

    option = ge_options_of("compile").get(key)
    flag = f"; the matching option is --{option.name}" if option is not None and option.flag else ""
    return {
        "why": f"GE option names are given as --ge-option {key}={value}{flag}",
        "do": f"--ge-option {key}={value}",
    }
