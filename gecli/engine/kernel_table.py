"""The kernel table: what formats and data types each operator type runs in (formats.md 5.2, training.md 15).

The real tables belong to a vendor package; this is the simulator's, as compact text. A row of a format-bound type
lists its operands in order:

    5HD NC1HWC0   FZ FRACTAL_Z   6HD NDC1HWC0   FZ3 FRACTAL_Z_3D   NZ FRACTAL_NZ
    ND  origin format, the data type follows the row         =   origin format, the data type is never changed

The last token stands for all further operands. Statistics of normalisations are `=`: they stay FLOAT vectors, because
a vector in NC1HWC0 would be conversions without a gain in the simulator.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import NamedTuple

from gecli.ir.dtype import DataType


class Policy(Enum):
    """How a type chooses its storage formats."""

    AGNOSTIC = "all operands share one format"  # agn(1)
    PAIRED = "output i has the format of input i"  # agn(2)
    JOINED = "one format, where the split or joined axis is not cut inside a block"
    TABLE = "the formats of its row"
    ORIGIN = "origin formats"
    GIVEN = "declared: data, constants, variables, the nodes the engine inserts"


class KernelRow(NamedTuple):
    """The row of one operator type."""

    policy: Policy
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    cube: bool = False  # runs on the matrix unit; starts heavy-format propagation
    dtypes: tuple[str, ...] = ()  # of cube types: "F16", "F16>F32", with the capability it needs after a colon
    note: str = ""

    def input_token(self, slot: int) -> str:
        return _token(self.inputs, slot)

    def output_token(self, index: int) -> str:
        return _token(self.outputs, index)


HEAVY_TOKENS = ("5HD", "FZ", "6HD", "FZ3", "NZ")

_CUBE_DTYPES = "F16 F32:fp32_cube BF16:bf16 INT8>INT32"
_FILTER_GRADIENT_DTYPES = "F16>F32 F32:fp32_cube BF16>F32:bf16"

# type names | inputs -> outputs | data types
_CUBE_ROWS = f"""
Conv2D DepthwiseConv2D Conv2DTransposeD Deconvolution | 5HD FZ ND -> 5HD | {_CUBE_DTYPES}
Conv2DTranspose | = 5HD FZ ND -> 5HD | {_CUBE_DTYPES}
Conv2DBackpropInput DepthwiseConv2DBackpropInput | = FZ 5HD -> 5HD | F16 F32:fp32_cube BF16:bf16
Conv2DBackpropInputD DepthwiseConv2DBackpropInputD | FZ 5HD -> 5HD | F16 F32:fp32_cube BF16:bf16 F16>F32 INT8>INT32
Conv2DBackpropFilter DepthwiseConv2DBackpropFilter | 5HD = 5HD -> FZ | {_FILTER_GRADIENT_DTYPES}
Conv2DBackpropFilterD DepthwiseConv2DBackpropFilterD | 5HD 5HD -> FZ | {_FILTER_GRADIENT_DTYPES}
Conv3D Conv3DTransposeD | 6HD FZ3 ND -> 6HD | F16 F32:fp32_cube BF16:bf16
Conv3DTranspose | = 6HD FZ3 ND -> 6HD | F16 F32:fp32_cube BF16:bf16
Conv3DBackpropInput | = FZ3 6HD -> 6HD | F16 F32:fp32_cube BF16:bf16
Conv3DBackpropInputD | FZ3 6HD -> 6HD | F16 F32:fp32_cube BF16:bf16
Conv3DBackpropFilter | 6HD = 6HD -> FZ3 | {_FILTER_GRADIENT_DTYPES}
Conv3DBackpropFilterD | 6HD 6HD -> FZ3 | {_FILTER_GRADIENT_DTYPES}
MatMul MatMulV2 MatMulV3 BatchMatMul BatchMatMulV2 BatchMatMulV3 FullyConnection | NZ NZ ND -> NZ | {_CUBE_DTYPES}
"""
_VECTOR_ROWS = """
MaxPool MaxPoolV3 AvgPool AvgPoolV2 GlobalAveragePool Pooling LRN | 5HD -> 5HD
MaxPoolGrad MaxPoolV3Grad | 5HD 5HD 5HD -> 5HD
AvgPoolGrad AvgPoolV2Grad | = 5HD -> 5HD
AvgPoolGradD AvgPoolV2GradD | 5HD ND -> 5HD
MaxPool3D AvgPool3D AvgPool3DD | 6HD -> 6HD
BatchNorm BatchNormV2 BNTrainingUpdate BNTrainingUpdateV2 BNTrainingUpdateV3 BNInfer | 5HD = -> 5HD =
BNInference BNInferenceD | 5HD = -> 5HD
BNTrainingReduce | 5HD -> =
BatchNormGrad | 5HD 5HD = -> 5HD =
BNTrainingUpdateGrad | 5HD 5HD = -> =
BNTrainingReduceGrad | 5HD 5HD = -> 5HD
BNInferGrad | 5HD = -> 5HD
InstanceNorm | 5HD ND -> 5HD =
ROIAlign ROIPooling | 5HD = -> 5HD
"""
_AGNOSTIC = """
Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Elu Celu CeluV2 Erf Exp Expm1 FastGelu Floor Gelu GeluV2
HardSigmoid HardSwish HardTanh Invert LeakyRelu Log Log1p Mish Muls Adds Axpy AxpyV2 Neg Power Reciprocal Relu Relu6
Relu6D Rint Round Rsqrt Selu Shrink Sigmoid Sign Silu Sin Sinh Softplus SoftplusV2 Softsign Sqrt Square Swish Tan Tanh
Threshold ThresholdedRelu Cast Identity TensorMove StopGradient PreventGradient Snapshot RefIdentity ReadVariableOp
ClipByValue Clip BiasAdd
Add AddV2 Sub Mul RealDiv Div DivNoNan Maximum Minimum SquaredDifference Pow Atan2 Xdivy Xlogy
FloorDiv FloorMod Mod TruncateDiv BitwiseAnd BitwiseOr BitwiseXor AddN AccumulateNV2 Lerp
ReluGrad Relu6Grad LeakyReluGrad SigmoidGrad TanhGrad GeluGrad FastGeluGrad SoftplusGrad SoftplusV2Grad SoftsignGrad
EluGrad SeluGrad SiluGrad SwishGrad HardSigmoidGrad HardSwishGrad HardtanhGrad LogSigmoidGrad MishGrad
SqrtGrad RsqrtGrad ReciprocalGrad AbsGrad InvGrad
SigmoidCrossEntropyWithLogits SigmoidCrossEntropyWithLogitsGrad
Assign AssignAdd AssignSub
ApplyGradientDescent ApplyMomentum ApplyMomentumD ApplyKerasMomentum ApplyKerasMomentumD SGD ApplyAdam ApplyAdamD
ApplyAdamWithAmsgrad ApplyAdamWithAmsgradD ApplyAdaMax ApplyAdaMaxD ApplyRMSProp ApplyRMSPropD ApplyCenteredRMSProp
ApplyCenteredRMSPropD ApplyAdagrad ApplyAdagradD ApplyAdagradV2 ApplyAdagradV2D ApplyAdadelta ApplyAdadeltaD ApplyFtrl
ApplyFtrlD ApplyFtrlV2 ApplyFtrlV2D ApplyProximalGradientDescent
HcomAllReduce HcomReduce HorovodAllreduce HorovodBroadcast hvdCallbackBroadcast HvdCallbackBroadcast
"""
_PAIRED = "IdentityN HcomBroadcast"
_JOINED = "ConcatD ConcatV2D Concat ConcatV2 Split SplitD SplitV SplitVD"
_ORIGIN = """
SoftmaxV2 LogSoftmaxV2 HardMax SoftmaxGrad LogSoftmaxGrad LayerNorm LayerNormV3 LayerNormV4 GroupNorm RmsNorm
ReduceSum ReduceSumD ReduceMean ReduceMeanD ReduceProd ReduceProdD ReduceMax ReduceMaxD ReduceMin ReduceMinD ReduceAll
ReduceAllD ReduceAny ReduceAnyD ReduceLogSumExp SquareSumV1 LpNormV2 L2Normalize L2NormalizeGrad TopK TopKV2 TopKD Sort
ArgMax ArgMaxV2 ArgMaxD ArgMin ArgMinD Unique Bincount Cumsum CumsumD Cumprod CumprodD CumSum CumSumD CumProd CumProdD
Reshape Flatten FlattenV2 Transpose TransposeD Permute Squeeze SqueezeV2 SqueezeV3 Unsqueeze UnsqueezeV2 UnsqueezeV3
ExpandDims Shape ShapeN Size Rank Gather GatherV2 GatherV2D GatherElements GatherNd Embedding EmbeddingLookup
EmbeddingBag EmbeddingDenseGrad ScatterElements ScatterUpdate ScatterAdd ScatterSub ScatterMul ScatterDiv ScatterMax
ScatterMin ScatterNdUpdate ScatterNdAdd ScatterNdSub ScatterNdMul ScatterNdMax ScatterNdMin TensorScatterUpdate
ScatterNonAliasingAdd InplaceUpdate InplaceAdd InplaceSub ScatterNd Scatter StridedSliceAssign StridedSliceAssignD
UnsortedSegmentSum UnsortedSegmentSumD Slice SliceD StridedSlice StridedSliceD StridedSliceV2 ReverseV2 ReverseV2D
ReverseSequence Pad PadD PadV2 PadV3 MirrorPad Tile TileD Expand BroadcastTo BroadcastToD Fill Range Eye Triu Tril Trilu
OneHot OneHotD Where NonZero ZerosLike OnesLike Pack Unpack Equal NotEqual Less LessEqual Greater GreaterEqual
LogicalAnd LogicalOr LogicalNot IsNan IsInf IsFinite SelectV2 Select MaskedFill LeftShift RightShift
PRelu PReluGrad ReluV2 ReluGradV2 GeluGradV2 EluGradV2 Resize ResizeNearestNeighborV2 ResizeNearestNeighbor
ResizeBilinearV2 ResizeBilinear Upsample GridSampler2D DepthToSpace SpaceToDepth BatchToSpace SpaceToBatch
BatchToSpaceND SpaceToBatchND MaxPoolWithArgmax MaxPoolWithArgmaxV1 MaxPoolWithArgmaxV2 MaxPoolGradWithArgmax
MaxPoolGradWithArgmaxV1 MaxPoolGradWithArgmaxV2 AdaptiveAvgPool2d BiasAddGrad LayerNormGrad LayerNormGradV3
LayerNormXBackprop LayerNormXBackpropV2 LayerNormBetaGammaBackprop LayerNormBetaGammaBackpropV2 InstanceNormV2
InstanceNormGrad GroupNormGrad RmsNormGrad LRNGrad SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits
SigmoidCrossEntropyWithLogitsV2 SigmoidCrossEntropyWithLogitsGradV2 MseLoss MseLossGrad L2Loss LpLoss SmoothL1Loss
SmoothL1LossGrad BinaryCrossEntropy BinaryCrossEntropyGrad NLLLoss NLLLossGrad DropOutGenMask DropOutDoMask
DropOutGenMaskV3 DropOutDoMaskV3 StatelessDropOutGenMask Dropout BroadcastGradientArgs ApplyAdamW Einsum
MatrixDeterminant QuantBatchMatmulV3 AscendQuant AscendDequant Quantize Dequantize Bitcast CountUpTo
HcomAllGather HorovodAllgather HcomReduceScatter HcomAllToAll HcomAllToAllV HcomAllToAllVC FlashAttentionScore
PromptFlashAttention IncreFlashAttention RotaryPositionEmbedding ApplyRotaryPosEmb
If StatelessIf _If Case StatelessCase While StatelessWhile _While For PartitionedCall StatefulPartitionedCall
NonMaxSuppressionV6 DynamicQuantizeLinear RandomUniform RandomStandardNormal RandomUniformInt TruncatedNormal
Multinomial StatelessBernoulli StatelessBernoulliV2 MVNV2 CommonLSTM CommonGRU CommonRNN UniqueWithCountsAndSorting
AscendQuantV2 AscendAntiQuant AscendRequant
Switch RefSwitch SwitchN Merge RefMerge Enter RefEnter Exit RefExit NextIteration RefNextIteration LoopCond
"""
_GIVEN = """
Data RefData AippData AnnData NetOutput Variable VariableV2 Const Constant ConstantOp FileConstant ConstPlaceHolder
TransData TransDataD ReFormat TemporaryVariable DestroyTemporaryVariable NoOp ControlTrigger VarHandleOp
VarIsInitializedOp IsVariableInitialized PlaceHolder End StreamActive LabelSet LabelGoto LabelGotoEx Send Recv
SendNotify RecvNotify
"""

_DTYPE_FROZEN = """
AscendQuant AscendQuantV2 AscendDequant AscendAntiQuant AscendRequant DynamicQuantizeLinear Quantize Dequantize
QuantBatchMatmulV3 Bitcast HcomReceive HcomSend
"""
_PRECISION_BLACK = """
SoftmaxV2 LogSoftmaxV2 SoftmaxGrad LogSoftmaxGrad LayerNorm LayerNormV3 LayerNormV4 LayerNormGrad LayerNormGradV3
GroupNorm InstanceNorm RmsNorm BatchNorm BNInference BNInfer BNTrainingReduce BNTrainingUpdate L2Loss LpLoss MseLoss
SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits SigmoidCrossEntropyWithLogits NLLLoss
BinaryCrossEntropy SmoothL1Loss ReduceSum ReduceSumD ReduceMean ReduceMeanD ReduceProd ReduceProdD ReduceLogSumExp
SquareSumV1 LpNormV2 L2Normalize Cumsum CumsumD Exp Expm1 Log Log1p Pow Power Rsqrt Reciprocal
"""


def _names(text: str) -> list[str]:
    return text.split()


# Types that only look at dims or convert: they take whatever floating type their producer gives.
DTYPE_FREE = frozenset(("Cast", "Shape", "ShapeN", "Size", "Rank"))
# Their data types are part of their meaning.
DTYPE_FROZEN = frozenset(_names(_DTYPE_FROZEN))
# Sensitive to rounding: kept in FLOAT by the mixed precision modes ("black" list).
PRECISION_BLACK = frozenset(_names(_PRECISION_BLACK))


def kernel_row(type: str) -> KernelRow:
    """The row of an operator type. A type that is not in the table runs in origin formats, with a note."""
    row = _rows().get(type)
    if row is None:
        return KernelRow(Policy.ORIGIN, note=f"{type} is not in the kernel table: it runs in origin formats")
    return row


def is_agnostic(type: str) -> bool:
    """True for types that compute element by element on stored bytes, whatever the format is."""
    return kernel_row(type).policy in (Policy.AGNOSTIC, Policy.PAIRED)


def is_cube(type: str) -> bool:
    """True for types that run on the matrix unit."""
    return kernel_row(type).cube


_SHORT = {
    "F16": DataType.FLOAT16,
    "F32": DataType.FLOAT,
    "BF16": DataType.BF16,
    "INT8": DataType.INT8,
    "INT32": DataType.INT32,
}


def cube_combinations(row: KernelRow, capabilities: frozenset[str]) -> list[tuple[DataType, DataType]]:
    """(input type, output type) of a cube row in order of preference; `capabilities` as in the row's conditions."""
    found = []
    for text in row.dtypes:
        pair, _, needs = text.partition(":")
        source, _, target = pair.partition(">")
        if not needs or needs in capabilities:
            found.append((_SHORT[source], _SHORT[target or source]))
    return found


@cache
def _rows() -> dict[str, KernelRow]:
    rows: dict[str, KernelRow] = {}
    for names, policy in (
        (_GIVEN, Policy.GIVEN),
        (_ORIGIN, Policy.ORIGIN),
        (_JOINED, Policy.JOINED),
        (_PAIRED, Policy.PAIRED),
        (_AGNOSTIC, Policy.AGNOSTIC),
    ):
        rows.update(dict.fromkeys(_names(names), KernelRow(policy)))
    for text, cube in ((_VECTOR_ROWS, False), (_CUBE_ROWS, True)):
        for line in text.strip().splitlines():
            types, operands, *dtypes = (part.strip() for part in line.split("|"))
            inputs, outputs = (tuple(side.split()) for side in operands.split("->"))
            row = KernelRow(Policy.TABLE, inputs, outputs, cube, tuple(dtypes[0].split()) if dtypes else ())
            rows.update(dict.fromkeys(_names(types), row))
    return rows


def _token(tokens: tuple[str, ...], position: int) -> str:
    return tokens[min(position, len(tokens) - 1)] if tokens else "ND"
