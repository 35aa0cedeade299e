"""Conversion from and to transformers: equal logits or features, or an error. `make test-frameworks` runs it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vitcore import Config, ViT
from vitcore.interop.transformers_vit import from_transformers, to_transformers

hf: Any = pytest.importorskip("transformers", reason="make test-frameworks installs transformers")
SIZES: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 100,
}
DINOV2 = {key: value for key, value in SIZES.items() if key != "intermediate_size"}


def classifier(name: str, config: str, **settings: Any) -> Any:
    return getattr(hf, name)(getattr(hf, config)(**SIZES, num_labels=10, **settings))


def body(name: str, config: str, sizes: dict[str, Any] = SIZES, **settings: Any) -> Any:
    return getattr(hf, name)(getattr(hf, config)(**sizes, **settings))


def vision_classifier(name: str, config: str) -> Any:
    return getattr(hf, name)(getattr(hf, config)(vision_config=SIZES, num_labels=10))


MODELS: dict[str, Callable[[], Any]] = {
    "ViT, logits": partial(classifier, "ViTForImageClassification", "ViTConfig"),
    "ViT, features after the pooler": partial(body, "ViTModel", "ViTConfig", qkv_bias=False),
    "ViT, features": lambda: hf.ViTModel(
        hf.ViTConfig(**SIZES, hidden_act="gelu_pytorch_tanh"), add_pooling_layer=False
    ),
    "DeiT, logits": partial(classifier, "DeiTForImageClassification", "DeiTConfig"),
    "DeiT, logits of both heads": partial(classifier, "DeiTForImageClassificationWithTeacher", "DeiTConfig"),
    "Dinov2": partial(body, "Dinov2Model", "Dinov2Config", DINOV2, drop_path_rate=0.1),
    "Dinov2, SwiGLU": partial(body, "Dinov2Model", "Dinov2Config", DINOV2, use_swiglu_ffn=True),
    "Dinov2, registers": partial(body, "Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", DINOV2),
    "SigLIP": partial(body, "SiglipVisionModel", "SiglipVisionConfig"),
    "SigLIP, logits": partial(vision_classifier, "SiglipForImageClassification", "SiglipConfig"),
    "CLIP": partial(body, "CLIPVisionModel", "CLIPVisionConfig"),
    "CLIP, projection": partial(body, "CLIPVisionModelWithProjection", "CLIPVisionConfig", projection_dim=24),
    "CLIP, logits": partial(vision_classifier, "CLIPForImageClassification", "CLIPConfig"),
}


@torch.no_grad()
def scattered(model: Any) -> Any:
    """Return a model in float64 whose norms, biases and layer scales are random too."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)
    return model.double().eval()


def answers(model: Any, images: Tensor) -> tuple[Tensor, bool]:
    """Return the logits, image embeddings or pooled features, and whether they are features."""
    options = {}
    if tuple(images.shape[2:]) != (32, 32) and not type(model).__name__.startswith("Dinov2"):  # which always does
        options = {"interpolate_pos_encoding": True}
    output = model(images, **options)
    for name in ("logits", "image_embeds", "pooler_output"):
        if output.get(name) is not None:
            return output[name], name == "pooler_output"
    return output.last_hidden_state[:, 0], True


