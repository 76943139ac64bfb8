"""The three sizes of a variable: raw bytes, padded size (stored in the descriptor), span in variable memory."""

from __future__ import annotations

from math import prod

from gecli.errors import CompileError
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc

DEFAULT_PADDING_BYTES = 32  # most SoC descriptions; a profile may give another one
SIZE_ALIGN_BYTES = 32
SPAN_ALIGN_BYTES = 512  # HBM allocation unit
GUARD_BYTES = 512  # before and behind the tensor
INT64_MAX = (1 << 63) - 1

MAX_TENSOR_BYTES = 1 << 48  # no address space is larger; numpy counts a tensor without elements as if its 0 were a 1

# Formats whose size GE can compute (primary numbers); all others are an error.
KNOWN_FORMATS = frozenset(
    (0, 1, 2, 3, 4, 12, 13, 14, 16, 19, *range(25, 34), 36, 37, 38, 40, *range(43, 55)),
)
NO_TILING = "_tensor_no_tiling_mem_type"
MAX_SHAPE = "_tensor_max_shape"


def raw_bytes(desc: TensorDesc) -> int:
    """Bytes of the elements, packed. Raises CompileError (VAR_SIZE_UNKNOWN) for an unknown dim, type or format.

    Dims are read from the left and the first one that is not positive decides: a 0 gives 0, a negative one fails.
    """
    dims = _sized_dims(desc)
    for dim in dims:
        if dim == 0:
            return 0
        if dim < 0:
            raise _size_unknown(desc, f"dimension {dim} is unknown")
    if int(desc.format.primary) not in KNOWN_FORMATS:
        raise _size_unknown(desc, f"format {desc.format} has no size rule")
    elements = prod(dims)
    if elements > INT64_MAX or desc.dtype.bits is None:
        what = f"type {desc.dtype.serial} has no width" if desc.dtype.bits is None else f"{elements} elements overflow"
        raise _size_unknown(desc, what)
    size = desc.dtype.nbytes(elements)
    if size > INT64_MAX:
        raise _size_unknown(desc, f"{size} bytes overflow a signed 64-bit size")
    return size


def require_room(desc: TensorDesc, where: str, node: str) -> None:
    """Raises CompileError (VAR_SIZE_UNKNOWN) for a tensor that no memory holds and no array can be, empty or not.

    `run` refuses the same. Unknown dims count as 1.
    """
    if desc.dtype.bits is not None and not desc.dtype.has_numpy:
        raise CompileError(
            "G2014",
            f"{where} has a type that no array holds",
            kind="VAR_SIZE_UNKNOWN",
            where=where,
            why=f"neither numpy nor ml_dtypes has {desc.dtype.serial}, so nothing can run the model",
            do="give it DT_FLOAT4_E2M1, or another type" if desc.dtype.is_float else "give it another type",
            node=node,
            actual=desc.dtype.serial,
        )
    for shape in (desc.shape, desc.logical_shape):
        bits = prod([max(dim, 1) for dim in shape]) * (desc.dtype.bits or 8)
        if bits > 8 * MAX_TENSOR_BYTES:
            raise CompileError(
                "G2014",
                f"{where} is larger than any memory",
                kind="VAR_SIZE_UNKNOWN",
                where=where,
                why=f"{desc.dtype.serial} {list(shape)}: its dims without the zeros make {bits // 8} bytes",
                do="give it a shape that the model needs",
                node=node,
                expected=f"at most {MAX_TENSOR_BYTES} bytes",
                actual=bits // 8,
            )


def padded_size(raw: int, padding: int = DEFAULT_PADDING_BYTES) -> int:
    """GE's padded size of `raw` bytes: room for one more block of 32, in whole blocks of 32."""
    if raw > INT64_MAX - SIZE_ALIGN_BYTES - padding:
        return raw
    size = (raw + SIZE_ALIGN_BYTES + padding - 1) // SIZE_ALIGN_BYTES * SIZE_ALIGN_BYTES
    return size or SIZE_ALIGN_BYTES


def padded_bytes(desc: TensorDesc, padding: int = DEFAULT_PADDING_BYTES) -> int:
    """The `size` of a descriptor. Raises as `raw_bytes`."""
    return padded_size(raw_bytes(desc), padding)


def span_bytes(size: int) -> int:
    """What the HBM allocator takes for a tensor of padded size `size`: aligned, with a guard at each end."""
    return -(-size // SPAN_ALIGN_BYTES) * SPAN_ALIGN_BYTES + 2 * GUARD_BYTES


def output_size(node: OpDesc, padding: int = DEFAULT_PADDING_BYTES) -> int:
    """The `size` of output 0 of a node in variable memory: padded, but exact for constant text."""
    desc = node.output_descs[0]
    if desc.dtype.name == "STRING":
        if node.type == "FileConstant" and "length" in node.attrs:
            return int(node.attrs["length"])
        if node.type in ("Const", "Constant"):
            value = node.attrs.get("value")
            if value is None:
                raise _size_unknown(desc, f"{node.type} {node.name!r} has no value")
            return int(value.source.nbytes)
    try:
        return padded_bytes(desc, padding)
    except CompileError as error:
        error.at(where=f"node {node.name} ({node.type})", node=node.name)
        raise


def _sized_dims(desc: TensorDesc) -> tuple[int, ...]:
    """The stored dims, or the upper bounds when the descriptor asks for them and a dim is unknown."""
    if desc.is_static or not desc.attrs.get(NO_TILING):
        return desc.shape
    largest = desc.attrs.get(MAX_SHAPE)
    if largest is None and desc.shape_range is not None:
        largest = [high for _, high in desc.shape_range]
    if largest is None or len(largest) != len(desc.shape):
        raise _size_unknown(desc, f"no maximum shape of rank {len(desc.shape)} is given")
    return tuple(largest)


def _size_unknown(desc: TensorDesc, why: str) -> CompileError:
    return CompileError(
        "G2014",
        f"the size of tensor {desc.name!r} cannot be computed" if desc.name else "a tensor's size cannot be computed",
        kind="VAR_SIZE_UNKNOWN",
        why=f"{why}; the descriptor is {desc}",
        do="give the variable a static shape, a known format and a type with a width",
    )
