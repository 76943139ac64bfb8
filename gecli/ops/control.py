"""Control flow: If, Case, While, For and calls, whose work is done by subgraphs.

A node's `subgraphs` are in the order of the class's `graphs`. An importer passes the subgraphs' names as attributes
of these names, and the outer ports that they capture as the node's last inputs, subgraph by subgraph: the k-th
captured port of a subgraph is what the Data node of its k-th captured value reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.ops.bound import Bound
from gecli.ops.inference import InferenceError, plain
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import operator


def merged(first: TensorDesc, second: TensorDesc) -> TensorDesc:
    """What is known of a tensor that comes from one of two branches. Raises InferenceError for two dtypes."""
    if first.dtype != second.dtype:
        raise InferenceError(f"branches give {first.dtype.serial} and {second.dtype.serial}")
    if first.shape == second.shape:
        return plain(first)
    if UNKNOWN_RANK in (first.shape, second.shape) or len(first.shape) != len(second.shape):
        return TensorDesc(first.dtype, UNKNOWN_RANK)
    dims = tuple(a if a == b else UNKNOWN_DIM for a, b in zip(first.shape, second.shape, strict=True))
    return TensorDesc(first.dtype, dims, first.format)


def merged_outputs(branches: Sequence[Sequence[TensorDesc]]) -> tuple[TensorDesc, ...]:
    """The outputs of a node for the outputs of its branches. Raises InferenceError when their counts differ."""
    if len({len(branch) for branch in branches}) > 1:
        raise InferenceError(f"branches have {', '.join(str(len(branch)) for branch in branches)} outputs")
    result = list(branches[0])
    for branch in branches[1:]:
        result = [merged(a, b) for a, b in zip(result, branch, strict=True)]
    return tuple(plain(desc) for desc in result)


class _Branching(Bound):
    """The output is that of the branch taken."""

    outputs = ("output*",)
    foldable = False
    stateless = False

    def infer(self, *inputs: TensorDesc | None) -> tuple[TensorDesc, ...]:
        return tuple(self.out_descs)

    def infer_from(self, subgraph_outputs: Sequence[Sequence[TensorDesc]]) -> tuple[TensorDesc, ...]:
        """The outputs, once the subgraphs' outputs are known."""
        return merged_outputs(subgraph_outputs)


@operator(aliases=("StatelessIf", "_If"))
class If(_Branching):
    """then_branch where `cond` is true, else else_branch."""

    inputs = ("cond", "input*")
    graphs = ("then_branch", "else_branch")


@operator(aliases=("StatelessCase",))
class Case(_Branching):
    """Branch number `branch_index`; the last one when there is no such branch."""

    inputs = ("branch_index", "input*")
    graphs = ("branches*",)


class _Looping(_Branching):
    """Outputs carry the types of the inputs; dims that an iteration changes are unknown."""

    def infer_from(self, subgraph_outputs: Sequence[Sequence[TensorDesc]]) -> tuple[TensorDesc, ...]:
        """The outputs, from those of the last subgraph (the body) and the initial values."""
        body = subgraph_outputs[-1]
        initial = [desc for desc in self.in_descs if desc is not None][-len(body) :] if body else []
        return tuple(merged(a, b) for a, b in zip(initial, body, strict=True))


@operator(aliases=("StatelessWhile", "_While"))
class While(_Looping):
    """The body's outputs become its next inputs, as long as the cond graph gives true."""

    parallel_iterations: int = 10
    inputs = ("input*",)
    graphs = ("cond", "body")


@operator()
class For(_Looping):
    """The body for i = start, start + delta, ... before limit."""

    inputs = ("start", "limit", "delta", "input*")
    graphs = ("body",)


@operator(aliases=("StatefulPartitionedCall",))
class PartitionedCall(_Branching):
    """A subgraph in place of a node; inlined."""

    config: str = ""
    config_proto: str = ""
    executor_type: str = ""
    inputs = ("args*",)
    graphs = ("f",)


@importer("If")
def if_(node: OnnxNode, build: Builder) -> None:
    cond = node.input(0)
    desc = build.desc(cond)
    if desc is None or desc.rank != 0:
        # ONNX allows one element of any rank; GE asks a tensor with dims only whether it is empty.
        cond = build.op("SqueezeV2", cond, axis=())
    then_branch, then_ports = build.subgraph(node, "then_branch")
    else_branch, else_ports = build.subgraph(node, "else_branch")
    inputs: tuple[Port, ...] = (cond, *then_ports, *else_ports)
    attrs = {"then_branch": then_branch, "else_branch": else_branch}
    for index, port in enumerate(build.ops("If", len(node.outputs), *inputs, **attrs)):
        build.output(index, port)
