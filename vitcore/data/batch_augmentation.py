"""Augmentations of standardized batches: random erasing, mixup and CutMix.

Random erasing (arXiv 1708.04896) follows timm.data.RandomErasing and depends only on the image's key. Mixup
(arXiv 1710.09412) and CutMix (arXiv 1905.04899) follow timm.data.Mixup in mode 'batch' and depend only on (seed, step).
Image i is mixed with its partner, image B - 1 - i.
"""

import math

import torch
import torch.nn.functional as F
from numpy.random import RandomState
from torch import Tensor

from vitcore.data.shuffle import generator
from vitcore.keyed_random import bits, site_code, uniforms
from vitcore.settings import Settings

TRIES = 10  # random rectangles per image
AREA = (0.02, 1 / 3)  # range of a rectangle's area, as a fraction of the image's
ASPECT = math.log(0.3)  # log of the smallest aspect ratio; the largest is 1 / 0.3
NOWHERE = (0, 0, 0, 0)  # the edges of an empty box: top, bottom, left, right


def erase(images: Tensor, rng_keys: Tensor, probability: float, fill: str) -> Tensor:
    """Return a copy of images (B, C, H, W) in which each image loses a random rectangle with `probability`.

    The first of ten rectangles that fits is erased, if any. rng_keys (B,): on the images' device. fill: "pixel" for
    standard normal noise, anything else for 0.
    """
    rows, columns = images.shape[-2:]
    uniform = uniforms(rng_keys, site_code("erasing"), 1 + 4 * TRIES)  # (B, 41)
    share, ratio, down, across = uniform[:, 1:].view(-1, TRIES, 4).unbind(dim=2)  # (B, TRIES)
    area = rows * columns * (AREA[0] + (AREA[1] - AREA[0]) * share)
    aspect = (ASPECT * (1 - 2 * ratio)).exp()
    height = (area * aspect).sqrt().round()
    width = (area / aspect).sqrt().round()
    fits = (height < rows) & (width < columns)
    top = (down * (rows - height + 1)).floor()
    left = (across * (columns - width + 1)).floor()
    tries = torch.stack([top, left, height, width], dim=2).long()  # (B, TRIES, 4)
    rectangles = tries[torch.arange(len(rng_keys), device=rng_keys.device), fits.int().argmax(dim=1)]
    chosen = fits.any(dim=1) & (uniform[:, 0] < probability)
    top, left, height, width = (rectangles * chosen[:, None]).view(-1, 4, 1, 1, 1).unbind(1)
    y = torch.arange(rows, device=rng_keys.device)[:, None]
    x = torch.arange(columns, device=rng_keys.device)
    inside = (y >= top) & (y < top + height) & (x >= left) & (x < left + width)  # (B, 1, H, W)
    colors = noise(rng_keys, images) if fill == "pixel" else images.new_zeros(())
    return colors.where(inside, images)


def noise(rng_keys: Tensor, images: Tensor) -> Tensor:
    """Return standard normal noise (B, C, H, W) that depends only on each image's key (B,)."""
    uniform = (bits(rng_keys, site_code("erased"), images[0].numel()).float() + 0.5) / 2**31  # in [-1, 1]
    normal = uniform.clamp(-1 + 2**-24, 1 - 2**-24).erfinv() * math.sqrt(2)
    return normal.view(images.shape).to(images.dtype)


def mixing_choices(config: Settings, step: int, rows: int, columns: int) -> Tensor:
    """Draw the random choices (6,), float64, for the batch of a step.

    They are an image's weight in mixup, its label's weight, and the top, bottom, left and right of CutMix's box.
    """
    random = generator("mixing", config.seed, step)
    cut = bool(config.cutmix) and (not config.mixup or random.random_sample() < config.mix_switch_prob)
    alpha = config.cutmix if cut else config.mixup
    share = random.beta(alpha, alpha)
    choices = [share, share, *NOWHERE]
    if cut:
        edges = cutmix_box(random, share, rows, columns)
        top, bottom, left, right = edges
        choices = [1, 1 - (bottom - top) * (right - left) / (rows * columns), *edges]
    if config.mix_prob < 1 and random.random_sample() >= config.mix_prob:  # last, so that it changes no other draw
        choices = [1, 1, *NOWHERE]
    return torch.tensor(choices, dtype=torch.float64)


def mixed(images: Tensor, labels: Tensor, config: Settings, choices: Tensor) -> tuple[Tensor, Tensor]:
    """Return mixed images (B, C, H, W) and soft labels (B, K). choices (6,): `mixing_choices` on the images' device."""
    share, target_share, top, bottom, left, right = choices.unbind()
    partly = mixup(images, share) if config.mixup else images
    if config.cutmix:
        y, x = (torch.arange(size, device=images.device) for size in images.shape[-2:])
        inside = ((y >= top) & (y < bottom))[:, None] & (x >= left) & (x < right)  # (H, W)
        partly = images.flip(0).where(inside, partly)
    return partly, mixup(F.one_hot(labels, config.classes).to(images.dtype), target_share)


def mixup(x: Tensor, share: Tensor) -> Tensor:
    """Return `share` times each row of x (B, ...) plus 1 - `share` times the row of its partner."""
    return x.lerp(x.flip(0), (1 - share).to(x.dtype))


def cutmix_box(random: RandomState, share: float, rows: int, columns: int) -> tuple[int, ...]:
    """Draw a box (top, bottom, left, right) of 1 - `share` of the area at a random center, clipped at the border."""
    edges: list[int] = []
    for size in (rows, columns):
        length = int(size * math.sqrt(1 - share))
        center = int(random.randint(0, size))
        edges += [max(0, center - length // 2), min(size, center + (length + 1) // 2)]
    return tuple(edges)
