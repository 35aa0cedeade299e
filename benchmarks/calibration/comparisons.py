"""Calibration of `ablate compare`: how often two sets of results that do not differ get a verdict."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.calibration.looks import UNDECLARED, grown_template
from benchmarks.calibration.studies import (
    FOLDS,
    OFFICIAL,
    SD,
    Line,
    any_resolved,
    seeds_and_arms,
    share_of,
    study,
    template,
)
from results.comparison.compare import compare
from results.store.schemas import Split
from results.study_results import StudyResults

PATH = (5, 10, 20)


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
        found = (differs_on_path(rng, [(20, k) for k in PATH], grows) for _ in range(studies))
        what = f"compare, 4 arms, B has 5, 10, 20 seeds{', growth declared' if grows else ''}: a verdict at any"
        yield share_of(what, found, high=0.05 if grows else UNDECLARED)
    found = (differs_on_path(rng, [(k, k) for k in PATH]) for _ in range(studies))
    yield share_of("compare, 4 arms, both sides have 5, 10, 20 seeds: a verdict at any", found, high=UNDECLARED)
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
