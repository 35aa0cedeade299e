"""EVAL, the table of all evals by name. To add an eval, write a class in a file of its own and add it here.

A plug-in adds to it as to any dictionary of variants.
"""

from commonfloor.messages import known_names
from vitcore.analysis.dense import Dense
from vitcore.analysis.eval import Eval
from vitcore.analysis.frozen_features import FewShot, LinearProbe, Neighbors
from vitcore.analysis.interpret import Inspect
from vitcore.analysis.knockout import Knockout
from vitcore.analysis.other_images import OtherImages
from vitcore.analysis.predictions import Balanced, Calibration, Corrupt

EVAL: dict[str, type[Eval]] = {
    "fewshot": FewShot,
    "inspect": Inspect,
    "test": OtherImages,
    "corrupt": Corrupt,
    "knn": Neighbors,
    "linear": LinearProbe,
    "calibration": Calibration,
    "balanced": Balanced,
    "knockout": Knockout,
    "dense": Dense,
}


def find(name: str) -> Eval:
    """Return the eval of a name, such as test@16. Raises ValueError if it is unknown."""
    kind, at, value = name.partition("@")
    if kind in EVAL and EVAL[kind].takes(value) and bool(at) == bool(value):
        return EVAL[kind](value)
    values = list(filter(None, EVAL[kind].choices or EVAL[kind].values)) if kind in EVAL else []
    if value and values:
        raise ValueError(f"evals: {name}: {known_names(value, values)}")
    names = [spelled for kind, of_kind in EVAL.items() for spelled in spellings(kind, of_kind)]
    raise ValueError(f"evals: {name}: {known_names(name, names)}")


def spellings(name: str, entry: type[Eval]) -> list[str]:
    """Return the spellings of an eval, or of a metric of it, with its values: test@SIZE and test@patchP."""
    return [entry(value).with_value(name) for value in entry.values]


def eval_of(metric: str) -> str:
    """Return the name of the eval that computes a metric, or "" if no eval does."""
    name, at, value = metric.partition("@")
    for kind, entry in EVAL.items():
        if name in entry.metrics and entry.takes(value):
            return f"{kind}{at}{value}"
    return ""
