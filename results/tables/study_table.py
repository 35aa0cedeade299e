"""The table of a study: a row for each planned arm, its difference from the baseline, and the verdict."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from results.records import Claim, Interaction, NoteSubjects, Row, Table
from results.statistics import claims, interaction, tuned_pairs, tuning, verdict
from results.statistics.claims import JudgedClaim
from results.statistics.interaction import JudgedInteraction
from results.statistics.ratios import Ratio
from results.statistics.tuning import PointChoice
from results.store.schemas import Plan
from results.store.schemas.metrics import share_text
from results.study_results import StudyResults
from results.style import current_style
from results.tables import declared_first, notes, sentences
from results.tables.contrasts import (
    ArmResults,
    Contrast,
    arm_results,
    simultaneous_intervals,
    tested_contrasts,
    unstable_points,
)
from results.tables.outcomes import retry_warnings

INTERIM = "no verdict before all planned trials are done"


def table(study: StudyResults, besides: Sequence[str] = (), interim: bool = False, simultaneous: bool = False) -> Table:
    """Return the table of a study, with warnings about what was declared after there were results.

    The arguments and errors are those of `table_of_plan`.
    """
    declared_now = table_of_plan(study, besides, interim, simultaneous)
    return declared_first.with_warnings(declared_now, study, lambda other: table_of_plan(other, (), interim))


def table_of_plan(
    study: StudyResults, besides: Sequence[str] = (), interim: bool = False, simultaneous: bool = False
) -> Table:
    """Return the table of a study as its plan declares it now, with accuracies as fractions.

    besides: further metrics. interim: whether to give verdicts before all planned trials are done. simultaneous:
    whether to add intervals that hold for all differences of a family at once. Raises ValueError if no trial has a
    further metric, or if a claim cannot be parsed.
    """
    tuned, choices = tuning.with_tuned(study)
    whole = replace(tuned, plan=with_tuning_notes(tuned.plan, choices))
    plan = whole.plan
    arms = arm_results(whole, besides)
    contrasts = tested_contrasts(arms, plan, choices)
    unfinished = is_unfinished(study)
    judged = interim or not unfinished
    rows = table_rows(arms, contrasts, plan, judged)
    if simultaneous:
        for name, interval in simultaneous_intervals(contrasts, plan).items():
            rows[name] = replace(rows[name], delta_ci95_simultaneous=interval)
    interactions, judged_claims = judge_others(whole, arms, contrasts, choices, rows)
    return Table(
        plan=plan,
        rows=sorted(rows.values(), key=lambda row: (row.arm not in choices, current_style().rank(row.arm))),
        besides=list(besides),
        looks=max((len(judgment.looks) for judgment in contrasts.values()), default=1),
        interim=unfinished,
        judged=judged,
        interactions=[judgment if judged else judgment.without_verdict(INTERIM) for judgment in interactions],
        claims=[judgment if judged else judgment.without_verdict(INTERIM) for judgment in judged_claims],
        notes=[*notes.study_notes(study), *withheld_notes(contrasts)],
        warnings=retry_warnings(study),
        notes_of=note_subjects(plan, arms, rows),
    )


def with_tuning_notes(plan: Plan, choices: Mapping[str, PointChoice]) -> Plan:
    """Return the plan with notes on the choice of each tuned arm."""
    arms = []
    for arm in plan.arms:
        chosen = notes.tuning_notes(choices[arm.name]) if arm.name in choices else []
        arms.append(arm.model_copy(update={"notes": [*chosen, *arm.notes]}))
    return plan.model_copy(update={"arms": arms})


def note_subjects(plan: Plan, arms: Mapping[str, ArmResults], rows: Mapping[str, Row]) -> NoteSubjects:
    """Return which footnotes are about arms, differences and columns."""
    of_arms = {note for arm in arms.values() for note in arm.row.notes}
    every = dict.fromkeys(note for row in rows.values() for note in row.notes)
    return NoteSubjects(
        arms=list(dict.fromkeys(note for arm in plan.arms for note in arm.notes)),
        differences=[note for note in every if note not in of_arms],
        columns={note: column for arm in plan.arms for note, column in arm.notes_about.items()},
    )


def is_unfinished(study: StudyResults) -> bool:
    """Return whether any planned trial has neither diverged nor finished with a value of the study's metric.

    A failed trial is unfinished. A verdict before all trials are over would be an extra interim look at the data.
    """
    trials = zip(study.columns["status"], study.columns[study.plan.metric], strict=True)
    return any(status != "diverged" and (status != "finished" or math.isnan(value)) for status, value in trials)


# -- rows --------------------------------------------------------------------------------------------------------------


def table_rows(
    arms: Mapping[str, ArmResults], contrasts: Mapping[str, Contrast], plan: Plan, judged: bool
) -> dict[str, Row]:
    """Return arm -> row with the difference from its baseline and notes on outliers and optimization speed."""
    metric = plan.primary_metric
    outliers = notes.outlier_notes({name: contrast.pair.own for name, contrast in contrasts.items()}, metric)
    rows = {}
    for name, arm in arms.items():
        rows[name] = arm.row
        if name in contrasts:
            row = row_with_contrast(contrasts[name], plan, judged)
            rows[name] = row.with_notes([*outliers.get(name, []), *notes.speed_notes(arm.arm, row, metric)])
    return rows


def row_with_contrast(contrast: Contrast, plan: Plan, judged: bool) -> Row:
    """Return an arm's row with its difference from the baseline and, only if `judged`, p values and a verdict."""
    row = contrast.arm.row
    baseline = contrast.baseline.row
    pairs = contrast.pair.own
    difference = pairs.mean
    images = pairs.mean_over_images
    unstable = row.unstable, baseline.unstable
    p_holm = contrast.p_holm if judged else None
    higher = plan.primary_metric.higher_is_better
    word = verdict.verdict(difference, p_holm, contrast.p_margin, higher_is_better=higher, unstable=unstable)
    row = with_error_ratio(
        row, tuned_pairs.error_ratio(contrast.arm.sample, contrast.baseline.sample, plan.primary_metric)
    )
    return replace(
        row.with_notes(difference_notes(contrast, word)),
        delta=difference.value,
        delta_ci95=difference.interval(),
        p=contrast.p if judged else None,
        p_holm=p_holm,
        verdict=word,
        margin_met=None if any(unstable) else margin_met(contrast.margin_met, plan),
        n_pairs=difference.n,
        delta_ci95_images=images.interval() if images else None,
        images_share=pairs.images_share,
    )


