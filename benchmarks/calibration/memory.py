"""Calibration of what is declared after a table: margins, and families that were pruned to the promising arm."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.calibration.studies import Line, any_resolved, seeds_and_arms, share_of, study
from results.records import Table
from results.store import ledger
from results.store.schemas import Plan
from results.study_results import StudyResults
from results.tables.study_table import table

MARGIN, DEFICIT, SEEDS = 0.01, 0.02, 5
RESOLVED, TIED = ("better", "worse"), ("equivalent",)


def memory(rng: np.random.Generator, studies: int) -> Iterator[Line]:
    """Count wrong verdicts of which a table does not warn, and wrong verdicts under what was declared first."""
    met, chosen, pruned = [], [], []
    for _ in range(studies):
        worse = DEFICIT * (np.arange(9) > 0)[:, None]
        made = study(seeds_and_arms(rng, 8, SEEDS) - worse, margin=MARGIN)
        margins = [row.margin_met for row in table(made).rows if isinstance(row.margin_met, float)]
        met.append(min(margins) < DEFICIT)
        chosen.append(table(replanned(made, margin=1.001 * min(margins))))
        made = study(seeds_and_arms(rng, 7, SEEDS))
        best = min(table(made).rows[1:], key=lambda row: float(row.p or 0.0)).arm
        pruned.append(table(replanned(of_arms(made, [made.plan.baseline, best]), first=made.plan)))
    yield share_of("8 arms worse by 2 points: the smallest margin that is met is below 2", met)
    yield from warned("8 arms worse by 2 points, margin chosen after the table: one equivalent", chosen, TIED)
    yield from warned("null study of 7 arms, pruned to the best: a verdict", pruned, RESOLVED)


def warned(what: str, tables: Sequence[Table], words: Sequence[str]) -> Iterator[Line]:
    """Yield the shares of tables with such verdicts now, without a warning, and under what was declared first."""
    now = [any_resolved(made.rows, words) for made in tables]
    yield share_of(f"{what} (of which it warns)", now, high=1.0)
    silent = (found and not made.warnings for made, found in zip(tables, now, strict=True))
    yield share_of("... without a warning", silent, 0.0, 0.0)
    first = (any(row.first_declared in words for row in made.rows) for made in tables)
    yield share_of("... under what was declared first", first)


def replanned(made: StudyResults, first: Plan | None = None, **planned: Any) -> StudyResults:
    """Return the study as planned anew after its trials had ended. first: the plan before; planned: changed fields."""
    before = ledger.declaration(first or made.plan, "2026-01-01T00:00:00Z")
    plan = made.plan.model_copy(update=planned)
    after = ledger.declaration(plan, "2026-01-02T00:00:00Z", sorted(before.ids))
    plan = plan.model_copy(update={"declarations": [before, after]})
    return StudyResults(plan, made.columns, made.evaluations, made.correct)


def of_arms(made: StudyResults, names: Sequence[str]) -> StudyResults:
    """Return the study with these arms alone, the baseline among them."""
    arms = [arm for arm in made.plan.arms if arm.name in names]
    plan = made.plan.model_copy(update={"arms": arms, "family": len(arms) - 1})
    kept = [name in names for name in made.columns["arm"]]
    columns = {key: [one for one, keep in zip(of, kept, strict=True) if keep] for key, of in made.columns.items()}
    return StudyResults(plan, columns, made.evaluations, made.correct)
