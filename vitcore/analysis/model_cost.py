"""The cost of a model, as data: importing this loads no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """`flops`: one forward pass of one image, 2 a multiply-add (products, convolutions, attention).

    `tokens`, with those before the patches, `class_token` and `attention_bias`, whether something is added to the
    attention's logits, are None for a reference model.
    """

    params: int
    flops: int
    tokens: int | None
    class_token: bool | None
    attention_bias: bool | None
