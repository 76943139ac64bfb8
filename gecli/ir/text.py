"""The text form of the IR: one node a line, in graph order. Grammar: docs/architecture.md.

    graph g(%x : f16[1,64,8,8] NCHW) {
      %w = Variable() : f16[36,4,16,16] FRACTAL_Z origin [64,64,3,3] NCHW
      %p = Conv2D(%x, %w) {strides=[1,1,1,1]} : f16[1,64,6,6] NCHW after %x
      return %p
    }

What the text does not hold: bytes of large constants (printed as their digest) and input descriptors that differ
from the producer's output. C0 codes follow from the last stored dim of blocked formats.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from gecli.ir.attributes import (
    CONST_TYPES,
    DATA_INDEX,
    DATA_TYPES,
    INIT_VALUE,
    VALUE,
    NamedAttrs,
    RawAttr,
)
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import UNKNOWN_RANK, Shape, TensorDesc
from gecli.ir.weight import Fill, Weight

INLINE_ELEMENTS = 64  # constants up to this size are written out
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*\Z")
_SUBGRAPHS, _INPUT_NAMES, _OUTPUT_NAMES = "subgraphs", "input_names", "output_names"


class TextError(ValueError):
    """The text is not a graph; the message has the line number."""


# ---------------------------------------------------------------- printing


def text(graph: Graph) -> str:
    """The text of a graph, followed by the text of each of its subgraphs."""
    return "".join(_graph_text(each) for each in graph.all_graphs())


def _graph_text(graph: Graph) -> str:
    inputs = graph.inputs
    arguments = ", ".join(f"{_ref(node.out())} : {desc_text(node.output_descs[0])}" for node in inputs)
    lines = [f"graph {_name(graph.name)}({arguments}) {{"]
    for node in graph.nodes():
        if node.type == "NetOutput":
            continue
        if node.type in DATA_TYPES and not node.control_in and node.type == "Data":
            continue
        lines.append(f"  {node_text(node)}")
    output = graph.net_output
    if output is not None:
        returned = ", ".join("_" if port is None else _ref(port) for port in output.inputs)
        lines.append(f"  return {returned}{_after(output)}".rstrip())
    return "\n".join([*lines, "}", ""])


def node_text(node: OpDesc) -> str:
    """One line: results, type, operands, attributes, output descriptors, control predecessors."""
    operands = ", ".join("_" if port is None else _ref(port) for port in node.inputs)
    attrs = dict(node.attrs)
    if node.init_value is not None:
        attrs[INIT_VALUE] = node.init_value
    for key, names in (
        (_SUBGRAPHS, node.subgraphs),
        (_INPUT_NAMES, node.input_names),
        (_OUTPUT_NAMES, node.output_names),
    ):
        if names:
            attrs[key] = tuple(names)
    shown = ", ".join(f"{_key(key)}={_literal(attrs[key])}" for key in sorted(attrs))
    descs = ", ".join(desc_text(desc) for desc in node.output_descs)
    return "".join(
        (
            f"%{_name(node.name)} = " if node.output_descs else f"%{_name(node.name)} : ",
            f"{node.type}({operands})",
            f" {{{shown}}}" if shown else "",
            f" : {descs}" if descs else "",
            _after(node),
        )
    )


def desc_text(desc: TensorDesc) -> str:
    """`f16[36,4,16,16] FRACTAL_Z origin [64,64,3,3] NCHW`"""
    shown = f"{desc.dtype.short}[{_dims(desc.shape)}] {desc.format.name}"
    if desc.origin_shape is None and desc.origin_format is None and desc.origin_dtype is None:
        return shown
    if desc.logical_shape == desc.shape and desc.logical_format == desc.format and desc.origin_dtype is None:
        return shown
    dtype = "" if desc.origin_dtype is None else desc.origin_dtype.short
    return f"{shown} origin {dtype}[{_dims(desc.logical_shape)}] {desc.logical_format.name}"


def _dims(shape: Shape) -> str:
    if shape == UNKNOWN_RANK:
        return "*"
    return ",".join("?" if dim < 0 else str(dim) for dim in shape)


def _after(node: OpDesc) -> str:
    if not node.control_in:
        return ""
    names = sorted(before.name for before in node.control_in)
    return " after " + ", ".join(f"%{_name(name)}" for name in names)


def _ref(port: Port) -> str:
    return f"%{_name(port.node.name)}" + (f":{port.index}" if port.index else "")


def _name(name: str) -> str:
    return name if _PLAIN_NAME.match(name) else json.dumps(name, ensure_ascii=False)


def _key(key: str) -> str:
    return key if _PLAIN_NAME.match(key) else json.dumps(key, ensure_ascii=False)


def _literal(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case DataType():
            return value.serial
        case Format():
            return value.name
        case int():
            return str(int(value))
        case float():
            return repr(value)
        case str():
            return value if _is_format_word(value) else json.dumps(value, ensure_ascii=False)
        case bytes():
            return json.dumps({"bytes": value.hex()})
        case tuple() | list():
            return f"[{', '.join(_literal(each) for each in value)}]"
        case Weight():
            return _weight_literal(value)
        case TensorDesc():
            return json.dumps({"desc": desc_text(value)})
        case NamedAttrs():
            inner = ", ".join(f"{_key(key)}={_literal(value.attrs[key])}" for key in sorted(value.attrs))
            return json.dumps({"func": value.name}) if not inner else json.dumps({"func": value.name, "attrs": inner})
        case RawAttr():
            return json.dumps({"raw": value.kind, "bytes": value.data.hex()})
    raise TypeError(f"attribute value {value!r} has no text form")


def _weight_literal(weight: Weight) -> str:
    if isinstance(weight.source, Fill) and not weight.transforms and weight.source.count > INLINE_ELEMENTS:
        return json.dumps({"fill": weight.source.element.hex()})
    try:
        small = weight.desc.elements <= INLINE_ELEMENTS and weight.desc.dtype.numpy.kind in "biuf"
    except ValueError:
        small = False
    if small:
        return json.dumps(weight.numpy().tolist())
    return json.dumps({"sha256": weight.sha256()})


def _is_format_word(text: str) -> bool:
    if not text.isupper() and text != "C1HWNCoC0":
        return False
    try:
        return Format.parse(text).name == text
    except ValueError:
        return False


# ---------------------------------------------------------------- parsing

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<comment>\#[^\n]*)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<number>-?(?:\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+|inf\b)|nan\b)
    | (?P<word>[A-Za-z_][A-Za-z0-9_./-]*)
    | (?P<mark>[%(){}\[\],:=?*])
    )""",
    re.VERBOSE,
)


