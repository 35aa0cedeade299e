"""Weights to start from: copied, interpolated or left out; weights and checkpoints that do not fit are refused."""

import io
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import trainings
from torch import Tensor
from trainings import after, assert_same, finished
from vit_checkpoints import official, timm_model

from commonfloor.options import ConfigError
from vitcore import Config, ViT, train
from vitcore.analysis.eval import restore_model
from vitcore.config import merge
from vitcore.contracts import perturbed, tiny
from vitcore.data.splits import load
from vitcore.identity import trial_id
from vitcore.model.position import POSITION
from vitcore.training.pretrained import check_start, copy_weights, weights_for
from vitcore.training.run import Memory
from vitcore.training.state import Training

config = partial(trainings.tiny, depth=2, patch=2, pool="cls", steps=3, batch=8, evaluations=1)


def saved(model: torch.nn.Module, path: Path) -> str:
    safetensors.torch.save_file({name: t.contiguous() for name, t in model.state_dict().items()}, path)
    return str(path)


def features(model: ViT, images: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model.eval().features(images)


def taken_over(parent: torch.nn.Module, child: ViT) -> ViT:
    copy_weights(child, parent.state_dict(), "the parent")
    return child


def test_body_is_copied_and_head_starts_at_zero() -> None:
    """The same features as the parent's, and logits that are all zero: one new linear layer (B.1.1)."""
    parent = perturbed(config(head="mlp")).float()
    child = taken_over(parent, ViT(config()))
    images = torch.randn(2, 1, 8, 8)
    with torch.no_grad():
        assert torch.equal(parent.eval().pooled(images), child.eval().pooled(images))
        assert not child(images).any()


def test_weights_of_earlier_versions_are_read_under_todays_names() -> None:
    """Until 0.11 a block called its layer scales add1.scale and add2.scale."""
    model = perturbed(config(layer_scale=0.1)).float()
    old = {re.sub(r"scale(\d)\.gamma", r"add\1.scale", name): t for name, t in model.state_dict().items()}
    assert sum("add" in name for name in old) == 4
    again = restore_model(model.config, safetensors.torch.save(old))
    images = torch.randn(2, 1, 8, 8)
    with torch.no_grad():
        assert torch.equal(model.eval()(images), again(images))


@pytest.mark.parametrize(
    ("position", "place"),
    [(name, place) for name, kind in POSITION.items() if name != "relative" for place in kind.places or [""]],
)
def test_at_a_new_resolution_it_is_the_parent_at_that_resolution(position: str, place: str) -> None:
    settings = {"position": position, "position_at": place, "pool": "cls"}
    parent = perturbed(Config(**merge(tiny("position", position).model_dump(), settings)))
    child = taken_over(parent, ViT(parent.config.model_copy(update={"image_size": 12})).double())
    images = torch.randn(2, 1, 12, 12, dtype=torch.float64)
    assert torch.allclose(features(parent, images), features(child, images), atol=1e-6)  # rates are float32


def test_a_training_starts_there(tmp_path: Path) -> None:
    """At a tiny learning rate the trained body is the parent's, in the averaged weights too."""
    parent = perturbed(config()).float()
    path = saved(parent, tmp_path / "w.safetensors")
    run = finished(config(init_from=path, lr=1e-20, ema=0.9, weight_decay=0.0))
    found = safetensors.torch.load(run.weights)
    for name, values in parent.state_dict().items():
        assert name.startswith("head.") or torch.allclose(found[name], values, atol=1e-7), name


@pytest.mark.parametrize("objective", ["masked-patch", "mae"])
def test_mask_and_decoder_of_masked_weights_are_left_out(objective: str) -> None:
    run = finished(own := config(objective=objective))
    parent, images = restore_model(own, run.weights), torch.randn(2, 1, 8, 8)
    assert torch.equal(features(parent, images), features(taken_over(parent, ViT(config())), images))


def test_the_papers_checkpoints_are_a_start(tmp_path: Path) -> None:
    sizes = {"img_size": 8, "patch_size": 2, "in_chans": 1, "embed_dim": 16, "depth": 1, "num_heads": 2}
    arrays = official("vit_jax", timm_model(**sizes))
    np.savez(tmp_path / "w.npz", **arrays)
    run = finished(config(init_from=str(tmp_path / "w.npz"), depth=1, image_size=16, lr=1e-20, weight_decay=0.0))
    kernel = safetensors.torch.load(run.weights)["stem.weight"].permute(2, 3, 1, 0).numpy()
    assert np.allclose(kernel, arrays["embedding/kernel"], atol=1e-7)


def test_killed_and_resumed_it_ends_the_same(tmp_path: Path) -> None:
    """A resumed training does not copy the parent's weights again."""
    path = saved(perturbed(config()).float(), tmp_path / "w.safetensors")
    assert_same(finished(own := config(init_from=path, image_size=16), 2), finished(own))


def test_a_file_is_identified_by_its_content(tmp_path: Path) -> None:
    """Two paths to the same weights are one trial, other weights another, also at a path that is overwritten."""
    model = perturbed(config()).float()
    (tmp_path / "there").mkdir()
    one, two = saved(model, tmp_path / "a.safetensors"), saved(model, tmp_path / "there" / "b.safetensors")
    before = trial_id(config(init_from=one))
    assert before == trial_id(config(init_from=two)) != trial_id(config())
    saved(model.double(), tmp_path / "a.safetensors")
    assert trial_id(config(init_from=one)) != before


@pytest.mark.parametrize(
    ("parent", "child", "said"),
    [
        ({"position": "1d"}, {"position": "none"}, "^position=none: init_from=0123456789ab has 1d$"),
        ({}, {"registers": 2}, "^registers=2: init_from=0123456789ab has 0$"),
        ({"width": 16}, {"width": 32}, "^width=32: init_from=0123456789ab has 16$"),
        ({"depth": 2, "pool": "cls"}, {"depth": 1, "pool": "cls"}, "^depth=1: init_from=0123456789ab has 2$"),
        ({"position": "relative"}, {"position": "relative", "image_size": 16}, "4x4 patches to 8x8"),
    ],
)
def test_what_does_not_fit_is_named(parent: dict[str, object], child: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_start(config(init_from="0123456789ab", **child), config(**parent))


@pytest.mark.parametrize(
    ("parent", "child", "said"),
    [
        ({"position": "1d"}, {"position": "none"}, "it has position.table, which this model lacks$"),
        ({}, {"registers": 2}, "it lacks registers, which"),
        ({"width": 16}, {"width": 32}, r"class_token is float32 \(1, 1, 16\), not float32 \(1, 1, 32\)"),
        ({"depth": 2}, {"depth": 1}, "encoder.blocks.1"),
    ],
)
def test_of_weights_without_settings_the_tensor_is_named(
    parent: dict[str, object], child: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        check_start(config(init_from="a.safetensors", **child), ViT(config(**parent)).state_dict())


def test_files_without_weights_are_refused_in_one_line(tmp_path: Path) -> None:
    """A parent's damaged weights, and files that are missing, of another kind, a pipe, or damaged."""
    for payload in (b"", b"\xff" * 64, b"PK\x03\x04"):
        with pytest.raises(ConfigError, match=r"\Ainit_from=0123456789ab: cannot be read: .*\Z"):
            weights_for(Config(init_from="0123456789ab"), payload)
    with pytest.raises(ConfigError, match="No such file"):
        trial_id(config(init_from=str(tmp_path / "no.safetensors")))
    for name in ("torn.safetensors", "torn.npz"):
        (tmp_path / name).write_bytes(b"nothing of the kind")
        with pytest.raises(ConfigError, match=f"{name}: cannot be read"):
            train(config(init_from=str(tmp_path / name)))
    os.mkfifo(tmp_path / "pipe.safetensors")
    for read in (trial_id, train):  # the fingerprint, and the content
        with pytest.raises(ConfigError, match=r"init_from=.*pipe\.safetensors: pipe.safetensors is not a regular file"):
            read(config(init_from=str(tmp_path / "pipe.safetensors")))
    with pytest.raises(ConfigError, match="weights of that trial are missing"):
        train(config(init_from="0123456789ab"))


CONFIG = Config(width=16, depth=1, heads=2, patch=4, pool="gap", steps=6, batch=8, ema=0.9, data_fraction=0.1)
SOME = 1 if os.environ.get("ABLATE_EVERY_MUTATION") else 17  # coprime with the six mutations of a tensor


def mutations(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yield what makes files without one of the tensors, or with one of another shape, dtype or value."""
    for name, tensor in tensors.items():
        wrong: dict[str, Tensor] = {
            "empty": torch.empty(0),
            "longer": torch.zeros(*tensor.shape, 3),
            "other kind": torch.zeros_like(tensor, dtype=torch.int32 if tensor.is_floating_point() else torch.float32),
            "negative": torch.full_like(tensor, -1),
            "huge": torch.full_like(tensor, 255 if tensor.dtype == torch.uint8 else 2**31),
        }
        yield f"no {name}", partial(as_file, {key: value for key, value in tensors.items() if key != name})
        for what, value in wrong.items():
            yield f"{name}: {what}", partial(as_file, {**tensors, name: value})
    torch.save(dict(tensors), buffer := io.BytesIO())
    broken = {"torn": as_file(tensors)[:-9], "nothing": b"", "header": b"\xff" * 64, "pickle": buffer.getvalue()}
    for what, payload in broken.items():
        yield what, partial(bytes, payload)


def as_file(tensors: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save({name: tensor.clone() for name, tensor in tensors.items()})


@pytest.fixture(scope="module")
def run() -> Memory:
    """Return a run stopped after some steps, with the weights of its end."""
    train(CONFIG, run := Memory(), stop=after(3))
    train(CONFIG, end := Memory(checkpoints=dict(run.checkpoints)))
    return Memory(run.checkpoints, weights=end.weights)


def test_a_checkpoint_that_does_not_fit_is_one_line(run: Memory) -> None:
    """A missing or wrong tensor is named, unless the training can continue from it."""
    data, payload, bad, refused = load(CONFIG), run.checkpoint(), [], 0
    for what, made in itertools.islice(mutations(safetensors.torch.load(payload)), 0, None, SOME):
        training = Training(CONFIG, data)
        try:
            training.restore(made())
            training.advance()
        except ConfigError as error:
            refused += 1
            if "\n" in str(error) or not str(error).startswith("the trial's newest checkpoint: "):
                bad.append(f"{what}: {error}")
        except Exception as error:
            bad.append(f"{what}: {type(error).__name__}: {error}")
    assert not bad
    assert refused > 100 // SOME


def test_a_checkpoint_of_another_state_is_refused(run: Memory) -> None:
    """A checkpoint of earlier versions lacks two tensors and is read; one of the last step is refused."""
    tensors, training = safetensors.torch.load(run.checkpoint()), Training(CONFIG, load(CONFIG))
    training.restore(as_file({key: tensors[key] for key in tensors.keys() - {"micro_batch", "suspicion"}}))
    for name in ("losses", "step", "seconds", "suspicion", "model.head.weight", "average.head.weight"):
        with pytest.raises(ConfigError, match="newest checkpoint"):
            training.restore(as_file({key: tensors[key] for key in tensors.keys() - {name}}))
    payload = as_file({**tensors, "step": torch.tensor(CONFIG.steps)})
    with pytest.raises(ConfigError, match=r"^the trial's newest checkpoint: 0 losses, step=6, micro_batch=8$"):
        train(CONFIG, Memory(checkpoints={CONFIG.steps: payload}))


def test_weights_that_do_not_fit_are_one_line(run: Memory) -> None:
    """Whatever `inspect` and evals read, also with a tensor too many."""
    tensors: dict[str, Any] = safetensors.torch.load(run.weights)
    for what, made in [*mutations(tensors), ("more", partial(as_file, {**tensors, "evil": torch.zeros(1)}))]:
        harmless = what.endswith((": negative", ": huge"))  # numbers like others
        with nullcontext() if harmless else pytest.raises(ConfigError, match=r"\Aweights: .*\Z"):
            restore_model(CONFIG, made())
