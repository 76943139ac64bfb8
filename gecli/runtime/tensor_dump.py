"""--dump, --mark and --dump-inputs: intermediate tensors as .npy files with an index (cli.md 3.6)."""

from __future__ import annotations

import csv
import os
import re
from fnmatch import fnmatchcase
from io import BytesIO, StringIO
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.artifacts.publish import publish_bytes
from gecli.ir.attributes import ORIGINAL_OP_NAMES
from gecli.ir.op_desc import OpDesc, Port
from gecli.runtime.checkpoint import portable
from gecli.runtime.program import ValueOf

Array = NDArray[Any]
COLUMNS = ("order", "node", "type", "tensor", "dtype", "format", "shape", "origin names", "file")
_writing = Lock()  # devices dump side by side, files wait for their publication in one list
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class TensorDump:
    """Writes the tensors of one run into a directory; `watch` is called after every node.

    Tensors are written in the origin format; the column `format` is that of the OM. `patterns` are globs over node
    names; none of them means every node.
    """

    def __init__(self, directory: str, patterns: list[str], *, with_inputs: bool) -> None:
        self.directory = directory
        self.patterns = patterns
        self.with_inputs = with_inputs
        self.rows: list[tuple[str, ...]] = []
        self._order = 0

    def watch(self, node: OpDesc, value_of: ValueOf) -> None:
        order = self._order
        self._order += 1
        if self.patterns and not any(fnmatchcase(node.name, pattern) for pattern in self.patterns):
            return
        if self.with_inputs:
            for slot, port in enumerate(node.inputs):
                if port is not None:
                    self._write(order, node, f"in{slot}", port, value_of(port))
        for index in range(len(node.output_descs)):
            port = Port(node, index)
            self._write(order, node, str(index), port, value_of(port))

    def finish(self) -> str:
        """Write the index; returns its path. Raises OutputError."""
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(self.rows)
        path = os.path.join(self.directory, "index.csv")
        publish_bytes(path, text.getvalue().encode("utf-8", "surrogateescape"))
        return path

    def _write(self, order: int, node: OpDesc, tensor: str, port: Port, array: Array | None) -> None:
        if array is None:
            return
        name = f"{order:05d}_{_UNSAFE.sub('_', node.name)}.{tensor}.npy"
        buffer = BytesIO()
        np.lib.format.write_array(buffer, np.ascontiguousarray(portable(array)), allow_pickle=False)
        with _writing:
            publish_bytes(os.path.join(self.directory, name), buffer.getvalue())
        shape = "x".join(map(str, array.shape))
        names = node.attrs.get(ORIGINAL_OP_NAMES, ())
        origins = ";".join(map(str, names)) if isinstance(names, tuple) else ""
        kind = port.desc
        self.rows.append(
            (str(order), node.name, node.type, tensor, kind.dtype.serial, kind.format.name, shape, origins, name)
        )
