"""`cache.conf`: GE's two switches and gecli's own settings (GE: CacheConfig; cache.md 1.3)."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from gecli.wire.regular_file import read_regular

NAME = "cache.conf"
MAX_BYTES = 1 << 20


class ConfWarning(NamedTuple):
    """A value that is not used, and what to write in its place."""

    message: str
    do: str


class CacheConf(NamedTuple):
    """The settings of one cache directory. `warnings` are about values that were not used."""

    manual_check: bool = False
    debug_mode: bool = False
    timestamp: str = "seed"
    auto_graph_key: bool = True
    foreign_entries: str = "warn"
    max_size: int | None = None
    max_age: int | None = None
    shared: bool = False
    warnings: tuple[ConfWarning, ...] = ()


class BrokenConf(ValueError):
    """cache.conf cannot be used; the message says where and why."""


def read_cache_conf(directory: str) -> CacheConf:
    """The settings of a directory; defaults without a file. Raises BrokenConf."""
    path = os.path.join(directory, NAME)
    try:
        data = read_regular(path, MAX_BYTES)
    except FileNotFoundError:  # also a symbolic link to nothing
        return CacheConf()
    except OSError as error:
        raise BrokenConf(f"it cannot be read: {error.strerror or error}") from error
    return parse_cache_conf(data)


def parse_cache_conf(data: bytes) -> CacheConf:
    """The settings in the bytes of a cache.conf. Raises BrokenConf."""
    import json

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BrokenConf(f"byte {error.start} is not UTF-8") from error
    begin = len(text) - len(text.lstrip())
    try:
        content, end = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode(text, begin)
    except json.JSONDecodeError as error:
        raise BrokenConf(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except ValueError as error:  # NaN, or a number of thousands of digits
        raise BrokenConf(str(error)) from error
    except RecursionError as error:
        raise BrokenConf("it is nested too deeply") from error
    warnings: list[ConfWarning] = []
    if text[end:].strip():
        message = f"what follows the first JSON value of {NAME} is ignored"
        warnings.append(ConfWarning(message, "put all settings into one object"))
    if not isinstance(content, dict):
        return CacheConf(warnings=tuple(warnings))
    conf = CacheConf(_switch(content, "cache_manual_check"), _switch(content, "cache_debug_mode"))
    own = _own_settings(content.get("gecli", {}), warnings)
    return conf._replace(**own, warnings=tuple(warnings))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _switch(content: dict[str, Any], key: str) -> bool:
    value = content.get(key, False)
    if not isinstance(value, bool):
        raise BrokenConf(f"/{key} must be true or false, not {_shown(value)}")
    return value


def _own_settings(content: Any, warnings: list[ConfWarning]) -> dict[str, Any]:
    """What gecli reads; a wrong value there is only a warning, because GE would not see it."""
    if not isinstance(content, dict):
        message = f"/gecli of {NAME} is not used: {_shown(content)}"
        warnings.append(ConfWarning(message, 'an object, such as {"foreign_entries": "reject"}'))
        return {}
    found: dict[str, Any] = {}
    for key, value in content.items():
        try:
            if key in _CHOICES and value in _CHOICES[key]:
                found[key] = value
            elif key in _SCALED:
                found[key] = _scaled(value, _SCALED[key])
            else:
                raise ValueError(_shown(value))
        except (ValueError, TypeError):
            warnings.append(ConfWarning(f"/gecli/{key} of {NAME} is not used: {_shown(value)}", _legal(key)))
    return found


def _legal(key: str) -> str:
    """What may stand there, in words."""
    if key in _CHOICES:
        return f"use {' or '.join(_shown(each) for each in _CHOICES[key])}"
    if key in _SCALED:
        return f'use a text such as "{_EXAMPLES[key]}"'
    return f"the settings are {', '.join(sorted((*_CHOICES, *_SCALED)))}"


def _shown(value: Any) -> str:
    import json

    return json.dumps(value)[:60]


_CHOICES: dict[str, tuple[Any, ...]] = {
    "timestamp": ("seed", "ge"),
    "foreign_entries": ("accept", "warn", "reject"),
    "auto_graph_key": (True, False),
    "shared": (True, False),
}
_SCALED = {"max_size": "size", "max_age": "duration"}
_EXAMPLES = {"max_size": "10G", "max_age": "30d"}


def _scaled(value: Any, kind: str) -> int:
    from gecli.options.option import Option, parse_value

    if not isinstance(value, str):
        raise ValueError("not a text")
    parsed = parse_value(Option(key=kind, flag="", type="size" if kind == "size" else "duration"), value)
    if not isinstance(parsed, int):
        raise ValueError("not a number")
    return parsed
