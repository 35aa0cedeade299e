"""The comparison of two sets of results, A and B, arm by arm.

Arms are matched by their resolved config and metric. Arms without such a match are matched by name and study, and then
shown side by side without a test.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from results import units
from results.records import ChangedContrast, ComparedRow, Comparison, Contents, Reached, Row, study_fields
from results.statistics import contrast, inference, power, tuning, verdict
from results.statistics.contrast import Sample
from results.statistics.inference import Estimate
from results.store.schemas import Arm
from results.study_results import StudyResults
from results.tables import layout, sentences, study_table
from results.tables import provenance as mixed

IDENTICAL = "identical"
USUAL = "test_accuracy"  # the metric that a row's notes do not name


@dataclass(frozen=True)
class Side:
    """An arm of one set of results (A or B), with its row of the study's table.

    trials: the metric in its finished trials. contrast: the paired differences from the baseline, None for a baseline.
    """

    study: StudyResults
    arm: Arm
    row: Row
    trials: Sample
    contrast: Sample | None
    outcomes: Sequence[study_table.Outcome]


@dataclass(frozen=True)
class Pair:
    """Two arms to compare, of which one may be None. first: the arm after which the row is named."""

    a: Side | None
    b: Side | None
    first: Side


@dataclass(frozen=True)
class Test:
    """The test of the difference B - A between two arms or their contrasts, without identical trials.

    Trials of a seed are identical if their final weights and values are equal in A and B. p: the p value of no
    difference; for arms, combined with a test of divergence if trials of B diverged. p_margin: the p value of
    equivalence within the common margin. p_holm: p after Holm's correction; `adjusted` sets it, and corrects p_margin.
    method: paired, overlapping or welch; none if a side has only identical trials. pairs: the number of paired seeds.
    identical: seeds with identical trials. repeated: seeds whose trial has one id but different values in A and B.
    trials: trial ids, by which equal tests are recognized.
    """

    a: Side
    b: Side
    difference: Estimate
    p: float | None
    p_margin: float | None
    method: str
    pairs: int
    identical: list[int]
    repeated: list[int]
    trials: tuple[str, ...]
    p_holm: float | None = None


def compare(a: Sequence[StudyResults], b: Sequence[StudyResults]) -> Comparison:
    """Return the comparison of B with A.

    The tests of all arms form one Holm family, in which equal tests count once. The tests of equivalence and those of
    changed contrasts form two further families.
    """
    in_a, in_b = sides(a), sides(b)
    pairs = [Pair(side, counterpart(side, in_b), first=side) for side in in_a]
    paired = {id(pair.b) for pair in pairs}
    pairs += [Pair(counterpart(side, in_a), side, first=side) for side in in_b if id(side) not in paired]
    tests = adjusted([pair_test(pair, lambda side: side.trials) for pair in pairs])
    changes = adjusted([pair_test(pair, lambda side: side.contrast) for pair in pairs])
    family = len({test.trials for test in tests if test and test.p is not None})
    columns = pairs, tests, resolvable_differences(tests, family), changes
    rows = [compared_row(*values, family) for values in zip(*columns, strict=True)]
    return Comparison(
        a=contents(a),
        b=contents(b),
        rows=rows,
        provenance=provenance(a, b) | differing_recipes(pairs),
        family=family,
        verdicts=dict(Counter(row.verdict for row in rows if row.verdict)),
    )


# -- matching ----------------------------------------------------------------------------------------------------------


def sides(studies: Sequence[StudyResults]) -> list[Side]:
    """Return every arm of every study, including tuned arms at their tuned values."""
    found = []
    for untuned in studies:
        rows = {row.arm: row for row in study_table.table(untuned).rows}
        study, _ = tuning.with_tuned(untuned)
        plan = study.plan
        trials, outcomes = contrast.samples_by_arm(study, plan.metric), study_table.outcomes_by_arm(study)
        for arm in plan.arms:
            name, own, baseline = arm.name, trials[arm.name], trials[arm.baseline]
            difference = None if own is baseline else own - baseline
            found.append(Side(study, arm, rows[name], own, difference, outcomes[name]))
    return found


def counterpart(side: Side, others: Sequence[Side]) -> Side | None:
    """Return the arm of `others` with equal config and metric, else with equal name and study, else None.

    Of several matches, an arm from the study with the equal full name is preferred, then a namesake.
    """
    alike = [other for other in others if are_comparable(side, other)]
    known = alike or [other for other in others if are_namesakes(side, other)]
    return max(known, key=lambda other: (side.study.name == other.study.name, are_namesakes(side, other)), default=None)


def are_comparable(a: Side, b: Side) -> bool:
    """Return whether both arms have the same metric and the same resolved config, apart from seeds."""
    return bool(a.arm.key == b.arm.key and a.study.plan.metric == b.study.plan.metric)


def are_namesakes(a: Side, b: Side) -> bool:
    """Return whether both arms have the same name in the same study, perhaps with different recipes or data."""
    return bool(a.study.plan.study == b.study.plan.study and a.row.arm == b.row.arm)


# -- tests -------------------------------------------------------------------------------------------------------------


def pair_test(pair: Pair, sample_of: Callable[[Side], Sample | None]) -> Test | None:
    """Return the test of B against A on samples; None if a sample is missing, or if config or metric differ."""
    a, b = pair.a, pair.b
    if a is None or b is None or not are_comparable(a, b):
        return None
    left, right = sample_of(a), sample_of(b)
    if left is None or right is None:
        return None
    common = sorted(left.values.keys() & right.values.keys())
    equal = [seed for seed in common if left.values[seed] == right.values[seed]]
    identical = [seed for seed in equal if left.weights[seed] and left.weights[seed] == right.weights[seed]]
    new_a, new_b = left.without_seeds(identical), right.without_seeds(identical)
    if identical and not (new_a.values and new_b.values):
        difference, method, pairs = Estimate(len(identical), 0.0, why=IDENTICAL), "none", 0
    else:
        difference, method, pairs = estimate_difference(new_a, new_b, a.study.plan.split == b.study.plan.split)
    p = None if method == "none" else difference.p_value
    margin = common_margin(a, b)
    return Test(
        a=a,
        b=b,
        difference=difference,
        p=verdict.p_with_divergence(p, b.row, a.row) if left is a.trials else p,
        p_margin=None if margin is None else inference.tost_p(difference, margin),
        method=method,
        pairs=pairs,
        identical=identical,
        repeated=[seed for seed in common if seed not in equal and left.ids[seed] == right.ids[seed]],
        trials=(*(left.ids[seed] for seed in left.seeds), "/", *(right.ids[seed] for seed in right.seeds)),
    )


def estimate_difference(a: Sample, b: Sample, same_split: bool) -> tuple[Estimate, str, int]:
    """Return the estimate of b - a, the name of the method and the number of paired seeds.

    The method is Welch's test if the splits or the test images differ, or if fewer than 2 seeds are common. Otherwise
    it is the paired test if all seeds are common, and the test of partially overlapping samples if only some are.
    """
    pairs = b - a
    count = len(pairs.values)
    same_images = all(a.has_same_images(b, seed) for seed in a.correct.keys() & b.correct.keys())
    if not same_split or count < 2 or not same_images:
        return inference.welch(a.numbers, b.numbers, a.image), "welch", 0
    if count == len(a.values) == len(b.values):
        return pairs.mean, "paired", count
    first, second = ([*pairs.seeds, *one.without_seeds(pairs.seeds).seeds] for one in (a, b))
    numbers = np.array([a.values[s] for s in first]), np.array([b.values[s] for s in second])
    return inference.overlapping_samples(*numbers, count, a.image), "overlapping", count


def adjusted(tests: Sequence[Test | None]) -> list[Test | None]:
    both = (holm_over_tests(tests, name) for name in ("p", "p_margin"))
    return [test and replace(test, p_holm=p, p_margin=margin) for test, p, margin in zip(tests, *both, strict=True)]


def holm_over_tests(tests: Sequence[Test | None], name: str) -> list[float | None]:
    """Return the p values `name`, adjusted by Holm over distinct tests: a baseline of several studies is one."""
    family = {test.trials: p for test in tests if test and (p := getattr(test, name)) is not None}
    p_holm = dict(zip(family, inference.holm(list(family.values()), len(family)), strict=True))
    return [p_holm[test.trials] if test and getattr(test, name) is not None else None for test in tests]


def resolvable_differences(tests: Sequence[Test | None], family: int) -> list[float | None]:
    """Return the smallest difference that each test would have resolved with 80% power, None without standard error.

    Spreads are pooled per metric and method. family: the number of distinct tests.
    """
    groups: dict[tuple[str, str], dict[tuple[str, ...], Estimate]] = defaultdict(dict)
    for test in filter(None, tests):
        groups[test.method, test.a.study.plan.metric][test.trials] = test.difference
    found: dict[tuple[str, ...], float | None] = {}
    for group in groups.values():
        found |= zip(group, power.resolvable_differences(list(group.values()), family), strict=True)
    return [found[test.trials] if test else None for test in tests]


# -- rows --------------------------------------------------------------------------------------------------------------


def compared_row(
    pair: Pair, test: Test | None, resolvable: float | None, change: Test | None, family: int
) -> ComparedRow:
    """Return the row of one pair. change: the test of B's contrast against A's."""
    plan, difference = pair.first.study.plan, test.difference if test else Estimate(0, None)
    return ComparedRow(
        **study_fields(plan),
        objective=plan.objective,
        arm=pair.first.arm.name,
        a=arm_results(pair.a.row) if pair.a else None,
        b=arm_results(pair.b.row) if pair.b else None,
        delta=difference.value,
        delta_ci95=difference.interval(),
        p=test.p if test else None,
        p_holm=test.p_holm if test else None,
        verdict=test_verdict(test) if test else None,
        worse_by_at_most=deficit_bound(test) if test else None,
        untested=untested_reason(pair, test),
        resolvable_difference=resolvable,
        method=test.method if test else None,
        n_pairs=test.pairs if test and test.pairs else None,
        identical=test.identical if test else [],
        contrast=ChangedContrast(
            a=change.a.row.verdict,
            b=change.b.row.verdict,
            delta=change.difference.value,
            delta_ci95=change.difference.interval(),
            p_holm=change.p_holm,
        )
        if change
        else None,
        notes=metric_notes(plan.metric, plan.objective) + row_notes(pair, test, family) + change_notes(change),
    )


def metric_notes(metric: str, objective: str) -> list[str]:
    """Return a note with the metric's name, or [] for the test accuracy on class labels."""
    usual = metric == USUAL and objective not in units.OBJECTIVE_SUFFIX
    return [] if usual else [units.metric_name(metric, objective)]


