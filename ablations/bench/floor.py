"""The floor: a lower bound on step time, measured as the time of a step's matrix products and attention alone.

Each operation runs in the fastest sufficiently accurate backend. On a GPU, all operations run as one CUDA graph,
because launching small kernels from Python takes longer than running them. The shapes come from the config.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ablations.bench.timing import Call, mean_seconds, repeat
from vitcore.analysis.cost import measure
from vitcore.config import Config
from vitcore.runtime.cuda_graph import capture, on_side_stream
from vitcore.runtime.device import device_of, hardware, torch_device
from vitcore.training.step import first_line

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

    backends: work -> fastest backend. share_of_flops: fraction of the model's FLOPs, below 1 if the floor lacks a part.
    Raises ValueError if the model is not a ViT of this suite, or if a GPU cannot capture the work as a CUDA graph.
    """

    def __init__(self, config: Config) -> None:
        cost = measure(config)
        if (tokens := cost.tokens) is None:
            raise ValueError(f"model={config.model}: the floor is made of the shapes of a ViT of ours")
        self.device = torch_device(config)
        self.dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
        on_cpu = self.device.type == "cpu" and self.dtype == torch.float32
        self.precisions = ["highest", "medium"] if on_cpu and relative_error("medium") <= EXACT else ["highest"]
        self.backends: dict[str, str] = {}
        self.work: list[tuple[str, Call, int]] = []  # precision, call, number of calls per step
        self.flops = 0  # FLOPs of a batch's forward pass
        B, D, M, L = config.batch, config.width, round(config.width * config.mlp_ratio), config.layers
        if config.stem == "patch":
            self.add_dense("patches", B * prod(config.grid), config.channels * config.patch**2, config.stem_width)
        self.add_dense("qkv", B * tokens, D, 3 * D, L)
        self.add_dense("out", B * tokens, D, D, L)
        self.add_dense("up", B * tokens, D, M, L)
        self.add_dense("down", B * tokens, M, D, L)
        self.add_dense("head", B, D, config.classes)
        self.add_attention((B, config.heads, tokens, D // config.heads), L)
        self.share_of_flops = self.flops / (cost.flops * B)
        self.run = graph_call(self.step, self.device)

    def step(self) -> None:
        with float32_precision("highest"):
            for precision, call, count in self.work:
                torch.set_float32_matmul_precision(precision)
                repeat(call, count)

    def add_dense(self, name: str, rows: int, inner: int, columns: int, count: int = 1) -> None:
        """Add forward and backward passes of `count` linear layers from (rows, inner) to (rows, columns)."""
        self.flops += 2 * rows * inner * columns * count
        x, w, g = self.random(rows, inner), self.random(columns, inner), self.random(rows, columns)
        for product, call in products(x, w, g).items():
            if (name, product) != ("patches", "inputs"):  # images need no gradient
                self.add(f"{name} {product}", dict.fromkeys(self.precisions, call), count)

    def add_attention(self, size: tuple[int, ...], count: int) -> None:
        """Add forward and backward passes of `count` attention operations, with q, k, v of size (B, H, N, D)."""
        self.flops += 4 * prod(size) * size[2] * count
        q, k, v = (self.random(*size).requires_grad_() for _ in range(3))
        calls = {
            f"{name} {precision}": with_gradient(kernel, q, k, v)
            for name, kernel in KERNELS.items()
            if has_gradient(kernel, q, k, v)
            for precision in self.precisions
        }
        self.add("attention", calls, count)

    def add(self, name: str, backends: dict[str, Call], count: int) -> None:
        """Add an operation that a step runs `count` times, in the fastest of `backends` (name -> call)."""
        seconds = {}
        for backend, call in backends.items():
            with float32_precision(backend.split()[-1]):
                turn = graph_call(partial(repeat, call, CALLS[self.device.type]), self.device)
                seconds[backend] = min(mean_seconds(turn, 1, self.device) for _ in range(TURNS))
        fastest = min(seconds, key=seconds.__getitem__)
        self.backends[name] = fastest
        self.work.append((fastest.split()[-1], backends[fastest], count))

    def random(self, *size: int) -> Tensor:
        return torch.randn(*size, device=self.device, dtype=self.dtype)


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
        raise ValueError(f"no CUDA graph of it: {first_line(error)}") from error


def with_gradient(attend: Attention, q: Tensor, k: Tensor, v: Tensor) -> Call:
    gradient = torch.randn_like(q)
    return lambda: torch.autograd.grad(attend(q, k, v), (q, k, v), gradient)


def has_gradient(attend: Attention, q: Tensor, k: Tensor, v: Tensor) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns why, then raises
        try:
            with_gradient(attend, q, k, v)()
        except RuntimeError:
            return False
    return True


def fused_attention(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v)


def plain_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return softmax(q.k / sqrt(D)) v (B, H, N, D) from two batched products and a softmax. q, k, v: (B, H, N, D)."""
    shape = q.shape
    q, k, v = (part.flatten(0, 1) for part in (q, k, v))
    logits = torch.baddbmm(q.new_zeros(1, 1, 1), q, k.transpose(1, 2), beta=0, alpha=shape[-1] ** -0.5)
    return torch.bmm(logits.softmax(dim=-1), v).view(shape)


KERNELS: dict[str, Attention] = {
    "flash": partial(fused_attention, SDPBackend.FLASH_ATTENTION),
    "efficient": partial(fused_attention, SDPBackend.EFFICIENT_ATTENTION),
    "cudnn": partial(fused_attention, SDPBackend.CUDNN_ATTENTION),
    "math": partial(fused_attention, SDPBackend.MATH),
    "plain": plain_attention,
}


def relative_error(precision: str) -> float:
    """Return the relative error, in the Frobenius norm, of a float32 product computed with this precision."""
    a, b = torch.randn(2, 256, 256, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with float32_precision(precision):
        found = a.float() @ b.float()
    return float((found.double() - a @ b).norm() / (a @ b).norm())


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
