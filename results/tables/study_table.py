"""The table of a study: a row for each planned arm, its difference from the baseline, and the verdict."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from results import units
from results.records import (
    INTERVAL,
    AverageRow,
    Claim,
    InteractionRow,
    Interval,
    NoteSubjects,
    Row,
    SecondaryResult,
    Table,
)
from results.statistics import averages, claims, dominance, intervals, looks, race, secondary, tuned_pairs, tuning
from results.statistics.arms import (
    ArmResults,
    Contrast,
    arm_results,
    pairing_gain,
    simultaneous_intervals,
    tested_contrasts,
)
from results.statistics.averages import JudgedAverage
from results.statistics.claims import JudgedClaim, JudgedInteraction
from results.statistics.contrast import Sample, samples_by_arm
from results.statistics.secondary import SecondaryMetric
from results.statistics.tuning import PointChoice
from results.statistics.verdict import RESOLVED
from results.store.schemas.metrics import EXACT, share_text
from results.store.schemas.plans import Plan
from results.study_results import StudyResults
from results.style import current_style
from results.tables import declared_first, layout, notes, scaling_table, trial_notes
from results.tables.seal_notes import seal_notes

INTERIM = "no verdict before all planned trials are done"


def table(study: StudyResults, besides: Sequence[str] = (), interim: bool = False, simultaneous: bool = False) -> Table:
    """Return the table of a study, with notes on its seal and warnings about what was declared after results.

    besides: further metrics. interim: whether to give verdicts before all planned trials are done. simultaneous:
    whether to add intervals that hold for all differences of a family at once. Raises ValueError if no trial has a
    further metric, or if a claim cannot be parsed.
    """
    declared_now = replace(table_of_plan(study, besides, interim, simultaneous), scaling=scaling_table.record(study))
    judged = declared_first.with_warnings(declared_now, study, lambda other: table_of_plan(other, (), interim))
    sealed_notes, warnings = seal_notes(study)
    fit_notes = scaling_table.left_out_notes(study)
    return replace(judged, notes=[*judged.notes, *fit_notes, *sealed_notes], warnings=[*warnings, *judged.warnings])


def table_of_plan(
    study: StudyResults, besides: Sequence[str] = (), interim: bool = False, simultaneous: bool = False
) -> Table:
    """Return the table of a study as its plan declares it now. The arguments and errors are those of `table`."""
    study = race.with_stops(study)
    tuned, choices = tuning.with_tuned(study)
    plan = with_tuning_notes(tuned.plan, choices)
    whole = replace(tuned, plan=plan)
    arms = arm_results(whole, choices)
    untested = secondary.secondary_metrics(whole, arms, interim)
    contrasts, in_secondary = secondary.adjusted_together(tested_contrasts(arms, plan), untested, plan)
    unfinished = is_unfinished(arms.values())
    judged = interim or not unfinished
    arm_rows = rows_of_arms(arms.values(), whole, besides)
    dominating: dict[str, list[str]] = {}
    if judged:
        dominating = dominance.dominating_arms(arms, contrasts, in_secondary, plan)
    at_once: dict[str, Interval | None] = {}
    if simultaneous:
        at_once = simultaneous_intervals(contrasts.values(), plan)
    usual = notes.usual_deviation(contrasts.values())
    rows = []
    for row in arm_rows:
        if row.arm in contrasts:
            row = row_with_contrast(row, contrasts[row.arm], judged, usual)
        in_further = secondary_results(row, in_secondary, plan, judged)
        row = replace(row, secondary=in_further, dominated_by=dominating.get(row.arm))
        rows.append(replace(row, delta_ci95_simultaneous=at_once.get(row.arm)))
    interactions = list(map(interaction_record, claims.judge_interactions(plan, arms)))
    judged_claims = list(map(claim_record, claims.judge_claims(plan, arms, contrasts)))
    over_data = list(map(average_record, averages.judge_averages(plan, arms, contrasts)))
    if not judged:
        over_data = [each.without_verdict(INTERIM) for each in over_data]
        interactions = [each.without_verdict(INTERIM) for each in interactions]
        judged_claims = [each.without_verdict(INTERIM) for each in judged_claims]
    return Table(
        plan=plan,
        rows=sorted(rows, key=lambda row: (row.arm not in choices, current_style().rank(row.arm))),
        besides=list(besides),
        looks=max((len(each.looks) for each in contrasts.values()), default=1),
        interim=unfinished,
        judged=judged,
        interactions=interactions,
        averages=over_data,
        claims=judged_claims,
        notes=[*notes.study_notes(study), *withheld_notes(contrasts)],
        warnings=trial_notes.retry_warnings(study),
        notes_of=note_subjects(plan, arm_rows, rows),
        pairing=pairing_gain(contrasts.values(), plan),
    )


def with_tuning_notes(plan: Plan, choices: Mapping[str, PointChoice]) -> Plan:
    arms = []
    for arm in plan.arms:
        if arm.name in choices:
            arm = arm.model_copy(update={"notes": [*notes.tuning_notes(choices[arm.name]), *arm.notes]})
        arms.append(arm)
    return plan.model_copy(update={"arms": arms})


def note_subjects(plan: Plan, arm_rows: Sequence[Row], rows: Sequence[Row]) -> NoteSubjects:
    """Return which footnotes are about arms, differences and columns. arm_rows: without differences."""
    arm_notes: dict[str, None] = {}
    of_arms: dict[str, None] = {}
    every: dict[str, None] = {}
    columns: dict[str, str] = {}
    for arm_row, row, arm in zip(arm_rows, rows, plan.arms, strict=True):
        arm_notes |= dict.fromkeys(arm_row.notes)
        every |= dict.fromkeys(row.notes)
        of_arms |= dict.fromkeys(arm.notes)
        columns |= arm.notes_about
    return NoteSubjects(list(of_arms), [note for note in every if note not in arm_notes], columns)


def is_unfinished(arms: Collection[ArmResults]) -> bool:
    """Return whether any planned trial has neither diverged nor finished with the metric.

    A failed trial is unfinished, as a verdict before the end is another look. Tuned arms share trials with others.
    """
    return any(arm.choice is None and len(arm.over) + arm.count(race.STOPPED) < len(arm.outcomes) for arm in arms)


def rows_of_arms(arms: Collection[ArmResults], study: StudyResults, besides: Sequence[str]) -> list[Row]:
    further = {}
    for metric in besides:
        if metric not in study.numbers:
            raise ValueError(f"{study.name}: {layout.unknown_column(metric, study.numbers)}")
        further[metric] = samples_by_arm(study, metric)
    rows = []
    for arm in arms:
        measured: dict[str, float | Interval | None] = {}
        for metric, samples in further.items():
            mean = samples[arm.name].mean
            measured |= {metric: mean.value, metric + INTERVAL: mean.interval()}
        rows.append(replace(arm_row(arm, study.plan), measured=measured))
    return rows


def arm_row(results: ArmResults, plan: Plan) -> Row:
    arm = results.arm
    mean = results.sample.mean
    texts = [*arm.notes, *trial_notes.absence_notes(results, plan)]
    sd = None
    if mean.n > 1:
        sd = math.sqrt(intervals.variance(results.sample.numbers))
        if mean.se is None:
            texts.append(f"no interval of the mean: {mean.why}")
    diverged = results.count("diverged")
    failed = results.count("failed")
    stopped = results.count(race.STOPPED)
    return Row(
        arm=arm.name,
        n=mean.n,
        planned=len(results.outcomes),
        mean=mean.value,
        sd=sd,
        ci95=mean.interval(),
        published=arm.published,
        params=arm.params,
        flops=arm.flops,
        baseline=arm.baseline,
        diverged=diverged,
        collapsed=len(results.collapsed),
        failed=failed,
        missing=len(results.outcomes) - mean.n - diverged - failed - stopped,
        stopped=stopped,
        notes=texts,
    )


def row_with_contrast(row: Row, contrast: Contrast, judged: bool, usual: float) -> Row:
    """Return an arm's row with its difference and, only if `judged`, its verdict. usual: of all deviations."""
    compared = contrast.pair.own
    plan = contrast.pair.plan
    difference = compared.mean
    ratio = tuned_pairs.error_ratio(contrast.arm.sample, contrast.baseline.sample, plan)
    if ratio is not None:
        row = replace(row, error_ratio=ratio.value, error_ratio_ci95=ratio.interval(lowest=0.0))
    row = replace(
        row,
        delta=difference.value,
        delta_ci95=difference.interval(),
        n_pairs=difference.n if plan.is_paired else None,
        images_share=compared.images_share,
    )
    if compared.mean_over_images is not None:
        row = replace(row, delta_ci95_images=compared.mean_over_images.interval())
    if judged and not any(contrast.unstable):
        met = contrast.margin_met
        if met is not None and isinstance(plan.margin, str):
            row = replace(row, margin_met=share_text(met))
        else:
            row = replace(row, margin_met=met)
    if judged:
        row = replace(row, p=contrast.p, p_holm=contrast.p_holm, verdict=contrast.verdict)
    return row.with_notes(
        [
            *difference_notes(contrast, row.verdict),
            *notes.outlier_notes(contrast, usual),
            *notes.speed_notes(contrast.arm.arm, row, plan.primary_metric),
        ]
    )


