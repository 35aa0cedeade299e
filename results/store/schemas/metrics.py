"""Metrics: what trials measure, how it is compared and printed; and margins within which values are equivalent.

A plan declares the metrics of its trials. Plans before 0.25 declare none: `metric_by_name` says what they meant.
"""

import math
import re
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field, FiniteFloat

from commonfloor.metrics import ACCURACY
from results.store.schemas.base import Schema
from results.style import current_style
from results.units import decimals_apart

if TYPE_CHECKING:
    import numpy as np

AXES = {"step": "training step", "epoch": "epochs of training", "images": "training images", "seconds": "training time"}
MEASURES = ("params", "flops", "train_seconds", "images_per_second", "steps", "images", "diverged_at_step")
EXACT = ("params", "flops")  # numbers that no seed changes, so that a difference needs no test
BEFORE_0_25 = ("test_accuracy", "test_loss", "val_accuracy", "val_loss", "train_loss")  # the metrics of each trial
LOWER_IS_BETTER = re.compile(  # words of a name; flops and params are counts only at its end
    r"\b(\w*(loss|error|mae|mse)(e?s)?|err|mape|nll|perplexity|ppl|fid|wer|cer|ece|time|runtime|latency|seconds|memory)\b"
    r"|\b(flops|params)$"
)
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
OF_OBJECTIVE = {  # objective -> end of a label
    "masked-patch": " of predicted colors",
    "mae": " of masked pixels",
    "dino": " of prototypes of other views",
    "ijepa": " of masked features",
}
PER_IMAGE = "test_accuracy"  # the metric of right and wrong per test image where none is declared
SAME = 1e-3  # a reported accuracy is rounded
WIDEST = 0.5  # share of the baseline's error beyond which a margin shows nothing
LARGEST = 1e300  # a number that is still finite as a float
SHARE = re.compile(r"(\d+(?:\.\d+)?)%")


def checked_margin(margin: object) -> float | str:
    """Return the margin. Raises ValueError unless it is a number above 0 or a share of at most 50%, such as "25%"."""
    share = SHARE.fullmatch(margin) if isinstance(margin, str) else None
    if share and 0 < float(share[1]) <= 100 * WIDEST:
        return str(margin)
    if isinstance(margin, int | float) and not isinstance(margin, bool) and 0 < margin < LARGEST:
        return float(margin)
    raise ValueError(
        f"margin={margin}: a number above 0, in the metric (0.01 of an accuracy is 1 point), or a share of the "
        f"baseline's error, at most {WIDEST:.0%} (25%)"
    )


Margin = Annotated[float | str, BeforeValidator(checked_margin)]


class Metric(Schema):
    """A number that trials measure."""

    name: Annotated[str, Field(min_length=1)]  #: Its name in results.
    eval: str = ""  #: The eval that computes it, or "" if each trial measures it.
    higher_is_better: bool
    is_accuracy: bool = False  #: Whether it is the share of test images that are classified correctly.
    per_image: bool = False  #: Whether it is the mean of the answers per test image that trials store.
    lowest: FiniteFloat | None = None  #: Smallest possible value.
    highest: FiniteFloat | None = None  #: Largest possible value.
    label: str = ""  #: Readable name, by default the name without underscores.
    unit: str = ""  #: Text after a printed value, such as `%`.
    unit_of_difference: str = ""  #: Text after a printed difference, such as ` points`.
    scale: FiniteFloat = 1.0  #: Printed number / stored number.
    decimals: Annotated[int, Field(ge=0, le=10)] = 4  #: Decimal places, unless a style says otherwise.

    @property
    def title(self) -> str:
        return self.label or readable_name(self.name)

    @property
    def range(self) -> tuple[float, float]:
        low = -math.inf if self.lowest is None else self.lowest
        high = math.inf if self.highest is None else self.highest
        return low, high

    def range_fault(self, value: float) -> str:
        """Return why a value is impossible, such as "test_accuracy=5: from 0 to 1", or ""."""
        low, high = self.range
        if value < low or value > high:
            return f"{self.name}={value:g}: from {low:g} to {high:g}"
        return ""

    @property
    def largest_difference(self) -> float:
        low, high = self.range
        return high - low

    @property
    def digits(self) -> int:
        """The decimal places of printed numbers in the current style."""
        if self.name in MEASURES:
            return self.decimals
        return current_style().digits.get("accuracy" if self.is_accuracy else "loss", self.decimals)

    def value_text(self, number: float | None, more: int = 0, sign: str = "") -> str:
        """Return the number as text without its unit, or "" for None. more: further decimal places."""
        if number is None:
            return ""
        return f"{number * self.scale:{sign}z.{self.digits + more}f}"

    def signed_text(self, number: float | None, more: int = 0) -> str:
        return self.value_text(number, more, sign="+")

    def signed_interval(self, interval: tuple[float, float]) -> tuple[str, str]:
        """Return both ends of a difference's interval, with enough decimals to differ from 0 if it excludes 0."""
        low, high = (end * self.scale for end in interval)
        decimals = decimals_apart((low, high), self.digits)
        return f"{low:+z.{decimals}f}", f"{high:+z.{decimals}f}"

    def size_text(self, number: float) -> str:
        """Return the absolute difference with its unit, such as "18.23 points"."""
        return f"{abs(number) * self.scale:.{self.digits}f}{self.unit_of_difference}"

    def bound_text(self, number: float) -> str:
        """Return the absolute difference with its unit, rounded up because it is an upper bound."""
        step = 10.0**self.digits
        return f"{math.ceil(abs(number) * self.scale * step) / step:.{self.digits}f}{self.unit_of_difference}"


