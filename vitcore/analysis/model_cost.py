"""The cost of a model, as data: importing this loads no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """The size of a model, and `flops` of a forward pass on one image (a multiply-add is 2).

    `tokens` includes prefix tokens. `attention_bias`: whether a bias is added to the logits. These two and
    `class_token` are None for a reference model.
    """

    params: int
    flops: int
    tokens: int | None
    class_token: bool | None
    attention_bias: bool | None
