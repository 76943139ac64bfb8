"""conv_parallel on two devices: the halves of each batch train what conv_train and numpy train with the whole batch."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gecli.ops.communication import speaking_for
from gecli.runtime.device_group import DeviceGroup, Member
from gecli.runtime.session import Session
from tests.conftest import REPOSITORY, Gecli

SAMPLES = REPOSITORY / "samples/train"
sys.path.insert(0, str(SAMPLES))

import reference  # noqa: E402  # the sample's folder is on the path only now

STEPS = 30
TOLERANCE = 1e-5

Array = NDArray[Any]


def test_what_the_page_about_devices_shows_works(gecli: Gecli, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs/devices.md").read_text(encoding="utf-8")
    preparation, session = (part.partition("```")[0] for part in page.split("```python\n")[1:])
    shutil.copytree(REPOSITORY / "samples", tmp_path / "samples")
    subprocess.run([sys.executable, "-c", preparation], cwd=tmp_path, check=True, timeout=120)
    lines = [line.strip() for line in page.splitlines() if line.startswith("    gecli ")]
    for line in lines:
        done = gecli(*shlex.split(line)[1:])
        assert done.returncode == 0, done.stderr
    shown = [np.load(tmp_path / f"steps/device{device}/loss_0.npy") for device in range(2)]
    names: dict[str, Any] = {"halves": [dict(np.load(tmp_path / f"half{device}.npz")) for device in range(2)]}
    exec(session.replace("parallel.om", str(tmp_path / "parallel.om")), names)
    np.testing.assert_array_equal(names["losses"], shown)


@pytest.mark.parametrize("acceleration", ["True", "False"])
def test_two_devices_with_half_a_batch_each_equal_the_numpy_loop(
    gecli: Gecli, tmp_path: Path, acceleration: str
) -> None:
    done = gecli("compile", str(SAMPLES / "conv_parallel.json"), "-o", "p.om", "-q", "--train",
                 "--ge-option", f"ge.exec.variable_acc={acceleration}")  # fmt: skip
    assert done.returncode == 0, done.stderr
    group = DeviceGroup((0, 1))
    sessions = [Session(poison=True) for _ in group.members]
    models = []
    for member, session in zip(group.members, sessions):
        with speaking_for(member):
            models.append(session.load(tmp_path / "p.om"))
    with np.load(SAMPLES / "batches.npz") as batches:
        images, labels = batches["x"], batches["labels"]

    def train(member: Member) -> list[float]:
        half = slice(16 * member.rank, 16 * member.rank + 16)
        feeds = ({"x": images[k][half], "labels": labels[k][half]} for k in range(STEPS))
        return [float(models[member.rank].run(feed)[0]["loss:0"]) for feed in feeds]

    losses, history = reference.train(SAMPLES / "batches.npz", STEPS)
    np.testing.assert_allclose(np.mean(group.run(train), axis=0), losses, rtol=0, atol=TOLERANCE)
    for name, value in history[-1].items():
        one, other = (session.store.value(name) for session in sessions)
        np.testing.assert_allclose(one, value, rtol=0, atol=TOLERANCE, err_msg=name)
        assert one.tobytes() == other.tobytes(), name
