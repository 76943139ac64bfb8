"""Every hazard of variables.md 14, put back into the product, is caught by a test of the suite.

A row names the hazard, plants GE's behaviour, and names the very test that states gecli's: the test passes as it is
and fails with the fault.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from _pytest.outcomes import Failed

from gecli.errors import GecliError
from gecli.ir.graph import GraphError
from tests.variables import faults_of_manager, faults_of_passes
from tests.variables.planted import Fault

FAULTS = (*faults_of_manager.FAULTS, *faults_of_passes.FAULTS)

INDEX = """
ambiguous key 3.4 · same-key growth leak 4.3d · shrink then grow 4.3e · file-constant length 4.4 · capacity of content
reuse 4.4 · overlap on save 4.6 · placeholder half-registered 4.7 · shape not in IsVarExist 4.9 · partial
RenewCurVarDesc 4.10 · second road ignored 4.12 · external range end 4.20 · init value after format change 4.21 ·
restore does not advance the counter, models overlap 4.22 · destroy keeps tables 4.25 · no limit check at compile 2.4 ·
host-SVM base 2.4 · corrupt snapshot 6 · O1 drops correctness passes 7 · "initialised" = mentioned 8.2 · endless ref
loop 8.3 · type-keyed ref table 8.3 · double recovery 8.4 · half-fused variable 8.5-1 · assign removed as "inverse"
8.5-2 · lossy cast 8.5-6 · AssignRemove ordering 8.7 · several subgraphs 8.9 · built flag on failure 9.1 · sub-byte
copy 10.1 · equal-dtype copy 10.2
"""


def hazards() -> Iterator[str]:
    return (" ".join(each.split()) for each in INDEX.split("·"))


def test_every_hazard_of_the_index_is_planted() -> None:
    assert set(hazards()) <= {fault.hazard for fault in FAULTS}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.hazard} {fault.what}".strip())
def test_a_planted_fault_is_caught(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault.law()
    fault.plant(monkeypatch)
    with pytest.raises((AssertionError, Failed, GecliError, GraphError, ValueError, KeyError)):
        fault.law()
