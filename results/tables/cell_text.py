"""The text of numbers, differences and intervals in the cells of a table, and of metrics in its headings."""

from collections.abc import Callable

from results.records import Interval
from results.store.schemas.metrics import Metric
from results.style import current_style

ABSENT = "–"
INTERVALS = "± is the 95% t interval, not adjusted"


def known_text(value: float | None, form: str = "{}") -> str:
    return "" if value is None else form.format(value)


def plus_minus(text: str, interval: Interval | None, metric: Metric, more: int = 0) -> str:
    """Return a number and half the width of its interval, such as "76.42 ± 1.93". more: decimal places."""
    if interval is None:
        return text
    return f"{text} ± {metric.value_text((interval[1] - interval[0]) / 2, more)}"


def difference_text(difference: float | None, interval: Interval | None, metric: Metric) -> str:
    """Return a difference such as "-0.60 ± 0.59", with the decimals by which it exceeds its interval."""
    more = 0
    if difference is not None and interval and not interval[0] <= 0 <= interval[1]:
        half = (interval[1] - interval[0]) / 2
        for digits in range(5):
            if metric.value_text(abs(difference), digits) != metric.value_text(half, digits):
                more = digits
                break
    return plus_minus(metric.signed_text(difference, more), interval, metric, more)


def interval_text(interval: Interval | None, write: Callable[[float], str]) -> str:
    if interval is None:
        return ""
    low, high = interval
    return f"[{write(low)}, {write(high)}]"


def difference_interval(interval: Interval | None, metric: Metric) -> str:
    if interval is None:
        return ""
    return f"[{', '.join(metric.signed_interval(interval))}]"


def count_of_planned(n: int, planned: int) -> str:
    """Return the number of finished trials: "5", or "3/5" if more were planned."""
    return str(n) if n == planned else f"{n}/{planned}"


def metric_label(metric: Metric) -> str:
    return current_style().labels.get(metric.name) or metric.title


def unit_suffix(metric: Metric) -> str:
    return f" in {metric.unit}" if metric.unit else ""
