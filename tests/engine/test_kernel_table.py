"""The kernel table: which formats operator types run in."""

from __future__ import annotations

import pytest

from gecli.engine.kernel_table import Policy, cube_combinations, is_agnostic, kernel_row
from gecli.ir.dtype import DataType


@pytest.mark.parametrize(
    ("type", "policy"),
    [
        ("Relu", Policy.AGNOSTIC),
        ("ApplyMomentum", Policy.AGNOSTIC),
        ("ApplyAdamW", Policy.ORIGIN),
        ("ConcatD", Policy.JOINED),
        ("HcomBroadcast", Policy.PAIRED),
        ("Conv2D", Policy.TABLE),
        ("Reshape", Policy.ORIGIN),
        ("Variable", Policy.GIVEN),
        ("NobodyKnowsThis", Policy.ORIGIN),
    ],
)
def test_each_type_has_the_policy_of_its_row(type: str, policy: Policy) -> None:
    assert kernel_row(type).policy is policy


def test_only_a_type_outside_the_table_has_a_note() -> None:
    assert "not in the kernel table" in kernel_row("NobodyKnowsThis").note
    assert kernel_row("Relu").note == ""


def test_the_last_token_of_a_row_stands_for_further_operands() -> None:
    row = kernel_row("BatchNorm")
    assert [row.input_token(slot) for slot in range(4)] == ["5HD", "=", "=", "="]


@pytest.mark.parametrize(
    ("type", "expected"), [("Add", True), ("IdentityN", True), ("ConcatD", False), ("Conv2D", False)]
)
def test_agnostic_types_compute_element_by_element(type: str, expected: bool) -> None:
    assert is_agnostic(type) is expected


def test_the_filter_gradient_is_always_float() -> None:
    pairs = cube_combinations(kernel_row("Conv2DBackpropFilter"), frozenset(("fp32_cube", "bf16")))
    assert [target for _, target in pairs] == [DataType.FLOAT] * 3


def test_a_combination_needs_the_capability_it_names() -> None:
    assert cube_combinations(kernel_row("Conv2D"), frozenset()) == [
        (DataType.FLOAT16, DataType.FLOAT16),
        (DataType.INT8, DataType.INT32),
    ]
