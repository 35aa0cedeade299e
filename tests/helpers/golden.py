"""The golden losses, and the commands that pin them: `make golden` all anew, `make golden-new` what is not pinned."""

import json
import sys
from pathlib import Path

from vitcore.contracts import in_float64, tiny
from vitcore.variants import VARIANTS

FILE = Path(__file__).with_name("golden.json")
STEPS = 3
TOLERANCE = {"optimizer=muon": 1e-4}  # its Newton-Schulz runs in bf16, which processors round each their way


def loss(slot: str, name: str) -> float:
    """The objective after a few steps in float64: a number that any change of what is computed moves."""
    training = in_float64(tiny(slot, name))
    for _ in range(STEPS):
        training.advance()
    return training.train_step.mean_loss(training.batch()).item()


def entries() -> list[tuple[str, str]]:
    return [(slot, name) for slot, variants in VARIANTS.items() for name in variants]


def main(kept: dict[str, float]) -> None:
    losses = {entry: kept.get(entry) or loss(*entry.split("=")) for entry in map("=".join, entries())}
    FILE.write_text(json.dumps(losses, indent=1) + "\n")


if __name__ == "__main__":
    main(json.loads(FILE.read_text()) if "new" in sys.argv[1:] else {})