def parse(source: str) -> Graph:
    """The graph a text describes; further graphs in the text become its subgraphs. Raises TextError."""
    graphs = _Parser(source).graphs()
    root = graphs[0]
    for sub in graphs[1:]:
        sub.parent = root
        root.add_subgraph(sub)
    return root


def parse_desc(source: str) -> TensorDesc:
    """The descriptor a text such as `f16[1,64] ND` describes. Raises TextError."""
    return _Parser(source).desc()


class _Parser:
    def __init__(self, source: str) -> None:
        self.tokens: list[tuple[str, str, int]] = []
        position, line = 0, 1
        while position < len(source):
            found = _TOKEN.match(source, position)
            if found is None:
                if not source[position:].strip():
                    break
                raise TextError(f"line {line}: cannot read {source[position : position + 20]!r}")
            line += source.count("\n", position, found.start(found.lastgroup or 0))
            if found.lastgroup != "comment":
                self.tokens.append((found.lastgroup or "", found.group(found.lastgroup or 0), line))
            line += source.count("\n", found.start(found.lastgroup or 0), found.end())
            position = found.end()
        self.at = 0

    # -- tokens

    def peek(self, text: str | None = None, ahead: int = 0) -> bool:
        if self.at + ahead >= len(self.tokens):
            return False
        return text is None or self.tokens[self.at + ahead][1] == text

    def next(self) -> tuple[str, str]:
        if self.at >= len(self.tokens):
            raise TextError("the text ends too early")
        kind, text, _ = self.tokens[self.at]
        self.at += 1
        return kind, text

    def accept(self, text: str) -> bool:
        if self.peek(text):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected {text!r}")

    def error(self, message: str) -> TextError:
        line = self.tokens[min(self.at, len(self.tokens) - 1)][2] if self.tokens else 1
        found = repr(self.tokens[self.at][1]) if self.at < len(self.tokens) else "the end"
        return TextError(f"line {line}: {message}, found {found}")

    def name(self) -> str:
        kind, text = self.next()
        if kind == "string":
            return str(json.loads(text))
        if kind in ("word", "number"):
            return text
        self.at -= 1
        raise self.error("expected a name")

    # -- grammar

    def graphs(self) -> list[Graph]:
        found = []
        while self.peek():
            self.expect("graph")
            found.append(self.graph())
        if not found:
            raise TextError("the text holds no graph")
        return found

    def graph(self) -> Graph:
        graph = Graph(self.name())
        pending: list[tuple[OpDesc, list[str | None], list[str]]] = []
        ports: dict[str, tuple[str, int]] = {}
        self.expect("(")
        index = 0
        while not self.accept(")"):
            self.expect("%")
            name = self.name()
            self.expect(":")
            graph.add(OpDesc(name, "Data", attrs={DATA_INDEX: index}, output_descs=[self.desc()]))
            index += 1
            self.accept(",")
        self.expect("{")
        returned: list[str | None] | None = None
        returned_after: list[str] = []
        while not self.accept("}"):
            if self.accept("return"):
                returned = self.operands_until_line_end()
                returned_after = self.control()
            else:
                self.line(graph, pending, ports)
        self._connect(graph, pending, ports)
        if returned is not None:
            output = graph.set_outputs([self._port(graph, ports, ref) for ref in returned if ref is not None])
            for name in returned_after:
                graph.add_control(graph.node(name), output)
        return graph

    def line(
        self,
        graph: Graph,
        pending: list[tuple[OpDesc, list[str | None], list[str]]],
        ports: dict[str, tuple[str, int]],
    ) -> None:
        results = []
        while self.accept("%"):
            results.append(self.name())
            self.accept(",")
        if not self.accept("="):
            self.expect(":")
        type_name = self.name()
        name = results[0] if results else graph.unique_name(type_name)
        for position, alias in enumerate(results[1:], start=1):
            ports[alias] = (name, position)
        self.expect("(")
        operands: list[str | None] = []
        while not self.accept(")"):
            operands.append(self.operand())
            self.accept(",")
        attrs = self.attrs() if self.accept("{") else {}
        descs = []
        if self.accept(":"):
            descs.append(self.desc())
            while self.accept(","):
                descs.append(self.desc())
        if results and not descs:  # left to shape inference
            descs = [TensorDesc(DataType.UNDEFINED, UNKNOWN_RANK)] * len(results)
        node = OpDesc(name, type_name, output_descs=descs)
        node.subgraphs = list(attrs.pop(_SUBGRAPHS, ()))
        node.input_names = attrs.pop(_INPUT_NAMES, None)
        node.output_names = attrs.pop(_OUTPUT_NAMES, None)
        _attach_weights(node, attrs)
        node.attrs = attrs
        graph.add(node)
        pending.append((node, operands, self.control()))

    def operand(self) -> str | None:
        if self.peek("_"):
            self.next()
            return None
        self.expect("%")
        name = self.name()
        if self.peek(":") and self.at + 1 < len(self.tokens) and self.tokens[self.at + 1][1].isdecimal():
            self.expect(":")
            return f"{name}\0{self.next()[1]}"
        return name

    def operands_until_line_end(self) -> list[str | None]:
        operands: list[str | None] = []
        while self.peek("%") or self.peek("_"):
            operands.append(self.operand())
            if not self.accept(","):
                break
        return operands

    def control(self) -> list[str]:
        names: list[str] = []
        if self.accept("after"):
            self.expect("%")
            names.append(self.name())
            while self.accept(","):
                self.expect("%")
                names.append(self.name())
        return names

    def attrs(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self.accept("}"):
            key = self.name()
            self.expect("=")
            found[key] = self.literal()
            self.accept(",")
        return found

    def literal(self) -> Any:
        if self.accept("["):
            items = []
            while not self.accept("]"):
                items.append(self.literal())
                self.accept(",")
            return tuple(items)
        if self.accept("{"):
            members: dict[str, Any] = {}
            while not self.accept("}"):
                key = self.name()
                self.expect(":")
                members[key] = self.literal()
                self.accept(",")
            return _from_members(members)
        kind, token = self.next()
        if kind == "string":
            return str(json.loads(token))
        if kind == "number":
            return int(token) if re.fullmatch(r"-?\d+", token) else float(token)
        if token in ("true", "false"):
            return token == "true"
        if token.startswith("DT_") or token in ("f16", "f32", "bf16"):
            return DataType.parse(token)
        return token

    def desc(self) -> TensorDesc:
        dtype, shape = self.dtype(), self.dims()
        fmt = self.format_or(Format.ND)
        if not self.accept("origin"):
            return TensorDesc(dtype, shape, _with_c0(fmt, shape))
        origin_dtype = None if self.peek("[") else self.dtype()
        origin_shape = self.dims()
        origin_format = self.format_or(Format.ND)
        return TensorDesc(dtype, shape, _with_c0(fmt, shape), origin_shape, origin_format, origin_dtype)

    def dtype(self) -> DataType:
        token = self.name()
        try:
            return DataType.parse(token)
        except ValueError as err:
            self.at -= 1
            raise self.error(str(err)) from err

    def dims(self) -> Shape:
        self.expect("[")
        dims: list[int] = []
        while not self.accept("]"):
            kind, token = self.next()
            if token == "*":
                self.expect("]")
                return UNKNOWN_RANK
            if token == ",":
                continue
            dims.append(int(token) if kind == "number" else -1)
        return tuple(dims)

    def format_or(self, default: Format) -> Format:
        if (
            not self.peek()
            or self.tokens[self.at][0] != "word"
            or self.tokens[self.at][1] in ("origin", "after", "return")
        ):
            return default
        token = self.name()
        if self.peek(":") and self.at + 1 < len(self.tokens) and self.tokens[self.at + 1][1].isdecimal():
            self.expect(":")
            token = f"{token}:{self.next()[1]}"
        try:
            return Format.parse(token)
        except ValueError as err:
            self.at -= 1
            raise self.error(str(err)) from err

    # -- connecting

    def _port(self, graph: Graph, ports: dict[str, tuple[str, int]], ref: str) -> Port:
        name, _, index = ref.partition("\0")
        if name in ports and not index:
            name, index = ports[name][0], str(ports[name][1])
        node = graph.get(name)
        if node is None:
            raise TextError(f"graph {graph.name!r} has no node {name!r}")
        return Port(node, int(index or 0))

    def _connect(
        self,
        graph: Graph,
        pending: list[tuple[OpDesc, list[str | None], list[str]]],
        ports: dict[str, tuple[str, int]],
    ) -> None:
        for node, operands, control in pending:
            for slot, ref in enumerate(operands):
                if ref is None:
                    node.inputs.append(None)
                    node.input_descs.append(None)
                    continue
                port = self._port(graph, ports, ref)
                graph.connect(port, node, slot)
                node.input_descs[slot] = _bare(port.desc)
            for name in control:
                graph.add_control(graph.node(name), node)


def _bare(desc: TensorDesc) -> TensorDesc:
    return replace(desc, attrs={}) if desc.attrs else desc


def _with_c0(fmt: Format, shape: Shape) -> Format:
    if fmt.is_origin or fmt.c0 or not shape or shape[-1] not in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        return fmt
    return fmt.with_c0(shape[-1])


def _attach_weights(node: OpDesc, attrs: dict[str, Any]) -> None:
    """Tensor literals get the node's first output descriptor."""
    if VALUE in attrs and node.type in CONST_TYPES and node.output_descs:
        attrs[VALUE] = _weight(attrs[VALUE], node.output_descs[0])
    if INIT_VALUE in attrs and node.output_descs:
        node.set_init_value(_weight(attrs.pop(INIT_VALUE), node.output_descs[0]))


def _weight(literal: Any, desc: TensorDesc) -> Weight:
    import numpy as np

    if isinstance(literal, Fill):
        return Weight(desc, replace(literal, count=desc.elements))
    if isinstance(literal, str):
        raise TextError(f"the data of a constant are left out (sha256 {literal})")
    return Weight.of(np.array(literal).astype(desc.dtype.numpy).reshape(desc.shape), desc)


def _from_members(members: dict[str, Any]) -> Any:
    if "fill" in members:
        return Fill(bytes.fromhex(str(members["fill"])), 0)
    if "sha256" in members:
        return str(members["sha256"])
    if "raw" in members:
        return RawAttr(str(members["raw"]), bytes.fromhex(str(members["bytes"])))
    if "bytes" in members:
        return bytes.fromhex(str(members["bytes"]))
    if "desc" in members:
        return parse_desc(str(members["desc"]))
    if "func" in members:
        inner = _Parser(str(members.get("attrs", "")) + "}").attrs()
        return NamedAttrs(str(members["func"]), inner)
    raise TextError(f"no attribute kind has the members {sorted(members)}")
