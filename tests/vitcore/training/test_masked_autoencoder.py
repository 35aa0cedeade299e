"""The masked autoencoder: its loss, its masks and what its encoder sees, against loops from arXiv 2111.06377."""

from functools import partial

import numpy as np
import pytest
import torch
from trainings import keys, tiny

from vitcore import Config, train
from vitcore.analysis.cost import measure
from vitcore.contracts import perturbed
from vitcore.data.splits import load
from vitcore.model.position import POSITION, Context
from vitcore.training.loop import Training
from vitcore.training.objectives import OBJECTIVE
from vitcore.training.objectives.masked_autoencoder import normalized_patches
from vitcore.training.run import Memory

mae = partial(tiny, depth=2, patch=2, pool="cls", batch=16, objective="mae")


@pytest.mark.parametrize(("channels", "levels", "patch"), [(1, 17, 2), (3, 256, 4), (3, 256, 1)])
def test_loss_is_that_of_normalized_pixels_of_masked_patches(channels: int, levels: int, patch: int) -> None:
    """A loop over images, masked patches and pixels, each patch with its own mean and deviation."""
    config = mae(image_size=8, channels=channels, patch=patch, data="cifar10" if levels == 256 else "digits")
    goal, generator = OBJECTIVE["mae"](config), torch.Generator().manual_seed(0)
    pixels = torch.randint(0, levels, (3, channels, 8, 8), dtype=torch.uint8, generator=generator)
    pixels[0, :, :4, :4] = 5  # of one colour: all zero
    given = keys(3)
    targets = goal.targets(pixels, torch.zeros(3), given)
    predicted = torch.randn(3, *goal.shape, generator=generator)
    chosen = goal.options.split(given, (8 // patch) ** 2)[1]  # type: ignore[attr-defined]
    errors = []
    for image in range(3):
        for position, place in enumerate(chosen[image].tolist()):
            row, column = divmod(place, 8 // patch)
            cut = pixels[image, :, row * patch : (row + 1) * patch, column * patch : (column + 1) * patch]
            values = (cut.double() / (levels - 1)).flatten().numpy()
            wanted = (values - values.mean()) / np.sqrt(values.var(ddof=1) + 1e-6)
            errors.append(((predicted[image, position].numpy() - wanted) ** 2).mean())
    assert len(errors) == 3 * round(0.75 * (8 // patch) ** 2)
    assert goal.loss(predicted, targets).item() == pytest.approx(np.mean(errors), rel=1e-5)
    loss, explained = goal.scores(goal.answers(predicted, targets), goal.remembered(targets))
    assert loss == pytest.approx(np.mean(errors), rel=1e-5)
    assert goal.scores(goal.answers(targets, targets), targets)[1].tolist() == pytest.approx([1, 1, 1])
    assert explained.tolist() == [0, 0, 0]  # noise explains nothing


def test_encoder_sees_the_visible_patches_alone() -> None:
    """Other pixels in the masked patches change nothing; the tokens are those of the visible ones with their places."""
    model, given = perturbed(mae(registers=2)), keys(3)
    images = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    left, masked = model.objective.options.split(given, 16)
    gone = torch.zeros(3, 16, dtype=torch.bool).scatter(1, masked, True).view(3, 1, 4, 4)
    hidden = images.masked_fill(gone.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3), 7)
    with torch.no_grad():
        assert torch.equal(model(images, given), model(hidden, given))
        contexts = [Context(model.position, (4, 4), model.prefix, some_keys) for some_keys in (None, given)]
        whole, some = (model.embed(images, context) for context in contexts)
    assert some.shape == (3, 3 + 4, 16)
    for image, places in enumerate(left.tolist()):
        assert torch.equal(some[image, 3:], whole[image, [3 + place for place in places]])


def test_decoder_puts_every_token_where_it_belongs() -> None:
    """By hand: the visible states in their places, the mask elsewhere, fixed positions, blocks, one layer."""
    model, given = perturbed(mae(**{"objective.decoder_depth": 2})), keys(3)
    images = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    decoder = model.objective
    fixed = POSITION["sincos2d"](Config(position="sincos2d", width=8, heads=2, patch=2))
    with torch.no_grad():
        *_, states = model.states(images, given)
        states = decoder.embed(model.encoder.norm(states))
        found = model(images, given)
        for image in range(3):
            left, masked = (one.tolist() for one in decoder.options.split(given[image : image + 1], 16))
            tokens = [states[image, 0]]
            for place in range(16):
                token = states[image, 1 + left[0].index(place)] if place in left[0] else decoder.mask
                tokens.append(token + fixed.get_buffer("table")[place])
            x = torch.stack(tokens)[None]
            for block in decoder.encoder.blocks:
                x = block(x, Context(decoder.position, (4, 4), 1))
            by_hand = model.head(decoder.encoder.norm(x))[0, [1 + place for place in masked[0]]]
            assert torch.allclose(found[image], by_hand, atol=1e-12)


def test_masks_are_keyed() -> None:
    """Three quarters of the patches, another mask each epoch and seed, the same one at every evaluation."""
    options = mae().options_of("objective", OBJECTIVE["mae"].Options)
    left, masked = options.split(keys(2000), 16)  # type: ignore[arg-type]
    assert (left.shape, masked.shape) == ((2000, 4), (2000, 12))
    assert torch.equal(torch.cat([left, masked], dim=1).sort(dim=1).values, torch.arange(16).expand(2000, -1))
    counts = torch.bincount(left.flatten(), minlength=16)
    assert (counts - 500).abs().max() < 5 * 500**0.5
    for other in (keys(2000, epoch=1), keys(2000, seed=1)):
        assert not torch.equal(masked, options.split(other, 16)[1])  # type: ignore[arg-type]
    training = Training(config := mae(), load(config))
    assert training.evaluate()["val_loss"] == training.evaluate()["val_loss"]


def test_flops_are_those_of_a_masked_image() -> None:
    """By hand: an encoder of a quarter of the patches and a decoder of all, not an encoder of all."""
    config = mae(pool="gap", image_size=16)

    def blocks(tokens: int, width: int, depth: int) -> int:
        return depth * (2 * tokens * 12 * width**2 + 4 * tokens**2 * width)

    stem, pixels = 2 * 64 * 4 * 16, 4
    decoder = 2 * 16 * 16 * 8 + blocks(64, 8, 1) + 2 * 48 * 8 * pixels
    assert measure(config).flops == stem + blocks(16, 16, 2) + decoder


def test_it_learns() -> None:
    """Masked pixels are predicted better than by the mean of each place over the training images."""
    config, run = mae(width=32, depth=2, steps=400, batch=32, lr=4e-3, pool="gap", evaluations=1), Memory()
    outcome, data = train(config, run), load(config)
    known, values = (normalized_patches(part.pixels, 2, 17) for part in (data.train, data.test))
    assert outcome.metrics["test_loss"] < 0.97 * (values - known.mean(dim=0)).square().mean().item()
    assert 0.2 < outcome.metrics["test_accuracy"] < 1
    assert run.correct is None
