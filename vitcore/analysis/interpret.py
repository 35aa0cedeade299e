"""Look inside a trained model: the numbers behind figures 6, 7, 10 and 11 of arXiv 2010.11929.

Attention weights are recomputed from the inputs of each layer; training keeps the fused kernel, which never stores
them.

Shapes: B images, T tokens (`prefix` of them before the N patches), L layers, H heads.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from vitcore.data.shuffle import order
from vitcore.data.splits import Data
from vitcore.model.position import Grid, Position
from vitcore.model.self_attention import SelfAttention
from vitcore.model.vit import ViT
from vitcore.runtime.device import in_precision

if TYPE_CHECKING:
    from vitcore.config import Config

COMPONENTS = 28  # of the filters, as in Figure 7
IMAGES = 128  # "128 example images" (D.7)
SHOWN = 8  # of them, for the rollout
MOST = 2**26  # attention weights at a time: an image has L x H x T x T


# -- filters -----------------------------------------------------------------------------------------------------------


def filters(model: ViT) -> tuple[Tensor, Tensor, str]:
    """Return principal components (n, C, P, P) of the input filters, their share of the variance (n,), and their name.

    The filters are the first weights of the stem that have four dimensions: the patch embedding, or the first
    convolution. A component's sign is arbitrary: here its largest value is positive.
    """
    for name, parameter in model.stem.named_parameters():
        if parameter.ndim == 4:
            return *principal(parameter.detach()), f"stem.{name}"
    raise ValueError(f"stem={model.config.stem}: has no filters to look at (no weight of four dimensions)")


def principal(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return principal directions (COMPONENTS, ...) of filters (D, C, P, P), each of length 1."""
    flat = weight.double().flatten(1).cpu()
    _, deviations, directions = torch.linalg.svd(flat - flat.mean(dim=0), full_matrices=False)
    count = min(COMPONENTS, flat.shape[1], max(1, len(flat) - 1))
    found = directions[:count]
    largest = found.gather(1, found.abs().argmax(dim=1, keepdim=True))
    share = deviations**2 / (deviations**2).sum().clamp_min(torch.finfo(torch.float64).tiny)
    return (found * largest.sign()).view(count, *weight.shape[1:]), share[:count]


# -- attention ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """The attention weights (B, H, T, T) of one layer for a batch, and its bias (B, H, T, T), if any."""

    weights: Tensor
    bias: Tensor | None


