"""Suggestions for expensive plans: the change of one setting that saves the most training FLOPs."""

from collections.abc import Iterator

from ablations.planning.estimate import CORE_HOURS, GPU_HOURS
from results.store.schemas import Plan
from vitcore.config import Config, merge
from vitcore.options import ConfigError

DAY = 24.0
EXPENSIVE = {CORE_HOURS: DAY, GPU_HOURS: 10 * DAY}  # the minimum hours of an expensive plan
SAVES = 0.7  # the largest fraction of the hours that may remain after a suggested change


def suggestions(hours: float, unit: str, plan: Plan) -> list[str]:
    """Return a line, in a list, with an expensive plan's days and any large saving; [] for other plans."""
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
    """Yield (remaining fraction of training FLOPs, `key=value`) for each cheaper setting, if valid and not `varied`."""
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
            continue  # for example, if the patch size does not divide the image size
        yield measure(other).flops * other.steps / whole, f"{key}={cheaper[key]}"
