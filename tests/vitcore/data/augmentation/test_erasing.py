"""Random erasing against timm's, given equal random numbers."""

import pytest
import torch
from scipy import stats
from timm.data import random_erasing as timm_erasing
from torch import Tensor
from trainings import keys, tiny

from vitcore.data.augmentation.erasing import TRIES, erased, noise, rectangles
from vitcore.data.splits import load
from vitcore.identity import trial_id
from vitcore.keyed_random import bits, code
from vitcore.training.loop import Training


class Replayed:
    """Stands in for `random` inside timm: the numbers of an image, four per try."""

    def __init__(self, key: Tensor) -> None:
        hashed = bits(key, code("erasing"), 1 + 4 * TRIES)[0].double()
        first, *self.rest = ((hashed + 2**31) / 2**32).tolist()
        self.first, self.asked = first, 0

    def random(self) -> float:
        return self.first  # type: ignore[no-any-return]

    def uniform(self, low: float, high: float) -> float:
        tried, second = divmod(self.asked, 2)
        self.asked += 1
        self.places = self.rest[4 * tried + 2 : 4 * tried + 4]
        return low + (high - low) * self.rest[4 * tried + second]

    def randint(self, low: int, high: int) -> int:
        return low + int(self.places.pop(0) * (high - low + 1))


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (3, 6, 24)])
def test_erased_images_are_timms(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    """Given equal numbers, timm erases the same rectangles, also in narrow images, where some tries do not fit."""
    images, some = torch.randn(200, *shape), keys(200)
    ours, expected = erased(images, some, 0.6, "constant"), images.clone()
    theirs = timm_erasing.RandomErasing(0.6, mode="const", device="cpu")
    for image, key in zip(expected, some.split(1), strict=True):
        monkeypatch.setattr(timm_erasing, "random", Replayed(key))
        theirs(image)
    assert torch.equal(ours, expected)
    changed = (ours != images).flatten(1).any(dim=1)
    assert stats.binomtest(int(changed.sum()), 200, 0.6).pvalue > 1e-3


def test_pixels_are_normal_noise_of_each_image() -> None:
    """The rectangle has normal noise, which differs between images and does not depend on the batch."""
    images, some = torch.full((64, 3, 16, 16), 9.0), keys(64)
    constant, pixel = erased(images, some, 1.0, "constant"), erased(images, some, 1.0, "pixel")
    inside = constant == 0
    assert torch.equal(pixel[~inside], images[~inside])
    assert stats.kstest(pixel[inside].numpy(), "norm").pvalue > 1e-3
    drawn = noise(some, images)
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(noise(some[5:9], images[5:9]), drawn[5:9])


def test_training_erases_standardised_images_and_keeps_ids() -> None:
    """Erased batches differ from others by rectangles of zeros; a fill without erasing does not change the id."""
    data = load(tiny())
    plain, with_erasing = Training(tiny(), data).batch(), Training(tiny(random_erasing=1.0), data).batch()
    inside = with_erasing.images == 0
    assert torch.equal(with_erasing.images[~inside], plain.images[~inside])
    assert inside.flatten(1).any(dim=1).all()
    assert not rectangles(keys(50), 8, 8, probability=0.0).any()
    assert trial_id(tiny(random_erasing_fill="pixel")) == trial_id(tiny())
