"""The cost of a model, as data: importing this module loads no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """The cost of a model.

    flops: one forward pass of one image (a multiply-add is 2). tokens: sequence length, prefix tokens included.
    class_token: whether there is a class token. attention_bias: whether the logits have a bias. The last three are None
    for a reference model.
    """

    params: int
    flops: int
    tokens: int | None
    class_token: bool | None
    attention_bias: bool | None
