"""Sentences: a table in words, never stronger than its verdicts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from results.statistics.verdict import BETTER, EQUIVALENT, UNRESOLVED, WORSE
from results.style import current
from results.units import Unit, unit

Row = Mapping[str, Any]

ORDER = (BETTER, WORSE, EQUIVALENT, UNRESOLVED, None)
NAMED = 4  # differences that a sentence tells one by one
NOT_YET = "no verdict before all are"


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
        return f"{row['verdict']} than {baseline} {by(row, measure)}"
    if row["verdict"] == EQUIVALENT:
        return f"equivalent to {baseline} within {measure.size(table['margin'])}"
    return f"not resolved against {baseline}: {bound(intervals(row), measure)}{lost(row)}"


def by(row: Row, measure: Unit) -> str:
    """ "by 18.23 points (95% CI 16.30 to 20.16)"; "as 5 of 5 trials diverged" where no pairs say by how much."""
    if row["delta_ci95"] is None:
        return f"as {row['diverged']} of {row['planned']} trials diverged"
    towards = 1 if row["delta"] > 0 else -1
    low, high = sorted(towards * end for end in row["delta_ci95"])
    interval = f"(95% CI {measure.value(low)} to {measure.value(high)})"
    return f"by {measure.size(row['delta'])} {interval}{here(row)}{lost(row)}"


def intervals(row: Row) -> list[Sequence[float]]:
    """Of the row's difference, over seeds and, where known, over seeds and images."""
    return [one for one in (row["delta_ci95"], row["delta_ci95_images"]) if one]


def bound(intervals: Sequence[Sequence[float]], measure: Unit, by: str = " (95% CI)") -> str:
    """The largest difference that the intervals hold, where that is less than any two values can differ by.

    by: whose intervals they are.
    """
    largest = max((abs(end) for interval in intervals for end in interval), default=measure.range)
    if largest >= measure.range:
        return "too few trials to bound the difference"
    return f"any difference is below {measure.bound(largest)}{by}"


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
    if row["p"] is not None:
        return "a best value lies at the edge of its grid"
    return f"all {row['n_pairs']} differences are identical"


def answer(table: Mapping[str, Any]) -> str:
    """The study's answer in a sentence made from its verdicts, what is resolved first.

    Of a tuned study the arms at the value that each was tuned to; those at equal values, where one may fail that is as
    good at its own, are counted. Arms of one verdict share a clause; where they are many it names the extremes. The
    table has them all.
    """
    compared = [row for row in table["rows"] if row["arm"] != row["baseline"]]
    tuned = [row for row in compared if is_tuned(row, table)]
    if not table.get("judged", True):
        return " ".join([opening(table), f"{NOT_YET}.", *closing(table)])
    told = clauses(tuned or compared, table) or "nothing to compare"
    if tuned:
        what = " and ".join(table["tuned"])
        told = f"each at its own {what}, {told}. At equal {what}: {tally([r for r in compared if r not in tuned])}"
    return " ".join([opening(table), f"{told}.", *closing(table)])


def clauses(rows: Sequence[Row], table: Mapping[str, Any]) -> str:
    """A clause a verdict. A baseline of several settings is named by them once."""
    told, known = [], set[str]()
    for group in grouped(rows):
        baseline = current().label(parts(group[0])[1])
        told.append(clause(group, table, "the baseline" if baseline in known else baseline))
        known |= {baseline} if "," in baseline else set()
    return "; ".join(told)


def tally(rows: Sequence[Row]) -> str:
    """How many rows have which verdict: "2 worse, 1 equivalent"."""
    words = Counter(row["verdict"] for row in rows)
    said = {word: (word or "without a verdict").replace("-", " ") for word in ORDER}
    return ", ".join(f"{words[word]} {text}" for word, text in said.items() if words[word])


def is_tuned(row: Row, table: Mapping[str, Any]) -> bool:
    """Whether it is an arm at its own value of what is tuned, by its name."""
    return any(f"{name}=tuned" in row["arm"].split(",") for name in table["tuned"])


