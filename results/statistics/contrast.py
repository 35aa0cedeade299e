"""Samples of a metric by seed, and their differences: paired over common seeds, or unpaired."""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, Self

import numpy as np

from results.statistics import intervals
from results.statistics.intervals import Estimate
from results.store.record import Correct
from results.store.schemas.metrics import Metric, is_of_other_images, is_share_right
from results.study_results import StudyResults


class Measured(Protocol):
    """What has a mean over seeds, and perhaps over test images: a sample, or an unpaired difference of samples."""

    @property
    def terms(self) -> "tuple[Sample, ...]":
        """The independent samples whose sum it is."""

    @property
    def mean(self) -> Estimate:
        """The estimated mean over seeds."""

    @property
    def images_variance(self) -> float | None:
        """The variance that the choice of test images adds to the mean, or None if it is unknown."""

    def only_seeds(self, seeds: Collection[int]) -> Self: ...

    @property
    def seeds(self) -> list[int]:
        """The seeds that all terms have, in ascending order."""
        return sorted(set.intersection(*(set(term.values) for term in self.terms)))

    def ids_of(self, seed: int) -> str:
        """Return the ids of the trials with a seed, joined by hyphens."""
        return "-".join(term.ids[seed] for term in self.terms)

    @property
    def mean_over_images(self) -> Estimate | None:
        """The estimated mean over seeds and images, or None if `images_variance` is unknown."""
        if self.images_variance is None:
            return None
        return self.mean.with_extra_variance(self.images_variance)

    @property
    def images_share(self) -> float | None:
        """The share of the variance of `mean_over_images` that comes from the choice of test images, or None."""
        both = self.mean_over_images
        if both is None or both.se is None or self.images_variance is None:
            return None
        return self.images_variance / both.se**2

    @property
    def tested(self) -> Estimate:
        """The estimate that verdicts use: the mean over seeds and images where it is known, else over seeds.

        The former has the larger standard error and equal degrees of freedom, so its p values hold for both.
        """
        return self.mean_over_images or self.mean


