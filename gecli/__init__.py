"""gecli: Ascend-style offline model compilation and simulated execution without Ascend hardware."""

from __future__ import annotations

from gecli.version import __version__

TYPE_CHECKING = False  # not from typing: every start would pay 7 ms for it
if TYPE_CHECKING:
    from typing import Any

    from gecli.compiler import Session, compile_model
    from gecli.loading import save_graph
    from gecli.loading.in_memory import load_graph
    from gecli.runtime import Runtime

_LAZY = {
    "Runtime": "gecli.runtime",
    "Session": "gecli.compiler",
    "compile_model": "gecli.compiler",
    "load_graph": "gecli.loading.in_memory",
    "save_graph": "gecli.loading",
}

__all__ = ["Runtime", "Session", "__version__", "compile_model", "load_graph", "save_graph"]


def __getattr__(name: str) -> Any:
    """Import the public API on first use, so that `import gecli` stays free."""
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'gecli' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(module), name)
