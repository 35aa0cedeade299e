"""I-JEPA against the rules of arXiv 2301.08243 for blocks, and against loops by hand."""

import math
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from trainings import keys, tiny

from vitcore import Config
from vitcore.analysis.cost import measure
from vitcore.contracts import in_float64, perturbed
from vitcore.model.position import POSITION, Context
from vitcore.training.algorithms import AveragedTeacher
from vitcore.training.objectives import OBJECTIVE
from vitcore.training.objectives.ijepa import Blocks, Predicting

ijepa = partial(tiny, patch=2, pool="cls", objective="ijepa", depth=2, **{"objective.predictor_width": 8})


def rectangle(inside: Tensor) -> tuple[int, int]:
    """Return the height and width of a block (R, C), which must fill its bounding box."""
    rows, columns = inside.any(dim=1).nonzero()[:, 0], inside.any(dim=0).nonzero()[:, 0]
    height, width = int(rows[-1] - rows[0]) + 1, int(columns[-1] - columns[0]) + 1
    assert inside.sum() == height * width
    return height, width


@pytest.mark.parametrize("side", [4, 14])
def test_blocks_follow_the_rules(side: int) -> None:
    """Four targets of 15 to 20% and aspects of 0.75 to 1.5; a square context of 85 to 100%, apart from rounding."""
    blocks, images = Blocks((side, side)), 300
    inside = blocks.inside(keys(images)).view(images, 5, side, side)
    sizes = np.array([[rectangle(block) for block in image] for image in inside])  # (images, 5, 2)
    for areas, aspects, some in [((0.15, 0.2), (0.75, 1.5), sizes[:, :4]), ((0.85, 1), (1, 1), sizes[:, 4:])]:
        for axis, ratios in ((0, aspects), (1, (1 / aspects[1], 1 / aspects[0]))):
            low, high = (side * math.sqrt(area * ratio) for area, ratio in zip(areas, ratios, strict=True))
            assert set(some[..., axis].flatten()) == {*range(round(low), min(side, round(high)) + 1)}
    tops = inside[:, :4].any(dim=3).int().argmax(dim=2)
    assert set(tops.flatten().tolist()) == {*range(side - round(side * math.sqrt(0.15 * 0.75)) + 1)}
    assert not torch.equal(inside[:, 0], inside[:, 1])


@pytest.mark.parametrize("side", [4, 14])
def test_context_has_no_patch_of_a_target(side: int) -> None:
    """It is in its block and outside the targets. Only where these leave too few patches, some stand twice."""
    blocks, images = Blocks((side, side)), 500
    inside = blocks.inside(keys(images))
    context = blocks.context(keys(images))
    places, counts = blocks.targets(keys(images))
    assert context.shape == (images, side**2 // 3)
    empty = repeated = 0
    for image in range(images):
        left = {*(inside[image, 4] & ~inside[image, :4].any(dim=0)).nonzero()[:, 0].tolist()}
        chosen = context[image].tolist()
        if not left:
            empty += 1
            continue
        assert {*chosen} <= left
        assert len({*chosen}) == min(len(left), len(chosen))
        repeated += len({*chosen}) < len(chosen)
        for target in range(4):
            listed = places[image, target][counts[image, target]].tolist()
            assert listed == inside[image, target].nonzero()[:, 0].tolist()
            assert {*places[image, target].tolist()} == {*listed}
    assert empty <= 0.01 * images
    assert repeated <= 0.2 * images


def test_blocks_are_keyed() -> None:
    """Another epoch or seed has other blocks, and an image's are its own in any batch."""
    blocks = Blocks((8, 8))
    whole = blocks.inside(keys(50))
    assert torch.equal(whole[7:8], blocks.inside(keys(50)[7:8]))
    assert not torch.equal(whole, blocks.inside(keys(50, epoch=1)))
    assert not torch.equal(whole, blocks.inside(keys(50, seed=1)))


def test_encoder_sees_the_context_alone_and_the_teacher_all() -> None:
    """Other pixels outside the context change no prediction. The targets are the whole image's normalized features."""
    model, given = perturbed(ijepa(registers=2)), keys(3)
    assert isinstance(model, Predicting)
    images = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    seen = torch.zeros(3, 16, dtype=torch.bool).scatter(1, model.blocks.context(given), True).view(3, 1, 4, 4)
    hidden = images.masked_fill(~seen.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3), 7)
    with torch.no_grad():
        predicted, taught = model(images, given)
        assert torch.equal(predicted, model(hidden, given)[0])
        assert not torch.allclose(taught, model(hidden, given)[1])
        *_, states = model.states(images)
        features = F.layer_norm(model.encoder.norm(states)[:, model.prefix :], (16,))
    places, _ = model.blocks.targets(given)
    for image, target in product(range(3), range(4)):
        assert torch.allclose(taught[image, target], features[image, places[image, target]], atol=1e-12)


