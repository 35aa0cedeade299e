"""Config: what cannot be is refused in one line that names the key, the value and what is allowed."""

import pytest

from vitcore.config import Config, merge
from vitcore.options import ConfigError

BAD = [
    ({"widht": 64}, "unknown key 'widht'; did you mean 'width'"),
    ({"lr": float("nan")}, "lr=nan: input should be"),
    ({"lr": "fast"}, "lr=fast: input should be a valid number"),
    ({"lr": -1.0}, "lr=-1.0: input should be greater than 0"),
    ({"steps": -5}, "steps=-5: input should be greater than or equal to 1"),
    ({"steps": 1.5}, "steps=1.5: input should be a valid integer"),
    ({"batch": True}, "batch=True: input should be a valid integer"),
    ({"data_fraction": 0.0}, "data_fraction=0.0: input should be greater than 0"),
    ({"data_fraction": 2.0}, "data_fraction=2.0: input should be less than or equal to 1"),
    ({"width": 30, "heads": 4}, "heads=4 does not divide width=30: one of 1, 2, 3, 5"),
    ({"patch": 3}, "patch=3 does not divide image_size=8: one of 1, 2, 4, 8"),
    ({"position": "3d"}, "position=3d: one of none, 1d, 2d, relative"),
    ({"position": "relativ"}, "did you mean 'relative'"),
    ({"pool": "max"}, "pool=max: one of cls, gap"),
    ({"stem": "conw"}, "did you mean 'conv'"),
    ({"data": "cifar11"}, "data=cifar11"),
    ({"device": "tpu"}, "device=tpu: one of auto, cpu, cuda"),
    ({"steps": 10, "epochs": 2}, "steps=10 and epochs=2: give one of them"),
    ({"model": "XL/7"}, "model=XL/7: a size of Ti, S, B, L, H"),
    ({"width": 55_440, "heads": 17}, "heads=17 does not divide width=55440: one of 12, 14, 15, 16, 18, 20, 21, 22"),
    ({"swiglu": True}, "unknown key 'swiglu': it is a value of mlp; did you mean mlp=swiglu?"),
    ({"attention": "axial"}, "attention=axial: 'fastest' or 'pinned', the kernel; did you mean self_attention=axial?"),
    ({"position.base": 10.0}, "position=1d: unknown key 'base': known are combine, width"),
    ({"position": "none", "position.base": 10.0}, "position=none: unknown key 'base': this variant has no options"),
    ({"options": {"lr": 0.5}}, "unknown key 'lr': an option is spelt 'slot.name'"),
    ({"options": {"position": 3}}, "unknown key 'position': an option is spelt 'slot.name'"),
    ({"options": 3}, "options=3: a mapping from 'slot.name'"),
    ({"colour.depth": 8}, "unknown key 'colour.depth'"),
    ({"epochs": "many"}, "epochs=many"),
    ({"epochs": -1}, "epochs=-1"),
    ({"width": 4, "heads": 1, "mlp_ratio": 0.1}, "mlp_ratio=0.1: of width=4: more than 0.125"),
    ({"seed": -1}, "seed=-1: input should be greater than or equal to 0"),
    ({"seed": "x"}, "seed=x: input should be a valid integer"),
    ({"seed": 0, "data_seed": -2}, "data_seed=-2: input should be"),
    (
        {"position": "none", "position_at": "evry-layer"},
        "position_at=evry-layer: one of input, every-layer, shared; did",
    ),
    ({"depth": 10**9}, "depth=1000000000: input should be less than or equal to 1024"),
    ({"width": 10**9}, "width=1000000000: input should be less than or equal to 65536"),
    ({"mlp_ratio": 1e308}, "mlp_ratio=1e+308: input should be less than or equal to 1024"),
    ({"image_size": 10**6}, "image_size=1000000: input should be less than"),
    ({"image_size": 1024, "patch": 1}, "patch=1 of image_size=1024: 1,048,576 patches an image: at most 65,536"),
    ({"classes": 10**9}, "classes=1000000000: input should be less than"),
    ({"batch": 10**12}, "batch=1000000000000: input should be less than or equal to 1048576"),
    ({"batch": 10**12, "epochs": 1}, "batch=1000000000000: input should be less than or equal to 1048576"),
    ({"steps": 10**22}, "steps=10000000000000000000000: input should be less than or equal to 100000000"),
    ({"epochs": 1e308}, "epochs=1e+308: input should be less than"),
    ({"epochs": 1e8}, "steps=1010390625: input should be less than or equal to 100000000"),
    ({"evaluations": 10**9}, "evaluations=1000000000: input should be less than"),
    ({"threads": 10**5}, "threads=100000: input should be less than or equal to 1024"),
    ({"gpus": 10**9}, "gpus=1000000000: input should be less than"),
    ({"micro_batch": 10**12}, "micro_batch=1000000000000: input should be less than"),
    ({"registers": 10**9}, "registers=1000000000: input should be less than"),
    ({"augment": "crop", "augment.pad": 10**9}, "pad=1000000000: input should be less than"),
    ({"data_fraction": 1e-300}, "data_fraction=1e-300: less than one of 1,293 training images"),
    ({"position": "1d", "position_at": "foo"}, "position_at=foo: one of input, every-layer, shared"),
]


