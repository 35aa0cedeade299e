"""The stems of the model, which map images to patch tokens.

A new stem is a class and a line of STEM. Shapes: B images, C channels, P patch size, N patches in raster order, D
width. Every stem divides the height and the width of an image by P.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from vitcore.model.initialization import Draw, Part, lecun_normal, zeros
from vitcore.options import ConfigError, Settings

if TYPE_CHECKING:
    from vitcore.config import Config


class Stem(Part):
    """Base class of stems, which map images (B, C, H, W) to tokens (B, N, D)."""

    slot = "stem"
    local: ClassVar[bool] = False  # whether a token depends on the pixels of its patch alone

    @classmethod
    def blocks(cls, config: Config) -> int:
        """Return the number of encoder blocks that the stem replaces."""
        return 0

    @classmethod
    def patches(cls, config: Config) -> list[int]:
        """Return the patch sizes that training steps draw from, in pixels: by default `patch` alone."""
        return [config.patch]

    def __init__(self, config: Config) -> None:
        super().__init__()


class PatchStem(Stem):
    """A linear projection of P x P patches to tokens (arXiv 2010.11929, equation 1).

    The weight (D, C, P, P) has the layout of the equivalent convolution with stride P. Patches of another size, which
    is set in `self.patch`, are projected by the resized weight (PI-resize: arXiv 2212.08013, section 3.4).
    """

    numerics = 1
    local = True
    draws = {"weight": lecun_normal, "bias": zeros}  # as flax's Conv, which models_vit.py uses

    class Options(Stem.Options):
        #: A matrix product over cut patches, or a strided convolution. The results are equal up to rounding.
        form: Literal["linear", "convolution"] = "linear"
        #: Whether the projection has a bias. CLIP's projection has no bias.
        bias: bool = True
        #: Patch sizes, of which each training step draws one (FlexiViT: arXiv 2212.08013, section 3.2). The weights
        #: have the size `patch`, at which the model is evaluated. Empty: `patch` alone.
        patches: Annotated[list[Annotated[int, Field(ge=1, le=2**16)]], Field(max_length=64)] = []

    @classmethod
    def patches(cls, config: Config) -> list[int]:
        return config.options_of(cls.slot, cls.Options).patches or [config.patch]

    @classmethod
    def canonical(cls, config: Config) -> Settings:
        sizes = sorted(set(cls.patches(config)))
        return {"patches": [] if sizes == [config.patch] else sizes}

    @classmethod
    def check(cls, config: Config) -> None:
        sizes = cls.patches(config)
        if config.patch not in sizes:
            raise ConfigError(f"stem.patches={sizes}: patch={config.patch}, of which the weights are, is one of them")
        if odd := [size for size in sizes if config.image_size % size]:
            raise ConfigError(f"stem.patches={sizes}: {odd[0]} does not divide image_size={config.image_size}")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        options = config.options_of(self.slot, self.Options)
        self.patch, self.convolution = config.patch, options.form == "convolution"
        for size in {*self.patches(config)} - {config.patch}:
            self.register_buffer(f"to_{size}", inverse_resize(config.patch, size).float(), persistent=False)
        self.weight = nn.Parameter(torch.empty(config.stem_width, config.channels, config.patch, config.patch))
        self.bias = nn.Parameter(torch.empty(config.stem_width)) if options.bias else None

    def forward(self, images: Tensor) -> Tensor:
        B, C, H, W = images.shape
        P, weight = self.patch, self.weight_at(self.patch)
        if self.convolution:
            return F.conv2d(images, weight, self.bias, stride=P).flatten(2).transpose(1, 2)
        patches = images.view(B, C, H // P, P, W // P, P).permute(0, 2, 4, 1, 3, 5)  # (B, rows, columns, C, P, P)
        return F.linear(patches.reshape(B, -1, C * P * P), weight.flatten(1), self.bias)

    def weight_at(self, size: int) -> Tensor:
        """Return the weight (D, C, size, size) for patches of `size` x `size` pixels."""
        if size == self.weight.shape[-1]:
            return self.weight
        resize = getattr(self, f"to_{size}", None)
        return resized(self.weight, inverse_resize(self.weight.shape[-1], size) if resize is None else resize)


def resized(weight: Tensor, resize: Tensor) -> Tensor:
    """Return the weight (D, C, P, P) of a patch projection, resized to (D, C, Q, Q) by the matrix (Q, P) `resize`.

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


