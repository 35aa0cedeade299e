"""The device, the numerical precision and the threads with which a trial computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitcore.options import ConfigError
from vitcore.runtime.attention_backend import use_kernels
from vitcore.runtime.host import processor
from vitcore.runtime.memory import keep_freed
from vitcore.settings import Settings

SUBNORMAL = 2.0**-130  # a subnormal number in float32


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
    """Return `tensor` on `device`. A copy to a GPU is from pinned memory, so that it waits for no earlier work there.

    PyTorch keeps the pinned memory until the copy is done. Raises RuntimeError for a copy during the capture of a CUDA
    graph, because replays of the graph would read this memory again. tensor: on the CPU or on `device`.
    """
    if tensor.device.type == device.type:
        return tensor
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("a value of the host is sent to the GPU")
    return tensor.pin_memory().to(device, non_blocking=True)


def hardware(config: Settings) -> str:
    """Return the model name of the GPU or CPU on which a trial runs."""
    return torch.cuda.get_device_name() if device_of(config) == "cuda" else processor()


def compute_in_precision(config: Settings, function: Callable[..., Tensor], *inputs: Any) -> Tensor:
    """Return `function(images, ...)` with precision and attention kernel of `config`. A bf16 result becomes float32."""
    device = inputs[0].device.type
    bf16 = config.precision == "bf16"
    casting = bf16 or torch.is_autocast_enabled(device)  # entered only if needed: it slows down small models
    with (
        torch.autocast(device, torch.bfloat16, enabled=bf16) if casting else nullcontext(),
        use_kernels(config, device),
    ):
        result = function(*inputs)
    return result.float() if result.dtype == torch.bfloat16 else result


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

    PyTorch keeps them by default. Peaked attention produces so many that matrix products become several times slower on
    some processors. The setting applies to this thread and to PyTorch threads started within the block.
    """
    before = not torch.tensor(SUBNORMAL, dtype=torch.float32, device="cpu") * 1
    torch.set_flush_denormal(on)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
