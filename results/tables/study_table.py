"""The table of a study: a row for each planned arm, its difference from the baseline, and the verdict."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from results import margins
from results.records import INTERVAL, Interval, NoteSubjects, Row, Table
from results.statistics import (
    claims,
    contrast,
    deviations,
    interaction,
    intervals,
    looks,
    p_values,
    tuned_pairs,
    tuning,
    verdict,
)
from results.statistics.contrast import Sample
from results.statistics.ratios import Ratio
from results.statistics.tuned_pairs import Pair
from results.statistics.verdict import Tie
from results.store.schemas import Arm, Metric, Plan
from results.study_results import StudyResults
from results.style import current_style
from results.tables import declared_first, layout, provenance, sentences
from results.tables.outcomes import (
    Outcome,
    absence_notes,
    outcomes_by_arm,
    p_less_stable,
    retry_warnings,
    unstable_trials,
)

FEW = 5
INTERIM = "no verdict before all planned trials are done"
OF_PLAN = (  # fields that a table copies from its study's plan
    *("study", "recipe", "name", "metric", "baseline", "overrides", "data", "question", "source", "seeds", "split"),
    *("family", "points_family", "margin", "budget", "caveats"),
)
START = "start_fewshot5_accuracy"


@dataclass(frozen=True)
class Tested:
    """The tests of an arm against its baseline. A p value is None if there was no test.

    family: the number of contrasts corrected together. looks: the number of looks corrected for. p_holm: p adjusted
    within the family. p_margin: the adjusted p value of equivalence. margin_met: the smallest margin for which it is
    below 5%. tie: None without a margin.
    """

    pair: Pair
    family: int
    looks: int
    p: float | None
    p_holm: float | None
    p_margin: float | None
    margin_met: float | None
    tie: Tie | None


def table(study: StudyResults, besides: Sequence[str] = (), interim: bool = False, simultaneous: bool = False) -> Table:
    """Return the table of a study, with warnings about what was declared after there were results.

    The arguments and errors are those of `table_of_plan`.
    """
    found = table_of_plan(study, besides, interim, simultaneous)
    return declared_first.with_warnings(found, study, lambda other: table_of_plan(other, (), interim))


def table_of_plan(
    study: StudyResults, besides: Sequence[str] = (), interim: bool = False, simultaneous: bool = False
) -> Table:
    """Return the table of a study as its plan declares it now, with accuracies as fractions.

    besides: further metrics. interim: whether to give verdicts before all planned trials are done. simultaneous:
    whether to add intervals that hold for all differences of a family at once. Raises ValueError if no trial has a
    further metric, or if a claim cannot be parsed.
    """
    whole, choices = tuning.with_tuned(study)
    plan, samples = whole.plan, contrast.samples_by_arm(whole, whole.plan.metric)
    gone = {point for choice in choices.values() for point in choice.unstable}
    at_edge = {name for name, choice in choices.items() if choice.edge}
    unjudged = {arm.name for arm in plan.arms if {arm.name, arm.baseline} & at_edge}
    baselines = {arm.name: arm.baseline for arm in plan.arms if arm.name != arm.baseline}
    pairs = {name: tuned_pairs.pair(name, other, plan, samples, gone) for name, other in baselines.items()}
    outcomes = outcomes_by_arm(whole)
    alone = rows_alone(whole, samples, outcomes, besides)
    tested, unfinished = contrast_tests(pairs, alone, outcomes, plan, unjudged), is_unfinished(study)
    judged = interim or not unfinished
    rows = rows_with_contrasts(alone, tested, plan, judged)
    for name, interval in simultaneous_intervals(pairs, plan) if simultaneous else ():
        rows[name] = replace(rows[name], delta_ci95_simultaneous=interval)
    for name, other in baselines.items():
        rows[name] = with_error_ratio(
            rows[name], tuned_pairs.error_ratio(samples[name], samples[other], plan.primary_metric)
        )
    p_margins = {name: test.p_margin for name, test in tested.items()}
    interactions = interaction.judge_interactions(whole, samples, unjudged)
    judged_claims = claims.judge_claims(plan, rows, samples, p_margins, unjudged, gone)
    varied = [*plan.factors, *plan.curves, *(key for arm in plan.arms for key in arm.declared or ())]
    return Table(
        plan=plan,
        **{name: getattr(plan, name) for name in OF_PLAN},
        rows=sorted(rows.values(), key=lambda row: (row.arm not in choices, current_style().rank(row.arm))),
        besides=list(besides),
        objective=plan.objective,
        published_of=plan.published_of or plan.source,
        looks=max((test.looks for test in tested.values()), default=1),
        interim=unfinished,
        judged=judged,
        varied=list(dict.fromkeys(varied)),
        departures=departures(plan),
        tuned=list(plan.tune),
        interactions=[one if judged else one.without_verdict(INTERIM) for one in interactions],
        claims=[one if judged else one.without_verdict(INTERIM) for one in judged_claims],
        notes=[*study_notes(study), *withheld_notes(tested, rows)],
        warnings=retry_warnings(study),
        notes_of=note_subjects(plan, alone, rows),
    )


def note_subjects(plan: Plan, alone: Mapping[str, Row], rows: Mapping[str, Row]) -> NoteSubjects:
    """Return which footnotes are about arms, differences and columns. alone: the rows without differences."""
    own = {note for row in alone.values() for note in row.notes}
    every = dict.fromkeys(note for row in rows.values() for note in row.notes)
    return NoteSubjects(
        arms=list(dict.fromkeys(note for arm in plan.arms for note in arm.notes)),
        differences=[note for note in every if note not in own],
        columns={note: column for arm in plan.arms for note, column in arm.notes_about.items()},
    )


def departures(plan: Plan) -> dict[str, Mapping[str, Any]]:
    """Return name -> settings that depart from the recipe. A name is "the baseline" or "the stage <name>"."""
    found = [("the baseline", plan.departures), *((f"the stage {one.name}", one.departures) for one in plan.stages)]
    return {name: settings for name, settings in found if settings}


def is_unfinished(study: StudyResults) -> bool:
    """Return whether any planned trial has neither diverged nor finished with a value of the study's metric.

    A failed trial is unfinished. A verdict before all trials are over would be an extra interim look at the data.
    """
    trials = zip(study.columns["status"], study.columns[study.plan.metric], strict=True)
    return any(status != "diverged" and (status != "finished" or math.isnan(value)) for status, value in trials)


def arm_row(arm: Arm, outcomes: Sequence[Outcome], finished: Sample, plan: Plan) -> Row:
    """Return the row of an arm, without the difference from its baseline."""
    count = Counter(trial.status for trial in outcomes)
    mean = finished.mean
    no_interval = [f"no interval of the mean: {mean.why}"] if mean.n > 1 and mean.se is None else []
    return Row(
        arm=arm.name,
        n=mean.n,
        planned=len(outcomes),
        mean=mean.value,
        sd=math.sqrt(intervals.variance(finished.numbers)) if mean.n > 1 else None,
        ci95=mean.interval(),
        published=arm.published,
        params=arm.params,
        flops=arm.flops,
        baseline=arm.baseline,
        diverged=count["diverged"],
        collapsed=sum(trial.collapsed for trial in outcomes),
        failed=count["failed"],
        missing=len(outcomes) - mean.n - count["diverged"] - count["failed"],
        notes=[*arm.notes, *absence_notes(outcomes, plan), *no_interval],
    )


def rows_alone(
    study: StudyResults,
    samples: Mapping[str, Sample],
    outcomes: Mapping[str, Sequence[Outcome]],
    besides: Sequence[str],
) -> dict[str, Row]:
    """Return arm -> row without difference. besides: further metrics. Raises ValueError for a metric without values."""
    plan = study.plan
    rows = {arm.name: arm_row(arm, outcomes[arm.name], samples[arm.name], plan) for arm in plan.arms}
    measured: dict[str, dict[str, float | Interval | None]] = {name: {} for name in rows}
    for metric in besides:
        if metric not in study.numbers:
            raise ValueError(f"{study.name}: {layout.unknown_column(metric, study.numbers)}")
        for name, sample in contrast.samples_by_arm(study, metric).items():
            measured[name] |= {metric: sample.mean.value, metric + INTERVAL: sample.mean.interval()}
    return {name: replace(row, measured=measured[name]) for name, row in rows.items()}


def rows_with_contrasts(
    alone: Mapping[str, Row], tested: Mapping[str, Tested], plan: Plan, judged: bool
) -> dict[str, Row]:
    """Return arm -> row with the difference from its baseline and notes on outliers and optimization speed."""
    rows, metric = dict(alone), plan.primary_metric
    outliers = outlier_notes({name: test.pair.own for name, test in tested.items()}, metric)
    for arm in (arm for arm in plan.arms if arm.name in tested):
        row = with_contrast(alone[arm.name], alone[arm.baseline], tested[arm.name], plan, judged)
        rows[arm.name] = row.with_notes([*outliers.get(arm.name, []), *verdict.speed_notes(arm, row, metric)])
    return rows


def with_contrast(row: Row, baseline: Row, test: Tested, plan: Plan, judged: bool) -> Row:
    """Return an arm's row with notes, its difference from `baseline` and, only if `judged`, p values and a verdict."""
    pairs = test.pair.own
    difference, images = pairs.mean, pairs.mean_over_images
    unstable = row.unstable, baseline.unstable
    p_holm, higher = test.p_holm if judged else None, plan.primary_metric.higher_is_better
    word = verdict.verdict(difference, p_holm, test.p_margin, higher_is_better=higher, unstable=unstable)
    notes = []
    if difference.n < max(row.n, baseline.n):
        common = f"the difference is over {sentences.seeds_text(pairs.seeds)}, which both arms finished"
        notes.append(common if pairs.seeds else "no seed finished in both arms")
    if difference.se is None:
        lacking = "interval, p or verdict" if test.p is None else "interval"
        notes.append(f"no {lacking} of the difference: {difference.why}")
    if omitted := contrast.interval_caveat(pairs):
        notes.append(omitted)
    notes += verdict.verdict_notes(
        word,
        difference,
        pairs.tested,
        test.p_holm,
        family=test.family,
        tie=test.tie,
        looks=test.looks,
        grid=bool(test.pair.ahead),
        unstable=unstable,
    )
    return replace(
        row.with_notes(notes),
        delta=difference.value,
        delta_ci95=difference.interval(),
        p=test.p if judged else None,
        p_holm=p_holm,
        verdict=word,
        margin_met=None if any(unstable) else margin_met(test.margin_met, plan),
        n_pairs=difference.n,
        delta_ci95_images=images.interval() if images else None,
        images_share=pairs.images_share,
    )


