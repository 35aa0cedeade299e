"""Random erasing, mixup and CutMix against timm's, given equal random numbers."""

from itertools import product

import pytest
import timm
import torch
import torch.nn.functional as F
from packaging.version import Version
from scipy import stats
from timm.data import mixup as timm_mixup
from timm.data import random_erasing as timm_erasing
from torch import Tensor
from trainings import keys, tiny

from vitcore import Config
from vitcore.data.batch_augmentation import TRIES, erase, mixed, mixing_choices, noise
from vitcore.data.shuffle import generator
from vitcore.data.splits import load
from vitcore.identity import trial_id
from vitcore.keyed_random import bits, site_code
from vitcore.training.state import Training


class Replayed:
    """Stands in for `random` inside timm: the numbers of an image, four per try."""

    def __init__(self, key: Tensor) -> None:
        hashed = bits(key, site_code("erasing"), 1 + 4 * TRIES)[0].double()
        self.first, *self.rest = ((hashed + 2**31) / 2**32).tolist()
        self.asked = 0

    def random(self) -> float:
        return self.first

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
    ours, expected = erase(images, some, 0.6, "constant"), images.clone()
    theirs = timm_erasing.RandomErasing(0.6, mode="const", device="cpu")
    for image, key in zip(expected, some.split(1), strict=True):
        monkeypatch.setattr(timm_erasing, "random", Replayed(key))
        theirs(image)
    assert torch.equal(ours, expected)
    changed = (ours != images).flatten(1).any(dim=1)
    assert stats.binomtest(int(changed.sum()), 200, 0.6).pvalue > 1e-3


def test_pixels_are_normal_noise_of_each_image() -> None:
    images, some = torch.full((64, 3, 16, 16), 9.0), keys(64)
    constant, pixel = erase(images, some, 1.0, "constant"), erase(images, some, 1.0, "pixel")
    inside = constant == 0
    assert torch.equal(pixel[~inside], images[~inside])
    assert stats.kstest(pixel[inside].numpy(), "norm").pvalue > 1e-3
    drawn = noise(some, images)
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(noise(some[5:9], images[5:9]), drawn[5:9])


def test_training_erases_standardized_images() -> None:
    """Erased batches differ from others by rectangles of zeros; with probability 0 nothing is erased."""
    data = load(tiny())
    plain, with_erasing = Training(tiny(), data).batch(), Training(tiny(random_erasing=1.0), data).batch()
    inside = with_erasing.images == 0
    assert torch.equal(with_erasing.images[~inside], plain.images[~inside])
    assert inside.flatten(1).any(dim=1).all()
    assert torch.equal(erase(plain.images, keys(len(plain.images)), 0.0, "pixel"), plain.images)


def batch(count: int = 8) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 3, 9, 9), torch.arange(count) % 10


def mix(images: Tensor, labels: Tensor, config: Config, step: int) -> tuple[Tensor, Tensor]:
    return mixed(images, labels, config, mixing_choices(config, step, *images.shape[-2:]))


class Shared:
    """Stands in for numpy.random inside timm: this package's generator, after a first number that makes timm mix."""

    def __init__(self, seed: int, step: int) -> None:
        self.ours, self.begun = generator("mixing", seed, step), False

    def rand(self) -> float:
        begun, self.begun = self.begun, True
        return self.ours.random_sample() if begun else 0.0

    def beta(self, a: float, b: float) -> float:
        return self.ours.beta(a, b)

    def randint(self, low: int, high: int, size: object = None) -> int:
        return int(self.ours.randint(low, high))


@pytest.mark.skipif(Version(timm.__version__) < Version("1.0.29"), reason="timm's boxes of odd sizes were too small")
@pytest.mark.parametrize(
    ("mixup", "cutmix", "switch"),
    [*((0.8, 1.0, switch) for switch in (0.0, 0.2, 0.5, 1.0)), (0.8, 0.0, 0.5), (0.0, 1.0, 0.5)],
)
def test_switching_equals_timms(monkeypatch: pytest.MonkeyPatch, mixup: float, cutmix: float, switch: float) -> None:
    """Given equal random numbers, timm makes equal images and targets, also of mixup alone and CutMix alone."""
    images, labels = batch()
    theirs = timm_mixup.Mixup(mixup, cutmix, switch_prob=switch, label_smoothing=0.0, num_classes=10)
    for seed, step in product((0, 1), range(10)):
        ours, targets = mix(images, labels, tiny(mixup=mixup, cutmix=cutmix, mix_switch_prob=switch, seed=seed), step)
        with monkeypatch.context() as patch:
            patch.setattr(timm_mixup.np, "random", Shared(seed, step))
            their_images, their_targets = theirs(images.clone(), labels)
        torch.testing.assert_close(ours, their_images)
        torch.testing.assert_close(targets, their_targets)


def test_batches_are_mixed_with_their_probability() -> None:
    """A mixed batch equals the batch with `mix_prob=1`; another batch stays as it was, with one label per image."""
    images, labels = batch()
    found, count = 0, 200
    sometimes, always = tiny(mix_prob=0.3, mixup=0.8, cutmix=1.0), tiny(mixup=0.8, cutmix=1.0)
    for step in range(count):
        ours, targets = mix(images, labels, sometimes, step)
        expected, shares = mix(images, labels, always, step)
        as_always = torch.equal(ours, expected) and torch.equal(targets, shares)
        assert as_always or (torch.equal(ours, images) and torch.equal(targets, F.one_hot(labels, 10).float()))
        found += as_always
    assert stats.binomtest(found, count, 0.3).pvalue > 1e-3


def test_settings_without_effect_change_no_id() -> None:
    assert trial_id(tiny(mix_prob=0.5, mix_switch_prob=0.1, random_erasing_fill="pixel")) == trial_id(tiny())
    assert trial_id(tiny(mixup=0.2, mix_switch_prob=0.1)) == trial_id(tiny(mixup=0.2))


def test_generator_is_pinned() -> None:
    """A trial that is resumed with a newer version draws the same shares."""
    assert generator("mixing", 0, 0).beta(0.2, 0.2) == pytest.approx(0.6856774963473468, abs=1e-12)


def test_training_learns_the_mixed_targets() -> None:
    training = Training(config := tiny(mixup=0.8, cutmix=1.0, label_smoothing=0.1), load(config))
    images, targets, _ = training.batch()
    torch.testing.assert_close(targets.sum(dim=1), torch.ones(config.batch))
    with torch.no_grad():
        logits = training.model(images)
    training.advance()
    expected = -((0.9 * targets + 0.01) * logits.log_softmax(1)).sum(1).mean().item()
    assert training.losses[0].item() == pytest.approx(expected, rel=1e-5)


def test_odd_batch_leaves_its_middle_as_it_is() -> None:
    """The middle image of an odd batch is mixed with itself (timm refuses odd batches)."""
    images, labels = batch(7)
    ours, targets = mix(images, labels, tiny(mixup=1.0), 0)
    torch.testing.assert_close(ours[3], images[3])
    assert targets[3, labels[3]].item() == pytest.approx(1)