@torch.no_grad()
def layers(model: ViT, images: Tensor) -> list[Layer]:
    """Return the attention of every layer for standardized images (B, C, H, W)."""
    found: list[Layer] = []

    def look(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        assert isinstance(module, SelfAttention)
        weights, bias = module.weights(*inputs)
        found.append(Layer(weights, None if bias is None else bias.expand_as(weights)))

    with hooked([module for module in model.encoder.modules() if isinstance(module, SelfAttention)], look):
        in_precision(model.config, model.pooled, images)
    return found


@contextmanager
def hooked(modules: Sequence[nn.Module], look: Callable[[nn.Module, tuple[Any, ...]], None]) -> Iterator[None]:
    """Call `look` before each of the modules within the block."""
    handles = [module.register_forward_pre_hook(look) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def distances(grid: Grid, patch: int) -> Tensor:
    """Return distances in pixels between the centers of any two patches (N, N)."""
    rows, columns = torch.meshgrid(*(torch.arange(side) for side in grid), indexing="ij")
    places = patch * torch.stack([rows, columns], dim=-1).reshape(-1, 2).double()
    return torch.cdist(places, places, compute_mode="donot_use_mm_for_euclid_dist")


def mean_distance(weights: Tensor, grid: Grid, patch: int, prefix: int) -> Tensor:
    """Return the mean attention distance in pixels (B, H) of attention (B, H, T, T), over the patches' queries.

    The distance between a query and what it attends to is weighted by the attention (D.7; arXiv 2108.08810, section 3).
    A prefix token has no place: it is left out as query and as key, and each remaining row is scaled to sum to 1.
    """
    between = weights[:, :, prefix:, prefix:].double()
    between = between / between.sum(dim=-1, keepdim=True)
    return (between * distances(grid, patch).to(between.device)).sum(dim=-1).mean(dim=-1)


def uniform_distance(grid: Grid, patch: int) -> float:
    """Return the mean attention distance of a head that attends to all patches equally."""
    return distances(grid, patch).mean().item()


def rollout(weights: list[Tensor]) -> Tensor:
    """Return the attention rollout (B, T, T): the share of each input token in each output token.

    Each layer's attention (B, H, T, T) is averaged over the heads and mixed with the residual connection: 0.5 A + 0.5
    I, rows summing to 1. The results are multiplied from the first layer to the last (arXiv 2005.00928, section 3).
    """
    B, _, T, _ = weights[0].shape
    identity = torch.eye(T, dtype=torch.float64, device=weights[0].device)
    rolled = identity.expand(B, T, T)
    for layer in weights:
        mixed = 0.5 * layer.double().mean(dim=1) + 0.5 * identity
        rolled = (mixed / mixed.sum(dim=-1, keepdim=True)) @ rolled
    return rolled


def looked_at(rolled: Tensor, prefix: int, class_token: bool) -> Tensor:
    """Return the share of each patch (B, N) in what the pooling reads: the class token, or the mean of the patches."""
    read = rolled[:, 0] if class_token else rolled[:, prefix:].mean(dim=1)
    return read[:, prefix:]


def rollout_of(model: ViT) -> str:
    """Describe what `looked_at` shows. A pooling with weights is not followed further."""
    shown = "class token" if model.pool.class_token else "mean of the patches"
    if model.pool.plain:
        return shown
    return f"{shown} at the last layer (pool={model.config.pool} has weights of its own, which are left out)"


# -- position ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Similarity:
    """The similarity of patches under a position embedding, for one site at which it acts.

    site: tokens (cosine similarity of what is added to two patches), rotate (of one vector, rotated as the query of one
    and the key of another: 1 where both places are equal), bias (what is added to the logits, mean over the images); ""
    where the kind has none of these, which `note` explains. pairs (N, N): mean over layers and heads. centre (L', H',
    N): of the query in the middle, every layer and head.
    """

    site: str
    note: str
    pairs: Tensor | None = None
    centre: Tensor | None = None


def similarity(model: ViT, bias: Tensor | None, centre_bias: Tensor | None, grid: Grid) -> list[Similarity]:
    """Return the similarity maps of each site at which the model's position acts."""
    position, count = model.position, len(model.encoder.blocks)
    found = [added(position, layer, grid, model.config.width) for layer in range(count)]
    turned = [rotated(model, layer, grid) for layer in range(count)]
    sites = []
    if tables := [cosine(vectors)[None] for vectors in found if vectors is not None]:
        sites.append(site("tokens", "cosine similarity of position embeddings", torch.stack(tables), grid))
    if any(turn is not None for turn in turned):
        stacked = torch.stack([turn for turn in turned if turn is not None])
        sites.append(site("rotate", "similarity of one vector as query and as key", stacked, grid))
    if bias is not None and centre_bias is not None:
        sites.append(Similarity("bias", "bias of the attention logits, mean over the images", bias, centre_bias))
    return sites or [Similarity("", absent(model.config.position, position))]


def site(name: str, note: str, maps: Tensor, grid: Grid) -> Similarity:
    """Build a Similarity from maps (L', H', N, N); equal layers are merged, and so are equal heads."""
    maps = maps[:1] if (maps == maps[:1]).all() else maps
    maps = maps[:, :1] if (maps == maps[:, :1]).all() else maps
    return Similarity(name, note, maps.mean(dim=(0, 1)), maps[:, :, middle(grid)])


def middle(grid: Grid) -> int:
    """Return the index of the patch in the middle, in raster order."""
    rows, columns = grid
    return (rows // 2) * columns + columns // 2


@torch.no_grad()
def added(position: Position, layer: int, grid: Grid, width: int) -> Tensor | None:
    """Return what the position adds to the patches (N, D) entering `layer`; None if nothing."""
    parameter = next(position.parameters(), None)
    nothing = torch.zeros(1, math.prod(grid), width, device=None if parameter is None else parameter.device)
    vectors = position.tokens(nothing, layer, grid)[0].double().cpu()
    return vectors if vectors.any() else None


def cosine(vectors: Tensor) -> Tensor:
    """Return the cosine similarity (..., N, N) of vectors (..., N, D)."""
    unit = nn.functional.normalize(vectors, dim=-1)
    return unit @ unit.mT


@torch.no_grad()
def rotated(model: ViT, layer: int, grid: Grid) -> Tensor | None:
    """Return the cosine similarity (H, N, N) of a vector of ones rotated to each place; None without rotation.

    Ones have the same energy in every plane of rotation. So this is the mean over the planes of the cosine of the angle
    between two places, whatever the order of the planes.
    """
    config = model.config
    shape = (1, config.heads, math.prod(grid), config.width // config.heads)
    ones = torch.ones(shape, device=next(model.parameters()).device)
    turned = model.position.rotate(ones, layer, grid)
    return None if turned is ones else cosine(turned[0].double().cpu())


def absent(kind: str, position: Position) -> str:
    """Say why there is no map of a kind."""
    if type(position).between is not Position.between:
        return f"position={kind} mixes neighbouring tokens between layers: it has neither vectors nor a bias to compare"
    return f"position={kind}: the model is told of no position"


# -- a layer-by-layer summary ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartCost:
    """A part of the model: its output shape for one image, its parameters and its FLOPs (a multiply-add is 2)."""

    part: str
    shape: list[int]
    params: int
    flops: int


@torch.no_grad()
def summary(config: Config) -> list[PartCost]:
    """Return the cost of each part of the model.

    Params and flops sum to those of `vitcore.analysis.cost`. The position's work inside attention counts as
    attention. Nothing is allocated.
    """
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        model = ViT(config)
        images = torch.empty(1, config.channels, config.image_size, config.image_size)
    names = {module: name for name, module in parts(model)}
    shapes: dict[str, list[int]] = {}

    def note(module: nn.Module, inputs: Any, output: Tensor) -> None:
        shapes[names[module]] = list(output.shape[1:])

    for module in names:
        module.register_forward_hook(note)
    with FlopCounterMode(display=False) as counter:
        model(images)
    flops = defaultdict(int, {name: sum(ops.values()) for name, ops in counter.get_flop_counts().items()})
    rows = [
        PartCost(
            name,
            shapes.get(name, []),
            sum(parameter.numel() for parameter in module.parameters()),
            flops[f"ViT.{name}"] or within(flops, f"ViT.{name}."),
        )
        for module, name in names.items()
    ]
    direct = [(name, parameter) for name, parameter in model.named_parameters(recurse=False)]
    rows[1:1] = [PartCost(name, list(parameter.shape[1:]), parameter.numel(), 0) for name, parameter in direct]
    rest = counter.get_total_flops() - sum(row.flops for row in rows)
    if rest:  # products of the model itself, outside every part
        rows.append(PartCost("other", [], 0, rest))
    return [row for row in rows if row.params or row.flops]


def within(flops: Mapping[str, int], prefix: str) -> int:
    """Return the FLOPs of the submodules of a module that is never called itself, such as a position."""
    inside = {name.removeprefix(prefix): count for name, count in flops.items() if name.startswith(prefix)}
    return sum(count for name, count in inside.items() if "." not in name)


def parts(model: ViT) -> Iterator[tuple[str, nn.Module]]:
    """Yield the model's parts in the order of the forward pass, the encoder by block."""
    yield "stem", model.stem
    yield "position", model.position
    if model.encoder.embedding_norm is not None:
        yield "encoder.embedding_norm", model.encoder.embedding_norm
    for layer, block in enumerate(model.encoder.blocks):
        for name, module in block.named_children():
            yield f"encoder.blocks.{layer}.{name}", module
    yield "encoder.norm", model.encoder.norm
    yield "pool", model.pool
    yield "head", model.head


# -- all of it ---------------------------------------------------------------------------------------------------------


@dataclass
class Sums:
    """Sums over batches: attention distance (L, H), bias (N, N), and bias of the middle query (L, H, N)."""

    images: int = 0
    distance: Tensor | None = None
    bias: Tensor | None = None
    centre_bias: Tensor | None = None

    def add(self, found: list[Layer], grid: Grid, patch: int, prefix: int) -> None:
        distance = torch.stack([mean_distance(layer.weights, grid, patch, prefix).sum(dim=0) for layer in found])
        self.distance = plus(self.distance, distance)
        if all(layer.bias is not None for layer in found):
            biases = [layer.bias[:, :, prefix:, prefix:].double() for layer in found if layer.bias is not None]
            mean = torch.stack([bias.mean(dim=1).sum(dim=0) for bias in biases]).mean(dim=0)
            self.bias = plus(self.bias, mean)
            centre = torch.stack([bias[:, :, middle(grid)].sum(dim=0) for bias in biases])
            self.centre_bias = plus(self.centre_bias, centre)
        self.images += found[0].weights.shape[0]

    def mean(self, total: Tensor | None) -> Tensor | None:
        return None if total is None else total / self.images


def plus(total: Tensor | None, more: Tensor) -> Tensor:
    return more.cpu() if total is None else total + more.cpu()


@dataclass(frozen=True)
class Inside:
    """The result of `inspect`. arrays: data of the figures by name; facts: plain JSON describing them."""

    arrays: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


def inspect(model: ViT, data: Data, images: int = IMAGES) -> Inside:
    """Compute every figure's numbers for a model in evaluation mode and `images` random test images."""
    config = model.config
    chosen = data.test.at(order(len(data.test), "inspect")[:images].copy())
    pixels, labels = torch.cat(list(chosen.batches(len(chosen)))), chosen.labels
    grid, sums = model.grid(pixels), Sums()
    rolled: list[Tensor] = []
    weights = config.layers * config.heads * (math.prod(grid) + model.prefix) ** 2
    for some in torch.split(pixels, max(1, MOST // weights)):
        found = layers(model, data.standardise(some))
        sums.add(found, grid, config.patch, model.prefix)
        if sums.images - len(some) < SHOWN:
            matrix = rollout([layer.weights[:SHOWN] for layer in found])
            rolled.append(looked_at(matrix, model.prefix, model.pool.class_token).cpu())
    with torch.no_grad():
        predicted = in_precision(config, model, data.standardise(pixels[:SHOWN])).argmax(dim=1)
    distance = sums.mean(sums.distance)
    assert distance is not None
    arrays = {
        "distance": distance,
        "rollout": torch.cat(rolled)[:SHOWN].view(-1, *grid),
        "images": pixels[:SHOWN],
        "labels": labels[:SHOWN],
        "predicted": predicted,
    }
    facts: dict[str, Any] = {
        "images": len(pixels),
        "grid": list(grid),
        "patch": config.patch,
        "image_size": config.image_size,
        "position": config.position,
        "position_at": config.position_at,
        "uniform_distance": uniform_distance(grid, config.patch),
        "rollout_of": rollout_of(model),
        "summary": [asdict(row) for row in summary(config)],
    }
    try:
        components, share, facts["filters_of"] = filters(model)
        arrays |= {"filters": components, "filters_share": share}
    except ValueError as error:
        facts["filters_of"], facts["no_filters"] = "", str(error)
    facts["sites"] = []
    for found_at in similarity(model, sums.mean(sums.bias), sums.mean(sums.centre_bias), grid):
        facts["sites"].append({"site": found_at.site, "note": found_at.note})
        if found_at.pairs is not None and found_at.centre is not None:
            arrays |= {f"{found_at.site}_pairs": found_at.pairs, f"{found_at.site}_centre": found_at.centre}
    plain = {name: array.detach().cpu().numpy() for name, array in arrays.items()}
    return Inside({n: a.astype("float32") if a.dtype.kind == "f" else a for n, a in plain.items()}, facts)
