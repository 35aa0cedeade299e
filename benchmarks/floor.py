"""The floor: a lower bound on step time, measured as the time of a step's matrix products and attention alone.

Each operation runs in the fastest sufficiently accurate backend. On a GPU, all operations run as one CUDA graph.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import product
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.timing import Call, mean_seconds, repeat
from commonfloor.messages import reason
from vitcore.analysis.cost import measure
from vitcore.config import Config
from vitcore.model.position import stem_width
from vitcore.runtime.device import device_of, hardware, torch_device
from vitcore.training.step_graph import capture, on_side_stream

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
EXACT = 1e-5  # maximum relative error of a product that still counts as float32
TURNS, CALLS = 5, {"cpu": 3, "cuda": 20}  # turns per backend, and calls per turn
WARM_UP = 3  # calls before a capture, during which libraries initialize
# Part of the device's name -> dense bfloat16 FLOP/s; the first match counts. Sources: NVIDIA's data sheets of the A100
# (2020), H100 (2022) and H200 (2024), which state twice these figures where they count structured sparsity.
PEAKS = {
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "H200 NVL": 835e12,
    "H200": 989e12,
    "A100": 312e12,
}


def peak(config: Config) -> float | None:
    """Return the device's published peak FLOP/s in the config's precision, or None if it is unknown."""
    if device_of(config) != "cuda" or config.precision != "bf16":
        return None
    return next((flops for name, flops in PEAKS.items() if name in hardware(config)), None)


class Floor:
    """The floor of step time. `run()` computes only the matrix products and the attention of a training step.

    backends: operation -> fastest backend. share_of_flops: the floor's FLOPs over the model's, below 1 if a part
    is missing. Raises ValueError if the model is no ViT of this suite, or a GPU cannot capture a CUDA graph of it.
    """

    def __init__(self, config: Config) -> None:
        cost = measure(config)
        tokens = cost.tokens
        if tokens is None:
            raise ValueError(f"model={config.model}: the floor is made of the shapes of a ViT of ours")
        self.device = torch_device(config)
        dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
        on_cpu = self.device.type == "cpu" and dtype == torch.float32
        self.precisions = ("highest", "medium") if on_cpu and relative_error("medium") <= EXACT else ("highest",)
        self.backends: dict[str, str] = {}
        self.work: list[tuple[str, Call, int]] = []  # precision, call, number of calls per step
        random = partial(torch.randn, device=self.device, dtype=dtype)
        B, H, D, M, L = config.batch, config.heads, config.width, round(config.width * config.mlp_ratio), config.layers
        patches = ("patches", B * prod(config.grid), config.channels * config.patch**2, stem_width(config), 1)
        dense = [  # name, rows, columns of inputs and of outputs, number per step
            *([patches] if config.stem == "patch" else []),
            ("qkv", B * tokens, D, 3 * D, L),
            ("out", B * tokens, D, D, L),
            ("up", B * tokens, D, M, L),
            ("down", B * tokens, M, D, L),
            ("head", B, D, config.classes, 1),
        ]
        for name, rows, inner, outer, count in dense:
            for factors, call in products(random(rows, inner), random(outer, inner), random(rows, outer)).items():
                if (name, factors) != ("patches", "inputs"):  # images need no gradient
                    self.add(f"{name} {factors}", {"": call}, count)
        size = (B, H, tokens, D // H)
        self.add("attention", attention_calls(*(random(size).requires_grad_() for _ in range(3))), L)
        flops = sum(2 * rows * inner * outer * count for _, rows, inner, outer, count in dense)
        self.share_of_flops = (flops + 4 * prod(size) * tokens * L) / (cost.flops * B)
        self.run = graph_call(self.step, self.device)

    def add(self, name: str, calls: dict[str, Call], count: int) -> None:
        """Add an operation that a step runs `count` times, in the fastest of `calls` (backend -> call)."""
        seconds = {}
        for precision, (backend, call) in product(self.precisions, calls.items()):
            with float32_precision(precision):
                turn = graph_call(partial(repeat, call, CALLS[self.device.type]), self.device)
                seconds[precision, backend] = min(mean_seconds(turn, 1, self.device) for _ in range(TURNS))
        precision, backend = min(seconds, key=seconds.__getitem__)
        self.backends[name] = f"{backend} {precision}".lstrip()
        self.work.append((precision, calls[backend], count))

    def step(self) -> None:
        with float32_precision("highest"):
            for precision, call, count in self.work:
                torch.set_float32_matmul_precision(precision)
                repeat(call, count)


def products(x: Tensor, w: Tensor, g: Tensor) -> dict[str, Call]:
    """Return the products of nn.Linear, name -> call: "forward", and the gradients of "weights" and "inputs".

    x: inputs (N, I). w: weights (O, I). g: gradient of the outputs (N, O).
    """
    factors = {"forward": (x, w.T), "weights": (g.T, x), "inputs": (g, w)}
    return {name: partial(torch.mm, a, b, out=a.new_empty(len(a), b.shape[1])) for name, (a, b) in factors.items()}


def graph_call(call: Call, device: torch.device) -> Call:
    """Return the replay of a call's CUDA graph, or the call itself on a CPU. Raises ValueError if the capture fails."""
    if device.type != "cuda":
        return call
    try:
        with on_side_stream(device):
            repeat(call, WARM_UP)
        return capture(call)[0]
    except RuntimeError as error:
        raise ValueError(f"no CUDA graph of it: {reason(error)}") from error


def attention_calls(*inputs: Tensor) -> dict[str, Call]:
    """Return kernel -> call of attention, forward and backward, for KERNELS that support both. inputs: q, k, v."""
    gradient = torch.randn_like(inputs[0])
    calls: dict[str, Call] = {}
    for name, attend in KERNELS.items():
        call = partial(gradients, attend, inputs, gradient)
        with warnings.catch_warnings(), suppress(RuntimeError):
            warnings.simplefilter("ignore")  # PyTorch warns why, then raises
            call()
            calls[name] = call
    return calls


def gradients(attend: Attention, inputs: tuple[Tensor, ...], gradient: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(attend(*inputs), inputs, gradient)


def plain_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return softmax(q.k / sqrt(D)) v (B, H, N, D) from two batched products and a softmax. q, k, v: (B, H, N, D)."""
    shape = q.shape
    q, k, v = (part.flatten(0, 1) for part in (q, k, v))
    logits = torch.baddbmm(q.new_zeros(1, 1, 1), q, k.transpose(1, 2), beta=0, alpha=shape[-1] ** -0.5)
    return torch.bmm(logits.softmax(dim=-1), v).view(shape)


KERNELS: dict[str, Attention] = {
    "flash": sdpa_kernel(SDPBackend.FLASH_ATTENTION)(F.scaled_dot_product_attention),
    "efficient": sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION)(F.scaled_dot_product_attention),
    "cudnn": sdpa_kernel(SDPBackend.CUDNN_ATTENTION)(F.scaled_dot_product_attention),
    "math": sdpa_kernel(SDPBackend.MATH)(F.scaled_dot_product_attention),
    "plain": plain_attention,
}


def relative_error(precision: str) -> float:
    """Return the relative error, in the Frobenius norm, of a float32 product computed with this precision."""
    a, b = torch.randn(2, 256, 256, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with float32_precision(precision):
        product = a.float() @ b.float()
    return float((product.double() - a @ b).norm() / (a @ b).norm())


@contextmanager
def float32_precision(precision: str) -> Iterator[None]:
    """Set the precision of float32 products, "highest" or "medium", within the block. Convolutions do not use TF32."""
    before, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = convolutions
