"""The `operator` decorator: turns a class into the definition of a GE operator type.

The class's annotated fields are the attributes, the parameters of `kernel` are the inputs:

    @operator(onnx=From("LeakyRelu", attrs={"alpha": "negative_slope"}, defaults={"negative_slope": 0.01}))
    class LeakyRelu:
        negative_slope: float = 0.0
        zero_preserving = True

        infer = same_as_input

        def kernel(self, x: Array) -> Array: ...

Plain class members that the registry reads:

- `outputs`: output port names, `("y",)` by default; a name with `*` stands for any number.
- `inputs`: input port names, by default those of `kernel`; `?` marks an optional input, `*` a variadic one.
- `writes`: names of inputs that the operator updates in place (training.md 9.1); `AllInputs` when output i is input i.
- `zero_preserving`: f(0, ...) = 0, so that zero padding lanes stay zero (design.md decision 35).
- `foldable`: may be computed at compile time when all inputs are constant (default True).
- `shape_inputs`: positions of inputs whose *values* decide output shapes.
- `stateless`: False for variables, random generators and other nodes that must not be merged or removed.

Operator classes are not dataclasses: creating hundreds of those would cost every compile a tenth of a second.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from gecli.errors import CompileError
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc

T = TypeVar("T")
REQUIRED = object()


class AllInputs(tuple[str, ...]):
    """The written inputs of an operator each of whose outputs is the input of its number (HcomBroadcast).

    They have numbers in place of names: `input_name` and `output_names` of `passes.written_inputs` give the same text
    for an input and its output.
    """

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)


class Port(NamedTuple):
    """A declared input or output of an operator type."""

    name: str
    optional: bool = False
    variadic: bool = False


class From(NamedTuple):
    """A one-to-one mapping from an ONNX operator.

    `attrs` renames attributes (ONNX name -> GE name; others keep their name), `defaults` holds GE attribute values
    to write when the model leaves the attribute out and ONNX's default differs from GE's. It holds for opsets from
    `since` up to `until` (inclusive), None meaning the newest.
    """

    op: str
    since: int = 1
    until: int | None = None
    attrs: Mapping[str, str] = {}
    defaults: Mapping[str, Any] = {}
    domain: str = ""


class OperatorType(NamedTuple):
    """What the registry knows about one type."""

    name: str
    cls: type[Any]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    attributes: dict[str, tuple[str, Any]]  # name -> (annotation, default or REQUIRED)
    onnx: tuple[From, ...]
    writes: tuple[str, ...]
    zero_preserving: bool
    foldable: bool
    stateless: bool
    shape_inputs: tuple[int, ...]

    def input_name(self, slot: int) -> str:
        """Port name of input `slot`; variadic inputs are numbered `x0`, `x1`..."""
        return _port_name(self.inputs, slot)

    def output_name(self, index: int) -> str:
        """The name of an output; outputs beyond the declared ones show written inputs, in the order of the inputs."""
        further = index - len(self.outputs)
        if further >= 0 and not (self.outputs and self.outputs[-1].variadic):
            unseen = self._unseen_writes()
            if further < len(unseen):
                return unseen[further]
        return _port_name(self.outputs, index)

    def input_slot(self, name: str) -> int | None:
        return next((slot for slot, port in enumerate(self.inputs) if port.name == name), None)

    def output_index(self, name: str) -> int | None:
        """Where an output of this name stands, or would stand for a written input that no declared output shows."""
        names = [*(port.name for port in self.outputs), *self._unseen_writes()]
        return names.index(name) if name in names else None

    def _unseen_writes(self) -> list[str]:
        shown = {port.name for port in self.outputs}
        return [name for name in self.writes if name not in shown]


REGISTRY: dict[str, OperatorType] = {}


@dataclass_transform(frozen_default=True, kw_only_default=True)
def operator(
    *, onnx: From | Iterable[From] = (), name: str | None = None, aliases: Iterable[str] = ()
) -> Callable[[type[T]], type[T]]:
    """Register a class as the operator type `name` (default: the class's name).

    `aliases` are other type names with exactly the same definition.
    """
    mappings = (onnx,) if isinstance(onnx, From) else tuple(onnx)

    def decorate(cls: type[T]) -> type[T]:
        own: Any = cls
        attributes: dict[str, tuple[str, Any]] = {}
        for base in reversed(own.__mro__):
            for field, annotation in inspect.get_annotations(base).items():
                if not str(annotation).startswith("ClassVar"):
                    attributes[field] = (str(annotation), getattr(own, field, REQUIRED))
        own.__init__ = _init
        own.of_node = ""
        own.in_descs = ()
        own.out_descs = ()
        for type_name in (name or own.__name__, *aliases):
            own.type = OperatorType(
                type_name,
                own,
                _declared_inputs(own),
                tuple(_parse_port(text) for text in getattr(own, "outputs", ("y",))),
                attributes,
                mappings if type_name == (name or own.__name__) else (),
                getattr(own, "writes", ()),
                bool(getattr(own, "zero_preserving", False)),
                bool(getattr(own, "foldable", True)),
                bool(getattr(own, "stateless", True)),
                tuple(getattr(own, "shape_inputs", ())),
            )
            REGISTRY[type_name] = own.type
        return cls

    return decorate


def _init(self: Any, **attrs: Any) -> None:
    table: dict[str, tuple[str, Any]] = self.type.attributes
    for field, (annotation, default) in table.items():
        if field in attrs:
            setattr(self, field, convert_attribute(annotation, attrs[field]))
        elif default is REQUIRED:
            raise TypeError(f"{self.type.name} needs the attribute {field!r}")
    unknown = attrs.keys() - table.keys()
    if unknown:
        raise TypeError(f"{self.type.name} has no attribute {sorted(unknown)[0]!r}")


def instance(kind: OperatorType, node: OpDesc) -> Any:
    """The operator object of a node: its attributes as fields, `in_descs` and `out_descs` from the node.

    Attributes the class does not declare are ignored. Raises CompileError E14002 for a missing required attribute
    and E13014 for a value of the wrong kind.
    """
    op = object.__new__(kind.cls)
    attrs = node.attrs
    for field, (annotation, default) in kind.attributes.items():
        if field in attrs:
            try:
                setattr(op, field, convert_attribute(annotation, attrs[field]))
            except (TypeError, ValueError) as err:
                raise CompileError(
                    "E13014",
                    f"attribute {field!r} of node {node.name!r} is not valid",
                    where=f"node {node.name} ({node.type})",
                    why=f"{err}; expected {KINDS[annotation]}",
                    node=node.name,
                ) from err
        elif default is REQUIRED:
            raise CompileError(
                "E14002",
                f"node {node.name!r} has no attribute {field!r}",
                where=f"node {node.name} ({node.type})",
                why=f"{node.type} requires {field!r}, {KINDS[annotation]}",
                node=node.name,
            )
    op.of_node = node.name
    op.in_descs = node.input_descs
    op.out_descs = node.output_descs
    return op


def convert_attribute(annotation: str, value: Any) -> Any:
    """An attribute value in the type its field declares. Raises TypeError or ValueError."""
    converter = _CONVERTERS.get(annotation)
    try:
        return value if converter is None else converter(value)
    except OverflowError as err:  # an integer that no float holds
        raise ValueError(str(err)) from err


def _to_format(value: Any) -> Format:
    if isinstance(value, str):
        return Format.parse(value)
    return Format(value)


def _to_dtype(value: Any) -> DataType:
    if isinstance(value, str):
        return DataType.parse(value)
    return DataType(value)


def _to_int(value: Any) -> int:
    if isinstance(value, (str, bytes)) or not isinstance(value, (int, float)) or value % 1:
        raise TypeError(f"{value!r} is not an integer")
    return int(value)


def _to_float(value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _to_str(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


KINDS = {  # what the annotations of attributes mean, for messages
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "Format": "a format",
    "DataType": "a data type",
    "Weight": "a tensor",
    "tuple[int, ...]": "a list of integers",
    "tuple[float, ...]": "a list of numbers",
    "tuple[str, ...]": "a list of texts",
    "tuple[bool, ...]": "a list of true or false",
    "tuple[tuple[int, ...], ...]": "a list of lists of integers",
}

_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "int": _to_int,
    "float": _to_float,
    "bool": bool,
    "str": _to_str,
    "Format": _to_format,
    "DataType": _to_dtype,
    "tuple[int, ...]": lambda value: tuple(_to_int(v) for v in value),
    "tuple[float, ...]": lambda value: tuple(_to_float(v) for v in value),
    "tuple[str, ...]": lambda value: tuple(_to_str(v) for v in value),
    "tuple[bool, ...]": lambda value: tuple(bool(v) for v in value),
    "tuple[tuple[int, ...], ...]": lambda value: tuple(tuple(_to_int(v) for v in row) for row in value),
}


def _declared_inputs(cls: type[Any]) -> tuple[Port, ...]:
    declared = cls.__dict__.get("inputs")
    if declared is not None:
        return tuple(_parse_port(text) for text in declared)
    function = getattr(cls, "kernel", None) or getattr(cls, "infer", None)
    if function is None:
        return ()
    # inspect.signature says the same and takes ten times as long, for some 500 operators at every start.
    function = getattr(function, "__wrapped__", function)
    code = function.__code__
    names = code.co_varnames[1 : code.co_argcount]
    required = len(names) - len(function.__defaults__ or ())
    ports = [Port(name, position >= required, False) for position, name in enumerate(names)]
    if code.co_flags & inspect.CO_VARARGS:
        ports.append(Port(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], False, True))
    return tuple(ports)


def _parse_port(text: str) -> Port:
    return Port(text.rstrip("?*"), text.endswith("?"), text.endswith("*"))


def _port_name(ports: tuple[Port, ...], index: int) -> str:
    if index < len(ports) and not ports[index].variadic:
        return ports[index].name
    for position, port in enumerate(ports):
        if port.variadic and index >= position:
            return f"{port.name}{index - position}"
    return f"__{index}"


class KnownDesc(TensorDesc):
    """A descriptor whose tensor is a known constant: what `infer` gets for constant inputs."""

    __slots__ = ("value",)
    value: Any

    @staticmethod
    def of(desc: TensorDesc, value: Any) -> KnownDesc:
        known = KnownDesc(desc.dtype, desc.shape, desc.format, desc.origin_shape, desc.origin_format, desc.origin_dtype)
        object.__setattr__(known, "value", value)
        return known


def value_of(desc: TensorDesc | None) -> Any:
    """The numpy value behind a descriptor passed to `infer`; None when it is not known at compile time."""
    return getattr(desc, "value", None)