def secondary_results(
    row: Row, in_metrics: Sequence[SecondaryMetric], plan: Plan, judged: bool
) -> dict[str, SecondaryResult]:
    """Return secondary metric -> an arm's result in it. row: the arm in the first metric."""
    results = {name: exact_result(name, row, plan) for name in plan.secondary_metrics if name in EXACT}
    for in_metric in in_metrics:
        mean = in_metric.samples[row.arm].mean
        result = SecondaryResult(n=mean.n, mean=mean.value, ci95=mean.interval())
        if row.arm in in_metric.contrasts:
            result = compared_result(result, in_metric, row, plan, judged)
        results[in_metric.metric.name] = result
    return {name: results[name] for name in plan.secondary_metrics}


def exact_result(name: str, row: Row, plan: Plan) -> SecondaryResult:
    value = row.value(name)
    of_baseline = getattr(plan.arms_by_name[row.baseline], name)
    if row.arm == row.baseline or value is None or of_baseline is None:
        return SecondaryResult(n=row.n, mean=value)
    return SecondaryResult(n=row.n, mean=value, delta=value - of_baseline, untested="no seed changes it")


def compared_result(
    result: SecondaryResult, in_metric: SecondaryMetric, row: Row, plan: Plan, judged: bool
) -> SecondaryResult:
    """Return the result with its difference and, only if the first metric opened it, its verdict."""
    contrast = in_metric.contrasts[row.arm]
    difference = contrast.pair.own.mean
    pairs = difference.n if plan.is_paired else None
    result = replace(result, delta=difference.value, delta_ci95=difference.interval(), n_pairs=pairs)
    if not judged:
        return replace(result, untested=INTERIM)
    if row.verdict not in RESOLVED:
        return replace(result, untested=f"the difference in {plan.metric} is not resolved")
    if contrast.p is None:
        why = difference.why
        if in_metric.lacking:
            why = f"{units.amount_text(in_metric.lacking, 'finished trial')} without it"
        return replace(result, untested=why)
    return replace(result, p=contrast.p, p_adjusted=contrast.p_holm, verdict=contrast.verdict)


