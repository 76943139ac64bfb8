"""Compiling the model of a cache entry once more: does it give the same bytes (cache.md 12.2, --recompile)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from gecli.cache.index import read_index
from gecli.cache.sidecar import Sidecar, difference_of, read_sidecar
from gecli.compiler.api import compile_models
from gecli.errors import GecliError
from gecli.options.option import value_text
from gecli.options.resolution import resolve
from gecli.options.table import named_options_of
from gecli.options.values import default_of

OF_THE_MODEL = ("model_name", "source_name")  # beside the options in what an entry says of them


class Recompiled(NamedTuple):
    """`state`: same, differs (not reproducible), or incomparable: other input, an option or session not repeatable."""

    state: str
    message: str = ""


class _Incomparable(Exception):
    """The compile cannot be repeated; the text says why."""


def source_of(sidecar: Sidecar) -> str:
    """The base name of the file that an entry was compiled from."""
    return str(_items(sidecar).get("source_name", ""))


def recompile(key: str, sidecar: Sidecar, model: str) -> Recompiled:
    """Compile `model` with the options of an entry and compare the files. Never raises for a fault of the model."""
    count = len(sidecar.variables_before)
    if count:
        found = f"{count} variables" if count > 1 else "1 variable"
        return Recompiled("incomparable", f"the session of its compile already had {found}, and {model} alone has none")
    with TemporaryDirectory(prefix="gecli-verify-") as folder:
        cache = os.path.join(folder, "cache")
        os.mkdir(cache)
        try:
            typed = _typed(_items(sidecar))
            typed["output"] = (os.path.join(folder, f"{_items(sidecar).get('model_name', 'model')}.om"),)
            typed |= {"ge.graph_compiler_cache_dir": (cache,), "ge.graph_key": (key,), "no-config": ("true",)}
            compile_models([model], resolve("compile", typed))
            again = _stored(cache, key)
        except _Incomparable as error:
            return Recompiled("incomparable", str(error))
        except GecliError as error:
            return Recompiled("incomparable", f"{model} cannot be compiled: {error.first.message}")
    differing = difference_of(sidecar.fingerprint, {name: str(text) for name, text in again.fingerprint.items()})
    if differing:
        return Recompiled("incomparable", f"it was compiled from something else: {', '.join(differing)} differ")
    for kind in ("om", "rdcpkt"):
        if sidecar.file_facts(kind) != again.file_facts(kind):
            return Recompiled("differs", f"compiling {model} again gives another .{kind}")
    return Recompiled("same")


def _items(sidecar: Sidecar) -> Mapping[str, Any]:
    components = sidecar.content.get("components")
    options = components.get("options") if isinstance(components, dict) else None
    return options if isinstance(options, dict) else {}


def _typed(items: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The options of an entry as they would be typed. Raises _Incomparable."""
    known = named_options_of("compile")
    typed: dict[str, tuple[str, ...]] = {}
    for key, value in items.items():
        if key in OF_THE_MODEL:
            continue
        option = known.get(key)
        if option is None:
            raise _Incomparable(f"this version has no option {key!r}, which the entry was compiled with")
        text = str(value)
        if text == value_text(default_of(option)):
            continue
        if option.type == "path":
            name = text.partition(" ")[0]
            raise _Incomparable(f"it was compiled with --{option.name} {name}, and where that is is not known")
        typed[option.key] = tuple(text.split(";")) if option.multiple and option.pattern else (text,)
    return typed


def _stored(cache: str, key: str) -> Sidecar:
    content = read_index(cache, key)
    sidecar = read_sidecar(cache, key, content.records[0].stem) if content and content.records else None
    if sidecar is None:
        raise _Incomparable("compiling it again stored no entry")
    return sidecar
