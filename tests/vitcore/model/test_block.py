"""Blocks, MLPs, norms and attention against timm, PyTorch's own layers and explicit formulas."""

import inspect
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitcore import Config, ViT
from vitcore.analysis.cost import measure
from vitcore.contracts import perturbed
from vitcore.keyed_random import keep_mask, site_code
from vitcore.model.block import BLOCK
from vitcore.model.mlp import MLP
from vitcore.model.position import Context
from vitcore.model.self_attention import SELF_ATTENTION

B, T, D, H = 3, 16, 24, 3
S16 = {"model": "S/16", "image_size": 224, "channels": 3, "classes": 1000}


def config(**settings: Any) -> Config:
    defaults = {"width": D, "depth": 2, "heads": H, "patch": 2, "pool": "gap", "position": "none"}
    return Config(**(defaults | settings))


def tokens() -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def context(model: ViT, keys: Tensor | None = None) -> Context:
    return Context(model.position, model.config.grid, model.prefix, keys)


def copied(theirs: nn.Module, ours: nn.Module, names: dict[str, str]) -> nn.Module:
    """Give another library's module the weights of ours, whose parts have other `names` there."""
    found = {}
    for name, values in ours.state_dict().items():
        for part, other in names.items():
            name = name.replace(part, other)
        found[name] = values
    theirs.double().load_state_dict(found)
    return theirs


@torch.no_grad()
def test_squared_relu_equals_its_formula() -> None:
    ours = perturbed(config(mlp="relu2")).encoder.blocks[0].mlp
    hidden = (tokens() @ ours.up.weight.T + ours.up.bias).clamp(min=0) ** 2
    torch.testing.assert_close(ours(tokens()), hidden @ ours.down.weight.T + ours.down.bias)


@torch.no_grad()
def test_dynamic_tanh_equals_its_formula() -> None:
    """gamma tanh(alpha x) + beta, from 1, 0.5 and 0 (arXiv 2503.10622, equation 1 and section 4)."""
    ours = ViT(config(norm="dyt", **{"norm.alpha": 0.7})).encoder.norm
    initial = {name: values.unique().item() for name, values in ours.named_parameters()}
    assert initial == pytest.approx({"alpha": 0.7, "weight": 1, "bias": 0})
    ours = perturbed(config(norm="dyt")).encoder.norm
    x = 0.3 * tokens()
    grown, shrunk = (ours.alpha * x).exp(), (-ours.alpha * x).exp()
    torch.testing.assert_close(ours(x), ours.weight * (grown - shrunk) / (grown + shrunk) + ours.bias)


def test_half_as_many_blocks_of_two_branches_cost_the_same() -> None:
    """Attention by attention and MLP by MLP, as the 36 x 1 and 18 x 2 models of arXiv 2203.09795, Table 1."""
    narrow, wide = measure(config(depth=4)), measure(config(depth=2, block="branches"))
    assert (wide.params, wide.flops) == (narrow.params, narrow.flops)


def test_each_branch_drops_values_of_its_own() -> None:
    """From equal weights, attentions and MLPs of one block differ in training by their dropout alone."""
    model = perturbed(config(block="branches", dropout=0.5, drop_path=0.5, drop_path_by_layer="constant"))
    block = model.encoder.blocks[0]
    first, second = block.branches()
    second.load_state_dict({name: block.state_dict()[name] for name in second.state_dict()})
    keys = torch.arange(B)
    for name in ("attended", "mapped"):
        outputs = [getattr(branch, name)(tokens(), context(model, keys)) for branch in (first, second)]
        assert not torch.equal(*outputs)
    model.eval()
    torch.testing.assert_close(first.attended(tokens(), context(model)), second.attended(tokens(), context(model)))


@pytest.mark.parametrize(("shape", "rates"), [("linear", [0.0, 0.1, 0.2]), ("constant", [0.2, 0.2, 0.2])])
def test_drop_path_rises_by_layer_or_is_constant(shape: str, rates: list[float]) -> None:
    model = ViT(config(depth=3, drop_path=0.2, drop_path_by_layer=shape))
    for name in ("drop_path1", "drop_path2"):
        found = [getattr(getattr(block, name), "rate", 0.0) for block in model.encoder.blocks]
        assert found == pytest.approx(rates)


