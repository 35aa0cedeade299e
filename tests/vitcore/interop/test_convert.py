"""Conversion from and to timm and torchvision: equal logits and gradients, or an error."""

import re
from collections.abc import Callable
from fnmatch import fnmatch
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torchvision
from timm.layers import GatedMlp, GluMlp, SwiGLU, SwiGLUPacked
from timm.models.vision_transformer import ParallelScalingBlock, ParallelThingsBlock, ResPostBlock
from torch import Tensor, nn
from vit_checkpoints import SMALL, timm_model

from vitcore import Config, ViT
from vitcore.contracts import perturbed
from vitcore.interop import torchvision_vit
from vitcore.interop.conversion import Patterns, rename
from vitcore.interop.timm_vit import from_timm, join_gates, join_projections, timm_patterns, to_timm
from vitcore.interop.torchvision_vit import from_torchvision, to_torchvision

TOLERANCE = 1e-5  # in float32, relative to the largest value
ROUNDING = 1e-9  # in float64
PARALLEL: dict[str, Any] = {"block_fn": ParallelScalingBlock}
TIMM: dict[str, dict[str, Any]] = {
    "class token": {},
    "class token without a row": {"no_embed_class": True},
    "average": {"class_token": False, "global_pool": "avg", "fc_norm": False},
    "average without a norm": {"class_token": False, "global_pool": "avg", "fc_norm": False, "final_norm": False},
    "norm after the average": {"class_token": False, "global_pool": "avg"},
    "average beside a class token": {"global_pool": "avg", "fc_norm": False},
    "attention pooling": {"class_token": False, "global_pool": "map"},
    "registers": {"reg_tokens": 4},
    "registers without rows": {"reg_tokens": 4, "no_embed_class": True},
    "registers and average": {"reg_tokens": 4, "class_token": False, "global_pool": "avg"},
    "layer scale": {"init_values": 0.1, "no_embed_class": True},
    "query-key norm": {"qk_norm": True},
    "no position": {"pos_embed": "none"},
    "no final norm": {"final_norm": False},
    "odd MLP": {"mlp_ratio": 100.5 / 48},
    "any resolution": {"dynamic_img_size": True},
    "hybrid": {"stem": [2]},
    "what only training knows": {"drop_path_rate": 0.1, "proj_drop_rate": 0.1, "attn_drop_rate": 0.1, "drop_rate": 0.1},
    "CLIP's": {"pre_norm": True, "no_embed_class": False},
    "no qkv bias": {"qkv_bias": False},
    "no bias": {"qkv_bias": False, "proj_bias": False},
    "RMS norm": {"norm_layer": "rmsnorm", "qk_norm": True},
    "SwiGLU": {"mlp_layer": SwiGLU, "act_layer": nn.SiLU},
    "packed SwiGLU": {"mlp_layer": SwiGLUPacked, "mlp_ratio": 64 / 48, "act_layer": nn.SiLU},
    "GEGLU": {"mlp_layer": partial(GluMlp, gate_last=False), "mlp_ratio": 128 / 48},
    "tanh GELU": {"act_layer": "gelu_tanh"},
    "OpenAI's CLIP": {"pre_norm": True, "act_layer": "quick_gelu", "norm_layer": partial(nn.LayerNorm, eps=1e-5)},
    "SigLIP's": {"class_token": False, "global_pool": "map", "act_layer": "gelu_tanh"},
    "attention pooling with another epsilon": {
        "class_token": False,
        "global_pool": "map",
        "norm_layer": partial(nn.LayerNorm, eps=1e-2),
    },
    "norms inside both branches": {"scale_mlp_norm": True, "scale_attn_norm": True, "qkv_bias": False},
    "SwiGLU with a norm": {"mlp_layer": SwiGLU, "act_layer": nn.SiLU, "scale_mlp_norm": True},
    "differential": {"attn_layer": "diff"},
    "two branches": {"block_fn": ParallelThingsBlock, "init_values": 0.1, "qk_norm": True},
    "three branches": {"block_fn": partial(ParallelThingsBlock, num_parallel=3)},
    "differential with query-key norm": {"attn_layer": "diff", "qk_norm": True},
    "parallel": PARALLEL,
    "parallel with attention pooling": PARALLEL | {"class_token": False, "global_pool": "map"},
    "parallel with tanh GELU": PARALLEL | {"act_layer": "gelu_tanh", "norm_layer": partial(nn.LayerNorm, eps=1e-2)},
    "parallel with all": PARALLEL | {"qkv_bias": False, "qk_norm": True, "init_values": 0.1, "pre_norm": True},
}
ROPE: dict[str, Any] = {"use_rot_pos_emb": True, "use_abs_pos_emb": False, "embed_dim": 48, "init_values": 0.1}
EVA: dict[str, dict[str, Any]] = {
    "no rotation": {"global_pool": "avg"},
    "RoPE-ViT": ROPE | {"attn_type": "rope", "rope_grid_indexing": "xy", "rope_temperature": 100.0},
    "mixed": ROPE | {"attn_type": "rope", "rope_grid_indexing": "xy", "rope_temperature": 10.0, "rope_type": "mixed"},
    "mixed, rows first": ROPE | {"rope_type": "mixed", "rope_temperature": 10.0},
    "rows first": ROPE | {"class_token": False, "num_reg_tokens": 2, "global_pool": "avg", "ref_feat_shape": (7, 7)},
    "DINOv3": ROPE
    | {"rope_type": "dinov3", "rope_temperature": 100.0, "rope_rotate_half": True, "num_reg_tokens": 4}
    | {"swiglu_mlp": True, "swiglu_align_to": 8, "qkv_bias": False, "norm_layer": partial(nn.LayerNorm, eps=1e-5)},
    "EVA-02": ROPE
    | {"qkv_fused": False, "swiglu_mlp": True, "scale_mlp": True, "scale_attn_inner": True, "ref_feat_shape": 4},
    "Perception Encoder": ROPE
    | {"rope_grid_offset": 1.0, "rope_grid_indexing": "xy", "attn_type": "rope", "ref_feat_shape": (6, 6)}
    | {"use_pre_transformer_norm": True, "use_post_transformer_norm": False, "use_fc_norm": False},
    "rotary and learned positions": ROPE | {"use_abs_pos_emb": True, "num_reg_tokens": 1},
    "mixed and learned positions": ROPE | {"use_abs_pos_emb": True, "no_embed_class": True, "rope_type": "mixed"},
    "packed SwiGLU with query-key norm": ROPE | {"swiglu_mlp": True, "qk_norm": True, "rope_rotate_half": True},
}
PREFIX = ("class_token", "cls_token", "registers", "reg_token", "objective.token", "dist_token")
PLACES = ("position.table", "pos_embed", "encoder.pos_embedding")
TORCHVISION: dict[str, dict[str, Any]] = {
    "linear head": {},
    "tanh head": {"representation_size": 48},
    "convolutions": {"conv_stem": [(12, 3, 2), (24, 3, 2), (48, 3, 2)]},
    "more convolutions": {"conv_stem": [(16, 3, 2), (16, 3, 1), (24, 3, 2), (40, 3, 2)]},
}


