"""The one table of all passes, in GE's order (cli.md 6.1-6.4, variables.md 7)."""

from __future__ import annotations

from gecli.passes.base import CompileSettings, Pass, Stage
from gecli.passes.common_subexpression import CommonSubexpression
from gecli.passes.constant_folding import ConstantFolding
from gecli.passes.infer_shape import InferShape
from gecli.passes.prune import Prune
from gecli.passes.useless_nodes import IdentityRemove, NoUseReshapeRemove, UnchangedTransposeRemove

# A pass that GE runs at several places stands at each of them.
STAGES: tuple[tuple[Stage, tuple[type[Pass], ...]], ...] = (
    (
        Stage.PREPARE,
        (InferShape, IdentityRemove, NoUseReshapeRemove, UnchangedTransposeRemove, Prune),
    ),
    (Stage.OPTIMIZE_1, (CommonSubexpression, ConstantFolding, Prune)),
    (Stage.OPTIMIZE_2, (ConstantFolding, Prune)),
)


def pipeline(settings: CompileSettings) -> list[Pass]:
    """The passes of a compile in order, without those that the settings leave out."""
    return [_placed(kind(), stage) for stage, kinds in STAGES for kind in kinds if _wanted(kind, settings)]


def pass_names() -> dict[str, bool]:
    """GE's name of every pass, and whether it is a correctness pass, which cannot be switched off."""
    return {kind.name: kind.correctness for _, kinds in STAGES for kind in kinds}


def _wanted(kind: type[Pass], settings: CompileSettings) -> bool:
    return kind.name != "VariableOpPass" or settings.variable_acc


def _placed(step: Pass, stage: Stage) -> Pass:
    """`step` as a part of `stage`, which for a repeated pass is not always that of its class."""
    object.__setattr__(step, "stage", stage)
    return step