def difference_notes(contrast: Contrast, word: str | None) -> list[str]:
    compared = contrast.pair.own
    texts = []
    is_paired = contrast.pair.plan.is_paired
    devices, of_baseline = contrast.devices
    if devices:
        of = f"{' and '.join(devices)}, its baseline by {' and '.join(of_baseline)}"
        texts.append(f"the difference mixes devices, whose rounding differs: trained by {of}")
    if is_paired and compared.mean.n < max(contrast.arm.sample.mean.n, contrast.baseline.sample.mean.n):
        common = f"the difference is over {units.seeds_text(compared.seeds)}, which both arms finished"
        if not compared.seeds:
            common = "no seed finished in both arms"
        texts.append(common)
    if compared.mean.se is None:
        texts.append(notes.no_interval_note(compared.mean, contrast.p))
    if isinstance(compared, Sample) and compared.lacks_correctness:
        texts.append("the interval leaves out that repetitions share their images: per-image correctness is missing")
    return texts + notes.verdict_notes(
        word,
        compared.mean,
        compared.tested,
        contrast.p_holm,
        family=contrast.family,
        tie=contrast.tie,
        looks=len(contrast.looks),
        grid=bool(contrast.pair.ahead),
        raced=contrast.pair.plan.race and race.lead(compared.tested, contrast.pair.plan) <= 0,
        unstable=contrast.unstable,
    )


