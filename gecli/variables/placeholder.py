"""Device memory supplied from outside for a ConstPlaceHolder node."""

from __future__ import annotations

from gecli.errors import CompileError
from gecli.ir.dtype import DataType
from gecli.ir.op_desc import OpDesc
from gecli.variables.sizes import raw_bytes

CONST_PLACEHOLDER = "ConstPlaceHolder"
DEVICE_PLACEMENT = 1


def placeholder_address(node: OpDesc) -> int:
    """The device address a ConstPlaceHolder stands for. Raises CompileError when an attribute is missing or wrong."""
    missing = [name for name in ("storage_shape", "dtype", "size", "placement", "addr") if name not in node.attrs]
    if missing:
        raise _bad(node, f"attributes {', '.join(missing)} are missing")
    attrs = node.attrs
    if attrs["placement"] != DEVICE_PLACEMENT:
        raise _bad(node, f"placement must be {DEVICE_PLACEMENT} (device), actual {attrs['placement']}")
    if not attrs["addr"]:
        raise _bad(
            node, "addr is 0, which is no address", "give addr any other number: gecli carries it to the OM only"
        )
    desc = node.output_descs[0].with_shape(tuple(attrs["storage_shape"])).with_dtype(DataType(attrs["dtype"]))
    if attrs["size"] < raw_bytes(desc):
        raise _bad(node, f"size must be at least {raw_bytes(desc)} for {desc}, actual {attrs['size']}")
    return int(attrs["addr"])


def _bad(node: OpDesc, why: str, do: str = "correct the attributes of the node") -> CompileError:
    return CompileError(
        "G2018", f"ConstPlaceHolder {node.name!r} cannot be placed", kind="PASS_FAILED", node=node.name, why=why, do=do
    )