class ConvStem(Stem):
    """3x3 convolutions of stride 2 whose channels double up to D, then a 1x1 convolution (ViT_C: arXiv 2106.14881).

    For P = 1, the stem has by default a single 3x3 convolution of stride 1. ViT_C uses `fewer_blocks=1`, one encoder
    block fewer than the corresponding ViT, and `norm=batch`. Batch norm couples the images of a batch, so the default
    is a group norm.
    """

    numerics = 1

    class Options(Stem.Options):
        #: Channels of each 3x3 convolution, which has stride 2 at the first and where channels change. Empty: they
        #: double up to the width. The 18GF model of arXiv 2106.14881 has [64, 128, 128, 256, 256, 512].
        channels: Annotated[list[Annotated[int, Field(ge=1, le=2**16)]], Field(max_length=16)] = []
        norm: Literal["group", "batch", "layer"] = "group"  #: The norm after each convolution.
        fewer_blocks: Annotated[int, Field(ge=0)] = 0  #: Blocks of the encoder that the stem replaces.

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        norm, layers, before = NORM[self.options(config).norm], list[nn.Module](), config.channels
        for channels, stride in self.convolutions(config):
            convolution = nn.Conv2d(before, channels, 3, stride=stride, padding=1, bias=False)
            layers += [convolution, norm(channels), nn.ReLU()]
            before = channels
        self.layers = nn.Sequential(*layers)
        self.projection = nn.Conv2d(before, config.stem_width, 1)

    @classmethod
    def options(cls, config: Config) -> ConvStem.Options:
        return config.options_of(cls.slot, cls.Options)

    @classmethod
    def convolutions(cls, config: Config) -> list[tuple[int, int]]:
        if not (channels := cls.options(config).channels):
            return halvings(config)
        changes = [2 if after != before else 1 for before, after in pairwise(channels)]
        return list(zip(channels, [min(config.patch, 2), *changes], strict=True))

    @classmethod
    def blocks(cls, config: Config) -> int:
        return cls.options(config).fewer_blocks

    @classmethod
    def canonical(cls, config: Config) -> Settings:
        return {"channels": []} if cls.convolutions(config) == halvings(config) else {}

    @classmethod
    def check(cls, config: Config) -> None:
        check_halvings(config)
        options = cls.options(config)
        halved = math.prod(stride for _, stride in cls.convolutions(config))
        if halved != config.patch:
            raise ConfigError(
                f"stem.channels={options.channels}: they halve the side where they change and at the first: "
                f"by {halved} in all, patch={config.patch}"
            )
        if options.fewer_blocks >= config.depth:
            raise ConfigError(
                f"stem.fewer_blocks={options.fewer_blocks}: fewer than depth={config.depth}, so that one is left"
            )

    def forward(self, images: Tensor) -> Tensor:
        return self.projection(self.layers(images)).flatten(2).transpose(1, 2)  # type: ignore[no-any-return]


