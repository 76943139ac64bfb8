"""Resource variables as variables: VarHandleOp and the operators on its handle (training.md 11).

A handle becomes the Variable that it names, and what assigns through it becomes Assign, AssignAdd or AssignSub.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gecli.ir.attributes import INIT_VALUE, VARIABLE_TYPES
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Use
from gecli.ir.surgery import isolate, move_in_control, move_out_control
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.loading.json_graph import HANDLE, GraphReader
from gecli.ops.operator import convert_attribute
from gecli.ops.registry import find

READ = "ReadVariableOp"
DESTROY = "DestroyResourceOp"
ASSIGNS = {"AssignVariableOp": "Assign", "AssignAddVariableOp": "AssignAdd", "AssignSubVariableOp": "AssignSub"}
REWRITTEN = frozenset((HANDLE, DESTROY, *ASSIGNS))  # no graph has them after loading
_QUESTIONS = frozenset(("VarIsInitializedOp", "IsVariableInitialized"))
_USERS = frozenset((READ, DESTROY, *ASSIGNS, *_QUESTIONS, "CountUpTo", "RefIdentity"))
_HANDLE_ATTRS = ("container", "shared_name", "dtype", "shape")
_HARMLESS = _QUESTIONS | {READ, "NetOutput"}  # they do not write the variable that they read
_ASSIGN_TYPES = frozenset(ASSIGNS.values())
# What a writer may have between itself and the variable (variables.md 8.3).
_PASSING_ON = frozenset(
    ("TransData", "Cast", "Transpose", "TransposeD", "Permute", "Reshape", "ReFormat", "RefIdentity")
)


def rewrite_handles(readers: Iterable[GraphReader]) -> None:
    """Rewrite all handles of a document whose graphs are connected. Raises InputError."""
    readers = list(readers)
    work = [each for each in (_Rewriter(reader) for reader in readers) if each.found]
    if not work:
        return
    described: dict[str, TensorDesc] = {}
    containers: dict[str, OpDesc] = {}
    for each in work:
        each.check()
        each.describe(described)
        each.check_containers(containers)
    for each in work:
        each.rewrite(described)
    _settle_reads(readers)


class _Rewriter:
    """One graph of the document."""

    def __init__(self, reader: GraphReader) -> None:
        self.reader = reader
        self.graph = reader.graph
        self.found = any(map(reader.graph.count_of, (*sorted(REWRITTEN), READ)))
        self.pointers = {node: pointer for pointer, node in reader.read} if self.found else {}

    # ------------------------------------------------------------------ checking

    def check(self) -> None:
        for node in self.graph.nodes_of(HANDLE):
            self._check_users(node)
        for node in self.graph.nodes_of(*ASSIGNS, DESTROY):
            self._check_operator(node)
        for node in self.graph.nodes_of(READ):
            self._check_resource(node)

    def _check_users(self, handle: OpDesc) -> None:
        source, pointer = self.reader.source, self.pointers[handle]
        for place, name, _ in self.reader.named_outputs():
            if name == handle.name:
                why = "an output is a tensor, and a handle only names a variable"
                raise source.fault(place, f"handle {name!r} is an output of the graph", why, f"name a {READ} on it")
        for use in _uses(handle):
            if use.node.type not in _USERS or use.slot:
                raise source.fault(
                    pointer,
                    f"handle {handle.name!r} reaches {use.node.type} {use.node.name!r}",
                    f"input {use.slot} of it; a handle goes to input 0 of {', '.join(sorted(_USERS))}",
                    f"feed {use.node.name!r} from a {READ}, or from a Variable in place of the handle",
                )

    def _check_operator(self, node: OpDesc) -> None:
        self._check_resource(node)
        if not node.output_descs:
            return
        user = next((use.node.name for use in _uses(node)), None)
        raise self.reader.source.fault(
            self.pointers[node],
            f"{node.type} {node.name!r} has no output",
            "the graph declares one" if user is None else f"{user!r} reads output 0",
            f"order what follows by a control link, and read the variable with {READ}",
        )

    def _check_resource(self, node: OpDesc) -> None:
        """Input 0 is a handle or a variable; `dtype` is that of the variable."""
        wanted = 2 if node.type in ASSIGNS else 1
        inputs = node.data_inputs
        first = node.inputs[0] if node.inputs else None
        source = self.reader.source
        if first is None or len(inputs) != wanted:
            ports = "a handle and a value" if wanted == 2 else "a handle"
            what = f"{node.type} {node.name!r} does not have its inputs"
            raise source.fault(self.pointers[node], what, f"it has {len(inputs)}, expected are {ports}", "connect it")
        if node.type == READ and first.node.type != HANDLE:
            return  # of a variable or a reference: what it gives is known from there
        if first.node.type != HANDLE and not first.node.is_variable:
            raise source.fault(
                self.pointers[node],
                f"{node.type} {node.name!r} has no handle at input 0",
                f"it reads {first.node.type} {first.node.name!r}",
                f"feed input 0 from a {HANDLE}",
            )
        own = self._dtype(node) if "dtype" in node.attrs else None
        dtype = self._dtype(first.node) if first.node.type == HANDLE else first.desc.dtype
        if own is not None and own is not dtype:
            raise source.fault(
                f"{self.pointers[node]}/attrs/dtype",
                f"{node.type} {node.name!r} has another dtype than its variable",
                f"{own.serial}, the variable of {first.node.name!r} is {dtype.serial}",
                "write the variable's dtype",
                "E13014",
            )

    # ------------------------------------------------------------------ descriptors

    def describe(self, described: dict[str, TensorDesc]) -> None:
        """Enter the variables of this graph; handles and variables of one name must be of one kind."""
        for node in self.graph.nodes_of(*sorted(VARIABLE_TYPES), HANDLE):
            name = variable_name(node)
            desc = self._desc_of(node) if node.type == HANDLE else node.output_descs[0]
            known = described.get(name)
            if known is None or (known.shape == UNKNOWN_RANK and known.dtype is desc.dtype):
                described[name] = desc
            elif known.dtype is not desc.dtype or (desc.shape != UNKNOWN_RANK and known.shape != desc.shape):
                raise self.reader.source.fault(
                    self.pointers[node],
                    f"variable {name!r} is described in two ways",
                    f"{node.type} {node.name!r} says {_shown(desc)}, another node {_shown(known)}",
                    "two handles of one name are one variable: give both one dtype and shape",
                )

    def check_containers(self, first: dict[str, OpDesc]) -> None:
        """TensorFlow keeps variables of one name in two containers apart; here a name is one variable."""
        for handle in self.graph.nodes_of(HANDLE):
            other = first.setdefault(variable_name(handle), handle)
            ours, theirs = (each.attrs.get("container") or "" for each in (handle, other))
            if ours != theirs:
                raise self.reader.source.fault(
                    self.pointers[handle],
                    f"variable {variable_name(handle)!r} is in two containers",
                    f"{handle.name!r} says {ours!r}, {other.name!r} {theirs!r}; a session has one variable of a name",
                    "give one of the variables another shared_name, or both handles one container",
                )

    def _desc_of(self, handle: OpDesc) -> TensorDesc:
        """What the handle says of its variable; the format is that of its declared output."""
        source, pointer = self.reader.source, self.pointers[handle]
        if "dtype" not in handle.attrs:
            raise source.fault(
                pointer,
                f"{HANDLE} {handle.name!r} has no attribute 'dtype'",
                "it is the dtype of the variable",
                '"attrs": {"dtype": {"dtype": "DT_FLOAT"}, "shape": [2, 3]}',
                "E14002",
            )
        dtype = self._dtype(handle)
        value = handle.attrs.get("shape", UNKNOWN_RANK)
        try:
            shape = tuple(convert_attribute("tuple[int, ...]", value))
        except (TypeError, ValueError) as err:
            why = f"{err}; expected tuple[int, ...]"
            do = '"shape": [2, 3]'
            raise source.fault(f"{pointer}/attrs/shape", "attribute 'shape' is not valid", why, do, "E13014") from err
        return (
            TensorDesc(dtype, shape, handle.output_descs[0].format) if handle.output_descs else TensorDesc(dtype, shape)
        )

    def _dtype(self, node: OpDesc) -> DataType:
        try:
            found: DataType = convert_attribute("DataType", node.attrs["dtype"])
            if found is DataType.RESOURCE:
                raise ValueError("DT_RESOURCE is the dtype of the handle")
        except KeyError:
            return DataType.UNDEFINED
        except (TypeError, ValueError) as err:
            place = f"{self.pointers[node]}/attrs/dtype"
            why = f"{err}; expected DataType"
            do = '"dtype": {"dtype": "DT_FLOAT"}'
            raise self.reader.source.fault(place, "attribute 'dtype' is not valid", why, do, "E13014") from err
        return found

    # ------------------------------------------------------------------ rewriting

    def rewrite(self, described: dict[str, TensorDesc]) -> None:
        self._make_variables(described)
        for node in self.graph.nodes_of(*ASSIGNS):
            self.graph.retype(node, ASSIGNS[node.type])
            node.attrs.pop("dtype", None)
            node.add_output(TensorDesc(DataType.UNDEFINED, UNKNOWN_RANK))
            node.output_names = None
            self.reader.silent.add(node)
        for node in self.graph.nodes_of(DESTROY):
            self.graph.retype(node, "NoOp")
            self.graph.disconnect(node, 0)
            node.inputs, node.input_descs, node.attrs = [], [], {}

    def _make_variables(self, described: dict[str, TensorDesc]) -> None:
        """One node for each variable: the one that is there, or its first handle."""
        kept: dict[str, OpDesc] = {node.name: node for node in self.graph.nodes_of(*sorted(VARIABLE_TYPES))}
        renamed: list[tuple[OpDesc, str]] = []
        for handle in self.graph.nodes_of(HANDLE):
            name = variable_name(handle)
            init = handle.attrs.pop(INIT_VALUE, None)
            other = kept.setdefault(name, handle)
            if other is handle:
                self._become_variable(handle, described[name])
                renamed += [(handle, name)] if handle.name != name else []
            else:
                self._become_user_of(handle, other)
            if init is not None and other.init_value is None:
                self.reader.move_init_value(other, init, self.pointers[handle])
        for node, name in renamed:  # handles may have each other's names
            self.graph.rename(node, self.graph.unique_name(f"{name}/{HANDLE}"))
        for node, name in renamed:
            taken = self.graph.get(name)
            if taken is not None:
                what = f"variable {name!r} cannot have its name"
                why = f"{taken.type} {taken.name!r} has it"
                raise self.reader.source.fault(self.pointers[node], what, why, "give that node another id", "E13009")
            self.graph.rename(node, name)

    def _become_variable(self, handle: OpDesc, desc: TensorDesc) -> None:
        if desc.shape == UNKNOWN_RANK:
            raise self.reader.source.fault(
                self.pointers[handle],
                f"{HANDLE} {handle.name!r} has no attribute 'shape'",
                "no other node tells the shape of its variable",
                '"attrs": {"dtype": {"dtype": "DT_FLOAT"}, "shape": [2, 3]}',
                "E14002",
            )
        self.graph.retype(handle, "Variable")
        for key in _HANDLE_ATTRS:
            handle.attrs.pop(key, None)
        if not handle.output_descs:
            handle.add_output(desc)
        handle.output_descs[0] = desc
        self.reader.declared.add(handle)

    def _become_user_of(self, handle: OpDesc, variable: OpDesc) -> None:
        if handle.output_descs:
            self.graph.move_users(handle.out(), variable.out())
        move_in_control(self.graph, handle, variable)
        move_out_control(self.graph, handle, variable)
        self.graph.remove(handle)


def variable_name(node: OpDesc) -> str:
    """The variable of a handle or of a Variable node."""
    return str(node.attrs.get("shared_name") or node.name) if node.type == HANDLE else node.name


def _uses(node: OpDesc) -> Iterator[Use]:
    for users in node.users:
        yield from users


def _shown(desc: TensorDesc) -> str:
    return f"{desc.dtype.serial} {'of unknown shape' if desc.shape == UNKNOWN_RANK else list(desc.shape)}"


# ---------------------------------------------------------------------- reading


def _settle_reads(readers: Iterable[GraphReader]) -> None:
    """Let the users of a ReadVariableOp read the variable itself where no writer follows; elsewhere it is a copy."""
    readers = list(readers)
    writers: dict[str, list[OpDesc]] = {}
    for reader in readers:
        for variable in reader.graph.nodes_of(*sorted(VARIABLE_TYPES)):
            found = [use.node for use in _uses(variable) if use.node.type not in _HARMLESS]
            writers.setdefault(variable.name, []).extend(found)
    for reader in readers:
        named = {name for _, name, _ in reader.named_outputs()}
        reads = [each for each in reader.graph.nodes_of(READ) if each.name not in named and _is_plain(each)]
        contested = {write for read in reads for write in writers[_source(read).name]}
        before = _written_before(reader.graph, contested) if contested else {}
        for read in reads:
            found = writers[_source(read).name]
            if all(write.type in _ASSIGN_TYPES and not any(write.users) and write in before[read] for write in found):
                isolate(reader.graph, read)


def _source(read: OpDesc) -> OpDesc:
    return read.data_inputs[0].node


def _is_plain(read: OpDesc) -> bool:
    """It reads a variable, and what it gives is read only: not passed to a graph, nowhere a reference."""
    return _source(read).is_variable and any(read.users) and not any(map(_may_write, _uses(read)))


def _may_write(use: Use) -> bool:
    kind = find(use.node.type)
    if kind is None or use.node.subgraphs or kind.input_name(use.slot) in kind.writes:
        return True
    return use.node.type in _PASSING_ON and any(map(_may_write, _uses(use.node)))


def _written_before(graph: Graph, writers: Iterable[OpDesc]) -> dict[OpDesc, frozenset[OpDesc]]:
    """For each ReadVariableOp those of `writers` that surely run before it."""
    bits = {node: 1 << position for position, node in enumerate(writers)}
    masks: dict[OpDesc, int] = {}
    for node in graph.nodes():
        mask = bits.get(node, 0)
        for other in graph.predecessors(node):
            mask |= masks[other]
        masks[node] = mask
    return {read: frozenset(node for node, bit in bits.items() if masks[read] & bit) for read in graph.nodes_of(READ)}
