"""networkx with nothing but its graph classes: a compile stores a graph and runs none of networkx's algorithms.

Importing networkx means 250 modules of algorithms, generators and drawing, a fifth of the time of a small compile.
Their package's own `__init__` imports them all, so here the package object comes first, the classes are loaded under
it, and the `__init__` runs when somebody asks for a name or a module that is not there yet.

For the gecli program only. In somebody else's program (`import gecli`) networkx is imported as it is.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import Any

CLASS_MODULE = "networkx.classes.multidigraph"
RELABEL_MODULE = "networkx.relabel"  # gecli.ir.graph renames nodes with it
WAIT_S = 60
_SHARED_NAMES = ("_dispatchable", "_clear_cache")  # of networkx.utils; the class modules take them from the package
_lock = RLock()
_is_completing = False


class _Core(ModuleType):
    """The package before its `__init__`.

    It has no `__path__`, which the import system asks for when a submodule is wanted that was not loaded: such modules
    expect the complete package.
    """

    def __getattr__(self, name: str) -> Any:
        # Another thread that is completing the package may wait for a module that this one is importing. Then go on
        # with what is there, as the import system does.
        is_mine = _lock.acquire(timeout=WAIT_S)
        try:
            if is_mine and type(self) is _Core and not _is_completing:
                _complete(self)
        finally:
            if is_mine:
                _lock.release()
        return ModuleType.__getattribute__(self, name)


def _complete(package: ModuleType) -> None:
    """Run the package's `__init__`; it is an ordinary module for other threads when that has ended."""
    global _is_completing
    spec = package.__spec__
    assert spec is not None and spec.loader is not None
    vars(package)["__path__"] = spec.submodule_search_locations
    _is_completing = True
    try:
        spec.loader.exec_module(package)
        package.__class__ = ModuleType
    finally:
        _is_completing = False


def load_networkx_core() -> bool:
    """Let the next `import networkx` find the graph classes alone; returns whether it does.

    Not when it is imported already, is missing, has backends (they may replace the classes) or is built otherwise
    than the releases known today: then the import does what it always did.
    """
    if "networkx" in sys.modules:
        return False
    spec = find_spec("networkx")
    if spec is None or spec.loader is None:
        return False
    package = module_from_spec(spec)
    sys.modules["networkx"] = package
    try:
        complete = _fill(package)
    except (ImportError, AttributeError):
        complete = False
    if complete:
        package.__class__ = _Core
        del vars(package)["__path__"]
    else:
        _unload()
    return complete


def _fill(package: ModuleType) -> bool:
    exceptions = import_module("networkx.exception")
    vars(package).update({name: getattr(exceptions, name) for name in exceptions.__all__})
    utils = import_module("networkx.utils")
    if utils.backends.backends:
        return False
    vars(package).update({name: getattr(utils, name) for name in _SHARED_NAMES})
    classes = import_module(CLASS_MODULE)
    vars(package)["MultiDiGraph"] = classes.MultiDiGraph
    import_module(RELABEL_MODULE)
    return True


def _unload() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "networkx"]:
        del sys.modules[name]
