"""The simulated runtime: loading OM files, variables at logical addresses, a flat program of numpy steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gecli.runtime.api import Runtime

__all__ = ["Runtime"]


def __getattr__(name: str) -> Any:
    if name == "Runtime":
        from gecli.runtime.api import Runtime

        return Runtime
    raise AttributeError(f"module 'gecli.runtime' has no attribute {name!r}")
