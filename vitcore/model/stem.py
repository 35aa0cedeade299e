"""The stems, which map images to patch tokens. To add a stem, write a class and add it to STEM.

Shapes: B images, C channels, P patch size, N patches in raster order, D width of the stem's tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from commonfloor.options import ConfigError, JsonSettings
from vitcore.model.initialization import Draw, Part, lecun_normal, zeros
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
        """Return the weight of another model with the channels and the patch size of this one."""
        _, channels, patch, _ = weight.shape
        if (channels, self.weight.shape[1]) == (3, 1):
            weight = weight.sum(dim=1, keepdim=True)  # as if gray were copied to red, green and blue
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
    """Return a weight (D, C, P, P) resized to (D, C, Q, Q) by the matrix `resize` (Q, P) (arXiv 2212.08013, 3.4)."""
    resize = resize.to(weight)
    return resize @ weight @ resize.T


def inverse_resize(patch: int, other: int) -> Tensor:
    """Return the pseudo-inverse (Q, P) of the transposed matrix that resizes an axis from P to Q pixels, in float64."""
    lines = torch.eye(patch, dtype=torch.float64, device="cpu")[None]
    resize = F.interpolate(lines, size=other, mode="linear")[0].T  # (Q, P), without antialiasing, as FlexiViT's code
    return torch.linalg.pinv(resize.T)


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
    norm couples the images of a batch. With `patchify`, the last convolution before that of 1x1 does not overlap.
    """

    numerics = 1

    class Options(Stem.Options):
        #: Channels of each 3x3 convolution. The stride is 2 at the first convolution and where channels change. Empty:
        #: channels double up to the width. The 18GF model of arXiv 2106.14881 has [64, 128, 128, 256, 256, 512].
        channels: Annotated[list[Annotated[int, Field(ge=1, le=2**16)]], Field(max_length=16)] = []
        #: Kernel and stride of the last convolution. The first 3x3 ones have stride 2, as many as are needed. 0: it is
        #: a 3x3 one too. The stems S1 to S4 of arXiv 2106.14881 have 2, 4, 8 and 16, with the channels
        #: [42, 104, 208, 416], [32, 64, 128, 256], [17, 34, 68, 136] and [8, 16, 32, 64] at width 384.
        patchify: Annotated[int, Field(ge=0)] = 0
        norm: Literal["group", "batch", "layer"] = "group"  #: The norm after each convolution.
        fewer_blocks: Annotated[int, Field(ge=0)] = 0  #: Number of encoder blocks that the stem replaces.

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        norm = NORM[self.options(config).norm]
        layers = list[nn.Module]()
        before = config.channels
        for channels, side, stride in self.convolutions(config):
            padding = 0 if side == stride else 1
            convolution = nn.Conv2d(before, channels, side, stride=stride, padding=padding, bias=False)
            layers += [convolution, norm(channels), nn.ReLU()]
            before = channels
        self.layers = nn.Sequential(*layers)
        self.projection = nn.Conv2d(before, self.width, 1)

    @classmethod
    def options(cls, config: Settings) -> ConvStem.Options:
        return config.options_of(cls.slot, cls.Options)

    @classmethod
    def convolutions(cls, config: Settings) -> list[tuple[int, int, int]]:
        """Return (channels, side of the kernel, stride) of each convolution but the last of 1x1."""
        options = cls.options(config)
        channels = options.channels or [count for count, _ in halvings(config)]
        sides = [3] * len(channels)
        if options.patchify:
            halved = (config.patch // options.patchify).bit_length() - 1
            strides = [2 if layer < halved else 1 for layer in range(len(channels))]
            sides[-1] = strides[-1] = options.patchify
        elif options.channels:
            strides = [min(config.patch, 2)]
            for before, after in pairwise(channels):
                strides.append(2 if after != before else 1)
        else:
            strides = [min(config.patch, 2)] * len(channels)
        return list(zip(channels, sides, strides, strict=True))

    @classmethod
    def canonical(cls, config: Settings) -> JsonSettings:
        default = config.model_copy(update={"options": {**config.options, "stem.channels": []}})
        return {"channels": []} if cls.convolutions(config) == cls.convolutions(default) else {}

    @classmethod
    def check(cls, config: Settings) -> None:
        check_halvings(config)
        options = cls.options(config)
        halved = math.prod(stride for _, _, stride in cls.convolutions(config))
        if halved != config.patch:
            keys = f"stem.channels={options.channels}"
            how = " (by 2 at the first and wherever channels change)"
            if options.patchify:
                keys += f", stem.patchify={options.patchify}"
                how = ""
            raise ConfigError(f"{keys}: the convolutions divide the side by {halved}{how}, not by patch={config.patch}")
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


class ResidualStem(Stem):
    """Base class of stems whose residual branches start at zero (vit_jax/models_resnet.py)."""

    def draw_of(self, name: str) -> Draw:
        return zeros if name.endswith("norm3.weight") else super().draw_of(name)  # the scale of a block's last norm


class ResNetStem(ResidualStem):
    """The stem of the hybrid ViT: a ResNet, then 1x1 patches of its features (arXiv 2010.11929, sections 3.1 and 4.1).

    As in BiT (arXiv 1912.11370), the ResNet has weight-standardized convolutions, group norm, a 7x7 root with max
    pooling, and TensorFlow's 'same' padding. All modules are timm's. P = 32 uses the whole network, P = 8 the first two
    stages, and P = 4 the first stage. P = 16 moves the blocks of the last stage to the third stage. With 50 layers, the
    stages then have 3, 4 and 9 blocks.
    """

    numerics = 1

    class Options(Stem.Options):
        layers: Literal[26, 50] = 50  #: Layers of the whole network (arXiv 2010.11929: 50, arXiv 2106.10270: 26).

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        import timm  # late: takes seconds

        whole = {26: [2, 2, 2, 2], 50: [3, 4, 6, 3]}[config.options_of(self.slot, self.Options).layers]
        stages = {4: whole[:1], 8: whole[:2], 16: [*whole[:2], whole[2] + whole[3]], 32: whole}
        self.backbone = timm.models.resnetv2.ResNetV2(
            layers=stages[config.patch],
            in_chans=config.channels,
            num_classes=0,
            global_pool="",
            preact=False,
            stem_type="same",
            conv_layer=partial(timm.layers.std_conv.StdConv2dSame, eps=1e-8),
        )
        self.projection = nn.Conv2d(self.backbone.num_features, self.width, 1)

    @classmethod
    def check(cls, config: Settings) -> None:
        if config.patch not in (4, 8, 16, 32):
            raise ConfigError(f"patch={config.patch}: stem={config.stem} divides the side by 4, 8, 16 or 32")

    def forward(self, images: Tensor) -> Tensor:
        return tokens(self.projection(self.backbone(images)))


class SmallResNetStem(ResidualStem):
    """A hybrid stem for small images: a ResNet, then 1x1 patches of its features (arXiv 2010.11929, section 3.1).

    As in BiT (arXiv 1912.11370), the ResNet has group norm and weight-standardized convolutions. Its blocks are timm's
    `Bottleneck`, as in timm's ViT hybrids. BiT's 7x7 root and max pooling are made for images of 224 pixels, so one 3x3
    convolution of stride 1 replaces them. Every stage has two blocks, and divides height and width by 2 unless P = 1.
    P = 2 has one stage, and P = 16 has four stages.
    """

    numerics = 1

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        import timm  # late: takes seconds

        def norm(channels: int, **options: Any) -> nn.Module:  # followed by a ReLU
            groups = group_count(channels)
            return timm.layers.norm_act.GroupNormAct(channels, num_groups=groups, act_layer=nn.ReLU, **options)

        stage = partial(
            timm.models.resnetv2.ResNetStage,
            dilation=1,
            depth=2,
            block_fn=timm.models.resnetv2.Bottleneck,
            act_layer=nn.ReLU,
            conv_layer=timm.layers.std_conv.StdConv2d,
            norm_layer=norm,
        )
        before = halvings(config)[0][0]
        self.root = nn.Sequential(timm.layers.std_conv.StdConv2d(config.channels, before, 3), norm(before))
        self.stages = nn.Sequential()
        for channels, stride in halvings(config):
            self.stages.append(stage(before, channels, stride=stride))
            before = channels
        self.projection = nn.Conv2d(before, self.width, 1)

    @classmethod
    def check(cls, config: Settings) -> None:
        check_halvings(config)

    def forward(self, images: Tensor) -> Tensor:
        return tokens(self.projection(self.stages(self.root(images))))


STEM: dict[str, type[Stem]] = {
    "patch": PatchStem,
    "conv": ConvStem,
    "hmlp": HMLPStem,
    "resnet": ResNetStem,
    "resnet-small": SmallResNetStem,
}


def patch_sizes(config: Settings) -> list[int]:
    """Return the patch sizes in pixels that training steps draw from, by default only `patch`."""
    return STEM[config.stem].patches(config)
