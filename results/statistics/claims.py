"""Verdicts on the claims that a study quotes from its source, judged by the study's trials."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from results.records import AGREE, DISAGREE, UNRESOLVED, Parts, parse_claim
from results.statistics.arms import ArmResults, Contrast, adjusted, paired
from results.statistics.verdict import RESOLVED, is_significant
from results.store.schemas import Plan


@dataclass(frozen=True)
class JudgedClaim:
    """A claim about two arms with its test, None if the plan lacks an arm. absent: the arms that the plan lacks.

    The test is the table's contrast of the two arms, whichever is the baseline, or else the contrast a - b.
    """

    parts: Parts
    test: Contrast | None
    absent: Sequence[str] = ()

    @property
    def verdict(self) -> str | None:
        """The verdict: agree, disagree, not-resolved, or None if untested."""
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
        return DISAGREE if word in RESOLVED else UNRESOLVED


def judge_claims(plan: Plan, arms: Mapping[str, ArmResults], contrasts: Mapping[str, Contrast]) -> list[JudgedClaim]:
    """Return the study's claims with verdicts, one for each claim that `claims_at_points` yields.

    A claim about an arm and its baseline takes its p values from the table. All other pairs of arms form a separate
    Holm family, with margins as shares of the error of a's baseline. A claim about an arm that the plan lacks is
    untested. contrasts: arm -> contrast with its baseline.
    Raises ValueError if a claim is not "a < b" or "a ~ b".
    """
    claimed = [parts for text in plan.claims for parts in claims_at_points(text, plan)]
    others = {}
    for a, _, b in claimed:
        if a in arms and b in arms and table_contrast(a, b, contrasts) is None:
            baseline = arms[arms[a].arm.baseline]
            pair = paired(arms[a], arms[b], baseline, plan)
            others[a, b] = Contrast(arms[a], arms[b], pair, pair.tie(baseline.sample.mean.value), pair.p_value)
    tests = dict(zip(others, adjusted([*others.values()], len(others)), strict=True))
    judged = []
    for parts in claimed:
        a, _, b = parts
        absent = [name for name in (a, b) if name not in arms]
        judged.append(JudgedClaim(parts, table_contrast(a, b, contrasts) or tests.get((a, b)), absent))
    return judged


def table_contrast(a: str, b: str, contrasts: Mapping[str, Contrast]) -> Contrast | None:
    """Return the contrast of two arms of which one is the other's baseline, or None if neither is."""
    for arm, baseline in ((a, b), (b, a)):
        if arm in contrasts and contrasts[arm].baseline.name == baseline:
            return contrasts[arm]
    return None


def claims_at_points(text: str, plan: Plan) -> Iterator[Parts]:
    """Yield the claim (a, relation, b) once per point of the plan's curves, with the point added to both arms.

    A tuned setting has the value "tuned" only. If there are no curves, or a and b are arms of the plan, the claim stays
    as it is. Raises ValueError if `text` is not a claim.
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
