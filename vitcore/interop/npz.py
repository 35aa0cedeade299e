"""Reading .npz checkpoints of google-research/vision_transformer (here called vit_jax) and big_vision.

timm's own reader fills timm's model, which becomes a ViT. This module finds the model's sizes in the shapes of arrays.
"""

import math
import zipfile
from dataclasses import dataclass
from os import PathLike

import numpy as np
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from commonfloor.files import open_regular
from vitcore.config import Config, Values
from vitcore.interop.conversion import Weights, with_weights
from vitcore.interop.timm_vit import from_timm, timm_arguments
from vitcore.model.vit import ViT
from vitcore.runtime.host import host_limits

Path = str | PathLike[str]
Shape = tuple[int, ...]

MOST = 0.5  # largest fraction of the memory for the arrays: the model takes as much again
PATCHES = "embedding/kernel"  # an array in every checkpoint; the file's prefix precedes its name
HIDDEN = "pre_logits/"  # the hidden layer of the head, which timm's reader leaves out


@dataclass(frozen=True)
class Arrays:
    """The shapes of a model's arrays, by their names without the file's prefix, and the head's hidden layer if any."""

    path: Path
    prefix: str
    shapes: dict[str, Shape]
    hidden: dict[str, Tensor]

    def shape(self, name: str, dimensions: int) -> Shape:
        """Return an array's shape; raise ValueError if the array is missing or has another number of dimensions."""
        if name not in self.shapes:
            raise ValueError(f"{self.path}: there is no array {self.prefix}{name}")
        shape = self.shapes[name]
        if len(shape) != dimensions:
            raise self.shape_error(name, f"{dimensions} dimensions")
        return shape

    def shape_error(self, name: str, wanted: str) -> ValueError:
        return ValueError(f"{self.path}: array {self.prefix}{name} has shape {self.shapes[name]}, not {wanted}")


def load_npz(path: Path) -> ViT:
    """Load a checkpoint of google-research/vision_transformer or big_vision as a ViT, in float32.

    Sizes come from the shapes of the arrays, and nothing is unpickled. Raises OSError if the file cannot be opened, or
    ValueError if it is malformed, too large, or lacks an array of the model or has one of another model.
    """
    arrays = read_arrays(path)
    config = config_of(arrays)
    has_row = "cls" in arrays.shapes and is_vit_jax(arrays)  # big_vision's class token has no position
    plain = Config(**config.model_dump() | {"head": "linear", "position.class_row": has_row})
    with torch.device("meta"):
        skeleton = VisionTransformer(**timm_arguments(plain))
    parameters = sum(parameter.numel() for parameter in skeleton.parameters())
    stored = sum(math.prod(shape) for name, shape in arrays.shapes.items() if not name.startswith(HIDDEN))
    if parameters != stored:
        raise ValueError(f"{path}: its arrays have {stored:,} values, and a ViT of these sizes has {parameters:,}")
    timm_model = VisionTransformer(**timm_arguments(plain))  # after the check, so not larger than the file
    try:
        timm_model.load_pretrained(str(path), prefix=arrays.prefix)
    except Exception as error:  # timm, NumPy and PyTorch raise many kinds for missing names and other shapes
        raise ValueError(f"{path}: timm cannot read it: {' '.join(str(error).split())}") from None
    weights = from_timm(timm_model).state_dict()
    if config.pool == "cls" and not has_row:
        weights["position.class_row"] = torch.zeros(config.width)
    if config.head == "mlp":
        weights |= hidden_layer(arrays, config.width)
    return with_weights(config, weights)


def hidden_layer(arrays: Arrays, width: int) -> Weights:
    """Return the head's hidden layer under this package's names; raise ValueError if it does not fit."""
    for name, wanted in {f"{HIDDEN}kernel": (width, width), f"{HIDDEN}bias": (width,)}.items():
        if arrays.shape(name, len(wanted)) != wanted:
            raise arrays.shape_error(name, str(wanted))
    return {"head.hidden.weight": arrays.hidden["kernel"].T, "head.hidden.bias": arrays.hidden["bias"]}


