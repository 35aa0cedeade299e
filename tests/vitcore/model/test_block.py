"""Blocks, MLPs, norms and attention against timm, PyTorch's own layers and explicit formulas.

Those that timm has too are compared with timm's in the tests of conversion.
"""

import inspect
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitcore import Config, ViT
from vitcore.analysis.cost import measure
from vitcore.contracts import perturbed
from vitcore.keyed_random import code, kept
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


def copied(theirs: nn.Module, weights: dict[str, Tensor]) -> nn.Module:
    """Another library's module in float64, with these weights under its names: all that it has."""
    theirs = theirs.double().eval()
    theirs.load_state_dict(weights)
    return theirs


def renamed(module: nn.Module, names: dict[str, str]) -> dict[str, Tensor]:
    """The weights of a module of ours, by their names there."""
    found = {}
    for name, values in module.state_dict().items():
        for ours, other in names.items():
            name = name.replace(ours, other)
        found[name] = values
    return found


@torch.no_grad()
def test_squared_relu_equals_its_formula() -> None:
    """max(0, x W + b)^2, then down."""
    ours = perturbed(config(mlp="relu2")).encoder.blocks[0].mlp
    hidden = (tokens() @ ours.up.weight.T + ours.up.bias).clamp(min=0) ** 2
    torch.testing.assert_close(ours(tokens()), hidden @ ours.down.weight.T + ours.down.bias)


@pytest.mark.parametrize(("model", "hidden"), [("Ti/16", 512), ("S/16", 1024), ("B/16", 2048)])
def test_gated_mlps_have_the_parameters_of_the_plain_one(model: str, hidden: int) -> None:
    """Two thirds of the hidden width: the weights are as many, and the biases a third more."""
    settings = S16 | {"model": model}
    plain, gated = (Config(**settings, mlp=name) for name in ("gelu", "swiglu"))
    assert MLP["swiglu"].hidden(gated) == hidden
    more = measure(gated).params - measure(plain).params
    assert more == plain.depth * (2 * hidden - MLP["gelu"].hidden(plain))
    assert measure(gated).flops == measure(plain).flops


def test_norm_is_that_of_queries_and_keys_too() -> None:
    """One choice for the blocks, the output, and queries and keys; the pooling's own stays a layer norm."""
    model = ViT(config(norm="rms", qk_norm=True, pool="map", embedding_norm=True))
    kinds = {name: type(module).__name__ for name, module in model.named_modules() if "norm" in name}
    assert kinds.pop("pool.norm") == "LayerNorm"
    assert len(kinds) == 10
    assert set(kinds.values()) == {"RMSNorm"}


@torch.no_grad()
def test_pre_and_post_norm_equal_pytorchs_layer() -> None:
    """nn.TransformerEncoderLayer, with `norm_first` and without."""
    names = {"attention.out": "self_attn.out_proj", "attention.qkv.": "self_attn.in_proj_", "mlp.up": "linear1",
             "mlp.down": "linear2"}  # fmt: skip
    for name, first in (("pre", True), ("post", False)):
        model = perturbed(config(block=name))
        ours = model.encoder.blocks[1]
        layer = nn.TransformerEncoderLayer(
            D, H, 4 * D, dropout=0.0, activation="gelu", layer_norm_eps=1e-6, batch_first=True, norm_first=first
        )
        theirs = copied(layer, renamed(ours, names)).train()  # eval is another kernel
        torch.testing.assert_close(ours(tokens(), context(model)), theirs(tokens()))


def biases(**settings: Any) -> set[str]:
    """Of the first block."""
    block = ViT(config(**settings)).encoder.blocks[0]
    return {name for name, _ in block.named_parameters() if name.endswith("bias")}


def test_biases_of_dense_layers_are_left_out_as_asked() -> None:
    """Of queries, keys and values alone, or of all dense layers of the blocks; norms keep theirs."""
    norms = {"norm1.bias", "norm2.bias"}
    dense = {"attention.qkv.bias", "attention.out.bias", "mlp.up.bias", "mlp.down.bias"}
    assert biases() == norms | dense
    assert biases(bias="no-qkv") == norms | dense - {"attention.qkv.bias"}
    assert biases(bias="none") == norms
    assert biases(bias="none", norm="rms", mlp="swiglu") == set()
    assert biases(bias="no-qkv", self_attention="gated") == norms | dense - {"attention.qkv.bias"}


