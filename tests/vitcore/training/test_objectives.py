"""Masked patch prediction: its targets and its corruption against loops written from the paper's definition."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from trainings import keys, tiny

from vitcore import Config, ViT, train
from vitcore.data.splits import load
from vitcore.training.loop import Training
from vitcore.training.objectives import OBJECTIVE
from vitcore.training.objectives.masked_patches import Corruption, MaskedViT, corrupted, mean_colors
from vitcore.training.run import Memory

masked = partial(tiny, depth=2, patch=2, batch=16, objective="masked-patch")


@pytest.mark.parametrize(("channels", "levels", "patch"), [(1, 17, 2), (3, 256, 4), (1, 256, 8)])
def test_target_is_the_3_bit_mean_color(channels: int, levels: int, patch: int) -> None:
    """512 classes of RGB and 8 of grey, as a loop over images, patches and channels has them."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, levels, (5, channels, 16, 16), dtype=torch.uint8, generator=generator)
    pixels[0], pixels[1] = 0, levels - 1  # the extreme classes
    found = mean_colors(pixels, patch, levels)
    assert found.shape == (5, (16 // patch) ** 2)
    for image in range(5):
        for place in range(found.shape[1]):
            row, column = divmod(place, 16 // patch)
            cut = pixels[image, :, row * patch : (row + 1) * patch, column * patch : (column + 1) * patch]
            color = 0
            for channel in cut.tolist():
                mean = sum(map(sum, channel)) / patch**2
                color = 8 * color + math.floor(mean / (levels / 8))
            assert found[image, place] == color


def test_digits_use_all_eight_shades() -> None:
    """Bytes of 0 to 16 are cut into 8 shades over their own range, not over that of photographs."""
    training = Training(config := masked(), load(config))
    images = training.data.train
    assert set(mean_colors(images.pixels, 2, training.objective.levels).unique().tolist()) == set(range(8))  # type: ignore[attr-defined]


def test_half_of_the_patches_are_corrupted_80_10_10() -> None:
    """Exactly half: 80% of these are the mask, 10% another patch of the image, 10% themselves."""
    images, patches, given = 2000, 16, keys(2000)
    corruption = Corruption(masked(width=4))
    x = torch.arange(1.0, images * patches + 1).view(images, patches, 1).expand(-1, -1, 4)  # all differ
    with torch.no_grad():
        corruption.mask.fill_(-1.0)
        now, before = corruption(x.contiguous(), given)[..., 0], x[..., 0]
    chosen = torch.zeros(images, patches, dtype=torch.bool).scatter(1, corrupted(given, patches), True)
    assert (chosen.sum(dim=1) == patches // 2).all()
    mask, itself = now == -1, now == before
    assert itself[~chosen].all()
    another = ~mask & ~itself
    own = (now[:, :, None] == before[:, None]).any(dim=2)  # a patch of the same image: no batch mate's
    assert own[another].all()
    for what, share in ((mask, 0.8), (another, 0.1), (itself & chosen, 0.1)):
        assert stats.binomtest(int(what.sum()), images * patches // 2, share).pvalue > 1e-3


def test_every_patch_is_chosen_alike_and_anew_each_epoch() -> None:
    """No place is preferred, and another epoch corrupts other patches."""
    chosen = corrupted(keys(4000), 16)
    counts = torch.bincount(chosen.flatten(), minlength=16)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3
    assert not torch.equal(chosen, corrupted(keys(4000, epoch=1), 16))
    assert not torch.equal(chosen, corrupted(keys(4000, seed=1), 16))


def test_prediction_is_of_the_corrupted_patches_alone() -> None:
    """With keys the logits are those of the chosen places of the corrupted image; without, of all of the whole one."""
    model = MaskedViT(masked()).double()
    torch.nn.init.normal_(model.head.weight)
    images, given = torch.randn(3, 1, 8, 8, dtype=torch.float64), keys(3)
    seen = []
    model.encoder.norm.register_forward_hook(lambda module, inputs, output: seen.append(output))
    with torch.no_grad():
        some, every = model(images, given), model(images)
    assert some.shape == (3, 8, 8)
    assert every.shape == (3, 16, 8)
    for image, chosen in enumerate(corrupted(given, 16).tolist()):
        for position, place in enumerate(chosen):
            by_hand = model.head.weight @ seen[0][image, model.prefix + place] + model.head.bias
            assert torch.allclose(some[image, position], by_hand)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_binary_cross_entropy_is_of_each_class_alone(smoothing: float) -> None:
    """Written out; both classes of a mixed image are right. Verdicts stay those of cross-entropy."""
    config = Config(**{"objective.loss": "binary-cross-entropy"}, label_smoothing=smoothing)
    goal, logits = OBJECTIVE["classification"](config), torch.randn(3, 10, dtype=torch.float64)
    labels, mixed, p = torch.tensor([4, 0, 7]), torch.zeros(3, 10, dtype=torch.float64), logits.sigmoid()
    mixed[0, 4], mixed[1, 0], mixed[1, 2], mixed[2, 7] = 1, 0.7, 0.3, 1
    for targets, right in ((labels, F.one_hot(labels, 10)), (mixed, mixed > 0)):
        wanted = (1 - smoothing) * right.double() + smoothing / 10
        expected = -(wanted * p.log() + (1 - wanted) * (1 - p).log()).mean()
        torch.testing.assert_close(goal.loss(logits, targets), expected)
    loss, right_ones = goal.scores(logits, labels)
    assert loss == pytest.approx(F.cross_entropy(logits, labels).item())
    assert right_ones.shape == (3,)


def test_it_learns_and_says_how_well() -> None:
    """The accuracy of the colors beats that of the commonest color, and no image is called right or wrong."""
    config, run = masked(width=32, steps=100, batch=32, lr=8e-3), Memory()
    outcome = train(config, run)
    data = load(config)
    colors = mean_colors(data.test.pixels, 2, 17)
    commonest = (colors == colors.flatten().mode().values).float().mean().item()
    assert outcome.metrics["test_accuracy"] > commonest + 0.05
    assert outcome.metrics["val_loss"] < math.log(8)
    assert run.correct is None


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_binary_cross_entropy_starts_at_the_frequency_of_a_class(head: str) -> None:
    """With a bias of -log(K - 1) each class has the probability 1 / K: the loss is the entropy of that."""
    bias = {"head.bias": -math.log(9), "objective.loss": "binary-cross-entropy"}
    config = tiny(head=head, **bias)
    logits = ViT(config)(torch.randn(10, 1, 8, 8))
    loss = OBJECTIVE["classification"](config).loss(logits, torch.arange(10))
    assert loss.item() == pytest.approx(-0.1 * math.log(0.1) - 0.9 * math.log(0.9), rel=1e-5)
