"""Two sets of results, arm by arm: what B is against A. Arms are matched by what was trained, not by name."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from results import units
from results.statistics import contrast, inference, sensitivity, tuning, verdict
from results.statistics.contrast import Sample
from results.statistics.inference import Estimate
from results.store import planned
from results.study_results import StudyResults
from results.tables import layout, sentences, study_table
from results.tables import provenance as mixed

Json = dict[str, Any]

IDENTICAL = "identical"
USUAL = "test_accuracy"  # what rows are of where nothing is said


@dataclass(frozen=True)
class Side:
    """An arm of one of the two sets: its row in its own study's table, its trials, its differences from the baseline
    (None for a baseline), and what a table says of each planned trial."""

    study: StudyResults
    arm: Mapping[str, Any]
    row: Mapping[str, Any]
    trials: Sample
    contrast: Sample | None
    cells: Sequence[study_table.Cell]


@dataclass(frozen=True)
class Test:
    """B - A, without the trials that are identical on both sides: seeds whose final weights are the same.

    p: of no difference, or of B not diverging more often than A. method: paired, overlapping, welch, or none where
    nothing is left to test. pairs: how many seeds are paired. repeated: seeds of the same trial with another number.
    trials: what makes two tests the same test.
    """

    difference: Estimate
    p: float | None
    method: str
    pairs: int
    identical: list[int]
    repeated: list[int]
    trials: tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """Arms to set side by side; None where one side has none. The row is named after `first`."""

    a: Side | None
    b: Side | None
    first: Side


def compare(a: Sequence[StudyResults], b: Sequence[StudyResults]) -> Json:
    """What `ablate compare --format json` prints: verdicts of B against A, Holm over all rows that were tested."""
    pairs = list(matched(sides(a), sides(b)))
    tests = [tested(pair, lambda side: side.trials) for pair in pairs]
    contrasts = [tested(pair, lambda side: side.contrast) for pair in pairs]
    p = [test.p if test else None for test in tests]
    p_margin = [within(pair, test) for pair, test in zip(pairs, tests, strict=True)]
    family = len(distinct(tests, p))
    found = zip(
        *(pairs, tests, adjusted(tests, p), adjusted(tests, p_margin), resolvable(pairs, tests)),
        *(contrasts, adjusted(contrasts, [test.p if test else None for test in contrasts])),
        strict=True,
    )
    rows = [compared_row(family, *parts) for parts in found]
    return {
        "a": described(a),
        "b": described(b),
        "rows": rows,
        "provenance": provenance(a, b) | recipes(pairs),
        "family": family,
        "verdicts": dict(Counter(row["verdict"] for row in rows if row["verdict"])),
    }


# -- who is compared with whom -----------------------------------------------------------------------------------------


def sides(studies: Sequence[StudyResults]) -> list[Side]:
    """Every arm of every study, also those at their own value of what is tuned."""
    found = []
    for untuned in studies:
        rows = {row["arm"]: row for row in study_table.table(untuned)["rows"]}
        study, _ = tuning.with_tuned(untuned)
        plan = study.plan
        trials, cells = contrast.samples_by_arm(study, plan["metric"]), study_table.cells_by_arm(study)
        for arm in plan["arms"]:
            own, baseline = trials[arm["name"]], trials[arm["baseline"]]
            difference = None if own is baseline else own - baseline
            found.append(Side(study, arm, rows[arm["name"]], own, difference, cells[arm["name"]]))
    return found


def matched(a: Sequence[Side], b: Sequence[Side]) -> Iterator[Pair]:
    """Each arm of A with that of the same config in B, else with its namesake; then what only B has."""
    used: set[int] = set()
    for side in a:
        best = counterpart(side, b)
        used.add(id(best))
        yield Pair(side, best, first=side)
    yield from (Pair(counterpart(side, a), side, first=side) for side in b if id(side) not in used)


def counterpart(side: Side, others: Sequence[Side]) -> Side | None:
    """One config may be an arm of several studies: the same study is preferred."""
    alike = [other for other in others if trained_alike(side, other)]
    known = alike or [other for other in others if namesakes(side, other)]
    return max(known, key=lambda other: (side.study.name == other.study.name, namesakes(side, other)), default=None)


def trained_alike(a: Side, b: Side) -> bool:
    """The same resolved config but for the seeds, and the same metric."""
    return bool(a.arm["key"] == b.arm["key"] and a.study.plan["metric"] == b.study.plan["metric"])


def namesakes(a: Side, b: Side) -> bool:
    """Arms of one name in one study, by other recipes or on other data."""
    return bool(a.study.plan["study"] == b.study.plan["study"] and a.arm["name"] == b.arm["name"])


# -- the tests ---------------------------------------------------------------------------------------------------------


def tested(pair: Pair, what: Callable[[Side], Sample | None]) -> Test | None:
    """None where the two are not comparable."""
    a, b = pair.a, pair.b
    if a is None or b is None or not trained_alike(a, b):
        return None
    left, right = what(a), what(b)
    if left is None or right is None:
        return None
    found = test(left, right, a.study.plan["split"] == b.study.plan["split"])
    return replace(found, p=verdict.p_with_divergence(found.p, b.row, a.row)) if left is a.trials else found


def test(a: Sample, b: Sample, same_split: bool) -> Test:
    """Paired where both have the same seeds of the same split, partially overlapping with at least 2, else Welch's."""
    common = sorted(a.values.keys() & b.values.keys())
    equal = {seed for seed in common if a.values[seed] == b.values[seed]}
    identical = [seed for seed in common if seed in equal and a.weights[seed] and a.weights[seed] == b.weights[seed]]
    repeated = [seed for seed in common if seed not in equal and a.ids[seed] == b.ids[seed]]
    trials = (*(a.ids[s] for s in a.seeds), "/", *(b.ids[s] for s in b.seeds))
    new_a, new_b = a.without(identical), b.without(identical)
    if identical and not (new_a.values and new_b.values):
        return Test(Estimate(len(identical), 0.0, why=IDENTICAL), None, "none", 0, identical, repeated, trials)
    difference, method, pairs = differing_by(new_a, new_b, same_split)
    return Test(difference, difference.p, method, pairs, identical, repeated, trials)


