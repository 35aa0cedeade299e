"""Contrasts: an arm beside its baseline, on the seeds that both finished."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from results import stats
from results.stats import Estimate
from results.study import Correct, StudyResults

PER_IMAGE = "test_accuracy"  # the metric whose per-image values are stored


@dataclass(frozen=True)
class Sample:
    """An arm's finished trials: seed -> metric, seed -> which test images were right, where stored."""

    values: dict[int, float]
    correct: dict[int, Correct]
    folds: int | None  # how many seeds make a repetition, where a seed tests a fold

    def repetition(self, seeds: Sequence[int]) -> np.ndarray:
        """(n,): which partition into folds each seed's test images come from."""
        return np.array([seed // self.folds if self.folds else 0 for seed in seeds])


@dataclass(frozen=True)
class Contrast:
    """arm - baseline over their common seeds.

    images: the same over seeds and images; None unless all seeds test the same images.
    """

    seeds: list[int]
    difference: Estimate
    images: Estimate | None = None
    note: str = ""


def sample(study: StudyResults, arm: str, metric: str) -> Sample:
    """What the arm's finished trials reached."""
    trials = study.trials
    mine = trials[(trials["arm"] == arm) & (trials["status"] == "finished") & trials[metric].notna()]
    seeds = mine["seed"].tolist()
    values = dict(zip(seeds, mine[metric].tolist(), strict=True))
    stored = {seed: study.correct.get(i) for seed, i in zip(seeds, mine["id"], strict=True)}
    correct = {seed: right for seed, right in stored.items() if right is not None and metric == PER_IMAGE}
    return Sample(values, correct, study.plan["split"].get("folds"))


def mean(arm: Sample) -> Estimate:
    """Over the arm's finished trials."""
    seeds = sorted(arm.values)
    values = np.array([arm.values[seed] for seed in seeds])
    if len(arm.correct) < len(seeds):
        return stats.mean(values)
    return stats.mean(values, shared_images(arm, seeds, [arm.correct[seed] for seed in seeds]))


def paired(arm: Sample, baseline: Sample) -> Contrast:
    """The mean of the per-seed differences, whichever trials are missing on either side."""
    seeds = sorted(arm.values.keys() & baseline.values.keys())
    differences = np.array([arm.values[seed] - baseline.values[seed] for seed in seeds])
    known = [minus(arm.correct.get(seed), baseline.correct.get(seed)) for seed in seeds]
    correct = [difference for difference in known if difference is not None]
    if len(correct) < len(seeds) or not seeds:
        return Contrast(seeds, stats.mean(differences), note=unknown_images(arm, seeds))
    difference = stats.mean(differences, shared_images(arm, seeds, correct))
    matrix = per_image(correct)
    return Contrast(seeds, difference, None if np.isnan(matrix).any() else stats.crossed(matrix))


def minus(a: Correct | None, b: Correct | None) -> Correct | None:
    """Per-image differences; None unless both are known and of the same images."""
    if a is None or b is None or not np.array_equal(a[0], b[0]):
        return None
    return a[0], a[1].astype(float) - b[1]


def per_image(correct: Sequence[Correct]) -> np.ndarray:
    """(n, images), NaN where a seed did not test the image."""
    images = np.unique(np.concatenate([index for index, _ in correct]))
    matrix = np.full((len(correct), len(images)), np.nan)
    for row, (index, right) in zip(matrix, correct, strict=True):
        row[np.searchsorted(images, index)] = right
    return matrix


def shared_images(arm: Sample, seeds: Sequence[int], correct: Sequence[Correct]) -> float:
    """The variance that repetitions of the partition into folds share, 0 for a single one."""
    repetition = arm.repetition(seeds)
    if len(set(repetition)) < 2:
        return 0.0
    return stats.shared_images_variance(per_image(correct), repetition)


def unknown_images(arm: Sample, seeds: Sequence[int]) -> str:
    """What an interval without per-image correctness leaves out."""
    if len(set(arm.repetition(seeds))) < 2:
        return ""
    return "the interval leaves out that repetitions share their images: per-image correctness is missing"
