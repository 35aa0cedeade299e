"""The stems of hybrid models: ResNets built from timm's modules. P is the patch size."""

from functools import partial
from typing import Any, Literal

from torch import Tensor, nn

from vitcore.model.initialization import Draw, zeros
from vitcore.model.stem.patch import Stem, check_halvings, group_count, halvings, tokens
from vitcore.options import ConfigError
from vitcore.settings import Settings


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
