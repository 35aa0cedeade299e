"""Secondary metrics: an arm is tested by them only where its difference in the study's first metric is resolved.

The first metric is a gate (Dmitrienko, Offen and Westfall 2003). All tests of a table's arms, in all metrics, together
err in at most 5% of studies: see `verdict.gated_holm`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from results.statistics import contrast, verdict
from results.statistics.arms import ArmResults, Contrast, families, pair_of
from results.statistics.contrast import Sample
from results.statistics.verdict import RESOLVED
from results.store.schemas.metrics import EXACT, Metric
from results.store.schemas.plans import Plan
from results.study_results import StudyResults


@dataclass(frozen=True)
class SecondaryMetric:
    """A secondary metric in all arms, with its contrasts.

    lacking: the number of finished trials without the metric. Unless it is 0, no difference is tested.
    """

    metric: Metric
    samples: Mapping[str, Sample]
    contrasts: Mapping[str, Contrast]
    lacking: int


def secondary_metrics(study: StudyResults, arms: Mapping[str, ArmResults], interim: bool) -> list[SecondaryMetric]:
    """Return the secondary metrics but EXACT ones, unadjusted. interim: also test what finished trials lack."""
    return [measured(study, arms, name, interim) for name in study.plan.secondary_metrics if name not in EXACT]


def measured(study: StudyResults, arms: Mapping[str, ArmResults], name: str, interim: bool) -> SecondaryMetric:
    plan = study.plan.model_copy(update={"metric": name, "margin": None})
    samples = contrast.samples_by_arm(study, name)
    lacking = 0
    in_metric: dict[str, ArmResults] = {}
    for arm in arms.values():
        grid = []
        if arm.choice is not None:
            grid = [samples[point] for point in arm.choice.grid.stable_points]
        in_metric[arm.name] = replace(arm, sample=samples[arm.name], grid=grid)  # its trials ended as they did
        if arm.choice is None:
            lacking += arm.count("finished") - len(samples[arm.name].values)
    contrasts = {}
    for arm in in_metric.values():
        if arm.name == arm.arm.baseline:
            continue
        baseline = in_metric[arm.arm.baseline]
        pair = pair_of(arm, baseline, baseline, plan)
        p = None
        if (interim or not lacking) and not arm.is_stopped:
            p = pair.p_value
        contrasts[arm.name] = Contrast(arm, baseline, pair, None, p)
    return SecondaryMetric(plan.primary_metric, samples, contrasts, lacking)


def adjusted_together(
    contrasts: Mapping[str, Contrast], secondary: list[SecondaryMetric], plan: Plan
) -> tuple[dict[str, Contrast], list[SecondaryMetric]]:
    """Return the contrasts in the first metric, and the secondary metrics, with p values adjusted by `gated_holm`."""
    if not secondary:
        return dict(contrasts), secondary
    first = dict(contrasts)
    further = [dict(in_metric.contrasts) for in_metric in secondary]
    for family, size in families(contrasts.values(), plan):
        names: list[str] = []
        p_first: list[float | None] = []
        p_further: list[list[float | None]] = []
        opens: list[bool] = []  # whether an arm's verdict allows tests in further metrics once p allows them
        for each in family:
            names.append(each.arm.name)
            p_first.append(each.judged_p)
            p_further.append([of_metric[each.arm.name].judged_p for of_metric in further])
            opens.append(replace(each, p_holm=0.0).verdict in RESOLVED)
        adjusted_first, adjusted_further = verdict.gated_holm(p_first, p_further, opens, size)
        for name, p_holm, of_arm in zip(names, adjusted_first, adjusted_further, strict=True):
            first[name] = replace(first[name], p_holm=p_holm)
            for of_metric, p in zip(further, of_arm, strict=True):
                of_metric[name] = replace(of_metric[name], p_holm=p)
    adjusted = []
    for in_metric, contrasts_in_it in zip(secondary, further, strict=True):
        adjusted.append(replace(in_metric, contrasts=contrasts_in_it))
    return first, adjusted
