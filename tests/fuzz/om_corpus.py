"""The sound files that are broken: the real ones, and own ones of every kind.

om_corpus.py DIR    # compiles and writes the own ones
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from typing import Any

from om_mutations import MODEL_DEF, Seed, bundle, fields_of, flow, message, packed, varint, with_payload

REPOSITORY = Path(__file__).resolve().parents[2]
REAL = REPOSITORY / "tests" / "data" / "om" / "real"
TRAIN = REPOSITORY / "samples" / "train"


def load_seeds(directory: Path) -> list[Seed]:
    """Every sound file, taken apart."""
    paths = [*REAL.glob("*.om"), *(path for path in directory.iterdir() if path.suffix in (".om", ".rdcpkt", ".def"))]
    return [Seed.of(path.name, path.read_bytes()) for path in sorted(paths, key=lambda path: path.name)]


def build(directory: Path) -> None:
    """Compile the own files and write the variants that no compiler here makes."""
    import onnx
    from onnx import TensorProto, helper

    from gecli.cli.app import run

    os.chdir(directory)
    for name, model, options in (
        ("digits", str(REPOSITORY / "samples/digits/digits.onnx"), ["--input-shape", "image:1,1,8,8"]),
        ("origin", str(REPOSITORY / "samples/digits/digits.onnx"),
         ["--input-shape", "image:1,1,8,8", "--format-policy", "origin"]),
        ("mlp_train", str(TRAIN / "mlp_train.json"), []),
        ("conv_train", str(TRAIN / "conv_train.json"), []),
    ):  # fmt: skip
        compiled(run, model, name, *options)
    for name, onnx_model in own_models(onnx, helper, TensorProto).items():
        Path(f"{name}.onnx").write_bytes(onnx_model.SerializeToString())
        compiled(run, f"{name}.onnx", name)
    write_variants(directory)


def compiled(run: Any, model: str, name: str, *options: str) -> None:
    status = run(["compile", model, "-o", f"{name}.om", "--quiet", *options])
    assert status == 0, name


def own_models(onnx: Any, helper: Any, types: Any) -> dict[str, Any]:
    """A dynamic model, one of half floats, one with branches."""

    def model(name: str, nodes: list[Any], shape: list[Any], kind: int, constants: dict[str, list[float]]) -> Any:
        weights = [helper.make_tensor(key, kind, [len(value)], value) for key, value in constants.items()]
        inputs = [helper.make_tensor_value_info("x", kind, shape)]
        outputs = [helper.make_tensor_value_info("y", kind, shape)]
        graph = helper.make_graph(nodes, name, inputs, outputs, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def branch(name: str, kind: str) -> Any:
        value = helper.make_tensor_value_info(name, types.FLOAT, [3])
        return helper.make_graph([helper.make_node(kind, ["x"], [name])], name, [], [value])

    plain = [helper.make_node("Add", ["x", "c"], ["t"]), helper.make_node("Relu", ["t"], ["y"])]
    choice = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["b"]),
        helper.make_node("If", ["b"], ["y"], then_branch=branch("p", "Relu"), else_branch=branch("q", "Neg")),
    ]
    constants = {"c": [1.0, 2.0, 3.0]}
    found = {
        "dynamic": model("dynamic", plain, ["n", 3], types.FLOAT, constants),
        "half": model("half", plain, [2, 3], types.FLOAT16, constants),
        "branches": model("branches", choice, [3], types.FLOAT, {}),
    }
    found["branches"].graph.initializer.append(helper.make_tensor("zero", types.FLOAT, [], [0.0]))
    return found


def write_variants(directory: Path) -> None:
    """Files of writers that are not here: compressed names, several models, bundles, flow models, bare models."""
    sources = {
        "small": directory / "half.om",
        "pad": REAL / "ascend310-2020-conv_pad.om",
        "mlp": directory / "mlp_train.om",
    }
    for name, path in sources.items():
        seed = Seed.of(name, path.read_bytes())
        parts = [(kind, compressed(data) if kind == MODEL_DEF else data) for kind, data in seed.parts]
        (directory / f"wide-compressed-{name}.om").write_bytes(
            with_payload(second(seed.data), packed(parts, True), True)
        )
        (directory / f"bare-{name}.def").write_bytes(dict(seed.parts)[MODEL_DEF])
    small = Seed.of("small", sources["small"].read_bytes())
    root = [(kind, compressed(data) if kind == MODEL_DEF else data) for kind, data in small.parts]
    further = [part for part in small.parts if part[0] != 8]
    both = packed(root, True) + packed(further, True) + packed(further, True)
    (directory / "several.om").write_bytes(with_payload(second(small.data), both, True, 3))
    (directory / "bundle.om").write_bytes(bundle([small.data, small.data]))
    (directory / "flow.om").write_bytes(flow(small.data))
    (directory / "flow-bundle.om").write_bytes(bundle([flow(small.data)]))
    stores = [*small.parts, (3, KERNELS), (4, KERNELS), (5, LIBRARY), (26, CUSTOM), (12, TILINGS)]
    (directory / "stores.om").write_bytes(with_payload(small.data, packed(stores, True), True))


KERNELS = b"".join(struct.pack("<III", 0x5D776EFD, 5, 8) + b"kern%d" % k + b"\x7fELF1234" for k in range(4))
LIBRARY = struct.pack("<IIHHII", 1, 0x5D776EFD, 5, 1, 3, 4) + b"libxyvenELF!"
CUSTOM = struct.pack("<III", 0x4B43534B, 3, 4) + b"OpAdata"
TILINGS = struct.pack("<III", 0xDD776EFE, 2, 5 + 4 + 5 + 8) + struct.pack("<BI4sBIQ", 1, 4, b"tile", 2, 8, 7)


def second(header: bytes) -> bytes:
    """A header of version 2."""
    head = bytearray(header[:256])
    if struct.unpack_from("<I", head, 8)[0] < 0x20000000:
        platform = head[156:177]
        head[156:256] = bytes(100)
        head[160:181] = platform
        struct.pack_into("<II", head, 8 - 4, 256, 0x20000000)
        struct.pack_into("<I", head, 156, 1)
    return bytes(head)


def compressed(model: bytes) -> bytes:
    """MODEL_DEF with the names of node and descriptor attributes coded, as CANN 8 writes it (om-format 5)."""
    names: dict[bytes, int] = {}
    values: dict[bytes, int] = {}
    uses_text: list[bool] = []

    def attr(body: bytes) -> bytes:
        fields = {each.number: each for each in fields_of(body, 0, len(body)) or ()}
        if 1 not in fields:
            return body
        key = body[fields[1].body : fields[1].end]
        value = body[fields[2].body : fields[2].end] if 2 in fields else b""
        inner = fields_of(value, 0, len(value)) or []
        text = len(inner) == 1 and inner[0].number == 2
        if key.startswith((b"_input_name", b"_output_name", b"origin_", b"format_for")):
            return body
        if key not in names:
            names[key] = len(names)
            uses_text.append(text)
        if uses_text[names[key]]:
            if not text:
                return body
            number = values.setdefault(value[inner[0].body : inner[0].end], len(values))
            value = varint(3 << 3) + varint(number)
        return message(1, coded(names[key])) + message(2, value)

    def mapped(body: bytes, steps: tuple[dict[int, Any], ...] | dict[int, Any]) -> bytes:
        out = []
        for each in fields_of(body, 0, len(body)) or ():
            change = steps.get(each.number) if isinstance(steps, dict) and each.kind == 2 else None
            if change is None:
                out.append(body[each.start : each.end])
            else:
                inside = body[each.body : each.end]
                out.append(message(each.number, mapped(inside, change) if isinstance(change, dict) else change(inside)))
        return b"".join(out)

    desc = {5: attr}
    model = mapped(model, {7: {6: {10: attr, 33: desc, 34: desc}}})
    lists = {
        b"attr_name_enum": b"".join(message(2, name) for name in names) + b"\xa0\x01\x01",
        b"attr_value_enum": b"".join(message(2, value) for value in values) + b"\xa0\x01\x01",
        b"attrs_use_string_value": message(5, bytes(uses_text)) + b"\xa0\x01\x04",
    }
    added = [message(11, message(1, b"om_compress_version") + message(2, b"\x18\x01"))]
    added += [message(11, message(1, key) + message(2, message(1, body))) for key, body in lists.items()]
    return model + b"".join(added)


def coded(index: int) -> bytes:
    digits = bytearray(b"\0")
    while True:
        digits.append(index % 127 + 1)
        index //= 127
        if not index:
            return bytes(digits)


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve())
