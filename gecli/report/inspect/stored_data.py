"""Where a document puts the bytes that it describes: nowhere, into itself, or into a file beside it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

Store = Callable[[bytes], dict[str, Any]]  # what a document says about bytes beyond their digest


class DataFile:
    """Collects the data of a document in one file beside it; `write` appends."""

    def __init__(self, name: str, write: Callable[[bytes], Any]) -> None:
        self.name = name
        self.write = write
        self.position = 0

    def store(self, data: bytes) -> dict[str, Any]:
        place = self.position
        self.write(data)
        self.position += len(data)
        return {"$ref": self.name, "offset": place, "length": len(data)}


def no_data(data: bytes) -> dict[str, Any]:
    return {}


def base64_data(data: bytes) -> dict[str, Any]:
    return {"base64": base64.b64encode(data).decode("ascii")}
