"""Verdicts on the claims that a study quotes from its source, and on interactions of changes.

An interaction tells whether the effects of two changes add up, measured seed by seed as ab - a - b + baseline. The arm
ab has both changes, and the arms a and b have one each. An accuracy's interaction is also estimated on the logit scale.
Near 100% the sum of two gains is compressed, so an interaction may be an artifact of the scale. An interaction is
claimed only where it has the same sign on both scales.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from results.claim_text import AGREE, DISAGREE, UNRESOLVED, Parts, parse_claim
from results.statistics import looks, verdict
from results.statistics.arms import ArmResults, Contrast, adjusted, pair_of
from results.statistics.contrast import Measured, Sample, difference
from results.statistics.intervals import Estimate
from results.statistics.verdict import RESOLVED, is_significant
from results.store.schemas.plans import Interaction, Plan

POSITIVE, NEGATIVE = "positive", "negative"


@dataclass(frozen=True)
class JudgedClaim:
    """A claim about two arms with its test, None if the plan lacks an arm.

    The test is the table's contrast of the two arms, whichever is the baseline, or else the contrast a - b.
    """

    parts: Parts
    test: Contrast | None
    absent: Sequence[str] = ()

    @property
    def verdict(self) -> str | None:
        if self.test is None:
            return None
        a, relation, _ = self.parts
        word = self.test.verdict
        difference = self.test.pair.own.mean.value
        if word is None or (relation == "<" and difference is None):
            return None
        # A tie may also be resolved. No size is judged, as the source's numbers come from another setting.
        if relation == "~":
            agrees = is_significant(self.test.p_margin) and not any(self.test.unstable)
        else:
            sign = 1 if self.test.arm.name == a else -1
            agrees = word in RESOLVED and sign * (difference or 0.0) < 0
        if agrees:
            return AGREE
        if word in RESOLVED:
            return DISAGREE
        return UNRESOLVED


def judge_claims(plan: Plan, arms: Mapping[str, ArmResults], contrasts: Mapping[str, Contrast]) -> list[JudgedClaim]:
    """Return the study's claims with verdicts, one for each claim that `claims_at_points` yields.

    A claim about an arm and its baseline takes its p values from the table. All other pairs of arms form a separate
    Holm family, with margins as shares of the error of a's baseline. Raises ValueError if a claim is not "a < b" or "a
    ~ b".
    """
    claimed: list[Parts] = []
    for text in plan.claims:
        claimed += claims_at_points(text, plan)
    others = {}
    for a, _, b in claimed:
        if a in arms and b in arms and table_contrast(a, b, contrasts) is None:
            baseline = arms[arms[a].arm.baseline]
            pair = pair_of(arms[a], arms[b], baseline, plan)
            tie = pair.tie(baseline.sample.mean.value, plan.chance_of(baseline.arm))
            untested = Contrast(arms[a], arms[b], pair, tie, None)
            others[a, b] = untested if untested.is_stopped else replace(untested, p=pair.p_value)
    tests = dict(zip(others, adjusted([*others.values()], len(others)), strict=True))
    judged = []
    for parts in claimed:
        a, _, b = parts
        absent = [name for name in (a, b) if name not in arms]
        judged.append(JudgedClaim(parts, table_contrast(a, b, contrasts) or tests.get((a, b)), absent))
    return judged


def table_contrast(a: str, b: str, contrasts: Mapping[str, Contrast]) -> Contrast | None:
    for arm, baseline in ((a, b), (b, a)):
        if arm in contrasts and contrasts[arm].baseline.name == baseline:
            return contrasts[arm]
    return None


def claims_at_points(text: str, plan: Plan) -> Iterator[Parts]:
    """Yield the claim (a, relation, b) once per point of the plan's curves, with the point added to both arms.

    A tuned setting has the value "tuned" only. Raises ValueError if `text` is not a claim.
    """
    try:
        a, relation, b = parse_claim(text)
    except ValueError as error:
        raise ValueError(f"{plan.name}: {error}") from None
    if {a, b} <= plan.arms_by_name.keys() or not plan.curves:
        yield a, relation, b
        return
    curves = plan.curves | {name: ["tuned"] for name in plan.tune}
    for values in itertools.product(*curves.values()):
        point = "".join(f",{name}={value}" for name, value in zip(curves, values, strict=True))
        yield a + point, relation, b + point


# -- interactions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JudgedInteraction:
    """An interaction with its estimates and verdict: positive, negative, not-resolved, or None if untested.

    four: ab - a - b + baseline. logit: the same on the logit scale, without a value unless the metric is an accuracy.
    """

    planned: Interaction
    arms: Sequence[ArmResults]
    four: Measured
    logit: Estimate
    p: float | None
    p_holm: float | None = None

    @property
    def judged_p(self) -> float | None:
        if any(arm.is_at_edge for arm in self.arms):
            return None
        return self.p

    @property
    def diverged(self) -> list[str]:
        return [arm.name for arm in self.arms if arm.count("diverged")]

    @property
    def collapsed(self) -> list[str]:
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
    """Return all planned interactions, corrected as one Holm family; those of arms that a race stopped are untested."""
    tested = []
    for planned in plan.interactions:
        four_arms = [arms[name] for name in planned.arms]
        four = interaction([arm.sample for arm in four_arms], plan.is_paired)
        logit = Estimate(0, None)
        split = plan.split_of(four_arms[0].arm)
        if split is not None and plan.primary_metric.is_accuracy:
            images = split.images_per_test
            logit = interaction([logits(arm.sample, images) for arm in four_arms], plan.is_paired).mean
        p = None
        if not any(arm.is_stopped for arm in four_arms):
            p = looks.p_value(four, plan)
        tested.append(JudgedInteraction(planned, four_arms, four, logit, p))
    p_holm = verdict.holm([judged.judged_p for judged in tested], len(tested))
    return [replace(judged, p_holm=adjusted) for judged, adjusted in zip(tested, p_holm, strict=True)]


def interaction(four: Sequence[Sample], is_paired: bool) -> Measured:
    """Return ab - a - b + baseline, over common seeds if paired. four: samples of ab, a, b and baseline."""
    ab, a, b, baseline = four
    return difference(difference(ab, a, is_paired), difference(b, baseline, is_paired), is_paired)


def logits(sample: Sample, images: float) -> Sample:
    """Return the sample with accuracies k / m on m `images` as empirical logits, finite at 0 and 1 (Haldane 1956)."""
    values = {}
    for seed, value in sample.values.items():
        odds = (value * images + 0.5) / ((1 - value) * images + 0.5)
        values[seed] = float(np.log(odds))
    return replace(sample, values=values, correct={}, image=0.0)
