"""Broken files give an InputError: never another exception, never a hang."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gecli.artifacts.inout_info import parse_inout_info
from gecli.artifacts.kernel_store import list_kernels
from gecli.artifacts.om_file import read_om
from gecli.artifacts.so_bins import list_libraries
from gecli.artifacts.tiling import list_tiling
from gecli.errors import InputError

REAL = Path(__file__).resolve().parents[1] / "data" / "om" / "real"
SEEDS = ["ascend310-2020-conv_pad", "hiai-conv_merged_offset", "hiai-relu", "hiai-batchnorm"]


def read_everything(path: Path) -> None:
    """All that an inspector reads."""
    om = read_om(path)
    for model in om.models:
        for part in model.partitions:
            data = om.read(part)
            for reader in (parse_inout_info, list_kernels, list_libraries, list_tiling):
                tolerate(lambda reader=reader, data=data: reader(data))
        tolerate(lambda index=model.index: om.tasks(index))
        record = om.model(model.index)
        for graph in record.graphs:
            for node in graph.nodes:
                assert len(node.inputs) == len(node.input_descs)
    om.verify_checksum()


def tolerate(action: Callable[[], Any]) -> None:
    try:
        action()
    except InputError as error:
        assert error.kind


def mutations(data: bytes, rng: random.Random, count: int) -> Iterator[bytes]:
    """Truncations, flipped bits, overwritten numbers, removed and repeated ranges."""
    for k in range(count):
        broken = bytearray(data)
        # Most faults go where they matter: header, table and graph.
        place = rng.randrange(min(len(data), 400 if k % 3 == 0 else 12_000))
        kind = k % 5
        if kind == 0:
            del broken[rng.randrange(len(data)) :]
        elif kind == 1:
            broken[place] ^= 1 << rng.randrange(8)
        elif kind == 2:
            broken[place : place + 8] = rng.choice([b"\xff" * 8, bytes(8), b"\x80" * 8, rng.randbytes(8)])
        elif kind == 3:
            del broken[place : place + rng.randrange(1, 64)]
        else:
            broken[place:place] = broken[place : place + rng.randrange(1, 64)]
        yield bytes(broken)


@pytest.mark.parametrize("seed", SEEDS)
def test_mutations_of_real_files_give_input_errors_only(seed: str, tmp_path: Path) -> None:
    data = (REAL / f"{seed}.om").read_bytes()
    path = tmp_path / "broken.om"
    refused = 0
    started = time.monotonic()
    for broken in mutations(data, random.Random(seed), 250):
        path.write_bytes(broken)
        try:
            read_everything(path)
        except InputError as error:
            assert error.code.startswith("G30") and error.kind
            refused += 1
    assert refused > 50
    assert time.monotonic() - started < 60


def test_mutations_inside_a_sound_container_give_input_errors_only(
    om_bytes: Any, model_def: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "broken.om"
    rng = random.Random(7)
    for broken in mutations(model_def, rng, 400):
        path.write_bytes(om_bytes.wide([(8, broken[:200]), (0, broken), (1, bytes(2048)), (2, broken[:100])]))
        try:
            read_everything(path)
        except InputError as error:
            assert error.kind == "bad-proto"


def test_every_truncation_of_a_small_file_is_refused(small_om: Path, tmp_path: Path) -> None:
    data = small_om.read_bytes()
    path = tmp_path / "short.om"
    for length in [*range(300), *range(300, len(data), 37)]:
        path.write_bytes(data[:length])
        with pytest.raises(InputError) as caught:
            read_om(path)
        assert caught.value.kind in ("truncated", "not-om")
