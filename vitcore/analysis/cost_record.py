"""The record of a model's cost, in a module that does not import PyTorch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """The cost of a model. The last three fields are None for a reference model from timm."""

    params: int
    flops: int  # of one forward pass for one image; a multiply-add counts as 2
    tokens: int | None  # the length of the sequence, including prefix tokens, before patches are dropped
    class_token: bool | None  # whether the model has a class token
    attention_bias: bool | None  # whether the position embedding adds a bias to the attention logits
