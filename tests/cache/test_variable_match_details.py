"""A record of variables that does not fit is explained with both of its states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gecli.artifacts.rdcpkt import write_rdcpkt
from gecli.compiler.cached_compile import _match_variables
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc
from gecli.variables.var_manager import VarManager
from gecli.variables.var_match import VarDescCache, VarMatch

ND = TensorDesc(DataType.FLOAT, (4, 4), Format.ND)
NZ = replace(ND, format=Format.FRACTAL_NZ, shape=(1, 1, 16, 16), origin_shape=(4, 4), origin_format=Format.ND)


def manager(**descs: TensorDesc) -> VarManager:
    found = VarManager()
    for name, desc in descs.items():
        found.assign(name, desc)
    return found


@pytest.mark.parametrize(
    ("state", "via", "reason", "details"),
    [
        ({"w": ND}, "before", "", []),
        ({"w": NZ, "m": ND}, "after", "", []),
        ({}, "", "var_missing", ["state after its compile: variable 'm' is", "state before it: variable 'w' is not"]),
        ({"w": NZ}, "", "var_desc_mismatch", ["after its compile: variable 'm'", "before it: w.", "ND", "FRACTAL_NZ"]),
        ({"w": ND, "m": NZ}, "", "var_conflict", ["state after its compile: m.", "state before it: matches, but m."]),
    ],
)
def test_both_states_are_told(
    state: dict[str, TensorDesc], via: str, reason: str, details: list[str], tmp_path: Path
) -> None:
    path = str(tmp_path / "k.rdcpkt")
    write_rdcpkt(path, VarMatch(VarDescCache({"w": ND}), VarDescCache({"w": NZ, "m": ND})))
    verdict = _match_variables(path, manager(**state), is_vouched=True)
    assert (verdict.via, verdict.reason) == (via, reason)
    assert all(part in "\n".join(verdict.details) for part in details)
    assert bool(verdict.details) == bool(reason)


@pytest.mark.parametrize(
    ("is_vouched", "state", "outcome"),
    [
        (True, ND, ("", "trans_road_missing", "variable 'w'")),
        (True, NZ, ("after", "", "")),  # nothing has to be brought to the state after the compile
        (False, ND, ("", "rdcpkt_corrupt", "changed variable 'w' has no descriptor or no trans road")),
        (False, NZ, ("", "rdcpkt_corrupt", "changed variable 'w' has no descriptor or no trans road")),
    ],
)
def test_a_change_without_a_road_is_damage_only_where_no_digest_proves_the_record_whole(
    is_vouched: bool, state: TensorDesc, outcome: tuple[str, str, str], tmp_path: Path
) -> None:
    path = str(tmp_path / "k.rdcpkt")
    write_rdcpkt(path, VarMatch(VarDescCache({"w": ND}), VarDescCache({"w": NZ}, {}, ("w",))))
    verdict = _match_variables(path, manager(w=state), is_vouched=is_vouched)
    assert (verdict.via, verdict.reason, verdict.evidence) == outcome
