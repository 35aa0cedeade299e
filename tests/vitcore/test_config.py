"""Config: what cannot be is refused in one line that names the key, the value and what is allowed."""

import subprocess
import sys

import pytest

from commonfloor.options import ConfigError
from vitcore.config import Config, merge

TRIAL = "0123456789ab"
TIMM = {"model": "timm/test_resnet"}
CIFAR = {"data": "cifar10"}
CONCAT = {"position.combine": "concat"}
BAD: list[tuple[dict[str, object], str]] = [
    ({"widht": 64}, "unknown key 'widht'; did you mean 'width'"),
    ({"lr": float("nan")}, "lr=nan: a finite number above 0"),
    ({"lr": -1}, "lr=-1: a finite number above 0"),
    ({"steps": 1.5}, "steps=1.5: a whole number from 1 to 100,000,000"),
    ({"batch": True}, "batch=True: a whole number"),
    ({"data_fraction": 2.0}, "data_fraction=2.0: a number above 0 and at most 1"),
    ({"width": 30, "heads": 4}, "heads=4 does not divide width=30: one of 1, 2, 3, 5"),
    ({"patch": 3}, "patch=3 does not divide image_size=8: one of 1, 2, 4, 8"),
    ({"position": "3d"}, "position=3d: one of none, 1d, 2d, relative"),
    ({"data": "cifar11"}, "data=cifar11"),
    ({"device": "gpu"}, "device=gpu: 'auto', 'cpu' or 'cuda'"),
    ({"steps": 10, "epochs": 2}, "steps=10 and epochs=2: give one of them"),
    ({"model": "XL/7"}, "model=XL/7: a size of Ti, S, B, L, H"),
    ({"width": 55_440, "heads": 17}, "heads=17 does not divide width=55440: one of 12, 14, 15, 16, 18, 20, 21, 22"),
    ({"swiglu": True}, "unknown key 'swiglu': it is a value of mlp; did you mean mlp=swiglu?"),
    ({"attention": "axial"}, "attention=axial: 'fastest' or 'pinned', the kernel; did you mean self_attention=axial?"),
    ({"position.base": 10.0}, "position=1d: unknown key 'base': known are combine, width"),
    ({"position": "none", "position.base": 10.0}, "position=none: unknown key 'base': this variant has no options"),
    ({"options": {"lr": 0.5}}, "unknown key 'lr': an option is spelled 'slot.name'"),
    ({"options": 3}, "options=3: a mapping from 'slot.name'"),
    ({"colour.depth": 8}, "unknown key 'colour.depth'"),
    ({"epochs": -1}, "epochs=-1"),
    ({"width": 4, "heads": 1, "mlp_ratio": 0.1}, "mlp_ratio=0.1: of width=4: more than 0.125"),
    ({"data_seed": -2}, "data_seed=-2: a whole number of at least 0 and below 2,147,483,648"),
    ({"seed": -1}, "seed=-1: a whole number of at least 0"),
    ({"position": "none", "position_at": "evry-layer"}, "position_at=evry-layer: one of input, every-layer, shared;"),
    ({"image_size": 1024, "patch": 1}, "patch=1 of image_size=1024: 1,048,576 patches an image: at most 65,536"),
    ({"batch": 10**12, "epochs": 1}, "batch=1000000000000: a whole number from 1 to 1,048,576"),
    ({"epochs": 1e8}, "steps=1010390625: a whole number from 1 to 100,000,000"),
    ({"data_fraction": 1e-300}, "data_fraction=1e-300: less than one of 1,293 training images"),
    ({"attention": "slow"}, "attention=slow: 'fastest' or 'pinned'"),
    # augmentations
    (CIFAR | {"augment": "crop", "augment.pad": 32}, "augment.pad=32: less than image_size=32"),
    (CIFAR | {"augment": "flip-crop", "augment.pad": 0}, "augment=flip-crop: pad=0"),
    (CIFAR | {"augment": "randaugment", "augment.magnitude": 31}, "augment=randaugment: magnitude=31"),
    (CIFAR | {"augment": "randaugment", "channels": 4}, "channels=4: augment=randaugment takes 1"),
    # blocks
    ({"self_attention": "axial"}, "pool=cls: self_attention=axial has no class token"),
    ({"self_attention": "axial", "pool": "gap", "registers": 2}, "registers=2: self_attention=axial"),
    ({"self_attention": "axial", "pool": "gap", "objective.token": True}, "objective.token=True: self_attention=axial"),
    ({"model": "S/²"}, "model=S/²: a size of"),
    ({"self_attention": "axial", "position": "relative"}, "position=relative: self_attention=axial takes none, 1d"),
    ({"self_attention": "differential", "position": "rope2d"}, "position=rope2d: self_attention=differential takes"),
    ({"self_attention": "differential", "width": 9}, "width=9 over heads=3: self_attention=differential halves"),
    # positions
    (CONCAT | {"position_at": "shared"}, "position.combine=concat: at position_at=input only, not shared"),
    ({"position.width": 4}, "position.width=4: with position.combine=concat only"),
    (CONCAT | {"position.width": 192}, "position.width=192: more than 0 and less than width=192"),
    (CONCAT | {"position": "2d", "position.width": 3}, "position.width=3: position=2d needs a multiple of 2"),
    ({"position": "2d", "width": 3}, "width=3: position=2d needs a multiple of 2"),
    ({"position": "sincos2d", "width": 18}, "width=18: position=sincos2d needs a multiple of 4"),
    ({"position": "sincos2d", "width": 4, "heads": 1}, "width=4: position=sincos2d needs at least 8"),
    ({"position": "rope2d", "width": 6}, "width=6, heads=3: position=rope2d needs a multiple of 4 channels"),
    ({"position": "relative", "position_at": "shared"}, "position_at=shared: position=relative: it has no choice"),
    ({"position": "sincos1d", "position_at": "shared"}, "position_at=shared: position=sincos1d: one of input"),
    ({"position": "rope2d", "position.bas": 7.0}, "position=rope2d: unknown key 'bas'; did you mean 'base'"),
    # stems
    ({"stem": "conv", "image_size": 12, "patch": 3}, "patch=3: stem=conv halves the image: a power of two"),
    ({"stem": "conv", "patch": 8, "stem.channels": [12, 24]}, "stem.channels=[12, 24]: the convolutions divide"),
    ({"stem": "conv", "stem.patchify": 8}, "stem.patchify=8: the convolutions divide the side by 8, not by patch=4"),
    ({"stem": "conv", "stem.channels": [12, 0]}, "stem=conv: channels.1=0: at least 1"),
    ({"stem": "conv", "depth": 2, "stem.fewer_blocks": 2}, "stem.fewer_blocks=2: fewer than depth=2"),
    ({"stem": "hmlp", "width": 3}, "width=3: stem=hmlp begins with a quarter of it: at least 4"),
    ({"stem": "resnet", "patch": 2}, "patch=2: stem=resnet divides the side by 4, 8, 16 or 32"),
    ({"stem": "resnet", "stem.layers": 34}, "stem=resnet: layers=34: 26 or 50"),
    ({"stem.patches": [1, 8]}, "stem.patches=[1, 8]: has to include patch=4"),
    ({"stem.patches": [3, 4]}, "stem.patches=[3, 4]: 3 does not divide image_size=8"),
    ({"stem.patches": [2, 4], "position": "relative"}, "stem.patches=[2, 4]: position=relative: cannot go from a grid"),
    ({"stem.patches": [2, 4], "objective": "masked-patch"}, "objective=masked-patch predicts patches of one size"),
    # patches that leave
    ({"patch_dropout": 0.5, "position": "rope2d"}, "patch_dropout=0.5: position=rope2d acts where patches are gone:"),
    ({"patch_dropout": 0.5, "position_at": "every-layer"}, "patch_dropout=0.5: position_at=every-layer: input"),
    ({"patch_dropout": 0.5, "self_attention": "axial", "pool": "gap"}, "patch_dropout=0.5: self_attention=axial needs"),
    ({"patch_dropout": 0.5, "objective": "masked-patch"}, "patch_dropout=0.5: must be 0 with objective=masked-patch"),
    # objectives and teachers
    ({"objective": "masked-patch", "mixup": 0.2}, "mixup=0.2: must be 0 with objective=masked-patch"),
    ({"objective": "masked-patch", "head": "mlp"}, "head=mlp: objective=masked-patch needs head=linear"),
    ({"objective": "masked-patch", "patch": 8}, "patch=8: objective=masked-patch needs at least two patches"),
    ({"objective": "masked-patch", **TIMM}, "model=timm/test_resnet: objective=masked-patch"),
    ({"objective": "mae", "label_smoothing": 0.1}, "label_smoothing=0.1: must be 0 with objective=mae"),
    (
        {"objective": "mae", "stem": "conv"},
        "stem=conv: objective=mae needs a stem that embeds each patch alone: patch, hmlp",
    ),
    ({"objective": "mae", "position": "rope2d"}, "objective=mae: position=rope2d acts where patches are gone"),
    ({"objective": "mae", "patch_dropout": 0.5}, "patch_dropout=0.5: must be 0 with objective=mae"),
    ({"objective": "mae", "patch": 1}, "patch=1: objective=mae needs at least two values a patch"),
    ({"objective": "mae", "objective.decoder_width": 10}, "objective.decoder_width=10: a multiple of 4 and of its 3"),
    ({"teacher": "timm/resnet18"}, "teacher=timm/resnet18: none, the id of a trial"),
    ({"teacher": TRIAL, "objective": "masked-patch"}, "objective=masked-patch has no classes to teach"),
    ({"teacher": TRIAL, "init_from": "ba9876543210"}, "init_from=ba9876543210 is a trial too: set only one of them"),
    ({"objective.alpha": 2.0}, "objective=classification: alpha=2.0: a number from 0 to 1"),
    ({"objective.token": True, "pool": "layers"}, "pool=layers reads only every layer's class token"),
    ({"objective.token": True, **TIMM}, "objective.token=True: model=timm/test_resnet has no such token"),
    ({"init_from": "weights.bin"}, "init_from=weights.bin: none, the id of a trial (12 hex digits), timm/NAME, a file"),
    ({"init_from": TRIAL, **TIMM}, "init_from=0123456789ab: model=timm/test_resnet has other parts"),
    # optimizers, micro-batches, ranks
    (
        {"optimizer": "schedule-free", "ema": 0.9},
        "ema=0.9: optimizer=schedule-free already averages the weights: must be 0",
    ),
    ({"optimizer": "muon", **TIMM}, "model=timm/test_resnet: optimizer=muon"),
    ({"optimizer": "sgd", "optimizer.nesterov": True, "optimizer.momentum": 0.0}, "optimizer.nesterov=True needs"),
    ({"optimizer.momentum": 0.5}, "optimizer=adamw: unknown key 'momentum'"),
    ({"micro_batch": 5, "stem": "conv", "stem.norm": "batch", "batch": 10}, "batch at once: 0 or batch=10;"),
    ({"micro_batch": 5, **TIMM}, "micro_batch=5: batch norm needs the whole batch at once"),
    ({"batch": 5, "gpus": 3, "device": "cpu"}, "gpus=3: batch=5 has fewer than two images for each: at most 2"),
    ({"gpus": 2, "device": "cpu", **TIMM}, "gpus=2: PyTorch synchronizes batch norm only on GPUs: must be 1 on a CPU"),
    # reference models
    ({"model": "timm/resnet81"}, "has no such model; did you mean 'resnet"),
    ({"model": "timm/resnet18.a1_in1k"}, "model=timm/resnet18.a1_in1k: without the name of weights: timm/resnet18"),
    ({"position": "none", **TIMM}, "position=none: model=timm/test_resnet has its own: leave it out"),
    ({"stem.norm": "batch", **TIMM}, "stem.norm=batch: model=timm/test_resnet has its own"),
    ({"layer_decay": 0.5, **TIMM}, "layer_decay=0.5: the layers of model=timm/test_resnet are not known: 1"),
    ({"model": "timm/test_vit"}, "model=timm/test_vit does not take image_size=8, channels=1: "),
    ({"model": "timm/vgg11", "drop_path": 0.1, "image_size": 32}, "drop_path=0.1: model=timm/vgg11 has none: 0"),
]


