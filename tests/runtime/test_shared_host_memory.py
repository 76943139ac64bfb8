"""Shared host memory begins where variables do: a model that has both cannot be addressed (variables.md 2.4)."""

from __future__ import annotations

import pytest

from gecli.errors import InputError
from gecli.runtime.record_checks import require_loadable

BASE = 1 << 37


def a_model_with_variables_and_shared_host_memory_is_refused() -> None:
    attrs = {"task_gen_variable_addr": BASE, "task_gen_host_svm_base_addr": BASE, "variable_size": 5 << 30}
    require_loadable((), {**attrs, "host_svm_size": 0}, "m.om", is_static=True)
    require_loadable((), {**attrs, "variable_size": 0, "host_svm_size": 4096}, "m.om", is_static=True)
    with pytest.raises(InputError, match="the same addresses") as error:
        require_loadable((), {**attrs, "host_svm_size": 4096}, "m.om", is_static=True)
    assert error.value.exit_status == 3


def test_a_model_with_variables_and_shared_host_memory_is_refused() -> None:
    a_model_with_variables_and_shared_host_memory_is_refused()
