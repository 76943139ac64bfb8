"""Fold a variable's conversions into the variable itself (GE: VariableOpPass, variable acceleration)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, NamedTuple

from gecli.engine.trans_ops import TRANS_OPS
from gecli.errors import Diagnostic
from gecli.ir.attributes import INIT_VALUE, VARIABLE_TYPES
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Use
from gecli.ir.tensor_desc import NO_ATTRS, TensorDesc
from gecli.layout.axes import permutation
from gecli.layout.cast import HOST_PAIRS, exact_embedding
from gecli.layout.transfer import can_transfer
from gecli.passes.base import Pass, PassContext, Stage
from gecli.passes.facts import Fact
from gecli.passes.planned_removal import PlannedRemoval
from gecli.passes.trans_ops import step_of, undoes
from gecli.passes.written_inputs import writes_at
from gecli.records import dataclass
from gecli.variables.trans_road import ROAD_TYPES, TransRoad, TransStep

NOT_RUN = ("SUBGRAPH", "SHARED_BATCH")  # reasons why no variable of a graph is looked at


class Stop(NamedTuple):
    """Why the search for a further common conversion ended: a reason code of formats.md 9.1, and the node."""

    reason: str
    node: str = ""


@dataclass(slots=True)
class Group:
    """All nodes of one variable: the variable itself, once in each subgraph that uses it, and its refs."""

    name: str
    variables: list[OpDesc] = field(default_factory=list)
    refs: list[OpDesc] = field(default_factory=list)

    def consumers(self, plan: PlannedRemoval) -> list[Use]:
        return [use for node in self.variables for use in plan.consumers(node.out())]


@dataclass(slots=True)
class Change:
    """What becomes of one variable: its road and the new descriptors and initial values of its nodes."""

    group: Group
    road: TransRoad
    descs: list[TensorDesc]
    ref_descs: list[TensorDesc]


class VariableOp(Pass):
    """Store each variable in the form that all its readers want.

    When every reader of a variable goes through the same conversion, the variable takes the converted descriptor, the
    conversions disappear and are kept as the variable's trans road; then again, for the conversions behind. A
    variable that is written back changes only if the write side undoes what the read side does. All variables are
    planned before the graph changes.
    """

    name = "VariableOpPass"
    stage = Stage.OPTIMIZE_1
    requires = (Fact.VARIABLES_PREPARED,)
    ensures = (Fact.VARIABLES_PREPARED, Fact.ACYCLIC)
    level = "O3"

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        if graph.parent is not None or ctx.variables.shares_memory_between_batches:
            reason = NOT_RUN[0] if graph.parent is not None else NOT_RUN[1]
            for group in variable_groups(graph):
                self._report(group, TransRoad(), Stop(reason), ctx)
            return counts
        _renew_descs(graph, ctx)
        plan = PlannedRemoval()
        changes: list[Change] = []
        for group in variable_groups(graph):
            road, removed, stop = fuse(group, plan, ctx)
            self._report(group, road, stop, ctx)
            if road:
                changes.append(_change(group, road))
                counts["variables_changed"] += 1
                counts["conversions_removed"] += removed
        for change in changes:
            _record_change(change, ctx)
        plan.apply()
        for change in changes:
            _describe(change)
        return counts

    def _report(self, group: Group, road: TransRoad, stop: Stop, ctx: PassContext) -> None:
        """What happened to a variable, for --explain-variable; a road that loses precision is told to the user."""
        ctx.record(
            self.name,
            "changed" if road else "unchanged",
            variable=group.name,
            reason=stop.reason,
            node=stop.node,
            road=[f"{step.type}: {step.src} -> {step.dst}" for step in road],
            lossy=road.lossy,
            by=_locked_by(group.name, ctx) if stop.reason == "LOCKED" else "",
        )
        for step in road:
            if step.is_lossy:
                ctx.warnings.append(_loses_precision(group.name, step))


def accelerated_in(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """The variables that the pass looked at in a compile with these records, those left as they were included."""
    told = (each for each in records if each["pass"] == VariableOp.name and each.get("reason") not in NOT_RUN)
    return sorted({each["variable"] for each in told})


def _locked_by(variable: str, ctx: PassContext) -> str:
    """Who used up the one change of a variable."""
    changed = ctx.variables.resource.changed_graph_id(variable)
    return "an earlier command" if changed is None else ctx.variables.resource.graph_name(changed)


def variable_groups(graph: Graph) -> list[Group]:
    """The variables of a graph and its subgraphs with their refs, by name (GE's order is unspecified)."""
    groups: dict[str, Group] = {}
    refs: list[OpDesc] = []
    for each in graph.all_graphs():
        for node in each.nodes_of(*sorted(VARIABLE_TYPES)):
            if node.ref_variable is None:
                groups.setdefault(node.name, Group(node.name)).variables.append(node)
            else:
                refs.append(node)
    for ref in refs:
        if ref.ref_variable in groups:
            groups[ref.ref_variable].refs.append(ref)
    return [groups[name] for name in sorted(groups)]


def fuse(group: Group, plan: PlannedRemoval, ctx: PassContext) -> tuple[TransRoad, int, Stop]:
    """Plan to fold layer after layer of common conversions; no graph is changed.

    Returns the road, how many nodes go, and why there is no further layer.
    """
    name = group.name
    if not ctx.rebuild.permits_change(name) or ctx.variables.trans_road(name) is not None:
        return TransRoad(), 0, Stop("LOCKED")
    road: list[TransStep] = []
    removed = 0
    current = replace(group.variables[0].output_descs[0], attrs=NO_ATTRS)
    while True:
        found = next_step(group, plan, current, strict_cast=ctx.settings.strict_variable_cast)
        if isinstance(found, TransStep) and found.is_lossy and not _others_cast_to(found, group, ctx):
            found = Stop("LOSSY_CAST")
        if isinstance(found, Stop):
            return TransRoad(road), removed, found
        if current.format != found.src.format:
            road.append(TransStep("ReFormat", current, found.src))
        road.append(found)
        current = found.dst
        removed += _remove_layer(group, plan)


def _others_cast_to(step: TransStep, group: Group, ctx: PassContext) -> bool:
    """Whether no other graph of the session needs what a cast loses. What they read and write is the variable's own."""
    others = ctx.settings.casts_of_others
    declared = group.variables[0].output_descs[0].dtype
    return group.name not in others or (step.src.dtype is declared and others[group.name] is step.dst.dtype)


def next_step(group: Group, plan: PlannedRemoval, current: TensorDesc, *, strict_cast: bool) -> TransStep | Stop:
    """The conversion that all readers of a variable in the form `current` share and all writers undo."""
    layer = group.consumers(plan)
    if not layer:
        return Stop("NO_CONSUMER")
    for use in layer:
        if use.node.type not in TRANS_OPS:
            return Stop("NOT_TRANS_OP", use.node.name)
        if use.slot != 0:
            return Stop("DATA_INDEX", use.node.name)
    step = step_of(layer[0].node)
    for use in layer[1:]:
        if not _same_step(step_of(use.node), step):
            return Stop("KEYS_DIFFER", use.node.name)
    reason = _refusal(step, current, strict_cast)
    if reason:
        return Stop(reason, layer[0].node.name)
    return _write_side(group, plan, layer, step) or step


def _same_step(a: TransStep, b: TransStep) -> bool:
    """Types, attributes and origins too: of a square tensor, transposes and blocked forms of them look alike."""
    return (
        a.type == b.type
        and a.src.same_storage(b.src)
        and a.dst.same_storage(b.dst)
        and (a.dst.logical_shape, a.dst.logical_format) == (b.dst.logical_shape, b.dst.logical_format)
        and dict(a.attrs) == dict(b.attrs)
    )


def _refusal(step: TransStep, current: TensorDesc, strict_cast: bool) -> str:
    """Why a variable in the form `current` cannot take this step; empty when it can."""
    src, dst = step.src, step.dst
    if not dst.is_static:
        return "UNKNOWN_SHAPE"
    if step.type not in ROAD_TYPES:
        return "TYPE_NOT_FUSIBLE"
    if src.dtype is not current.dtype or src.shape != current.shape:
        return "INPUT_MISMATCH"
    if step.type == "Cast":
        if src.format != dst.format or src.shape != dst.shape:
            return "MIXED_STEP"
        if (src.dtype, dst.dtype) not in HOST_PAIRS:
            return "CAST_PAIR"
        return "LOSSY_CAST" if strict_cast and step.is_lossy else ""
    if src.dtype is not dst.dtype:
        return "MIXED_STEP"
    if step.is_data_unchanged:
        return "" if src.elements == dst.elements else "MIXED_STEP"
    possible, reason = can_transfer(src, dst)
    if not possible:
        return reason
    if step.type == "TransposeD" and step.attrs.get("perm") != permutation(src.format.primary, dst.format.primary):
        return "FORMAT_PAIR"
    return ""


def _write_side(group: Group, plan: PlannedRemoval, layer: list[Use], step: TransStep) -> Stop | None:
    """Why the refs do not allow the step. The way back must be executable, or the variable could not be exported."""
    readers = {use.node for use in layer}
    for ref in group.refs:
        port = plan.source(Use(ref, 0))
        if port is None:
            return Stop("REF_NO_PRODUCER", ref.name)
        writer = port.node
        if writer in readers or writer.type not in TRANS_OPS or plan.source(Use(writer, 0)) is None:
            return Stop("REF_NOT_INVERSE", writer.name)
        back = step_of(writer)
        if not undoes(back, step) or back.why_not_executable() or _rounds(back, step):
            return Stop("REF_NOT_INVERSE", writer.name)
    if not group.refs:
        return _unseen_writer(plan, layer)
    return None


def _rounds(back: TransStep, step: TransStep) -> bool:
    """Whether a cast before the variable changes what is written: stored as it was before, it would stay unchanged."""
    return step.type == "Cast" and not exact_embedding(back.src.dtype, back.dst.dtype)


def _unseen_writer(plan: PlannedRemoval, layer: list[Use]) -> Stop | None:
    """An operator that writes a conversion's result, while nothing is stored back: it must not reach the variable."""
    for use in layer:
        for behind in plan.consumers(use.node.out()):
            if writes_at(behind):
                return Stop("REF_NO_PRODUCER", behind.node.name)
    return None


def _remove_layer(group: Group, plan: PlannedRemoval) -> int:
    """Plan to take out the conversions at the readers and their inverses at the refs (GE: DealFusion)."""
    removed = 0
    for node in dict.fromkeys(use.node for use in group.consumers(plan)):
        plan.remove(node)
        removed += 1
    for ref in group.refs:
        port = plan.source(Use(ref, 0))
        assert port is not None
        writer = port.node
        if sum(len(plan.consumers(writer.out(index))) for index in range(len(writer.users))) > 1:
            plan.bypass(Use(ref, 0))
            continue
        plan.remove(writer)
        removed += 1
    return removed


def _change(group: Group, road: TransRoad) -> Change:
    """The descriptors that the nodes of a variable will have; an initial value gets the road as pending conversions."""
    descs = []
    for node in group.variables:
        desc = stored_form(node.output_descs[0], road.target)
        initial = node.init_value
        descs.append(desc if initial is None else desc.with_attr(INIT_VALUE, road.convert_weight(initial)))
    return Change(group, road, descs, [stored_form(ref.output_descs[0], road.target) for ref in group.refs])


def _record_change(change: Change, ctx: PassContext) -> None:
    """Tell the session. Raises CompileError (VAR_ROAD_CONFLICT, VAR_KEY_CONFLICT) while the graph is as it was."""
    name, road = change.group.name, change.road
    ctx.variables.set_trans_road(name, road)
    ctx.variables.set_changed_graph_id(name, ctx.graph_id)
    ctx.rebuild.state_changed(name)
    if road.is_data_unchanged and ctx.variables.exists(name):
        ctx.variables.renew(name, change.descs[0], with_shape=True)


def _describe(change: Change) -> None:
    """Give all nodes of the variable the stored form."""
    for node, desc in zip(change.group.variables, change.descs, strict=True):
        node.output_descs[0] = desc
    for ref, desc in zip(change.group.refs, change.ref_descs, strict=True):
        ref.output_descs[0] = ref.input_descs[0] = desc


def stored_form(declared: TensorDesc, target: TensorDesc) -> TensorDesc:
    """`declared` with the storage and the origin of `target`.

    GE leaves the origin format as it was. Origin shape and format say together how the bytes are read, so behind a
    transpose every reader that asks the variable would take its axes for others.
    """
    return replace(
        declared,
        dtype=target.dtype,
        shape=target.shape,
        format=target.format,
        origin_shape=target.origin_shape,
        origin_format=target.origin_format,
    )


def _renew_descs(graph: Graph, ctx: PassContext) -> None:
    """Tell the session how this graph sees its variables, and remember that (GE: RenewVarDesc)."""
    for node in _known_variables(graph, ctx):
        ctx.variables.renew(node.name, node.output_descs[0])
        ctx.variables.record_staged(ctx.graph_id, node.name, replace(node.output_descs[0], attrs=NO_ATTRS))


def _known_variables(graph: Graph, ctx: PassContext) -> Iterator[OpDesc]:
    for each in graph.all_graphs():
        for node in each.nodes_of(*sorted(VARIABLE_TYPES)):
            if ctx.variables.current_desc(node.name) is not None:
                yield node


def _loses_precision(variable: str, step: TransStep) -> Diagnostic:
    return Diagnostic(
        "G2019",
        f"variable {variable!r} loses precision: it is stored as {step.dst.dtype.serial}"
        f" instead of {step.src.dtype.serial}",
        severity="warning",
        kind="VAR_LOSSY_ROAD",
        where=f"variable {variable}",
        why=f"every reader, in every graph of the session, casts it from {step.src.dtype.serial}"
        f" to {step.dst.dtype.serial}",
        do="keep it as it is with --strict-variable-cast",
        node=variable,
        expected=step.src.dtype.serial,
        actual=step.dst.dtype.serial,
    )
