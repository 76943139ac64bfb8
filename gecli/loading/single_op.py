"""The single-op file of atc: a JSON list of operators with their tensors, each a graph of one operator (cli.md 1.3)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from gecli.errors import CompileError, Diagnostic, InputError, InvalidOption
from gecli.ir.attributes import DATA_INDEX, SINGLE_OP, VALUE
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import UNKNOWN_RANK, Range, TensorDesc
from gecli.ir.weight import Weight
from gecli.json_text import GRAPHS, parse_json
from gecli.loading.data_formats import DATA_FORMAT, complete_data_format, contradiction, data_output, data_slot
from gecli.loading.inference import Inference
from gecli.ops.operator import OperatorType, instance
from gecli.ops.registry import find
from gecli.options.spelling import similar
from gecli.wire.regular_file import read_regular

OPTION = "--singleop"
MAX_BYTES = 1 << 26
MAX_NAME = 180  # bytes of an output's stem; the file system and the .rdcpkt need the rest
UNBOUNDED = -1
ENTRY_MEMBERS = frozenset(("op", "name", "input_desc", "output_desc", "attr", "outputs"))
TENSOR_MEMBERS = frozenset(
    ("type", "format", "shape", "name", "origin_shape", "origin_format", "sub_format", "shape_range")
    + ("is_const", "const_value")
)
ATTR_MEMBERS = frozenset(("name", "type", "value"))
EXAMPLE = '[{"op": "Add", "input_desc": [{"format": "ND", "shape": [3], "type": "float"}, ...], "output_desc": [...]}]'


class SingleOp(NamedTuple):
    """One entry: its graph, and the name that its files get."""

    name: str
    graph: Graph
    warnings: tuple[Diagnostic, ...] = ()


def read_single_ops(path: str) -> list[SingleOp]:
    """Every operator of a single-op file.

    Raises InputError (E10024) for a file that cannot be read, InvalidOption (E10023, E10025 to E10030) with the JSON
    pointer of what is wrong in it.
    """
    entries = _entries(path)
    return [_Entry(path, number, entry).read() for number, entry in enumerate(entries)]


def single_op_of(entry: Mapping[str, Any]) -> SingleOp:
    """One operator that is not in a file; without output_desc it has all its outputs, or the first `outputs`.

    Raises InvalidOption as `read_single_ops`.
    """
    return _Entry("", 0, entry).read()


def single_op_names(path: str) -> list[str]:
    """The names of the files of each operator. Raises as `read_single_ops`."""
    return [each.name for each in read_single_ops(path)]


def _entries(path: str) -> list[Any]:
    if not path:
        raise InvalidOption(
            "E10023", f"{OPTION} names no file", option=OPTION, why="its value is empty", do="FILE.json"
        )
    try:
        data = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise InputError(
            "E10024", f"cannot open {path}", why=error.strerror or str(error), file=path, option=OPTION,
            do="check the path and its permissions",
        ) from error  # fmt: skip
    try:
        content = parse_json(data, room=GRAPHS)
    except (ValueError, RecursionError) as error:
        raise InvalidOption(
            "E10025", f"{path} is not valid JSON", why=str(error), file=path, option=OPTION, do=EXAMPLE
        ) from error
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list) or not content:
        raise InvalidOption(
            "E10026",
            f"{path} lists no operator",
            why="expected a list of objects",
            file=path,
            option=OPTION,
            do=EXAMPLE,
        )
    return content


class _Entry:
    """Reads one element of the list."""

    def __init__(self, path: str, number: int, entry: Any) -> None:
        self.path = path
        self.number = number
        self.entry = entry
        self.graph = Graph(f"op_{number}")
        self.warnings: list[Diagnostic] = []

    def read(self) -> SingleOp:
        if not isinstance(self.entry, Mapping) or not isinstance(self.entry.get("op"), str) or not self.entry["op"]:
            self.fail("E10026", "op", "the entry names no operator", 'expected an object with the member "op"')
        self.note_unknown("", self.entry, ENTRY_MEMBERS, "an operator")
        type_name = self.entry["op"]
        kind = find(type_name)
        if kind is None:
            self.fail("E10026", "op", f"operator type {type_name!r} is not known", "the simulator has no such type")
        inputs = [self.desc(f"input_desc/{i}", each) for i, each in self.items("input_desc")]
        outputs = [self.desc(f"output_desc/{i}", each) for i, each in self.items("output_desc")]
        described = [desc for desc in outputs if desc is not None]
        if type_name == "TransData" and inputs and inputs[0] is not None:
            described = [_with_origin_of(inputs[0], desc) for desc in described]
        node = OpDesc(self.node_name(), type_name, output_descs=list(described))
        node.attrs.update(self.attributes(kind))
        self.data_format(kind, node, inputs, outputs)
        self.connect(node, inputs)
        self.infer(kind, node, described)
        count = len(outputs) or self.entry.get("outputs") or len(node.output_descs)
        self.graph.set_outputs([Port(node, index) for index in range(min(count, len(node.output_descs)))])
        self.graph.attrs[SINGLE_OP] = type_name
        return SingleOp(_file_name(self.number, type_name, inputs, outputs), self.graph, tuple(self.warnings))

    def node_name(self) -> str:
        name = self.entry.get("name", "")
        if not isinstance(name, str):
            self.fail("E10028", "name", "the name of an operator is a text", f"found {name!r}")
        return name or f"{self.entry['op']}_{self.number}"

    def items(self, member: str) -> Iterator[tuple[int, Any]]:
        found = self.entry.get(member, [])
        if not isinstance(found, list):
            self.fail("E10027", member, f"{member} is no list", "expected a list of tensors")
        return iter(enumerate(found))

    # ------------------------------------------------------------------ tensors

    def desc(self, where: str, value: Any) -> TensorDesc | None:
        """The descriptor of a tensor; None for an optional input that is left out (type UNDEFINED)."""
        if not isinstance(value, dict):
            self.fail("E10027", where, "a tensor is an object", f"found {value!r}")
        self.note_unknown(where, value, TENSOR_MEMBERS, "a tensor")
        if str(value.get("type", "")).upper() in ("UNDEFINED", "DT_UNDEFINED"):
            return None
        dtype = self.word(where, value, "type", DataType.parse)
        fmt = self.word(where, value, "format", Format.parse)
        if "sub_format" in value:
            try:
                fmt = fmt.with_groups(value["sub_format"])
            except (TypeError, ValueError) as error:
                self.fail("E10028", f"{where}/sub_format", "sub_format is no count of groups", str(error))
        shape = self.shape(where, value, "shape")
        if shape is None:
            self.fail("E10027", where, "the tensor has no shape", 'expected the member "shape"')
        origin = self.shape(where, value, "origin_shape")
        origin_fmt = self.word(where, value, "origin_format", Format.parse) if "origin_format" in value else None
        ranges = self.ranges(where, value, shape)
        name = value.get("name", "")
        if not isinstance(name, str):
            self.fail("E10028", f"{where}/name", "the name of a tensor is a text", f"found {name!r}")
        if (origin is None or origin == shape) and origin_fmt in (None, fmt):
            origin, origin_fmt = None, None
        return TensorDesc(dtype, shape, fmt, origin, origin_fmt, shape_range=ranges)

    def word(self, where: str, value: dict[str, Any], member: str, parse: Any) -> Any:
        text = value.get(member)
        try:
            if not isinstance(text, str):
                raise ValueError(f"expected a text, found {text!r}")
            return parse(text)
        except ValueError as error:
            self.fail("E10027", f"{where}/{member}", f"the {member} of a tensor is not valid", str(error))

    def shape(self, where: str, value: dict[str, Any], member: str) -> tuple[int, ...] | None:
        dims = value.get(member)
        if dims is None:
            return None
        if not isinstance(dims, list) or not all(type(dim) is int and dim >= -1 for dim in dims):
            if dims == list(UNKNOWN_RANK):
                return UNKNOWN_RANK
            self.fail("E10027", f"{where}/{member}", f"{member} is no list of sizes", f"found {dims!r}")
        return tuple(dims)

    def ranges(self, where: str, value: dict[str, Any], shape: tuple[int, ...]) -> tuple[Range, ...] | None:
        """A pair for each dim, or for each unknown one."""
        found = value.get("shape_range")
        if found is None:
            return None
        unknown = [axis for axis, dim in enumerate(shape) if dim < 0]
        pairs: list[Any] = found if isinstance(found, list) else [None]
        good = all(isinstance(p, list) and len(p) == 2 and all(type(n) is int for n in p) for p in pairs)
        if not good or len(pairs) not in (len(shape), len(unknown)):
            why = f"expected a pair of numbers for each of the {len(unknown)} unknown dims, found {found!r}"
            self.fail("E10028", f"{where}/shape_range", "shape_range does not fit the shape", why)
        given = iter(pairs)
        per_dim = pairs if len(pairs) == len(shape) else [next(given) if dim < 0 else (dim, dim) for dim in shape]
        for dim, (low, high) in zip(shape, per_dim):
            if low < 0 or (high != UNBOUNDED and high < low) or (dim >= 0 and not low <= dim):
                self.fail("E10028", f"{where}/shape_range", "shape_range is empty", f"found {found!r}")
        return tuple((low, high) for low, high in per_dim) if unknown else None

    # ------------------------------------------------------------------ the graph

    def connect(self, node: OpDesc, inputs: Sequence[TensorDesc | None]) -> None:
        count = 0
        sources: list[Port | None] = []
        for slot, desc in enumerate(inputs):
            if desc is None:
                sources.append(None)
                continue
            value = self.entry["input_desc"][slot]
            if value.get("is_const") or "const_value" in value:
                sources.append(self.constant(slot, desc, value).out())
                continue
            name = value.get("name") or f"{node.name}_input_{slot}"
            data = self.graph.create("Data", name, attrs={DATA_INDEX: count}, output_descs=[desc])
            sources.append(data.out())
            count += 1
        while sources and sources[-1] is None:
            sources.pop()
        node.name = self.graph.unique_name(node.name)
        self.graph.add(node)
        for slot, port in enumerate(sources):
            if port is None:
                node.inputs.append(None)
                node.input_descs.append(None)
            else:
                self.graph.connect(port, node, slot)
                node.input_descs[slot] = port.desc

    def constant(self, slot: int, desc: TensorDesc, value: dict[str, Any]) -> OpDesc:
        import numpy as np

        from gecli.layout.hif8 import of_numbers

        where = f"input_desc/{slot}/const_value"
        if "const_value" not in value:
            self.fail("E10028", f"input_desc/{slot}", "a constant input has no const_value", "is_const is true")
        if not desc.is_static:
            self.fail("E10028", where, "a constant input has an unknown size", f"its shape is {list(desc.shape)}")
        try:
            kind = np.float32 if desc.dtype is DataType.HIFLOAT8 else desc.dtype.numpy
            array = of_numbers(np.array(value["const_value"], kind), desc.dtype).reshape(desc.shape)
        except (TypeError, ValueError, OverflowError) as error:
            self.fail("E10028", where, "const_value does not fit the tensor", str(error))
        name = value.get("name") or f"const_{slot}"
        return self.graph.create("Const", name, output_descs=[desc], attrs={VALUE: Weight.of(array, desc)})

    def infer(self, kind: OperatorType, node: OpDesc, outputs: list[TensorDesc]) -> None:
        """Output descriptors by the operator's rule; what the file declares must not contradict them."""
        try:
            instance(kind, node)
        except CompileError as error:
            why = error.first.why or error.first.message
            code = "E10029" if error.code == "E14002" else "E10030"
            self.fail(code, "attr", error.first.message, why)
        inference = Inference()
        for port in node.data_inputs:
            if port.node.type == "Const":
                inference.add_constant(port.node)
        inference.infer(node, len(outputs))
        if node in inference.failed:
            self.fail("E10027", "input_desc", f"{node.type} does not take these inputs", inference.failed[node])
        limit = None if any(port.variadic for port in kind.outputs) else len(kind.outputs) + len(kind.writes)
        if (limit is not None and len(outputs) > limit) or not (outputs or "outputs" in self.entry):
            why = f"{node.type} has {len(kind.outputs)}, output_desc describes {len(outputs)}"
            self.fail("E10027", "output_desc", "the number of outputs is wrong", why)
        for index, declared in enumerate(outputs):
            found = node.output_descs[index]
            shape = found.logical_shape
            fits = UNKNOWN_RANK in (shape, declared.logical_shape) or (
                len(shape) == len(declared.logical_shape)
                and all(-1 in (a, b) or a == b for a, b in zip(shape, declared.logical_shape))
            )
            if not fits or found.dtype is not declared.dtype:
                why = f"declared {declared}, {node.type} gives {found} for these inputs"
                self.fail("E10027", f"output_desc/{index}", "an output is described wrongly", why)

    # ------------------------------------------------------------------ attributes

    def data_format(
        self,
        kind: OperatorType,
        node: OpDesc,
        inputs: Sequence[TensorDesc | None],
        outputs: Sequence[TensorDesc | None],
    ) -> None:
        """The layout of the data tensor decides where the file gives no data_format; what it gives must agree."""
        slot, index = data_slot(kind), data_output(kind)
        if slot is None or slot >= len(inputs):
            return
        given = DATA_FORMAT in node.attrs
        complete_data_format(kind, node, inputs[slot])
        if why := contradiction(kind, node, inputs[slot]):
            named = [each.get("name") for each in self.entry.get("attr", [])]
            where = f"attr/{named.index(DATA_FORMAT)}/value" if given else f"input_desc/{slot}/format"
            self.fail("E10030", where, f"data_format contradicts input_desc/{slot}/format", why)
        if index is not None and index < len(outputs) and (why := contradiction(kind, node, outputs[index])):
            self.fail("E10027", f"output_desc/{index}/format", "an output is described wrongly", why)

    def attributes(self, kind: OperatorType) -> dict[str, Any]:
        listed = self.entry.get("attr", [])
        if not isinstance(listed, list):
            self.fail("E10029", "attr", "attr is no list", "expected a list of objects with name, type and value")
        found: dict[str, Any] = {}
        for index, each in enumerate(listed):
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str) or not name:
                self.fail("E10029", f"attr/{index}", "an attribute has no name", f"found {each!r}")
            if name not in kind.attributes:
                near = similar(name, list(kind.attributes), 3) or sorted(kind.attributes)
                why = f"{kind.name} has no attribute {name!r}; it has {', '.join(near) or 'none'}"
                self.fail("E10029", f"attr/{index}/name", "an attribute is not known", why)
            found[name] = self.value(f"attr/{index}", each)
        return found

    def value(self, where: str, attr: dict[str, Any]) -> Any:
        self.note_unknown(where, attr, ATTR_MEMBERS, "an attribute")
        word, value = attr.get("type"), attr.get("value")
        reader = _VALUES.get(word) if isinstance(word, str) else None
        if reader is None:
            why = f"found {word!r}; expected one of {', '.join(sorted(_VALUES))}"
            self.fail("E10030", f"{where}/type", "the type of an attribute is not known", why)
        try:
            return reader(value)
        except (TypeError, ValueError) as error:
            self.fail("E10030", f"{where}/value", f"the value of an attribute is no {word}", str(error))

    def note_unknown(self, where: str, members: Mapping[str, Any], known: frozenset[str], what: str) -> None:
        """Warn of members that are not read: mostly they are written wrongly."""
        for name in sorted(members.keys() - known):
            near = similar(name, sorted(known), 1)
            pointer = "/".join(("", str(self.number), *filter(None, (where, name))))
            self.warnings.append(
                Diagnostic(
                    "E13005", f"unknown member {name!r} of {what} is ignored", where=f"{self.path}, {pointer}",
                    why=f"{what} has {', '.join(sorted(known))}", do=f"did you mean {near[0]!r}?" if near else "",
                    severity="warning", file=self.path, pointer=pointer, option=OPTION,
                )
            )  # fmt: skip

    def fail(self, code: str, where: str, message: str, why: str) -> NoReturn:
        raise InvalidOption(
            code, message, where=f"{self.path}, /{self.number}/{where}", why=why, file=self.path, option=OPTION,
            pointer=f"/{self.number}/{where}",
        )  # fmt: skip