def with_error_ratio(row: Row, ratio: Ratio | None) -> Row:
    """Return a row with the ratio of its error to the baseline's, and its interval, which no error makes negative."""
    if ratio is None:
        return row
    interval = ratio.interval()
    return replace(
        row, error_ratio=ratio.value, error_ratio_ci95=interval and (max(0.0, interval[0]), max(0.0, interval[1]))
    )


def margin_met(bound: float | None, plan: Plan) -> float | str | None:
    """Return a smallest margin as the plan's margin is: in the metric's unit, or as a share such as "25%"."""
    return margins.share_text(bound) if isinstance(plan.margin, str) and bound is not None else bound


def contrast_tests(
    pairs: Mapping[str, Pair],
    rows: Mapping[str, Row],
    outcomes: Mapping[str, Sequence[Outcome]],
    plan: Plan,
    unjudged: Collection[str],
) -> dict[str, Tested]:
    """Return arm -> tests of the arm against its baseline, with p values adjusted within each of `families`.

    rows: arm -> row with its mean. outcomes: arm -> outcomes of its trials. unjudged: arms that get no adjusted p
    values, because a best value of the arm or of its baseline lies at the edge of the grid.
    """
    found, contrasts = dict[str, Tested](), looks.planned_contrasts(plan)
    counted = {name: looks.looks((contrast, plan)) for name, contrast in contrasts.items()}
    for names, size in families(pairs, plan):
        p = [contrast_p(name, pairs[name], outcomes, plan, counted[name]) for name in names]
        p_own = [None if name in unjudged else one for name, one in zip(names, p, strict=True)]
        ties = [tuned_pairs.tie(pairs[name], plan, rows[rows[name].baseline].mean) for name in names]
        p_within = [
            None if name in unjudged or (tie and tie.too_wide) else tuned_pairs.p_equivalence(pairs[name], plan)
            for name, tie in zip(names, ties, strict=True)
        ]
        met = tuned_pairs.margins_met([None if name in unjudged else pairs[name] for name in names], size, plan)
        adjusted = p_values.holm(p_own, size), p_values.holm(p_within, size), met, ties
        for name, *own in zip(names, p, *adjusted, strict=True):
            found[name] = Tested(pairs[name], size, len(counted[name]), *own)
    return found