def withheld_notes(contrasts: Mapping[str, Contrast]) -> list[str]:
    ties = {contrast.baseline.name: contrast.tie for contrast in contrasts.values()}
    texts = []
    for name, tie in ties.items():
        to = f" to {current_style().label(name)}" if len(ties) > 1 else ""
        if tie and tie.too_wide:
            texts.append(f"no arm is called equivalent{to}: {tie.too_wide}")
    return texts


def average_record(judged: JudgedAverage) -> AverageRow:
    names = [arm.name for arm in judged.arms]
    row = AverageRow(arm=judged.name, arms=names, n=judged.mean.n, mean=judged.mean.value, ci95=judged.mean.interval())
    if judged.pair is None:
        return row
    difference = judged.pair.own
    images = None
    if difference.mean_over_images is not None:
        images = difference.mean_over_images.interval()
    return replace(
        row,
        n=difference.mean.n,
        delta=difference.mean.value,
        delta_ci95=difference.mean.interval(),
        delta_ci95_images=images,
        p=judged.p,
        p_holm=judged.p_holm,
        verdict=judged.verdict,
        notes=average_notes(judged, judged.pair),
    )


def average_notes(judged: JudgedAverage, pair: tuned_pairs.Pair) -> list[str]:
    difference = pair.own
    texts = []
    if difference.mean.se is None:
        texts.append(notes.no_interval_note(difference.mean, judged.p))
    return texts + notes.verdict_notes(
        judged.verdict,
        difference.mean,
        difference.tested,
        judged.p_holm,
        family=pair.plan.averages_family,
        tie=judged.tie,
        looks=len(looks.looks_at(difference, pair.plan)),
        unstable=judged.unstable,
    )


def interaction_record(judged: JudgedInteraction) -> InteractionRow:
    mean = judged.four.mean
    return InteractionRow(
        name=judged.planned.name,
        arms=judged.planned.arms,
        n=mean.n,
        interaction=mean.value,
        ci95=mean.interval(),
        logit=judged.logit.value,
        logit_ci95=judged.logit.interval(),
        p=judged.p,
        p_holm=judged.p_holm,
        verdict=judged.verdict,
        notes=notes.interaction_notes(judged),
    )


def claim_record(judged: JudgedClaim) -> Claim:
    text = " ".join(judged.parts)
    note = notes.claim_note(judged)
    test = judged.test
    if test is None:
        return Claim(text, note=note)
    difference = test.pair.own.mean
    return Claim(
        claim=text,
        verdict=judged.verdict,
        delta=difference.value,
        delta_ci95=difference.interval(),
        p_holm=test.p_holm,
        n_pairs=difference.n if test.pair.plan.is_paired else None,
        note=note,
        of=f"{test.arm.name} - {test.baseline.name}",
    )
