"""networkx with nothing but its graph classes: a compile stores a graph and runs none of networkx's algorithms.

Importing networkx means 250 modules of algorithms, generators and drawing, a fifth of the time of a small compile.
Their package's own `__init__` imports them all, so here the package object comes first, the classes are loaded under
it, and the `__init__` runs when somebody asks for a name that is not there yet.

For the gecli program only. In somebody else's program (`import gecli`) networkx is imported as it is.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

CLASS_MODULE = "networkx.classes.multidigraph"
_SHARED_NAMES = ("_dispatchable", "_clear_cache")  # of networkx.utils; the class modules take them from the package


class _Core(ModuleType):
    """The package before its `__init__`."""

    def __getattr__(self, name: str) -> Any:
        self.__class__ = ModuleType  # type: ignore[assignment]  # mypy takes the class of an object as fixed
        assert self.__spec__ is not None and self.__spec__.loader is not None
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


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
    return True


def _unload() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "networkx"]:
        del sys.modules[name]
