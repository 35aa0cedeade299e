"""Names of metrics, axes and measures that a study may use, and suggestions for misspelled names.

The code that computes or draws what is named is not loaded.
"""

import difflib
from collections.abc import Iterable

METRICS = ("test_accuracy", "test_loss", "val_accuracy", "val_loss", "train_loss")
AXES = {"step": "training step", "epoch": "epochs of training", "images": "training images", "seconds": "training time"}
MEASURES = ("params", "flops", "train_seconds", "images_per_second", "steps", "images", "diverged_at_step")


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean 'this'?)", or "" if no known name is similar."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean '{near[0]}'?)" if near else ""
