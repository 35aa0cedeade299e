"""The images of a step alone, and the same augmentation as torchvision does it: image by image, with PIL."""

from collections.abc import Callable

import torch
from torch import Tensor

from ablations.bench_clock import Seconds, interleaved
from ablations.probing import with_steps
from vitcore.config import Config, merge
from vitcore.data import Data
from vitcore.train import Training

AUGMENT = "flip-crop"


class Input:
    """The batches of a training, one after the other, without its steps: what is read ahead is what comes next."""

    def __init__(self, config: Config, data: Data) -> None:
        self.training = Training(config, data)
        self.training.model.to("meta")  # no memory for what is not run

    def advance(self) -> Tensor:
        images = self.training.batch().images
        self.training.step += 1
        return images


def beside_pil(config: Config, data: Data, rounds: int, calls: int) -> tuple[Seconds, Seconds]:
    """Seconds a batch, flipped and cropped, of ours and of torchvision's on a core, (rounds,) each.

    Raises ValueError, in one line, where such images cannot be cropped so.
    """
    changed = {"augment": AUGMENT, "mixup": 0.0, "cutmix": 0.0}
    ours = Input(with_steps(Config(**merge(config.model_dump(), changed)), 1 + rounds * calls), data)
    sides = {"vitcore": ours.advance, "torchvision": pil_batch(ours.training)}
    for call in sides.values():
        call()
    seconds = interleaved(sides, rounds, calls, ours.training.device)
    return seconds["vitcore"], seconds["torchvision"]


def pil_batch(training: Training) -> Callable[[], Tensor]:
    """What a DataLoader without workers does for the images of the step to come, read beforehand."""
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
