"""Whole models of plug-ins: any module that gives logits is trained by the loop, with initial values by name."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn
from trainings import assert_same, finished

from vitcore import MODEL, Classifier, Config, ConfigError, Options, build, constant, measure, normal, trial_id
from vitcore.analysis.eval import restore_model
from vitcore.analysis.evals import EVAL
from vitcore.config import merge
from vitcore.contracts import contracts
from vitcore.data.splits import load
from vitcore.identity import identity
from vitcore.training.state import Training

Add = Callable[[type[Classifier]], str]


class ConvNet(Classifier):
    """Convolutions with batch norm."""

    numerics = 1

    class Options(Options):
        width: int = 8
        middle: bool = True
        dropout: float = 0.0

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        width = self.options.width
        self.first = nn.Conv2d(config.channels, width, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.middle = nn.Conv2d(width, width, 3, padding=1) if self.options.middle else nn.Identity()
        self.last = nn.Conv2d(width, width, 3, padding=1)
        rates = torch.linspace(0, self.options.dropout, 2).tolist()  # as in many models, which the meta device lacks
        self.dropout = nn.Dropout(rates[-1])
        self.head = nn.Linear(width, config.classes)

    def features(self, images: Tensor) -> Tensor:
        return self.last(F.relu(self.middle(self.norm(self.first(images))))).mean(dim=(2, 3))  # (B, D)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.dropout(self.features(images)))


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Add:
    """Return a function that adds a model to MODEL for the test, and returns its name."""

    def added(model: type[Classifier]) -> str:
        monkeypatch.setitem(MODEL, model.__name__, model)
        return model.__name__

    added(ConvNet)
    return added


def config_of(model: str = "ConvNet", **settings: Any) -> Config:
    return Config(**{"model": model, "steps": 6, "batch": 16, "evaluations": 2} | settings)


def values_of(config: Config) -> dict[str, Tensor]:
    return {name.removeprefix("model."): values for name, values in build(config).state_dict().items()}


# -- training ----------------------------------------------------------------------------------------------------------


def test_the_loop_takes_the_steps_of_a_plain_loop(add: Add) -> None:
    """The same module, from the same initial values on the same images, has the losses of PyTorch's SGD."""
    sgd = {"optimizer": "sgd", "optimizer.momentum": 0.9, "optimizer.nesterov": False, "lr": 0.1}
    config = config_of(schedule="constant", warmup=0.0, weight_decay=0.0, clip_norm=0.0, **sgd)
    data = load(config)
    training = Training(config, data)
    module = copy.deepcopy(training.model.model)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(config.steps):
        chosen = training.batches.order.indices(step * config.batch, config.batch)
        images = (data.train.pixels[chosen].float() - data.mean) / data.std
        loss = F.cross_entropy(module(images), data.train.labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        training.advance()
    assert training.losses.tolist() == pytest.approx(losses, rel=1e-5)
    assert losses[-1] < losses[0]


def test_cost_depends_on_the_options_of_the_model(add: Add) -> None:
    config = config_of(**{"model.width": 12})
    assert measure(config).params == sum(parameter.numel() for parameter in ConvNet(config).parameters())
    assert measure(config).flops != measure(config_of(**{"model.width": 13})).flops


def test_training_with_batch_norm_dropout_and_average_resumes_bit_exactly(add: Add) -> None:
    config = config_of(**{"model.dropout": 0.3}, ema=0.9, augment="flip-crop", mixup=0.2)
    whole = finished(config)
    torch.manual_seed(7)  # no draw depends on the global generator
    assert_same(finished(config, 2, 2), whole)


class Tied(Classifier):
    """Shares a weight, and leaves out features by a mask of minus infinity."""

    numerics = 1

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.up, self.down = nn.Linear(64, 64), nn.Linear(64, 64)
        self.down.weight = self.up.weight
        self.head = nn.Linear(64, config.classes)
        self.register_buffer("mask", torch.zeros(64).index_fill(0, torch.arange(8), -torch.inf))

    def forward(self, images: Tensor) -> Tensor:
        x = self.down(self.up(images.flatten(1)).relu())
        return self.head((x + self.get_buffer("mask")).softmax(dim=1))


def test_shared_weights_and_infinite_masks_are_in_checkpoints_and_averages(add: Add) -> None:
    config = config_of(add(Tied), ema=0.9)
    stopped = finished(config, 2, 2)
    assert list(stopped.checkpoints) == [4]
    assert_same(stopped, finished(config))
    assert stopped.weights is not None
    weights = restore_model(config, stopped.weights).state_dict()
    assert torch.equal(weights["model.up.weight"], weights["model.down.weight"])
    assert measure(config).params == sum(parameter.numel() for parameter in build(config).parameters())


def test_dropout_of_layers_is_seen(add: Add) -> None:
    """So that the images seed its draws, also without augmentation. PyTorch's attention has no module for it."""
    training = Training(config_of(**{"model.dropout": 0.3}), load(Config()))
    torch.manual_seed(7)
    first = training.train_step.mean_loss(training.batch())
    assert training.train_step.mean_loss(training.batch()) == first
    assert build(config_of(add(Initialized))).drops
    assert not build(config_of()).drops


# -- initial values ----------------------------------------------------------------------------------------------------


def test_a_layer_less_leaves_the_other_layers_initial_values(add: Add) -> None:
    """Drawn one after the other, as by PyTorch alone, all values after the layer are others."""
    whole = values_of(config_of(seed=3))
    less = values_of(config_of(seed=3, **{"model.middle": False}))
    assert whole.keys() - less.keys() == {"middle.weight", "middle.bias"}
    assert all(torch.equal(whole[name], values) for name, values in less.items())
    other = values_of(config_of(seed=4))
    for name in ("first.weight", "last.weight", "last.bias", "head.weight"):
        assert not torch.equal(whole[name], other[name])
    assert not torch.equal(whole["middle.weight"], whole["last.weight"])


def test_layers_keep_the_law_of_torch(add: Add) -> None:
    """Uniform within 1 / sqrt(fan-in), weights and biases, and norms of scale one."""
    values = values_of(config_of(**{"model.width": 64}))
    for name, fan_in in {"last.weight": 64 * 9, "last.bias": 64 * 9, "head.weight": 64}.items():
        bound = fan_in**-0.5
        law = stats.uniform(-bound, 2 * bound)
        assert stats.kstest(values[name].flatten().numpy(), law.cdf).pvalue > 1e-3, name
    assert (values["norm.weight"] == 1).all()


class Scaled(nn.Module):
    """A linear layer that draws its own values."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.inner.weight, mean=100)


class Initialized(Classifier):
    """Sets values in every way."""

    numerics = 1
    draws = {"tokens": normal(0.5), "gain": constant(3.0)}

    class Options(Options):
        more: bool = False

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if self.options.more:
            self.more = nn.Linear(3, 3)
        self.scaled = Scaled()
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1)
        self.tokens = nn.Parameter(torch.empty(8))
        self.gain = nn.Parameter(torch.empty(8))
        self.bare = nn.Parameter(torch.full((8,), 2.0))
        self.head = nn.Linear(64, config.classes)
        nn.init.zeros_(self.head.weight)
        self.head.bias.data.fill_(5)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(images.flatten(1))


def test_values_that_a_model_sets_itself_stay(add: Add) -> None:
    """By nn.init, `.data`, reset_parameters or `draws`. A layer before them moves none of the values."""
    name = add(Initialized)
    values = values_of(config_of(name))
    assert not values["head.weight"].any()
    assert (values["head.bias"] == 5).all()
    assert (values["bare"] == 2).all()
    assert (values["gain"] == 3).all()
    assert values["scaled.inner.weight"].mean() == pytest.approx(100, abs=1)
    assert not values["attention.out_proj.bias"].any()
    assert 0 < values["tokens"].abs().max() < 3
    more = values_of(config_of(name, **{"model.more": True}))
    assert all(torch.equal(more[key], kept) for key, kept in values.items())


def zeroed(layer: nn.Linear) -> nn.Linear:
    """Return the layer with zero weights, as helpers of many models do."""
    nn.init.zeros_(layer.weight)
    return layer


class Preset(Classifier):
    """Sets values of layers before it has the layers as attributes, shares weights and copies layers."""

    numerics = 1

    class Options(Options):
        more: bool = False

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if self.options.more:
            self.more = nn.Linear(3, 3)
        self.head = zeroed(nn.Linear(64, config.classes))
        prior = nn.Linear(64, 8)
        prior.bias.data.fill_(-4.6)
        distant = nn.Linear(64, 8)
        nn.init.normal_(distant.weight, mean=100)
        self.layers = nn.Sequential(prior, nn.ReLU(), nn.Sequential(distant))
        self.later = nn.Linear(64, 8)
        nn.init.normal_(self.later.weight, mean=-100)
        self.gain = nn.Parameter(torch.full((8,), 0.1))
        self.norm = nn.BatchNorm2d(8)
        self.norm.get_buffer("running_mean").fill_(3)
        self.words, self.logits = nn.Embedding(64, 8), nn.Linear(8, 64)
        self.logits.weight = self.words.weight
        self.words_of_logits, self.other_logits = nn.Embedding(64, 8), nn.Linear(8, 64)
        self.words_of_logits.weight = self.other_logits.weight
        block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
        nn.init.constant_(block.linear1.bias, 0.5)
        self.encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(images.flatten(1))


def test_values_that_are_set_before_a_layer_is_assigned_stay(add: Add) -> None:
    """Constants and random values, through a helper or before nn.Sequential or a copy; buffers too."""
    values = values_of(config_of(add(Preset)))
    assert not values["head.weight"].any()
    assert (values["layers.0.bias"] == -4.6).all()
    assert values["layers.2.0.weight"].mean() == pytest.approx(100, abs=1)
    assert values["later.weight"].mean() == pytest.approx(-100, abs=1)
    assert (values["gain"] == 0.1).all()
    assert (values["norm.running_mean"] == 3).all()
    assert (values["encoder.layers.1.linear1.bias"] == 0.5).all()


def test_default_values_beside_set_ones_are_drawn_by_name(add: Add) -> None:
    """Of the same layer, of copied layers, and of shared weights, which keep the law of the layer that drew them."""
    name = add(Preset)
    values = values_of(config_of(name))
    more = values_of(config_of(name, **{"model.more": True}))
    layers = ("head.bias", "layers.0.weight", "layers.2.0.bias", "later.bias", "logits.weight", "other_logits.weight")
    copies = [key for key in values if key.startswith("encoder.")]
    for key in (*layers, *copies):
        assert torch.equal(values[key], more[key]), key
    assert not torch.equal(more["later.weight"], values["later.weight"])  # drawn in the order of the calls
    for inside in ("linear1.weight", "self_attn.in_proj_weight"):
        assert not torch.equal(values[f"encoder.layers.0.{inside}"], values[f"encoder.layers.1.{inside}"])
    assert torch.equal(values["logits.weight"], values["words.weight"])
    assert values["logits.weight"].std() == pytest.approx(1, abs=0.15)  # an embedding's normal distribution
    assert values["words_of_logits.weight"].abs().max() <= 8**-0.5  # a linear layer's uniform distribution


def test_a_built_model_has_its_own_methods(add: Add) -> None:
    """Nothing that recorded the default values is left, so that the model may draw them again."""
    model = build(config_of(add(Initialized)))
    assert not [module for module in model.modules() if "reset_parameters" in vars(module)]
    assert not [module for module in model.modules() if "_reset_parameters" in vars(module)]


def test_building_leaves_the_global_generator(add: Add) -> None:
    before = torch.get_rng_state()
    build(config_of())
    assert torch.equal(torch.get_rng_state(), before)


# -- settings and identity ---------------------------------------------------------------------------------------------


def test_later_layer_chooses_the_model(add: Add) -> None:
    recipe = {"width": 32, "stem": "conv", "stem.norm": "batch", "lr": 0.1}
    arm = merge(recipe, {"model": "ConvNet", "model.width": 4})
    assert arm == {"model": "ConvNet", "model.width": 4, "lr": 0.1}
    assert "model.width" not in merge(arm, {"model": "Ti/2"})
    assert merge(arm, {"model": "timm/test_resnet"}) == {"model": "timm/test_resnet", "lr": 0.1}


def test_identity_has_the_model_its_options_and_no_part_of_ours(add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(**{"model.width": 9})
    fields = identity(config)
    assert fields["parts"] == {"model": 1}
    assert fields["options"] == {"model.width": 9}
    assert not {"width", "position", "stem"} & fields.keys()
    assert Config(**config.model_dump()) == config
    assert trial_id(config_of()) == trial_id(config_of(**{"model.width": 8}))
    before = trial_id(config)
    monkeypatch.setattr(ConvNet, "numerics", 2)
    assert trial_id(config) != before


class Wrong(ConvNet):
    """One logit too few."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images)[:, 1:]


class Large(ConvNet):
    """Takes no small images."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(F.max_pool2d(images, 16))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"depth": 3}, "depth=3: model=ConvNet has its own: leave it out"),
    ({"position": "2d"}, "position=2d: model=ConvNet has its own"),
    ({"model": "ConvNett"}, r"a plug-in's \(--plugin FILE\); did you mean 'ConvNet'"),
    ({"model.wdth": 3}, "model=ConvNet: unknown key 'wdth'; did you mean 'width'"),
    ({"model": "", "model.width": 3}, "model.width=3: only a plug-in's model has options: set model to one"),
    ({"model": "timm/test_resnet", "model.width": 3}, "model.width=3: only a plug-in's model has options"),
    ({"dropout": 0.1}, "dropout=0.1: model=ConvNet has none: 0, or an option of its own"),
    ({"layer_decay": 0.5}, "layer_decay=0.5: the layers of model=ConvNet are not known: 1"),
    ({"micro_batch": 4}, "micro_batch=4: batch norm needs the whole batch at once"),
    ({"objective": "mae"}, "model=ConvNet: objective=mae works only with this package's ViT"),
    ({"init_from": "0123456789ab"}, "model=ConvNet has other parts: must be none"),
    ({"model": "Wrong"}, r"model=Wrong: gives \(1, 9\) for an image, not logits \(1, classes=10\)"),
    (
        {"model": "Large"},
        r"model=Large does not take image_size=8, channels=1: .*output size.* \[.*test_classifier\.py:\d+\]",
    ),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_what_does_not_fit_is_named(add: Add, settings: dict[str, Any], message: str) -> None:
    add(Wrong)
    add(Large)
    with pytest.raises(ConfigError, match=message):
        config_of(**settings)


# -- evals and contracts -----------------------------------------------------------------------------------------------


class NoFeatures(ConvNet):
    """Has no features."""

    features = Classifier.features

    def forward(self, images: Tensor) -> Tensor:
        return self.head(ConvNet.features(self, images))


@pytest.mark.parametrize("name", ["fewshot", "knn", "linear"])
def test_evals_of_features_need_the_method(add: Add, name: str) -> None:
    config = config_of(add(NoFeatures))
    entry = EVAL[name]()
    entry.check(config_of())
    assert build(config_of()).features(torch.zeros(2, 1, 8, 8)).shape == (2, 8)
    for refused in (lambda: entry.check(config), lambda: entry.compute(build(config))):
        with pytest.raises(ConfigError, match=rf"eval {name}: model=NoFeatures has no method features\(images\)"):
            refused()


def test_evals_work_or_say_why_not(add: Add) -> None:
    model = build(config_of()).eval()
    assert EVAL["test"]("16").compute(model).metrics.keys() == {"test_accuracy@16", "test_loss@16"}
    for name, value in (("inspect", ""), ("test", "patch2"), ("knockout", "position")):
        with pytest.raises(ValueError, match="model=ConvNet"):
            EVAL[name](value).compute(model)


def test_a_sound_model_keeps_its_contracts(add: Add) -> None:
    for _, check in contracts("model", "ConvNet"):
        check("model", "ConvNet")
    name = add(Large)  # which takes only images of 32 pixels
    dict(contracts("model", name))["trains"]("model", name)


class Coupled(ConvNet):
    """Subtracts the mean of the batch."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images - images.mean(dim=0))


class Unset(ConvNet):
    """Never fills a parameter."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.scale = nn.Parameter(torch.empty(3))


class Random(ConvNet):
    """Draws from the global generator."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(F.dropout(images, 0.5, self.training))


@pytest.mark.parametrize(
    ("model", "what", "message"),
    [
        (Coupled, "classifies each image alone", "an image's logits depend on the images beside it"),
        (Unset, "sets all initial values", r"model\.scale: never gets a value"),
        (Unset, "trains", r"model\.scale: no gradient reaches it"),
        (Random, "deterministic", "two training runs with one seed end differently"),
    ],
)
def test_contract_catches_a_broken_model(add: Add, model: type[Classifier], what: str, message: str) -> None:
    name = add(model)
    with pytest.raises(AssertionError, match=message):
        dict(contracts("model", name))[what]("model", name)
