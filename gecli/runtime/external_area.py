"""Memory of the user that holds the variables of a session (GE: SetExternalVar; runtime.md 1.6, rule V3)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.errors import RuntimeFault
from gecli.ir.tensor_desc import TensorDesc
from gecli.runtime.memory import Arena
from gecli.runtime.session_table import SessionTable

Array = NDArray[Any]


class ExternalArea:
    """An area in which each variable lies at its logical address less the variable base; there are no guards.

    Strings and types of less than a byte have no place in it: numpy has them in memory of its own.
    """

    def __init__(self, size_bytes: int, table: SessionTable, fill: int = 0) -> None:
        self.size_bytes = size_bytes
        self._table = table
        try:
            self._arena = Arena(size_bytes, "the area of --external-var", fill)
        except (MemoryError, RuntimeFault, ValueError) as error:
            raise RuntimeFault(
                "G4005", f"an area of {size_bytes} bytes cannot be allocated", kind="RT_OOM", option="--external-var",
                do="--external-var with the bytes that the variables take",
            ) from error  # fmt: skip

    def array(self, desc: TensorDesc, address: int) -> Array:
        """The tensor at a logical address. Raises InputError (RT_ADDR_OUT_OF_RANGE)."""
        if (desc.dtype.bits or 0) % 8 or desc.dtype.numpy.hasobject:
            return np.zeros(desc.shape, desc.dtype.numpy)
        base = self._table.manager.logic_base
        return self._arena.view(address - base, desc.dtype, desc.shape, "a variable in the area of --external-var")
