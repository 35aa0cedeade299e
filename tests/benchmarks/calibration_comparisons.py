"""Calibration of `ablate compare`: how often two sets of results that do not differ get a verdict."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from calibration_studies import FOLDS, OFFICIAL, SD, Line, any_resolved, seeds_and_arms, share_of, study, template

from results.comparison.compare import compare
from results.store.schemas import Split
from results.study_results import StudyResults


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
    for noise in (0.4, 0.6, 0.8, 1.0, 1.5):
        again = [rerun(rng, noise) for _ in range(studies // 2)]
        yield share_of(f"compare, 8 arms, the same trials again, {noise} images of noise: a verdict", again)


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
