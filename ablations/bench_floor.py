"""The floor: a step's matrix products and attention alone, on the fastest backend that is found for each.

On a GPU they are replayed as one CUDA graph: small ones are computed faster than Python can ask for them.

Of a ViT's patches, blocks and head; what other parts compute is left out, and `share_of_flops` says how much that is.
The shapes are written down from the config, not read off the model, so that the model's own FLOPs check them.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ablations.bench_clock import timed
from vitcore.config import Config
from vitcore.device import device_of
from vitcore.measure import measure

Json = dict[str, Any]
Call = Callable[[], object]
EXACT = 1e-5  # relative error of a float32 product that may be called one
TRIALS, CALLS = 5, {"cpu": 3, "cuda": 20}  # of each backend, where the fastest is looked for
WARM_UP = 3  # calls before a capture: what libraries set up at a first one cannot be captured
FUSED = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


@dataclass(frozen=True)
class Dense:
    """`count` layers of (rows, inner) x (inner, columns). `first`: nothing needs the gradient of its input."""

    name: str
    rows: int
    inner: int
    columns: int
    count: int = 1
    first: bool = False

    @property
    def flops(self) -> int:
        """Of the forward products."""
        return 2 * self.rows * self.inner * self.columns * self.count


@dataclass(frozen=True)
class Attended:
    """`count` layers of attention: queries, keys and values (batch, heads, tokens, size)."""

    batch: int
    heads: int
    tokens: int
    size: int
    count: int
    name: str = "attention"

    @property
    def flops(self) -> int:
        return 4 * self.batch * self.heads * self.tokens**2 * self.size * self.count


@dataclass(frozen=True)
class Work:
    """One call, `count` times a step, as each backend does it."""

    name: str
    count: int
    backends: dict[str, Call]


def shapes(config: Config) -> tuple[list[Dense], Attended]:
    """Of the forward pass of one batch. Raises ValueError for a model that is not ours."""
    cost = measure(config)
    if cost["tokens"] is None:
        raise ValueError(f"model={config.model}: the floor is made of the shapes of a ViT of ours")
    B, D, M, L = config.batch, config.width, round(config.width * config.mlp_ratio), config.layers
    rows = B * cost["tokens"]
    patches = Dense("patches", B * prod(config.grid), config.channels * config.patch**2, config.stem_width, first=True)
    dense = [
        *([patches] if config.stem == "patch" else []),
        Dense("qkv", rows, D, 3 * D, L),
        Dense("out", rows, D, D, L),
        Dense("up", rows, D, M, L),
        Dense("down", rows, M, D, L),
        Dense("head", B, D, config.classes),
    ]
    return dense, Attended(B, config.heads, cost["tokens"], D // config.heads, L)


class Floor:
    """The work of one step; `run()` does it once. Raises ValueError where there is none, or no graph of it."""

    def __init__(self, config: Config) -> None:
        self.device = torch.device(device_of(config))
        self.dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
        dense, attended = shapes(config)
        self.flops = sum(one.flops for one in dense) + attended.flops
        self.share_of_flops = self.flops / (measure(config)["flops"] * config.batch)
        ways = ways_of_multiplying(self.device, self.dtype)
        works = [work for one in dense for work in self.products(one, ways)] + [self.attention(attended, ways)]
        self.chosen = [(work, self.fastest(work)) for work in works]
        self.run = ready(self.step, self.device)

    def step(self) -> None:
        """Call by call."""
        for work, backend in self.chosen:
            call = work.backends[backend]
            with multiplying(backend):
                for _ in range(work.count):
                    call()

    def backends(self) -> Json:
        """Which was the fastest for each piece of work."""
        return {work.name: backend for work, backend in self.chosen}

    def fastest(self, work: Work) -> str:
        """By the shortest of TRIALS turns each."""
        seconds: dict[str, list[float]] = {name: [] for name in work.backends}
        calls = {}
        for name, call in work.backends.items():
            with multiplying(name):
                calls[name] = ready(repeated(call, CALLS[self.device.type]), self.device)
        for _ in range(TRIALS):
            for name, some in calls.items():
                with multiplying(name):
                    seconds[name].append(timed(some, 1, self.device))
        return min(seconds, key=lambda name: min(seconds[name]))

    def products(self, shape: Dense, ways: list[str]) -> Iterator[Work]:
        """The forward product of a dense layer and the two of its gradients, laid out as nn.Linear's."""
        x, w, g = (self.random(*size) for size in product_sizes(shape))
        named = {"forward": (x, w.T), "weights": (g.T, x), "inputs": (g, w)}
        for name, (a, b) in named.items():
            if not (shape.first and name == "inputs"):
                out = a.new_empty(len(a), b.shape[1])
                yield Work(f"{shape.name} {name}", shape.count, {way: multiply(a, b, out) for way in ways})

    def attention(self, shape: Attended, ways: list[str]) -> Work:
        """Forward and backward, with each kernel that there is."""
        size = (shape.batch, shape.heads, shape.tokens, shape.size)
        q, k, v, g = (self.random(*size) for _ in range(4))
        for part in (q, k, v):
            part.requires_grad_()
        calls = {
            f"{name} {way}": both_ways(attend, q, k, v, g) for name, attend in self.kernels(q, k, v) for way in ways
        }
        return Work(shape.name, shape.count, calls)

    def kernels(self, q: Tensor, k: Tensor, v: Tensor) -> Iterator[tuple[str, Callable[..., Tensor]]]:
        """The fused ones that take these, and the three operations one after the other."""
        for name, backend in FUSED.items():
            if takes(backend, q, k, v):
                yield name, fused(backend)
        yield "plain", plain

    def random(self, *size: int) -> Tensor:
        return torch.randn(*size, device=self.device, dtype=self.dtype)


