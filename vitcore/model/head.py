"""The heads, which map the pooled vector to logits. To add a head, write a class and add it to HEAD."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitcore.model.initialization import Part, constant, lecun_normal, zeros
from vitcore.settings import Settings


class Head(Part):
    """Base class of heads, which map vectors (B, D) to logits (B, classes).

    The setting `head_init` chooses the initial weights of the last layer.
    """

    slot = "head"

    class Options(Part.Options):
        #: Initial logit of each class. With -log(classes), binary cross-entropy starts at probabilities of about
        #: 1 / classes. With 0, short training only learns to lower all logits (big_vision: `init_head_bias`).
        bias: float = 0.0

    def __init__(self, config: Settings) -> None:
        super().__init__()
        self.draws = {
            "weight": zeros if config.head_init == "zeros" else lecun_normal,  # models_vit.py; flax's Dense
            "bias": constant(config.options_of(self.slot, self.Options).bias),
        }
        self.weight = nn.Parameter(torch.empty(config.classes, config.width))
        self.bias = nn.Parameter(torch.empty(config.classes))

    def features(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.features(x), self.weight, self.bias)


class LinearHead(Head):
    """A single linear layer (arXiv 2010.11929, section 3.1: for fine-tuning)."""

    numerics = 1


class MLPHead(Head):
    """A hidden layer of width D with tanh, then a linear layer (arXiv 2010.11929, section 3.1: for pre-training)."""

    numerics = 1

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.hidden = nn.Linear(config.width, config.width)
        self.draws = {**self.draws, "hidden.weight": lecun_normal}

    def features(self, x: Tensor) -> Tensor:
        return self.hidden(x).tanh()


HEAD: dict[str, type[Head]] = {"linear": LinearHead, "mlp": MLPHead}
