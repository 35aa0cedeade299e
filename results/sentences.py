"""Sentences: a table in words, never stronger than its verdicts."""

from collections.abc import Mapping, Sequence
from typing import Any

from results.style import current
from results.units import Unit, unit
from results.verdict import BETTER, EQUIVALENT, UNRESOLVED, WORSE

Row = Mapping[str, Any]


def sentence(row: Row, table: Mapping[str, Any]) -> str:
    """What follows "position=none is": "worse than position=1d by 18.23 points (95% CI 16.30 to 20.16)".

    What is not resolved is no "no difference": the sentence says how large one could be.
    """
    measure, baseline = unit(table["metric"]), current().label(row["baseline"])
    if row["arm"] == row["baseline"]:
        return "the baseline"
    if row["verdict"] is None:
        return f"not compared with {baseline} ({untested(row)})"
    if row["verdict"] in (BETTER, WORSE):
        low, high = sorted(row["delta_ci95"] if row["delta"] > 0 else [-end for end in row["delta_ci95"]])
        by = f"{measure.size(row['delta'])} (95% CI {measure.value(low)} to {measure.value(high)})"
        return f"{row['verdict']} than {baseline} by {by}{here(row)}{lost(row)}"
    if row["verdict"] == EQUIVALENT:
        return f"equivalent to {baseline} within {measure.size(table['margin'])}"
    return f"not resolved against {baseline}: {bound(row, measure)}{lost(row)}"


def bound(row: Row, measure: Unit) -> str:
    """The largest difference that either interval holds, where that is less than any two values can differ by."""
    intervals = [row["delta_ci95"], row["delta_ci95_images"] or row["delta_ci95"]]
    largest = max(abs(end) for interval in intervals for end in interval)
    if largest >= measure.range:
        return "too few trials to bound the difference"
    return f"any difference is below {measure.bound(largest)}"


def here(row: Row) -> str:
    """What other test images could undo is said of these."""
    images = row["delta_ci95_images"]
    return " on these test images" if images and images[0] <= 0 <= images[1] else ""


def lost(row: Row) -> str:
    """Trials that diverged are part of the answer."""
    return f", and {row['diverged']} of {row['planned']} trials diverged" if row["diverged"] else ""


def untested(row: Row) -> str:
    if row["n_pairs"] < 2:
        return f"{row['n_pairs']} of {row['planned']} pairs of seeds finished{lost(row)}"
    return f"all {row['n_pairs']} differences are identical"


def answer(table: Mapping[str, Any]) -> str:
    """The study's answer, made from its verdicts: what is resolved first, else as the table orders it."""
    compared = [row for row in table["rows"] if row["arm"] != row["baseline"]]
    order = [BETTER, WORSE, EQUIVALENT, UNRESOLVED, None]
    clauses = [
        f"{current().label(row['arm'])} is {sentence(row, table)}" for word in order for row in of(compared, word)
    ]
    return " ".join([opening(table), "; ".join(clauses or ["nothing to compare"]) + ".", *closing(table)])


def of(rows: Sequence[Row], word: str | None) -> list[Row]:
    return [row for row in rows if row["verdict"] == word]


def opening(table: Mapping[str, Any]) -> str:
    rows = table["rows"]
    planned, over = sum(r["planned"] for r in rows), sum(r["n"] + r["diverged"] for r in rows)
    setting = f"On {table['name'].partition('@')[2]}, {seeds(rows)}"
    return f"{setting}:" if over == planned else f"{setting}, so far ({over} of {planned} trials are over):"


def seeds(rows: Sequence[Row]) -> str:
    """ "n = 5 seeds an arm" """
    counts = sorted({row["n"] for row in rows})
    several = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"n = {several} seeds an arm"


def named(seeds: Sequence[int]) -> str:
    """ "seed 3", "seeds 0, 1" """
    return f"seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"


def closing(table: Mapping[str, Any]) -> list[str]:
    """The learning rate, where every arm was trained with the baseline's."""
    return [] if "lr" in table["varied"] else ["All at the baseline's learning rate."]