def torchvision_model(conv_stem: list[tuple[int, int, int]] | None = None, **settings: Any) -> Any:
    """Build a small model. conv_stem: channels, kernel size and stride of each convolution."""
    if conv_stem:
        stem = torchvision.models.vision_transformer.ConvStemConfig
        settings["conv_stem_configs"] = [stem(*each) for each in conv_stem]
    sizes = {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 3, "hidden_dim": 48, "mlp_dim": 100}
    return torchvision.models.VisionTransformer(**(sizes | {"num_classes": 10} | settings))


@torch.no_grad()
def scattered(model: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)
    return model.eval()


def pictures(model: ViT, count: int = 2) -> Tensor:
    size = model.config.image_size
    return torch.randn(count, model.config.channels, size, size, generator=torch.Generator().manual_seed(1))


def answers(model: nn.Module, images: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the logits, and the gradients of a random sum of them by parameter; '' stands for the images."""
    images = images.detach().to(next(model.parameters()).dtype, copy=True).requires_grad_()
    logits = model(images)
    direction = torch.randn(logits.shape, generator=torch.Generator().manual_seed(2))
    model.zero_grad()
    (logits * direction).sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return logits.detach(), {"": images.grad, **gradients}


def far(value: Tensor, reference: Tensor) -> float:
    """Return the largest difference over the largest value."""
    assert value.shape == reference.shape
    return ((value.double() - reference).abs().max() / reference.double().abs().max()).item()


def in_common(gradients: dict[str, Tensor], patches: int) -> dict[str, Tensor]:
    """Return gradients with joined prefix tokens, without positions of prefix tokens, which are stored elsewhere."""
    prefix = [gradients.pop(name) for name in PREFIX if name in gradients]
    places = [gradients.pop(name)[..., -patches:, :].reshape(patches, -1) for name in PLACES if name in gradients]
    gradients.pop("position.class_row", None)
    if "attn_pool.latent" in gradients:
        gradients["attn_pool.latent"] = gradients["attn_pool.latent"].flatten()
    common = {"prefix": torch.cat(prefix, dim=1)} if prefix else {}
    return gradients | common | ({"places": places[0]} if places else {})


def difference(ours: ViT, theirs: nn.Module, patterns: Patterns, count: int = 2) -> float:
    """Return the largest relative difference of logits and gradients, after converting both models to float64.

    Left out are parameters with a gradient of 0: a vector added to all keys, as by k_norm's bias, changes nothing.
    """
    images, patches = pictures(ours, count), ours.config.grid[0] * ours.config.grid[1]
    logits, gradients = answers(ours.double(), images)
    their_logits, their_gradients = answers(theirs.double(), images)
    mine = {rename(key, patterns): values for key, values in in_common(gradients, patches).items()}
    if ours.config.block == "parallel":
        mine = join_projections(mine)
    other = join_gates(in_common(their_gradients, patches))
    assert mine.keys() == other.keys()
    smallest = 1e-12 * max(values.abs().max().item() for values in other.values())
    moving = [key for key, values in other.items() if values.abs().max() > smallest]
    return max(far(logits, their_logits), *(far(mine[key], other[key]) for key in moving))


@pytest.mark.parametrize("settings", TIMM.values(), ids=TIMM)
def test_timm_model_becomes_a_vit_and_comes_back(settings: dict[str, Any]) -> None:
    """Logits and gradients are equal to rounding, and timm's model made of the ViT has equal bits."""
    theirs = scattered(timm_model(**settings)).double()
    ours = from_timm(theirs).eval()
    images = pictures(ours).double()
    with torch.no_grad():
        assert torch.equal(to_timm(ours)(images), theirs(images))
    rounding = TOLERANCE if "diff" in settings.values() else ROUNDING  # timm computes its lambda in float32
    assert difference(ours, theirs, timm_patterns(ours.config)) <= rounding


@pytest.mark.parametrize("distilled", [False, True])
@torch.no_grad()
def test_model_without_head_has_its_output_as_features(distilled: bool) -> None:
    """The head is new: two classes, all 0."""
    make = timm.models.deit.VisionTransformerDistilled if distilled else timm.models.VisionTransformer
    theirs = scattered(make(**SMALL | {"num_classes": 0}))
    ours = from_timm(theirs)
    images = pictures(ours)
    features = theirs.forward_features(images)[:, 0]  # after the norm
    assert far(ours.features(images), features) <= TOLERANCE
    assert torch.equal(ours(images), torch.zeros(2, 2))


def test_distilled_model_becomes_a_vit_and_comes_back() -> None:
    """The position of the distillation token is added to the token, and logits average both heads."""
    theirs = scattered(timm.models.deit.VisionTransformerDistilled(**SMALL)).double()
    ours = from_timm(theirs).eval()
    assert ours.config.options["objective.token"]
    assert difference(ours, theirs, timm_patterns(ours.config)) <= ROUNDING
    back = to_timm(ours)
    assert type(back) is type(theirs)
    images = pictures(ours).double()
    with torch.no_grad():
        assert far(back(images), theirs(images)) <= ROUNDING


NEEDS_NEW_EVA = pytest.mark.skipif("qk_norm" not in signature(timm.models.eva.Eva).parameters, reason="older timm")


@NEEDS_NEW_EVA
@pytest.mark.parametrize("settings", EVA.values(), ids=EVA)
def test_eva_becomes_a_vit_and_comes_back(settings: dict[str, Any]) -> None:
    """Logits and the gradient of the images are equal, at another grid too. Rotations are in float32."""
    sizes = SMALL | {"dynamic_img_size": True, "global_pool": "token"}
    theirs = scattered(timm.models.eva.Eva(**sizes | settings)).double()
    with torch.no_grad():
        for block in theirs.blocks:  # larger queries and keys, so that attention depends on the rotation
            block.attn.requires_grad_(False)
            for name, parameter in block.attn.named_parameters():
                parameter.mul_(1.0 if "norm" in name else 5.0)
    ours = from_timm(theirs).eval()
    back = to_timm(ours)
    assert type(back) is (type(theirs) if theirs.rope else timm.models.VisionTransformer)
    for other, images in ((ours, pictures(ours)), (ours, torch.randn(2, 3, 24, 56)), (back, pictures(ours))):
        logits, gradients = answers(theirs, images)
        other_logits, other_gradients = answers(other, images)
        assert far(other_logits, logits) <= TOLERANCE
        assert far(other_gradients[""], gradients[""]) <= TOLERANCE


@NEEDS_NEW_EVA
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (ROPE | {"global_pool": "map"}, "global_pool='map': timm's Eva also pools the class token"),
        (ROPE | {"rope_type": "mrope"}, "rope: RotaryEmbeddingMRope, where this ViT has RotaryEmbeddingCat or"),
        (ROPE | {"rope_grid_offset": 0.5}, r"rope.grid_offset=0.5: this ViT has 0, and 1 without"),
        (ROPE | {"use_post_norm": True}, "blocks.0: EvaBlockPostNorm, where this ViT has EvaBlock"),
        (ROPE | {"attn_only_layer_scale": True}, "attn_only_layer_scale=True: this ViT scales both"),
        (
            ROPE | {"attn_type": "rope", "qkv_fused": False, "num_kv_heads": (3, 1)},
            "blocks.1: num_kv_heads=1: this ViT has keys for each of its heads",
        ),
    ],
)
def test_what_this_vit_lacks_of_eva_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        from_timm(timm.models.eva.Eva(**SMALL | settings))


