"""Judge a source's claims by our trials: "a < b" says that a is lower than b, "a ~ b" that a and b tie."""

import itertools
import re
from collections.abc import Collection, Iterator, Mapping

from results import units
from results.records import Claim, Row
from results.statistics import inference, tuned_pairs, verdict
from results.statistics.contrast import Sample
from results.statistics.inference import Estimate
from results.statistics.tuned_pairs import Pair
from results.statistics.verdict import BETTER, EQUIVALENT, WORSE
from results.store.schemas import Plan
from results.style import current

AGREE, DISAGREE, UNRESOLVED = "agree", "disagree", "not-resolved"
CLAIM = re.compile(r"\s*(.+?) ([<~]) (.+?)\s*", re.DOTALL)  # an arm may be called anything
VERDICT_TEXT = {AGREE: "agrees", DISAGREE: "disagrees", UNRESOLVED: "not resolved", None: "untested"}


def judge_claims(
    plan: Plan,
    rows: Mapping[str, Row],
    samples: Mapping[str, Sample],
    p_margins: Mapping[str, float | None],
    unjudged: Collection[str] = (),
    gone: Collection[str] = (),
) -> list[Claim]:
    """Judge each claim at each point of the study's curves: agree, disagree, not-resolved; None where untested.

    An arm against its own baseline takes the table's p. All other pairs form a Holm family of their own. Tuned arms
    are compared at their tuned values.

    rows: rows of the study's table, by arm. p_margins: p of equivalence in that table, by arm. unjudged: arms whose
    best value lies at the edge of the grid. gone: grid points excluded because trials diverged.

    Raises ValueError for a claim that is not "a < b" or "a ~ b".
    """
    asked = [point for text in plan.claims for point in claims_at_points(text, plan)]
    known = list(dict.fromkeys((a, b) for a, _, b in asked if a in rows and b in rows))
    pairs = {(a, b): tuned_pairs.pair(a, b, plan, samples, gone) for a, b in known}
    contrasts = {(a, b): contrast_arm(rows[a], rows[b]) for a, b in known if is_contrast(rows[a], rows[b])}
    p_holm = {names: rows[arm].p_holm for names, arm in contrasts.items()}
    p_margin = {names: p_margins[arm] for names, arm in contrasts.items()}
    own = [names for names in known if names not in contrasts]
    p = [None if {*names} & set(unjudged) else tuned_pairs.p_value(pairs[names], plan) for names in own]
    p_holm |= zip(own, inference.holm(p, len(own)), strict=True)
    p_within = [tuned_pairs.p_equivalence(pairs[names], plan.margin, plan) for names in own]
    p_margin |= zip(own, inference.holm(p_within, len(own)), strict=True)
    return [
        judged_claim(plan, rows, claim, pairs[names], p_holm[names], p_margin[names])
        if (names := claim[::2]) in pairs
        else absent_claim(claim, rows)
        for claim in asked
    ]


def claims_at_points(text: str, plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Yield (a, relation, b) for each point of the curves, or once for a claim whose arms name a point."""
    try:
        a, relation, b = parse_claim(text)
    except ValueError as error:
        raise ValueError(f"{plan.name}: {error}") from None
    names = {arm.name for arm in plan.arms}
    if {a, b} <= names or not plan.curves:
        yield a, relation, b
        return
    curves = plan.curves | {name: ["tuned"] for name in plan.tune}
    for values in itertools.product(*curves.values()):
        point = "".join(f",{name}={value}" for name, value in zip(curves, values, strict=True))
        yield a + point, relation, b + point


def parse_claim(text: str) -> tuple[str, str, str]:
    """Split a claim into (a, relation, b). Raises ValueError for any other form."""
    if not (match := CLAIM.fullmatch(text)):
        raise ValueError(f"claim '{text}' is not 'arm < arm' or 'arm ~ arm'")
    a, relation, b = match.groups()
    return a, relation, b


def with_labels(text: str) -> str:
    """Write a claim with the current style's labels for its arms."""
    a, relation, b = parse_claim(text)
    return f"{current().label(a)} {relation} {current().label(b)}"


def verdict_text(verdict: str | None) -> str:
    """Return the verdict on a claim as words for a reader."""
    return VERDICT_TEXT[verdict]


def is_contrast(a: Row, b: Row) -> bool:
    """Tell whether the table itself tests this pair of arms."""
    return a.arm != b.arm and (a.baseline == b.arm or b.baseline == a.arm)


def contrast_arm(a: Row, b: Row) -> str:
    """Return the arm of a contrast that is not the baseline."""
    return (a if a.baseline == b.arm else b).arm


def absent_claim(claim: tuple[str, str, str], rows: Mapping[str, Row]) -> Claim:
    """Return the untested claim about an arm that the plan lacks."""
    absent = ", ".join(name for name in claim[::2] if name not in rows)
    return Claim(" ".join(claim), note=f"no arm {absent} in the plan")


def judged_claim(
    plan: Plan,
    rows: Mapping[str, Row],
    claim: tuple[str, str, str],
    pair: Pair,
    p_holm: float | None,
    p_margin: float | None,
) -> Claim:
    """Judge one claim about two arms of the plan."""
    a, relation, b = claim
    difference = pair.own.mean
    diverged = rows[a].diverged, rows[b].diverged
    higher = units.higher_is_better(plan.metric)
    word = verdict.verdict(difference, p_holm, p_margin, higher_is_better=higher, diverged=diverged)
    tie = verdict.is_significant(p_margin) and not any(diverged)
    return Claim(
        claim=" ".join(claim),
        verdict=verdict_on_tie(word, tie) if relation == "~" else verdict_on_lower(word, difference.value),
        delta=difference.value,
        delta_ci95=difference.interval(),
        p_holm=p_holm,
        n_pairs=difference.n,
        note=claim_note(why_untested(difference, p_holm), relation, word, plan),
    )


def verdict_on_lower(word: str | None, difference: float | None) -> str | None:
    """Judge "a < b". Only a resolved difference in the opposite direction contradicts it.

    The size of the difference is not judged, as the source's numbers come from another setting.
    """
    if word is None or difference is None:
        return None
    if word in (BETTER, WORSE):
        return AGREE if difference < 0 else DISAGREE
    return UNRESOLVED


def verdict_on_tie(word: str | None, tie: bool) -> str | None:
    """Judge "a ~ b". A resolved difference that lies within the margin still counts as a tie."""
    if word is None:
        return None
    if tie:
        return AGREE
    return DISAGREE if word in (BETTER, WORSE) else UNRESOLVED


def why_untested(difference: Estimate, p_holm: float | None) -> str:
    """Explain why a claim has no verdict; "" where it has one."""
    if difference.why or p_holm is not None:
        return difference.why
    return "the best value of an arm lies at the edge of its grid"


def claim_note(why: str, relation: str, word: str | None, plan: Plan) -> str:
    """Explain a missing verdict, a missing margin, or a difference too small to exclude."""
    margin = plan.margin
    if why:
        return f"untested: {why}"
    if relation == "~":
        return "no margin declared within which arms tie" if margin is None else ""
    within = f"equivalent within {units.unit(plan.metric).size(margin)}" if word == EQUIVALENT and margin else ""
    return within and f"{within}: a smaller difference is not excluded"
