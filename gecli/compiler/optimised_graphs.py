"""Graphs that come from the document of an OM: compiled before, so that no pass may run on them again (cli.md 2.2).

What is left of a compile is the memory: variables get their addresses, feature maps and weights their places, tasks
and the variable record are made. Options that work through the passes or change the graph before them are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gecli.errors import Diagnostic, InputError, InvalidOption
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import NO_ATTRS
from gecli.loading import LoadedModel
from gecli.options.values import Options
from gecli.variables.rebuild_control import RebuildControl
from gecli.variables.trans_road import TransRoad, TransStep
from gecli.variables.var_manager import VarManager

PARSE = "parse"
STOP_AFTER, SOC = "stop-after", "ge.socVersion"
# Options whose effect is in the graph of the document already, or can no longer be had.
_DECIDED = (
    "input_shape", "dim", "input_shape_range", "ge.inputHintShape", "input_format", "ge.INPUT_NODES_SET_FP16",
    "ge.outputNodeName", "ge.outputDatatype", "ge.exec.precision_mode_v2", "ge.exec.precision_mode",
    "ge.exec.modify_mixlist", "keep_dtype", "format-policy", "ge.enableSmallChannel", "ge.oo.level",
    "ge.oo.constantFolding", "ge.oo.deadCodeElimination", "ge.optimizationSwitch", "ge.fusionSwitchFile",
    "verify-passes", "ge.graphRunMode", "ge.exec.variable_acc", "ge.AllowMultiGraphParallelCompile",
    "ge.constLifecycle", "strict-variable-cast", "strict-var-init", "dump-graph", "jit",
)  # fmt: skip
_SHOWN = 5


def check_options(loaded: LoadedModel, options: Options) -> list[Diagnostic]:
    """Warnings for a document under these options. Raises InvalidOption with every option that it excludes."""
    given = [name for name in _DECIDED if options.is_set(name) and options.get(name)]
    stage = options.text(STOP_AFTER)
    if stage not in (None, PARSE, ""):
        given.append(STOP_AFTER)
    faults = [_refused(options, name, loaded.path) for name in given]
    soc = loaded.origin.soc if loaded.origin else ""
    if soc and options.is_set(SOC) and options.text(SOC) != soc:
        faults.append(_other_soc(options, soc, loaded.path))
    if faults:
        raise InvalidOption.of(faults)
    return [*_unknown_types(loaded), *_files_beside(loaded)]


def refuse_where_a_source_is_needed(loaded: LoadedModel, what: str, option: str) -> None:
    """Raises InputError for a document where only the source model has what is asked for."""
    if not loaded.graph.is_optimised:
        return
    raise InputError(
        "G1001",
        f"{loaded.path} is the document of a compiled model, {what}",
        where=loaded.path,
        why="its graph has device formats and the changes of the passes",
        do="give the source model",
        file=loaded.path,
        option=option,
    )


def check_session(loaded: Sequence[LoadedModel]) -> None:
    """Raises InvalidOption when a document's variables would be shared with other models."""
    if len(loaded) < 2:
        return
    for each in loaded:
        if each.graph.is_optimised and any(node.is_variable for node in each.graph.all_nodes()):
            raise InvalidOption(
                "E10001",
                f"{each.path} cannot share its variables with the other models of the command",
                where=each.path,
                why="it is the document of a compiled model: how its variables are stored was decided then",
                do="--no-session, or compile the source models together",
                option="--session",
            )


def restore_roads(graph: Graph, manager: VarManager, rebuild: RebuildControl, graph_id: int) -> None:
    """Give the variables that are stored in another format than they were declared their roads.

    The record of the compile had them, its OM has not. They count as changed by this graph, as they did then.
    """
    for node in graph.all_nodes():
        if node.is_variable and not node.ref_variable and node.output_descs:
            road = _road(node)
            if road is not None and not manager.trans_road(node.name):
                manager.set_trans_road(node.name, road)
                manager.set_changed_graph_id(node.name, graph_id)
                rebuild.state_changed(node.name)


def _road(node: OpDesc) -> TransRoad | None:
    """From the origin form to the stored one; None where they are one, or the host cannot convert."""
    stored = replace(node.output_descs[0], attrs=NO_ATTRS, name="", size_bytes=0)
    declared = stored.logical()
    if declared.same_storage(stored):
        return None
    step = TransStep("TransData", declared, stored)
    return None if step.why_not_executable() else TransRoad((step,))


def _refused(options: Options, name: str, path: str) -> Diagnostic:
    shown = f"--{options.option(name).name}" if not options.option(name).name.startswith("ge.") else name
    return Diagnostic(
        "E10001",
        f"{shown} cannot be used with the document of a compiled model",
        where=path,
        why="its graph went through the passes before and does not go through them again",
        do=f"leave {shown} out, or compile the source model with it",
        option=shown,
    )


def _other_soc(options: Options, soc: str, path: str) -> Diagnostic:
    return Diagnostic(
        "E10001",
        f"--soc-version {options.text(SOC)} contradicts the document",
        where=path,
        why=f"its graph was compiled for {soc}, which decided its formats",
        do=f"--soc-version {soc}, or leave the option out",
        option="--soc-version",
        expected=soc,
        actual=options.text(SOC),
    )


def _unknown_types(loaded: LoadedModel) -> list[Diagnostic]:
    from gecli.ops.registry import find

    unknown = sorted({node.type for node in loaded.graph.all_nodes()} - {"NetOutput"})
    unknown = [name for name in unknown if find(name) is None]
    if not unknown:
        return []
    more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
    return [
        Diagnostic(
            "E10501",
            "gecli run cannot run the OM: operators of the document have no definition",
            where=loaded.path,
            why=f"types {', '.join(unknown[:_SHOWN])}{more}",
            do="inspect it with gecli inspect-om",
            severity="warning",
            file=loaded.path,
        )
    ]


def _files_beside(loaded: LoadedModel) -> list[Diagnostic]:
    """Weights in files stay where they are: the document names them as the OM did."""
    count = sum(node.type == "FileConstant" for node in loaded.graph.all_nodes())
    if not count:
        return []
    many = "1 constant" if count == 1 else f"{count} constants"
    return [
        Diagnostic(
            "G1003",
            f"the weights of {many} lie in files that are not copied",
            where=loaded.path,
            why="the OM names them as the one did that the document tells of",
            do="put them into weight/ beside the OM, or run it with --weight-dir",
            severity="warning",
            file=loaded.path,
        )
    ]