def _with_origin_of(source: TensorDesc, desc: TensorDesc) -> TensorDesc:
    """What a conversion makes of a tensor: the same tensor, when the file does not say so."""
    if desc.format.is_origin or desc.origin_shape is not None:
        return desc
    return desc.with_origin(source.logical_shape, source.logical_format)


def _exactly(kind: type) -> Any:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"found {value!r}")
        return value

    return read


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"found {value!r}")
    return float(value)


def _list(item: Any) -> Any:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise TypeError(f"found {value!r}")
        return tuple(item(each) for each in value)

    return read


def _data_type(value: Any) -> DataType:
    if type(value) is int:
        return DataType(value)
    if not isinstance(value, str):
        raise TypeError(f"found {value!r}")
    return DataType.parse(value)


_VALUES: dict[str, Any] = {
    "bool": _exactly(bool),
    "int": _exactly(int),
    "float": _float,
    "string": _exactly(str),
    "list_bool": _list(_exactly(bool)),
    "list_int": _list(_exactly(int)),
    "list_float": _list(_float),
    "list_string": _list(_exactly(str)),
    "list_list_int": _list(_list(_exactly(int))),
    "data_type": _data_type,
}


def _file_name(
    number: int, type_name: str, inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc | None]
) -> str:
    """`{number}_{op}_{dtype_format_shape of each tensor}`, as atc names the files; a long one ends in a digest."""
    words = [str(number), type_name]
    for desc in (*inputs, *outputs):
        if desc is not None:
            words += [str(int(desc.dtype)), str(int(desc.format.primary)), *map(str, desc.shape)]
    name = "_".join(words)
    if len(name.encode()) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 17]}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"