def test_predictor_predicts_each_target_alone() -> None:
    """By hand: the context's states with their places, then one target's masks with theirs, blocks, one layer."""
    model, given = perturbed(ijepa()), keys(2)
    assert isinstance(model, Predicting)
    images, predictor = torch.randn(2, 1, 8, 8, dtype=torch.float64), model.objective
    fixed = POSITION["sincos2d"](Config(position="sincos2d", width=8, heads=2, patch=2)).get_buffer("table")
    context, (targets, _) = model.blocks.context(given), model.blocks.targets(given)
    with torch.no_grad():
        *_, states = model.states(images, given)
        states = predictor.embed(model.encoder.norm(states))
        predicted, _ = model(images, given)
        for image, target in product(range(2), range(4)):
            seen = [states[image, :1], states[image, 1:] + fixed[context[image]]]
            masks = predictor.mask + fixed[targets[image, target]]
            x = torch.cat([*seen, masks])[None]
            for block in predictor.encoder.blocks:
                x = block(x, Context(predictor.position, (4, 4)))
            by_hand = model.head(predictor.encoder.norm(x))[0, -len(masks) :]
            assert torch.allclose(predicted[image, target], by_hand, atol=1e-12)


def test_loss_is_that_of_the_targets_patches() -> None:
    """A loop over images, targets and their patches, without repetitions. Only that variance counts as explained."""
    objective = OBJECTIVE["ijepa"](ijepa())
    places, counts = Blocks((4, 4)).targets(keys(5))
    generator = torch.Generator().manual_seed(0)
    outputs = tuple(torch.randn((*places.shape, 16), dtype=torch.float64, generator=generator) for _ in range(2))
    weights = objective.targets(torch.zeros(5), torch.zeros(5), keys(5))
    losses, explained = [], []
    for image in range(5):
        predicted, taught = (output[image][counts[image]].numpy() for output in outputs)  # (patches, D)
        gap = np.abs(predicted - taught)
        losses.append(np.where(gap < 1, gap**2 / 2, gap - 0.5).mean())
        explained.append(max(0, 1 - (gap**2).mean() / taught.var(axis=0).mean()))
    assert objective.loss(outputs, weights).item() == pytest.approx(np.mean(losses), rel=1e-6)
    answers = objective.answers((0.4 * outputs[0] + 0.6 * outputs[1], outputs[1]), weights)
    loss, right = objective.scores(objective.answers(outputs, weights), objective.remembered(weights))
    assert loss == pytest.approx(np.mean(losses), rel=1e-6)
    assert right.tolist() == pytest.approx(explained, abs=1e-6)
    assert (objective.scores(answers, weights)[1] > 0.3).all()


def test_momentum_rises_linearly_to_one() -> None:
    training = in_float64(ijepa(steps=4, **{"objective.momentum": 0.8}))
    average = training.average
    assert isinstance(average, AveragedTeacher)
    for step in range(4):
        before = [p.clone() for p in average.teacher.parameters()]
        training.advance()
        m = 0.8 + 0.2 * step / 4
        for old, new, live in zip(before, average.teacher.parameters(), training.model.parameters(), strict=True):
            assert torch.allclose(new, m * old + (1 - m) * live, atol=1e-12)


def test_flops_are_those_of_student_predictor_and_teacher() -> None:
    """By hand: an encoder of a third of the patches, one of all, and a predictor for each of four targets."""

    def blocks(tokens: int, width: int, depth: int) -> int:
        return depth * (2 * tokens * 12 * width**2 + 4 * tokens**2 * width)

    target = Blocks((8, 8)).target_size
    stem = 2 * 64 * 4 * 16
    predictor = 2 * 21 * 16 * 8 + 4 * (blocks(21 + target, 8, 1) + 2 * target * 8 * 16)
    wanted = 2 * stem + blocks(21, 16, 2) + blocks(64, 16, 2) + predictor
    assert measure(ijepa(pool="gap", image_size=16)).flops == wanted
