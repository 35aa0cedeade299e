"""Contrasts: what arms reached, seed by seed; arm - baseline is a sample too, over their common seeds."""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from results import units
from results.statistics import inference
from results.statistics.inference import Estimate
from results.store.correctness import Correct
from results.study_results import StudyResults

PER_IMAGE = "test_accuracy"  # the metric whose per-image values are stored


@dataclass(frozen=True)
class Sample:
    """By seed: the finished trials' metric, which test images were right (where stored), the trials' ids.

    image: what one test image adds to an accuracy (`stats.identical`). weights: sha256 of the final weights, "" where
    none is known.
    """

    values: dict[int, float]
    correct: dict[int, Correct]
    ids: dict[int, str]
    folds: int | None  # how many seeds make a repetition, where a seed tests a fold
    image: float = 0.0
    weights: dict[int, str] = field(default_factory=dict)

    @property
    def seeds(self) -> list[int]:
        return sorted(self.values)

    @property
    def numbers(self) -> np.ndarray:
        """The values (n,), by seed."""
        return np.array([self.values[seed] for seed in self.seeds])

    @property
    def repeated(self) -> bool:
        """Whether the seeds are of several partitions into folds, so that they test images again."""
        return repeated(self.values, self.folds)

    @property
    def repetition(self) -> np.ndarray:
        """(n,): which partition into folds each seed's test images come from."""
        return np.array([seed // self.folds if self.folds else 0 for seed in self.seeds])

    @cached_property
    def mean(self) -> Estimate:
        """Over seeds; with what repetitions of a partition into folds share, where correctness per image is known."""
        images = per_image(self) if self.repeated else None  # else no image was tested twice, or all were by all seeds
        shared = 0.0 if images is None else inference.shared_images_variance(images, self.repetition)
        return inference.mean(self.numbers, shared, self.image)

    def __sub__(self, other: "Sample") -> "Sample":
        """The differences over the seeds that both have; per image where both tested the same images.

        Within one partition into folds no image is tested twice, and which were right is in no interval: left out.
        """
        seeds = self.values.keys() & other.values.keys()
        values = {seed: self.values[seed] - other.values[seed] for seed in seeds}
        tested_again = not self.folds or repeated(seeds, self.folds)
        correct = {
            seed: (self.correct[seed][0], self.correct[seed][1].astype(float) - other.correct[seed][1])
            for seed in seeds
            if tested_again and self.same_images(other, seed)
        }
        ids = {seed: f"{self.ids[seed]}-{other.ids[seed]}" for seed in seeds}
        hashes = {seed: (self.weights.get(seed, ""), other.weights.get(seed, "")) for seed in seeds}
        weights = {seed: "-".join(both) if all(both) else "" for seed, both in hashes.items()}
        return Sample(values, correct, ids, self.folds, self.image, weights)

    def same_images(self, other: "Sample", seed: int) -> bool:
        """Whether both are known to have tested the same images with this seed."""
        mine, theirs = self.correct.get(seed), other.correct.get(seed)
        return mine is not None and theirs is not None and (mine[0] is theirs[0] or np.array_equal(mine[0], theirs[0]))

    def without(self, seeds: Collection[int]) -> "Sample":
        return replace(self, values={s: v for s, v in self.values.items() if s not in seeds})


def repeated(seeds: Iterable[int], folds: int | None) -> bool:
    return folds is not None and len({seed // folds for seed in seeds}) > 1


def samples(study: StudyResults, metric: str) -> dict[str, Sample]:
    """What the finished trials of every arm of the plan reached."""
    split = study.plan["split"]
    folds = split.get("folds")
    image = (folds or 1) / split["images"] if units.is_accuracy(metric) else 0.0
    found = {arm["name"]: Sample({}, {}, {}, folds, image, {}) for arm in study.plan["arms"]}
    columns = (study.columns[name] for name in ("arm", "seed", "id", "weights_sha256", "status", metric))
    for arm, seed, trial, weights, status, value in zip(*columns, strict=True):
        if status == "finished" and not math.isnan(value):
            found[arm].values[seed], found[arm].ids[seed], found[arm].weights[seed] = value, trial, weights
            if metric == PER_IMAGE and trial in study.correct:
                found[arm].correct[seed] = study.correct[trial]
    return found


def sample(study: StudyResults, arm: str, metric: str) -> Sample:
    """What the arm's finished trials reached."""
    return samples(study, metric)[arm]


def mean(trials: Sample) -> Estimate:
    """Over seeds, computed once."""
    return trials.mean


def over_images(trials: Sample) -> Estimate | None:
    """The mean over seeds and images; None unless all seeds test the same images."""
    images = None if trials.folds else per_image(trials)
    return None if images is None or np.isnan(images).any() else inference.crossed(images)


def known(trials: Sample) -> bool:
    """Whether there are trials, and every one's correctness per image."""
    return bool(trials.values) and trials.values.keys() <= trials.correct.keys()


def per_image(trials: Sample) -> np.ndarray | None:
    """(n, images), NaN where a seed did not test the image; None where a seed's images are not known."""
    if not known(trials):
        return None
    tests = [trials.correct[seed] for seed in trials.seeds]
    matrix = np.full((len(tests), 1 + max(int(index.max(initial=-1)) for index, _ in tests)), np.nan)
    for row, (index, right) in zip(matrix, tests, strict=True):
        row[index] = right
    tested = ~np.isnan(matrix).all(axis=0)
    return matrix if tested.all() else matrix[:, tested]


def caveat(trials: Sample) -> str:
    """What an interval leaves out where correctness per image is not known."""
    if not trials.repeated or known(trials):
        return ""
    return "the interval leaves out that repetitions share their images: per-image correctness is missing"