def repeated(call: Call, count: int) -> Call:
    def calls() -> None:
        for _ in range(count):
            call()

    return calls


def ready(call: Call, device: torch.device) -> Call:
    """`call`, on a GPU as a graph of all that it launches. Raises ValueError where it cannot be captured."""
    if device.type != "cuda":
        return call
    try:
        return captured(call, device)
    except RuntimeError as error:
        raise ValueError(f"no CUDA graph of it: {str(error).partition(chr(10))[0]}") from error


def captured(call: Call, device: torch.device) -> Call:
    """As torch.cuda.make_graphed_callables goes about it: first in a stream of its own, then captured."""
    here = torch.cuda.current_stream(device)
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    side.wait_stream(here)
    with torch.cuda.stream(side):
        repeated(call, WARM_UP)()
    here.wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def product_sizes(shape: Dense) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Of the input, the weight and the gradient of the output."""
    return (shape.rows, shape.inner), (shape.columns, shape.inner), (shape.rows, shape.columns)


def multiply(a: Tensor, b: Tensor, out: Tensor) -> Call:
    return lambda: torch.mm(a, b, out=out)


def both_ways(attend: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Call:
    return lambda: torch.autograd.grad(attend(q, k, v), (q, k, v), g)


def fused(backend: SDPBackend) -> Callable[..., Tensor]:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v)

    return attend


def takes(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether this device has the kernel for these, with its gradient."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns why, then raises
        try:
            torch.autograd.grad(fused(backend)(q, k, v).sum(), (q, k, v))
        except RuntimeError:
            return False
    return True


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q.k / sqrt(d)) v in three operations."""
    shape = q.shape
    q, k, v = (part.flatten(0, 1) for part in (q, k, v))
    logits = torch.baddbmm(q.new_zeros(1, 1, 1), q, k.transpose(1, 2), beta=0, alpha=shape[-1] ** -0.5)
    return torch.bmm(logits.softmax(dim=-1), v).view(shape)


def ways_of_multiplying(device: torch.device, dtype: torch.dtype) -> list[str]:
    """The settings of PyTorch's matrix products under which they are still what `dtype` says."""
    if device.type != "cpu" or dtype != torch.float32:
        return ["highest"]
    return ["highest"] + (["medium"] if error_of("medium") <= EXACT else [])


def error_of(way: str) -> float:
    """The relative error of a float32 product of 256 x 256, by its norm."""
    a, b = torch.randn(2, 256, 256, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with multiplying(way):
        found = a.float() @ b.float()
    exact = a @ b
    return float((found.double() - exact).norm() / exact.norm())


@contextmanager
def multiplying(backend: str) -> Iterator[None]:
    """The last word of `backend` is PyTorch's precision of float32 products inside."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(backend.rpartition(" ")[2])
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