def deviation(ours: ViT, theirs: Any, size: tuple[int, int]) -> float:
    """Return the largest difference of the outputs for random images, over the largest value."""
    images = torch.randn(2, 3, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected, are_features = answers(theirs, images)
    found = ours.features(images) if are_features else ours(images)
    return ((found - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@torch.no_grad()
def test_model_becomes_a_vit_and_comes_back(make: Callable[[], Any]) -> None:
    """Outputs are equal to rounding at the native size, at a larger one and at another aspect ratio."""
    theirs = scattered(make())
    ours = from_transformers(theirs)
    assert deviation(ours, theirs, (32, 32)) < 1e-12
    interpolated = 1e-6 if type(theirs).__name__.startswith("Dinov2") else 1e-12  # Dinov2 interpolates in float32
    for size in ((48, 48), (40, 24)):
        assert deviation(ours, theirs, size) < interpolated
    back = to_transformers(ours, type(theirs))
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    assert torch.equal(answers(back, images)[0], answers(theirs, images)[0])


@torch.no_grad()
def test_trained_vit_becomes_a_model_of_transformers() -> None:
    """A ViT with the defaults of this package, whose heads start at zero, and one with registers and layer scale."""
    plain = {"image_size": 32, "channels": 3, "patch": 8, "width": 48, "depth": 2, "heads": 3}
    model = scattered(ViT(Config(**plain, classes=10)))
    assert deviation(model, to_transformers(model, hf.ViTForImageClassification), (32, 32)) < 1e-12
    model = scattered(ViT(Config(**plain, registers=2, layer_scale=0.1, mlp="swiglu")))
    assert deviation(model, to_transformers(model, hf.Dinov2WithRegistersModel), (32, 32)) < 1e-12


def edited(model: Any) -> Any:
    model.layers[1].mlp.activation_fn = nn.ReLU()
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(body, "ViTModel", "ViTConfig", hidden_act="relu"), "hidden_act='relu': this ViT has gelu, gelu_py"),
        (partial(body, "ViTModel", "ViTConfig", pooler_act="relu"), "pooler.activation: ReLU"),
        (partial(body, "ViTModel", "ViTConfig", pooler_output_size=32), "pooler.dense: Linear.*out_features=32"),
        (partial(body, "ViTModel", "ViTConfig", DINOV2 | {"image_size": [32, 64]}), r"image_size=\(32, 64\): .*square"),
        (lambda: edited(body("ViTModel", "ViTConfig")), "layers.1.mlp.activation_fn: ReLU"),
        (partial(body, "SiglipVisionModel", "SiglipVisionConfig", vision_use_head=False), "head: not there"),
        (
            partial(body, "Dinov2ForImageClassification", "Dinov2Config", DINOV2),
            "Dinov2ForImageClassification: this ViT can be .*; its .dinov2 is one of them",
        ),
        (partial(body, "ViTMAEModel", "ViTMAEConfig"), "ViTMAEModel: this ViT can be"),
    ],
)
def test_what_this_vit_is_not_is_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as error:
        from_transformers(make())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"position": "2d"}, "ViTForImageClassification", "position=2d: ViTForImageClassification has 1d"),
        ({"pool": "gap"}, "ViTForImageClassification", "pool=gap: ViTForImageClassification has cls"),
        ({"mlp": "relu2"}, "Dinov2Model", "mlp=relu2: Dinov2Model has gelu"),
        ({"mlp_ratio": 2.5, "layer_scale": 0.1}, "Dinov2Model", "mlp.hidden=120: Dinov2Model has 96"),
        ({}, "Dinov2Model", "layer_scale=none: Dinov2Model has some"),
        ({"registers": 2}, "DeiTForImageClassification", "registers=2: DeiTForImageClassification has 1"),
        ({}, "DeiTForImageClassificationWithTeacher", "objective.token=False: DeiT.* has True"),
        ({"objective.token": True}, "ViTForImageClassification", "objective.token=True: ViTFor.* has False"),
        ({}, "ViTMAEModel", "ViTMAEModel: this ViT can be"),
        ({"objective": "mae"}, "ViTModel", "objective=mae: ViTModel has classification"),
        ({"head.bias": -1.0, "embedding_norm": True, "stem.bias": False}, "CLIPVisionModelWithProjection", "head.bias"),
    ],
)
def test_what_the_class_lacks_is_named(settings: dict[str, Any], kind: str, message: str) -> None:
    model = ViT(Config(image_size=32, channels=3, patch=8, width=48, depth=1, heads=3, **settings))
    with pytest.raises(ValueError, match=f"^{message}"):
        to_transformers(model, getattr(hf, kind))
