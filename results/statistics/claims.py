"""Verdicts on the claims that a study quotes from its source, judged by the study's trials."""

import itertools
from collections.abc import Collection, Iterator, Mapping

from results.claim_text import AGREE, DISAGREE, UNRESOLVED, Parts, parse_claim
from results.records import Claim, Row
from results.statistics import p_values, tuned_pairs, verdict
from results.statistics.contrast import Sample
from results.statistics.tuned_pairs import Pair
from results.statistics.verdict import EQUIVALENT, RESOLVED, Tie
from results.store.schemas import Plan


def judge_claims(
    plan: Plan,
    rows: Mapping[str, Row],
    samples: Mapping[str, Sample],
    p_margins: Mapping[str, float | None],
    unjudged: Collection[str],
    gone: Collection[str],
) -> list[Claim]:
    """Return the study's claims with verdicts, one for each claim that `claims_at_points` yields.

    A claim about an arm and its baseline takes its p values from the table. All other pairs of arms form a separate
    Holm family. A claim about an arm that the plan lacks is untested.

    rows: arm -> row. samples: arm -> sample. p_margins: arm -> adjusted p value of equivalence in the table. unjudged:
    arms without a verdict because a best value lies at the edge of the grid. gone: grid points left out (see
    `tuning.unstable_points`). Raises ValueError if a claim is not "a < b" or "a ~ b".
    """
    asked = [point for text in plan.claims for point in claims_at_points(text, plan)]
    pairs = {
        (a, b): tuned_pairs.pair(a, b, plan, samples, gone, rows[a].baseline)
        for a, _, b in asked
        if a in rows and b in rows
    }
    ties = {(a, b): tuned_pairs.tie(pair, plan, rows[rows[a].baseline].mean) for (a, b), pair in pairs.items()}
    contrasts = {
        (a, b): arm for a, b in pairs for arm, other in ((a, b), (b, a)) if arm != other and rows[arm].baseline == other
    }
    p_holm = {names: rows[arm].p_holm for names, arm in contrasts.items()}
    p_margin = {names: p_margins[arm] for names, arm in contrasts.items()}
    own = [names for names in pairs if names not in contrasts]
    p = [None if {*names} & set(unjudged) else tuned_pairs.p_value(pairs[names], plan) for names in own]
    p_holm |= zip(own, p_values.holm(p, len(own)), strict=True)
    wide = {names for names, tie in ties.items() if tie and tie.too_wide}
    p_within = [None if names in wide else tuned_pairs.p_equivalence(pairs[names], plan) for names in own]
    p_margin |= zip(own, p_values.holm(p_within, len(own)), strict=True)
    found = []
    for claim in asked:
        names = claim[0], claim[2]
        if absent := [name for name in names if name not in rows]:
            found.append(Claim(" ".join(claim), note=f"no arm {', '.join(absent)} in the plan"))
        else:
            found.append(judged_claim(plan, rows, claim, pairs[names], ties[names], p_holm[names], p_margin[names]))
    return found


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


def judged_claim(
    plan: Plan,
    rows: Mapping[str, Row],
    claim: Parts,
    pair: Pair,
    tie: Tie | None,
    p_holm: float | None,
    p_margin: float | None,
) -> Claim:
    """Return a claim with its verdict, difference and note. pair: the differences a - b. tie: None without a margin.

    The difference is a - b, or b - a if the table has that row.

    p_holm, p_margin: adjusted p values of no difference and of equivalence. Without `p_holm` the claim is untested;
    without `p_margin` the arms are never judged equivalent.
    """
    (a, relation, b), difference = claim, pair.own.mean
    unstable = rows[a].unstable, rows[b].unstable
    higher = plan.primary_metric.higher_is_better
    word = verdict.verdict(difference, p_holm, p_margin, higher_is_better=higher, unstable=unstable)
    within = verdict.is_significant(p_margin) and not any(unstable)
    of_table = rows[b].baseline == a and rows[a].baseline != b
    shown = -difference if of_table else difference
    judged = verdict_on_claim(relation, word, difference.value, within)
    return Claim(
        claim=" ".join(claim),
        verdict=judged,
        delta=shown.value,
        delta_ci95=shown.interval(),
        p_holm=p_holm,
        n_pairs=difference.n,
        note=claim_note(relation, judged, word, pair.own, tie),
        of=f"{b} - {a}" if of_table else f"{a} - {b}",
    )


def verdict_on_claim(relation: str, word: str | None, difference: float | None, tie: bool) -> str | None:
    """Return agree, disagree or not-resolved for a claim, or None if untested. word: the verdict on a - b."""
    if word is None or (relation == "<" and difference is None):
        return None
    # A tie may also be resolved. No size is judged, as the source's numbers come from another setting.
    agrees = tie if relation == "~" else word in RESOLVED and (difference or 0.0) < 0
    if agrees:
        return AGREE
    return DISAGREE if word in RESOLVED else UNRESOLVED


def claim_note(relation: str, judged: str | None, word: str | None, pairs: Sample, tie: Tie | None) -> str:
    """Return a note on the verdict `judged` of a claim, or "" if it needs none. word: the verdict on `pairs`, a - b."""
    if judged is None:
        return f"untested: {pairs.mean.why or 'the best value of an arm lies at the edge of its grid'}"
    if relation == "~":
        if tie is None:
            return "no margin declared within which arms tie"
        return f"not called equivalent: {tie.too_wide}" if judged == UNRESOLVED and tie.too_wide else ""
    if word == verdict.UNRESOLVED:
        return "; ".join(verdict.images_notes(pairs.mean, pairs.tested))
    if word != EQUIVALENT or tie is None:
        return ""
    return f"equivalent within {tie.margin}: a smaller difference is not excluded"
