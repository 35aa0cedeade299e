"""Attention kernels: the rule that chooses them, and what is recorded of them."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend

from ablations.execution.provenance import environment_record
from vitcore.analysis.cost import bias_of
from vitcore.config import Config
from vitcore.model.position.relative import Relative
from vitcore.options import ConfigError
from vitcore.runtime import attention_backend
from vitcore.runtime.attention_backend import FREE, PRODUCTS, named, pinned
from vitcore.runtime.compile_cache import compiled
from vitcore.runtime.device import in_precision

SMALL = {"width": 16, "depth": 1, "heads": 2, "patch": 4}
BIASES = {"none": "", "1d": "", "rope2d": "", "alibi2d": "fixed", "relative": "learned", "relative-bias": "learned"}


@pytest.mark.parametrize("position", BIASES)
def test_a_bias_is_told_by_its_gradient(position: str) -> None:
    """Which kernels there are for it depends on that."""
    assert bias_of(Config(**SMALL, position=position)) == BIASES[position]


def test_a_bias_is_told_by_few_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of all pairs of many patches would take gigabytes, before anything is trained."""
    grids, bias = [], Relative.bias

    def watched(self: Relative, q: Tensor, layer: int, grid: tuple[int, int]) -> Tensor:
        grids.append(grid)
        return bias(self, q, layer, grid)

    monkeypatch.setattr(Relative, "bias", watched)
    assert bias_of(Config(width=16, depth=1, heads=2, image_size=224, patch=1, position="relative")) == "learned"
    assert grids == [(2, 2)]


def test_a_reference_model_has_none_that_is_known() -> None:
    """Its attention, where it has any, is its own."""
    assert bias_of(Config(model="timm/resnet18")) == ""


def test_the_cpu_has_a_form_of_its_own_for_a_learned_bias_alone() -> None:
    """What encoder.attend asks of the bias itself."""
    found = {position: named(Config(**SMALL, position=position), "cpu") for position in BIASES}
    assert {position for position, form in found.items() if form == PRODUCTS} == {"relative", "relative-bias"}
    assert {form for form in found.values() if form != PRODUCTS} == {FREE}
    in_bf16 = {named(Config(**SMALL, position=position, precision="bf16"), "cpu") for position in BIASES}
    assert in_bf16 == {f"{PRODUCTS} in float32", f"{FREE} in float32"}


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


@pytest.mark.parametrize("position", BIASES)
def test_pinned_on_a_gpu_all_arms_have_one_kernel(position: str) -> None:
    """The fused one that has the gradient of a bias; what it refuses is computed nevertheless."""
    config = Config(**SMALL, position=position, attention="pinned")
    assert pinned(config, "cuda") == [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    assert named(config, "cuda") == "memory-efficient"
    assert pinned(config, "cpu") == []


@pytest.mark.parametrize(
    ("width", "heads", "precision", "kernel"),
    [
        (16, 2, "bf16", "memory-efficient"),
        (24, 2, "bf16", "math"),
        (24, 2, "float32", "memory-efficient"),
        (12, 2, "float32", "math"),
    ],
)
def test_heads_that_the_kernel_does_not_take_are_told_by_the_config(
    width: int, heads: int, precision: Any, kernel: str
) -> None:
    """It wants 16 bytes a step: what is recorded is what is computed."""
    config = Config(**SMALL | {"width": width, "heads": heads}, precision=precision, attention="pinned")
    assert named(config, "cuda") == kernel


def test_by_default_the_kernel_is_left_to_pytorch() -> None:
    """Whose choice depends on whether there is a bias, and whether that has a gradient."""
    found = {position: Config(**SMALL, position=position) for position in BIASES}
    assert all(pinned(config, "cuda") == [] for config in found.values())
    assert [named(found[position], "cuda") for position in ("1d", "alibi2d", "relative")] == [
        FREE,
        f"{FREE} with a fixed bias",
        f"{FREE} with a learned bias",
    ]
    with pytest.raises(ConfigError, match=r"attention=slow: input should be 'fastest' or 'pinned'"):
        Config(**SMALL, attention="slow")


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
