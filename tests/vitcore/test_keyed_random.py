"""The hash behind random choices: its statistics at fixed keys, and what dropout and stochastic depth make of it."""

import math
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import trainings
from scipy import stats
from trainings import keys

from vitcore import ViT
from vitcore.data.splits import Order, load
from vitcore.keyed_random import bits, image_keys, integers, integers_on_cpu, keep_mask, mix64, site_code
from vitcore.model.dropout import Dropout, DropPath
from vitcore.model.position import Context
from vitcore.training.state import Training


def test_keys_are_distinct_over_seeds_epochs_and_images() -> None:
    many = torch.cat([keys(50_000, seed, epoch) for seed in (0, 1) for epoch in range(4)])
    assert len(many.unique()) == len(many)


def test_keys_are_the_published_hash() -> None:
    """The first outputs of SplitMix64 from seed 1234567 are those of its reference implementation."""
    states = np.array([(1234567 + i * 0x9E3779B97F4A7C15) % 2**64 for i in range(3)], np.uint64)
    assert mix64(states).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_bits_are_the_published_hash_of_plain_integers() -> None:
    def lowbias32(x: int) -> int:
        x = (x ^ x >> 16) * 0x7FEB352D % 2**32
        x = (x ^ x >> 15) * 0x846CA68B % 2**32
        return x ^ x >> 16

    some, site = keys(5), site_code("somewhere")
    for i, key in enumerate(some.tolist()):
        image = lowbias32(lowbias32((key ^ site) % 2**32) ^ ((key >> 32) % 2**32))
        for element in (0, 1, 77):
            expected = lowbias32((image + lowbias32(element)) % 2**32)
            assert bits(some, site, 78)[i, element].item() % 2**32 == expected


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5, 0.9])
def test_rate_is_exact(rate: float) -> None:
    """Of four million elements a share of 1 - rate stays; sums over images and elements vary as binomials do."""
    mask = keep_mask(keys(2000), site_code("a"), 2000, rate)
    assert abs(mask.double().mean().item() - (1 - rate)) < 4 * math.sqrt(rate * (1 - rate) / mask.numel())
    for dim in (0, 1):
        sums = mask.sum(dim=dim).double()
        assert sums.var().item() == pytest.approx(2000 * rate * (1 - rate), rel=0.15)


def test_masks_are_independent() -> None:
    """A contingency table of both masks, a quarter of a million elements: chi-square."""
    one = keep_mask(keys(500), site_code("a"), 500, 0.3)
    pairs = {
        "sites": (one, keep_mask(keys(500), site_code("b"), 500, 0.3)),
        "epochs": (one, keep_mask(keys(500, epoch=1), site_code("a"), 500, 0.3)),
        "seeds": (one, keep_mask(keys(500, seed=1), site_code("a"), 500, 0.3)),
        "images": (one[:-1], one[1:]),
        "elements": (one[:, :-1], one[:, 1:]),
        "rows": (one[:, :-64], one[:, 64:]),
    }
    for what, masks in pairs.items():
        first, second = (mask.flatten().long() for mask in masks)
        table = torch.bincount(2 * first + second, minlength=4).view(2, 2).numpy()
        assert stats.chi2_contingency(table).pvalue > 1e-3, what


@pytest.mark.parametrize(("limit", "elements"), [(2, 1), (9, 2), (31, 5)])
def test_what_numpy_decides_is_what_pytorch_does(limit: int, elements: int) -> None:
    some = keys(1000, seed=3, epoch=7)
    assert (some < 0).any()
    for site in (site_code("crop"), site_code("flip"), -1, 2**31 - 1):
        assert torch.equal(integers_on_cpu(limit, some, site, elements), integers(limit, some, site, elements))


def test_dropout_keeps_the_expectation_and_scales_what_stays() -> None:
    dropout, x = Dropout(0.25, "here"), torch.full((400, 10, 50), 3.0)
    y = dropout(x, keys(400))
    assert y.unique().tolist() == [0.0, 4.0]
    assert y.mean().item() == pytest.approx(3.0, rel=0.01)


def test_stochastic_depth_leaves_out_whole_images() -> None:
    y = DropPath(0.25, "here")(torch.ones(4000, 3, 2), keys(4000)).flatten(1)
    assert torch.equal(y.amin(dim=1), y.amax(dim=1))
    assert y.mean().item() == pytest.approx(1.0, rel=0.04)


