"""Found first by the processes that tests start: their compiles evaluate the graph around every pass, too."""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

WATCHED = "gecli.compiler.graph_compiler"
MAX_ELEMENTS = 20_000  # of all tensors of a graph together: larger ones would make the suite slow


def verified(run_pipeline: Any) -> Any:
    """`run_pipeline` with `--verify-passes` on."""

    def run(graph: Any, ctx: Any, steps: Any, instruments: Any = (), stop_after: Any = None) -> Any:
        from gecli.compiler.pass_verification import ResultCheck

        return run_pipeline(graph, ctx, steps, (*instruments, ResultCheck(MAX_ELEMENTS)), stop_after)

    return run


class _Patching(Loader):
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        module.run_pipeline = verified(module.run_pipeline)


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != WATCHED:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = _Patching(spec.loader)
        return spec


sys.meta_path.insert(0, _Finder())
