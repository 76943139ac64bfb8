"""The committed message modules are what proto/generate.py makes of the .proto files."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "proto" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_committed_module_is_what_the_generator_writes() -> None:
    texts = generator().generated()
    assert {path.name for path in (ROOT / "gecli" / "pb").glob("*_pb2.py")} == {path.name for path in texts}
    for path, text in texts.items():
        assert (ROOT / path).read_text() == text, f"run: python proto/generate.py ({path})"


def test_our_messages_do_not_clash_with_another_packages_onnx_messages() -> None:
    code = "import onnx; from gecli.pb import onnx_pb2; assert onnx_pb2.ModelProto is not onnx.ModelProto"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_importing_artifacts_loads_neither_protobuf_nor_numpy_nor_networkx() -> None:
    code = (
        "import sys, gecli.artifacts.om_file, gecli.artifacts.om_writer, gecli.artifacts.rdcpkt\n"
        "import gecli.artifacts.publish, gecli.artifacts.kernel_store, gecli.artifacts.so_bins\n"
        "assert not {'numpy', 'networkx', 'google.protobuf'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_reading_a_model_loads_no_networkx() -> None:
    code = "import sys, gecli.wire.model_decoder, gecli.wire.onnx; assert not {'networkx', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
