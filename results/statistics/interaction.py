"""Interactions: whether two changes together do what each does alone, added up: ab - a - b + baseline, seed by seed.

On the metric and, for an accuracy, on its logit: near 100% there is little room for a sum, so an interaction may be
one of the scale. It is claimed only where both have the same sign.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from results import units
from results.statistics import contrast, inference, interim
from results.statistics.contrast import Sample
from results.statistics.inference import Estimate
from results.statistics.verdict import ALPHA, UNRESOLVED
from results.study_results import StudyResults
from results.style import current

POSITIVE, NEGATIVE = "positive", "negative"
ROLES = ("ab", "a", "b", "baseline")

Interaction = dict[str, Any]


def judge(study: StudyResults, samples: Mapping[str, Sample], unjudged: Collection[str] = ()) -> list[Interaction]:
    """Every planned interaction: a Holm family of their own, in which one without a number counts with p = 1.

    unjudged: arms whose own value of what is tuned was not found inside the grid.
    """
    planned = study.plan.get("interactions", [])  # plans written before the field existed have none
    found = [combined([samples[entry[role]] for role in ROLES]) for entry in planned]
    edge = [any(entry[role] in unjudged for role in ROLES) for entry in planned]
    p = [None if at_edge else interim.p(sample, study.plan) for sample, at_edge in zip(found, edge, strict=True)]
    p_holm = inference.holm(p, len(planned))
    return [
        judged(study, entry, samples, contrast.mean(sample), adjusted)
        for entry, sample, adjusted in zip(planned, found, p_holm, strict=True)
    ]


def combined(four: Sequence[Sample]) -> Sample:
    """ab - a - b + baseline over the seeds that all four finished."""
    ab, a, b, baseline = four
    return (ab - a) - (b - baseline)


def judged(
    study: StudyResults,
    entry: Mapping[str, str],
    samples: Mapping[str, Sample],
    estimate: Estimate,
    p_holm: float | None,
) -> Interaction:
    four = [samples[entry[role]] for role in ROLES]
    scale = units.is_accuracy(study.plan["metric"])
    logit = contrast.mean(combined([logits(sample, tested(study)) for sample in four])) if scale else None
    diverged = lost(study, [entry[role] for role in ROLES])
    word = verdict(estimate, logit, p_holm, bool(diverged))
    return {
        "name": entry["name"],
        "arms": [entry[role] for role in ROLES],
        "n": estimate.n,
        "interaction": estimate.value,
        "ci95": bounds(estimate),
        "logit": logit.value if logit else None,
        "logit_ci95": bounds(logit) if logit else None,
        "p": estimate.p,
        "p_holm": p_holm,
        "verdict": word,
        "notes": notes(estimate, logit, p_holm, diverged),
    }


def bounds(estimate: Estimate) -> list[float] | None:
    interval = estimate.interval()
    return None if interval is None else list(interval)


def tested(study: StudyResults) -> float:
    """How many images a trial tests."""
    split = study.plan["split"]
    return float(split["images"]) / float(split.get("folds") or 1)


def logits(sample: Sample, images: float) -> Sample:
    """The empirical logit of accuracies k / m, log((k + 1/2) / (m - k + 1/2)): finite for 0 and 1 (Haldane 1956).

    Images right or wrong have no logit: `correct` and `image` are dropped, and the interval is that of the seeds.
    """
    odds = {s: (v * images + 0.5) / ((1 - v) * images + 0.5) for s, v in sample.values.items()}
    return replace(sample, values={s: float(np.log(value)) for s, value in odds.items()}, correct={}, image=0.0)


def lost(study: StudyResults, arms: Sequence[str]) -> list[str]:
    """Which of the arms have trials that diverged."""
    ended = zip(study.columns["arm"], study.columns["status"], strict=True)
    gone = {arm for arm, status in ended if status == "diverged"}
    return [arm for arm in arms if arm in gone]


def verdict(estimate: Estimate, logit: Estimate | None, p_holm: float | None, diverged: bool) -> str | None:
    """positive, negative or not-resolved; None where the data allow no test."""
    if p_holm is None or estimate.value is None:
        return None
    if p_holm >= ALPHA or diverged or opposed(estimate, logit):
        return UNRESOLVED
    return POSITIVE if estimate.value > 0 else NEGATIVE


def opposed(estimate: Estimate, logit: Estimate | None) -> bool:
    """Whether the logit says the opposite of the metric, or nothing."""
    if logit is None or logit.value is None or estimate.value is None:
        return False
    return logit.value * estimate.value <= 0


def notes(estimate: Estimate, logit: Estimate | None, p_holm: float | None, diverged: Sequence[str]) -> list[str]:
    """Why there is no verdict, or not the one that p suggests."""
    said = [f"untested: {estimate.why}"] if estimate.why else []
    if p_holm is None and not estimate.why:
        said.append("untested: the best value of an arm lies at the edge of its grid")
    resolved = p_holm is not None and p_holm < ALPHA
    if resolved and opposed(estimate, logit):
        said.append("its logit has the opposite sign: an interaction of the scale")
    if resolved and diverged:
        said.append(f"trials of {', '.join(diverged)} diverged")
    return said


def sentence(interaction: Interaction, metric: str) -> str:
    """ "position=2d,position_at=shared: +0.40 points (95% CI -0.31 to +1.10; logit +0.05): not resolved" """
    unit, name = units.unit(metric), current().label(interaction["name"])
    if interaction["interaction"] is None:
        return f"{name}: {'; '.join(interaction['notes'])}"
    inside = []
    if interaction["ci95"]:
        inside.append(f"95% CI {' to '.join(map(unit.signed, interaction['ci95']))}")
    if interaction["logit"] is not None:
        inside.append(f"logit {interaction['logit']:+.2f}")
    size = f"{unit.signed(interaction['interaction'])}{unit.of_difference}"
    word = (interaction["verdict"] or "no verdict").replace("-", " ")
    why = "; ".join(interaction["notes"])
    within = f" ({'; '.join(inside)})" if inside else ""
    return f"{name}: {size}{within}: {word}{why and f' ({why})'}"
