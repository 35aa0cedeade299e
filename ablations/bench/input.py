"""The benchmark of the input pipeline alone.

As a second comparison, it times flips and crops against those of torchvision on PIL images.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ablations.bench.process import Source, statistics
from ablations.bench.result import Result, conditions, text
from ablations.bench.rivals import OURS
from ablations.bench.timing import Call, Seconds, Spread, interleaved, ratios, spread
from ablations.planning.measure_steps import with_steps
from vitcore.config import Config, merge
from vitcore.data.splits import Data
from vitcore.runtime.device import computing, torch_device
from vitcore.training.loop import Training

PIL, AUGMENT = "torchvision", "flip-crop"
CALLS = 2  # batches per turn against torchvision, which is slow


@dataclass(frozen=True)
class BesidePil:
    """The speed of this suite's pipeline and torchvision's, both with flips and crops.

    images_per_second: by pipeline. ratio: how many times faster the pipeline of this suite is.
    """

    augment: str
    images_per_second: dict[str, Spread]
    ratio: Spread


@dataclass(frozen=True)
class Measured:
    """The measurements of the input pipeline.

    images_per_second: as configured. pil: the comparison with torchvision on PIL images.
    """

    images_per_second: Spread
    pil: BesidePil


class Input:
    """The input pipeline of a training, without its steps.

    `advance()` returns the images of the next batch, (B, C, H, W).
    """

    def __init__(self, config: Config, data: Data) -> None:
        self.training = Training(config, data)
        self.training.model.to("meta")  # unused: meta tensors take no memory

    def advance(self) -> Tensor:
        images = self.training.batch().images
        self.training.step += 1
        return images


def bench(config: Config, source: Source, rounds: int, calls: int) -> Result:
    """Measure the images per second of the input pipeline; return the benchmark's result.

    The pipeline is timed as configured. It is also timed with flips and crops, alternating with torchvision on one
    core. rounds: the number of timed turns per pipeline. calls: the number of batches per turn. Raises ValueError if
    the images cannot be cropped.
    """
    how = conditions(config, source, rounds, calls)
    cropped = Config(**merge(config.model_dump(), {"augment": AUGMENT, "mixup": 0.0, "cutmix": 0.0}))
    with computing(config):
        data = source.images(config)
        alone = Input(with_steps(config, 1 + rounds * calls), data)
        seconds_alone = timed_sides({OURS: alone.advance}, config, rounds, calls)[OURS]
        ours = Input(with_steps(cropped, 1 + rounds * CALLS), data)
        seconds = timed_sides({OURS: ours.advance, PIL: torchvision_batch(ours.training)}, config, rounds, CALLS)
    both = {name: spread(config.batch / took) for name, took in seconds.items()}
    found = Measured(spread(config.batch / seconds_alone), BesidePil(AUGMENT, both, ratios(seconds, OURS)[PIL]))
    rows = [
        {"pipeline": name, "images/s": text(speed, "{:,.0f}"), "ours is faster by": ratio}
        for name, speed, ratio in (
            (f"{OURS}, as configured", found.images_per_second, ""),
            (f"{OURS}, {AUGMENT}", both[OURS], ""),
            (f"{PIL}, {AUGMENT}", both[PIL], text(found.pil.ratio, "{:.1f}x")),
        )
    ]
    caption = " in turn. torchvision transforms PIL images one by one, on a core."
    return Result("input", how, found, "Input", caption, rows)


def timed_sides(sides: Mapping[str, Call], config: Config, rounds: int, calls: int) -> dict[str, Seconds]:
    """Return the seconds per batch of each pipeline, (rounds,), after one untimed batch each.

    sides: name -> function that produces a batch.
    """
    for call in sides.values():
        call()
    return interleaved(sides, rounds, calls, torch_device(config))


def torchvision_batch(training: Training) -> Callable[[], Tensor]:
    """Return a function that transforms the images of the first batch with torchvision.

    It transforms PIL images one by one, as a DataLoader without workers does, and returns (B, C, H, W).
    """
    from ablations.bench.script import Pictures  # late: takes seconds to import

    config, data = training.config, training.data
    images = data.train.at(training.order.places(training.step * config.batch, config.batch))
    pixels = torch.cat([*images.batches(512)]).cpu().numpy()
    pictures = Pictures(pixels, images.labels.cpu().numpy(), config.options["augment.pad"], *statistics(data))
    return lambda: torch.stack([pictures[place][0] for place in range(len(pictures))])  # (B, C, H, W)
