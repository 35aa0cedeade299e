"""The input pipeline alone, and its flip and crop beside torchvision's, which transforms image by image with PIL."""

from collections.abc import Callable

import torch
from torch import Tensor

from ablations.bench.process import Source
from ablations.bench.result import Result, text
from ablations.bench.rivals import OURS
from ablations.bench.timing import Spread, interleaved, spread
from ablations.planning.measure_steps import with_steps
from vitcore.config import Config, merge
from vitcore.data.splits import Data
from vitcore.runtime.device import computing
from vitcore.training.loop import Training

AUGMENT = "flip-crop"
CALLS = 2  # batches a turn beside torchvision, which is slow


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
    with computing(config):
        whole, rates, ratio = measured(config, source.images(config), rounds, calls)
    named = {f"{OURS}, as configured": whole} | {f"{name}, {AUGMENT}": rate for name, rate in rates.items()}
    rows = [
        {
            "pipeline": name,
            "images/s": text(rate, "{:,.0f}"),
            "ours is faster by": "" if name.startswith(OURS) else text(ratio, "{:.1f}x"),
        }
        for name, rate in named.items()
    ]
    values = {"images_per_second": whole, "pil": {"augment": AUGMENT, "images_per_second": rates, "ratio": ratio}}
    return Result("input", values, "Input", " in turn. torchvision transforms PIL images one by one, on a core.", rows)


def measured(config: Config, data: Data, rounds: int, calls: int) -> tuple[Spread, dict[str, Spread], Spread]:
    """Return our rate, both rates with flips and crops, and the ratio of the latter."""
    own = Input(with_steps(config, 1 + rounds * calls), data)
    own.advance()
    device = own.training.device
    seconds = interleaved({OURS: own.advance}, rounds, calls, device)[OURS]
    changed = {"augment": AUGMENT, "mixup": 0.0, "cutmix": 0.0}
    ours = Input(with_steps(Config(**merge(config.model_dump(), changed)), 1 + rounds * CALLS), data)
    sides = {OURS: ours.advance, "torchvision": torchvision_batch(ours.training)}
    for call in sides.values():
        call()
    both = interleaved(sides, rounds, CALLS, device)
    rates = {name: spread(config.batch / took) for name, took in both.items()}
    return spread(config.batch / seconds), rates, spread(both["torchvision"] / both[OURS])


def torchvision_batch(training: Training) -> Callable[[], Tensor]:
    """Return a function that makes the next batch as a DataLoader without workers does."""
    from PIL import Image  # late: comes with torchvision
    from torchvision import transforms

    config, train = training.config, training.data.train
    mean, std = (value.flatten().div(255).tolist() for value in (training.data.mean, training.data.std))
    transform = transforms.Compose([
        transforms.RandomCrop(config.image_size, padding=config.options["augment.pad"]),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(mean, std),
    ])  # fmt: skip
    places = training.order.places(training.step * config.batch, config.batch)
    seen = torch.cat([*train.at(places).batches(512)]).cpu()
    arrays = seen.permute(0, 2, 3, 1).squeeze(-1).numpy()  # (B, H, W, C), or (B, H, W)

    def batch() -> Tensor:
        return torch.stack([transform(Image.fromarray(array)) for array in arrays])  # (B, C, H, W)

    return batch
