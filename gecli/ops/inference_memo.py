"""Shape inference asked once for all nodes that are alike: of 100,000 nodes a few hundred differ for their rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gecli.ir.dtype import DataType
from gecli.ir.format import Format

if TYPE_CHECKING:
    from gecli.ir.op_desc import OpDesc
    from gecli.ir.tensor_desc import TensorDesc
    from gecli.ops.operator import OperatorType

Key = tuple[Any, ...]
Descs = Sequence["TensorDesc | None"]

_PLAIN_TYPES = frozenset((bool, int, float, str, bytes, DataType, Format))


class InferenceMemo:
    """Results of `infer` by operator type, attributes and descriptors.

    A rule sees nothing else of a node. Descriptors count by identity, which is enough because equal results become
    one object: nodes that are alike get the very same descriptors, and so do the nodes behind them.
    """

    __slots__ = ("_found", "_shared")

    def __init__(self) -> None:
        self._shared: dict[TensorDesc, TensorDesc] = {}
        # The descriptors of the key stay alive with the result; another object could get their identity otherwise.
        self._found: dict[Key, tuple[tuple[TensorDesc, ...], Any]] = {}

    def get(self, key: Key | None) -> tuple[TensorDesc, ...] | None:
        """The result under a key, None when it is not known."""
        if key is None:
            return None
        found = self._found.get(key)
        return None if found is None else found[0]

    def keep(
        self, key: Key | None, node: OpDesc, descs: Descs, result: tuple[TensorDesc, ...]
    ) -> tuple[TensorDesc, ...]:
        """Remember what the rule of `node` gave for `descs`, before the node's descriptors change.

        Returns the result with descriptors that are shared.
        """
        result = tuple(map(self.shared, result))
        if key is not None:
            self._found[key] = (result, (tuple(descs), tuple(node.input_descs), tuple(node.output_descs)))
        return result

    def shared(self, desc: TensorDesc) -> TensorDesc:
        """The first descriptor equal to `desc`; names, sizes and attributes, which equality leaves out, are kept."""
        if desc.name or desc.size_bytes or desc.attrs:
            return desc
        return self._shared.setdefault(desc, desc)


def memo_key(kind: OperatorType, node: OpDesc, descs: Descs) -> Key | None:
    """What the result of `node`'s rule depends on; None where that cannot be said."""
    if node.subgraphs:
        return None
    attrs: Key | None = ()
    if kind.attributes and node.attrs:
        attrs = _attrs_key(kind, node.attrs)
        if attrs is None:
            return None
    return (
        node.type,
        attrs,
        tuple(map(id, descs)),
        tuple(map(id, node.input_descs)),
        tuple(map(id, node.output_descs)),
    )


def _attrs_key(kind: OperatorType, attrs: dict[str, Any]) -> Key | None:
    """The declared attributes of a node. Equal values of different types convert to the same field value."""
    items: list[Any] = []
    for name in kind.attributes:
        if name not in attrs:
            continue
        value = attrs[name]
        if type(value) is tuple:
            if not all(type(each) in _PLAIN_TYPES for each in value):
                return None
        elif type(value) not in _PLAIN_TYPES:
            return None
        items += (name, value)
    return tuple(items)