def differing_by(a: Sample, b: Sample, same_split: bool) -> tuple[Estimate, str, int]:
    """b - a, by which method, and over how many pairs."""
    pairs = b - a
    count = len(pairs.values)
    if not same_split or count < 2 or other_images(a, b):
        return inference.welch(a.numbers, b.numbers, a.image), "welch", 0
    if count == len(a.values) == len(b.values):
        return pairs.mean, "paired", count
    first, second = ([*pairs.seeds, *one.without(pairs.seeds).seeds] for one in (a, b))
    numbers = np.array([a.values[s] for s in first]), np.array([b.values[s] for s in second])
    return inference.overlapping(*numbers, count, a.image), "overlapping", count


def other_images(a: Sample, b: Sample) -> bool:
    """Whether a seed is known to have tested other images on the other side."""
    return any(not a.same_images(b, seed) for seed in a.correct.keys() & b.correct.keys())


def within(pair: Pair, test: Test | None) -> float | None:
    """p of equivalence by the margin of both sides."""
    if pair.a is None or pair.b is None or test is None:
        return None
    own = margin(pair.a, pair.b)
    return None if own is None else inference.tost_p(test.difference, own)


def distinct(tests: Sequence[Test | None], p: Sequence[float | None]) -> dict[tuple[str, ...], float]:
    """The p of each test that gave one, once: a baseline shared by several studies is one test."""
    return {test.trials: own for test, own in zip(tests, p, strict=True) if test and own is not None}


def adjusted(tests: Sequence[Test | None], p: Sequence[float | None]) -> list[float | None]:
    """After Holm over the distinct tests."""
    family = distinct(tests, p)
    p_holm = dict(zip(family, inference.holm(list(family.values()), len(family)), strict=True))
    return [p_holm[test.trials] if test and own is not None else None for test, own in zip(tests, p, strict=True)]


def resolvable(pairs: Sequence[Pair], tests: Sequence[Test | None]) -> list[float | None]:
    """The smallest difference that each test would have seen; spreads are pooled over a metric and a kind of test."""
    family = len(distinct(tests, [test.p if test else None for test in tests]))
    kinds = [
        (test.method, pair.first.study.plan["metric"]) if test else None
        for pair, test in zip(pairs, tests, strict=True)
    ]
    found: dict[tuple[str, ...], float | None] = {}
    for kind in {kind for kind in kinds if kind}:
        own = {test.trials: test.difference for test, its in zip(tests, kinds, strict=True) if test and its == kind}
        found |= zip(own, sensitivity.resolvable_differences(list(own.values()), family), strict=True)
    return [found[test.trials] if test else None for test in tests]


# -- the rows ----------------------------------------------------------------------------------------------------------


def compared_row(
    family: int,
    pair: Pair,
    test: Test | None,
    p_holm: float | None,
    p_margin: float | None,
    resolvable: float | None,
    change: Test | None,
    p_change: float | None,
) -> Json:
    a, b, plan = pair.a, pair.b, pair.first.study.plan
    difference = test.difference if test else Estimate(0, None)
    return {
        "study": plan["study"],
        "recipe": plan["recipe"],
        "name": plan["name"],
        "metric": plan["metric"],
        "objective": planned.objective(plan),
        "arm": pair.first.arm["name"],
        "a": reached(a),
        "b": reached(b),
        "delta": difference.value,
        "delta_ci95": study_table.listed(difference.interval()),
        "p": test.p if test else None,
        "p_holm": p_holm,
        "verdict": judged(a, b, test, p_holm, p_margin),
        "worse_by_at_most": worse_by_at_most(pair, test),
        "untested": untested(pair, test),
        "resolvable_difference": resolvable,
        "method": test.method if test else None,
        "n_pairs": test.pairs if test and test.pairs else None,
        "identical": test.identical if test else [],
        "contrast": contrast_row(a, b, change, p_change),
        "notes": measured(plan["metric"], planned.objective(plan))
        + notes(pair, test, p_holm, p_margin, family)
        + changed(a, b, change, p_change),
    }


