"""Reader of .npz checkpoints of google-research/vision_transformer (here called vit_jax) and big_vision."""

from __future__ import annotations

import math
import re
import zipfile
from dataclasses import dataclass, field
from os import PathLike
from typing import NamedTuple

import numpy as np
import torch
from torch import Size, Tensor

from vitcore.config import Config, Values
from vitcore.data.files import open_regular
from vitcore.interop.conversion import Patterns, Weights, renamed, with_weights
from vitcore.model.vit import ViT
from vitcore.runtime.host import host_limits

Path = str | PathLike[str]

SHARE = 0.5  # largest share of the memory for the arrays: the model takes as much again
PATCHES = "embedding/kernel"  # an array in every checkpoint; the file's prefix precedes its name
# Pattern in this package's module names -> replacement that gives Flax's name. A Layout has the rest.
FLAX: Patterns = {
    r"^stem(\.projection)?$": "embedding",
    r"^stem\.backbone\.stem\.conv": "conv_root",
    r"^stem\.backbone\.stem\.norm": "gn_root",
    r"^stem\.backbone\.stages\.(\d+)\.blocks\.(\d+)\.": lambda at: f"block{int(at[1]) + 1}/unit{int(at[2]) + 1}/",
    r"(unit.*)downsample\.(conv|norm)": r"\1\2_proj",
    r"(unit.*)norm": r"\1gn",
    r"^encoder\.norm": "Transformer/encoder_norm",
    r"^encoder\.blocks\.(\d+)\.": r"Transformer/encoderblock_\1/",
    r"/norm1": "/LayerNorm_0",
    r"^head\.hidden": "pre_logits",
    r"^pool$": "MAPHead_0",
    r"^pool\.norm": "MAPHead_0/LayerNorm_0",
    r"^pool\.(up|down)": r"MAPHead_0/MlpBlock_0.\1",
    r"^pool": "MAPHead_0/MultiHeadDotProductAttention_0",
    r"\.up": "/Dense_0",
    r"\.down": "/Dense_1",
    r"\.out": "/out",
    r"\.q$": "/query",
}
JOINED = {"qkv": ("query", "key", "value"), "kv": ("key", "value")}


class Layout(NamedTuple):
    """The names that differ between vit_jax and big_vision: modules of a block, and the position embedding."""

    attention: str
    norm2: str
    mlp: str
    positions: str


VIT_JAX = Layout(
    "MultiHeadDotProductAttention_1", "LayerNorm_2", "MlpBlock_3", "Transformer/posembed_input/pos_embedding"
)
BIG_VISION = Layout("MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0", "pos_embedding")


@dataclass
class Arrays:
    """The model's arrays in a checkpoint. tensors: name without the file's `prefix` -> float32 array."""

    path: Path
    prefix: str
    tensors: Weights
    asked: set[str] = field(default_factory=set)  # the names that were read

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def get(self, name: str, dimensions: int | None = None) -> Tensor:
        """Return an array; raise ValueError if it is missing or does not have `dimensions` dimensions (None: any)."""
        if name not in self.tensors:
            raise ValueError(f"{self.path}: there is no array {self.prefix}{name}")
        self.asked.add(name)
        tensor = self.tensors[name]
        if dimensions is not None and tensor.ndim != dimensions:
            raise self.shape_error(name, f"{dimensions} dimensions")
        return tensor

    def parameter(self, name: str, shape: Size) -> Tensor:
        """Return the array `name` in PyTorch's layout; raise ValueError if it is missing or does not fit `shape`.

        Flax stores matrices as (in, out), heads and head width as separate dimensions, and convolution kernels as
        (rows, columns, in, out).
        """
        tensor = self.get(name)
        if len(shape) == 4 and tensor.ndim == 4:
            tensor = tensor.permute(3, 2, 0, 1)
        elif len(shape) == 2 and tensor.ndim > 1 and shape[1] in (tensor.shape[0], math.prod(tensor.shape[:-1])):
            tensor = tensor.reshape(shape[1], -1).T
        elif len(shape) in (1, 3) and tensor.numel() == shape.numel():
            tensor = tensor.reshape(shape)
        if tensor.shape != shape:
            raise self.shape_error(name, f"what makes {tuple(shape)}")
        return tensor

    def shape_error(self, name: str, wanted: str) -> ValueError:
        shape = tuple(self.tensors[name].shape)
        return ValueError(f"{self.path}: array {self.prefix}{name} has shape {shape}, not {wanted}")

    @property
    def layout(self) -> Layout:
        return VIT_JAX if any(f"{VIT_JAX.attention}/" in name for name in self.tensors) else BIG_VISION


def load_npz(path: Path) -> ViT:
    """Load a checkpoint of google-research/vision_transformer or big_vision as a ViT, in float32.

    Sizes come from the shapes of the arrays, and nothing is unpickled. Raises OSError if the file cannot be opened, or
    ValueError if it is malformed or too large. The message names a missing, unknown or wrongly shaped array.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            arrays = arrays_of(archive, path)
    except zipfile.BadZipFile:
        raise ValueError(f"{path}: no .npz file, or one cut short") from None
    config = config_of(arrays)
    with torch.device("meta"):
        shapes = {name: values.shape for name, values in ViT(config).state_dict().items()}
    weights = positions(arrays, config)
    for name, (first, *others) in shapes.items():
        if name not in weights:
            sources = flax_names(name, arrays.layout)
            shape = Size([first // len(sources), *others])
            weights[name] = torch.cat([arrays.parameter(source, shape) for source in sources])
    for name in sorted(arrays.tensors.keys() - arrays.asked):
        raise ValueError(f"{path}: array {arrays.prefix}{name} belongs to no part of this ViT")
    del arrays  # as large as the weights, which are copied next
    return with_weights(config, weights)


def arrays_of(archive: zipfile.ZipFile, path: Path) -> Arrays:
    """Return the arrays under the shortest prefix of a patch embedding. An optimizer's state has a longer prefix."""
    members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
    prefixes = [name.removesuffix(PATCHES) for name in members if f"/{name}".endswith(f"/{PATCHES}")]
    if not prefixes:
        raise ValueError(f"{path}: there is no array {PATCHES}")
    prefix = min(prefixes, key=len)
    chosen = {name: member for name, member in members.items() if name.startswith(prefix)}
    total, most = sum(member.file_size for member in chosen.values()), int(SHARE * min(host_limits()))
    if total > most:
        raise ValueError(f"{path}: its arrays take {total:,} bytes; this machine has memory for {most:,}")
    tensors = {name.removeprefix(prefix): array(archive, name, member, path) for name, member in chosen.items()}
    return Arrays(path, prefix, unstacked(tensors))


