"""What a run takes for each node of a graph beside its tensors."""

from __future__ import annotations

from pathlib import Path

from tests.artifacts import spec_om as spec
from tests.artifacts.test_om_memory import ALLOWED_BYTES, MIB, measured

BYTES_PER_STEP = 1500  # with its node: 1,200; with lambdas, sets and arrays of its own a step took 2,230


def relus(path: Path, count: int) -> Path:
    """A chain of operators in as few bytes as can be executed."""
    desc = spec.descriptor(1, [4])
    nodes = [spec.operator("x", "Data", 0, [], {"index": spec.attr_i(0)}, [desc], [desc], output_i=[0])]
    for k in range(count):
        before = f"r{k - 1:x}:0" if k else "x:0"
        places = {"input_i": [512 * (k % 2)], "output_i": [512 - 512 * (k % 2)]}
        nodes.append(spec.operator(f"r{k:x}", "Relu", k + 1, [before], {}, [desc], [desc], **places))
    model = spec.model("m", [spec.graph("g", nodes)], {"memory_size": spec.attr_i(2048)})
    path.write_bytes(spec.om_wide([(0, model)]))
    return path


def test_the_steps_of_a_run_share_what_is_equal(tmp_path: Path) -> None:
    few, many = (measured("-m", "gecli", "run", str(relus(tmp_path / f"{n}.om", n)), "--quiet") for n in (100, 10_000))
    assert (few[1], many[1]) == (0, 0)
    assert many[0] - few[0] < 9_900 * BYTES_PER_STEP, f"{(many[0] - few[0]) / MIB:.1f} MiB"


def test_nodes_out_of_all_proportion_to_the_file_are_refused(tmp_path: Path) -> None:
    path = relus(tmp_path / "dense.om", 25_000)
    peak, status, said = measured("-m", "gecli", "run", str(path), "--quiet", "--json")
    limit = 2 * path.stat().st_size + ALLOWED_BYTES
    assert status == 3 and f"{path.stat().st_size} bytes have 25001 nodes" in said
    assert peak < limit, f"{peak / MIB:.1f} MiB of {limit / MIB:.1f}"
