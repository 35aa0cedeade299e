"""Suggest the one setting of the baseline that would make an expensive plan cheapest."""

from collections.abc import Iterator

from ablations.planning.estimate import CORE_HOURS
from results.store.schemas import Plan, Settings
from vitcore.config import Config, merge
from vitcore.options import ConfigError

DAY = 24.0
MANY = {CORE_HOURS: DAY}  # hours from which a plan is called expensive; of GPUs ten days
GPU_MANY = 10 * DAY
SAVES = 0.7  # a setting is named where it leaves at most this share


def suggestions(hours: float, unit: str, plan: Plan) -> list[str]:
    """Return a line with the total in days and the best saving; nothing for a plan that is not expensive."""
    if hours < MANY.get(unit, GPU_MANY):
        return []
    days = f"{hours:,.0f} {unit} are {hours / DAY:,.0f} days on one {unit.partition('-')[0]}"
    best = min(remaining_flops(Config(**plan.baseline_arm.config), varied(plan)), default=None)
    if best is None or best[0] > SAVES:
        return [days]
    share, setting = best
    return [f"{days}; with {setting}, about {share * hours:,.0f} {unit}"]


def varied(plan: Plan) -> set[str]:
    return {*plan.factors, *plan.curves, *plan.tune}


def remaining_flops(config: Config, taken: set[str]) -> Iterator[tuple[float, str]]:
    """Yield, for each cheaper setting, the share of the training FLOPs that remains, and the setting as text."""
    from vitcore.analysis.cost import measure

    whole = measure(config).flops * config.steps
    for settings in candidates(config):
        if taken & settings.keys():
            continue
        try:
            other = Config(**merge(config.model_dump(), settings))
        except ConfigError:
            continue  # as patches that do not divide the images
        named = " ".join(f"{key}={value}" for key, value in settings.items())
        yield measure(other).flops * other.steps / whole, named


def candidates(config: Config) -> Iterator[Settings]:
    if config.model:
        yield {"image_size": max(1, config.image_size // 2)}
    else:
        yield {"image_size": max(config.patch, config.image_size // 2 // config.patch * config.patch)}
        yield {"patch": 2 * config.patch}
    yield {"steps": max(1, config.steps // 2)}
