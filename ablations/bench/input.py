"""The input pipeline alone, and its flip and crop beside torchvision's, which transforms image by image with PIL."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ablations.bench.rivals import OURS
from ablations.bench.timing import interleaved, spread
from ablations.planning.measure_steps import with_steps
from vitcore.config import Config, merge
from vitcore.data.splits import Data
from vitcore.training.loop import Training

Json = dict[str, Any]
AUGMENT = "flip-crop"
CALLS = 2  # batches a turn, of a slow rival


class Input:
    """The batches of a training without its steps."""

    def __init__(self, config: Config, data: Data) -> None:
        self.training = Training(config, data)
        self.training.model.to("meta")  # no memory for what is not run

    def advance(self) -> Tensor:
        images = self.training.batch().images
        self.training.step += 1
        return images


def bench(config: Config, data: Data, rounds: int, calls: int) -> Json:
    """Images per second of the config's batches; with flips and crops, beside torchvision's on one core.

    Raises ValueError if such images cannot be cropped.
    """
    own = Input(with_steps(config, 1 + rounds * calls), data)
    own.advance()
    device = own.training.device
    seconds = interleaved({OURS: own.advance}, rounds, calls, device)[OURS]
    changed = {"augment": AUGMENT, "mixup": 0.0, "cutmix": 0.0}
    ours = Input(with_steps(Config(**merge(config.model_dump(), changed)), 1 + rounds * CALLS), data)
    sides = {OURS: ours.advance, "torchvision": torchvision_batch(ours.training)}
    for call in sides.values():
        call()
    beside = interleaved(sides, rounds, CALLS, device)
    return {
        "images_per_second": spread(config.batch / seconds),
        "pil": {
            "augment": AUGMENT,
            "images_per_second": {name: spread(config.batch / took) for name, took in beside.items()},
            "ratio": spread(beside["torchvision"] / beside[OURS]),
        },
    }


def torchvision_batch(training: Training) -> Callable[[], Tensor]:
    """What a DataLoader without workers does for the next batch of images in memory."""
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
