"""The error of format transfers, storage shapes and casts (GE: FORMAT_INVALID, SHAPE_INVALID, DATATYPE_INVALID)."""

from __future__ import annotations

from typing import Any

from gecli.errors import GecliError

# Reason codes, shared with the reports of the variable pass.
FORMAT_PAIR = "FORMAT_PAIR"
DTYPE = "DTYPE"
CAST_PAIR = "CAST_PAIR"
C0_MISMATCH = "C0_MISMATCH"
GROUPS = "GROUPS"
SHAPE = "SHAPE"
DATA = "DATA"

GE_NUMBER = {
    FORMAT_PAIR: 145020,
    DTYPE: 145022,
    CAST_PAIR: 145022,
    C0_MISMATCH: 145021,
    GROUPS: 145021,
    SHAPE: 145021,
    DATA: 145000,
}


class TransferError(GecliError):
    """A format pair, shape, data type or cast that cannot be converted; `kind` holds GE's number."""

    reason: str = ""

    @classmethod
    def because(cls, reason: str, message: str, **fields: Any) -> TransferError:
        """The error for one reason code."""
        error = cls("G2002", message, kind=str(GE_NUMBER[reason]), **fields)
        error.reason = reason
        return error
