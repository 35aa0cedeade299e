"""The benchmark of the input pipeline, alone and against torchvision's flips and crops of PIL images."""

from functools import partial

import torch

from ablations.bench.process import Source, statistics
from ablations.bench.result import Result, column, conditions
from ablations.bench.rivals import OURS, next_batch
from ablations.bench.timing import Call, interleaved_seconds, ratios, spread
from ablations.planning.measure_steps import with_steps
from vitcore.config import Config, merge
from vitcore.runtime.device import compute_settings
from vitcore.training.state import Training

PIL, AUGMENT = "torchvision", "flip-crop"
CALLS = 2  # batches per turn against torchvision, which is slow


def bench(config: Config, source: Source, rounds: int, calls: int) -> Result:
    """Measure the images per second of the input pipeline, in `rounds` turns of `calls` batches.

    Times the pipeline as configured, and then with flips and crops. The second measurement alternates with torchvision
    on one core, in turns of CALLS batches. Raises ValueError if the images cannot be loaded or cropped.
    """
    how = conditions(config, source, rounds, calls)
    cropped = Config(**merge(config.model_dump(), {"augment": AUGMENT, "mixup": 0.0, "cutmix": 0.0}))
    with compute_settings(config):
        data = source.images(config)
        ours = Training(with_steps(cropped, 1 + rounds * CALLS), data)
        alone: Call = partial(next_batch, Training(with_steps(config, 1 + rounds * calls), data))
        beside: dict[str, Call] = {OURS: partial(next_batch, ours), PIL: torchvision_batch(ours)}
        for first in (alone, *beside.values()):
            first()  # the first call is not timed
        configured = interleaved_seconds({OURS: alone}, rounds, calls, data.mean.device)[OURS]
        seconds = interleaved_seconds(beside, rounds, CALLS, data.mean.device)
    speed, speeds = spread(config.batch / configured), {name: spread(config.batch / s) for name, s in seconds.items()}
    ratio = ratios(seconds, OURS)[PIL]
    pil = {"augment": AUGMENT, "images_per_second": speeds, "ratio": ratio}
    shown = {f"{OURS}, as configured": speed} | {f"{name}, {AUGMENT}": own for name, own in speeds.items()}
    columns = {
        "images/s": column(shown, "{:,.0f}"),
        "ours is faster by": column({f"{PIL}, {AUGMENT}": ratio}, "{:.1f}x"),
    }
    caption = " in turn. torchvision transforms PIL images one by one, on a core."
    return Result("input", how, {"images_per_second": speed, "pil": pil}, "Input", caption, "pipeline", columns)


def torchvision_batch(training: Training) -> Call:
    """Return a function that transforms the first batch (B, C, H, W) with torchvision, without workers."""
    from ablations.bench.script import Pictures  # imported here because the import takes seconds

    config, data = training.config, training.data
    images = data.train.select(training.order.places(training.step * config.batch, config.batch))
    pixels = torch.cat([*images.batches(512)]).cpu().numpy()
    pictures = Pictures(pixels, images.labels.cpu().numpy(), config.options["augment.pad"], *statistics(data))
    return lambda: torch.stack([pictures[place][0] for place in range(len(pictures))])  # (B, C, H, W)
