"""Mixup and CutMix against timm's, and the distribution of the shares."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from timm.data import mixup as timm_mixup
from torch import Tensor

from vitcore import Config
from vitcore.data.augmentation.mixing import box, draw, mix
from vitcore.data.shuffle import generator
from vitcore.data.splits import load
from vitcore.identity import trial_id
from vitcore.training.loop import Training


def tiny(**settings: Any) -> Config:
    defaults = {"width": 16, "depth": 1, "heads": 2, "pool": "gap", "steps": 4, "batch": 8, "evaluations": 1}
    return Config(**(defaults | settings))


def batch(count: int = 8, channels: int = 3, size: int = 9) -> tuple[Tensor, Tensor]:
    return torch.randn(count, channels, size, size), torch.arange(count) % 10


@pytest.mark.parametrize("alpha", [0.2, 3.0])
def test_shares_are_of_a_beta_distribution(alpha: float) -> None:
    """The shares of a thousand steps pass the test of Kolmogorov and Smirnov."""
    drawn = [draw(tiny(mixup=alpha), step, 8, 8)[0].item() for step in range(1000)]
    assert stats.kstest(drawn, stats.beta(alpha, alpha).cdf).pvalue > 1e-3


class Shared:
    """Stands in for numpy.random inside timm: this package's generator, after a first number that makes timm mix."""

    def __init__(self, step: int) -> None:
        self.ours, self.begun = generator("mixing", 0, step), False

    def rand(self) -> float:
        begun, self.begun = self.begun, True
        return self.ours.random_sample() if begun else 0.0

    def beta(self, a: float, b: float) -> float:
        return self.ours.beta(a, b)

    def randint(self, low: int, high: int, size: object = None) -> int:
        return int(self.ours.randint(low, high))


@pytest.mark.parametrize("switch", [0.0, 0.2, 0.5, 1.0])
def test_switching_equals_timms(monkeypatch: pytest.MonkeyPatch, switch: float) -> None:
    """Given equal random numbers, timm makes equal images and targets; 0 is always mixup and 1 always CutMix."""
    images, labels = batch()
    config = tiny(mixup=0.8, cutmix=1.0, mix_switch_prob=switch)
    theirs = timm_mixup.Mixup(0.8, 1.0, switch_prob=switch, label_smoothing=0.0, num_classes=10)
    for step in range(20):
        ours, targets = mix(images, labels, config, step)
        same = Shared(step)
        with monkeypatch.context() as patch:
            patch.setattr(timm_mixup.np, "random", same)
            their_images, their_targets = theirs(images.clone(), labels)
        torch.testing.assert_close(ours, their_images)
        torch.testing.assert_close(targets, their_targets)


def test_batches_are_mixed_with_their_probability() -> None:
    """A mixed batch equals the batch with `mix_prob=1`; another batch stays as it was, with one label per image."""
    images, labels = batch()
    mixed, count = 0, 200
    sometimes, always = tiny(mix_prob=0.3, mixup=0.8, cutmix=1.0), tiny(mixup=0.8, cutmix=1.0)
    for step in range(count):
        ours, targets = mix(images, labels, sometimes, step)
        expected, shares = mix(images, labels, always, step)
        as_always = torch.equal(ours, expected) and torch.equal(targets, shares)
        assert as_always or (torch.equal(ours, images) and torch.equal(targets, F.one_hot(labels, 10).float()))
        mixed += as_always
    assert stats.binomtest(mixed, count, 0.3).pvalue > 1e-3


def test_switches_of_what_is_not_mixed_are_no_identity() -> None:
    """Probabilities without effect do not change a trial's id."""
    assert trial_id(tiny(mix_prob=0.5, mix_switch_prob=0.1)) == trial_id(tiny())
    assert trial_id(tiny(mixup=0.2, mix_switch_prob=0.1)) == trial_id(tiny(mixup=0.2))


def test_mixing_is_a_function_of_seed_and_step() -> None:
    """Repeating a step gives equal images; another step or seed gives others."""
    images, labels = batch()
    for settings in ({"mixup": 0.5}, {"cutmix": 1.0}):
        config = tiny(**settings)
        first, again, other = (mix(images, labels, config, step)[0] for step in (3, 3, 4))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert not torch.equal(first, mix(images, labels, tiny(seed=1, **settings), 3)[0])


def test_generator_is_pinned() -> None:
    """A trial that is resumed with a newer version draws the same shares."""
    assert generator("mixing", 0, 0).beta(0.2, 0.2) == pytest.approx(0.6856774963473468, abs=1e-12)


def test_training_mixes_before_it_splits() -> None:
    """Micro-batches have the gradients of the whole batch; the logged loss is the loss of the mixed targets."""
    config = tiny(mixup=0.8, cutmix=1.0, label_smoothing=0.1, lr=1e-4)
    data = load(config)
    whole, parts = Training(config, data), Training(tiny(**(dict(config) | {"micro_batch": 3})), data)
    mixed = whole.batch()
    assert mixed.targets.shape == (8, 10)
    torch.testing.assert_close(mixed.targets.sum(dim=1), torch.ones(8))
    expected = whole.train_step.gradients(mixed, 8).item()
    assert parts.train_step.gradients(parts.batch(), 3).item() == pytest.approx(expected, rel=1e-6)
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-6)
    whole.advance()
    assert whole.losses[0].item() == pytest.approx(expected, rel=1e-6)
    smoothed = 0.9 * mixed.targets + 0.01
    with torch.no_grad():
        logits = parts.model(mixed.images)
    assert expected == pytest.approx(-(smoothed * logits.log_softmax(1)).sum(1).mean().item(), rel=1e-5)


def test_odd_batch_leaves_its_middle_as_it_is() -> None:
    """The middle image of an odd batch is mixed with itself (timm refuses odd batches)."""
    images, labels = batch(7)
    mixed, targets = mix(images, labels, tiny(mixup=1.0), 0)
    torch.testing.assert_close(mixed[3], images[3])
    assert targets[3].argmax() == labels[3]
    assert np.isclose(targets[3].max(), 1.0)


@pytest.mark.parametrize("settings", [{"mixup": 0.3}, {"cutmix": 1.0}, {"mixup": 0.8, "cutmix": 1.0}])
def test_shares_as_tensors_give_the_bits_of_numbers(settings: dict[str, float]) -> None:
    """Choices in a tensor give the bits of Python's numbers and slices, for steps of mixup and of CutMix."""
    images, labels = batch()
    config = tiny(**settings)
    for step in range(20):
        random = generator("mixing", 0, step)
        cut = config.cutmix and (not config.mixup or random.random_sample() < 0.5)
        alpha = config.cutmix if cut else config.mixup
        share, expected = random.beta(alpha, alpha), images
        if cut:
            top, bottom, left, right = box(random, share, 9, 9)
            expected = images.clone()
            expected[:, :, top:bottom, left:right] = images.flip(0)[:, :, top:bottom, left:right]
            share = 1 - (bottom - top) * (right - left) / 81
        else:
            expected = images.lerp(images.flip(0), 1 - share)
        ours, targets = mix(images, labels, config, step)
        one_hot = F.one_hot(labels, 10).float()
        assert torch.equal(ours, expected)
        assert torch.equal(targets, one_hot.lerp(one_hot.flip(0), 1 - share))
