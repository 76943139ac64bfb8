"""What is too large for a run is too large for a compile: one rule, also for tensors without elements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gecli.artifacts.om_writer import write_om
from gecli.compiler.model_image import ImageFacts, model_image
from gecli.compiler.session import Session
from gecli.errors import CompileError
from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.text import parse
from gecli.layout.platform import platform_of
from gecli.passes.base import CompileSettings
from gecli.runtime import record_checks
from gecli.runtime.session import Session as Runtime
from gecli.variables.sizes import MAX_TENSOR_BYTES, require_room

DIMS = st.sampled_from((0, 1, 3, 1 << 20, 1 << 31, (1 << 46) - 1, 1 << 46, 1 << 48, 1 << 62))
SHAPES = st.lists(DIMS, min_size=1, max_size=4).map(tuple)


@settings(max_examples=40, deadline=None, suppress_health_check=(HealthCheck.function_scoped_fixture,))
@given(shape=SHAPES)
@example(shape=(0, 1 << 62, 1 << 62))
@example(shape=(0, 1 << 46))
@example(shape=(0, (1 << 46) + 1))
def test_what_compiles_without_elements_runs(shape: tuple[int, ...], tmp_path: Path) -> None:
    if 0 not in shape:
        shape = (0, *shape)
    dims = ",".join(map(str, shape))
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    member = session.add(
        parse(f"""
            graph g(%x : f32[{dims}] ND) {{
              %v = Variable() : f32[{dims}] ND
              %y = Add(%x, %v) : f32[{dims}] ND
              return %y
            }}
        """)
    )
    try:
        session.compile_all()
    except CompileError as error:
        assert (error.code, error.kind) == ("G2014", "VAR_SIZE_UNKNOWN")
        assert 4 * np.prod([max(dim, 1) for dim in shape], dtype=object) > MAX_TENSOR_BYTES
        return
    assert member.compiled is not None
    facts = ImageFacts("g", "Ascend910B1", session.platform.profile, "json", "", "0" * 64)
    write_om(f"{tmp_path}/g.om", model_image(member.compiled, session.manager, facts))
    (outputs, *_) = Runtime().load(f"{tmp_path}/g.om").run({"x": np.zeros(shape, np.float32)})
    assert [value.shape for value in outputs.values()] == [shape]


@given(shape=SHAPES, dtype=st.sampled_from((DataType.FLOAT, DataType.INT8, DataType.COMPLEX128)))
def test_compile_and_run_judge_every_tensor_alike(shape: tuple[int, ...], dtype: DataType) -> None:
    desc = TensorDesc(dtype, shape)
    is_refused = any("larger than any memory" in what for what, _ in record_checks._desc_faults("output 0", desc))
    if not is_refused:
        require_room(desc, "output 0", "n")
        return
    with pytest.raises(CompileError, match="larger than any memory"):
        require_room(desc, "output 0", "n")
