"""What pass tests share: a context to run a pass in, as in a fresh session."""

from __future__ import annotations

import pytest

from gecli.layout.platform import platform_of
from gecli.passes.base import PassContext
from gecli.variables.rebuild_control import RebuildControl
from gecli.variables.var_manager import VarManager


@pytest.fixture
def ctx() -> PassContext:
    return PassContext(platform_of("Ascend910B1"), VarManager(), RebuildControl())
