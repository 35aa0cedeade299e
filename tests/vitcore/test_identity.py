"""Identity: equal configs are one trial however spelt; what does not change the outcome does not change the id."""

from typing import Any

import pytest

from ablations.trainables.trainable import VIT, arm_key, find, trial_ids
from commonfloor.options import Options
from vitcore.config import Config
from vitcore.identity import trial_id
from vitcore.model.position import POSITION, Position
from vitcore.settings import HOW_IT_RUNS

# Pinned: a change here orphans every result that anyone has. Raise a `numerics` instead, on purpose.
MANY = {"data": "cifar10", "model": "Ti/4", "stem": "conv", "data_fraction": 0.1, "label_smoothing": 0.1}
GOLDEN = [
    ({}, "1aaccce05714"),
    ({"seed": 3, "position": "none", "pool": "gap"}, "6e334d1b6798"),
    (MANY, "062b374cc97f"),
    ({"data_seed": 7}, "e35b819b7d4f"),
    # Operations on digits compute something new since they are scaled; those on 256 levels do not.
    ({"data": "cifar10", "augment": "randaugment"}, "9ddcd3e70ffa"),
    ({"data": "cifar10", "augment": "trivial"}, "e07425b892d1"),
    ({"augment": "flip-crop"}, "c2e5e8f27783"),
    ({"augment": "randaugment"}, "fa4b1539b704"),
    ({"augment": "trivial"}, "c63f63b71a8a"),
]


@pytest.mark.parametrize(("settings", "golden"), GOLDEN)
def test_ids_are_pinned(settings: dict[str, object], golden: str) -> None:
    assert trial_id(Config(**settings)) == golden


@pytest.mark.parametrize("field", sorted(HOW_IT_RUNS))
def test_how_it_runs_is_not_identity(field: str) -> None:
    how = {"device": "cpu", "threads": 2, "compile": True, "attention": "pinned", "micro_batch": 8, "gpus": 2}
    assert trial_id(Config(**{field: (how | {"cuda_graph": "off"})[field]})) == trial_id(Config())


def test_every_other_field_is_identity() -> None:
    other = {
        "data": "mnist", "image_size": 16, "channels": 3, "classes": 11, "data_fraction": 0.5, "data_seed": 1,
        "val_fraction": 0.2, "model": "timm/resnet18", "width": 96, "depth": 2, "heads": 2, "mlp_ratio": 2.0,
        "patch": 2, "position": "2d", "pool": "gap", "stem": "conv", "steps": 7, "batch": 7, "lr": 0.5, "warmup": 0.2,
        "weight_decay": 0.5, "clip_norm": 0.5, "label_smoothing": 0.2, "evaluations": 5, "seed": 1, "mlp": "swiglu",
        "norm": "rms", "bias": "none", "block": "post", "self_attention": "gated", "embedding_norm": True,
        "final_norm": "after", "registers": 1, "head": "mlp", "head_init": "lecun-normal",
        "layer_scale": 1e-4, "qk_norm": True, "init": "paper", "optimizer": "sgd", "layer_decay": 0.7,
        "schedule": "linear", "weight_decay_on": "all", "dropout": 0.1, "attention_dropout": 0.1,
        "patch_dropout": 0.5, "drop_path": 0.1, "augment": "flip", "mixup": 0.2, "cutmix": 1.0, "augment_repeats": 3,
        "random_erasing": 0.25, "random_erasing_fill": "pixel", "mix_prob": 0.5, "mix_switch_prob": 0.2, "ema": 0.99,
        "precision": "bf16", "position_at": "every-layer", "objective": "masked-patch", "init_from": "0123456789ab",
        "teacher": "0123456789ab", "drop_path_by_layer": "constant",
        "trainable": "head",
    }  # fmt: skip
    assert set(other) == set(Config.model_fields) - HOW_IT_RUNS - {"options"}
    needed = {  # what they are settings of
        "mix_prob": {"mixup": 0.1}, "mix_switch_prob": {"mixup": 0.1, "cutmix": 0.1},
        "random_erasing_fill": {"random_erasing": 0.5}, "drop_path_by_layer": {"drop_path": 0.2},
    }  # fmt: skip
    ids = {trial_id(Config(**{field: value}, **needed.get(field, {}))) for field, value in other.items()}
    assert len(ids | {trial_id(Config(**some)) for some in ({}, *needed.values())}) == len(other) + 1 + len(needed)