def untested_reason(pair: Pair, test: Test | None) -> str | None:
    """Return the reason why a row has no verdict, such as "other recipe"; None for a row with a verdict."""
    if pair.a is None or pair.b is None:
        return f"only in {'B' if pair.a is None else 'A'}"
    if test is not None:
        return test.difference.why or None if test.method != "none" and test.p is None else None
    a, b = pair.a, pair.b
    if a.study.plan.metric != b.study.plan.metric:
        return "other metric"
    keys = [key for key, _, _ in differing_settings(a, b)]
    return "other data" if "data" in keys else "other recipe" if keys else "other version"


def arm_results(row: Row) -> Reached:
    return Reached(row.mean, row.n, row.ci95, row.planned, row.diverged, row.failed, row.missing)


def test_verdict(test: Test) -> str | None:
    """Return the verdict on B against A, "identical" if a side has only identical trials, or None without a test."""
    if test.method == "none":
        return IDENTICAL
    return verdict.verdict(
        test.difference,
        test.p_holm,
        test.p_margin,
        higher_is_better=units.higher_is_better(test.a.study.plan.metric),
        diverged=(test.b.row.diverged, test.a.row.diverged),
    )


def deficit_bound(test: Test) -> float | None:
    """Return the one-sided 95% upper bound on how much worse B is than A, negative if B is shown to be better.

    It is the difference itself where all differences, or all values of each side, are equal. It is None if more trials
    diverged in B than in A, or if there are too few trials.
    """
    if test.difference.value is None or test.b.row.diverged > test.a.row.diverged:
        return None
    worse = -test.difference if units.higher_is_better(test.a.study.plan.metric) else test.difference
    interval = worse.interval(1 - 2 * verdict.ALPHA)
    if interval is not None:
        return interval[1]
    return worse.value if test.method == "none" or worse.n > 1 else None


