"""From a compiled graph to the OM file that holds it: attributes, tasks, names (om-format.md 13)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from gecli.artifacts.om_writer import OmImage, om_image
from gecli.compiler.graph_compiler import CompiledGraph
from gecli.ir.attributes import (
    COPIED_VALUE,
    COPY_FROM_VAR,
    DATA_INDEX,
    INPUT_IS_VAR,
    ORIGINAL_OP_NAMES,
    OUTPUT_IS_VAR,
    PARENT_NODE_INDEX,
    SHA256_ATTR,
    SINGLE_OP,
    SRC_VAR_NAME,
    VALUE,
)
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.placement import Placement
from gecli.ops.registry import find
from gecli.planning.model_plan import ModelPlan
from gecli.records import dataclass
from gecli.variables.var_manager import VarManager
from gecli.version import __version__
from gecli.wire.model_record import GraphRecord, ModelRecord
from gecli.wire.task import KernelType, Task, TaskList, TaskType

GIB = 1 << 30
FEATURE_BASE = 2 * GIB
HOST_BASE = 64 * GIB
HOST_SVM_BASE = 128 * GIB
MEMORY_HBM = 2
TASK_VERSION = "gecli-sim-1"
SO_NAME = "libgecli_sim.so"
FRAMEWORK_NAMES = {"onnx": "Onnx", "json": "GE", "tf": "TensorFlow"}  # JSON graphs are GE's own
# Attributes written beside those that the operator class declares (design: deterministic, lean files).
WRITTEN_ATTRS = frozenset(
    (VALUE, DATA_INDEX, PARENT_NODE_INDEX, ORIGINAL_OP_NAMES, INPUT_IS_VAR, OUTPUT_IS_VAR)
    + (COPY_FROM_VAR, COPIED_VALUE, SRC_VAR_NAME)
    + (SHA256_ATTR,)
)
# Nodes without a task: their data are there before the first task runs, or they only collect.
NO_TASK_TYPES = frozenset(
    ("Data", "RefData", "Const", "Constant", "FileConstant", "ConstPlaceHolder", "Variable", "VariableV2", "NetOutput")
)


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What goes into an OM beside the graph."""

    name: str  # model name: the output's stem
    soc: str
    arch: str
    framework: str
    cmdline: str
    fingerprint: str


def model_image(compiled: CompiledGraph, manager: VarManager, facts: ImageFacts) -> OmImage:
    """The OM of a compiled graph; the same graph and facts give the same bytes."""
    graph, plan = compiled.graph, compiled.plan
    if not graph.is_optimised:  # else they are those of an OM, whoever wrote it
        _keep_written_attributes(plan.order)
    _mark_variable_operands(plan.order, plan, manager.logic_base)
    graphs = [_record(graph, plan, f"{facts.name}_0")]
    own = {"_session_graph_id": "-1_0", "_dynamic_shape_partitioned": False}
    kept = graphs[0].attrs
    graphs[0].attrs = {**(own | kept if graph.is_optimised else kept | own), "_gecli_fp": facts.fingerprint}
    graphs += [_record(sub, plan, sub.name) for sub in graph.all_graphs() if sub is not graph]
    record = ModelRecord(facts.name, graphs)
    tasks = _tasks(plan)
    record.attrs = _model_attrs(graph, plan, manager, facts, tasks)
    offsets = dict(zip(plan.constants, plan.weights.offsets))
    names = None if graph.is_optimised else _port_names
    return om_image(record, tasks, plan.weights, offsets, port_names=names, is_dynamic=plan.is_dynamic)


def _record(graph: Graph, plan: ModelPlan, name: str) -> GraphRecord:
    placements = {node: plan.placements[node] for node in graph.nodes()}
    return GraphRecord.of(graph, placements, name)


def _port_names(node: OpDesc) -> tuple[Sequence[str], Sequence[str]]:
    return _names_of_type(node.type, len(node.input_descs), len(node.output_descs))