@pytest.mark.parametrize(("settings", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_setting_is_one_clear_line(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        Config(**settings)
    assert message in str(error.value)
    assert "data_seed" in settings or "data_seed" not in str(error.value)  # it follows `seed`, which is named
    assert "\n" not in str(error.value)


LARGEST: dict[str, int] = {
    **dict.fromkeys(("width", "registers", "gpus", "evaluations"), 2**16),
    **dict.fromkeys(("classes", "batch", "micro_batch"), 2**20),
    **dict.fromkeys(("depth", "mlp_ratio", "threads"), 1024),
    **dict.fromkeys(("steps", "epochs"), 10**8),
}


@pytest.mark.parametrize("field", LARGEST)
def test_sizes_are_bounded(field: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{field}=1\S+: a .*(to|at most) {LARGEST[field]:,}$"):
        Config(**{field: 10**22})


def test_named_size_fills_its_fields_where_it_is_written() -> None:
    expected = {"width": 384, "depth": 3, "heads": 6, "mlp_ratio": 4.0, "patch": 16}
    assert merge({"width": 64, "patch": 2}, {"model": "S/16", "depth": 3}) == expected
    config = Config(model="B/16", image_size=224, channels=3, classes=1000)
    assert (config.width, config.depth, config.heads, config.patch) == (768, 12, 12, 16)


def test_size_of_the_data_is_filled_in_unless_written() -> None:
    config = Config(data="cifar100")
    assert (config.image_size, config.channels, config.classes) == (32, 3, 100)
    assert Config(data="cifar100", image_size=64).image_size == 64


def test_a_removed_setting_without_effect_is_accepted() -> None:
    """Configs that earlier versions recorded have `token_merging=0`."""
    assert Config(token_merging=0) == Config()
    with pytest.raises(ConfigError, match="unknown key 'token_merging'"):
        Config(token_merging=3)


def test_config_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().lr = 1.0


@pytest.mark.parametrize("settings", [{"width": 32, "heads": 7}, {"patch": 3}, {"lr": "fast"}])
def test_a_wrong_size_or_type_is_answered_without_torch(settings: dict[str, object]) -> None:
    """PyTorch's import takes most of the time of an answer."""
    code = (
        "import sys; from vitcore.config import Config\n"
        f"try: Config(**{settings})\n"
        "except ValueError: assert 'torch' not in sys.modules\n"
        "else: raise AssertionError('accepted')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_epochs_become_steps() -> None:
    """Epochs are passes over what is trained on: after the test fold, the validation part and the fraction."""
    config = Config(data="cifar10", epochs=2, batch=100, data_fraction=0.5, val_fraction=0.1)
    assert config.steps == 2 * 50_000 * 0.9 * 0.5 / 100
    assert Config(data="digits", epochs=30, batch=32).steps == round(30 * 1437 * 0.9 / 32)
    assert merge({"steps": 100}, {"epochs": 3}) == {"epochs": 3}
    assert merge({"epochs": 3}, {"steps": 100}) == {"steps": 100}


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
    assert merge(*layers) == merged


def test_star_import_gives_the_public_names() -> None:
    names: dict[str, object] = {}
    exec("from vitcore import *", names)
    assert {"Config", "ViT", "train", "POSITION"} <= names.keys()