def common_margin(a: Side, b: Side) -> float | None:
    """Return the equivalence margin that both studies declare; None if they declare none or different ones."""
    return a.study.plan.margin if a.study.plan.margin == b.study.plan.margin else None


# -- notes -------------------------------------------------------------------------------------------------------------


def row_notes(pair: Pair, test: Test | None, family: int) -> list[str]:
    """Return notes on absent trials in A and B, and on why a row is not a plain paired comparison."""
    a, b = pair.a, pair.b
    if a is None or b is None:
        return [f"only in {'B' if a is None else 'A'}"]
    found = [
        f"{name}: {note}"
        for name, side in (("A", a), ("B", b))
        for note in study_table.absence_notes(side.outcomes, side.study.plan.metric)
    ]
    if not are_namesakes(a, b):
        other, name = (b, "B") if pair.first is a else (a, "A")
        found.append(f"{other.arm.name} of {other.study.name} in {name}")
    if test is None:
        return [*found, f"shown side by side, not compared: {settings_difference(a, b)}"]
    limits = verdict.verdict_notes(
        test_verdict(test),
        test.difference,
        None,
        test.p_holm,
        family=family,
        margin=common_margin(a, b),
        unit=units.unit(a.study.plan.metric),
        diverged=bool(a.row.diverged or b.row.diverged),
    )
    return found + test_notes(test) + limits


