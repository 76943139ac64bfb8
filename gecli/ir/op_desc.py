"""Nodes of a graph (`ge::OpDesc`) and the ports that connect them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gecli.ir.attributes import INIT_VALUE, REF_VAR_SRC_VAR_NAME, VARIABLE_TYPES
from gecli.ir.tensor_desc import TensorDesc

if TYPE_CHECKING:
    from gecli.ir.weight import Weight


class Port(NamedTuple):
    """Output `index` of `node`."""

    node: OpDesc
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody asks of a port

    @property
    def desc(self) -> TensorDesc:
        return self.node.output_descs[self.index]

    def __str__(self) -> str:
        return f"{self.node.name}:{self.index}"


class Use(NamedTuple):
    """Input `slot` of `node`, as a consumer of some port."""

    node: OpDesc
    slot: int

    @property
    def desc(self) -> TensorDesc | None:
        return self.node.input_descs[self.slot]


class OpDesc:
    """One node: type, attributes, descriptors, and its connections.

    `inputs` has one entry a slot (None: optional input left out); `input_descs` describes what the node wants to
    read there, which differs from the producer's descriptor until conversions are inserted. The connections are
    owned by `Graph`: change them only through its methods.
    """

    __slots__ = (
        "attrs",
        "control_in",
        "control_out",
        "graph",
        "input_descs",
        "input_names",
        "inputs",
        "name",
        "output_descs",
        "output_names",
        "rank",
        "seq",
        "subgraphs",
        "type",
        "users",
    )

    def __init__(
        self,
        name: str,
        type: str,
        *,
        attrs: dict[str, Any] | None = None,
        output_descs: list[TensorDesc] | None = None,
        input_descs: list[TensorDesc | None] | None = None,
        input_names: tuple[str, ...] | None = None,
        output_names: tuple[str, ...] | None = None,
        subgraphs: list[str] | None = None,
    ) -> None:
        self.name = name
        self.type = type
        self.attrs: dict[str, Any] = attrs if attrs is not None else {}
        self.output_descs: list[TensorDesc] = output_descs if output_descs is not None else []
        self.input_descs: list[TensorDesc | None] = input_descs if input_descs is not None else []
        # Port names; None means the names that the operator class declares.
        self.input_names = input_names
        self.output_names = output_names
        self.subgraphs: list[str] = subgraphs if subgraphs is not None else []
        self.inputs: list[Port | None] = [None] * len(self.input_descs)
        self.users: list[dict[Use, None]] = [{} for _ in self.output_descs]
        self.control_in: dict[OpDesc, None] = {}
        self.control_out: dict[OpDesc, None] = {}
        self.graph: Any = None
        self.rank = 0
        self.seq = 0

    @property
    def is_variable(self) -> bool:
        return self.type in VARIABLE_TYPES

    @property
    def ref_variable(self) -> str | None:
        """The variable a VariableRef node stands for; None for every other node."""
        return self.attrs.get(REF_VAR_SRC_VAR_NAME)

    @property
    def init_value(self) -> Weight | None:
        """Initial data of a Variable, kept on its output descriptor as GE does."""
        value: Weight | None = self.output_descs[0].attrs.get(INIT_VALUE) if self.output_descs else None
        return value

    def set_init_value(self, value: Weight) -> None:
        self.output_descs[0] = self.output_descs[0].with_attr(INIT_VALUE, value)

    @property
    def data_inputs(self) -> list[Port]:
        """The connected producers, in slot order."""
        return [port for port in self.inputs if port is not None]

    def out(self, index: int = 0) -> Port:
        return Port(self, index)

    def add_output(self, desc: TensorDesc) -> Port:
        """Append an output and return its port."""
        self.output_descs.append(desc)
        self.users.append({})
        return Port(self, len(self.output_descs) - 1)

    def __repr__(self) -> str:
        return f"<{self.type} {self.name!r}>"
