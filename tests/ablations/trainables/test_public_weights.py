"""Weights of timm as a start: stored by `ablate weights`, equal to what timm loads, identified by content."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import huggingface_hub.constants as hub
import numpy as np
import pytest
import safetensors.torch
import timm
import torch
from in_process import Ablate, refusal
from vit_checkpoints import official

from ablations.trainables.vit.commands import weights
from ablations.trainables.vit.commands.weights import store
from commonfloor.options import ConfigError
from vitcore import Config, ViT, trial_id
from vitcore.training.pretrained import copy_weights, weights_for

NAME = "test_vit"
SIZES: dict[str, Any] = {
    "image_size": 32, "patch": 16, "width": 64, "depth": 6, "heads": 2, "mlp_ratio": 3.0, "pool": "cls",
}  # fmt: skip
START = {**SIZES, "init_from": f"timm/{NAME}"}


def random_model() -> Any:
    torch.manual_seed(0)
    return timm.create_model(NAME)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a file of timm's weights for test_vit, which are random here, and data with stored ones."""
    folder = tmp_path_factory.mktemp("weights")
    safetensors.torch.save_file(random_model().state_dict(), folder / "model.safetensors")
    store(NAME, folder / "data", folder / "model.safetensors")
    return folder


@pytest.fixture
def file(once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(once / "model.safetensors", tmp_path))