def measured(metric: str, objective: str) -> list[str]:
    """What a row's numbers are, where that is not the test accuracy of labels: its metric, and what was learned."""
    usual = metric == USUAL and objective not in units.PREDICTED
    return [] if usual else [units.name(metric, objective)]


def untested(pair: Pair, test: Test | None) -> str | None:
    """Why a row has no verdict, in two words: "only in B", "other recipe", "n = 1"; None where it has one."""
    if pair.a is None or pair.b is None:
        return f"only in {'B' if pair.a is None else 'A'}"
    if test is not None:
        return test.difference.why or None if test.method != "none" and test.p is None else None
    a, b = pair.a, pair.b
    if a.study.plan["metric"] != b.study.plan["metric"]:
        return "other metric"
    keys = [key for key, _, _ in differing(a, b)]
    return "other data" if "data" in keys else "other recipe" if keys else "other version"


def reached(side: Side | None) -> Json | None:
    if side is None:
        return None
    return {name: side.row[name] for name in ("mean", "n", "ci95", "planned", "diverged", "failed", "missing")}


def judged(
    a: Side | None, b: Side | None, test: Test | None, p_holm: float | None, p_margin: float | None
) -> str | None:
    """The verdict of B against A; identical where every common trial is."""
    if a is None or b is None or test is None:
        return None
    if test.method == "none":
        return IDENTICAL
    return verdict.verdict(
        test.difference,
        p_holm,
        tie=p_margin is not None and p_margin < verdict.ALPHA,
        higher_is_better=units.higher_is_better(a.study.plan["metric"]),
        diverged=(b.row["diverged"], a.row["diverged"]),
    )


def worse_by_at_most(pair: Pair, test: Test | None) -> float | None:
    """The one-sided 95% bound of how much worse B is, below 0 where it is better; None where nothing bounds it.

    Differences that are identical, seed by seed, are their own bound; none bounds it where more trials of B diverged.
    """
    if pair.a is None or pair.b is None or test is None or test.difference.value is None:
        return None
    if pair.b.row["diverged"] > pair.a.row["diverged"]:
        return None
    worse = -test.difference if units.higher_is_better(pair.first.study.plan["metric"]) else test.difference
    interval = worse.interval(1 - 2 * verdict.ALPHA)
    if interval is not None:
        return interval[1]
    return worse.value if test.method == "none" or worse.n > 1 else None


def margin(a: Side, b: Side) -> float | None:
    """What counts as equivalent, where both sides say the same."""
    own: float | None = a.study.plan["margin"]
    return own if own == b.study.plan["margin"] else None


def contrast_row(a: Side | None, b: Side | None, test: Test | None, p_holm: float | None) -> Json | None:
    """What the arm is against its baseline on either side, and whether the two answers differ.

    A changed verdict is no evidence by itself: what is tested is the difference of the differences.
    """
    if a is None or b is None or test is None:
        return None
    return {
        "a": a.row["verdict"],
        "b": b.row["verdict"],
        "delta": test.difference.value,
        "delta_ci95": study_table.listed(test.difference.interval()),
        "p_holm": p_holm,
    }


def notes(pair: Pair, test: Test | None, p_holm: float | None, p_margin: float | None, family: int) -> list[str]:
    """Why a row is not a plain paired comparison, and what is missing on either side."""
    a, b = pair.a, pair.b
    if a is None or b is None:
        return [f"only in {'B' if a is None else 'A'}"]
    found = [f"{name}: {hole}" for name, side in (("A", a), ("B", b)) for hole in holes(side)]
    if not namesakes(a, b):
        other, name = (b, "B") if pair.first is a else (a, "A")
        found.append(f"{other.arm['name']} of {other.study.name} in {name}")
    if test is None:
        return [*found, f"shown side by side, not compared: {unlike(a, b)}"]
    limits = verdict.verdict_notes(
        judged(a, b, test, p_holm, p_margin),
        test.difference,
        None,
        p_holm,
        family=family,
        margin=margin(a, b),
        unit=units.unit(a.study.plan["metric"]),
        diverged=bool(a.row["diverged"] or b.row["diverged"]),
    )
    return found + test_notes(a, b, test) + limits


