"""Suggest the cheapest change of one setting for an expensive plan."""

from collections.abc import Iterator

from ablations.planning.estimate import CORE_HOURS, GPU_HOURS
from results.store.schemas import Plan
from vitcore.config import Config, merge
from vitcore.options import ConfigError

DAY = 24.0
EXPENSIVE = {CORE_HOURS: DAY, GPU_HOURS: 10 * DAY}  # the least hours of an expensive plan
SAVES = 0.7  # the largest share of the hours that a suggestion leaves


def suggestions(hours: float, unit: str, plan: Plan) -> list[str]:
    """Return a line with the total in days and the best saving; no line for a plan that is not expensive."""
    if hours < EXPENSIVE[unit]:
        return []
    days = f"{hours:,.0f} {unit} are {hours / DAY:,.0f} days on one {unit.partition('-')[0]}"
    varied = {*plan.factors, *plan.curves, *plan.tune}
    best = min(remaining_flops(Config(**plan.baseline_arm.config), varied), default=None)
    if best is None or best[0] > SAVES:
        return [days]
    share, setting = best
    return [f"{days}; with {setting}, about {share * hours:,.0f} {unit}"]


def remaining_flops(config: Config, varied: set[str]) -> Iterator[tuple[float, str]]:
    """Yield the share of the training FLOPs that a cheaper setting leaves, and the setting as text.

    varied: settings that the study varies, which are not suggested.
    """
    from vitcore.analysis.cost import measure

    whole = measure(config).flops * config.steps
    patch = 1 if config.model else config.patch
    cheaper = {"image_size": max(patch, config.image_size // 2 // patch * patch), "steps": max(1, config.steps // 2)}
    if not config.model:
        cheaper["patch"] = 2 * patch
    for key in cheaper.keys() - varied:
        try:
            other = Config(**merge(config.model_dump(), {key: cheaper[key]}))
        except ConfigError:
            continue  # as patches that do not divide the images
        yield measure(other).flops * other.steps / whole, f"{key}={cheaper[key]}"