@torch.no_grad()
def test_gated_attention_equals_timms() -> None:
    from timm.layers.attention import Attention

    if "gated" not in inspect.signature(Attention).parameters:
        pytest.skip("this timm's Attention has no gate")
    model = perturbed(config(self_attention="gated"))
    ours = model.encoder.blocks[0].attention
    theirs = copied(Attention(D, H, qkv_bias=True, gated=True), renamed(ours, {"out": "proj"}))
    torch.testing.assert_close(ours(tokens(), context(model)), theirs(tokens()))


@torch.no_grad()
def test_value_residual_averages_with_the_first_layers_values() -> None:
    """A loop over both layers with explicit softmax."""
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
    grid = (2, 3)
    x = torch.randn(2, 6, 48, dtype=torch.float64)
    rows, columns = torch.arange(6) // 3, torch.arange(6) % 3
    for layer, line in enumerate((rows, columns)):
        where = Context(model.position, grid)
        q, k, v, _ = full.encoder.blocks[layer].attention.inputs(x, where)
        same = line[:, None] == line
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=same)
        attention = model.encoder.blocks[layer].attention
        torch.testing.assert_close(attention(x, where), attention.out(mixed.transpose(1, 2).flatten(2)))


def test_axial_block_of_the_paper_is_two_of_ours() -> None:
    """D.6: twice the blocks' parameters and products; attention over 14 instead of 196 patches."""
    common = S16 | {"pool": "gap"}
    full, axial = Config(**common), Config(**common, self_attention="axial", depth=24)
    block = 12 * (measure(Config(**common, depth=2)).params - measure(Config(**common, depth=1)).params)
    assert measure(axial).params - measure(full).params == block
    attention = 2 * 2 * 384 * 196  # of a query per key: q k and the weighted sum, 2 FLOPs each
    dense = measure(full).flops - 12 * 196 * attention
    one = 12 * 2 * 196 * 12 * 384**2  # the blocks' dense layers
    assert measure(axial).flops == dense + one + 24 * 14 * attention


@pytest.mark.parametrize("name", SELF_ATTENTION)
def test_attention_dropout_is_keyed_by_image(name: str) -> None:
    """Images alone and together have the same masks; evaluation has none."""
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
    mask = kept(keys, code("attention.weights 1"), H * T * T, 0.4).view(B, H, T, T)
    mixed = ((q @ k.mT / (D // H) ** 0.5).softmax(dim=-1) * mask / 0.6) @ v
    torch.testing.assert_close(attention(tokens(), where), attention.out(mixed.transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("block", BLOCK)
@pytest.mark.parametrize("mlp", MLP)
@pytest.mark.parametrize("self_attention", SELF_ATTENTION)
def test_parts_of_a_block_go_together(self_attention: str, mlp: str, block: str) -> None:
    """Every block, MLP and attention build one model with finite logits and gradients, in training with dropout."""
    noise = {"dropout": 0.1, "attention_dropout": 0.1, "drop_path": 0.1}
    settings = {"self_attention": self_attention, "mlp": mlp, "block": block, "norm": "rms", "bias": "none"}
    model = ViT(config(**settings, **noise, qk_norm=True, embedding_norm=True)).train()
    model(torch.randn(2, 1, 8, 8), torch.arange(2)).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_parameters_keep_their_order() -> None:
    """The norm of all gradients is summed, and an optimizer's state is stored, in the order of the parameters."""
    names = [name for name, _ in ViT(Config(depth=1, layer_scale=0.1)).encoder.blocks[0].named_parameters()]
    assert list(dict.fromkeys(name.partition(".")[0] for name in names)) == [
        "norm1", "attention", "scale1", "norm2", "mlp", "scale2"
    ]  # fmt: skip
