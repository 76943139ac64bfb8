"""The Python API of `gecli run`: a runtime holds sessions, a session holds models and variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gecli.runtime.session import Session


class Runtime:
    """Sessions by number. Sessions never share variables.

    session = gecli.Runtime().session(1)
    model = session.load("train.om")
    outputs, times = model.run({"x": x, "labels": labels})
    """

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}

    def session(
        self,
        number: int = 0,
        *,
        init: str = "error",
        seed: int = 1,
        external_bytes: int | None = None,
        placeholders: Mapping[str, Any] | None = None,
    ) -> Session:
        """The session of this number, made on first use (what else is given counts only then).

        `external_bytes` keeps its variables in one area, `placeholders` are arrays for ConstPlaceHolder nodes by name.
        """
        found = self._sessions.get(number)
        if found is None:
            found = self._sessions[number] = Session(
                init=init, seed=seed, external_bytes=external_bytes, placeholders=placeholders
            )
        return found

    def close(self, number: int = 0) -> None:
        """Forget a session with its models and variables."""
        self._sessions.pop(number, None)