def difference_notes(contrast: Contrast, word: str | None) -> list[str]:
    """Return the notes on an arm's difference from its baseline. word: the verdict, or None."""
    row = contrast.arm.row
    baseline = contrast.baseline.row
    pairs = contrast.pair.own
    texts = []
    if pairs.mean.n < max(row.n, baseline.n):
        common = f"the difference is over {sentences.seeds_text(pairs.seeds)}, which both arms finished"
        texts.append(common if pairs.seeds else "no seed finished in both arms")
    if pairs.mean.se is None:
        texts.append(notes.no_interval_note(pairs.mean, contrast.p))
    texts += notes.repetition_notes(pairs)
    return texts + notes.verdict_notes(
        word,
        pairs.mean,
        pairs.tested,
        contrast.p_holm,
        family=contrast.family,
        tie=contrast.tie,
        looks=len(contrast.looks),
        grid=bool(contrast.pair.ahead),
        unstable=(row.unstable, baseline.unstable),
    )


def with_error_ratio(row: Row, ratio: Ratio | None) -> Row:
    """Return a row with the ratio of its error to the baseline's, and its interval, which no error makes negative."""
    if ratio is None:
        return row
    interval = ratio.interval()
    if interval is not None:
        low, high = interval
        interval = max(0.0, low), max(0.0, high)
    return replace(row, error_ratio=ratio.value, error_ratio_ci95=interval)


def margin_met(bound: float | None, plan: Plan) -> float | str | None:
    """Return a smallest margin as the plan's margin is: in the metric's unit, or as a share such as "25%"."""
    return share_text(bound) if isinstance(plan.margin, str) and bound is not None else bound


def withheld_notes(contrasts: Mapping[str, Contrast]) -> list[str]:
    """Return notes on why no arm is called equivalent to a baseline, with its name if there are several."""
    ties = {contrast.arm.arm.baseline: contrast.tie for contrast in contrasts.values()}
    texts = []
    for name, tie in ties.items():
        if tie and tie.too_wide:
            to = f" to {current_style().label(name)}" if len(ties) > 1 else ""
            texts.append(f"no arm is called equivalent{to}: {tie.too_wide}")
    return texts


# -- interactions and claims -------------------------------------------------------------------------------------------


def judge_others(
    study: StudyResults,
    arms: Mapping[str, ArmResults],
    contrasts: Mapping[str, Contrast],
    choices: Mapping[str, PointChoice],
    rows: Mapping[str, Row],
) -> tuple[list[Interaction], list[Claim]]:
    """Return the judged interactions and claims of a study."""
    samples = {name: arm.sample for name, arm in arms.items()}
    p_margins = {name: contrast.p_margin for name, contrast in contrasts.items()}
    at_edge = {name for name, contrast in contrasts.items() if contrast.is_at_edge}
    at_edge |= {name for name, choice in choices.items() if choice.is_at_edge}
    interactions = interaction.judge_interactions(study, samples, at_edge)
    judged = claims.judge_claims(study.plan, rows, samples, p_margins, at_edge, unstable_points(choices))
    return [*map(interaction_record, interactions)], [*map(claim_record, judged)]


def interaction_record(judged: JudgedInteraction) -> Interaction:
    mean = judged.four.mean
    logit = judged.logit
    return Interaction(
        name=judged.planned.name,
        arms=judged.planned.arms,
        n=mean.n,
        interaction=mean.value,
        ci95=mean.interval(),
        logit=logit.value if logit else None,
        logit_ci95=logit.interval() if logit else None,
        p=judged.p,
        p_holm=judged.p_holm,
        verdict=judged.verdict,
        notes=notes.interaction_notes(judged),
    )


def claim_record(judged: JudgedClaim) -> Claim:
    """Return a claim about a and b with the difference a - b, or b - a if the table has that row."""
    text = " ".join(judged.parts)
    note = notes.claim_note(judged)
    if judged.test is None:
        return Claim(text, note=note)
    a, _, b = judged.parts
    difference = judged.test.pair.own.mean
    of = f"{a} - {b}"
    if judged.test.is_reversed:
        difference = -difference
        of = f"{b} - {a}"
    return Claim(
        claim=text,
        verdict=judged.verdict,
        delta=difference.value,
        delta_ci95=difference.interval(),
        p_holm=judged.test.p_holm,
        n_pairs=difference.n,
        note=note,
        of=of,
    )
