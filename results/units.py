"""Units: how a metric is written for people: accuracies in %, their differences in points."""

import math
import re
from dataclasses import dataclass, replace

from results.names import MEASURES, METRICS
from results.style import current

PREDICTED = {"masked-patch": " of predicted colours"}  # what the result's own metrics are of, by objective
LOWER_IS_BETTER = ("loss", "error", "seconds", "flops", "params")


@dataclass(frozen=True)
class Unit:
    """value = number x scale, with so many decimals; `of_value` and `of_difference` name the unit.

    range: what two numbers can differ by at most.
    """

    scale: float
    decimals: int
    of_value: str
    of_difference: str
    range: float

    def value(self, number: float | None) -> str:
        return "" if number is None else f"{number * self.scale:.{self.decimals}f}"

    def signed(self, number: float | None) -> str:
        return "" if number is None else f"{number * self.scale:+z.{self.decimals}f}"

    def size(self, number: float) -> str:
        """Without its sign, with the unit: "18.23 points"."""
        return f"{abs(number) * self.scale:.{self.decimals}f}{self.of_difference}"

    def bound(self, number: float) -> str:
        """The same rounded up, for "is below"."""
        step = 10.0**self.decimals
        return f"{math.ceil(abs(number) * self.scale * step) / step:.{self.decimals}f}{self.of_difference}"


PERCENT = Unit(scale=100.0, decimals=2, of_value="%", of_difference=" points", range=1.0)
PLAIN = Unit(scale=1.0, decimals=4, of_value="", of_difference="", range=math.inf)
COUNTED = replace(PLAIN, decimals=1)  # seconds, steps, images


def unit(metric: str) -> Unit:
    """With the digits that the style asks for."""
    if metric in MEASURES:
        return COUNTED
    kind, usual = ("accuracy", PERCENT) if is_accuracy(metric) else ("loss", PLAIN)
    digits = current().digits.get(kind)
    return usual if digits is None else replace(usual, decimals=digits)


def is_accuracy(metric: str) -> bool:
    return metric.partition("@")[0].endswith("accuracy")


def name(metric: str, objective: str = "") -> str:
    """For people: "test accuracy", "5-shot accuracy", "test accuracy at 64 pixels".

    objective: what was learned, where that is no label: "test accuracy of predicted colours".
    """
    text = re.sub(r"^fewshot(\d+)_", r"\1-shot ", metric)
    text = re.sub(r"@(\d+)$", r" at \1 pixels", text)
    return text.replace("_", " ") + (PREDICTED.get(objective, "") if metric in METRICS else "")


def higher_is_better(metric: str) -> bool:
    return not metric.partition("@")[0].endswith(LOWER_IS_BETTER)


def count(number: float | None) -> str:
    """Parameters and FLOPs as the field writes them: 51.0k, 86.6M."""
    if number is None:
        return ""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.1f}{letter}"
    return f"{number:.0f}"


def probability(p: float | None) -> str:
    if p is None:
        return ""
    digits = current().digits.get("p", 4)
    least = 10.0**-digits
    return f"<{least:.{digits}f}" if digits and p < least else f"{p:.{digits}f}"
