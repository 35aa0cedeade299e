"""The encoder's blocks of self-attention and MLP. To add a block, write a class and add it to BLOCK."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from vitcore.keyed_random import site_code
from vitcore.model.dropout import Dropout, drop_path
from vitcore.model.initialization import Initial, Part, constant
from vitcore.model.mlp import MLP
from vitcore.model.norm import norm
from vitcore.model.position import Context
from vitcore.model.self_attention import SELF_ATTENTION
from vitcore.settings import Settings


class Block(Part):
    """Base class of blocks, which map tokens (B, T, D) to tokens (B, T, D)."""

    slot = "block"

    def __init__(self, config: Settings, layer: int) -> None:
        super().__init__()
        self.norm1 = norm(config, config.width)
        self.attention = SELF_ATTENTION[config.self_attention](config, layer)
        self.scale1 = layer_scale(config)
        self.drop_path1 = drop_path(config, layer, "attention")

    def forward(self, x: Tensor, context: Context) -> Tensor:
        raise NotImplementedError


class TwoBranches(Block):
    """Base class of blocks with one residual connection around the attention and another around the MLP."""

    def __init__(self, config: Settings, layer: int) -> None:
        super().__init__(config, layer)
        self.norm2 = norm(config, config.width)
        self.mlp = MLP[config.mlp](config, layer)
        self.scale2 = layer_scale(config)
        self.drop_path2 = drop_path(config, layer, "mlp")


class PreNorm(TwoBranches):
    """A pre-norm block: z' = MSA(LN(z)) + z, then MLP(LN(z')) + z' (arXiv 2010.11929, equations 2 and 3)."""

    numerics = 1

    def forward(self, x: Tensor, context: Context) -> Tensor:
        x = x + self.attended(x, context)
        return x + self.mapped(x, context)

    def attended(self, x: Tensor, context: Context) -> Tensor:
        return self.drop_path1(self.scale1(self.attention(self.norm1(x), context)), context.rng_keys)

    def mapped(self, x: Tensor, context: Context) -> Tensor:
        return self.drop_path2(self.scale2(self.mlp(self.norm2(x), context.rng_keys)), context.rng_keys)


class Branches(PreNorm):
    """Pre-norm attentions side by side, then MLPs side by side, each with its norm (arXiv 2203.09795, section 3).

    With two branches, z' = z + MSA(LN(z)) + MSA'(LN'(z)), then z' + MLP(LN(z')) + MLP'(LN'(z')). Half as many blocks
    then have the parameters of `block=pre`. The branches of a block share its position embedding, and value residuals
    are those of the first branch of the first block.
    """

    numerics = 1

    class Options(PreNorm.Options):
        branches: Annotated[int, Field(ge=2, le=4)] = 2  #: Number of attentions, and of MLPs, of a block.

    def __init__(self, config: Settings, layer: int) -> None:
        super().__init__(config, layer)
        count = config.options_of(self.slot, self.Options).branches
        self.further = nn.ModuleList(PreNorm(config, layer) for _ in range(1, count))
        for number, branch in enumerate(self.further, 1):
            for module in branch.modules():
                if isinstance(module, Dropout):  # with masks of its own
                    module.site = site_code(f"{module.site} branch {number}")

    def forward(self, x: Tensor, context: Context) -> Tensor:
        x = x + sum(branch.attended(x, context) for branch in self.branches())
        return x + sum(branch.mapped(x, context) for branch in self.branches())

    def branches(self) -> list[PreNorm]:
        return [self, *(branch for branch in self.further if isinstance(branch, PreNorm))]


class PostNorm(TwoBranches):
    """A post-norm block: z' = LN(MSA(z) + z), then LN(MLP(z') + z') (arXiv 1706.03762, section 3.1).

    The last block ends with a norm, so `final_norm=none` gives the encoder of arXiv 1706.03762.
    """

    numerics = 1

    def forward(self, x: Tensor, context: Context) -> Tensor:
        x = self.norm1(x + self.drop_path1(self.scale1(self.attention(x, context)), context.rng_keys))
        return self.norm2(x + self.drop_path2(self.scale2(self.mlp(x, context.rng_keys)), context.rng_keys))


class Parallel(Block):
    """A parallel block, MSA(LN(z)) + MLP(LN(z)) + z, with one norm for both branches (arXiv 2302.05442, section 2.1).

    As in timm's `ParallelScalingBlock`, layer scale and stochastic depth apply to the sum of the branches.
    """

    numerics = 1

    def __init__(self, config: Settings, layer: int) -> None:
        super().__init__(config, layer)
        self.mlp = MLP[config.mlp](config, layer)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        normed = self.norm1(x)
        branches = self.attention(normed, context) + self.mlp(normed, context.rng_keys)
        return x + self.drop_path1(self.scale1(branches), context.rng_keys)


class LayerScale(Initial):
    """A learned factor for each channel of a residual branch (arXiv 2103.17239, equation 4)."""

    def __init__(self, config: Settings) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(config.width))
        self.draws = {"gamma": constant(config.layer_scale)}

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


def layer_scale(config: Settings) -> nn.Module:
    return LayerScale(config) if config.layer_scale else nn.Identity()


BLOCK: dict[str, type[Block]] = {"pre": PreNorm, "post": PostNorm, "parallel": Parallel, "branches": Branches}
