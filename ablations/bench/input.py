"""The input pipeline alone, and its flip and crop beside torchvision's, which transforms image by image with PIL."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ablations.bench.process import Source, statistics
from ablations.bench.result import Result, conditions, text
from ablations.bench.rivals import OURS
from ablations.bench.timing import Spread, interleaved, ratios, spread
from ablations.planning.measure_steps import with_steps
from vitcore.config import Config, merge
from vitcore.data.splits import Data
from vitcore.runtime.device import computing
from vitcore.training.loop import Training

PIL, AUGMENT = "torchvision", "flip-crop"
CALLS = 2  # batches a turn beside torchvision, which is slow


@dataclass(frozen=True)
class BesidePil:
    augment: str
    images_per_second: dict[str, Spread]
    ratio: Spread  # how many times faster ours is


@dataclass(frozen=True)
class Measured:
    images_per_second: Spread
    pil: BesidePil


class Input:
    """The batches of a training without its steps."""

    def __init__(self, config: Config, data: Data) -> None:
        self.training = Training(config, data)
        self.training.model.to("meta")  # unused: takes no memory there

    def advance(self) -> Tensor:
        images = self.training.batch().images
        self.training.step += 1
        return images


def bench(config: Config, source: Source, rounds: int, calls: int) -> Result:
    """Measure images per second, as configured and with flips and crops beside torchvision's on one core.

    Raises ValueError if such images cannot be cropped.
    """
    how = conditions(config, source, rounds, calls)
    with computing(config):
        data = source.images(config)
        found = Measured(images_per_second(config, data, rounds, calls), beside_pil(config, data, rounds))
    both, faster = found.pil.images_per_second, text(found.pil.ratio, "{:.1f}x")
    rows = [
        {"pipeline": name, "images/s": text(rate, "{:,.0f}"), "ours is faster by": ratio}
        for name, rate, ratio in (
            (f"{OURS}, as configured", found.images_per_second, ""),
            (f"{OURS}, {AUGMENT}", both[OURS], ""),
            (f"{PIL}, {AUGMENT}", both[PIL], faster),
        )
    ]
    caption = " in turn. torchvision transforms PIL images one by one, on a core."
    return Result("input", how, found, "Input", caption, rows)


def images_per_second(config: Config, data: Data, rounds: int, calls: int) -> Spread:
    own = Input(with_steps(config, 1 + rounds * calls), data)
    own.advance()
    return spread(config.batch / interleaved({OURS: own.advance}, rounds, calls, own.training.device)[OURS])


def beside_pil(config: Config, data: Data, rounds: int) -> BesidePil:
    changed = {"augment": AUGMENT, "mixup": 0.0, "cutmix": 0.0}
    ours = Input(with_steps(Config(**merge(config.model_dump(), changed)), 1 + rounds * CALLS), data)
    sides = {OURS: ours.advance, PIL: torchvision_batch(ours.training)}
    for call in sides.values():
        call()
    seconds = interleaved(sides, rounds, CALLS, ours.training.device)
    rates = {name: spread(config.batch / took) for name, took in seconds.items()}
    return BesidePil(AUGMENT, rates, ratios(seconds, OURS)[PIL])


def torchvision_batch(training: Training) -> Callable[[], Tensor]:
    """Return a function that makes the next batch as a DataLoader without workers does."""
    from ablations.bench.script import Pictures  # late: takes seconds to import

    config, data = training.config, training.data
    images = data.train.at(training.order.places(training.step * config.batch, config.batch))
    pixels = torch.cat([*images.batches(512)]).cpu().numpy()
    pictures = Pictures(pixels, images.labels.cpu().numpy(), config.options["augment.pad"], *statistics(data))
    return lambda: torch.stack([pictures[place][0] for place in range(len(pictures))])  # (B, C, H, W)
