"""--verify-passes: evaluates a graph before and after each pass and names the first one that changes a result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np

from gecli.compiler.graph_evaluation import (
    QUESTION_TYPES,
    Array,
    GraphEvaluator,
    NotEvaluable,
    TooLarge,
    elements_of,
    same_bits,
)
from gecli.errors import CompileError
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.stored_outputs import names_origins
from gecli.passes.base import Pass, PassContext, Stage
from gecli.records import dataclass
from gecli.runtime.inputs import DEFAULT_SEED, random_array
from gecli.runtime.operands import to_logical

OPTION = "--verify-passes"
MAX_ELEMENTS = 1 << 28  # all tensors of a graph together; beyond, evaluating it takes minutes and gigabytes
# Passes that may round otherwise: constants are folded in float64, blocked kernels add up in another order, and
# casts are what was asked for. Their results are compared within a tolerance, and without rounding if that fails.
ROUNDING = frozenset(("ConstantFoldingPass", "RefineRunningPrecision", "RefineRunningFormat"))
TOLERANCES = {DataType.DOUBLE: 1e-10, DataType.FLOAT: 1e-4, DataType.FLOAT16: 2e-2, DataType.BF16: 1e-1}
WIDE_TOLERANCE = 1e-5  # constants are stored in float32
# What is tried in turn: sizes of dimensions that only a run knows, and limits of integers, which may be indices.
TRIES = ((2, 16), (2, 2), (2, 1), (64, 2))


class Results(NamedTuple):
    """What a graph gave: its outputs in logical form, the form and content of each variable, and which it wrote."""

    outputs: list[Array]
    variables: dict[str, Array]
    forms: dict[str, TensorDesc]
    written: frozenset[str]


@dataclass(slots=True)
class ResultCheck:
    """Evaluates the graph on random inputs around each pass; raises G2003 for a pass that changes a result.

    The random values depend on names, types and shapes only. Outputs and the final content of every variable are
    compared bit by bit; a variable that a pass gave another form is brought into that form along its road first. A
    graph that cannot be evaluated is not checked; `notes` says so, and why.
    """

    max_elements: int = MAX_ELEMENTS
    notes: dict[str, str] = field(default_factory=dict)  # by graph name
    found: dict[int, dict[str, Any]] = field(default_factory=dict)  # what the report says, by graph id
    _ctx: PassContext | None = None  # of the compile that is being watched
    _skipped: bool = False
    _evaluator: GraphEvaluator = field(default_factory=GraphEvaluator)
    _feeds: dict[int, Array] = field(default_factory=dict)
    _initial: dict[str, Array] = field(default_factory=dict)  # of variables without an initial value
    _before: Results | None = None
    _copy: Graph | None = None

    def before(self, step: Pass, graph: Graph, ctx: PassContext) -> None:
        if ctx is not self._ctx:
            self._begin(graph, ctx)
        if self._skipped:
            return
        asks = any(each.nodes_of(*QUESTION_TYPES) for each in graph.all_graphs())
        self._copy = graph.copy() if step.name in ROUNDING or asks else None
        if self._before is None and not asks and not _lacks_origins(step, graph):
            self._first(graph)

    def after(self, step: Pass, graph: Graph, ctx: PassContext, counts: Counter[str], elapsed_ns: int) -> None:
        if self._skipped:
            return
        # A question stands in the graph, which only the session can answer, or origin forms were not known.
        if self._before is None:
            self._evaluator.answers = _answers(ctx)
            if self._copy is None or not self._evaluator.answers:
                self.found[ctx.graph_id]["unchecked"].append(step.name)
                return
            self._first(self._copy)
            if self._skipped:
                return
        before = self._before
        assert before is not None
        for name in list(self._initial):
            self._initial[name] = _moved(name, self._initial[name], before.forms.get(name), graph, ctx)
        try:
            found = _evaluated(self._evaluator, graph, self._feeds, self._initial)
        except TooLarge as error:
            self._skip(graph, str(error))
            return
        except NotEvaluable as error:
            raise _changed(step, graph, "it can no longer be evaluated", str(error), None) from error
        problem = _difference(before, found, graph, ctx, _precision_of_roads(before, found, ctx))
        if problem is not None and self._differs_really(step, graph, ctx, before, found):
            raise _changed(step, graph, *problem)
        self._before, self._copy = found, None
        said = self.found[ctx.graph_id]
        said["passes"].append(step.name)
        said["outputs"], said["variables"] = len(found.outputs), sorted(found.variables)

    def _begin(self, graph: Graph, ctx: PassContext) -> None:
        self._ctx, self._before, self._copy = ctx, None, None
        self.found[ctx.graph_id] = {
            "result": "unchanged", "reason": None, "passes": [], "unchecked": [], "outputs": 0, "variables": [],
            "seed": DEFAULT_SEED, "unknown_dims": None, "integers_below": None,
        }  # fmt: skip
        # Twice as many, since passes put in conversions.
        self._evaluator = GraphEvaluator(max_elements=2 * self.max_elements)
        self._initial, self._feeds = {}, {}
        self._skipped = False
        unknown = next((node for node in graph.inputs if node.output_descs[0].shape == UNKNOWN_RANK), None)
        if unknown is not None:
            self._skip(graph, f"the rank of input {unknown.name!r} is only known at run time")
        elif sum(each for each in elements_of(graph) if each > 0) > self.max_elements:
            self._skip(graph, f"its tensors have more than {self.max_elements} elements")

    def _skip(self, graph: Graph, why: str) -> None:
        self._skipped = True
        if self._ctx is not None:
            self.found[self._ctx.graph_id] |= {"result": "not evaluated", "reason": why}
        self.notes[graph.name] = f"{OPTION} did not evaluate graph {graph.name!r}: {why}"

    def _first(self, graph: Graph) -> None:
        """The results that all later ones are compared with."""
        reason = ""
        is_dynamic = any(not node.output_descs[0].is_static for node in graph.inputs)
        for free, limit in TRIES if is_dynamic else TRIES[:3]:
            self._feeds = {position: _random(node, free, limit) for position, node in enumerate(graph.inputs)}
            self._initial = {
                node.name: _random(node, free, limit)
                for each in graph.all_graphs()
                for node in each.nodes_of("Variable", "VariableV2")
                if node.ref_variable is None and node.init_value is None and node.output_descs[0].is_static
            }
            try:
                self._before = _evaluated(self._evaluator, graph, self._feeds, self._initial)
                if self._ctx is not None:
                    sizes = {"unknown_dims": free if is_dynamic else None, "integers_below": limit}
                    self.found[self._ctx.graph_id] |= sizes
                return
            except NotEvaluable as error:
                reason = str(error)
        self._skip(graph, reason)

    def _differs_really(self, step: Pass, graph: Graph, ctx: PassContext, before: Results, found: Results) -> bool:
        """Whether a difference is more than the rounding that the pass is allowed."""
        if step.name not in ROUNDING or self._copy is None:
            return True
        if _difference(before, found, graph, ctx, _tolerance(graph)) is None:
            return False
        wide, other = GraphEvaluator(wide=True), GraphEvaluator(wide=True)
        wide.answers = other.answers = self._evaluator.answers
        try:
            old = _evaluated(wide, self._copy, self._feeds, self._initial)
            new = _evaluated(other, graph, self._feeds, self._initial)
        except NotEvaluable:
            return True
        tolerance = _tolerance(graph) if step.name == "ConstantFoldingPass" else WIDE_TOLERANCE
        return _difference(old, new, graph, ctx, tolerance) is not None


def _lacks_origins(step: Pass, graph: Graph) -> bool:
    """Whether blocked tensors of a document mean nothing yet: InferShapePass completes their origin forms."""
    early = step.stage is Stage.NORMALIZE or step.name in ("InferFormatPass", "InferShapePass")
    return early and names_origins(graph)


def _evaluated(
    evaluator: GraphEvaluator, graph: Graph, feeds: Mapping[int, Array], initial: Mapping[str, Array]
) -> Results:
    inputs = graph.inputs
    fitting = {}
    for position, node in enumerate(inputs):
        value, desc = feeds[position], node.output_descs[0]
        fitting[position] = value if value.dtype == desc.dtype.numpy else value.astype(desc.dtype.numpy)
    outputs, variables = evaluator.run(graph, fitting, initial)
    logical = [_in_logical_form(value, port.desc) for value, port in zip(outputs, graph.outputs)]
    forms = {
        node.name: node.output_descs[0]
        for each in graph.all_graphs()
        for node in each.nodes_of("Variable", "VariableV2")
        if node.ref_variable is None
    }
    return Results(logical, variables, forms, frozenset(evaluator.written))


def _in_logical_form(value: Array, desc: TensorDesc) -> Array:
    return to_logical(value, desc) if desc.is_static and value.shape == desc.shape else value


def _random(node: OpDesc, free: int, limit: int) -> Array:
    desc = node.output_descs[0]
    shape = tuple(free if dim < 0 else dim for dim in desc.shape)
    if desc.dtype.is_float:
        return random_array(node.name, desc.dtype, shape, low=-1.0, high=1.0)
    return random_array(node.name, desc.dtype, shape, high=limit)


def _answers(ctx: PassContext) -> dict[str, bool]:
    """What VarIsInitializedOpPass found, by the node that asked."""
    return {each["node"]: each["answer"] for each in ctx.records if each["event"] == "answered"}


def _moved(name: str, value: Array, form: TensorDesc | None, graph: Graph, ctx: PassContext) -> Array:
    """The content of a variable in the form that the graph now gives it."""
    now = next(
        (
            node.output_descs[0]
            for each in graph.all_graphs()
            for node in each.nodes_of("Variable", "VariableV2")
            if node.name == name
        ),
        None,
    )
    if form is None or now is None or form.same_storage(now):
        return value
    return _along_road(name, value, form, now, ctx)


def _along_road(name: str, value: Array, form: TensorDesc, now: TensorDesc, ctx: PassContext) -> Array:
    road = ctx.variables.trans_road(name)
    if road and now.dtype is road.target.dtype and now.shape == road.target.shape and form.shape == road.source.shape:
        return road.replay(value.reshape(road.source.shape))
    return value.reshape(now.shape) if now.is_static and now.elements == value.size else value


def _difference(
    before: Results, found: Results, graph: Graph, ctx: PassContext, tolerance: float
) -> tuple[str, str, OpDesc | None] | None:
    """The first result that differs: what it is, both values, and its node."""
    ports = graph.outputs
    if len(before.outputs) > len(found.outputs):
        return f"it has {len(found.outputs)} outputs", f"before it had {len(before.outputs)}", None
    for index, (old, new) in enumerate(zip(before.outputs, found.outputs)):
        if not _close(old, new, tolerance):
            return f"output {index} ({_output_name(graph, index)})", _both(old, new), ports[index].node
    for name in sorted(before.variables):
        old, form = before.variables[name], before.forms.get(name)
        if name not in found.variables:
            if name in before.written:
                return f"variable {name!r}", "before it was written, now it is not in the graph", None
            continue
        node_form = found.forms.get(name)
        new = found.variables[name]
        if form is not None and node_form is not None and not form.same_storage(node_form):
            old = _along_road(name, old, form, node_form, ctx)
            new = _without_padding(name, new, ctx)
        if not _close(old, new, tolerance):
            return f"variable {name!r}", _both(old, new), None
    return None


def _output_name(graph: Graph, index: int) -> str:
    """As the model calls it: by now a conversion may stand before the output."""
    given = graph.output_names[index] if index < len(graph.output_names) else ""
    return given or str(graph.outputs[index])


def _without_padding(name: str, value: Array, ctx: PassContext) -> Array:
    """The content with zeros for padding: an update may leave there what it likes."""
    road = ctx.variables.trans_road(name)
    back = road.inverse() if road else None
    if road is None or back is None or any(step.src.dtype.is_float > step.dst.dtype.is_float for step in road):
        return value
    return road.replay(back.replay(value))


def _precision_of_roads(before: Results, found: Results, ctx: PassContext) -> float:
    """What a variable in another float type may differ by: a cast at its readers or at its writers has gone."""
    allowed = [0.0]
    for name, form in before.forms.items():
        road = ctx.variables.trans_road(name)
        if road and name in found.forms and not form.same_storage(found.forms[name]):
            casts = [
                step for step in road if step.type == "Cast" and step.src.dtype.is_float and step.dst.dtype.is_float
            ]
            allowed += [TOLERANCES.get(each, 1e-1) for step in casts for each in (step.src.dtype, step.dst.dtype)]
    return max(allowed)


def _tolerance(graph: Graph) -> float:
    used = {desc.dtype for node in graph.all_nodes() for desc in node.output_descs if desc.dtype.is_float}
    return max((TOLERANCES.get(dtype, 1e-1) for dtype in used), default=0.0)


def _close(old: Array, new: Array, tolerance: float) -> bool:
    if same_bits(old, new):
        return True
    if not tolerance or old.shape != new.shape or old.dtype.hasobject or old.dtype.kind in "biu":
        return False
    a, b = np.asarray(old, np.float64), np.asarray(new, np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not finite.any():
        return bool(np.array_equal(finite, np.isfinite(b)))
    scale = max(float(np.abs(a[finite]).max()), float(np.finfo(np.float32).tiny))
    return float(np.abs(a[finite] - b[finite]).max()) <= tolerance * scale


def _both(old: Array, new: Array) -> str:
    if old.shape != new.shape or old.dtype != new.dtype:
        return f"before {old.dtype.name}{list(old.shape)}, after {new.dtype.name}{list(new.shape)}"
    with np.errstate(all="ignore"):
        unequal = np.atleast_1d((old != new) & ~((old != old) & (new != new)))
    where = tuple(int(axis[0]) for axis in np.nonzero(unequal))
    a, b = np.atleast_1d(old), np.atleast_1d(new)
    return f"element {list(where)} was {a[where]} and is {b[where]}; {int(unequal.sum())} of {a.size} differ"


def _changed(step: Pass, graph: Graph, what: str, why: str, node: Any) -> CompileError:
    return CompileError(
        "G2003",
        f"pass {step.name} changes what graph {graph.name!r} computes: {what}",
        where=f"stage {step.stage.value}",
        why=why,
        do=_way_out(step),
        node=None if node is None else node.name,
    )


def _way_out(step: Pass) -> str:
    """What helps against a faulty pass; correctness passes have no switch."""
    if not step.correctness:
        return f"--optimization-switch {step.name}:off avoids the pass; please report this"
    if step.name == "RefineRunningFormat":
        return "please report this; --format-policy origin chooses no device formats (the pass itself always runs)"
    return "please report this; the pass is needed for correct results and cannot be switched off"
