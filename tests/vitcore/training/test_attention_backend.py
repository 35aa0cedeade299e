"""Attention kernels: the rule that chooses them, and what is recorded of them."""

from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend

from ablations.execution.provenance import environment_record
from vitcore.analysis.cost import bias_of
from vitcore.config import Config
from vitcore.model.position.relative import Relative
from vitcore.runtime import attention_backend
from vitcore.runtime.attention_backend import FREE, PRODUCTS, named, pinned
from vitcore.runtime.compile_cache import compiled
from vitcore.runtime.device import in_precision

SMALL: dict[str, Any] = {"width": 16, "depth": 1, "heads": 2, "patch": 4}


def test_a_bias_is_told_by_few_patches() -> None:
    """That of all pairs of many patches would take gigabytes, before anything is trained."""
    config = Config(width=16, depth=1, heads=2, image_size=224, patch=1, position="relative")
    with mock.patch.object(Relative, "bias", autospec=True, side_effect=Relative.bias) as bias:
        assert bias_of(config) == "learned"
    assert [call.args[-1] for call in bias.call_args_list] == [(2, 2)]
    assert bias_of(Config(model="timm/resnet18")) == ""  # a reference model's attention is its own


def test_kernels_and_precision_are_recorded() -> None:
    """With each attempt, as the process has them; TF32 where there can be any."""
    before = torch.get_float32_matmul_precision()
    on_cpu = environment_record(Config(**SMALL, compile=True), "a CPU", "cpu", {})
    assert (on_cpu["compile"], on_cpu["attention"], on_cpu["matmul_precision"]) == (True, FREE, before)
    assert "tf32" not in on_cpu
    torch.set_float32_matmul_precision("high")
    try:
        on_gpu = environment_record(Config(**SMALL, steps=999), "a GPU", "cuda", {})
    finally:
        torch.set_float32_matmul_precision(before)
    assert (on_gpu["compile"], on_gpu["matmul_precision"]) == (False, "high")
    assert on_gpu["tf32"] == "products and convolutions"


PINNED = {"attention": "pinned"}
NAMED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "cpu", FREE),
    ({"position": "alibi2d"}, "cpu", FREE),
    ({"position": "relative"}, "cpu", PRODUCTS),
    ({"precision": "bf16"}, "cpu", f"{FREE} in float32"),
    ({"precision": "bf16", "position": "relative-bias"}, "cpu", f"{PRODUCTS} in float32"),
    ({"attention_dropout": 0.1}, "cuda", PRODUCTS),
    ({}, "cuda", FREE),
    ({"position": "rope2d"}, "cuda", FREE),
    ({"position": "alibi2d"}, "cuda", f"{FREE} with a fixed bias"),
    ({"position": "relative"}, "cuda", f"{FREE} with a learned bias"),
    ({"position": "relative-bias"}, "cuda", f"{FREE} with a learned bias"),
    (PINNED, "cpu", FREE),
    (PINNED, "cuda", "memory-efficient"),
    ({"position": "relative", **PINNED}, "cuda", "memory-efficient"),
    ({"width": 16, "precision": "bf16", **PINNED}, "cuda", "memory-efficient"),
    ({"width": 24, "precision": "bf16", **PINNED}, "cuda", "math"),  # the kernel takes heads of 16 bytes
    ({"width": 24, **PINNED}, "cuda", "memory-efficient"),
    ({"width": 12, **PINNED}, "cuda", "math"),
]


@pytest.mark.parametrize(("settings", "device", "name"), NAMED)
def test_the_kernel_is_named_by_the_rule(settings: dict[str, Any], device: str, name: str) -> None:
    """PyTorch's choice by default; pinned on a GPU all arms have one kernel, and what it refuses is computed too.

    A bias is learned or fixed by its gradient, on which the kernels for it depend.
    """
    config = Config(**(SMALL | settings))
    assert named(config, device) == name
    kernels = {"memory-efficient": [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH], "math": [SDPBackend.MATH]}
    assert pinned(config, device) == kernels.get(name, [])


def test_a_compiled_model_has_the_kernels_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the process has compiled the same with others: seen on the CPU, which has a fused kernel and products."""

    class Attends(torch.nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, q, q)

    monkeypatch.setattr(attention_backend, "pinned", lambda config, device: KERNELS[config.attention])
    q = torch.randn(2, 2, 8, 8)
    for attention, kernel in KERNELS.items():
        config = Config(**SMALL, attention=attention)
        graphs: list[str] = []
        with torch.no_grad():
            in_precision(config, compiled(Attends(), seen(graphs), config.attention), q)
        assert ("flash" in "".join(graphs)) == (kernel == [SDPBackend.FLASH_ATTENTION])


KERNELS = {"pinned": [SDPBackend.MATH], "fastest": [SDPBackend.FLASH_ATTENTION]}


def seen(graphs: list[str]) -> Any:
    """A compiler that writes down what it is given."""
    from torch._dynamo.backends.common import aot_autograd  # late: they take seconds to load
    from torch._functorch.aot_autograd import make_boxed_func

    def compiler(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph.print_readable(print_output=False))
        return make_boxed_func(graph.forward)

    return aot_autograd(fw_compiler=compiler)
