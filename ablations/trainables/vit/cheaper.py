"""Changes of one setting that save training FLOPs."""

from collections.abc import Collection, Iterator

from commonfloor.options import ConfigError
from vitcore.analysis.cost import measure
from vitcore.config import Config, merge


def remaining_flops(config: Config, varied: Collection[str]) -> Iterator[tuple[float, str]]:
    """Yield (remaining fraction of training FLOPs, `key=value`) for each cheaper setting, if valid and not `varied`."""
    whole = measure(config).flops * config.steps
    patch = 1 if config.model else config.patch
    cheaper = {"image_size": max(patch, config.image_size // 2 // patch * patch), "steps": max(1, config.steps // 2)}
    if not config.model:
        cheaper["patch"] = 2 * patch
    for key in cheaper.keys() - set(varied):
        try:
            other = Config(**merge(config.model_dump(), {key: cheaper[key]}))
        except ConfigError:
            continue  # for example, if the patch size does not divide the image size
        yield measure(other).flops * other.steps / whole, f"{key}={cheaper[key]}"
