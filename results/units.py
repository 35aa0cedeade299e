"""Numbers as text: counts, durations and p values."""

from collections.abc import Sequence

from results.style import current_style

LEVEL = 0.05  # verdict.ALPHA, whose import would load SciPy


def decimals_apart(interval: tuple[float, float], decimals: int) -> int:
    """Return at least `decimals`, and up to four more if rounding would move an end of the interval onto 0.

    An interval that contains 0 gets no more.
    """
    low, high = interval
    nearest = min(abs(low), abs(high))
    if low <= 0 <= high:
        return decimals
    return next((digits for digits in range(decimals, decimals + 5) if round(nearest, digits)), decimals)


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


def seeds_text(seeds: Sequence[int]) -> str:
    """Return seeds as text, such as "seed 3" or "seeds 0, 3"."""
    return f"seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"


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
    """Return a p value as text, "" for None: "<0.0001" or "<0.0500" where rounding would hide that it is below."""
    if p is None:
        return ""
    digits = current_style().digits.get("p", 4)
    least = 10.0**-digits
    text = f"{p:.{digits}f}"
    if digits and p < least:
        return f"<{least:.{digits}f}"
    return f"<{text}" if p < LEVEL <= float(text) else text
