"""From tokens to one vector an image (arXiv 2010.11929, D.3). One class and one line of POOLING each."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from vitcore.part import Part

if TYPE_CHECKING:
    from vitcore.config import Config


class Pooling(Part):
    """Reads the tokens. `class_token`: whether the model has one at all; `every_layer`: reads those of each layer."""

    slot = "pool"
    class_token: ClassVar[bool]
    every_layer: ClassVar[bool] = False

    def __init__(self, config: Config) -> None:
        super().__init__()

    def forward(self, x: Tensor, prefix: int) -> Tensor:
        """Tokens (B, prefix + N, D), or (L, B, prefix + N, D) of every layer, to (B, D); the class token is first."""
        raise NotImplementedError


class ClassToken(Pooling):
    """The state of a learned extra token at the output of the encoder (arXiv 2010.11929, equation 4)."""

    numerics = 1
    class_token = True

    def forward(self, x: Tensor, prefix: int) -> Tensor:
        return x[:, 0]


class GlobalAverage(Pooling):
    """The mean of the patches alone (arXiv 2010.11929, D.3: needs a learning rate of its own)."""

    numerics = 1
    class_token = False

    def forward(self, x: Tensor, prefix: int) -> Tensor:
        return x[:, prefix:].mean(dim=1)


POOLING: dict[str, type[Pooling]] = {"cls": ClassToken, "gap": GlobalAverage}
