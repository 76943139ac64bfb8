"""What several devices have read of the same files: nobody changes it, so one copy is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gecli.runtime.file_constants import WeightFiles


class SharedFiles:
    """Models as they were read, with their weights, by path; external weights."""

    def __init__(self) -> None:
        self.models: dict[str, Any] = {}  # OM file, model record, variable packet, weights
        self.weights: WeightFiles | None = None
