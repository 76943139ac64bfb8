"""What chooses a branch, as an expression over sizes and small values of the inputs (cache.md 9.6, 9.7).

`Expressions` follows the nodes that compute a condition back to the inputs. What it cannot follow it leaves alone: then
the branch stays in the graph, and running decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from gecli.ir.attributes import CONST_TYPES, VALUE
from gecli.ir.calls import IF_TYPES
from gecli.ir.dtype import DataType
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import UNKNOWN_RANK
from gecli.jit.guard import MAX_VALUES, GuardError, evaluated

Array = NDArray[Any]
Expression = int | str | tuple[Any, ...]
Dims = tuple[Expression | None, ...]  # of a tensor; None for one of which nothing is known

VALUE_TYPES = frozenset((DataType.INT32, DataType.INT64, DataType.UINT32, DataType.UINT64))
MAX_DEPTH = 40  # nodes between an input and a condition; an expression in a guard is not deeper than 64
MAX_SIZE = 500  # numbers and words in one expression
SAME_ELEMENTS = frozenset(("Identity", "Reshape", "Squeeze", "SqueezeV2", "Unsqueeze", "UnsqueezeV2"))
SAME_SHAPE = frozenset((
    "Abs", "Cast", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log",
    "LogicalNot", "Neg", "Relu", "Relu6", "Sigmoid", "Softplus", "Sqrt", "Swish", "Tanh",
))  # fmt: skip
BROADCAST = frozenset(("Add", "Sub", "Mul", "Div", "RealDiv", "Maximum", "Minimum", "Pow"))
COMPARED = {
    "Equal": ("eq", False), "NotEqual": ("ne", False), "Less": ("lt", False), "LessEqual": ("le", False),
    "Greater": ("lt", True), "GreaterEqual": ("le", True),
}  # fmt: skip
JOINED = {"LogicalAnd": "and", "LogicalOr": "or"}
COMPUTED = {"Add": "add", "Sub": "sub", "Mul": "mul", "Maximum": "max", "Minimum": "min"}
QUOTIENTS = frozenset(("Div", "RealDiv", "TruncateDiv", "FloorDiv"))
REMAINDERS = frozenset(("FloorMod", "Mod"))
NEGATED = {"eq": "ne", "ne": "eq"}
TURNED = {"lt": "le", "le": "lt"}  # not a < b is b <= a


class Symbols:
    """Names for numbers of the inputs, in the order in which somebody asked for them."""

    def __init__(self) -> None:
        self.sources: dict[str, Mapping[str, Any]] = {}
        self._names: dict[tuple[Any, ...], str] = {}

    def of(self, source: str, index: int, **place: int) -> str:
        key = (source, index, *place.values())
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"s{len(self.sources)}"
            self.sources[name] = {"source": source, "input": index, **place}
        return name

    def forget(self, count: int) -> None:
        """Take back what was named after the first `count`."""
        for key, name in list(self._names.items())[count:]:
            del self._names[key], self.sources[name]

    def __len__(self) -> int:
        return len(self.sources)


class Numbers(NamedTuple):
    """The elements of a tensor of at most one dim; None for one of which nothing is known."""

    elements: tuple[Expression | None, ...]
    is_vector: bool


class Expressions:
    """The conditions of one graph, for `arrays` as its inputs. Without `with_values` only sizes are known."""

    def __init__(
        self, inputs: Sequence[OpDesc], arrays: Sequence[Array], symbols: Symbols, *, with_values: bool = True
    ) -> None:
        self._inputs = {node: index for index, node in enumerate(inputs)}
        self._arrays = arrays
        self._symbols = symbols
        self._with_values = with_values
        self._sides: list[Expression] = []  # what must hold for the nodes to compute the numbers of the expression
        self._memo: dict[Port, Numbers | None] = {}
        self._dims_memo: dict[Port, Dims | None] = {}

    def branch(self, choice: OpDesc) -> tuple[int, list[Expression]] | None:
        """The branch that a choice takes, and the checks under which it does; None when they cannot be told."""
        port = choice.inputs[0] if choice.inputs else None
        if port is None:
            return None
        count = len(self._symbols)
        self._sides = []
        self._memo, self._dims_memo = {}, {}
        try:
            condition = self._condition(port)
            if condition is not None:
                branch, check = _taken(choice, condition, int(self._value(condition)))
                checks = [*dict.fromkeys(self._sides), check]
                if all(self._value(each) for each in checks):
                    return branch, [each for each in checks if not isinstance(each, int)]
        except (GuardError, ArithmeticError, ValueError):
            pass  # too large, or not finite: left alone like what cannot be followed
        self._symbols.forget(count)
        return None

    def _value(self, expression: Expression) -> Any:
        return evaluated(expression, self._symbols.sources, self._arrays)

    def _condition(self, port: Port) -> Expression | None:
        index = self._inputs.get(port.node)
        if index is not None and self._gives_values(port.node, index) and self._arrays[index].size == 1:
            return self._symbols.of("cond", index)
        found = self._numbers(port, 0)
        return found.elements[0] if found is not None and len(found.elements) == 1 else None

    def _numbers(self, port: Port, depth: int) -> Numbers | None:
        if port not in self._memo:
            self._memo[port] = None if depth > MAX_DEPTH or port.index else self._followed(port.node, depth)
        return self._memo[port]

    def _followed(self, node: OpDesc, depth: int) -> Numbers | None:
        if node in self._inputs:
            return self._input(node)
        if node.type in CONST_TYPES:
            return _constant(node)
        before = node.inputs
        if not before or any(each is None for each in before):
            return None
        first = before[0]
        assert first is not None
        match node.type:
            case "Shape" | "Size":
                return self._sizes(node, first, depth)
            case "Cast":
                return self._cast(node, first, depth)
            case "LogicalNot":
                return self._mapped(first, lambda each: _not(each), depth)
            case "ConcatD":
                return self._joined(node, depth)
            case "GatherV2" | "GatherV2D" | "Gather":
                return self._picked(node, depth)
            case "StridedSliceV2":
                return self._part(node, depth)
            case "ReduceSum" | "ReduceSumD":
                return self._sum(node, first, depth)
        if node.type in SAME_ELEMENTS:
            return self._reshaped(node, first, depth)
        return self._binary(node, depth) if len(before) == 2 else None

    # ------------------------------------------------------------------ where numbers come from

    def _input(self, node: OpDesc) -> Numbers | None:
        index = self._inputs[node]
        array = self._arrays[index]
        if not self._gives_values(node, index):
            return None
        names = tuple(self._symbols.of("value", index, elem=elem) for elem in range(array.size))
        return Numbers(names, array.ndim == 1)

    def _gives_values(self, node: OpDesc, index: int) -> bool:
        desc, array = node.output_descs[0], self._arrays[index]
        is_small = desc.is_static and array.ndim <= 1 and 0 < array.size <= MAX_VALUES
        return self._with_values and is_small and (desc.dtype in VALUE_TYPES or desc.dtype is DataType.BOOL)

    def _sizes(self, node: OpDesc, first: Port, depth: int) -> Numbers | None:
        dims = self._dims(first, depth)
        if dims is None:
            return None
        dtype = node.output_descs[0].dtype
        if node.type == "Shape":
            if dtype is not DataType.INT64:  # which holds every size that a tensor can have
                dims = tuple(self._bounded(dim, dtype) for dim in dims)
            return Numbers(dims, is_vector=True)
        known = [dim for dim in dims if dim is not None]
        if len(known) < len(dims):
            return None
        return Numbers((self._bounded(_made("mul", *known) if known else 1, dtype),), is_vector=False)

    def _dims(self, port: Port, depth: int) -> Dims | None:
        """The sizes of a tensor; those that inference does not know from the sizes of what its node reads."""
        desc, node = port.desc, port.node
        if desc.shape == UNKNOWN_RANK:
            return None
        if desc.is_static:
            return tuple(desc.shape)
        if port not in self._dims_memo:
            index = self._inputs.get(node)
            if index is not None:
                found: Dims | None = tuple(
                    dim if dim >= 0 else self._symbols.of("shape", index, dim=axis)
                    for axis, dim in enumerate(desc.shape)
                )
            else:
                found = None if port.index or depth > MAX_DEPTH else self._dims_behind(node, depth)
            if found is None or len(found) != len(desc.shape):
                found = (None,) * len(desc.shape)
            self._dims_memo[port] = tuple(
                dim if dim >= 0 else other for dim, other in zip(desc.shape, found, strict=True)
            )
        return self._dims_memo[port]

    def _dims_behind(self, node: OpDesc, depth: int) -> Dims | None:
        """The sizes of what a node gives, from those of what it reads."""
        ports = node.data_inputs
        if node.type in SAME_SHAPE:
            return self._dims(ports[0], depth + 1) if ports else None
        rule = _SIZES.get(node.type, _broadcast if node.type in BROADCAST else None)
        if rule is None:
            return None
        given = [self._dims(port, depth + 1) for port in ports]
        if not given or any(each is None for each in given):
            return None
        return rule(node, [each for each in given if each is not None], self._sides)

    # ------------------------------------------------------------------ what nodes make of them

    def _cast(self, node: OpDesc, first: Port, depth: int) -> Numbers | None:
        source, target = first.desc.dtype, node.output_descs[0].dtype
        if not (_is_whole(source) and _is_whole(target)):
            return None
        if target is DataType.BOOL and source is not DataType.BOOL:
            return self._mapped(first, lambda each: _made("ne", each, 0), depth)
        return self._mapped(first, lambda each: self._bounded(each, target), depth)

    def _mapped(self, first: Port, change: Callable[[Expression], Expression | None], depth: int) -> Numbers | None:
        found = self._numbers(first, depth + 1)
        if found is None:
            return None
        return Numbers(tuple(None if each is None else change(each) for each in found.elements), found.is_vector)

    def _reshaped(self, node: OpDesc, first: Port, depth: int) -> Numbers | None:
        found, rank = self._numbers(first, depth + 1), node.output_descs[0].rank
        return None if found is None or rank is None or rank > 1 else Numbers(found.elements, rank == 1)

    def _joined(self, node: OpDesc, depth: int) -> Numbers | None:
        elements: list[Expression | None] = []
        for port in node.data_inputs:
            found = self._numbers(port, depth + 1)
            if found is None or not found.is_vector:
                return None
            elements += found.elements
        return Numbers(tuple(elements), is_vector=True)

    def _picked(self, node: OpDesc, depth: int) -> Numbers | None:
        axis = 0 if node.type == "Gather" else node.attrs.get("axis", 0)
        ports = node.data_inputs
        if len(ports) == 3:
            axes = _whole_numbers(self._numbers(ports[2], depth + 1))
            axis = axes[0] if axes is not None and len(axes) == 1 else None
        source, at = self._numbers(ports[0], depth + 1), self._numbers(ports[1], depth + 1)
        places = _whole_numbers(at)
        if source is None or at is None or places is None or axis != 0 or node.attrs.get("batch_dims"):
            return None
        if not source.is_vector or not all(0 <= place < len(source.elements) for place in places):
            return None
        return Numbers(tuple(source.elements[place] for place in places), at.is_vector)

    def _part(self, node: OpDesc, depth: int) -> Numbers | None:
        found = [self._numbers(port, depth + 1) for port in node.data_inputs]
        bounds = [_whole_numbers(each) for each in found[1:]]
        if found[0] is None or not found[0].is_vector or len(bounds) < 2 or node.attrs:
            return None
        begin, end, axis, step = (bounds + [(0,), (1,)][len(bounds) - 2 :])[:4]
        if not all(each is not None and len(each) == 1 for each in (begin, end, axis, step)):
            return None
        assert begin is not None and end is not None and axis is not None and step is not None
        if axis[0] not in (0, -1) or step[0] <= 0:
            return None
        return Numbers(found[0].elements[begin[0] : end[0] : step[0]], is_vector=True)

    def _sum(self, node: OpDesc, first: Port, depth: int) -> Numbers | None:
        """The sum of all elements; of an input one number, however many elements it has."""
        target, rank = node.output_descs[0], first.desc.rank
        ports = node.data_inputs
        axes = node.attrs.get("axes") if len(ports) == 1 else _whole_numbers(self._numbers(ports[1], depth + 1))
        if rank is None or target.rank not in (0, 1) or target.dtype not in VALUE_TYPES or not isinstance(axes, tuple):
            return None
        if rank == 0 or {axis % rank for axis in axes} != set(range(rank)):
            return None
        index = self._inputs.get(first.node)
        if index is not None and self._with_values and 0 < self._arrays[index].size <= MAX_VALUES:
            total: Expression = self._symbols.of("value_sum", index)
        else:
            found = self._numbers(first, depth + 1)
            known = [] if found is None else [each for each in found.elements if each is not None]
            if found is None or not known or len(known) < len(found.elements):
                return None
            total = _made("add", *known)
        bounded = self._bounded(total, target.dtype)
        return None if bounded is None else Numbers((bounded,), target.rank == 1)

    def _binary(self, node: OpDesc, depth: int) -> Numbers | None:
        a, b = (self._numbers(port, depth + 1) for port in node.data_inputs)
        dtypes = [port.desc.dtype for port in node.data_inputs]
        if a is None or b is None or not all(map(_is_whole, dtypes)):
            return None
        size = max(len(a.elements), len(b.elements))
        if not {len(a.elements), len(b.elements)} <= {1, size} or not size:
            return None
        pairs = zip(a.elements * (size // len(a.elements)), b.elements * (size // len(b.elements)))
        made = [None if x is None or y is None else self._operation(node, x, y) for x, y in pairs]
        return Numbers(tuple(made), a.is_vector or b.is_vector)

    def _operation(self, node: OpDesc, x: Expression, y: Expression) -> Expression | None:
        dtype = node.output_descs[0].dtype
        if node.type in COMPARED:
            word, is_turned = COMPARED[node.type]
            return _made(word, y, x) if is_turned else _made(word, x, y)
        if node.type in JOINED:
            return _made(JOINED[node.type], x, y)
        if dtype is DataType.BOOL:
            return None
        if node.type in COMPUTED:
            return self._bounded(_made(COMPUTED[node.type], x, y), dtype)
        if node.type not in QUOTIENTS | REMAINDERS or not isinstance(y, int) or y <= 0:
            return None
        self._sides.append(_made("le", 0, x))  # then rounding down and toward zero are the same
        if node.type in REMAINDERS:
            return _made("mod", x, y)
        return _made("floor", ("div", x, y))

    def _bounded(self, number: Expression | None, dtype: DataType) -> Expression | None:
        """The number, with the condition that `dtype` holds it: numbers of a guard do not wrap around."""
        if number is None or dtype is DataType.BOOL or _is_truth(number):
            return number
        if isinstance(number, str) and dtype is DataType.INT64 and self._symbols.sources[number]["source"] == "shape":
            return number
        import numpy as np

        info = np.iinfo(dtype.numpy)
        if isinstance(number, int):
            return number if info.min <= number <= info.max else None
        self._sides += [_made("le", int(info.min), number), _made("le", number, int(info.max))]
        return number


def _taken(choice: OpDesc, condition: Expression, value: int) -> tuple[int, Expression]:
    """The branch for a value of the condition, and the check that this branch is the one."""
    if choice.type in IF_TYPES:
        return (0, _is_true(condition)) if value else (1, _not(condition))
    last = len(choice.subgraphs) - 1
    if value < 0:
        return last, _made("lt", condition, 0)
    return (value, _made("eq", condition, value)) if value <= last else (last, _made("le", last + 1, condition))


def _is_true(condition: Expression) -> Expression:
    return condition if _is_truth(condition) else _made("ne", condition, 0)


def _not(condition: Expression) -> Expression:
    if isinstance(condition, tuple) and condition[0] in NEGATED:
        return _made(NEGATED[condition[0]], *condition[1:])
    if isinstance(condition, tuple) and condition[0] in TURNED:
        return _made(TURNED[condition[0]], condition[2], condition[1])
    if isinstance(condition, tuple) and condition[0] == "not":
        return _is_true(condition[1])
    return _made("not", condition) if _is_truth(condition) else _made("eq", condition, 0)


def _is_truth(condition: Expression) -> bool:
    return isinstance(condition, tuple) and condition[0] in ("eq", "ne", "lt", "le", "and", "or", "not")


def _made(word: str, *arguments: Expression) -> Expression:
    """An expression; one of numbers alone is their result. Raises GuardError for one that is too large."""
    if _size(arguments) > MAX_SIZE:
        raise GuardError("the expression is too large")
    if all(isinstance(each, int) for each in arguments):
        value = evaluated((word, *arguments), {}, ())
        if value == int(value):
            return int(value)
    return (word, *arguments)


def _size(arguments: Sequence[Expression]) -> int:
    """How many numbers and words there are; a little more than MAX_SIZE stands for any more."""
    size = 0
    waiting = list(arguments)
    while waiting and size <= MAX_SIZE:
        each = waiting.pop()
        size += 1
        if isinstance(each, tuple):
            waiting += each[1:]
    return size


def _constant(node: OpDesc) -> Numbers | None:
    weight = node.attrs.get(VALUE)
    if weight is None or not _is_whole(weight.desc.dtype) or len(weight.desc.shape) > 1:
        return None
    if weight.desc.elements > MAX_VALUES:
        return None
    return Numbers(tuple(int(each) for each in weight.numpy().reshape(-1)), len(weight.desc.shape) == 1)


def _whole_numbers(found: Numbers | None) -> tuple[int, ...] | None:
    if found is None:
        return None
    numbers = tuple(each for each in found.elements if isinstance(each, int))
    return numbers if len(numbers) == len(found.elements) else None


def _is_whole(dtype: DataType) -> bool:
    return dtype in VALUE_TYPES or dtype is DataType.BOOL


def _broadcast(node: OpDesc, given: list[Dims], sides: list[Expression]) -> Dims | None:
    """The sizes of a result of two tensors, of which one may be repeated along axes of size 1."""
    rank = max(map(len, given))
    found = []
    for sizes in zip(*((1,) * (rank - len(dims)) + dims for dims in given), strict=True):
        others = [size for size in dict.fromkeys(sizes) if size != 1]
        fixed = [size for size in others if isinstance(size, int)]
        found.append(fixed[0] if fixed else others[0] if len(others) == 1 else None if others else 1)
    return tuple(found)


def _concatenated(node: OpDesc, given: list[Dims], sides: list[Expression]) -> Dims | None:
    rank, axis = len(given[0]), node.attrs.get("concat_dim")
    if type(axis) is not int or not -rank <= axis < rank or any(len(dims) != rank for dims in given):
        return None
    along = [dims[axis] for dims in given]
    known = [size for size in along if size is not None]
    result = [next((size for size in sizes if size is not None), None) for sizes in zip(*given, strict=True)]
    result[axis] = _made("add", *known) if len(known) == len(along) else None
    return tuple(result)


def _transposed(node: OpDesc, given: list[Dims], sides: list[Expression]) -> Dims | None:
    order = node.attrs.get("perm")
    if not isinstance(order, tuple) or sorted(order) != list(range(len(given[0]))):
        return None
    return tuple(given[0][axis] for axis in order)


def _convolved(node: OpDesc, given: list[Dims], sides: list[Expression]) -> Dims | None:
    """Batch, height and width behind a Conv2D; the channels are known to inference."""
    from gecli.ops.conv_kernels import filter_layout

    form, same = str(node.attrs.get("data_format", "NHWC")), str(node.attrs.get("auto_pad", ""))
    layout = filter_layout(node.data_inputs[1].desc, form)
    strides, pads, dilations = (_of_four(node, name) for name in ("strides", "pads", "dilations"))
    if not strides or not pads or not dilations or any(len(each) != 4 for each in (form, layout, *given[:2])):
        return None
    result: list[Expression | None] = [None] * 4
    result[form.index("N")] = given[0][form.index("N")]
    for axis, pad in (("H", pads[0] + pads[1]), ("W", pads[2] + pads[3])):
        place = form.index(axis)
        size, kernel, stride = given[0][place], given[1][layout.index(axis)], strides[place]
        if size is None or not isinstance(kernel, int):
            continue
        if same.startswith("SAME") or min(pads) < 0:  # GE writes pads of -1 for it
            more = stride - 1
        else:
            more = (0 if same == "VALID" else pad) - dilations[place] * (kernel - 1) - 1 + stride
        count = _made("floor", _made("div", _made("add", size, more), stride))
        sides.append(_made("le", 1, count))
        result[place] = count
    return tuple(result)


def _of_four(node: OpDesc, name: str) -> tuple[int, ...]:
    """An attribute of four numbers; empty when it is none."""
    value = node.attrs.get(name, (1, 1, 1, 1))
    return value if isinstance(value, tuple) and len(value) == 4 else ()


_SIZES: dict[str, Callable[[OpDesc, list[Dims], list[Expression]], Dims | None]] = {
    "ConcatD": _concatenated,
    "Conv2D": _convolved,
    "TransposeD": _transposed,
}
