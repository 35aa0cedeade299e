"""Interactions: whether the effects of two changes add up, measured seed by seed as ab - a - b + baseline.

The arm ab has both changes, and the arms a and b have one each. An accuracy's interaction is also estimated on the
logit scale. Near 100% the sum of two gains is compressed, so an interaction may be an artifact of the scale. An
interaction is claimed only where it has the same sign on both scales.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from results.statistics import looks, verdict
from results.statistics.arms import ArmResults
from results.statistics.contrast import Sample
from results.statistics.intervals import Estimate
from results.statistics.verdict import UNRESOLVED, is_significant
from results.store.schemas import Interaction, Plan

POSITIVE, NEGATIVE = "positive", "negative"


@dataclass(frozen=True)
class JudgedInteraction:
    """An interaction with its estimates and verdict: positive, negative, not-resolved, or None if untested.

    arms: those of `planned`. four: ab - a - b + baseline by seed. logit: the same on the logit scale, without a value
    unless the metric is an accuracy.
    """

    planned: Interaction
    arms: Sequence[ArmResults]
    four: Sample
    logit: Estimate
    p: float | None
    p_holm: float | None = None

    @property
    def judged_p(self) -> float | None:
        """The unadjusted p value, or None if a best value of an arm lies at the edge of its grid."""
        if any(arm.is_at_edge for arm in self.arms):
            return None
        return self.p

    @property
    def diverged(self) -> list[str]:
        """The arms with trials that diverged."""
        return [arm.name for arm in self.arms if arm.count("diverged")]

    @property
    def collapsed(self) -> list[str]:
        """The arms with trials that collapsed."""
        return [arm.name for arm in self.arms if arm.collapsed]

    @property
    def is_of_the_scale(self) -> bool:
        """Whether the logit has the opposite sign."""
        value = self.four.mean.value
        if value is None or self.logit.value is None:
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


def judge_interactions(plan: Plan, arms: Mapping[str, ArmResults]) -> list[JudgedInteraction]:
    """Return all planned interactions with estimates and verdicts, corrected as one Holm family."""
    tested = []
    for planned in plan.interactions:
        four_arms = [arms[name] for name in planned.arms]
        four = interaction_sample([arm.sample for arm in four_arms])
        logit = Estimate(0, None)
        if plan.split is not None and plan.primary_metric.is_accuracy:
            images = plan.split.images_per_test
            logit = interaction_sample([logits(arm.sample, images) for arm in four_arms]).mean
        tested.append(JudgedInteraction(planned, four_arms, four, logit, looks.p_value(four, plan)))
    p_holm = verdict.holm([interaction.judged_p for interaction in tested], len(tested))
    return [replace(interaction, p_holm=adjusted) for interaction, adjusted in zip(tested, p_holm, strict=True)]


def interaction_sample(four: Sequence[Sample]) -> Sample:
    """Return ab - a - b + baseline over the seeds that all arms finished. four: samples of ab, a, b and baseline."""
    ab, a, b, baseline = four
    return (ab - a) - (b - baseline)


def logits(sample: Sample, images: float) -> Sample:
    """Return the sample with accuracies k / m on m `images` as empirical logits, finite at 0 and 1 (Haldane 1956)."""
    values = {}
    for seed, value in sample.values.items():
        odds = (value * images + 0.5) / ((1 - value) * images + 0.5)
        values[seed] = float(np.log(odds))
    return replace(sample, values=values, correct={}, image=0.0)
