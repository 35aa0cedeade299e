"""Attention kernels, compiled models and CUDA graphs: the rules that choose them, seen on a CPU."""

import itertools
from contextlib import nullcontext
from typing import Any
from unittest.mock import Mock, patch

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend

from ablations.trainables.vit.training import kernel_choices
from vitcore.analysis.cost import bias_kind
from vitcore.config import Config
from vitcore.model.position.relative import Relative
from vitcore.runtime import device
from vitcore.runtime.compile_cache import compile_model, compiles
from vitcore.runtime.device import FREE, PRODUCTS, allowed_kernels, compute_in_precision, kernel_name
from vitcore.training import step_graph
from vitcore.training.step_graph import capture, on_side_stream

SMALL: dict[str, Any] = {"width": 16, "depth": 1, "heads": 2, "patch": 4}


def test_the_kind_of_bias_is_found_with_few_patches() -> None:
    """The bias of all pairs of many patches would take gigabytes."""
    config = Config(**SMALL | {"image_size": 224, "patch": 1}, position="relative")
    with patch.object(Relative, "bias", autospec=True, side_effect=Relative.bias) as bias:
        assert bias_kind(config) == "learned"
    assert [call.args[-1] for call in bias.call_args_list] == [(2, 2)]
    assert bias_kind(Config(model="timm/resnet18")) == ""  # a reference model's attention is its own


def test_kernels_and_precision_are_recorded() -> None:
    """env.json has the process's kernels and precision, and TF32 on a GPU."""
    on_cpu = kernel_choices(Config(**SMALL, compile=True), "cpu")
    assert (on_cpu["compile"], on_cpu["attention"], "tf32" in on_cpu) == (True, FREE, False)
    before = torch.get_float32_matmul_precision()
    assert on_cpu["matmul_precision"] == before
    torch.set_float32_matmul_precision("high")
    try:
        on_gpu = kernel_choices(Config(**SMALL, steps=999), "cuda")
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
    (PINNED, "cpu", FREE),
    ({"position": "relative", **PINNED}, "cuda", "memory-efficient"),
    ({"width": 16, "precision": "bf16", **PINNED}, "cuda", "memory-efficient"),
    ({"width": 24, "precision": "bf16", **PINNED}, "cuda", "math"),  # the kernel takes heads of 16 bytes
    ({"width": 24, **PINNED}, "cuda", "memory-efficient"),
    ({"width": 12, **PINNED}, "cuda", "math"),
]


@pytest.mark.parametrize(("settings", "device", "name"), NAMED)
def test_the_kernel_is_named_by_the_rule(settings: dict[str, Any], device: str, name: str) -> None:
    """PyTorch's choice by default; pinned on a GPU all arms have one kernel, and what it refuses is computed too."""
    config = Config(**(SMALL | settings))
    assert kernel_name(config, device) == name
    kernels = {"memory-efficient": [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH], "math": [SDPBackend.MATH]}
    assert allowed_kernels(config, device) == kernels.get(name, [])


KERNELS = {"pinned": [SDPBackend.MATH], "fastest": [SDPBackend.FLASH_ATTENTION]}


def test_a_compiled_model_has_the_kernels_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has them although the process has compiled the same model with other kernels."""

    class Attends(torch.nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, q, q)

    monkeypatch.setattr(device, "allowed_kernels", lambda config, device: KERNELS[config.attention])
    q = torch.randn(2, 2, 8, 8)
    for attention, kernel in KERNELS.items():
        config = Config(**SMALL, attention=attention)
        graphs: list[str] = []
        with torch.no_grad():
            compute_in_precision(config, compile_model(Attends(), seen(graphs), config.attention), q)
        assert ("flash" in "".join(graphs)) == (kernel == [SDPBackend.FLASH_ATTENTION])


def seen(graphs: list[str]) -> Any:
    """Return a compiler that records the graphs it gets."""
    from torch._dynamo.backends.common import aot_autograd  # late: they take seconds to load
    from torch._functorch.aot_autograd import make_boxed_func

    def compiler(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph.print_readable(print_output=False))
        return make_boxed_func(graph.forward)

    return aot_autograd(fw_compiler=compiler)


def test_every_shape_of_a_worker_has_one_graph() -> None:
    from torch._dynamo.utils import counters  # late: it takes seconds to load

    torch.compiler.reset()
    counters.clear()
    for number, (width, size) in enumerate(itertools.product(range(8, 13), (2, 3)), 1):
        model, x = torch.nn.Linear(width, 1), torch.randn(size, width)
        torch.testing.assert_close(compile_model(model, backend="eager")(x), model(x))
        compile_model(torch.nn.Linear(width, 1), backend="eager")(x)  # another trial's model
        assert counters["stats"]["unique_graphs"] == number


def test_only_long_trials_on_a_gpu_are_compiled() -> None:
    """Unless the config says otherwise; configs of earlier versions say true or false."""
    long = Config(**SMALL, steps=2000)
    assert [compiles(long, "cuda"), compiles(Config(**SMALL, steps=1999), "cuda"), compiles(long, "cpu")] == [1, 0, 0]
    assert compiles(Config(**SMALL, compile=True), "cpu")
    assert not compiles(Config(**SMALL, steps=2000, compile=False), "cuda")
    assert not compiles(Config(**SMALL, steps=2000, **{"stem.patches": [1, 2, 4]}), "cuda")  # each would be compiled


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Mock:
    current = Mock()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: current)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    return current


def test_what_follows_waits_for_the_side_stream_after_an_error_too(here: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise kernels launched before would overwrite the restored state."""
    side = Mock()
    monkeypatch.setattr(step_graph, "side_stream", lambda device: side)
    with pytest.raises(ValueError, match="a part's own"), on_side_stream(torch.device("cpu")):
        raise ValueError("a part's own")
    side.wait_stream.assert_called_once_with(here)
    here.wait_stream.assert_called_once_with(side)


class Invalid(nullcontext[None]):
    """A capture that ends with an error that only refers to an earlier one."""

    def __exit__(self, *error: object) -> None:
        raise RuntimeError("operation failed due to a previous error during capture")


def test_a_failed_capture_says_why_it_failed(here: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Mock())
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, capture_error_mode: Invalid())
    with pytest.raises(RuntimeError, match="not permitted"):
        capture(Mock(side_effect=RuntimeError("operation not permitted when stream is capturing")))
    with pytest.raises(RuntimeError, match="previous error"):
        capture(lambda: torch.zeros(()))
