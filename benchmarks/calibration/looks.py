"""Calibration of repeated looks and of comparisons: studies that grow, and what is declared after a table."""

import math
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import synthetic

from ablations.planning.saved_plans import save_plan
from benchmarks.calibration.studies import (
    FOLDS,
    OFFICIAL,
    SD,
    Line,
    any_resolved,
    contrast_rows,
    seeds_and_arms,
    share_of,
    study,
    template,
)
from results import store
from results.comparison.compare import compare
from results.load import load_studies
from results.records import Table
from results.statistics.power import PlannedTest
from results.store import ledger
from results.store.schemas.plans import Plan, Split
from results.study_results import StudyResults
from results.tables.study_table import table

PATHS = {  # seeds at each table -> share of the studies, as many tables take long
    (5, 26): 2.0,
    (6, 8, 12, 16, 24): 0.8,
    tuple(range(5, 16)): 0.4,
}
PATH = (5, 10, 20)  # seeds at each comparison
SECOND_FACTOR = 6  # by which p of a second table is multiplied
MARGIN, DEFICIT, SEEDS = 0.01, 0.02, 5  # of studies whose margin or family is chosen after a table
UNDECLARED = 0.062  # what a first table that is not corrected adds, at most, on any of PATHS


def looks(rng: np.random.Generator, studies: int) -> Iterator[Line]:
    """Count studies of which any table, up to the first verdict, calls an arm different that is not."""
    for path, share in PATHS.items():
        for grows in (False, True):
            drawn = (seeds_and_arms(rng, 3, path[-1]) for _ in range(round(share * studies)))
            hits = (any_verdict(whole, path, grows) for whole in drawn)
            name = "one by one to 15" if len(path) > 5 else ", ".join(map(str, path))
            what = f"tables at {name} seeds{', growth declared' if grows else ''}: a verdict at any"
            yield share_of(what, hits, high=0.05 if grows else UNDECLARED)
    for names, what in ((("s", "copy"), "the study file is copied"), (("s", "s"), "its folder is removed")):
        drawn = (seeds_and_arms(rng, 3, 26) for _ in range(studies))
        hits = (any_verdict(whole, (5, 26), names=names) for whole in drawn)
        yield share_of(f"tables at 5, 26 seeds, between them {what}: a verdict at any", hits, high=UNDECLARED)
    yield power_after_a_look(rng, studies)
    same = (on_disk(rng, copied) for copied in (True, False) for _ in range(max(1, studies // 400)))
    yield share_of("... on disk: the same p values", same, 1.0, 1.0)


def power_after_a_look(rng: np.random.Generator, studies: int) -> Line:
    """Count resolved differences after as many seeds as a plan asks for once there was a table with 5."""
    arms, effect, sd = 3, 1.2 * SD, SD * math.sqrt(2)
    seeds = PlannedTest(sd, arms * SECOND_FACTOR).seeds_to_resolve(effect)
    assert seeds is not None
    worse = effect * (np.arange(arms + 1) == 1)[:, None]
    base = grown_template(arms, (5, seeds), ("s", "s"))
    made = (study(seeds_and_arms(rng, arms, seeds) - worse, base) for _ in range(studies))
    hits = (contrast_rows(one)[0].verdict == "worse" for one in made)
    what = f"power after a table at 5 seeds, {seeds} seeds: worse by {100 * effect:.2f} points"
    return share_of(what, hits, 0.8, 0.84)


def any_verdict(whole: np.ndarray, path: Sequence[int], grows: bool = False, names: Sequence[str] = ()) -> bool:
    """Return whether any table on a path calls an arm different. whole: accuracies (arms, seeds)."""
    names = names or ["s"] * len(path)
    for i, seeds in enumerate(path):
        base = grown_template(len(whole) - 1, tuple(path[: i + 1]), tuple(names[: i + 1]), grows)
        if any_resolved(contrast_rows(study(whole[:, :seeds], base))):
            return True
    return False


@cache
def grown_template(arms: int, path: tuple[int, ...], names: tuple[str, ...], grows: bool = False) -> StudyResults:
    """Return a study as the last plan on a path. Each plan was declared after the trials of the one before ended."""
    declared, ended = [], list[str]()
    for time, (seeds, name) in enumerate(zip(path, names, strict=True)):
        base = template(arms, seeds)
        plan = base.plan.model_copy(update={"name": f"{name}@digits", "study": name, "grows": grows})
        declared.append(ledger.declaration(plan, f"2026-01-01T00:00:{time:02}Z", ended))
        ended = sorted(declared[-1].ids)
    return replace(base, plan=plan.model_copy(update={"declarations": declared}))


def on_disk(rng: np.random.Generator, copied: bool) -> bool:
    """Return whether a run directory gives the p values of `grown_template` after 3 and then 5 seeds.

    copied: whether the second plan has another name; otherwise the first one's folder is removed before it.
    """
    arms, path, names = 2, (3, 5), ("s", "copy" if copied else "s")
    whole, written = seeds_and_arms(rng, arms, path[-1]), 0
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)
        for seeds, name in zip(path, names, strict=True):
            plan = template(arms, seeds).plan.model_copy(update={"name": f"{name}@digits", "study": name})
            save_plan(runs, plan)
            for arm, accuracies in zip(plan.arms, whole, strict=True):
                for trial in arm.trials[written:]:
                    config, accuracy = arm.config | {"seed": trial.seed}, float(accuracies[trial.seed])
                    record = synthetic.finished(accuracy, config=config, seed=trial.seed)
                    synthetic.write_trial(store.trial(runs, trial.id), record)
            (loaded,) = load_studies(runs, [plan.name])
            made, written = table(loaded), seeds
            if not copied and seeds < path[-1]:
                shutil.rmtree(store.study_folder(runs, plan.name))
    known = contrast_rows(study(whole, grown_template(arms, path, names)))
    return [row.p_holm for row in made.rows[1:]] == [row.p_holm for row in known]


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
    yield from warned("8 arms worse by 2 points, margin chosen after the table: one equivalent", chosen, ["equivalent"])
    yield from warned("null study of 7 arms, pruned to the best: a verdict", pruned, ["better", "worse"])


def warned(what: str, tables: Sequence[Table], words: Sequence[str]) -> Iterator[Line]:
    """Yield the shares of tables with such verdicts now, without a warning, and under what was declared first."""
    now = [any_resolved(made.rows, words) for made in tables]
    yield share_of(f"{what} (with or without a warning)", now, high=1.0)
    silent = (hits and not made.warnings for made, hits in zip(tables, now, strict=True))
    yield share_of("... without a warning", silent, 0.0, 0.0)
    first = (any(row.first_declared in words for row in made.rows) for made in tables)
    yield share_of("... under what was declared first", first)


def replanned(made: StudyResults, first: Plan | None = None, **planned: Any) -> StudyResults:
    """Return the study as planned anew after its trials had ended. first: the plan before; planned: changed fields."""
    before = ledger.declaration(first or made.plan, "2026-01-01T00:00:00Z")
    plan = made.plan.model_copy(update=planned)
    after = ledger.declaration(plan, "2026-01-02T00:00:00Z", sorted(before.ids))
    return replace(made, plan=plan.model_copy(update={"declarations": [before, after]}))


def of_arms(made: StudyResults, names: Sequence[str]) -> StudyResults:
    """Return the study with these arms alone, the baseline among them."""
    arms = [arm for arm in made.plan.arms if arm.name in names]
    plan = made.plan.model_copy(update={"arms": arms, "family": len(arms) - 1})
    kept = [name in names for name in made.columns["arm"]]
    columns = {key: [one for one, keep in zip(of, kept, strict=True) if keep] for key, of in made.columns.items()}
    return replace(made, plan=plan, columns=columns)


def comparisons(rng: np.random.Generator, studies: int) -> Iterator[Line]:
    paired, welch = [], []
    for _ in range(studies):
        a, b = (study(seeds_and_arms(rng, 4, 5)) for _ in range(2))
        paired.append(differs(a, with_other_ids(b)))
        other = b.plan.model_copy(update={"split": Split(**OFFICIAL | {"images": 9999})})
        welch.append(differs(a, with_other_ids(replace(b, plan=other))))
    yield share_of("compare, 5 arms, paired: a verdict", paired)
    yield share_of("compare, 5 arms, Welch: a verdict", welch)
    shared = [differs(study(whole[:, :5]), with_later_seeds(study(whole[:, 5:]))) for whole in overlap(rng, studies)]
    yield share_of("compare, 5 arms, 3 of 5 seeds common: a verdict", shared)
    for noise in (0.4, 0.8, 1.5):
        again = [rerun(rng, noise) for _ in range(studies // 2)]
        yield share_of(f"compare, 8 arms, the same trials again, {noise} images of noise: a verdict", again)
    yield from growing(rng, studies)


def growing(rng: np.random.Generator, studies: int) -> Iterator[Line]:
    """Count verdicts at any of several comparisons while sides grow, up to the first."""
    for grows in (False, True):
        hits = (differs_on_path(rng, [(20, k) for k in PATH], grows) for _ in range(studies))
        what = f"compare, 4 arms, B has 5, 10, 20 seeds{', growth declared' if grows else ''}: a verdict at any"
        yield share_of(what, hits, high=0.05 if grows else UNDECLARED)
    hits = (differs_on_path(rng, [(k, k) for k in PATH]) for _ in range(studies))
    yield share_of("compare, 4 arms, both sides have 5, 10, 20 seeds: a verdict at any", hits, high=UNDECLARED)
    by_seed = [one_by_one(rng) for _ in range(studies)]
    yield share_of("compare, 4 arms, after each of B's 10 planned seeds: a verdict at any", (one for one, _ in by_seed))
    now = (one for _, one in by_seed)
    yield share_of("... with --interim, stopping at the first verdict (what this avoids)", now, high=1.0)


def differs_on_path(rng: np.random.Generator, path: Sequence[tuple[int, int]], grows: bool = False) -> bool:
    """Return whether any comparison on a path calls an arm different. path: the numbers of seeds of A and B."""
    whole = [seeds_and_arms(rng, 3, 20) for _ in range(2)]
    for i in range(len(path)):
        numbers = [tuple(dict.fromkeys(of)) for of in zip(*path[: i + 1], strict=True)]
        bases = [grown_template(3, of, ("s",) * len(of), grows) for of in numbers]
        if differs(*(study(one[:, : of[-1]], base) for one, of, base in zip(whole, numbers, bases, strict=True))):
            return True
    return False


def one_by_one(rng: np.random.Generator) -> tuple[bool, bool]:
    """Return whether a comparison after each of B's seeds gives a verdict, without and with --interim."""
    first, second = (seeds_and_arms(rng, 3, 10) for _ in range(2))
    a, sides = study(first), [study(np.where(np.arange(10) < k, second, np.nan)) for k in (3, 5, 7, 10)]
    usual = any(differs(a, b) for b in sides)
    return usual, any(any_resolved(compare([a], [b], interim=True).rows) for b in sides)


def overlap(rng: np.random.Generator, studies: int) -> Iterator[np.ndarray]:
    """Draw five seeds of each side (5, 10); the last three of A are the first three of B."""
    for _ in range(studies):
        seeds = rng.normal(0, SD, 7)
        yield 0.9 + np.concatenate([seeds[:5], seeds[2:]]) + rng.normal(0, SD, (5, 10))


def with_later_seeds(side: StudyResults) -> StudyResults:
    seeds = {"seed": [seed + 2 for seed in side.columns["seed"]]}
    return with_other_ids(replace(side, columns=side.columns | seeds))


def rerun(rng: np.random.Generator, noise: float) -> bool:
    """Return whether one of eight arms differs from its rerun. noise: standard deviation in images per fold."""
    right = np.round(rng.normal(0.975, 0.006, (8, 5)) * FOLDS)
    again = right + np.round(rng.normal(0, noise, right.shape))
    return differs(*(study(counts / FOLDS, template(7, 5, folds=True)) for counts in (right, again)))


def with_other_ids(side: StudyResults) -> StudyResults:
    """Return the study with other trial ids, as if other code had trained it."""
    return replace(side, columns=side.columns | {"id": [f"b{key}" for key in side.columns["id"]]})


def differs(a: StudyResults, b: StudyResults) -> bool:
    return any_resolved(compare([a], [b]).rows)