def is_share_right(right: "np.ndarray", accuracy: float) -> bool:
    return abs(share_right(right) - accuracy) <= SAME


def share_right(right: "np.ndarray") -> float:
    return float(right.sum()) / max(len(right), 1)


def metric_by_name(name: str, objective: str = "") -> Metric:
    """Return what a name means where no plan declares the metric. objective: that of all arms."""
    kind = name.partition("@")[0]
    label = ""
    if name == "flops":
        label = "FLOPs"
    elif name in BEFORE_0_25 and objective in OF_OBJECTIVE:
        label = f"{readable_name(name)}{OF_OBJECTIVE[objective]}"
    if kind.endswith("accuracy"):
        return Metric(name=name, label=label, **ACCURACY)
    metric = Metric(name=name, label=label, higher_is_better=not is_lower_better(kind))
    if name in MEASURES:  # seconds, steps, images
        return metric.model_copy(update={"decimals": 1})
    return metric


def is_lower_better(name: str) -> bool:
    return LOWER_IS_BETTER.search(words_of(name)) is not None


def words_of(name: str) -> str:
    """Return the words of a name in small letters, such as "val loss" for val_loss, val/loss and valLoss."""
    return " ".join(WORD.findall(name)).lower()


def readable_name(name: str) -> str:
    """Return a metric's name as text, such as "5-shot accuracy" for fewshot5_accuracy."""
    text = re.sub(r"^fewshot(\d+)_", r"\1-shot ", name)
    return f"{text.partition('@')[0]} {test_condition(name)}".rstrip().replace("_", " ")


def test_condition(metric: str) -> str:
    """Return how the test differs from training, such as "with patches of 4 pixels", or "" if it does not."""
    at = metric.partition("@")[2]
    if at.startswith("patch"):
        return f"with patches of {at.removeprefix('patch')} pixels"
    if at.startswith("merge"):  # of evals before 0.25
        return f"with {at.removeprefix('merge')} tokens merged a layer"
    if not at.isdigit():
        return f"on {at}" if at else ""
    return f"at {at} pixels"


def is_of_other_images(metric: str) -> bool:
    """Return whether a metric is of other test images than the trial's, such as test_accuracy@imagenet-v2."""
    return re.fullmatch(r"dense_.*|test_(accuracy|loss)@(?!(patch|merge)?\d+$).*", metric) is not None


def margin_bound(margin: float | str) -> float:
    """Return the largest difference within a margin: in the metric's unit, or as a share of the baseline's error."""
    if isinstance(margin, str):
        return float(margin.removesuffix("%")) / 100
    return float(margin)


def share_text(share: float) -> str:
    """Return a share as text, such as "25%", rounded up to a tenth of a percent because it is an upper bound."""
    return f"{math.ceil(round(1000 * share, 6)) / 10:g}%"


def margin_text(margin: float | str, metric: Metric, baseline: str = "the baseline") -> str:
    """Return a margin with its unit, such as "1.00 points" or "25% of the baseline's error"."""
    if not isinstance(margin, str):
        return metric.size_text(margin)
    return f"{margin} of {baseline}'s {'error' if metric.is_accuracy else 'value'}"


def margin_at(margin: float | str, mean: float, metric: Metric) -> float:
    """Return a margin in the metric's unit where the baseline has this mean."""
    if not isinstance(margin, str):
        return float(margin)
    error = 1 - mean if metric.is_accuracy else abs(mean)
    return margin_bound(margin) * error


def too_wide(margin: float | str, mean: float, metric: Metric, chance: float) -> str:
    """Return why a margin is too wide for the baseline's mean to call an arm equivalent, or "" if it is not.

    It may be half of the error, and half of the accuracy above chance, at most. chance: 0 if unknown.
    """
    if not metric.is_accuracy:
        return ""
    size = margin_at(margin, mean, metric)
    if size > WIDEST * (1 - mean) * (1 + 1e-9):
        error = metric.size_text(1 - mean)
        return f"the margin of {margin_text(margin, metric)} exceeds half of the baseline's error of {error}"
    if chance and size > WIDEST * (mean - chance):
        above = metric.signed_text(mean - chance).removeprefix("+") + metric.unit_of_difference
        return (
            f"the margin of {margin_text(margin, metric)} exceeds half of the baseline's accuracy above chance "
            f"({metric.value_text(chance)}{metric.unit}) of {above}"
        )
    return ""