def test_converted_model_is_a_copy() -> None:
    """Dtype and mode are kept."""
    ours = from_timm(theirs := timm_model().double().eval())
    assert not ours.training
    for parameter in ours.parameters():
        assert (parameter.dtype, parameter.requires_grad) == (torch.float64, True)
        nn.init.ones_(parameter)
    assert not any((parameter == 1).all() for parameter in theirs.head.parameters())


@pytest.mark.parametrize("settings", TORCHVISION.values(), ids=TORCHVISION)
def test_torchvision_model_becomes_a_vit_and_comes_back(settings: dict[str, Any]) -> None:
    theirs = scattered(torchvision_model(**settings))
    ours = from_torchvision(theirs).eval()
    for other in (to_torchvision(ours), theirs):
        assert difference(ours, other, torchvision_vit.TORCHVISION) <= ROUNDING


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"act_layer": "relu"}, r"blocks.0.mlp.act: ReLU\(.*\), where this ViT has GELU"),
        ({"global_pool": "max"}, "global_pool='max': this ViT has token, avg, map"),
        ({"global_pool": "avg", "pool_include_prefix": True}, "pool_include_prefix=True"),
        ({"num_classes": 1}, "num_classes=1"),
        ({"qkv_bias": True, "proj_bias": False}, "qkv_bias=True with proj_bias=False"),
        ({"block_fn": ResPostBlock}, "blocks.0: ResPostBlock, where this ViT has Block or ParallelScalingBlock"),
        ({"block_fn": ParallelScalingBlock, "qkv_bias": False, "proj_bias": False}, "proj_bias=False: a parallel"),
        ({"mlp_layer": GluMlp}, "gate_last=True: this ViT's gate is the first half"),
        ({"mlp_layer": GatedMlp}, "blocks.0.mlp: GatedMlp, where this ViT has Mlp or GluMlp or SwiGLU"),
        ({"norm_layer": "rmsnorm", "global_pool": "map", "class_token": False}, "norm=rms: timm's attention pooling"),
        ({"stem": [1]}, "patch_embed.backbone.stages.0.blocks.1: not there, where"),
        ({"stem": [2, 2, 4, 1]}, "patch_embed.backbone.stages.2.blocks.2: Bottleneck"),
    ],
)
def test_what_this_vit_is_not_is_named(settings: dict[str, Any], message: str) -> None:
    model = timm_model(**settings)
    with pytest.raises(ValueError, match=f"^{message}") as error:
        from_timm(model)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("convert", "token"), [(to_timm, {}), (to_timm, {"objective.token": True}), (to_torchvision, {})]
)
def test_class_token_without_a_position_converts(convert: Callable[[ViT], nn.Module], token: dict[str, bool]) -> None:
    """torchvision's model and timm's distilled one add a position of zeros to it."""
    sizes: dict[str, Any] = {"image_size": 32, "channels": 3, "patch": 8, "width": 48, "depth": 1, "heads": 3}
    model = perturbed(Config(**sizes, **token, **{"position.class_row": False})).eval()
    images = pictures(model).double()
    with torch.no_grad():
        assert far(convert(model)(images), model(images)) <= ROUNDING