tiny = partial(trainings.tiny, depth=2, patch=2, pool="cls", data_fraction=0.1)


def noisy_model(**settings: Any) -> ViT:
    return ViT(tiny(**({"dropout": 0.2, "drop_path": 0.3, "head_init": "lecun-normal"} | settings))).train()


def test_evaluation_has_no_noise_and_training_needs_keys() -> None:
    noisy, plain, images = noisy_model(), noisy_model(dropout=0.0, drop_path=0.0).eval(), torch.randn(3, 1, 8, 8)
    with pytest.raises(AssertionError, match="needs the images' keys"):
        noisy(images)
    assert torch.equal(noisy.eval()(images), plain(images))


def test_dropout_stands_where_the_reference_has_it() -> None:
    """models_vit.py: over all tokens once positions are added, after attention's output, and twice in each MLP."""
    with mock.patch.object(Dropout, "mask", autospec=True, side_effect=Dropout.mask) as mask:
        noisy_model(registers=2)(torch.randn(3, 1, 8, 8), keys(3))
    seen = [call.args for call in mask.call_args_list]
    tokens, hidden = (3, 1 + 2 + 16, 16), (3, 1 + 2 + 16, 64)
    assert [x.shape for _, x, _ in seen] == [tokens, *[tokens, hidden, tokens] * 2]
    assert len({dropout.site for dropout, _, _ in seen}) == len(seen)


def test_depth_rates_rise_in_a_line() -> None:
    """0 at the first block, drop_path at the last (arXiv 1603.09382's rule, as timm has it)."""
    model = ViT(tiny(depth=4, drop_path=0.3))
    for branch in ("drop_path1", "drop_path2"):
        rates = [getattr(getattr(block, branch), "rate", 0.0) for block in model.encoder.blocks]
        assert rates == pytest.approx([0.0, 0.1, 0.2, 0.3])


@pytest.mark.parametrize("rate", [0.25, 0.5, 0.99])
def test_patch_dropout_leaves_the_others_in_order(rate: float) -> None:
    """As many as timm's PatchDropout leaves, each image its own, with their positions; prefix tokens stay."""
    from timm.layers import PatchDropout

    model = noisy_model(dropout=0.0, drop_path=0.0, patch_dropout=rate, registers=2).double()
    images, some = torch.randn(3, 1, 8, 8, dtype=torch.float64), keys(3)
    *_, states = model.states(images, some)
    stay = PatchDropout(rate, num_prefix_tokens=0)(torch.randn(3, 16, 4)).shape[1]
    assert states.shape[1] == 3 + stay
    embedded = model.eval().embed(images, Context(model.position, (4, 4), 3, some))
    kept_ones = model.train().embed(images, Context(model.position, (4, 4), 3, some))
    assert torch.equal(kept_ones[:, :3], embedded[:, :3])
    places = [(kept_ones[i, 3:, None] == embedded[i, None, 3:]).all(dim=2).nonzero()[:, 1] for i in range(3)]
    assert all(len(one) == stay and bool((one.diff() > 0).all()) for one in places)
    alone = torch.cat([model(images[i : i + 1], some[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(alone, model(images, some), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("patch_dropout", [0.0, 0.5])
def test_noise_compiles(patch_dropout: float) -> None:
    model, gradients = noisy_model(patch_dropout=patch_dropout), []
    for run in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
        loss = run(torch.ones(4, 1, 8, 8), keys(4)).square().sum()
        gradients.append(torch.autograd.grad(loss, list(model.parameters()), allow_unused=True))
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def test_training_gives_each_image_the_key_of_its_epoch() -> None:
    """Places of the whole dataset, so that a smaller fraction's images keep theirs; a batch may span two epochs."""
    config = tiny(dropout=0.1, batch=100)
    data = load(config)
    training = Training(config, data)
    order = Order(len(data.train), config.seed)
    training.step = 1  # images 100 to 199 of a training set of about 130
    epochs = [i // len(data.train) for i in range(100, 200)]
    assert set(epochs) == {0, 1}
    places = data.train.index[order.indices(100, 100)]
    assert torch.equal(training.batch().rng_keys, image_keys(config.seed, np.array(epochs), places))
