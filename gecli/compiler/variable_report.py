"""What the report says about the variables of a compiled graph."""

from __future__ import annotations

from typing import Any

from gecli.compiler.graph_compiler import CompiledGraph
from gecli.variables.var_manager import VarManager


def variable_rows(compiled: CompiledGraph, manager: VarManager) -> list[dict[str, Any]]:
    """One row a variable: declared and stored form, address, road, whether this graph changed it."""
    variables = manager.resource
    changed = set(compiled.record.after.changed_var_names)
    rows = []
    for node in compiled.variables:
        stored = node.output_descs[0]
        declared = variables.declared_desc(node.name) or stored
        road = compiled.record.after.var_trans_roads_map.get(node.name, ())
        rows.append(
            {
                "name": node.name,
                "dtype": stored.dtype.serial,
                "declared_format": declared.format.name,
                "declared_shape": list(declared.shape),
                "format": stored.format.name,
                "shape": list(stored.shape),
                "logical_address": variables.address_of(node.name, stored),
                "size_bytes": stored.size_bytes,
                "road": [f"{step.type} {step.src.format.name}->{step.dst.format.name}" for step in road],
                "lossy": bool(road) and getattr(road, "lossy", False),
                "changed_here": node.name in changed,
            }
        )
    return sorted(rows, key=lambda row: str(row["name"]))
