"""Arms averaged over data sets, which are fixed and count alike, and their average differences from the baseline.

Equal seeds share initial values on different data sets where shapes agree, so that an average is taken seed by seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from results.statistics import verdict
from results.statistics.arms import ArmResults, Contrast
from results.statistics.contrast import DataAverage
from results.statistics.intervals import Estimate
from results.statistics.tuned_pairs import Pair
from results.statistics.verdict import Tie
from results.store.schemas.plans import Arm, Plan


@dataclass(frozen=True)
class JudgedAverage:
    """An arm on all data sets of a study: its name without the data, and its results on each.

    contrasts: with the baseline on each data set. pair: the average difference, None for a baseline and for tuned arms.
    """

    name: str
    arms: Sequence[ArmResults]
    mean: Estimate
    contrasts: Sequence[Contrast] = ()
    pair: Pair | None = None
    tie: Tie | None = None
    p: float | None = None
    p_holm: float | None = None
    p_margin: float | None = None

    @property
    def verdict(self) -> str | None:
        if self.pair is None:
            return None
        higher = self.pair.plan.primary_metric.higher_is_better
        return verdict.verdict(
            self.pair.own.mean, self.p_holm, self.p_margin, higher_is_better=higher, unstable=self.unstable
        )

    @property
    def unstable(self) -> tuple[int, int]:
        of_arms = sum(each.arm.unstable for each in self.contrasts)
        return of_arms, sum(each.baseline.unstable for each in self.contrasts)

    @property
    def p_equivalence(self) -> float | None:
        if self.pair is None or self.tie is None or self.tie.too_wide:
            return None
        return self.pair.p_equivalence


def arms_on_all_data(plan: Plan) -> dict[str, list[Arm]]:
    groups: dict[str, list[Arm]] = {}
    if len(plan.data_sets) > 1:
        for arm in plan.arms:
            if "data" in arm.values:  # an arm at tuned values has no curves of its own
                name = arm.name.replace(f",data={arm.values['data']}", "", 1)
                groups.setdefault(name, []).append(arm)
    return {name: arms for name, arms in groups.items() if len(arms) == len(plan.data_sets)}


def judge_averages(
    plan: Plan, arms: Mapping[str, ArmResults], contrasts: Mapping[str, Contrast]
) -> list[JudgedAverage]:
    """Return all arms averaged over data sets; their tests, of which a tuning grid has none, are one Holm family."""
    averages = []
    for name, planned in arms_on_all_data(plan).items():
        on_data = [arms[arm.name] for arm in planned]
        mean = DataAverage(tuple(arm.sample for arm in on_data)).mean
        averages.append(JudgedAverage(name, on_data, mean))
        if planned[0].name != planned[0].baseline and not plan.tune:
            averages[-1] = tested_average(averages[-1], [contrasts[arm.name] for arm in planned], plan)
    tested = [each for each in averages if each.pair is not None]
    p_holm = iter(verdict.holm([each.p for each in tested], plan.averages_family))
    p_margin = iter(verdict.holm([each.p_equivalence for each in tested], plan.averages_family))
    judged = []
    for each in averages:
        if each.pair is not None:
            each = replace(each, p_holm=next(p_holm), p_margin=next(p_margin))
        judged.append(each)
    return judged


def tested_average(average: JudgedAverage, contrasts: Sequence[Contrast], plan: Plan) -> JudgedAverage:
    error = None
    if isinstance(plan.margin, str):
        errors = []
        for each in contrasts:
            sample = each.baseline.sample.errors(plan.primary_metric)
            errors.append(sample.only_seeds(each.pair.own.seeds) if plan.is_paired else sample)
        error = DataAverage(tuple(errors))
    pair = Pair(plan, DataAverage(tuple(each.pair.own for each in contrasts)), error=error)
    of_baseline = DataAverage(tuple(each.baseline.sample for each in contrasts)).mean.value
    chances = [plan.chance_of(each.baseline.arm) for each in contrasts]
    chance = sum(chances) / len(chances) if all(chances) else 0.0
    return replace(average, contrasts=contrasts, pair=pair, tie=pair.tie(of_baseline, chance), p=pair.p_value)