def array(archive: zipfile.ZipFile, name: str, member: zipfile.ZipInfo, path: Path) -> Tensor:
    """Return an array in float32; raise ValueError if it is unreadable, empty, a scalar or not floating-point."""
    try:
        with archive.open(member) as file:
            values = np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # zipfile, its decompressors and NumPy raise many kinds
        raise ValueError(f"{path}: array {name} cannot be read: {error}") from None
    if values.dtype.kind != "f":
        raise ValueError(f"{path}: array {name} has dtype {values.dtype}, not float16, float32 or float64")
    if not (values.ndim and values.size):
        raise ValueError(f"{path}: array {name} is empty or a single number: its shape is {values.shape}")
    return torch.from_numpy(values.astype(np.float32))


def unstacked(tensors: Weights) -> Weights:
    """Return `tensors` with an entry per layer in place of each array that stacks all layers (big_vision's scan)."""
    stack = "Transformer/encoderblock/"
    apart = {name: values for name, values in tensors.items() if not name.startswith(stack)}
    for name in tensors.keys() - apart.keys():
        for layer, values in enumerate(tensors[name]):
            apart[name.replace(stack, f"Transformer/encoderblock_{layer}/")] = values
    return apart


def config_of(arrays: Arrays) -> Config:
    layout = arrays.layout
    width = arrays.get(PATCHES, 4).shape[3]
    layers = [int(found[1]) for name in arrays.tensors if (found := re.match(r"Transformer/encoderblock_(\d+)/", name))]
    _, heads, _ = arrays.get(f"Transformer/encoderblock_0/{layout.attention}/query/kernel", 3).shape
    _, hidden = arrays.get(f"Transformer/encoderblock_0/{layout.mlp}/Dense_0/kernel", 2).shape
    places = arrays.get(layout.positions, 3).shape[1] - (layout is VIT_JAX and "cls" in arrays)
    if (side := math.isqrt(places)) ** 2 != places:
        raise arrays.shape_error(layout.positions, "that of a square image")
    stem = stem_of(arrays)
    plain = "cls" if "cls" in arrays else "gap"
    return Config(
        image_size=stem["patch"] * side,
        classes=arrays.get("head/kernel", 2).shape[1],
        data_seed=0,
        width=width,
        depth=1 + max(layers),
        heads=heads,
        mlp_ratio=hidden / width,
        pool="map" if "MAPHead_0/probe" in arrays else plain,
        head="mlp" if "pre_logits/kernel" in arrays else "linear",
        **stem,
    )


def stem_of(arrays: Arrays) -> Values:
    """Return the settings of the stem, patches or a ResNet. Raises ValueError if the patches are not square."""
    if "conv_root/kernel" in arrays:
        stages = {name.split("/")[0] for name in arrays.tensors if name.startswith("block")}
        layers = 50 if "block1/unit3/conv1/kernel" in arrays else 26
        channels = arrays.get("conv_root/kernel", 4).shape[2]
        patch = 2 ** (1 + len(stages))  # root and first stage divide the side by 4, each other stage by 2
        return {"stem": "resnet", "stem.layers": layers, "patch": patch, "channels": channels}
    patch, across, channels, _ = arrays.get(PATCHES, 4).shape
    if patch != across:
        raise arrays.shape_error(PATCHES, "that of square patches")
    return {"patch": patch, "channels": channels}


def positions(arrays: Arrays, config: Config) -> Weights:
    """Return parameter name -> position embedding of the patches (N, D) or of the class token (D,)."""
    name = arrays.layout.positions
    table = arrays.get(name, 3)[0]
    if table.shape[1] != config.width:
        raise arrays.shape_error(name, f"of width {config.width}")
    patches = config.grid[0] * config.grid[1]
    weights = {"position.table": table[-patches:]}
    if config.pool == "cls":
        has_row = len(table) > patches  # not in big_vision
        weights["position.class_row"] = table[0] if has_row else torch.zeros(config.width)
    return weights


def flax_names(name: str, layout: Layout) -> list[str]:
    """Return the Flax names of a ViT parameter: several for joined projections (q, k, v or k, v), else one."""
    module, _, kind = name.rpartition(".")
    if not module:
        return ["cls"]
    if kind == "weight":
        kind = "scale" if "norm" in module else "kernel"
    own = {"/attention": f"/{layout.attention}", "/norm2": f"/{layout.norm2}", "/mlp": f"/{layout.mlp}"}
    flax = renamed(module, {**FLAX, **own})
    inside, _, last = flax.rpartition(".")
    return [f"{inside}/{part}/{kind}" for part in JOINED[last]] if last in JOINED else [f"{flax}/{kind}"]
