"""`gecli cache confirm` and `gecli cache path`: one entry (cache.md 4.8, 12.5)."""

from __future__ import annotations

import os

from gecli.cli.cache_directory import directory_of, is_shared, operands_of, require_cache, writable
from gecli.cli.cache_schema import print_schema
from gecli.cli.invocation import Invocation


def cache_confirm(invocation: Invocation) -> int:
    """Let an entry with user functions be used though cache.conf asks for a manual check."""
    options, console = invocation.resolve(), invocation.console
    if options.flag("print-schema"):
        return print_schema(invocation.subcommand, console)
    key, stem = operands_of(invocation, "KEY", "ENTRY")
    directory = directory_of(options)
    require_key(key)
    require_cache(directory)
    from gecli.cache.confirmation import confirm_entry, needs_confirmation
    from gecli.cache.lock import KeyLock, LockTimeout, LockUnavailable
    from gecli.cache.store import file_mode
    from gecli.errors import CacheError

    def waiting(seconds: float, holder: str) -> None:
        console.say(f"waiting {seconds:.0f} s for key {key}, held by {holder}")

    shared = is_shared(directory)
    wait_s = options.number("wait")
    lock = KeyLock(directory, key, timeout_s=60.0 if wait_s is None else wait_s, on_wait=waiting, shared=shared)
    try:
        with writable(directory, "confirm an entry of"), lock:
            is_new = confirm_entry(directory, key, stem, file_mode(shared))
    except LockTimeout as error:
        message = f"the lock of cache key {key} was not obtained"
        raise CacheError("G5001", message, why=f"held by {error}", do="raise --wait") from error
    except LockUnavailable as error:
        why, do = str(error), "check the permissions of the .lock file"
        raise CacheError("G5001", f"the lock of cache key {key} cannot be used", why=why, do=do) from error
    needless = (
        "" if needs_confirmation(directory, key, stem) else "; nothing needed it: the graph has no user functions"
    )
    console.result(f"{'confirmed' if is_new else 'was confirmed before:'} {stem}{needless}")
    if console.json:
        content = {"cache_dir": directory, "key": key, "entry": stem, "confirmed_now": is_new}
        console.document({"schema": "gecli.cache-confirm/1", **content})
    return 0


def cache_path(invocation: Invocation) -> int:
    """Print the .om of the first whole entry of a key, in the order in which a look-up tries them."""
    options, console = invocation.resolve(), invocation.console
    if options.flag("print-schema"):
        return print_schema(invocation.subcommand, console)
    (key,) = operands_of(invocation, "KEY")
    directory = directory_of(options)
    require_key(key)
    from gecli.cache.verify import entry_problems, index_fault, records_of
    from gecli.errors import InvalidOption

    records = records_of(directory, key)
    for record in records:
        if not entry_problems(directory, key, record, fast=True):
            path = os.path.join(directory, record.om_name)
            rdcpkt = os.path.join(directory, record.rdcpkt_name) if record.rdcpkt_name else None
            console.result(path)
            if console.json:
                content = {"cache_dir": directory, "key": key, "entry": record.stem, "om": path, "rdcpkt": rdcpkt}
                console.document({"schema": "gecli.cache-path/1", **content})
            return 0
    fault = index_fault(directory, key)
    none = f"its index cannot be read: {fault}" if fault else "the cache has none"
    why = "all its entries are damaged" if records else none
    do = f"gecli cache {'verify' if records or fault else 'ls'} --cache-dir {directory} --key {key}"
    raise InvalidOption("E10001", f"key {key} has no entry that a look-up could use", why=why, do=do, file=directory)


def require_key(key: str) -> None:
    """Refuse what cannot be a graph key, before it is a part of a file name. Raises InvalidOption."""
    from gecli.cache.graph_key import is_graph_key
    from gecli.errors import InvalidOption

    if not is_graph_key(key):
        why = "a graph key has 1 to 128 letters, digits, '_' and '-'"
        raise InvalidOption("E10001", f"{key!r} is no graph key", why=why, do="gecli cache ls lists the keys")