@pytest.mark.parametrize(("model", "hidden"), [("Ti/16", 512), ("S/16", 1024), ("B/16", 2048)])
def test_gated_mlps_have_the_parameters_of_the_plain_one(model: str, hidden: int) -> None:
    """Two thirds of the hidden width: the weights are as many, and the biases a third more."""
    plain, gated = (Config(**S16 | {"model": model, "mlp": name}) for name in ("gelu", "swiglu"))
    assert MLP["swiglu"].hidden(gated) == hidden
    more = measure(gated).params - measure(plain).params
    assert more == plain.depth * (2 * hidden - MLP["gelu"].hidden(plain))
    assert measure(gated).flops == measure(plain).flops


def test_norm_is_that_of_queries_and_keys_too() -> None:
    model = ViT(config(norm="rms", qk_norm=True, pool="map", embedding_norm=True))
    modules = {name: module for name, module in model.named_modules() if "norm" in name}
    kinds = {name: type(module).__name__ for name, module in modules.items() if not isinstance(module, nn.Identity)}
    assert kinds.pop("pool.norm") == "LayerNorm"
    assert len(kinds) == 10
    assert set(kinds.values()) == {"RMSNorm"}


@torch.no_grad()
def test_pre_and_post_norm_equal_pytorchs_layer() -> None:
    names = {"attention.out": "self_attn.out_proj", "attention.qkv.": "self_attn.in_proj_", "mlp.up": "linear1",
             "mlp.down": "linear2"}  # fmt: skip
    for name, first in (("pre", True), ("post", False)):
        model = perturbed(config(block=name))
        ours = model.encoder.blocks[1]
        layer = nn.TransformerEncoderLayer(
            D, H, 4 * D, dropout=0.0, activation="gelu", layer_norm_eps=1e-6, batch_first=True, norm_first=first
        )
        theirs = copied(layer, ours, names)  # in training: evaluation is another kernel
        torch.testing.assert_close(ours(tokens(), context(model)), theirs(tokens()))


NORMS = {"norm1.bias", "norm2.bias"}
NO_QKV = NORMS | {"attention.out.bias", "mlp.up.bias", "mlp.down.bias"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, NO_QKV | {"attention.qkv.bias"}),
        ({"bias": "no-qkv"}, NO_QKV),
        ({"bias": "no-qkv", "self_attention": "gated"}, NO_QKV),
        ({"bias": "none"}, NORMS),
        ({"bias": "none", "norm": "rms", "mlp": "swiglu"}, set()),
    ],
)
def test_biases_of_dense_layers_are_left_out_as_asked(settings: dict[str, str], expected: set[str]) -> None:
    block = ViT(config(**settings)).encoder.blocks[0]
    assert {name for name, _ in block.named_parameters() if name.endswith("bias")} == expected


@torch.no_grad()
def test_gated_attention_equals_timms() -> None:
    from timm.layers.attention import Attention

    if "gated" not in inspect.signature(Attention).parameters:
        pytest.skip("this timm's Attention has no gate")
    model = perturbed(config(self_attention="gated"))
    ours = model.encoder.blocks[0].attention
    theirs = copied(Attention(D, H, qkv_bias=True, gated=True), ours, {"out": "proj"})
    torch.testing.assert_close(ours(tokens(), context(model)), theirs(tokens()))