@pytest.fixture
def stored(once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of stored weights, in the folder of the data."""
    shutil.copytree(once / "data", tmp_path / "data")
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path / "data"))
    return tmp_path / f"data/weights/timm/{NAME}.safetensors"


def started(**settings: Any) -> ViT:
    """Return a model of digits before its training."""
    config = Config(**(START | settings))
    model = ViT(config)
    copy_weights(model, weights_for(config, None), config.init_from)
    return model


@torch.no_grad()
def test_start_is_what_timm_loads_for_the_images(stored: Path, file: Path) -> None:
    """At another image size and for gray images, with a new head of zeros."""
    arguments = {"img_size": 64, "in_chans": 1, "num_classes": 0}
    theirs = timm.create_model(NAME, pretrained=True, pretrained_cfg_overlay={"file": str(file)}, **arguments).eval()
    images = torch.randn(2, 1, 64, 64)
    ours = started(image_size=64).eval()
    torch.testing.assert_close(ours.features(images), theirs(images), rtol=1e-5, atol=1e-5)
    assert not ours(images).any()


@torch.no_grad()
def test_patches_of_another_size_are_resized(stored: Path, file: Path) -> None:
    weight = safetensors.torch.load_file(file)["patch_embed.proj.weight"].sum(dim=1, keepdim=True)
    expected = timm.layers.resample_patch_embed(weight, [8, 8], interpolation="bilinear", antialias=False)
    torch.testing.assert_close(started(patch=8).stem.weight, expected, rtol=1e-4, atol=1e-5)


def test_id_depends_on_the_content_alone(stored: Path, file: Path, ablate: Ablate) -> None:
    """Equal weights stored under the name with its tag give one trial, other weights under the same name another."""
    first = trial_id(Config(**START))
    _, output, _ = ablate("weights", "add", f"timm/{NAME}.r160_in1k", str(file))
    assert output == (
        f"{stored.with_name(f'{NAME}.r160_in1k.safetensors')}\n"
        "settings that fit: image_size=160 width=64 depth=6 heads=2 mlp_ratio=3.0 patch=16 position=1d pool=cls\n"
    )
    assert trial_id(Config(**{**START, "init_from": f"timm/{NAME}.r160_in1k"})) == first != trial_id(Config(**SIZES))
    tensors = safetensors.torch.load_file(file)
    safetensors.torch.save_file({name: values + 1 for name, values in tensors.items()}, file)
    store(NAME, stored.parents[2], file)
    assert trial_id(Config(**START)) != first


def test_start_is_an_arm(stored: Path, ablate: Ablate) -> None:
    """A study with and without it plans and runs, and the arm has the id of its settings."""
    shown = ", ".join(f"{key}: {value}" for key, value in SIZES.items())
    study = f"question: q\nbaseline: {{{shown}, init_from: none}}\nfactors: {{init_from: [none, timm/{NAME}]}}\n"
    Path("s.yaml").write_text(study)
    Path("r.yaml").write_text("description: d\nconfig: {data: digits, steps: 1, evaluations: 1}\n")
    status, output, errors = ablate("run", "s.yaml", "--recipe", "r.yaml", "--seeds", "1")
    assert status == 0, errors
    assert f"init_from=timm/{NAME}" in output
    ids = {trial_id(Config(**settings, data="digits", steps=1, evaluations=1)) for settings in (SIZES, START)}
    assert {path.name for path in Path("runs/trials").iterdir()} == ids


def test_download_takes_what_the_hub_has(
    file: Path, ablate: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a cache of the hub, as its own client lays it out, without a network."""
    repository = tmp_path / "hub" / f"models--timm--{NAME}.r160_in1k"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    file.rename(snapshot / "model.safetensors")
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", True)
    status, output, errors = ablate("weights", "download", NAME, "--data-dir", str(tmp_path / "data"))
    assert status == 0, errors
    tensors = safetensors.torch.load_file(output.splitlines()[0])
    assert torch.equal(tensors["head.weight"], random_model().head.weight)
    assert f'"source": "timm/{NAME}.r160_in1k"' in (tmp_path / f"data/weights/timm/{NAME}.json").read_text()


def test_some_weights_are_on_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of I-JEPA, of which timm knows a URL alone."""
    model = random_model()
    model.pretrained_cfg = {"url": "https://example.org/model.pth"}
    monkeypatch.setattr(weights, "pretrained_model", lambda name, file: model)
    store(NAME, tmp_path)
    assert "https://example.org/model.pth" in (tmp_path / f"weights/timm/{NAME}.json").read_text()


def test_a_file_in_a_folder_called_timm_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("timm/model.safetensors", "timm/model.npz"):
        assert Config(**{**SIZES, "init_from": name}).init_from == str(tmp_path / name)


def test_papers_checkpoint_is_stored_too(tmp_path: Path) -> None:
    arrays = official("vit_jax", random_model())
    np.savez(tmp_path / "model.npz", **arrays)
    tensors = safetensors.torch.load_file(store(NAME, tmp_path, tmp_path / "model.npz").file)
    assert np.array_equal(tensors["head.weight"].T, arrays["head/kernel"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"heads": 4}, "heads=4: init_from=timm/test_vit has 2"),
        ({"depth": 5}, "depth=5: init_from=timm/test_vit has 6"),
        ({"pool": "gap"}, "pool=gap: init_from=timm/test_vit has cls"),
        ({"norm.eps": 1e-5}, "norm.eps=1e-05: init_from=timm/test_vit has 1e-06"),
        ({"mlp.activation": "quick-gelu"}, "mlp.activation=quick-gelu: init_from=timm/test_vit has gelu"),
        (
            {"init_from": "timm/vit_tiny"},
            "not in .*data/weights: `ablate weights download timm/vit_tiny` stores it.* add timm/vit_tiny FILE`",
        ),
        ({"init_from": "timm/../../x"}, "init_from=timm/../../x: none, the id of a trial"),
    ],
)
def test_what_does_not_fit_names_the_setting(stored: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        started(**settings)
    assert "\n" not in str(error.value)


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "torn": (lambda path: path.write_bytes(path.read_bytes()[:-9]), "it has changed; `ablate weights download timm/"),
    "no record": (lambda path: path.with_suffix(".json").unlink(), "No such file"),
    "another record": (lambda path: path.with_suffix(".json").write_text("[]"), "cannot be read"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_weights_are_one_line(stored: Path, damage: Callable[[Path], Any], message: str) -> None:
    damage(stored)
    with pytest.raises(ConfigError, match=rf"^init_from=timm/test_vit: .*{message}") as error:
        started()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("resnet18", "model.safetensors"), "resnet18: model: ResNet, where this ViT has VisionTransformer"),
        (("vit_tinny_patch16_224", "model.safetensors"), "has no such model; did you mean 'vit_tiny_patch16_224'?"),
        ((NAME, "w.pth"), "w.pth: .safetensors or .npz, because nothing is unpickled"),
        ((NAME, "w.safetensors"), "w.safetensors: No such file"),
        (
            ("test_vit2", "model.safetensors"),
            "test_vit2: model.safetensors does not fit: it lacks reg_token",
        ),
        ((NAME, "empty.safetensors"), "empty.safetensors cannot be read: "),
    ],
)
def test_what_cannot_be_stored_is_one_line(file: Path, ablate: Ablate, words: tuple[str, str], message: str) -> None:
    Path("empty.safetensors").touch()
    assert message in refusal(ablate, "weights", "add", *words, "--data-dir", "data")
    assert not Path("data").exists()


def test_first_tensor_of_another_shape_is_named(file: Path, ablate: Ablate) -> None:
    safetensors.torch.save_file(timm.create_model(NAME, num_classes=3).state_dict(), file)
    message = f"{NAME}: {file} does not fit: head.weight is (3, 64) in the file, (1000, 64) in the model"
    assert message in refusal(ablate, "weights", "add", NAME, str(file), "--data-dir", "data")


def test_file_with_names_of_timm_points_to_the_command_that_converts(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"^init_from=.*it has blocks\.0.*; `ablate weights add NAME FILE` converts"):
        started(init_from=str(file))


def test_without_a_network_a_download_fails_at_once(
    ablate: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the client's retries. The error names the other command."""
    seconds: list[float] = []

    def unreachable(name: str, timeout: float) -> None:
        seconds.append(timeout)
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "model_info", unreachable)
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path / "hub"))
    status, _, errors = ablate("weights", "download", NAME, "--data-dir", "data")
    expected = f"{NAME} cannot be downloaded: no network: `ablate weights add {NAME} FILE` takes them from a file"
    assert (status, errors) == (1, f"ablate: {expected}\n")
    assert seconds == [10]
