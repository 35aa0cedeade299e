"""Notes below a table: why a verdict is what it is, how values were tuned, and what the whole study lacks."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

import numpy as np

from results.records import Row
from results.statistics import intervals, looks, race, verdict
from results.statistics.arms import Contrast
from results.statistics.claims import JudgedClaim, JudgedInteraction
from results.statistics.contrast import Sample
from results.statistics.intervals import Estimate
from results.statistics.looks import Look
from results.statistics.tuning import GridEnd, PointChoice, TuningGrid
from results.statistics.verdict import EQUIVALENT, RESOLVED, TOST_LEVEL, UNRESOLVED, Tie, excludes_zero, is_significant
from results.store.schemas.metrics import Metric
from results.store.schemas.plans import Arm, Plan
from results.study_results import StudyResults
from results.style import current_style
from results.tables import trial_notes
from results.tables.sentences import AT_EARLIER_LOOK
from results.units import amount_text, seeds_text

FEW = 5  # seeds; the default
START = "start_fewshot5_accuracy"
BY_RACE = "the race stopped one of the arms"
AT_EDGE = "the best value of an arm lies at the edge of its grid"


def no_interval_note(difference: Estimate, p: float | None) -> str:
    lacking = "interval, p or verdict" if p is None else "interval"
    return f"no {lacking} of the difference: {difference.why}"


def verdict_notes(
    word: str | None,
    difference: Estimate,
    tested: Estimate,
    p_holm: float | None,
    *,
    family: int,
    tie: Tie | None,
    looks: int = 1,
    grid: bool = False,
    raced: bool = False,
    unstable: tuple[int, int] = (0, 0),
) -> list[str]:
    """Return notes on why a verdict differs from what the unadjusted 95% interval suggests.

    tested: the estimate behind the verdict, over seeds and images if known. family, looks: numbers corrected for. grid:
    whether p is over the baseline's whole tuning grid. raced: whether p allows for a look after each seed.
    """
    if word is None or p_holm is None:
        return []
    tests = corrected_text(family, looks, grid)
    if raced:
        tests += " and the race's looks after each seed"
    if word in RESOLVED:
        return resolved_notes(tested, tie, unstable)
    notes = []
    if is_significant(p_holm):
        notes.append("resolved, but trials diverged or collapsed in the arm that finished pairs favor")
    elif excludes_zero(tested):
        notes.append(f"the 95% interval excludes 0, but not after correction for {tests}")
    else:
        notes += images_notes(difference, tested)
    if tie and not any(unstable):
        notes += tie_notes(word, tie, tests)
    return notes


def corrected_text(family: int, looks: int, grid: bool) -> str:
    text = amount_text(family, "contrast")
    if looks > 1:
        text += f" and {looks} looks"
    if grid:
        text += " and over the whole grid of the other"
    return text


def resolved_notes(tested: Estimate, tie: Tie | None, unstable: tuple[int, int]) -> list[str]:
    notes = []
    if tie and tie.is_within(TOST_LEVEL):
        notes.append(f"a resolved difference, yet within the margin of {tie.margin}")
    if not excludes_zero(tested):
        by = AT_EARLIER_LOOK
        if unstable[0]:
            by = "by how often it diverges or collapses (Fisher's exact test)"
        contains = "; the 95% interval over all seeds contains 0" if tested.se is not None else ""
        notes.append(f"resolved {by}{contains}")
    return notes


def tie_notes(word: str, tie: Tie, tests: str) -> list[str]:
    """Return a note if the interval suggests another verdict, or says why equivalent is withheld."""
    if word == EQUIVALENT:
        if tie.is_within(1 - verdict.ALPHA):
            return []
        return ["equivalence is two one-sided tests at 5%: the 90% interval is within the margin"]
    if tie.is_within(TOST_LEVEL):
        if tie.too_wide:
            return [f"not called equivalent: {tie.too_wide}"]
        return [f"the 90% interval is within the margin, but not after correction for {tests}"]
    if tie.is_within(TOST_LEVEL, on_these_images=True):
        return ["the 90% interval is within the margin on these test images only, not over seeds and images"]
    return []


def images_notes(difference: Estimate, tested: Estimate) -> list[str]:
    """Return a note if only the interval over seeds excludes 0, not the one over seeds and images."""
    if not excludes_zero(difference) or excludes_zero(tested):
        return []
    return ["the 95% interval excludes 0 on these test images only; over seeds and images it contains 0"]


def speed_notes(arm: Arm, row: Row, metric: Metric) -> list[str]:
    """Return a note if the difference changes sign after twice the steps and either is resolved."""
    later = arm.at_twice_the_steps
    difference = row.delta
    if later is None or difference is None or difference * later.difference >= 0:
        return []
    if row.verdict not in RESOLVED and not later.resolved:
        return []
    other = f"{metric.signed_text(later.difference)}{metric.unit_of_difference}"
    return [f"optimization speed: at twice the steps the difference is {other} ({later.origin})"]


def usual_deviation(contrasts: Iterable[Contrast]) -> float:
    """Return the median of the robust deviations of all differences, or of unpaired arms, or 0."""
    samples = itertools.chain.from_iterable(each.pair.own.terms for each in contrasts)
    spreads = [intervals.robust_deviation(sample.numbers) for sample in samples if sample.values]
    return float(np.median(spreads or [0.0]))


def outlier_notes(contrast: Contrast, usual: float) -> list[str]:
    """Return a note on the seed whose difference, or value if unpaired, is an `intervals.outlier`."""
    metric = contrast.pair.plan.primary_metric
    difference = contrast.pair.own
    if isinstance(difference, Sample):
        return outlier_note(difference, usual, metric.signed_text, metric.unit_of_difference)
    texts = []
    for arm in (contrast.arm, contrast.baseline):
        unit = f"{metric.unit} in {current_style().label(arm.name)}"
        texts += outlier_note(arm.sample, usual, metric.value_text, unit)
    return texts


def outlier_note(sample: Sample, usual: float, written: Callable[[float], str], unit: str) -> list[str]:
    """Return a note that names the seed whose value is an outlier. unit: what follows the median."""
    far = intervals.outlier(sample.numbers, max(usual, sample.image))
    if far is None:
        return []
    seed = seeds_text([sample.seeds[far]])
    median = written(float(np.median(sample.numbers)))
    return [f"{seed} is an outlier: {written(sample.numbers[far])}, the median is {median}{unit}"]


def interaction_notes(judged: JudgedInteraction) -> list[str]:
    if judged.verdict is None:
        untested = BY_RACE if any(arm.is_stopped for arm in judged.arms) else AT_EDGE
        return [f"untested: {judged.four.mean.why or untested}"]
    if not is_significant(judged.p_holm):
        return images_notes(judged.four.mean, judged.four.tested)
    notes = []
    if judged.is_of_the_scale:
        notes.append("its logit has the opposite sign: an interaction of the scale")
    if judged.diverged:
        notes.append(f"trials of {', '.join(judged.diverged)} diverged")
    if judged.collapsed:
        notes.append(f"trials of {', '.join(judged.collapsed)} collapsed")
    return notes


def claim_note(judged: JudgedClaim) -> str:
    test = judged.test
    if test is None:
        return f"no arm {', '.join(judged.absent)} in the plan"
    _, relation, _ = judged.parts
    if judged.verdict is None:
        untested = BY_RACE if test.is_stopped else AT_EDGE
        return f"untested: {test.pair.own.mean.why or untested}"
    if relation == "~":
        if test.tie is None:
            return "no margin declared within which arms tie"
        if judged.verdict == UNRESOLVED and test.tie.too_wide:
            return f"not called equivalent: {test.tie.too_wide}"
        return ""
    if test.verdict == UNRESOLVED:
        return "; ".join(images_notes(test.pair.own.mean, test.pair.own.tested))
    if test.verdict != EQUIVALENT or test.tie is None:
        return ""
    return f"equivalent within {test.tie.margin}: a smaller difference is not excluded"


def tuning_notes(choice: PointChoice) -> list[str]:
    notes = [*choice_notes(choice), *failure_notes(choice), *map(end_note, choice.ends)]
    holes = list(itertools.compress(choice.grid.seeds, ~choice.grid.is_complete))
    if holes:
        notes.append(f"{seeds_text(holes)} did not help to choose: some points of the grid are missing")
    return notes


def choice_notes(choice: PointChoice) -> list[str]:
    texts = []
    for point, settings in enumerate(point_texts(choice.grid)):
        seeds = [seed for seed, chosen in choice.points.items() if chosen == point]
        if seeds:
            texts.append(f"{settings} ({seeds_text(seeds)})")
    if not texts:
        return []
    return [f"chosen by the other seeds' validation: {', '.join(texts)}"]


def failure_notes(choice: PointChoice) -> list[str]:
    grid = choice.grid
    counts = grid.failed.sum(axis=0)
    texts = []
    for count, settings in zip(counts, point_texts(grid), strict=True):
        if count:
            texts.append(f"{settings} ({count} of {len(grid.seeds)})")
    if not texts:
        return []
    then = "not chosen"
    if any(point is not None and counts[point] for point in choice.points.values()):
        then = "no other point is left to choose"
    return [f"trials diverged or collapsed at {', '.join(texts)}: {then}"]


def point_texts(grid: TuningGrid) -> list[str]:
    texts = []
    for values in itertools.product(*grid.tune.values()):
        texts.append(", ".join(f"{name} {value}" for name, value in zip(grid.tune, values, strict=True)))
    return texts


def end_note(end: GridEnd) -> str:
    add = ""
    if end.beyond is not None:
        add = f"; add {end.setting} {end.beyond} to the grid"
    if end.is_best:
        return f"its best {end.setting} lies at the edge of the grid, {end.value}: no verdict{add}"
    return f"{end.setting} {end.value}, at the edge of the grid, ties with {end.inner}{add}"


def study_notes(study: StudyResults) -> list[str]:
    plan = study.plan
    notes = [*trial_notes.provenance_notes(study.columns), *trial_notes.import_notes(study.columns), *plan.notes]
    seeds = len(plan.seeds)
    if seeds == 1:
        notes.append(f"one seed gives no interval and no verdict: {FEW} is the default")
    elif seeds < FEW:
        notes.append(f"{seeds} seeds resolve only very large differences: {FEW} is the default")
    notes += [*start_notes(study), *look_notes(plan)]
    if plan.race:
        notes += [
            f"{race.saving_text(study)}. Arms stop while they do badly, so their means and intervals are biased",
            "p of an arm that is behind allows for a look after each seed (O'Brien-Fleming spending)",
        ]
    return notes


def start_notes(study: StudyResults) -> list[str]:
    """Return a note with the 5-shot accuracy of the weights that arms start from, by stage."""
    if START not in study.columns:
        return []
    arms = study.plan.arms_by_name
    accuracy: dict[str, dict[int, float]] = defaultdict(dict)  # stage -> seed -> value; arms share these trials
    for arm, seed, value in zip(*map(study.columns.__getitem__, ("arm", "seed", START)), strict=True):
        if not math.isnan(value):
            accuracy[arms[arm].parent][seed] = value
    means = [f"{name} {fmean(values.values()):.1%} (n = {len(values)})" for name, values in accuracy.items()]
    if not means:
        return []
    return [f"5-shot accuracy of the weights that arms start from: {', '.join(means)}"]


def look_notes(plan: Plan) -> list[str]:
    counted = [looks.looks((contrast, plan)) for contrast in looks.planned_contrasts(plan).values()]
    most = max(counted, key=len, default=[])
    if [look.factor for look in most] in ([], [1]):
        return []
    if len(most) == 1:
        return [f"p is {most[0].factor} x that of its test, because the study declares that it grows"]
    rate = "2.7 to 3.6%, at most 5%," if most[0].factor > 1 else "5.1 to 6.1%, at most 7.5%,"
    fewer = "" if min(map(len, counted)) == len(most) else " (fewer for arms that were added later)"
    return [
        f"{correction_text(most, 'tables')}{fewer}",
        f"a verdict in any of these tables is wrong in {rate} of null studies (simulated)",
    ]


def correction_text(counted: Sequence[Look], what: str) -> str:
    """Return how p is corrected for looks. what: the looks, "tables" or "comparisons"."""
    products = []
    for look in counted:
        seeds = " and ".join(map(str, map(len, look.seeds)))
        products.append(f"{look.factor} x p with {seeds} seeds" if look.is_whole else f"1, as {seeds} seeds are gone")
    return (
        f"p is corrected for {len(counted)} {what} that were or could have been made: "
        f"the smallest of {', '.join(products)}"
    )
