"""A fault put into the product, and the test that must notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from gecli.layout.platform import platform_of
from gecli.passes.base import PassContext
from gecli.variables.rebuild_control import RebuildControl
from gecli.variables.var_manager import VarManager

Plant = Callable[[pytest.MonkeyPatch], None]


class Fault(NamedTuple):
    hazard: str  # as the index of section 14 calls it, with its section
    plant: Plant
    law: Callable[[], object]
    what: str = ""  # tells two faults of one hazard apart


def context() -> PassContext:
    return PassContext(platform_of("Ascend910B1"), VarManager(), RebuildControl())


def with_context(test: Callable[..., object], *rest: object) -> Callable[[], object]:
    return lambda: test(context(), *rest)
