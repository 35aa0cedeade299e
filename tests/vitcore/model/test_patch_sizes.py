"""Patches of several sizes, against timm and the closed form."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
import trainings
from timm.layers.patch_embed import resample_patch_embed

from ablations.trainables.vit.planned import training_flops
from commonfloor.options import ConfigError
from vitcore import Config, ViT, train
from vitcore.analysis.cost import measure
from vitcore.analysis.eval import restore_model
from vitcore.analysis.other_images import OtherImages
from vitcore.contracts import perturbed
from vitcore.data.splits import load
from vitcore.model.position import POSITION
from vitcore.model.stem import inverse_resize, resize_weight
from vitcore.training.evaluation import evaluate
from vitcore.training.run import Memory
from vitcore.training.state import Training

flexible = partial(trainings.tiny, depth=2, patch=2, pool="cls", batch=16, steps=8, **{"stem.patches": [1, 2, 4]})


@pytest.mark.parametrize(("old", "new"), [(2, 1), (2, 4), (4, 6), (16, 8), (16, 14), (8, 12), (14, 16)])
def test_resized_weights_are_those_of_timm(old: int, new: int) -> None:
    """`resample_patch_embed`, bilinear and without antialiasing as in the paper's code, up and down."""
    weight = 0.05 * torch.randn(5, 3, old, old, generator=torch.Generator().manual_seed(0))
    theirs = resample_patch_embed(weight, [new, new], interpolation="bilinear", antialias=False)
    torch.testing.assert_close(resize_weight(weight, inverse_resize(old, new)), theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("form", ["linear", "convolution"])
def test_images_are_cut_into_patches_of_the_size(form: str) -> None:
    """As a strided convolution by the resized weights; afterwards the model has its own patch again."""
    model = perturbed(flexible(**{"stem.form": form})).eval()
    images = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    weight = resize_weight(model.stem.weight, inverse_resize(2, 4))
    with torch.no_grad(), model.at_patch(4):
        expected = F.conv2d(images, weight, model.stem.bias, stride=4).flatten(2).transpose(1, 2)
        assert torch.allclose(model.patches(images), expected, atol=1e-6)  # the matrix is kept in float32
    assert model.patches(images).shape == (2, 16, 16)


@pytest.mark.parametrize("position", [name for name in POSITION if name != "relative"])
def test_every_step_draws_a_size_and_every_position_goes_along(position: str) -> None:
    """By a draw that only seed and step decide; evaluations have the model's own patch."""
    training = Training(config := flexible(position=position, steps=30), load(flexible()))
    seen: list[int] = []
    training.model.stem.register_forward_hook(lambda module, inputs, tokens: seen.append(tokens.shape[1]))
    for _ in range(6):
        training.advance()
    assert set(seen) == {64, 16, 4}
    other = Training(config, training.data)
    other.step = 5
    with other.patches_of_step():
        assert (8 // other.model.patch) ** 2 == seen[5]
    seen.clear()
    evaluate(training)
    assert set(seen) == {16}


def test_sizes_are_equally_likely_and_drawn_anew_by_each_seed() -> None:
    drawn: list[list[int]] = [[], []]
    for seed, sizes in enumerate(drawn):
        training = Training(flexible(seed=seed), load(flexible()))
        for training.step in range(300):
            with training.patches_of_step():
                sizes.append(training.model.patch)
        assert all(abs(sizes.count(size) - 100) < 40 for size in (1, 2, 4))
    assert drawn[0] != drawn[1]


def test_accuracy_by_patch_is_that_of_the_model_there() -> None:
    """By hand, from resized weights in a ViT of that patch; at its own patch it is the result's."""
    config, run = flexible(position="sincos2d", pool="gap", steps=40), Memory()
    outcome = train(config, run)
    model = restore_model(config, run.weights)
    assert OtherImages("patch2").compute(model).metrics["test_accuracy@patch2"] == pytest.approx(
        outcome.metrics["test_accuracy"]
    )
    native, state = ViT(Config(**config.model_dump() | {"patch": 4, "options": {}})).eval(), model.state_dict()
    theirs = resample_patch_embed(state["stem.weight"], [4, 4], interpolation="bilinear", antialias=False)
    native.load_state_dict(state | {"stem.weight": theirs})
    data = load(config)
    with torch.no_grad():
        loss = F.cross_entropy(native(data.standardize(data.test.pixels)), data.test.labels).item()
    assert OtherImages("patch4").compute(model).metrics["test_loss@patch4"] == pytest.approx(loss, rel=1e-4)


def test_training_costs_the_mean_over_the_sizes() -> None:
    config = flexible()
    each = [measure(Config(**config.model_dump() | {"patch": size, "options": {}})).flops for size in (1, 2, 4)]
    assert training_flops(config) == 3 * round(sum(each) / 3) * config.batch
    assert measure(config).flops == each[1]


def test_a_stem_without_resizable_weights_is_refused() -> None:
    with pytest.raises(ConfigError, match="patches of 4 pixels: stem=conv has no weights that resize"):
        OtherImages("patch4").check(Config(width=16, heads=2, patch=2, stem="conv"))
