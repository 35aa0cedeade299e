"""Claims: what a study's source says of two arms, judged by our trials. "a < b": lower, "a ~ b": a tie."""

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from results import units
from results.statistics import contrast, inference, tuned_pairs, verdict
from results.statistics.contrast import Sample
from results.statistics.inference import Estimate
from results.statistics.tuned_pairs import Pair
from results.statistics.verdict import ALPHA, BETTER, EQUIVALENT, WORSE
from results.style import current

AGREE, DISAGREE, UNRESOLVED = "agree", "disagree", "not-resolved"
CLAIM = re.compile(r"\s*(.+?) ([<~]) (.+?)\s*", re.DOTALL)  # an arm may be called anything

NUMBERS = ("verdict", "delta", "delta_ci95", "p_holm", "n_pairs")

SAID = {AGREE: "agrees", DISAGREE: "disagrees", UNRESOLVED: "not resolved", None: "untested"}

Row = Mapping[str, Any]
Claim = dict[str, Any]


def judge(
    plan: Mapping[str, Any],
    rows: Sequence[Row],
    samples: Mapping[str, Sample],
    within: Mapping[str, float | None],
    unjudged: Collection[str] = (),
    gone: Collection[str] = (),
) -> list[Claim]:
    """agree, disagree or not-resolved for each claim, at each point of the study's curves; None where untested.

    An arm and its own baseline are judged with the table's p; the other pairs are a Holm family of their own. Of what
    is tuned, each arm at its own value. within: the table's p of equivalence, by arm. unjudged: arms whose value was
    not found inside the grid; gone: points of grids that are nobody's best (results/statistics/tuning.py).
    Raises ValueError for a claim that is not "a < b" or "a ~ b".
    """
    of = {row["arm"]: row for row in rows}
    asked = [point for text in plan["claims"] for point in points(text, plan)]
    there = [(a, b) for a, _, b in asked if a in of and b in of]
    found = {(a, b): tuned_pairs.pair(a, b, plan, samples, gone) for a, b in there}
    p_holm: dict[tuple[str, str], float | None] = {
        (a, b): of[contrast_of(of[a], of[b])]["p_holm"] for a, b in there if is_contrast(of[a], of[b])
    }
    own = [pair for pair in found if pair not in p_holm]
    p = [None if {*names} & set(unjudged) else tuned_pairs.p(found[names], plan) for names in own]
    adjusted = inference.holm(p, len(own))
    p_holm |= dict(zip(own, adjusted, strict=True))
    ties = {(a, b): within[contrast_of(of[a], of[b])] for a, b in there if is_contrast(of[a], of[b])}
    p_within = [tuned_pairs.p_within(found[names], plan["margin"], plan) for names in own]
    ties |= zip(own, inference.holm(p_within, len(own)), strict=True)
    return [
        judged(plan, of, claim, found.get(claim[::2]), p_holm.get(claim[::2]), ties.get(claim[::2])) for claim in asked
    ]


def points(text: str, plan: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(a, relation, b) of a claim; where it names no point of the curves, once for each."""
    try:
        a, relation, b = parts(text)
    except ValueError as error:
        raise ValueError(f"{plan['name']}: {error}") from None
    names = {arm["name"] for arm in plan["arms"]}
    if {a, b} <= names or not plan["curves"]:
        yield a, relation, b
        return
    curves = plan["curves"] | {name: ["tuned"] for name in plan.get("tune", {})}
    for values in itertools.product(*curves.values()):
        point = "".join(f",{name}={value}" for name, value in zip(curves, values, strict=True))
        yield a + point, relation, b + point


def parts(text: str) -> tuple[str, str, str]:
    """(a, relation, b) of a claim. Raises ValueError for what is none."""
    if not (match := CLAIM.fullmatch(text)):
        raise ValueError(f"claim '{text}' is not 'arm < arm' or 'arm ~ arm'")
    a, relation, b = match.groups()
    return a, relation, b


def told(text: str) -> str:
    """The claim with the labels that the style has for its arms."""
    a, relation, b = parts(text)
    return f"{current().label(a)} {relation} {current().label(b)}"


def said(verdict: str | None) -> str:
    """The verdict in words."""
    return SAID[verdict]


def is_contrast(a: Row, b: Row) -> bool:
    """Whether the table itself tests this pair."""
    return a["arm"] != b["arm"] and bool(a["baseline"] == b["arm"] or b["baseline"] == a["arm"])


def contrast_of(a: Row, b: Row) -> str:
    """Which of the two is the arm of the table's contrast."""
    return str((a if a["baseline"] == b["arm"] else b)["arm"])


def judged(
    plan: Mapping[str, Any],
    of: Mapping[str, Row],
    claim: tuple[str, str, str],
    pair: Pair | None,
    p_holm: float | None,
    p_within: float | None,
) -> Claim:
    """One claim; no `pair` where an arm is not in the plan."""
    a, relation, b = claim
    text = f"{a} {relation} {b}"
    if pair is None:
        absent = ", ".join(name for name in (a, b) if name not in of)
        return {"claim": text, **dict.fromkeys(NUMBERS), "note": f"no arm {absent} in the plan"}
    difference = contrast.mean(pair.own)
    interval = difference.interval()
    diverged = of[a]["diverged"], of[b]["diverged"]
    higher = units.higher_is_better(plan["metric"])
    tie = p_within is not None and p_within < ALPHA
    word = verdict.verdict(difference, p_holm, tie=tie, higher_is_better=higher, diverged=diverged)
    tie = tie and not any(diverged)
    return {
        "claim": text,
        "verdict": tied(word, tie) if relation == "~" else lower(word, difference.value),
        "delta": difference.value,
        "delta_ci95": None if interval is None else list(interval),
        "p_holm": p_holm,
        "n_pairs": difference.n,
        "note": note(unresolvable(difference, p_holm), relation, word, plan),
    }


def lower(word: str | None, difference: float | None) -> str | None:
    """Of "a < b". Only the resolved opposite contradicts it: within the margin a may still be lower.

    How much lower the source found it says nothing of that: its numbers are of another setting.
    """
    if word is None or difference is None:
        return None
    if word in (BETTER, WORSE):
        return AGREE if difference < 0 else DISAGREE
    return UNRESOLVED


def tied(word: str | None, tie: bool) -> str | None:
    """Of "a ~ b". A resolved difference that lies within the margin is a tie all the same."""
    if word is None:
        return None
    if tie:
        return AGREE
    return DISAGREE if word in (BETTER, WORSE) else UNRESOLVED


def unresolvable(difference: Estimate, p_holm: float | None) -> str:
    """Why there is no verdict; "" where there is one."""
    if difference.why or p_holm is not None:
        return difference.why
    return "the best value of an arm lies at the edge of its grid"


def note(why: str, relation: str, word: str | None, plan: Mapping[str, Any]) -> str:
    margin = plan["margin"]
    if why:
        return f"untested: {why}"
    if relation == "~":
        return "no margin declared within which arms tie" if margin is None else ""
    within = f"equivalent within {units.unit(plan['metric']).size(margin)}" if word == EQUIVALENT else ""
    return within and f"{within}: a smaller difference is not excluded"
