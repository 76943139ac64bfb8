"""What the report says about the variables of a compiled graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gecli.ir.op_desc import OpDesc
from gecli.variables.var_key import VarKey
from gecli.variables.var_manager import VarManager
from gecli.variables.var_match import VarMatch
from gecli.variables.var_resource import VarAddress, VarResource


def variable_rows(nodes: Mapping[OpDesc, int], record: VarMatch, manager: VarManager) -> list[dict[str, Any]]:
    """One row a variable node: declared and stored form, address, road, whether this graph changed it.

    `nodes` gives the address of each. The session may know the variable in another format by now, since a later graph
    may declare one (GE: RenewCurVarDesc).
    """
    variables = manager.resource
    changed = set(record.after.changed_var_names)
    forms = _forms(variables)
    rows = []
    for node, address in nodes.items():
        stored = node.output_descs[0]
        road = record.after.var_trans_roads_map.get(node.name)
        declared = road.source if road else stored  # by this graph; another one may declare it otherwise
        rows.append(
            {
                "name": node.name,
                "dtype": stored.dtype.serial,
                "declared_dtype": declared.dtype.serial,
                "declared_format": declared.format.name,
                "declared_shape": list(declared.shape),
                "format": stored.format.name,
                "shape": list(stored.shape),
                "logical_address": address,
                "size_bytes": stored.size_bytes,
                "road": [f"{step.type} {step.src.format.name}->{step.dst.format.name}" for step in road or ()],
                "lossy": bool(road) and getattr(road, "lossy", False),
                "changed_here": node.name in changed,
                "init_converted": bool(road) and node.init_value is not None,
                "blocks": _blocks(variables.key(node.name, stored), address, forms, variables),
            }
        )
    return sorted(rows, key=lambda row: str(row["name"]))


def _forms(variables: VarResource) -> dict[str, list[tuple[VarKey, VarAddress]]]:
    """The addresses of each variable; asked for once, as a session may have many variables."""
    found: dict[str, list[tuple[VarKey, VarAddress]]] = {}
    for key, entry in variables.addresses.items():
        found.setdefault(key.name, []).append((key, entry))
    return found


def _blocks(
    present: VarKey, address: int, forms: Mapping[str, list[tuple[VarKey, VarAddress]]], variables: VarResource
) -> list[dict[str, Any]]:
    """The memory of each form that the variable has or had in the session; only the present one is in use."""
    is_known = present in variables.addresses
    found = []
    for key, entry in forms.get(present.name, ()):
        block = variables.blocks.get(entry.address)
        found.append(
            {
                "dtype": entry.desc.dtype.serial,
                "format": entry.desc.format.name,
                "shape": list(entry.desc.shape),
                "logical_address": entry.address,
                "offset": entry.offset,
                "bytes": 0 if block is None else block.span_bytes,
                "in_use": key == present if is_known else entry.address == address,
            }
        )
    return sorted(found, key=lambda row: (row["logical_address"], row["format"]))
