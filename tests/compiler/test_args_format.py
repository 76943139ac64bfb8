"""TASK_INFO says which operand an address is where that does not follow from their order."""

from __future__ import annotations

import pytest

from gecli.compiler.model_image import _args_format
from gecli.ir.dtype import DataType
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import TensorDesc

DESC = TensorDesc(DataType.FLOAT, (2,))


@pytest.mark.parametrize(
    ("fed", "outputs", "expected"),
    [
        ((True,), 1, ""),
        ((True, True), 2, ""),
        ((), 1, ""),
        ((True, False, True), 1, "{i_instance0*}{i_instance2*}{o_instance0*}"),
        ((False, True), 2, "{i_instance1*}{o_instance0*}{o_instance1*}"),
    ],
)
def test_the_format_of_arguments_is_written_where_an_input_is_left_out(
    fed: tuple[bool, ...], outputs: int, expected: str
) -> None:
    source = OpDesc("x", "Relu", output_descs=[DESC])
    node = OpDesc("n", "Add", input_descs=[DESC if each else None for each in fed], output_descs=[DESC] * outputs)
    node.inputs = [Port(source, 0) if each else None for each in fed]
    assert _args_format(node) == expected
