"""Verdicts on the claims that a study quotes from its source, judged by the study's trials."""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from results.records import AGREE, DISAGREE, UNRESOLVED, Parts, Row, parse_claim
from results.statistics import tuned_pairs, verdict
from results.statistics.contrast import Sample
from results.statistics.tuned_pairs import Pair
from results.statistics.verdict import RESOLVED, Tie
from results.store.schemas import Plan

Arms = tuple[str, str]


@dataclass(frozen=True)
class PairTest:
    """The tests of two claimed arms a and b. pair: the differences a - b. tie: None without a margin.

    p_holm, p_margin: adjusted p values of no difference and of equivalence, None without a test. is_reversed: whether
    the table has a row for b - a, and none for a - b.
    """

    pair: Pair
    tie: Tie | None
    p_holm: float | None
    p_margin: float | None
    is_reversed: bool


@dataclass(frozen=True)
class JudgedClaim:
    """A claim with its verdict: agree, disagree, not-resolved, or None if untested.

    test: None if the plan lacks an arm. word: the verdict on the difference a - b. absent: claimed arms that the plan
    lacks.
    """

    parts: Parts
    test: PairTest | None
    word: str | None = None
    verdict: str | None = None
    absent: Sequence[str] = ()


def judge_claims(
    plan: Plan,
    rows: Mapping[str, Row],
    samples: Mapping[str, Sample],
    p_margins: Mapping[str, float | None],
    unjudged: Collection[str],
    unstable_points: Collection[str],
) -> list[JudgedClaim]:
    """Return the study's claims with verdicts, one for each claim that `claims_at_points` yields.

    A claim about an arm and its baseline takes its p values from the table. All other pairs of arms form a separate
    Holm family. A claim about an arm that the plan lacks is untested.

    rows: arm -> row. samples: arm -> sample. p_margins: arm -> adjusted p value of equivalence in the table. unjudged:
    arms without a verdict because a best value lies at the edge of the grid. unstable_points: grid points left out (see
    `TuningGrid.unstable_points`). Raises ValueError if a claim is not "a < b" or "a ~ b".
    """
    claimed = [parts for text in plan.claims for parts in claims_at_points(text, plan)]
    pairs = {}
    for a, _, b in claimed:
        if a in rows and b in rows:
            pairs[a, b] = tuned_pairs.pair(a, b, plan, samples, unstable_points, rows[a].baseline)
    tests = pair_tests(pairs, plan, rows, p_margins, unjudged)
    judged = []
    for parts in claimed:
        a, _, b = parts
        if (a, b) in tests:
            judged.append(judged_claim(plan, rows, parts, tests[a, b]))
        else:
            judged.append(JudgedClaim(parts, None, absent=[name for name in (a, b) if name not in rows]))
    return judged


def pair_tests(
    pairs: Mapping[Arms, Pair],
    plan: Plan,
    rows: Mapping[str, Row],
    p_margins: Mapping[str, float | None],
    unjudged: Collection[str],
) -> dict[Arms, PairTest]:
    """Return the tests of all claimed pairs of arms. The arguments are those of `judge_claims`."""
    ties = {}
    for (a, b), pair in pairs.items():
        ties[a, b] = tuned_pairs.tie(pair, plan, rows[rows[a].baseline].mean)
    contrasts = {arms: contrast_of(*arms, rows) for arms in pairs}
    p_holm = {arms: rows[arm].p_holm for arms, arm in contrasts.items() if arm}
    p_margin = {arms: p_margins[arm] for arms, arm in contrasts.items() if arm}
    others = [arms for arms, arm in contrasts.items() if not arm]
    p = list[float | None]()
    p_equivalence = list[float | None]()
    for arms in others:
        tie = ties[arms]
        at_edge = not set(arms).isdisjoint(unjudged)
        within = None if at_edge or (tie and tie.too_wide) else tuned_pairs.p_equivalence(pairs[arms], plan)
        p.append(None if at_edge else tuned_pairs.p_value(pairs[arms], plan))
        p_equivalence.append(within)
    p_holm |= zip(others, verdict.holm(p, len(others)), strict=True)
    p_margin |= zip(others, verdict.holm(p_equivalence, len(others)), strict=True)
    tests = {}
    for a, b in pairs:
        is_reversed = rows[b].baseline == a and rows[a].baseline != b
        tests[a, b] = PairTest(pairs[a, b], ties[a, b], p_holm[a, b], p_margin[a, b], is_reversed)
    return tests


def contrast_of(a: str, b: str, rows: Mapping[str, Row]) -> str | None:
    """Return which of two arms has the other as its baseline, or None if neither has."""
    if a == b:
        return None
    if rows[b].baseline == a:
        return b
    return a if rows[a].baseline == b else None


def claims_at_points(text: str, plan: Plan) -> Iterator[Parts]:
    """Yield the claim (a, relation, b) once per point of the plan's curves, with the point added to both arms.

    A tuned setting has the value "tuned" only. If there are no curves, or a and b are arms of the plan, the claim stays
    as it is. Raises ValueError if `text` is not a claim.
    """
    try:
        a, relation, b = parse_claim(text)
    except ValueError as error:
        raise ValueError(f"{plan.name}: {error}") from None
    if {a, b} <= {arm.name for arm in plan.arms} or not plan.curves:
        yield a, relation, b
        return
    curves = plan.curves | {name: ["tuned"] for name in plan.tune}
    for values in itertools.product(*curves.values()):
        point = "".join(f",{name}={value}" for name, value in zip(curves, values, strict=True))
        yield a + point, relation, b + point


def judged_claim(plan: Plan, rows: Mapping[str, Row], parts: Parts, test: PairTest) -> JudgedClaim:
    """Return a claim with its verdict. Without `p_holm` it is untested, without `p_margin` never equivalent."""
    a, relation, b = parts
    difference = test.pair.own.mean
    unstable = rows[a].unstable, rows[b].unstable
    higher = plan.primary_metric.higher_is_better
    word = verdict.verdict(difference, test.p_holm, test.p_margin, higher_is_better=higher, unstable=unstable)
    within = verdict.is_significant(test.p_margin) and not any(unstable)
    return JudgedClaim(parts, test, word, verdict_on_claim(relation, word, difference.value, within))


def verdict_on_claim(relation: str, word: str | None, difference: float | None, tie: bool) -> str | None:
    """Return agree, disagree or not-resolved for a claim, or None if untested. word: the verdict on a - b."""
    if word is None or (relation == "<" and difference is None):
        return None
    # A tie may also be resolved. No size is judged, as the source's numbers come from another setting.
    agrees = tie if relation == "~" else word in RESOLVED and (difference or 0.0) < 0
    if agrees:
        return AGREE
    return DISAGREE if word in RESOLVED else UNRESOLVED
