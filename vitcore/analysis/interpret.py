"""Inspection of a trained model: the data for figures like Figures 6, 7, 10 and 11 of arXiv 2010.11929.

Shapes: B images, T tokens (`prefix` tokens before the N patches), L layers, H heads.
"""

import math
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from vitcore.analysis.cost import summary
from vitcore.analysis.eval import Computed, Eval, trial_data
from vitcore.data.shuffle import random_order
from vitcore.data.splits import Data
from vitcore.model.build import Model, OtherModel
from vitcore.model.position import Grid, acts_at
from vitcore.model.position.sites import rows_and_columns
from vitcore.model.self_attention import SelfAttention
from vitcore.model.vit import ViT
from vitcore.runtime.device import compute_in_precision
from vitcore.training.objectives import OBJECTIVE

COMPONENTS = 28  # largest number of principal components of the filters, as in Figure 7
IMAGES = 128  # default number of images: "128 example images" (D.7)
SHOWN = 8  # number of images with a rollout
MOST = 2**26  # largest number of attention weights at a time; an image has L x H x T x T


def filters(model: ViT) -> tuple[Tensor, Tensor, str]:
    """Return (principal components (n, C, P, P), variance shares (n,), parameter name) of the input filters.

    The filters are the patch embedding or the first convolution. Raises ValueError if the stem has neither.
    """
    for name, parameter in model.stem.named_parameters():
        if parameter.ndim == 4:
            return *principal_components(parameter.detach()), f"stem.{name}"
    raise ValueError(f"stem={model.config.stem}: has no filters to look at (no weight of four dimensions)")