@dataclass(frozen=True)
class Sample(Measured):
    """A metric's values by seed, for one arm's finished trials or as differences between two arms.

    correct: seed -> image indices and whether each image was classified correctly (or the difference), where stored.
    ids: seed -> trial id. folds: seeds in one partition of the images, or None if all seeds share one test set. image:
    what one test image adds to an accuracy. weights: seed -> SHA-256 of the final weights, where known.
    """

    values: dict[int, float]
    correct: dict[int, Correct]
    ids: dict[int, str]
    folds: int | None
    image: float = 0.0
    weights: dict[int, str] = field(default_factory=dict)

    @property
    def terms(self) -> "tuple[Sample, ...]":
        return (self,)

    @property
    def seeds(self) -> list[int]:
        return sorted(self.values)

    @cached_property
    def numbers(self) -> np.ndarray:
        """The values (n,) in ascending order of seed."""
        return np.array([self.values[seed] for seed in self.seeds])

    @cached_property
    def mean(self) -> Estimate:
        """The estimated mean over seeds. Its standard error allows for images that repetitions share, if known."""
        return intervals.mean(self.numbers, self.shared_variance, self.image)

    @cached_property
    def shared_variance(self) -> float:
        """The variance that images which repetitions share add to the mean, 0 if it is unknown."""
        if spans_repetitions(self.values, self.folds) and self.values.keys() <= self.correct.keys():
            images = correctness_matrix(self)
            if images is not None:
                return intervals.shared_images_variance(images, np.array(self.seeds) // (self.folds or 1))
        return 0.0

    @cached_property
    def images_variance(self) -> float | None:
        """The variance of `Measured.images_variance`, None unless two seeds have answers, all on the same images."""
        if self.folds:
            return None
        images = correctness_matrix(self)
        if images is None or min(images.shape) < 2 or np.isnan(images).any():
            return None
        return intervals.images_variance(images)

    @property
    def lacks_correctness(self) -> bool:
        """Whether seeds tested images repeatedly and the correctness of a trial is unknown."""
        return spans_repetitions(self.values, self.folds) and not self.values.keys() <= self.correct.keys()

    def __neg__(self) -> "Sample":
        values = {seed: -value for seed, value in self.values.items()}
        correct = {seed: (images, -right.astype(float)) for seed, (images, right) in self.correct.items()}
        return replace(self, values=values, correct=correct)

    def __sub__(self, other: "Sample") -> "Sample":
        """Return the sample of paired differences over the common seeds."""
        seeds = self.values.keys() & other.values.keys()
        needs_answers = not self.folds or spans_repetitions(seeds, self.folds)  # else no interval uses them
        difference = replace(self, values={}, correct={}, ids={}, weights={})
        for seed in seeds:
            difference.values[seed] = self.values[seed] - other.values[seed]
            difference.ids[seed] = f"{self.ids[seed]}-{other.ids[seed]}"
            if seed in self.weights and seed in other.weights:
                difference.weights[seed] = f"{self.weights[seed]}-{other.weights[seed]}"
            if needs_answers and self.has_same_images(other, seed):
                images, right = self.correct[seed]
                difference.correct[seed] = images, right.astype(float) - other.correct[seed][1]
        return difference

    def has_same_images(self, other: "Sample", seed: int) -> bool:
        """Return whether both samples are known to have tested the same images with this seed."""
        if seed not in self.correct or seed not in other.correct:
            return False
        (images, _), (others, _) = self.correct[seed], other.correct[seed]
        return images is others or np.array_equal(images, others)

    def only_seeds(self, seeds: Collection[int]) -> "Sample":
        return replace(self, values={seed: value for seed, value in self.values.items() if seed in seeds})

    def errors(self, metric: Metric) -> "Sample":
        """Return the error rates of a sample of accuracies, or a sample of another metric unchanged."""
        if not metric.is_accuracy:
            return self
        errors = replace(self, values={}, correct={})
        for seed, value in self.values.items():
            errors.values[seed] = 1 - value
        for seed, (images, right) in self.correct.items():
            errors.correct[seed] = images, 1 - right.astype(float)
        return errors


@dataclass(frozen=True)
class Unpaired(Measured):
    """A difference of samples whose seeds do not pair: the sum of `parts`, independent samples without folds."""

    parts: tuple[Sample, ...]

    @property
    def terms(self) -> tuple[Sample, ...]:
        return self.parts

    @cached_property
    def mean(self) -> Estimate:
        """The estimated sum of the means over seeds, by Welch's method."""
        return intervals.sum_of_means([part.numbers for part in self.parts], self.parts[0].image)

    @cached_property
    def images_variance(self) -> float | None:
        """As of a sample, None unless each part has two seeds with answers, all on the same images."""
        images, _ = next(iter(self.parts[0].correct.values()), (np.array([]), None))
        matrices = []
        for part in self.parts:
            answers = [part.correct[seed] for seed in part.seeds if seed in part.correct]
            if len(answers) < 2 or not all(np.array_equal(images, others) for others, _ in answers):
                return None
            matrices.append(np.array([right for _, right in answers], float))
        return intervals.images_variance(*matrices) if len(images) > 1 else None

    def only_seeds(self, seeds: Collection[int]) -> "Unpaired":
        return Unpaired(tuple(part.only_seeds(seeds) for part in self.parts))

    def minus_dependent(self, other: Sample) -> "Unpaired":
        """Return the difference to a sample that may be of the same trials as one of the parts."""
        parts = list(self.parts)
        for number, part in enumerate(parts):
            if part.ids == other.ids:
                parts[number] = part - other
                return Unpaired(tuple(parts))
        return Unpaired((*parts, -other))


@dataclass(frozen=True)
class DataAverage(Measured):
    """The mean of samples or differences on several data sets, which count alike. Data sets share no images."""

    parts: tuple[Measured, ...]

    @property
    def terms(self) -> tuple[Sample, ...]:
        return tuple(term for part in self.parts for term in part.terms)

    @cached_property
    def mean(self) -> Estimate:
        """The estimated mean: over seeds, each with its average over data sets, or by Welch's method if unpaired."""
        count = len(self.parts)
        images = max(term.image for term in self.terms) / count
        samples = [part.only_seeds(self.seeds) for part in self.parts if isinstance(part, Sample)]
        if len(samples) < count:
            return intervals.sum_of_means([term.numbers / count for term in self.terms], images)
        shared = sum(sample.shared_variance for sample in samples) / count**2
        return intervals.mean(np.mean([sample.numbers for sample in samples], axis=0), shared, images)

    @cached_property
    def images_variance(self) -> float | None:
        """The variance that the choice of test images adds to the mean, None if it is unknown for all data sets."""
        variances = [part.images_variance for part in self.parts if part.images_variance is not None]
        return sum(variances) / len(self.parts) ** 2 if variances else None

    def only_seeds(self, seeds: Collection[int]) -> "DataAverage":
        return DataAverage(tuple(part.only_seeds(seeds) for part in self.parts))


def difference(a: Measured, b: Measured, is_paired: bool) -> Measured:
    """Return a - b, over common seeds if both are samples that pair."""
    if is_paired and isinstance(a, Sample) and isinstance(b, Sample):
        return a - b
    return Unpaired((*a.terms, *(-term for term in b.terms)))


def spans_repetitions(seeds: Iterable[int], folds: int | None) -> bool:
    """Return whether the seeds come from more than one partition into folds."""
    return folds is not None and len({seed // folds for seed in seeds}) > 1


def samples_by_arm(study: StudyResults, metric: str) -> dict[str, Sample]:
    """Return arm -> sample of its finished trials that have `metric`, a column of the study.

    Answers of training code of the user's count only if their mean is the metric.
    """
    is_accuracy = study.plan.metric_named(metric).is_accuracy
    samples = {}
    for arm in study.plan.arms:
        split = None if is_of_other_images(metric) else study.plan.split_of(arm)
        folds = split.folds if split else None
        image = 1 / split.images_per_test if split and is_accuracy else 0.0
        samples[arm.name] = Sample({}, {}, {}, folds, image)
    columns = map(study.columns.__getitem__, ("arm", "seed", "id", "weights_sha256", "status", metric))
    for arm, seed, trial, weights, status, value in zip(*columns, strict=True):
        if status != "finished" or math.isnan(value):
            continue
        sample = samples[arm]
        sample.values[seed] = value
        sample.ids[seed] = trial
        if weights:
            sample.weights[seed] = weights
        if metric == study.plan.per_image_metric and trial in study.correct:
            _, right = study.correct[trial]
            if not study.plan.trainable or is_share_right(right, value):
                sample.correct[seed] = study.correct[trial]
    return samples


def correctness_matrix(trials: Sample) -> np.ndarray | None:
    """Return correctness as a matrix (k, tested images) for the k seeds that have it, or None if there are none.

    Rows are in order of seed, with NaN where a seed did not test the image.
    """
    seeds = [seed for seed in trials.seeds if seed in trials.correct]
    if not seeds:
        return None
    last = max(int(trials.correct[seed][0].max(initial=-1)) for seed in seeds)
    matrix = np.full((len(seeds), last + 1), np.nan)
    for row, seed in zip(matrix, seeds, strict=True):
        images, right = trials.correct[seed]
        row[images] = right
    tested = ~np.isnan(matrix).all(axis=0)
    return matrix if tested.all() else matrix[:, tested]