def test_how_drop_path_would_rise_does_not_matter_where_it_is_off() -> None:
    sizes: dict[str, Any] = {"image_size": 32, "channels": 3, "patch": 8, "width": 48, "depth": 2, "heads": 3}
    model = perturbed(Config(**sizes, drop_path_by_layer="constant")).eval()
    images = pictures(model).double()
    with torch.no_grad():
        assert far(to_timm(model)(images), model(images)) <= ROUNDING


def test_other_classes_are_refused() -> None:
    for model in (timm.models.beit.Beit(**SMALL), torchvision_model(), nn.Linear(2, 2)):
        with pytest.raises(ValueError, match=f"^model: {type(model).__name__}, where"):
            from_timm(model)
    with pytest.raises(ValueError, match=r"^model: VisionTransformer, where"):
        from_torchvision(timm_model())
    with pytest.raises(ValueError, match=r"^representation_size=40: .*width=48"):
        from_torchvision(torchvision_model(representation_size=40))
    with pytest.raises(ValueError, match=r"^conv_proj\.conv_bn_relu_0\.0: .*5, 5.*, where this ViT has .*3, 3"):
        from_torchvision(torchvision_model(conv_stem=[(12, 5, 2), (24, 3, 2), (48, 3, 2)]))


HAS = ": timm's VisionTransformer has"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "mae"}, f"objective=mae{HAS}"),
        ({"position": "2d"}, f"position=2d{HAS}"),
        ({"position": "rope2d", "pool": "map"}, "global_pool='map': timm's Eva also pools the class token"),
        ({"position": "rope2d", "pool": "gem"}, "pool=gem: timm's Eva has gap"),
        (
            {"drop_path": 0.1, "drop_path_by_layer": "constant"},
            "drop_path_by_layer=constant: timm's models have linear",
        ),
        ({"position": "rope2d", "position.origin": "center"}, "position.origin=center: timm's Eva has first"),
        ({"position": "rope2d", "position.mixed": True, "position.extent": 7.0}, "position.extent=7.0: timm's Eva has"),
        ({"position": "rope2d", "mlp": "geglu"}, "mlp=geglu: timm's Eva has gelu"),
        ({"position": "rope2d", "block": "post"}, "block=post: timm's Eva has pre"),
        ({"position": "sincos1d+rope2d"}, r"position=sincos1d\+rope2d: timm's Eva has 1d\+rope2d"),
        (
            {"position": "rope2d", "registers": 4, "position.register_base": 100.0},
            "position.register_base=100.0: timm's",
        ),
        ({"block": "parallel", "mlp.norm": True}, f"mlp.norm=True{HAS}"),
        ({"position_at": "shared"}, f"position_at=shared{HAS}"),
        ({"position.combine": "concat"}, f"position.combine=concat{HAS}"),
        ({"stem": "conv"}, f"stem=conv{HAS}"),
        ({"head": "mlp"}, f"head=mlp{HAS}"),
        ({"objective.token": True, "registers": 2}, "registers=2: timm's VisionTransformerDistilled has 0"),
        ({"pool": "map", "pool.activation": "gelu-tanh"}, f"pool.activation=gelu-tanh{HAS}"),
        ({"pool": "map", "mlp.hidden": 96}, rf"mlp_ratio=4\.0{HAS} 2\.0"),
        ({"mlp": "relu2"}, f"mlp=relu2{HAS}"),
        ({"block": "post"}, f"block=post{HAS}"),
        ({"self_attention": "gated"}, f"self_attention=gated{HAS}"),
        ({"block": "parallel", "mlp": "swiglu"}, f"mlp=swiglu{HAS}"),
        ({"block": "parallel", "bias": "none"}, f"bias=none{HAS}"),
        ({"embedding_norm": True}, "stem.bias=True: timm's patches have one unless"),
        ({"pool": "map", "norm": "rms"}, "norm=rms: timm's attention pooling has it too"),
    ],
)
def test_what_timm_does_not_have_is_named(settings: dict[str, Any], message: str) -> None:
    model = ViT(Config(image_size=32, channels=3, patch=8, width=48, depth=1, heads=3, **settings))
    with pytest.raises(ValueError, match=f"^{message}"):
        to_timm(model)


