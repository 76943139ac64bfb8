"""Compare the probabilities that a run wrote with the true digits: accuracy.py OUTPUT.npz LABELS.npy."""

from __future__ import annotations

import sys

import numpy as np

LOWEST_ACCURACY = 0.95


def main(output_path: str, labels_path: str) -> int:
    """Print the accuracy; exit status 1 when it is below 0.95."""
    predicted = np.load(output_path)["probabilities"].argmax(axis=1)
    labels = np.load(labels_path)
    if predicted.shape != labels.shape:
        print(f"{output_path} has {len(predicted)} rows, {labels_path} has {len(labels)}", file=sys.stderr)
        return 1
    correct = int((predicted == labels).sum())
    accuracy = correct / len(labels)
    print(f"accuracy {accuracy:.3f} ({correct} of {len(labels)})")
    return 0 if accuracy >= LOWEST_ACCURACY else 1


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: accuracy.py OUTPUT.npz LABELS.npy")
    sys.exit(main(*sys.argv[1:]))