def grouped(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows of one verdict against one baseline, untested ones by their reason; otherwise as the table orders them."""
    found: dict[tuple[int, str, str], list[Row]] = {}
    for row in rows:
        reason = untested(row) if row["verdict"] is None else ""
        found.setdefault((ORDER.index(row["verdict"]), parts(row)[1], reason), []).append(row)
    return [found[key] for key in sorted(found, key=lambda key: key[0])]


def clause(rows: Sequence[Row], table: Mapping[str, Any], baseline: str) -> str:
    """What is said of rows of one verdict against one baseline, as that is called here."""
    first, measure, (arm, _, point) = rows[0], unit(table["metric"]), parts(rows[0])
    if len(rows) == 1 and not point:
        return f"{current().label(arm)} is {sentence({**first, 'baseline': baseline}, table)}"
    if first["verdict"] in (BETTER, WORSE):
        return f"{first['verdict']} than {baseline}: {sizes(rows, measure)}"
    if first["verdict"] == EQUIVALENT:
        return f"equivalent to {baseline} within {measure.size(table['margin'])}: {names(rows)}"
    if first["verdict"] == UNRESOLVED:
        largest = bound([one for row in rows for one in intervals(row)], measure, ", by the 95% CI of each")
        return f"not resolved against {baseline} ({largest}): {names(rows)}"
    return f"not compared with {baseline} ({untested(first)}): {names(rows)}"


def sizes(rows: Sequence[Row], measure: Unit) -> str:
    """Who by how much; of many the smallest and the largest."""
    if len(rows) <= NAMED:
        return ", ".join(f"{placed(row)} {by(row, measure)}" for row in rows)
    low, high = (pick(rows, key=lambda row: abs(row["delta"] or 0.0)) for pick in (min, max))
    return f"{len(rows)} arms, from {placed(low)} {by(low, measure)} to {placed(high)} {by(high, measure)}"


def names(rows: Sequence[Row]) -> str:
    """Who, the points of a curve together: "stem=conv at data_fraction=0.1, 0.3"; of many the first."""
    points: dict[str, list[str]] = {}
    for row in rows:
        head, _, point = map(current().label, parts(row))
        points.setdefault(head, []).append(f"{point}{lost(row)}")
    found = [f"{head} at {enumerated(at)}" if at[0] else f"{head}{at[0]}" for head, at in points.items()]
    more = f" and {len(found) - 2 * NAMED} more" if len(found) > 2 * NAMED else ""
    return ", ".join(found[: 2 * NAMED]) + more


def enumerated(texts: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c" """
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def placed(row: Row) -> str:
    """ "stem=conv at data_fraction=0.1" """
    head, _, point = map(current().label, parts(row))
    return f"{head} at {point}" if point else head


def parts(row: Row) -> tuple[str, str, str]:
    """The arm, its baseline, and the point of the study's curves at which both stand: what their names end with.

    The value that each was tuned to is none of these.
    """
    arm, baseline = row["arm"].split(","), row["baseline"].split(",")
    shared = 0
    while shared < min(len(arm), len(baseline)) - 1 and arm[-1 - shared] == baseline[-1 - shared]:
        shared += 1
    head, base, point = arm[: len(arm) - shared], baseline[: len(baseline) - shared], arm[len(arm) - shared :]
    shown = [",".join(one) for one in (head, base, [place for place in point if not place.endswith("=tuned")])]
    named, against, at = map(current().label, shown)
    return named, against, at


def opening(table: Mapping[str, Any]) -> str:
    rows = [row for row in table["rows"] if not is_tuned(row, table)]  # whose trials are those of other rows
    over, planned = progress(table)
    start = f"On {setting(table)}, {seeds(rows)}"
    return f"{start}:" if over == planned else f"{start}, so far ({over} of {planned} trials are over):"


def setting(table: Mapping[str, Any]) -> str:
    """ "digits", "digits with steps=60, batch=16"; on other data than the recipe's "pets (recipe digits)" """
    place, *changed = setting_parts(table)
    return f"{place} with {', '.join(changed)}" if changed else place


def setting_parts(plan: Mapping[str, Any]) -> list[str]:
    """What a table or plan is on, then the settings of the command line that this does not name."""
    data, changed = plan.get("data"), plan["overrides"]
    named = data is not None and not data["of_recipe"]
    place = f"{data['name']} (recipe {plan['recipe']})" if data and named else str(plan["recipe"])
    return [place, *(f"{key}={value}" for key, value in changed.items() if not (named and key == "data"))]


def unfinished(table: Mapping[str, Any]) -> str:
    """ "Interim: 12 of 20 planned trials are over, so there is no verdict." of a table that is."""
    if not table["interim"]:
        return ""
    over, planned = progress(table)
    so = "a verdict says what it would be now" if table["judged"] else "so there is no verdict (--interim shows it)"
    return f"Interim: {over} of {planned} planned trials are over, {so}."


def progress(table: Mapping[str, Any]) -> tuple[int, int]:
    """How many trials are over, and how many are planned."""
    rows = [row for row in table["rows"] if not is_tuned(row, table)]  # whose trials are those of other rows
    return sum(row["n"] + row["diverged"] for row in rows), sum(row["planned"] for row in rows)


def departing(table: Mapping[str, Any]) -> str:
    """ "Unlike the recipe, the baseline has steps 500, optimizer sgd." where it has; stages too"""
    told = [
        f"{who} has {', '.join(f'{key} {value}' for key, value in settings.items())}"
        for who, settings in table["departures"].items()
    ]
    return f"Unlike the recipe, {'; '.join(told)}." if told else ""


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
