"""Which passes run: --optimization-switch and the JSON of --fusion-switch-file; which lists decide precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gecli.engine.precision import MixLists
from gecli.errors import Diagnostic, InputError, InvalidOption
from gecli.json_text import parse_json
from gecli.options.text_file import read_text_file, why_unreadable
from gecli.options.values import Options

SWITCHES, SWITCH_FILE, MIX_FILE = "ge.optimizationSwitch", "ge.fusionSwitchFile", "ge.exec.modify_mixlist"
EVERY_PASS = "ALL"
_STATES = {"on": True, "off": False}


def pass_switches(options: Options, known: Mapping[str, bool]) -> dict[str, bool]:
    """Pass name -> on or off; `known` says of every pass whether it is needed for correct results.

    The file comes first, so that the option can change what it says. Raises InvalidOption and InputError.
    """
    switches = {name: state for name, state in _switches_of_file(options, known).items() if name in known}
    for item in (item for text in options.texts(SWITCHES) for item in text.split(";") if item):
        name, _, state = item.rpartition(":")
        if name not in known:
            raise _refused(item, f"no pass is called {name!r}", f"passes: {', '.join(sorted(known))}")
        if known[name] and state == "off":
            raise _refused(item, f"{name} is needed for correct results", "leave it on")
        switches[name] = state == "on"
    return switches


def switch_warnings(options: Options, known: Mapping[str, bool]) -> list[Diagnostic]:
    """What of the switch file has no effect: fusions that gecli does not have, passes that must run."""
    asked = _switches_of_file(options, known)
    unknown = sorted(name for name in asked if name not in known)
    kept = sorted(name for name, state in asked.items() if not state and known.get(name))
    found = []
    if unknown:
        found.append(_warning(options, f"gecli has no pass {', '.join(unknown)}"))
    if kept:
        found.append(_warning(options, f"{', '.join(kept)} cannot be switched off: results would be wrong"))
    return found


def mix_lists(options: Options) -> MixLists:
    """The lists of --modify-mixlist. A type removed from its list and added to none is gray. Raises InputError."""
    path = options.text(MIX_FILE)
    if not path:
        return MixLists()
    content = _read_json(path, "--modify-mixlist")
    added: dict[str, set[str]] = {"white": set(), "black": set(), "gray": set()}
    removed: set[str] = set()
    for key, changes in content.items():
        colour, _, rest = key.partition("-")
        if colour not in added or rest != "list" or not isinstance(changes, dict):
            raise _malformed(path, "--modify-mixlist", f"{key!r} is none of white-list, black-list, gray-list")
        for action, types in changes.items():
            if action not in ("to-add", "to-remove") or not isinstance(types, list):
                raise _malformed(path, "--modify-mixlist", f"{key}/{action} is no list to-add or to-remove")
            (added[colour] if action == "to-add" else removed).update(map(str, types))
    gray = added["gray"] | (removed - added["white"] - added["black"])
    return MixLists(frozenset(added["white"]), frozenset(added["black"]), frozenset(gray))


def kept_nodes(options: Options) -> tuple[frozenset[str], frozenset[str]]:
    """Names and types of --keep-dtype: one node name, or OpType::TYPE, a line. Raises InputError."""
    path = options.text("keep_dtype")
    if not path:
        return frozenset(), frozenset()
    lines = [line.strip() for line in _read(path, "--keep-dtype").splitlines() if line.strip()]
    prefix = "OpType::"
    types = frozenset(line.removeprefix(prefix) for line in lines if line.startswith(prefix))
    return frozenset(line for line in lines if not line.startswith(prefix)), types


def _switches_of_file(options: Options, known: Mapping[str, bool]) -> dict[str, bool]:
    """{"Switch": {"GraphFusion": {"PASS": "on"}, ...}}; ALL stands for every pass that may be switched."""
    path = options.text(SWITCH_FILE)
    if not path:
        return {}
    content = _read_json(path, "--fusion-switch-file")
    groups = content.get("Switch", content)
    rows: list[tuple[str, Any]] = []
    for name, value in groups.items() if isinstance(groups, dict) else ():
        rows += value.items() if isinstance(value, dict) else [(name, value)]
    switches: dict[str, bool] = {}
    for name, state in rows:
        if not isinstance(state, str) or state not in _STATES:
            raise _malformed(path, "--fusion-switch-file", f"the state of {name!r} is {state!r}, not on or off")
        names = [each for each, needed in known.items() if not needed] if name == EVERY_PASS else [name]
        for each in names:
            if name != EVERY_PASS or each not in dict(rows):
                switches[each] = _STATES[state]
    return switches


def _read(path: str, option: str) -> str:
    try:
        return read_text_file(path)
    except (OSError, ValueError) as error:
        raise InputError(
            "E13001", f"file {path} of {option} cannot be read", why=why_unreadable(error), file=path, option=option
        ) from error


def _read_json(path: str, option: str) -> dict[str, Any]:
    try:
        content = parse_json(_read(path, option))
    except (ValueError, RecursionError) as error:
        raise _malformed(path, option, str(error)) from error
    if not isinstance(content, dict):
        raise _malformed(path, option, "the document is not an object")
    return content


def _malformed(path: str, option: str, why: str) -> InvalidOption:
    return InvalidOption("E10032", f"file {path} of {option} has the wrong form", why=why, file=path, option=option)


def _refused(item: str, why: str, do: str) -> InvalidOption:
    return InvalidOption(
        "E10001", f"value {item!r} for --optimization-switch is invalid", option="--optimization-switch", why=why, do=do
    )


def _warning(options: Options, why: str) -> Diagnostic:
    path = options.text(SWITCH_FILE) or ""
    message = "part of --fusion-switch-file has no effect"
    return Diagnostic("E10001", message, why=why, severity="warning", file=path, option="--fusion-switch-file")