@torch.no_grad()
def test_value_residual_averages_with_the_first_layers_values() -> None:
    model = perturbed(config(self_attention="value-residual"))
    where, x, first = context(model), tokens(), None
    for block in model.encoder.blocks:
        attention, normed = block.attention, block.norm1(x)
        q, k, v = attention.qkv(normed).view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
        first = v if first is None else first
        mixed = (q @ k.mT / (D // H) ** 0.5).softmax(dim=-1) @ (0.5 * v + 0.5 * first)
        expected = attention.out(mixed.transpose(1, 2).reshape(B, T, D))
        torch.testing.assert_close(attention(normed, where), expected)
        x = block(x, where)


@pytest.mark.parametrize("position", ["none", "rope2d"])
@torch.no_grad()
def test_axial_attention_is_masked_full_attention(position: str) -> None:
    """Full attention in which a patch sees its row alone, in the next layer its column, on grids that are no square."""
    model, full = (perturbed(config(self_attention=name, position=position, width=48)) for name in ("axial", "full"))
    full.load_state_dict(model.state_dict())
    x, where = torch.randn(2, 6, 48, dtype=torch.float64), Context(model.position, (2, 3))
    for layer, line in enumerate((torch.arange(6) // 3, torch.arange(6) % 3)):
        q, k, v, _ = full.encoder.blocks[layer].attention.inputs(x, where)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=line[:, None] == line)
        attention = model.encoder.blocks[layer].attention
        torch.testing.assert_close(attention(x, where), attention.out(mixed.transpose(1, 2).flatten(2)))


def test_axial_block_of_the_paper_is_two_of_ours() -> None:
    """D.6: twice the blocks' parameters and products; attention over 14 instead of 196 patches."""
    common = S16 | {"pool": "gap"}
    full, twice = (measure(Config(**common, depth=depth)) for depth in (12, 24))
    axial = measure(Config(**common, self_attention="axial", depth=24))
    assert axial.params == twice.params > full.params
    assert axial.flops == twice.flops - 24 * (196 - 14) * 2 * 2 * 384 * 196  # q k and the weighted sum, 2 FLOPs each


@pytest.mark.parametrize("name", SELF_ATTENTION)
def test_attention_dropout_is_keyed_by_image(name: str) -> None:
    model = perturbed(config(self_attention=name, attention_dropout=0.4, head_init="lecun-normal")).train()
    images, keys = torch.randn(4, 1, 8, 8, dtype=torch.float64), torch.arange(4) * 7919
    whole = model(images, keys)
    torch.testing.assert_close(torch.cat([model(images[i : i + 1], keys[i : i + 1]) for i in range(4)]), whole)
    assert not torch.allclose(model(images, keys + 1), whole)
    plain = perturbed(config(self_attention=name, head_init="lecun-normal")).eval()
    torch.testing.assert_close(model.eval()(images), plain(images))


@torch.no_grad()
def test_attention_dropout_drops_weights() -> None:
    """softmax(logits) masked and scaled up, then times the values, with the mask of the layer's site."""
    model = perturbed(config(attention_dropout=0.4)).train()
    attention, keys = model.encoder.blocks[1].attention, torch.arange(B) * 7919
    where = context(model, keys)
    q, k, v, _ = attention.inputs(tokens(), where)
    mask = keep_mask(keys, site_code("attention.weights 1"), H * T * T, 0.4).view(B, H, T, T)
    mixed = ((q @ k.mT / (D // H) ** 0.5).softmax(dim=-1) * mask / 0.6) @ v
    torch.testing.assert_close(attention(tokens(), where), attention.out(mixed.transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("block", BLOCK)
@pytest.mark.parametrize("self_attention", SELF_ATTENTION)
def test_parts_of_a_block_go_together(self_attention: str, block: str) -> None:
    noise = {"dropout": 0.1, "attention_dropout": 0.1, "drop_path": 0.1}
    parts = {"self_attention": self_attention, "mlp": "swiglu", "block": block, "norm": "rms", "bias": "none"}
    model = ViT(config(**parts, **noise, qk_norm=True, embedding_norm=True)).train()
    model(torch.randn(2, 1, 8, 8), torch.arange(2)).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_parameters_keep_their_order() -> None:
    """The norm of all gradients is summed, and an optimizer's state is stored, in the order of the parameters."""
    names = [name for name, _ in ViT(Config(depth=1, layer_scale=0.1)).encoder.blocks[0].named_parameters()]
    assert list(dict.fromkeys(name.partition(".")[0] for name in names)) == [
        "norm1", "attention", "scale1", "norm2", "mlp", "scale2"
    ]  # fmt: skip