@pytest.mark.parametrize(("key", "value"), [("mlp.norm", True), ("self_attention.norm", True), ("layer_scale", 0.1)])
def test_what_torchvision_does_not_have_is_named(key: str, value: Any) -> None:
    model = ViT(Config(image_size=32, channels=3, patch=8, width=48, depth=1, heads=3, **{key: value}))
    with pytest.raises(ValueError, match=f"^{key}={value}: torchvision's"):
        to_torchvision(model)


FAMILIES = ("vit_*", "deit*", "eva*", "flexivit*", "beit3*")
NAMES = [name for family in FAMILIES for name in timm.list_models(family)]
REFUSED = {  # pattern of names -> how the error begins; as docs/how-to/weights.md has them
    "vit_*relpos_*": "model: VisionTransformerRelPos",
    "vit_*_resnet*": "patch_embed.backbone: FeatureListNet",
    "vit_base_mci_*": "patch_embed.backbone: ConvStem",
    "vit_tiny_r_s16_p8_*": "patch_embed.backbone: Sequential",
    "vit_so400m_patch14_siglip*_384": "patch=14 does not divide image_size=384",
    "vit_*_rpn_*": "blocks.0: ResPostBlock",
    "vit_dpwee_*": "blocks.0: DiffParallelScalingBlock",
    "vit_*_sapiens2": "attn_only_layer_scale=True",
    "vit_pe_core_*": "global_pool='map'",
    "eva02_enormous_*": "blocks.0: EvaBlockPostNorm",
}
SMALL_NAMES = (
    *("vit_xsmall_patch16_clip_224", "vit_base_patch16_rpn_224", "vit_tiny_patch16_dinov3_qkvb"),
    *("eva02_tiny_patch14_224", "vit_pe_spatial_tiny_patch16_512"),
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SMALL_NAMES else pytest.mark.slow) for name in NAMES]
)
@torch.no_grad()
def test_vit_of_timm_converts_or_is_refused(name: str) -> None:
    """Logits of two blocks are equal at two sizes, and after the way back. Names in REFUSED say why."""
    settings: dict[str, Any] = {"num_classes": 10} | ({} if "sapiens2" in name else {"depth": 2})
    refused = [message for pattern, message in REFUSED.items() if fnmatch(name, pattern)]
    if refused:
        with torch.device("meta"):
            theirs = timm.create_model(name, **settings)
        with pytest.raises(ValueError, match=f"^{refused[0]}"):
            from_timm(theirs)
        return
    with torch.device("meta"):
        side = from_timm(timm.create_model(name, **settings)).config.patch
    theirs = scattered(timm.create_model(name, img_size=5 * side, dynamic_img_size=True, **settings))
    ours = from_timm(theirs)
    for images in (pictures(ours), torch.randn(2, 3, 4 * side, 7 * side)):
        assert far(ours(images), theirs(images)) <= TOLERANCE
    assert far(to_timm(ours)(pictures(ours)), theirs(pictures(ours))) <= TOLERANCE