def test_notes(a: Side, b: Side, test: Test) -> list[str]:
    """How the test was made, and which trials stand on both sides."""
    found = []
    if test.method == "none" and a.trials.seeds != b.trials.seeds:
        found.append("identical where both sides have the trial; one side has more seeds")
    if test.method != "none" and test.difference.se is None:
        lacking = "interval, p or verdict" if test.p is None else "interval"
        found.append(f"no {lacking} of the difference: {test.difference.why}")
    elif test.method == "welch":
        found.append("not paired (Welch): fewer than 2 common seeds, or another split")
    elif test.method == "overlapping":
        found.append(f"{test.pairs} pairs, the other seeds on one side only: partially overlapping samples (Derrick)")
    if test.identical and test.method != "none":
        found.append(f"{sentences.named(test.identical)}: the same weights on both sides, left out of the test")
    if test.repeated:
        found.append(f"{sentences.named(test.repeated)}: the same trial gave another number")
    return found


def holes(side: Side) -> list[str]:
    return study_table.holes(side.cells, side.study.plan["metric"])


def changed(a: Side | None, b: Side | None, change: Test | None, p_change: float | None) -> list[str]:
    """A verdict against the baseline that is another one in B, which proves nothing, and what was tested of it."""
    if a is None or b is None or a.contrast is None or b.contrast is None or change is None:
        return []
    before, after = a.row["verdict"], b.row["verdict"]
    if before == after:
        return []
    words = [(word or "without verdict").replace("-", " ") for word in (before, after)]
    return [f"against its baseline {words[0]} in A, {words[1]} in B: descriptive; {moved(change, p_change, a)}"]


def moved(change: Test, p_change: float | None, side: Side) -> str:
    """ "its difference from the baseline moved by +0.40 ± 1.20 points, p = 0.4100" """
    unit, difference = units.unit(side.study.plan["metric"]), change.difference
    if difference.value is None or p_change is None:
        return "that its difference from the baseline moved is not tested"
    by = layout.plus_minus(unit.signed(difference.value), difference.interval(), unit)
    p = units.probability(p_change)
    return f"its difference from the baseline moved by {by}{unit.of_difference}, p {p if p[0] == '<' else f'= {p}'}"


def differing(a: Side, b: Side) -> list[tuple[str, Any, Any]]:
    """What differs between the configs of two namesakes: key, A's value, B's."""
    left, right = a.arm["config"], b.arm["config"]
    return [(key, left.get(key), right.get(key)) for key in {**left, **right} if left.get(key) != right.get(key)]


def unlike(a: Side, b: Side) -> str:
    """The same in words, the first three keys."""
    if a.study.plan["metric"] != b.study.plan["metric"]:
        return f"metric {a.study.plan['metric']} and {b.study.plan['metric']}"
    found = [f"{key} {mine} and {its}" for key, mine, its in differing(a, b)]
    more = f", and {len(found) - 3} more" if len(found) > 3 else ""
    return ", ".join(found[:3]) + more or "another version of a part"


# -- where they come from ----------------------------------------------------------------------------------------------


def described(studies: Sequence[StudyResults]) -> Json:
    """What one side holds; a trial that several studies share is one, as in the report."""
    states = {
        one: status
        for study in studies
        for one, status in zip(study.columns["id"], study.columns["status"], strict=True)
    }
    over = sum(status in ("finished", "diverged") for status in states.values())
    return {"studies": [study.name for study in studies], "planned": len(states), "over": over}


def provenance(a: Sequence[StudyResults], b: Sequence[StudyResults]) -> Json:
    """What differs: code, versions, device, a plugin that both sides loaded; field -> the values on either side."""
    left, right = origins(a), origins(b)
    both = {name: {"a": left[name], "b": right[name]} for name in left if name in right}
    return {name: values for name, values in both.items() if values["a"] != values["b"]}


def origins(studies: Sequence[StudyResults]) -> dict[str, list[str]]:
    """Field -> the values that one side's trials have."""
    found: dict[str, set[str]] = {}
    for study in studies:
        own = [*mixed.compared(study.columns), *((name, study.columns[name]) for name in ("revision", "host"))]
        for name, values in own:
            found.setdefault(name, set()).update(values)
    return {name: sorted(values - {""}) for name, values in found.items()}


def recipes(pairs: Sequence[Pair]) -> Json:
    """Recipes that differ between namesakes, by name and setting by setting."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for a, b in ((pair.a, pair.b) for pair in pairs if pair.a and pair.b):
        own = [("recipe", a.study.plan["recipe"], b.study.plan["recipe"])]
        for name, mine, its in own if trained_alike(a, b) else own + differing(a, b):
            left, right = found.setdefault(name, (set(), set()))
            left.add(str(mine))
            right.add(str(its))
    return {name: {"a": sorted(a), "b": sorted(b)} for name, (a, b) in found.items() if a != b}
