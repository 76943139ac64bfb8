"""The codes behind the short names of faults (RT_..., VAR_...), which documents and messages of GE's rules use."""

from __future__ import annotations

CODES_OF_NAMES: dict[str, tuple[str, ...]] = {
    "RT_ADDR_OUT_OF_RANGE": ("G4010",),
    "RT_ADDR_UNASSIGNED": ("G4010",),
    "RT_COLLECTIVE_DEADLOCK": ("G4015",),
    "RT_COLLECTIVE_MISMATCH": ("G4015",),
    "RT_EXTERNAL_TOO_SMALL": ("G4013",),
    "RT_FILE_ID_UNKNOWN": ("G4013",),
    "RT_INIT_VALUE_DIFFERS": ("G4011",),
    "RT_INIT_VALUE_MISMATCH": ("G4011",),
    "RT_INPUT_SIZE": ("E13025",),
    "RT_IO_REUSE": ("G4012",),
    "RT_LOOP_LIMIT": ("G4014",),
    "RT_NODE_FAILED": ("G4009",),
    "RT_NOT_INITED": ("G4010",),
    "RT_NUMERIC": ("G4007",),
    "RT_OOM": ("G4005",),
    "RT_OP_UNSUPPORTED": ("E13010", "G1005"),
    "RT_PAGE_1G_FAILED": ("G4005",),
    "RT_PLACEHOLDER_UNBOUND": ("G4013",),
    "RT_REF_MISMATCH": ("G4012",),
    "RT_REF_UNBOUND": ("G4012",),
    "RT_RW_RACE": ("G4012",),
    "RT_SHAPE_RANGE": ("G4001",),
    "RT_TRANS_TOO_LARGE": ("G4011",),
    "RT_TRANS_UNSUPPORTED": ("G4011",),
    "RT_VAR_BASE_CONFLICT": ("G4010",),
    "RT_VAR_DESC_MISMATCH": ("G4011",),
    "RT_VAR_GREW": ("G4011",),
    "RT_VAR_NOT_FOUND": ("G4008", "G4010"),
    "RT_VAR_OVERLAP": ("G4010",),
    "RT_VAR_UNINITIALISED": ("G4006",),
    "RT_WEIGHT_HASH": ("G4004",),
    "RT_WEIGHT_MISSING": ("G4003",),
    "RT_WEIGHT_SHORT": ("G4004",),
    "VAR_FORM_DIFFERS": ("G2016",),
    "VAR_KEY_CONFLICT": ("G2010",),
    "VAR_LOSSY_ROAD": ("G2019",),
    "VAR_MEM_EXHAUSTED": ("G2013",),
    "VAR_NOT_FOUND": ("G2015",),
    "VAR_OVERLAP": ("G2012",),
    "VAR_POOL_MISSING": ("G2017",),
    "VAR_ROAD_CONFLICT": ("G2016",),
    "VAR_SHAPE_GROWS": ("G2011",),
    "VAR_SIZE_UNKNOWN": ("G2014",),
}


def similar_names(name: str) -> list[str]:
    """Known short names that look like `name`."""
    from difflib import get_close_matches

    return get_close_matches(name, CODES_OF_NAMES, n=3)
