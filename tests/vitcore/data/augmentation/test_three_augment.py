"""3-Augment against Pillow's and torchvision's operations; its choices against their distribution."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import ImageFilter
from scipy import stats
from torch import Tensor
from torchvision.transforms import functional as theirs
from trainings import keys

from vitcore import Config
from vitcore.data.augmentation import image_ops
from vitcore.data.augmentation.augment import AUGMENT
from vitcore.data.augmentation.distortions import STEPS


def pictures(channels: int, count: int = 6, size: int = 32) -> Tensor:
    """Return images: noise, a ramp, and an edge."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, channels, size, size), generator=generator, dtype=torch.uint8)
    images[0] = torch.arange(size, dtype=torch.uint8) * 3 + 20
    images[1, :, : size // 2] = 0
    return images


def by_pillow(image: Tensor, operation: Any) -> Tensor:
    """Apply an operation of Pillow to an image (C, H, W)."""
    changed = np.asarray(operation(theirs.to_pil_image(image)))
    return torch.from_numpy(np.array(changed)).view(*image.shape[1:], -1).permute(2, 0, 1)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [8, 32])
@pytest.mark.parametrize("radius", [0.1, 0.8, 1.414, 1.42, 2.0])
def test_blur_equals_pillows(channels: int, size: int, radius: float) -> None:
    """The blur is within one level of Pillow's, for the range of radii in DeiT III."""
    images = pictures(channels, size=size)
    expected = torch.stack([by_pillow(image, lambda i: i.filter(ImageFilter.GaussianBlur(radius))) for image in images])
    off = (image_ops.gaussian_blur(images, torch.full((len(images),), radius)).int() - expected.int()).abs()
    assert off.max() <= 1
    assert (off > 0).double().mean() < 0.001


ADJUST = [theirs.adjust_brightness, theirs.adjust_contrast, theirs.adjust_saturation]


@pytest.mark.parametrize("channels", [1, 3])
def test_colours_change_as_torchvisions_in_each_order(channels: int) -> None:
    """Each image has ColorJitter's three adjustments, in the order drawn for it."""
    images = pictures(channels)
    order = torch.tensor([[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
    amounts = torch.linspace(-0.3, 0.3, 18).view(6, 3).roll(1, 0)
    expected = images.clone()
    for i, own in enumerate(order.tolist()):
        for kind in own:
            expected[i] = ADJUST[kind](expected[i], 1 + amounts[i, kind].item())
    off = (image_ops.colour_jitter(images, order, amounts).int() - expected.int()).abs()
    assert off.max() <= 1
    assert (off > 0).double().mean() < 0.01


def test_an_image_is_flipped_then_one_of_three_then_in_other_colours() -> None:
    """The whole augmentation equals torchvision's and Pillow's operations, to three levels after a blur."""
    images = pictures(3, count=60)
    augmentation = AUGMENT["three-augment"](Config(data="cifar10", augment="three-augment"))
    off = []
    for image, ours, own in zip(
        images, augmentation(images, keys(60)), augmentation.choices(keys(60), 32), strict=True
    ):
        flipped, one, radius, *order, brightness, contrast, saturation = own.tolist()
        image = image.flip(2) if flipped else image
        blur = ImageFilter.GaussianBlur(0.1 + 1.9 * radius / STEPS)
        image = [
            lambda i: theirs.rgb_to_grayscale(i, 3),
            lambda i: theirs.solarize(i, 128),
            lambda i, blur=blur: by_pillow(i, lambda pillow: pillow.filter(blur)),
        ][one](image)
        for kind in order:
            image = ADJUST[kind](image, 0.7 + 0.6 * (brightness, contrast, saturation)[kind] / STEPS)
        off.append((ours.int() - image.int()).abs())
    together = torch.stack(off)
    assert together.max() <= 3
    assert (together > 0).double().mean() < 0.01


def test_choices_are_alike_and_independent() -> None:
    """Flip, operation and order of colors are uniform and independent (chi-square); factors are uniform."""
    drawn = AUGMENT["three-augment"](Config(data="cifar10", augment="three-augment")).choices(keys(7200), 32)
    flipped, one, radius = drawn[:, 0], drawn[:, 1], drawn[:, 2]
    order = 3 * drawn[:, 3] + drawn[:, 4]
    assert (drawn[:, 3:6].sort(dim=1).values == torch.arange(3)).all()
    ordered = order.unique(return_inverse=True)[1]
    counts = torch.bincount((flipped * 3 + one) * 6 + ordered, minlength=36)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3
    for column in (radius, *drawn[:, 6:].unbind(1)):
        assert stats.kstest(column.numpy() / STEPS, "uniform").pvalue > 1e-3


def test_without_jitter_and_flip_images_stay() -> None:
    """Without color changes and flips, a gray image is solarized, blurred or unchanged."""
    config = Config(data="mnist", augment="three-augment", **{"augment.jitter": 0.0, "augment.flip": False})
    images, augmentation = pictures(1, count=40, size=28), AUGMENT["three-augment"](config)
    changed, drawn = augmentation(images, keys(40)), augmentation.choices(keys(40), 28)
    gray = drawn[:, 1] == 0
    assert torch.equal(changed[gray], images[gray])
    assert not torch.equal(changed[~gray], images[~gray])
