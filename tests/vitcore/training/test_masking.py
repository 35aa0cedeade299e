"""Masked patch prediction and the masked autoencoder against loops from arXiv 2010.11929 and arXiv 2111.06377."""

import math
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from trainings import advanced, finished, keys, tiny

from commonfloor.options import ConfigError
from vitcore import Config, train
from vitcore.analysis.cost import measure
from vitcore.contracts import learns, perturbed
from vitcore.data.splits import load
from vitcore.keyed_random import uniforms
from vitcore.model.position import POSITION, Context
from vitcore.training.evaluation import evaluate
from vitcore.training.objectives import OBJECTIVE
from vitcore.training.objectives.masked_patches import (
    BLOCK,
    BLOCKS,
    MaskedViT,
    Masks,
    PatchCorruption,
    corrupted_patches,
    mean_colors,
    normalized_patches,
)
from vitcore.training.run import Memory

masked = partial(tiny, depth=2, patch=2, batch=16, objective="masked-patch")
mae = partial(tiny, depth=2, patch=2, pool="cls", batch=16, objective="mae")


def cut(image: Tensor, patch: int, place: int) -> Tensor:
    """The pixels (C, P, P) of a patch, counted in raster order."""
    row, column = divmod(place, image.shape[2] // patch)
    return image[:, row * patch : (row + 1) * patch, column * patch : (column + 1) * patch]


def random_pixels(levels: int, *shape: int) -> Tensor:
    return torch.randint(0, levels, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


# -- masked patch prediction -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("channels", "levels", "patch"), [(1, 17, 2), (3, 256, 4), (1, 256, 8)])
def test_target_is_the_3_bit_mean_color(channels: int, levels: int, patch: int) -> None:
    """512 classes of RGB and 8 of grey, as a loop over images, patches and channels has them."""
    pixels = random_pixels(levels, 5, channels, 16, 16)
    pixels[0], pixels[1] = 0, levels - 1  # the extreme classes
    found = mean_colors(pixels, patch, levels)
    assert found.shape == (5, (16 // patch) ** 2)
    for image, place in product(range(5), range(found.shape[1])):
        color = 0
        for channel in cut(pixels[image], patch, place).tolist():
            color = 8 * color + math.floor(sum(map(sum, channel)) / patch**2 / (levels / 8))
        assert found[image, place] == color


def test_digits_use_all_eight_shades() -> None:
    """Bytes of 0 to 16 are cut into 8 shades over their own range, not over that of photographs."""
    training = advanced(masked())
    colors = mean_colors(training.data.train.pixels, 2, training.objective.levels)
    assert set(colors.unique().tolist()) == set(range(8))


def test_half_of_the_patches_are_corrupted_80_10_10() -> None:
    """Exactly half: 80% of these are the mask, 10% another patch of the image, 10% themselves."""
    images, patches, given = 2000, 16, keys(2000)
    corruption = PatchCorruption(masked(width=4))
    x = torch.arange(1.0, images * patches + 1).view(images, patches, 1).expand(-1, -1, 4)  # all differ
    with torch.no_grad():
        corruption.mask.fill_(-1.0)
        now, before = corruption(x.contiguous(), given)[..., 0], x[..., 0]
    chosen = torch.zeros(images, patches, dtype=torch.bool).scatter(1, corrupted_patches(given, patches), True)
    assert (chosen.sum(dim=1) == patches // 2).all()
    mask, itself = now == -1, now == before
    assert itself[~chosen].all()
    another = ~mask & ~itself
    own = (now[:, :, None] == before[:, None]).any(dim=2)  # a patch of the same image: no batch mate's
    assert own[another].all()
    for what, share in ((mask, 0.8), (another, 0.1), (itself & chosen, 0.1)):
        assert stats.binomtest(int(what.sum()), images * patches // 2, share).pvalue > 1e-3


def test_every_patch_is_chosen_alike_and_anew_each_epoch() -> None:
    chosen = corrupted_patches(keys(4000), 16)
    assert stats.chisquare(torch.bincount(chosen.flatten(), minlength=16).numpy()).pvalue > 1e-3
    assert not torch.equal(chosen, corrupted_patches(keys(4000, epoch=1), 16))
    assert not torch.equal(chosen, corrupted_patches(keys(4000, seed=1), 16))


def test_prediction_is_of_the_corrupted_patches_alone() -> None:
    """With keys the logits are those of the chosen places of the corrupted image; without, of all of the whole one."""
    model = MaskedViT(masked()).double()
    torch.nn.init.normal_(model.head.weight)
    images, given, seen = torch.randn(3, 1, 8, 8, dtype=torch.float64), keys(3), []
    model.encoder.norm.register_forward_hook(lambda module, inputs, output: seen.append(output))
    with torch.no_grad():
        some, every = model(images, given), model(images)
        assert (some.shape, every.shape) == ((3, 8, 8), (3, 16, 8))
        for image, chosen in enumerate(corrupted_patches(given, 16)):
            assert torch.allclose(some[image], model.head(seen[0][image, model.prefix + chosen]))


def test_masked_patch_prediction_learns() -> None:
    """The accuracy of the colors beats that of the commonest color, and no image is called right or wrong."""
    config, run = masked(width=32, steps=100, batch=32, lr=8e-3), Memory()
    outcome = train(config, run)
    colors = mean_colors(load(config).test.pixels, 2, 17)
    commonest = (colors == colors.flatten().mode().values).float().mean().item()
    assert outcome.metrics["test_accuracy"] > commonest + 0.05
    assert outcome.metrics["val_loss"] < math.log(8)
    assert run.correct is None


# -- masked autoencoder ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("channels", "levels", "patch"), [(1, 17, 2), (3, 256, 4), (3, 256, 1)])
def test_loss_is_that_of_normalized_pixels_of_masked_patches(channels: int, levels: int, patch: int) -> None:
    """A loop over images, masked patches and pixels, each patch with its own mean and deviation."""
    config = mae(image_size=8, channels=channels, patch=patch, data="cifar10" if levels == 256 else "digits")
    goal, given, pixels = OBJECTIVE["mae"](config), keys(3), random_pixels(levels, 3, channels, 8, 8)
    pixels[0, :, :4, :4] = 5  # of one colour: all zero
    targets = goal.targets(pixels, torch.zeros(3), given)
    predicted = torch.randn(targets.shape, generator=torch.Generator().manual_seed(0))
    chosen = goal.masks.split(given, (8 // patch) ** 2)[1]
    errors = []
    for image in range(3):
        for position, place in enumerate(chosen[image].tolist()):
            values = (cut(pixels[image], patch, place).double() / (levels - 1)).flatten().numpy()
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
    left, masked_places = model.objective.masks.split(given, 16)
    gone = torch.zeros(3, 16, dtype=torch.bool).scatter(1, masked_places, True).view(3, 1, 4, 4)
    hidden = images.masked_fill(gone.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3), 7)
    with torch.no_grad():
        assert torch.equal(model(images, given), model(hidden, given))
        contexts = [Context(model.position, (4, 4), model.prefix, some_keys) for some_keys in (None, given)]
        whole, some = (model.embed(images, context) for context in contexts)
    assert some.shape == (3, 3 + 4, 16)
    for image, places in enumerate(left):
        assert torch.equal(some[image, 3:], whole[image, 3 + places])


def test_decoder_puts_every_token_where_it_belongs() -> None:
    """By hand: the visible states in their places, the mask elsewhere, fixed positions, blocks, one layer."""
    model, given = perturbed(mae(**{"objective.decoder_depth": 2})), keys(3)
    images, decoder = torch.randn(3, 1, 8, 8, dtype=torch.float64), model.objective
    fixed = POSITION["sincos2d"](Config(position="sincos2d", width=8, heads=2, patch=2)).get_buffer("table")
    with torch.no_grad():
        *_, states = model.states(images, given)
        states = decoder.embed(model.encoder.norm(states))
        found = model(images, given)
        for image in range(3):
            left, masked_places = (one[0] for one in decoder.masks.split(given[image : image + 1], 16))
            patches = decoder.mask.repeat(16, 1)
            patches[left] = states[image, 1:]
            x = torch.cat([states[image, :1], patches + fixed])[None]
            for block in decoder.encoder.blocks:
                x = block(x, Context(decoder.position, (4, 4), 1))
            by_hand = model.head(decoder.encoder.norm(x))[0, 1 + masked_places]
            assert torch.allclose(found[image], by_hand, atol=1e-12)


def test_masks_are_keyed() -> None:
    """Three quarters of the patches, another mask each epoch and seed, the same one at every evaluation."""
    masks = OBJECTIVE["mae"](mae()).masks
    left, masked_places = masks.split(keys(2000), 16)
    assert (left.shape, masked_places.shape) == ((2000, 4), (2000, 12))
    assert torch.equal(torch.cat([left, masked_places], dim=1).sort().values, torch.arange(16).expand(2000, -1))
    assert stats.chisquare(torch.bincount(left.flatten(), minlength=16).numpy()).pvalue > 1e-3
    for other in (keys(2000, epoch=1), keys(2000, seed=1)):
        assert not torch.equal(masked_places, masks.split(other, 16)[1])
    training = advanced(mae())
    assert evaluate(training)["val_loss"] == evaluate(training)["val_loss"]


Set = set[tuple[int, int]]


def blocks_of_beit(side: int, hidden: int, draw: Callable[[], float]) -> list[Set]:
    """Return the patches of each block of arXiv 2106.08254, Algorithm 1, until `hidden` patches are masked."""
    masked: Set = set()
    blocks: list[Set] = []
    while len(masked) < hidden:
        smallest = side**2 * 16 // 196
        s = smallest + draw() * max(0, hidden - len(masked) - smallest)
        r = math.exp(math.log(0.3) + draw() * (math.log(1 / 0.3) - math.log(0.3)))
        a, b = round(math.sqrt(s * r)), round(math.sqrt(s / r))
        top, left = math.floor(draw() * (side - a + 1)), math.floor(draw() * (side - b + 1))
        block = set(product(range(top, top + a), range(left, left + b))) if max(a, b) <= side else set()
        masked |= block
        blocks.append(block)
    return blocks


def masks_of(sampling: str, ratio: float, side: int) -> Masks:
    """Return the masks of a model with side x side patches."""
    settings = {"objective.sampling": sampling, "objective.ratio": ratio, "image_size": 2 * side}
    return OBJECTIVE["mae"](mae(**settings)).masks


@pytest.mark.parametrize(("ratio", "side"), [(0.4, 14), (0.75, 14), (0.5, 8)])
def test_blocks_are_those_of_beits_algorithm(ratio: float, side: int) -> None:
    """With the same draws, in a loop over patches. Of the last block, a random part is masked: M is exact."""
    masks, given = masks_of("block", ratio, side), keys(40)
    found, places = masks.first_blocks(given, side**2), masks.split(given, side**2)[1]
    hidden = side**2 - int(side**2 * (1 - ratio))
    assert places.shape == (40, hidden)
    complete = 0
    for image, uniform in enumerate(uniforms(given, BLOCK, 4 * BLOCKS).tolist()):
        draws = iter(uniform)
        try:
            blocks = blocks_of_beit(side, hidden, lambda draws=draws: next(draws))
        except StopIteration:  # more than 32 blocks
            continue
        complete += 1
        first = [BLOCKS] * side**2
        for number, block in reversed(list(enumerate(blocks))):
            for i, j in block:
                first[i * side + j] = number
        assert found[image].tolist() == first
        chosen = {divmod(place, side) for place in places[image].tolist()}
        assert set().union(*blocks[:-1]) < chosen <= set().union(*blocks)
    assert complete >= 38


def test_a_grid_keeps_one_of_every_four_patches() -> None:
    """The same one of every 2 x 2 in an image, and each of the four in as many images."""
    left, hidden = masks_of("grid", 0.75, 6).split(keys(2000), 36)
    assert (left.shape, hidden.shape) == ((2000, 9), (2000, 27))
    assert torch.equal(torch.cat([left, hidden], dim=1).sort().values, torch.arange(36).expand(2000, -1))
    offsets = (left // 6 % 2) * 2 + left % 6 % 2
    assert (offsets == offsets[:, :1]).all()
    blocks = (left // 6 // 2) * 3 + left % 6 // 2
    assert torch.equal(blocks.sort().values, torch.arange(9).expand(2000, -1))
    assert stats.chisquare(torch.bincount(offsets[:, 0], minlength=4).numpy()).pvalue > 1e-3


@pytest.mark.parametrize("settings", [{"objective.ratio": 0.5}, {"image_size": 6}])
def test_a_grid_of_other_sizes_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"objective\.sampling=grid masks 0\.75 of an even number of rows"):
        mae(**{"objective.sampling": "grid"}, **settings)


def test_loss_may_be_on_all_patches_and_on_plain_pixels() -> None:
    """A loop over patches and pixels from -1 to 1. Scores compare masked patches with the mean of their pixels."""
    config = mae(**{"objective.target": "pixels", "objective.loss_on": "all"})
    goal, given, pixels = OBJECTIVE["mae"](config), keys(3), random_pixels(17, 3, 1, 8, 8)
    predicted, targets = torch.randn(3, 16, 4), goal.targets(pixels, torch.zeros(3), given)
    left, hidden = goal.masks.split(given, 16)
    errors, explained = [], []
    for image in range(3):
        order = [*hidden[image].tolist(), *left[image].tolist()]
        values = np.array([cut(pixels[image], 2, place).flatten().numpy() / 8.0 - 1 for place in order])
        squares = (predicted[image].numpy() - values) ** 2
        errors.append(squares.mean())
        explained.append(max(0, 1 - squares[:12].mean() / values[:12].var()))
        close = torch.from_numpy(values).float() + 0.1
        score = goal.scores(goal.answers(close[None], targets[image : image + 1]), targets)[1].item()
        assert score == pytest.approx(1 - 0.01 / values[:12].var(), rel=1e-4)
    assert goal.loss(predicted, targets).item() == pytest.approx(np.mean(errors), rel=1e-5)
    assert goal.scores(goal.answers(predicted, targets), targets)[1].tolist() == pytest.approx(explained, rel=1e-5)


def test_encoder_may_process_a_vector_for_each_masked_patch() -> None:
    """It has all patches, the vector in the masked places, and the decoder takes its states: by hand."""
    model, given = perturbed(mae(**{"objective.mask_in_encoder": True, "objective.loss_on": "all"})), keys(3)
    images, decoder = torch.randn(3, 1, 8, 8, dtype=torch.float64), model.objective
    with torch.no_grad():
        plain, found = model.stem(images), model(images, given)
        for image in range(3):
            left, hidden = (one[0] for one in decoder.masks.split(given[image : image + 1], 16))
            plain[image, hidden] = decoder.mask
            context = Context(model.position, (4, 4), 1)
            x = torch.cat([model.prefix_tokens()[0], model.position.tokens(plain[image : image + 1], 0, (4, 4))], dim=1)
            for block in model.encoder.blocks:
                x = block(x, context)
            x = decoder.embed(model.encoder.norm(x))
            x = torch.cat([x[:, :1], decoder.position.tokens(x[:, 1:], 0, (4, 4))], dim=1)
            for block in decoder.encoder.blocks:
                x = block(x, Context(decoder.position, (4, 4), 1))
            by_hand = model.head(decoder.encoder.norm(x))[0, 1 + torch.cat([hidden, left])]
            assert torch.allclose(found[image], by_hand, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": "block", "target": "pixels"},
        {"sampling": "grid", "loss_on": "all"},
        {"sampling": "block", "ratio": 0.5, "mask_in_encoder": True, "loss_on": "all"},
    ],
)
def test_every_option_trains_all_parameters_and_resumes(options: dict[str, Any]) -> None:
    config = mae(steps=4, pool="gap", **{f"objective.{name}": value for name, value in options.items()})
    learns(config, "objective", "mae")
    assert finished(config).weights == finished(config, 2).weights


def test_flops_are_those_of_a_masked_image() -> None:
    """By hand: an encoder of a quarter of the patches and a decoder of all, not an encoder of all."""

    def blocks(tokens: int, width: int, depth: int) -> int:
        return depth * (2 * tokens * 12 * width**2 + 4 * tokens**2 * width)

    stem, pixels = 2 * 64 * 4 * 16, 4
    decoder = 2 * 16 * 16 * 8 + blocks(64, 8, 1) + 2 * 48 * 8 * pixels
    assert measure(mae(pool="gap", image_size=16)).flops == stem + blocks(16, 16, 2) + decoder


def test_masked_autoencoder_learns() -> None:
    """Masked pixels are predicted better than by the mean of each place over the training images."""
    config, run = mae(width=32, depth=2, steps=400, batch=32, lr=4e-3, pool="gap", evaluations=1), Memory()
    outcome, data = train(config, run), load(config)
    known, values = (normalized_patches(part.pixels, 2, 17) for part in (data.train, data.test))
    assert outcome.metrics["test_loss"] < 0.97 * (values - known.mean(dim=0)).square().mean().item()
    assert 0.2 < outcome.metrics["test_accuracy"] < 1
    assert run.correct is None
