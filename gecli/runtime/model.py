"""A loaded model: its interface, its program, its variables; `run` executes it once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gecli.errors import CompileError, Diagnostic, GecliError, InputError, RuntimeFault
from gecli.ir.calls import CONTROL_TYPES
from gecli.ir.dtype import DataType
from gecli.ir.op_desc import OpDesc
from gecli.layout.transfer_error import TransferError
from gecli.ops.registry import find, operator_of
from gecli.records import dataclass
from gecli.runtime.dynamic import DynamicExecutor
from gecli.runtime.interface import UNBOUNDED, Tensor
from gecli.runtime.operands import Operand
from gecli.runtime.program import Program, Watch
from gecli.runtime.variable_store import Form, VariableStore

if TYPE_CHECKING:
    from gecli.runtime.beside_variables import Beside
    from gecli.runtime.file_constants import FileUse

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Times:
    """Nanoseconds of one run: copying inputs in, computing, copying outputs out."""

    h2d_ns: int
    compute_ns: int
    d2h_ns: int

    @property
    def total_ns(self) -> int:
        return self.h2d_ns + self.compute_ns + self.d2h_ns


@dataclass(slots=True)
class BoundVariable:
    """A variable as this model uses it: its form, who reads it first, who writes it."""

    name: str
    form: Form
    first_reader: str = ""
    writer: str = ""


@dataclass(slots=True)
class LoadedModel:
    """One OM in memory, ready to run any number of times.

    Static models have a `program` over planned memory, dynamic ones an `executor`.
    """

    name: str
    path: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attrs: dict[str, Any]
    store: VariableStore
    variables: list[BoundVariable]
    init: str
    program: Program | None = None
    executor: DynamicExecutor | None = None
    graph: Any = None
    load_ns: int = 0
    memory_bytes: int = 0
    weight_bytes: int = 0
    weight_files: list[FileUse] = field(default_factory=list)
    placeholders: tuple[str, ...] = ()  # names of its ConstPlaceHolder nodes
    constants: tuple[Beside, ...] = ()  # those that lie among the variables

    @property
    def written(self) -> list[str]:
        """The variables that a run changes."""
        return [variable.name for variable in self.variables if variable.writer]

    def run(self, feeds: Mapping[str, Array], watch: Watch | None = None) -> tuple[dict[str, Array], Times]:
        """The outputs for these inputs, by name, and the times. Raises RuntimeFault for inputs that do not fit.

        `watch` is told after every node, and makes the run slower.
        """
        arrays = [check_input(tensor, feeds) for tensor in self.inputs]
        self._prepare_variables()
        try:
            with np.errstate(all="ignore"):
                outputs, times = self._run_static(arrays, watch) if self.program else self._run_dynamic(arrays, watch)
        except TransferError as error:
            raise no_transfer(error, self.path) from error
        return outputs, times

    def _run_static(self, arrays: list[Array], watch: Watch | None) -> tuple[dict[str, Array], Times]:
        assert self.program is not None
        operands = self.program.operands
        start = perf_counter_ns()
        for tensor, array in zip(self.inputs, arrays):
            np.copyto(operands[tensor.port].array, array)
        copied = perf_counter_ns()
        if watch is None:
            self.program.run()
        else:
            self.program.run_watched(watch)
        computed = perf_counter_ns()
        for variable in self.variables:
            if variable.writer:
                self.store.mark_written(variable.name, f"node {variable.writer}")
        outputs = {tensor.name: _logical_copy(operands[tensor.port]) for tensor in self.outputs}
        return outputs, Times(copied - start, computed - copied, perf_counter_ns() - computed)

    def _run_dynamic(self, arrays: list[Array], watch: Watch | None) -> tuple[dict[str, Array], Times]:
        assert self.executor is not None
        start = perf_counter_ns()
        feeds = {tensor.name: array for tensor, array in zip(self.inputs, arrays)}
        self.executor.watch = watch
        values = self.executor.run(self.graph, feeds)
        computed = perf_counter_ns()
        outputs = {tensor.name: np.array(value) for tensor, value in zip(self.outputs, values)}
        return outputs, Times(0, computed - start, perf_counter_ns() - computed)

    def _prepare_variables(self) -> None:
        for variable in self.variables:
            self.store.activate(variable.name, variable.form, is_written=bool(variable.writer))
            if variable.first_reader:
                self.store.require_value(variable.name, self.init, variable.first_reader)


def check_input(tensor: Tensor, feeds: Mapping[str, Array]) -> Array:
    """The value for one input. Raises RuntimeFault when it is missing or has another type or shape."""
    array = feeds.get(tensor.name)
    if array is None:
        raise RuntimeFault(
            "E13025",
            f"no value for the input {tensor.name!r}",
            why=f"it is {tensor.desc}",
            do=f"-i {tensor.name}=FILE.npy",
            kind="RT_INPUT_SIZE",
        )
    array = np.asarray(array)
    if not array.dtype.isnative:  # the same type in the other byte order
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype != tensor.dtype.numpy:
        raise RuntimeFault(
            "E13025",
            f"the value for input {tensor.name!r} has the wrong data type",
            why=f"expected {tensor.dtype.numpy.name}, got {array.dtype.name}",
            do="--cast converts inputs",
            kind="RT_INPUT_SIZE",
            expected=tensor.dtype.numpy.name,
            actual=array.dtype.name,
        )
    if not tensor.admits(array.shape):
        raise RuntimeFault(
            "G4001",
            f"the value for input {tensor.name!r} has the wrong shape",
            why=f"expected {tensor.sizes}, got {list(array.shape)}{_layout_hint(tensor, array)}",
            do=_shape_cure(tensor),
            kind="RT_SHAPE_RANGE",
            expected=list(tensor.shape),
            actual=list(array.shape),
        )
    return array


def _shape_cure(tensor: Tensor) -> str:
    """What to give, in words: `an array of shape [N,3] (N any size)`."""
    if not tensor.shape:
        return f"give one value: -i {tensor.name}=VALUE"
    letters = iter("NMKLPQRSTUVW")
    dims = [str(dim) if dim >= 0 else next(letters, "?") for dim in tensor.shape]
    free = [dim for axis, dim in enumerate(dims) if not dim.isdecimal() and tensor.range_of(axis) is None]
    notes = [f"{', '.join(free)} any size"] if free else []
    for axis, dim in enumerate(dims):
        if bounds := tensor.range_of(axis):
            notes.append(f"{dim} from {bounds[0]}" + (f" to {bounds[1]}" if bounds[1] != UNBOUNDED else ""))
    return f"give an array of shape [{','.join(dims)}]" + (f" ({'; '.join(notes)})" if notes else "")


def _layout_hint(tensor: Tensor, array: Array) -> str:
    if sorted(tensor.shape) != sorted(array.shape):
        return ""
    if array.ndim == 4 and tuple(np.transpose(array, (0, 3, 1, 2)).shape) == tensor.shape:
        return f"; the data look like NHWC: --transpose {tensor.name}:0,3,1,2"
    return "; the dims agree in another order"


def _logical_copy(operand: Operand) -> Array:
    from gecli.runtime.operands import is_blocked, to_logical

    if operand.is_logical or not is_blocked(operand.desc):
        return operand.array.copy()
    return to_logical(operand.array, operand.desc)


def no_transfer(error: TransferError, path: str) -> InputError:
    """The error for descriptors of a file between which nothing can be converted."""
    first = error.first
    return InputError(
        "G4011",
        f"{path}: a tensor cannot be brought into the form that the model asks for",
        where=first.where,
        why=f"{first.message}: {first.why}" if first.why else first.message,
        do="compile the model again; the file does not agree with itself",
        kind="RT_TRANS_UNSUPPORTED",
        file=path,
    )


def require_supported(nodes: list[OpDesc], path: str) -> None:
    """Raises InputError G1005 that lists every operator type the simulator cannot execute."""
    if any(_without_kernel(node) for node in nodes) or (_has_raw(nodes) and any(_raw_fault(node) for node in nodes)):
        raise unsupported(nodes, path)


def _has_raw(nodes: list[OpDesc]) -> bool:
    """Whether a node makes elements that only their bits stand for: where none does, none can be computed with."""
    raw, handle, variant = DataType.HIFLOAT8, DataType.RESOURCE, DataType.VARIANT
    for node in nodes:
        for desc in node.output_descs:
            dtype = desc.dtype  # hashing an enumeration would take longer
            if dtype is raw or dtype is handle or dtype is variant:
                return True
    return False


def _raw_fault(node: OpDesc) -> str:
    from gecli.ops.raw_types import raw_fault

    return raw_fault(node)


def cannot_be_executed(node: OpDesc) -> bool:
    """Whether the type has no kernel, or the attributes are not those that it needs."""
    return _without_kernel(node) or bool(_unreadable(node))


def _without_kernel(node: OpDesc) -> bool:
    kind = find(node.type)
    return kind is None or (not hasattr(kind.cls, "kernel") and node.type not in _WITHOUT_KERNEL)


def unsupported(nodes: list[OpDesc], path: str) -> GecliError:
    """The error for a model with operators that cannot be executed: all of them, and why each.

    Operators of other compilers may have a known type and lack the attributes it needs (fused ones do).
    """
    unknown: dict[str, list[str]] = {}
    reasons: dict[str, str] = {}
    for node in nodes:
        reason = (
            "the simulator has no kernel for this type"
            if _without_kernel(node)
            else _unreadable(node) or _raw_fault(node)
        )
        if reason:
            unknown.setdefault(node.type, []).append(node.name)
            reasons.setdefault(node.type, reason)
    summary = Diagnostic(
        "G1005",
        f"{len(unknown)} operator type{'s' if len(unknown) > 1 else ''} of this model cannot be executed",
        where=path,
        why=", ".join(f"{name} ({len(names)}x)" for name, names in sorted(unknown.items())),
        do="inspect-om shows the model; run needs one that gecli compiled",
        kind="RT_OP_UNSUPPORTED",
        file=path,
    )
    each = [
        Diagnostic(
            "E13010",
            f"operator type {name!r} cannot be executed",
            where=f"{len(names)} node{'s' if len(names) > 1 else ''}, the first is {names[0]!r}",
            why=reasons[name],
            do=f"gecli inspect-om {path} --nodes --type {name} shows the nodes",
            node=names[0],
            kind="RT_OP_UNSUPPORTED",
        )
        for name, names in sorted(unknown.items())
    ]
    return GecliError.of([summary, *each])


def _unreadable(node: OpDesc) -> str:
    """Why the attributes of a node of a known type are not usable; empty when they are."""
    if node.type in _WITHOUT_KERNEL:
        return ""
    try:
        operator_of(node)
    except CompileError as error:
        return f"its attributes are not those of the type: {error.first.why or error.first.message}"
    return ""


# Types that the executors handle themselves.
_WITHOUT_KERNEL = CONTROL_TYPES.union(
    ("Data", "RefData", "Const", "Constant", "FileConstant", "ConstPlaceHolder")
    + ("Variable", "VariableV2", "NetOutput", "NoOp")
)
