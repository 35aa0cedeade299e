"""Mixup and CutMix against timm's."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from timm.data import mixup as timm_mixup
from torch import Tensor
from trainings import tiny

from vitcore import Config
from vitcore.data.augmentation.mixing import draw, mixed
from vitcore.data.shuffle import generator
from vitcore.data.splits import load
from vitcore.identity import trial_id
from vitcore.training.loop import Training


def batch(count: int = 8, channels: int = 3, size: int = 9) -> tuple[Tensor, Tensor]:
    return torch.randn(count, channels, size, size), torch.arange(count) % 10


def mix(images: Tensor, labels: Tensor, config: Config, step: int) -> tuple[Tensor, Tensor]:
    return mixed(images, labels, config, draw(config, step, *images.shape[-2:]))


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


def test_switches_of_what_is_not_mixed_are_no_identity() -> None:
    """Probabilities without effect do not change a trial's id."""
    assert trial_id(tiny(mix_prob=0.5, mix_switch_prob=0.1)) == trial_id(tiny())
    assert trial_id(tiny(mixup=0.2, mix_switch_prob=0.1)) == trial_id(tiny(mixup=0.2))


def test_generator_is_pinned() -> None:
    """A trial that is resumed with a newer version draws the same shares."""
    assert generator("mixing", 0, 0).beta(0.2, 0.2) == pytest.approx(0.6856774963473468, abs=1e-12)


def test_training_learns_the_mixed_targets() -> None:
    """The logged loss is that of the mixed images and their smoothed targets."""
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
