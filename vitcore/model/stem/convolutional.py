"""Stems of a few convolutions and norms. Shapes: B images, C channels, P patch size, D width of the stem's tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from vitcore.model.position import stem_width
from vitcore.model.stem.patch import Stem, check_halvings, group_count, halvings, tokens
from vitcore.options import ConfigError, JsonSettings
from vitcore.settings import Settings


class ChannelNorm(nn.LayerNorm):
    """A layer norm over the channels at each location of feature maps (B, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


NORM: dict[str, Callable[[int], nn.Module]] = {
    "group": lambda channels: nn.GroupNorm(group_count(channels), channels),
    "batch": nn.BatchNorm2d,
    "layer": ChannelNorm,
}


class ConvStem(Stem):
    """3x3 convolutions of stride 2 whose channels double up to `width`, then one of 1x1 (ViT_C: arXiv 2106.14881).

    For P = 1, the stem has by default a single 3x3 convolution of stride 1. ViT_C uses `norm=batch`, and
    `fewer_blocks=1` for one encoder block fewer than the corresponding ViT. The default is a group norm, because batch
    norm couples the images of a batch.
    """

    numerics = 1

    class Options(Stem.Options):
        #: Channels of each 3x3 convolution. The stride is 2 at the first convolution and where channels change. Empty:
        #: channels double up to the width. The 18GF model of arXiv 2106.14881 has [64, 128, 128, 256, 256, 512].
        channels: Annotated[list[Annotated[int, Field(ge=1, le=2**16)]], Field(max_length=16)] = []
        norm: Literal["group", "batch", "layer"] = "group"  #: The norm after each convolution.
        fewer_blocks: Annotated[int, Field(ge=0)] = 0  #: Number of encoder blocks that the stem replaces.

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        norm = NORM[self.options(config).norm]
        layers = list[nn.Module]()
        before = config.channels
        for channels, stride in self.convolutions(config):
            convolution = nn.Conv2d(before, channels, 3, stride=stride, padding=1, bias=False)
            layers += [convolution, norm(channels), nn.ReLU()]
            before = channels
        self.layers = nn.Sequential(*layers)
        self.projection = nn.Conv2d(before, self.width, 1)

    @classmethod
    def options(cls, config: Settings) -> ConvStem.Options:
        return config.options_of(cls.slot, cls.Options)

    @classmethod
    def convolutions(cls, config: Settings) -> list[tuple[int, int]]:
        channels = cls.options(config).channels
        if not channels:
            return halvings(config)
        strides = [min(config.patch, 2)]
        for before, after in pairwise(channels):
            strides.append(2 if after != before else 1)
        return list(zip(channels, strides, strict=True))

    @classmethod
    def canonical(cls, config: Settings) -> JsonSettings:
        return {"channels": []} if cls.convolutions(config) == halvings(config) else {}

    @classmethod
    def check(cls, config: Settings) -> None:
        check_halvings(config)
        options = cls.options(config)
        halved = math.prod(stride for _, stride in cls.convolutions(config))
        if halved != config.patch:
            raise ConfigError(
                f"stem.channels={options.channels}: the convolutions divide the side by {halved} "
                f"(by 2 at the first and wherever channels change), not by patch={config.patch}"
            )
        fewer = options.fewer_blocks
        if fewer >= config.depth:
            raise ConfigError(f"stem.fewer_blocks={fewer}: fewer than depth={config.depth}, so that one is left")

    def forward(self, images: Tensor) -> Tensor:
        return tokens(self.projection(self.layers(images)))


class HMLPStem(Stem):
    """Non-overlapping convolutions, norms and GELUs that merge small patches into larger ones (arXiv 2203.09795).

    For P = 16, the convolutions have sides 4, 2 and 2, and D / 4, D / 4 and D channels, as in section 5. For every
    multiple of 4 above 4, the last two sides are 2. Patches are processed separately. The default is therefore a layer
    norm over the channels at each location, whereas arXiv 2203.09795 uses `norm=batch`.
    """

    numerics = 1
    local = True

    class Options(Stem.Options):
        norm: Literal["batch", "layer"] = "layer"  #: The norm after each convolution.

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        norm = NORM[config.options_of(self.slot, self.Options).norm]
        sides = self.sides(config.patch)
        channels = [config.channels, *[self.width // 4] * (len(sides) - 1), self.width]
        layers: list[nn.Module] = []
        for (before, after), side in zip(pairwise(channels), sides, strict=True):
            layers += [nn.Conv2d(before, after, side, stride=side), norm(after), nn.GELU()]
        self.layers = nn.Sequential(*layers[:-1])

    @staticmethod
    def sides(patch: int) -> list[int]:
        """Return the kernel sizes of the successive convolutions. Their product is `patch`."""
        if patch % 4 == 0 and patch > 4:
            return [patch // 4, 2, 2]
        if patch % 2 == 0 and patch > 2:
            return [patch // 2, 2]
        return [patch]

    @classmethod
    def check(cls, config: Settings) -> None:
        if stem_width(config) < 4:
            raise ConfigError(f"width={config.width}: stem=hmlp begins with a quarter of it: at least 4")

    def forward(self, images: Tensor) -> Tensor:
        return tokens(self.layers(images))