def contrast_p(
    name: str, pair: Pair, outcomes: Mapping[str, Sequence[Outcome]], plan: Plan, counted: Sequence[looks.Look]
) -> float | None:
    """Return the p value of an arm against its baseline, by finished pairs and by how often trials break down.

    counted: the looks at the contrast.
    """
    baseline = next(arm.baseline for arm in plan.arms if arm.name == name)
    own, other = outcomes[name], outcomes[baseline]
    unstable = unstable_trials(own)[0], unstable_trials(other)[0]
    more = looks.smallest_product(
        (look.factor, p_less_stable(own, other, *look.seeds)) for look in counted if look.is_whole
    )
    return verdict.p_with_stability(tuned_pairs.p_value(pair, plan), unstable, more)


def families(pairs: Collection[str], plan: Plan) -> list[tuple[list[str], int]]:
    """Return (arms among `pairs`, planned number of contrasts) for two families, each corrected on its own.

    In a tuned study, the second family has the arms on the grid. In other studies, it is empty, with size 0.
    """
    tuned = {entry.name for entry in plan.tuned}
    table = [name for name in pairs if not tuned or name in tuned]
    return [(table, plan.family), ([name for name in pairs if name not in table], plan.points_family)]


def simultaneous_intervals(pairs: Mapping[str, Pair], plan: Plan) -> Iterator[tuple[str, Interval | None]]:
    """Yield (arm, interval of its difference). All intervals of a family hold at once with probability 95%."""
    for names, _ in families(pairs, plan):
        groups: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for name in names:
            if pairs[name].own.mean.se is not None:
                groups[tuple(pairs[name].own.seeds)].append(name)
        level = intervals.simultaneous_level(
            [np.column_stack([pairs[name].own.numbers for name in names]) for names in groups.values()]
        )
        for name in itertools.chain(*groups.values()):
            yield name, pairs[name].own.mean.interval(level)


