"""What training changed: `progress.py EVAL_BEFORE LOSSES EVAL_AFTER VARS_BEFORE VARS_AFTER` (all npz)."""

from __future__ import annotations

import sys

import numpy as np


def main(before: str, losses: str, after: str, variables_before: str, variables_after: str) -> int:
    """Print losses and variables before and after; 1 when the loss did not fall to 0.5."""
    start, end = np.load(before), np.load(after)
    steps = np.load(losses)["loss:0"]
    print(f"training loss   step 1 {steps[0]:.4f}   step {len(steps)} {steps[-1]:.4f}")
    print(f"held-out loss   {float(start['loss:0']):.4f} -> {float(end['loss:0']):.4f}")
    print(f"held-out right  {float(start['accuracy:0']):.1%} -> {float(end['accuracy:0']):.1%}")
    old, new = np.load(variables_before), np.load(variables_after)
    for name in sorted(name for name in old.files if name in new.files and not name.startswith("__")):
        change = np.abs(new[name] - old[name]).max()
        print(f"{name:4} {list(new[name].shape)!s:16} largest change {change:.4f}")
    return 0 if steps.min() <= 0.5 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