def test_docs_say_which_models_of_timm_convert() -> None:
    """The page counts for one version, and its table has the patterns of REFUSED."""
    page = (Path(__file__).parents[3] / "docs/how-to/weights.md").read_text()
    table = page.partition("| --- | --- |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(.*?)`", table)) == set(REFUSED)
    if f"timm {timm.__version__}" in page:
        converted = [name for name in NAMES if not any(fnmatch(name, pattern) for pattern in REFUSED)]
        assert f"Of its {len(NAMES)} names" in page
        assert f"{len(converted)} convert" in page


FULL_TIMM = (
    *("vit_tiny_patch16_224", "vit_small_patch16_224", "vit_base_patch16_224", "vit_base_patch32_224"),
    *("vit_base_patch16_gap_224", "vit_base_patch16_reg4_gap_256", "deit3_small_patch16_224", "vit_large_patch16_224"),
    *("vit_base_r50_s16_224", "vit_small_r26_s32_224"),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [*((name, {}) for name in FULL_TIMM), ("vit_base_patch16_224", {"global_pool": "avg"})],
    ids=[*FULL_TIMM, "averages beside a class token"],
)
def test_full_size_timm_model(name: str, settings: dict[str, Any]) -> None:
    theirs = scattered(timm.create_model(name, num_classes=1000, **settings)).double()
    ours = from_timm(theirs).eval()
    assert difference(ours, theirs, timm_patterns(ours.config), count=1) <= ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit_b_16", "vit_b_32", "vit_l_16"])
def test_full_size_torchvision_model(name: str) -> None:
    theirs = scattered(getattr(torchvision.models, name)())
    assert difference(from_torchvision(theirs).eval(), theirs, torchvision_vit.TORCHVISION, count=1) <= ROUNDING
