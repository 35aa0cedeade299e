"""Interactions: whether the effects of two changes add up, measured seed by seed as ab - a - b + baseline.

The arm ab has both changes, and the arms a and b have one each. An accuracy's interaction is also estimated on the
logit scale. Near 100% the sum of two gains is compressed, so an interaction may be an artifact of the scale. An
interaction is claimed only where it has the same sign on both scales.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from results import collapse
from results.records import Interaction
from results.statistics import looks, p_values, verdict
from results.statistics.contrast import Sample
from results.statistics.verdict import UNRESOLVED, is_significant
from results.store.schemas import Interaction as Planned
from results.store.schemas import Metric
from results.study_results import StudyResults
from results.style import current_style

POSITIVE, NEGATIVE = "positive", "negative"


def judge_interactions(
    study: StudyResults, samples: Mapping[str, Sample], unjudged: Collection[str]
) -> list[Interaction]:
    """Return all planned interactions with estimates and verdicts, corrected as one Holm family.

    samples: arm -> sample. unjudged: arms without a verdict because a best value lies at the edge of the grid.
    """
    planned = study.plan.interactions
    found = [interaction_sample([samples[name] for name in entry.arms]) for entry in planned]
    p = [
        None if {*entry.arms} & {*unjudged} else looks.p_value(sample, study.plan)
        for entry, sample in zip(planned, found, strict=True)
    ]
    p_holm = p_values.holm(p, len(planned))
    return [judged_interaction(study, samples, *one) for one in zip(planned, found, p_holm, strict=True)]


def interaction_sample(four: Sequence[Sample]) -> Sample:
    """Return ab - a - b + baseline over the seeds that all arms finished. four: samples of ab, a, b and baseline."""
    ab, a, b, baseline = four
    return (ab - a) - (b - baseline)


def judged_interaction(
    study: StudyResults, samples: Mapping[str, Sample], entry: Planned, four: Sample, p_holm: float | None
) -> Interaction:
    estimate = four.mean
    logit = None
    split = study.plan.split
    if study.plan.primary_metric.is_accuracy and split is not None:
        images = split.images_per_test
        logit = interaction_sample([logits(samples[name], images) for name in entry.arms]).mean
    ended = {*zip(study.columns["arm"], study.columns["status"], strict=True)}
    word, notes = None, list[str]()
    if p_holm is None or estimate.value is None:
        notes = [f"untested: {estimate.why or 'the best value of an arm lies at the edge of its grid'}"]
    elif not is_significant(p_holm):
        word = UNRESOLVED
        notes = verdict.images_notes(estimate, four.tested)
    else:
        if logit is not None and logit.value is not None and logit.value * estimate.value <= 0:
            notes.append("its logit has the opposite sign: an interaction of the scale")
        if diverged := [arm for arm in entry.arms if (arm, "diverged") in ended]:
            notes.append(f"trials of {', '.join(diverged)} diverged")
        if collapsed := [arm for arm in entry.arms if collapse.collapsed_seeds(samples[arm].values, study.plan)]:
            notes.append(f"trials of {', '.join(collapsed)} collapsed")
        word = UNRESOLVED if notes else POSITIVE if estimate.value > 0 else NEGATIVE
    return Interaction(
        name=entry.name,
        arms=entry.arms,
        n=estimate.n,
        interaction=estimate.value,
        ci95=estimate.interval(),
        logit=logit.value if logit else None,
        logit_ci95=logit.interval() if logit else None,
        p=looks.p_value(four, study.plan),
        p_holm=p_holm,
        verdict=word,
        notes=notes,
    )


def logits(sample: Sample, images: float) -> Sample:
    """Return the sample with accuracies k / m on m `images` as empirical logits, finite at 0 and 1 (Haldane 1956)."""
    odds = {s: (v * images + 0.5) / ((1 - v) * images + 0.5) for s, v in sample.values.items()}
    return replace(sample, values={s: float(np.log(value)) for s, value in odds.items()}, correct={}, image=0.0)


def sentence(interaction: Interaction, metric: Metric) -> str:
    """Return the interaction as text: "a,b: +0.40 points (95% CI -0.20 to +1.00; logit +0.05): not resolved"."""
    name = current_style().label(interaction.name)
    why = "; ".join(interaction.notes)
    if interaction.interaction is None:
        return f"{name}: {why}"
    details = []
    if interaction.ci95:
        details.append(f"95% CI {' to '.join(metric.signed_interval(interaction.ci95))}")
    if interaction.logit is not None:
        details.append(f"logit {interaction.logit:+z.2f}")
    size = f"{metric.signed_text(interaction.interaction)}{metric.unit_of_difference}"
    word = (interaction.verdict or "no verdict").replace("-", " ")
    within = f" ({'; '.join(details)})" if details else ""
    return f"{name}: {size}{within}: {word}{why and f' ({why})'}"