def outlier_notes(differences: Mapping[str, Sample], metric: Metric) -> dict[str, list[str]]:
    """Return arm -> [note that names the seed], for arms whose differences have a `deviations.outlier`.

    The smallest deviation assumed is the median over all arms, but at least one test image.
    """
    samples = {name: sample for name, sample in differences.items() if sample.values}
    usual = float(np.median([deviations.robust_deviation(one.numbers) for one in samples.values()] or [0.0]))
    notes = {}
    for name, sample in samples.items():
        if (far := deviations.outlier(sample.numbers, max(usual, sample.image))) is not None:
            value, median = (metric.signed_text(one) for one in (sample.numbers[far], float(np.median(sample.numbers))))
            seed = sentences.seeds_text([sample.seeds[far]])
            notes[name] = [f"{seed} is an outlier: {value}, the median is {median}{metric.unit_of_difference}"]
    return notes


def withheld_notes(tested: Mapping[str, Tested], rows: Mapping[str, Row]) -> list[str]:
    """Return notes on why no arm is called equivalent to a baseline, with its name if there are several."""
    ties = {rows[name].baseline: test.tie for name, test in tested.items()}
    return [
        f"no arm is called equivalent{f' to {current_style().label(name)}' if len(ties) > 1 else ''}: {tie.too_wide}"
        for name, tie in ties.items()
        if tie and tie.too_wide
    ]


def study_notes(study: StudyResults) -> list[str]:
    """Return the notes on the whole study, including the notes of its plan."""
    plan, notes = study.plan, [*provenance.provenance_notes(study.columns), *study.plan.notes]
    seeds = len(plan.seeds)
    if seeds == 1:
        notes.append(f"one seed gives no interval and no verdict: {FEW} is the default")
    elif seeds < FEW:
        notes.append(f"{seeds} seeds resolve only very large differences: {FEW} is the default")
    accuracy: dict[str, dict[int, float]] = defaultdict(dict)  # stage -> seed -> value; arms share these trials
    if START in study.columns:
        stage = {arm.name: arm.parent for arm in plan.arms}
        for arm, seed, value in zip(*(study.columns[name] for name in ("arm", "seed", START)), strict=True):
            if not math.isnan(value):
                accuracy[stage[arm]][seed] = value
    if means := [f"{name} {fmean(found.values()):.1%} (n = {len(found)})" for name, found in accuracy.items()]:
        notes.append(f"5-shot accuracy of the weights that arms start from: {', '.join(means)}")
    notes += looks.look_notes(plan)
    return notes
