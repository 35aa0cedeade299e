"""The base class of stems, functions that several stems share, and the stem of arXiv 2010.11929.

Shapes: B images, C channels, P patch size, N patches in raster order, D width of the stem's tokens.
"""

import math
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from commonfloor.options import ConfigError, JsonSettings
from vitcore.model.initialization import Part, lecun_normal, zeros
from vitcore.model.position import stem_width
from vitcore.settings import Settings


class Stem(Part):
    """Base class of stems, which map images (B, C, H, W) to tokens (B, H / P * W / P, D).

    D is `width`, which is less than `config.width` with `position.combine=concat`.
    """

    slot = "stem"
    local: ClassVar[bool] = False  # whether a token depends only on the pixels of its patch

    @classmethod
    def patches(cls, config: Settings) -> list[int]:
        """Return the patch sizes in pixels that training steps draw from, by default only `patch`."""
        return [config.patch]

    def __init__(self, config: Settings) -> None:
        super().__init__()
        self.width = stem_width(config)


def tokens(features: Tensor) -> Tensor:
    """Return feature maps (B, D, rows, columns) as tokens (B, N, D) in raster order."""
    return features.flatten(2).transpose(1, 2)


def halvings(config: Settings) -> list[tuple[int, int]]:
    """Return (channels, stride) for each stage. Channels double up to `width`. Strides are 2, or 1 if P = 1."""
    stages = max(1, config.patch.bit_length() - 1)
    return [(max(1, config.width >> (stages - 1 - stage)), min(config.patch, 2)) for stage in range(stages)]


def check_halvings(config: Settings) -> None:
    if config.patch & (config.patch - 1):
        raise ConfigError(f"patch={config.patch}: stem={config.stem} halves the image: a power of two")


def group_count(channels: int) -> int:
    """Return the number of equal groups of a group norm, with 16 channels each if possible (arXiv 1803.08494)."""
    return math.gcd(channels, max(1, channels // 16))


class PatchStem(Stem):
    """A linear projection of P x P patches to tokens (arXiv 2010.11929, equation 1).

    The weight (D, C, P, P) has the layout of the equivalent convolution with stride P. If `self.patch` is set to
    another patch size, the weight is resized on use (PI-resize: arXiv 2212.08013, section 3.4).
    """

    numerics = 1
    local = True
    draws = {"weight": lecun_normal, "bias": zeros}  # as flax's Conv, which models_vit.py uses

    class Options(Stem.Options):
        #: Whether to use a matrix product over cut patches or a strided convolution. The results differ by rounding.
        form: Literal["linear", "convolution"] = "linear"
        #: Whether the projection has a bias. CLIP's projection has no bias.
        bias: bool = True
        #: Patch sizes, of which each training step draws one (FlexiViT: arXiv 2212.08013, section 3.2). The weights
        #: have the size `patch`, at which the model is evaluated. Empty: only `patch`.
        patches: Annotated[list[Annotated[int, Field(ge=1, le=2**16)]], Field(max_length=64)] = []

    @classmethod
    def patches(cls, config: Settings) -> list[int]:
        return config.options_of(cls.slot, cls.Options).patches or [config.patch]

    @classmethod
    def canonical(cls, config: Settings) -> JsonSettings:
        sizes = sorted(set(cls.patches(config)))
        return {"patches": [] if sizes == [config.patch] else sizes}

    @classmethod
    def check(cls, config: Settings) -> None:
        sizes = cls.patches(config)
        if config.patch not in sizes:
            raise ConfigError(f"stem.patches={sizes}: has to include patch={config.patch}, the size of the weights")
        odd = [size for size in sizes if any(side % size for side in config.image_shape)]
        if odd:
            raise ConfigError(f"stem.patches={sizes}: {odd[0]} does not divide image_size={config.image_size}")

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        options = config.options_of(self.slot, self.Options)
        self.patch = config.patch
        self.convolution = options.form == "convolution"
        for size in {*self.patches(config)} - {config.patch}:
            self.register_buffer(f"to_{size}", inverse_resize(config.patch, size).float(), persistent=False)
        self.weight = nn.Parameter(torch.empty(self.width, config.channels, config.patch, config.patch))
        self.bias = nn.Parameter(torch.empty(self.width)) if options.bias else None

    def forward(self, images: Tensor) -> Tensor:
        B, C, H, W = images.shape
        P = self.patch
        weight = self.weight_at(self.patch)
        if self.convolution:
            return tokens(F.conv2d(images, weight, self.bias, stride=P))
        patches = images.view(B, C, H // P, P, W // P, P).permute(0, 2, 4, 1, 3, 5)  # (B, rows, columns, C, P, P)
        return F.linear(patches.reshape(B, -1, C * P * P), weight.flatten(1), self.bias)

    def resized(self, weight: Tensor) -> Tensor:
        """Return the weight of another model with the number of channels and the patch size of this one.

        For gray images, a weight for red, green and blue is summed over them, as if gray were copied to all three.
        """
        _, channels, patch, _ = weight.shape
        if (channels, self.weight.shape[1]) == (3, 1):
            weight = weight.sum(dim=1, keepdim=True)
        if patch != self.patch:
            weight = resize_weight(weight, inverse_resize(patch, self.patch))
        return weight

    def weight_at(self, size: int) -> Tensor:
        """Return the weight (D, C, size, size) for patches of `size` x `size` pixels."""
        if size == self.weight.shape[-1]:
            return self.weight
        resize = getattr(self, f"to_{size}", None)
        if resize is None:
            resize = inverse_resize(self.weight.shape[-1], size)
        return resize_weight(self.weight, resize)


def resize_weight(weight: Tensor, resize: Tensor) -> Tensor:
    """Return the weight (D, C, P, P) of a patch projection, resized to (D, C, Q, Q) by the matrix `resize` (Q, P).

    This is FlexiViT's PI-resize (arXiv 2212.08013, section 3.4). It minimizes the expected squared difference from the
    original projections, for patches of white noise that are resized to Q x Q pixels.
    """
    resize = resize.to(weight)
    return resize @ weight @ resize.T


def inverse_resize(patch: int, other: int) -> Tensor:
    """Return the pseudo-inverse (Q, P) of the transposed matrix that resizes an axis from P to Q pixels, in float64.

    Resizing is bilinear. For two axes, the pseudo-inverse is the Kronecker product of the result with itself.
    """
    lines = torch.eye(patch, dtype=torch.float64, device="cpu")[None]
    resize = F.interpolate(lines, size=other, mode="linear")[0].T  # (Q, P), without antialiasing, as FlexiViT's code
    inverse: Tensor = torch.linalg.pinv(resize.T)
    return inverse
