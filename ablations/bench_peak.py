"""What a GPU's tensor cores could do: dense bfloat16, float32 sums, as its maker publishes it."""

import torch

from vitcore.config import Config
from vitcore.device import device_of, hardware

# A part of the device's name -> FLOP/s, the first that fits. NVIDIA's data sheets state twice these figures where they
# count structured sparsity: A100 (2020), H100 (2022), H200 (2024).
PEAKS = {
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "H200 NVL": 835e12,
    "H200": 989e12,
    "A100": 312e12,
}


def peak(config: Config) -> float | None:
    """FLOP/s of the device in the precision of `config`; None where it is not known."""
    if device_of(config) != "cuda" or config.precision != "bf16" or not torch.cuda.is_available():
        return None
    return next((flops for name, flops in PEAKS.items() if name in hardware(config)), None)