def principal_components(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return (at most COMPONENTS principal components (n, C, P, P), their shares of the variance (n,)) of filters.

    A component has unit norm, and its value of largest magnitude is positive. weight: the filters (D, C, P, P).
    """
    flat = weight.double().flatten(1).cpu()
    _, deviations, directions = torch.linalg.svd(flat - flat.mean(dim=0), full_matrices=False)
    count = min(COMPONENTS, flat.shape[1], max(1, len(flat) - 1))
    components = directions[:count]
    largest = components.gather(1, components.abs().argmax(dim=1, keepdim=True))
    share = deviations**2 / (deviations**2).sum().clamp_min(torch.finfo(torch.float64).tiny)
    return (components * largest.sign()).view(count, *weight.shape[1:]), share[:count]


class LayerAttention(NamedTuple):
    """The attention weights (B, H, T, T) of one layer, and the bias of their logits (B, H, T, T) or None.

    The heads of all branches of a block are side by side.
    """

    weights: Tensor
    bias: Tensor | None


@torch.no_grad()
def layers(model: ViT, images: Tensor) -> list[LayerAttention]:
    """Return each block's attention, which fused kernels never store, for standardized images (B, C, H, W)."""
    weights: dict[int, list[Tensor]] = {}  # layer -> of each branch
    biases: dict[int, list[Tensor]] = {}

    def record(module: SelfAttention, inputs: tuple[Any, ...]) -> None:
        of_branch, bias = module.weights(*inputs)
        weights.setdefault(module.layer, []).append(of_branch)
        if bias is not None:
            biases.setdefault(module.layer, []).append(bias.expand_as(of_branch))

    with ExitStack() as hooks:
        for module in model.encoder.modules():
            if isinstance(module, SelfAttention):
                hooks.callback(module.register_forward_pre_hook(record).remove)
        compute_in_precision(model.config, model.pooled, images)
    attentions = []
    for layer, branches in weights.items():
        bias = torch.cat(biases[layer], dim=1) if layer in biases else None
        attentions.append(LayerAttention(torch.cat(branches, dim=1), bias))
    return attentions


def distances(grid: Grid, patch: int) -> Tensor:
    """Return the distances (N, N) in pixels between the centers of patches of `patch` x `patch` pixels."""
    places = patch * torch.stack(rows_and_columns(grid), dim=-1)  # (N, 2)
    return torch.cdist(places, places, compute_mode="donot_use_mm_for_euclid_dist")


def mean_distance(weights: Tensor, grid: Grid, patch: int, prefix: int) -> Tensor:
    """Return the distance (B, H) in pixels between query and key, averaged by attention weights (B, H, T, T).

    Prefix tokens, which have no location, are left out (arXiv 2010.11929, D.7; arXiv 2108.08810, section 3).
    """
    between = weights[:, :, prefix:, prefix:].double()
    between = between / between.sum(dim=-1, keepdim=True)
    return (between * distances(grid, patch).to(between.device)).sum(dim=-1).mean(dim=-1)


def rollout(weights: list[Tensor]) -> Tensor:
    """Return the attention rollout (B, T, T): the share of each input token in each output token.

    weights: the attention weights (B, H, T, T) of each layer. The rollout is the product of the layers' 0.5 A + 0.5 I,
    the last on the left, where A is the mean over heads (arXiv 2005.00928, section 3).
    """
    B, _, T, _ = weights[0].shape
    identity = torch.eye(T, dtype=torch.float64, device=weights[0].device)
    rolled = identity.expand(B, T, T)
    for layer in weights:
        mixed = 0.5 * layer.double().mean(dim=1) + 0.5 * identity
        rolled = (mixed / mixed.sum(dim=-1, keepdim=True)) @ rolled
    return rolled


def pooled_shares(rolled: Tensor, prefix: int, class_token: bool) -> Tensor:
    """Return each input patch's share (B, N) in the pooled output tokens, from the attention rollout (B, T, T)."""
    if class_token:
        return rolled[:, 0, prefix:]
    return rolled[:, prefix:, prefix:].mean(dim=1)


def rollout_caption(model: ViT) -> str:
    """Return a caption for `pooled_shares` that names the output tokens and any pooling weights that are ignored."""
    caption = "class token" if model.pool.class_token else "mean of the patches"
    if not model.pool.plain:
        caption += f" at the last layer (pool={model.config.pool} has weights of its own, which are left out)"
    return caption


@dataclass(frozen=True)
class Similarity:
    """The similarity of patches under a position embedding, at one site of the model.

    site: what is compared. "tokens": cosine similarity of the vectors added to two patches. "rotate": cosine similarity
    of one vector rotated to two locations. "bias": bias of the attention logits. "": nothing. note: a caption.
    """

    site: str
    note: str
    pairs: Tensor | None = None  # (N, N), averaged over layers and heads
    centre: Tensor | None = None  # (L', H', N), of the middle patch; equal layers or heads are one, except for "bias"


@torch.no_grad()
def similarity(model: ViT, bias: Tensor | None, centre_bias: Tensor | None, grid: Grid) -> list[Similarity]:
    """Return the similarity of patches at each site of the position embedding, or one entry with the site "".

    bias, centre_bias: these quantities of `batch_sums` as means over images, or None if a layer has no bias.
    """
    config = model.config
    position = model.position
    device = next(model.parameters()).device
    zeros = torch.zeros(1, math.prod(grid), config.width, device=device)
    # Ones have equal energy in every plane of rotation, so that their cosine similarity is a mean over the planes.
    ones = torch.ones(1, config.heads, math.prod(grid), config.width // config.heads, device=device)
    added: list[Tensor] = []
    rotated: list[Tensor] = []
    for layer in range(config.layers):
        vectors = position.tokens(zeros, layer, grid)
        if vectors.any():
            added.append(cosine_similarity(vectors))
        turned = position.rotate(ones, layer, grid)
        if turned is not ones:
            rotated.append(cosine_similarity(turned[0]))
    sites = []
    if added:
        sites.append(similarity_at("tokens", "cosine similarity of position embeddings", added, grid))
    if rotated:
        sites.append(similarity_at("rotate", "similarity of one vector as query and as key", rotated, grid))
    if bias is not None and centre_bias is not None:
        sites.append(Similarity("bias", "bias of the attention logits, mean over the images", bias, centre_bias))
    if sites:
        return sites
    lacks = ": the model has no position embedding"
    if acts_at(type(position), "between"):
        lacks = " mixes neighboring tokens between layers: it has neither vectors nor a bias to compare"
    return [Similarity("", f"position={config.position}{lacks}")]


def similarity_at(site: str, note: str, layers: list[Tensor], grid: Grid) -> Similarity:
    """Return a Similarity from maps (H', N, N) of layers, after reducing equal layers and equal heads to one."""
    maps = torch.stack(layers)
    if (maps == maps[:1]).all():
        maps = maps[:1]
    if (maps == maps[:, :1]).all():
        maps = maps[:, :1]
    return Similarity(site, note, maps.mean(dim=(0, 1)), maps[:, :, middle_patch(grid)])


def middle_patch(grid: Grid) -> int:
    rows, columns = grid
    return (rows // 2) * columns + columns // 2


def cosine_similarity(vectors: Tensor) -> Tensor:
    """Return the cosine similarity (..., N, N) of all pairs of vectors (..., N, D), on the CPU in float64."""
    unit = nn.functional.normalize(vectors.double().cpu(), dim=-1)
    return unit @ unit.mT


def batch_sums(attention: list[LayerAttention], grid: Grid, patch: int, prefix: int) -> dict[str, Tensor]:
    """Return quantity -> sum over the images of a batch. A bias is summed only if every layer has one.

    "distance": (L, H) in pixels. "bias": its mean (N, N) over layers and heads. "centre_bias": that of the middle query
    (L, H, N).
    """
    sums = {
        "distance": torch.stack([mean_distance(layer.weights, grid, patch, prefix).sum(dim=0) for layer in attention])
    }
    biases = [layer.bias[:, :, prefix:, prefix:].double() for layer in attention if layer.bias is not None]
    if len(biases) == len(attention):
        sums["bias"] = torch.stack([bias.mean(dim=1).sum(dim=0) for bias in biases]).mean(dim=0)
        sums["centre_bias"] = torch.stack([bias[:, :, middle_patch(grid)].sum(dim=0) for bias in biases])
    return sums


def inspect(model: ViT, data: Data, images: int = IMAGES) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Return (name -> array for the figures of a model, JSON facts about it), from at most `images` test images.

    The choice of images is random but fixed. model: in evaluation mode. data: on the model's device.
    """
    config = model.config
    chosen = data.test.select(random_order(len(data.test), "inspect")[:images].copy())
    pixels = torch.cat(list(chosen.batches(len(chosen))))
    grid = model.grid(pixels)
    means, rolled = attention_means(model, data, pixels, grid)
    arrays = {
        "distance": means["distance"],
        "rollout": rolled,
        "images": pixels[:SHOWN],
        "labels": chosen.labels[:SHOWN],
    }
    if OBJECTIVE[config.objective].labels:
        with torch.no_grad():
            logits = compute_in_precision(config, model, data.standardize(pixels[:SHOWN]))
        arrays["predicted"] = logits.argmax(dim=1)
    facts: dict[str, Any] = {
        "images": len(pixels),
        "grid": list(grid),
        "patch": config.patch,
        "image_size": config.image_size,
        "position": config.position,
        "position_at": config.position_at,
        "uniform_distance": distances(grid, config.patch).mean().item(),  # of a head that attends uniformly
        "rollout_of": rollout_caption(model),
        "summary": [asdict(row) for row in summary(config)],
    }
    try:
        components, share, facts["filters_of"] = filters(model)
        arrays |= {"filters": components, "filters_share": share}
    except ValueError as error:
        facts["filters_of"] = ""
        facts["no_filters"] = str(error)
    sites = similarity(model, means.get("bias"), means.get("centre_bias"), grid)
    facts["sites"] = [{"site": at.site, "note": at.note} for at in sites]
    for at in sites:
        if at.pairs is not None and at.centre is not None:
            arrays |= {f"{at.site}_pairs": at.pairs, f"{at.site}_centre": at.centre}
    return {name: plain_array(values) for name, values in arrays.items()}, facts


def attention_means(model: ViT, data: Data, pixels: Tensor, grid: Grid) -> tuple[dict[str, Tensor], Tensor]:
    """Return (quantity in `batch_sums` -> mean over images, rollouts (n, rows, columns) of the first SHOWN images).

    pixels: the images (B, C, H, W), which are processed in chunks so that the attention weights fit into memory.
    """
    config = model.config
    totals = dict[str, Tensor]()
    rolled: list[Tensor] = []
    weights = config.layers * config.heads * (math.prod(grid) + model.prefix) ** 2  # of an image
    for some in torch.split(pixels, max(1, MOST // weights)):
        attention = layers(model, data.standardize(some))
        for name, values in batch_sums(attention, grid, config.patch, model.prefix).items():
            totals[name] = totals.get(name, 0) + values.cpu()
        if sum(map(len, rolled)) < SHOWN:
            matrix = rollout([layer.weights[:SHOWN] for layer in attention])
            rolled.append(pooled_shares(matrix, model.prefix, model.pool.class_token).cpu())
    means = {name: total / len(pixels) for name, total in totals.items()}
    return means, torch.cat(rolled)[:SHOWN].view(-1, *grid)


def plain_array(values: Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor as a NumPy array, in float32 if it is floating-point."""
    array = values.detach().cpu().numpy()
    return array.astype("float32") if array.dtype.kind == "f" else array


class Inspect(Eval):
    """Attention distances and other internals of a ViT for at most `value` test images, by default IMAGES."""

    def compute(self, model: Model, data_dir: Path | None = None) -> Computed:
        if isinstance(model, OtherModel):
            raise ValueError(f"model={model.config.model}: only a ViT of this package can be inspected")
        images = int(self.value or IMAGES)
        arrays, facts = inspect(model, trial_data(model, data_dir), images)
        return Computed({}, details={"asked": images, **facts}, arrays=arrays)