@lru_cache(1024)
def _names_of_type(type: str, inputs: int, outputs: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    kind = find(type)
    if kind is None:
        return (), ()
    return tuple(map(kind.input_name, range(inputs))), tuple(map(kind.output_name, range(outputs)))


def _keep_written_attributes(nodes: Sequence[OpDesc]) -> None:
    """Drop what passes noted on nodes for themselves: an OM holds what operators declare, and little else."""
    for node in nodes:
        if not node.attrs:
            continue
        kind = find(node.type)
        if kind is not None and any(name not in kind.attributes and name not in WRITTEN_ATTRS for name in node.attrs):
            node.attrs = {
                name: value for name, value in node.attrs.items() if name in kind.attributes or name in WRITTEN_ATTRS
            }


def _mark_variable_operands(nodes: Sequence[OpDesc], plan: ModelPlan, base: int) -> None:
    """INPUT_IS_VAR and OUTPUT_IS_VAR on the nodes that touch variable memory, or did in an earlier compile."""
    for node in nodes:
        placement = plan.placements[node]
        if max(placement.output_offsets, default=0) >= base or _claims(node, OUTPUT_IS_VAR):
            node.attrs[OUTPUT_IS_VAR] = tuple(offset >= base for offset in placement.output_offsets)
        if max(placement.input_offsets, default=0) >= base or _claims(node, INPUT_IS_VAR):
            found = iter(placement.input_offsets)
            node.attrs[INPUT_IS_VAR] = tuple(port is not None and next(found) >= base for port in node.inputs)


def _claims(node: OpDesc, name: str) -> bool:
    value = node.attrs.get(name) if node.attrs else None
    return isinstance(value, tuple) and True in value


def _tasks(plan: ModelPlan) -> TaskList:
    weight_base = FEATURE_BASE + plan.memory_bytes
    tasks = []
    for node in plan.order:
        if node.type in NO_TASK_TYPES or (node.attrs and node.attrs.get("_no_task")):
            continue
        placement = plan.placements[node]
        args = () if plan.is_dynamic else _addresses(node, placement, weight_base)
        tasks.append(
            Task(
                TaskType.KERNEL,
                placement.stream_id,
                placement.id,
                KernelType.HOST_CPU,
                node.name,
                SO_NAME,
                node.type,
                1,
                args,
                8 * len(args),
                "" if plan.is_dynamic else _args_format(node),
            )
        )
    tasks.append(Task(TaskType.END_GRAPH))
    return TaskList(
        tuple(tasks),
        TASK_VERSION,
        memory_size=plan.memory_bytes,
        weight_size=plan.weights.total_bytes,
        stream_num=1,
    )


def _args_format(node: OpDesc) -> str:
    """Which operand each address is; nothing, as CANN allows, where they are all operands in order."""
    if None not in node.inputs:
        return ""
    slots = tuple([slot for slot, port in enumerate(node.inputs) if port is not None])
    return _format_of_args(slots, len(node.output_descs))


@lru_cache(1024)
def _format_of_args(slots: tuple[int, ...], outputs: int) -> str:
    inputs = "".join([f"{{i_instance{slot}*}}" for slot in slots])
    return inputs + "".join([f"{{o_instance{index}*}}" for index in range(outputs)])


def _addresses(node: OpDesc, placement: Placement, weight_base: int) -> tuple[int, ...]:
    """Logical addresses of a node's operands in a static model: inputs in order, then outputs."""
    args = []
    offsets = iter(placement.input_offsets)
    for port in node.inputs:
        if port is not None:
            offset = next(offsets)
            if offset < HOST_SVM_BASE:
                offset += weight_base if port[0].type == "Const" else FEATURE_BASE
            args.append(offset)
    base = weight_base if node.type == "Const" else FEATURE_BASE
    args += [offset if offset >= HOST_SVM_BASE else base + offset for offset in placement.output_offsets]
    return tuple(args)


def _model_attrs(
    graph: Graph, plan: ModelPlan, manager: VarManager, facts: ImageFacts, tasks: TaskList
) -> dict[str, Any]:
    memory = plan.memory
    zero_copy = memory.zero_copy_bytes if memory else 0
    attrs: dict[str, Any] = {
        "memory_size": plan.memory_bytes,
        "stream_num": 1,
        "event_num": 0,
        "label_num": 0,
        "huge_stream_list": (),
        "zero_copy_memory_size": zero_copy,
        "p2p_memory_size": 0,
        "session_scope_memory_size": 0,
        "host_memory_size": 0,
        "host_svm_size": 0,
        "session_id": 0,
        "variable_size": manager.model_variable_bytes,
        "task_gen_base_addr": FEATURE_BASE,
        "task_gen_weight_addr": FEATURE_BASE + plan.memory_bytes,
        "task_gen_variable_addr": manager.logic_base,
        "task_gen_host_base_addr": HOST_BASE,
        "task_gen_host_svm_base_addr": HOST_SVM_BASE,
        "target_type": "MINI",
        "soc_version": facts.soc,
        "arch_type": facts.arch,
        "framework_type": FRAMEWORK_NAMES.get(facts.framework, facts.framework),
        "atc_version": f"gecli {__version__}",
        "atc_cmdline": facts.cmdline,
        "attr_model_out_nodes_name": tuple(_out_node_names(graph)),
        "task_index_op_name": tuple(task.stub_func for task in tasks.tasks),
    }
    if SINGLE_OP in graph.attrs:
        from gecli.compiler.single_op import single_op_attrs

        attrs.update(single_op_attrs(graph))
    if memory is not None:
        rows = [(MEMORY_HBM, 0, memory.peak_bytes, 0)] if memory.peak_bytes else []
        if zero_copy:
            rows.append((MEMORY_HBM, memory.peak_bytes, zero_copy, 0))
        attrs["sub_memory_info"] = tuple(rows)
    return attrs


def _out_node_names(graph: Graph) -> Iterator[str]:
    """`node:index`, and `node:index:tensor` where the source model names its output."""
    names = graph.output_names
    for position, port in enumerate(graph.outputs):
        name = names[position] if position < len(names) else ""
        plain = f"{port.node.name}:{port.index}"
        yield f"{plain}:{name}" if name and name != plain else plain
