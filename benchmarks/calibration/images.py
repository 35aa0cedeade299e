"""Calibration with test images as a sample: intervals and verdicts for other images than those tested."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import scipy.optimize
import scipy.special
import synthetic

from benchmarks.calibration.studies import Line, any_resolved, contrast_rows, covers, share_of, study, template
from results.store.schemas.plans import Split
from results.study_results import StudyResults

EASE, HARDNESS, OWN_HARDNESS, SEED = 2.5, 1.5, 1.5, 0.1  # mean logit; deviations of images, arms x images and seeds
MARGIN = 0.06
SIZES = {360: 1.0, 10_000: 0.4}  # images -> share of the studies, as large ones take long


def images(rng: np.random.Generator, studies: int) -> Iterator[Line]:
    """Count how often intervals contain the truth, and verdicts err, if test images are drawn anew for each study."""
    index, base = [np.arange(500)] * 5, template(1, 5)
    rows = (contrast_rows(tested_on(base, index, answers(rng, index, 500)))[0] for _ in range(studies))
    both = (covers(row.delta_ci95_images, 0) for row in rows)
    yield share_of("seeds x images, 5 seeds, one test set of 500: interval of a difference", both, 0.95, 1.0)
    for n in (5, 7, 10, 20):
        base = template(1, n, folds=True)
        index = [synthetic.fold(seed, Split(**synthetic.DIGITS)) for seed in range(n)]
        rows = (contrast_rows(tested_on(base, index, answers(rng, index, 1797)))[0] for _ in range(studies))
        hits = (covers(row.delta_ci95, 0) for row in rows)
        yield share_of(f"folds of 1,797 images, {n} seeds: interval of a difference", hits, 0.935, 0.965)
    for count, share in SIZES.items():
        for n in (3, 5, 10, 20):
            yield from verdicts(rng, max(1, round(share * studies)), count, n)


def verdicts(rng: np.random.Generator, studies: int, count: int, n: int) -> Iterator[Line]:
    """Count verdicts on an arm like its baseline, and ties of an arm that is worse by just the margin."""
    index, base = [np.arange(count)] * n, template(2, n)
    different, equivalent, alone = [], [], []
    for _ in range(studies):
        made = tested_on(base, index, answers(rng, index, count, (0.0, 0.0, MARGIN)))
        rows = contrast_rows(replace(made, plan=made.plan.model_copy(update={"margin": MARGIN})))
        different.append(any_resolved(rows[:1]))
        equivalent.append(any_resolved(rows[1:], ["equivalent"]))
        if n == 10:
            alone.append(any_resolved(contrast_rows(replace(made, correct={}))[:1]))
    on = f"{count:,} images, {n} seeds"
    yield share_of(f"{on}: a verdict on an arm like the baseline", different)
    yield share_of(f"{on}: equivalent, but worse by the margin", equivalent)
    if alone:
        yield share_of(f"{on}: a verdict by the seeds alone (what this avoids)", alone, high=1.0)


def answers(
    rng: np.random.Generator, index: Sequence[np.ndarray], count: int, worse: Sequence[float] = (0.0, 0.0)
) -> list[list[np.ndarray]]:
    """Draw [arm][seed] -> right or wrong (images,) of arms that find different images hard.

    Images are a sample too: their difficulty, for all and for each arm, is drawn anew. worse: by how much an arm's
    expected accuracy is lower.
    """
    arms = len(worse)
    hard, seed = rng.normal(EASE, HARDNESS, count), rng.normal(0, SEED, (arms, len(index)))
    own = hard + rng.normal(0, OWN_HARDNESS, (arms, count)) - np.array([harder(by) for by in worse])[:, None]
    right = []
    for arm in range(arms):
        odds = [own[arm, at] + seed[arm, s] for s, at in enumerate(index)]
        right.append([(rng.random(len(one)) < scipy.special.expit(one)).astype(np.uint8) for one in odds])
    return right


@cache
def harder(by: float) -> float:
    """Return by how much the logit of an arm is lower whose expected accuracy is lower by `by`."""
    spread = np.sqrt(HARDNESS**2 + OWN_HARDNESS**2 + SEED**2)
    nodes, weights = np.polynomial.hermite_e.hermegauss(99)

    def accuracy(lower: float) -> float:
        return float(weights @ scipy.special.expit(EASE - lower + spread * nodes) / weights.sum())

    return scipy.optimize.brentq(lambda lower: accuracy(0.0) - accuracy(lower) - by, 0.0, 5.0) if by else 0.0


def tested_on(base: StudyResults, index: Sequence[np.ndarray], right: list[list[np.ndarray]]) -> StudyResults:
    """Return the study whose trials gave these answers."""
    accuracies = np.array([[one.mean() for one in arm] for arm in right])
    ids = np.reshape(base.columns["id"], accuracies.shape)
    correct = {ids[a, s]: (index[s], right[a][s]) for a in range(len(right)) for s in range(len(index))}
    return replace(study(accuracies, base), correct=correct)
