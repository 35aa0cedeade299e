"""Warnings in a table that something was declared after results, with the verdicts under what was declared first."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from results import units
from results.claim_text import VERDICT_TEXT, with_labels
from results.records import NO_VERDICT, Row, Table
from results.statistics.declared import (
    Earlier,
    claims_declared_earlier,
    declared_earlier,
    declared_too_late,
    plan_as_declared,
)
from results.store.schemas.declarations import Declaration
from results.store.schemas.metrics import margin_text
from results.store.schemas.plans import Plan
from results.study_results import StudyResults
from results.style import current_style
from results.tables import sentences


def with_warnings(table: Table, study: StudyResults, table_of: Callable[[StudyResults], Table]) -> Table:
    """Return the table with a warning for each earlier declaration, and the verdicts under the first."""
    rows = table.rows_by_arm
    warnings = []
    for earlier in declared_earlier(study.plan):
        declared_after = changes_text(earlier, study.plan)
        try:
            other = table_of(study_as_declared(study, earlier.declaration))
        except ValueError as error:
            warnings.append(f"{declared_after}. The verdicts as first declared cannot be given: {error}")
            continue
        for first in other.rows:
            if earlier.concerns(first.arm, study.plan):
                rows[first.arm] = with_first_declared(rows[first.arm], first, other.plan.metric)
        warnings.append(f"{declared_after}. {verdicts_text(table, other, rows.values())}")
    warnings += [*claim_warnings(study.plan), *late_warnings(study.plan)]
    return replace(table, rows=list(rows.values()), warnings=[*table.warnings, *warnings])


def with_first_declared(row: Row, first: Row, metric: str) -> Row:
    verdicts = {name: result.verdict for name, result in first.secondary.items()} | {metric: first.verdict}
    secondary = {}
    for name, result in row.secondary.items():
        secondary[name] = replace(result, first_declared=verdicts.get(name) or NO_VERDICT)
    return replace(row, first_declared=first.verdict or NO_VERDICT, secondary=secondary)


def claim_warnings(plan: Plan) -> list[str]:
    earlier = claims_declared_earlier(plan)
    if earlier is None:
        return []
    texts = []
    if earlier.added:
        texts.append(f"claims declared after there were results: {', '.join(map(with_labels, earlier.added))}")
    if earlier.left_out:
        when = declared_first_text(earlier.declaration)
        texts.append(
            f"claims left out after there were results: {', '.join(map(with_labels, earlier.left_out))} ({when})"
        )
    return texts


def late_warnings(plan: Plan) -> list[str]:
    """Return a warning if the directory does not know what was declared before there were results."""
    late = declared_too_late(plan)
    if not late:
        return []
    named = ", ".join(map(current_style().label, late))
    if len(late) == sum(arm.name != arm.baseline for arm in plan.arms):
        named = "all arms"
    return [
        f"all trials of {named} had results before this directory knew of the comparison. "
        "Earlier tables, if there were any, are not counted"
    ]


def study_as_declared(study: StudyResults, declaration: Declaration) -> StudyResults:
    """Return the study under an earlier declaration. Raises ValueError if its trials or arms do not allow it."""
    values = study.columns.get(declaration.metric, [])
    if all(math.isnan(value) for value in values):
        raise ValueError(f"no trial here has the metric {declaration.metric}")
    plan = plan_as_declared(study.plan, declaration)
    columns = study.columns
    for name in plan.secondary_metrics:
        if name not in columns:  # an eval of another study on the same trials, not computed yet
            columns = columns | {name: [math.nan] * len(values)}
    return replace(study, plan=plan, columns=columns)


def changes_text(earlier: Earlier, plan: Plan) -> str:
    """Return what was declared otherwise first, such as "margin from 3.00 points to 5.00 points"."""
    now = declared_texts(plan, plan)
    then = declared_texts(earlier.declaration, plan)
    changes = ", ".join(f"{name} from {then[name]} to {now[name]}" for name in earlier.changed)
    return f"changed after there were results: {changes} ({declared_first_text(earlier.declaration)})"


def declared_first_text(declaration: Declaration) -> str:
    text = f"first declared by {declaration.plan}"
    if declaration.time:
        text += f" on {declaration.time[:16].replace('T', ' ')} UTC"
    return text


def declared_texts(declared: Declaration | Plan, plan: Plan) -> dict[str, str]:
    """Return what is declared, by the names of `Earlier.changed`. plan: declares the metric."""
    margin = "none"
    if declared.margin is not None:
        margin = margin_text(declared.margin, plan.metric_named(declared.metric))
    family = units.amount_text(declared.family, "contrast")
    if declared.points_family:
        family += f" and {declared.points_family} at equal values"
    baseline = current_style().label(declared.baseline)
    pairing = "by seed" if declared.is_paired else "none"
    metrics = ", ".join([declared.metric, *declared.secondary_metrics])
    texts = {"metric": declared.metric, "metrics": metrics, "margin": margin, "baseline": baseline}
    return texts | {"family": family, "pairing": pairing}


def secondary_verdicts(rows: Iterable[Row]) -> list[str]:
    texts = []
    for row in rows:
        for name, result in row.secondary.items():
            if result.is_judged_anew:
                verdict = sentences.verdict_text(result.first_declared, NO_VERDICT)
                texts.append(f"{current_style().label(row.arm)} in {name} {verdict}")
    return texts


def verdicts_text(table: Table, other: Table, rows: Iterable[Row]) -> str:
    """Return the verdicts of `other`, the table under what was declared first, where they differ."""
    if not table.judged:
        return "There are no verdicts yet"
    rows = list(rows)
    differing = [*sentences.first_declared_verdicts(rows), *secondary_verdicts(rows)]
    averages = {average.arm: average.verdict for average in other.averages}
    for average in table.averages:
        first_verdict = averages.get(average.arm)
        if average.verdict != first_verdict:
            text = sentences.verdict_text(first_verdict, NO_VERDICT)
            differing.append(f"average of {current_style().label(average.arm)} {text}")
    for claim, first in zip(table.claims, other.claims, strict=True):
        if claim.verdict != first.verdict:
            differing.append(f"claim {with_labels(first.claim)} {VERDICT_TEXT[first.verdict]}")
    if not differing:
        return "The verdicts as first declared are the same"
    return f"As first declared: {', '.join(differing)}"