class HMLPStem(Stem):
    """Convolutions without overlap, with norms and GELUs, that merge ever larger patches (arXiv 2203.09795, section 5).

    For P = 16, the convolutions have sides 4, 2 and 2, and D / 4, D / 4 and D channels, as in arXiv 2203.09795. For
    every multiple of 4 above 4, the last two sides are 2. Patches are processed separately. The default is therefore a
    layer norm over the channels at each location, whereas arXiv 2203.09795 uses `norm=batch`.
    """

    numerics = 1
    local = True

    class Options(Stem.Options):
        norm: Literal["batch", "layer"] = "layer"  #: The norm after each convolution.

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        norm = NORM[config.options_of(self.slot, self.Options).norm]
        sides = self.sides(config.patch)
        channels = [config.channels, *[config.stem_width // 4] * (len(sides) - 1), config.stem_width]
        layers: list[nn.Module] = []
        for (before, after), side in zip(pairwise(channels), sides, strict=True):
            layers += [nn.Conv2d(before, after, side, stride=side), norm(after), nn.GELU()]
        self.layers = nn.Sequential(*layers[:-1])

    @staticmethod
    def sides(patch: int) -> list[int]:
        """Return the kernel side of each convolution in pixels, whose product is `patch`."""
        twos = 2 if patch % 4 == 0 and patch > 4 else 1 if patch % 2 == 0 and patch > 2 else 0
        return [patch >> twos, *[2] * twos]

    @classmethod
    def check(cls, config: Config) -> None:
        if config.stem_width < 4:
            raise ConfigError(f"width={config.width}: stem=hmlp begins with a quarter of it: at least 4")

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images).flatten(2).transpose(1, 2)  # type: ignore[no-any-return]


class ResidualStem(Stem):
    """Base class of stems with residual blocks, which start as the identity (vit_jax/models_resnet.py)."""

    def draw_of(self, name: str) -> Draw:
        return zeros if name.endswith("norm3.weight") else super().draw_of(name)  # the scale of a block's last norm


class ResNetStem(ResidualStem):
    """The stem of the hybrid ViT: a ResNet, then 1x1 patches of its features (arXiv 2010.11929, sections 3.1 and 4.1).

    As in BiT (arXiv 1912.11370), the ResNet has weight-standardized convolutions, group norm, a 7x7 root with max
    pooling, and TensorFlow's 'same' padding. It consists of timm's modules. P = 32 is the whole network. P = 16 moves
    the blocks of the last stage to the third stage, so that 50 layers have stages of 3, 4 and 9 blocks. P = 8 is the
    first two stages. P = 4 is the first stage.
    """

    numerics = 1

    class Options(Stem.Options):
        layers: Literal[26, 50] = 50  #: Layers of the whole network (arXiv 2010.11929: 50, arXiv 2106.10270: 26).

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        # late: timm takes seconds to import
        from timm.layers.std_conv import StdConv2dSame
        from timm.models.resnetv2 import ResNetV2

        whole = {26: [2, 2, 2, 2], 50: [3, 4, 6, 3]}[config.options_of(self.slot, self.Options).layers]
        stages = {4: whole[:1], 8: whole[:2], 16: [*whole[:2], whole[2] + whole[3]], 32: whole}
        self.backbone = ResNetV2(
            layers=stages[config.patch],
            in_chans=config.channels,
            num_classes=0,
            global_pool="",
            preact=False,
            stem_type="same",
            conv_layer=partial(StdConv2dSame, eps=1e-8),
        )
        self.projection = nn.Conv2d(self.backbone.num_features, config.stem_width, 1)

    @classmethod
    def check(cls, config: Config) -> None:
        if config.patch not in (4, 8, 16, 32):
            raise ConfigError(f"patch={config.patch}: stem={config.stem} divides the side by 4, 8, 16 or 32")

    def forward(self, images: Tensor) -> Tensor:
        return self.projection(self.backbone(images)).flatten(2).transpose(1, 2)  # type: ignore[no-any-return]


class SmallResNetStem(ResidualStem):
    """A hybrid stem for small images: a ResNet, then 1x1 patches of its features (arXiv 2010.11929, section 3.1).

    As in BiT (arXiv 1912.11370), the ResNet has group norm and weight-standardized convolutions. Its blocks are timm's
    `Bottleneck`, as in timm's ViT hybrids. BiT's 7x7 root and max pooling are made for images of 224 pixels, so one 3x3
    convolution of stride 1 replaces them. Every stage has two blocks, and divides height and width by 2 unless P = 1. P
    = 2 has one stage, and P = 16 has four stages.
    """

    numerics = 1

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        # late: timm takes seconds to import
        from timm.layers.norm_act import GroupNormAct
        from timm.layers.std_conv import StdConv2d
        from timm.models.resnetv2 import Bottleneck, ResNetStage

        def norm(channels: int, **options: Any) -> nn.Module:  # followed by a ReLU
            return GroupNormAct(channels, num_groups=group_count(channels), act_layer=nn.ReLU, **options)

        stage = partial(
            ResNetStage,
            dilation=1,
            depth=2,
            block_fn=Bottleneck,
            act_layer=nn.ReLU,
            conv_layer=StdConv2d,
            norm_layer=norm,
        )
        before = halvings(config)[0][0]
        self.root = nn.Sequential(StdConv2d(config.channels, before, 3), norm(before))
        self.stages = nn.Sequential()
        for channels, stride in halvings(config):
            self.stages.append(stage(before, channels, stride=stride))
            before = channels
        self.projection = nn.Conv2d(before, config.stem_width, 1)

    @classmethod
    def check(cls, config: Config) -> None:
        check_halvings(config)

    def forward(self, images: Tensor) -> Tensor:
        return self.projection(self.stages(self.root(images))).flatten(2).transpose(1, 2)  # type: ignore[no-any-return]


class ChannelNorm(nn.LayerNorm):
    """A layer norm over the channels at each location of feature maps (B, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


def halvings(config: Config) -> list[tuple[int, int]]:
    """Return the channels, which double up to the width, and the stride of each stage, 2 unless P = 1."""
    stages = max(1, config.patch.bit_length() - 1)
    return [(max(1, config.width >> (stages - 1 - stage)), min(config.patch, 2)) for stage in range(stages)]


def check_halvings(config: Config) -> None:
    if config.patch & (config.patch - 1):
        raise ConfigError(f"patch={config.patch}: stem={config.stem} halves the image: a power of two")


def group_count(channels: int) -> int:
    """Return the number of groups of a group norm: equal groups, if possible of 16 channels (arXiv 1803.08494)."""
    return math.gcd(channels, max(1, channels // 16))


NORM: dict[str, Callable[[int], nn.Module]] = {
    "group": lambda channels: nn.GroupNorm(group_count(channels), channels),
    "batch": nn.BatchNorm2d,
    "layer": ChannelNorm,
}
STEM: dict[str, type[Stem]] = {
    "patch": PatchStem,
    "conv": ConvStem,
    "hmlp": HMLPStem,
    "resnet": ResNetStem,
    "resnet-small": SmallResNetStem,
}