def test_notes(test: Test) -> list[str]:
    found = []
    if test.method == "none" and test.a.trials.seeds != test.b.trials.seeds:
        found.append("identical where both sides have the trial; one side has more seeds")
    if test.method != "none" and test.difference.se is None:
        lacking = "interval, p or verdict" if test.p is None else "interval"
        found.append(f"no {lacking} of the difference: {test.difference.why}")
    elif test.method == "welch":
        found.append("not paired (Welch): fewer than 2 common seeds, or another split")
    elif test.method == "overlapping":
        found.append(f"{test.pairs} pairs, the other seeds on one side only: partially overlapping samples (Derrick)")
    if test.identical and test.method != "none":
        found.append(f"{sentences.seeds_text(test.identical)}: the same weights on both sides, left out of the test")
    if test.repeated:
        found.append(f"{sentences.seeds_text(test.repeated)}: the same trial gave another number")
    return found


def change_notes(change: Test | None) -> list[str]:
    """Return a note if the verdict on an arm against its baseline differs between A and B, else [].

    A changed verdict proves nothing by itself, so the note has the size and p value of the contrast's change.
    """
    if change is None or change.a.row.verdict == change.b.row.verdict:
        return []
    before, after = ((side.row.verdict or "without verdict").replace("-", " ") for side in (change.a, change.b))
    unit, difference = units.unit(change.a.study.plan.metric), change.difference
    if difference.value is None or change.p_holm is None:
        tested = "that its difference from the baseline moved is not tested"
    else:
        by = layout.plus_minus(unit.signed_text(difference.value), difference.interval(), unit)
        p = units.probability_text(change.p_holm)
        moved = f"its difference from the baseline moved by {by}{unit.of_difference}"
        tested = f"{moved}, p {p if p[0] == '<' else f'= {p}'}"
    return [f"against its baseline {before} in A, {after} in B: descriptive; {tested}"]


def differing_settings(a: Side, b: Side) -> list[tuple[str, Any, Any]]:
    left, right = a.arm.config, b.arm.config
    return [(key, left.get(key), right.get(key)) for key in {**left, **right} if left.get(key) != right.get(key)]


def settings_difference(a: Side, b: Side) -> str:
    """Return text with the metrics if they differ, else with up to three differing settings."""
    if a.study.plan.metric != b.study.plan.metric:
        return f"metric {a.study.plan.metric} and {b.study.plan.metric}"
    found = [f"{key} {left} and {right}" for key, left, right in differing_settings(a, b)]
    more = f", and {len(found) - 3} more" if len(found) > 3 else ""
    return ", ".join(found[:3]) + more or "another version of a part"


# -- provenance --------------------------------------------------------------------------------------------------------


def contents(studies: Sequence[StudyResults]) -> Contents:
    columns = (zip(study.columns["id"], study.columns["status"], strict=True) for study in studies)
    states = dict(itertools.chain.from_iterable(columns))
    over = sum(status in ("finished", "diverged") for status in states.values())
    return Contents([study.name for study in studies], len(states), over)


def provenance(a: Sequence[StudyResults], b: Sequence[StudyResults]) -> dict[str, dict[str, list[str]]]:
    """Return each field of provenance that differs, unless it is a plug-in that only one side loaded."""
    left, right = provenance_values(a), provenance_values(b)
    both = {name: {"a": left[name], "b": right[name]} for name in left if name in right}
    return {name: values for name, values in both.items() if values["a"] != values["b"]}


def provenance_values(studies: Sequence[StudyResults]) -> dict[str, list[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for study in studies:
        own = ((name, study.columns[name]) for name in ("revision", "host"))
        for name, values in (*mixed.comparable_columns(study.columns), *own):
            found[name].update(values)
    return {name: sorted(values - {""}) for name, values in found.items()}


def differing_recipes(pairs: Sequence[Pair]) -> dict[str, dict[str, list[str]]]:
    """Return the recipe and each setting that differs between matched arms, with all their values in A and in B."""
    found: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for a, b in ((pair.a, pair.b) for pair in pairs if pair.a and pair.b):
        recipes = [("recipe", a.study.plan.recipe, b.study.plan.recipe)]
        for name, left, right in recipes if are_comparable(a, b) else recipes + differing_settings(a, b):
            found[name][0].add(str(left))
            found[name][1].add(str(right))
    return {name: {"a": sorted(a), "b": sorted(b)} for name, (a, b) in found.items() if a != b}
