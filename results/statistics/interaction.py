"""Interactions: whether the effects of two changes add up, measured seed by seed as ab - a - b + baseline.

The arm ab has both changes, and the arms a and b have one each. An accuracy's interaction is also estimated on the
logit scale. Near 100% the sum of two gains is compressed, so an interaction may be an artifact of the scale. An
interaction is claimed only where it has the same sign on both scales.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from results.statistics import looks, verdict
from results.statistics.contrast import Sample
from results.statistics.intervals import Estimate
from results.statistics.verdict import UNRESOLVED, is_significant
from results.store.schemas import Interaction, Plan
from results.study_results import StudyResults, collapsed_seeds

POSITIVE, NEGATIVE = "positive", "negative"


@dataclass(frozen=True)
class JudgedInteraction:
    """An interaction with its estimates and verdict: positive, negative, not-resolved, or None if untested.

    four: ab - a - b + baseline by seed. logit: the same on the logit scale, None unless the metric is an accuracy.
    diverged, collapsed: arms with such trials.
    """

    planned: Interaction
    four: Sample
    logit: Estimate | None
    p: float | None
    p_holm: float | None
    diverged: Sequence[str]
    collapsed: Sequence[str]

    @property
    def is_of_the_scale(self) -> bool:
        """Whether the logit has the opposite sign."""
        value = self.four.mean.value
        if value is None or self.logit is None or self.logit.value is None:
            return False
        return self.logit.value * value <= 0

    @property
    def verdict(self) -> str | None:
        value = self.four.mean.value
        if self.p_holm is None or value is None:
            return None
        if not is_significant(self.p_holm) or self.is_of_the_scale or self.diverged or self.collapsed:
            return UNRESOLVED
        return POSITIVE if value > 0 else NEGATIVE


def judge_interactions(
    study: StudyResults, samples: Mapping[str, Sample], unjudged: Set[str]
) -> list[JudgedInteraction]:
    """Return all planned interactions with estimates and verdicts, corrected as one Holm family.

    samples: arm -> sample. unjudged: arms without a verdict because a best value lies at the edge of the grid.
    """
    plan = study.plan
    ended = {*zip(study.columns["arm"], study.columns["status"], strict=True)}
    tested = []
    for planned in plan.interactions:
        four_samples = [samples[name] for name in planned.arms]
        four = interaction_sample(four_samples)
        diverged = [arm for arm in planned.arms if (arm, "diverged") in ended]
        collapsed = [arm for arm in planned.arms if collapsed_seeds(samples[arm].values, plan)]
        p = looks.p_value(four, plan)
        tested.append(
            JudgedInteraction(planned, four, logit_interaction(four_samples, plan), p, None, diverged, collapsed)
        )
    judged = [interaction.p if unjudged.isdisjoint(interaction.planned.arms) else None for interaction in tested]
    p_holm = verdict.holm(judged, len(tested))
    return [replace(interaction, p_holm=adjusted) for interaction, adjusted in zip(tested, p_holm, strict=True)]


def interaction_sample(four: Sequence[Sample]) -> Sample:
    """Return ab - a - b + baseline over the seeds that all arms finished. four: samples of ab, a, b and baseline."""
    ab, a, b, baseline = four
    return (ab - a) - (b - baseline)


def logit_interaction(four: Sequence[Sample], plan: Plan) -> Estimate | None:
    """Return the mean interaction of accuracies on the logit scale, or None for another metric."""
    if plan.split is None or not plan.primary_metric.is_accuracy:
        return None
    images = plan.split.images_per_test
    return interaction_sample([logits(sample, images) for sample in four]).mean


def logits(sample: Sample, images: float) -> Sample:
    """Return the sample with accuracies k / m on m `images` as empirical logits, finite at 0 and 1 (Haldane 1956)."""
    odds = {s: (v * images + 0.5) / ((1 - v) * images + 0.5) for s, v in sample.values.items()}
    return replace(sample, values={s: float(np.log(value)) for s, value in odds.items()}, correct={}, image=0.0)
