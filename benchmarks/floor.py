"""What a command can cost at least with gecli's dependencies: the same start-up and data, none of the work.

floor.py compile MODEL NODES OUT    # dependencies, hash of the content, a graph of so many nodes, a copy
floor.py hit OM OUT                 # the copy alone
floor.py load OM                    # dependencies, the file mapped
"""

from __future__ import annotations

import gc
import os
import sys

EDGES_A_NODE = 2
COPY_BYTES = 16 << 20


def compile_floor(model: str, nodes: str, out: str) -> None:
    import hashlib

    import google.protobuf.message_factory  # noqa: F401  # the import is what is measured, here and below
    import numpy  # noqa: F401

    from gecli.ir.networkx_core import load_networkx_core

    load_networkx_core()
    import networkx

    with open(model, "rb") as file:
        hashlib.file_digest(file, "sha256")
    count = int(nodes)
    graph = networkx.MultiDiGraph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from((node, (node + step) % count) for node in range(count) for step in range(1, EDGES_A_NODE + 1))
    copy(model, out)


def copy(source: str, target: str) -> None:
    with open(source, "rb") as file, open(target, "wb") as out:
        if hasattr(os, "copy_file_range"):
            while os.copy_file_range(file.fileno(), out.fileno(), COPY_BYTES):
                pass
            return
        while block := file.read(COPY_BYTES):
            out.write(block)


def load_floor(om: str) -> None:
    import mmap

    import google.protobuf.message_factory  # noqa: F401
    import numpy

    with open(om, "rb") as file:
        numpy.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), numpy.uint8)


if __name__ == "__main__":
    {"compile": compile_floor, "hit": copy, "load": load_floor}[sys.argv[1]](*sys.argv[2:])
    gc.freeze()  # as gecli ends: no search for garbage
