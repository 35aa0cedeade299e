"""Units in which metrics are printed: accuracies in %, differences of accuracies in percentage points."""

import math
import re
from dataclasses import dataclass, replace

from results.metrics import MEASURES, METRICS
from results.style import current_style

# objective -> suffix of the metric's name
OBJECTIVE_SUFFIX = {"masked-patch": " of predicted colors", "mae": " of masked pixels"}
LOWER_IS_BETTER = ("loss", "error", "seconds", "flops", "params")


@dataclass(frozen=True)
class Unit:
    """The unit of a metric.

    scale: printed number / stored number. of_value, of_difference: text after a value or a difference. range: the
    largest possible difference between two stored numbers.
    """

    scale: float
    decimals: int
    of_value: str
    of_difference: str
    range: float

    def value_text(self, number: float | None) -> str:
        """Return the number as text without its unit, or "" for None."""
        return "" if number is None else f"{number * self.scale:z.{self.decimals}f}"

    def signed_text(self, number: float | None) -> str:
        """Return the difference as text with its sign and without its unit, or "" for None."""
        return "" if number is None else f"{number * self.scale:+z.{self.decimals}f}"

    def signed_interval(self, interval: tuple[float, float]) -> tuple[str, str]:
        """Return both ends of a difference's interval as text, as in `signed_text`.

        Ends of an interval that excludes 0 get the decimals by which they differ from 0.
        """
        low, high = (end * self.scale for end in interval)
        decimals = decimals_apart((low, high), self.decimals)
        return f"{low:+z.{decimals}f}", f"{high:+z.{decimals}f}"

    def size_text(self, number: float) -> str:
        """Return the absolute difference as text with its unit, such as "18.23 points"."""
        return f"{abs(number) * self.scale:.{self.decimals}f}{self.of_difference}"

    def bound_text(self, number: float) -> str:
        """Return the absolute difference as text with its unit, rounded up because it is an upper bound."""
        step = 10.0**self.decimals
        return f"{math.ceil(abs(number) * self.scale * step) / step:.{self.decimals}f}{self.of_difference}"


def decimals_apart(interval: tuple[float, float], decimals: int) -> int:
    """Return at least `decimals`, and up to four more if rounding would move an end of the interval onto 0.

    An interval that contains 0 gets no more.
    """
    low, high = interval
    nearest = min(abs(low), abs(high))
    if low <= 0 <= high:
        return decimals
    return next((digits for digits in range(decimals, decimals + 5) if round(nearest, digits)), decimals)


PERCENT = Unit(scale=100.0, decimals=2, of_value="%", of_difference=" points", range=1.0)
PLAIN = Unit(scale=1.0, decimals=4, of_value="", of_difference="", range=math.inf)
COUNTED = replace(PLAIN, decimals=1)  # seconds, steps, images


def unit(metric: str) -> Unit:
    """Return the unit of a metric. The current style may set the decimal places of accuracies and losses."""
    if metric in MEASURES:
        return COUNTED
    kind, usual = ("accuracy", PERCENT) if is_accuracy(metric) else ("loss", PLAIN)
    digits = current_style().digits.get(kind)
    return usual if digits is None else replace(usual, decimals=digits)


def is_accuracy(metric: str) -> bool:
    return metric.partition("@")[0].endswith("accuracy")


def metric_name(metric: str, objective: str = "") -> str:
    """Return a readable name of a metric, such as "5-shot accuracy" or "test accuracy at 64 pixels".

    For an objective without labels, the name also says what is predicted: "test accuracy of predicted colors".
    """
    text = re.sub(r"^fewshot(\d+)_", r"\1-shot ", metric)
    text = f"{text.partition('@')[0]} {test_condition(metric)}".rstrip()
    return text.replace("_", " ") + (OBJECTIVE_SUFFIX.get(objective, "") if metric in METRICS else "")


def test_condition(metric: str) -> str:
    """Return how the test differs from training, such as "with patches of 4 pixels", or "" if it does not."""
    at = metric.partition("@")[2]
    if at.startswith("patch"):
        return f"with patches of {at.removeprefix('patch')} pixels"
    if at.startswith("merge"):
        return f"with {at.removeprefix('merge')} tokens merged a layer"
    return f"at {at} pixels" if at else ""


def higher_is_better(metric: str) -> bool:
    return not metric.partition("@")[0].endswith(LOWER_IS_BETTER)


def count_text(number: float | None) -> str:
    """Return a count of parameters or FLOPs as text with a suffix, such as "86.6M", or "" for None."""
    if number is None:
        return ""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.1f}{letter}"
    return f"{number:.0f}"


def amount_text(number: int, noun: str) -> str:
    """Return a number of things as text, such as "1 trial" or "2 trials"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration_text(seconds: float) -> str:
    """Return a duration as text, such as "642 ms", "9.2 s", "3 min 10 s" or "2 h 5 min"."""
    if 0 < seconds < 0.9995:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


def probability_text(p: float | None) -> str:
    """Return a p value as text: "<0.0001" if it is too small for the decimal places shown, or "" for None."""
    if p is None:
        return ""
    digits = current_style().digits.get("p", 4)
    least = 10.0**-digits
    return f"<{least:.{digits}f}" if digits and p < least else f"{p:.{digits}f}"
