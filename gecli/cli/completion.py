"""`gecli completion SHELL`: a static script with option names and values from the table."""

from __future__ import annotations

from gecli.cli.console import Console
from gecli.cli.help import COMMANDS, TOP_LEVEL, grouped
from gecli.error_catalog import CATALOGUE
from gecli.options.global_table import GLOBAL_OPTIONS
from gecli.options.option import CACHE_COMMANDS, Option
from gecli.options.table import CACHE_SUBCOMMANDS, SUBCOMMANDS

SHELLS = ("bash", "zsh", "fish")
_CASE = "|".join(f'"{name}"' for name in CACHE_COMMANDS)
_CACHE_NAMES = " ".join(CACHE_SUBCOMMANDS)


def completion(operands: list[str], console: Console) -> int:
    """Print the script of one shell."""
    if len(operands) != 1 or operands[0] not in SHELLS:
        from gecli.errors import InvalidOption

        given = f'got "{" ".join(operands)}"' if operands else "none was given"
        why = f"expected one of {', '.join(SHELLS)}; {given}"
        raise InvalidOption("E10001", "completion needs the name of a shell", why=why, do="gecli completion bash")
    script = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}[operands[0]]()
    if console.json:
        console.document({"schema": "gecli.completion/1", "shell": operands[0], "script": script})
    else:
        console.stdout.write(script)
    return 0


def bash_script() -> str:
    """Completion for bash; words after `=` and after a blank are completed alike."""
    return f"""\
# bash completion for gecli
_gecli() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" command="" word
    if [[ $cur == "=" ]]; then cur=""; elif [[ $prev == "=" ]]; then prev="${{COMP_WORDS[COMP_CWORD-2]}}"; fi
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$command $word" in
            " -"*) ;;
            " "*) command="$word" ;;
            {_CASE}) command="cache $word" ;;
        esac
    done
{_shell_cases(reply='COMPREPLY=($(compgen -W "{words}" -- "$cur"))', files='COMPREPLY=($(compgen -f -- "$cur"))')}
}}
complete -o filenames -F _gecli gecli
"""


def zsh_script() -> str:
    """Completion for zsh."""
    return f"""\
#compdef gecli
_gecli() {{
    local cur="${{words[CURRENT]}}" prev="${{words[CURRENT-1]}}" command="" word
    if [[ $cur == --*=* ]]; then prev="${{cur%%=*}}"; compset -P '*='; fi
    for word in "${{(@)words[2,CURRENT-1]}}"; do
        case "$command $word" in
            " -"*) ;;
            " "*) command="$word" ;;
            {_CASE}) command="cache $word" ;;
        esac
    done
{_shell_cases(reply="compadd -- {words}", files="_files")}
}}
_gecli "$@"
"""


def fish_script() -> str:
    """Completion for fish."""
    lines = ["# fish completion for gecli", "complete -c gecli -n __fish_use_subcommand -f"]
    for name in TOP_LEVEL:
        lines.append(f"complete -c gecli -n __fish_use_subcommand -a {name} -d {_fish(COMMANDS[name].summary)}")
    lines.append(f"complete -c gecli -n '__fish_seen_subcommand_from cache' -a '{_CACHE_NAMES}'")
    lines.append(f"complete -c gecli -n '__fish_seen_subcommand_from completion' -f -a '{' '.join(SHELLS)}'")
    lines.append(f"complete -c gecli -n '__fish_seen_subcommand_from explain' -f -a '{' '.join(_codes())}'")
    lines += [_fish_option(option, "") for option in GLOBAL_OPTIONS]
    for subcommand in SUBCOMMANDS:
        seen = " and ".join(f"__fish_seen_subcommand_from {word}" for word in subcommand.split()).replace(
            " and ", "; and "
        )
        lines += [_fish_option(option, f"-n '{seen}' ") for option in _options(subcommand)]
    return "\n".join(lines) + "\n"


def _shell_cases(reply: str, files: str) -> str:
    """The `case` that bash and zsh share: values after an option, else option names, commands and files."""
    indent = " " * 4
    lines = [f'{indent}case "$command $prev" in']
    for subcommand in ("", "cache", *SUBCOMMANDS):
        for option in (*GLOBAL_OPTIONS, *_options(subcommand)):
            choices = _choices(option)
            patterns = "|".join(f'"{subcommand} {name}"' for name in _flags(option))
            if choices:
                lines.append(f"{indent}    {patterns}) {reply.format(words=' '.join(choices))}; return ;;")
            elif option.type == "path":
                lines.append(f"{indent}    {patterns}) {files}; return ;;")
    lines += [f"{indent}esac", f'{indent}case "$command" in']
    words = " ".join([*TOP_LEVEL, *_all_flags("")])
    lines.append(f'{indent}    "") {reply.format(words=words)} ;;')
    lines.append(f"{indent}    cache) {reply.format(words=_CACHE_NAMES)} ;;")
    for subcommand in SUBCOMMANDS:
        operands = {"completion": list(SHELLS), "explain": _codes()}.get(subcommand)
        names = reply.format(words=" ".join([*(operands or []), *_all_flags(subcommand)]))
        if operands:
            lines.append(f'{indent}    "{subcommand}") {names} ;;')
        else:
            lines.append(f'{indent}    "{subcommand}") if [[ $cur == -* ]]; then {names}; else {files}; fi ;;')
    return "\n".join([*lines, f"{indent}esac"])


def _fish_option(option: Option, condition: str) -> str:
    letter = f"-s {option.letter} " if option.letter else ""
    values = ""
    if _choices(option):
        values = f"-x -a '{' '.join(_choices(option))}' "
    elif option.type == "path":
        values = "-r -F "
    elif option.type != "bool" and option.key != "verbose":
        values = "-x "
    return f"complete -c gecli {condition}{letter}-l {option.name} {values}-d {_fish(option.help)}"


def _fish(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _options(subcommand: str) -> list[Option]:
    return [option for options in grouped(subcommand, everything=False).values() for option in options]


def _choices(option: Option) -> list[str]:
    return [*(word for word, _ in option.words), *option.choices]


def _flags(option: Option) -> list[str]:
    names = [f"--{option.name}", *([f"--{option.negative}"] if option.negative else [])]
    return [*names, f"-{option.letter}"] if option.letter else names


def _all_flags(subcommand: str) -> list[str]:
    return [
        name for option in (*GLOBAL_OPTIONS, *_options(subcommand)) for name in _flags(option) if name.startswith("--")
    ]


def _codes() -> list[str]:
    return [code for code in CATALOGUE if not code.endswith("x")]
