"""Compiling: loading, passes, planning and artifacts joined into `compile_model` and `Session`; no terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gecli.compiler.api import compile_model
    from gecli.compiler.session import Session

__all__ = ["Session", "compile_model"]

_LAZY = {"Session": "session", "compile_model": "api"}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'gecli.compiler' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"gecli.compiler.{module}"), name)
