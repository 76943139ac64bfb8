"""Generate gecli/pb/*_pb2.py from proto/gecli/pb/*.proto: descriptor bytes, independent of the compiler's version.

Code written by protoc refuses to load on older and much newer protobuf runtimes; descriptor bytes load on all.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent
BYTES_PER_LINE = 72


def descriptor_files() -> list[descriptor_pb2.FileDescriptorProto]:
    """The compiled descriptors of our .proto files, dependencies first."""
    sources = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("gecli/pb/*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "all.bin"
        status = protoc.main(["protoc", f"-I{ROOT}", f"--descriptor_set_out={target}", *sources])
        if status:
            raise SystemExit(status)
        return list(descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes()).file)


def module_text(file: descriptor_pb2.FileDescriptorProto) -> str:
    """The text of the Python module for one .proto file."""
    for message in file.message_type:
        drop_json_names(message)
    data = file.SerializeToString(deterministic=True)
    lines = [f"    {data[k : k + BYTES_PER_LINE]!r}" for k in range(0, len(data), BYTES_PER_LINE)]
    imports = [f"from {name.removesuffix('.proto').replace('/', '.')}_pb2 import FILE as _" for name in file.dependency]
    names = ", ".join(repr(message.name) for message in file.message_type)
    return "\n".join(
        (
            f'"""Messages of proto/{file.name}. Written by proto/generate.py; do not edit."""',
            "from gecli.pb.descriptors import load",
            *imports,
            "",
            "FILE = load(",
            *lines,
            ")",
            "globals().update(FILE.messages)",
            f"__all__ = [{names}]",
            "",
        )
    )


def drop_json_names(message: descriptor_pb2.DescriptorProto) -> None:
    """Derived names that compilers store or leave out."""
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        drop_json_names(nested)


def generated() -> dict[Path, str]:
    """Path below the repository root -> text, for every module."""
    return {Path(file.name.removesuffix(".proto") + "_pb2.py"): module_text(file) for file in descriptor_files()}


def main() -> int:
    for path, text in generated().items():
        (ROOT.parent / path).write_text(text, encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