def read_arrays(path: Path) -> Arrays:
    """Return the arrays under the shortest prefix of a patch embedding. An optimizer's state has a longer prefix."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            prefixes = [name.removesuffix(PATCHES) for name in members if f"/{name}".endswith(f"/{PATCHES}")]
            if not prefixes:
                raise ValueError(f"{path}: there is no array {PATCHES}")
            prefix = min(prefixes, key=len)
            chosen = {name.removeprefix(prefix): member for name, member in members.items() if name.startswith(prefix)}
            total = sum(member.file_size for member in chosen.values())
            most = int(MOST * min(host_limits()))
            if total > most:
                raise ValueError(f"{path}: its arrays take {total:,} bytes; this machine has memory for {most:,}")
            shapes: dict[str, Shape] = {}
            hidden: dict[str, Tensor] = {}
            for name, member in chosen.items():
                values = read_array(archive, member, f"{path}: array {prefix}{name}")
                shapes[name] = values.shape
                if name.startswith(HIDDEN):
                    hidden[name.removeprefix(HIDDEN)] = torch.from_numpy(values.astype(np.float32))
    except zipfile.BadZipFile:
        raise ValueError(f"{path}: no .npz file, or one cut short") from None
    return Arrays(path, prefix, shapes, hidden)


def read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, what: str) -> np.ndarray:
    """Return an array; raise a ValueError that begins with `what` if it is unreadable, pickled or no float."""
    try:
        with archive.open(member) as file:
            values = np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # zipfile, its decompressors and NumPy raise many kinds
        raise ValueError(f"{what} cannot be read: {error}") from None
    if values.dtype.kind != "f":
        raise ValueError(f"{what} has dtype {values.dtype}, not float16, float32 or float64")
    return values


def is_vit_jax(arrays: Arrays) -> bool:
    return any("/MultiHeadDotProductAttention_1/" in name for name in arrays.shapes)


def config_of(arrays: Arrays) -> Config:
    if is_vit_jax(arrays):
        attention = "MultiHeadDotProductAttention_1"
        mlp = "MlpBlock_3"
        positions = "Transformer/posembed_input/pos_embedding"
    else:
        attention = "MultiHeadDotProductAttention_0"
        mlp = "MlpBlock_0"
        positions = "pos_embedding"
    stacked = any(name.startswith("Transformer/encoderblock/") for name in arrays.shapes)  # big_vision's scan
    block = "Transformer/encoderblock" if stacked else "Transformer/encoderblock_0"
    *_, heads, _ = arrays.shape(f"{block}/{attention}/query/kernel", 3 + stacked)
    *_, hidden = arrays.shape(f"{block}/{mlp}/Dense_0/kernel", 2 + stacked)
    if stacked:
        depth = arrays.shape(f"{block}/LayerNorm_0/scale", 2)[0]
    else:
        depth = sum(name.endswith("/LayerNorm_0/scale") and "encoderblock_" in name for name in arrays.shapes)
    patches = arrays.shape(positions, 3)[1]
    if is_vit_jax(arrays) and "cls" in arrays.shapes:
        patches -= 1
    side = math.isqrt(patches)
    if side**2 != patches:
        raise arrays.shape_error(positions, "that of a square image")
    stem = stem_of(arrays)
    width = arrays.shape(PATCHES, 4)[3]
    pool = "cls" if "cls" in arrays.shapes else "gap"
    return Config(
        image_size=stem["patch"] * side,
        classes=arrays.shape("head/kernel", 2)[1],
        data_seed=0,
        width=width,
        depth=depth,
        heads=heads,
        mlp_ratio=hidden / width,
        pool="map" if "MAPHead_0/probe" in arrays.shapes else pool,
        head="mlp" if arrays.hidden else "linear",
        **stem,
    )


def stem_of(arrays: Arrays) -> Values:
    """Return the settings of the stem, patches or a ResNet. Raises ValueError if the patches are not square."""
    if "conv_root/kernel" in arrays.shapes:
        stages = {name.split("/")[0] for name in arrays.shapes if name.startswith("block")}
        return {
            "stem": "resnet",
            "stem.layers": 50 if "block1/unit3/conv1/kernel" in arrays.shapes else 26,
            "patch": 2 ** (1 + len(stages)),  # root and first stage divide the side by 4, each other stage by 2
            "channels": arrays.shape("conv_root/kernel", 4)[2],
        }
    rows, columns, channels, _ = arrays.shape(PATCHES, 4)
    if rows != columns:
        raise arrays.shape_error(PATCHES, "that of square patches")
    return {"patch": rows, "channels": channels}