CONCAT = {"position.combine": "concat"}
MIXED = {"position": "rope2d", "position.mixed": True}
SIZES = {"width": 192, "depth": 12, "heads": 3, "patch": 4, "image_size": 32, "data_seed": 0}
EQUAL: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"model": "Ti/4", "data": "cifar10", "epochs": 1, "batch": 100, "mlp_ratio": 4},
     {"data": "cifar10", "steps": 450, "batch": 100, **SIZES}),
    ({}, {"position.combine": "add", "position.width": 0, "position_at": "input"}),
    ({"position": "none"}, {"position": "none", "position_at": "shared"}),
    ({"position": "rope2d"}, {"position": "rope2d", "position.base": 100}),
    (MIXED, {**MIXED, "position.base": 10}),
    ({"pool": "gap"}, {"pool": "gap", "position.class_row": False}),
    ({"position_at": "shared"}, {"position_at": "shared", "position.class_row": False}),
    (CONCAT, {**CONCAT, "position.class_row": False}),
    ({"stem": "conv"}, {"stem": "conv", "stem.channels": [96, 192]}),
    ({"stem.patches": [2, 4], "depth": 1}, {"stem.patches": [4, 2, 2], "depth": 1}),
    ({"stem.patches": [4]}, {}),
    ({"stem.form": "linear"}, {}),
    ({"mlp.hidden": 768}, {}),
    ({"head": "mlp"}, {"head": "mlp", "head.bias": 0}),
    ({"objective": "mae"}, {"objective": "mae", "objective.decoder_width": 96, "objective.decoder_depth": 4}),
    ({"objective": "dino"}, {"objective": "dino", "objective.local_size": 4}),
    ({"objective": "dino", "objective.local_views": 0},
     {"objective": "dino", "objective.local_views": 0, "objective.local_size": 8, "objective.local_area": 0.1}),
    ({"position": "1d+rope2d", "pool": "gap"},
     {"position": "1d+rope2d", "pool": "gap", "position.class_row": False, "position.base": 100}),
    ({"weight_decay": -0.0}, {"weight_decay": 0}),
]  # fmt: skip
DIFFERENT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"position": "rope2d"}, {"position": "rope2d", "position.base": 10}),
    ({}, CONCAT),
    (CONCAT, {**CONCAT, "position.width": 8}),
    ({"stem": "conv"}, {"stem": "conv", "stem.channels": [96, 96, 192]}),
    ({}, {"stem.form": "convolution"}),
    ({"mlp": "swiglu"}, {"mlp": "swiglu", "mlp.hidden": 37}),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_one_trial_however_spelt(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert Config(**one) == Config(**other)
    assert trial_id(Config(**one)) == trial_id(Config(**other))
    assert Config(**Config(**other).model_dump()) == Config(**other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_another_value_of_an_option_is_another_trial(one: dict[str, Any], other: dict[str, Any]) -> None:
    """And another arm, of which all seeds share the key."""
    assert trial_id(Config(**one)) != trial_id(Config(**other))
    keys = [arm_key(find(VIT), Config(**settings).model_dump()) for settings in ({**one, "seed": 4}, one, other)]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(
    "settings",
    [{}, {"data_seed": 3}, {"model": "timm/resnet18"}, {"stem": "conv", "model": "Ti/4", "data": "cifar10", "lr": 0.5}],
)
def test_ids_of_many_seeds_are_those_of_their_configs(settings: dict[str, Any]) -> None:
    """A plan makes one config an arm; with a data seed written out, and where the seed equals it."""
    fixed = {key: value for key, value in settings.items() if key == "data_seed"}
    ids = list(trial_ids(find(VIT), Config(**settings, seed=1).model_dump(), range(8), fixed))
    assert ids == [trial_id(Config(**settings, seed=seed)) for seed in range(8)]


class Mine(Position):
    numerics = 3

    class Options(Options):
        base: float = 100
        shift: float = 0.0


def test_changed_default_with_its_neutral_value_orphans_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new option, or a new default beside the old one as neutral: what computes the same has the id it had."""

    class Changed(Mine):
        numerics = 3
        neutral = {"base": 100}

        class Options(Options):
            base: float = 50.0
            shift: float = 0.0
            added: bool = False

    monkeypatch.setitem(POSITION, "mine", Mine)
    old = {base: trial_id(Config(position="mine", **{"position.base": base})) for base in (50.0, 100.0)}
    saved = Config(position="mine").model_dump()
    monkeypatch.setitem(POSITION, "mine", Changed)
    assert trial_id(Config(position="mine")) == old[50.0]
    assert trial_id(Config(position="mine", **{"position.base": 100.0})) == old[100.0]
    assert Config(**saved).options_of("position", Changed.Options).base == 100.0
    assert trial_id(Config(**saved)) == old[100.0]


def test_part_without_numerics_or_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says when its results are out of date, and what it inherits does not."""

    class Undeclared(Mine):
        pass

    monkeypatch.setitem(POSITION, "mine", Undeclared)
    with pytest.raises(ValueError, match="Undeclared is not from a plugin's file, so it has to declare numerics"):
        trial_id(Config(position="mine"))
