"""From resolved options to a cache directory in use: what is on, and what stops the command (cache.md 1.1, 1.2)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gecli.cache.cache_conf import CacheConf
    from gecli.cache.model_cache import CacheDir
    from gecli.compiler.job import Job
    from gecli.options.values import Options

DIRECTORY, KEY = "ge.graph_compiler_cache_dir", "ge.graph_key"


class CacheSetup(NamedTuple):
    """A cache in use. `keys` has a key for each job, or is empty when keys come from the content."""

    cache: CacheDir
    keys: tuple[str, ...]
    lock_timeout_s: float
    is_required: bool
    explain: bool

    def key_of(self, position: int) -> str | None:
        return self.keys[position] if self.keys else None

    @property
    def key_origin(self) -> str:
        return "--graph-key" if self.keys else "derived"


class CacheOff(NamedTuple):
    """No cache. `note` says why, if the user may have expected one; `reason` is set when it was asked for."""

    note: str = ""
    reason: str = ""


def cache_setup(options: Options, jobs: Sequence[Job]) -> CacheSetup | CacheOff:
    """What the options say about the cache.

    Raises InvalidOption: E13026 for a missing directory, E10032 for a broken cache.conf, E10001 for a bad key;
    OutputError when --cache-create cannot make the directory; CacheError G5002 when --require-cache is given and
    the cache is off.
    """
    setup = _cache_setup(options, jobs)
    if isinstance(setup, CacheOff) and options.flag("require-cache") and _delivers(options):
        from gecli.errors import CacheError

        raise CacheError(
            "G5002",
            "--require-cache was given, and the cache is not used",
            why=setup.note or "there is no --cache-dir, or --cache-mode off",
            do="give --cache-dir DIR, or leave --require-cache out",
        )
    return setup


def _cache_setup(options: Options, jobs: Sequence[Job]) -> CacheSetup | CacheOff:
    mode = options.text("cache-mode") or "rw"
    directory, key = options.text(DIRECTORY), options.text(KEY)
    off = _why_off(options, mode, directory, key)
    if off is not None or directory is None:
        return off or CacheOff()
    _require_directory(directory, create=options.flag("cache-create"))
    conf = _conf(directory)
    if key is None and not conf.auto_graph_key and not options.is_set("auto-graph-key"):
        return CacheOff("the cache is off: there is no --graph-key, and cache.conf says not to derive one")
    keys = _keys(key, jobs) if key is not None else ()
    graphs = [f"--{name}" for name in ("emit", "explain-variable", "dump-graph") if options.get(name)]
    if graphs:
        return CacheOff(f"the cache is not used with {', '.join(graphs)}: an entry holds no graph", "disabled")
    if options.flag("compact-variables"):
        return CacheOff("the cache is not used with --compact-variables: it places what was compiled anew", "disabled")
    from gecli.cache.model_cache import CacheDir

    cache = CacheDir(directory, conf, "debug" if conf.debug_mode else mode, options.text("cache-verify") or "fast")
    timeout = options.number("lock-timeout")
    return CacheSetup(
        cache,
        keys,
        60.0 if timeout is None else timeout,
        options.flag("require-cache"),
        options.flag("explain-cache"),
    )


def _why_off(options: Options, mode: str, directory: str | None, key: str | None) -> CacheOff | None:
    if mode == "off" or (directory is None and key is None):
        return CacheOff()
    if not _delivers(options):
        return CacheOff()
    if not directory:
        return CacheOff("the cache is off: --graph-key needs --cache-dir" if key else "")
    if key == "":
        return CacheOff("the cache is off: --graph-key is empty")
    if key is None and not options.flag("auto-graph-key"):
        return CacheOff("the cache is off: --cache-dir needs --graph-key or --auto-graph-key")
    return None


def _delivers(options: Options) -> bool:
    """Whether the command makes outputs at all."""
    return not any(options.get(name) for name in ("check", "stop-after")) and options.get("mode") != 3


def _require_directory(directory: str, *, create: bool) -> None:
    if os.path.isdir(directory):
        return
    from gecli.errors import InvalidOption, OutputError

    if os.path.exists(directory):
        raise InvalidOption(
            "E13026", f"{directory} is not a directory", option="--cache-dir", file=directory,
            why="it is a file of another kind", do="name a directory",
        )  # fmt: skip
    if not create:
        raise InvalidOption(
            "E13026",
            f"the cache directory {directory} does not exist",
            option="--cache-dir",
            file=directory,
            why="No such file or directory",
            do="--cache-create makes it",
        )
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise OutputError("G6001", f"cannot make the cache directory {directory}", why=why, file=directory) from error


def _conf(directory: str) -> CacheConf:
    from gecli.cache.cache_conf import BrokenConf, read_cache_conf

    try:
        return read_cache_conf(directory)
    except BrokenConf as broken:
        from gecli.errors import InvalidOption

        path = os.path.join(directory, "cache.conf")
        raise InvalidOption("E10032", f"{path} cannot be used", why=str(broken), file=path) from broken


def _keys(template: str, jobs: Sequence[Job]) -> tuple[str, ...]:
    from gecli.cache.graph_key import expanded, has_placeholder, is_graph_key
    from gecli.errors import InvalidOption

    if len(jobs) > 1 and not has_placeholder(template):
        raise InvalidOption(
            "E10001",
            f"value {template!r} for --graph-key is invalid: {len(jobs)} models would share the key",
            option="--graph-key",
            why="with several models the key must contain {stem} or {n}",
            do=f"--graph-key '{template}-{{stem}}'",
        )
    keys = tuple(expanded(template, job.stem, number) for number, job in enumerate(jobs))
    for key in keys:
        if not is_graph_key(key):
            raise InvalidOption(
                "E10001",
                f"value {key!r} for --graph-key is invalid: use only letters, digits, '_' and '-', at most 128",
                option="--graph-key",
            )
    if len(set(keys)) < len(keys):
        raise InvalidOption(
            "E10001",
            f"value {template!r} for --graph-key gives two models one key",
            option="--graph-key",
            why=f"keys: {', '.join(keys)}",
            do="use {n}",
        )
    return keys
