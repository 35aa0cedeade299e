"""The device, the numerical precision, the attention kernel and the threads with which a trial computes.

By default, PyTorch chooses the attention kernel, on a GPU by whether a bias is fixed, learned or absent. Of the fused
kernels, only the memory-efficient one computes the gradient of a bias (torch 2.14, derivatives.yaml). Therefore,
`attention=pinned` uses it in all arms, or unfused products for unsupported head widths.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from commonfloor.options import ConfigError
from vitcore.analysis.cost import bias_kind
from vitcore.runtime.host import processor
from vitcore.runtime.memory import keep_freed
from vitcore.settings import Settings

SUBNORMAL = 2.0**-130  # a subnormal number in float32
FREE = "PyTorch's choice"
PRODUCTS = "softmax between two products"  # as computed by vitcore.model.self_attention.attend
NAMES = {SDPBackend.EFFICIENT_ATTENTION: "memory-efficient", SDPBackend.MATH: "math"}
ALIGNED = {"float32": 4, "bf16": 8}  # the memory-efficient kernel requires head widths of a multiple of 16 bytes


class NoGpu(ConfigError):
    """The error for a requested GPU that cannot be used."""


def device_of(config: Settings) -> str:
    if config.device != "auto":
        return config.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def torch_device(config: Settings) -> torch.device:
    """Return the device of `config`, with the current GPU's index; raise RuntimeError if there is no GPU for it."""
    if device_of(config) == "cpu":
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def require_gpu() -> None:
    """Raise NoGpu if PyTorch finds no GPU. The message gives the versions of the driver and of CUDA."""
    if not torch.cuda.is_available():
        with suppress(OSError):
            driver = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
            raise NoGpu(f"no usable GPU: driver '{driver}', PyTorch built for CUDA {torch.version.cuda}")
        raise NoGpu(f"no usable GPU: no NVIDIA driver on this machine (PyTorch is built for CUDA {torch.version.cuda})")


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Return `tensor`, on the CPU or on `device`, on `device`. A copy from pinned memory waits for no earlier work.

    Raises RuntimeError for a copy during the capture of a CUDA graph, whose replays would read this memory again.
    """
    if tensor.device.type == device.type:
        return tensor
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("a value of the host is sent to the GPU")
    return tensor.pin_memory().to(device, non_blocking=True)


def hardware(config: Settings) -> str:
    """Return the model name of the GPU or CPU on which a trial runs."""
    return torch.cuda.get_device_name() if device_of(config) == "cuda" else processor()


def allowed_kernels(config: Settings, device: str) -> list[SDPBackend]:
    """Return the kernels that attention may use on "cuda" or "cpu", by preference, or [] if PyTorch chooses."""
    if device != "cuda" or config.attention == "fastest":
        return []
    if not config.model and (config.width // config.heads) % ALIGNED[config.precision]:
        return [SDPBackend.MATH]
    return [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]  # MATH: for inputs that the first does not support


def use_kernels(config: Settings, device: str) -> AbstractContextManager[Any]:
    kernels = allowed_kernels(config, device)
    return sdpa_kernel(kernels, set_priority=True) if kernels else nullcontext()


def kernel_name(config: Settings, device: str) -> str:
    """Return the name of the attention kernel on "cuda" or "cpu", for a trial's record."""
    kernels = allowed_kernels(config, device)
    if kernels and not config.attention_dropout:
        return NAMES[kernels[0]]
    if config.attention_dropout and not config.model:
        return PRODUCTS
    bias = bias_kind(config)
    if device == "cpu":
        name = PRODUCTS if bias == "learned" else FREE  # PyTorch uses the same kernel with and without a mask
        if config.precision == "bf16" and not config.model:
            return f"{name} in float32"
        return name
    if bias:
        return f"{FREE} with a {bias} bias"
    return FREE


def compute_in_precision(config: Settings, function: Callable[..., Any], *inputs: Any) -> Any:
    """Return the tensor or tensors `function(*inputs)`, in float32, with precision and attention kernel of `config`."""
    device = inputs[0].device.type
    bf16 = config.precision == "bf16"
    casting = bf16 or torch.is_autocast_enabled(device)  # entered only if needed: it slows down small models
    with (
        torch.autocast(device, torch.bfloat16, enabled=bf16) if casting else nullcontext(),
        use_kernels(config, device),
    ):
        result = function(*inputs)
    if isinstance(result, tuple):
        return tuple(in_float32(tensor) for tensor in result)
    return in_float32(result)


def in_float32(tensor: Tensor) -> Tensor:
    """Return a bf16 tensor in float32, and other tensors as they are."""
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


@contextmanager
def compute_settings(config: Settings) -> Iterator[None]:
    """Flush subnormal numbers to zero and use `config.threads` CPU threads in the block. Calls `keep_freed` first."""
    keep_freed()
    with flush_subnormals(True):
        before = torch.get_num_threads()
        torch.set_num_threads(config.threads)  # affects the rounding of sums
        try:
            yield
        finally:
            torch.set_num_threads(before)


@contextmanager
def flush_subnormals(on: bool) -> Iterator[None]:
    """Flush subnormal float32 numbers (below 2^-126) to zero within the block if `on`, otherwise keep them.

    Peaked attention produces so many that matrix products become several times slower on some processors.
    """
    before = not torch.tensor(SUBNORMAL, dtype=torch.float32, device="cpu") * 1
    torch.set_flush_denormal(on)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
