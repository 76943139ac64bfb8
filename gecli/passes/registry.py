"""The one table of all passes, in GE's order (cli.md 6.1-6.4, variables.md 7)."""

from __future__ import annotations

from gecli.passes.apply_add_output import ApplyAddOutput
from gecli.passes.assign_remove import AssignRemove
from gecli.passes.base import CompileSettings, Pass, Stage
from gecli.passes.cancel_inverse_trans import CancelInverseTrans
from gecli.passes.cast_remove import CastRemove
from gecli.passes.common_subexpression import CommonSubexpression
from gecli.passes.const_kind import ConstKind
from gecli.passes.constant_folding import ConstantFolding
from gecli.passes.format_selection import FormatSelection
from gecli.passes.infer_shape import InferShape
from gecli.passes.normalise_trans_ops import NormaliseTransOps
from gecli.passes.origin_format import InferFormat
from gecli.passes.precision_selection import PrecisionSelection
from gecli.passes.prune import Prune
from gecli.passes.recover_trans_roads import RecoverTransRoads
from gecli.passes.ref_identity_delete import RefIdentityDelete
from gecli.passes.same_transdata_breadth_fusion import SameTransdataBreadthFusion
from gecli.passes.split_variable_into_subgraph import SplitVariableIntoSubgraph
from gecli.passes.transop_breadth_fusion import TransOpBreadthFusion
from gecli.passes.transop_symmetry_elimination import TransOpSymmetryElimination
from gecli.passes.transop_without_reshape_fusion import TransOpWithoutReshapeFusion
from gecli.passes.transpose_transdata import TransposeTransData
from gecli.passes.useless_nodes import IdentityRemove, NoUseReshapeRemove, UnchangedTransposeRemove
from gecli.passes.var_is_initialized import VarIsInitialized
from gecli.passes.variable_op import VariableOp
from gecli.passes.variable_prepare import VariablePrepare
from gecli.passes.variable_ref_delete import VariableRefDelete
from gecli.passes.variable_ref_useless_control_out_delete import VariableRefUselessControlOutDelete

# A pass that GE runs at several places stands at each of them.
STAGES: tuple[tuple[Stage, tuple[type[Pass], ...]], ...] = (
    (Stage.NORMALIZE, (SplitVariableIntoSubgraph,)),
    (
        Stage.PREPARE,
        (
            InferFormat,
            InferShape,
            InferFormat,  # again for what has a rank only now
            VarIsInitialized,
            IdentityRemove,
            NoUseReshapeRemove,
            UnchangedTransposeRemove,
            NormaliseTransOps,
            Prune,
            ConstKind,
        ),
    ),
    (Stage.ORIGINAL, (ApplyAddOutput,)),
    (Stage.RUNNING_FORMAT, (VariablePrepare, RecoverTransRoads)),
    (Stage.PRECISION, (PrecisionSelection,)),
    (Stage.AFTER_PRECISION, (TransOpWithoutReshapeFusion,)),
    (Stage.FORMAT, (FormatSelection,)),
    (
        Stage.OPTIMIZE_1,
        (
            CommonSubexpression,
            SameTransdataBreadthFusion,
            VariableOp,
            TransOpWithoutReshapeFusion,
            TransOpBreadthFusion,
            CancelInverseTrans,
            CastRemove,
            TransposeTransData,
            TransOpSymmetryElimination,
            ConstantFolding,
            Prune,
            VariableRefUselessControlOutDelete,
        ),
    ),
    (Stage.OPTIMIZE_2, (AssignRemove, ConstantFolding, RefIdentityDelete, VariableRefDelete, Prune)),
)


def pipeline(settings: CompileSettings) -> list[Pass]:
    """The passes of a compile in order, without those that the settings leave out."""
    return [_placed(kind(), stage) for stage, kinds in STAGES for kind in kinds if _wanted(kind, settings)]


def pass_names() -> dict[str, bool]:
    """GE's name of every pass, and whether it is a correctness pass, which cannot be switched off."""
    return {kind.name: kind.correctness for _, kinds in STAGES for kind in kinds}


def _wanted(kind: type[Pass], settings: CompileSettings) -> bool:
    return kind is not VariableOp or settings.variable_acc


def _placed(step: Pass, stage: Stage) -> Pass:
    """`step` as a part of `stage`, which for a repeated pass is not always that of its class."""
    object.__setattr__(step, "stage", stage)
    return step
