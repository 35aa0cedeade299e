"""A usual script that trains one trial with timm's model, a DataLoader and AdamW. `python -m benchmarks loop` runs it.

It imports nothing from this project. Without augmentation, images become tensors before training, which is faster than
in most scripts.
"""

import json
import math
import sys
from argparse import Namespace
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from PIL import Image
from timm.models.vision_transformer import VisionTransformer
from timm.optim import param_groups_weight_decay  # type: ignore[attr-defined]  # no __all__ there
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision import transforms

Array = npt.NDArray[Any]


class Pictures(Dataset[tuple[Tensor, int]]):
    """A data set of uint8 images (N, C, H, W), padded, cropped and flipped at random with PIL, then standardized.

    pad: padding in pixels. mean, std: statistics of each channel, for pixel values scaled to [0, 1].
    """

    def __init__(self, pixels: Array, labels: Array, pad: int, mean: list[float], std: list[float]) -> None:
        self.arrays = pixels.transpose(0, 2, 3, 1)
        if pixels.shape[1] == 1:
            self.arrays = self.arrays.squeeze(-1)
        self.labels = labels
        self.transform = transforms.Compose([
            transforms.RandomCrop(pixels.shape[-1], padding=pad),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(mean, std),
        ])  # fmt: skip

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.arrays[place])), int(self.labels[place])


def run(file: Path) -> None:
    """Train with the settings in `file` (.json) and its images (.npz); write weights (.pth) and metrics (.result)."""
    settings = Namespace(**json.loads(file.read_text()))
    with np.load(file.with_suffix(".npz")) as arrays:
        data = dict(arrays)
    torch.manual_seed(settings.seed)
    train: Dataset[Any] = tensors(data, "train", settings)
    if settings.pad:
        train = Pictures(data["train_pixels"], data["train_labels"], settings.pad, settings.mean, settings.std)
    loader = DataLoader(train, settings.batch, shuffle=True, drop_last=True)
    val, test = (DataLoader(tensors(data, part, settings), 512) for part in ("val", "test"))
    model = VisionTransformer(**settings.model).to(settings.device)
    optimizer = torch.optim.AdamW(param_groups_weight_decay(model, settings.weight_decay), lr=settings.lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, settings))
    lines = []
    batches = chain.from_iterable(repeat(loader))  # epoch after epoch
    for step, (images, targets) in enumerate(islice(batches, settings.steps), start=1):
        images, targets = images.to(settings.device), targets.to(settings.device)
        with torch.autocast(settings.device, torch.bfloat16, enabled=settings.bf16):
            loss = F.cross_entropy(model(images), targets, label_smoothing=settings.label_smoothing)
        optimizer.zero_grad()
        loss.backward()
        if settings.clip_norm:
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
        optimizer.step()
        schedule.step()
        if step in settings.evaluate:
            lines.append({"step": step, "train_loss": loss.item(), "val_accuracy": accuracy(model, val)})
    torch.save(model.state_dict(), file.with_suffix(".pth"))
    result = {"test_accuracy": accuracy(model, test), "lines": lines}
    file.with_suffix(".result").write_text(json.dumps(result))


def tensors(data: dict[str, Array], part: str, settings: Namespace) -> TensorDataset:
    pixels, labels = (torch.from_numpy(data[f"{part}_{name}"]) for name in ("pixels", "labels"))
    mean, std = (torch.tensor(values)[:, None, None] for values in (settings.mean, settings.std))
    return TensorDataset((pixels / 255 - mean) / std, labels)


def rate(step: int, settings: Namespace) -> float:
    """Return the factor of a step's learning rate: a linear warm-up, followed by a cosine decay to 0."""
    warmup, steps = int(settings.warmup_steps), int(settings.steps)
    if step < warmup:
        return (step + 1) / warmup
    return (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup))) / 2


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader[Any]) -> float:
    device = next(model.parameters()).device
    model.eval()
    right = sum(int((model(images.to(device)).argmax(1).cpu() == targets).sum()) for images, targets in loader)
    model.train()
    return right / len(loader.dataset)  # type: ignore[arg-type]  # torch's Dataset promises no length


if __name__ == "__main__":
    run(Path(sys.argv[1]))