@pytest.mark.parametrize(("settings", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_setting_is_one_clear_line(settings: dict[str, object], message: str) -> None:
    """Key, value and what is allowed, in one line."""
    with pytest.raises(ConfigError) as error:
        Config(**settings)
    assert message in str(error.value)
    assert "data_seed" in settings or "data_seed" not in str(error.value)
    assert "\n" not in str(error.value)


def test_named_size_fills_its_fields_where_it_is_written() -> None:
    """A size is sugar of its layer: what a stronger layer says wins, and it wins over weaker layers."""
    assert merge({"width": 64, "patch": 2}, {"model": "S/16", "depth": 3}) == {
        "width": 384,
        "depth": 3,
        "heads": 6,
        "mlp_ratio": 4.0,
        "patch": 16,
    }
    config = Config(model="B/16", image_size=224, channels=3, classes=1000)
    assert (config.width, config.depth, config.heads, config.patch) == (768, 12, 12, 16)


def test_size_of_the_data_comes_with_the_data() -> None:
    """image_size, channels and classes are filled in unless written."""
    config = Config(data="cifar100")
    assert (config.image_size, config.channels, config.classes) == (32, 3, 100)
    assert Config(data="cifar100", image_size=64).image_size == 64


def test_epochs_become_steps() -> None:
    """Epochs are passes over what is trained on: after the test fold, the validation part and the fraction."""
    config = Config(data="cifar10", epochs=2, batch=100, data_fraction=0.5, val_fraction=0.1)
    assert config.steps == 2 * 50_000 * 0.9 * 0.5 / 100
    assert Config(data="digits", epochs=30, batch=32).steps == round(30 * 1437 * 0.9 / 32)
    assert merge({"steps": 100}, {"epochs": 3}) == {"epochs": 3}
    assert merge({"epochs": 3}, {"steps": 100}) == {"steps": 100}


def test_config_is_frozen_and_round_trips() -> None:
    """A config cannot change, and its dump is the same config."""
    config = Config(seed=3, lr=1e-3)
    with pytest.raises(ValueError, match="frozen"):
        config.lr = 1.0  # type: ignore[misc]
    assert Config(**config.model_dump()) == config


OPTION = {"position": "mine", "position.base": 7.0}


@pytest.mark.parametrize(
    ("layers", "merged"),
    [
        ([OPTION, {"position": "none"}], {"position": "none"}),
        ([OPTION, {"position": "other", "position.base": 8.0}], {"position": "other", "position.base": 8.0}),
        ([OPTION, {"position": "mine"}], OPTION),
        ([OPTION, {"pool": "gap"}], OPTION | {"pool": "gap"}),
        ([OPTION, {"position": "other"}, {"position": "mine"}], {"position": "mine"}),
        ([{"position": "mine", "options": {"position.base": 7.0}}, {"position": "none"}], {"position": "none"}),
        ([{"position.base": 7.0}, {"position": "1d"}], {"position.base": 7.0, "position": "1d"}),
    ],
)
def test_options_hold_with_their_variant(layers: list[dict[str, object]], merged: dict[str, object]) -> None:
    """A layer that chooses another variant drops the options of the one before, and no others."""
    assert merge(*layers) == merged


def test_place_of_another_kind_is_ignored_by_none() -> None:
    """An arm without positions may stand beside arms that all say where."""
    assert Config(position="none", position_at="every-layer") == Config(position="none")
